//! Flattens the service files of one group into the lines that libpam runs, in its order and with
//! includes resolved (pam.conf(5)).

use super::control::{Action, Control};
use super::dirs::{SITE_DIR, service_dirs, vendor_dirs};
use super::file::{open_file, read_if_regular};
use super::group::Group;
use super::libpam::{Reading, is_missing_module, may_exist};
use super::lines::{LogicalLine, find_misread_line, is_false_blank, parse_lines};
use super::rejection::Rejection;
use nix::sys::stat::makedev;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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
        file_name(&self.module)
    }

    /// Returns whether the lines below run too and their refusals count, unless this one refuses.
    pub fn is_pass_through(&self) -> bool {
        let ends = |action| matches!(action, Action::Done | Action::Jump(_) | Action::Reset);
        self.control.as_ref().is_some_and(|control| {
            !control.fails_renewal() && control.outcomes().iter().all(|(_, action)| !ends(*action))
        })
    }

    /// Returns whether the line names our module, for whatever service.
    pub fn is_our_module(&self) -> bool {
        MODULE_FILES.contains(&self.file())
    }

    /// Returns whether it is a line of this module that does nothing. Such lines once left the job's namespaces.
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
    /// An auth line of another module runs before or after both of ours.
    #[error("and a second one have to enclose all other auth lines")]
    NotOutermost,
    /// The auth stack has another number of lines of this module than two.
    #[error("is one of {0} auth lines of this module, where two are due")]
    NotTwo(usize),
}

/// The lines of a group.
#[derive(Debug)]
pub(super) struct FlatStack {
    pub(super) entries: Vec<Entry>,
    /// The first line because of which nothing can be said about the stack.
    pub(super) rejected: Option<(FileLine, Rejection)>,
}

/// Returns the lines of `service` in that group.
///
/// # Errors
///
/// A text that names the file that neither libpam nor we can read.
pub(super) fn flatten(
    files: &Files<'_>,
    service: &str,
    group: Group,
    reading: Reading,
) -> Result<FlatStack, String> {
    let lines = FlatStack {
        entries: Vec::new(),
        rejected: None,
    };
    let mut stack = Flattener {
        files,
        service,
        group,
        reading,
        lines,
    };
    if !stack.load_service(service)? {
        stack.reject_pam_conf();
    }
    if stack.lines.entries.is_empty() {
        stack.load_service(FALLBACK_SERVICE)?;
        stack
            .lines
            .entries
            .iter_mut()
            .for_each(|entry| entry.top = 0);
    } else {
        stack.check_unused_fallback()?;
    }
    Ok(stack.lines)
}

/// A file and the bytes that replace its content on the disk.
pub(super) type Replacement<'a> = Option<(&'a Path, &'a [u8])>;

/// The service files below a root. Each is read once.
#[derive(Debug)]
pub(super) struct Files<'a> {
    pub(super) root: &'a Path,
    contents: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
}

impl<'a> Files<'a> {
    /// Returns the files, of which one may be replaced.
    pub(super) fn new(root: &'a Path, replacement: Replacement<'_>) -> Self {
        let replaced = replacement.map(|(path, bytes)| (path.to_owned(), bytes.to_owned()));
        Self {
            root,
            contents: RefCell::new(replaced.into_iter().collect()),
        }
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        if let Some(bytes) = self.contents.borrow().get(path) {
            return Ok(bytes.clone());
        }
        let bytes = read_service_file(path)?;
        self.contents
            .borrow_mut()
            .insert(path.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

struct Flattener<'a> {
    files: &'a Files<'a>,
    service: &'a str,
    group: Group,
    reading: Reading,
    lines: FlatStack,
}

/// A service file and its content.
struct ServiceFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl ServiceFile {
    /// Returns the content as text. Bytes of another encoding than UTF-8 become U+FFFD, which is in no
    /// word that libpam knows.
    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    fn place(&self, line: usize) -> FileLine {
        FileLine {
            file: self.path.clone(),
            line,
        }
    }
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

/// The first words of a line.
struct Statement<'a> {
    /// The word that should name a group, without a leading `-`.
    group: &'a str,
    control: &'a str,
    /// The module, or the file to include.
    module: Option<&'a str>,
}

impl<'a> Statement<'a> {
    fn new(line: &'a LogicalLine) -> Self {
        let mut words = line.words.iter().map(String::as_str);
        let group = words.next().unwrap_or_default();
        Self {
            group: group.strip_prefix('-').unwrap_or(group),
            control: words.next().unwrap_or_default(),
            module: words.next(),
        }
    }

    fn has_group(&self) -> bool {
        GROUP_NAMES
            .iter()
            .any(|name| self.group.eq_ignore_ascii_case(name))
    }

    fn is_at_include(&self) -> bool {
        self.group.eq_ignore_ascii_case("@include")
    }

    fn is_our_module(&self) -> bool {
        self.module
            .is_some_and(|module| MODULE_FILES.contains(&file_name(module)))
    }

    fn is_substack(&self) -> bool {
        self.control.eq_ignore_ascii_case("substack")
    }

    fn is_include(&self) -> bool {
        self.is_substack() || self.control.eq_ignore_ascii_case("include")
    }
}

/// Where libpam looks for a service file.
#[derive(Clone, Copy)]
enum ServiceFolders {
    /// In the site's folder.
    Site,
    /// In those of the distribution as well.
    All,
}

impl Flattener<'_> {
    /// Adds the lines of a file that the line at `place` includes.
    fn load(
        &mut self,
        name: Option<&String>,
        place: &FileLine,
        inclusion: Inclusion,
    ) -> Result<(), String> {
        let Some(name) = name else {
            self.reject(place, Rejection::NoFile);
            return Ok(());
        };
        if inclusion.depth >= DEPTH_MAX {
            return Err(format!(
                "{place}: {name}: included more than {DEPTH_MAX} deep"
            ));
        }
        let file = self
            .find_service_file(name, self.include_folders())?
            .ok_or_else(|| format!("{place}: {name}: no such service file"))?;
        self.add_file(&file, inclusion)
    }

    /// Adds the lines of a service; returns whether it has a file.
    fn load_service(&mut self, name: &str) -> Result<bool, String> {
        let Some(file) = self.find_service_file(name, ServiceFolders::All)? else {
            return Ok(false);
        };
        self.add_file(&file, Inclusion::default())?;
        Ok(true)
    }

    /// Rejects what keeps libpam from loading [`FALLBACK_SERVICE`], although none of its lines runs:
    /// it then refuses every service. How versions read its lines does not matter.
    fn check_unused_fallback(&mut self) -> Result<(), String> {
        let file = match self.find_service_file(FALLBACK_SERVICE, ServiceFolders::All) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(()),
            // libpam reads it as root.
            Err(_) if self.is_fallback_hidden() => return Ok(()),
            Err(why) => return Err(why),
        };
        for line in self.parse(&file) {
            let place = file.place(line.number);
            let statement = Statement::new(&line);
            if self.reading.has_at_include && statement.is_at_include() {
                self.require_at_include(line.words.get(1), &place)?;
            } else {
                self.reject_unloadable(&statement, &place);
            }
        }
        Ok(())
    }

    fn is_fallback_hidden(&self) -> bool {
        service_dirs(self.files.root).iter().any(|folder| {
            read_service_file(&folder.join(FALLBACK_SERVICE))
                .is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        })
    }

    /// Checks that `@include` finds its file: without it, libpam refuses the service. A file that only
    /// root can see counts.
    fn require_at_include(
        &mut self,
        name: Option<&String>,
        place: &FileLine,
    ) -> Result<(), String> {
        let Some(name) = name else {
            self.reject(place, Rejection::NoFile);
            return Ok(());
        };
        if self
            .candidates(name, self.include_folders())
            .any(|path| may_exist(&path))
        {
            return Ok(());
        }
        Err(format!("{place}: {name}: no such service file"))
    }

    /// Rejects `/etc/pam.conf` if it has lines: some builds of libpam read it for a service without a
    /// file.
    fn reject_pam_conf(&mut self) {
        let path = self.files.root.join("etc/pam.conf");
        let Ok(bytes) = read_service_file(&path) else {
            return;
        };
        let file = ServiceFile { path, bytes };
        if let Some(line) = parse_lines(&file.text()).unwrap_or_default().first() {
            self.reject(&file.place(line.number), Rejection::PamConf);
        }
    }

    fn reject(&mut self, place: &FileLine, why: Rejection) {
        self.lines
            .rejected
            .get_or_insert_with(|| (place.clone(), why));
    }

    /// Parses a file; rejects one that ends within a line.
    fn parse(&mut self, file: &ServiceFile) -> Vec<LogicalLine> {
        let text = file.text();
        parse_lines(&text).unwrap_or_else(|| {
            let last = text.split_terminator('\n').count();
            self.reject(&file.place(last), Rejection::Unfinished);
            Vec::new()
        })
    }

    fn add_file(&mut self, file: &ServiceFile, inclusion: Inclusion) -> Result<(), String> {
        if let Some((line, why)) = find_misread_line(&file.bytes) {
            self.reject(&file.place(line), why);
        }
        for line in self.parse(file) {
            let top = if inclusion.depth == 0 {
                line.number
            } else {
                inclusion.top
            };
            self.add_line(
                &line,
                &file.place(line.number),
                Inclusion { top, ..inclusion },
            )?;
        }
        Ok(())
    }

    fn add_line(
        &mut self,
        line: &LogicalLine,
        place: &FileLine,
        inclusion: Inclusion,
    ) -> Result<(), String> {
        let deeper = Inclusion {
            depth: inclusion.depth + 1,
            ..inclusion
        };
        let statement = Statement::new(line);
        if self.reading.has_at_include && statement.is_at_include() {
            self.reject_false_blank(line, 2, place);
            return self.load(line.words.get(1), place, deeper);
        }
        let is_in_group = self.is_in_group(&statement, inclusion.included);
        self.reject_false_blank(line, count_decisive_words(line, is_in_group), place);
        // libpam loads lines of all groups, but for those of included files.
        if is_in_group || !inclusion.included {
            self.reject_unloadable(&statement, place);
        }
        if !is_in_group {
            return Ok(());
        }
        if !statement.has_group() {
            self.reject(place, Rejection::UnknownGroup(statement.group.to_owned()));
        }
        if statement.is_substack() {
            self.push_entry(line, place, None, inclusion)?;
        }
        if statement.is_include() {
            let level = inclusion.level + usize::from(statement.is_substack());
            let within = Inclusion {
                included: true,
                level,
                ..deeper
            };
            return self.load(line.words.get(2), place, within);
        }
        let control = self.parse_control(line, place);
        self.push_entry(line, place, Some(control), inclusion)
    }

    /// Returns whether a line belongs to the group. A line without a group belongs to auth, and to the
    /// group of the line that includes it.
    fn is_in_group(&self, statement: &Statement<'_>, included: bool) -> bool {
        if statement.has_group() {
            return statement.group.eq_ignore_ascii_case(self.group.as_str());
        }
        included || self.group == Group::Auth
    }

    /// Rejects a line that has a false blank among its first words.
    fn reject_false_blank(&mut self, line: &LogicalLine, words: usize, place: &FileLine) {
        let mut characters = line.words.iter().take(words).flat_map(|word| word.chars());
        if let Some(character) = characters.find(|character| is_false_blank(*character)) {
            self.reject(place, Rejection::FalseBlank(character));
        }
    }

    /// Rejects a line at which libpam stops to load the service: an include of nothing, at which
    /// Debian's crashes, or a module without a name.
    fn reject_unloadable(&mut self, statement: &Statement<'_>, place: &FileLine) {
        let Some(module) = statement.module else {
            if statement.is_include() {
                self.reject(place, Rejection::NoFile);
            }
            return;
        };
        let file = file_name(module);
        let name = file.rsplit_once('.').map_or(file, |(name, _)| name);
        let is_loaded = statement.is_substack() || !statement.is_include();
        if is_loaded && (name.is_empty() || name == "?") {
            self.reject(place, Rejection::UnusableModuleName(module.to_owned()));
        }
    }

    /// Returns the control of a line that calls a module; rejects a line that libpam rejects.
    fn parse_control(&mut self, line: &LogicalLine, place: &FileLine) -> Control {
        let Some(control) = line.words.get(1) else {
            self.reject(place, Rejection::NoControl);
            return Control::ALL_BAD;
        };
        let control = Control::parse(control).unwrap_or_else(|why| {
            self.reject(place, why);
            Control::ALL_BAD
        });
        if line.words.len() == 2 {
            self.reject(place, Rejection::NoModule);
        }
        control
    }

    fn push_entry(
        &mut self,
        line: &LogicalLine,
        place: &FileLine,
        control: Option<Control>,
        Inclusion { level, top, .. }: Inclusion,
    ) -> Result<(), String> {
        if self.lines.entries.len() >= ENTRIES_MAX {
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
        if entry.is_our_module() && is_missing_module(self.files.root, &entry.module) {
            self.reject(
                place,
                Rejection::MissingModule(PathBuf::from(&entry.module)),
            );
        }
        // In the session group a line with `close_only` confines no login.
        let is_ours =
            entry.is_our_module() && !(entry.is_close_only() && self.group == Group::Session);
        if is_ours {
            let dash = line.words.first().is_some_and(|kind| kind.starts_with('-'));
            entry.ours = entry
                .control
                .as_ref()
                .map(|required| self.check_fitness(&entry.arguments, required, dash));
        }
        self.lines.entries.push(entry);
        Ok(())
    }

    /// Checks whether a line of this module can be relied on.
    fn check_fitness(
        &self,
        arguments: &[String],
        control: &Control,
        dash: bool,
    ) -> Result<(), LineFault> {
        let service = arguments
            .iter()
            .filter_map(|word| service_argument(word))
            .next_back()
            .unwrap_or_else(|| DEFAULT_SERVICE.to_owned());
        // Our auth lines do nothing but for a session that our line of the service has opened.
        if service != self.service && self.group != Group::Auth {
            return Err(LineFault::OtherService(service));
        }
        if dash {
            return Err(LineFault::LeadingDash);
        }
        if !control.is_required() {
            return Err(LineFault::NotRequired);
        }
        Ok(())
    }

    /// Returns where included files are looked for.
    fn include_folders(&self) -> ServiceFolders {
        if self.reading.includes_vendor_files {
            ServiceFolders::All
        } else {
            ServiceFolders::Site
        }
    }

    /// Returns where a service file of that name may be: at an absolute path, or else in the site's
    /// folder and, if libpam looks there, in those of the distribution. These are only searched for if
    /// the site has no such file.
    fn candidates<'b>(
        &'b self,
        name: &'b str,
        folders: ServiceFolders,
    ) -> Box<dyn Iterator<Item = PathBuf> + 'b> {
        if let Some(relative) = name.strip_prefix('/') {
            return Box::new(std::iter::once(self.files.root.join(relative)));
        }
        let site = std::iter::once(self.files.root.join(SITE_DIR).join(name));
        match folders {
            ServiceFolders::Site => Box::new(site),
            ServiceFolders::All => {
                let vendor = std::iter::once_with(|| vendor_dirs(self.files.root)).flatten();
                Box::new(site.chain(vendor.map(move |dir| dir.join(name))))
            }
        }
    }

    /// Reads the service file of that name from the first of these folders that has it.
    fn find_service_file(
        &self,
        name: &str,
        folders: ServiceFolders,
    ) -> Result<Option<ServiceFile>, String> {
        for path in self.candidates(name, folders) {
            match self.files.read(&path) {
                Ok(bytes) => return Ok(Some(ServiceFile { path, bytes })),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Ok(None)
    }
}

/// Returns how many words of a line decide what it does in the group, or in which group: arguments do so
/// only for this module.
fn count_decisive_words(line: &LogicalLine, is_in_group: bool) -> usize {
    if Statement::new(line).is_our_module() {
        line.words.len()
    } else if is_in_group {
        3
    } else {
        1
    }
}

/// Returns whether a line with these arguments does nothing.
pub fn is_close_only(arguments: &[String]) -> bool {
    arguments.iter().any(|word| word == "close_only")
}

/// Returns the value of a `service=` argument. The module ignores case there, as
/// `pam_slurm_adopt` does.
fn service_argument(word: &str) -> Option<String> {
    let (key, name) = word.split_once('=')?;
    key.eq_ignore_ascii_case("service")
        .then(|| name.to_ascii_lowercase())
}

/// Returns the part of a module's path that names its file.
fn file_name(module: &str) -> &str {
    module.rsplit('/').next().unwrap_or_default()
}

/// Reads a service file as libpam does: it follows links and checks no owner.
fn read_service_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let (file, status) = open_file(path)?;
    if has_no_lines(&status) {
        return Ok(Vec::new());
    }
    let bytes = read_if_regular(file, &status, FILE_BYTES_MAX)?;
    if bytes.contains(&0) {
        return Err(std::io::Error::other("not a text"));
    }
    Ok(bytes)
}

/// Returns whether libpam opens the file and comes to its end at once: `/dev/null`, or a folder.
fn has_no_lines(status: &Metadata) -> bool {
    let is_null = status.file_type().is_char_device() && status.rdev() == makedev(1, 3);
    is_null || status.is_dir()
}
