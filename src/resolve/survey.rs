//! Asking every source about one user.

use super::Evidence;
use crate::plan::Reason;
use crate::registry::NOTE_VALID;
use crate::source::{EndedJob, Found, Job, Source, SourceError};

/// What all sources together know.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Running jobs.
    pub(super) jobs: Vec<Job>,
    /// Sources and files that may have hidden a running job, each with the cause.
    pub(super) faults: Vec<String>,
    /// What is not used, and why.
    pub(super) skipped: Vec<String>,
    /// What sources are not on this node.
    absent: Vec<String>,
    ended: Vec<EndedJob>,
    sources: usize,
}

impl Survey {
    /// Asks the sources.
    pub(super) fn of(sources: &[Box<dyn Source>], uid: u32) -> Self {
        let mut survey = Self { sources: sources.len(), ..Self::default() };
        for source in sources {
            let name = source.name().as_str();
            match source.jobs(uid) {
                Ok(found) => survey.add(found),
                Err(SourceError::Absent(what)) => survey.absent.push(format!("{name}: {what}")),
                Err(SourceError::Failed(what)) => survey.faults.push(format!("{name}: {what}")),
            }
        }
        survey
    }

    fn add(&mut self, found: Found) {
        self.jobs.extend(found.jobs);
        self.faults.extend(found.broken);
        self.skipped.extend(found.skipped);
        self.ended.extend(found.ended);
    }

    /// Why a user without a running job is refused, with the job that just ended, and the cause for
    /// the log. A fault comes first, since it may be why no job was found.
    pub(super) fn without_job(&self, now: i64) -> (Reason, Option<EndedJob>, String) {
        if !self.faults.is_empty() {
            return (Reason::Configuration, None, self.faults.join("; "));
        }
        let valid = |job: &&EndedJob| (0..=NOTE_VALID).contains(&now.saturating_sub(job.ended));
        if let Some(job) = self.ended.iter().filter(valid).max_by_key(|job| job.ended) {
            return (Reason::Ended, Some(job.clone()), self.skipped.join("; "));
        }
        if self.absent.len() == self.sources {
            return (Reason::NoScheduler, None, self.absent.join("; "));
        }
        (Reason::NoJob, None, self.skipped.join("; "))
    }

    /// Puts down what was seen.
    pub(super) fn tell(&self, evidence: &mut Evidence) {
        for job in &self.jobs {
            let (id, source) = (&job.id, job.source.as_str());
            let (started, cgroup) = (job.started, &job.cgroup);
            evidence.add("job", format_args!("{id} from {source}, started {started}, in {cgroup}"));
        }
        for job in &self.ended {
            evidence.add("ended", format_args!("{} at {}", job.id, job.ended));
        }
        for (word, texts) in
            [("fault", &self.faults), ("skipped", &self.skipped), ("absent", &self.absent)]
        {
            texts.iter().for_each(|text| evidence.add(word, text));
        }
    }
}
