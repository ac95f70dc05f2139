//! `pam`: installs the lines of this module in a service's PAM stack, and removes them.
//!
//! A service file is bytes: its comments may be in any encoding. Lines go in, out and behind a comment
//! mark by their numbers, and all other bytes stay. The parser reads a copy in which bytes that are no
//! UTF-8 are replaced; its lines have the same numbers.

mod arguments;
mod lines;
mod managed;
#[cfg(test)]
mod recipes;
mod replacement;

use super::check::programs::{find_module, find_module_folder};
use super::check::stack::{RIVAL_MODULES, module_name, rejection_remedy};
use super::command_line::parse_service;
use super::replace_file::replace_file;
use super::{Error, Output, require_root};
use clap::{ArgGroup, Args};
use helper::stack::{
    self, Entry, FileLine, Group, LogicalLine, MODULE_FILES, Rejection, is_close_only,
    judge_stack_with, parse_lines, read_entries_with, service_dirs,
};
use module::Settings;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) use lines::changed_lines;
use lines::{NewLine, Restored, decode, is_our_line};
use managed::{ManagedBlock, find_blocks};
use replacement::{AccountChange, require_no_jump_over_slurm};

/// The module whose arguments our module understands.
const SLURM_MODULE: &str = "pam_slurm_adopt.so";
/// The folder of the original files.
const ORIGINALS_DIR: &str = "var/lib/job-adopt/pam";

/// Put both lines of pam_job_adopt.so into a PAM stack, or take them out
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").required(true),
    after_help = "\
Only the service's own file changes, at once. Lines of pam_slurm_adopt.so in it are commented out, and their
arguments are taken over; so are lines that would refuse users with a job, whom they never judged before.
What cannot be done safely is refused, with the reason.
Exit status: 0 fine, also where nothing had to change, 1 lines in other files are left, or nothing keeps users
without a job out, 2 wrong usage, 3 refused or not done."
)]
pub(super) struct Options {
    /// Show the file as it would be
    #[arg(long, group = "what")]
    print: bool,
    /// Write both lines (root)
    #[arg(long, group = "what")]
    install: bool,
    /// Take the lines out, and restore those commented out (root)
    #[arg(long, group = "what")]
    remove: bool,
    #[command(flatten)]
    lines: LineOptions,
    /// Change the image of a node below DIR
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// The service, and the arguments of both lines.
#[derive(Clone, Debug, Args)]
pub(super) struct LineOptions {
    /// Arguments of both lines, besides those taken over
    #[arg(long, value_name = "WORDS")]
    pub(super) arguments: Option<String>,
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = parse_service)]
    pub(super) service: String,
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let stack = Stack::read(&options.root, &options.lines.service)?;
    if options.remove {
        return remove_lines(&stack, output);
    }
    let plan = stack.with_our_lines(options.lines.arguments.as_deref())?;
    for note in &plan.notes {
        output.warn(note);
    }
    if options.print {
        output.out.write_all(&plan.text)?;
        return Ok(super::EXIT_FINE);
    }
    require_root("change a PAM stack")?;
    let path = stack.path.display();
    if stack.text == plan.text {
        writeln!(output.out, "{path}: unchanged")?;
        return Ok(super::EXIT_FINE);
    }
    stack.save_original()?;
    stack.write(&plan.text)?;
    writeln!(output.out, "{path}: changed; as it was: {}", stack.original_path().display())?;
    Ok(super::EXIT_FINE)
}

fn remove_lines(stack: &Stack<'_>, output: &mut Output<'_>) -> Result<u8, Error> {
    require_root("change a PAM stack")?;
    let path = stack.path.display();
    let restored = stack.without_our_lines()?;
    restored.warn(&stack.path, output);
    let text = &restored.text;
    if *text == stack.text {
        writeln!(output.out, "{path}: unchanged")?;
    } else if stack.vendor_text.as_ref() == Some(text) {
        fs::remove_file(&stack.path).map_err(|error| Error::failed("remove", &path, error))?;
        writeln!(output.out, "{path}: removed; the distribution's own file counts again")?;
    } else {
        stack.write(text)?;
        writeln!(output.out, "{path}: changed")?;
    }
    let mut lines_remain = false;
    for group in [Group::Auth, Group::Account, Group::Session] {
        let entries = stack.read_entries(group, text)?;
        for entry in entries.iter().filter(|entry| entry.is_our_module()) {
            lines_remain = true;
            output.warn(format_args!(
                "{}: a line of pam_job_adopt.so is left; {SHARED_REMEDY}",
                entry.place
            ));
        }
    }
    let is_open = stack.warn_if_open(&restored, output)?;
    Ok(if lines_remain || is_open { super::EXIT_FINDINGS } else { super::EXIT_FINE })
}

const SHARED_REMEDY: &str =
    "other services have this file too: take the line out there (pam-auth-update, or by hand)";

/// A service's own file.
#[derive(Debug)]
pub(super) struct Stack<'a> {
    root: &'a Path,
    pub(super) service: String,
    /// The path of the file, which may not exist yet.
    pub(super) path: PathBuf,
    /// The text of the file; if it does not exist, that of the distribution's file.
    pub(super) text: Vec<u8>,
    /// Owner and mode of the file; `None` if it does not exist.
    pub(super) meta: Option<Metadata>,
    /// The text of the distribution's own file.
    vendor_text: Option<Vec<u8>>,
}

/// The planned text of a service's file.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) text: Vec<u8>,
    /// The arguments of our lines.
    pub(super) settings: Settings,
    /// Notes for the admin.
    pub(super) notes: Vec<String>,
}

/// The stack as it is without our lines.
#[derive(Debug)]
struct OldStack {
    text: Vec<u8>,
    auth: Vec<Entry>,
    account: Vec<Entry>,
    session: Vec<Entry>,
    blocks: Vec<ManagedBlock>,
}

impl OldStack {
    /// Returns the lines of modules that decide about logins, as ours does.
    fn rivals(&self) -> Vec<&Entry> {
        self.account.iter().chain(&self.session).filter(|entry| is_rival(entry)).collect()
    }

    fn block_at(&self, line: usize) -> Option<&ManagedBlock> {
        self.blocks.iter().find(|block| block.contains(line))
    }

    /// Returns the number of the first line at or above this one in front of which ours is in no block.
    fn outside_blocks(&self, before: usize) -> usize {
        let block = self.blocks.iter().find(|block| block.encloses(before));
        block.map_or(before, |block| block.first)
    }

    /// Returns the numbers of the lines in front of which our auth lines go: the first auth line, and the
    /// line below the last one. `None` if the service has no auth lines of its own.
    fn auth_places(&self) -> Option<[usize; 2]> {
        if self.auth.iter().all(|entry| entry.top == 0) {
            return None;
        }
        let lines = parse_lines(&decode(&self.text))?;
        // A file that is included may get auth lines later.
        let is_auth = |line: &&LogicalLine| {
            is_in_group(line, Group::Auth) || self.auth.iter().any(|entry| entry.top == line.number)
        };
        let first = lines.iter().find(is_auth)?.number;
        let below = lines.iter().rfind(is_auth)?.last + 1;
        let block = self.blocks.iter().find(|block| block.encloses(below));
        Some([self.outside_blocks(first), block.map_or(below, |block| block.last + 1)])
    }
}

/// Our lines, and the lines of the old stack in front of which they go.
#[derive(Debug)]
struct OurLines {
    words: Vec<String>,
    /// The same in the form of a PAM line.
    arguments: String,
    settings: Settings,
    /// For jobs with private files: the first and the last auth line.
    before_auth: Option<[usize; 2]>,
    before_account: usize,
}

impl<'a> Stack<'a> {
    /// Reads the service's file.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if there is none, or if it is a link.
    pub(super) fn read(root: &'a Path, service: &str) -> Result<Self, Error> {
        let service = service.to_ascii_lowercase();
        // libpam reads the site's folder first.
        let mut dirs = service_dirs(root).into_iter();
        let path = dirs.next().unwrap_or_else(|| root.join("etc/pam.d")).join(&service);
        let mut vendor_text = None;
        for dir in dirs {
            if vendor_text.is_none() {
                vendor_text = read_text(&dir.join(&service))?;
            }
        }
        let meta = fs::symlink_metadata(&path).ok();
        if meta.as_ref().is_some_and(|meta| !meta.is_file()) {
            let why = "is no regular file. Whatever made the link, as authselect does, would undo the \
                       change: have it make a file here, or put both lines into what it copies";
            return Err(Error::failed("change", path.display(), why));
        }
        let text = if meta.is_some() { read_text(&path)? } else { vendor_text.clone() };
        let Some(text) = text else {
            let why = "is not there, so the service has no stack";
            return Err(Error::failed("change", path.display(), why));
        };
        Ok(Self { root, service, path, text, meta, vendor_text })
    }

    fn refusal(&self, cause: impl std::fmt::Display) -> Error {
        Error::failed("change", self.path.display(), cause)
    }

    fn read_entries(&self, group: Group, text: &[u8]) -> Result<Vec<Entry>, Error> {
        let instead = Some((self.path.as_path(), text));
        read_entries_with(self.root, &self.service, group, instead).map_err(|why| self.refusal(why))
    }

    /// Returns the text without our lines, and with the lines that they replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a text that ends within a line.
    pub(super) fn without_our_lines(&self) -> Result<Restored, Error> {
        lines::without_our_lines(self.root, &self.text)
            .ok_or_else(|| self.refusal("ends in a line's middle"))
    }

    /// Returns `before`, which is the file as it was, without lines that ours replaced and whose module
    /// is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a text that ends within a line.
    pub(super) fn restore(&self, before: &[u8]) -> Result<Restored, Error> {
        lines::restore(self.root, before, &self.text)
            .ok_or_else(|| self.refusal("ends in a line's middle"))
    }

    /// Warns if lines stay commented out and no other line keeps users without a job out; returns whether
    /// that is so.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a stack that cannot be read.
    pub(super) fn warn_if_open(
        &self,
        restored: &Restored,
        output: &mut Output<'_>,
    ) -> Result<bool, Error> {
        if restored.is_complete() {
            return Ok(false);
        }
        for group in [Group::Account, Group::Session] {
            let entries = self.read_entries(group, &restored.text)?;
            if entries
                .iter()
                .any(|entry| is_rival(entry) || entry.is_our_module() && !entry.is_close_only())
            {
                return Ok(false);
            }
        }
        output.warn(format_args!(
            "{}: nothing keeps users without a job out now: put our lines back (job-adopt pam --install), or \
             install the missing module and run job-adopt pam --remove",
            self.path.display()
        ));
        Ok(true)
    }

    /// Returns the files of the modules whose lines are commented out in `new`. A name that no folder has
    /// is taken to belong into the usual one.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a text that ends within a line.
    pub(super) fn replaced_modules(&self, new: &[u8]) -> Result<Vec<PathBuf>, Error> {
        let modules = lines::replaced_modules(&self.text, new)
            .ok_or_else(|| self.refusal("ends in a line's middle"))?;
        let mut files: Vec<PathBuf> =
            modules.iter().filter_map(|module| find_module(self.root, module)).collect();
        files.dedup();
        Ok(files)
    }

    /// Returns the text with our lines at their places: account before the first line that may end the stack
    /// or that includes another file, session below all other lines, and auth around all others. The auth
    /// lines are left out, with a note, if libpam could skip the last one.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], which names the line or argument that prevents it.
    pub(super) fn with_our_lines(&self, arguments: Option<&str>) -> Result<Plan, Error> {
        let old = self.read_old_stack()?;
        let mut ours = self.plan_our_lines(&old, arguments)?;
        let rivals = old.rivals();
        let mut replaced: Vec<&FileLine> = Vec::new();
        let mut notes = Vec::new();
        if ours.settings.observe {
            for rival in rivals {
                let name = module_name(rival);
                let place = &rival.place;
                notes.push(format!("{name} at {place} goes on to decide; ours only observes"));
            }
        } else {
            self.require_replaceable(&rivals, &old)?;
            require_no_jump_over_slurm(&old.session).map_err(|why| self.refusal(why))?;
            replaced.extend(rivals.iter().map(|rival| &rival.place));
            if let Some(slurm) = old.account.iter().find(|entry| entry.file() == SLURM_MODULE) {
                let replacement = self.compare(&old, &ours, slurm, arguments)?;
                for line in replacement.lines {
                    replaced.extend(old.account.get(line).map(|entry| &entry.place));
                }
                notes.extend(replacement.notes);
            }
            if rivals.iter().any(|rival| rival.file() == SLURM_MODULE) {
                notes.push(DEFAULTS_NOTE.to_owned());
            }
        }
        self.require_outside_blocks(&old, &replaced)?;
        let mut text = self.assemble(&old, &ours, &replaced);
        if let Some(why) = self.find_auth_fault(&ours, &text) {
            notes.push(why);
            ours.before_auth = None;
            text = self.assemble(&old, &ours, &replaced);
        }
        self.require_effective(&text)?;
        Ok(Plan { text, settings: ours.settings, notes })
    }

    /// Reads the stack without our lines. If a module that ours replaced is gone, all that was commented
    /// out with it stays so: the other lines alone would judge users whom they never judged.
    fn read_old_stack(&self) -> Result<OldStack, Error> {
        let text = self.without_our_lines()?.text;
        let auth = self.read_entries(Group::Auth, &text)?;
        let account = self.read_entries(Group::Account, &text)?;
        let session = self.read_entries(Group::Session, &text)?;
        for (group, entries) in [("account", &account), ("session", &session)] {
            if entries.iter().all(|entry| entry.top == 0) {
                let why = "line, so libpam takes those of \"other\"; ours would replace them";
                return Err(self.refusal(format!("has no {group} {why}")));
            }
        }
        for entries in [&auth, &account, &session] {
            if let Some(entry) = entries.iter().find(|entry| entry.is_our_module()) {
                let place = &entry.place;
                let why =
                    format!("a line of pam_job_adopt.so is at {place} already; {SHARED_REMEDY}");
                return Err(self.refusal(why));
            }
        }
        let blocks = find_blocks(&decode(&text));
        Ok(OldStack { text, auth, account, session, blocks })
    }

    /// Chooses the arguments and places of our lines.
    fn plan_our_lines(&self, old: &OldStack, arguments: Option<&str>) -> Result<OurLines, Error> {
        let mut words = match (arguments, self.find_our_words()) {
            (None, Some(words)) => words,
            (given, _) => {
                let given = arguments::split(given.unwrap_or_default());
                let rivals = old.rivals();
                let slurm: Vec<&Entry> =
                    rivals.into_iter().filter(|entry| entry.file() == SLURM_MODULE).collect();
                given
                    .and_then(|given| arguments::merge(&slurm, &given))
                    .map_err(|why| self.refusal(why))?
            }
        };
        self.add_service(&mut words);
        let settings = Settings::parse(&words).map_err(|why| {
            self.refusal(format!("{why} (--arguments NAME=VALUE replaces what is taken over)"))
        })?;
        let arguments = arguments::join(&words).map_err(|why| self.refusal(why))?;
        // Our line observes logins that a rival refuses, too.
        let is_first = |entry: &&Entry| {
            self.is_elsewhere(&entry.place)
                || !entry.is_pass_through()
                || settings.observe && is_rival(entry)
        };
        let before_account =
            old.account.iter().find(is_first).map_or(usize::MAX, |entry| entry.top);
        let before_account = old.outside_blocks(before_account);
        let before_auth = if settings.join_container { old.auth_places() } else { None };
        Ok(OurLines { words, arguments, settings, before_auth, before_account })
    }

    /// Returns the arguments of our line in the file.
    fn find_our_words(&self) -> Option<Vec<String>> {
        let lines = parse_lines(&decode(&self.text))?;
        let ours = lines.iter().find(|line| {
            is_our_line(line) && !is_in_group(line, Group::Auth) && !is_close_only(&line.words)
        })?;
        Some(ours.words.get(3..).unwrap_or_default().to_vec())
    }

    /// Returns whether a line is in another file, which other services use too and which may grow.
    fn is_elsewhere(&self, place: &FileLine) -> bool {
        place.file != self.path
    }

    /// Adds `service=` to the arguments, unless the service is sshd: by default the module ignores any
    /// other.
    fn add_service(&self, words: &mut Vec<String>) {
        let is_named = words.iter().any(|word| arguments::name(word) == "service");
        if self.service != "sshd" && !is_named {
            words.push(format!("service={}", self.service));
        }
    }

    /// Checks that lines of rivals can be commented out, and that we understand their arguments.
    fn require_replaceable(&self, rivals: &[&Entry], old: &OldStack) -> Result<(), Error> {
        let lines = parse_lines(&decode(&old.text)).unwrap_or_default();
        for entry in rivals {
            let file = module_name(entry);
            let place = &entry.place;
            if file != SLURM_MODULE {
                let by =
                    if self.is_elsewhere(place) { " (pam-auth-update, or by hand)" } else { "" };
                return Err(self.refusal(format!(
                    "{file} at {place} decides about logins as well: take that line out first{by}, \
                     or try ours beside it by --arguments observe"
                )));
            }
            if self.is_elsewhere(place) || lines.iter().all(|line| line.number != place.line) {
                let why =
                    format!("{file} is at {place}; {SHARED_REMEDY}, and give its arguments here");
                return Err(self.refusal(why));
            }
        }
        Ok(())
    }

    /// Compares whom the account stack admits with our line in place of pam_slurm_adopt's.
    fn compare(
        &self,
        old: &OldStack,
        ours: &OurLines,
        slurm: &Entry,
        arguments: Option<&str>,
    ) -> Result<replacement::Replacement, Error> {
        let change = AccountChange {
            before: &old.account,
            after: &|lines| {
                let places: Vec<&FileLine> =
                    lines.iter().filter_map(|line| Some(&old.account.get(*line)?.place)).collect();
                let text = self.assemble(old, ours, &places);
                let file = Some((self.path.as_path(), text.as_slice()));
                read_entries_with(self.root, &self.service, Group::Account, file)
            },
            is_own: &|entry| !self.is_elsewhere(&entry.place),
            settings: &ours.settings,
            service: &self.service,
            states_no_jobs: states_no_jobs(&ours.words, arguments),
            by_hand: by_hand(slurm, ours.before_account, &ours.arguments),
        };
        change.find_replaced().map_err(|why| self.refusal(why))
    }

    /// Checks that no change falls into a block that another program would write again.
    fn require_outside_blocks(&self, old: &OldStack, replaced: &[&FileLine]) -> Result<(), Error> {
        let path = self.path.display();
        for place in replaced.iter().filter(|place| !self.is_elsewhere(place)) {
            if let Some(block) = old.block_at(place.line) {
                return Err(self.refusal(format!(
                    "{place} is in the block that another program writes from {path}:{} on ({}) and \
                     would write again: have that program leave the line out, or take its block out, \
                     and give its arguments here",
                    block.first, block.title
                )));
            }
        }
        if let Some(block) = old.blocks.iter().find(|block| block.is_open) {
            return Err(self.refusal(format!(
                "another program writes all lines from {path}:{} on ({}), and our session line has \
                 to be the last: have that program write both lines, or end its block by a comment \
                 \"# END\"",
                block.first, block.title
            )));
        }
        Ok(())
    }

    /// Returns the old text with our lines, and the replaced ones commented out.
    fn assemble(&self, old: &OldStack, ours: &OurLines, replaced: &[&FileLine]) -> Vec<u8> {
        let arguments = &ours.arguments;
        let required = |group: &str| {
            let line = format!("{group}    required     pam_job_adopt.so {arguments}");
            line.trim_end().to_owned()
        };
        let mut new = vec![
            NewLine { before: ours.before_account, text: required("account") },
            NewLine { before: usize::MAX, text: required("session") },
        ];
        for before in ours.before_auth.into_iter().flatten() {
            new.push(NewLine { before, text: AUTH_LINE.to_owned() });
        }
        let replaced: Vec<usize> = replaced
            .iter()
            .filter(|place| !self.is_elsewhere(place))
            .map(|place| place.line)
            .collect();
        lines::edit(&old.text, &new, &replaced)
    }

    /// Returns why our auth lines would not be enough in this text, and what to do about it.
    fn find_auth_fault(&self, ours: &OurLines, text: &[u8]) -> Option<String> {
        ours.before_auth?;
        let instead = Some((self.path.as_path(), text));
        let finding = judge_stack_with(self.root, &self.service, Group::Auth, instead);
        let remedy = match &finding {
            stack::Finding::Effective(_)
            | stack::Finding::Rejected(_, Rejection::MissingModule(_)) => return None,
            stack::Finding::Skipped { .. } => {
                ": write substack in place of include for the file of that line, and run this again"
            }
            _ => "",
        };
        let fault = finding.describe(Group::Auth);
        Some(format!(
            "no auth lines are written, without which logins to jobs with private files are refused: \
             {fault}{remedy}"
        ))
    }

    /// Checks that libpam cannot skip our lines in this text, and that no line undoes them.
    fn require_effective(&self, text: &[u8]) -> Result<(), Error> {
        for group in [Group::Account, Group::Session] {
            let instead = Some((self.path.as_path(), text));
            match judge_stack_with(self.root, &self.service, group, instead) {
                // `write` refuses where the module is not installed.
                stack::Finding::Effective(_)
                | stack::Finding::Rejected(_, Rejection::MissingModule(_)) => {}
                stack::Finding::Rejected(place, why) => {
                    let remedy = rejection_remedy(&why);
                    return Err(self.refusal(format!("with our lines {place} {why}: {remedy}")));
                }
                other => {
                    let text = other.describe(group);
                    return Err(self.refusal(format!("our lines would not be enough: {text}")));
                }
            }
        }
        Ok(())
    }

    /// Returns the path of the original file.
    pub(super) fn original_path(&self) -> PathBuf {
        self.root.join(ORIGINALS_DIR).join(&self.service)
    }

    /// Saves the file without our lines as the original.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it cannot be written.
    pub(super) fn save_original(&self) -> Result<(), Error> {
        let path = self.original_path();
        let folder = path.parent().unwrap_or(self.root);
        fs::create_dir_all(folder)
            .map_err(|error| Error::failed("mkdir", folder.display(), error))?;
        replace_file(&path, self.without_our_lines()?.text, self.meta.as_ref())
    }

    /// Replaces the file.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the text names our module and it is not installed: libpam would refuse
    /// every login, root's too.
    pub(super) fn write(&self, text: &[u8]) -> Result<(), Error> {
        let has_our_line = parse_lines(&decode(text)).unwrap_or_default().iter().any(is_our_line);
        let module = find_module_folder(self.root).map(|folder| folder.join(MODULE_FILES[0]));
        if has_our_line && !module.is_some_and(|module| module.exists()) {
            return Err(self.refusal("pam_job_adopt.so is not installed: nobody could log in"));
        }
        replace_file(&self.path, text, self.meta.as_ref())
    }
}

/// Reads a service file; `None` if there is none.
fn read_text(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(text) if text.contains(&0) => {
            Err(Error::failed("read", path.display(), "is not a text"))
        }
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::failed("read", path.display(), error)),
    }
}

fn is_in_group(line: &LogicalLine, group: Group) -> bool {
    let word = line.words.first().map_or("", |word| word.strip_prefix('-').unwrap_or(word));
    word.eq_ignore_ascii_case(group.as_str())
}

fn is_rival(entry: &Entry) -> bool {
    RIVAL_MODULES.contains(&module_name(entry))
}

/// Our first and our last auth line. They have no arguments: the session line decides for them.
const AUTH_LINE: &str = "auth       required     pam_job_adopt.so";

const DEFAULTS_NOTE: &str = "note: what pam_slurm_adopt.so leaves open unless told otherwise, ours refuses: \
                        action_adopt_failure and action_generic_failure are deny unless given";

/// Returns whether the admin decides about users without a job: by the arguments given now, or by
/// those of our line, which were given before.
fn states_no_jobs(words: &[String], given: Option<&str>) -> bool {
    let given = given.map(|given| arguments::split(given).unwrap_or_default());
    let words = given.as_deref().unwrap_or(words);
    words.iter().any(|word| arguments::name(word) == "action_no_jobs")
}

/// Describes what to write by hand where a line below the old one prevents the change: with a
/// control like the old one's, ours spares users with a job all lines below it.
fn by_hand(slurm: &Entry, first_end: usize, arguments: &str) -> String {
    if first_end != slurm.top {
        return format!(
            "By hand: put that line above {SLURM_MODULE}, if it lets in users with a job, or take \
             it out of this service's stack; then run this again"
        );
    }
    let ours = format!("pam_job_adopt.so {arguments}");
    let ours = ours.trim_end();
    format!(
        "By hand: in place of {} write \"account [success=done ignore=ignore default=die] {ours}\", \
         with exempt_groups=NAMES for those whom the lines below it let in, and as the last line \
         \"session required {ours}\"",
        slurm.place
    )
}

#[cfg(test)]
mod tests {
    use super::lines::REPLACED_MARK;
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    const SHAPES: [&str; 10] = [
        "debian", "el", "el7", "el-sssd", "el-sssd-features", "el-winbind", "el-winbind-features",
        "suse", "suse-sss", "ubuntu",
    ];
    const OURS: &str = "required     pam_job_adopt.so";

    /// Lays out a node with a stack of this shape.
    pub(super) fn node(shape: &str) -> Scratch {
        let scratch = Scratch::new();
        let from = format!("{}/../../tests/fixtures/pam/{shape}/.", env!("CARGO_MANIFEST_DIR"));
        assert!(
            Command::new("cp").arg("-r").arg(from).arg(scratch.path()).status().unwrap().success()
        );
        let others = [
            "pam_access.so", "pam_deny.so", "pam_listfile.so", "pam_permit.so",
            "pam_slurm_adopt.so", "pam_sss.so", "pam_succeed_if.so", "pam_time.so",
            "pam_winbind.so",
        ];
        for name in others.into_iter().chain(["pam_job_adopt.so"]) {
            scratch.file(&format!("usr/lib64/security/{name}"), "");
        }
        if ["debian", "ubuntu"].contains(&shape) {
            // Only this libpam knows the word.
            scratch.file("usr/lib64/libpam.so.0", "@include\0");
        }
        scratch
    }

    pub(super) fn read(scratch: &Scratch) -> Stack<'_> {
        Stack::read(scratch.path(), "sshd").unwrap()
    }

    pub(super) fn text_of(scratch: &Scratch) -> String {
        decode(&read(scratch).text)
    }

    /// Returns the text that would be written.
    pub(super) fn planned(scratch: &Scratch, arguments: Option<&str>) -> String {
        decode(&read(scratch).with_our_lines(arguments).unwrap().text)
    }

    /// Returns the text with our lines.
    fn install(scratch: &Scratch, arguments: Option<&str>) -> String {
        planned(scratch, arguments)
    }

    fn refusal(scratch: &Scratch, arguments: Option<&str>) -> String {
        read(scratch).with_our_lines(arguments).unwrap_err().to_string()
    }

    fn line_before<'a>(text: &'a str, line: &str) -> &'a str {
        let index = text.lines().position(|other| other == line).unwrap();
        text.lines().nth(index - 1).unwrap()
    }

    /// Lays out a node with Debian's stack, in whose file for sshd `to` replaces `from`.
    fn debian(from: &str, to: &str) -> Scratch {
        let scratch = node("debian");
        let text = fs::read_to_string(scratch.path().join("etc/pam.d/sshd")).unwrap();
        assert!(text.contains(from));
        scratch.file("etc/pam.d/sshd", &text.replacen(from, to, 1));
        scratch
    }
    const OAR: &str = "account required pam_exec.so quiet stdout /usr/sbin/pam_oar_adopt -a\n";
    const THEIRS: &str =
        "-account required pam_slurm_adopt.so action_adopt_failure=deny nodename=n1\n";
    fn beside_theirs(theirs: &str) -> Scratch {
        let include = "@include common-account\n";
        debian(include, &format!("{include}{theirs}"))
    }

    #[test]
    fn both_lines_are_inserted_at_their_places_in_every_shape() {
        for shape in SHAPES {
            let scratch = node(shape);
            let text = install(&scratch, None);
            let (account, session) = (format!("account    {OURS}"), format!("session    {OURS}"));
            assert!(line_before(&text, &account).contains("pam_nologin.so"), "{text}");
            assert_eq!(text.lines().last().unwrap(), session);
            let is_auth = |line: &&str| {
                line.trim_start_matches('-').starts_with("auth") || *line == "@include common-auth"
            };
            let auth: Vec<&str> = text.lines().filter(is_auth).collect();
            if shape == "suse-sss" {
                // A sufficient line of common-auth skips the last one.
                assert_eq!(text.matches("pam_job_adopt").count(), 2, "{text}");
            } else {
                assert_eq!(text.matches("pam_job_adopt").count(), 4, "{text}");
                assert_eq!([auth[0], auth[auth.len() - 1]], [AUTH_LINE; 2], "{text}");
            }
            // All other lines stay.
            let stack = read(&scratch);
            let others: String =
                text.split_inclusive('\n').filter(|line| !line.contains("pam_job_adopt")).collect();
            assert_eq!(others.as_bytes(), stack.text);
        }
    }

    #[test]
    fn second_write_changes_no_text_and_removal_restores_old_text() {
        for shape in SHAPES {
            for arguments in [None, Some("observe exempt_groups=ops")] {
                let scratch = node(shape);
                let old = text_of(&scratch);
                let text = install(&scratch, arguments);
                read(&scratch).save_original().unwrap();
                read(&scratch).write(text.as_bytes()).unwrap();
                assert_eq!(install(&scratch, None), text);
                assert_eq!(install(&scratch, arguments), text);
                assert_eq!(read(&scratch).without_our_lines().unwrap().text, old.as_bytes());
                let original = fs::read_to_string(read(&scratch).original_path());
                assert_eq!(original.unwrap(), old);
                // Arguments that are given replace those that are there.
                assert_eq!(install(&scratch, Some("")).matches("observe").count(), 0);
            }
        }
    }

    #[test]
    fn written_file_has_owner_and_mode_of_old_file() {
        let scratch = node("el");
        scratch.mode("etc/pam.d/sshd", 0o640);
        read(&scratch).write(b"session required pam_permit.so\n").unwrap();
        let meta = fs::metadata(scratch.path().join("etc/pam.d/sshd")).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(scratch.path().join("etc/pam.d")).unwrap().count(), 3);
    }

    #[test]
    fn line_of_pam_slurm_adopt_is_replaced_and_its_arguments_are_kept() {
        let scratch = beside_theirs(THEIRS);
        let (old, plan) =
            (text_of(&scratch), read(&scratch).with_our_lines(Some("timeout=9")).unwrap());
        let text = decode(&plan.text);
        assert!(text.contains(&format!("{REPLACED_MARK}{THEIRS}")), "{text}");
        let words = "action_adopt_failure=deny nodename=n1 timeout=9\n";
        assert_eq!(text.matches(&format!("{OURS} {words}")).count(), 2, "{text}");
        assert!(plan.notes.iter().any(|note| note.contains("action_generic_failure")));
        read(&scratch).write(text.as_bytes()).unwrap();
        assert_eq!(read(&scratch).without_our_lines().unwrap().text, old.as_bytes());
        // A logical line of several physical lines is replaced as a whole.
        let scratch =
            beside_theirs("account required \\\n  pam_slurm_adopt.so \\\n  nodename=n1\n");
        let text = install(&scratch, None);
        assert_eq!(text.matches(REPLACED_MARK).count(), 3, "{text}");
        assert!(text.contains(&format!("{OURS} nodename=n1\n")), "{text}");
    }

    #[test]
    fn given_argument_wins_over_argument_of_replaced_line() {
        let scratch = beside_theirs("account required pam_slurm_adopt.so Action_Unknown=allow\n");
        let why = refusal(&scratch, None);
        assert!(why.contains("Action_Unknown=allow") && why.contains("newest or deny"), "{why}");
        let text = install(&scratch, Some("action_unknown=deny"));
        assert!(text.contains(&format!("{OURS} action_unknown=deny\n")), "{text}");
    }

    #[test]
    fn observing_line_leaves_rival_line_in_place() {
        let scratch = beside_theirs(THEIRS);
        let plan = read(&scratch).with_our_lines(Some("observe")).unwrap();
        assert!(decode(&plan.text).contains(&format!("\n{THEIRS}")), "{plan:?}");
        assert!(plan.notes.iter().any(|note| note.contains("goes on to decide")));
        // Installing without `observe` replaces the rival line.
        read(&scratch).write(&plan.text).unwrap();
        assert!(install(&scratch, Some("")).contains(&format!("{REPLACED_MARK}{THEIRS}")));
    }

    #[test]
    fn observing_line_comes_before_rival_that_refuses() {
        let include = "@include common-account\n";
        let theirs = format!("account requisite pam_flux.so\n{include}");
        let text = install(&debian(include, &theirs), Some("observe"));
        assert!(text.contains(&format!("{OURS} observe\n{theirs}")), "{text}");
    }

    #[test]
    fn stack_that_cannot_be_changed_safely_is_refused() {
        let include = "@include common-account\n";
        let scratch = beside_theirs("account required pam_flux.so\n");
        assert!(refusal(&scratch, None).contains("pam_flux.so"));
        let scratch = node("debian");
        scratch.file("etc/pam.d/common-account", OAR);
        let why = refusal(&scratch, None);
        assert!(why.contains("pam_oar_adopt at ") && why.contains("common-account:1"), "{why}");
        assert!(why.contains("take that line out first (pam-auth-update"), "{why}");
        let plan = read(&scratch).with_our_lines(Some("observe")).unwrap();
        assert!(plan.notes.iter().any(|note| note.starts_with("pam_oar_adopt at ")));
        let scratch = beside_theirs("account required pam_slurm_adopt.so service=*\n");
        assert!(refusal(&scratch, None).contains("name one"));
        let scratch = beside_theirs("account required pam_slurm_adopt.so no_such=1\n");
        assert!(refusal(&scratch, None).contains("no_such=1"));
        // This change would lock operators out.
        let lists = format!("account sufficient pam_access.so\n{include}{THEIRS}");
        let scratch = debian(include, &lists);
        assert!(refusal(&scratch, None).contains("exempt_groups"));
        assert!(install(&scratch, Some("exempt_groups=ops")).contains("exempt_groups=ops"));
        // Many services use this file.
        let scratch = node("debian");
        scratch.file("etc/pam.d/common-account", THEIRS);
        assert!(refusal(&scratch, None).contains("common-account:1"));
        scratch.file("etc/pam.d/common-account", "account required pam_job_adopt.so\n");
        assert!(refusal(&scratch, None).contains("already"));
        // libpam could skip our session line.
        let leap = "session [success=1 default=ignore] pam_permit.so\n";
        let scratch = debian("@include common-password", leap);
        assert!(refusal(&scratch, None).contains("can be skipped"));
        // The service has no account line, so libpam uses the service `other`.
        let scratch = node("debian");
        scratch.file("etc/pam.d/other", "account required pam_deny.so\n");
        scratch.file("etc/pam.d/sshd", "session required pam_permit.so\n");
        assert!(refusal(&scratch, None).contains("no account line"));
    }

    #[test]
    fn stack_that_not_every_libpam_reads_alike_is_refused() {
        let include = "@include common-account\n";
        let scratch = debian(include, &format!("account optional pam_x.so \\\n#\n{include}"));
        let why = refusal(&scratch, None);
        assert!(why.contains("is continued over") && why.contains("remove the empty"), "{why}");
        // A line that names many groups would be too long for libpam before 1.6.
        let groups = "a-group-of-the-site,".repeat(49);
        let why = refusal(&node("el"), Some(&format!("exempt_groups={groups}ops")));
        assert!(why.contains("has 1038 bytes") && why.contains("one group"), "{why}");
        install(&node("el"), Some(&format!("exempt_groups={groups}")[..982]));
        // So would be the comment that a replaced line becomes.
        let theirs = format!("account required pam_slurm_adopt.so{}nodename=n1\n", " ".repeat(970));
        let why = refusal(&beside_theirs(&theirs), None);
        assert!(why.contains("has 1028 bytes"), "{why}");
    }

    #[test]
    fn account_line_comes_before_a_line_whose_failure_would_outweigh_it() {
        let sss = "account [default=bad success=ok user_unknown=ignore] pam_sss.so\n";
        let include = "@include common-account\n";
        let scratch = debian(include, &format!("{sss}{include}"));
        let text = install(&scratch, None);
        assert!(text.contains(&format!("account    {OURS}\n{sss}")), "{text}");
    }

    #[test]
    fn link_and_missing_service_are_refused() {
        let scratch = node("el");
        let error = |service| Stack::read(scratch.path(), service).unwrap_err().to_string();
        assert!(error("nothing").contains("is not there"));
        let folder = scratch.path().join("etc/pam.d");
        std::os::unix::fs::symlink("sshd", folder.join("linked")).unwrap();
        assert!(error("linked").contains("authselect"));
    }

    #[test]
    fn other_service_is_named_and_missing_module_is_refused() {
        let scratch = node("el");
        fs::copy(scratch.path().join("etc/pam.d/sshd"), scratch.path().join("etc/pam.d/alt"))
            .unwrap();
        let stack = Stack::read(scratch.path(), "Alt").unwrap();
        let text = decode(&stack.with_our_lines(None).unwrap().text);
        assert_eq!(text.matches(&format!("{OURS} service=alt\n")).count(), 2, "{text}");
        fs::remove_file(scratch.path().join("usr/lib64/security/pam_job_adopt.so")).unwrap();
        let why = stack.write(text.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("not installed"), "{why}");
    }

    /// Writes the planned lines, and returns the text without them.
    fn remove(scratch: &Scratch) -> (String, String) {
        let restored = read(scratch).without_our_lines().unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        restored.warn(&read(scratch).path, &mut Output { out: &mut out, err: &mut err });
        (decode(&restored.text), decode(&err))
    }

    #[test]
    fn line_whose_module_is_gone_is_not_restored() {
        let several = "account required \\\n  pam_slurm_adopt.so \\\n  nodename=n1\n";
        for theirs in [
            THEIRS,
            several,
            "account sufficient pam_slurm_adopt.so\naccount required pam_access.so\n",
        ] {
            let scratch = beside_theirs(theirs);
            let old = text_of(&scratch);
            let text = install(&scratch, Some("exempt_groups=ops"));
            read(&scratch).write(text.as_bytes()).unwrap();
            assert_eq!(remove(&scratch), (old.clone(), String::new()));
            let module = scratch.path().join("usr/lib64/security/pam_slurm_adopt.so");
            fs::rename(&module, module.with_extension("gone")).unwrap();
            let (restored, warnings) = remove(&scratch);
            assert_eq!(
                warnings.matches("pam_slurm_adopt.so is not there").count(),
                1,
                "{warnings}"
            );
            assert!(restored.lines().all(|line| line.starts_with('#') || !line.contains("slurm")));
            assert_eq!(restored.replace(REPLACED_MARK, ""), old);
            // This line never judged users with a job.
            assert!(!restored.contains("\naccount required pam_access.so\n"), "{restored}");
            // Our lines go on to work without the old module.
            assert_eq!(install(&scratch, None), text);
            fs::rename(module.with_extension("gone"), &module).unwrap();
            assert_eq!(remove(&scratch).0, old);
        }
    }

    /// `enable --undo` goes back to the file as it was.
    #[test]
    fn line_whose_module_went_during_a_trial_is_not_restored() {
        let scratch = beside_theirs(THEIRS);
        let old = text_of(&scratch);
        read(&scratch).write(install(&scratch, None).as_bytes()).unwrap();
        let restored = |scratch: &Scratch| read(scratch).restore(old.as_bytes()).unwrap();
        assert_eq!(decode(&restored(&scratch).text), old);
        fs::remove_file(scratch.path().join("usr/lib64/security/pam_slurm_adopt.so")).unwrap();
        let after = restored(&scratch);
        assert!(!after.is_complete());
        assert_eq!(decode(&after.text), old.replace(THEIRS, &format!("{REPLACED_MARK}{THEIRS}")));
    }

    /// A jump alone would skip another line.
    #[test]
    fn jump_is_not_restored_without_the_line_that_it_skips() {
        let jump = "account [success=1 default=ignore] pam_succeed_if.so user ingroup ops\n";
        let slurm = "account required pam_slurm_adopt.so\n";
        let scratch = beside_theirs(&format!("{jump}{slurm}account required pam_time.so\n"));
        let old = text_of(&scratch);
        let new = install(&scratch, Some("exempt_groups=ops"));
        let folder = scratch.path().join("usr/lib64/security");
        let modules = ["pam_succeed_if.so", "pam_slurm_adopt.so"].map(|name| folder.join(name));
        assert_eq!(read(&scratch).replaced_modules(new.as_bytes()).unwrap(), modules);
        read(&scratch).write(new.as_bytes()).unwrap();
        assert_eq!(remove(&scratch), (old.clone(), String::new()));
        fs::remove_file(folder.join("pam_slurm_adopt.so")).unwrap();
        let (restored, warnings) = remove(&scratch);
        let left_out = old
            .replace(jump, &format!("{REPLACED_MARK}{jump}"))
            .replace(slurm, &format!("{REPLACED_MARK}{slurm}"));
        assert_eq!(restored, left_out);
        assert_eq!(warnings.matches("stays commented out").count(), 2, "{warnings}");
        assert_eq!(decode(&read(&scratch).restore(old.as_bytes()).unwrap().text), left_out);
    }

    #[test]
    fn replaced_lines_are_told_from_equal_ones_and_at_the_end() {
        let scratch = node("debian");
        fs::remove_file(scratch.path().join("usr/lib64/security/pam_slurm_adopt.so")).unwrap();
        let time = "account required pam_time.so";
        let slurm = "account sufficient pam_slurm_adopt.so";
        let before = format!("{time}\n{slurm}\n{time}");
        let current = format!("{time}\n{REPLACED_MARK}{slurm}\n{REPLACED_MARK}{time}");
        for end in ["", "\n"] {
            let current = format!("{current}\n");
            let restored = lines::restore(
                scratch.path(),
                format!("{before}{end}").as_bytes(),
                current.as_bytes(),
            );
            assert_eq!(decode(&restored.unwrap().text).trim_end(), current.trim_end());
        }
    }

    /// Users without a job get in unless another line decides by jobs.
    #[test]
    fn open_stack_is_reported_after_removal() {
        let scratch = beside_theirs(THEIRS);
        read(&scratch).write(install(&scratch, None).as_bytes()).unwrap();
        let report = || {
            let stack = read(&scratch);
            let restored = stack.without_our_lines().unwrap();
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut output = Output { out: &mut out, err: &mut err };
            let is_open = stack.warn_if_open(&restored, &mut output).unwrap();
            assert_eq!(is_open, decode(&err).contains("nothing keeps users without a job out now"));
            is_open
        };
        assert!(!report());
        fs::remove_file(scratch.path().join("usr/lib64/security/pam_slurm_adopt.so")).unwrap();
        assert!(report());
        let account = scratch.path().join("etc/pam.d/common-account");
        let text = fs::read_to_string(&account).unwrap();
        fs::write(account, text + "account required pam_job_adopt.so\n").unwrap();
        assert!(!report());
    }

    #[test]
    fn arguments_with_blanks_keep_their_brackets() {
        let conf = "[conf=/etc/site hpc/x.conf]";
        let groups = "[exempt_groups=hpc admins@ad.example,ops]";
        for arguments in [conf, groups, &format!("{conf} {groups} debug")] {
            let scratch = node("debian");
            let text = install(&scratch, Some(arguments));
            assert_eq!(text.matches(&format!("{OURS} {arguments}\n")).count(), 2, "{text}");
            read(&scratch).write(text.as_bytes()).unwrap();
            assert_eq!(install(&scratch, None), text);
        }
        let theirs = "account required pam_slurm_adopt.so [log_level=info] nodename=n1\n";
        let text = install(&beside_theirs(theirs), Some(groups));
        assert!(text.contains(&format!("{OURS} log_level=info nodename=n1 {groups}\n")), "{text}");
        let why = refusal(&node("debian"), Some("debug # all"));
        assert!(why.contains("cannot have #"), "{why}");
    }

    #[test]
    fn comment_in_another_encoding_is_as_long_as_its_bytes() {
        let scratch = node("debian");
        let comment = [b"#".as_slice(), &[0xb0; 1022], b"\n"].concat();
        let text = [comment.as_slice(), text_of(&scratch).as_bytes()].concat();
        fs::write(scratch.path().join("etc/pam.d/sshd"), text).unwrap();
        assert!(read(&scratch).with_our_lines(None).unwrap().text.starts_with(&comment));
    }

    #[test]
    fn bytes_that_are_no_utf8_stay() {
        let scratch = beside_theirs(THEIRS);
        let comment = b"# f\xfcr die Z\xfcge \xff\xfe\n";
        let mut old = comment.to_vec();
        old.extend_from_slice(text_of(&scratch).as_bytes());
        old.extend_from_slice(b"session optional pam_permit.so # \xe9\n");
        fs::write(scratch.path().join("etc/pam.d/sshd"), &old).unwrap();
        let plan = read(&scratch).with_our_lines(None).unwrap();
        assert!(plan.text.starts_with(comment));
        read(&scratch).save_original().unwrap();
        read(&scratch).write(&plan.text).unwrap();
        assert_eq!(read(&scratch).without_our_lines().unwrap().text, old);
        assert_eq!(fs::read(read(&scratch).original_path()).unwrap(), old);
        // An argument that would be taken over has to be written anew.
        let scratch = beside_theirs("");
        let path = scratch.path().join("etc/pam.d/sshd");
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"account required pam_slurm_adopt.so nodename=\xfc\n");
        fs::write(&path, text).unwrap();
        assert!(refusal(&scratch, None).contains("nodename="));
        install(&scratch, Some("nodename=u"));
    }

    const BLOCKS: [(&str, &str); 3] = [
        ("# BEGIN ANSIBLE MANAGED BLOCK\n", "# END ANSIBLE MANAGED BLOCK\n"),
        ("#### Kit: Do not edit ####\n", "#### Kit: end ####\n"),
        ("# >>> kit >>>\n", "# <<< kit <<<\n"),
    ];

    #[test]
    fn our_lines_are_in_no_block_of_another_program() {
        for (begin, end) in BLOCKS {
            for (lines, replaces) in [
                ("account sufficient pam_localuser.so\naccount include common-account\n", false),
                ("session required pam_limits.so\nsession optional pam_umask.so\n", false),
                ("account required pam_time.so\naccount required pam_slurm_adopt.so\n", true),
            ] {
                let block = format!("{begin}{lines}{end}");
                let scratch = debian("account    required     pam_nologin.so\n", &block);
                if replaces {
                    let why = refusal(&scratch, Some("exempt_groups=ops"));
                    assert!(why.contains("another program writes") && why.contains(begin.trim()));
                } else {
                    let text = install(&scratch, Some("exempt_groups=ops"));
                    assert!(text.contains(&block), "{text}");
                    assert!(text.ends_with(&format!("session    {OURS} exempt_groups=ops\n")));
                }
                // The block may be the last thing in the file.
                let scratch = node("debian");
                let text = text_of(&scratch) + &block;
                scratch.file("etc/pam.d/sshd", &text);
                if !replaces {
                    assert!(install(&scratch, None).contains(&block));
                }
            }
        }
        let scratch = node("debian");
        let open = "#### Kit. Do not edit below ####\nsession required pam_limits.so\n";
        scratch.file("etc/pam.d/sshd", &(text_of(&scratch) + open));
        let why = refusal(&scratch, None);
        assert!(why.contains("has to be the last") && why.contains("sshd:"), "{why}");
    }

    /// A stack that only the distribution has, where its libpam looks for it.
    #[test]
    fn stack_of_a_vendor_folder_is_copied() {
        for folder in ["usr/etc/pam.d", "opt/vendor/pam.d", "usr/lib/pam.d"] {
            let scratch = node("debian");
            let library = format!("\0/etc/pam.d/%s\0/usr/lib/pam.d/%s\0/{folder}/%s\0");
            scratch.file("usr/lib64/libpam.so.0", &library);
            let old = text_of(&scratch);
            let site = scratch.path().join("etc/pam.d");
            scratch.dir(folder);
            for entry in fs::read_dir(&site).unwrap().map(Result::unwrap) {
                fs::rename(entry.path(), scratch.path().join(folder).join(entry.file_name()))
                    .unwrap();
            }
            let text = install(&scratch, None);
            assert_eq!(text.matches("pam_job_adopt").count(), 2, "{text}");
            read(&scratch).write(text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(site.join("sshd")).unwrap(), text);
            assert_eq!(decode(&fs::read(scratch.path().join(folder).join("sshd")).unwrap()), old);
            let stack = read(&scratch);
            assert_eq!(stack.vendor_text, Some(stack.without_our_lines().unwrap().text));
        }
        // A libpam that does not look there reads no such stack.
        let scratch = node("debian");
        let sshd = scratch.path().join("etc/pam.d/sshd");
        scratch.file("usr/etc/pam.d/sshd", &text_of(&scratch));
        fs::remove_file(sshd).unwrap();
        assert!(
            Stack::read(scratch.path(), "sshd").unwrap_err().to_string().contains("is not there")
        );
    }
}
