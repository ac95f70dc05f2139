//! `strays`: shows and ends processes of users who have no job on the node.

use super::stray_devices::find_refused_devices;
use crate::signals::{send_signals, stop_then_kill};
use clap::Args;
use command::accounts::{self, require_root};
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE};
use command::options::{Conf, OPERATION_TIMEOUT};
use command::output::{Output, log};
use facts::closed_slices::closed_slice_rules;
use facts::process::Identity;
use facts::strays::{SearchMemory, Snapshot, Stray, require_adoption};
use helper::Config;
use helper::devices::Resolver;
use helper::node::Tree;
use keeper::survivors::describe_unkillable;
use kernel::log::{Line, Severity};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time for a process to end by itself after `SIGTERM`.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Pause between two searches for processes that still run.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long descriptors of devices are looked at closer, of all processes together: a user could make it last.
const DEVICES_SEARCH_MAX: Duration = Duration::from_secs(2);

/// Show, or end, what users without a job have running here
#[derive(Debug, Args)]
#[command(after_help = "\
Shows each process, how it came there, and its open devices that a closed slice would refuse. Users with a job
here, exempt accounts and accounts of the system have no strays. Processes of uids without an account, as in
containers that root has made, are named and never ended.
Exit status: 0 none, or none left, 1 some, 2 wrong usage, 3 could not be told or done, 4 some are left that no
signal ends.")]
pub struct Options {
    /// Only this user, by name or number
    #[arg(long)]
    user: Option<String>,
    /// Only the user with this uid, also if a user has the number as name
    #[arg(long, value_parser = accounts::parse_uid, conflicts_with = "user")]
    uid: Option<u32>,
    /// End them, and show what is left (root)
    #[arg(long)]
    kill: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

/// Runs `strays`: shows the processes of users without a job, after it has ended them if asked. Returns
/// [`EXIT_FAILED`] if there may be jobs that are not known, and else [`EXIT_FINDINGS`] if there are such processes.
/// If it should end them, it fails with [`Error::Unkillable`] for one that no signal ends.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let config = options.conf.read()?;
    let named = options
        .user
        .as_deref()
        .map(accounts::resolve_uid)
        .transpose()?;
    let user = options.uid.or(named);
    let mut search = StraySearch::new(&config, user);
    let mut ended = 0;
    if options.kill {
        require_root("end strays")?;
        require_adoption(&config).map_err(|why| Error::failed("end", "strays", why))?;
        ended = search.end_strays()?;
    }
    let mut snapshot = search.read_snapshot()?;
    for doubt in &snapshot.doubts {
        output.warn(&doubt.cause);
    }
    let has_doubts = !snapshot.doubts.is_empty();
    let allowed = closed_slice_rules(
        &config,
        &Resolver::new(Tree::host(), config.devices.clone()),
    );
    let mut unowned = std::mem::take(&mut snapshot.unowned);
    let mut strays = snapshot.into_strays();
    let deadline = Instant::now() + DEVICES_SEARCH_MAX;
    for process in strays.iter_mut().chain(&mut unowned) {
        process.devices = find_refused_devices(process.pid, &allowed, deadline);
    }
    if options.json {
        output.json(&serde_json::json!({
            "schema": 1, "ended": ended, "strays": strays, "unowned": unowned,
        }))?;
    } else {
        if !unowned.is_empty() {
            output.warn(describe_unowned(&unowned));
        }
        let head = ["PID", "USER", "ORIGIN", "DEVICES", "COMMAND", "CGROUP"];
        output.table(head, strays.iter().map(row_of))?;
    }
    if has_doubts {
        return Ok(EXIT_FAILED);
    }
    if let Some(error) = find_unkillable(&strays).filter(|_| options.kill) {
        return Err(error);
    }
    Ok(if strays.is_empty() {
        EXIT_FINE
    } else {
        EXIT_FINDINGS
    })
}

/// Maximum processes without an owner that a message names.
const NAMED_PROCESSES_MAX: usize = 8;

/// Writes the warning about processes whose owner is unknown.
fn describe_unowned(processes: &[Stray]) -> String {
    let mut named = Vec::new();
    for Stray {
        pid,
        uid,
        command,
        cgroup,
        ..
    } in processes.iter().take(NAMED_PROCESSES_MAX)
    {
        named.push(format!("{pid} ({command}, uid {uid}, {cgroup})"));
    }
    if processes.len() > NAMED_PROCESSES_MAX {
        named.push("...".into());
    }
    format!(
        "warning: not ended, since their uids have no account: {}",
        named.join(", ")
    )
}

/// Ends the strays of a user who had a job here, for an epilog. If logins join no jobs on this node, it
/// only warns.
///
/// # Errors
///
/// The errors of [`StraySearch::end_strays`]; [`Error::Unkillable`] if a stray remains that no signal ends, and
/// [`Error::Failed`] if others remain.
pub(super) fn end_user_strays(
    config: &Config,
    uid: u32,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    if let Err(why) = require_adoption(config) {
        output.warn(format_args!("warning: strays are not ended: {why}"));
        return Ok(());
    }
    let mut search = StraySearch::new(config, Some(uid));
    search.end_strays()?;
    let left = search.read_snapshot()?.into_strays();
    if let Some(error) = find_unkillable(&left) {
        return Err(error);
    }
    match left.len() {
        0 => Ok(()),
        count => Err(Error::failed(
            "end",
            "strays",
            format!("{count} of uid {uid} are left"),
        )),
    }
}

/// The error for strays that no signal ends, if there are any.
fn find_unkillable(strays: &[Stray]) -> Option<Error> {
    let pids: Vec<i32> = strays.iter().map(|stray| stray.pid).collect();
    let which = describe_unkillable(&pids)?;
    Some(Error::Unkillable(format!(
        "end strays: cannot be killed: {which}"
    )))
}

/// The searches of one call for the strays of a user, or of all users. They wait only once for a daemon that does not
/// answer.
struct StraySearch<'a> {
    config: &'a Config,
    user: Option<u32>,
    memory: SearchMemory,
}

impl<'a> StraySearch<'a> {
    fn new(config: &'a Config, user: Option<u32>) -> Self {
        Self {
            config,
            user,
            memory: SearchMemory::default(),
        }
    }

    /// Reads the processes and jobs at this moment. The errors are those of [`Snapshot::read`].
    fn read_snapshot(&mut self) -> Result<Snapshot, Error> {
        Snapshot::read_again(self.config, self.user, &mut self.memory)
    }

    /// Ends the strays while their users have no job; returns their number. The next snapshot shows strays that remain.
    ///
    /// It fails with [`Error::Failed`] if logins join no jobs on this node or the one user may have an unknown job, and
    /// from then on ends no process. Of all users, it leaves alone those who may have one.
    fn end_strays(&mut self) -> Result<usize, Error> {
        let began = Instant::now();
        let mut signaled = BTreeSet::new();
        let mut remaining = self.find_strays_to_end()?;
        // The time for the first answers of daemons is none of the processes'.
        let term_end = Instant::now() + TERM_GRACE;
        while !remaining.is_empty() && Instant::now() < term_end {
            // Each process gets the signals once; a stopped one acts on the first only after the second.
            remaining.retain(|stray| signaled.insert(*stray));
            for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                // Ignore a process that takes no signal: the kill below reports it.
                let _ = send_signals(remaining.iter().copied(), signal);
            }
            std::thread::sleep(POLL_INTERVAL);
            remaining = self.find_strays_to_end()?;
        }
        let killed = stop_then_kill(|_| self.find_strays_to_end(), began + OPERATION_TIMEOUT);
        // Those that were killed do not mind. Others were only stopped, and their user may have a job by now.
        let continued = send_signals(killed.stopped.iter().copied(), Signal::SIGCONT);
        let left = killed.result?;
        continued?;
        signaled.extend(killed.stopped);
        signaled.retain(|stray| !left.contains(stray));
        let ended = signaled.len();
        if ended > 0 || !left.is_empty() {
            let whose = self
                .user
                .map_or_else(|| "all".to_owned(), |uid| uid.to_string());
            log(Line::new(Severity::Info)
                .with("action", "strays")
                .with("ended", ended)
                .with("left", left.len())
                .with("uid", whose));
        }
        Ok(ended)
    }

    /// Finds the strays of users who certainly have no job. It fails with [`Error::Failed`] if logins join no jobs on
    /// this node by now, or if the one user may have an unknown job.
    fn find_strays_to_end(&mut self) -> Result<Vec<Identity>, Error> {
        require_adoption(self.config).map_err(|why| Error::failed("end", "strays", why))?;
        let snapshot = self.read_snapshot()?;
        if let Some(doubt) = snapshot.doubts.first().filter(|_| self.user.is_some()) {
            return Err(Error::failed("tell", "who has a job", &doubt.cause));
        }
        Ok(snapshot
            .into_certain_strays()
            .iter()
            .map(|stray| (stray.pid, stray.start))
            .collect())
    }
}

/// Builds the row of the table: the devices are `?` if they cannot be read, and `-` if there are none.
fn row_of(stray: &Stray) -> [String; 6] {
    let devices = match stray.devices.as_deref() {
        None => "?".into(),
        Some([]) => "-".into(),
        Some(all) => all.join(","),
    };
    [
        stray.pid.to_string(),
        stray.user.clone(),
        stray.origin.clone(),
        devices,
        stray.command.clone(),
        stray.cgroup.clone(),
    ]
}
