//! `strays`: what is left on the node of users who have no job there.

use super::ending::{Identity, hunt, is_sshd_process, number, runs_job, signal_all, started};
use super::list::running;
use super::placed::lineage;
use super::{Conf, Error, Output, PATIENCE, accounts, require_root, slices};
use clap::Args;
use helper::devices::{DeviceNode, Resolver, Tree};
use helper::records::{LoginTarget, ReadError};
use helper::sources::{SourceError, account_uid, processes};
use helper::stack::{Entry, Group as Stack, read_entries};
use helper::{Config, printable};
use kernel::cgroup::{self, Dir, Membership, Mount, Occupants, unless_gone};
use kernel::log::{Line, Severity};
use kernel::proc::{Proc, Process};
use kernel::sys::file::read_file_status;
use kernel::trust::Trust;
use module::{Settings, is_off};
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

/// What a process is given to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// Pause between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(100);

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
        joined(&config).map_err(|why| Error::failed("end", "strays", why))?;
        ended = end(&config, user)?;
    }
    let look = Snapshot::read(&config)?;
    look.unsure.iter().for_each(|text| output.warn(text));
    let unsure = !look.unsure.is_empty();
    let open =
        slices::closed_slice_rules(&config, &Resolver::new(Tree::host(), config.devices.clone()));
    let mut strays = look.strays(user);
    strays.iter_mut().for_each(|stray| stray.devices = refused(stray.pid, &open));
    if options.json {
        output.json(&serde_json::json!({ "schema": 1, "ended": ended, "strays": strays }))?;
    } else {
        let head = ["PID", "USER", "ORIGIN", "DEVICES", "COMMAND", "CGROUP"];
        output.table(head, strays.iter().map(Stray::row))?;
    }
    Ok(match () {
        () if unsure => super::EXIT_FAILED,
        () if strays.is_empty() => super::EXIT_FINE,
        () => super::EXIT_FINDINGS,
    })
}

/// How many there are; nothing where it cannot be told who has a job.
/// Errors: as [`Snapshot::read`].
pub(super) fn count(config: &Config) -> Result<Option<usize>, Error> {
    let look = Snapshot::read(config)?;
    Ok(if look.unsure.is_empty() { Some(look.strays(None).len()) } else { None })
}

/// What an epilog asks for: ends the strays of a user who had a job here. Where logins join no
/// jobs, it says so, and that is all.
/// Errors: as [`end`], and where processes are left.
pub(super) fn end_all(config: &Config, uid: u32, output: &mut Output<'_>) -> Result<(), Error> {
    if let Err(why) = joined(config) {
        output.warn(format_args!("warning: strays are not ended: {why}"));
        return Ok(());
    }
    end(config, Some(uid))?;
    match Snapshot::read(config)?.strays(Some(uid)).len() {
        0 => Ok(()),
        count => Err(Error::failed("end", "strays", format!("{count} of uid {uid} are left"))),
    }
}

/// The session lines of sshd's stack.
fn lines() -> Vec<Entry> {
    read_entries(Path::new("/"), "sshd", Stack::Session).unwrap_or_default()
}

/// Whether logins are taken into jobs on this node. Where they are not, or where users without a job may
/// log in, somebody is outside by the admin's will.
fn joined(config: &Config) -> Result<(), &'static str> {
    let opens = |line: &Entry| line.arguments.iter().any(|word| word == "action_no_jobs=ignore");
    match lines().iter().any(|line| line.is_fit() && !line.is_observing() && !opens(line)) {
        _ if config.missing_enforce_path().is_some() => {
            Err("logins are not judged on this node (enforce)")
        }
        _ if is_off() => Err("/run/job-adopt/off is there"),
        true => Ok(()),
        false => Err("no session line of sshd's PAM stack takes all logins into jobs"),
    }
}

/// Ends the strays of a user, or of all, for as long as they have no job; returns how many were
/// ended. What is left shows in the next look.
/// Errors: [`Error::Failed`] where it cannot be told who has a job: nobody's processes are ended
/// then.
fn end(config: &Config, user: Option<u32>) -> Result<usize, Error> {
    let find = || -> Result<Vec<Identity>, Error> {
        joined(config).map_err(|why| Error::failed("end", "strays", why))?;
        let look = Snapshot::read(config)?;
        match look.unsure.first() {
            Some(why) => Err(Error::failed("tell", "who has a job", why)),
            None => Ok(look.strays(user).iter().map(|one| (one.pid, one.start)).collect()),
        }
    };
    let (began, mut told, mut left) = (Instant::now(), BTreeSet::new(), find()?);
    while !left.is_empty() && began.elapsed() < GRACE {
        let news: Vec<_> = left.iter().copied().filter(|one| told.insert(*one)).collect();
        for which in [Signal::SIGTERM, Signal::SIGCONT] {
            // One that takes no signal keeps no other from its end, and shows below.
            let _ = signal_all(news.iter().copied(), which);
        }
        std::thread::sleep(PAUSE);
        left = find()?;
    }
    let mut stopped = BTreeSet::new();
    let hunted = hunt(|_| find(), began + PATIENCE, &mut stopped);
    // Some may belong to users who have a job by now.
    let continued = signal_all(stopped.iter().copied(), Signal::SIGCONT);
    let left = hunted.and_then(|left| continued.map(|()| left))?;
    told.extend(stopped);
    told.retain(|one| !left.contains(one));
    if !(told.is_empty() && left.is_empty()) {
        let line = Line::new(Severity::Info).with("action", "strays").with("ended", told.len());
        let user = user.map_or_else(|| "all".to_owned(), |uid| uid.to_string());
        super::log(line.with("left", left.len()).with("uid", user));
    }
    Ok(told.len())
}

/// A process of a user outside of their jobs, as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct Stray {
    pid: i32,
    pub(super) uid: u32,
    user: String,
    /// How it came there, as far as that can be told.
    origin: String,
    /// The devices that a closed slice would refuse; only who may look into the process can tell.
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

/// What is outside of jobs at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The processes, also of users who have a job.
    pub(super) outside: Vec<Stray>,
    /// Who has a job.
    owners: BTreeSet<u32>,
    /// The cgroups of the registry's jobs, each with the user who has lost it to another job.
    jobs: Vec<(String, Option<u32>)>,
    /// Why there may be jobs that nobody has told of.
    unsure: Vec<String>,
}

impl Snapshot {
    /// First the processes are read, then the jobs: what a job started in between is not among them.
    /// Errors: [`Error::Failed`] for what cannot be read of accounts, processes or records.
    pub(super) fn read(config: &Config) -> Result<Self, Error> {
        let (mut people, mut look, ours) = (People::of(config)?, Self::default(), lineage());
        let flux = account_uid(&config.flux_user).ok();
        let numbers = processes::list_numbers::<i32>(Path::new("/proc"));
        let numbers = numbers.map_err(|error| Error::failed("list", "/proc", error))?.flatten();
        let table: BTreeMap<i32, Seen> =
            numbers.filter_map(|pid| Some((pid, Seen::of(pid, flux)?))).collect();
        let living = table.values().filter(|one| one.runs_job(flux));
        let living: BTreeSet<&str> = living.filter_map(|one| one.job.as_deref()).collect();
        let roots = table.values().filter(|one| one.is_roots());
        let services: BTreeSet<&str> = roots.filter_map(|one| service(one.path())).collect();
        look.ask(config)?;
        for one in table.values() {
            let Some((uid, user)) = people.owner(one) else { continue };
            if one.job.as_deref().is_some_and(|job| living.contains(job)) {
                look.owners.insert(uid);
                continue;
            }
            // A service of the system without any process of root's runs as this account by the
            // admin's will.
            let is_service = service(one.path()).is_some_and(|unit| !services.contains(unit));
            let is_jobs = look
                .jobs
                .iter()
                .any(|(job, lost)| *lost != Some(uid) && is_within(one.path(), job));
            if is_service || is_jobs || ours.contains(&one.process.pid) {
                continue;
            }
            look.outside.push(Stray {
                pid: one.process.pid,
                uid,
                user,
                origin: printable(&one.origin(&table)),
                devices: None,
                command: printable(&one.stat.name),
                cgroup: printable(one.path()),
                start: one.stat.start,
            });
        }
        Ok(look)
    }

    /// Asks who has a job. What cannot be read of a user's records may stand for one.
    fn ask(&mut self, config: &Config) -> Result<(), Error> {
        for uid in config.registry.list_users()? {
            let found = config.registry.read_user(&Trust::root(), uid);
            if !matches!(&found, Err(ReadError::NoRegistry))
                && !found.as_ref().is_ok_and(|found| found.broken.is_empty())
            {
                self.owners.insert(uid);
            }
            for record in found.map(|found| found.records).unwrap_or_default() {
                // A scheduler tells itself which of its jobs are there.
                let LoginTarget::Cgroup(path) = &record.target else { continue };
                let lost = match unless_gone(Mount::open()?.place(path)) {
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
        for source in [SourceName::Slurm, SourceName::Flux] {
            match running(source, config) {
                _ if !config.sources.contains(&source) => {}
                Ok((running, found)) => {
                    self.owners.extend(running.into_iter().map(|(uid, _)| uid));
                    self.unsure.extend(found.broken.into_iter().chain(found.silent));
                    // Jobs that take no logins, and those of another node's name.
                    self.unsure
                        .extend(found.skipped.into_iter().filter(|_| source == SourceName::Slurm));
                }
                Err(SourceError::Absent(_)) => {}
                Err(error) => self.unsure.push(format!("{}: {error}", source.as_str())),
            }
        }
        Ok(())
    }

    /// Those of users who have no job.
    fn strays(mut self, user: Option<u32>) -> Vec<Stray> {
        let is_one = |uid| !self.owners.contains(&uid) && user.is_none_or(|user| user == uid);
        self.outside.retain(|stray| is_one(stray.uid));
        self.outside
    }
}

/// Returns whether a scheduler has given the cgroup of this user's record to another account's job. A user
/// who still runs something there besides logins has not lost it: what is ended does not come back. Only
/// root can tell.
fn is_lost(dir: &Dir, user: u32) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let occupants = Occupants::read(dir, user).and_then(|known| known.require(dir, deadline));
    Uid::effective().is_root()
        && matches!(occupants, Err(cgroup::Error::Wrong(_)))
        && matches!(runs_job(dir, user, deadline), Ok(false))
}

/// A process, as it is read for this.
#[derive(Debug)]
struct Seen {
    process: Process,
    stat: processes::Stat,
    /// Nowhere, where the kernel does not tell so long a path.
    membership: Membership,
    /// The directory of a scheduler's job that it is in, in any hierarchy.
    job: Option<String>,
}

impl Seen {
    /// `None` where it is gone, or over: then only its parent has not heard of that.
    fn of(pid: i32, flux: Option<u32>) -> Option<Self> {
        let proc = Proc::here();
        let (stat, process) = (processes::read_stat(&proc, pid).ok()?, proc.process(pid).ok()?);
        let membership = Membership::of(pid).ok().or_else(|| Membership::parse(""))?;
        let threads =
            || processes::list_numbers::<i32>(&proc.dir(pid).join("task")).map(Iterator::count);
        // Else the number has passed to another meanwhile.
        let same = started(pid) == Some(stat.start);
        let over = process.ended && threads().is_ok_and(|threads| threads < 2);
        let legacy = || membership.legacy().find_map(|(_, path)| job_dir(path, flux));
        let job = membership.unified().and_then(|path| job_dir(path, flux)).or_else(legacy);
        let job = job.map(str::to_owned);
        (same && !over).then_some(Self { process, stat, membership, job })
    }

    fn path(&self) -> &str {
        self.membership.unified().unwrap_or("/")
    }

    fn is_roots(&self) -> bool {
        matches!(self.process.uids, [0, ..])
    }

    /// Whether it is what a scheduler has running in a job's directory for as long as there is a
    /// job: a step daemon, or an IMP.
    fn runs_job(&self, flux: Option<u32>) -> bool {
        let daemon = || {
            let exe = fs::read_link(Proc::here().dir(self.process.pid).join("exe"));
            exe.is_ok_and(|exe| exe.to_string_lossy().contains("/slurmstepd"))
        };
        flux.is_some_and(|flux| is_imp(&self.process, flux)) || (self.is_roots() && daemon())
    }

    /// How it came where it is, as far as that can be told.
    fn origin(&self, table: &BTreeMap<i32, Self>) -> String {
        let path = self.path();
        let mut names = path.rsplit('/');
        let unit = names.find(|name| name.ends_with(".service") || name.ends_with(".scope"));
        let unit = unit.unwrap_or_default();
        let own = Proc::here().own().map_or(0, |own| own.namespaces);
        let job = self.job.as_ref().and_then(|job| job.rsplit('/').next());
        let above =
            || std::iter::successors(Some(self), |one| table.get(&one.stat.parent)).take(64);
        match unit {
            _ if job.is_some() => format!("ended job {}", job.unwrap_or_default()),
            _ if self.process.namespaces > own => "container".into(),
            _ if path.contains("/user@") => format!("service manager {unit}"),
            _ if path.starts_with("/user.slice/") => format!("session {unit}"),
            "cron.service" | "crond.service" | "fcron.service" => "cron".into(),
            "atd.service" => "at".into(),
            _ if above().any(|one| one.is_roots() && is_sshd_process(one.process.pid)) => {
                "ssh".into()
            }
            "" if number(self.process.pid, "loginuid").is_some() => "left by a login".into(),
            "" => "unknown".into(),
            unit => format!("unit {unit}"),
        }
    }
}

/// A path, and those above it, the longest last.
fn levels(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]).skip(1);
    ends.filter_map(|end| path.get(..end))
}

/// The directory of a job that a path is in or below, by how Slurm and Flux name their cgroups. In
/// slices of theirs users make any name, but for those of the account that Flux runs as.
fn job_dir(path: &str, flux: Option<u32>) -> Option<&str> {
    let mut levels = levels(path);
    if path.starts_with("/user.slice/") {
        return levels.find(|level| flux.is_some_and(|flux| unit_at(level, flux).is_some()));
    }
    let name = |level: &str| level.rsplit('/').next().unwrap_or_default().to_owned();
    levels.find(|level| name(level).contains("slurm"))?;
    levels.find(|level| is_slurms(&name(level)))
}

/// Whether Slurm calls the directory of a job so: `job_7`, or by its SLUID (26.05), which is `s`
/// and 13 digits of base 32.
fn is_slurms(name: &str) -> bool {
    let digit =
        |byte: u8| byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte));
    let sluid = name.strip_prefix('s').is_some_and(|id| id.len() == 13 && id.bytes().all(digit));
    sluid || name.strip_prefix("job_").is_some_and(|id| id.parse::<u32>().is_ok())
}

/// The service of the system that a path is in or below.
fn service(path: &str) -> Option<&str> {
    levels(path).find(|level| level.starts_with("/system.slice/") && level.ends_with(".service"))
}

/// Where login.defs(5) says nothing.
const UID_MIN: u32 = 1000;
/// The numbers of nobody (systemd's UIDS-GIDS).
const NOBODYS: std::ops::RangeInclusive<u32> = 65_534..=65_535;

/// The accounts whose processes may be strays.
struct People {
    first: u32,
    exempt: BTreeSet<u32>,
    groups: Vec<Gid>,
    /// Those that were asked for; a name for who may have strays.
    names: BTreeMap<u32, Option<String>>,
}

impl People {
    /// Exempt is who the configuration says, or sshd's PAM stack.
    fn of(config: &Config) -> Result<Self, Error> {
        let defs = fs::read_to_string("/etc/login.defs").unwrap_or_default();
        let mut exempt: BTreeSet<u32> = slices::exempt_accounts(config)?.into_keys().collect();
        let mut groups = config.exempt_groups.clone();
        let ours = lines().into_iter().filter(|line| line.ours.is_some());
        for settings in ours.filter_map(|line| Settings::parse(&line.arguments).ok()) {
            exempt.extend(settings.exempt_uids);
            groups.extend(settings.exempt_groups);
        }
        let groups: Vec<_> =
            groups.iter().map(|name| accounts::find_group(name)).collect::<Result<_, _>>()?;
        let groups = groups.into_iter().flatten().map(|group| group.gid).collect();
        let names = BTreeMap::new();
        Ok(Self { first: uid_min(&defs).unwrap_or(UID_MIN), exempt, groups, names })
    }

    /// Whose process it is, and the name, where that is a person who is not exempt. A number without
    /// an account stands for somebody in a user namespace: of whom the slice or the login tells.
    fn owner(&mut self, one: &Seen) -> Option<(u32, String)> {
        let [uid, ..] = one.process.uids;
        if self.is_exempt(uid) {
            return None;
        }
        if let Some(name) = self.bound(uid) {
            return Some((uid, name));
        }
        let slice = || {
            let rest = one.path().strip_prefix("/user.slice/user-")?;
            rest.split_once(".slice")?.0.parse().ok()
        };
        let nobodys = matches!(User::from_uid(Uid::from_raw(uid)), Ok(None));
        let owner = slice().or_else(|| number(one.process.pid, "loginuid")).filter(|_| nobodys)?;
        Some((owner, self.bound(owner)?))
    }

    fn is_exempt(&self, uid: u32) -> bool {
        uid < self.first || uid == u32::MAX || NOBODYS.contains(&uid) || self.exempt.contains(&uid)
    }

    /// The name of a person who is not exempt. Who cannot be looked up is nobody's to end.
    fn bound(&mut self, uid: u32) -> Option<String> {
        if !self.names.contains_key(&uid) {
            let find = || {
                let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
                let groups = getgrouplist(&CString::new(user.name.clone()).ok()?, user.gid).ok()?;
                let exempt = groups.iter().any(|gid| self.groups.contains(gid));
                (!exempt && !self.is_exempt(uid)).then_some(user.name)
            };
            let name = find();
            self.names.insert(uid, name);
        }
        self.names.get(&uid).cloned().flatten()
    }
}

/// `UID_MIN` of login.defs(5).
fn uid_min(defs: &str) -> Option<u32> {
    defs.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "UID_MIN").then(|| words.next()?.parse().ok())?
    })
}

/// The devices that a process has open and a closed slice would refuse; `None` where that cannot be
/// told. The numbers decide, and a path is shown where it leads to them here.
fn refused(pid: i32, open: &[DeviceRule]) -> Option<Vec<String>> {
    let (dir, tree) = (Proc::here().dir(pid).join("fd"), Tree::host());
    let mut names = BTreeSet::new();
    for link in
        processes::list_numbers::<u32>(&dir).ok()?.flatten().map(|fd| dir.join(fd.to_string()))
    {
        let Some(node) = device(&link) else { continue };
        let lets = |rule: &DeviceRule| {
            (rule.kind(), rule.major()) == (node.kind, node.major)
                && rule.minor().is_none_or(|minor| minor == node.minor)
        };
        if !open.iter().any(lets) {
            let path = fs::read_link(&link).unwrap_or_default().to_string_lossy().into_owned();
            let plain = format!("{}:{}:{}", node.kind.letter(), node.major, node.minor);
            names.insert(if tree.read_node(&path) == Ok(node) { printable(&path) } else { plain });
        }
    }
    Some(names.into_iter().collect())
}

/// The device behind a descriptor of a process's. It is not opened, and no file system is asked.
fn device(link: &Path) -> Option<DeviceNode> {
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
    fn directories_of_jobs_are_known_by_their_names() {
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
    fn a_users_own_slice_has_no_jobs() {
        for path in [
            "/user.slice/user-6.slice/user@6.service/imp-shell-0-f2.service",
            "/user.slice/user-6.slice/user@6.service/app.slice/x.service/slurm/job_7",
        ] {
            assert_eq!((job_dir(path, Some(5)), job_dir(path, None)), (None, None), "{path}");
        }
    }

    #[test]
    fn services_are_told_by_their_units() {
        assert_eq!(service("/system.slice/a.service/x"), Some("/system.slice/a.service"));
        assert!(service("/system.slice/system-a.slice/a@1.service").is_some());
        for path in ["/system.slice/a.services", "/system.slice/a.scope", "/a.service", "/"] {
            assert_eq!(service(path), None, "{path}");
        }
    }

    #[test]
    fn people_begin_where_login_defs_says() {
        assert_eq!(uid_min("#UID_MIN 5\nUID_MAX 9\nUID_MIN\t\t 500\n"), Some(500));
        assert_eq!(uid_min("UID_MIN x\n"), None);
        assert_eq!(uid_min(""), None);
    }

    #[test]
    fn a_device_is_seen_without_a_driver_hearing_of_it() {
        let file = std::fs::File::open("/dev/zero").unwrap();
        let own = nix::unistd::getpid().as_raw();
        assert!(refused(own, &[]).unwrap().contains(&"/dev/zero".to_owned()));
        let open: DeviceRule = "c:1:-1:r".parse().unwrap();
        assert!(!refused(own, &[open]).unwrap().contains(&"/dev/zero".to_owned()));
        drop(file);
    }
}
