//! Commands of systemd, what it tells of its units, and what it has not read yet.

use crate::closed_slices::{DevicePolicy, UNUSED_SLICE, parse_device_policy};
use command::child_process::{QueryError, query_in_clean_environment};
use command::error::Error;
use nix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// What a unit's files say about its devices.
const DEVICE_PROPERTIES: &str = "DevicePolicy,DeviceAllow";

/// Whether systemd runs here and reads the files below `root`.
pub fn reads(root: &Path) -> bool {
    root == Path::new("/") && Path::new("/run/systemd/system").exists()
}

/// Runs `systemctl`.
///
/// # Errors
///
/// As [`run`].
pub fn systemctl(words: &[&str]) -> Result<(), Error> {
    run("systemctl", words)
}

/// Prepares a program without input, whose output is dropped and whose messages go to standard error.
fn command_without_output(program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Runs `systemctl` and ignores its result: usually there is nothing to do for it, and it says so.
pub fn systemctl_if_needed(words: &[&str]) {
    let _ = command_without_output("systemctl", words)
        .stderr(Stdio::null())
        .status();
}

/// Runs a program without input, and drops its output.
///
/// # Errors
///
/// [`Error::Failed`] if the program cannot be started or does not succeed.
pub fn run(program: &str, words: &[&str]) -> Result<(), Error> {
    let why = match command_without_output(program, words).status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(Error::failed(
        "run",
        format!("{program} {}", words.join(" ")),
        why,
    ))
}

/// Makes systemd read its units again, and apply them to the slices that exist.
///
/// # Errors
///
/// As [`run`].
pub fn reload_units() -> Result<(), Error> {
    systemctl(&["daemon-reload"])?;
    systemctl_if_needed(&["show", "--property=Id", UNUSED_SLICE]);
    Ok(())
}

/// Makes the system bus read its policies again. A bus that does not run reads them when it starts.
///
/// # Errors
///
/// As [`run`].
pub fn reload_bus() -> Result<(), Error> {
    if !is_active("dbus.service") {
        return Ok(());
    }
    systemctl(&["reload", "dbus.service"])
}

/// Tells whether a unit is active.
pub fn is_active(unit: &str) -> bool {
    systemctl(&["is-active", "--quiet", unit]).is_ok()
}

/// Whether a unit that runs once is at it.
pub fn is_starting(unit: &str) -> bool {
    read_properties(unit, "ActiveState")
        .is_some_and(|properties| properties.contains("ActiveState=activating"))
}

/// Reads the device policy of a unit.
pub fn read_device_policy(unit: &str) -> DevicePolicy {
    let properties = read_properties(unit, DEVICE_PROPERTIES);
    properties.map_or(DevicePolicy::Unknown, |text| parse_device_policy(&text))
}

/// Reads the device policies of these units, in their order. One that systemd does not show is left out.
///
/// # Errors
///
/// [`QueryError`] of systemctl.
pub fn read_device_policies(units: &[String]) -> Result<Vec<DevicePolicy>, QueryError> {
    // Without a unit systemctl shows the manager.
    if units.is_empty() {
        return Ok(Vec::new());
    }
    let property = format!("--property={DEVICE_PROPERTIES}");
    let options = [property.as_str(), "--"].into_iter();
    let shown = show(options.chain(units.iter().map(String::as_str)))?;
    let policies = shown.split("\n\n").map(parse_device_policy);
    Ok(policies
        .filter(|policy| *policy != DevicePolicy::Unknown)
        .collect())
}

/// Lists those of these units that are active; none where systemd does not run.
pub fn list_active(units: &[&str]) -> Vec<String> {
    let mut command = Command::new("systemctl");
    command.args(["--no-pager", "--plain", "--no-legend", "--state=active"]);
    command.arg("list-units").args(units);
    let shown = query_in_clean_environment(&mut command).unwrap_or_default();
    let names = shown
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Lists the files of a unit, the drop-ins after the unit itself; none if systemd does not say.
pub fn list_files(unit: &str) -> Vec<PathBuf> {
    let words = ["--value", "--property=FragmentPath,DropInPaths", "--", unit];
    let shown = show(words).unwrap_or_default();
    let mut files: Vec<PathBuf> = shown.split_whitespace().map(PathBuf::from).collect();
    files.retain(|file| file.is_absolute());
    files
}

/// Reads properties of a unit, given as `NAME,NAME...`: a line `NAME=VALUE` for each, several for one with several
/// values. `None` if systemd does not say.
pub fn read_properties(unit: &str, names: &str) -> Option<String> {
    let property = format!("--property={names}");
    show([property.as_str(), "--", unit]).ok()
}

/// The number of the running systemd's version; `None` if it does not show one.
pub fn read_version() -> Option<u32> {
    parse_version(&show(["--property=Version"]).ok()?)
}

/// Parses this property of the manager, such as `252.39-1~deb12u1` or `v258-rc1`.
fn parse_version(property: &str) -> Option<u32> {
    let version = property.trim().strip_prefix("Version=")?;
    let number = version.trim_start_matches('v');
    number
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Whether systemd has loaded users' slices from other files than there are now.
pub fn has_old_slices() -> bool {
    read_properties("user-*.slice", "NeedDaemonReload")
        .is_some_and(|properties| properties.contains("NeedDaemonReload=yes"))
}

/// Whether a policy has changed since the system bus last read its policies; `false` if that cannot be told.
pub fn has_old_bus(policy: &Path) -> bool {
    // The state of the bus changes when it starts and when it is reloaded, and then it reads its policies.
    let shown = read_properties("dbus.service", "StateChangeTimestampMonotonic");
    let since_boot = shown
        .unwrap_or_default()
        .trim()
        .strip_prefix("StateChangeTimestampMonotonic=")
        .and_then(|number| number.parse().ok())
        .map(Duration::from_micros);
    let age = since_boot.and_then(|since_boot| {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).ok()?;
        Duration::from(now).checked_sub(since_boot)
    });
    let Some(age) = age else {
        return false;
    };
    let Some(read_at) = SystemTime::now().checked_sub(age) else {
        return false;
    };
    let Ok(meta) = fs::symlink_metadata(policy) else {
        return false;
    };
    let nanoseconds = u32::try_from(meta.ctime_nsec()).unwrap_or_default();
    let seconds = u64::try_from(meta.ctime()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds) > read_at
}

/// Runs `systemctl show`.
///
/// # Errors
///
/// [`QueryError`] of systemctl.
fn show<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<String, QueryError> {
    let mut command = Command::new("systemctl");
    command.args(["--no-pager", "show"]).args(words);
    query_in_clean_environment(&mut command)
}

/// Prepares a call of a method of systemd's manager over the system bus (org.freedesktop.systemd1(5)). `arguments` are
/// their signature and values.
pub fn manager_call(method: &str, arguments: &[&str]) -> Command {
    let mut call = Command::new("busctl");
    call.args(["--system", "call", "org.freedesktop.systemd1"]);
    call.arg("/org/freedesktop/systemd1");
    call.args(["org.freedesktop.systemd1.Manager", method]);
    call.args(arguments);
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_version_is_found_in_the_forms_of_distributions() {
        for (property, expected) in [
            ("Version=252.39-1~deb12u1\n", Some(252)),
            ("Version=239 (239-82.el8)\n", Some(239)),
            ("Version=249.11-0ubuntu3\n", Some(249)),
            ("Version=v258-rc1\n", Some(258)),
            ("Version=\n", None),
            ("", None),
        ] {
            assert_eq!(parse_version(property), expected, "{property}");
        }
    }
}
