//! The files by which systemd keeps GPUs from processes outside of jobs, and by which it moves no login out of its
//! job.

use super::file_change::{Content, FileChange, at};
use command::error::Error;
use command::output::Output;
use facts::closed_slices::CLOSED_DROP_IN;
use helper::Config;
use helper::devices::Resolver;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder of the admin's drop-ins.
const UNIT_DIR: &str = "/etc/systemd/system";
/// The policy in the folder of the admin's, which override those of packages.
pub(super) const BUS_POLICY_PATH: &str = "/etc/dbus-1/system.d/job-adopt.conf";
/// The file's name in every folder: the same, so that an account's file replaces that of all users.
const FILE_NAME: &str = "job-adopt.conf";
/// The drop-in of root, and of each exempt account.
const EXEMPT_DROP_IN: &str = include_str!("../../packaging/systemd/user-0.slice.d/job-adopt.conf");

/// The policy that denies users the calls by which systemd moves a login out of its job.
const BUS_POLICY: &str = include_str!("../../packaging/dbus/logins.conf");

/// Builds the drop-ins: the name of each folder with the text of its file. `exempt` has the uids whose slices stay open,
/// each with the reason.
///
/// # Errors
///
/// [`Error`] for an entry of `always_allowed` that is no device here or has no spelling for systemd. What is no error,
/// but left out, has a warning.
pub(super) fn build_drop_ins(
    config: &Config,
    exempt: &BTreeMap<u32, String>,
    resolver: &Resolver,
    output: &mut Output<'_>,
) -> Result<BTreeMap<String, String>, Error> {
    let allowed = device_allow_lines(config, resolver, output)?;
    let closed = format!("{CLOSED_DROP_IN}{allowed}");
    let mut files = BTreeMap::from([("user-.slice.d".to_owned(), closed)]);
    for (uid, why) in exempt {
        // The packages have root's file with this very text, in which there is no reason.
        let head = if *uid == 0 {
            String::new()
        } else {
            format!("# {why}\n#\n")
        };
        files.insert(
            format!("user-{uid}.slice.d"),
            format!("{head}{EXEMPT_DROP_IN}"),
        );
    }
    Ok(files)
}

/// Spells the devices of `always_allowed` as lines for systemd, below a comment. It warns of an entry that is skipped,
/// and of a preset without devices here; it fails with [`Error::Failed`] for any other entry without devices.
fn device_allow_lines(
    config: &Config,
    resolver: &Resolver,
    output: &mut Output<'_>,
) -> Result<String, Error> {
    let mut lines = String::from("# always_allowed of job_adopt.conf(5):");
    if config.always_allowed.is_empty() {
        lines.push_str(" none");
    }
    lines.push('\n');
    for specifier in &config.always_allowed {
        if let Some(reason) = specifier.skip_reason() {
            output.warn(format_args!(
                "warning: always_allowed: {specifier} {reason}"
            ));
            continue;
        }
        let failed = |why: &dyn std::fmt::Display| {
            Error::Failed(format!(
                "always_allowed: {specifier}: {why}; no drop-in was written"
            ))
        };
        let resolved = resolver
            .resolve_specifier(specifier)
            .map_err(|error| failed(&error))?;
        for warning in &resolved.warnings {
            output.warn(format_args!("warning: always_allowed: {warning}"));
        }
        // Only a preset, such as all GPUs of a maker, resolves to none.
        if resolved.devices.is_empty() {
            let text = format!("{specifier} is no device of this node");
            output.warn(format_args!("warning: always_allowed: {text}"));
            let _ = writeln!(lines, "# {text}");
        }
        for device in resolved.devices {
            // systemd would read these as a quote, an escape or a specifier of its own.
            if device
                .node
                .contains(|c: char| !c.is_ascii_graphic() || "\"'\\%".contains(c))
            {
                return Err(failed(&format_args!(
                    "systemd has no spelling of {}",
                    device.node
                )));
            }
            let _ = writeln!(
                lines,
                "DeviceAllow={} {}",
                device.node,
                device.rule.access()
            );
        }
    }
    Ok(lines)
}

/// Plans the drop-ins that are missing or differ, and the removal of those of accounts that are no longer exempt.
///
/// # Errors
///
/// [`Error::Failed`] if a file or the folder cannot be read.
pub(super) fn plan_drop_ins(
    root: &Path,
    files: &BTreeMap<String, String>,
) -> Result<Vec<FileChange>, Error> {
    let mut planned = Vec::new();
    for (name, text) in files {
        let path = Path::new(UNIT_DIR).join(name).join(FILE_NAME);
        let text = Content::Text(text.clone().into_bytes());
        planned.extend(FileChange::plan(root, path, Some(text))?);
    }
    for path in find_stale_files(root, files)? {
        planned.extend(FileChange::plan(root, path, None)?);
    }
    Ok(planned)
}

/// Plans the policy of the system bus, unless it is there already.
///
/// # Errors
///
/// [`Error::Failed`] if the file cannot be read.
pub(super) fn plan_bus_policy(root: &Path) -> Result<Option<FileChange>, Error> {
    let policy = Content::Text(BUS_POLICY.into());
    FileChange::plan(root, BUS_POLICY_PATH.into(), Some(policy))
}

/// Plans the removal of the policy of the system bus.
///
/// # Errors
///
/// [`Error::Failed`] if the file cannot be read.
pub(super) fn plan_open_bus(root: &Path) -> Result<Option<FileChange>, Error> {
    FileChange::plan(root, BUS_POLICY_PATH.into(), None)
}

/// The drop-in that closes all users' slices.
pub(super) fn closed_drop_in_path() -> PathBuf {
    Path::new(UNIT_DIR).join("user-.slice.d").join(FILE_NAME)
}

/// Plans the removal of all drop-ins.
///
/// # Errors
///
/// [`Error::Failed`] if a file or the folder cannot be read.
pub(super) fn plan_opening(root: &Path) -> Result<Vec<FileChange>, Error> {
    let mut planned = Vec::new();
    planned.extend(FileChange::plan(root, closed_drop_in_path(), None)?);
    for path in find_stale_files(root, &BTreeMap::new())? {
        planned.extend(FileChange::plan(root, path, None)?);
    }
    Ok(planned)
}

/// Finds the drop-ins of single users in folders that are not among the names of `files`. Without a folder of units
/// there are none. It fails with [`Error::Failed`] if that cannot be listed.
fn find_stale_files(root: &Path, files: &BTreeMap<String, String>) -> Result<Vec<PathBuf>, Error> {
    let units = at(root, Path::new(UNIT_DIR));
    let entries = match fs::read_dir(&units) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| Error::failed("read", units.display(), error))?,
    };
    let mut stale = Vec::new();
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if files.contains_key(&name) || !is_drop_in_of_user(&name) {
            continue;
        }
        let path = Path::new(UNIT_DIR).join(name).join(FILE_NAME);
        if fs::symlink_metadata(at(root, &path)).is_ok() {
            stale.push(path);
        }
    }
    Ok(stale)
}

/// Whether a folder has the drop-ins of one user's slice.
fn is_drop_in_of_user(name: &str) -> bool {
    let uid = name
        .strip_prefix("user-")
        .and_then(|rest| rest.strip_suffix(".slice.d"));
    uid.is_some_and(|uid| uid.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests;
