//! `strays`: shows and ends processes of users who have no job on the node.

use super::ending::{
    Identity, has_job_process, is_sshd_process, read_start_ticks, send_signals, stop_then_kill,
};
use super::running_jobs::query_scheduler;
use super::stamped_cgroup::own_ancestry;
use super::{Conf, Error, OPERATION_TIMEOUT, Output, accounts, require_root, slices};
use clap::Args;
use helper::devices::{DeviceNode, Resolver, Tree};
use helper::records::{LoginTarget, ReadError};
use helper::sources::{SourceError, account_uid, processes};
use helper::stack::{Entry, Group, read_entries};
use helper::{Config, printable};
use kernel::cgroup::{self, Dir, Membership, Mount, Occupants, ignore_gone};
use kernel::log::{Line, Severity};
use kernel::proc::{Proc, Process, read_audit_number};
use kernel::sys::file::read_file_status;
use kernel::trust::Trust;
use module::{Action, Settings, is_off};
use nix::fcntl::{OFlag, open};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, major, minor};
use nix::unistd::{Gid, Uid, User, getgrouplist};
use protocol::{DeviceRule, DeviceType, SourceName, is_within};
use schedulers::flux::{is_imp, unit_at};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for a process to end by itself after `SIGTERM`.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Pause between two searches for processes that still run.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Show, or end, what users without a job have running here
#[derive(Debug, Args)]
#[command(after_help = "\
Shows each process, how it came there, and its open devices that a closed slice would refuse. Users with a job
here, exempt accounts and accounts of the system have no strays.
Exit status: 0 none, or none left, 1 some, 2 wrong usage, 3 could not be told or done.")]
pub(super) struct Options {
    /// Only this user, by name or number
    #[arg(long)]
    user: Option<String>,
    /// End them, and show what is left (root)
    #[arg(long)]
    kill: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let config = options.conf.read()?;
    let user = options.user.as_deref().map(accounts::resolve_uid).transpose()?;
    let mut ended = 0;
    if options.kill {
        require_root("end strays")?;
        require_adoption(&config).map_err(|why| Error::failed("end", "strays", why))?;
        ended = end_strays(&config, user)?;
    }
    let snapshot = Snapshot::read(&config)?;
    snapshot.doubts.iter().for_each(|text| output.warn(text));
    let has_doubts = !snapshot.doubts.is_empty();
    let allowed =
        slices::closed_slice_rules(&config, &Resolver::new(Tree::host(), config.devices.clone()));
    let mut strays = snapshot.into_strays(user);
    strays.iter_mut().for_each(|stray| stray.devices = find_refused_devices(stray.pid, &allowed));
    if options.json {
        output.json(&serde_json::json!({ "schema": 1, "ended": ended, "strays": strays }))?;
    } else {
        let head = ["PID", "USER", "ORIGIN", "DEVICES", "COMMAND", "CGROUP"];
        output.table(head, strays.iter().map(Stray::row))?;
    }
    Ok(match () {
        () if has_doubts => super::EXIT_FAILED,
        () if strays.is_empty() => super::EXIT_FINE,
        () => super::EXIT_FINDINGS,
    })
}

/// Counts the strays; `None` if there may be users with an unknown job.
///
/// # Errors
///
/// The errors of [`Snapshot::read`].
pub(super) fn count_strays(config: &Config) -> Result<Option<usize>, Error> {
    let snapshot = Snapshot::read(config)?;
    Ok(if snapshot.doubts.is_empty() { Some(snapshot.into_strays(None).len()) } else { None })
}

/// Ends the strays of a user who had a job here, for an epilog. If logins join no jobs on this node, it
/// only warns.
///
/// # Errors
///
/// The errors of [`end_strays`], and [`Error::Failed`] if strays remain.
pub(super) fn end_user_strays(
    config: &Config,
    uid: u32,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    if let Err(why) = require_adoption(config) {
        output.warn(format_args!("warning: strays are not ended: {why}"));
        return Ok(());
    }
    end_strays(config, Some(uid))?;
    match Snapshot::read(config)?.into_strays(Some(uid)).len() {
        0 => Ok(()),
        count => Err(Error::failed("end", "strays", format!("{count} of uid {uid} are left"))),
    }
}

/// Reads the session lines of sshd's stack.
fn read_session_lines() -> Vec<Entry> {
    read_entries(Path::new("/"), "sshd", Group::Session).unwrap_or_default()
}

/// Checks that logins are taken into jobs on this node. If they are not, or if users without a job may
/// log in, processes are outside of jobs by the admin's will.
fn require_adoption(config: &Config) -> Result<(), &'static str> {
    let opens = |line: &Entry| {
        Settings::parse(&line.arguments).is_ok_and(|settings| settings.no_jobs == Action::Ignore)
    };
    let takes_all = |line: &Entry| line.is_fit() && !line.is_observing() && !opens(line);
    match read_session_lines().iter().any(takes_all) {
        _ if config.missing_enforce_path().is_some() => {
            Err("logins are not judged on this node (enforce)")
        }
        _ if is_off() => Err("/run/job-adopt/off is there"),
        true => Ok(()),
        false => Err("no session line of sshd's PAM stack takes all logins into jobs"),
    }
}

/// Ends the strays of a user, or of all users, while they have no job; returns their number. The next
/// snapshot shows strays that remain.
///
/// It fails with [`Error::Failed`] if a user may have an unknown job, and then ends no process.
fn end_strays(config: &Config, user: Option<u32>) -> Result<usize, Error> {
    let find = || -> Result<Vec<Identity>, Error> {
        require_adoption(config).map_err(|why| Error::failed("end", "strays", why))?;
        let snapshot = Snapshot::read(config)?;
        match snapshot.doubts.first() {
            Some(why) => Err(Error::failed("tell", "who has a job", why)),
            None => {
                let strays = snapshot.into_strays(user);
                Ok(strays.iter().map(|stray| (stray.pid, stray.start)).collect())
            }
        }
    };
    let (began, mut signaled, mut remaining) = (Instant::now(), BTreeSet::new(), find()?);
    while !remaining.is_empty() && began.elapsed() < TERM_GRACE {
        let is_new = |stray: &Identity| signaled.insert(*stray);
        let new: Vec<_> = remaining.iter().copied().filter(is_new).collect();
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            // Ignore a process that takes no signal: the kill below reports it.
            let _ = send_signals(new.iter().copied(), signal);
        }
        std::thread::sleep(POLL_INTERVAL);
        remaining = find()?;
    }
    let mut stopped = BTreeSet::new();
    let killed = stop_then_kill(|_| find(), began + OPERATION_TIMEOUT, &mut stopped);
    // Continue all of them: some may belong to users who have a job by now.
    let continued = send_signals(stopped.iter().copied(), Signal::SIGCONT);
    let remaining = killed.and_then(|remaining| continued.map(|()| remaining))?;
    signaled.extend(stopped);
    signaled.retain(|stray| !remaining.contains(stray));
    let ended = signaled.len();
    if ended > 0 || !remaining.is_empty() {
        let line = Line::new(Severity::Info).with("action", "strays").with("ended", ended);
        let user = user.map_or_else(|| "all".to_owned(), |uid| uid.to_string());
        super::log(line.with("left", remaining.len()).with("uid", user));
    }
    Ok(ended)
}

/// A process of a user outside of their jobs, in the form of a report.
#[derive(Debug, Serialize)]
pub(super) struct Stray {
    pid: i32,
    pub(super) uid: u32,
    user: String,
    /// Its origin, or `unknown`.
    origin: String,
    /// The open devices that a closed slice would refuse; `None` if this user cannot read them.
    devices: Option<Vec<String>>,
    command: String,
    cgroup: String,
    #[serde(skip)]
    start: u64,
}

impl Stray {
    fn row(&self) -> [String; 6] {
        let devices = match self.devices.as_deref() {
            None => "?".into(),
            Some([]) => "-".into(),
            Some(all) => all.join(","),
        };
        let [user, origin, command, cgroup] =
            [&self.user, &self.origin, &self.command, &self.cgroup].map(Clone::clone);
        [self.pid.to_string(), user, origin, devices, command, cgroup]
    }
}

/// The processes outside of jobs, and the users with jobs, at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The processes, also those of users who have a job.
    pub(super) outside: Vec<Stray>,
    /// The uids of users who have a job.
    owners: BTreeSet<u32>,
    /// The cgroups of the registry's jobs, each with the user who has lost it to another job.
    jobs: Vec<(String, Option<u32>)>,
    /// The reasons why there may be other jobs.
    doubts: Vec<String>,
}

impl Snapshot {
    /// Reads first the processes, then the jobs: the list lacks processes that a job starts in between.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for accounts, processes or records that cannot be read.
    pub(super) fn read(config: &Config) -> Result<Self, Error> {
        let mut accounts = AccountFilter::read(config)?;
        let (mut snapshot, own_ancestry) = (Self::default(), own_ancestry());
        let flux = account_uid(&config.flux_user).ok();
        let numbers = processes::list_numbers::<i32>(Path::new("/proc"));
        let numbers = numbers.map_err(|error| Error::failed("list", "/proc", error))?.flatten();
        let table: BTreeMap<i32, ProcessInfo> =
            numbers.filter_map(|pid| Some((pid, ProcessInfo::read(pid, flux)?))).collect();
        let daemons = table.values().filter(|process| process.is_job_daemon(flux));
        let live_jobs: BTreeSet<&str> =
            daemons.filter_map(|process| process.job.as_deref()).collect();
        let of_root = table.values().filter(|process| process.is_root());
        let root_services: BTreeSet<&str> =
            of_root.filter_map(|process| system_service(process.path())).collect();
        snapshot.read_jobs(config)?;
        for info in table.values() {
            let Some((uid, user)) = accounts.find_owner(info) else { continue };
            if info.job.as_deref().is_some_and(|job| live_jobs.contains(job)) {
                snapshot.owners.insert(uid);
                continue;
            }
            // A service of the system without a process of root runs as this account by the admin's
            // will.
            let unit = system_service(info.path());
            let is_service = unit.is_some_and(|unit| !root_services.contains(unit));
            let is_in_job = snapshot
                .jobs
                .iter()
                .any(|(job, lost)| *lost != Some(uid) && is_within(info.path(), job));
            if is_service || is_in_job || own_ancestry.contains(&info.process.pid) {
                continue;
            }
            snapshot.outside.push(Stray {
                pid: info.process.pid,
                uid,
                user,
                origin: printable(&info.origin(&table)),
                devices: None,
                command: printable(&info.stat.name),
                cgroup: printable(info.path()),
                start: info.stat.start,
            });
        }
        Ok(snapshot)
    }

    /// Reads the users with a job from all sources. A broken record counts as a job of its user.
    fn read_jobs(&mut self, config: &Config) -> Result<(), Error> {
        for uid in config.registry.list_users()? {
            let records = config.registry.read_user(&Trust::root(), uid);
            if !matches!(&records, Err(ReadError::NoRegistry))
                && !records.as_ref().is_ok_and(|records| records.broken.is_empty())
            {
                self.owners.insert(uid);
            }
            for record in records.map(|records| records.records).unwrap_or_default() {
                // The scheduler's own source reports its jobs.
                let LoginTarget::Cgroup(path) = &record.target else { continue };
                let lost = match ignore_gone(Mount::open()?.open_chain(path)) {
                    Ok(None) => continue,
                    Ok(Some(place)) => is_lost(place.dir()?, uid),
                    Err(_) => false,
                };
                if !lost {
                    self.owners.insert(uid);
                }
                self.jobs.push((path.to_string(), lost.then_some(uid)));
            }
        }
        for source in SourceName::ALL.into_iter().filter(|name| config.sources.contains(name)) {
            // Slurm skips jobs that take no logins, and jobs of another node's name.
            let skips_jobs = match source {
                SourceName::Slurm => true,
                SourceName::Registry | SourceName::Flux => false,
            };
            match query_scheduler(source, config) {
                Ok((running, report)) => {
                    self.owners.extend(running.into_iter().map(|(uid, _)| uid));
                    self.doubts.extend(report.broken.into_iter().chain(report.silent));
                    self.doubts.extend(report.skipped.into_iter().filter(|_| skips_jobs));
                }
                Err(SourceError::Absent(_) | SourceError::Unused(_)) => {}
                Err(error) => self.doubts.push(format!("{}: {error}", source.as_str())),
            }
        }
        Ok(())
    }

    /// Returns the processes of users who have no job.
    fn into_strays(mut self, user: Option<u32>) -> Vec<Stray> {
        let has_stray = |uid| !self.owners.contains(&uid) && user.is_none_or(|user| user == uid);
        self.outside.retain(|process| has_stray(process.uid));
        self.outside
    }
}

/// Returns whether a scheduler has given the cgroup of this user's record to another account's job. It
/// has not if the user still has a process there besides logins: an ended process cannot be restored.
/// Without root's rights it returns false.
fn is_lost(dir: &Dir, user: u32) -> bool {
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    let occupants = Occupants::read(dir, user)
        .and_then(|occupants| occupants.require_no_strangers(dir, deadline));
    Uid::effective().is_root()
        && matches!(occupants, Err(cgroup::Error::UnexpectedState(_)))
        && matches!(has_job_process(dir, user, deadline), Ok(false))
}

/// A process with its cgroups.
#[derive(Debug)]
struct ProcessInfo {
    process: Process,
    stat: processes::Stat,
    /// Empty if the path is too long for the kernel to show.
    membership: Membership,
    /// The directory of a scheduler's job that it is in, in any hierarchy.
    job: Option<String>,
}

impl ProcessInfo {
    /// Reads a process; `None` if it is gone, or a zombie that its parent has not reaped.
    fn read(pid: i32, flux: Option<u32>) -> Option<Self> {
        let proc = Proc::host();
        let (stat, process) =
            (processes::read_stat(&proc, pid).ok()?, proc.read_process(pid).ok()?);
        let membership = Membership::read(pid).ok().or_else(|| Membership::parse(""))?;
        let threads =
            || processes::list_numbers::<i32>(&proc.dir(pid).join("task")).map(Iterator::count);
        // Another start time means that the number has passed to another process meanwhile.
        let is_same = read_start_ticks(pid) == Some(stat.start);
        let has_ended = process.ended && threads().is_ok_and(|threads| threads < 2);
        let legacy = || membership.v1_hierarchies().find_map(|(_, path)| job_dir(path, flux));
        let job = membership.unified().and_then(|path| job_dir(path, flux)).or_else(legacy);
        let job = job.map(str::to_owned);
        (is_same && !has_ended).then_some(Self { process, stat, membership, job })
    }

    fn path(&self) -> &str {
        self.membership.unified().unwrap_or("/")
    }

    fn is_root(&self) -> bool {
        matches!(self.process.uids, [0, ..])
    }

    /// Returns whether it is a process that a scheduler runs in a job's directory while the job exists:
    /// a step daemon, or an IMP.
    fn is_job_daemon(&self, flux: Option<u32>) -> bool {
        let is_step_daemon = || {
            let exe = fs::read_link(Proc::host().dir(self.process.pid).join("exe"));
            exe.is_ok_and(|exe| exe.to_string_lossy().contains("/slurmstepd"))
        };
        flux.is_some_and(|flux| is_imp(&self.process, flux)) || (self.is_root() && is_step_daemon())
    }

    /// Returns the origin of the process, or `unknown`.
    fn origin(&self, table: &BTreeMap<i32, Self>) -> String {
        let path = self.path();
        let mut names = path.rsplit('/');
        let unit = names.find(|name| name.ends_with(".service") || name.ends_with(".scope"));
        let unit = unit.unwrap_or_default();
        let own_depth = Proc::host().read_current().map_or(0, |own| own.namespaces);
        let job = self.job.as_ref().and_then(|job| job.rsplit('/').next());
        let ancestors =
            || std::iter::successors(Some(self), |info| table.get(&info.stat.parent)).take(64);
        let is_root_sshd = |info: &Self| info.is_root() && is_sshd_process(info.process.pid);
        match unit {
            _ if job.is_some() => format!("ended job {}", job.unwrap_or_default()),
            _ if self.process.namespaces > own_depth => "container".into(),
            _ if path.contains("/user@") => format!("service manager {unit}"),
            _ if path.starts_with("/user.slice/") => format!("session {unit}"),
            "cron.service" | "crond.service" | "fcron.service" => "cron".into(),
            "atd.service" => "at".into(),
            _ if ancestors().any(is_root_sshd) => "ssh".into(),
            "" if read_audit_number(self.process.pid, "loginuid").is_some() => {
                "left by a login".into()
            }
            "" => "unknown".into(),
            unit => format!("unit {unit}"),
        }
    }
}

/// Returns a path and its parents, the longest last.
fn levels(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]).skip(1);
    ends.filter_map(|end| path.get(..end))
}

/// Returns the directory of the job that a path is in, by the names that Slurm and Flux give to cgroups.
/// In a user's slice it accepts only units of the account that Flux runs as: users can create cgroups
/// with any name there.
fn job_dir(path: &str, flux: Option<u32>) -> Option<&str> {
    let mut levels = levels(path);
    if path.starts_with("/user.slice/") {
        return levels.find(|level| flux.is_some_and(|flux| unit_at(level, flux).is_some()));
    }
    let name = |level: &str| level.rsplit('/').next().unwrap_or_default().to_owned();
    levels.find(|level| name(level).contains("slurm"))?;
    levels.find(|level| is_slurm_job(&name(level)))
}

/// Returns whether a name is that of a Slurm job's directory: `job_7`, or its SLUID (26.05), which is
/// `s` and 13 digits of base 32.
fn is_slurm_job(name: &str) -> bool {
    let digit =
        |byte: u8| byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte));
    let sluid = name.strip_prefix('s').is_some_and(|id| id.len() == 13 && id.bytes().all(digit));
    sluid || name.strip_prefix("job_").is_some_and(|id| id.parse::<u32>().is_ok())
}

/// Returns the service of the system that a path is in.
fn system_service(path: &str) -> Option<&str> {
    levels(path).find(|level| level.starts_with("/system.slice/") && level.ends_with(".service"))
}

/// The first uid of people if login.defs(5) has none.
const DEFAULT_UID_MIN: u32 = 1000;
/// The uids of the account `nobody` (systemd's UIDS-GIDS).
const NOBODY_UIDS: std::ops::RangeInclusive<u32> = 65_534..=65_535;

/// A filter for the accounts whose processes may be strays: people who are not exempt.
struct AccountFilter {
    uid_min: u32,
    exempt: BTreeSet<u32>,
    exempt_groups: Vec<Gid>,
    /// The accounts that were looked up; a name for those that may have strays.
    names: BTreeMap<u32, Option<String>>,
}

impl AccountFilter {
    /// Reads the exempt accounts and groups from the configuration and from sshd's PAM stack.
    fn read(config: &Config) -> Result<Self, Error> {
        let mut exempt: BTreeSet<u32> = slices::exempt_accounts(config)?.into_keys().collect();
        let mut groups = config.exempt_groups.clone();
        let ours = read_session_lines().into_iter().filter(|line| line.ours.is_some());
        for settings in ours.filter_map(|line| Settings::parse(&line.arguments).ok()) {
            exempt.extend(settings.exempt_uids);
            groups.extend(settings.exempt_groups);
        }
        let groups: Vec<_> =
            groups.iter().map(|name| accounts::find_group(name)).collect::<Result<_, _>>()?;
        let exempt_groups = groups.into_iter().flatten().map(|group| group.gid).collect();
        Ok(Self { uid_min: read_uid_min(), exempt, exempt_groups, names: BTreeMap::new() })
    }

    /// Returns uid and name of the owner of a process, unless the account is exempt. A uid without an
    /// account is in use in a user namespace, whose owner the slice or the login names.
    fn find_owner(&mut self, info: &ProcessInfo) -> Option<(u32, String)> {
        let [uid, ..] = info.process.uids;
        if self.is_exempt(uid) {
            return None;
        }
        if let Some(name) = self.name_unless_exempt(uid) {
            return Some((uid, name));
        }
        let slice_owner = || {
            let rest = info.path().strip_prefix("/user.slice/user-")?;
            rest.split_once(".slice")?.0.parse().ok()
        };
        let has_no_account = matches!(User::from_uid(Uid::from_raw(uid)), Ok(None));
        let login_uid = || read_audit_number(info.process.pid, "loginuid");
        let owner = slice_owner().or_else(login_uid).filter(|_| has_no_account)?;
        Some((owner, self.name_unless_exempt(owner)?))
    }

    fn is_exempt(&self, uid: u32) -> bool {
        let is_reserved = uid < self.uid_min || uid == u32::MAX || NOBODY_UIDS.contains(&uid);
        is_reserved || self.exempt.contains(&uid)
    }

    /// Returns the name unless the account is exempt. An account that cannot be looked up counts as
    /// exempt.
    fn name_unless_exempt(&mut self, uid: u32) -> Option<String> {
        if !self.names.contains_key(&uid) {
            let find = || {
                let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
                let groups = getgrouplist(&CString::new(user.name.clone()).ok()?, user.gid).ok()?;
                let is_in_group = groups.iter().any(|gid| self.exempt_groups.contains(gid));
                (!is_in_group && !self.is_exempt(uid)).then_some(user.name)
            };
            let name = find();
            self.names.insert(uid, name);
        }
        self.names.get(&uid).cloned().flatten()
    }
}

/// Returns the first uid of people on this node.
pub(super) fn read_uid_min() -> u32 {
    // Its comments may be in any encoding.
    let defs = fs::read("/etc/login.defs").unwrap_or_default();
    parse_uid_min(&String::from_utf8_lossy(&defs)).unwrap_or(DEFAULT_UID_MIN)
}

/// Parses `UID_MIN` of login.defs(5).
fn parse_uid_min(defs: &str) -> Option<u32> {
    defs.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "UID_MIN").then(|| words.next()?.parse().ok())?
    })
}

/// Finds the devices that a process has open and that a closed slice would refuse; `None` if they cannot
/// be read. The device numbers decide; a path is shown if it leads to the same numbers here.
fn find_refused_devices(pid: i32, allowed: &[DeviceRule]) -> Option<Vec<String>> {
    let (dir, tree) = (Proc::host().dir(pid).join("fd"), Tree::host());
    let mut names = BTreeSet::new();
    for link in
        processes::list_numbers::<u32>(&dir).ok()?.flatten().map(|fd| dir.join(fd.to_string()))
    {
        let Some(node) = read_device(&link) else { continue };
        let allows = |rule: &DeviceRule| {
            (rule.kind(), rule.major()) == (node.kind, node.major)
                && rule.minor().is_none_or(|minor| minor == node.minor)
        };
        if !allowed.iter().any(allows) {
            let path = fs::read_link(&link).unwrap_or_default().to_string_lossy().into_owned();
            let plain = format!("{}:{}:{}", node.kind.letter(), node.major, node.minor);
            names.insert(if tree.read_node(&path) == Ok(node) { printable(&path) } else { plain });
        }
    }
    Some(names.into_iter().collect())
}

/// Reads the device of a process's descriptor. It opens no device, and queries no file system.
fn read_device(link: &Path) -> Option<DeviceNode> {
    let file = open(link, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let status = read_file_status(file.as_fd()).ok()?;
    let kind = match SFlag::from_bits_truncate(status.mode) & SFlag::S_IFMT {
        SFlag::S_IFCHR => DeviceType::Char,
        SFlag::S_IFBLK => DeviceType::Block,
        _ => return None,
    };
    let number = |value: u64| u32::try_from(value).ok();
    Some(DeviceNode {
        kind,
        major: number(major(status.device))?,
        minor: number(minor(status.device))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_job_is_recognized_by_name() {
        let scope = "/system.slice/node_slurmstepd.scope";
        for (path, dir) in [
            (format!("{scope}/job_7/step_0/user/task_0"), format!("{scope}/job_7")),
            (format!("{scope}/sEKNKTV3WPV500/step_batch"), format!("{scope}/sEKNKTV3WPV500")),
            ("/slurm_node/uid_1001/job_7/step_extern".into(), "/slurm_node/uid_1001/job_7".into()),
            (
                "/user.slice/user-5.slice/user@5.service/app.slice/imp-shell-0-f2.service/x".into(),
                "/user.slice/user-5.slice/user@5.service/app.slice/imp-shell-0-f2.service".into(),
            ),
        ] {
            assert_eq!(job_dir(&path, Some(5)), Some(&*dir), "{path}");
        }
        for path in [
            "/",
            "/user.slice/user-5.slice/session-1.scope",
            "/job_7",
            "/slurm/job_x",
            "/slurmd",
            "/a_slurmstepd.scope/system",
            "/a_slurmstepd.scope/sEKNKTV3WPV50",
            "/sEKNKTV3WPV500",
            "/a_slurmstepd.scope/sEKNKTV3WPVL00",
        ] {
            assert_eq!(job_dir(path, Some(5)), None, "{path}");
        }
    }

    /// Users name their own units, and the cgroups inside of them.
    #[test]
    fn slice_of_user_has_no_jobs() {
        for path in [
            "/user.slice/user-6.slice/user@6.service/imp-shell-0-f2.service",
            "/user.slice/user-6.slice/user@6.service/app.slice/x.service/slurm/job_7",
        ] {
            assert_eq!((job_dir(path, Some(5)), job_dir(path, None)), (None, None), "{path}");
        }
    }

    #[test]
    fn service_of_system_is_recognized_by_unit() {
        let service = system_service("/system.slice/a.service/x");
        assert_eq!(service, Some("/system.slice/a.service"));
        assert!(system_service("/system.slice/system-a.slice/a@1.service").is_some());
        for path in ["/system.slice/a.services", "/system.slice/a.scope", "/a.service", "/"] {
            assert_eq!(system_service(path), None, "{path}");
        }
    }

    #[test]
    fn uid_min_of_login_defs_is_parsed() {
        assert_eq!(parse_uid_min("#UID_MIN 5\nUID_MAX 9\nUID_MIN\t\t 500\n"), Some(500));
        assert_eq!(parse_uid_min("UID_MIN x\n"), None);
        assert_eq!(parse_uid_min(""), None);
    }

    #[test]
    fn device_of_open_descriptor_is_found() {
        let file = std::fs::File::open("/dev/zero").unwrap();
        let pid = nix::unistd::getpid().as_raw();
        let zero = "/dev/zero".to_owned();
        assert!(find_refused_devices(pid, &[]).unwrap().contains(&zero));
        let rule: DeviceRule = "c:1:-1:r".parse().unwrap();
        assert!(!find_refused_devices(pid, &[rule]).unwrap().contains(&zero));
        drop(file);
    }
}
