//! Opens the slices of users who are logged in, once no drop-in closes them any more.
//!
//! systemd leaves its filter on a slice that has no device policy any more (seen with 252, 257 and 262): such a slice
//! would stay closed until its user's last logout. So the filter is detached here. systemd ignores that it is gone when
//! it attaches the next one.

use command::error::Error;
use command::output::Output;
use facts::closed_slices::{DevicePolicy, SYSTEMD_FILTER};
use facts::systemd;
use facts::user_slices::{UserSlice, list_user_slices};
use kernel::bpf::{self, CgroupPrograms, Program};

/// The first version of systemd whose device filters have a name.
const NAMED_FILTERS_VERSION: u32 = 250;

/// Opens each slice that has a filter although no unit file closes it; returns the names of these. Slices that the site
/// closes stay so. A failure leaves a slice closed, with a warning.
pub(super) fn open_slices(output: &mut Output<'_>) -> Vec<String> {
    open_slices_of(|_| true, output)
}

/// Opens slices as [`open_slices`] does, but only those of the uids for which `is_meant` is true.
pub(super) fn open_slices_of(
    is_meant: impl Fn(u32) -> bool,
    output: &mut Output<'_>,
) -> Vec<String> {
    let mut opened = Vec::new();
    let slices = list_user_slices().unwrap_or_else(|error| {
        output.warn(format_args!(
            "{error}: those of users who are logged in may stay closed until their last logout"
        ));
        None
    });
    let meant = slices
        .into_iter()
        .flatten()
        .filter(|slice| is_meant(slice.uid));
    for slice in meant {
        match open_slice(&slice) {
            Ok(true) => opened.push(slice.name),
            Ok(false) => {}
            Err(error) => output.warn(format_args!(
                "{error}; it stays closed until its user's last logout"
            )),
        }
    }
    opened
}

/// Writes the names of slices that were opened.
pub(super) fn report_opened(slices: &[String], output: &mut Output<'_>) -> Result<(), Error> {
    for slice in slices {
        writeln!(output.out, "slices: {slice}: open again")?;
    }
    Ok(())
}

/// Names the slices that [`open_slices`] would open now. What this process cannot read is left out.
pub(super) fn find_closed_slices() -> Vec<String> {
    let slices = list_user_slices().unwrap_or_default();
    slices
        .into_iter()
        .flatten()
        .filter(|slice| find_filters(slice).is_ok_and(|filters| !filters.is_empty()))
        .map(|slice| slice.name)
        .collect()
}

/// Names the slices of these uids that have only filters of systemd, whatever the unit files say. What this process
/// cannot read is left out.
pub(super) fn find_filtered_slices(is_meant: impl Fn(u32) -> bool) -> Vec<String> {
    let slices = list_user_slices().unwrap_or_default();
    slices
        .into_iter()
        .flatten()
        .filter(|slice| is_meant(slice.uid))
        .filter(|slice| {
            CgroupPrograms::read(&slice.dir)
                .is_ok_and(|level| !level.programs.is_empty() && are_systemds(&level.programs))
        })
        .map(|slice| slice.name)
        .collect()
}

/// Opens a slice. Returns whether it was closed, and is open now. It fails as [`find_filters`] does, and if a filter
/// cannot be detached.
fn open_slice(slice: &UserSlice) -> Result<bool, Error> {
    let filters = find_filters(slice)?;
    for program in &filters {
        bpf::detach(&slice.dir, program).map_err(|error| failed(slice, &error.to_string()))?;
    }
    Ok(!filters.is_empty())
}

/// Finds systemd's filters of a slice that no unit file closes.
///
/// # Errors
///
/// [`Error::Failed`] if its filters or its device policy cannot be read, and if one of the filters is not systemd's.
fn find_filters(slice: &UserSlice) -> Result<Vec<Program>, Error> {
    let level =
        CgroupPrograms::read(&slice.dir).map_err(|error| failed(slice, &error.to_string()))?;
    if level.programs.is_empty() {
        return Ok(Vec::new());
    }
    match systemd::read_device_policy(&slice.name) {
        DevicePolicy::Limited => return Ok(Vec::new()),
        DevicePolicy::Unknown => {
            return Err(failed(slice, "systemctl does not show its device policy"));
        }
        DevicePolicy::Open => {}
    }
    if !are_systemds(&level.programs) {
        return Err(failed(slice, "it has a filter that is not systemd's"));
    }
    Ok(level.programs)
}

fn failed(slice: &UserSlice, cause: &str) -> Error {
    Error::failed("open", &slice.name, cause)
}

fn are_systemds(filters: &[Program]) -> bool {
    filters
        .iter()
        .all(|filter| is_systemds_filter(&filter.name(), systemd::read_version))
}

/// Checks by its name whether a filter is systemd's. One without a name is, if systemd gives its filters none.
fn is_systemds_filter(name: &str, read_version: impl Fn() -> Option<u32>) -> bool {
    if name.is_empty() {
        return read_version().is_some_and(|version| version < NAMED_FILTERS_VERSION);
    }
    name == SYSTEMD_FILTER
}

#[cfg(test)]
mod tests {
    use super::*;

    /// runc and Flux's IMP give their filters no names either.
    #[test]
    fn filter_of_another_program_is_left() {
        for (name, version, expected) in [
            ("sd_devices", Some(257), true),
            ("sd_devices", None, true),
            ("", Some(249), true),
            ("", Some(250), false),
            ("", None, false),
            ("job_adopt_1", Some(249), false),
        ] {
            let is_systemds = is_systemds_filter(name, || version);
            assert_eq!(is_systemds, expected, "{name} {version:?}");
        }
    }
}
