//! A change of several files of the node and of what has read them, which is made as a whole or taken back.
//!
//! Before the first file changes, a copy of each is beside it, a journal names them, and a unit of systemd is
//! ready that takes all of them back without a program of this project: a timer starts it, and so does the next boot.
//! The change is made once the journal is gone. Whatever interrupts it before, the timer, the boot or the
//! next call takes it back.

mod journal;
mod pending;
mod undo_unit;

use super::file_change::{Content, FileChange, at, require_inside, write_content};
use super::part::Part;
use super::use_mount::{MOUNT_POINT, MOUNT_UNIT};
use command::disk;
use command::error::Error;
use command::output::Output;
use facts::systemd;
pub(super) use journal::Journal;
use journal::{JournalFile, State, copy_path};
use nix::fcntl::{Flock, FlockArg};
pub(super) use pending::Pending;
use pending::Undone;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether the node below `root` tries a change, which `enable` has end first.
pub fn is_tried(root: &std::path::Path) -> bool {
    matches!(Pending::read(root), Ok(Some(pending)) if pending.is_trial())
}

const LOCK_FILE: &str = "/var/lib/job-adopt/change.lock";
/// How long a change that is not tried may take before the timer takes it back.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(300);

/// The command that makes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Command {
    Enable,
    Disable,
}

impl Command {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

/// What happens to the file system of `job-adopt use`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MountStep {
    Start,
    Stop,
}

impl MountStep {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
        }
    }

    fn opposite(self) -> Self {
        match self {
            Self::Start => Self::Stop,
            Self::Stop => Self::Start,
        }
    }
}

/// What makes the node use the files. Nothing of it is done for an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Steps {
    pub(super) reload_units: bool,
    pub(super) reload_bus: bool,
    pub(super) mount: Option<MountStep>,
}

impl Steps {
    /// The steps that make the node use the old files again.
    fn back(self) -> Self {
        Self {
            mount: self.mount.map(MountStep::opposite),
            ..self
        }
    }

    /// Lists the commands of these steps for the admin, each behind the name of its part.
    fn commands(self) -> Vec<(&'static str, String)> {
        let mut commands = Vec::new();
        if self.reload_units {
            commands.push(("slices", "systemctl daemon-reload".to_owned()));
        }
        if self.reload_bus {
            commands.push(("bus", "systemctl reload dbus".to_owned()));
        }
        if let Some(step) = self.mount {
            commands.push(("mount", format!("systemctl {} '{MOUNT_UNIT}'", step.word())));
        }
        commands
    }

    /// Runs these steps, and then `restorecon` for the mount point if this kernel has SELinux and the file system was
    /// mounted. It fails with [`Error::Failed`] at the first step that fails, and does not run those behind it.
    fn run(self) -> Result<(), Error> {
        // The mount's unit has to be known before it is started.
        if self.reload_units {
            systemd::reload_units()?;
        }
        if self.reload_bus {
            systemd::reload_bus()?;
        }
        if let Some(step) = self.mount {
            systemd::systemctl(&[step.word(), MOUNT_UNIT])?;
        }
        if self.mount == Some(MountStep::Start) && Path::new("/sys/fs/selinux/enforce").exists() {
            systemd::run("restorecon", &["-F", MOUNT_POINT])?;
        }
        Ok(())
    }

    /// Runs each step by itself, also after another one has failed, and warns of each failure. Returns whether all
    /// succeeded.
    fn run_or_warn(self, output: &mut Output<'_>) -> bool {
        let none = Self::default();
        let units = Self {
            reload_units: self.reload_units,
            ..none
        };
        let bus = Self {
            reload_bus: self.reload_bus,
            ..none
        };
        let mount = Self {
            mount: self.mount,
            ..none
        };
        let mut succeeds = true;
        for step in [units, bus, mount] {
            if let Err(error) = step.run() {
                output.warn(error);
                succeeds = false;
            }
        }
        succeeds
    }
}

/// A planned change.
#[derive(Debug)]
pub(super) struct Change {
    command: Command,
    root: PathBuf,
    service: String,
    files: Vec<(Part, FileChange)>,
    pub(super) steps: Steps,
    /// The modules that the old stack calls and the new one does not: without one, the old stack must not come
    /// back.
    pub(super) modules: Vec<PathBuf>,
}

impl Change {
    /// Starts the plan of a change by `command`, still without files and steps. `service` is the PAM service
    /// whose stack may change.
    pub(super) fn new(command: Command, root: &Path, service: &str) -> Self {
        Self {
            command,
            root: root.to_owned(),
            service: service.to_owned(),
            files: Vec::new(),
            steps: Steps::default(),
            modules: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, part: Part, files: impl IntoIterator<Item = FileChange>) {
        self.files
            .extend(files.into_iter().map(|file| (part, file)));
    }

    pub(super) fn has(&self, part: Part) -> bool {
        self.files.iter().any(|(other, _)| *other == part)
    }

    /// Whether the change makes a file that was not there.
    pub(super) fn creates(&self, path: &Path) -> bool {
        self.files
            .iter()
            .any(|(_, file)| file.path == path && file.old.is_none())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.steps == Steps::default()
    }

    /// Writes what will change.
    pub(super) fn describe(&self, output: &mut Output<'_>) -> Result<(), Error> {
        for (part, file) in &self.files {
            write!(output.out, "{}: ", part.name())?;
            file.describe(output)?;
        }
        for (part, command) in self.steps.commands() {
            writeln!(output.out, "{part}: {command}")?;
        }
        Ok(output.out.flush()?)
    }

    /// Makes the way back ready, before the first file is changed. If systemd runs here and reads the files,
    /// the change goes back by itself after `trial` (`None`, without a trial: after [`CHANGE_TIMEOUT`]), unless
    /// it is kept before.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the step that failed; what was made ready is removed again.
    pub(super) fn begin(
        &self,
        trial: Option<Duration>,
        output: &mut Output<'_>,
    ) -> Result<Pending, Error> {
        let pending = Pending::new(&self.root, self.journal());
        let result = self.prepare(&pending, trial.unwrap_or(CHANGE_TIMEOUT));
        if let Err(error) = result {
            if let Err(second) = pending.forget() {
                output.warn(second);
            }
            return Err(error);
        }
        Ok(pending)
    }

    /// Builds the journal of this change as it is before the first file changes.
    fn journal(&self) -> Journal {
        let files = self
            .files
            .iter()
            .map(|(part, file)| JournalFile::new(*part, file));
        Journal {
            version: Journal::VERSION,
            id: Journal::new_id(),
            command: self.command,
            state: State::Changing,
            service: self.service.clone(),
            files: files.collect(),
            steps: self.steps,
            modules: self.modules.clone(),
        }
    }

    /// Writes the journal and a copy of each file that will be replaced or removed. If systemd runs here and
    /// reads these files, it first waits for the undo of an earlier change, and last installs the unit that
    /// takes this change back after `length`. It fails with [`Error::Failed`] and the step.
    fn prepare(&self, pending: &Pending, length: Duration) -> Result<(), Error> {
        let is_live = systemd::reads(&self.root);
        if is_live {
            undo_unit::require_spelling(&pending.journal)?;
            undo_unit::await_earlier();
        }
        pending.write()?;
        for (_, file) in &self.files {
            if let Some(old) = &file.old {
                let path = at(&self.root, &file.path);
                write_copy(&path, old)?;
            }
        }
        if is_live {
            undo_unit::arm(&pending.journal, length)?;
        }
        Ok(())
    }

    /// Changes the files of the parts for which `is_meant` is true.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the first file that cannot be changed. The files before it are changed.
    pub(super) fn apply(&self, is_meant: impl Fn(Part) -> bool) -> Result<(), Error> {
        for (_, file) in self.files.iter().filter(|(part, _)| is_meant(*part)) {
            file.apply(&self.root)?;
        }
        Ok(())
    }

    /// Makes the node use the files. A file system that is still in use stays mounted, with a warning: one
    /// user with an open file must not keep the node as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the step, unless that is to unmount the file system.
    pub(super) fn activate(&self, output: &mut Output<'_>) -> Result<(), Error> {
        if self.steps.mount != Some(MountStep::Stop) {
            return self.steps.run();
        }
        let stop = Steps {
            mount: self.steps.mount,
            ..Steps::default()
        };
        let others = Steps {
            mount: None,
            ..self.steps
        };
        others.run()?;
        if !stop.run_or_warn(output) {
            output.warn(format_args!(
                "{MOUNT_POINT}: stays mounted until it is not in use: systemctl stop '{MOUNT_UNIT}' tries again"
            ));
        }
        Ok(())
    }

    /// Takes back what this process has changed, and makes the node use the old files, as
    /// [`Pending::undo_files_and_slices`] does: a file that somebody else has edited meanwhile stays so, but for our lines
    /// in the PAM stack.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the first file that cannot be brought back. The others are, and the journal and
    /// the unit stay for another attempt.
    pub(super) fn roll_back(
        &self,
        pending: &Pending,
        output: &mut Output<'_>,
    ) -> Result<Undone, Error> {
        // From here on this process alone brings files back.
        if systemd::reads(&self.root) {
            undo_unit::stop_timer();
        }
        self.renew_way_back(pending)?;
        pending.undo_files_and_slices(output)
    }

    /// Writes the journal again, and the copy of each file that has its new content, if they are gone: the unit that
    /// takes the change back uses them up, and may have run while this process went on to change files. It fails
    /// with [`Error::Failed`] and the file.
    fn renew_way_back(&self, pending: &Pending) -> Result<(), Error> {
        if !pending.is_written() {
            pending.write()?;
        }
        for (_, file) in &self.files {
            let path = at(&self.root, &file.path);
            let Some(old) = &file.old else {
                continue;
            };
            let has_copy = Content::read(&copy_path(&path))?.is_some();
            if !has_copy && Content::read(&path)? == file.new {
                write_copy(&path, old)?;
            }
        }
        Ok(())
    }

    /// Takes the change back after an error; returns that error with how it ended. It warns if not all goes back.
    pub(super) fn abandon(
        &self,
        pending: &Pending,
        error: Error,
        output: &mut Output<'_>,
    ) -> Error {
        match self.roll_back(pending, output) {
            Ok(undone) => Error::Failed(format!("{error}; {}", undone.describe())),
            Err(second) => {
                output.warn(second);
                Error::Failed(format!(
                    "{error}; not all is as it was: job-adopt enable --undo tries again"
                ))
            }
        }
    }
}

/// Writes the content that a file or link had before the change to its copy, which gets the file's owner and mode.
fn write_copy(path: &Path, old: &Content) -> Result<(), Error> {
    let copy = copy_path(path);
    match old {
        Content::Text(text) => {
            let meta = fs::symlink_metadata(path).ok();
            command::replace_file::replace_file(&copy, text, meta.as_ref())
        }
        Content::Link(_) => write_content(&copy, old),
    }
}

/// Gives a copy the name of its file.
fn rename_copy(path: &Path) -> Result<(), Error> {
    disk::rename(&copy_path(path), path)
        .map_err(|error| Error::failed("restore", path.display(), error))
}

/// Removes the folder of a slice's drop-in that is gone. A folder with other files stays. It fails with
/// [`Error::Failed`] if the removal does not reach the disk.
fn remove_empty_drop_in_folder(path: &Path) -> Result<(), Error> {
    let Some(folder) = path.parent().filter(|folder| is_slice_folder(folder)) else {
        return Ok(());
    };
    if fs::remove_dir(folder).is_err() {
        return Ok(());
    }
    disk::sync_folder_of(folder).map_err(|error| Error::failed("remove", folder.display(), error))
}

/// The folders in which a change has files.
const FOLDERS: [&str; 5] = [
    "/etc/pam.d",
    "/etc/dbus-1/system.d",
    "/etc/systemd/system",
    "/etc/systemd/system/local-fs.target.wants",
    "/etc/systemd/system/sysinit.target.wants",
];

/// Writes to the disk what is in the folders of changes. A call that finds the node as asked reports also what another
/// one, which was killed, may have changed in memory alone.
///
/// # Errors
///
/// [`Error::Failed`] with the folder that cannot be written.
pub(super) fn sync_node(root: &Path) -> Result<(), Error> {
    let mut folders: Vec<PathBuf> = FOLDERS
        .iter()
        .map(|folder| at(root, Path::new(folder)))
        .collect();
    let units = fs::read_dir(at(root, Path::new("/etc/systemd/system")));
    for entry in units.into_iter().flatten().flatten() {
        folders.extend(Some(entry.path()).filter(|path| is_slice_folder(path)));
    }
    for folder in folders {
        match disk::sync_folder(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::failed("write", folder.display(), error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_slice_folder(folder: &Path) -> bool {
    folder.to_string_lossy().ends_with(".slice.d")
}

/// Takes the lock of changes of this node, and waits for the undo of an earlier change if that runs. Only
/// root can open the file: a user who can open it can hold the lock for ever (flock(2)).
///
/// # Errors
///
/// [`Error::Failed`] if another command holds the lock, or if its file cannot be made or opened.
pub(super) fn lock(root: &Path) -> Result<Flock<File>, Error> {
    require_inside(root, Path::new(LOCK_FILE))?;
    let path = at(root, Path::new(LOCK_FILE));
    let failed = |error: std::io::Error| Error::failed("lock", path.display(), error);
    fs::create_dir_all(path.parent().unwrap_or(root)).map_err(failed)?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    // The mode above is only for a new file, and less the umask.
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(failed)?;
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        let error = std::io::Error::from(errno);
        if error.kind() == ErrorKind::WouldBlock {
            return Error::failed("change", "the node", "another enable or disable is running");
        }
        failed(error)
    })?;
    // The unit that takes a change back does not use this lock.
    if systemd::reads(root) {
        undo_unit::await_running();
    }
    Ok(locked)
}
