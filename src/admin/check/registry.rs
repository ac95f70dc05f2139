//! Checks the registry, and the records in it that refuse their owners' logins.

use super::finding::{Check, Finding};
use super::remedy::{Remedy, run, shell_path, shell_word};
use super::site::Site;
use super::trusted_file::{is_exposed, trust_remedy};
use crate::accounts::UserNames;
use helper::Config;
use helper::jobs::records::{LoginTarget, ReadError, Record};
use kernel::OperationError;
use kernel::cgroup::{Mount, ignore_gone};
use kernel::trust::TrustError;
use protocol::{Request, SourceName};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Pause before records whose cgroup is gone are checked again: the epilog of such a job may just be removing
/// its record.
const EPILOG_GRACE: Duration = Duration::from_secs(1);

/// What is left to do after [`set_aside`].
const REGISTER_ADVICE: &str =
    "and register the jobs again; what a user could write there must not become root's";

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
    /// A directory above is not trusted, which [`Check::RunDirectory`] reports.
    BelowDistrusted,
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
    /// The directory of the user's records, which others than root could write.
    Exposed,
    /// The directory of the user's records, for another cause.
    Directory,
}

/// The record of a job whose cgroup is gone.
#[derive(Debug)]
struct StaleRecord {
    path: PathBuf,
    user: String,
    job: String,
    /// The option that names the configuration, if that is another than the default.
    conf: String,
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
            RegistryState::Unused | RegistryState::BelowDistrusted => Vec::new(),
            RegistryState::Distrusted(error) => {
                let text = format!("cannot be used, so every login is refused (JA09): {error}");
                let remedy = self.replace_remedy(error);
                vec![Finding::error(Check::Registry, object, text, remedy)]
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

impl RegistryFacts {
    /// Checks whether no login can use the registry, since others can write it. So the source fails too.
    pub(super) fn is_distrusted(&self) -> bool {
        matches!(
            self.state,
            RegistryState::Distrusted(_) | RegistryState::BelowDistrusted
        )
    }

    /// Names the remedy for a registry that cannot be trusted. One that others could write is replaced by an empty one.
    fn replace_remedy(&self, error: &TrustError) -> Remedy {
        if error.path() != self.dir || !is_exposed(error) {
            return trust_remedy(error);
        }
        let aside = set_aside(&self.dir);
        let dir = shell_path(&self.dir);
        run(format!(
            "{aside} && install -d -m 0755 -o root -g root {dir}"
        ))
        .and(REGISTER_ADVICE)
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
            } else if site.at("/run/job-adopt").starts_with(error.path()) {
                Self::BelowDistrusted
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
                Err(ReadError::Distrusted(error)) => faults.push(RecordFault {
                    kind: if is_exposed(&error) {
                        FaultKind::Exposed
                    } else {
                        FaultKind::Directory
                    },
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
    // Another configuration may have another registry.
    let conf = if site.conf == Path::new(Request::DEFAULT_CONF) {
        String::new()
    } else {
        format!(" --conf {}", shell_path(&site.conf))
    };
    records
        .iter()
        .map(|record| StaleRecord {
            path: registry.record_path(record.uid, &record.id),
            user: names.name(record.uid),
            job: record.id.to_string(),
            conf: conf.clone(),
        })
        .collect()
}

/// The command that moves a directory with records out of use, for a person to look at. Its files stay whose they are:
/// giving them to root would admit logins by records, and open devices, that a user may have written. It is renamed
/// within its file system: a copy would follow what its owner does meanwhile.
fn set_aside(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let folder = dir.with_file_name(".aside");
    let target = shell_path(&folder.join(&*name));
    let folder = shell_path(&folder);
    format!(
        "install -d -m 0700 -o root -g root {folder} && mv -T {} {target}.$(date +%s)",
        shell_path(dir)
    )
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
        let exception = match self.kind {
            FaultKind::Record => ", unless another job takes them",
            FaultKind::Exposed | FaultKind::Directory => "",
        };
        let text = format!(
            "makes logins of {} fail (JA09){exception}: {}",
            self.user, self.cause
        );
        let remedy = match self.kind {
            FaultKind::Record => run(format!("rm {}", shell_path(&self.path)))
                .and("and if the job still runs, register it again"),
            FaultKind::Exposed => run(set_aside(&self.path)).and(REGISTER_ADVICE),
            FaultKind::Directory => {
                "see what is in it: other records than those of jobs that run may go".into()
            }
        };
        Finding::error(Check::Records, object, text, remedy)
    }
}

impl StaleRecord {
    fn finding(&self) -> Finding {
        let Self {
            path,
            user,
            job,
            conf,
        } = self;
        let text =
            format!("is of a job whose cgroup is gone, so it admits no login of {user} (JA01)");
        let remedy = run(format!("job-adopt unregister{conf} {}", shell_word(job)))
            .and("and see why its epilog did not");
        Finding::warning(Check::Records, path.display(), text, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Severity;
    use kernel::trust::Distrust;

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

    /// A user who owned the directory may have added devices to a record of root's.
    #[test]
    fn directory_that_user_could_write_is_moved_aside() {
        let fault = RecordFault {
            kind: FaultKind::Exposed,
            path: "/r/1002".into(),
            user: "bob".to_owned(),
            cause: "owned by uid 1002".to_owned(),
        };
        let remedy = fault.finding().remedy;
        assert_eq!(
            remedy.command,
            "install -d -m 0700 -o root -g root /r/.aside && mv -T /r/1002 /r/.aside/1002.$(date +%s)"
        );
        assert!(remedy.advice.contains("register the jobs again"));
        for cause in [Distrust::WrongOwner(7), Distrust::Writable(0o777)] {
            let error = TrustError::new(Path::new("/r"), cause);
            let found = findings(RegistryState::Distrusted(error));
            assert_eq!(
                found[0].remedy.command,
                "install -d -m 0700 -o root -g root /.aside && mv -T /r /.aside/r.$(date +%s) && install -d -m 0755 \
                 -o root -g root /r"
            );
        }
    }

    #[test]
    fn stale_record_is_a_warning_that_names_job_and_user() {
        let path = "/r/5/7.json".into();
        let stale = vec![StaleRecord {
            path,
            user: "alice".to_owned(),
            job: "7".to_owned(),
            conf: String::new(),
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
