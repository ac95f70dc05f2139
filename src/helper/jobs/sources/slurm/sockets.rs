//! The sockets of step daemons in Slurm's spool directories.

use super::job_owner::OwnerSearch;
use super::spool::{NAMES_MAX, SpoolDir, configured_spool_dirs, distrusted_spool, locate_spool};
use crate::jobs::sources::SourceError;
use crate::jobs::sources::doubt::{Doubt, Fault, FaultKind, PossibleOwners};
use crate::node::Tree;
use crate::slurm_conf::{SlurmConfSearch, resolve_links, with_slurm_trusted};
use crate::trusted_dir;
use kernel::trust::TrustError;
use protocol::{AbsolutePath, JobId, NodeName, parse_decimal};
use schedulers::stepd::{EXTERN_STEP, Error, SocketName, socket_created_at};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What identifies the socket of one job: its path, and when it was created.
pub(super) type SocketKey = (PathBuf, i64);

/// A step daemon's socket and the job that its name states.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) name: SocketName,
    pub(super) spool: AbsolutePath,
    pub(super) path: PathBuf,
    /// When it was created, in seconds since the epoch.
    pub(super) started: i64,
    /// The sockets of the job's other steps on the node.
    pub(super) other_steps: Vec<PathBuf>,
}

impl Socket {
    pub(super) fn key(&self) -> SocketKey {
        (self.path.clone(), self.started)
    }
}

/// The sockets of the spool directories, and what else is in them.
#[derive(Default)]
pub(super) struct FoundSockets {
    pub(super) sockets: Vec<Socket>,
    pub(super) faults: Vec<Fault>,
    pub(super) skipped: Vec<Doubt>,
    pub(super) seen: Vec<String>,
}

impl FoundSockets {
    fn add_broken(&mut self, doubt: Doubt) {
        self.faults.push(Fault {
            doubt,
            kind: FaultKind::Broken,
        });
    }
}

/// Finds the sockets of this node; of each node that this host may be, if `node_name` is `None` or no name that Slurm
/// allows. `spool` is the directory that the configuration sets: without it `slurm.conf` tells. The result has the
/// sockets that cannot be used as well, and the accounts to which `owners` finds that these may belong.
///
/// # Errors
///
/// [`SourceError::Absent`] if Slurm is not on this node, [`SourceError::Failed`] if its
/// configuration or its only directory cannot be used.
pub(super) fn find_sockets(
    slurm_conf: &SlurmConfSearch,
    node_name: Option<&str>,
    spool: Option<&Path>,
    owners: &OwnerSearch<'_>,
) -> Result<FoundSockets, SourceError> {
    let tree = slurm_conf.tree();
    let node = node_name.and_then(|name| name.parse::<NodeName>().ok());
    let dirs = match spool {
        Some(path) => vec![SpoolDir {
            path: locate_spool(tree, path)?,
            node,
        }],
        None => configured_spool_dirs(slurm_conf, node)?,
    };
    let has_several = dirs.len() > 1;
    let mut found = FoundSockets::default();
    for spool_dir in dirs {
        match list_sockets(tree, &spool_dir, owners, &mut found) {
            Ok(()) => {}
            // A node's unusable directory does not hide the others.
            Err(SourceError::Failed(cause)) if has_several => {
                found.add_broken(Doubt::about_anybody(cause));
            }
            Err(SourceError::Absent(what)) if has_several => {
                found.skipped.push(Doubt::about_anybody(what));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Adds the sockets of one directory that are of this node's jobs, one for each job with an extern step, and those that
/// cannot be used. Resolves symbolic links in the path, since root's module follows
/// none.
///
/// # Errors
///
/// [`SourceError::Absent`] if the directory does not exist; [`SourceError::Failed`] if it cannot be read, is not
/// trusted, or has a path that a plan cannot have.
fn list_sockets(
    tree: &Tree,
    spool_dir: &SpoolDir,
    owners: &OwnerSearch<'_>,
    found: &mut FoundSockets,
) -> Result<(), SourceError> {
    let failed = |error: TrustError| distrusted_spool(&spool_dir.path, &error);
    let path = with_slurm_trusted(tree.trust(), |trust| resolve_links(trust, &spool_dir.path))
        .map_err(failed)?;
    let dir = with_slurm_trusted(tree.trust(), |trust| trust.dir(&path)).map_err(failed)?;
    let names = trusted_dir::list_visible_names(&dir, NAMES_MAX).map_err(failed)?;
    let spool: AbsolutePath = path
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| SourceError::Failed(format!("{path:?} is no plain path")))?;
    let mut count: usize = 0;
    let mut other_nodes = BTreeSet::new();
    let mut other_steps: BTreeMap<JobId, Vec<PathBuf>> = BTreeMap::new();
    let first = found.sockets.len();
    for text in &names {
        let Some((name, step)) = parse_socket_name(text) else {
            continue;
        };
        if step != EXTERN_STEP {
            let steps = other_steps.entry(name.job).or_default();
            steps.push(path.join(text));
            continue;
        }
        if spool_dir
            .node
            .as_ref()
            .is_some_and(|node| *node != name.node)
        {
            other_nodes.insert(name.node.to_string());
            continue;
        }
        let socket_path = path.join(name.to_string());
        match socket_created_at(&dir, &name, tree.trust().owner()) {
            Ok(started) => {
                count += 1;
                found.sockets.push(Socket {
                    name,
                    spool: spool.clone(),
                    path: socket_path,
                    started,
                    other_steps: Vec::new(),
                });
            }
            // The job has ended since the directory was listed.
            Err(Error::SocketGone) => {}
            Err(error) => found.add_broken(Doubt {
                cause: format!("{}: {error}", socket_path.display()),
                owners: owners.find(&name.job, None),
                job: Some(name.job),
            }),
        }
    }
    found.seen.push(format!("{spool}: {count} sockets of jobs"));
    if count == 0 {
        let other_node = other_nodes.first().map(String::as_str);
        let cause =
            explain_no_sockets(spool_dir.node.as_ref(), other_node, !other_steps.is_empty());
        // A job of another node's name may be anybody's.
        let owners = match other_node {
            Some(_) => PossibleOwners::Any,
            None => {
                PossibleOwners::one_of_all(other_steps.keys().map(|job| owners.find(job, None)))
            }
        };
        found.skipped.extend(cause.map(|cause| Doubt {
            cause: format!("{spool}: {cause}"),
            owners,
            job: None,
        }));
    }
    for socket in found.sockets.iter_mut().skip(first) {
        socket.other_steps = other_steps.remove(&socket.name.job).unwrap_or_default();
    }
    Ok(())
}

/// Explains why a directory has no socket of this node's jobs; `None` if nothing there points at a running job. `node`
/// is the node that was asked for, `other_node` one whose sockets are there; jobs without an extern step have sockets
/// of other steps.
fn explain_no_sockets(
    node: Option<&NodeName>,
    other_node: Option<&str>,
    has_other_steps: bool,
) -> Option<String> {
    match (node, other_node) {
        (Some(node), Some(other)) => Some(format!(
            "no sockets of node {node}, but of {other}: is nodename what Slurm calls this node?"
        )),
        (_, None) if has_other_steps => {
            Some("jobs without an extern step: slurm.conf needs PrologFlags=Contain".to_owned())
        }
        _ => None,
    }
}

/// Parses a socket's name into node and job, and the number of the step; `None` for other names.
pub fn parse_socket_name(name: &str) -> Option<(SocketName, u32)> {
    let (rest, step) = name.rsplit_once('.')?;
    let (node, job) = rest.rsplit_once('_')?;
    Some((
        SocketName::from_job(&node.parse().ok()?, &job.parse().ok()?)?,
        parse_decimal(step)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_socket_names_are_parsed() {
        for good in [
            "gpu017_4242.4294967292",
            "a_b_1.4294967292",
            "n.cluster-1_7.4294967292",
        ] {
            let (name, step) = parse_socket_name(good).unwrap();
            assert_eq!((name.to_string().as_str(), step), (good, EXTERN_STEP));
        }
        for other in ["gpu017_4242.0", "gpu017_4242.4294967291"] {
            assert!(
                parse_socket_name(other).is_some_and(|(_, step)| step != EXTERN_STEP),
                "{other}"
            );
        }
        for bad in [
            "",
            "gpu017_4242.4294967292.0",
            "gpu017_04242.4294967292",
            "gpu017_4294967296.4294967292",
            "gpu017_x.4294967292",
            "_1.4294967292",
            "gpu017.4294967292",
            "gpu/17_1.4294967292",
        ] {
            assert_eq!(parse_socket_name(bad), None, "{bad}");
        }
    }
}
