//! Opens the slices of users who are logged in, once their drop-ins are gone.
//!
//! systemd replaces the filter of a slice that exists, but detaches none when the slice has no device policy any more
//! (seen with 252): such a slice would stay closed until its user's last logout. So a drop-in of the runtime folder
//! allows all devices there, systemd attaches that filter, and the drop-in goes. What remains attached closes nothing,
//! and the next `enable` replaces it.

use super::systemd;
use crate::check::slices::{ClosedSlice, closed_slices};
use crate::error::Error;
use crate::output::Output;
use crate::replace_file::replace_file;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of drop-ins that last until the next boot.
const RUNTIME_DIR: &str = "/run/systemd/system";
const FILE_NAME: &str = "job-adopt-open.conf";
/// Allows what no filter would deny either.
const OPEN_DROP_IN: &str = "# Written by job-adopt, which removes it at once.\n[Slice]\n\
                            DeviceAllow=char-* rwm\nDeviceAllow=block-* rwm\n";

/// The names of the slices that had a filter although no drop-in closes them.
#[derive(Debug, Default)]
pub(super) struct Opening {
    pub(super) opened: Vec<String>,
    /// Those that stay closed until their user's last logout.
    pub(super) left: Vec<String>,
}

/// Opens each slice that has a filter although no drop-in closes it. Slices that a drop-in of the site closes stay so. A
/// failure leaves slices closed, with a warning.
pub(super) fn open_slices(output: &mut Output<'_>) -> Opening {
    let before: Vec<ClosedSlice> = closed_slices()
        .into_iter()
        .filter(|slice| !systemd::has_device_policy(&slice.name))
        .collect();
    if before.is_empty() {
        return Opening::default();
    }
    if let Err(error) = replace_filters(&before) {
        output.warn(error);
    }
    let after = closed_slices();
    let mut opening = Opening::default();
    for slice in before {
        // A slice without a new filter was not opened; one that is gone, or has none, is not closed.
        if after.contains(&slice) {
            opening.left.push(slice.name);
        } else {
            opening.opened.push(slice.name);
        }
    }
    opening
}

/// Makes systemd attach a filter that allows all devices to these slices. The drop-ins are removed in any case. It fails
/// with [`Error::Failed`] at the first step that fails.
fn replace_filters(slices: &[ClosedSlice]) -> Result<(), Error> {
    let written = slices
        .iter()
        .try_for_each(|slice| write_drop_in(&slice.name))
        .and_then(|()| systemd::reload_units());
    remove_openings().and(written)
}

fn write_drop_in(slice: &str) -> Result<(), Error> {
    let folder = drop_in_dir(slice);
    fs::create_dir_all(&folder).map_err(|error| Error::failed("make", folder.display(), error))?;
    replace_file(&folder.join(FILE_NAME), OPEN_DROP_IN, None)
}

fn drop_in_dir(slice: &str) -> PathBuf {
    Path::new(RUNTIME_DIR).join(format!("{slice}.d"))
}

/// Removes the drop-ins, also those of a call that was killed, and has systemd forget them: they would open slices that
/// are to be closed.
///
/// # Errors
///
/// [`Error::Failed`] with the first one that cannot be removed, or if systemd does not read its units again.
pub(super) fn remove_openings() -> Result<(), Error> {
    let mut is_reload_due = false;
    for entry in fs::read_dir(RUNTIME_DIR).into_iter().flatten().flatten() {
        let path = entry.path().join(FILE_NAME);
        if fs::symlink_metadata(&path).is_err() {
            continue;
        }
        fs::remove_file(&path).map_err(|error| Error::failed("remove", path.display(), error))?;
        // It stays if it has other files.
        let _ = fs::remove_dir(entry.path());
        is_reload_due = true;
    }
    if is_reload_due {
        systemd::reload_units()?;
    }
    Ok(())
}
