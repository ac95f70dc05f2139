//! Flattens the service files of one group into the lines that libpam runs, in its order and with
//! includes resolved. Continuations, words and control fields are parsed as libpam does
//! (pam.conf(5)).

use super::{Group, ModuleReturn};
use kernel::sys::file::read_regular;
use nix::fcntl::OFlag;
use std::fmt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum nesting of includes and substacks, as in libpam.
const DEPTH_MAX: usize = 16;
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const ENTRIES_MAX: usize = 1000;
/// The service whose lines apply if a service has none.
const FALLBACK_SERVICE: &str = "other";
/// Words that a line may begin with.
const GROUP_NAMES: [&str; 4] = ["auth", "account", "password", "session"];
/// The service that a line of this module without `service=` is for.
const DEFAULT_SERVICE: &str = "sshd";
/// File names of our module.
pub const MODULE_FILES: [&str; 2] = ["pam_job_adopt.so", "libpam_job_adopt.so"];

/// A line of a service file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// The file.
    pub file: PathBuf,
    /// The number of its first line, from 1.
    pub line: usize,
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A line of a flattened stack that calls a module, or begins a substack.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its file and line.
    pub place: FileLine,
    /// The module as the line names it.
    pub module: String,
    /// The module's arguments.
    pub arguments: Vec<String>,
    /// `None` for other modules; for a line of this module, whether it can be relied on.
    pub ours: Option<Result<(), LineFault>>,
    /// The line of the service's own file that is or includes this one; 0 for lines of `other`.
    pub top: usize,
    /// The number of substacks around it.
    pub(super) level: usize,
    /// `None` for the start of a substack, which calls no module.
    pub(super) control: Option<Control>,
}

impl Entry {
    /// Returns the file name of the module.
    pub fn file(&self) -> &str {
        self.module.rsplit('/').next().unwrap_or_default()
    }

    /// Returns whether the lines below run too, unless this one refuses.
    pub fn is_pass_through(&self) -> bool {
        let ends = |action| matches!(action, Action::Done | Action::Jump(_) | Action::Reset);
        let control = self.control.as_ref();
        control.is_some_and(|control| control.outcomes().iter().all(|(_, action)| !ends(*action)))
    }

    /// Returns whether the line names our module, for whatever service.
    pub fn is_our_module(&self) -> bool {
        MODULE_FILES.contains(&self.file())
    }

    /// Returns whether it is a line of this module that only leaves the job's namespaces at the end of a session.
    pub fn is_close_only(&self) -> bool {
        self.is_our_module() && is_close_only(&self.arguments)
    }

    /// Returns whether it is a line of this module that can be relied on.
    pub fn is_fit(&self) -> bool {
        self.ours == Some(Ok(()))
    }

    /// Returns whether it is a line of this module for this service, reliable or not.
    pub fn is_for_service(&self) -> bool {
        !matches!(self.ours, None | Some(Err(LineFault::OtherService(_))))
    }

    /// Returns whether it is a line of this module for this service that only observes.
    pub fn is_observing(&self) -> bool {
        self.is_for_service() && self.arguments.iter().any(|word| word == "observe")
    }
}

/// Why a line of this module cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineFault {
    /// Its control lets a session open although the module failed.
    #[error("is not required, requisite or an equal of theirs")]
    NotRequired,
    /// Its leading `-` lets a session open if the module cannot be loaded.
    #[error("has a leading -")]
    LeadingDash,
    /// Its `service=` names another service.
    #[error("is for service {0}")]
    OtherService(String),
    /// It observes, while an account line admits users.
    #[error("observes, and the account line does not")]
    ObservesAlone,
}

/// Returns the lines of `service` in that group, from the service files below `root`.
///
/// # Errors
///
/// A text that names the file that neither libpam nor we can read.
pub(super) fn flatten(
    root: &Path,
    service: &str,
    group: Group,
    replacement: Replacement<'_>,
) -> Result<Vec<Entry>, String> {
    let mut stack = Flattener { root, service, group, replacement, entries: Vec::new() };
    stack.load_service(service)?;
    if stack.entries.is_empty() {
        stack.load_service(FALLBACK_SERVICE)?;
        stack.entries.iter_mut().for_each(|entry| entry.top = 0);
    }
    Ok(stack.entries)
}

/// A file and the text that replaces its content on the disk.
pub(super) type Replacement<'a> = Option<(&'a Path, &'a str)>;

struct Flattener<'a> {
    root: &'a Path,
    service: &'a str,
    group: Group,
    replacement: Replacement<'a>,
    entries: Vec<Entry>,
}

/// How a file came to be included.
#[derive(Clone, Copy, Default)]
struct Inclusion {
    /// A line with `include` or `substack` included it.
    included: bool,
    /// The number of files around it.
    depth: usize,
    /// The number of substacks around it.
    level: usize,
    /// The line of the service's own file that included it.
    top: usize,
}

fn require_included_name<'a>(place: &FileLine, name: Option<&'a str>) -> Result<&'a str, String> {
    name.ok_or_else(|| format!("{place}: includes nothing"))
}

impl Flattener<'_> {
    /// Adds the lines of a file that a line includes.
    fn load(&mut self, name: &str, inclusion: Inclusion) -> Result<(), String> {
        if inclusion.depth >= DEPTH_MAX {
            return Err(format!("{name}: included more than {DEPTH_MAX} deep"));
        }
        let file =
            self.find_service_file(name)?.ok_or_else(|| format!("{name}: no such service file"))?;
        self.add_file(&file, inclusion)
    }

    /// Adds the lines of a service; a service without a file has none.
    fn load_service(&mut self, name: &str) -> Result<(), String> {
        match self.find_service_file(name)? {
            Some(file) => self.add_file(&file, Inclusion::default()),
            None => Ok(()),
        }
    }

    fn add_file(&mut self, file: &(PathBuf, String), inclusion: Inclusion) -> Result<(), String> {
        let (path, text) = file;
        let lines = parse_lines(text)
            .ok_or_else(|| format!("{}: ends in a line's middle", path.display()))?;
        for line in lines {
            let place = FileLine { file: path.clone(), line: line.number };
            let top = if inclusion.depth == 0 { line.number } else { inclusion.top };
            self.add_line(&line, &place, Inclusion { top, ..inclusion })?;
        }
        Ok(())
    }

    fn add_line(
        &mut self,
        line: &LogicalLine,
        place: &FileLine,
        inclusion: Inclusion,
    ) -> Result<(), String> {
        let Inclusion { included, level, top, .. } = inclusion;
        let deeper = Inclusion { depth: inclusion.depth + 1, ..inclusion };
        let word = |index: usize| line.words.get(index).map(String::as_str);
        let first = word(0).unwrap_or_default();
        if first.eq_ignore_ascii_case("@include") {
            return self.load(require_included_name(place, word(1))?, deeper);
        }
        let kind = first.strip_prefix('-').unwrap_or(first);
        let is_own = kind.eq_ignore_ascii_case(self.group.as_str());
        let is_other = !is_own && GROUP_NAMES.iter().any(|other| kind.eq_ignore_ascii_case(other));
        // A line without a group belongs to auth, and to the group of the line that includes it.
        let accepts_any = included || self.group == Group::Auth;
        if is_other || (!is_own && !accepts_any) {
            return Ok(());
        }
        let control = word(1).unwrap_or_default();
        let is_substack = control.eq_ignore_ascii_case("substack");
        if is_substack {
            self.push_entry(line, place, None, (level, top))?;
        }
        if is_substack || control.eq_ignore_ascii_case("include") {
            let level = level + usize::from(is_substack);
            return self.load(
                require_included_name(place, word(2))?,
                Inclusion { included: true, level, ..deeper },
            );
        }
        self.push_entry(line, place, Some(Control::parse(control)), (level, top))
    }

    fn push_entry(
        &mut self,
        line: &LogicalLine,
        place: &FileLine,
        control: Option<Control>,
        (level, top): (usize, usize),
    ) -> Result<(), String> {
        if self.entries.len() >= ENTRIES_MAX {
            let group = self.group.as_str();
            return Err(format!("{place}: more than {ENTRIES_MAX} {group} lines"));
        }
        let mut words = line.words.iter().skip(2).cloned();
        let module = words.next().unwrap_or_default();
        let mut entry = Entry {
            place: place.clone(),
            module,
            arguments: words.collect(),
            ours: None,
            top,
            level,
            control,
        };
        // In the session group a line with `close_only` confines no login.
        let is_ours =
            entry.is_our_module() && !(entry.is_close_only() && self.group == Group::Session);
        if let (true, Some(control)) = (is_ours, &entry.control) {
            let dash = line.words.first().is_some_and(|kind| kind.starts_with('-'));
            entry.ours = Some(self.check_fitness(&entry.arguments, control, dash));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Checks whether a line of this module can be relied on.
    fn check_fitness(
        &self,
        arguments: &[String],
        control: &Control,
        dash: bool,
    ) -> Result<(), LineFault> {
        let service = arguments.iter().filter_map(|word| service_argument(word)).next_back();
        match service.unwrap_or_else(|| DEFAULT_SERVICE.to_owned()) {
            other if other != self.service => Err(LineFault::OtherService(other)),
            _ if dash => Err(LineFault::LeadingDash),
            _ if !control.is_required() => Err(LineFault::NotRequired),
            _ => Ok(()),
        }
    }

    /// Reads the service file of that name: an absolute path, or else the site's file, or else the
    /// distribution's.
    fn find_service_file(&self, name: &str) -> Result<Option<(PathBuf, String)>, String> {
        let candidates = match name.strip_prefix('/') {
            Some(relative) => vec![self.root.join(relative)],
            None => ["etc/pam.d", "usr/lib/pam.d"].map(|dir| self.root.join(dir).join(name)).into(),
        };
        for path in candidates {
            if let Some((_, text)) =
                self.replacement.filter(|(replacement, _)| *replacement == path)
            {
                return Ok(Some((path, text.to_owned())));
            }
            match read_service_file(&path) {
                Ok(text) => return Ok(Some((path, text))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Ok(None)
    }
}

/// Returns whether a line with these arguments only leaves the job's namespaces.
pub fn is_close_only(arguments: &[String]) -> bool {
    arguments.iter().any(|word| word == "close_only")
}

/// Returns the value of a `service=` argument. The module ignores case there, as
/// `pam_slurm_adopt` does.
fn service_argument(word: &str) -> Option<String> {
    let (key, name) = word.split_once('=')?;
    key.eq_ignore_ascii_case("service").then(|| name.to_ascii_lowercase())
}

/// Reads a service file as libpam does: it follows links and checks no owner.
fn read_service_file(path: &Path) -> std::io::Result<String> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let status = file.metadata()?;
    if !status.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let bytes = read_regular(file.into(), status.len(), FILE_BYTES_MAX)?;
    if bytes.contains(&0) {
        return Err(std::io::Error::other("not a text"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    Ignore,
    Ok,
    Done,
    Bad,
    Die,
    Reset,
    /// Skips this many lines.
    Jump(usize),
}

/// Return values in the order of their numbers (`security/_pam_types.h`), as controls spell them.
const RETURNS: [&str; 32] = [
    "success", "open_err", "symbol_err", "service_err", "system_err", "buf_err", "perm_denied",
    "auth_err", "cred_insufficient", "authinfo_unavail", "user_unknown", "maxtries",
    "new_authtok_reqd", "acct_expired", "session_err", "cred_unavail", "cred_expired", "cred_err",
    "no_module_data", "conv_err", "authtok_err", "authtok_recover_err", "authtok_lock_busy",
    "authtok_disable_aging", "try_again", "ignore", "abort", "authtok_expired", "module_unknown",
    "bad_item", "conv_again", "incomplete",
];

const ACTIONS: [(&str, Action); 6] = [
    ("ignore", Action::Ignore),
    ("ok", Action::Ok),
    ("done", Action::Done),
    ("bad", Action::Bad),
    ("die", Action::Die),
    ("reset", Action::Reset),
];

/// Return values, as far as the analysis distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Return {
    Success,
    /// `PAM_IGNORE`, which our module returns for logins that it does not judge.
    Ignore,
    /// `PAM_NEW_AUTHTOK_REQD`, with which applications admit an account all the same.
    Renew,
    /// Any other value with which the stack continues.
    Other,
}

/// The action of every return value; `None` counts as bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Control([Option<Action>; 32]);

impl Control {
    /// Parses a control field other than `include` and `substack`.
    pub(super) fn parse(word: &str) -> Self {
        let word = match word.to_ascii_lowercase().as_str() {
            "required" => "success=ok new_authtok_reqd=ok ignore=ignore default=bad",
            "requisite" => "success=ok new_authtok_reqd=ok ignore=ignore default=die",
            "optional" => "success=ok new_authtok_reqd=ok default=ignore",
            "sufficient" => "success=done new_authtok_reqd=done default=ignore",
            _ => word,
        };
        Self::parse_pairs(word).unwrap_or(Self([None; 32]))
    }

    /// Parses `return=action` pairs; `None` if one is malformed. As in libpam, a name ends as soon as
    /// it is complete, so that the blank before the next pair may be missing.
    fn parse_pairs(text: &str) -> Option<Self> {
        let mut control = Self([None; 32]);
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (code, after) = parse_return(rest)?;
            let after = after.trim_start().strip_prefix('=')?.trim_start();
            let (action, after) = parse_action(after)?;
            control.set(code, action);
            rest = after.trim_start();
        }
        Some(control)
    }

    /// Sets one action. `default` fills in the values that have none yet; a later pair replaces an
    /// earlier one.
    fn set(&mut self, code: Option<usize>, action: Action) {
        match code {
            Some(code) => {
                if let Some(slot) = self.0.get_mut(code) {
                    *slot = Some(action);
                }
            }
            None => self.0.iter_mut().for_each(|slot| {
                slot.get_or_insert(action);
            }),
        }
    }

    /// Returns every return value with which the stack continues, and its action, each pair once.
    pub(super) fn outcomes(&self) -> Vec<(Return, Action)> {
        let outcome = |(name, action): (&&str, &Option<Action>)| {
            let code = match *name {
                "success" => Return::Success,
                "ignore" => Return::Ignore,
                "new_authtok_reqd" => Return::Renew,
                // The application calls again; no session is open afterwards.
                "incomplete" => return None,
                _ => Return::Other,
            };
            Some((code, action.unwrap_or(Action::Bad)))
        };
        let mut outcomes: Vec<_> = RETURNS.iter().zip(&self.0).filter_map(outcome).collect();
        outcomes.sort_unstable();
        outcomes.dedup();
        outcomes
    }

    /// Returns every outcome of a module of which this much is known.
    pub(super) fn returning(&self, returns: ModuleReturn) -> Vec<(Return, Action)> {
        let outcome = |code: Return, name: &str| {
            let index = RETURNS.iter().position(|one| *one == name);
            let action = index.and_then(|index| self.0.get(index).copied().flatten());
            vec![(code, action.unwrap_or(Action::Bad))]
        };
        match returns {
            ModuleReturn::Success => outcome(Return::Success, "success"),
            ModuleReturn::Denied => outcome(Return::Other, "perm_denied"),
            ModuleReturn::Ignore => outcome(Return::Ignore, "ignore"),
            ModuleReturn::Any
            | ModuleReturn::AccountCheck
            | ModuleReturn::IgnorableAccountCheck => {
                let ignores = returns != ModuleReturn::AccountCheck;
                let mut outcomes = self.outcomes();
                outcomes.retain(|(code, _)| *code != Return::Renew);
                outcomes.retain(|(code, _)| ignores || *code != Return::Ignore);
                outcomes
            }
        }
    }

    /// Returns whether it acts as `required` or `requisite` do: success counts, every failure
    /// refuses. The action of `new_authtok_reqd` does not matter: our module never returns it.
    pub(super) fn is_required(&self) -> bool {
        let is_accepted = |(name, action): (&&str, &Option<Action>)| {
            let action = action.unwrap_or(Action::Bad);
            match *name {
                "success" => matches!(action, Action::Ok | Action::Done),
                "ignore" => !matches!(action, Action::Jump(_) | Action::Reset),
                "new_authtok_reqd" | "incomplete" => true,
                _ => matches!(action, Action::Bad | Action::Die),
            }
        };
        RETURNS.iter().zip(&self.0).all(is_accepted)
    }
}

/// Parses a return value: its index, or `None` for `default`, and the text after it.
fn parse_return(text: &str) -> Option<(Option<usize>, &str)> {
    let named = RETURNS.iter().enumerate();
    let found =
        named.filter_map(|(code, name)| Some((Some(code), text.strip_prefix(name)?))).next();
    found.or_else(|| Some((None, text.strip_prefix("default")?)))
}

/// Parses an action; returns it and the text after it.
fn parse_action(text: &str) -> Option<(Action, &str)> {
    let named = ACTIONS.iter();
    if let Some(found) =
        named.filter_map(|(name, act)| Some((*act, text.strip_prefix(name)?))).next()
    {
        return Some(found);
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text.split_at_checked(digits)?;
    // libpam rejects 0, and wraps around at numbers that its integer cannot hold.
    let count = number.parse().ok().filter(|count| (1..=i32::MAX as usize).contains(count))?;
    Some((Action::Jump(count), rest))
}

/// A line as libpam reads it, with its continuations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalLine {
    /// Number of its first physical line, from 1.
    pub number: usize,
    /// Number of its last one.
    pub last: usize,
    /// Its words, without the brackets of bracketed ones.
    pub words: Vec<String>,
}

/// Parses a file's lines: a backslash at the end joins the next line that is neither blank nor a
/// comment, and `#` ends a line at any position. `None` if the file ends after a backslash, which
/// libpam refuses.
pub fn parse_lines(text: &str) -> Option<Vec<LogicalLine>> {
    let mut lines = Vec::new();
    let mut pending: Option<(usize, String)> = None;
    // `str::lines` would drop a carriage return, which libpam takes as part of a word.
    for (index, physical) in text.split('\n').enumerate() {
        let part = physical.trim_start_matches(BLANK);
        if part.is_empty() || part.starts_with('#') {
            continue;
        }
        let (number, mut joined) = pending.take().unwrap_or((index + 1, String::new()));
        let (part, is_continued) = match part.split_once('#') {
            Some((before, _)) => (before, false),
            None => {
                let part = part.trim_end_matches(BLANK);
                part.strip_suffix('\\').map_or((part, false), |part| (part, true))
            }
        };
        joined.push_str(part);
        if is_continued {
            joined.push(' ');
            pending = Some((number, joined));
        } else {
            lines.push(LogicalLine { number, last: index + 1, words: split_words(&joined) });
        }
    }
    pending.is_none().then_some(lines)
}

const BLANK: [char; 2] = [' ', '\t'];

/// Splits a line at its blanks. A word that begins with `[` ends at the first `]`, and `\]` stands
/// for `]`.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(BLANK);
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('[') {
            Some(inner) => split_bracketed(inner),
            None => {
                let end = rest.find(BLANK).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                (word.to_owned(), after)
            }
        };
        words.push(word);
        rest = after.trim_start_matches(BLANK);
    }
    words
}

fn split_bracketed(inner: &str) -> (String, &str) {
    let mut word = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            ']' => break,
            '\\' if chars.as_str().starts_with(']') => word.extend(chars.next()),
            c => word.push(c),
        }
    }
    (word, chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_words_equal_their_pairs() {
        let pairs = Control::parse("success=ok new_authtok_reqd=ok ignore=ignore default=bad");
        assert_eq!(Control::parse("required"), pairs);
        assert_eq!(Control::parse("Required"), pairs);
        let pairs = Control::parse(" default = die success=ok ignore=ignorenew_authtok_reqd=ok");
        assert_eq!(Control::parse("requisite"), pairs);
    }

    #[test]
    fn malformed_control_is_bad_for_all_returns() {
        for word in [
            "", "x", "success", "success=", "success=0", "success=okay", "success=-1",
            "ok=success", "success=99999999999",
        ] {
            let outcomes = Control::parse(word).outcomes();
            assert!(outcomes.iter().all(|(_, action)| *action == Action::Bad), "{word:?}");
        }
    }

    #[test]
    fn outcomes_distinguish_success_ignore_and_renew() {
        let outcomes = Control::parse("success=2 default=ignore").outcomes();
        let expected = [
            (Return::Success, Action::Jump(2)),
            (Return::Ignore, Action::Ignore),
            (Return::Renew, Action::Ignore),
            (Return::Other, Action::Ignore),
        ];
        assert_eq!(outcomes, expected);
    }

    #[test]
    fn pairs_that_act_as_required_are_required() {
        for word in [
            "required",
            "requisite",
            "success=ok default=bad",
            "success=done default=die",
            "success=ok ignore=ignore default=die",
        ] {
            assert!(Control::parse(word).is_required(), "{word}");
        }
        for word in [
            "optional",
            "sufficient",
            "success=ok default=ignore",
            "success=1 default=bad",
            "success=ok perm_denied=ok default=bad",
            "success=ok system_err=reset default=bad",
            "success=ok ignore=1 default=bad",
            "success=ignore default=die",
            "default=bad",
            "x",
        ] {
            assert!(!Control::parse(word).is_required(), "{word}");
        }
    }
}

#[cfg(test)]
mod line_tests {
    use super::*;

    fn parse(text: &str) -> Vec<(usize, String)> {
        let joined = |line: LogicalLine| (line.number, line.words.join("|"));
        parse_lines(text).unwrap().into_iter().map(joined).collect()
    }

    #[test]
    fn lines_join_continuations_and_skip_comments() {
        assert_eq!(parse(" \n# c\n\ta  b#c\nd \\# e\n"), [(3, "a|b".into()), (4, "d|\\".into())]);
        assert_eq!(parse("a \\\n\n # c\n  b\\ \nc\nd"), [(1, "a|b|c".into()), (6, "d".into())]);
        assert_eq!(parse("a b\r\n"), [(1, "a|b\r".into())]);
        assert_eq!(parse_lines("a \\\n"), None);
    }

    #[test]
    fn bracketed_text_is_one_word() {
        assert_eq!(parse("s [a=1 b=2]x [c d] e[f g]"), [(1, "s|a=1 b=2|x|c d|e[f|g]".into())]);
        assert_eq!(parse("[a\\]b] [open c"), [(1, "a]b|open c".into())]);
    }
}
