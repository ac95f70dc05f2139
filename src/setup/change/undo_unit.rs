//! The unit that takes a change back. It needs no program of this project: it renames the copies over the files.
//! A transient timer starts it, and so does the next boot, before any login.

use super::MountStep;
use super::journal::{JOURNAL, Journal, copy_path};
use crate::use_mount::MOUNT_UNIT;
use command::disk;
use command::error::Error;
use command::replace_file::{new_path, replace_file};
use facts::closed_slices::UNUSED_SLICE;
use facts::systemd;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

const UNIT: &str = "job-adopt-undo.service";
const TIMER: &str = "job-adopt-undo.timer";
const UNIT_PATH: &str = "/etc/systemd/system/job-adopt-undo.service";
/// The folder whose links systemd starts at boot.
const WANTS_DIR: &str = "/etc/systemd/system/sysinit.target.wants";

fn link_path() -> std::path::PathBuf {
    Path::new(WANTS_DIR).join(UNIT)
}

/// Checks that the paths of the journal can stand in the unit's commands.
///
/// # Errors
///
/// [`Error::Failed`] with the first path that cannot.
pub(super) fn require_spelling(journal: &Journal) -> Result<(), Error> {
    let paths = journal.files.iter().map(|file| &file.path);
    for path in paths.chain(&journal.modules) {
        let is_plain = path
            .to_str()
            .is_some_and(|path| path.chars().all(is_plain_in_unit));
        if !is_plain {
            let why = format!("a unit cannot have the path {} in it", path.display());
            return Err(Error::failed("change", "the node", why));
        }
    }
    Ok(())
}

/// Whether [`spell`] can spell this character for a unit's file.
fn is_plain_in_unit(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-@/+\\".contains(c)
}

/// Spells a path or unit's name for a command of a unit.
fn spell(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().replace('\\', r"\\")
}

/// Installs the unit, also for the next boot, and starts the timer, which starts the unit after `length`. The unit
/// does nothing while there is no journal.
///
/// # Errors
///
/// [`Error::Failed`] with the step.
pub(super) fn arm(journal: &Journal, length: Duration) -> Result<(), Error> {
    replace_file(Path::new(UNIT_PATH), unit_text(journal), None)?;
    let link = link_path();
    disk::make_folder(Path::new(WANTS_DIR))?;
    let linked = match disk::link(Path::new(UNIT_PATH), &link) {
        // An earlier change may have left it, also in memory alone.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => disk::sync_folder_of(&link),
        other => other,
    };
    linked.map_err(|error| Error::failed("link", link.display(), error))?;
    systemd::systemctl(&["daemon-reload"])?;
    let after = format!("--on-active={}", length.as_secs());
    let accuracy = "--timer-property=AccuracySec=1s";
    systemd::run(
        "systemd-run",
        &["--quiet", &after, accuracy, "--unit", UNIT],
    )
}

/// Waits for the undo of an earlier change, and stops its timer. The undo restores the files first and removes
/// its own unit last: until it has ended, it would remove the unit of this change.
pub(super) fn await_earlier() {
    systemd::systemctl_if_needed(&["start", UNIT]);
    systemd::systemctl_if_needed(&["stop", TIMER]);
}

/// Waits for the unit if it has begun.
pub(super) fn await_running() {
    if systemd::is_starting(UNIT) {
        systemd::systemctl_if_needed(&["start", UNIT]);
    }
}

/// Stops the timer, and waits for the unit if it has begun.
pub(super) fn stop_timer() {
    systemd::systemctl_if_needed(&["stop", TIMER]);
    await_running();
}

/// Whether the timer waits. It is active until its unit stops it.
pub(super) fn is_armed() -> bool {
    systemd::is_active(TIMER) && !systemd::is_starting(UNIT)
}

/// Removes the unit and stops the timer, which have no effect without the journal.
///
/// # Errors
///
/// [`Error::Failed`] if the unit cannot be removed from the disk, or if systemd does not forget it.
pub(super) fn disarm() -> Result<(), Error> {
    // Without files of the unit there is nothing that systemd would have to forget.
    let mut was_armed = false;
    let mut failure = None;
    for path in [link_path(), UNIT_PATH.into()] {
        match disk::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => {
                was_armed = true;
                let failed = |error| Error::failed("remove", path.display(), error);
                failure = failure.or(other.map_err(failed).err());
            }
        }
    }
    if was_armed {
        systemd::systemctl_if_needed(&["reset-failed", UNIT]);
        systemd::systemctl_if_needed(&["stop", TIMER]);
        failure = failure.or(systemd::systemctl(&["daemon-reload"]).err());
    }
    failure.map_or(Ok(()), Err)
}

/// The text of the unit. It first looks for its id in the journal and lists the modules, so that it fails and changes
/// nothing if the journal is of another change or a module is missing; then it restores the files, and removes the
/// journal and itself last.
fn unit_text(journal: &Journal) -> String {
    // A condition on the text of a file, ExecCondition, came with systemd 243.
    let mut commands = vec![format!("/bin/grep -q -F {} {JOURNAL}", journal.id)];
    // systemd stops at the first command that fails, and the log has the file that ls names. A condition
    // would skip the unit in silence.
    if !journal.modules.is_empty() {
        let files: Vec<_> = journal.modules.iter().map(spell).collect();
        commands.push(format!("/bin/ls -dL {}", files.join(" ")));
    }
    // systemd ignores the failure of a command with `-` in front.
    for file in &journal.files {
        let path = spell(&file.path);
        // What an interruption has left of a new file.
        commands.push(format!("-/bin/rm -f {}", spell(new_path(&file.path))));
        if !file.has_copy {
            commands.push(format!("/bin/rm -f {path}"));
        } else {
            let copy = spell(copy_path(&file.path));
            // If the unit was interrupted before, the copy is in its place already. The test fails if mv did.
            commands.push(format!("-/bin/mv -f -T {copy} {path}"));
            commands.push(format!("/usr/bin/test ! -e {copy}"));
        }
        if let Some(folder) = file.own_folder() {
            commands.push(format!(
                "-/bin/rmdir --ignore-fail-on-non-empty {}",
                spell(folder)
            ));
        }
    }
    // At boot these may fail: systemd reads its units anew all the same, and the bus is not there yet.
    let steps = journal.steps.back();
    if steps.reload_units {
        commands.push("-/bin/systemctl daemon-reload".to_owned());
        // As `systemd::reload_units` does.
        commands.push(format!("-/bin/systemctl show --property=Id {UNUSED_SLICE}"));
    }
    if steps.reload_bus {
        commands.push("-/bin/systemctl --no-block reload dbus.service".to_owned());
    }
    if let Some(step) = steps.mount {
        let word = if step == MountStep::Start {
            "start"
        } else {
            "stop"
        };
        commands.push(format!(
            "-/bin/systemctl --no-block {word} {}",
            spell(MOUNT_UNIT)
        ));
    }
    commands.push(format!("-/bin/systemctl --no-block stop {TIMER}"));
    commands.push(format!("/bin/rm -f {JOURNAL}"));
    commands.push(format!("/bin/rm -f {} {UNIT_PATH}", link_path().display()));
    let lines: String = commands
        .into_iter()
        .map(|command| format!("ExecStart={command}\n"))
        .collect();
    format!(
        "# Written by job-adopt {}; it removes itself.\n\
         [Unit]\nDescription=Take back what job-adopt {} changes\n\
         ConditionPathExists={JOURNAL}\nDefaultDependencies=no\nAfter=local-fs.target\n\
         Before=sysinit.target shutdown.target\nConflicts=shutdown.target\n\n\
         [Service]\nType=oneshot\nStandardOutput=null\n\
         # The new stack stays if a module of the old one is gone: libpam would refuse every login.\n\
         {lines}",
        journal.command.name(),
        journal.command.name(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::journal::State;
    use crate::change::{Command, Steps};

    /// systemd 257 may close a slice that exists only when it loads another unit.
    #[test]
    fn unit_has_systemd_close_slices_that_exist() {
        let journal = Journal {
            version: Journal::VERSION,
            id: Journal::new_id(),
            command: Command::Enable,
            state: State::Trying,
            service: "sshd".to_owned(),
            files: Vec::new(),
            steps: Steps {
                reload_units: true,
                ..Steps::default()
            },
            modules: Vec::new(),
        };
        let text = unit_text(&journal);
        let (_, behind) = text.split_once("daemon-reload\n").unwrap();
        let load = format!("ExecStart=-/bin/systemctl show --property=Id {UNUSED_SLICE}\n");
        assert!(behind.starts_with(&load), "{text}");
    }
}
