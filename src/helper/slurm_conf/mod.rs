//! Slurm's configuration files: where they lie, their lines, and the few settings that matter here.
//!
//! The files are read as Slurm reads them, but only if no one besides root and Slurm's own account
//! can have written them, and the symbolic links to them.

mod files;
mod lines;
mod links;

pub(crate) use files::find_slurmd_sign;
pub use files::{Lines, SlurmConfFiles, SlurmConfSearch, list_conf_paths, with_slurm_trusted};
use kernel::trust::{Distrust, TrustError};
pub use lines::{ConfLine, ConfPosition, KeyValues, NoPairs, join_lines};
pub use links::resolve_links;
use protocol::NodeName;
use thiserror::Error;

/// Why Slurm's configuration cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfError {
    /// There is no `slurm.conf`, and so no file beside it.
    #[error("slurm.conf is not found, give its path as slurm_conf")]
    MissingSlurmConf,
    /// A file is missing or not trusted.
    #[error("{0}{advice}", advice = advice(.0))]
    UnreadableFile(TrustError),
    /// A line is malformed.
    #[error("{0}: {1}")]
    InvalidLine(ConfPosition, String),
}

impl ConfError {
    /// Describes the fault of a line.
    fn invalid_line(line: &ConfLine, fault: impl std::fmt::Display) -> Self {
        Self::InvalidLine(line.at.clone(), fault.to_string())
    }

    /// Tells whether the only fault is that a file does not exist.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::MissingSlurmConf => true,
            Self::UnreadableFile(error) => error.is_missing(),
            Self::InvalidLine(..) => false,
        }
    }
}

/// The remedy that a message about a file of Slurm's adds; empty if none is known.
fn advice(error: &TrustError) -> &'static str {
    match error.cause() {
        Distrust::WrongOwner(_) | Distrust::Writable(_) => {
            "; the file and its directories have to be root's or the account slurm's, and writable \
             by nobody else"
        }
        _ => "",
    }
}

const SPOOL_DIR_KEY: &str = "SlurmdSpoolDir";
/// The spool directory of a `slurm.conf` that does not set it.
const DEFAULT_SPOOL_DIR: &str = "/var/spool/slurmd";

/// The spool directory in `slurm.conf`: an absolute path in which `%h` stands for the host and `%n`
/// for the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPath(String);

/// The spool directories of all nodes that one host may be. They are entries of one directory with a
/// common beginning and end around the node's name, or lie at the same path below such entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDirs {
    /// The directory that contains the entries.
    pub parent: String,
    /// What an entry's name has before the node's name; may be empty.
    before: String,
    /// What an entry's name has after the node's name; may be empty.
    after: String,
    /// The path from an entry to the spool directory; empty if the entry itself is that directory.
    below: String,
}

impl SpoolPath {
    /// Finds the path that the lines of `slurm.conf` set, or Slurm's default. The last line counts.
    ///
    /// # Errors
    ///
    /// [`ConfError::InvalidLine`] if a line sets no valid path.
    pub fn from_lines(lines: &[ConfLine]) -> Result<Self, ConfError> {
        let mut path = Self(DEFAULT_SPOOL_DIR.to_owned());
        for line in lines {
            let Some(value) = line.value_of(SPOOL_DIR_KEY) else {
                continue;
            };
            let text = value.map_err(|error| ConfError::invalid_line(line, error))?;
            path = Self::parse(text)
                .ok_or_else(|| ConfError::invalid_line(line, invalid_value(SPOOL_DIR_KEY)))?;
        }
        Ok(path)
    }

    /// Parses a path; `None` if it is not absolute or contains `..`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_absolute = text.starts_with('/') && text.split('/').all(|part| part != "..");
        let is_plain = text.len() < 4096 && !text.chars().any(char::is_control);
        (is_absolute && is_plain).then(|| Self(text.to_owned()))
    }

    /// Expands the spool directory on `host`; `None` if the path depends on the node and `node` is
    /// unknown. Slurm expands only the first `%h` and the first `%n`.
    pub fn dir_of(&self, host: &str, node: Option<&NodeName>) -> Option<String> {
        let path = self.expand_host(host);
        match node {
            Some(node) => Some(path.replacen("%n", node.as_str(), 1)),
            None => (!path.contains("%n")).then_some(path),
        }
    }

    /// Finds where the directories of all nodes lie; `None` if the path does not depend on the
    /// node. For `/a/s-%n.d/spool` they are the `spool` of each entry `s-NODE.d` of `/a`.
    pub fn node_dirs(&self, host: &str) -> Option<NodeDirs> {
        let path = self.expand_host(host);
        let (before_node, after_node) = path.split_once("%n")?;
        let (parent, before) = before_node.rsplit_once('/')?;
        let (after, below) = after_node.split_once('/').unwrap_or((after_node, ""));
        Some(NodeDirs {
            parent: if parent.is_empty() {
                "/".to_owned()
            } else {
                parent.to_owned()
            },
            before: before.to_owned(),
            after: after.to_owned(),
            below: below.to_owned(),
        })
    }

    /// Replaces the first `%h` by the host name up to its first dot.
    fn expand_host(&self, host: &str) -> String {
        let short = host.split('.').next().unwrap_or_default();
        self.0.replacen("%h", short, 1)
    }
}

impl NodeDirs {
    /// Finds the node whose entry in the parent directory has this name, and its spool directory; `None` for a name
    /// that is no node's.
    pub fn find_node(&self, name: &str) -> Option<(NodeName, String)> {
        let rest = name.strip_prefix(self.before.as_str())?;
        let node = rest.strip_suffix(self.after.as_str())?.parse().ok()?;
        let parent = self.parent.trim_end_matches('/');
        let below = format!("{parent}/{name}/{}", self.below);
        Some((node, below.trim_end_matches('/').to_owned()))
    }
}

/// The fault of a key whose value Slurm would refuse.
fn invalid_value(key: &str) -> String {
    format!("{key}= has no value that Slurm takes")
}

const GRES_TYPES_KEY: &str = "GresTypes";

/// The names of `GresTypes=` in `slurm.conf`. Slurm ignores records of other names. Every name is
/// one if the key is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresTypes(Option<Vec<String>>);

impl GresTypes {
    /// Collects the names that the lines of `slurm.conf` set. The last line counts.
    ///
    /// # Errors
    ///
    /// [`ConfError::InvalidLine`] if a line has no value.
    pub fn from_lines(lines: &[ConfLine]) -> Result<Self, ConfError> {
        let mut types = Self::default();
        for line in lines {
            let Some(value) = line.value_of(GRES_TYPES_KEY) else {
                continue;
            };
            let list = value.map_err(|error| ConfError::invalid_line(line, error))?;
            types = Self(Some(list.split(',').map(str::to_owned).collect()));
        }
        Ok(types)
    }

    /// Tells whether Slurm has resources of this name.
    pub fn contains(&self, name: &str) -> bool {
        let Some(names) = &self.0 else { return true };
        names.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

/// Reads the names of generic resources in `slurm.conf`. Without the file, every name is one.
///
/// # Errors
///
/// The file, or one that it includes, cannot be read, or a line is malformed.
pub fn read_gres_types(files: &SlurmConfFiles) -> Result<GresTypes, ConfError> {
    match files.read_main_lines() {
        Ok(lines) => GresTypes::from_lines(&lines),
        Err(error) if error.is_missing() => Ok(GresTypes::default()),
        Err(error) => Err(error),
    }
}

const CONSTRAIN_DEVICES_KEY: &str = "ConstrainDevices";
const YES_WORDS: [&str; 4] = ["yes", "up", "true", "1"];
const NO_WORDS: [&str; 4] = ["no", "down", "false", "0"];

/// Reads whether Slurm restricts its jobs to their own devices, by `cgroup.conf`. Without the file
/// it does not.
///
/// # Errors
///
/// The file, or one that it includes, cannot be read, or a line is malformed.
pub fn read_constrain_devices(files: &SlurmConfFiles) -> Result<bool, ConfError> {
    let path = files.path_of("cgroup.conf");
    match files.read_lines("cgroup.conf") {
        Ok(lines) => parse_constrain_devices(&lines),
        // The error names what is missing: the file itself may be, but not its directory or the target of a link.
        Err(ConfError::UnreadableFile(error)) if error.is_missing() && error.path() == path => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Finds whether the lines of `cgroup.conf` set `ConstrainDevices` to yes. The last line counts; without one it is no.
///
/// # Errors
///
/// [`ConfError::InvalidLine`] if a value is neither yes nor no.
pub fn parse_constrain_devices(lines: &[ConfLine]) -> Result<bool, ConfError> {
    let mut constrains = false;
    for line in lines {
        let Some(value) = line.value_of(CONSTRAIN_DEVICES_KEY) else {
            continue;
        };
        let word = value.map_err(|error| ConfError::invalid_line(line, error))?;
        let is_yes = YES_WORDS.iter().any(|yes| yes.eq_ignore_ascii_case(word));
        if !is_yes && !NO_WORDS.iter().any(|no| no.eq_ignore_ascii_case(word)) {
            return Err(ConfError::invalid_line(
                line,
                invalid_value(CONSTRAIN_DEVICES_KEY),
            ));
        }
        constrains = is_yes;
    }
    Ok(constrains)
}

const ALLOWED_DEVICES_KEY: &str = "AllowedDevicesFile";

/// Reads the lines of the file that `cgroup.conf` names as `AllowedDevicesFile`; the last such line counts.
/// `None` if `cgroup.conf` names no file, or does not exist. A relative path is beside `slurm.conf`.
///
/// Slurm before 22.05 let every job open the devices in this file; newer releases close none but generic
/// resources.
///
/// # Errors
///
/// The named file does not exist; it, `cgroup.conf`, or one that they include, cannot be read; or a line is malformed.
pub fn read_allowed_devices(files: &SlurmConfFiles) -> Result<Option<Lines>, ConfError> {
    let path = files.path_of("cgroup.conf");
    let lines = match files.read_lines("cgroup.conf") {
        Ok(lines) => lines,
        // The error names what is missing: the file itself may be, but not its directory or the target of a link.
        Err(ConfError::UnreadableFile(error)) if error.is_missing() && error.path() == path => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut name = None;
    for line in lines.iter() {
        if let Some(value) = line.value_of(ALLOWED_DEVICES_KEY) {
            name = Some(value.map_err(|error| ConfError::invalid_line(line, error))?);
        }
    }
    name.map(|name| files.read_lines(name)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> Result<SpoolPath, ConfError> {
        SpoolPath::from_lines(&ConfLine::parse_all(text, Path::new("/slurm.conf")))
    }

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    #[test]
    fn last_line_sets_the_spool_directory() {
        for (text, path) in [
            ("", "/var/spool/slurmd"),
            ("ClusterName=x\nslurmdspooldir=/a # b\n", "/a"),
            ("SlurmdSpoolDir=/a\nSlurmdSpoolDir=\"/b c\"\n", "/b c"),
            (
                "StateSaveLocation=/a SlurmdSpoolDir=/b\n",
                "/var/spool/slurmd",
            ),
            (
                "NodeName=n[1-2] Gres=gpu:4\\\n CPUs=4\nPrologFlags=a,b\n",
                "/var/spool/slurmd",
            ),
        ] {
            assert_eq!(
                read(text).unwrap().dir_of("h", None).unwrap(),
                path,
                "{text:?}"
            );
        }
        for text in [
            "SlurmdSpoolDir=a",
            "SlurmdSpoolDir=",
            "SlurmdSpoolDir=/a/../b",
        ] {
            assert!(
                matches!(
                    read(text),
                    Err(ConfError::InvalidLine(ConfPosition { line: 1, .. }, _))
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn host_and_node_are_expanded_once() {
        let path = read("SlurmdSpoolDir=/s/%h/%n/%h/%n").unwrap();
        assert_eq!(
            path.dir_of("h1.site", Some(&node("n1"))).unwrap(),
            "/s/h1/n1/%h/%n"
        );
        assert_eq!(path.dir_of("h1", None), None);
        let plain = read("SlurmdSpoolDir=/s").unwrap();
        assert_eq!(plain.dir_of("h1", Some(&node("n1"))).unwrap(), "/s");
        assert_eq!(plain.node_dirs("h1"), None);
    }

    #[test]
    fn every_node_of_a_host_has_its_directory() {
        for (path, parent, name, expected) in [
            ("/s/slurmd.%n", "/s", "slurmd.n1", Some("/s/slurmd.n1")),
            ("/s/%n/spool", "/s", "n1", Some("/s/n1/spool")),
            ("/%n", "/", "n1", Some("/n1")),
            ("/s/a%nb", "/s", "an1b", Some("/s/an1b")),
            ("/s/a%nb", "/s", "ab", None),
            ("/s/%n", "/s", ".n1", None),
            ("/s/%n", "/s", "..", None),
            ("/s/aa%naa", "/s", "aaa", None),
        ] {
            let dirs = SpoolPath::parse(path).unwrap().node_dirs("h").unwrap();
            assert_eq!(dirs.parent, parent);
            let dir = dirs.find_node(name).map(|(_, dir)| dir);
            assert_eq!(dir.as_deref(), expected, "{path} {name}");
        }
    }

    use crate::node::Tree;
    use crate::testing::Scratch;

    fn constrained(scratch: &Scratch) -> Result<bool, ConfError> {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        read_constrain_devices(&SlurmConfFiles::find(&tree, None).unwrap())
    }

    #[test]
    fn last_line_decides_whether_devices_are_constrained() {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", "");
        assert_eq!(constrained(&scratch), Ok(false), "no file");
        for (text, constrains) in [
            ("", false),
            ("ConstrainDevices=yes", true),
            ("CgroupPlugin=x\n constraindevices = \"TRUE\" # no", true),
            ("ConstrainDevices=up\nConstrainDevices=down\n", false),
            ("ConstrainDevices=0\nConstrainDevices=1\n", true),
            ("ConstrainRAMSpace=yes", false),
            ("#ConstrainDevices=yes", false),
            ("Constrain\\\nDevices=yes", true),
        ] {
            scratch.file("etc/slurm/cgroup.conf", text);
            assert_eq!(constrained(&scratch), Ok(constrains), "{text:?}");
        }
    }

    #[test]
    fn invalid_constrain_devices_is_an_error() {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", "");
        for text in [
            "ConstrainDevices=maybe",
            "ConstrainDevices=",
            "ConstrainDevices=yes\\n",
        ] {
            scratch.file("etc/slurm/cgroup.conf", text);
            assert!(
                matches!(
                    constrained(&scratch),
                    Err(ConfError::InvalidLine(ConfPosition { line: 1, .. }, _))
                ),
                "{text}"
            );
        }
        scratch.file("etc/slurm/cgroup.conf", "Include gone.conf");
        assert!(
            constrained(&scratch)
                .unwrap_err()
                .to_string()
                .contains("gone.conf")
        );
        scratch.file("etc/slurm/cgroup.conf", "ConstrainDevices=no");
        scratch.mode("etc/slurm/cgroup.conf", 0o666);
        assert!(
            constrained(&scratch)
                .unwrap_err()
                .to_string()
                .contains("mode 0666")
        );
    }
}
