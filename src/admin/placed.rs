//! The cgroup of a job that is being registered: looked at, stamped, confined.

use super::ending::{Process, is_sshd_process, read_process};
use super::pin::pin;
use super::sys::remove_xattr;
use super::{Error, Output};
use helper::records::Record;
use kernel::bpf::{self, Branch, Obstacle};
use kernel::cgroup::{self, Dir, Mount, Occupants, Place, Stamp};
use kernel::namespace::Namespace;
use kernel::sys::file::set_xattr;
use protocol::{CgroupPath, Containment, parse_decimal};
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
        accounts: Vec<u32>,
        known: impl Fn(&Stamp) -> Result<bool, Error>,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let place = Mount::open()?.place(path)?;
        let own = Stamp { uid: record.uid, job: record.id.clone() };
        let found = Stamp::read(place.dir()?)?;
        for (path, stamp) in stamps(&place, deadline)? {
            if stamp != own && known(&stamp)? {
                let cause = format!("it is the cgroup of job {}", stamp.job);
                return Err(Error::failed("stamp", path, cause));
            }
        }
        let dir = place.dir()?;
        let undo = found.as_ref() != Some(&own);
        let owner = if undo { dir.owner()? } else { Occupants::read(dir, record.uid)?.owner };
        let occupants = Occupants { user: record.uid, owner, accounts };
        if undo {
            check_occupants(dir, &occupants, deadline)?;
            withdraw_stamp(dir)?;
            note_occupants(dir, &occupants)?;
            set_stamp(&own, dir)?;
        } else {
            occupants.require(dir, deadline)?;
            note_occupants(dir, &occupants)?;
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

    /// Stores the path of the mount namespace that logins join, where they alone look for it; that of a
    /// process is pinned first. Without one, removes it.
    ///
    /// # Errors
    ///
    /// Fails for what is no such namespace, or not the job's.
    pub(super) fn mark_namespace(&self, record: &Record) -> Result<(), Error> {
        let dir = self.place.dir()?;
        let Some(name) = &record.namespaces else { return Ok(withdraw(dir, cgroup::NAMESPACE)?) };
        let path = match parse_decimal(name) {
            Some(pid) => pin(pid, &record.id, dir.path())?,
            None => Namespace::open(name).map(|_| name.clone())?,
        };
        set_xattr(dir.as_fd(), cgroup::NAMESPACE, path.as_bytes(), 0)
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
fn stamps(place: &Place, deadline: Instant) -> Result<Vec<(String, Stamp)>, Error> {
    let mut stamps = Vec::new();
    let mut look = |dir: &Dir| {
        let stamp = cgroup::unless_gone(Stamp::read(dir))?.flatten();
        stamps.extend(stamp.map(|stamp| (dir.path().to_owned(), stamp)));
        Ok::<_, cgroup::Error>(())
    };
    place.levels().iter().skip(1).try_for_each(&mut look)?;
    cgroup::walk(place.dir()?, deadline, look)?;
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

/// Notes who may have processes in a job's cgroup, for its logins.
fn note_occupants(dir: &Dir, occupants: &Occupants) -> Result<(), Error> {
    set_xattr(dir.as_fd(), cgroup::OCCUPANTS, occupants.to_string().as_bytes(), 0)
        .map_err(|error| dir.failed("note accounts of", "", error).into())
}

/// Refuses a cgroup that is another account's, or has anything in it or below that cannot belong to the job
/// before its first login. A path with a mistake in it may name a cgroup that the node itself lives
/// in: to confine it, and later to end it, would take the node down.
/// Fails: [`Error::Failed`] naming the process and why it cannot; also where not all could be seen.
fn check_occupants(dir: &Dir, occupants: &Occupants, deadline: Instant) -> Result<(), Error> {
    let Occupants { owner, .. } = occupants;
    if !occupants.admits(*owner) {
        let cause = format!("it belongs to uid {owner}, which does not own the job");
        return Err(Error::failed("stamp", dir.path(), cause));
    }
    let ours = lineage();
    for pid in cgroup::processes(dir, deadline).complete()? {
        if let Some(why) = objection(pid, occupants, &ours) {
            let cause = format!("process {pid} in it {why}");
            return Err(Error::failed("stamp", dir.path(), cause));
        }
    }
    Ok(())
}

/// A process that is gone by now is no objection.
fn objection(pid: i32, occupants: &Occupants, ours: &[i32]) -> Option<String> {
    if pid == 1 {
        return Some("is the first one of the system".into());
    }
    if ours.contains(&pid) {
        return Some("is this one, or started it".into());
    }
    if is_sshd_process(pid) {
        return Some("is an sshd of root, and no login can be there yet".into());
    }
    match occupants.stranger(pid) {
        Ok(None) => None,
        Ok(Some(uid)) => Some(format!("belongs to uid {uid}, which does not own the job")),
        Err(error) => Some(format!("cannot be looked at: {error}")),
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
        let job = job_of(5);
        assert!(ours.starts_with(&[getpid().as_raw(), getppid().as_raw()]));
        assert!(objection(1, &job, &ours).unwrap().contains("first"));
        assert!(objection(getpid().as_raw(), &job, &ours).unwrap().contains("this one"));
    }

    #[test]
    fn somebody_else_is_no_job_and_the_gone_are_nobody() {
        let (own, uid) = (getpid().as_raw(), getuid().as_raw());
        assert_eq!(objection(own, &job_of(uid), &[]), None);
        assert_eq!(objection(i32::MAX, &job_of(5), &[]), None);
        assert_eq!(objection(own, &job_of(uid + 1), &[]).is_some(), uid != 0);
        let named = Occupants { accounts: vec![uid], ..job_of(uid + 1) };
        assert_eq!(objection(own, &named, &[]), None);
    }

    fn job_of(user: u32) -> Occupants {
        Occupants { user, owner: 0, accounts: Vec::new() }
    }
}
