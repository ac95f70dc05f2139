//! `pam`: puts the lines of this module into a service's PAM stack, and takes them out again.

use super::check::programs::module_folder;
use super::check::stack::RIVALS;
use super::command_line::service;
use super::{Error, Output, require_root};
use clap::{ArgGroup, Args};
use helper::stack::{
    Entry, FileLine, Finding, Group, LogicalLine, MODULE_FILES, is_close_only, judge_stack_with,
    parse_lines, read_entries_with,
};
use module::Settings;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Before a line that ours stand in for.
const MARK: &str = "#job-adopt: ";
/// The module whose arguments ours knows.
const SLURM: &str = "pam_slurm_adopt.so";
/// Modules by whose lines a site lets operators in, before it asks for a job.
const LISTS: [&str; 3] = ["pam_access.so", "pam_listfile.so", "pam_succeed_if.so"];
/// Where files stay as they were before.
const KEPT: &str = "var/lib/job-adopt/pam";

/// Put both lines of pam_job_adopt.so into a PAM stack, or take them out
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").required(true),
    after_help = "\
Only the service's own file changes, at once. Lines of pam_slurm_adopt.so in it are commented out, and their
arguments are taken over. What cannot be done safely is refused, with the reason.
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
    wanted: Wanted,
    /// Change the image of a node below DIR
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// What the stack is to be like.
#[derive(Clone, Debug, Args)]
pub(super) struct Wanted {
    /// Arguments of both lines, besides those taken over
    #[arg(long, value_name = "WORDS")]
    pub(super) arguments: Option<String>,
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = service)]
    pub(super) service: String,
}

pub(super) fn command(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let stack = Stack::read(&options.root, &options.wanted.service)?;
    if options.remove {
        return remove(&stack, output);
    }
    let plan = stack.with_ours(options.wanted.arguments.as_deref())?;
    plan.notes.iter().for_each(|note| output.warn(note));
    if options.print {
        output.out.write_all(plan.text.as_bytes())?;
        return Ok(super::EXIT_FINE);
    }
    require_root("change a PAM stack")?;
    match stack.text == plan.text {
        true => writeln!(output.out, "{}: unchanged", stack.path.display())?,
        false => {
            stack.keep()?;
            stack.write(&plan.text)?;
            let (path, kept) = (stack.path.display(), stack.kept());
            writeln!(output.out, "{path}: changed; as it was: {}", kept.display())?;
        }
    }
    Ok(super::EXIT_FINE)
}

fn remove(stack: &Stack<'_>, output: &mut Output<'_>) -> Result<u8, Error> {
    require_root("change a PAM stack")?;
    let path = stack.path.display();
    let text = stack.without_ours()?;
    if text == stack.text {
        writeln!(output.out, "{path}: unchanged")?;
    } else if stack.vendors.as_ref() == Some(&text) {
        fs::remove_file(&stack.path).map_err(|error| Error::failed("remove", &path, error))?;
        writeln!(output.out, "{path}: removed; the distribution's own file counts again")?;
    } else {
        stack.write(&text)?;
        writeln!(output.out, "{path}: changed")?;
    }
    let mut left = false;
    for group in [Group::Account, Group::Session] {
        for entry in stack.entries(group, &text)?.iter().filter(|entry| entry.is_our_module()) {
            left = true;
            output.warn(format_args!(
                "{}: a line of pam_job_adopt.so is left; {SHARED}",
                entry.place
            ));
        }
    }
    Ok(if left { super::EXIT_FINDINGS } else { super::EXIT_FINE })
}

const SHARED: &str =
    "other services have this file too: take the line out there (pam-auth-update, or by hand)";

/// A service's own file.
#[derive(Debug)]
pub(super) struct Stack<'a> {
    root: &'a Path,
    pub(super) service: String,
    /// Where it is, or will be.
    pub(super) path: PathBuf,
    /// What it says; where it is not there, what the distribution's says.
    pub(super) text: String,
    /// Owner and mode; nothing where it is not there.
    pub(super) meta: Option<Metadata>,
    /// What the distribution's own file says.
    vendors: Option<String>,
}

/// A service's file as it will be.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) text: String,
    /// What the admin should know.
    pub(super) notes: Vec<String>,
}

impl<'a> Stack<'a> {
    /// Reads the service's file.
    /// Fails: [`Error::Failed`] where there is none, or where it is a link.
    pub(super) fn read(root: &'a Path, service: &str) -> Result<Self, Error> {
        let service = service.to_ascii_lowercase();
        let path = root.join("etc/pam.d").join(&service);
        let refused = |cause: &str| Error::failed("change", path.display(), cause);
        let read = |path: &Path| match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::failed("read", path.display(), error)),
        };
        let vendors = read(&root.join("usr/lib/pam.d").join(&service))?;
        let meta = fs::symlink_metadata(&path).ok();
        if meta.as_ref().is_some_and(|meta| !meta.is_file()) {
            return Err(refused(
                "is no regular file. Whatever made the link, as authselect does, would undo the \
                 change: have it make a file here, or put both lines into what it copies",
            ));
        }
        let text = match &meta {
            Some(_) => read(&path)?,
            None => vendors.clone(),
        };
        let text = text.ok_or_else(|| refused("is not there, so the service has no stack"))?;
        Ok(Self { root, service, path, text, meta, vendors })
    }

    fn refused(&self, cause: impl std::fmt::Display) -> Error {
        Error::failed("change", self.path.display(), cause)
    }

    fn entries(&self, group: Group, text: &str) -> Result<Vec<Entry>, Error> {
        let instead = Some((self.path.as_path(), text));
        read_entries_with(self.root, &self.service, group, instead).map_err(|why| self.refused(why))
    }

    fn lines(&self) -> Result<Vec<LogicalLine>, Error> {
        parse_lines(&self.text).ok_or_else(|| self.refused("ends in a line's middle"))
    }

    /// The file without lines of ours, and with those that they stand in for.
    pub(super) fn without_ours(&self) -> Result<String, Error> {
        let mut ours = self.lines()?;
        ours.retain(is_ours);
        let physical = self.text.split_inclusive('\n').enumerate();
        let left = physical.filter(|(index, _)| !has(&ours, index + 1));
        Ok(left.map(|(_, line)| line.strip_prefix(MARK).unwrap_or(line)).collect())
    }

    /// The file with both lines where they belong: account before the first line that may end the
    /// stack or that takes another file in, session below everything.
    /// Fails: [`Error::Failed`] naming what stands in the way.
    pub(super) fn with_ours(&self, arguments: Option<&str>) -> Result<Plan, Error> {
        let is =
            self.lines()?.into_iter().find(|line| is_ours(line) && !is_close_only(&line.words));
        let text = self.without_ours()?;
        let account = self.entries(Group::Account, &text)?;
        let session = self.entries(Group::Session, &text)?;
        let mut notes = Vec::new();
        for (group, entries) in [("account", &account), ("session", &session)] {
            if entries.iter().all(|entry| entry.top == 0) {
                let why = "line, so libpam takes those of \"other\"; ours would replace them";
                return Err(self.refused(format!("has no {group} {why}")));
            }
            if let Some(entry) = entries.iter().find(|entry| entry.is_our_module()) {
                let why =
                    format!("a line of pam_job_adopt.so is at {} already; {SHARED}", entry.place);
                return Err(self.refused(why));
            }
        }
        let rivals: Vec<&Entry> =
            account.iter().chain(&session).filter(|one| RIVALS.contains(&one.file())).collect();
        let theirs = rivals.iter().find(|entry| entry.file() == SLURM);
        let words = match (arguments, is) {
            (None, Some(line)) => line.words.get(3..).unwrap_or_default().to_vec(),
            (given, _) => {
                let theirs = theirs.map(|entry| entry.arguments.as_slice()).unwrap_or_default();
                merged(theirs, given.unwrap_or_default())
            }
        };
        let words = self.for_service(words);
        let settings = Settings::parse(&words).map_err(|why| {
            self.refused(format!("{why} (--arguments NAME=VALUE replaces what is taken over)"))
        })?;
        let mut outs = Vec::new();
        if settings.observe {
            let beside = rivals.iter().map(|one| {
                format!("{} at {} goes on to decide; ours only observes", one.file(), one.place)
            });
            notes.extend(beside);
        } else {
            outs = self.replaced(&rivals, &text)?;
            let exempts = !(settings.exempt_uids.is_empty() && settings.exempt_groups.is_empty());
            let passed = account.iter().take_while(|entry| entry.file() != SLURM);
            let mut lists =
                passed.filter(|entry| LISTS.contains(&entry.file()) && !entry.is_pass_through());
            if let (Some(_), false, Some(list)) = (theirs, exempts, lists.next()) {
                let why = format!(
                    "{} at {} lets users in before {SLURM} is asked; name them by --arguments \
                     exempt_groups=NAMES or exempt_uids=NUMBERS",
                    list.file(),
                    list.place
                );
                return Err(self.refused(why));
            }
            notes.extend(theirs.map(|_| DEFAULTS.to_owned()));
        }
        // Whom another module refuses is observed too.
        let watched = |one: &Entry| settings.observe && RIVALS.contains(&one.file());
        let ends =
            |one: &Entry| self.is_elsewhere(&one.place) || !one.is_pass_through() || watched(one);
        let before = account.iter().find(|one| ends(one)).map_or(usize::MAX, |entry| entry.top);
        let first = session.first().map_or(0, |entry| entry.top);
        let text = self.assembled(&text, (before, first), &outs, &words.join(" "));
        self.judged(&text)?;
        Ok(Plan { text, notes })
    }

    /// Whether a line is of another file, which other services have too and which may grow.
    fn is_elsewhere(&self, place: &FileLine) -> bool {
        place.file != self.path
    }

    /// The arguments, with `service=` where the module would not answer otherwise.
    fn for_service(&self, mut words: Vec<String>) -> Vec<String> {
        let named = |word: &String| {
            word.split_once('=').is_some_and(|(name, _)| name.eq_ignore_ascii_case("service"))
        };
        if self.service != "sshd" && !words.iter().any(named) {
            words.push(format!("service={}", self.service));
        }
        words
    }

    /// The lines that ours stand in for.
    fn replaced(&self, rivals: &[&Entry], text: &str) -> Result<Vec<LogicalLine>, Error> {
        let mut own = parse_lines(text).unwrap_or_default();
        for entry in rivals {
            let (file, place) = (entry.file(), &entry.place);
            if file != SLURM {
                return Err(self.refused(format!(
                    "{file} at {place} decides about logins as well: take that line out first, or \
                     try ours beside it by --arguments observe"
                )));
            }
            if self.is_elsewhere(place) || own.iter().all(|line| line.number != place.line) {
                let why = format!("{file} is at {place}; {SHARED}, and give its arguments here");
                return Err(self.refused(why));
            }
        }
        own.retain(|line| rivals.iter().any(|entry| entry.place.line == line.number));
        Ok(own)
    }

    /// Puts our lines into the text: the account line and the line that closes before the lines of these
    /// numbers, the session line last.
    fn assembled(
        &self,
        text: &str,
        (account, session): (usize, usize),
        outs: &[LogicalLine],
        words: &str,
    ) -> String {
        let ours = |group: &str| {
            format!("{group}    required     pam_job_adopt.so {words}").trim_end().to_owned() + "\n"
        };
        let line = |(index, line): (usize, &str)| {
            let mark = if has(outs, index + 1) { MARK } else { "" };
            format!("{mark}{line}\n")
        };
        let mut new: Vec<String> = text.split_terminator('\n').enumerate().map(line).collect();
        let service =
            words.split(' ').find(|word| word.to_ascii_lowercase().starts_with("service="));
        let close =
            ["session    optional     pam_job_adopt.so close_only"].into_iter().chain(service);
        let close = close.collect::<Vec<_>>().join(" ") + "\n";
        let mut own = [(account, ours("account")), (session, close)];
        own.sort_by_key(|(before, _)| std::cmp::Reverse(*before));
        for (before, line) in own {
            new.insert(before.saturating_sub(1).min(new.len()), line);
        }
        new.push(ours("session"));
        new.concat()
    }

    /// Fails: [`Error::Failed`] where libpam could still pass our lines by.
    fn judged(&self, text: &str) -> Result<(), Error> {
        for group in [Group::Account, Group::Session] {
            let instead = Some((self.path.as_path(), text));
            match judge_stack_with(self.root, &self.service, group, instead) {
                Finding::Effective(_) => {}
                other => {
                    let text = other.to_string().replace("session", group.as_str());
                    return Err(self.refused(format!("our lines would not be enough: {text}")));
                }
            }
        }
        Ok(())
    }

    /// Where the file stays as it was.
    pub(super) fn kept(&self) -> PathBuf {
        self.root.join(KEPT).join(&self.service)
    }

    /// Keeps the file as it is without lines of ours.
    pub(super) fn keep(&self) -> Result<(), Error> {
        let (kept, text) = (self.kept(), self.without_ours()?);
        let folder = kept.parent().unwrap_or(self.root);
        fs::create_dir_all(folder)
            .map_err(|error| Error::failed("mkdir", folder.display(), error))?;
        replace(&kept, &text, self.meta.as_ref())
    }

    /// Writes the file anew.
    /// Fails: [`Error::Failed`] without our module, which libpam would refuse everybody for, root
    /// too.
    pub(super) fn write(&self, text: &str) -> Result<(), Error> {
        let names_ours = parse_lines(text).unwrap_or_default().iter().any(is_ours);
        let module = module_folder(self.root).map(|folder| folder.join(MODULE_FILES[0]));
        if names_ours && !module.is_some_and(|module| module.exists()) {
            return Err(self.refused("pam_job_adopt.so is not installed: nobody could log in"));
        }
        replace(&self.path, text, self.meta.as_ref())
    }
}

const DEFAULTS: &str = "note: what pam_slurm_adopt.so leaves open unless told otherwise, ours refuses: \
                        action_adopt_failure and action_generic_failure are deny unless given";

/// Whether one of these lines stands in the file's line of that number, or goes on there.
fn has(lines: &[LogicalLine], number: usize) -> bool {
    lines.iter().any(|line| (line.number..=line.last).contains(&number))
}

fn is_ours(line: &LogicalLine) -> bool {
    let module = line.words.get(2).map(|word| word.rsplit('/').next().unwrap_or_default());
    module.is_some_and(|module| MODULE_FILES.contains(&module))
}

/// Their arguments, each replaced by a given one of its name.
fn merged(theirs: &[String], given: &str) -> Vec<String> {
    let given: Vec<&str> = given.split_whitespace().collect();
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let stays = |word: &&String| !given.iter().any(|one| name(one) == name(word));
    let theirs = theirs.iter().filter(stays).cloned();
    theirs.chain(given.iter().map(|word| (*word).to_owned())).collect()
}

/// Writes a file as a whole: a reader, and a machine that goes down, have the old one or the new.
/// Its owner and mode are those of the file that it is like.
pub(super) fn replace(path: &Path, text: &str, like: Option<&Metadata>) -> Result<(), Error> {
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

    const SHAPES: [&str; 3] = ["debian", "el", "suse"];
    const OURS: &str = "required     pam_job_adopt.so";

    /// A node with a stack of this shape.
    fn node(shape: &str) -> Scratch {
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

    fn read(scratch: &Scratch) -> Stack<'_> {
        Stack::read(scratch.path(), "sshd").unwrap()
    }

    /// The file with both lines in it.
    fn with(scratch: &Scratch, arguments: Option<&str>) -> String {
        read(scratch).with_ours(arguments).unwrap().text
    }

    fn refusal(scratch: &Scratch, arguments: Option<&str>) -> String {
        read(scratch).with_ours(arguments).unwrap_err().to_string()
    }

    /// What stands before a line.
    fn before<'a>(text: &'a str, line: &str) -> &'a str {
        let at = text.lines().position(|one| one == line).unwrap();
        text.lines().nth(at - 1).unwrap()
    }

    /// In the service's file of a node of Debian's shape.
    fn debian(from: &str, to: &str) -> Scratch {
        let scratch = node("debian");
        let text = fs::read_to_string(scratch.path().join("etc/pam.d/sshd")).unwrap();
        assert!(text.contains(from));
        scratch.file("etc/pam.d/sshd", &text.replacen(from, to, 1));
        scratch
    }
    const THEIRS: &str =
        "-account required pam_slurm_adopt.so action_adopt_failure=deny nodename=n1\n";
    fn beside_theirs(theirs: &str) -> Scratch {
        let include = "@include common-account\n";
        debian(include, &format!("{include}{theirs}"))
    }

    #[test]
    fn both_lines_go_where_they_belong_in_every_shape() {
        for shape in SHAPES {
            let scratch = node(shape);
            let text = with(&scratch, None);
            let (account, session) = (format!("account    {OURS}"), format!("session    {OURS}"));
            assert!(before(&text, &account).contains("pam_nologin.so"), "{text}");
            assert_eq!(text.lines().last().unwrap(), session);
            assert_eq!(text.matches("pam_job_adopt").count(), 3);
            let first =
                text.lines().find(|line| line.trim_start_matches('-').starts_with("session"));
            assert_eq!(first.unwrap(), "session    optional     pam_job_adopt.so close_only");
            // What was there is there.
            let stack = read(&scratch);
            let left: String =
                text.split_inclusive('\n').filter(|line| !line.contains("pam_job_adopt")).collect();
            assert_eq!(left, stack.text);
        }
    }

    #[test]
    fn to_write_twice_is_to_write_once_and_to_remove_is_to_have_never_written() {
        for shape in SHAPES {
            for arguments in [None, Some("observe exempt_groups=ops")] {
                let scratch = node(shape);
                let (old, text) = (read(&scratch).text, with(&scratch, arguments));
                read(&scratch).keep().unwrap();
                read(&scratch).write(&text).unwrap();
                assert_eq!(with(&scratch, None), text);
                assert_eq!(with(&scratch, arguments), text);
                assert_eq!(read(&scratch).without_ours().unwrap(), old);
                assert_eq!(fs::read_to_string(read(&scratch).kept()).unwrap(), old);
                // Arguments that are given replace those that are there.
                assert_eq!(with(&scratch, Some("")).matches("observe").count(), 0);
            }
        }
    }

    #[test]
    fn what_is_written_has_the_owner_and_mode_of_what_was_there() {
        let scratch = node("el");
        scratch.mode("etc/pam.d/sshd", 0o640);
        read(&scratch).write("session required pam_permit.so\n").unwrap();
        let meta = fs::metadata(scratch.path().join("etc/pam.d/sshd")).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(scratch.path().join("etc/pam.d")).unwrap().count(), 3);
    }

    #[test]
    fn a_line_of_pam_slurm_adopt_is_replaced_and_its_arguments_are_taken_over() {
        let scratch = beside_theirs(THEIRS);
        let (old, plan) =
            (read(&scratch).text, read(&scratch).with_ours(Some("timeout=9")).unwrap());
        let text = &plan.text;
        assert!(text.contains(&format!("{MARK}{THEIRS}")), "{text}");
        let words = "action_adopt_failure=deny nodename=n1 timeout=9\n";
        assert_eq!(text.matches(&format!("{OURS} {words}")).count(), 2, "{text}");
        assert!(plan.notes.iter().any(|note| note.contains("action_generic_failure")));
        read(&scratch).write(text).unwrap();
        assert_eq!(read(&scratch).without_ours().unwrap(), old);
        // A line of several lines goes as a whole.
        let scratch =
            beside_theirs("account required \\\n  pam_slurm_adopt.so \\\n  nodename=n1\n");
        let text = with(&scratch, None);
        assert_eq!(text.matches(MARK).count(), 3, "{text}");
        assert!(text.contains(&format!("{OURS} nodename=n1\n")), "{text}");
    }

    #[test]
    fn what_is_given_wins_over_what_is_taken_over() {
        let scratch = beside_theirs("account required pam_slurm_adopt.so Action_Unknown=allow\n");
        let why = refusal(&scratch, None);
        assert!(why.contains("Action_Unknown=allow") && why.contains("newest or deny"), "{why}");
        let text = with(&scratch, Some("action_unknown=deny"));
        assert!(text.contains(&format!("{OURS} action_unknown=deny\n")), "{text}");
    }

    #[test]
    fn what_only_observes_leaves_theirs_alone() {
        let scratch = beside_theirs(THEIRS);
        let plan = read(&scratch).with_ours(Some("observe")).unwrap();
        assert!(plan.text.contains(&format!("\n{THEIRS}")), "{}", plan.text);
        assert!(plan.notes.iter().any(|note| note.contains("goes on to decide")));
        // The next step takes theirs out.
        read(&scratch).write(&plan.text).unwrap();
        assert!(with(&scratch, Some("")).contains(&format!("{MARK}{THEIRS}")));
    }

    #[test]
    fn what_observes_also_sees_whom_theirs_refuses() {
        let include = "@include common-account\n";
        let theirs = format!("account requisite pam_flux.so\n{include}");
        let text = with(&debian(include, &theirs), Some("observe"));
        assert!(text.contains(&format!("{OURS} observe\n{theirs}")), "{text}");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let include = "@include common-account\n";
        let scratch = beside_theirs("account required pam_flux.so\n");
        assert!(refusal(&scratch, None).contains("pam_flux.so"));
        let scratch = beside_theirs("account required pam_slurm_adopt.so service=*\n");
        assert!(refusal(&scratch, None).contains("name one"));
        let scratch = beside_theirs("account required pam_slurm_adopt.so no_such=1\n");
        assert!(refusal(&scratch, None).contains("no_such=1"));
        // Operators would be locked out.
        let lists = format!("account sufficient pam_access.so\n{include}{THEIRS}");
        let scratch = debian(include, &lists);
        assert!(refusal(&scratch, None).contains("exempt_groups"));
        assert!(with(&scratch, Some("exempt_groups=ops")).contains("exempt_groups=ops"));
        // In a file of many services.
        let scratch = node("debian");
        scratch.file("etc/pam.d/common-account", THEIRS);
        assert!(refusal(&scratch, None).contains("common-account:1"));
        scratch.file("etc/pam.d/common-account", "account required pam_job_adopt.so\n");
        assert!(refusal(&scratch, None).contains("already"));
        // What libpam leaps over our session line.
        let leap = "session [success=1 default=ignore] pam_permit.so\n";
        let scratch = debian("@include common-password", leap);
        assert!(refusal(&scratch, None).contains("can be skipped"));
        // A stack that is another's.
        let scratch = node("debian");
        scratch.file("etc/pam.d/other", "account required pam_deny.so\n");
        scratch.file("etc/pam.d/sshd", "session required pam_permit.so\n");
        assert!(refusal(&scratch, None).contains("no account line"));
    }

    #[test]
    fn links_and_services_that_are_not_there_are_refused() {
        let scratch = node("el");
        let error = |service| Stack::read(scratch.path(), service).unwrap_err().to_string();
        assert!(error("nothing").contains("is not there"));
        let folder = scratch.path().join("etc/pam.d");
        std::os::unix::fs::symlink("sshd", folder.join("linked")).unwrap();
        assert!(error("linked").contains("authselect"));
    }

    #[test]
    fn another_service_is_named_and_a_missing_module_is_no_stack() {
        let scratch = node("el");
        fs::copy(scratch.path().join("etc/pam.d/sshd"), scratch.path().join("etc/pam.d/alt"))
            .unwrap();
        let stack = Stack::read(scratch.path(), "Alt").unwrap();
        let text = stack.with_ours(None).unwrap().text;
        assert_eq!(text.matches(&format!("{OURS} service=alt\n")).count(), 2, "{text}");
        fs::remove_file(scratch.path().join("usr/lib64/security/pam_job_adopt.so")).unwrap();
        let why = stack.write(&text).unwrap_err().to_string();
        assert!(why.contains("not installed"), "{why}");
    }
}
