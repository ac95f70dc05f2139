//! Helpers of all fuzz targets: values from bytes, and files of a node.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use helper::node::Tree;
use interpreter::Request;
use kernel::trust::Trust;
use naming::cdi::Spec;
use protocol::{Access, DeviceRule, DeviceType, MAJOR_MAX, MINOR_MAX, VERSION};

/// Takes values from the front of the fuzzer's input.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// Takes the next `N` bytes; returns `None` if fewer are left.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// Takes a request that the kernel may pass to a device program.
    pub fn request(&mut self) -> Option<Request> {
        let (kind, major, minor, access) = self.device()?;
        Some(Request {
            kind,
            major,
            minor,
            access,
        })
    }

    /// Takes an entry of an allowlist. The last minor stands for all minors of its major.
    pub fn rule(&mut self) -> Option<DeviceRule> {
        let (kind, major, minor, access) = self.device()?;
        let minor = (minor != MINOR_MAX).then_some(minor);
        let access = if access == Access::NONE {
            Access::ALL
        } else {
            access
        };
        DeviceRule::from_numbers(kind, major, minor, access).ok()
    }

    fn device(&mut self) -> Option<(DeviceType, u32, u32, Access)> {
        let [flags, major_0, major_1, minor_0, minor_1, minor_2] = self.take()?;
        let kind = if flags & 8 == 0 {
            DeviceType::Char
        } else {
            DeviceType::Block
        };
        let major = u32::from(u16::from_le_bytes([major_0, major_1])) & MAJOR_MAX;
        let minor = u32::from_le_bytes([minor_0, minor_1, minor_2, 0]) & MINOR_MAX;
        Some((kind, major, minor, Access::from_bits(u32::from(flags & 7))?))
    }
}

/// Returns a message of this version. The input is everything but the first entry, so that the
/// corpus outlives a release.
#[must_use]
pub fn with_version(bytes: &[u8]) -> Vec<u8> {
    [b"version\0s", VERSION.as_bytes(), b"\0", bytes].concat()
}

/// Files of a node, or of a part of one, in a directory of this process. The program that runs the
/// target removes it.
#[derive(Debug)]
pub struct Laid {
    dir: PathBuf,
    owner: u32,
    /// The files of the last execution, so that the next one writes only what differs.
    files: RefCell<HashMap<String, Option<String>>>,
}

impl Laid {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("job-adopt-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for files");
        let owner = dir.metadata().expect("the directory").uid();
        Self {
            dir,
            owner,
            files: RefCell::default(),
        }
    }

    /// Returns this process's files, as the last execution left them.
    ///
    /// # Panics
    ///
    /// Panics if the directory cannot be created.
    #[must_use]
    pub fn kept() -> &'static Self {
        thread_local! {
            static KEPT: &'static Laid = Box::leak(Box::new(Laid::new()));
        }
        KEPT.with(|kept| *kept)
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns whether this file differs from the last execution, and stores it.
    fn differs(&self, path: &str, text: Option<&str>) -> bool {
        let mut files = self.files.borrow_mut();
        if files.get(path).is_some_and(|last| last.as_deref() == text) {
            return false;
        }
        // A directory is removed and created with its files.
        let within = |one: &str, other: &str| {
            one.strip_prefix(other)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        files.retain(|other, _| !within(other, path) && !within(path, other));
        files.insert(path.to_owned(), text.map(str::to_owned));
        true
    }

    /// Writes a file and creates its directories.
    ///
    /// # Panics
    ///
    /// Panics if that fails, as for a path that is a directory.
    pub fn file(&self, path: &str, text: &str) {
        if !self.differs(path, Some(text)) {
            return;
        }
        let path = self.dir.join(path);
        if std::fs::write(&path, text).is_err() {
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(&path, text).expect("a file");
        }
    }

    /// Removes a file or a directory with its contents, if it exists.
    pub fn without(&self, path: &str) {
        if !self.differs(path, None) {
            return;
        }
        let path = self.dir.join(path);
        if std::fs::remove_file(&path).is_err() {
            _ = std::fs::remove_dir_all(&path);
        }
    }

    /// Returns the files as the tree of a node.
    #[must_use]
    pub fn tree(&self) -> Tree {
        Tree::with_root(&self.dir, Trust::below(&self.dir, self.owner))
    }
}

/// Asserts what users of a device specification rely on.
///
/// # Panics
///
/// Panics if a rule is broken.
pub fn assert_fit(spec: &Spec) {
    assert!(!spec.devices.is_empty());
    for (at, device) in spec.devices.iter().enumerate() {
        let name = format!("{}={}", spec.kind, device.name);
        if let Ok(name) = name.parse() {
            assert_eq!(spec.device(&name), Some(device), "{name} is another one");
        } else {
            assert!(name.len() > 512, "{name} cannot be asked for");
        }
        let rest = spec.devices.iter().skip(at + 1);
        assert!(
            rest.take(100).all(|other| other.name != device.name),
            "{name} stands twice"
        );
    }
    let edits = spec
        .devices
        .iter()
        .map(|device| &device.edits)
        .chain([&spec.edits]);
    for edits in edits {
        for node in &edits.nodes {
            for path in [Some(&node.path), node.host_path.as_ref()]
                .into_iter()
                .flatten()
            {
                let climbs = path.split('/').any(|part| part == "..");
                assert!(
                    path.starts_with('/') && !climbs && !path.contains('\0'),
                    "{path:?}"
                );
            }
            assert!(node.major.is_none_or(|major| major <= MAJOR_MAX));
            assert!(node.minor.is_none_or(|minor| minor <= MINOR_MAX));
        }
    }
}
