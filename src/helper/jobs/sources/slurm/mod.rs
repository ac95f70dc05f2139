//! Finds Slurm jobs by their step daemons on this node.
//!
//! This source runs no Slurm command and queries no controller. The daemons of the jobs' extern
//! steps listen at sockets in slurmd's spool directory and report a job's owner to any client. The
//! privileged half queries the daemon of the chosen job again.

mod daemon_query;
mod job_owner;

use super::{Source, SourceError, SourceReport};
use crate::clock::Deadline;
use crate::jobs::{Job, describe_placement};
use crate::node::Tree;
use crate::slurm_conf::{
    ConfError, SlurmConfSearch, SpoolPath, list_conf_paths, resolve_links, with_slurm_trusted,
};
use crate::trusted_dir;
use daemon_query::{QueryOutcome, QueryTerms, query_sockets};
use kernel::trust::{Distrust, TrustError};
use protocol::{AbsolutePath, NodeName, Placement, SourceName, parse_decimal};
use schedulers::stepd::{
    Answer, EXTERN_STEP, Error, Release, SocketName, State, socket_created_at,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for a daemon that cannot have the answer: while others wait for their turn, or if
/// the kernel shows that its job is another user's. Any other daemon may belong to the user's newest
/// job, and is waited for to the deadline: a later login is better than the wrong job.
///
/// Measured with Slurm 22.05, six jobs and a seventh that came and went, on two cores with eight busy
/// loops each, in one cgroup with the daemons: of 1,932 answers 99 % came within 68 ms, the last after
/// 175 ms. In a cgroup that was full besides, with a million reclaims and 2,800 major faults, of 1,345
/// answers the last came after 143 ms. A login still met a daemon that took more than a second, while
/// a compiler, package builds and several Slurms shared such a machine.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The source of Slurm jobs.
#[derive(Debug)]
pub struct SlurmSource {
    slurm_conf: SlurmConfSearch,
    node_name: Option<String>,
    spool: Option<PathBuf>,
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
        }
    }

    /// Finds the running jobs of all users, each with its owner, and a report of all else, which has no list of starting
    /// and ending jobs.
    ///
    /// # Errors
    ///
    /// [`SourceError::Absent`] if Slurm is not on this node, [`SourceError::Failed`] if its
    /// configuration or its only spool directory cannot be used.
    pub fn jobs_of_all_users(
        &self,
        deadline: Deadline,
    ) -> Result<(Vec<(u32, Job)>, SourceReport), SourceError> {
        let mut report = SourceReport::default();
        let answers = self.query_daemons(&mut report, None, deadline)?;
        let running = answers
            .into_iter()
            .filter(|(_, answer)| answer.state == State::Running);
        let jobs = running
            .map(|(socket, answer)| (answer.uid, socket.into_job(answer.release)))
            .collect();
        Ok((jobs, report))
    }

    /// Queries the daemons and returns the answers; `report` gets the daemons without one. With a `uid`, a daemon
    /// whose job is another user's by what the kernel shows is not waited for; without one, jobs of all users are
    /// sought.
    ///
    /// # Errors
    ///
    /// As [`find_sockets`].
    fn query_daemons(
        &self,
        report: &mut SourceReport,
        uid: Option<u32>,
        deadline: Deadline,
    ) -> Result<Vec<(Socket, Answer)>, SourceError> {
        let spool = self.spool.as_deref();
        let sockets = find_sockets(&self.slurm_conf, self.node_name.as_deref(), spool, report)?;
        let paths: Vec<&Path> = sockets.iter().map(|socket| socket.path.as_path()).collect();
        let tree = self.slurm_conf.tree();
        let may_be_own = uid.map(|uid| {
            let sockets = &sockets;
            // Given a socket by its index, and the process of its daemon.
            move |index: usize, pid: i32| {
                sockets.get(index).is_none_or(|socket| {
                    job_owner::can_be_owned_by(tree, uid, &socket.name.job, pid)
                })
            }
        });
        let may_matter = may_be_own
            .as_ref()
            .map(|may_be_own| may_be_own as &dyn Fn(usize, i32) -> bool);
        let owner = tree.trust().owner();
        let outcomes = query_sockets(
            &paths,
            QueryTerms {
                owner,
                may_matter,
                timeout: QUERY_TIMEOUT,
                deadline,
            },
        );
        let mut answers = Vec::new();
        let mut gone = 0;
        let mut unasked = 0;
        for (socket, outcome) in sockets.into_iter().zip(outcomes) {
            let path = socket.path.display();
            match outcome {
                Some(QueryOutcome::Done(Ok(answer))) => answers.push((socket, answer)),
                // Slurm does not remove the sockets of killed daemons.
                Some(QueryOutcome::Done(Err(Error::SocketGone))) => gone += 1,
                // A daemon that hung up may have a running job as well.
                Some(QueryOutcome::Done(Err(
                    error @ (Error::Timeout | Error::ConnectionClosed),
                ))) => {
                    report.silent.push(format!("{path}: {error}"));
                }
                Some(QueryOutcome::Done(Err(error))) => {
                    report.broken.push(format!("{path}: {error}"))
                }
                // Only a query for one `uid` has this outcome.
                Some(QueryOutcome::Irrelevant) => {
                    let cause = "did not answer in time; its job is another user's";
                    report.foreign.push(format!("{path}: {cause}"));
                }
                None => unasked += 1,
            }
        }
        if unasked > 0 {
            report
                .silent
                .push(format!("{unasked} more daemons could not be asked in time"));
        }
        report.seen.push(format!(
            "{} daemons answered, {gone} sockets are stale",
            answers.len()
        ));
        Ok(answers)
    }
}

impl Source for SlurmSource {
    fn name(&self) -> SourceName {
        SourceName::Slurm
    }

    /// Reports the user's jobs: those whose daemons name the user as the owner.
    fn jobs(&self, uid: u32, deadline: Deadline) -> Result<SourceReport, SourceError> {
        let mut report = SourceReport::default();
        for (socket, answer) in self.query_daemons(&mut report, Some(uid), deadline)? {
            if answer.uid == uid {
                report.add_job(socket, answer);
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
}

/// A spool directory; with a node, only that node's sockets in it count.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SpoolDir {
    path: PathBuf,
    node: Option<NodeName>,
}

/// Finds the sockets of this node; of each node that this host may be, if `node_name` is `None` or no name that Slurm
/// allows. `spool` is the directory that the configuration sets: without it `slurm.conf` tells. `report` gets the
/// sockets that cannot be used.
///
/// # Errors
///
/// [`SourceError::Absent`] if Slurm is not on this node, [`SourceError::Failed`] if its
/// configuration or its only directory cannot be used.
fn find_sockets(
    slurm_conf: &SlurmConfSearch,
    node_name: Option<&str>,
    spool: Option<&Path>,
    report: &mut SourceReport,
) -> Result<Vec<Socket>, SourceError> {
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
    let mut sockets = Vec::new();
    for spool_dir in dirs {
        match list_sockets(tree, &spool_dir, report) {
            Ok(listed) => sockets.extend(listed),
            // A node's unusable directory does not hide the others.
            Err(SourceError::Failed(cause)) if has_several => report.broken.push(cause),
            Err(SourceError::Absent(what)) if has_several => report.skipped.push(what),
            Err(error) => return Err(error),
        }
    }
    Ok(sockets)
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

/// Lists the sockets of one directory that are of this node's jobs, one for each job with an extern step;
/// `report.broken` gets those that cannot be used. Resolves symbolic links in the path, since root's module follows
/// none.
///
/// # Errors
///
/// [`SourceError::Absent`] if the directory does not exist; [`SourceError::Failed`] if it cannot be read, is not
/// trusted, or has a path that a plan cannot have.
fn list_sockets(
    tree: &Tree,
    spool_dir: &SpoolDir,
    report: &mut SourceReport,
) -> Result<Vec<Socket>, SourceError> {
    let failed = |error: TrustError| distrusted_spool(&spool_dir.path, &error);
    let path = with_slurm_trusted(tree.trust(), |trust| resolve_links(trust, &spool_dir.path))
        .map_err(failed)?;
    let dir = with_slurm_trusted(tree.trust(), |trust| trust.dir(&path)).map_err(failed)?;
    let names = trusted_dir::list_visible_names(&dir, NAMES_MAX).map_err(failed)?;
    let spool: AbsolutePath = path
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| SourceError::Failed(format!("{path:?} is no plain path")))?;
    let mut sockets = Vec::new();
    let mut other_nodes = BTreeSet::new();
    let mut has_other_steps = false;
    for (name, step) in names.iter().filter_map(|name| parse_socket_name(name)) {
        if step != EXTERN_STEP {
            has_other_steps = true;
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
            Ok(started) => sockets.push(Socket {
                name,
                spool: spool.clone(),
                path: socket_path,
                started,
            }),
            // The job has ended since the directory was listed.
            Err(Error::SocketGone) => {}
            Err(error) => report
                .broken
                .push(format!("{}: {error}", socket_path.display())),
        }
    }
    report
        .seen
        .push(format!("{spool}: {} sockets of jobs", sockets.len()));
    if sockets.is_empty() {
        let other_node = other_nodes.first().map(String::as_str);
        let cause = explain_no_sockets(spool_dir.node.as_ref(), other_node, has_other_steps);
        report
            .skipped
            .extend(cause.map(|cause| format!("{spool}: {cause}")));
    }
    Ok(sockets)
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
fn parse_socket_name(name: &str) -> Option<(SocketName, u32)> {
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
