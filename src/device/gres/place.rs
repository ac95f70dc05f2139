//! Where `gres.conf` lies.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::GresError;
use crate::device::{Settings, Tree};
use crate::trust::{Distrust, TrustError};

/// Most bytes of the file.
const FILE_MAX: u64 = 1024 * 1024;
/// Where packages and builds from source have `slurm.conf`.
const PLACES: [&str; 3] = ["/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc"];
/// Where a node that gets its configuration from the controller has it: `conf` is a symbolic link
/// of slurmd's to its spool.
const CONFIGLESS: &str = "/run/slurm";

/// The file and its text, bytes that are no UTF-8 replaced.
///
/// # Errors
/// [`GresError::NoConf`], [`GresError::File`].
pub(super) fn read(tree: &Tree, settings: &Settings) -> Result<(PathBuf, String), GresError> {
    let path = dir(tree, settings)?.join("gres.conf");
    let bytes = tree.trust().read(&path, FILE_MAX).map_err(GresError::File)?;
    Ok((path, String::from_utf8_lossy(&bytes).into_owned()))
}

/// The directory of `slurm.conf`: Slurm reads no other `gres.conf`, so the one beside another
/// `slurm.conf` would be of an older set-up.
fn dir(tree: &Tree, settings: &Settings) -> Result<PathBuf, GresError> {
    if let Some(conf) = &settings.slurm_conf {
        let dir = conf.parent().and_then(Path::to_str).ok_or(GresError::NoConf)?;
        return Ok(tree.at(dir));
    }
    let mut dirs = PLACES.iter().map(|place| tree.at(place));
    match dirs.find(|dir| is_there(&dir.join("slurm.conf"))) {
        Some(dir) => Ok(dir),
        None => configless(tree),
    }
}

fn configless(tree: &Tree) -> Result<PathBuf, GresError> {
    let dir = tree.at(CONFIGLESS);
    let conf = dir.join("conf");
    if !is_there(&conf) {
        return Err(GresError::NoConf);
    }
    // The link is believed as what lies in this directory, and what it leads to as every file.
    tree.trust().dir(&dir).map_err(GresError::File)?;
    match std::fs::read_link(&conf) {
        Ok(target) => target
            .to_str()
            .filter(|target| target.starts_with('/'))
            .map(|target| tree.at(target))
            .ok_or(GresError::NoConf),
        Err(_) => Ok(conf),
    }
}

/// Whether something is there, readable or not.
fn is_there(path: &Path) -> bool {
    let missing = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    path.symlink_metadata().map_or_else(|error| !missing.contains(&error.kind()), |_| true)
}

/// What to do about a file that is not believed.
pub(super) fn advice(error: &TrustError) -> &'static str {
    match error.cause() {
        Distrust::Owner(_) | Distrust::Writable(_) => {
            "; the file and its directories have to be root's, and writable by root only"
        }
        Distrust::Open(nix::errno::Errno::ELOOP | nix::errno::Errno::ENOTDIR) => {
            "; no symbolic link is followed: give the real path as slurm_conf"
        }
        _ => "",
    }
}
