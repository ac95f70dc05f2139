//! `use`: chooses the job that a user's next logins join, of several jobs on this node.

use clap::Args;
use command::accounts;
use command::error::Error;
use command::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use command::options::QUERY_TIMEOUT;
use command::options::parse_job_id;
use command::output::Output;
use helper::jobs::{Job, find_by_name};
use helper::printable;
use helper::read_choice;
use helper::{Config, Deadline, Node, RunningJobs};
use kernel::choice::{Choices, FILE, USER_MODE, UserDir, permissions};
use kernel::trust::{Distrust, Trust, TrustError};
use module::node_name;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};
use protocol::{JobId, Request};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Maximum jobs in a message.
const JOBS_MAX: usize = 8;

/// Choose which of your jobs here your next logins join
#[derive(Debug, Args)]
#[command(after_help = "\
A choice counts while its job runs here. A login from inside another of your jobs joins that one all the same.
Your first login into a job here makes the directory for the choice, and so does a refusal with JA05.
Exit status: 0 fine, 1 the job is not one of yours that run here, 2 wrong usage, 3 cannot tell.")]
pub struct Options {
    /// The job; without it the choice is shown
    #[arg(value_parser = parse_job_id, conflicts_with = "clear")]
    job: Option<JobId>,
    /// Choose none
    #[arg(long)]
    clear: bool,
}

/// Runs `use`: chooses the job for the caller's next logins, undoes the choice, or shows it.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let uid = Uid::effective();
    if uid.is_root() {
        let why = "root has no jobs; run this as the user whose logins it is for";
        return Err(Error::failed("choose", "job", why));
    }
    let owner = ChoiceOwner {
        choice: UserChoice {
            choices: Choices::host(),
            uid: uid.as_raw(),
        },
        user: accounts::user_name(uid.as_raw()),
        node: node_name(),
    };
    match &options.job {
        Some(job) => owner.choose(job, output),
        None if options.clear => owner.clear(output),
        None => owner.show(output),
    }
}

/// The user who chooses, and the node for which the choice counts.
struct ChoiceOwner {
    choice: UserChoice,
    user: String,
    node: String,
}

impl ChoiceOwner {
    /// Chooses the user's running job that has this name. A job that takes no logins, or does not run here, is not
    /// chosen, and the result is [`EXIT_FINDINGS`]. If the job is not found and faults may hide it, it chooses the
    /// name as given and warns.
    fn choose(&self, name: &JobId, output: &mut Output<'_>) -> Result<u8, Error> {
        let RunningJobs {
            jobs,
            closed,
            warnings: doubts,
        } = self.find_running_jobs();
        if let Some(job) = find_by_name(&jobs, name) {
            return self.write(&job.id, output);
        }
        if find_by_name(&closed, name).is_some() {
            output.warn(format_args!(
                "job {name} was not chosen: it takes no logins"
            ));
            return Ok(EXIT_FINDINGS);
        }
        if doubts.is_empty() {
            let why = self.explain_not_running(&jobs);
            let hint = if jobs.is_empty() {
                "type this on the node of your job"
            } else {
                ""
            };
            output.warn_with_hint(format_args!("job {name} was not chosen: {why}"), hint);
            return Ok(EXIT_FINDINGS);
        }
        for text in &doubts {
            output.warn(printable(text));
        }
        output.warn(format_args!(
            "warning: cannot tell whether job {name} runs here; choosing it anyway"
        ));
        self.write(name, output)
    }

    fn write(&self, job: &JobId, output: &mut Output<'_>) -> Result<u8, Error> {
        self.choice
            .write(job)
            .map_err(|error| self.explain_error(&error))?;
        self.report_effect(Some(job), output)
    }

    fn clear(&self, output: &mut Output<'_>) -> Result<u8, Error> {
        match self.choice.remove() {
            Err(error) if !error.is_missing() => Err(self.explain_error(&error)),
            _ => self.report_effect(None, output),
        }
    }

    /// Shows the chosen job, if there is one. Returns [`EXIT_FINDINGS`] if the choice does not count because
    /// the job does not run here or takes no logins; a job that is not found counts if faults may hide it.
    fn show(&self, output: &mut Output<'_>) -> Result<u8, Error> {
        let job = match self.choice.read() {
            Ok(Some(job)) => job,
            Ok(None) => return self.report_effect(None, output),
            Err(error) => return Err(self.explain_error(&error)),
        };
        let RunningJobs {
            jobs,
            closed,
            warnings: doubts,
        } = self.find_running_jobs();
        let is_closed = find_by_name(&closed, &job).is_some();
        let may_run = find_by_name(&jobs, &job).is_some() || !doubts.is_empty();
        if may_run && !is_closed {
            return self.report_effect(Some(&job), output);
        }
        let why = if is_closed {
            "it takes no logins".to_owned()
        } else {
            self.explain_not_running(&jobs)
        };
        writeln!(output.out, "job {job} is chosen, but does not count: {why}")?;
        Ok(EXIT_FINDINGS)
    }

    /// Reports which job the next logins join.
    fn report_effect(&self, chosen: Option<&JobId>, output: &mut Output<'_>) -> Result<u8, Error> {
        let node = &self.node;
        let text = match chosen {
            Some(job) => format!(
                "logins to {node} from outside your jobs now join job {job} while it runs here"
            ),
            None => format!(
                "no job is chosen: logins to {node} join your newest, or you are asked to choose"
            ),
        };
        writeln!(output.out, "{text}")?;
        Ok(EXIT_FINE)
    }

    /// Explains why a job cannot be chosen: by the jobs that the user has instead.
    fn explain_not_running(&self, jobs: &[Job]) -> String {
        let Self { user, node, .. } = self;
        if jobs.is_empty() {
            return format!("{user} has no running job on {node}");
        }
        let ids: Vec<&str> = jobs
            .iter()
            .map(|job| job.id.as_str())
            .take(JOBS_MAX)
            .collect();
        let more = if jobs.len() > JOBS_MAX { ", ..." } else { "" };
        format!("on {node} {user} has {}{more}", ids.join(", "))
    }

    /// Finds the jobs that a login would find, and the faults that may hide others.
    fn find_running_jobs(&self) -> RunningJobs {
        let config = match Config::read(Path::new(Request::DEFAULT_CONF), &Trust::root()) {
            Ok(config) => config,
            Err(error) => return no_jobs(&error),
        };
        let deadline = Deadline::after(QUERY_TIMEOUT);
        Node::host()
            .find_running_jobs(&config, &self.node, self.choice.uid, deadline)
            .unwrap_or_else(|error| no_jobs(&error))
    }

    /// Builds an error that begins with the remedy, or has none for faults of the user's directory that may be the
    /// user's, such as a mount.
    fn explain_error(&self, error: &TrustError) -> Error {
        let node = &self.node;
        let path = error.path();
        // The next login makes the directory and mends its mode, the only fault of it that its user can cause.
        let is_mended_by_login = matches!(
            error.cause(),
            Distrust::Open(Errno::ENOENT) | Distrust::WrongMode(_)
        );
        let advice = if path.ends_with(FILE) {
            "your choice cannot be used; remove it: job-adopt use --clear".to_owned()
        } else if is_mended_by_login {
            format!("log in to {node} by ssh once, then try again")
        } else if path == self.choice.dir() && !matches!(error.cause(), Distrust::WrongOwner(_)) {
            return Error::Failed(error.to_string());
        } else {
            format!("{node} is not set up correctly; not your fault, please report:")
        };
        Error::Advised {
            advice,
            cause: error.to_string(),
        }
    }
}

/// No jobs, since a fault hides all of them.
fn no_jobs(fault: &dyn std::fmt::Display) -> RunningJobs {
    RunningJobs {
        jobs: Vec::new(),
        closed: Vec::new(),
        warnings: vec![fault.to_string()],
    }
}

/// Mode of the file with the choice.
const FILE_MODE: u32 = 0o640;

/// The choice of one user, which that user reads, writes and removes with their own rights.
struct UserChoice {
    choices: Choices,
    uid: u32,
}

impl UserChoice {
    /// The path of the user's directory.
    fn dir(&self) -> PathBuf {
        self.choices.user_dir(self.uid)
    }

    /// Reads the choice as the helper does; `None` if there is none.
    fn read(&self) -> Result<Option<JobId>, TrustError> {
        read_choice(&self.choices, self.uid)
    }

    /// Chooses a job for the user's next logins. It fails with [`TrustError::is_missing`] before the
    /// directory was made, and with [`Distrust::WrongMode`] if the user has changed the directory's mode, so
    /// that the helper could not read the choice.
    fn write(&self, id: &JobId) -> Result<(), TrustError> {
        let dir = self.open_dir()?;
        let mode = permissions(&dir.status);
        if mode != USER_MODE {
            return Err(TrustError::new(&dir.path, Distrust::WrongMode(mode)));
        }
        // If two processes write at once, the later rename wins.
        let unfinished = format!(".{FILE}.{}", std::process::id());
        let result = write_file(&dir, &unfinished, id);
        if result.is_err() {
            let _ = unlinkat(&dir.fd, unfinished.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        result
    }

    /// Removes the choice; returns whether there was one. It fails with [`TrustError::is_missing`] before the directory
    /// was made.
    fn remove(&self) -> Result<bool, TrustError> {
        let dir = self.open_dir()?;
        match unlinkat(&dir.fd, FILE, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(TrustError::from_error(
                "remove",
                &dir.path.join(FILE),
                errno,
            )),
        }
    }

    /// Opens the user's directory, which must be theirs.
    ///
    /// # Errors
    ///
    /// A missing file ([`TrustError::is_missing`]), always with the directory's own path, if it or the one above
    /// it does not exist; [`Distrust::WrongOwner`], or another fault of the directories above.
    fn open_dir(&self) -> Result<UserDir, TrustError> {
        let Self { choices, uid } = self;
        let missing = || TrustError::new(&self.dir(), Distrust::Open(Errno::ENOENT));
        let base = choices
            .trust
            .dir(&choices.dir)
            .map_err(|error| if error.is_missing() { missing() } else { error })?;
        let dir = choices.find(&base, *uid)?.ok_or_else(missing)?;
        let owner = dir.status.uid;
        if owner != *uid {
            return Err(TrustError::new(&dir.path, Distrust::WrongOwner(owner)));
        }
        Ok(dir)
    }
}

/// Writes the id into the file `unfinished` of the user's directory, and then renames that to the file of the
/// choice: a login reads the old choice or the new one. After a failure `unfinished` may remain.
fn write_file(dir: &UserDir, unfinished: &str, id: &JobId) -> Result<(), TrustError> {
    let path = dir.path.join(FILE);
    let unwritten = |errno: Errno| TrustError::from_error("write", &path, errno);
    // The flags replace a file that a process with the same number has left.
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let mut file = File::from(openat(&dir.fd, unfinished, flags, mode).map_err(unwritten)?);
    fchmod(&file, Mode::from_bits_truncate(FILE_MODE)).map_err(unwritten)?;
    writeln!(file, "{id}").map_err(|error| TrustError::from_error("write", &path, error))?;
    renameat(&dir.fd, unfinished, &dir.fd, FILE).map_err(unwritten)
}

#[cfg(test)]
mod tests;
