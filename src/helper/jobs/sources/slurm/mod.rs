//! Finds Slurm jobs by their step daemons on this node.
//!
//! This source runs no Slurm command and queries no controller. The daemons of the jobs' extern
//! steps listen at sockets in slurmd's spool directory and report a job's owner to any client. The
//! privileged half queries the daemon of the chosen job again.

mod daemon_fault;
mod daemon_query;
mod daemonless;
mod job_owner;
mod sockets;
mod spool;

use super::doubt::{Doubt, Fault, FaultKind, JobsOfUsers, PossibleOwners};
use super::{Source, SourceError, SourceReport};
use crate::clock::Deadline;
use crate::jobs::records::Registry;
use crate::jobs::{Job, describe_placement};
use crate::slurm_conf::SlurmConfSearch;
use daemon_fault::{describe_error, fault_kind};
use daemon_query::{CONCURRENT_QUERIES_MAX, QueryOutcome, QueryTerms, Relevance, query_sockets};
use daemonless::{OtherSteps, query_other_steps};
use job_owner::OwnerSearch;
use nix::sys::resource::{Resource, getrlimit};
use protocol::{Placement, SourceName};
use schedulers::stepd::{Answer, Error, Release, State};
pub use sockets::parse_socket_name;
use sockets::{FoundSockets, Socket, SocketKey, find_sockets};
use std::collections::{BTreeMap, BTreeSet};
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

#[cfg(test)]
pub(crate) mod tests;
