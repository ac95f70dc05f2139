//! Jobs out of root-owned records.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Instant;

use super::{Addition, Found, Job, Source, SourceError};
use crate::records::{LoginTarget, ReadError, Record, RecordDevices, Registry, Via};
use kernel::trust::Trust;
use protocol::{CgroupPath, JobId, Placement, SourceName};

/// The registry as a source.
#[derive(Clone, Debug)]
pub struct RegistrySource {
    registry: Registry,
    trust: Trust,
    cgroup: PathBuf,
}

impl RegistrySource {
    /// A source over the records in `registry`, believed as `trust` says, of jobs whose cgroups
    /// lie below the mount `cgroup`.
    pub fn new(registry: Registry, trust: Trust, cgroup: PathBuf) -> Self {
        Self { registry, trust, cgroup }
    }

    /// Sorts one record by what can be done with it.
    fn take(&self, record: Record, found: &mut Found) {
        let path = self.registry.record_path(record.uid, &record.id);
        let path = path.display();
        let unsaid = record.devices() == RecordDevices::Unspecified;
        let otherwise = match &record.target {
            LoginTarget::Via(_) if unsaid => {
                return found.unusable(&record.id, format!("{path}: {UNSAID}"));
            }
            LoginTarget::Via(via) => {
                let prolog = super::flux::prolog(&record.id).filter(|_| *via == Via::Flux);
                if prolog.is_some_and(|cgroup| self.is_there(&cgroup).unwrap_or(false)) {
                    found.starting.push(record.id.clone());
                }
                format!("{path}: not running, {} has no such job", via.as_str())
            }
            LoginTarget::Cgroup(cgroup) => match self.is_there(cgroup) {
                Ok(true) if unsaid => {
                    return found.unusable(&record.id, format!("{path}: {UNSAID}"));
                }
                Ok(true) => return found.jobs.push(job(cgroup.clone(), record)),
                // The job may be a scheduler's that has put it elsewhere.
                Ok(false) => {
                    found.unusable.extend(unsaid.then(|| record.id.clone()));
                    format!("{path}: not running, cgroup {cgroup} is not there")
                }
                Err(error) => {
                    return found.unusable(&record.id, format!("{path}: cgroup {cgroup}: {error}"));
                }
            },
        };
        found.additions.push(Addition { record, otherwise });
    }

    fn is_there(&self, cgroup: &CgroupPath) -> std::io::Result<bool> {
        match std::fs::symlink_metadata(self.cgroup.join(cgroup.relative())) {
            Ok(meta) => Ok(meta.is_dir()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
            Err(error) => Err(error),
        }
    }
}

const UNSAID: &str = "says nothing about devices";

fn job(path: CgroupPath, record: Record) -> Job {
    Job {
        id: record.id.clone(),
        started: record.started.unwrap_or(0),
        ends: record.ends,
        placement: Placement::Cgroup { path, leaf: record.leaf.clone() },
        record: Some(record),
    }
}

impl Found {
    /// A record that cannot be used, and why.
    fn unusable(&mut self, id: &JobId, why: String) {
        self.unusable.push(id.clone());
        self.broken.push(why);
    }
}

impl Source for RegistrySource {
    fn name(&self) -> SourceName {
        SourceName::Registry
    }

    fn jobs(&self, uid: u32, _deadline: Instant) -> Result<Found, SourceError> {
        let user = self.registry.read_user(&self.trust, uid).map_err(|error| match error {
            ReadError::NoRegistry => {
                SourceError::Absent(format!("{} does not exist", self.registry.dir().display()))
            }
            ReadError::Distrusted(error) => SourceError::Failed(error.to_string()),
        })?;
        let mut found = Found::default();
        for record in user.records {
            self.take(record, &mut found);
        }
        for broken in user.broken {
            match &broken.job {
                Some(job) => found.unusable(job, broken.to_string()),
                None => found.skipped.push(broken.to_string()),
            }
        }
        found.ended = user.ended;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Note;
    use crate::testing::Scratch;
    use protocol::JobId;

    fn look(scratch: &Scratch) -> Result<Found, SourceError> {
        let registry = Registry::new(&scratch.path().join("jobs"));
        RegistrySource::new(registry, scratch.trust(), scratch.path().join("cg"))
            .jobs(5, Instant::now())
    }

    fn record(scratch: &Scratch, id: &str, more: &str) {
        let text = format!(r#"{{"version":1,"id":"{id}","uid":5,{more}}}"#);
        scratch.file(&format!("jobs/5/{id}.json"), &text);
    }

    #[test]
    fn a_job_needs_its_cgroup_and_a_word_about_devices() {
        let scratch = Scratch::new();
        scratch.dir("cg/here");
        scratch.file("cg/file", "");
        record(&scratch, "1", r#""cgroup":"/here","started":7,"ends":9,"leaf":"l","cdi":[]"#);
        record(&scratch, "2", r#""cgroup":"/gone","cdi":[]"#);
        record(&scratch, "3", r#""cgroup":"/here""#);
        record(&scratch, "4", r#""via":"slurm","cdi":[]"#);
        record(&scratch, "5", r#""cgroup":"/file","cdi":[]"#);
        record(&scratch, "6", r#""cgroup":"/file/below","cdi":[]"#);
        record(&scratch, "7", r#""cgroup":"#);
        scratch.file("jobs/5/8.ended", &Note::new(3).to_json());
        scratch.file("jobs/5/README", "");
        record(&scratch, "9", r#""via":"slurm""#);
        let found = look(&scratch).unwrap();
        let [job] = found.jobs.as_slice() else { panic!("{:?}", found.jobs) };
        assert_eq!((job.id.as_str(), job.started, job.ends), ("1", 7, Some(9)));
        let (path, leaf) = ("/here".parse().unwrap(), Some("l".parse().unwrap()));
        assert_eq!(job.placement, Placement::Cgroup { path, leaf });
        let added: Vec<_> = found.additions.iter().map(|one| one.record.id.as_str()).collect();
        assert_eq!(added, ["2", "4", "5", "6"]);
        assert_eq!(found.ended, [("8".parse().unwrap(), Note::new(3))]);
        let unusable: Vec<_> = found.unusable.iter().map(JobId::as_str).collect();
        assert_eq!(unusable, ["3", "9", "7"]);
        assert_eq!(found.broken.len(), 3, "{:?}", found.broken);
        assert_eq!(found.skipped.len(), 1, "{:?}", found.skipped);
    }

    #[test]
    fn a_job_of_flux_is_starting_while_its_prolog_runs() {
        let scratch = Scratch::new();
        let prologs = "cg/system.slice/system-flux\\x2dprolog.slice";
        for id in ["fxyzzy", "f2"] {
            record(&scratch, id, r#""via":"flux","cdi":[]"#);
        }
        record(&scratch, "4", r#""via":"slurm","cdi":[]"#);
        for id in ["fxyzzy", "4"] {
            scratch.dir(&format!("{prologs}/flux-prolog@{id}.service"));
        }
        let found = look(&scratch).unwrap();
        assert_eq!(found.starting, ["fxyzzy".parse().unwrap()]);
        assert_eq!(found.additions.len(), 3);
    }

    #[test]
    fn a_missing_registry_is_absent_and_a_bad_one_fails() {
        let scratch = Scratch::new();
        assert!(matches!(look(&scratch), Err(SourceError::Absent(_))));
        scratch.dir("jobs");
        assert_eq!(look(&scratch), Ok(Found::default()));
        scratch.mode("jobs", 0o777);
        assert!(matches!(look(&scratch), Err(SourceError::Failed(_))));
    }
}
