//! `pam`: installs the lines of this module in a service's PAM stack, and removes them.

#[cfg(test)]
mod recipes;
mod replacement;

use super::check::programs::find_module_folder;
use super::check::stack::{RIVAL_MODULES, module_name, rejection_remedy};
use super::command_line::parse_service;
use super::{Error, Output, require_root};
use clap::{ArgGroup, Args};
use helper::stack::{
    self, Entry, FileLine, Group, LogicalLine, MODULE_FILES, Rejection, is_close_only,
    judge_stack_with, parse_lines, read_entries_with,
};
use module::Settings;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use replacement::{AccountChange, require_no_jump_over_slurm};

/// Comment mark before a line that our lines replace.
const REPLACED_MARK: &str = "#job-adopt: ";
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
Exit status: 0 fine, also where nothing had to change, 1 lines in other files are left, 2 wrong usage,
3 refused or not done."
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
    plan.notes.iter().for_each(|note| output.warn(note));
    if options.print {
        output.out.write_all(plan.text.as_bytes())?;
        return Ok(super::EXIT_FINE);
    }
    require_root("change a PAM stack")?;
    match stack.text == plan.text {
        true => writeln!(output.out, "{}: unchanged", stack.path.display())?,
        false => {
            stack.save_original()?;
            stack.write(&plan.text)?;
            let (path, original) = (stack.path.display(), stack.original_path());
            writeln!(output.out, "{path}: changed; as it was: {}", original.display())?;
        }
    }
    Ok(super::EXIT_FINE)
}

fn remove_lines(stack: &Stack<'_>, output: &mut Output<'_>) -> Result<u8, Error> {
    require_root("change a PAM stack")?;
    let path = stack.path.display();
    let text = stack.without_our_lines()?;
    if text == stack.text {
        writeln!(output.out, "{path}: unchanged")?;
    } else if stack.vendor_text.as_ref() == Some(&text) {
        fs::remove_file(&stack.path).map_err(|error| Error::failed("remove", &path, error))?;
        writeln!(output.out, "{path}: removed; the distribution's own file counts again")?;
    } else {
        stack.write(&text)?;
        writeln!(output.out, "{path}: changed")?;
    }
    let mut lines_remain = false;
    for group in [Group::Account, Group::Session] {
        let entries = stack.read_entries(group, &text)?;
        for entry in entries.iter().filter(|entry| entry.is_our_module()) {
            lines_remain = true;
            output.warn(format_args!(
                "{}: a line of pam_job_adopt.so is left; {SHARED_REMEDY}",
                entry.place
            ));
        }
    }
    Ok(if lines_remain { super::EXIT_FINDINGS } else { super::EXIT_FINE })
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
    pub(super) text: String,
    /// Owner and mode of the file; `None` if it does not exist.
    pub(super) meta: Option<Metadata>,
    /// The text of the distribution's own file.
    vendor_text: Option<String>,
}

/// The planned text of a service's file.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) text: String,
    /// Notes for the admin.
    pub(super) notes: Vec<String>,
}

impl<'a> Stack<'a> {
    /// Reads the service's file.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if there is none, or if it is a link.
    pub(super) fn read(root: &'a Path, service: &str) -> Result<Self, Error> {
        let service = service.to_ascii_lowercase();
        let path = root.join("etc/pam.d").join(&service);
        let refusal = |cause: &str| Error::failed("change", path.display(), cause);
        let read = |path: &Path| match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::failed("read", path.display(), error)),
        };
        let vendor_text = read(&root.join("usr/lib/pam.d").join(&service))?;
        let meta = fs::symlink_metadata(&path).ok();
        if meta.as_ref().is_some_and(|meta| !meta.is_file()) {
            return Err(refusal(
                "is no regular file. Whatever made the link, as authselect does, would undo the \
                 change: have it make a file here, or put both lines into what it copies",
            ));
        }
        let text = match &meta {
            Some(_) => read(&path)?,
            None => vendor_text.clone(),
        };
        let text = text.ok_or_else(|| refusal("is not there, so the service has no stack"))?;
        Ok(Self { root, service, path, text, meta, vendor_text })
    }

    fn refusal(&self, cause: impl std::fmt::Display) -> Error {
        Error::failed("change", self.path.display(), cause)
    }

    fn read_entries(&self, group: Group, text: &str) -> Result<Vec<Entry>, Error> {
        let instead = Some((self.path.as_path(), text));
        read_entries_with(self.root, &self.service, group, instead).map_err(|why| self.refusal(why))
    }

    fn parse_lines(&self) -> Result<Vec<LogicalLine>, Error> {
        parse_lines(&self.text).ok_or_else(|| self.refusal("ends in a line's middle"))
    }

    /// Returns the text without our lines, and with the lines that they replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a text that ends within a line.
    pub(super) fn without_our_lines(&self) -> Result<String, Error> {
        let mut ours = self.parse_lines()?;
        ours.retain(is_our_line);
        let physical = self.text.split_inclusive('\n').enumerate();
        let rest = physical.filter(|(index, _)| !covers(&ours, index + 1));
        Ok(rest.map(|(_, line)| line.strip_prefix(REPLACED_MARK).unwrap_or(line)).collect())
    }

    /// Returns the text with both lines at their places: account before the first line that may end
    /// the stack or that includes another file, session below all other lines.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], which names the line or argument that prevents it.
    pub(super) fn with_our_lines(&self, arguments: Option<&str>) -> Result<Plan, Error> {
        let current = self
            .parse_lines()?
            .into_iter()
            .find(|line| is_our_line(line) && !is_close_only(&line.words));
        let text = self.without_our_lines()?;
        let account = self.read_entries(Group::Account, &text)?;
        let session = self.read_entries(Group::Session, &text)?;
        let mut notes = Vec::new();
        for (group, entries) in [("account", &account), ("session", &session)] {
            if entries.iter().all(|entry| entry.top == 0) {
                let why = "line, so libpam takes those of \"other\"; ours would replace them";
                return Err(self.refusal(format!("has no {group} {why}")));
            }
            if let Some(entry) = entries.iter().find(|entry| entry.is_our_module()) {
                let why = format!(
                    "a line of pam_job_adopt.so is at {} already; {SHARED_REMEDY}",
                    entry.place
                );
                return Err(self.refusal(why));
            }
        }
        let is_rival = |entry: &Entry| RIVAL_MODULES.contains(&module_name(entry));
        let rivals: Vec<&Entry> =
            account.iter().chain(&session).filter(|entry| is_rival(entry)).collect();
        let slurm = rivals.iter().find(|entry| entry.file() == SLURM_MODULE);
        let words = match (arguments, current) {
            (None, Some(line)) => line.words.get(3..).unwrap_or_default().to_vec(),
            (given, _) => {
                let theirs = slurm.map(|entry| entry.arguments.as_slice()).unwrap_or_default();
                merge_arguments(theirs, given.unwrap_or_default())
            }
        };
        let words = self.add_service(words);
        let settings = Settings::parse(&words).map_err(|why| {
            self.refusal(format!("{why} (--arguments NAME=VALUE replaces what is taken over)"))
        })?;
        // Our line observes logins that a rival refuses, too.
        let is_observed = |entry: &Entry| settings.observe && is_rival(entry);
        let may_end_stack = |entry: &&Entry| {
            self.is_elsewhere(&entry.place) || !entry.is_pass_through() || is_observed(entry)
        };
        let before = account.iter().find(may_end_stack).map_or(usize::MAX, |entry| entry.top);
        let first = session.first().map_or(0, |entry| entry.top);
        let words = words.join(" ");
        let assemble = |replaced: &[&FileLine]| {
            let mut lines = parse_lines(&text).unwrap_or_default();
            lines.retain(|line| replaced.iter().any(|place| place.line == line.number));
            self.insert_lines(&text, (before, first), &lines, &words)
        };
        let mut replaced: Vec<&FileLine> = Vec::new();
        if settings.observe {
            let beside = rivals.iter().map(|rival| {
                let name = module_name(rival);
                format!("{name} at {} goes on to decide; ours only observes", rival.place)
            });
            notes.extend(beside);
        } else {
            self.require_replaceable(&rivals, &text)?;
            require_no_jump_over_slurm(&session).map_err(|why| self.refusal(why))?;
            replaced.extend(rivals.iter().map(|rival| &rival.place));
            let places = |lines: &[usize]| -> Vec<&FileLine> {
                lines.iter().filter_map(|index| Some(&account.get(*index)?.place)).collect()
            };
            if let Some(slurm) = account.iter().find(|entry| entry.file() == SLURM_MODULE) {
                let change = AccountChange {
                    before: &account,
                    after: &|lines| {
                        let text = assemble(&places(lines));
                        let file = Some((self.path.as_path(), text.as_str()));
                        read_entries_with(self.root, &self.service, Group::Account, file)
                    },
                    is_own: &|entry| !self.is_elsewhere(&entry.place),
                    settings: &settings,
                    states_no_jobs: states_no_jobs(&words, arguments),
                    by_hand: by_hand(slurm, before, &words),
                };
                let replacement = change.find_replaced().map_err(|why| self.refusal(why))?;
                replaced.extend(places(&replacement.lines));
                notes.extend(replacement.notes);
            }
            notes.extend(slurm.map(|_| DEFAULTS_NOTE.to_owned()));
        }
        let text = assemble(&replaced);
        self.require_effective(&text)?;
        Ok(Plan { text, notes })
    }

    /// Returns whether a line is in another file, which other services use too and which may grow.
    fn is_elsewhere(&self, place: &FileLine) -> bool {
        place.file != self.path
    }

    /// Adds `service=` to the arguments, unless the service is sshd: by default the module ignores any
    /// other.
    fn add_service(&self, mut words: Vec<String>) -> Vec<String> {
        let names_service = |word: &String| {
            word.split_once('=').is_some_and(|(name, _)| name.eq_ignore_ascii_case("service"))
        };
        if self.service != "sshd" && !words.iter().any(names_service) {
            words.push(format!("service={}", self.service));
        }
        words
    }

    /// Checks that lines of rivals can be commented out, and that we understand their arguments.
    fn require_replaceable(&self, rivals: &[&Entry], text: &str) -> Result<(), Error> {
        let lines = parse_lines(text).unwrap_or_default();
        for entry in rivals {
            let (file, place) = (module_name(entry), &entry.place);
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

    /// Inserts our lines, and comments out the replaced ones. The account line and the `close_only` line
    /// come before the lines with these numbers, the session line last.
    fn insert_lines(
        &self,
        text: &str,
        (account, session): (usize, usize),
        replaced: &[LogicalLine],
        words: &str,
    ) -> String {
        let ours = |group: &str| {
            format!("{group}    required     pam_job_adopt.so {words}").trim_end().to_owned() + "\n"
        };
        let line = |(index, line): (usize, &str)| {
            let mark = if covers(replaced, index + 1) { REPLACED_MARK } else { "" };
            format!("{mark}{line}\n")
        };
        let mut lines: Vec<String> = text.split_terminator('\n').enumerate().map(line).collect();
        let service =
            words.split(' ').find(|word| word.to_ascii_lowercase().starts_with("service="));
        let close =
            ["session    optional     pam_job_adopt.so close_only"].into_iter().chain(service);
        let close = close.collect::<Vec<_>>().join(" ") + "\n";
        let mut insertions = [(account, ours("account")), (session, close)];
        insertions.sort_by_key(|(before, _)| std::cmp::Reverse(*before));
        for (before, line) in insertions {
            lines.insert(before.saturating_sub(1).min(lines.len()), line);
        }
        lines.push(ours("session"));
        lines.concat()
    }

    /// Checks that libpam cannot skip our lines in this text, and that no line undoes them.
    fn require_effective(&self, text: &str) -> Result<(), Error> {
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
        let (path, text) = (self.original_path(), self.without_our_lines()?);
        let folder = path.parent().unwrap_or(self.root);
        fs::create_dir_all(folder)
            .map_err(|error| Error::failed("mkdir", folder.display(), error))?;
        replace_file(&path, &text, self.meta.as_ref())
    }

    /// Replaces the file.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the text names our module and it is not installed: libpam would refuse
    /// every login, root's too.
    pub(super) fn write(&self, text: &str) -> Result<(), Error> {
        let has_our_line = parse_lines(text).unwrap_or_default().iter().any(is_our_line);
        let module = find_module_folder(self.root).map(|folder| folder.join(MODULE_FILES[0]));
        if has_our_line && !module.is_some_and(|module| module.exists()) {
            return Err(self.refusal("pam_job_adopt.so is not installed: nobody could log in"));
        }
        replace_file(&self.path, text, self.meta.as_ref())
    }
}

const DEFAULTS_NOTE: &str = "note: what pam_slurm_adopt.so leaves open unless told otherwise, ours refuses: \
                        action_adopt_failure and action_generic_failure are deny unless given";

/// Returns whether the admin decides about users without a job: by the arguments given now, or by
/// those of our line, which were given before.
fn states_no_jobs(words: &str, given: Option<&str>) -> bool {
    let mut words = given.unwrap_or(words).split_whitespace();
    words.any(|word| word.to_ascii_lowercase().starts_with("action_no_jobs="))
}

/// Describes what to write by hand where a line below the old one prevents the change: with a
/// control like the old one's, ours spares users with a job all lines below it.
fn by_hand(slurm: &Entry, first_end: usize, words: &str) -> String {
    if first_end != slurm.top {
        return format!(
            "By hand: put that line above {SLURM_MODULE}, if it lets in users with a job, or take \
             it out of this service's stack; then run this again"
        );
    }
    let ours = format!("pam_job_adopt.so {words}");
    let ours = ours.trim_end();
    format!(
        "By hand: in place of {} write \"account [success=done ignore=ignore default=die] {ours}\", \
         with exempt_groups=NAMES for those whom the lines below it let in, and as the last line \
         \"session required {ours}\"",
        slurm.place
    )
}

/// Returns whether the physical line with this number belongs to one of these logical lines.
fn covers(lines: &[LogicalLine], number: usize) -> bool {
    lines.iter().any(|line| (line.number..=line.last).contains(&number))
}

fn is_our_line(line: &LogicalLine) -> bool {
    let module = line.words.get(2).map(|word| word.rsplit('/').next().unwrap_or_default());
    module.is_some_and(|module| MODULE_FILES.contains(&module))
}

/// Returns the lines by which two texts of a service's file differ, with `-` before those that go and
/// `+` before those that come.
pub(super) fn changed_lines(old: &str, new: &str) -> Vec<String> {
    let is_ours = |line: &str| parse_lines(line).unwrap_or_default().iter().any(is_our_line);
    let unmarked = |line: &str| line.strip_prefix(REPLACED_MARK).map(str::to_owned);
    let mut old = old.lines().peekable();
    let mut changes = Vec::new();
    for line in new.lines() {
        // Only our own lines go without a line that comes in their place.
        while let Some(gone) = old.next_if(|old| *old != line && is_ours(old)) {
            changes.push(format!("- {gone}"));
        }
        if old.next_if_eq(&line).is_some() {
            continue;
        }
        let is_pair = |old: &&str| {
            unmarked(line).as_deref() == Some(*old) || unmarked(old).as_deref() == Some(line)
        };
        changes.extend(old.next_if(is_pair).map(|gone| format!("- {gone}")));
        changes.push(format!("+ {line}"));
    }
    changes.extend(old.map(|gone| format!("- {gone}")));
    changes
}

/// Merges arguments: a given one replaces theirs with the same name.
fn merge_arguments(theirs: &[String], given: &str) -> Vec<String> {
    let given: Vec<&str> = given.split_whitespace().collect();
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let is_kept = |word: &&String| !given.iter().any(|argument| name(argument) == name(word));
    let theirs = theirs.iter().filter(is_kept).cloned();
    theirs.chain(given.iter().map(|word| (*word).to_owned())).collect()
}

/// Replaces a file atomically: readers see the old or the new text, also after a crash. The file gets
/// the owner and mode of `like`, else root's and 0644.
///
/// # Errors
///
/// [`Error::Failed`] with the cause; the old file then stays.
pub(super) fn replace_file(path: &Path, text: &str, like: Option<&Metadata>) -> Result<(), Error> {
    let failed = |error| Error::failed("write", path.display(), error);
    let (folder, name) =
        (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    let new = folder.join(format!(".{}.job-adopt", name.to_string_lossy()));
    let write = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::create_new(&new)?;
        file.write_all(text.as_bytes())?;
        if let Some(like) = like {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        let mode = like.map_or(0o644, |like| like.mode() & 0o7777);
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
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
        for name in ["pam_permit.so", "pam_job_adopt.so"] {
            scratch.file(&format!("usr/lib64/security/{name}"), "");
        }
        scratch
    }

    pub(super) fn read(scratch: &Scratch) -> Stack<'_> {
        Stack::read(scratch.path(), "sshd").unwrap()
    }

    /// Returns the text with our lines.
    fn install(scratch: &Scratch, arguments: Option<&str>) -> String {
        read(scratch).with_our_lines(arguments).unwrap().text
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
            assert_eq!(text.matches("pam_job_adopt").count(), 3);
            let first =
                text.lines().find(|line| line.trim_start_matches('-').starts_with("session"));
            assert_eq!(first.unwrap(), "session    optional     pam_job_adopt.so close_only");
            // All other lines stay.
            let stack = read(&scratch);
            let others: String =
                text.split_inclusive('\n').filter(|line| !line.contains("pam_job_adopt")).collect();
            assert_eq!(others, stack.text);
        }
    }

    #[test]
    fn second_write_changes_no_text_and_removal_restores_old_text() {
        for shape in SHAPES {
            for arguments in [None, Some("observe exempt_groups=ops")] {
                let scratch = node(shape);
                let (old, text) = (read(&scratch).text, install(&scratch, arguments));
                read(&scratch).save_original().unwrap();
                read(&scratch).write(&text).unwrap();
                assert_eq!(install(&scratch, None), text);
                assert_eq!(install(&scratch, arguments), text);
                assert_eq!(read(&scratch).without_our_lines().unwrap(), old);
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
        read(&scratch).write("session required pam_permit.so\n").unwrap();
        let meta = fs::metadata(scratch.path().join("etc/pam.d/sshd")).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(scratch.path().join("etc/pam.d")).unwrap().count(), 3);
    }

    #[test]
    fn line_of_pam_slurm_adopt_is_replaced_and_its_arguments_are_kept() {
        let scratch = beside_theirs(THEIRS);
        let (old, plan) =
            (read(&scratch).text, read(&scratch).with_our_lines(Some("timeout=9")).unwrap());
        let text = &plan.text;
        assert!(text.contains(&format!("{REPLACED_MARK}{THEIRS}")), "{text}");
        let words = "action_adopt_failure=deny nodename=n1 timeout=9\n";
        assert_eq!(text.matches(&format!("{OURS} {words}")).count(), 2, "{text}");
        assert!(plan.notes.iter().any(|note| note.contains("action_generic_failure")));
        read(&scratch).write(text).unwrap();
        assert_eq!(read(&scratch).without_our_lines().unwrap(), old);
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
        assert!(plan.text.contains(&format!("\n{THEIRS}")), "{}", plan.text);
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
        let text = stack.with_our_lines(None).unwrap().text;
        assert_eq!(text.matches(&format!("{OURS} service=alt\n")).count(), 2, "{text}");
        fs::remove_file(scratch.path().join("usr/lib64/security/pam_job_adopt.so")).unwrap();
        let why = stack.write(&text).unwrap_err().to_string();
        assert!(why.contains("not installed"), "{why}");
    }
}
