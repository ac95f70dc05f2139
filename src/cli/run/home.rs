//! The cgroup of a job that `run` starts: a transient scope where systemd rules the hierarchy,
//! else a directory of ours.

use super::super::{Error, ending};
use crate::cgroup::{self, Dir, Mark, Membership, Mount, Stamp};
use crate::plan::{CgroupPath, JobId};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The directory of ours that holds those of the jobs.
const JOBS: &str = "job-adopt.jobs";
/// How often a directory that others remove at that moment is met with another try.
const TRIES: usize = 8;
/// Longest wait for systemd to move a process.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// The cgroup of the new job, with its first process in it.
#[derive(Debug)]
pub(super) struct Home(CgroupPath);

impl Home {
    /// Makes it, and moves the process `pid`, a child of ours, there.
    ///
    /// # Errors
    /// [`Error::Failed`]; nothing of it is left then.
    pub(super) fn make(id: &JobId, pid: Pid) -> Result<Self, Error> {
        let mount = Mount::open()?;
        let systemd = Path::new("/run/systemd/system").exists();
        if systemd && mount.path() == "/sys/fs/cgroup" {
            let path = scope(id, pid)?;
            Mark::Scope.set(mount.place(&path)?.dir()?)?;
            return Ok(Self(path));
        }
        let path: CgroupPath = format!("/{JOBS}/{id}")
            .parse()
            .map_err(|error| Error::failed("make cgroup of job", id, error))?;
        if let Err(error) = own(mount.root(), id) {
            // Refused while there are other jobs in it.
            let _ = mount.root().remove_child(JOBS);
            return Err(error);
        }
        let home = Self(path);
        match home.take(mount, pid) {
            Ok(()) => Ok(home),
            Err(error) => {
                home.discard();
                Err(error.into())
            }
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &CgroupPath {
        &self.0
    }

    /// Removes it again; its process has to be gone. A scope goes by itself: systemd removes it.
    pub(super) fn discard(&self) {
        if let Ok(place) = Mount::open().and_then(|mount| mount.place(&self.0)) {
            let _ = ending::remove(&place);
        }
    }

    fn take(&self, mount: Mount, pid: Pid) -> cgroup::Result<()> {
        mount.place(&self.0)?.dir()?.write("cgroup.procs", &pid.to_string())
    }
}

/// Makes our own directory for a job.
fn own(root: &Dir, id: &JobId) -> Result<(), Error> {
    for _ in 0..TRIES {
        match try_own(root, id.as_str()) {
            Ok(true) => return Ok(()),
            Ok(false) => break,
            // The end of another job has just removed the directory above.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::failed("make cgroup of job", id, "there is one of this name already"))
}

fn try_own(root: &Dir, id: &str) -> cgroup::Result<bool> {
    if root.make_child(JOBS)? {
        Mark::Made.set(&root.child(JOBS)?)?;
    }
    let jobs = root.child(JOBS)?;
    if !jobs.make_child(id)? {
        // One that a run left behind which was killed before it registered its job.
        let left = jobs.child(id)?;
        if !Mark::Made.is_set(&left)? || Stamp::read(&left)?.is_some() {
            return Ok(false);
        }
        jobs.remove_child(id)?;
        if !jobs.make_child(id)? {
            return Ok(false);
        }
    }
    Mark::Made.set(&jobs.child(id)?)?;
    Ok(true)
}

/// Has systemd make a scope with the process in it (org.freedesktop.systemd1(5)).
fn scope(id: &JobId, pid: Pid) -> Result<CgroupPath, Error> {
    let unit = unit_name(id);
    let failed = |cause: String| Error::failed("start scope", &unit, cause);
    let called = Command::new("busctl")
        .args(["--system", "--quiet", "call", "org.freedesktop.systemd1"])
        .args(["/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"])
        .args(["StartTransientUnit", "ssa(sv)a(sa(sv))", &unit, "fail", "4"])
        .args(["PIDs", "au", "1", &pid.to_string()])
        .args(["Delegate", "b", "true"])
        .args(["CollectMode", "s", "inactive-or-failed"])
        .args(["Description", "s", &format!("Job {id} of job-adopt run"), "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| failed(format!("busctl: {error}")))?;
    if !called.status.success() {
        return Err(failed(String::from_utf8_lossy(&called.stderr).trim().to_owned()));
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(path) = unified_path(pid) {
            if path.as_str().rsplit('/').next() == Some(unit.as_str()) {
                return Ok(path);
            }
        }
        std::thread::sleep(PAUSE);
    }
    Err(failed("systemd did not move the process in time".into()))
}

fn unified_path(pid: Pid) -> Option<CgroupPath> {
    Membership::of(pid.as_raw()).ok()?.unified()?.parse().ok()
}

/// Of the characters of an id, a unit's name takes all but `+`, which is written as systemd does
/// (systemd.unit(5), "String Escaping for Inclusion in Unit Names").
fn unit_name(id: &JobId) -> String {
    format!("job-adopt-{}.scope", id.as_str().replace('+', "\\x2b"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_makes_a_unit_name() {
        let unit = unit_name(&"a.b_c+d-1".parse().unwrap());
        assert_eq!(unit, "job-adopt-a.b_c\\x2bd-1.scope");
    }
}
