//! `list`: shows the jobs of this node, their logins and their devices.

use clap::Args;
use command::accounts::{self, UserNames};
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE};
use command::options::{Conf, QUERY_TIMEOUT};
use command::output::Output;
use facts::cgroup_members::{list_members, read_processes};
use facts::jobs::{NodeJob, NodeJobs, Records, doubt_unread_record, find_cgroup};
use facts::limits_in_force::{LIMIT_HEADS, LimitsInForce, show_limits};
use facts::process::Process;
use facts::usage::{USAGE_HEADS, Usage};
use helper::jobs::records::{LoginTarget, Record, UnusableFile};
use helper::node::Tree;
use helper::{Config, contain_by_record, printable};
use kernel::bpf::{self, AttachTarget};
use kernel::cgroup::{self, CgroupChain, Dir, Mount, Occupants, find_frozen};
use kernel::trust::Trust;
use nix::unistd::Uid;
use protocol::{CgroupPath, Containment, LeafName, Placement, SourceName};
use serde::Serialize;
use std::time::Instant;

/// Show the jobs of this node
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 fine, 1 a record is broken or its cgroup reused, 3 cannot tell."
)]
pub struct Options {
    /// Only this user, by name or number
    #[arg(long)]
    user: Option<String>,
    /// Show also what the kernel holds each job to
    #[arg(long)]
    verbose: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

/// Runs `list`: shows the jobs of records and of schedulers. Returns [`EXIT_FAILED`] if the
/// list may be incomplete, and [`EXIT_FINDINGS`] for a broken record, or for a record whose cgroup has
/// another job by now.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let config = options.conf.read()?;
    let user = options
        .user
        .as_deref()
        .map(accounts::resolve_uid)
        .transpose()?;
    let list = JobList::read(&config, user, output)?;
    let status = list.status();
    if options.json {
        let broken: Vec<String> = list.broken.iter().map(ToString::to_string).collect();
        output.json(&serde_json::json!({ "schema": 1, "jobs": list.jobs, "broken": broken }))?;
    } else if list.jobs.is_empty() {
        let whose = match &options.user {
            Some(name) => format!(" of {}", printable(name)),
            None => String::new(),
        };
        let doubt = if status == EXIT_FINE {
            ""
        } else {
            "; part of the list may be missing"
        };
        writeln!(output.out, "no jobs{whose} on this node{doubt}")?;
    } else {
        let columns = if options.verbose {
            MoreColumns::Limits
        } else if list.jobs.iter().any(|job| !job.login_usage.is_empty()) {
            MoreColumns::Usage
        } else {
            MoreColumns::None
        };
        write_table(&list.jobs, columns, output)?;
    }
    Ok(status)
}

/// The jobs of a user, or of all users.
struct JobList {
    /// The registered ones first, of which each user's are together.
    jobs: Vec<ListedJob>,
    /// The broken records of jobs.
    broken: Vec<UnusableFile>,
    /// There may be jobs that are not known.
    is_doubtful: bool,
}

impl JobList {
    /// Reads the jobs, and warns of what is broken or not known.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the registry cannot be listed.
    fn read(config: &Config, user: Option<u32>, output: &mut Output<'_>) -> Result<Self, Error> {
        let users = match user {
            Some(uid) => vec![uid],
            None => config.registry.list_users()?,
        };
        let mut records = Records::read_of(&users, &config.registry, &Trust::root());
        let mut broken = Vec::new();
        for (_, file) in std::mem::take(&mut records.broken) {
            output.warn(&file);
            // Only the records of running jobs are findings; the others have a warning alone.
            if file.job.is_some() {
                broken.push(file);
            }
        }
        let mut found = NodeJobs::read_beside(records, config);
        // A list of one user's jobs misses only what may be that user's.
        found
            .doubts
            .retain(|doubt| user.is_none_or(|selected| doubt.owners.include(selected)));
        found
            .running
            .retain(|job| user.is_none_or(|selected| selected == job.uid));
        for doubt in &found.doubts {
            output.warn(&doubt.cause);
        }
        let mut list = Self {
            jobs: Vec::new(),
            broken,
            is_doubtful: !found.doubts.is_empty(),
        };
        let tree = Tree::host();
        for job in &found.running {
            list.jobs.push(ListedJob::from_running(job, &tree));
        }
        for record in &found.unfound {
            list.jobs.push(ListedJob::from_unfound(record, &tree));
        }
        list.jobs.sort_by_key(|job| {
            if job.is_registered {
                u64::from(job.uid)
            } else {
                u64::MAX
            }
        });
        list.add_names(config);
        for why in list.jobs.iter().flat_map(|job| &job.why) {
            output.warn(why);
        }
        Ok(list)
    }

    /// Adds the names of the users, and why the state of a job is unknown.
    fn add_names(&mut self, config: &Config) {
        let mut names = UserNames::default();
        for job in &mut self.jobs {
            job.user = names.name(job.uid);
            job.why.extend(job.explain_unknown(config));
        }
    }

    /// The exit status: [`EXIT_FAILED`] if a job is not known or could not be read, and [`EXIT_FINDINGS`] for a broken
    /// record or a reused cgroup.
    fn status(&self) -> u8 {
        if self.is_doubtful || self.jobs.iter().any(|job| job.is_unread) {
            EXIT_FAILED
        } else if !self.broken.is_empty() || self.jobs.iter().any(|job| job.state == REUSED) {
            EXIT_FINDINGS
        } else {
            EXIT_FINE
        }
    }
}

/// What a table has beside the columns of every job.
#[derive(Clone, Copy)]
enum MoreColumns {
    None,
    /// What the logins use.
    Usage,
    /// What the kernel holds the jobs to.
    Limits,
}

fn write_table(
    jobs: &[ListedJob],
    columns: MoreColumns,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    const HEAD: [&str; 8] = [
        "ID",
        "USER",
        "SOURCE",
        "STATE",
        "LOGINS",
        "PROCESSES",
        "DEVICES",
        "CGROUP",
    ];
    match columns {
        MoreColumns::None => output.table(HEAD, jobs.iter().map(ListedJob::row)),
        MoreColumns::Usage => {
            let rows = jobs
                .iter()
                .map(|job| with_usage(job.row(), job.login_usage.columns()));
            output.table(with_usage(HEAD, USAGE_HEADS), rows)
        }
        MoreColumns::Limits => {
            let rows = jobs
                .iter()
                .map(|job| with_limits(job.row(), show_limits(job.limits.as_ref())));
            output.table(with_limits(HEAD, LIMIT_HEADS), rows)
        }
    }
}

/// State of a record whose cgroup now belongs to another account's job.
const REUSED: &str = "reused";

/// A job as it is shown. Unknown values stay empty.
#[derive(Debug, Default, Serialize)]
struct ListedJob {
    id: String,
    uid: u32,
    user: String,
    source: &'static str,
    cgroup: Option<String>,
    via: Option<&'static str>,
    /// The number of connections, which only root can read.
    logins: Option<usize>,
    processes: Option<usize>,
    /// `enforce`, `inherit`, `none` or `unknown`.
    containment: &'static str,
    /// The number of entries of the allowlist, if one is enforced.
    devices: Option<usize>,
    /// `running`, `frozen`, `gone`, `reused`, or `unknown`, for example if a scheduler places the
    /// logins.
    state: &'static str,
    /// The reasons why one of these is unknown.
    why: Vec<String>,
    started: Option<i64>,
    ends: Option<i64>,
    /// The usage of the logins, if they have a separate cgroup.
    login_usage: Usage,
    /// What the kernel holds the job to, if that is known.
    limits: Option<LimitsInForce>,
    #[serde(skip)]
    is_registered: bool,
    /// Its cgroup could not be read.
    #[serde(skip)]
    is_unread: bool,
}

impl ListedJob {
    /// Describes a job that logins find. A scheduler places the logins of its job, also if there is a record.
    fn from_running(job: &NodeJob, tree: &Tree) -> Self {
        let mut listed = match &job.record {
            Some(record) => Self::from_record(record, tree),
            None => Self::unknown(job.id.to_string(), job.uid),
        };
        match &job.placement {
            Placement::Cgroup { path, leaf } => listed.read_registered_cgroup(path, leaf.as_ref()),
            Placement::Unit { .. } | Placement::Extern { .. } => listed.read_scheduled(job),
        }
        listed
    }

    /// Describes the job of a record of which logins find none.
    fn from_unfound(record: &Record, tree: &Tree) -> Self {
        let mut listed = Self::from_record(record, tree);
        match &record.target {
            LoginTarget::Cgroup(path) => {
                listed.read_registered_cgroup(path, record.leaf.as_ref());
                // What is in there may be left of a job that has ended.
                if ["running", "frozen"].contains(&listed.state) {
                    listed.state = "unknown";
                    listed.why.push(doubt_unread_record(record).cause);
                }
            }
            LoginTarget::Via(via) => listed.via = Some(via.as_str()),
        }
        listed
    }

    /// Describes the job of a record by what the record says. If its numbers are missing or do not hold any more, the
    /// containment is `unknown`, and `why` has the cause. The state is `unknown` until the cgroup is read.
    fn from_record(record: &Record, tree: &Tree) -> Self {
        let contained = contain_by_record(record, tree);
        let (containment, devices, why) = match contained {
            Ok(Containment::Enforce(list)) => ("enforce", Some(list.rules().len()), Vec::new()),
            Ok(other) => (other.as_str(), None, Vec::new()),
            Err(refusal) => ("unknown", None, vec![refusal.cause]),
        };
        Self {
            containment,
            devices,
            why,
            started: record.started,
            ends: record.ends,
            is_registered: true,
            ..Self::unknown(record.id.to_string(), record.uid)
        }
    }

    /// Describes a job of which only id and owner are known. Its source is the registry until
    /// [`ListedJob::read_scheduled`] changes that, and its owner is a number until all names are looked up.
    fn unknown(id: String, uid: u32) -> Self {
        Self {
            id,
            uid,
            user: uid.to_string(),
            source: "registry",
            containment: "unknown",
            state: "unknown",
            ..Self::default()
        }
    }

    /// Reads the cgroup that a record names. If that fails, the state is `unknown`.
    fn read_registered_cgroup(&mut self, path: &CgroupPath, leaf: Option<&LeafName>) {
        if let Err(error) = self.read_cgroup(path, leaf) {
            self.state = "unknown";
            self.why.push(format!("job {}: {error}", self.id));
            self.is_unread = true;
        }
    }

    /// Takes place and state from the job's scheduler.
    fn read_scheduled(&mut self, job: &NodeJob) {
        let scheduler = job.placement.source().as_str();
        self.source = scheduler;
        self.state = "running";
        self.via = Some(scheduler);
        self.started = job.started;
        if let Some(path) = find_cgroup(&job.id, &job.placement) {
            // Without a record only a filter of the scheduler's can hold there.
            if self.containment == "unknown" && Uid::effective().is_root() {
                self.containment = Containment::None.as_str();
            }
            // The job may have ended meanwhile, and unknown values stay empty.
            let _ = self.read_cgroup(&path, None);
        }
    }

    /// Reads the cgroup of the job: its state, its processes, its limits, and the usage of its logins, whose cgroup in it
    /// is called `leaf` (`None`: the usual name). A cgroup that does not exist gives the state `gone`. It fails if the
    /// cgroup cannot be read; what was read before stays.
    fn read_cgroup(&mut self, path: &CgroupPath, leaf: Option<&LeafName>) -> cgroup::Result<()> {
        self.cgroup = Some(path.to_string());
        let Some(place) = cgroup::ignore_gone(Mount::open()?.open_chain(path))? else {
            self.state = "gone";
            return Ok(());
        };
        self.state = match find_frozen(place.levels())? {
            Some(_) => "frozen",
            None => "running",
        };
        self.detect_reuse(place.dir()?)?;
        self.detect_foreign_filter(&place);
        // A job that is ending has no usage any more.
        self.login_usage = Usage::read(place.dir()?, leaf).unwrap_or_default();
        self.read_limits(place.levels());
        self.count_processes(place.dir()?)
    }

    /// Reads the limits of the job's cgroup, which is the first of these. Those of a job that is ending stay unknown.
    fn read_limits(&mut self, levels: &[Dir]) {
        match cgroup::ignore_gone(LimitsInForce::read(levels)) {
            Ok(limits) => self.limits = limits,
            Err(error) => self.why.push(format!("job {}: {error}", self.id)),
        }
    }

    /// Sets the state [`REUSED`] if a scheduler has given the cgroup of a record to another account's
    /// job. Only root can detect that.
    fn detect_reuse(&mut self, dir: &Dir) -> cgroup::Result<()> {
        if self.source != SourceName::Registry.as_str() || !Uid::effective().is_root() {
            return Ok(());
        }
        let occupants = Occupants::read(dir, self.uid)?;
        let deadline = Instant::now() + QUERY_TIMEOUT;
        let list = || list_members(dir, deadline).complete();
        match occupants.require_no_strangers_among(dir, deadline, list) {
            // The cgroup is not the job's any more, as a login would judge too. Other errors do not tell.
            Err(error @ cgroup::Error::UnexpectedState(_)) => {
                self.state = REUSED;
                self.why.push(format!("job {}: {error}", self.id));
                Ok(())
            }
            result => result,
        }
    }

    /// Corrects the containment of a job whose record asks for none: a filter of its scheduler may hold
    /// there. Only root can see filters.
    fn detect_foreign_filter(&mut self, place: &CgroupChain) {
        let none = Containment::None;
        if self.containment != none.as_str() || !Uid::effective().is_root() {
            return;
        }
        let target = AttachTarget::from_leaf(place);
        // 0: all levels of the target exist.
        match target.and_then(|target| bpf::predict_containment(target, 0, &none)) {
            Ok(name) => self.containment = name,
            Err(error) => {
                self.containment = "unknown";
                self.why.push(format!("job {}: {error}", self.id));
            }
        }
    }

    /// Explains why the state is unknown, for a record whose scheduler knows the cgroup; `None` for a known
    /// state and for another record.
    fn explain_unknown(&self, config: &Config) -> Option<String> {
        if self.state != "unknown" {
            return None;
        }
        let via = self.via?;
        let is_enabled = config.sources.iter().any(|source| source.as_str() == via);
        let why = if is_enabled {
            "does not run it here now"
        } else {
            "is not asked here, since it is not among the sources"
        };
        Some(format!("job {}: {via} {why}", self.id))
    }

    /// Counts the processes in a job's cgroup, and as root also the connections. It fails if the processes
    /// cannot all be listed before [`QUERY_TIMEOUT`].
    fn count_processes(&mut self, dir: &Dir) -> cgroup::Result<()> {
        let deadline = Instant::now() + QUERY_TIMEOUT;
        self.processes = Some(list_members(dir, deadline).complete()?.len());
        if Uid::effective().is_root() {
            self.logins = Some(count_connections(
                &read_processes(dir, deadline).complete()?,
            ));
        }
        Ok(())
    }

    /// Builds the row of the table. The column of devices has the number of allowed entries if a list is
    /// enforced, and else the name of the containment; `(via ...)` in place of a cgroup names who places the
    /// logins.
    fn row(&self) -> [String; 8] {
        let devices = match self.containment {
            "enforce" => show_count(self.devices),
            other => other.to_owned(),
        };
        let cgroup = match &self.cgroup {
            Some(path) => path.clone(),
            None => format!("(via {})", self.via.unwrap_or("?")),
        };
        [
            self.id.clone(),
            self.user.clone(),
            self.source.to_owned(),
            self.state.to_owned(),
            show_count(self.logins),
            show_count(self.processes),
            devices,
            cgroup,
        ]
    }
}

fn show_count(count: Option<usize>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

/// Adds the columns of the usage before the last one.
fn with_usage<T>([a, b, c, d, e, f, g, cgroup]: [T; 8], [h, i, j, k, l]: [T; 5]) -> [T; 13] {
    [a, b, c, d, e, f, g, h, i, j, k, l, cgroup]
}

/// Adds the columns of the limits before the last one.
fn with_limits<T>([a, b, c, d, e, f, g, cgroup]: [T; 8], [h, i, j, k, l, m]: [T; 6]) -> [T; 14] {
    [a, b, c, d, e, f, g, h, i, j, k, l, m, cgroup]
}

/// Counts connections. Each has a tree of processes of sshd; the first of them counts.
fn count_connections(table: &[Process]) -> usize {
    let is_sshd = |pid| {
        table
            .iter()
            .any(|process| process.pid == pid && process.is_sshd)
    };
    table
        .iter()
        .filter(|process| process.is_sshd && !is_sshd(process.parent))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn connection_of_two_sshd_processes_is_counted_once() {
        let sshd = |pid, parent| Process {
            pid,
            parent,
            is_sshd: true,
            ..Process::default()
        };
        let shell = Process {
            pid: 3,
            parent: 2,
            ..Process::default()
        };
        assert_eq!(
            count_connections(&[sshd(1, 0), sshd(2, 1), shell, sshd(4, 0)]),
            2
        );
        assert_eq!(count_connections(&[]), 0);
    }

    #[test]
    fn limit_that_cannot_be_read_is_unknown_and_explained() {
        let scratch = Scratch::new();
        scratch.file("job/cgroup.procs", "");
        scratch.file("job/pids.max", "64\n");
        let file = std::fs::File::open(scratch.path().join("job")).unwrap();
        let levels = [Dir::new(file.into(), "/job")];
        let mut job = ListedJob::unknown("7".into(), 5);
        job.read_limits(&levels);
        assert_eq!(show_limits(job.limits.as_ref())[5], "64");
        // A folder in place of the file fails the read.
        scratch.dir("job/memory.max");
        let mut unreadable = ListedJob::unknown("7".into(), 5);
        unreadable.read_limits(&levels);
        assert_eq!(show_limits(unreadable.limits.as_ref()), ["?"; 6]);
        let [why] = &unreadable.why[..] else {
            panic!("{:?}", unreadable.why);
        };
        assert!(why.starts_with("job 7: read /job/memory.max: "), "{why}");
        let json = serde_json::to_value(unreadable).unwrap();
        assert!(json["limits"].is_null());
    }

    #[test]
    fn unknown_state_is_explained() {
        let text = r#"{"version":1,"id":"7","uid":4294967294,"via":"slurm","cdi":["x"]}"#;
        let record = Record::parse(text.as_bytes()).unwrap();
        let job = ListedJob::from_unfound(&record, &Tree::host());
        assert_eq!(
            job.row(),
            [
                "7",
                "4294967294",
                "registry",
                "unknown",
                "-",
                "-",
                "unknown",
                "(via slurm)"
            ]
        );
        let why = "job 7: its record has no device numbers: run job-adopt register --again 7";
        assert_eq!(job.why, [why]);
        let mut config = Config::default();
        let no_job = "job 7: slurm does not run it here now";
        assert_eq!(job.explain_unknown(&config).unwrap(), no_job);
        config.sources.retain(|source| *source != SourceName::Slurm);
        let no_source = "job 7: slurm is not asked here, since it is not among the sources";
        assert_eq!(job.explain_unknown(&config).unwrap(), no_source);
        let placement = Placement::Extern {
            spool: "/var/spool/slurmd".parse().unwrap(),
            node: "n1".parse().unwrap(),
        };
        let id = "7".parse().unwrap();
        let running = NodeJob {
            id,
            uid: record.uid,
            placement,
            started: Some(9),
            ends: None,
            record: Some(record),
        };
        let listed = ListedJob::from_running(&running, &Tree::host());
        assert_eq!(
            listed.row(),
            [
                "7",
                "4294967294",
                "slurm",
                "running",
                "-",
                "-",
                "unknown",
                "(via slurm)"
            ]
        );
        assert_eq!(listed.explain_unknown(&config), None);
    }
}
