//! Finds jobs by root-owned records.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::{Addition, Source, SourceError, SourceReport};
use crate::clock::Deadline;
use crate::jobs::Job;
use crate::jobs::records::{
    LoginTarget, ReadError, Record, RecordDevices, Registry, UserRecords, Via,
};
use kernel::trust::Trust;
use protocol::{CgroupPath, JobId, Placement, SourceName};

/// The source of registered jobs.
#[derive(Clone, Debug)]
pub struct RegistrySource {
    registry: Registry,
    trust: Trust,
    cgroup: PathBuf,
    /// The file that the first registration makes; `None` if the site has chosen this source.
    first_use: Option<PathBuf>,
}

impl RegistrySource {
    /// A source that reads the records in `registry`, as far as `trust` allows, of jobs whose
    /// cgroups are below the mount `cgroup`.
    pub fn new(registry: Registry, trust: Trust, cgroup: PathBuf) -> Self {
        Self {
            registry,
            trust,
            cgroup,
            first_use: None,
        }
    }

    /// Makes the source report [`SourceError::Unused`] while it is empty and the file `lock`, which
    /// the first registration makes, does not exist. Packages create the registry on login nodes too.
    pub fn unused_before_first_job(self, lock: PathBuf) -> Self {
        Self {
            first_use: Some(lock),
            ..self
        }
    }

    /// Tells whether no job was registered since the node started: the file that the first registration makes does not
    /// exist, and the registry is empty. `false` if that cannot be found out, and if the site has chosen this source,
    /// which then counts as used.
    fn is_unused(&self) -> bool {
        let Some(lock) = &self.first_use else {
            return false;
        };
        match lock.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.registry.is_empty(&self.trust)
            }
            _ => false,
        }
    }

    /// Adds a record to the report: as a running job if its cgroup exists; as an addition if only a scheduler may have
    /// the job of that id (`via`, or a cgroup that does not exist); as unusable if it says nothing about devices, or if
    /// its cgroup cannot be looked at. A Flux job whose prolog runs is starting as well.
    fn add_record(&self, record: Record, report: &mut SourceReport) {
        let file = self.registry.record_path(record.uid, &record.id);
        let path = file.display();
        let has_no_devices = record.devices() == RecordDevices::Unspecified;
        let absence_cause = match &record.target {
            LoginTarget::Via(_) if has_no_devices => {
                return report.add_unusable(&record.id, format!("{path}: {NO_DEVICES}"));
            }
            LoginTarget::Via(via) => {
                if *via == Via::Flux && self.has_flux_prolog(&record.id) {
                    report.starting.push(record.id.clone());
                }
                format!("{path}: not running, {} has no such job", via.as_str())
            }
            LoginTarget::Cgroup(cgroup) => match self.has_cgroup(cgroup) {
                Ok(true) if has_no_devices => {
                    return report.add_unusable(&record.id, format!("{path}: {NO_DEVICES}"));
                }
                Ok(true) => return report.jobs.push(cgroup_job(cgroup.clone(), record)),
                // A scheduler may have the job in another cgroup. Without devices it must not be joined there either.
                Ok(false) => {
                    if has_no_devices {
                        report.unusable.push(record.id.clone());
                    }
                    format!("{path}: not running, cgroup {cgroup} is not there")
                }
                Err(error) => {
                    return report
                        .add_unusable(&record.id, format!("{path}: cgroup {cgroup}: {error}"));
                }
            },
        };
        report.additions.push(Addition {
            record,
            absence_cause,
        });
    }

    /// Tells whether Flux's prolog for this job runs. A cgroup that cannot be read counts as missing.
    fn has_flux_prolog(&self, id: &JobId) -> bool {
        super::flux::prolog_cgroup(id)
            .is_some_and(|cgroup| self.has_cgroup(&cgroup).unwrap_or(false))
    }

    /// Tells whether a cgroup exists.
    ///
    /// # Errors
    ///
    /// As `stat(2)`, except for a path that does not exist.
    fn has_cgroup(&self, cgroup: &CgroupPath) -> std::io::Result<bool> {
        match std::fs::symlink_metadata(self.cgroup.join(cgroup.relative())) {
            Ok(meta) => Ok(meta.is_dir()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
            Err(error) => Err(error),
        }
    }
}

const NO_DEVICES: &str = "says nothing about devices";

/// Makes a running job of a record with a cgroup. A start that the record lacks counts as 0, before all others.
fn cgroup_job(path: CgroupPath, record: Record) -> Job {
    Job {
        id: record.id.clone(),
        started: record.started.unwrap_or(0),
        ends: record.ends,
        placement: Placement::Cgroup {
            path,
            leaf: record.leaf.clone(),
        },
        slurm: None,
        record: Some(record),
    }
}

impl SourceReport {
    /// Adds a record that cannot be used, and why.
    fn add_unusable(&mut self, id: &JobId, why: String) {
        self.unusable.push(id.clone());
        self.broken.push(why);
    }
}

impl Source for RegistrySource {
    fn name(&self) -> SourceName {
        SourceName::Registry
    }

    /// Reports the user's records. Files that cannot be used are `unusable` if they may be records of running jobs, else
    /// `skipped`. It reads files of root's alone and waits for nothing, so it needs no deadline.
    fn jobs(&self, uid: u32, _deadline: Deadline) -> Result<SourceReport, SourceError> {
        let user = self
            .registry
            .read_user(&self.trust, uid)
            .map_err(|error| match error {
                ReadError::NoRegistry => {
                    SourceError::Absent(format!("{} does not exist", self.registry.dir().display()))
                }
                ReadError::Distrusted(error) => SourceError::Failed(error.to_string()),
            })?;
        // A user without any file may be on a node on which nobody registers jobs.
        if user == UserRecords::default() && self.is_unused() {
            let dir = self.registry.dir().display();
            return Err(SourceError::Unused(format!(
                "{dir} is empty, and no job was registered since the boot"
            )));
        }
        let mut report = SourceReport::default();
        for record in user.records {
            self.add_record(record, &mut report);
        }
        for broken in user.broken {
            match &broken.job {
                Some(job) => report.add_unusable(job, broken.to_string()),
                None => report.skipped.push(broken.to_string()),
            }
        }
        report.ended = user.ended;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::records::Note;
    use crate::testing::Scratch;
    use protocol::JobId;
    use std::time::Duration;

    fn read_jobs(scratch: &Scratch) -> Result<SourceReport, SourceError> {
        let registry = Registry::new(&scratch.path().join("jobs"));
        RegistrySource::new(registry, scratch.trust(), scratch.path().join("cg"))
            .jobs(5, Deadline::after(Duration::ZERO))
    }

    fn write_record(scratch: &Scratch, id: &str, more: &str) {
        let text = format!(r#"{{"version":1,"id":"{id}","uid":5,{more}}}"#);
        scratch.file(&format!("jobs/5/{id}.json"), &text);
    }

    #[test]
    fn record_needs_cgroup_and_devices_to_be_a_job() {
        let scratch = Scratch::new();
        scratch.dir("cg/here");
        scratch.file("cg/file", "");
        write_record(
            &scratch,
            "1",
            r#""cgroup":"/here","started":7,"ends":9,"leaf":"l","cdi":[]"#,
        );
        write_record(&scratch, "2", r#""cgroup":"/gone","cdi":[]"#);
        write_record(&scratch, "3", r#""cgroup":"/here""#);
        write_record(&scratch, "4", r#""via":"slurm","cdi":[]"#);
        write_record(&scratch, "5", r#""cgroup":"/file","cdi":[]"#);
        write_record(&scratch, "6", r#""cgroup":"/file/below","cdi":[]"#);
        write_record(&scratch, "7", r#""cgroup":"#);
        scratch.file("jobs/5/8.ended", &Note::new(3).to_json());
        scratch.file("jobs/5/README", "");
        write_record(&scratch, "9", r#""via":"slurm""#);
        let report = read_jobs(&scratch).unwrap();
        let [job] = report.jobs.as_slice() else {
            panic!("{:?}", report.jobs)
        };
        assert_eq!((job.id.as_str(), job.started, job.ends), ("1", 7, Some(9)));
        let path = "/here".parse().unwrap();
        let leaf = Some("l".parse().unwrap());
        assert_eq!(job.placement, Placement::Cgroup { path, leaf });
        let added: Vec<_> = report
            .additions
            .iter()
            .map(|addition| addition.record.id.as_str())
            .collect();
        assert_eq!(added, ["2", "4", "5", "6"]);
        assert_eq!(report.ended, [("8".parse().unwrap(), Note::new(3))]);
        let unusable: Vec<_> = report.unusable.iter().map(JobId::as_str).collect();
        assert_eq!(unusable, ["3", "9", "7"]);
        assert_eq!(report.broken.len(), 3, "{:?}", report.broken);
        assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
    }

    #[test]
    fn empty_registry_is_unused_until_first_registration() {
        let scratch = Scratch::new();
        let lock = scratch.path().join("lock");
        let read = |uid| {
            let registry = Registry::new(&scratch.dir("jobs"));
            RegistrySource::new(registry, scratch.trust(), scratch.path().join("cg"))
                .unused_before_first_job(lock.clone())
                .jobs(uid, Deadline::after(Duration::ZERO))
        };
        assert!(matches!(read(5), Err(SourceError::Unused(_))));
        assert_eq!(read_jobs(&scratch), Ok(SourceReport::default()));
        scratch.file("lock", "");
        assert_eq!(read(5), Ok(SourceReport::default()));
        std::fs::remove_file(&lock).unwrap();
        write_record(&scratch, "4", r#""via":"slurm","cdi":[]"#);
        assert_eq!(read(6), Ok(SourceReport::default()));
    }

    #[test]
    fn flux_record_is_starting_while_prolog_cgroup_exists() {
        let scratch = Scratch::new();
        let prologs = "cg/system.slice/system-flux\\x2dprolog.slice";
        for id in ["fxyzzy", "f2"] {
            write_record(&scratch, id, r#""via":"flux","cdi":[]"#);
        }
        write_record(&scratch, "4", r#""via":"slurm","cdi":[]"#);
        for id in ["fxyzzy", "4"] {
            scratch.dir(&format!("{prologs}/flux-prolog@{id}.service"));
        }
        let report = read_jobs(&scratch).unwrap();
        assert_eq!(report.starting, ["fxyzzy".parse().unwrap()]);
        assert_eq!(report.additions.len(), 3);
    }

    #[test]
    fn missing_registry_is_absent_and_untrusted_one_fails() {
        let scratch = Scratch::new();
        assert!(matches!(read_jobs(&scratch), Err(SourceError::Absent(_))));
        scratch.dir("jobs");
        assert_eq!(read_jobs(&scratch), Ok(SourceReport::default()));
        scratch.mode("jobs", 0o777);
        assert!(matches!(read_jobs(&scratch), Err(SourceError::Failed(_))));
    }
}
