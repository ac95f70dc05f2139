//! Flattens the service files of one group into the lines that libpam runs, in its order and with
//! includes resolved (pam.conf(5)).

use super::control::Control;
use super::dirs::{SITE_DIR, service_dirs, vendor_dirs};
use super::entry::{Entry, FileLine, LineFault, file_name};
use super::error::{DEPTH_MAX, ENTRIES_MAX, StackError};
use super::group::Group;
use super::libpam::{Reading, is_missing_module, may_exist};
use super::lines::{LogicalLine, find_misread_line, is_false_blank, parse_lines};
use super::rejection::Rejection;
use super::service_file::{Files, ServiceFile, read_service_file};
use super::statement::{Statement, count_decisive_words};
use std::io::ErrorKind;
use std::path::PathBuf;

/// The service whose lines apply if a service has none.
const FALLBACK_SERVICE: &str = "other";
/// The service that a line of this module without `service=` is for.
const DEFAULT_SERVICE: &str = "sshd";

/// The lines of a group.
#[derive(Debug)]
pub(super) struct FlatStack {
    pub(super) entries: Vec<Entry>,
    /// The first line because of which nothing can be said about the stack; `None` without one.
    pub(super) rejected: Option<(FileLine, Rejection)>,
}

/// Lists the lines of `service` in that group. If there are none, those of `other` apply, as in libpam. What libpam
/// would reject is no error here: it stands in `rejected`.
///
/// # Errors
///
/// Why neither libpam nor we can read the files.
pub(super) fn flatten(
    files: &Files<'_>,
    service: &str,
    group: Group,
    reading: Reading,
) -> Result<FlatStack, StackError> {
    let mut flattener = Flattener {
        files,
        service,
        group,
        reading,
        stack: FlatStack {
            entries: Vec::new(),
            rejected: None,
        },
    };
    if !flattener.load_service(service)? {
        flattener.reject_pam_conf();
    }
    if flattener.stack.entries.is_empty() {
        flattener.load_service(FALLBACK_SERVICE)?;
        for entry in &mut flattener.stack.entries {
            entry.top = 0;
        }
    } else {
        flattener.check_unused_fallback()?;
    }
    Ok(flattener.stack)
}

/// Flattens the files of one service in one group, by one of the ways in which libpam may read them.
struct Flattener<'a> {
    files: &'a Files<'a>,
    service: &'a str,
    group: Group,
    reading: Reading,
    /// What was added so far.
    stack: FlatStack,
}

/// How a file came to be included. The default is that of the service's own file.
#[derive(Clone, Copy, Default)]
struct Inclusion {
    /// A line with `include` or `substack` included it or a file around it; `@include` does not count.
    included: bool,
    /// The number of files around it.
    depth: usize,
    /// The number of substacks around it.
    level: usize,
    /// The line of the service's own file that included it; 0 for that file itself.
    top: usize,
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
    /// Adds the lines of a file that the line at `place` includes. A line that names no file is rejected.
    ///
    /// # Errors
    ///
    /// [`StackError::MissingFile`] and [`StackError::NestedTooDeep`]; as [`Flattener::add_file`].
    fn load(
        &mut self,
        name: Option<&String>,
        place: &FileLine,
        inclusion: Inclusion,
    ) -> Result<(), StackError> {
        let Some(name) = name else {
            self.reject(place, Rejection::NoFile);
            return Ok(());
        };
        if inclusion.depth >= DEPTH_MAX {
            return Err(StackError::NestedTooDeep {
                place: place.clone(),
                name: name.clone(),
            });
        }
        let file = self
            .find_service_file(name, self.include_folders())?
            .ok_or_else(|| StackError::MissingFile {
                place: place.clone(),
                name: name.clone(),
            })?;
        self.add_file(&file, inclusion)
    }

    /// Adds the lines of a service; returns whether it has a file.
    ///
    /// # Errors
    ///
    /// As [`Flattener::add_file`], and if a file exists and cannot be read.
    fn load_service(&mut self, name: &str) -> Result<bool, StackError> {
        let Some(file) = self.find_service_file(name, ServiceFolders::All)? else {
            return Ok(false);
        };
        self.add_file(&file, Inclusion::default())?;
        Ok(true)
    }

    /// Rejects what keeps libpam from loading [`FALLBACK_SERVICE`], although none of its lines runs:
    /// it then refuses every service. How versions read its lines does not matter.
    ///
    /// # Errors
    ///
    /// [`StackError::UnreadableFile`]; [`StackError::MissingFile`] for one that an `@include` names.
    fn check_unused_fallback(&mut self) -> Result<(), StackError> {
        let file = match self.find_service_file(FALLBACK_SERVICE, ServiceFolders::All) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(()),
            // libpam reads it as root, and this process cannot: it is taken to have no fault.
            Err(_) if self.is_fallback_hidden() => return Ok(()),
            Err(why) => return Err(why),
        };
        for line in self.parse(&file) {
            let place = file.place(line.number);
            let statement = Statement::new(&line);
            if self.reading.has_at_include && statement.is_at_include() {
                self.check_at_include(line.words.get(1), &place)?;
            } else {
                self.reject_unloadable(&statement, &place);
            }
        }
        Ok(())
    }

    /// Tells whether [`FALLBACK_SERVICE`] has a file that this process may not read.
    fn is_fallback_hidden(&self) -> bool {
        service_dirs(self.files.root).iter().any(|folder| {
            read_service_file(self.files.root, &folder.join(FALLBACK_SERVICE))
                .is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        })
    }

    /// Checks that the file of an `@include` exists, without which libpam refuses the service. A file in a
    /// folder that only root can search may exist. A line that names no file is rejected.
    ///
    /// # Errors
    ///
    /// [`StackError::MissingFile`].
    fn check_at_include(
        &mut self,
        name: Option<&String>,
        place: &FileLine,
    ) -> Result<(), StackError> {
        let Some(name) = name else {
            self.reject(place, Rejection::NoFile);
            return Ok(());
        };
        let mut candidates = self.candidates(name, self.include_folders());
        if candidates.any(|path| may_exist(self.files.root, &path)) {
            return Ok(());
        }
        Err(StackError::MissingFile {
            place: place.clone(),
            name: name.clone(),
        })
    }

    /// Rejects `/etc/pam.conf` if it has lines: some builds of libpam read it for a service without a
    /// file. A file that cannot be read, or that libpam refuses as unfinished, is taken to have none.
    fn reject_pam_conf(&mut self) {
        let path = self.files.root.join("etc/pam.conf");
        let Ok(bytes) = read_service_file(self.files.root, &path) else {
            return;
        };
        let file = ServiceFile { path, bytes };
        if let Some(line) = parse_lines(&file.text()).unwrap_or_default().first() {
            self.reject(&file.place(line.number), Rejection::PamConf);
        }
    }

    /// Rejects the stack because of a line. Only the first line counts.
    fn reject(&mut self, place: &FileLine, why: Rejection) {
        self.stack
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

    /// Adds the lines of a file, with those that they include. A line that versions of libpam do not read alike is
    /// rejected.
    ///
    /// # Errors
    ///
    /// Why neither libpam nor we can read an included file, or more lines than are checked.
    fn add_file(&mut self, file: &ServiceFile, inclusion: Inclusion) -> Result<(), StackError> {
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

    /// Adds a line: a line of the group as it is, an include as the lines of its file, behind the start of a substack
    /// if it is one. A line of another group adds nothing, but what keeps libpam from loading it rejects the stack,
    /// except in included files.
    ///
    /// # Errors
    ///
    /// As [`Flattener::add_file`].
    fn add_line(
        &mut self,
        line: &LogicalLine,
        place: &FileLine,
        inclusion: Inclusion,
    ) -> Result<(), StackError> {
        let deeper = Inclusion {
            depth: inclusion.depth + 1,
            ..inclusion
        };
        let statement = Statement::new(line);
        if self.reading.has_at_include && statement.is_at_include() {
            // The word `@include` and the file's name.
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
        let parsed = Control::parse(statement.control);
        let refuses = parsed.map_or(true, |control| control.fails_at_mistake());
        let mistake = statement.find_mistake().filter(|_| refuses);
        // Of several faults that of the first word counts.
        if let Some(why @ Rejection::UnknownGroup(_)) = &mistake {
            self.reject(place, why.clone());
        }
        let control = self.parse_control(line, place);
        if let Some(why) = mistake {
            self.reject(place, why);
        }
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
        // libpam refuses an empty name and `?`, which would confuse its audit records (`extract_modulename`). It keeps
        // the file of a substack like a module, and that of an include not at all.
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
        Control::parse(control).unwrap_or_else(|why| {
            self.reject(place, why);
            Control::ALL_BAD
        })
    }

    /// Adds a line that calls a module, or, without a `control`, the start of a substack. For a line of this module
    /// it notes whether the line can be relied on; a module of ours that does not exist is rejected.
    ///
    /// # Errors
    ///
    /// [`StackError::TooManyLines`].
    fn push_entry(
        &mut self,
        line: &LogicalLine,
        place: &FileLine,
        control: Option<Control>,
        Inclusion { level, top, .. }: Inclusion,
    ) -> Result<(), StackError> {
        if self.stack.entries.len() >= ENTRIES_MAX {
            return Err(StackError::TooManyLines {
                place: place.clone(),
                group: self.group,
            });
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
            has_mistake: Statement::new(line).find_mistake().is_some(),
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
            let has_dash = line.words.first().is_some_and(|kind| kind.starts_with('-'));
            entry.ours = entry
                .control
                .as_ref()
                .map(|line_control| self.check_fitness(&entry.arguments, line_control, has_dash));
        }
        self.stack.entries.push(entry);
        Ok(())
    }

    /// Checks whether a line of this module can be relied on, by itself. The [`LineFault`]s that depend on other lines
    /// are found later.
    fn check_fitness(
        &self,
        arguments: &[String],
        control: &Control,
        has_dash: bool,
    ) -> Result<(), LineFault> {
        let service = named_services(arguments)
            .last()
            .unwrap_or_else(|| DEFAULT_SERVICE.to_owned());
        // An auth line takes no arguments, so its `service=` does not matter. It acts in pam_setcred(3), and only if our
        // session line, whose `service=` is checked here, has opened the session.
        if self.group != Group::Auth && service != self.service {
            return Err(LineFault::OtherService(service));
        }
        if has_dash {
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

    /// The paths where a service file of that name may be: an absolute one, or else those in the site's
    /// folder and, if libpam looks there, in the folders of the distribution. Finding these takes reading
    /// the library, which is left until the site's folder has no such file.
    fn candidates(&self, name: &str, folders: ServiceFolders) -> impl Iterator<Item = PathBuf> {
        let root = self.files.root;
        let (first, has_others) = match name.strip_prefix('/') {
            Some(relative) => (root.join(relative), false),
            None => {
                let has_vendor_files = matches!(folders, ServiceFolders::All);
                (root.join(SITE_DIR).join(name), has_vendor_files)
            }
        };
        let others = has_others.then_some(root).into_iter().flat_map(vendor_dirs);
        std::iter::once(first).chain(others.map(move |dir| dir.join(name)))
    }

    /// Reads the service file of that name from the first of these folders that has it; `None` if none has.
    ///
    /// # Errors
    ///
    /// [`StackError::UnreadableFile`] for a file that exists and cannot be read.
    fn find_service_file(
        &self,
        name: &str,
        folders: ServiceFolders,
    ) -> Result<Option<ServiceFile>, StackError> {
        for path in self.candidates(name, folders) {
            match self.files.read(&path) {
                Ok(bytes) => return Ok(Some(ServiceFile { path, bytes })),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let cause = error.to_string();
                    return Err(StackError::UnreadableFile { path, cause });
                }
            }
        }
        Ok(None)
    }
}

/// Lists the services that the arguments of a line of ours name, in lower case. The module ignores case there, as
/// `pam_slurm_adopt` does.
pub fn named_services(arguments: &[String]) -> impl Iterator<Item = String> {
    let pairs = arguments.iter().filter_map(|word| word.split_once('='));
    pairs
        .filter(|(key, _)| key.eq_ignore_ascii_case("service"))
        .map(|(_, name)| name.to_ascii_lowercase())
}
