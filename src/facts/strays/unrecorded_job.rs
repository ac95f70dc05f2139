//! Jobs that only the stamp of their cgroup shows: their record is in another registry than the one that logins read, or
//! it was removed by hand. Their processes look like strays.

use helper::jobs::sources::{Doubt, PossibleOwners};
use kernel::cgroup::{Mount, Stamp};
use std::path::Path;

/// Finds a stamp of `uid` on the cgroup `path` or above it; `None` without one, and without the right to read stamps,
/// which is root's. The caller knows that no record of `registry` is of this cgroup.
pub(super) fn find_unrecorded_job(path: &str, uid: u32, registry: &Path) -> Option<Doubt> {
    let path = path.parse().ok()?;
    let chain = Mount::open().ok()?.open_chain(&path).ok()?;
    for level in chain.levels() {
        let Ok(Some(stamp)) = Stamp::read(level) else {
            continue;
        };
        if stamp.uid == uid {
            let cause = format!(
                "{} is registered as job {} of uid {uid}, and {} has no record of it: does registry= name another folder \
                 than it did at register, or is something mounted there? If the job is over, end what is left in this cgroup \
                 and remove it: the stamp goes with it",
                level.path(),
                stamp.job,
                registry.display()
            );
            return Some(Doubt {
                cause,
                owners: PossibleOwners::Only([uid].into()),
                job: Some(stamp.job),
            });
        }
    }
    None
}
