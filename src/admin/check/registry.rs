//! Checks the registry, and the records in it that refuse their owners' logins.

use super::finding::{Check, Finding};
use super::remedy::{run, shell_path, shell_word};
use super::site::Site;
use super::trusted_file::trust_remedy;
use crate::accounts::UserNames;
use helper::Config;
use helper::jobs::records::{LoginTarget, ReadError, Record};
use kernel::OperationError;
use kernel::cgroup::{Mount, ignore_gone};
use kernel::trust::TrustError;
use protocol::SourceName;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// Pause before records whose cgroup is gone are checked again: the epilog of such a job may just be removing
/// its record.
const EPILOG_GRACE: Duration = Duration::from_secs(1);

/// What was found out about the registry.
#[derive(Debug)]
pub(super) struct RegistryFacts {
    dir: PathBuf,
    state: RegistryState,
}

#[derive(Debug)]
enum RegistryState {
    /// It is no source, or it does not exist: `register` makes it.
    Unused,
    Distrusted(TrustError),
    Unlisted(OperationError),
    Listed {
        faults: Vec<RecordFault>,
        stale: Vec<StaleRecord>,
    },
}

/// What makes logins of a user fail.
#[derive(Debug)]
struct RecordFault {
    kind: FaultKind,
    path: PathBuf,
    user: String,
    cause: String,
}

#[derive(Clone, Copy, Debug)]
enum FaultKind {
    Record,
    /// The directory of the user's records.
    Directory,
}

/// The record of a job whose cgroup is gone.
#[derive(Debug)]
struct StaleRecord {
    path: PathBuf,
    user: String,
    job: String,
}

impl RegistryFacts {
    /// Reads the registry if it is one of the sources.
    pub(super) fn read(site: &Site) -> Self {
        let Config {
            registry, sources, ..
        } = &site.config;
        let state = if sources.contains(&SourceName::Registry) {
            RegistryState::read(site)
        } else {
            RegistryState::Unused
        };
        Self {
            dir: registry.dir().to_owned(),
            state,
        }
    }

    /// Judges the registry and its records. There are no findings if the registry is not in use.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let object = self.dir.display();
        match &self.state {
            RegistryState::Unused => Vec::new(),
            RegistryState::Distrusted(error) => {
                let text = format!("cannot be used, so every login is refused (JA09): {error}");
                vec![Finding::error(
                    Check::Registry,
                    object,
                    text,
                    trust_remedy(error),
                )]
            }
            RegistryState::Unlisted(error) => {
                vec![Finding::unknown(
                    Check::Registry,
                    object,
                    error,
                    "run this as root",
                )]
            }
            RegistryState::Listed { faults, stale } => {
                let text = "only root can write it";
                let mut findings = vec![Finding::fine(Check::Registry, object, text)];
                findings.extend(faults.iter().map(RecordFault::finding));
                findings.extend(stale.iter().map(StaleRecord::finding));
                findings
            }
        }
    }
}

impl RegistryState {
    /// Reads the records of all users. A record or directory that cannot be used becomes a fault of its user;
    /// the others are read all the same. A missing registry is unused: `register` makes it.
    fn read(site: &Site) -> Self {
        let registry = &site.config.registry;
        if let Err(error) = site.trust.dir(registry.dir()) {
            return if error.is_missing() {
                Self::Unused
            } else {
                Self::Distrusted(error)
            };
        }
        let users = match registry.list_users() {
            Ok(users) => users,
            Err(error) => return Self::Unlisted(error),
        };
        let mut names = UserNames::default();
        let mut faults = Vec::new();
        let mut records = Vec::new();
        for uid in users {
            match registry.read_user(&site.trust, uid) {
                Ok(read) => {
                    records.extend(read.records);
                    // Files that stand for no job, such as notes, refuse no login.
                    let broken = read.broken.into_iter().filter(|file| file.job.is_some());
                    faults.extend(broken.map(|file| RecordFault {
                        kind: FaultKind::Record,
                        path: file.path,
                        user: names.name(uid),
                        cause: file.cause,
                    }));
                }
                // The registry was removed meanwhile.
                Err(ReadError::NoRegistry) => {}
                Err(error) => faults.push(RecordFault {
                    kind: FaultKind::Directory,
                    path: registry.user_dir(uid),
                    user: names.name(uid),
                    cause: error.to_string(),
                }),
            }
        }
        Self::Listed {
            faults,
            stale: find_stale(site, records, &mut names),
        }
    }
}

/// Finds the records of jobs whose cgroup is gone, and that are still there after [`EPILOG_GRACE`].
fn find_stale(site: &Site, mut records: Vec<Record>, names: &mut UserNames) -> Vec<StaleRecord> {
    records.retain(|record| is_cgroup_gone(site, record));
    if records.is_empty() {
        return Vec::new();
    }
    sleep(EPILOG_GRACE);
    let registry = &site.config.registry;
    records.retain(|record| {
        registry.record_path(record.uid, &record.id).exists() && is_cgroup_gone(site, record)
    });
    records
        .iter()
        .map(|record| StaleRecord {
            path: registry.record_path(record.uid, &record.id),
            user: names.name(record.uid),
            job: record.id.to_string(),
        })
        .collect()
}

/// Checks whether the cgroup that a record names is gone. A record that leaves the cgroup to a scheduler names
/// none.
fn is_cgroup_gone(site: &Site, record: &Record) -> bool {
    let LoginTarget::Cgroup(path) = &record.target else {
        return false;
    };
    let open = Mount::open_below(&site.root).and_then(|mount| mount.open_chain(path));
    ignore_gone(open).is_ok_and(|chain| chain.is_none())
}

impl RecordFault {
    /// Reports the record or directory as an error: its user's logins are refused.
    fn finding(&self) -> Finding {
        let object = self.path.display();
        let path = shell_path(&self.path);
        let exception = match self.kind {
            FaultKind::Record => ", unless another job takes them",
            FaultKind::Directory => "",
        };
        let text = format!(
            "makes logins of {} fail (JA09){exception}: {}",
            self.user, self.cause
        );
        let remedy = match self.kind {
            FaultKind::Record => {
                run(format!("rm {path}")).and("and if the job still runs, register it again")
            }
            FaultKind::Directory => run(format!("chown -R root: {path} && chmod -R go-w {path}")),
        };
        Finding::error(Check::Records, object, text, remedy)
    }
}

impl StaleRecord {
    fn finding(&self) -> Finding {
        let Self { path, user, job } = self;
        let text =
            format!("is of a job whose cgroup is gone, so it admits no login of {user} (JA01)");
        let remedy = run(format!("job-adopt unregister {}", shell_word(job)))
            .and("and see why its epilog did not");
        Finding::warning(Check::Records, path.display(), text, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Severity;

    fn findings(state: RegistryState) -> Vec<Finding> {
        RegistryFacts {
            dir: "/r".into(),
            state,
        }
        .findings()
    }

    #[test]
    fn registry_without_records_is_fine_and_unused_one_is_not_mentioned() {
        assert_eq!(findings(RegistryState::Unused), []);
        let listed = RegistryState::Listed {
            faults: Vec::new(),
            stale: Vec::new(),
        };
        let findings = findings(listed);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Fine);
    }

    #[test]
    fn stale_record_is_a_warning_that_names_job_and_user() {
        let path = "/r/5/7.json".into();
        let stale = vec![StaleRecord {
            path,
            user: "alice".to_owned(),
            job: "7".to_owned(),
        }];
        let findings = findings(RegistryState::Listed {
            faults: Vec::new(),
            stale,
        });
        assert_eq!(findings[1].severity, Severity::Warning);
        assert!(
            findings[1].text.ends_with("no login of alice (JA01)"),
            "{findings:?}"
        );
        assert!(
            findings[1].remedy.command == "job-adopt unregister 7",
            "{findings:?}"
        );
    }
}
