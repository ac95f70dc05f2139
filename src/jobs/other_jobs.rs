//! Refuses to register a job whose id or cgroup another registered job has.

use command::error::Error;
use command::options::OPERATION_TIMEOUT;
use helper::jobs::records::{LoginTarget, Record, Registry};
use kernel::cgroup::{CgroupChain, Dir, Mount, Stamp, ignore_gone, walk_selected};
use kernel::trust::Trust;
use protocol::is_within;
use std::cell::Cell;
use std::time::Instant;

/// Maximum cgroups that are searched, under the registry's lock, for a job whose record does not show its cgroup.
const SEARCHED_CGROUPS_MAX: u32 = 1000;

/// Refuses the cgroup of another registered job, and one above or below it: a login must not be in two
/// jobs. The stamps of the cgroup and above are read. Below, where the user decides how many cgroups there are, only
/// those are read that records of the registry name; all are searched only if a record does not show its job's
/// cgroup. A stamp whose job is not registered is a leftover.
///
/// # Errors
///
/// [`Error::Failed`], which names the other job, or if its place cannot be known.
pub(super) fn require_no_other_job(
    place: &CgroupChain,
    record: &Record,
    registry: &Registry,
    trust: &Trust,
) -> Result<(), Error> {
    let own = Stamp {
        uid: record.uid,
        job: record.id.clone(),
    };
    for dir in place.levels() {
        let Some(stamp) = ignore_gone(Stamp::read(dir))?.flatten() else {
            continue;
        };
        if stamp != own && is_registered(registry, trust, &stamp)? {
            return Err(cgroup_of_other_job(dir, &stamp));
        }
    }
    // Most cgroups are new and have none below: then no record of another job needs to be read.
    if !ignore_gone(place.dir()?.has_children())?.unwrap_or(true) {
        return Ok(());
    }
    let top = place.dir()?.path();
    // Jobs whose record does not show their cgroup.
    let mut unplaced = Vec::new();
    for job in registry.list_jobs(trust)? {
        // A broken record may still name its cgroup.
        let Some(other) = job.record.ok().or(job.salvage) else {
            unplaced.push(Stamp {
                uid: job.uid,
                job: job.id,
            });
            continue;
        };
        let LoginTarget::Cgroup(path) = &other.target else {
            continue;
        };
        if path.as_str() == top || !is_within(path.as_str(), top) {
            continue;
        }
        let Some(below) = ignore_gone(Mount::open()?.open_chain(path))? else {
            continue;
        };
        let stamp = Stamp {
            uid: other.uid,
            job: other.id,
        };
        if ignore_gone(Stamp::read(below.dir()?))?.flatten().as_ref() == Some(&stamp) {
            return Err(cgroup_of_other_job(below.dir()?, &stamp));
        }
    }
    // The new record replaces a broken one of this job.
    unplaced.retain(|stamp| *stamp != own);
    require_none_below(place.dir()?, &unplaced, registry)
}

fn cgroup_of_other_job(dir: &Dir, stamp: &Stamp) -> Error {
    Error::failed(
        "stamp",
        dir.path(),
        format!("it is the cgroup of job {}", stamp.job),
    )
}

/// Refuses a cgroup with one of these jobs below it. Their records do not show where they are.
///
/// It fails with [`Error::Failed`], which names the record, also if there are too many cgroups to search.
fn require_none_below(top: &Dir, jobs: &[Stamp], registry: &Registry) -> Result<(), Error> {
    let [first, ..] = jobs else { return Ok(()) };
    match find_below(top, jobs)? {
        Below::NoJob => Ok(()),
        Below::Job(path, stamp) => {
            let job = describe_broken_record(stamp, registry);
            Err(Error::failed(
                "stamp",
                path,
                format!("it is the cgroup of {job}"),
            ))
        }
        Below::TooManyCgroups => {
            let job = describe_broken_record(first, registry);
            let cause = format!("too many cgroups are below it to find that of {job}");
            Err(Error::failed("stamp", top.path(), cause))
        }
    }
}

/// Names a job whose record cannot be used, with the path of the record.
fn describe_broken_record(stamp: &Stamp, registry: &Registry) -> String {
    let record = registry.record_path(stamp.uid, &stamp.job);
    format!(
        "job {}, whose record {} cannot be used",
        stamp.job,
        record.display()
    )
}

/// What a search below a cgroup found first.
enum Below<'a> {
    NoJob,
    /// The path of a cgroup with the stamp of this job.
    Job(String, &'a Stamp),
    TooManyCgroups,
}

/// Searches the cgroups below one, of which it visits at most [`SEARCHED_CGROUPS_MAX`], for the stamps of these jobs.
fn find_below<'a>(top: &Dir, jobs: &'a [Stamp]) -> Result<Below<'a>, Error> {
    let mut below = Below::NoJob;
    let mut count = 0;
    // Once it is set, the walk opens no more children.
    let is_over = Cell::new(false);
    let result = walk_selected(
        top,
        Instant::now() + OPERATION_TIMEOUT,
        |dir, name| {
            if is_over.get() {
                Ok(None)
            } else {
                dir.child(name).map(Some)
            }
        },
        |dir| {
            count += 1;
            let stamp = ignore_gone(Stamp::read(dir))?.flatten();
            let is_below = dir.path() != top.path();
            let job = jobs.iter().find(|job| stamp.as_ref() == Some(*job));
            if let (true, Some(job)) = (is_below, job) {
                below = Below::Job(dir.path().to_owned(), job);
                is_over.set(true);
            } else if count > SEARCHED_CGROUPS_MAX {
                below = Below::TooManyCgroups;
                is_over.set(true);
            }
            Ok(())
        },
    );
    // A failure after the end of the search does not matter.
    if !is_over.get() {
        result?;
    }
    Ok(below)
}

/// Refuses an id that is registered for another user or cgroup, or for a job that is still ending. An ending job that
/// a scheduler places is forgotten, if the new one is such a job too: its end had nothing to do. If the same job is
/// registered already, it returns the time when the job started; else, and if that is unknown, `None`.
///
/// # Errors
///
/// [`Error::Failed`], which says where the id is registered, or if the registry cannot be read or changed.
pub(super) fn require_unique_id(
    record: &Record,
    registry: &Registry,
    trust: &Trust,
) -> Result<Option<i64>, Error> {
    let mut started = None;
    for job in registry.find_jobs(trust, &record.id)? {
        if job.ending {
            let is_via = matches!(
                job.record,
                Ok(Record {
                    target: LoginTarget::Via(_),
                    ..
                })
            );
            if !is_via || !matches!(record.target, LoginTarget::Via(_)) {
                let cause = "a job of this id is still ending; unregister it first";
                return Err(Error::failed("register job", &record.id, cause));
            }
            // An unregister was interrupted that had no cgroup to end, and the job is back.
            registry.forget_job(job.uid, &job.id)?;
            continue;
        }
        if job.uid != record.uid {
            let cause = format!("this id is registered for uid {}", job.uid);
            return Err(Error::failed("register job", &record.id, cause));
        }
        // The new record replaces a broken one of the same user.
        let Ok(other) = job.record else { continue };
        if other.target != record.target {
            let cause = "this id is registered for another cgroup";
            return Err(Error::failed("register job", &record.id, cause));
        }
        started = other.started;
    }
    Ok(started)
}

/// Whether the registry has the job of a stamp, also one that is ending.
fn is_registered(registry: &Registry, trust: &Trust, stamp: &Stamp) -> Result<bool, Error> {
    Ok(registry
        .find_jobs(trust, &stamp.job)?
        .iter()
        .any(|job| job.uid == stamp.uid))
}
