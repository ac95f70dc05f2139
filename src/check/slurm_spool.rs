//! Checks that logins look for the sockets of Slurm's step daemons where these are: slurmd takes a new `SlurmdSpoolDir`
//! when it starts, and logins at once.

use super::finding::{Check, Finding};
use super::site::Site;
use facts::file_identity::is_same_file;
use facts::root_processes::root_processes;
use helper::jobs::sources::{parse_socket_name, processes};
use helper::slurm_conf::{Lines, SpoolPath};
use kernel::proc::{self, Proc};
use module::{Settings, node_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The bit of the flags in `/proc/net/unix` of a socket that listens (`__SO_ACCEPTCON` of `linux/net.h`).
const LISTENS: u32 = 0x1_0000;

/// Where logins look for sockets, and where step daemons have theirs.
#[derive(Debug)]
pub(super) struct SpoolFacts {
    /// The folder in which logins look.
    expected: PathBuf,
    exists: bool,
    /// slurmd runs here.
    runs_slurmd: bool,
    /// The nodes whose jobs logins look for: one, unless our lines differ.
    nodes: BTreeSet<String>,
    /// The nodes in the names of the sockets at which step daemons listen, with the process of one.
    socket_nodes: BTreeMap<String, i32>,
    /// The other folders in which step daemons listen, with the process of one.
    others: BTreeMap<PathBuf, i32>,
}

/// A socket at which a step daemon listens.
#[derive(Debug, PartialEq, Eq)]
struct StepSocket {
    folder: PathBuf,
    /// What Slurm calls the node.
    node: String,
}

impl SpoolFacts {
    /// Reads the facts; `None` in a test's folder, and if the folder depends on a name that is not known. `lines` are those
    /// of `slurm.conf`.
    pub(super) fn read(site: &Site, lines: &Lines) -> Option<Self> {
        if !site.is_here() {
            return None;
        }
        let expected = match &site.config.slurm_spool {
            Some(path) => path.clone(),
            None => find_spool(site, lines)?,
        };
        let mut socket_nodes = BTreeMap::new();
        let mut others = BTreeMap::new();
        for (socket, pid) in find_sockets() {
            socket_nodes.entry(socket.node).or_insert(pid);
            if !is_same_file(&socket.folder, &expected) {
                others.entry(socket.folder).or_insert(pid);
            }
        }
        Some(Self {
            exists: expected.is_dir(),
            runs_slurmd: !root_processes(&["slurmd"]).is_empty(),
            nodes: list_node_names(site),
            socket_nodes,
            others,
            expected,
        })
    }

    /// Judges whether logins find the sockets. Each fault is an error: no login finds a job there.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let object = self.expected.display();
        // A folder may have the node's name, and is another one then.
        let misnamed = self.judge_names();
        if !misnamed.is_empty() {
            return misnamed;
        }
        if !self.exists && self.runs_slurmd && self.others.is_empty() {
            let text = "is where logins look for Slurm's jobs (SlurmdSpoolDir, or slurm_spool), and it is not there although \
                        slurmd runs: no login finds a Slurm job";
            let remedy = "if SlurmdSpoolDir was changed, drain the node, then restart slurmd; else write it back as slurmd has it";
            return vec![Finding::error(Check::SlurmSpool, object, text, remedy)];
        }
        let mut findings = Vec::new();
        for (folder, pid) in &self.others {
            let text = format!(
                "is where logins look for Slurm's jobs (SlurmdSpoolDir, or slurm_spool), and slurmstepd (process {pid}) has its \
                 job's socket in {}: no login finds that job",
                folder.display()
            );
            let remedy = format!(
                "write SlurmdSpoolDir={} again while these jobs run; for another folder drain the node first, then change it \
                 and restart slurmd",
                folder.display()
            );
            findings.push(Finding::error(Check::SlurmSpool, &object, text, remedy));
        }
        if findings.is_empty() {
            let text = "is where step daemons have their sockets";
            findings.push(Finding::fine(Check::SlurmSpool, object, text));
        }
        findings
    }

    /// Reports each node whose jobs logins look for while all step daemons are another one's.
    fn judge_names(&self) -> Vec<Finding> {
        let Some((other, pid)) = self.socket_nodes.first_key_value() else {
            return Vec::new();
        };
        let is_misnamed = |node: &&String| !self.socket_nodes.contains_key(*node);
        let misnamed = self.nodes.iter().filter(is_misnamed);
        misnamed
            .map(|node| {
                let text = format!(
                    "is the node whose jobs logins look for, and slurmstepd (process {pid}) has a job of node {other}: no \
                     login finds a Slurm job (JA01)"
                );
                let remedy = format!(
                    "write nodename={other} in our PAM lines, or take nodename= out of them if the host's name is {other}; \
                     nodename in job_adopt.conf goes before both"
                );
                Finding::error(Check::SlurmSpool, format!("node {node}"), text, remedy)
            })
            .collect()
    }
}

/// Lists the nodes whose jobs logins look for, by the configuration or by each of our lines.
fn list_node_names(site: &Site) -> BTreeSet<String> {
    if let Some(node) = &site.config.devices.node_name {
        return [node.clone()].into();
    }
    let lines = site.own_lines();
    let settings = lines.filter_map(|line| Settings::parse(&line.arguments).ok());
    settings
        .map(|settings| settings.node.unwrap_or_else(node_name))
        .collect()
}

/// Finds the folder that `slurm.conf` names; `None` if it names none that is valid, or one for a node whose name is not
/// known.
fn find_spool(site: &Site, lines: &Lines) -> Option<PathBuf> {
    let spool = SpoolPath::from_lines(lines).ok()?;
    let host = nix::unistd::gethostname().ok()?;
    let node = site.config.devices.node_name.clone();
    let node = node.or_else(|| site.settings().node);
    let node = node.unwrap_or_else(node_name).parse().ok();
    spool
        .dir_of(host.to_str()?, node.as_ref())
        .map(PathBuf::from)
}

/// Finds the sockets at which root's step daemons listen, each with its process.
fn find_sockets() -> Vec<(StepSocket, i32)> {
    let mut found = Vec::new();
    for (_, pid) in root_processes(&["slurmstepd"]) {
        let dir = Proc::host().dir(pid);
        let sockets = proc::read(dir.join("net/unix")).unwrap_or_default();
        let own = list_sockets(&dir);
        for path in parse_listening(&sockets, &own) {
            found.extend(StepSocket::parse(&path).map(|socket| (socket, pid)));
        }
    }
    found
}

/// Lists the inodes of the sockets that a process has open.
fn list_sockets(proc_dir: &Path) -> BTreeSet<String> {
    let dir = proc_dir.join("fd");
    let descriptors = processes::list_numbers::<u32>(&dir).into_iter().flatten();
    descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_link(dir.join(descriptor.to_string())).ok())
        .filter_map(|target| {
            let inode = target
                .to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}

/// Parses the paths of listening sockets with one of these inodes in `/proc/net/unix` (proc_net(5)).
fn parse_listening(table: &str, inodes: &BTreeSet<String>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, flags, _, _, inode, path] = fields[..] else {
            continue;
        };
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & LISTENS != 0);
        if listens && inodes.contains(inode) && path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    paths
}

impl StepSocket {
    /// Parses the path of a step daemon's socket; `None` for a path that is none.
    fn parse(path: &Path) -> Option<Self> {
        let (name, _) = parse_socket_name(path.file_name()?.to_str()?)?;
        Some(Self {
            folder: path.parent()?.to_owned(),
            node: name.node.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn facts(exists: bool, runs_slurmd: bool, others: &[&str]) -> SpoolFacts {
        SpoolFacts {
            expected: "/new".into(),
            exists,
            runs_slurmd,
            nodes: ["n1".to_owned()].into(),
            socket_nodes: BTreeMap::new(),
            others: others.iter().map(|other| (other.into(), 7)).collect(),
        }
    }

    #[test]
    fn sockets_elsewhere_are_an_error() {
        let severity = |facts: SpoolFacts| facts.findings()[0].severity;
        assert_eq!(severity(facts(true, true, &[])), Severity::Fine);
        assert_eq!(severity(facts(false, false, &[])), Severity::Fine);
        assert_eq!(severity(facts(false, true, &[])), Severity::Error);
        for exists in [false, true] {
            let findings = facts(exists, true, &["/old"]).findings();
            assert_eq!(findings.len(), 1);
            assert_eq!(findings[0].severity, Severity::Error);
            assert!(findings[0].text.contains("socket in /old"), "{findings:?}");
            assert!(findings[0].remedy.advice().contains("SlurmdSpoolDir=/old"));
        }
    }

    /// A folder named for the node is another one then, and no change of SlurmdSpoolDir helps.
    #[test]
    fn sockets_of_another_node_are_an_error() {
        let judge = |socket_nodes: &[&str], nodes: &[&str]| {
            let facts = SpoolFacts {
                nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
                socket_nodes: socket_nodes
                    .iter()
                    .map(|node| ((*node).to_owned(), 7))
                    .collect(),
                ..facts(true, true, &[])
            };
            let findings = facts.findings();
            let show = |found: &Finding| format!("{:?} {}", found.severity, found.object);
            findings.iter().map(show).collect::<Vec<_>>()
        };
        assert_eq!(judge(&["n1"], &["n1"]), ["Fine /new"]);
        assert_eq!(judge(&["n1", "n2"], &["n1"]), ["Fine /new"]);
        assert_eq!(judge(&[], &["n1"]), ["Fine /new"]);
        assert_eq!(judge(&["n2"], &["n1"]), ["Error node n1"]);
        // One of our lines is wrong.
        assert_eq!(judge(&["n2"], &["n1", "n2"]), ["Error node n1"]);
        let facts = SpoolFacts {
            socket_nodes: [("n2".to_owned(), 7)].into(),
            ..facts(true, true, &["/old"])
        };
        let findings = facts.findings();
        assert_eq!(findings.len(), 1);
        let advice = findings[0].remedy.advice();
        assert!(advice.starts_with("write nodename=n2 in"), "{advice}");
    }

    #[test]
    fn folder_of_a_daemons_own_listening_socket_is_found() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 77 /var/spool/slurmd/n1_42.4294967292\n\
            0: 00000002 00000000 00010000 0001 01 78 /tmp/n1_43.0\n\
            0: 00000002 00000000 00000000 0001 03 79 /old/n1_44.0\n\
            0: 00000002 00000000 00010000 0001 01 80 @abstract\n\
            0: 00000002 00000000 00010000 0001 01 81\n";
        let own = ["77", "79", "80", "81"].map(str::to_owned).into();
        let paths = parse_listening(table, &own);
        assert_eq!(paths, [PathBuf::from("/var/spool/slurmd/n1_42.4294967292")]);
        let socket = StepSocket {
            folder: "/var/spool/slurmd".into(),
            node: "n1".to_owned(),
        };
        assert_eq!(StepSocket::parse(&paths[0]), Some(socket));
        assert_eq!(StepSocket::parse(Path::new("/run/x.sock")), None);
    }
}
