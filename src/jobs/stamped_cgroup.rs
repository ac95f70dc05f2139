//! The cgroup of a job that is being registered: `register` checks, stamps and confines it.

use super::limits::JobLimits;
use super::pin::pin_namespace;
use command::error::Error;
use command::output::Output;
use command::sys::remove_xattr;
use facts::process::{is_sshd_process, own_ancestry};
use helper::jobs::records::{Record, Registry};
use kernel::bpf::{self, AttachTarget, Obstacle, OldFilter};
use kernel::cgroup::{self, CgroupChain, Dir, Mount, Occupants, Stamp};
use kernel::namespace::Namespace;
use kernel::sys::file::set_xattr;
use protocol::{CgroupPath, Containment, LeafName, parse_decimal};
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::time::Instant;

/// A cgroup whose processes were compared with a job's record. The job's user decides how many cgroups and
/// processes that visits, so it is done before the registry is locked: nobody else may wait for it.
#[derive(Debug)]
pub(super) struct CheckedCgroup {
    place: CgroupChain,
    /// Where its hierarchy is mounted.
    mount: &'static str,
    /// The stamp that the directory had.
    stamp: Option<Stamp>,
    occupants: Occupants,
    /// Whether its processes can belong to the job.
    result: Result<(), Error>,
}

impl CheckedCgroup {
    /// Opens the cgroup, and checks its processes until the deadline. `accounts` are those of the scheduler that may
    /// have processes there.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a cgroup that cannot be opened or read. [`CheckedCgroup::stamp`] reports processes
    /// that cannot belong to the job.
    pub(super) fn check(
        path: &CgroupPath,
        record: &Record,
        accounts: Vec<u32>,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let hierarchy = Mount::open()?;
        let mount = hierarchy.path();
        let place = hierarchy.open_chain(path)?;
        let dir = place.dir()?;
        let stamp = Stamp::read(dir)?;
        // A cgroup with the job's own stamp may have logins already, and its owner was stored with the stamp.
        let is_new = stamp != Some(record_stamp(record));
        let owner = if is_new {
            dir.owner()?
        } else {
            Occupants::read(dir, record.uid)?.owner
        };
        let occupants = Occupants {
            user: record.uid,
            owner,
            accounts,
        };
        let result = if is_new {
            check_occupants(dir, &occupants, deadline)
        } else {
            occupants
                .require_no_strangers(dir, deadline)
                .map_err(Error::from)
        };
        Ok(Self {
            place,
            mount,
            stamp,
            occupants,
            result,
        })
    }

    /// Whether the path still leads to this directory, with the same stamp.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a cgroup that cannot be opened any more.
    pub(super) fn is_current(&self, path: &CgroupPath) -> Result<bool, Error> {
        let place = Mount::open()?.open_chain(path)?;
        let dir = place.dir()?;
        Ok(dir.identity()? == self.place.dir()?.identity()? && Stamp::read(dir)? == self.stamp)
    }

    /// Tells whether the cgroup has the stamp of another job: a scheduler has given it to that one.
    pub(super) fn is_of_another_job(&self, record: &Record) -> bool {
        self.stamp
            .as_ref()
            .is_some_and(|stamp| *stamp != record_stamp(record))
    }

    /// Requires the stamp of the record's own job.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] without it: the job has ended, or the cgroup is another job's now.
    pub(super) fn require_stamped(self, record: &Record) -> Result<Self, Error> {
        if self.stamp == Some(record_stamp(record)) {
            return Ok(self);
        }
        let path = self.place.dir()?.path();
        let cause = format!(
            "{path} has no stamp of this job; if it runs, register it with all its options, else run job-adopt unregister {}",
            record.id
        );
        Err(Error::failed("register job", &record.id, cause))
    }

    /// The cgroup with all its ancestors.
    pub(super) fn place(&self) -> &CgroupChain {
        &self.place
    }

    /// Requires that the kernel holds the cgroup to these limits.
    ///
    /// # Errors
    ///
    /// As [`JobLimits::verify`].
    pub(super) fn require_limits(&self, limits: &JobLimits) -> Result<(), Error> {
        limits.verify(&self.place, self.mount)
    }

    /// Stamps the cgroup, unless it already has the same stamp. The caller holds the registry's lock, and
    /// has checked that no other registered job has this cgroup: a stamp of another job is a leftover.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a cgroup that cannot belong to a job of this owner ([`check_occupants`]), or whose marks
    /// cannot be written.
    pub(super) fn stamp(self, record: &Record) -> Result<StampedCgroup, Error> {
        self.result?;
        let dir = self.place.dir()?;
        let stamp = record_stamp(record);
        let is_new = self.stamp.as_ref() != Some(&stamp);
        if is_new {
            withdraw_stamp(dir)?;
        }
        // The stamp comes last, since it tells logins that they may join.
        store_occupants(dir, &self.occupants)?;
        if is_new {
            set_stamp(&stamp, dir)?;
        }
        Ok(StampedCgroup {
            place: self.place,
            remove_on_drop: is_new,
        })
    }
}

fn record_stamp(record: &Record) -> Stamp {
    Stamp {
        uid: record.uid,
        job: record.id.clone(),
    }
}

/// A job's cgroup with the stamp of the job, which this call or an earlier one has set. `drop` removes
/// a stamp that this call has set, unless [`StampedCgroup::keep`] was called.
#[derive(Debug)]
pub(super) struct StampedCgroup {
    place: CgroupChain,
    /// True if this call set the stamp and `drop` removes it.
    remove_on_drop: bool,
}

impl StampedCgroup {
    /// Refuses a cgroup in a user's slice that systemd has closed: the job would lose its devices,
    /// even if its record lists them.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], which names the slice.
    pub(super) fn require_open_slices(&self) -> Result<(), Error> {
        for dir in self.place.levels() {
            let Some(name) = dir.path().strip_prefix("/user.slice/") else {
                continue;
            };
            let is_slice_of_user = !name.contains('/');
            // systemd attaches a filter of devices to a slice that is closed.
            if is_slice_of_user && bpf::CgroupPrograms::read(dir)?.mode != bpf::AttachMode::Nothing
            {
                let cause = "systemd refuses devices there, to this job too; make its cgroup \
                             outside of users' slices, or exempt the account (exempt_uids, then \
                             job-adopt enable --only slices)";
                return Err(Error::failed("register job in", dir.path(), cause));
            }
        }
        Ok(())
    }

    /// Stores the path of the job's mount namespace in an extended attribute, where logins read it;
    /// removes the attribute for a record without one. The namespace of a process is pinned first.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a path that is no mount namespace, and for a process outside of the job.
    pub(super) fn store_namespace(
        &self,
        record: &Record,
        registry: &Registry,
    ) -> Result<(), Error> {
        let dir = self.place.dir()?;
        let Some(name) = &record.namespaces else {
            return Ok(remove_mark(dir, cgroup::NAMESPACE_XATTR)?);
        };
        let path = match parse_decimal(name) {
            Some(pid) => pin_namespace(pid, &record.id, dir.path(), registry)?,
            // It is opened only to check it.
            None => Namespace::open(name).map(|_| name.clone())?,
        };
        set_xattr(dir.as_fd(), cgroup::NAMESPACE_XATTR, path.as_bytes(), 0)
            .map_err(|error| dir.failed("note namespace of", "", error).into())
    }

    /// Confines the job from now on, by the code that a login runs. Returns the name of the containment
    /// that holds: `inherit` if the record asks for none and the scheduler has a filter there. If the cgroup
    /// cannot take our filter itself, it warns and confines the child with the logins, called `leaf` or by default. Without
    /// that child the name is that of the containment that will hold there.
    ///
    /// # Errors
    ///
    /// The errors of [`bpf::confine`], and of [`bpf::predict_containment`] for that child.
    pub(super) fn confine(
        &self,
        containment: &Containment,
        leaf: Option<&LeafName>,
        deadline: Instant,
        output: &mut Output<'_>,
    ) -> Result<&'static str, Error> {
        let target = AttachTarget::from_leaf(&self.place)?;
        match bpf::confine(target, containment, OldFilter::Replace, deadline) {
            Err(bpf::Error::Obstacle {
                why: Obstacle::NeedChild,
                ..
            }) => {
                let path = self.place.dir()?.path();
                output.warn(format_args!(
                    "warning: {path} cannot take a filter of ours itself; logins will be confined \
                     in a child of it, the job itself is not"
                ));
                let leaf = leaf.cloned().unwrap_or_default();
                match self.place.clone().into_leaf(Some(&leaf))? {
                    Ok(leaf) => {
                        let child = AttachTarget::from_leaf(&leaf)?;
                        let confined =
                            bpf::confine(child, containment, OldFilter::Replace, deadline)?;
                        Ok(confined.name)
                    }
                    // 0: all levels of the target exist. The prediction adds the child, which does not.
                    Err(_) => Ok(bpf::predict_containment(target, 0, containment)?),
                }
            }
            result => Ok(result?.name),
        }
    }

    /// Keeps the stamp: `drop` then removes nothing.
    pub(super) fn keep(mut self) {
        self.remove_on_drop = false;
    }
}

impl Drop for StampedCgroup {
    fn drop(&mut self) {
        if self.remove_on_drop {
            let _ = self.place.dir().and_then(withdraw_stamp);
        }
    }
}

/// Stamps a directory, unless it already has the same stamp. It fails with [`cgroup::Error::UnexpectedState`] for
/// a cgroup of another job, and with `EPERM` without `CAP_SYS_ADMIN`.
fn set_stamp(stamp: &Stamp, dir: &Dir) -> cgroup::Result<()> {
    let text = stamp.to_string();
    let create = libc::XATTR_CREATE;
    match set_xattr(dir.as_fd(), cgroup::STAMP_XATTR, text.as_bytes(), create) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => stamp.require(dir),
        Err(error) => Err(dir.failed("stamp", "", error)),
    }
}

/// Removes a directory's stamp, if it has one, of any job, and then the path of that job's mount namespace: the next job
/// with this cgroup must not have it for a moment.
///
/// # Errors
///
/// The errors of `fremovexattr(2)`.
pub(super) fn withdraw_stamp(dir: &Dir) -> cgroup::Result<()> {
    remove_mark(dir, cgroup::STAMP_XATTR)?;
    remove_mark(dir, cgroup::NAMESPACE_XATTR)
}

/// Removes a mark, which is an extended attribute, if the directory has it.
fn remove_mark(dir: &Dir, mark: &CStr) -> cgroup::Result<()> {
    match remove_xattr(dir.as_fd(), mark) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        Err(error) => Err(dir.failed("withdraw mark of", "", error)),
    }
}

/// Stores the accounts that may have processes in a job's cgroup, for the job's logins.
fn store_occupants(dir: &Dir, occupants: &Occupants) -> Result<(), Error> {
    set_xattr(
        dir.as_fd(),
        cgroup::OCCUPANTS_XATTR,
        occupants.to_string().as_bytes(),
        0,
    )
    .map_err(|error| dir.failed("note accounts of", "", error).into())
}

/// Refuses a cgroup of another account, and one with a process in it or below that cannot belong to the
/// job before its first login. A wrong path may name a cgroup in which the node itself runs: to confine
/// it, and later to end it, would take the node down.
///
/// It fails with [`Error::Failed`], which names the owner of the cgroup or the process and the reason, and if
/// it cannot list all processes before the deadline.
fn check_occupants(dir: &Dir, occupants: &Occupants, deadline: Instant) -> Result<(), Error> {
    let Occupants { owner, .. } = occupants;
    if !occupants.is_admitted(*owner) {
        let cause = format!("it belongs to uid {owner}, which does not own the job");
        return Err(Error::failed("stamp", dir.path(), cause));
    }
    let ancestors = own_ancestry();
    for pid in cgroup::list_processes(dir, deadline).complete()? {
        if let Some(why) = find_objection(pid, occupants, &ancestors) {
            let cause = format!("process {pid} in it {why}");
            return Err(Error::failed("stamp", dir.path(), cause));
        }
    }
    Ok(())
}

/// Explains why a process cannot belong to the job; `None` if it can, or has ended meanwhile.
fn find_objection(pid: i32, occupants: &Occupants, ancestors: &[i32]) -> Option<String> {
    if pid == 1 {
        return Some("is the first one of the system".into());
    }
    if ancestors.contains(&pid) {
        return Some("is this one, or started it".into());
    }
    if is_sshd_process(pid) {
        return Some("is an sshd of root, and no login can be there yet".into());
    }
    match occupants.stranger_uid(pid) {
        Ok(None) => None,
        Ok(Some(uid)) => Some(format!("belongs to uid {uid}, which does not own the job")),
        Err(error) => Some(format!("cannot be looked at: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getpid, getppid, getuid};

    #[test]
    fn first_process_and_own_ancestry_cannot_be_in_job() {
        let ancestors = own_ancestry();
        let job = job_of(5);
        assert!(ancestors.starts_with(&[getpid().as_raw(), getppid().as_raw()]));
        assert!(
            find_objection(1, &job, &ancestors)
                .unwrap()
                .contains("first")
        );
        let objection = find_objection(getpid().as_raw(), &job, &ancestors).unwrap();
        assert!(objection.contains("this one"));
    }

    #[test]
    fn process_of_other_account_is_refused_and_ended_one_ignored() {
        let pid = getpid().as_raw();
        let uid = getuid().as_raw();
        assert_eq!(find_objection(pid, &job_of(uid), &[]), None);
        assert_eq!(find_objection(i32::MAX, &job_of(5), &[]), None);
        assert_eq!(
            find_objection(pid, &job_of(uid + 1), &[]).is_some(),
            uid != 0
        );
        let with_account = Occupants {
            accounts: vec![uid],
            ..job_of(uid + 1)
        };
        assert_eq!(find_objection(pid, &with_account, &[]), None);
    }

    fn job_of(user: u32) -> Occupants {
        Occupants {
            user,
            owner: 0,
            accounts: Vec::new(),
        }
    }
}
