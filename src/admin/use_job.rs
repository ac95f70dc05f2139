//! `use`: which of their jobs here a user's next logins join.

use super::list::PATIENCE;
use super::{Error, Output, accounts, names};
use clap::Args;
use helper::printable;
use helper::read_choice;
use helper::sources::{Job, find_by_name};
use helper::{Config, Node};
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
use std::path::Path;
use std::time::Instant;

/// Most jobs that a message names.
const NAMED: usize = 8;

/// Choose which of your jobs here your next logins join
#[derive(Debug, Args)]
#[command(after_help = "\
A choice counts while its job runs here. A login from inside another of your jobs joins that one all the same.
Your first login into a job here makes the file for the choice, and so does a refusal with JA05.
Exit status: 0 fine, 1 the job is not one of yours that run here, 2 wrong usage, 3 cannot tell.")]
pub(super) struct Options {
    /// The job; without it the choice is shown
    #[arg(value_parser = names::parse_job_id, conflicts_with = "clear")]
    job: Option<JobId>,
    /// Choose none
    #[arg(long)]
    clear: bool,
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let uid = Uid::effective();
    if uid.is_root() {
        let why = "root has no jobs; run this as the user whose logins it is for";
        return Err(Error::failed("choose", "job", why));
    }
    let desk =
        Desk { uid: uid.as_raw(), user: accounts::user_name(uid.as_raw()), node: node_name() };
    match &options.job {
        Some(job) => desk.choose(job, output),
        None if options.clear => desk.clear(output),
        None => desk.show(output),
    }
}

/// Whose choice it is, and where.
struct Desk {
    uid: u32,
    user: String,
    node: String,
}

impl Desk {
    fn choose(&self, job: &JobId, output: &mut Output<'_>) -> Result<u8, Error> {
        let (jobs, unsure) = self.running();
        let found = find_by_name(&jobs, job).map(|job| &job.id);
        let job = found.unwrap_or(job);
        if found.is_none() {
            if unsure.is_empty() {
                let why = self.not_among(&jobs);
                output.warn(format_args!("job {job} was not chosen: {why}"));
                return Ok(super::EXIT_FINDINGS);
            }
            unsure.iter().for_each(|text| output.warn(printable(text)));
            output.warn(format_args!("warning: it cannot be told whether job {job} runs here"));
        }
        put(&Choices::here(), self.uid, job).map_err(|error| self.explained(&error))?;
        self.say(Some(job), output)
    }

    fn clear(&self, output: &mut Output<'_>) -> Result<u8, Error> {
        match clear(&Choices::here(), self.uid) {
            Err(error) if !error.is_missing() => Err(self.explained(&error)),
            _ => self.say(None, output),
        }
    }

    fn show(&self, output: &mut Output<'_>) -> Result<u8, Error> {
        let job = match read_choice(&Choices::here(), self.uid) {
            Ok(Some(job)) => job,
            Ok(None) => return self.say(None, output),
            Err(error) => return Err(self.explained(&error)),
        };
        let (jobs, unsure) = self.running();
        if find_by_name(&jobs, &job).is_some() || !unsure.is_empty() {
            return self.say(Some(&job), output);
        }
        let why = self.not_among(&jobs);
        writeln!(output.out, "job {job} is chosen, but does not count: {why}")?;
        Ok(super::EXIT_FINDINGS)
    }

    /// What the next logins do.
    fn say(&self, chosen: Option<&JobId>, output: &mut Output<'_>) -> Result<u8, Error> {
        let Self { user, node, .. } = self;
        let text = match chosen {
            Some(job) => {
                format!("the next logins of {user} to {node} join job {job} while it runs here")
            }
            None => format!("no job is chosen for the next logins of {user} to {node}"),
        };
        writeln!(output.out, "{text}")?;
        Ok(super::EXIT_FINE)
    }

    /// Why a job is no choice.
    fn not_among(&self, jobs: &[Job]) -> String {
        let Self { user, node, .. } = self;
        let own: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).take(NAMED).collect();
        let more = if jobs.len() > NAMED { ", ..." } else { "" };
        match own.as_slice() {
            [] => format!("{user} has no running job on {node}"),
            own => format!("on {node} {user} has {}{more}", own.join(", ")),
        }
    }

    /// The jobs that a login would find, and what may have hidden others.
    fn running(&self) -> (Vec<Job>, Vec<String>) {
        let config = Config::read(Path::new(Request::DEFAULT_CONF), &Trust::root());
        let config = config.map_err(|error| error.to_string());
        let deadline = Instant::now() + PATIENCE;
        config
            .and_then(|config| {
                Node::here().find_running_jobs(&config, &self.node, self.uid, deadline)
            })
            .unwrap_or_else(|cause| (Vec::new(), vec![cause]))
    }

    /// What helps against it, and then what it is.
    fn explained(&self, error: &TrustError) -> Error {
        let node = &self.node;
        let path = error.path();
        let help = match error.cause() {
            _ if path.ends_with(FILE) => {
                "no choice counts; undo it: job-adopt use --clear\n".to_owned()
            }
            // Of a directory nothing else but the mode is the user's to spoil.
            Distrust::Open(Errno::ENOENT) | Distrust::WrongMode(_) => {
                format!("log in to {node} by ssh once, then try again\n")
            }
            _ if path == Choices::here().user_dir(self.uid) => String::new(),
            _ => format!("{node} is not set up correctly; not your fault, please report:\n"),
        };
        Error::Failed(format!("{help}{}", printable(&error.to_string())))
    }
}

/// Mode of the file that holds a choice.
const FILE_MODE: u32 = 0o640;

/// Chooses a job for the next logins of the calling user.
/// Errors: [`TrustError::is_missing`] before the directory was made; [`Distrust::WrongMode`] where
/// the user has changed it so that the helper could not read a choice in it.
fn put(choices: &Choices, uid: u32, id: &JobId) -> Result<(), TrustError> {
    let dir = own(choices, uid)?;
    let mode = permissions(&dir.status);
    if mode != USER_MODE {
        return Err(TrustError::new(&dir.path, Distrust::WrongMode(mode)));
    }
    // Of two at once, the later rename counts.
    let unfinished = format!(".{FILE}.{}", std::process::id());
    let written = write(&dir, &unfinished, id);
    if written.is_err() {
        let _ = unlinkat(&dir.fd, unfinished.as_str(), UnlinkatFlags::NoRemoveDir);
    }
    written
}

/// Chooses none; `false` where none was chosen.
/// Errors: as [`put`].
fn clear(choices: &Choices, uid: u32) -> Result<bool, TrustError> {
    let dir = own(choices, uid)?;
    match unlinkat(&dir.fd, FILE, UnlinkatFlags::NoRemoveDir) {
        Ok(()) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(TrustError::cannot("remove", &dir.path.join(FILE), errno)),
    }
}

fn own(choices: &Choices, uid: u32) -> Result<UserDir, TrustError> {
    let missing = || TrustError::new(&choices.user_dir(uid), Distrust::Open(Errno::ENOENT));
    let base = choices.trust.dir(&choices.dir).map_err(|error| match error.is_missing() {
        true => missing(),
        false => error,
    })?;
    let dir = choices.find(&base, uid)?.ok_or_else(missing)?;
    match dir.status.uid {
        owner if owner == uid => Ok(dir),
        owner => Err(TrustError::new(&dir.path, Distrust::WrongOwner(owner))),
    }
}

fn write(dir: &UserDir, unfinished: &str, id: &JobId) -> Result<(), TrustError> {
    let path = dir.path.join(FILE);
    let unwritten = |errno: Errno| TrustError::cannot("write", &path, errno);
    // In place of one that a process of the same number has left.
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(&dir.fd, unfinished, flags, Mode::S_IRUSR | Mode::S_IWUSR);
    let mut file = File::from(file.map_err(unwritten)?);
    fchmod(&file, Mode::from_bits_truncate(FILE_MODE)).map_err(unwritten)?;
    writeln!(file, "{id}").map_err(|error| TrustError::cannot("write", &path, error))?;
    renameat(&dir.fd, unfinished, &dir.fd, FILE).map_err(unwritten)
}

#[cfg(test)]
mod tests;
