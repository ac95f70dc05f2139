//! Pins the mount namespaces of registered jobs: each is bound to a file that only root can open or replace. So
//! a login joins the namespace that `register` checked, even if the process number is reused.
//!
//! All registries have their pins in one directory, since the module, which reads no configuration, looks there. A link
//! beside each pin names its registry: a command with another one in its configuration leaves the pin alone.

use command::error::Error;
use helper::jobs::records::{LoginTarget, Record, Registry};
use kernel::OperationError;
use kernel::cgroup::Membership;
use kernel::mounts::{OWN_TABLE, parse_lines};
use kernel::namespace::{Namespace, NamespaceOrigin, PIN_DIR, owner_pin_dir, owner_pin_path};
use kernel::proc::{self, Proc};
use kernel::trust::Trust;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use protocol::{JobId, is_within, parse_decimal};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Mode of the directory of the pins.
const PIN_DIR_MODE: u32 = 0o700;

/// The cause if the kernel refuses to bind a namespace for its number. The initial namespace has the lowest one of all,
/// so that this happens only where the first process is in another one. Linux 6.18 counts for each processor in steps of
/// 4,096 (`gen_cookie_next`); older and newer kernels count all namespaces as they come.
const LOWER_NUMBER: &str = "it has a lower number than the node's own, which is a container's: Linux 6.18 numbers mount \
                            namespaces by processor; make the job's on another processor (taskset), or use Linux 6.19 or newer";

/// Pins the mount namespace of a process of the job, in place of an earlier pin. Returns the path.
///
/// # Errors
///
/// [`Error::Failed`] for a process that is not root's or not in the cgroup `job`, for a namespace that
/// its user may change, and for a pin that cannot be made.
pub(super) fn pin_namespace(
    pid: u32,
    id: &JobId,
    job: &str,
    registry: &Registry,
) -> Result<String, Error> {
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
    let pin = Pin::for_job(id.clone());
    pin.set(&namespace, registry)
        .map_err(|error| Error::failed("pin namespace of process", &number, error))?;
    Ok(pin.path.to_string_lossy().into_owned())
}

/// Pins the mount namespace at a path for the owner of a job that its scheduler places, in place of an earlier pin.
///
/// # Errors
///
/// [`Error::Failed`] for a path that is no mount namespace of root's, and for a pin that cannot be made.
pub(super) fn pin_for_owner(path: &str, record: &Record, registry: &Registry) -> Result<(), Error> {
    let namespace = Namespace::open(path)?;
    Pin::for_owner(record.uid, record.id.clone())
        .set(&namespace, registry)
        .map_err(|error| Error::failed("pin namespace", path, error))
}

/// Unpins the namespaces of this registry's jobs that it has no longer, and those that an owner's record no longer
/// names. A broken record may name its pin, which stays.
///
/// # Errors
///
/// [`Error::Failed`] for the first pin that cannot be removed; the others are removed all the same. None is if the
/// registry or a directory of pins cannot be read.
pub(super) fn unpin_ended_jobs(registry: &Registry, trust: &Trust) -> Result<(), Error> {
    let mut stale = Vec::new();
    for pin in list_pins()? {
        if pin.is_stale(registry, trust)? {
            stale.push(pin);
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    run_in_first_namespace(|| remove_all(&stale))
        .map_err(|error| Error::failed("unpin namespaces in", PIN_DIR, error))
}

/// The pin of a job's namespace: a file to which it is bound.
#[derive(Debug)]
struct Pin {
    path: PathBuf,
    id: JobId,
    /// The owner of a job that its scheduler places; `None` for the pin of a registered cgroup.
    owner: Option<u32>,
}

impl Pin {
    /// Begins the name of the link to a pin's registry. No id begins with a dot.
    const REGISTRY_PREFIX: &str = ".registry-";
    /// Begins the name of that link until it is complete.
    const NEW_REGISTRY_PREFIX: &str = ".new-registry-";

    /// The pin of a job whose cgroup is registered.
    fn for_job(id: JobId) -> Self {
        Self {
            path: Path::new(PIN_DIR).join(id.as_str()),
            id,
            owner: None,
        }
    }

    /// The pin of a job that its scheduler places.
    fn for_owner(owner: u32, id: JobId) -> Self {
        Self {
            path: owner_pin_path(owner, &id),
            id,
            owner: Some(owner),
        }
    }

    /// The path of the link to the pin's registry.
    fn registry_link(&self) -> PathBuf {
        self.path
            .with_file_name(format!("{}{}", Self::REGISTRY_PREFIX, self.id))
    }

    /// The path of that link until it is complete.
    fn new_registry_link(&self) -> PathBuf {
        self.path
            .with_file_name(format!("{}{}", Self::NEW_REGISTRY_PREFIX, self.id))
    }

    /// Reads the directory of the pin's registry; `None` if there is no pin. One without a note is of a version that
    /// noted none, and of the default registry.
    ///
    /// # Errors
    ///
    /// As `readlink(2)`, except for a missing link, and as `lstat(2)`, except for a missing pin.
    fn read_registry(&self) -> io::Result<Option<PathBuf>> {
        match fs::read_link(self.registry_link()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result.map(Some),
        }
        match self.path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some(Registry::DEFAULT.into())),
        }
    }

    /// Tells whether this registry has made the pin and no longer needs it.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the registry or the link to it cannot be read.
    fn is_stale(&self, registry: &Registry, trust: &Trust) -> Result<bool, Error> {
        let noted = self
            .read_registry()
            .map_err(|error| Error::failed("read", self.registry_link().display(), error))?;
        if noted.as_deref() != Some(registry.dir()) {
            return Ok(false);
        }
        Ok(!self.is_needed(registry, trust)?)
    }

    /// Tells whether a registry has a job that may need the pin.
    ///
    /// # Errors
    ///
    /// As [`Registry::find_jobs`].
    fn is_needed(&self, registry: &Registry, trust: &Trust) -> Result<bool, OperationError> {
        let jobs = registry.find_jobs(trust, &self.id)?;
        let Some(owner) = self.owner else {
            return Ok(!jobs.is_empty());
        };
        Ok(jobs.iter().any(|job| {
            let record = job.record.as_ref();
            job.uid == owner
                && record.map_or(true, |record| {
                    matches!(record.target, LoginTarget::Via(_)) && record.namespaces.is_some()
                })
        }))
    }

    /// Binds the namespace to the pin, in place of an earlier one. If that fails, the earlier one stays.
    ///
    /// # Errors
    ///
    /// A pin that another registry needs; as `open(2)`, `symlink(2)` and `mount(2)`.
    fn set(&self, namespace: &Namespace, registry: &Registry) -> io::Result<()> {
        self.require_unused_by_others(registry)?;
        run_in_first_namespace(|| self.bind(namespace, registry))
    }

    /// Requires that no other registry needs the pin. A registry that is gone needs none.
    ///
    /// # Errors
    ///
    /// The registry that has made the pin, if it still has the job or cannot be read.
    fn require_unused_by_others(&self, registry: &Registry) -> io::Result<()> {
        let Some(other) = self.read_registry()? else {
            return Ok(());
        };
        if other == registry.dir() {
            return Ok(());
        }
        match self.is_needed(&Registry::new(&other), &Trust::root()) {
            Ok(false) => Ok(()),
            Ok(true) => Err(io::Error::other(format!(
                "registry {} has a job of this id",
                other.display()
            ))),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Binds the namespace as [`Pin::set`] does, in the mount namespace of this process. A job that is registered again
    /// with the same namespace keeps its pin: a login at that moment finds it.
    fn bind(&self, namespace: &Namespace, registry: &Registry) -> io::Result<()> {
        prepare_dir()?;
        if let Some(parent) = self.path.parent() {
            Trust::root().make_dir(parent).map_err(io::Error::other)?;
        }
        let earlier = Namespace::open(&self.path.to_string_lossy()).ok();
        if earlier
            .as_ref()
            .is_some_and(|earlier| earlier.is_same(namespace))
        {
            return self.note_registry(registry);
        }
        let result = self.replace(namespace, registry);
        if result.is_err() {
            // The caller reports the first failure. A job that runs goes on with its earlier record.
            let _ = match &earlier {
                Some(earlier) => self.mount(earlier),
                None => self.remove(),
            };
        }
        result
    }

    /// Makes the file of the pin if it is missing, and binds the namespace to it.
    fn replace(&self, namespace: &Namespace, registry: &Registry) -> io::Result<()> {
        match File::create_new(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.note_registry(registry)?;
        self.mount(namespace)
    }

    /// Notes beside the pin which registry has the job. At no moment the pin is without its note, and so another
    /// registry's.
    fn note_registry(&self, registry: &Registry) -> io::Result<()> {
        let new = self.new_registry_link();
        ignore_missing(fs::remove_file(&new))?;
        symlink(registry.dir(), &new)?;
        fs::rename(new, self.registry_link())
    }

    /// Mounts the namespace on the file of the pin, in place of what is mounted there.
    fn mount(&self, namespace: &Namespace) -> io::Result<()> {
        self.unmount();
        let source = format!("/proc/self/fd/{}", namespace.raw_fd());
        bind_mount(Path::new(&source), &self.path).map_err(|error| {
            if namespace.can_be_bound() {
                return error;
            }
            io::Error::other(format!("{error}: {LOWER_NUMBER}"))
        })
    }

    /// Unmounts all that is mounted on the file of the pin.
    fn unmount(&self) {
        while umount2(&self.path, MntFlags::MNT_DETACH).is_ok() {}
    }

    /// Removes the pin, if there is one, and the directory of an owner without another.
    fn remove(&self) -> io::Result<()> {
        self.unmount();
        ignore_missing(fs::remove_file(self.new_registry_link()))?;
        ignore_missing(fs::remove_file(self.registry_link()))?;
        // The file comes last: it brings the next call here if one of these fails.
        ignore_missing(fs::remove_file(&self.path))?;
        let Some(owner) = self.owner else {
            return Ok(());
        };
        match fs::remove_dir(owner_pin_dir().join(owner.to_string())) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) => Ok(()),
            result => ignore_missing(result),
        }
    }
}

/// Lists all pins. Names of another form are left out.
///
/// # Errors
///
/// As [`list_names`].
fn list_pins() -> Result<Vec<Pin>, Error> {
    let mut pins = Vec::new();
    for name in list_names(Path::new(PIN_DIR))? {
        pins.extend(name.parse().map(Pin::for_job));
    }
    for owner in list_names(&owner_pin_dir())? {
        let Some(uid) = parse_decimal(&owner) else {
            continue;
        };
        for name in list_names(&owner_pin_dir().join(&owner))? {
            pins.extend(name.parse().map(|id| Pin::for_owner(uid, id)));
        }
    }
    Ok(pins)
}

/// Lists the names in a directory; none if it is missing. Invalid UTF-8 is replaced: no pin has such a name.
///
/// # Errors
///
/// [`Error::Failed`] if the directory cannot be listed.
fn list_names(dir: &Path) -> Result<Vec<String>, Error> {
    let failed = |error| Error::failed("list", dir.display(), error);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
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

/// Makes the directory of the pins, which only root can search, and mounts it privately on itself: the kernel refuses to
/// bind a mount namespace to a file in a shared mount.
fn prepare_dir() -> io::Result<()> {
    let dir = Path::new(PIN_DIR);
    Trust::root().make_dir(dir).map_err(io::Error::other)?;
    // make_dir lets everyone search a directory that it makes, and earlier versions left it so.
    fs::set_permissions(dir, Permissions::from_mode(PIN_DIR_MODE))?;
    let table = proc::read(OWN_TABLE)?;
    if !parse_lines(&table).any(|mount| mount.at == PIN_DIR) {
        bind_mount(dir, dir)?;
    }
    Ok(mount(
        None::<&str>,
        dir,
        None::<&str>,
        MsFlags::MS_PRIVATE,
        None::<&str>,
    )?)
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
fn remove_all(pins: &[Pin]) -> io::Result<()> {
    let mut result = Ok(());
    for pin in pins {
        result = result.and(pin.remove());
    }
    result
}

/// Takes a missing file for removed.
fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
