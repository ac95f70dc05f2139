//! Asking every source about one user: for a login, for a choice of jobs, and for how they are.

use crate::sources;
use std::time::{Duration, Instant};

use super::{Config, Evidence, Node, refusal};
use crate::sources::{Addition, Job, Source, SourceError, SourceReport};
use protocol::{JobId, Reason, Refusal, SourceName};

#[derive(Debug, Default)]
pub(super) struct Survey {
    /// What the sources found together; among what is broken are sources that failed.
    pub(super) found: SourceReport,
    /// The sources that are on this node.
    pub(super) present: Vec<SourceName>,
    /// What sources are not on this node.
    absent: Vec<String>,
    /// Where each looked, and what there was.
    seen: Vec<(SourceName, String)>,
    /// Whether the records could not be read at all.
    unread: bool,
}

impl Survey {
    /// Asks the sources, which wait no longer than to `deadline`.
    pub(super) fn query(sources: &[Box<dyn Source>], uid: u32, deadline: Instant) -> Self {
        let mut survey = Self::default();
        for source in sources {
            let name = source.name();
            match source.jobs(uid, deadline) {
                Ok(found) => survey.add(name, found),
                Err(SourceError::Absent(what)) => {
                    survey.absent.push(format!("{}: {what}", name.as_str()));
                }
                Err(SourceError::Failed(what)) => {
                    survey.present.push(name);
                    survey.found.broken.push(format!("{}: {what}", name.as_str()));
                    survey.unread |= name == SourceName::Registry;
                }
            }
        }
        survey.merge();
        survey
    }

    fn add(&mut self, name: SourceName, own: SourceReport) {
        self.present.push(name);
        self.seen.extend(own.seen.into_iter().map(|text| (name, text)));
        let all = &mut self.found;
        all.jobs.extend(own.jobs);
        all.additions.extend(own.additions);
        all.starting.extend(own.starting);
        all.ending.extend(own.ending);
        all.ended.extend(own.ended);
        all.unusable.extend(own.unusable);
        all.broken.extend(own.broken);
        all.silent.extend(own.silent);
        all.foreign.extend(own.foreign);
        all.skipped.extend(own.skipped);
    }

    /// Where a job comes from its scheduler and from a record, the scheduler places its logins and
    /// the record adds devices. A job of which the record is there and cannot be used is not
    /// joined: its devices would be more than the record says.
    fn merge(&mut self) {
        let SourceReport { jobs, additions, unusable, broken, skipped, .. } = &mut self.found;
        let (mut placed, own): (Vec<Job>, Vec<Job>) =
            jobs.drain(..).partition(|job| job.placement.source() != SourceName::Registry);
        for own in own {
            match own.record {
                Some(record) if placed.iter().any(|job| job.id == record.id) => {
                    additions.push(Addition { record, absence_cause: String::new() });
                }
                record => jobs.push(Job { record, ..own }),
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
            let usable = !self.unread && !unusable.iter().any(|id| job.has_name(id));
            if !usable {
                broken.push(format!("job {}: not joined without its record", job.id));
            }
            usable
        });
        jobs.extend(placed);
    }

    /// Whether it is of use to ask again: there is no job yet, and either one is about to run or
    /// nothing can have hidden one.
    pub(super) fn may_change(&self) -> bool {
        let SourceReport { jobs, broken, silent, starting, .. } = &self.found;
        jobs.is_empty() && (broken.is_empty() && silent.is_empty() || !starting.is_empty())
    }

    /// Why a user without a running job is refused. A fault comes first, since it may be why no job
    /// was found, then what did not answer; then what the user sees change next. That a source is
    /// not on this node matters where no other is, or where the site has `named` its sources.
    pub(super) fn without_job(&self, now: i64, named: bool) -> (Refusal, String) {
        let because = |reason, texts: &[String]| (refusal(reason), texts.join("; "));
        let about = |reason, id: &JobId, ended, texts: &[String]| {
            let refusal = Refusal { jobs: vec![id.clone()], ended, ..refusal(reason) };
            (refusal, texts.join("; "))
        };
        let SourceReport { broken, silent, starting, ending, ended, skipped, .. } = &self.found;
        if !broken.is_empty() {
            return because(Reason::Configuration, broken);
        }
        if !silent.is_empty() {
            return because(Reason::Timeout, silent);
        }
        if let Some(id) = starting.first() {
            return about(Reason::Starting, id, None, &[]);
        }
        if let Some(id) = ending.first() {
            return about(Reason::Ended, id, None, skipped);
        }
        let valid = ended.iter().filter(|(_, note)| note.is_valid(now));
        if let Some((id, note)) = valid.max_by_key(|(_, note)| note.ended()) {
            return about(Reason::Ended, id, Some(note.ended()), skipped);
        }
        match self.present.is_empty() {
            true => because(Reason::NoScheduler, &self.absent),
            false => {
                let seen =
                    |(source, text): &(SourceName, _)| format!("{}: {text}", source.as_str());
                let absent = self.absent.iter().filter(|_| named).cloned();
                let mut causes: Vec<_> = skipped.iter().cloned().chain(absent).collect();
                if causes.is_empty() {
                    causes.extend(self.seen.iter().map(seen));
                }
                because(Reason::NoJob, &causes)
            }
        }
    }

    /// What an administrator should know beside a job that was found.
    pub(super) fn warnings(self) -> Vec<String> {
        [self.found.broken, self.found.silent, self.found.foreign].concat()
    }

    pub(super) fn tell(&self, evidence: &mut Evidence) {
        for (source, text) in &self.seen {
            evidence.add(source.as_str(), text);
        }
        let SourceReport {
            jobs, starting, ending, ended, broken, silent, foreign, skipped, ..
        } = &self.found;
        for job in jobs {
            let (id, source) = (&job.id, job.placement.source().as_str());
            let (started, place) = (job.started, sources::describe_placement(&job.placement, id));
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

/// What one source answers, and how long it takes.
#[derive(Debug)]
pub struct Health {
    /// Which source.
    pub source: SourceName,
    /// Its answer.
    pub answer: Result<SourceReport, SourceError>,
    /// How long that took.
    pub took: Duration,
}

impl Node {
    /// The jobs among which a login of this user would be, looked up with the caller's own rights
    /// until `deadline`, and what may have hidden others; `node` is this node's name.
    /// Fails: why no source can be asked.
    pub fn running(
        &self,
        config: &Config,
        node: &str,
        uid: u32,
        deadline: Instant,
    ) -> Result<(Vec<Job>, Vec<String>), String> {
        let sources = self.sources(&self.tree(), node, config)?;
        let mut survey = Survey::query(&sources, uid, deadline);
        let jobs = std::mem::take(&mut survey.found.jobs);
        Ok((jobs, survey.warnings()))
    }

    /// Asks each source of the configuration about a user, as at a login to the node of that name,
    /// for `each` at most.
    /// Errors: a text where none can be asked.
    pub fn health(
        &self,
        node: &str,
        config: &Config,
        uid: u32,
        each: Duration,
    ) -> Result<Vec<Health>, String> {
        let ask = |source: Box<dyn crate::sources::Source>| {
            let began = Instant::now();
            let answer = source.jobs(uid, began + each);
            Health { source: source.name(), answer, took: began.elapsed() }
        };
        Ok(self.sources(&self.tree(), node, config)?.into_iter().map(ask).collect())
    }
}
