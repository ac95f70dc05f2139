//! From a specifier to the numbers that it has on this node.

use std::cell::OnceCell;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{major, minor};

use super::specifier::Name;
use super::{ProcDevices, Specifier};
use crate::plan::{DeviceRule, DeviceType, RuleError};

/// Most bytes of `/proc/devices` that are read; a node's own has about one thousand.
const PROC_DEVICES_MAX: u64 = 1024 * 1024;

/// Looks devices up below a root directory; `/proc/devices` is read at most once.
#[derive(Debug)]
pub struct Resolver {
    root: PathBuf,
    drivers: OnceCell<Result<ProcDevices, Errno>>,
}

impl Resolver {
    /// A resolver over the `dev` and `proc` of `root`, which is `/` but in tests.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), drivers: OnceCell::new() }
    }

    /// The rules that a specifier stands for, at least one. A path is resolved as `stat(2)` does,
    /// links included; a class stands for every minor of its majors.
    ///
    /// # Errors
    /// [`ResolveError`] where this node has no such device.
    pub fn resolve(&self, specifier: &Specifier) -> Result<Vec<DeviceRule>, ResolveError> {
        let rule = |kind, major, minor| {
            DeviceRule::new(kind, major, minor, specifier.access()).map_err(ResolveError::Number)
        };
        match &specifier.name {
            Name::Path(path) => {
                let (kind, major, minor) = self.stat(path)?;
                Ok(vec![rule(kind, major, Some(minor))?])
            }
            Name::Class(kind, class) => {
                let majors = self.drivers()?.majors(*kind, class);
                let rules: Vec<_> =
                    majors.map(|major| rule(*kind, major, None)).collect::<Result<_, _>>()?;
                if rules.is_empty() { Err(ResolveError::NoDriver) } else { Ok(rules) }
            }
        }
    }

    fn stat(&self, path: &str) -> Result<(DeviceType, u32, u32), ResolveError> {
        let meta = std::fs::metadata(self.below(path))
            .map_err(|error| ResolveError::Stat(errno_of(&error)))?;
        let kind = meta.file_type();
        let kind = if kind.is_char_device() {
            DeviceType::Char
        } else if kind.is_block_device() {
            DeviceType::Block
        } else {
            return Err(ResolveError::NoDevice);
        };
        let number = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Ok((kind, number(major(meta.rdev())), number(minor(meta.rdev()))))
    }

    fn drivers(&self) -> Result<&ProcDevices, ResolveError> {
        let read = || {
            let mut text = String::new();
            std::fs::File::open(self.below("/proc/devices"))
                .and_then(|file| file.take(PROC_DEVICES_MAX).read_to_string(&mut text))
                .map_err(|error| errno_of(&error))?;
            Ok(ProcDevices::parse(&text))
        };
        self.drivers.get_or_init(read).as_ref().map_err(|errno| ResolveError::Drivers(*errno))
    }

    fn below(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

/// Why a specifier stands for nothing on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// `stat(2)` failed.
    Stat(Errno),
    /// The path is no device node.
    NoDevice,
    /// `/proc/devices` cannot be read.
    Drivers(Errno),
    /// No driver has this name.
    NoDriver,
    /// The numbers are beyond what the kernel has.
    Number(RuleError),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stat(errno) => f.write_str(errno.desc()),
            Self::NoDevice => f.write_str("not a device"),
            Self::Drivers(errno) => write!(f, "cannot read /proc/devices: {errno}"),
            Self::NoDriver => f.write_str("not in /proc/devices"),
            Self::Number(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResolveError {}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::trust::tests::Scratch;

    fn resolve(root: &Path, text: &str) -> Result<Vec<String>, ResolveError> {
        let rules = Resolver::new(root).resolve(&text.parse().unwrap())?;
        Ok(rules.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn paths_follow_links() {
        let scratch = Scratch::new();
        scratch.file("dev/file", "");
        symlink("/dev/null", scratch.path().join("dev/zero")).unwrap();
        symlink("gone", scratch.path().join("dev/dangling")).unwrap();
        assert_eq!(resolve(scratch.path(), "/dev/zero r"), Ok(vec!["c:1:3:r".into()]));
        assert_eq!(resolve(scratch.path(), "/dev/file"), Err(ResolveError::NoDevice));
        assert_eq!(
            resolve(scratch.path(), "/dev/dangling"),
            Err(ResolveError::Stat(Errno::ENOENT))
        );
    }

    #[test]
    fn classes_stand_for_every_minor() {
        let scratch = Scratch::new();
        assert_eq!(resolve(scratch.path(), "char-pts"), Err(ResolveError::Drivers(Errno::ENOENT)));
        scratch
            .file("proc/devices", "Character devices:\n136 pts\n137 pts\nBlock devices:\n7 loop\n");
        let pts = vec!["c:136:-1:rw".to_owned(), "c:137:-1:rw".to_owned()];
        assert_eq!(resolve(scratch.path(), "char-pts"), Ok(pts));
        assert_eq!(resolve(scratch.path(), "block-loop m"), Ok(vec!["b:7:-1:m".into()]));
        assert_eq!(resolve(scratch.path(), "char-nvidia*"), Err(ResolveError::NoDriver));
    }

    #[test]
    fn this_node_has_null_and_pts() {
        assert_eq!(resolve(Path::new("/"), "/dev/null rwm"), Ok(vec!["c:1:3:rwm".into()]));
        assert_eq!(resolve(Path::new("/"), "char-mem"), Ok(vec!["c:1:-1:rw".into()]));
    }
}
