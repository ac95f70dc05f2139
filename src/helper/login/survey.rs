//! Queries every source about one user: for a login, for a choice of jobs, and for `check`.

use std::time::Duration;

use crate::clock::{Clock, Deadline};
use crate::config::Config;
use crate::jobs::sources::{Addition, Source, SourceError, SourceReport};
use crate::jobs::{Job, describe_placement};
use crate::login::evidence::Evidence;
use crate::login::node::Node;
use crate::login::refusal::refusal;
use protocol::{JobId, Reason, Refusal, SourceName};

/// The reports of all sources about one user.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// All reports as one; a source that failed counts as broken.
    pub(super) report: SourceReport,
    /// The sources that are on this node.
    pub(super) present: Vec<SourceName>,
    /// Texts about the sources that are not on this node.
    absent: Vec<String>,
    /// Summaries of the places that each source read.
    seen: Vec<(SourceName, String)>,
    /// The registry could not be read.
    registry_failed: bool,
}

impl Survey {
    /// Queries the sources, which wait until `deadline` at most.
    pub(super) fn query(sources: &[Box<dyn Source>], uid: u32, deadline: Deadline) -> Self {
        let mut survey = Self::default();
        for source in sources {
            let name = source.name();
            match source.jobs(uid, deadline) {
                Ok(report) => survey.add_report(name, report),
                Err(SourceError::Absent(what) | SourceError::Unused(what)) => {
                    survey.absent.push(format!("{}: {what}", name.as_str()));
                }
                Err(SourceError::Failed(what)) => {
                    survey.present.push(name);
                    survey.report.broken.push(format!("{}: {what}", name.as_str()));
                    survey.registry_failed |= name == SourceName::Registry;
                }
            }
        }
        survey.merge_records();
        survey
    }

    /// Adds the report of one source.
    fn add_report(&mut self, name: SourceName, report: SourceReport) {
        self.present.push(name);
        self.seen.extend(report.seen.into_iter().map(|text| (name, text)));
        let all = &mut self.report;
        all.jobs.extend(report.jobs);
        all.additions.extend(report.additions);
        all.starting.extend(report.starting);
        all.ending.extend(report.ending);
        all.ended.extend(report.ended);
        all.unusable.extend(report.unusable);
        all.broken.extend(report.broken);
        all.silent.extend(report.silent);
        all.foreign.extend(report.foreign);
        all.skipped.extend(report.skipped);
    }

    /// Merges jobs that both a scheduler and a record have: the scheduler places the logins, the
    /// record adds devices. Removes jobs with an unusable record: a login would get more devices than
    /// the record allows.
    fn merge_records(&mut self) {
        let SourceReport { jobs, additions, unusable, broken, skipped, .. } = &mut self.report;
        let (mut placed, registered): (Vec<Job>, Vec<Job>) =
            jobs.drain(..).partition(|job| job.placement.source() != SourceName::Registry);
        for registered_job in registered {
            match registered_job.record {
                Some(record) if placed.iter().any(|job| job.id == record.id) => {
                    additions.push(Addition { record, absence_cause: String::new() });
                }
                record => jobs.push(Job { record, ..registered_job }),
            }
        }
        for Addition { record, absence_cause } in additions.drain(..) {
            match placed.iter_mut().find(|job| job.id == record.id) {
                Some(job) => {
                    job.ends = job.ends.or(record.ends);
                    job.record = Some(record);
                }
                None => skipped.push(absence_cause),
            }
        }
        placed.retain(|job| {
            let is_usable = !self.registry_failed && !unusable.iter().any(|id| job.has_name(id));
            if !is_usable {
                broken.push(format!("job {}: not joined without its record", job.id));
            }
            is_usable
        });
        jobs.extend(placed);
    }

    /// Returns whether another query can find a job: there is none yet, and either one is starting or
    /// no fault can hide one.
    pub(super) fn can_change(&self) -> bool {
        let SourceReport { jobs, broken, silent, starting, .. } = &self.report;
        jobs.is_empty() && (broken.is_empty() && silent.is_empty() || !starting.is_empty())
    }

    /// Returns the refusal of a user without a running job, and its cause.
    ///
    /// A fault comes first, since it may hide a job, then a missing answer, then a job that starts,
    /// ends or has ended. An absent source is a cause if no other source is present, or if the site
    /// `configured` some and not all.
    pub(super) fn refusal_without_job(
        &self,
        now: i64,
        configured: &[SourceName],
    ) -> (Refusal, String) {
        let refuse = |reason, texts: &[String]| (refusal(reason), texts.join("; "));
        let refuse_job = |reason, id: &JobId, ended, texts: &[String]| {
            let refusal = Refusal { jobs: vec![id.clone()], ended, ..refusal(reason) };
            (refusal, texts.join("; "))
        };
        let SourceReport { broken, silent, starting, ending, ended, skipped, .. } = &self.report;
        if !broken.is_empty() {
            return refuse(Reason::Configuration, broken);
        }
        if !silent.is_empty() {
            return refuse(Reason::Timeout, silent);
        }
        if let Some(id) = starting.first() {
            return refuse_job(Reason::Starting, id, None, &[]);
        }
        if let Some(id) = ending.first() {
            return refuse_job(Reason::Ended, id, None, skipped);
        }
        let valid = ended.iter().filter(|(_, note)| note.is_valid(now));
        if let Some((id, note)) = valid.max_by_key(|(_, note)| note.ended()) {
            return refuse_job(Reason::Ended, id, Some(note.ended()), skipped);
        }
        match self.present.is_empty() {
            true => refuse(Reason::NoScheduler, &self.absent),
            false => {
                let seen =
                    |(source, text): &(SourceName, _)| format!("{}: {text}", source.as_str());
                let absent = self.absent.iter().filter(|_| configured != SourceName::ALL).cloned();
                let mut causes: Vec<_> = skipped.iter().cloned().chain(absent).collect();
                if causes.is_empty() {
                    causes.extend(self.seen.iter().map(seen));
                }
                refuse(Reason::NoJob, &causes)
            }
        }
    }

    /// Returns the warnings for the log, besides the jobs.
    pub(super) fn into_warnings(self) -> Vec<String> {
        [self.report.broken, self.report.silent, self.report.foreign].concat()
    }

    /// Adds the reports to the evidence.
    pub(super) fn add_evidence(&self, evidence: &mut Evidence) {
        for (source, text) in &self.seen {
            evidence.add(source.as_str(), text);
        }
        let SourceReport {
            jobs, starting, ending, ended, broken, silent, foreign, skipped, ..
        } = &self.report;
        for job in jobs {
            let (id, source) = (&job.id, job.placement.source().as_str());
            let (started, place) = (job.started, describe_placement(&job.placement, id));
            evidence.add("job", format_args!("{id} from {source}, started {started}, in {place}"));
            if source != SourceName::Registry.as_str() && job.record.is_some() {
                evidence.add("record", format_args!("of job {id}, adds devices"));
            }
        }
        starting.iter().for_each(|id| evidence.add("starting", id));
        ending.iter().for_each(|id| evidence.add("ending", id));
        for (id, note) in ended {
            evidence.add("ended", format_args!("{id} at {}", note.ended()));
        }
        let silent_all = [silent.as_slice(), foreign].concat();
        for (word, texts) in [
            ("fault", broken),
            ("silent", &silent_all),
            ("skipped", skipped),
            ("absent", &self.absent),
        ] {
            texts.iter().for_each(|text| evidence.add(word, text));
        }
    }
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
    /// Finds the user's running jobs, with the caller's own rights and until `deadline`. Returns also
    /// warnings about faults that may hide others. `node` is this node's name.
    ///
    /// # Errors
    ///
    /// A text if the cgroup mount cannot be found.
    pub fn find_running_jobs(
        &self,
        config: &Config,
        node: &str,
        uid: u32,
        deadline: Deadline,
    ) -> Result<(Vec<Job>, Vec<String>), String> {
        let sources = self.sources(&self.tree(), node, config)?;
        let mut survey = Survey::query(&sources, uid, deadline);
        let jobs = std::mem::take(&mut survey.report.jobs);
        Ok((jobs, survey.into_warnings()))
    }

    /// Queries each source of the configuration about a user, as at a login to the node of that name,
    /// for `each` at most.
    ///
    /// # Errors
    ///
    /// A text if the cgroup mount cannot be found.
    pub fn query_source_health(
        &self,
        node: &str,
        config: &Config,
        uid: u32,
        each: Duration,
    ) -> Result<Vec<SourceHealth>, String> {
        let query = |source: Box<dyn Source>| {
            let began = Clock::System.now();
            let answer = source.jobs(uid, Deadline::after(each));
            SourceHealth { source: source.name(), answer, took: began.elapsed() }
        };
        Ok(self.sources(&self.tree(), node, config)?.into_iter().map(query).collect())
    }
}
