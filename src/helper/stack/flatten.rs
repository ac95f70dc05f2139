//! A service's lines of one group in the order in which libpam runs them, includes resolved.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::Group;
use super::control::{Action, Control};
use super::line::{Line, lines};
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
        if let (true, Some(control)) = (MODULES.contains(&entry.file()), &entry.control) {
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
