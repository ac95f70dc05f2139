//! Pins the mount namespaces of registered jobs: each is bound to a file that only root can open or replace. So
//! a login joins the namespace that `register` checked, even if the process number is reused.

use crate::error::Error;
use helper::jobs::records::{RegisteredJob, Registry};
use kernel::cgroup::Membership;
use kernel::namespace::{Namespace, NamespaceOrigin, PIN_DIR, owner_pin_dir, owner_pin_path};
use kernel::proc::{self, Proc};
use kernel::trust::Trust;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use protocol::{JobId, is_within, parse_decimal};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Mode of the directory of the pins.
const PIN_DIR_MODE: u32 = 0o700;

/// Pins the mount namespace of a process of the job, in place of an earlier pin. Returns the path.
///
/// # Errors
///
/// [`Error::Failed`] for a process that is not root's or not in the cgroup `job`, for a namespace that
/// its user may change, and for a pin that cannot be made.
pub(super) fn pin_namespace(pid: u32, id: &JobId, job: &str) -> Result<String, Error> {
    let number = pid.to_string();
    let refusal = |cause: &str| Error::failed("join namespace of process", &number, cause);
    let gone = |error: io::Error| refusal(&error.to_string());
    let folder = File::open(format!("/proc/{pid}")).map_err(gone)?;
    let process = i32::try_from(pid).map_err(|_| refusal("is no process"))?;
    // A setuid program that the user started keeps the user's real uid.
    let is_root = Proc::host().read_process(process).map_err(gone)?.uids == [0; 4];
    let place = Membership::read(process)?;
    let namespace = Namespace::open_of_process(&number, "mnt", libc::CLONE_NEWNS)?;
    // This fails if the process of the opened folder has ended. Else it held its number while all this was read.
    proc::read(format!("/proc/self/fd/{}/stat", folder.as_raw_fd())).map_err(gone)?;
    if !place.unified().is_some_and(|path| is_within(path, job)) {
        return Err(refusal("that process is not in the job"));
    }
    if !is_root {
        let cause = "is not root's, and its user may have made the namespace: name a process of root's, \
                     or a file that root has bound the namespace to";
        return Err(refusal(cause));
    }
    let path = Path::new(PIN_DIR).join(id.as_str());
    run_in_first_namespace(|| bind(&namespace, &path))
        .map_err(|error| Error::failed("pin namespace of process", &number, error))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Pins the mount namespace at a path for the owner of a job that its scheduler places, in place of an earlier pin.
///
/// # Errors
///
/// [`Error::Failed`] for a path that is no mount namespace of root's, and for a pin that cannot be made.
pub(super) fn pin_for_owner(path: &str, owner: u32, id: &JobId) -> Result<(), Error> {
    let namespace = Namespace::open(path)?;
    run_in_first_namespace(|| bind(&namespace, &owner_pin_path(owner, id)))
        .map_err(|error| Error::failed("pin namespace", path, error))
}

/// Unpins the namespaces of jobs that are no longer in the registry, and those that an owner's record no longer names.
/// A broken record may name its pin, which stays.
///
/// # Errors
///
/// [`Error::Failed`] for the first pin that cannot be removed; the others are removed all the same. None is if the
/// registry cannot be read.
pub(super) fn unpin_ended_jobs(registry: &Registry, trust: &Trust) -> Result<(), Error> {
    let mut stale = Vec::new();
    for entry in fs::read_dir(PIN_DIR).into_iter().flatten().flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<JobId>().ok())
        else {
            continue;
        };
        if registry.find_jobs(trust, &id)?.is_empty() {
            stale.push(entry.path());
        }
    }
    for (owner, path, id) in list_owner_pins() {
        let needs_pin = |job: &RegisteredJob| {
            let record = job.record.as_ref();
            job.uid == owner && record.map_or(true, |record| record.namespaces.is_some())
        };
        if !registry.find_jobs(trust, &id)?.iter().any(needs_pin) {
            stale.push(path);
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    run_in_first_namespace(|| unbind_all(&stale))
        .map_err(|error| Error::failed("unpin namespaces in", PIN_DIR, error))
}

/// Lists the pins for owners: each with the owner, its path and the id of its record. Folders that cannot be read, or
/// that are not there, have none, and names of another form are left out.
fn list_owner_pins() -> Vec<(u32, PathBuf, JobId)> {
    let mut pins = Vec::new();
    for dir in fs::read_dir(owner_pin_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let Some(owner) = dir.file_name().to_str().and_then(parse_decimal) else {
            continue;
        };
        for entry in fs::read_dir(dir.path()).into_iter().flatten().flatten() {
            let id = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            pins.extend(id.map(|id| (owner, entry.path(), id)));
        }
    }
    pins
}

/// Runs `work` in the mount namespace of the system's first process, which sshd shares: a scheduler's
/// daemon may have its own mount namespace, and mounts there would stay there. If that namespace cannot be opened, it
/// runs `work` where it is.
fn run_in_first_namespace<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Ok(first) = Namespace::open_of_process("1", "mnt", libc::CLONE_NEWNS) else {
        return work();
    };
    let first = [first];
    let outside = NamespaceOrigin::open(&first).map_err(io::Error::other)?;
    let result = outside.join(&first).and_then(|()| work());
    outside.leave().map_err(io::Error::other)?;
    result
}

/// Keeps the namespace alive by a bind mount at `path`, in place of an earlier one.
fn bind(namespace: &Namespace, path: &Path) -> io::Result<()> {
    let dir = Path::new(PIN_DIR);
    Trust::root().make_dir(dir).map_err(io::Error::other)?;
    // Earlier versions let everyone search it.
    fs::set_permissions(dir, Permissions::from_mode(PIN_DIR_MODE))?;
    // The kernel refuses to bind a mount namespace to a file in a shared mount: make the directory a mount of
    // its own, and that private. The fifth field of a line is the place of a mount.
    let mounts = proc::read("/proc/self/mountinfo")?;
    if !mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(PIN_DIR))
    {
        bind_mount(dir, dir)?;
    }
    mount(
        None::<&str>,
        dir,
        None::<&str>,
        MsFlags::MS_PRIVATE,
        None::<&str>,
    )?;
    if let Some(parent) = path.parent() {
        Trust::root().make_dir(parent).map_err(io::Error::other)?;
    }
    unbind(path)?;
    File::create_new(path)?;
    bind_mount(
        Path::new(&format!("/proc/self/fd/{}", namespace.raw_fd())),
        path,
    )
}

/// Mounts the file or directory `from` also at `to`, without what is mounted below it.
fn bind_mount(from: &Path, to: &Path) -> io::Result<()> {
    Ok(mount(
        Some(from),
        to,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )?)
}

/// Removes all of these pins, and reports the first failure.
fn unbind_all(paths: &[PathBuf]) -> io::Result<()> {
    let mut result = Ok(());
    for path in paths {
        result = result.and(unbind(path));
    }
    result
}

/// Removes a pin, if there is one.
fn unbind(path: &Path) -> io::Result<()> {
    while umount2(path, MntFlags::MNT_DETACH).is_ok() {}
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
