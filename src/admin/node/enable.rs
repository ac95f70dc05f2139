//! `enable`: tries both lines in a service's PAM stack for some time, and removes them unless the admin
//! keeps them.
//!
//! The undo needs no program of this project: a systemd unit renames the old file over the new one. A
//! transient timer starts it, and so does the next boot, before any login. The undo is ready before the
//! new stack is in place, so a crash at any step can be undone.

mod questions;

use super::jobless::find_jobless_user;
use super::pam::{LineOptions, Stack, changed_lines};
use crate::accounts::{self, require_root};
use crate::check::sshd::warn_of_penalties;
use crate::error::Error;
use crate::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use crate::output::Output;
use crate::replace_file::replace_file;
use clap::{ArgGroup, Args};
use helper::printable;
use questions::{Expected, Question, ask_account, run_account, run_stack, run_stack_for};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const UNIT_DIR: &str = "/etc/systemd/system";
/// The folder whose links systemd starts at boot.
const WANTS_DIR: &str = "/etc/systemd/system/sysinit.target.wants";
/// Longest trial of both lines.
const TRIAL_MAX_SECONDS: u64 = 24 * 3600;
/// Try both lines of pam_job_adopt.so in the PAM stack, with a way back
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").required(true),
    after_help = "\
Writes what job-adopt pam --install would, shows the lines that change, and runs the service's real stack
for USER, who must have a job here or be exempt; for a user without a job; and for root. The old file comes back
at once if the new stack refuses USER, lets a user without a job in whom the old one refused, or refuses root
whom the old one let in; else after TIME or at the next boot, unless you run job-adopt enable --keep before.
Needs systemd.
Exit status: 0 fine, 1 USER was refused, or nothing keeps users without a job out after --undo, 2 wrong usage,
3 refused or not done."
)]
pub(crate) struct Options {
    /// Try both lines for so long: a number with s, m or h (root)
    #[arg(
        long = "try",
        group = "what",
        value_name = "TIME",
        value_parser = parse_time,
        requires = "user"
    )]
    length: Option<Duration>,
    /// Keep the lines (root)
    #[arg(long, group = "what")]
    keep: bool,
    /// Go back now (root)
    #[arg(long, group = "what")]
    undo: bool,
    /// Run the stack for the user in this process
    #[arg(long, group = "what", hide = true, requires = "user")]
    inside: bool,
    /// Run the account phase of the stack for the user in this process
    #[arg(long, group = "what", hide = true, requires = "user")]
    account: bool,
    /// The user without a job here whom the new stack must not let in; found if not given
    #[arg(long, value_name = "USER", requires = "length")]
    without_job: Option<String>,
    /// Whose login is tried
    #[arg(conflicts_with_all = ["keep", "undo"])]
    user: Option<String>,
    #[command(flatten)]
    lines: LineOptions,
}

fn parse_time(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .filter(|seconds| (1..=TRIAL_MAX_SECONDS).contains(seconds))
        .map(Duration::from_secs)
        .ok_or("not a time as 90s, 15m or 2h, up to a day")
}

pub(crate) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    require_root("change a PAM stack")?;
    let stack = Stack::read(Path::new("/"), &options.lines.service)?;
    let user = options.user.as_deref().unwrap_or_default();
    let before = stack
        .path
        .with_file_name(format!(".{}.before-job-adopt", stack.service));
    // Each service has its own unit, so that the trial of one keeps the undo of another.
    let name = format!("job-adopt-undo-{}", stack.service);
    let unit = format!("{name}.service");
    let timer = format!("{name}.timer");
    let trial = Trial {
        before,
        unit,
        timer,
        stack,
    };
    match options.length {
        _ if options.inside => run_stack(&options.lines.service, user, output),
        _ if options.account => run_account(&options.lines.service, user),
        Some(length) => trial.begin(length, user, options, output),
        None if options.keep => trial.keep(output),
        None => trial.undo(output),
    }
}

/// A trial of both lines in a service's stack.
struct Trial<'a> {
    stack: Stack<'a>,
    /// The path of the old file during the trial: in the same folder, so that a rename restores it.
    before: PathBuf,
    /// The unit that restores the old file.
    unit: String,
    /// The timer that starts the unit.
    timer: String,
}

impl Trial<'_> {
    fn begin(
        &self,
        length: Duration,
        user: &str,
        options: &Options,
        output: &mut Output<'_>,
    ) -> Result<u8, Error> {
        let path = self.stack.path.display();
        if !Path::new("/run/systemd/system").exists() {
            let why = "systemd does not run here, so nothing would bring the file back";
            return Err(Error::failed("try", path, why));
        }
        if accounts::find_user(user)?.is_some_and(|user| user.uid.is_root()) {
            output
                .warn("root gets in whatever these lines do: log in as a user with a job here too");
        }
        if self.is_under_way() {
            let why = "a try is under way; end it by job-adopt enable --keep or --undo";
            return Err(Error::failed("try", path, why));
        }
        if !self.stack.service.chars().all(is_plain_in_unit) {
            return Err(Error::failed(
                "try",
                path,
                "a unit cannot have that name in it",
            ));
        }
        let plan = self
            .stack
            .with_our_lines(options.lines.arguments.as_deref())?;
        for note in &plan.notes {
            output.warn(note);
        }
        if plan.text == self.stack.text {
            let why = "both lines are in it already; job-adopt pam --remove takes them out";
            return Err(Error::failed("try", path, why));
        }
        let modules = self.stack.replaced_modules(&plan.text)?;
        for module in &modules {
            let file = module.to_string_lossy();
            if !file
                .chars()
                .all(|c| is_plain_in_unit(c) || "/+".contains(c))
            {
                let why = format!("a unit cannot have the path {file} in it");
                return Err(Error::failed("try", path, why));
            }
        }
        let requested = options.without_job.as_deref();
        let jobless = find_jobless_user(requested, user, &plan.settings, output)?;
        let service = &self.stack.service;
        let questions = [
            Question::ask(service, user, Expected::Admitted)?,
            Question::ask(service, &jobless, Expected::NotNewlyAdmitted)?,
            Question::ask(service, "root", Expected::NotNewlyRefused)?,
        ];
        self.stack.save_original()?;
        self.arm_undo(length, &modules)?;
        replace_file(&self.before, &self.stack.text, self.stack.meta.as_ref())?;
        self.stack.write(&plan.text)?;
        self.require_armed(output)?;
        writeln!(output.out, "{path}: changed")?;
        for line in changed_lines(&self.stack.text, &plan.text) {
            writeln!(output.out, "  {}", printable(&line))?;
        }
        output.out.flush()?;
        if let Some(warning) = warn_of_penalties(&self.stack.service) {
            output.warn(warning);
        }
        if !self.passes(user, &questions, output)? {
            self.undo(output)?;
            return Ok(EXIT_FINDINGS);
        }
        let keep = if service == "sshd" {
            String::new()
        } else {
            format!(" --service {service}")
        };
        writeln!(
            output.out,
            "it goes back in {} s, and when the node starts, unless you run: job-adopt enable \
             --keep{keep}",
            length.as_secs()
        )?;
        Ok(EXIT_FINE)
    }

    /// Runs the new stack for the user, and asks it about each user whom the old one was asked about.
    /// Whether all answers are as expected. A stack that gives none does not pass.
    fn passes(
        &self,
        user: &str,
        questions: &[Question],
        output: &mut Output<'_>,
    ) -> Result<bool, Error> {
        let service = &self.stack.service;
        let mut passes = run_stack_for(service, user).unwrap_or_else(|error| {
            output.warn(format_args!("run the stack: {error}"));
            false
        });
        for question in questions {
            let now = match ask_account(service, &question.user) {
                Ok(now) => now,
                Err(error) => {
                    output.warn(error);
                    passes = false;
                    continue;
                }
            };
            let name = &question.user;
            writeln!(
                output.out,
                "account of {name}: {} before, {now} now",
                question.before
            )?;
            if let Some(fault) = question.find_fault(now) {
                output.warn(format_args!("user {name} {fault}"));
                passes = false;
            }
        }
        Ok(passes)
    }

    fn is_under_way(&self) -> bool {
        fs::symlink_metadata(&self.before).is_ok()
    }

    /// Installs the unit and starts the timer. The unit does nothing while there is no old file, and fails
    /// if one of these modules is not there.
    fn arm_undo(&self, length: Duration, modules: &[PathBuf]) -> Result<(), Error> {
        self.await_earlier_undo();
        let unit = Path::new(UNIT_DIR).join(&self.unit);
        replace_file(&unit, self.unit_text(modules), None)?;
        let link = Path::new(WANTS_DIR).join(&self.unit);
        let linked = fs::create_dir_all(WANTS_DIR).and_then(|()| match symlink(&unit, &link) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => fs::File::open(WANTS_DIR)?.sync_all(),
        });
        linked.map_err(|error| Error::failed("link", link.display(), error))?;
        systemctl(&["daemon-reload"])?;
        let after = format!("--on-active={}", length.as_secs());
        let accuracy = "--timer-property=AccuracySec=1s";
        run(
            "systemd-run",
            &["--quiet", &after, accuracy, "--unit", &self.unit],
        )
    }

    /// Waits for the undo of an earlier trial, and stops its timer. The undo restores the old file first and removes
    /// its own unit last: until it has ended, it would remove the unit of this trial.
    fn await_earlier_undo(&self) {
        for words in [["start", &self.unit], ["stop", &self.timer]] {
            // Usually there is neither: then the only result is an error message.
            let _ = command_without_output("systemctl", &words)
                .stderr(Stdio::null())
                .status();
        }
    }

    /// Checks that the old file is still going to come back, now that the new one is in place. The timer began
    /// before both, since a crash in between must not leave the new one for good.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the time was over before; the old file is back then.
    fn require_armed(&self, output: &mut Output<'_>) -> Result<(), Error> {
        let is_waiting = systemctl(&["is-active", "--quiet", &self.timer]).is_ok();
        if is_waiting && self.is_under_way() {
            return Ok(());
        }
        if self.is_under_way() {
            self.undo(output)?;
        } else if self.stack.meta.is_some() {
            self.stack.write(&self.stack.text)?;
        } else {
            let path = &self.stack.path;
            fs::remove_file(path)
                .map_err(|error| Error::failed("remove", path.display(), error))?;
        }
        let why = "the time was over before the lines were in place; try a longer one";
        Err(Error::failed("try", self.stack.path.display(), why))
    }

    /// The text of the unit that undoes the trial. It lists `modules` first, so that it fails and changes nothing if
    /// one is missing; then it restores the old file, and removes itself last.
    fn unit_text(&self, modules: &[PathBuf]) -> String {
        let before = self.before.display();
        let path = self.stack.path.display();
        let unit = &self.unit;
        let restore = match self.stack.meta {
            Some(_) => format!("ExecStart=/bin/mv -f -T {before} {path}"),
            // There was none in the site's folder: without ours, libpam reads the distribution's again.
            None => format!("ExecStart=/bin/rm -f {path}\nExecStart=/bin/rm -f {before}"),
        };
        // systemd stops at the first command that fails, and the journal has the file that ls names. A condition
        // would skip the unit in silence, and ExecCondition came with systemd 243.
        let require_modules = if modules.is_empty() {
            String::new()
        } else {
            let files: Vec<_> = modules
                .iter()
                .map(|module| module.to_string_lossy())
                .collect();
            format!("ExecStart=/bin/ls -dL {}\n", files.join(" "))
        };
        format!(
            "# Written by job-adopt enable --try; it removes itself.\n\
             [Unit]\nDescription=Undo the try of pam_job_adopt in {path}\n\
             ConditionPathExists={before}\nDefaultDependencies=no\nAfter=local-fs.target\n\
             Before=sysinit.target shutdown.target\nConflicts=shutdown.target\n\n\
             [Service]\nType=oneshot\nStandardOutput=null\n\
             # The new file stays if a module of the old one is gone: libpam would refuse every login.\n\
             {require_modules}{restore}\n\
             ExecStart=/bin/rm -f {WANTS_DIR}/{unit} {UNIT_DIR}/{unit}\n"
        )
    }

    /// Ends the trial and keeps the new lines. It fails if no trial is under way, or if the file for
    /// the undo cannot be removed; a unit that stays behind is only a warning.
    fn keep(&self, output: &mut Output<'_>) -> Result<u8, Error> {
        let path = self.stack.path.display();
        // The undo needs this file: without it the lines stay, even if a later step fails.
        fs::remove_file(&self.before).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::failed(
                "keep",
                &path,
                "nothing is tried: it went back, or was kept, already",
            ),
            _ => Error::failed("remove", self.before.display(), error),
        })?;
        self.disarm_undo(output);
        let original = self.stack.original_path();
        writeln!(
            output.out,
            "{path}: stays; as it was: {}",
            original.display()
        )?;
        Ok(EXIT_FINE)
    }

    fn undo(&self, output: &mut Output<'_>) -> Result<u8, Error> {
        let path = self.stack.path.display();
        if !self.is_under_way() {
            return Err(Error::failed("undo", path, "nothing is tried"));
        }
        // A try in this process has read the file before it wrote it.
        let stack = Stack::read(Path::new("/"), &self.stack.service)?;
        let before = fs::read(&self.before)
            .map_err(|error| Error::failed("read", self.before.display(), error))?;
        let restored = stack.restore(&before)?;
        restored.warn(&stack.path, output);
        if restored.is_complete() {
            if let Err(error) = systemctl(&["start", &self.unit]) {
                output.warn(error);
            }
        }
        // The unit refuses without a module, also if that only moved to another folder.
        if self.is_under_way() {
            stack.write(&restored.text)?;
            fs::remove_file(&self.before)
                .map_err(|error| Error::failed("remove", self.before.display(), error))?;
        }
        self.disarm_undo(output);
        let outcome = if restored.is_complete() {
            "as it was"
        } else {
            "changed"
        };
        writeln!(output.out, "{path}: {outcome}")?;
        let is_open = stack.warn_if_open(&restored, output)?;
        Ok(if is_open { EXIT_FINDINGS } else { EXIT_FINE })
    }

    /// Removes the unit and stops the timer, which have no effect without the old file.
    fn disarm_undo(&self, output: &mut Output<'_>) {
        for folder in [WANTS_DIR, UNIT_DIR] {
            let path = Path::new(folder).join(&self.unit);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    output.warn(format_args!("remove {}: {error}", path.display()));
                }
                _ => {}
            }
        }
        // Usually it has not failed: then the only result is an error message.
        let reset = ["reset-failed", self.unit.as_str()];
        let _ = command_without_output("systemctl", &reset)
            .stderr(Stdio::null())
            .status();
        for words in [&["stop", &self.timer][..], &["daemon-reload"]] {
            if let Err(error) = systemctl(words) {
                output.warn(error);
            }
        }
    }
}

/// Whether a unit's file takes this character as it is.
fn is_plain_in_unit(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-@".contains(c)
}

fn systemctl(words: &[&str]) -> Result<(), Error> {
    run("systemctl", words)
}

/// Prepares a program without input, whose output is dropped and whose messages go to standard error.
fn command_without_output(program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Runs a program of systemd.
fn run(program: &str, words: &[&str]) -> Result<(), Error> {
    let why = match command_without_output(program, words).status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(Error::failed(
        "run",
        format!("{program} {}", words.join(" ")),
        why,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_up_to_a_day_are_parsed() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("15m", 900), ("24h", 86400)] {
            assert_eq!(parse_time(text).unwrap().as_secs(), seconds);
        }
        for text in [
            "",
            "0",
            "m",
            "25h",
            "1d",
            "-5m",
            "1.5h",
            "99999999999999999999h",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
