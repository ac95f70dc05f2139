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

use crate::accounts::require_root;
use crate::check::programs::{find_module, find_module_folder};
use crate::check::stack::{RIVAL_MODULES, module_name, rejection_remedy};
use crate::error::Error;
use crate::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use crate::options::parse_service;
use crate::output::Output;
use crate::replace_file::replace_file;
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
use replacement::{AccountChange, SLURM_MODULE, require_no_jump_over_slurm};

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
pub(crate) struct Options {
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

pub(crate) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
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
        return Ok(EXIT_FINE);
    }
    require_root("change a PAM stack")?;
    let path = stack.path.display();
    if stack.text == plan.text {
        writeln!(output.out, "{path}: unchanged")?;
        return Ok(EXIT_FINE);
    }
    stack.save_original()?;
    stack.write(&plan.text)?;
    writeln!(output.out, "{path}: changed; as it was: {}", stack.original_path().display())?;
    Ok(EXIT_FINE)
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
    Ok(if lines_remain || is_open { EXIT_FINDINGS } else { EXIT_FINE })
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

/// Our first and our last auth line. They need no arguments, since the session line decides what they do.
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
mod tests;
