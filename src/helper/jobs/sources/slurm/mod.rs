//! Finds Slurm jobs by their step daemons on this node.
//!
//! This source runs no Slurm command and queries no controller. The daemons of the jobs' extern
//! steps listen at sockets in slurmd's spool directory and report a job's owner to any client. The
//! privileged half queries the daemon of the chosen job again.

mod daemon_query;
mod daemonless;
mod job_owner;

use super::doubt::{Doubt, Fault, FaultKind, JobsOfUsers, PossibleOwners};
use super::{Source, SourceError, SourceReport};
use crate::clock::Deadline;
use crate::jobs::records::Registry;
use crate::jobs::{Job, describe_placement};
use crate::node::Tree;
use crate::slurm_conf::{
    ConfError, SlurmConfSearch, SpoolPath, list_conf_paths, resolve_links, with_slurm_trusted,
};
use crate::trusted_dir;
use daemon_query::{CONCURRENT_QUERIES_MAX, QueryOutcome, QueryTerms, Relevance, query_sockets};
use daemonless::{OtherSteps, query_other_steps};
use job_owner::OwnerSearch;
use kernel::trust::{Distrust, TrustError};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use protocol::{AbsolutePath, JobId, NodeName, Placement, SourceName, parse_decimal};
use schedulers::stepd::{
    Answer, EXTERN_STEP, Error, Release, SocketName, State, socket_created_at,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for a daemon that cannot have the answer: while others wait for their turn, or if
/// the kernel shows that its job is another user's; and for one whose job nobody can be shown to own, where a login has
/// another job to join, as else one user could delay everybody. Any other daemon may belong to the user's newest
/// job, and is waited for to the deadline: a later login is better than the wrong job.
///
/// Measured with Slurm 22.05, six jobs and a seventh that came and went, on two cores with eight busy
/// loops each, in one cgroup with the daemons: of 1,932 answers 99 % came within 68 ms, the last after
/// 175 ms. In a cgroup that was full besides, with a million reclaims and 2,800 major faults, of 1,345
/// answers the last came after 143 ms. A login still met a daemon that took more than a second, while
/// a compiler, package builds and several Slurms shared such a machine.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum daemons that a command of root queries at the same time, as far as its limit of open files allows: those that
/// hang must not hold up the others.
const ROOT_QUERIES_MAX: usize = 1024;
/// Descriptors that such a command needs besides.
const OTHER_DESCRIPTORS: usize = 128;

/// The source of Slurm jobs.
#[derive(Debug)]
pub struct SlurmSource {
    slurm_conf: SlurmConfSearch,
    node_name: Option<String>,
    spool: Option<PathBuf>,
    records: Option<Registry>,
}

/// Whose jobs are sought.
#[derive(Clone, Copy, Debug)]
pub enum Sought<'a> {
    /// The jobs of all users. No daemon is waited for longer than a second.
    All,
    /// The jobs of these uids. A daemon whose job may belong to one of them is waited for to the deadline.
    Users(&'a BTreeSet<u32>),
    /// The jobs of a login's user. As for users, but a daemon whose job nobody can be shown to own is not waited for
    /// longer than a second, once a running job of this user has answered.
    Login(u32),
}

impl Sought<'_> {
    /// Finds what a job with these possible owners is to those who are sought.
    fn find_relevance(self, owners: &PossibleOwners) -> Relevance {
        let includes = match self {
            Self::All => true,
            Self::Users(uids) => owners.include_one_of(uids),
            Self::Login(uid) => owners.include(uid),
        };
        match (self, owners) {
            _ if !includes => Relevance::Foreign,
            (Self::Login(_), PossibleOwners::Any) => Relevance::Unknown,
            _ => Relevance::Sought,
        }
    }

    /// The user of a login; `None` for a command.
    fn login(self) -> Option<u32> {
        match self {
            Self::Login(uid) => Some(uid),
            Self::All | Self::Users(_) => None,
        }
    }
}

/// The outcomes of earlier queries of one call. Whose a job is never changes, and who has not answered is not waited for
/// twice: a call that asks again waits for new daemons alone. A job that ended meanwhile counts as running.
#[derive(Debug, Default)]
pub struct AskedDaemons {
    outcomes: BTreeMap<SocketKey, QueryOutcome>,
    /// What other steps told of the jobs with stale sockets. Those that there was no time to ask are not in it.
    other_steps: BTreeMap<SocketKey, OtherSteps>,
}

/// What identifies the socket of one job: its path, and when it was created.
type SocketKey = (PathBuf, i64);

impl AskedDaemons {
    /// Forgets the jobs that were starting: they may run by the next query.
    fn forget_starting(&mut self) {
        let is_starting = |outcome: &QueryOutcome| {
            let state = outcome.answer.as_ref().map(|answer| answer.state);
            state == Ok(State::Starting)
        };
        self.outcomes.retain(|_, outcome| !is_starting(outcome));
    }
}

/// The result of a query of all daemons.
struct Answers {
    answers: Vec<(Socket, Answer)>,
    faults: Vec<Fault>,
    /// Sockets at which nobody listens: their jobs are over, or their daemons were killed.
    stale: Vec<Socket>,
    /// What is left out, since its job takes no logins or is another node's.
    skipped: Vec<Doubt>,
    seen: Vec<String>,
}

impl SlurmSource {
    /// A source that reads the step daemons' sockets in `spool`, or in the directory that `slurm.conf`
    /// names. With the node's name only that node's sockets count; otherwise those of all nodes that
    /// this host is.
    pub fn new(
        slurm_conf: SlurmConfSearch,
        node_name: Option<String>,
        spool: Option<PathBuf>,
    ) -> Self {
        Self {
            slurm_conf,
            node_name,
            spool,
            records: None,
        }
    }

    /// Lets the records that Slurm's prolog has written show whose a job is, if its daemon does not answer.
    #[must_use]
    pub fn with_records(self, records: Registry) -> Self {
        Self {
            records: Some(records),
            ..self
        }
    }

    /// Finds the running jobs of those who are sought, each with its owner, and what may be another. Jobs of others may
    /// be among them. `asked` has the outcomes of earlier calls, and gets those of this one.
    ///
    /// # Errors
    ///
    /// [`SourceError::Absent`] if Slurm is not on this node, [`SourceError::Failed`] if its
    /// configuration or its only spool directory cannot be used.
    pub fn jobs_of_users(
        &self,
        sought: Sought<'_>,
        asked: &mut AskedDaemons,
        deadline: Deadline,
    ) -> Result<JobsOfUsers, SourceError> {
        let concurrent_max = concurrent_queries_of_root();
        let found = self.query_daemons(sought, asked, concurrent_max, deadline)?;
        let (known, new): (Vec<_>, Vec<_>) = found
            .stale
            .into_iter()
            .partition(|socket| asked.other_steps.contains_key(&socket.key()));
        let steps_of_new = self.query_other_steps(&new, concurrent_max, deadline);
        for (socket, steps) in new.iter().zip(&steps_of_new) {
            if *steps != OtherSteps::Unasked {
                asked.other_steps.insert(socket.key(), steps.clone());
            }
        }
        let steps_of_known = known.iter().filter_map(|socket| {
            let steps = asked.other_steps.get(&socket.key())?;
            Some((socket, steps))
        });
        let owners = self.owner_search();
        let mut faults = found.faults;
        let mut without_logins = found.skipped;
        for (socket, steps) in steps_of_known.chain(new.iter().zip(&steps_of_new)) {
            faults.extend(steps.find_fault(socket, &owners));
            if let OtherSteps::Running { owner, job } = steps {
                without_logins.push(Doubt {
                    cause: job.cause.clone(),
                    owners: PossibleOwners::from_uids([*owner].into()),
                    job: Some(job.id.clone()),
                });
            }
        }
        let running = found
            .answers
            .into_iter()
            .filter(|(_, answer)| answer.state == State::Running);
        Ok(JobsOfUsers {
            jobs: running
                .map(|(socket, answer)| (answer.uid, socket.into_job(answer.release)))
                .collect(),
            doubts: faults.into_iter().map(|fault| fault.doubt).collect(),
            without_logins,
        })
    }

    fn owner_search(&self) -> OwnerSearch<'_> {
        OwnerSearch::new(self.slurm_conf.tree(), self.records.as_ref())
    }

    /// Asks the other steps of the jobs with these sockets, in their order.
    fn query_other_steps(
        &self,
        stale: &[Socket],
        concurrent_max: usize,
        deadline: Deadline,
    ) -> Vec<OtherSteps> {
        let terms = QueryTerms {
            owner: self.slurm_conf.tree().trust().owner(),
            relevance: None,
            login: None,
            timeout: QUERY_TIMEOUT,
            concurrent_max,
            deadline,
        };
        query_other_steps(stale, terms)
    }

    /// Queries the daemons. Of those that `asked` has, the outcome is known.
    ///
    /// # Errors
    ///
    /// As [`find_sockets`].
    fn query_daemons(
        &self,
        sought: Sought<'_>,
        asked: &mut AskedDaemons,
        concurrent_max: usize,
        deadline: Deadline,
    ) -> Result<Answers, SourceError> {
        let tree = self.slurm_conf.tree();
        let owners = self.owner_search();
        let spool = self.spool.as_deref();
        let node_name = self.node_name.as_deref();
        let FoundSockets {
            sockets,
            faults,
            skipped,
            mut seen,
        } = find_sockets(&self.slurm_conf, node_name, spool, &owners)?;
        let mut found = Answers {
            answers: Vec::new(),
            faults,
            stale: Vec::new(),
            skipped,
            seen: Vec::new(),
        };
        let new: Vec<&Socket> = sockets
            .iter()
            .filter(|socket| !asked.outcomes.contains_key(&socket.key()))
            .collect();
        let paths: Vec<&Path> = new.iter().map(|socket| socket.path.as_path()).collect();
        // Given a socket by its index, and the process of its daemon.
        let relevance = |index: usize, pid: Option<i32>| match new.get(index) {
            Some(socket) => sought.find_relevance(&owners.find(&socket.name.job, pid)),
            None => Relevance::Sought,
        };
        let outcomes = query_sockets(
            &paths,
            QueryTerms {
                owner: tree.trust().owner(),
                relevance: (!matches!(sought, Sought::All))
                    .then_some(&relevance as &dyn Fn(usize, Option<i32>) -> Relevance),
                login: sought.login(),
                timeout: QUERY_TIMEOUT,
                concurrent_max,
                deadline,
            },
        );
        for (socket, outcome) in new.iter().zip(outcomes) {
            asked
                .outcomes
                .extend(outcome.map(|outcome| (socket.key(), outcome)));
        }
        let mut stale = Vec::new();
        let mut unasked = 0;
        for socket in sockets {
            let path = socket.path.display();
            let Some(QueryOutcome { pid, answer }) = asked.outcomes.get(&socket.key()) else {
                unasked += 1;
                continue;
            };
            let error = match answer {
                Ok(answer) => {
                    found.answers.push((socket, *answer));
                    continue;
                }
                // Slurm does not remove the sockets of killed daemons.
                Err(Error::SocketGone) => {
                    stale.push(socket);
                    continue;
                }
                Err(error) => error,
            };
            let kind = fault_kind(error);
            let doubt = Doubt {
                cause: format!("{path}: {}", describe_error(&socket.path, error)),
                owners: owners.find(&socket.name.job, *pid),
                job: Some(socket.name.job),
            };
            found.faults.push(Fault { doubt, kind });
        }
        asked.forget_starting();
        if unasked > 0 {
            let cause = format!("{unasked} more daemons could not be asked in time");
            found.faults.push(Fault {
                doubt: Doubt::about_anybody(cause),
                kind: FaultKind::Silent,
            });
        }
        seen.push(format!(
            "{} daemons answered, {} sockets are stale",
            found.answers.len(),
            stale.len()
        ));
        found.seen = seen;
        found.stale = stale;
        Ok(found)
    }
}

/// Tells why nothing is known of a job whose daemon has this error.
fn fault_kind(error: &Error) -> FaultKind {
    match error {
        // A daemon that hung up may have a running job as well.
        Error::Timeout | Error::ConnectionClosed => FaultKind::Silent,
        _ => FaultKind::Broken,
    }
}

/// The mode that Slurm gives its sockets (`_domainsocket_create` of `slurmstepd`).
const SOCKET_MODE: u32 = 0o777;

/// Describes why a daemon cannot be asked: by the mode of its socket, if that is why.
fn describe_error(path: &Path, error: &Error) -> String {
    if matches!(error, Error::SystemCall(_, Errno::EACCES)) {
        let mode = path.symlink_metadata().map(|meta| meta.mode() & 0o7777);
        match mode {
            Ok(mode) if mode & SOCKET_MODE != SOCKET_MODE => {
                return format!(
                    "its mode is {mode:04o}, and Slurm makes {SOCKET_MODE:04o}: {error}"
                );
            }
            _ => {}
        }
    }
    error.to_string()
}

/// How many daemons a command of root queries at the same time.
fn concurrent_queries_of_root() -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    usize::try_from(files)
        .unwrap_or(ROOT_QUERIES_MAX)
        .saturating_sub(OTHER_DESCRIPTORS)
        .clamp(CONCURRENT_QUERIES_MAX, ROOT_QUERIES_MAX)
}

impl Source for SlurmSource {
    fn name(&self) -> SourceName {
        SourceName::Slurm
    }

    /// Reports the user's jobs: those whose daemons name the user as the owner.
    fn jobs(&self, uid: u32, deadline: Deadline) -> Result<SourceReport, SourceError> {
        let found = self.query_daemons(
            Sought::Login(uid),
            &mut AskedDaemons::default(),
            CONCURRENT_QUERIES_MAX,
            deadline,
        )?;
        let mut report = SourceReport {
            skipped: found.skipped.into_iter().map(|doubt| doubt.cause).collect(),
            seen: found.seen,
            ..SourceReport::default()
        };
        report.add_faults(found.faults, uid);
        for (socket, answer) in found.answers {
            if answer.uid == uid {
                report.add_job(socket, answer);
            }
        }
        // Whoever has another job joins that one, and waits for no further daemon.
        if report.jobs.is_empty() && report.starting.is_empty() {
            let owners = self.owner_search();
            let answers = self.query_other_steps(&found.stale, CONCURRENT_QUERIES_MAX, deadline);
            for (socket, steps) in found.stale.iter().zip(answers) {
                report.add_faults(steps.find_fault(socket, &owners).into_iter().collect(), uid);
                match steps {
                    OtherSteps::Running { owner, job } if owner == uid => {
                        report.daemonless.push(job);
                    }
                    _ => {}
                }
            }
        }
        Ok(report)
    }
}

impl SourceReport {
    /// Adds a job by the state of its extern step. If several of Slurm's nodes are on this host and have the job, it is
    /// added once, and the socket that is newest places the login.
    fn add_job(&mut self, socket: Socket, answer: Answer) {
        let id = socket.name.job.clone();
        match answer.state {
            State::Starting => self.starting.push(id),
            State::Ending => self.ending.push(id),
            State::Running => match self.jobs.iter_mut().find(|job| job.id == id) {
                Some(job) => {
                    let other = socket.into_job(answer.release);
                    let shown = describe_placement(&other.placement, &id);
                    self.skipped
                        .push(format!("{shown}: the job is on several nodes of this host"));
                    if job.started < other.started {
                        *job = other;
                    }
                }
                None => self.jobs.push(socket.into_job(answer.release)),
            },
        }
    }
}

impl Socket {
    /// Makes a running job of a socket whose daemon is of this release; when it ends is not known. Its start is the
    /// creation of the socket.
    fn into_job(self, release: Release) -> Job {
        let placement = Placement::Extern {
            spool: self.spool,
            node: self.name.node,
        };
        Job {
            id: self.name.job,
            started: self.started,
            ends: None,
            placement,
            slurm: Some(release),
            record: None,
        }
    }
}

/// Maximum names read from a spool directory, or from the parent of the nodes' directories.
const NAMES_MAX: usize = 65_536;
/// Maximum nodes on one host.
const NODES_MAX: usize = 64;

/// A step daemon's socket and the job that its name states.
#[derive(Clone, Debug)]
struct Socket {
    name: SocketName,
    spool: AbsolutePath,
    path: PathBuf,
    /// When it was created, in seconds since the epoch.
    started: i64,
    /// The sockets of the job's other steps on the node.
    other_steps: Vec<PathBuf>,
}

impl Socket {
    fn key(&self) -> SocketKey {
        (self.path.clone(), self.started)
    }
}

/// The sockets of the spool directories, and what else is in them.
#[derive(Default)]
struct FoundSockets {
    sockets: Vec<Socket>,
    faults: Vec<Fault>,
    skipped: Vec<Doubt>,
    seen: Vec<String>,
}

impl FoundSockets {
    fn add_broken(&mut self, doubt: Doubt) {
        self.faults.push(Fault {
            doubt,
            kind: FaultKind::Broken,
        });
    }
}

/// A spool directory; with a node, only that node's sockets in it count.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SpoolDir {
    path: PathBuf,
    node: Option<NodeName>,
}

/// Finds the sockets of this node; of each node that this host may be, if `node_name` is `None` or no name that Slurm
/// allows. `spool` is the directory that the configuration sets: without it `slurm.conf` tells. The result has the
/// sockets that cannot be used as well, and the accounts to which `owners` finds that these may belong.
///
/// # Errors
///
/// [`SourceError::Absent`] if Slurm is not on this node, [`SourceError::Failed`] if its
/// configuration or its only directory cannot be used.
fn find_sockets(
    slurm_conf: &SlurmConfSearch,
    node_name: Option<&str>,
    spool: Option<&Path>,
    owners: &OwnerSearch<'_>,
) -> Result<FoundSockets, SourceError> {
    let tree = slurm_conf.tree();
    let node = node_name.and_then(|name| name.parse::<NodeName>().ok());
    let dirs = match spool {
        Some(path) => vec![SpoolDir {
            path: locate_spool(tree, path)?,
            node,
        }],
        None => configured_spool_dirs(slurm_conf, node)?,
    };
    let has_several = dirs.len() > 1;
    let mut found = FoundSockets::default();
    for spool_dir in dirs {
        match list_sockets(tree, &spool_dir, owners, &mut found) {
            Ok(()) => {}
            // A node's unusable directory does not hide the others.
            Err(SourceError::Failed(cause)) if has_several => {
                found.add_broken(Doubt::about_anybody(cause));
            }
            Err(SourceError::Absent(what)) if has_several => {
                found.skipped.push(Doubt::about_anybody(what));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Finds where a configured spool directory lies below the tree's root.
fn locate_spool(tree: &Tree, path: &Path) -> Result<PathBuf, SourceError> {
    let text = path
        .to_str()
        .ok_or_else(|| SourceError::Failed(format!("{path:?}: no UTF-8")))?;
    Ok(tree.locate(text))
}

/// Finds the spool directories that `slurm.conf` sets: one, if its path does not depend on the node or `node` is
/// known, else the existing one of each node that this host may be.
///
/// # Errors
///
/// [`SourceError::Absent`] without `slurm.conf`, or if no node has a directory; [`SourceError::Failed`] for a
/// `slurm.conf` that cannot be used, or too many directories.
fn configured_spool_dirs(
    slurm_conf: &SlurmConfSearch,
    node: Option<NodeName>,
) -> Result<Vec<SpoolDir>, SourceError> {
    let tree = slurm_conf.tree();
    let files = slurm_conf
        .files()
        .map_err(|error| absent_or_failed(&error))?;
    let lines = files
        .read_main_lines()
        .map_err(|error| absent_or_failed(&error))?;
    let spool =
        SpoolPath::from_lines(&lines).map_err(|error| SourceError::Failed(error.to_string()))?;
    // A name that cannot be read stands for nothing in the path.
    let host = nix::unistd::gethostname()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if let Some(path) = spool.dir_of(&host, node.as_ref()) {
        return Ok(vec![SpoolDir {
            path: tree.locate(&path),
            node,
        }]);
    }
    // A path without the node's name has been returned above.
    let Some(node_dirs) = spool.node_dirs(&host) else {
        return Ok(Vec::new());
    };
    let parent = tree.locate(&node_dirs.parent);
    let failed = |error: std::io::Error| unreadable_spool(&parent, &error);
    let mut dirs = Vec::new();
    for entry in std::fs::read_dir(&parent).map_err(failed)?.take(NAMES_MAX) {
        let name = entry.map_err(failed)?.file_name();
        let dir = name.to_str().and_then(|name| node_dirs.find_node(name));
        let Some((dir_node, dir_path)) = dir else {
            continue;
        };
        let path = tree.locate(&dir_path);
        if path.is_dir() {
            dirs.push(SpoolDir {
                path,
                node: Some(dir_node),
            });
        }
    }
    dirs.sort_by(|dir, other| dir.path.cmp(&other.path));
    match dirs.len() {
        0 => Err(SourceError::Absent(format!(
            "SlurmdSpoolDir: no directory in {} is a node's",
            parent.display()
        ))),
        1..=NODES_MAX => Ok(dirs),
        count => Err(SourceError::Failed(format!(
            "SlurmdSpoolDir: {} has {count} directories of nodes; give one as slurm_spool, or the \
             node's name as nodename",
            parent.display()
        ))),
    }
}

/// Converts an error of Slurm's configuration: if only the file is missing, Slurm is not on this node.
fn absent_or_failed(error: &ConfError) -> SourceError {
    match error {
        ConfError::MissingSlurmConf => SourceError::Absent(format!(
            "no slurm.conf in {}; slurm_conf in job_adopt.conf may name it",
            list_conf_paths()
        )),
        ConfError::UnreadableFile(_) if error.is_missing() => {
            SourceError::Absent(error.to_string())
        }
        error => SourceError::Failed(error.to_string()),
    }
}

/// The error for a spool directory that does not exist.
fn missing_spool(path: &Path) -> SourceError {
    SourceError::Absent(format!(
        "the spool directory {} does not exist: slurmd has not run on this node, or slurm_spool in \
         job_adopt.conf has to say where it is",
        path.display()
    ))
}

/// The error for a spool directory that cannot be listed.
fn unreadable_spool(path: &Path, error: &std::io::Error) -> SourceError {
    match error.kind() {
        std::io::ErrorKind::NotFound => missing_spool(path),
        _ => SourceError::Failed(format!("the spool directory {}: {error}", path.display())),
    }
}

/// Adds the sockets of one directory that are of this node's jobs, one for each job with an extern step, and those that
/// cannot be used. Resolves symbolic links in the path, since root's module follows
/// none.
///
/// # Errors
///
/// [`SourceError::Absent`] if the directory does not exist; [`SourceError::Failed`] if it cannot be read, is not
/// trusted, or has a path that a plan cannot have.
fn list_sockets(
    tree: &Tree,
    spool_dir: &SpoolDir,
    owners: &OwnerSearch<'_>,
    found: &mut FoundSockets,
) -> Result<(), SourceError> {
    let failed = |error: TrustError| distrusted_spool(&spool_dir.path, &error);
    let path = with_slurm_trusted(tree.trust(), |trust| resolve_links(trust, &spool_dir.path))
        .map_err(failed)?;
    let dir = with_slurm_trusted(tree.trust(), |trust| trust.dir(&path)).map_err(failed)?;
    let names = trusted_dir::list_visible_names(&dir, NAMES_MAX).map_err(failed)?;
    let spool: AbsolutePath = path
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| SourceError::Failed(format!("{path:?} is no plain path")))?;
    let mut count: usize = 0;
    let mut other_nodes = BTreeSet::new();
    let mut other_steps: BTreeMap<JobId, Vec<PathBuf>> = BTreeMap::new();
    let first = found.sockets.len();
    for text in &names {
        let Some((name, step)) = parse_socket_name(text) else {
            continue;
        };
        if step != EXTERN_STEP {
            let steps = other_steps.entry(name.job).or_default();
            steps.push(path.join(text));
            continue;
        }
        if spool_dir
            .node
            .as_ref()
            .is_some_and(|node| *node != name.node)
        {
            other_nodes.insert(name.node.to_string());
            continue;
        }
        let socket_path = path.join(name.to_string());
        match socket_created_at(&dir, &name, tree.trust().owner()) {
            Ok(started) => {
                count += 1;
                found.sockets.push(Socket {
                    name,
                    spool: spool.clone(),
                    path: socket_path,
                    started,
                    other_steps: Vec::new(),
                });
            }
            // The job has ended since the directory was listed.
            Err(Error::SocketGone) => {}
            Err(error) => found.add_broken(Doubt {
                cause: format!("{}: {error}", socket_path.display()),
                owners: owners.find(&name.job, None),
                job: Some(name.job),
            }),
        }
    }
    found.seen.push(format!("{spool}: {count} sockets of jobs"));
    if count == 0 {
        let other_node = other_nodes.first().map(String::as_str);
        let cause =
            explain_no_sockets(spool_dir.node.as_ref(), other_node, !other_steps.is_empty());
        // A job of another node's name may be anybody's.
        let owners = match other_node {
            Some(_) => PossibleOwners::Any,
            None => {
                PossibleOwners::one_of_all(other_steps.keys().map(|job| owners.find(job, None)))
            }
        };
        found.skipped.extend(cause.map(|cause| Doubt {
            cause: format!("{spool}: {cause}"),
            owners,
            job: None,
        }));
    }
    for socket in found.sockets.iter_mut().skip(first) {
        socket.other_steps = other_steps.remove(&socket.name.job).unwrap_or_default();
    }
    Ok(())
}

/// Explains why a directory has no socket of this node's jobs; `None` if nothing there points at a running job. `node`
/// is the node that was asked for, `other_node` one whose sockets are there; jobs without an extern step have sockets
/// of other steps.
fn explain_no_sockets(
    node: Option<&NodeName>,
    other_node: Option<&str>,
    has_other_steps: bool,
) -> Option<String> {
    match (node, other_node) {
        (Some(node), Some(other)) => Some(format!(
            "no sockets of node {node}, but of {other}: is nodename what Slurm calls this node?"
        )),
        (_, None) if has_other_steps => {
            Some("jobs without an extern step: slurm.conf needs PrologFlags=Contain".to_owned())
        }
        _ => None,
    }
}

/// Converts the error of a spool directory that cannot be opened: if it is missing, Slurm is not on this node.
fn distrusted_spool(spool: &Path, error: &TrustError) -> SourceError {
    if error.is_missing() {
        return missing_spool(spool);
    }
    SourceError::Failed(describe_distrust(spool, error))
}

/// Describes why a spool directory is not trusted, with the remedy for a wrong owner or mode.
fn describe_distrust(spool: &Path, error: &TrustError) -> String {
    let advice = match error.cause() {
        Distrust::WrongOwner(_) | Distrust::Writable(_) => {
            "; it has to be root's or the account slurm's, and writable by nobody else (chown, \
             chmod 755)"
        }
        _ => "",
    };
    format!("the spool directory {}: {error}{advice}", spool.display())
}

/// Parses a socket's name into node and job, and the number of the step; `None` for other names.
pub fn parse_socket_name(name: &str) -> Option<(SocketName, u32)> {
    let (rest, step) = name.rsplit_once('.')?;
    let (node, job) = rest.rsplit_once('_')?;
    Some((
        SocketName::from_job(&node.parse().ok()?, &job.parse().ok()?)?,
        parse_decimal(step)?,
    ))
}

#[cfg(test)]
pub(crate) mod tests;

#[cfg(test)]
mod spool_tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    /// Slurm lets every user connect: the daemon knows its callers.
    #[test]
    fn mode_of_a_socket_that_keeps_logins_out_is_named() {
        let scratch = crate::testing::Scratch::new();
        let path = scratch.file("n1_7.4294967292", "");
        let denied = Error::SystemCall("connect", Errno::EACCES);
        let describe = |mode: u32, error: &Error| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            describe_error(&path, error)
        };
        assert_eq!(
            describe(0o700, &denied),
            format!("its mode is 0700, and Slurm makes 0777: {denied}")
        );
        assert_eq!(describe(0o777, &denied), denied.to_string());
        assert_eq!(describe(0o700, &Error::Timeout), Error::Timeout.to_string());
    }

    #[test]
    fn only_canonical_socket_names_are_parsed() {
        for good in [
            "gpu017_4242.4294967292",
            "a_b_1.4294967292",
            "n.cluster-1_7.4294967292",
        ] {
            let (name, step) = parse_socket_name(good).unwrap();
            assert_eq!((name.to_string().as_str(), step), (good, EXTERN_STEP));
        }
        for other in ["gpu017_4242.0", "gpu017_4242.4294967291"] {
            assert!(
                parse_socket_name(other).is_some_and(|(_, step)| step != EXTERN_STEP),
                "{other}"
            );
        }
        for bad in [
            "",
            "gpu017_4242.4294967292.0",
            "gpu017_04242.4294967292",
            "gpu017_4294967296.4294967292",
            "gpu017_x.4294967292",
            "_1.4294967292",
            "gpu017.4294967292",
            "gpu/17_1.4294967292",
        ] {
            assert_eq!(parse_socket_name(bad), None, "{bad}");
        }
    }
}
