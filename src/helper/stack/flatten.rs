//! A service's lines of one group in the order in which libpam runs them, includes resolved: put together
//! and cut into words as libpam does, each with what its control field says (pam.conf(5)).

use super::Group;
use nix::fcntl::OFlag;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Deepest nesting of includes and substacks, libpam's own.
const DEPTH_MAX: usize = 16;
const FILE_MAX: u64 = 1024 * 1024;
const ENTRIES_MAX: usize = 1000;
/// The service whose lines stand in for those that a service lacks.
const OTHER: &str = "other";
/// What a line may begin with.
const TYPES: [&str; 4] = ["auth", "account", "password", "session"];
/// Where our module is called when its line does not say.
const DEFAULT_SERVICE: &str = "sshd";
/// What the file of our module is called.
pub const MODULES: [&str; 2] = ["pam_job_adopt.so", "libpam_job_adopt.so"];

/// Where a line stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The number of its first line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A line of a flattened stack that calls a module, or begins a substack.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it stands.
    pub place: Place,
    /// The module, as the line names it.
    pub module: String,
    /// What follows that.
    pub arguments: Vec<String>,
    /// Whether it is a line of ours, and then whether it can be relied on.
    pub ours: Option<Result<(), Unfit>>,
    /// The line of the service's own file that it stands in, or that takes its file in; 0 for those
    /// of `other`.
    pub top: usize,
    /// How many substacks it stands in.
    pub(super) level: usize,
    /// None where a substack begins, which calls nothing.
    pub(super) control: Option<Control>,
}

impl Entry {
    /// The name of the module's file.
    pub fn file(&self) -> &str {
        self.module.rsplit('/').next().unwrap_or_default()
    }

    /// Whether every line below it is asked as well, unless this one refuses.
    pub fn goes_on(&self) -> bool {
        let ends = |action| matches!(action, Action::Done | Action::Jump(_) | Action::Reset);
        let control = self.control.as_ref();
        control.is_some_and(|control| control.outcomes().iter().all(|(_, action)| !ends(*action)))
    }

    /// Returns whether it names our module, whatever the line is for.
    pub fn names_ours(&self) -> bool {
        MODULES.contains(&self.file())
    }

    /// Returns whether it is a line of ours that only leaves the job's namespaces at the end of a session.
    pub fn closes(&self) -> bool {
        self.names_ours() && closes(&self.arguments)
    }

    /// Whether it is a line of ours that can be relied on.
    pub fn is_fit(&self) -> bool {
        self.ours == Some(Ok(()))
    }

    /// Whether it is a line of ours for this service, fit or not.
    pub fn is_for_service(&self) -> bool {
        !matches!(self.ours, None | Some(Err(Unfit::Service(_))))
    }

    /// Whether it is one that confines nobody.
    pub fn observes(&self) -> bool {
        self.is_for_service() && self.arguments.iter().any(|word| word == "observe")
    }
}

/// Why a line of ours cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// Its control lets a session open although the module failed.
    #[error("is not required, requisite or an equal of theirs")]
    Control,
    /// Its leading `-` lets a session open where the module cannot be loaded.
    #[error("has a leading -")]
    Dash,
    /// Its `service=` names another service.
    #[error("is for service {0}")]
    Service(String),
    /// It observes, where an account line admits users for it to confine.
    #[error("observes, and the account line does not")]
    Observe,
}

/// The lines of `service` in that group, from the service files below `root`.
/// Fails: a text that names the file that libpam or we cannot read.
pub(super) fn flatten(
    root: &Path,
    service: &str,
    group: Group,
    instead: Instead<'_>,
) -> Result<Vec<Entry>, String> {
    let mut stack = Flattener { root, service, group, instead, entries: Vec::new() };
    stack.load_service(service)?;
    if stack.entries.is_empty() {
        stack.load_service(OTHER)?;
        stack.entries.iter_mut().for_each(|entry| entry.top = 0);
    }
    Ok(stack.entries)
}

/// A file with a text that counts in place of what is on the disk.
pub(super) type Instead<'a> = Option<(&'a Path, &'a str)>;

struct Flattener<'a> {
    root: &'a Path,
    service: &'a str,
    group: Group,
    instead: Instead<'a>,
    entries: Vec<Entry>,
}

/// Where a file stands.
#[derive(Clone, Copy, Default)]
struct Within {
    /// Whether a line with `include` or `substack` took it in.
    included: bool,
    /// In how many files.
    depth: usize,
    /// In how many substacks.
    level: usize,
    /// By which line of the service's own file.
    top: usize,
}

fn included_name<'a>(place: &Place, name: Option<&'a str>) -> Result<&'a str, String> {
    name.ok_or_else(|| format!("{place}: includes nothing"))
}

impl Flattener<'_> {
    /// A file that a line takes in.
    fn load(&mut self, name: &str, within: Within) -> Result<(), String> {
        if within.depth >= DEPTH_MAX {
            return Err(format!("{name}: included more than {DEPTH_MAX} deep"));
        }
        let file = self.open(name)?.ok_or_else(|| format!("{name}: no such service file"))?;
        self.take_file(&file, within)
    }

    /// A service of its own; without a file it has no lines.
    fn load_service(&mut self, name: &str) -> Result<(), String> {
        match self.open(name)? {
            Some(file) => self.take_file(&file, Within::default()),
            None => Ok(()),
        }
    }

    fn take_file(&mut self, file: &(PathBuf, String), within: Within) -> Result<(), String> {
        let (path, text) = file;
        let lines =
            lines(text).ok_or_else(|| format!("{}: ends in a line's middle", path.display()))?;
        for line in lines {
            let place = Place { file: path.clone(), line: line.number };
            let top = if within.depth == 0 { line.number } else { within.top };
            self.take(&line, &place, Within { top, ..within })?;
        }
        Ok(())
    }

    fn take(&mut self, line: &Line, place: &Place, within: Within) -> Result<(), String> {
        let Within { included, level, top, .. } = within;
        let deeper = Within { depth: within.depth + 1, ..within };
        let word = |index: usize| line.words.get(index).map(String::as_str);
        let first = word(0).unwrap_or_default();
        if first.eq_ignore_ascii_case("@include") {
            return self.load(included_name(place, word(1))?, deeper);
        }
        let kind = first.strip_prefix('-').unwrap_or(first);
        let is_own = kind.eq_ignore_ascii_case(self.group.as_str());
        let is_other = !is_own && TYPES.iter().any(|other| kind.eq_ignore_ascii_case(other));
        // A line of no type at all goes to auth, and to the group of the line that includes it.
        let takes_any = included || self.group == Group::Auth;
        if is_other || (!is_own && !takes_any) {
            return Ok(());
        }
        let control = word(1).unwrap_or_default();
        let is_substack = control.eq_ignore_ascii_case("substack");
        if is_substack {
            self.push(line, place, None, (level, top))?;
        }
        if is_substack || control.eq_ignore_ascii_case("include") {
            let level = level + usize::from(is_substack);
            return self
                .load(included_name(place, word(2))?, Within { included: true, level, ..deeper });
        }
        self.push(line, place, Some(Control::parse(control)), (level, top))
    }

    fn push(
        &mut self,
        line: &Line,
        place: &Place,
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
        // In the session group a line that only closes confines nobody.
        let is_ours = entry.names_ours() && !(entry.closes() && self.group == Group::Session);
        if let (true, Some(control)) = (is_ours, &entry.control) {
            let dash = line.words.first().is_some_and(|kind| kind.starts_with('-'));
            entry.ours = Some(self.fitness(&entry.arguments, control, dash));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Whether a line of ours can be relied on.
    fn fitness(&self, arguments: &[String], control: &Control, dash: bool) -> Result<(), Unfit> {
        let service = arguments.iter().filter_map(|word| service(word)).next_back();
        match service.unwrap_or_else(|| DEFAULT_SERVICE.to_owned()) {
            other if other != self.service => Err(Unfit::Service(other)),
            _ if dash => Err(Unfit::Dash),
            _ if !control.is_required() => Err(Unfit::Control),
            _ => Ok(()),
        }
    }

    /// The service file of that name: absolute, else the site's, else the distribution's.
    fn open(&self, name: &str) -> Result<Option<(PathBuf, String)>, String> {
        let candidates = match name.strip_prefix('/') {
            Some(relative) => vec![self.root.join(relative)],
            None => ["etc/pam.d", "usr/lib/pam.d"].map(|dir| self.root.join(dir).join(name)).into(),
        };
        for path in candidates {
            if let Some((_, text)) = self.instead.filter(|(instead, _)| *instead == path) {
                return Ok(Some((path, text.to_owned())));
            }
            match read(&path) {
                Ok(text) => return Ok(Some((path, text))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Ok(None)
    }
}

/// Returns whether these arguments are of a line that only closes.
pub fn closes(arguments: &[String]) -> bool {
    arguments.iter().any(|word| word == "close_only")
}

/// What `service=` names, which the module takes in any case, as `pam_slurm_adopt` does.
fn service(word: &str) -> Option<String> {
    let (key, name) = word.split_once('=')?;
    key.eq_ignore_ascii_case("service").then(|| name.to_ascii_lowercase())
}

/// Reads a service file as libpam does, links and all; who owns it is libpam's affair.
fn read(path: &Path) -> std::io::Result<String> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    // In one piece: most are shorter.
    let mut bytes = Vec::with_capacity(4096);
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX || bytes.contains(&0) {
        return Err(std::io::Error::other("too large, or not a text"));
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

/// Which return value it was, as far as the analysis tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Return {
    Success,
    /// `PAM_IGNORE`, by which our module says that a login is none of its business.
    Ignore,
    /// `PAM_NEW_AUTHTOK_REQD`, with which applications let an account in all the same.
    Renew,
    /// Anything else that lets the stack go on.
    Other,
}

/// The action of every return value; one that nothing was said about is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Control([Option<Action>; 32]);

impl Control {
    /// The control that a word stands for, `include` and `substack` aside.
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

    /// `return=action` pairs. As in libpam, a name ends where it is complete, so that the blank
    /// before the next pair may be missing. `None` where a pair is malformed.
    fn parse_pairs(text: &str) -> Option<Self> {
        let mut control = Self([None; 32]);
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (code, after) = return_value(rest)?;
            let after = after.trim_start().strip_prefix('=')?.trim_start();
            let (action, after) = action(after)?;
            control.set(code, action);
            rest = after.trim_start();
        }
        Some(control)
    }

    /// `default` fills in what has no action yet; a later pair replaces an earlier one.
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

    /// Every return value that lets the stack go on, with its action, each pair once.
    pub(super) fn outcomes(&self) -> Vec<(Return, Action)> {
        let outcome = |(name, action): (&&str, &Option<Action>)| {
            let code = match *name {
                "success" => Return::Success,
                "ignore" => Return::Ignore,
                "new_authtok_reqd" => Return::Renew,
                // The application asks again; no session is open after it.
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

    /// Whether it does as `required` or `requisite` do: success is taken, every failure refuses.
    /// What stands for `new_authtok_reqd` does not matter, since our module never returns it.
    pub(super) fn is_required(&self) -> bool {
        let good = |(name, action): (&&str, &Option<Action>)| {
            let action = action.unwrap_or(Action::Bad);
            match *name {
                "success" => matches!(action, Action::Ok | Action::Done),
                "ignore" => !matches!(action, Action::Jump(_) | Action::Reset),
                "new_authtok_reqd" | "incomplete" => true,
                _ => matches!(action, Action::Bad | Action::Die),
            }
        };
        RETURNS.iter().zip(&self.0).all(good)
    }
}

/// The index of the return value in front, `None` for `default`, and what follows it.
fn return_value(text: &str) -> Option<(Option<usize>, &str)> {
    let named = RETURNS.iter().enumerate();
    let found =
        named.filter_map(|(code, name)| Some((Some(code), text.strip_prefix(name)?))).next();
    found.or_else(|| Some((None, text.strip_prefix("default")?)))
}

fn action(text: &str) -> Option<(Action, &str)> {
    let named = ACTIONS.iter();
    if let Some(found) =
        named.filter_map(|(name, act)| Some((*act, text.strip_prefix(name)?))).next()
    {
        return Some(found);
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text.split_at_checked(digits)?;
    // A jump over nothing is refused, as is a number that libpam's own would wrap around.
    let count = number.parse().ok().filter(|count| (1..=i32::MAX as usize).contains(count))?;
    Some((Action::Jump(count), rest))
}

/// A line as libpam reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of its first physical line, from 1.
    pub number: usize,
    /// Number of its last one.
    pub last: usize,
    /// Its words; a bracketed one is without its brackets.
    pub words: Vec<String>,
}

/// Puts a file's lines together: a backslash at the end joins the next line that is neither blank
/// nor a comment, and `#` ends a line wherever it stands. `None` where the file ends after a
/// backslash, which libpam refuses.
pub fn lines(text: &str) -> Option<Vec<Line>> {
    let mut lines = Vec::new();
    let mut pending: Option<(usize, String)> = None;
    // Not `str::lines`: to libpam a carriage return is part of a word.
    for (index, physical) in text.split('\n').enumerate() {
        let part = physical.trim_start_matches(BLANK);
        if part.is_empty() || part.starts_with('#') {
            continue;
        }
        let (number, mut joined) = pending.take().unwrap_or((index + 1, String::new()));
        let (part, goes_on) = match part.split_once('#') {
            Some((before, _)) => (before, false),
            None => {
                let part = part.trim_end_matches(BLANK);
                part.strip_suffix('\\').map_or((part, false), |part| (part, true))
            }
        };
        joined.push_str(part);
        if goes_on {
            joined.push(' ');
            pending = Some((number, joined));
        } else {
            lines.push(Line { number, last: index + 1, words: words(&joined) });
        }
    }
    pending.is_none().then_some(lines)
}

const BLANK: [char; 2] = [' ', '\t'];

/// Blanks separate words; one that begins with `[` ends at the first `]`, and `\]` stands for `]`.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(BLANK);
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('[') {
            Some(inner) => bracketed(inner),
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

fn bracketed(inner: &str) -> (String, &str) {
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
    fn words_and_brackets() {
        let pairs = Control::parse("success=ok new_authtok_reqd=ok ignore=ignore default=bad");
        assert_eq!(Control::parse("required"), pairs);
        assert_eq!(Control::parse("Required"), pairs);
        let pairs = Control::parse(" default = die success=ok ignore=ignorenew_authtok_reqd=ok");
        assert_eq!(Control::parse("requisite"), pairs);
    }

    #[test]
    fn what_is_malformed_is_bad_throughout() {
        for word in [
            "", "x", "success", "success=", "success=0", "success=okay", "success=-1",
            "ok=success", "success=99999999999",
        ] {
            let outcomes = Control::parse(word).outcomes();
            assert!(outcomes.iter().all(|(_, action)| *action == Action::Bad), "{word:?}");
        }
    }

    #[test]
    fn outcomes_are_told_apart() {
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
    fn required_in_other_words() {
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
        let joined = |line: Line| (line.number, line.words.join("|"));
        lines(text).unwrap().into_iter().map(joined).collect()
    }

    #[test]
    fn blanks_comments_and_continuations() {
        assert_eq!(parse(" \n# c\n\ta  b#c\nd \\# e\n"), [(3, "a|b".into()), (4, "d|\\".into())]);
        assert_eq!(parse("a \\\n\n # c\n  b\\ \nc\nd"), [(1, "a|b|c".into()), (6, "d".into())]);
        assert_eq!(parse("a b\r\n"), [(1, "a|b\r".into())]);
        assert_eq!(lines("a \\\n"), None);
    }

    #[test]
    fn brackets_are_one_word() {
        assert_eq!(parse("s [a=1 b=2]x [c d] e[f g]"), [(1, "s|a=1 b=2|x|c d|e[f|g]".into())]);
        assert_eq!(parse("[a\\]b] [open c"), [(1, "a]b|open c".into())]);
    }
}
