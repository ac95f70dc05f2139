//! The spool directories of the node's slurmd, and why one cannot be used.

use crate::jobs::sources::SourceError;
use crate::node::Tree;
use crate::slurm_conf::{ConfError, SlurmConfSearch, SpoolPath, list_conf_paths};
use kernel::trust::{Distrust, TrustError};
use protocol::NodeName;
use std::path::{Path, PathBuf};

/// Maximum names read from a spool directory, or from the parent of the nodes' directories.
pub(super) const NAMES_MAX: usize = 65_536;
/// Maximum nodes on one host.
const NODES_MAX: usize = 64;

/// A spool directory; with a node, only that node's sockets in it count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpoolDir {
    pub(super) path: PathBuf,
    pub(super) node: Option<NodeName>,
}

/// Finds where a configured spool directory lies below the tree's root.
pub(super) fn locate_spool(tree: &Tree, path: &Path) -> Result<PathBuf, SourceError> {
    let text = path
        .to_str()
        .ok_or_else(|| SourceError::Failed(format!("{path:?}: no UTF-8")))?;
    Ok(tree.locate(text))
}

/// Finds the spool directories that `slurm.conf` sets: one, if its path does not depend on the node or `node` is
/// known, else the existing one of each node that this host may be.
///
/// # Errors
///
/// [`SourceError::Absent`] without `slurm.conf`, or if no node has a directory; [`SourceError::Failed`] for a
/// `slurm.conf` that cannot be used, or too many directories.
pub(super) fn configured_spool_dirs(
    slurm_conf: &SlurmConfSearch,
    node: Option<NodeName>,
) -> Result<Vec<SpoolDir>, SourceError> {
    let tree = slurm_conf.tree();
    let files = slurm_conf
        .files()
        .map_err(|error| absent_or_failed(&error))?;
    let lines = files
        .read_main_lines()
        .map_err(|error| absent_or_failed(&error))?;
    let spool =
        SpoolPath::from_lines(&lines).map_err(|error| SourceError::Failed(error.to_string()))?;
    // A name that cannot be read stands for nothing in the path.
    let host = nix::unistd::gethostname()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if let Some(path) = spool.dir_of(&host, node.as_ref()) {
        return Ok(vec![SpoolDir {
            path: tree.locate(&path),
            node,
        }]);
    }
    // A path without the node's name has been returned above.
    let Some(node_dirs) = spool.node_dirs(&host) else {
        return Ok(Vec::new());
    };
    let parent = tree.locate(&node_dirs.parent);
    let failed = |error: std::io::Error| unreadable_spool(&parent, &error);
    let mut dirs = Vec::new();
    for entry in std::fs::read_dir(&parent).map_err(failed)?.take(NAMES_MAX) {
        let name = entry.map_err(failed)?.file_name();
        let dir = name.to_str().and_then(|name| node_dirs.find_node(name));
        let Some((dir_node, dir_path)) = dir else {
            continue;
        };
        let path = tree.locate(&dir_path);
        if path.is_dir() {
            dirs.push(SpoolDir {
                path,
                node: Some(dir_node),
            });
        }
    }
    dirs.sort_by(|dir, other| dir.path.cmp(&other.path));
    match dirs.len() {
        0 => Err(SourceError::Absent(format!(
            "SlurmdSpoolDir: no directory in {} is a node's",
            parent.display()
        ))),
        1..=NODES_MAX => Ok(dirs),
        count => Err(SourceError::Failed(format!(
            "SlurmdSpoolDir: {} has {count} directories of nodes; give one as slurm_spool, or the \
             node's name as nodename",
            parent.display()
        ))),
    }
}

/// Converts an error of Slurm's configuration: if only the file is missing, Slurm is not on this node.
fn absent_or_failed(error: &ConfError) -> SourceError {
    match error {
        ConfError::MissingSlurmConf => SourceError::Absent(format!(
            "no slurm.conf in {}; slurm_conf in job_adopt.conf may name it",
            list_conf_paths()
        )),
        ConfError::UnreadableFile(_) if error.is_missing() => {
            SourceError::Absent(error.to_string())
        }
        error => SourceError::Failed(error.to_string()),
    }
}

/// The error for a spool directory that does not exist.
fn missing_spool(path: &Path) -> SourceError {
    SourceError::Absent(format!(
        "the spool directory {} does not exist: slurmd has not run on this node, or slurm_spool in \
         job_adopt.conf has to say where it is",
        path.display()
    ))
}

/// The error for a spool directory that cannot be listed.
fn unreadable_spool(path: &Path, error: &std::io::Error) -> SourceError {
    match error.kind() {
        std::io::ErrorKind::NotFound => missing_spool(path),
        _ => SourceError::Failed(format!("the spool directory {}: {error}", path.display())),
    }
}

/// Converts the error of a spool directory that cannot be opened: if it is missing, Slurm is not on this node.
pub(super) fn distrusted_spool(spool: &Path, error: &TrustError) -> SourceError {
    if error.is_missing() {
        return missing_spool(spool);
    }
    SourceError::Failed(describe_distrust(spool, error))
}

/// Describes why a spool directory is not trusted, with the remedy for a wrong owner or mode.
fn describe_distrust(spool: &Path, error: &TrustError) -> String {
    let advice = match error.cause() {
        Distrust::WrongOwner(_) | Distrust::Writable(_) => {
            "; it has to be root's or the account slurm's, and writable by nobody else (chown, \
             chmod 755)"
        }
        _ => "",
    };
    format!("the spool directory {}: {error}{advice}", spool.display())
}
