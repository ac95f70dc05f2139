//! The programs of this project: whether the module would run them, and their version.

use super::trusted_file::{EXECUTE_BY_OTHERS, require_trusted};
use kernel::trust::{Distrust, Trust, TrustError};
use protocol::{VERSION, VERSION_MISMATCH};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Longest part of a program that is searched for its version; builds with debug information have some 50 MB.
const PROGRAM_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Checks that the module would run a program: only root can have written it, and its mode has one of
/// these execute bits, and neither the set-user-ID nor the set-group-ID bit.
///
/// # Errors
///
/// [`TrustError`] with what the module would refuse.
pub fn require_executable(trust: &Trust, path: &Path, rights: u32) -> Result<(), TrustError> {
    let mode = require_trusted(trust, path)?;
    if mode & 0o6000 != 0 || mode & rights == 0 {
        return Err(TrustError::new(path, Distrust::WrongMode(mode)));
    }
    Ok(())
}

/// Checks that the module would run the helper at `path`. The account job-adopt runs it, which neither owns the file nor is
/// in its group.
///
/// # Errors
///
/// As [`require_executable`].
pub fn require_helper(trust: &Trust, path: &Path) -> Result<(), TrustError> {
    require_executable(trust, path, EXECUTE_BY_OTHERS)
}

/// Describes why the module would not run the helper, and what becomes of logins.
pub fn describe_helper_fault(why: &TrustError) -> String {
    format!("cannot be run, so every login is refused (JA09): {why}")
}

/// Reads the version of a program of this project; `None` in another file, and in one that cannot be read. The caller has
/// checked that nobody but root can have written it: a user's file may have no end, or keep whoever opens it waiting.
pub fn read_version(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(PROGRAM_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    find_version(&bytes)
}

/// Finds the version in the bytes of a program of this project: each one contains the text
/// [`VERSION_MISMATCH`], which names its own version. The two parts around the version may occur elsewhere too, so what
/// is between them must look like a version. `None` in the bytes of another file.
fn find_version(bytes: &[u8]) -> Option<String> {
    // The text of any version has these parts around the version; here they come from this program's.
    let (before, after) = VERSION_MISMATCH.split_once(VERSION)?;
    let text = String::from_utf8_lossy(bytes);
    text.split(before)
        .skip(1)
        .filter_map(|rest| rest.split_once(after))
        .map(|(version, _)| version)
        .find(|version| is_version(version))
        .map(str::to_owned)
}

fn is_version(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-+~".contains(c))
}
