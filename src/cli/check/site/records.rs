//! The registry and the records in it.

use super::{Check, Finding, Site};
use crate::cgroup::Mount;
use crate::cli::people;
use crate::plan::{CgroupPath, SourceName};
use crate::registry::{Place, ReadError, Record};
use std::path::PathBuf;

const REGISTRY: Check = "registry";
const RECORDS: Check = "records";

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let config = &site.scene.config;
    if !config.sources.contains(&SourceName::Registry) {
        return Vec::new();
    }
    let dir = config.registry.dir();
    let object = dir.display();
    if let Err(error) = site.trust.dir(dir) {
        return vec![match error.is_missing() {
            true => {
                let text = "is not there: no job is registered";
                Finding::note(
                    REGISTRY,
                    object,
                    text,
                    "systemd-tmpfiles --create; register makes it",
                )
            }
            false => {
                let text = format!("is not believed, every login is refused (JA09): {error}");
                Finding::error(REGISTRY, object, text, "chown root: and chmod go-w what is named")
            }
        }];
    }
    let users = match config.registry.users() {
        Ok(users) => users,
        Err(error) => {
            return vec![Finding::unknown(REGISTRY, object, error, "run this as root")];
        }
    };
    let mut found = vec![Finding::fine(REGISTRY, object, "only root can write it")];
    let mut count = 0;
    for uid in users {
        match config.registry.read_user(&site.trust, uid) {
            Ok(records) => {
                count += records.records.len();
                found.extend(records.records.iter().filter_map(|record| left(site, record)));
                for broken in records.broken.iter().filter(|broken| broken.is_record) {
                    let user = people::name_of(uid);
                    let text = format!("refuses logins of {user} (JA09): {}", broken.cause);
                    let remedy = "mend or remove it, or register the job again";
                    found.push(Finding::error(RECORDS, broken.path.display(), text, remedy));
                }
            }
            Err(ReadError::NoRegistry) => {}
            Err(error) => {
                let text = format!("refuses logins of {} (JA09): {error}", people::name_of(uid));
                let object = config.registry.user_dir(uid);
                let remedy = "chown root: and chmod go-w what is named";
                found.push(Finding::error(RECORDS, object.display(), text, remedy));
            }
        }
    }
    let text = format!("{count} records can be used");
    found.push(Finding::fine(RECORDS, dir.display(), text));
    found
}

/// A record whose cgroup is gone, as where an epilog did not run.
fn left(site: &Site<'_>, record: &Record) -> Option<Finding> {
    let Place::Cgroup(cgroup) = &record.place else { return None };
    let gone = matches!(path(site, cgroup)?.try_exists(), Ok(false));
    let object = site.scene.config.registry.record(record.uid, &record.id);
    let text = format!("is left over: the job's cgroup {cgroup} is gone");
    let remedy = format!("job-adopt unregister {}, and have the epilog do so", record.id);
    gone.then(|| Finding::note(RECORDS, object.display(), text, remedy))
}

fn path(site: &Site<'_>, cgroup: &CgroupPath) -> Option<PathBuf> {
    let mount = match site.is_here() {
        true => Mount::open().ok()?.path(),
        false => "/sys/fs/cgroup",
    };
    Some(site.path(mount).join(cgroup.relative()))
}
