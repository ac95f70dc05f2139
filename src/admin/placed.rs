//! The cgroup of a job that is being registered: looked at, stamped, confined.

use super::ending::{Process, read_process, real_uid, runs_sshd};
use super::sys::remove_xattr;
use super::{Error, Output};
use crate::helper::records::Record;
use crate::keeper::subtree;
use crate::kernel::bpf::{self, Branch, Obstacle};
use crate::kernel::cgroup::{self, Dir, Mount, Place, Stamp};
use crate::kernel::namespace::Namespace;
use crate::kernel::sys::file::set_xattr;
use crate::protocol::{CgroupPath, Containment};
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::time::Instant;

/// A job's cgroup that this call has stamped, or found stamped for the same job.
#[derive(Debug)]
pub(super) struct Placed {
    place: Place,
    /// Whether to take the stamp away again, where this call set it.
    undo: bool,
}

impl Placed {
    /// Stamps the cgroup, unless it already has the very same stamp. `known` says whether a stamp
    /// is of a job that the registry has; one that is not was left by a job that is long over.
    /// Fails: [`Error::Failed`] for a cgroup that is another job's, or above or below one, and for
    /// one that no job of this owner can be in ([`check_occupants`]).
    pub(super) fn stamp(
        path: &CgroupPath,
        record: &Record,
        known: impl Fn(&Stamp) -> Result<bool, Error>,
    ) -> Result<Self, Error> {
        let place = Mount::open()?.place(path)?;
        let own = Stamp { uid: record.uid, job: record.id.clone() };
        let found = Stamp::read(place.dir()?)?;
        for (path, stamp) in stamps(&place)? {
            if stamp != own && known(&stamp)? {
                let cause = format!("it is the cgroup of job {}", stamp.job);
                return Err(Error::failed("stamp", path, cause));
            }
        }
        let undo = found.as_ref() != Some(&own);
        if undo {
            check_occupants(place.dir()?, record.uid)?;
            withdraw_stamp(place.dir()?)?;
            set_stamp(&own, place.dir()?)?;
        }
        Ok(Self { place, undo })
    }

    /// Refuses a cgroup in a user's slice that systemd has closed: the job would lose its devices,
    /// whatever its record says.
    /// Fails: [`Error::Failed`] naming the slice.
    pub(super) fn not_in_closed_slice(&self) -> Result<(), Error> {
        for dir in self.place.levels() {
            let Some(name) = dir.path().strip_prefix("/user.slice/") else { continue };
            if !name.contains('/') && bpf::Level::read(dir)?.attached != bpf::Attached::Nothing {
                let cause = "systemd refuses devices there, to this job too; make its cgroup \
                             outside of users' slices, or exempt the account (exempt_uids, then \
                             job-adopt slices --write)";
                return Err(Error::failed("register job in", dir.path(), cause));
            }
        }
        Ok(())
    }

    /// Notes the namespace that logins join, where they alone look for it; with none, that there is none.
    /// Fails: [`Error::Failed`] for what is no such namespace, or not the job's.
    pub(super) fn mark_namespace(&self, name: Option<&str>) -> Result<(), Error> {
        let dir = self.place.dir()?;
        let Some(name) = name else { return Ok(withdraw(dir, cgroup::NAMESPACE)?) };
        Namespace::named(name, dir.path())?;
        set_xattr(dir.as_fd(), cgroup::NAMESPACE, name.as_bytes(), 0)
            .map_err(|error| dir.failed("note namespace of", "", error).into())
    }

    /// Confines the job from now on, by the code that a login runs.
    pub(super) fn confine(
        &self,
        containment: &Containment,
        deadline: Instant,
        output: &mut Output<'_>,
    ) -> Result<(), Error> {
        match bpf::confine(Branch::of(&self.place)?, containment, true, deadline) {
            Err(bpf::Error::Obstacle { why: Obstacle::NeedChild, .. }) => {
                let path = self.place.dir()?.path();
                output.warn(format_args!(
                    "warning: {path} cannot take a filter of ours itself; logins will be confined \
                     in a child of it, the job itself is not"
                ));
                Ok(())
            }
            confined => Ok(confined.map(drop)?),
        }
    }

    /// The stamp stays.
    pub(super) fn keep(mut self) {
        self.undo = false;
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if self.undo {
            let _ = self.place.dir().and_then(withdraw_stamp);
        }
    }
}

/// The stamps above, at and below a place: a login must not be in two jobs.
fn stamps(place: &Place) -> Result<Vec<(String, Stamp)>, Error> {
    let mut stamps = Vec::new();
    let mut look = |dir: &Dir| {
        let stamp = subtree::unless_gone(Stamp::read(dir))?.flatten();
        stamps.extend(stamp.map(|stamp| (dir.path().to_owned(), stamp)));
        Ok::<_, cgroup::Error>(())
    };
    place.levels().iter().skip(1).try_for_each(&mut look)?;
    subtree::walk(place.dir()?, look)?;
    Ok(stamps)
}

/// Stamps a directory; the same stamp again is no failure.
/// Fails: [`cgroup::Error::Wrong`] when the cgroup is another job's, `EPERM` without `CAP_SYS_ADMIN`.
fn set_stamp(stamp: &Stamp, dir: &Dir) -> cgroup::Result<()> {
    let text = stamp.to_string();
    let create = libc::XATTR_CREATE;
    match set_xattr(dir.as_fd(), cgroup::STAMP, text.as_bytes(), create) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => stamp.require(dir),
        Err(error) => Err(dir.failed("stamp", "", error)),
    }
}

/// Withdraws a directory's stamp, whatever it says; none is no failure.
pub(super) fn withdraw_stamp(dir: &Dir) -> cgroup::Result<()> {
    withdraw(dir, cgroup::STAMP)
}

/// Takes away what a directory is marked with; none is no failure.
fn withdraw(dir: &Dir, mark: &CStr) -> cgroup::Result<()> {
    match remove_xattr(dir.as_fd(), mark) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        Err(error) => Err(dir.failed("withdraw mark of", "", error)),
    }
}

/// Refuses a cgroup with anything in it, or below it, that cannot belong to a job of `owner`
/// before its first login. A path with a mistake in it may name a cgroup that the node itself lives
/// in: to confine it, and later to end it, would take the node down.
/// Fails: [`Error::Failed`] naming the process and why it cannot; also where not all could be seen.
fn check_occupants(dir: &Dir, owner: u32) -> Result<(), Error> {
    let ours = lineage();
    for pid in subtree::processes(dir).complete()? {
        if let Some(why) = objection(pid, owner, &ours) {
            let cause = format!("process {pid} in it {why}");
            return Err(Error::failed("stamp", dir.path(), cause));
        }
    }
    Ok(())
}

/// A process that is gone by now is no objection.
fn objection(pid: i32, owner: u32, ours: &[i32]) -> Option<String> {
    if pid == 1 {
        return Some("is the first one of the system".into());
    }
    if ours.contains(&pid) {
        return Some("is this one, or started it".into());
    }
    if runs_sshd(pid) {
        return Some("is an sshd of root, and no login can be there yet".into());
    }
    match real_uid(pid)?.as_raw() {
        0 => None,
        uid if uid == owner => None,
        uid => Some(format!("belongs to uid {uid}, who does not own the job")),
    }
}

/// This process and those that started it, as far as they are still there.
pub(super) fn lineage() -> Vec<i32> {
    let mut found = Vec::new();
    let mut next = Some(nix::unistd::getpid().as_raw());
    while let Some(pid) = next.filter(|pid| *pid > 0 && !found.contains(pid)) {
        found.push(pid);
        next = read_process(pid).map(|Process { parent, .. }| parent);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getpid, getppid, getuid};

    #[test]
    fn the_system_and_ourselves_are_no_job() {
        let ours = lineage();
        assert!(ours.starts_with(&[getpid().as_raw(), getppid().as_raw()]));
        assert!(objection(1, 5, &ours).unwrap().contains("first"));
        assert!(objection(getpid().as_raw(), 5, &ours).unwrap().contains("this one"));
    }

    #[test]
    fn somebody_else_is_no_job_and_the_gone_are_nobody() {
        let (own, uid) = (getpid().as_raw(), getuid().as_raw());
        assert_eq!(objection(own, uid, &[]), None);
        assert_eq!(objection(i32::MAX, 5, &[]), None);
        assert_eq!(objection(own, uid + 1, &[]).is_some(), uid != 0);
    }
}
