//! `enter`: runs a command or a shell in a container of the job in which the caller's login is.
//!
//! The caller joins the namespaces of a process of their own, with their own rights and nothing else: what they
//! may enter is for the kernel to say. The login keeps its cgroup, so it stays a part of the job.

mod container;
mod credentials;
mod job_cgroup;
mod session;
mod target;
mod terminal;
mod variables;

use clap::Args;
use command::accounts;
use command::caller_limits::CallerLimits;
use command::error::Error;
use command::exit_status::EXIT_NOT_STARTED;
use command::options::QUERY_TIMEOUT;
use command::options::parse_job_id;
use command::output::Output;
use container::{Container, JobProcess, View, find_containers};
use helper::jobs::find_by_name;
use helper::{Config, Deadline, Node, RunningJobs, printable};
use job_cgroup::JobCgroup;
use kernel::cgroup::Membership;
use kernel::trust::Trust;
use module::node_name;
use nix::unistd::Uid;
use protocol::{JobId, Request};
use std::ffi::OsString;
use std::path::Path;
use target::Target;

/// Maximum containers in a message.
const CONTAINERS_MAX: usize = 16;

/// Enter the container that your job runs on this node
#[derive(Debug, Args)]
#[command(after_help = "\
Run it in a login to the job, without root: ssh -t NODE job-adopt enter. The command gets a terminal if there is one,
and the container's root directory, variables and user, and what the container's process may do. It stays in the
cgroup of the login.
Exit status: that of the command, 128 and the number of the signal that ended it, or 125.")]
pub struct Options {
    /// The job, which must be that of this login
    #[arg(value_parser = parse_job_id)]
    job: Option<JobId>,
    /// A process of the container, if there are several
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// The command and its arguments; a shell unless given
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

/// Runs `enter`. A failure before the command starts has an exit status of its own, since all others may be
/// the command's.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(
    options: &Options,
    caller: CallerLimits,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    match enter(options, caller, output) {
        Err(error @ (Error::Failed(_) | Error::Several { .. })) => {
            output.fail(&error);
            Ok(EXIT_NOT_STARTED)
        }
        result => result,
    }
}

/// Runs the words of the options, or a shell, in a container of the job that this login is in, and returns
/// the exit status. It fails with [`Error`] if it is root's, if this login is in no job, if the job has no
/// container or several and none was chosen, or if the container cannot be entered.
fn enter(options: &Options, caller: CallerLimits, output: &mut Output<'_>) -> Result<u8, Error> {
    let failed = |cause: String| Error::failed("enter", "container", cause);
    if Uid::effective().is_root() {
        let why = "root has no jobs; run this in a login of the job's owner";
        return Err(failed(why.to_owned()));
    }
    let job = find_own_job(options.job.as_ref(), output)?;
    let login = View::read_own().map_err(|errno| failed(errno.desc().to_owned()))?;
    let process = match options.pid {
        Some(pid) => read_chosen(pid, &job, &login)?,
        None => {
            let containers =
                find_containers(&job, &login).map_err(|error| failed(error.to_string()))?;
            choose(containers, &job.job, &options.words)?
        }
    };
    let target = Target::open(&process, &job)?;
    session::run(&target, &login.namespaces, &options.words, caller)
}

/// Finds the job whose cgroup this process is in; `name`, if given, must be that job's.
///
/// It fails with [`Error::Failed`] outside of jobs, and in another job than the one that was named.
fn find_own_job(name: Option<&JobId>, output: &mut Output<'_>) -> Result<JobCgroup, Error> {
    let node = node_name();
    let uid = Uid::effective().as_raw();
    let config = Config::read(Path::new(Request::DEFAULT_CONF), &Trust::root())?;
    let deadline = Deadline::after(QUERY_TIMEOUT);
    let RunningJobs {
        mut jobs,
        closed,
        warnings,
    } = Node::host().find_running_jobs(&config, &node, uid, deadline)?;
    // The shell of a scheduler may run in a job that takes no logins.
    jobs.extend(closed);
    let own = JobCgroup::find(&jobs, &Membership::read_own()?, deadline.instant());
    let failed = |cause: String| Error::failed("enter", "container", cause);
    // A warning may say why the job was not found.
    let Some(own) = own else {
        for warning in &warnings {
            output.warn(printable(warning));
        }
        let user = accounts::user_name(uid);
        return Err(failed(format!(
            "this shell is in no job of {user} on {node}; log in to your job's node: \
             ssh -t NODE job-adopt enter"
        )));
    };
    let Some(name) = name else {
        return Ok(own);
    };
    match find_by_name(&jobs, name) {
        Some(job) if job.id == own.job => Ok(own),
        Some(job) => Err(failed(format!(
            "this login is in job {}; type job-adopt use {}, and log in again from outside your jobs",
            own.job, job.id
        ))),
        None => Err(failed(format!(
            "this login is in job {}, and no job {name} of yours runs here; a command goes behind --",
            own.job
        ))),
    }
}

/// Reads the process that was chosen by its number. It fails with [`Error::Failed`] if the process cannot be read, is
/// not in the job, or is in no container as seen from the `login`.
fn read_chosen(pid: i32, job: &JobCgroup, login: &View) -> Result<JobProcess, Error> {
    let failed = |cause: String| Error::failed("enter container of process", pid, cause);
    let process = JobProcess::read(pid, job)
        .map_err(|error| failed(target::explain(&error)))?
        .ok_or_else(|| failed(format!("it is not in job {}", job.job)))?;
    if !process.view.is_container(login) {
        return Err(failed("it is in no container".to_owned()));
    }
    Ok(process)
}

/// Chooses the only container.
///
/// It fails with [`Error::Failed`] if there is none, and with [`Error::Several`] if there are several.
fn choose(
    mut containers: Vec<Container>,
    job: &JobId,
    words: &[OsString],
) -> Result<JobProcess, Error> {
    if containers.len() > 1 {
        return Err(list_several(&containers, job, words));
    }
    let only = containers.pop().map(|container| container.first);
    only.ok_or_else(|| Error::failed("enter", "container", format!("job {job} runs none here")))
}

/// Lists containers, each with the command that enters it. The `words` of the user's command are not repeated.
fn list_several(all: &[Container], job: &JobId, words: &[OsString]) -> Error {
    let reminder = if words.is_empty() {
        ""
    } else {
        " (your command goes behind --)"
    };
    let fault = format!(
        "job {job} runs {} containers on {}; in a login there, enter one{reminder}:",
        all.len(),
        node_name()
    );
    let mut choices = Vec::new();
    for Container { first, count } in all.iter().take(CONTAINERS_MAX) {
        let processes = if *count == 1 { "process" } else { "processes" };
        choices.push(format!("job-adopt enter --pid {}", first.pid));
        choices.push(format!(
            "    {count} {processes}, the first is {}",
            printable(&first.name)
        ));
    }
    if all.len() > CONTAINERS_MAX {
        choices.push("...".to_owned());
    }
    Error::Several { fault, choices }
}
