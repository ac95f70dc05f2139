//! Slurm's configuration files: where they lie, their lines, and the little of them that matters
//! here.
//!
//! Read as Slurm reads them, but only where nobody besides root and Slurm's own account can have
//! written them.

mod lines;
mod place;

use crate::kernel::trust::{Distrust, TrustError};
use crate::protocol::NodeName;
pub use lines::{At, Line, Text, joined};
use nix::errno::Errno;
pub use place::{Files, Texts, believed};
use thiserror::Error;

/// Why there is no answer from Slurm's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfError {
    /// There is no `slurm.conf`, and so nothing beside it.
    #[error("slurm.conf is not found, give its path as slurm_conf")]
    NoConf,
    /// A file is not there, or is not believed.
    #[error("{0}{advice}", advice = advice(.0))]
    File(TrustError),
    /// This line of the file is at fault.
    #[error("{0}: {1}")]
    Line(At, String),
}

impl ConfError {
    /// Whether a file is simply not there.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::NoConf => true,
            Self::File(error) => error.is_missing(),
            Self::Line(..) => false,
        }
    }
}

fn advice(error: &TrustError) -> &'static str {
    match error.cause() {
        Distrust::Owner(_) | Distrust::Writable(_) => {
            "; the file and its directories have to be root's or the account slurm's, and writable \
             by nobody else"
        }
        Distrust::Open(Errno::ELOOP | Errno::ENOTDIR) => {
            "; no symbolic link is followed: give the real path as slurm_conf"
        }
        _ => "",
    }
}

const SPOOL: &str = "SlurmdSpoolDir";
/// What it is without a word about it.
const DEFAULT: &str = "/var/spool/slurmd";

/// The directory as it is written: an absolute path in which `%h` stands for the host and `%n` for
/// the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPath(String);

/// The directories of all nodes that one host may be: names of one directory that begin and end
/// alike, with the node's name between, and a path below each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesDirs {
    /// The directory of the names.
    pub parent: String,
    before: String,
    after: String,
    below: String,
}

impl SpoolPath {
    /// Reads the path out of the lines of `slurm.conf`. The last line counts.
    pub fn read(texts: &[Text]) -> Result<Self, ConfError> {
        let mut path = Self(DEFAULT.to_owned());
        for text in texts {
            let Some(value) = text.setting(SPOOL) else { continue };
            let fault = |fault| ConfError::Line(text.at.clone(), fault);
            path = Self::new(value.map_err(fault)?).ok_or_else(|| fault(no_value(SPOOL)))?;
        }
        Ok(path)
    }

    /// The path of this text; `None` where it is not absolute or leads upwards.
    pub fn new(text: &str) -> Option<Self> {
        let straight = text.starts_with('/') && text.split('/').all(|part| part != "..");
        let plain = text.len() < 4096 && !text.chars().any(char::is_control);
        (straight && plain).then(|| Self(text.to_owned()))
    }

    /// The directory of the host `host`, where the path does not depend on the node or that is
    /// known. Of several `%h` or `%n` Slurm looks at the first.
    pub fn directory(&self, host: &str, node: Option<&NodeName>) -> Option<String> {
        let path = self.of_host(host);
        match node {
            Some(node) => Some(path.replacen("%n", node.as_str(), 1)),
            None => (!path.contains("%n")).then_some(path),
        }
    }

    /// Where the directories of all nodes are; `None` where the path does not depend on the node.
    pub fn directories(&self, host: &str) -> Option<NodesDirs> {
        let path = self.of_host(host);
        let (before, after) = path.split_once("%n")?;
        let (parent, before) = before.rsplit_once('/')?;
        let (after, below) = after.split_once('/').unwrap_or((after, ""));
        let parent = if parent.is_empty() { "/" } else { parent };
        let [parent, before, after, below] = [parent, before, after, below].map(str::to_owned);
        Some(NodesDirs { parent, before, after, below })
    }

    fn of_host(&self, host: &str) -> String {
        let short = host.split('.').next().unwrap_or_default();
        self.0.replacen("%h", short, 1)
    }
}

impl NodesDirs {
    /// The node that a name of the parent directory stands for, and its directory.
    pub fn of(&self, name: &str) -> Option<(NodeName, String)> {
        let rest = name.strip_prefix(self.before.as_str())?;
        let node = rest.strip_suffix(self.after.as_str())?.parse().ok()?;
        let parent = self.parent.trim_end_matches('/');
        let below = format!("{parent}/{name}/{}", self.below);
        Some((node, below.trim_end_matches('/').to_owned()))
    }
}

fn no_value(key: &str) -> String {
    format!("{key}= has no value that Slurm takes")
}

const CONSTRAIN: &str = "ConstrainDevices";
const YES: [&str; 4] = ["yes", "up", "true", "1"];
const NO: [&str; 4] = ["no", "down", "false", "0"];

/// Whether Slurm keeps its jobs from the devices that are not theirs. Without the file it does not.
pub fn constrains_devices(files: &Files) -> Result<bool, ConfError> {
    let path = files.path("cgroup.conf");
    match files.lines("cgroup.conf") {
        Ok(texts) => constrains(&texts),
        Err(ConfError::File(error)) if error.is_missing() && error.path() == path => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same by the lines of the file. The last one counts.
pub fn constrains(texts: &[Text]) -> Result<bool, ConfError> {
    let mut constrains = false;
    for text in texts {
        let Some(value) = text.setting(CONSTRAIN) else { continue };
        let value = value.map_err(|fault| ConfError::Line(text.at.clone(), fault))?;
        let is = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(value));
        constrains = match (is(YES), is(NO)) {
            (true, _) => true,
            (_, true) => false,
            _ => return Err(ConfError::Line(text.at.clone(), no_value(CONSTRAIN))),
        };
    }
    Ok(constrains)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::devices::slurm::{At, joined};
    use std::path::Path;

    fn read(text: &str) -> Result<SpoolPath, ConfError> {
        let at = |line| At { file: Path::new("/slurm.conf").into(), line };
        let texts = joined(text).into_iter().map(|(line, text)| Text { at: at(line), text });
        SpoolPath::read(&texts.collect::<Vec<_>>())
    }

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    #[test]
    fn the_last_line_says_where_the_directory_is() {
        for (text, path) in [
            ("", "/var/spool/slurmd"),
            ("ClusterName=x\nslurmdspooldir=/a # b\n", "/a"),
            ("SlurmdSpoolDir=/a\nSlurmdSpoolDir=\"/b c\"\n", "/b c"),
            ("StateSaveLocation=/a SlurmdSpoolDir=/b\n", "/var/spool/slurmd"),
            ("NodeName=n[1-2] Gres=gpu:4\\\n CPUs=4\nPrologFlags=a,b\n", "/var/spool/slurmd"),
        ] {
            assert_eq!(read(text).unwrap().directory("h", None).unwrap(), path, "{text:?}");
        }
        for text in ["SlurmdSpoolDir=a", "SlurmdSpoolDir=", "SlurmdSpoolDir=/a/../b"] {
            assert!(matches!(read(text), Err(ConfError::Line(At { line: 1, .. }, _))), "{text}");
        }
    }

    #[test]
    fn host_and_node_are_put_in_once() {
        let path = read("SlurmdSpoolDir=/s/%h/%n/%h/%n").unwrap();
        assert_eq!(path.directory("h1.site", Some(&node("n1"))).unwrap(), "/s/h1/n1/%h/%n");
        assert_eq!(path.directory("h1", None), None);
        let plain = read("SlurmdSpoolDir=/s").unwrap();
        assert_eq!(plain.directory("h1", Some(&node("n1"))).unwrap(), "/s");
        assert_eq!(plain.directories("h1"), None);
    }

    #[test]
    fn every_node_of_a_host_has_a_directory() {
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
            let dirs = SpoolPath::new(path).unwrap().directories("h").unwrap();
            assert_eq!(dirs.parent, parent);
            let found = dirs.of(name).map(|(_, dir)| dir);
            assert_eq!(found.as_deref(), expected, "{path} {name}");
        }
    }

    use crate::helper::devices::{Settings, Tree};
    use crate::testing::Scratch;

    fn constrained(scratch: &Scratch) -> Result<bool, ConfError> {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        constrains_devices(&Files::find(&tree, &Settings::default()).unwrap())
    }

    #[test]
    fn devices_are_constrained_where_the_last_line_says_so() {
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
    fn what_cannot_be_told_is_a_fault_and_not_no() {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", "");
        for text in ["ConstrainDevices=maybe", "ConstrainDevices=", "ConstrainDevices=yes\\n"] {
            scratch.file("etc/slurm/cgroup.conf", text);
            assert!(
                matches!(constrained(&scratch), Err(ConfError::Line(At { line: 1, .. }, _))),
                "{text}"
            );
        }
        scratch.file("etc/slurm/cgroup.conf", "Include gone.conf");
        assert!(constrained(&scratch).unwrap_err().to_string().contains("gone.conf"));
        scratch.file("etc/slurm/cgroup.conf", "ConstrainDevices=no");
        scratch.mode("etc/slurm/cgroup.conf", 0o666);
        assert!(constrained(&scratch).unwrap_err().to_string().contains("mode 0666"));
    }
}
