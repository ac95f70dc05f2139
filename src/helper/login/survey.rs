//! Queries every source about one user: for a login, for a choice of jobs, and for `check`.

use super::evidence::Evidence;
use super::node::Node;
use super::refusal::{LoginRefusal, refusal};
use crate::clock::{Clock, Deadline};
use crate::config::Config;
use crate::jobs::sources::{Addition, Source, SourceError, SourceReport};
use crate::jobs::{Job, describe_placement};
use crate::node::Tree;
use crate::slurm_conf::find_slurmd_sign;
use kernel::cgroup;
use protocol::{JobId, Reason, Refusal, SourceName};
use std::time::Duration;

/// The reports of all sources about one user.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// All reports as one; a source that failed counts as broken.
    pub(super) report: SourceReport,
    /// The sources that are on this node.
    pub(super) present: Vec<SourceName>,
    /// Texts about the sources that are not on this node.
    absent: Vec<String>,
    /// Slurm is one of the absent sources.
    lacks_slurm: bool,
    /// Summaries of the places that each source read.
    seen: Vec<(SourceName, String)>,
    /// The registry could not be read.
    registry_failed: bool,
    /// The running jobs whose record says that they take no logins.
    pub(super) closed: Vec<Job>,
}

impl Survey {
    /// Queries the sources, which wait until `deadline` at most. A source that cannot be read counts as present, and its
    /// error as a fault; a source that is not on this node is only noted.
    pub(super) fn query(sources: &[Box<dyn Source>], uid: u32, deadline: Deadline) -> Self {
        let mut survey = Self::default();
        for source in sources {
            let name = source.name();
            match source.jobs(uid, deadline) {
                Ok(report) => survey.add_report(name, report),
                Err(SourceError::Absent(what) | SourceError::Unused(what)) => {
                    survey.absent.push(format!("{}: {what}", name.as_str()));
                    survey.lacks_slurm |= name == SourceName::Slurm;
                }
                Err(SourceError::Failed(what)) => {
                    survey.present.push(name);
                    survey
                        .report
                        .broken
                        .push(format!("{}: {what}", name.as_str()));
                    survey.registry_failed |= name == SourceName::Registry;
                }
            }
        }
        survey.merge_records();
        survey.set_closed_jobs_apart();
        survey
    }

    /// Adds the report of one source.
    fn add_report(&mut self, name: SourceName, report: SourceReport) {
        self.present.push(name);
        self.seen
            .extend(report.seen.into_iter().map(|text| (name, text)));
        let all = &mut self.report;
        all.jobs.extend(report.jobs);
        all.additions.extend(report.additions);
        all.starting.extend(report.starting);
        all.daemonless.extend(report.daemonless);
        all.ending.extend(report.ending);
        all.ended.extend(report.ended);
        all.unusable.extend(report.unusable);
        all.broken.extend(report.broken);
        all.silent.extend(report.silent);
        all.foreign.extend(report.foreign);
        all.skipped.extend(report.skipped);
    }

    /// Merges jobs that both a scheduler and a record have: the scheduler places the logins, the
    /// record adds devices. Removes a scheduler's jobs whose record is unusable, or all of them if no record could be
    /// read: a login would get more devices than the record allows.
    fn merge_records(&mut self) {
        let SourceReport {
            jobs,
            additions,
            unusable,
            broken,
            skipped,
            ..
        } = &mut self.report;
        let (mut placed, registered): (Vec<Job>, Vec<Job>) = jobs
            .drain(..)
            .partition(|job| job.placement.source() != SourceName::Registry);
        for registered_job in registered {
            match registered_job.record {
                // A scheduler has the job, so nobody reads the cause of its absence.
                Some(record) if placed.iter().any(|job| job.id == record.id) => {
                    additions.push(Addition {
                        record,
                        absence_cause: String::new(),
                    });
                }
                // Any other one is placed by its own record.
                record => jobs.push(Job {
                    record,
                    ..registered_job
                }),
            }
        }
        for Addition {
            record,
            absence_cause,
        } in additions.drain(..)
        {
            match placed.iter_mut().find(|job| job.id == record.id) {
                Some(job) => {
                    job.ends = job.ends.or(record.ends);
                    job.record = Some(record);
                }
                None => skipped.push(absence_cause),
            }
        }
        for job in placed {
            if self.registry_failed || unusable.iter().any(|id| job.has_name(id)) {
                broken.push(format!("job {}: not joined without its record", job.id));
            } else {
                jobs.push(job);
            }
        }
    }

    /// Moves the jobs that take no logins from the other running ones to [`Survey::closed`].
    fn set_closed_jobs_apart(&mut self) {
        let (open, closed): (Vec<Job>, Vec<Job>) =
            self.report.jobs.drain(..).partition(Job::takes_logins);
        self.report.jobs = open;
        self.closed = closed;
    }

    /// The command by which users list their own jobs, of the first source that is here and has one; `None` if none
    /// has.
    pub(super) fn job_list_command(&self) -> Option<&'static str> {
        let mut present = SourceName::ALL
            .into_iter()
            .filter(|name| self.present.contains(name));
        present.find_map(job_list_command)
    }

    /// Tells whether another query can find a job: there is none yet, and either one is starting or
    /// no fault can hide one.
    pub(super) fn can_change(&self) -> bool {
        let SourceReport {
            jobs,
            broken,
            silent,
            starting,
            daemonless,
            ..
        } = &self.report;
        let has_no_fault = broken.is_empty() && silent.is_empty() && daemonless.is_empty();
        jobs.is_empty() && (has_no_fault || !starting.is_empty())
    }

    /// Refuses a user without a running job that takes logins.
    ///
    /// A fault comes first, since it may hide a job, then a missing answer, then a job that starts, one
    /// that no login can join, one that takes no logins, and one that ends or has ended. The causes name each absent source. If slurmd runs in `tree`
    /// and its jobs cannot be found, the fault is not the user's, as on a node without any source. `now` is in seconds
    /// since the epoch.
    pub(super) fn refuse_without_job(&self, now: i64, tree: &Tree) -> LoginRefusal {
        let SourceReport {
            broken,
            silent,
            starting,
            daemonless,
            ending,
            ended,
            skipped,
            ..
        } = &self.report;
        if !broken.is_empty() {
            return refuse(Reason::Configuration, broken);
        }
        if !silent.is_empty() {
            return refuse(Reason::Timeout, silent);
        }
        if let Some(id) = starting.first() {
            return refuse_job(Reason::Starting, id, None, &[]);
        }
        if let Some(job) = daemonless.first() {
            let causes = [job.cause.clone()];
            return refuse_job(Reason::AdoptionFailed, &job.id, None, &causes);
        }
        if let Some(job) = self.closed.first() {
            return refuse_closed(vec![job.id.clone()]);
        }
        if let Some(id) = ending.first() {
            return refuse_job(Reason::Ended, id, None, skipped);
        }
        let valid = ended.iter().filter(|(_, note)| note.is_valid(now));
        if let Some((id, note)) = valid.max_by_key(|(_, note)| note.ended()) {
            return refuse_job(Reason::Ended, id, Some(note.ended()), skipped);
        }
        if self.present.is_empty() {
            return refuse(Reason::NoScheduler, &self.absent);
        }
        let mut causes = skipped.clone();
        if self.lacks_slurm {
            if let Some(sign) = find_slurmd_sign(tree) {
                causes.extend_from_slice(&self.absent);
                causes.push(format!("slurmd runs here: there is {sign}"));
                return refuse(Reason::NoScheduler, &causes);
            }
        }
        if causes.is_empty() {
            causes.extend(
                self.seen
                    .iter()
                    .map(|(source, text)| format!("{source}: {text}")),
            );
        }
        causes.extend_from_slice(&self.absent);
        refuse(Reason::NoJob, &causes)
    }

    /// Joins the warnings for the log: faults of the sources, then those of `later` steps, then
    /// daemons that did not answer.
    pub(super) fn into_warnings(self, later: Vec<String>) -> Vec<String> {
        let daemonless = self.report.daemonless.into_iter().map(|job| job.cause);
        [
            self.report.broken,
            later,
            self.report.silent,
            daemonless.collect(),
            self.report.foreign,
        ]
        .concat()
    }

    /// Lists what each source reported, for `job-adopt resolve`.
    pub(super) fn evidence(&self) -> Evidence {
        let mut evidence = Evidence::default();
        for (source, text) in &self.seen {
            evidence.add(source.as_str(), text);
        }
        let report = &self.report;
        for job in &report.jobs {
            let id = &job.id;
            let source = job.placement.source();
            let started = job.started;
            let place = describe_placement(&job.placement, id);
            evidence.add(
                "job",
                format_args!("{id} from {source}, started {started}, in {place}"),
            );
            if source != SourceName::Registry && job.record.is_some() {
                evidence.add("record", format_args!("of job {id}, adds devices"));
            }
        }
        for job in &self.closed {
            evidence.add("takes no logins", &job.id);
        }
        evidence.add_all("starting", &report.starting);
        evidence.add_all("no daemon", report.daemonless.iter().map(|job| &job.cause));
        evidence.add_all("ending", &report.ending);
        for (id, note) in &report.ended {
            evidence.add("ended", format_args!("{id} at {}", note.ended()));
        }
        evidence.add_all("fault", &report.broken);
        evidence.add_all("silent", &report.silent);
        // Who has the job does not matter to the reader of the list: either daemon is silent.
        evidence.add_all("silent", &report.foreign);
        evidence.add_all("skipped", &report.skipped);
        evidence.add_all("absent", &self.absent);
        evidence
    }
}

/// The command by which users list their own jobs; `None` if the source has none.
fn job_list_command(source: SourceName) -> Option<&'static str> {
    match source {
        SourceName::Registry => None,
        SourceName::Slurm => Some("squeue --me"),
        SourceName::Flux => Some("flux jobs"),
    }
}

/// Refuses a login with these causes for the log.
fn refuse(reason: Reason, causes: &[String]) -> LoginRefusal {
    LoginRefusal {
        refusal: refusal(reason),
        cause: causes.join("; "),
    }
}

/// Refuses a login to the first of these jobs, which takes none, or from inside of it to the others.
pub(super) fn refuse_closed(jobs: Vec<JobId>) -> LoginRefusal {
    let refusal = Refusal {
        jobs,
        ..refusal(Reason::LoginsClosed)
    };
    LoginRefusal {
        refusal,
        cause: String::new(),
    }
}

/// Refuses a login because of this job, with causes for the log, which may be none. `ended` is when the job ended;
/// `None` if no note says so.
fn refuse_job(reason: Reason, id: &JobId, ended: Option<i64>, causes: &[String]) -> LoginRefusal {
    let refusal = Refusal {
        jobs: vec![id.clone()],
        ended,
        ..refusal(reason)
    };
    LoginRefusal {
        refusal,
        cause: causes.join("; "),
    }
}

/// The running jobs of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningJobs {
    /// The jobs, in the order of their sources.
    pub jobs: Vec<Job>,
    /// The user's jobs that take no logins. None of them is among `jobs`.
    pub closed: Vec<Job>,
    /// Faults that may hide other jobs.
    pub warnings: Vec<String>,
}

/// The state of one source: its report, and how long that took.
#[derive(Debug)]
pub struct SourceHealth {
    /// The source.
    pub source: SourceName,
    /// Its report about a user.
    pub answer: Result<SourceReport, SourceError>,
    /// The duration of the query.
    pub took: Duration,
}

impl Node {
    /// Finds the user's running jobs, with the caller's own rights and until `deadline`. `node` is this
    /// node's name.
    ///
    /// # Errors
    ///
    /// As [`kernel::cgroup::Mount::open_below`], if the registry or Flux is a source.
    pub fn find_running_jobs(
        &self,
        config: &Config,
        node: &str,
        uid: u32,
        deadline: Deadline,
    ) -> cgroup::Result<RunningJobs> {
        let sources = self.sources(&self.slurm_conf(config), node, config)?;
        let mut survey = Survey::query(&sources, uid, deadline);
        let jobs = std::mem::take(&mut survey.report.jobs);
        let closed = std::mem::take(&mut survey.closed);
        Ok(RunningJobs {
            jobs,
            closed,
            warnings: survey.into_warnings(Vec::new()),
        })
    }

    /// Queries each source of the configuration about a user, as at a login to the node of that name,
    /// and waits for each of them at most for `each`; for `job-adopt check`.
    ///
    /// # Errors
    ///
    /// As [`Node::find_running_jobs`].
    pub fn query_source_health(
        &self,
        node: &str,
        config: &Config,
        uid: u32,
        each: Duration,
    ) -> cgroup::Result<Vec<SourceHealth>> {
        let mut states = Vec::new();
        for source in self.sources(&self.slurm_conf(config), node, config)? {
            let began = Clock::System.now();
            let answer = source.jobs(uid, Deadline::after(each));
            states.push(SourceHealth {
                source: source.name(),
                answer,
                took: began.elapsed(),
            });
        }
        Ok(states)
    }
}
