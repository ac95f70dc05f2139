//! The files that describe a node: `/dev`, `/proc`, `/sys` and others below a root directory.

use super::device_node::{DeviceNode, NODE_FLAGS, NodeError, OpenedFile, file_type};
use super::error::DeviceError;
use super::proc_devices::ProcDevices;
use kernel::proc;
use kernel::trust::Trust;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, stat};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;

/// Maximum bytes of a file of `/proc` or `/sys`. The largest one that is read,
/// `/proc/driver/nvidia-caps/mig-minors`, has about 100 KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const NAMES_MAX: usize = 65_536;
/// Maximum symbolic links of a path, as in the kernel.
const LINKS_MAX: usize = 40;

/// A node's files, below `/` or, for tests and dry runs, below another directory.
///
/// Clones share one cache, so that one phase sees one state of the files.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    trust: Trust,
    cache: Rc<ReadCache>,
}

#[derive(Debug, Default)]
struct ReadCache {
    drivers: OnceCell<Result<ProcDevices, FileError>>,
    texts: RefCell<BTreeMap<String, Result<String, FileError>>>,
    listings: RefCell<BTreeMap<String, Result<Vec<String>, FileError>>>,
    nodes: RefCell<NodeCache>,
    nodes_behind_links: RefCell<NodeCache>,
    /// The minors of those MIG instances that were read by their names.
    named_instances: RefCell<BTreeSet<u32>>,
    /// The minors of all MIG instances, if one was to be found by its minor.
    live_instances: OnceCell<Result<BTreeSet<u32>, FileError>>,
    /// The directory of the node that was read last, and its path: most nodes are in `/dev`.
    node_dir: RefCell<Option<(String, OpenedFile)>>,
}

/// Device nodes by their paths, or why there is none.
type NodeCache = BTreeMap<String, Result<DeviceNode, NodeError>>;

impl Tree {
    /// The files of the node that this process runs on.
    pub fn host() -> Self {
        Self::with_root(Path::new("/"), Trust::root())
    }

    /// The files of a node below `root`, which are trusted according to `trust`.
    ///
    /// Below another root than `/`, a regular file with the text `c 195:0` or `b 7:1` stands for a
    /// device node, since only root can make a real one.
    pub fn with_root(root: &Path, trust: Trust) -> Self {
        Self {
            root: root.to_owned(),
            trust,
            cache: Rc::default(),
        }
    }

    /// The owners that are accepted for files that root writes, such as device
    /// specifications.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Finds where an absolute path of the node lies for this process.
    pub fn locate(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads the device node at an absolute path. It opens the node with `O_PATH` (open(2)), so
    /// that no driver notices. Each node is read once: all GPUs of a vendor share some.
    ///
    /// # Errors
    ///
    /// [`NodeError`], also if a component is a symbolic link, `..`, or a directory that everyone may
    /// write, such as `/dev/shm`: a file system that a user mounts there shows any nodes.
    pub fn read_node(&self, path: &str) -> Result<DeviceNode, NodeError> {
        if let Some(node) = self.cache.nodes.borrow().get(path) {
            return *node;
        }
        let node = self.open_node(path).map(|(_, node)| node);
        self.cache.nodes.borrow_mut().insert(path.to_owned(), node);
        node
    }

    /// Opens the device node at an absolute path with `O_PATH`, as [`Tree::read_node`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Tree::read_node`].
    pub fn open_node(&self, path: &str) -> Result<(OwnedFd, DeviceNode), NodeError> {
        let OpenedFile { fd, stat } = self.open_file(path)?;
        let node = self.node_from_stat(&fd, &stat)?;
        Ok((fd, node))
    }

    /// Tells whether a path is a directory in which [`Tree::read_node`] reads device nodes: it is behind no symbolic
    /// link, and not everyone may write it or a directory above it.
    pub(crate) fn is_node_dir(&self, path: &str) -> bool {
        self.open_file(path).is_ok_and(|file| {
            file_type(&file.stat) == SFlag::S_IFDIR && file.require_private().is_ok()
        })
    }

    /// Opens the file at an absolute path with `O_PATH`, as [`Tree::read_node`] does.
    fn open_file(&self, path: &str) -> Result<OpenedFile, NodeError> {
        // The root is no device.
        let Some((dir_path, name)) = path.trim_end_matches('/').rsplit_once('/') else {
            return Err(NodeError::NotADevice);
        };
        let mut cached = self.cache.node_dir.borrow_mut();
        let dir = match cached.take() {
            Some((cached_path, dir)) if cached_path == dir_path => dir,
            _ => self.open_dir(dir_path)?,
        };
        // The directory stays in the cache, also if the node cannot be opened.
        let file = dir.open(name);
        *cached = Some((dir_path.to_owned(), dir));
        file
    }

    /// Opens a directory, which may be empty for the root, as [`Tree::read_node`] does.
    fn open_dir(&self, path: &str) -> Result<OpenedFile, NodeError> {
        let mut dir = self.open_root()?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            dir = dir.open(part)?;
        }
        Ok(dir)
    }

    /// Resolves an absolute path into one without the symbolic links in it. It follows a link only if
    /// [`Tree::read_node`] would open a file in the link's directory.
    ///
    /// # Errors
    ///
    /// [`NodeError`] for a path or a target with `..` that leads above the root, for a missing name,
    /// for a directory that everyone may write, and for more links than the kernel would follow.
    pub fn follow_links(&self, path: &str) -> Result<String, NodeError> {
        // The names that are still to be resolved, the next one last.
        let mut names: Vec<String> = reversed_names(path);
        // Most paths have no link, and then the node opens as it is.
        if self.read_node(path).is_ok() {
            names.reverse();
            return Ok(format!("/{}", names.join("/")));
        }
        // The names that are resolved, and their directories: the root's first, that of the next name last.
        let mut real: Vec<String> = Vec::new();
        let mut dirs = vec![self.open_root()?];
        let mut links = 0;
        while let Some(name) = names.pop() {
            if name == ".." {
                dirs.pop();
                real.pop();
            }
            // Above the root there is none.
            let Some(dir) = dirs.last() else {
                return Err(NodeError::SymbolicLink);
            };
            if name == ".." {
                continue;
            }
            let Some(target) = dir.read_link(&name)? else {
                // The last name is a device, and a name below it fails.
                dirs.push(dir.open(&name)?);
                real.push(name);
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(NodeError::Open(Errno::ELOOP));
            }
            if target.starts_with('/') {
                dirs.truncate(1);
                real.clear();
            }
            names.extend(reversed_names(&target));
        }
        Ok(format!("/{}", real.join("/")))
    }

    /// Opens the root directory of the tree.
    fn open_root(&self) -> Result<OpenedFile, NodeError> {
        let root = open(&self.root, NODE_FLAGS, Mode::empty());
        OpenedFile::new(root.map_err(NodeError::Open)?)
    }

    /// Reads the device node at an absolute path. It follows symbolic links as stat(2) does, but
    /// never to above the root. Each node is read once, as by [`Tree::read_node`].
    ///
    /// # Errors
    ///
    /// [`NodeError`] if there is no such file, or if it is no device node.
    pub fn read_node_behind_links(&self, path: &str) -> Result<DeviceNode, NodeError> {
        if let Some(node) = self.cache.nodes_behind_links.borrow().get(path) {
            return *node;
        }
        let node = self.stat_node(path);
        let mut nodes = self.cache.nodes_behind_links.borrow_mut();
        nodes.insert(path.to_owned(), node);
        node
    }

    /// Reads the device node behind links, without the cache.
    fn stat_node(&self, path: &str) -> Result<DeviceNode, NodeError> {
        if !self.has_other_root() {
            return DeviceNode::from_stat(&stat(path).map_err(NodeError::Open)?);
        }
        // No link may lead out of the other root.
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let root = open(&self.root, flags, Mode::empty()).map_err(NodeError::Open)?;
        let how = OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT);
        let file = OpenedFile::new(openat2(root, path, how).map_err(NodeError::Open)?)?;
        self.node_from_stat(&file.fd, &file.stat)
    }

    /// Reads the text of a file of `/proc` or `/sys`; invalid UTF-8 is replaced. Each file is read
    /// once, so that all names are resolved by one state of the node.
    ///
    /// # Errors
    ///
    /// [`FileError`]; `EFBIG` if the file has more than a mebibyte.
    pub fn read_text(&self, path: &str) -> Result<String, FileError> {
        if let Some(text) = self.cache.texts.borrow().get(path) {
            return text.clone();
        }
        let text = self.read_uncached(path);
        self.cache
            .texts
            .borrow_mut()
            .insert(path.to_owned(), text.clone());
        text
    }

    /// Reads the text of a file as [`Self::read_text`] does; `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// As [`Self::read_text`], but for a missing file.
    pub fn read_text_if_exists(&self, path: &str) -> Result<Option<String>, FileError> {
        none_if_missing(self.read_text(path))
    }

    /// Reads a file of up to a mebibyte, without the cache.
    fn read_uncached(&self, path: &str) -> Result<String, FileError> {
        let failed = |error: io::Error| FileError::new("read", path, &error);
        proc::read_at_most(&self.locate(path), FILE_BYTES_MAX).map_err(failed)
    }

    /// Lists the names in a directory of `/dev`, `/proc` or `/sys`, sorted by their bytes. Each
    /// directory is listed once, as each file is read once.
    ///
    /// # Errors
    ///
    /// [`FileError`]; `EFBIG` if there are more than 65,536 names.
    pub fn list_names(&self, path: &str) -> Result<Vec<String>, FileError> {
        if let Some(names) = self.cache.listings.borrow().get(path) {
            return names.clone();
        }
        let names = self.list_names_up_to(path, NAMES_MAX);
        self.cache
            .listings
            .borrow_mut()
            .insert(path.to_owned(), names.clone());
        names
    }

    /// Lists the sorted names in a directory; none if the directory is missing.
    ///
    /// # Errors
    ///
    /// The directory cannot be listed, or has more than `max` names.
    pub(crate) fn list_entries(&self, path: &str, max: usize) -> Result<Vec<String>, DeviceError> {
        let names = none_if_missing(self.list_names(path))?.unwrap_or_default();
        if names.len() > max {
            return Err(DeviceError::at(
                path,
                format_args!("more than {max} entries"),
            ));
        }
        Ok(names)
    }

    /// Lists the sorted names in a directory, without those that are not UTF-8.
    ///
    /// # Errors
    ///
    /// [`FileError`]; `EFBIG` if there are more than `max` names.
    fn list_names_up_to(&self, path: &str, max: usize) -> Result<Vec<String>, FileError> {
        let failed = |error: io::Error| FileError::new("list", path, &error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.locate(path)).map_err(failed)? {
            if names.len() >= max {
                return Err(failed(Errno::EFBIG.into()));
            }
            let name = entry.map_err(failed)?.file_name();
            // Kernel files have UTF-8 names, and no specifier could spell another one.
            if let Ok(name) = name.into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Reads the last component of the target of a symbolic link of `/sys`, for instance the name
    /// of a device's driver.
    ///
    /// # Errors
    ///
    /// [`FileError`]; `EINVAL` if the file is no link.
    pub fn read_link_name(&self, path: &str) -> Result<String, FileError> {
        let target = self.read_link_target(path)?;
        let name = Path::new(&target).file_name().unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Reads the target of a symbolic link of `/sys`.
    ///
    /// # Errors
    ///
    /// [`FileError`]; `EINVAL` if the file is no link.
    pub fn read_link_target(&self, path: &str) -> Result<String, FileError> {
        let failed = |error: io::Error| FileError::new("read link", path, &error);
        let target = std::fs::read_link(self.locate(path)).map_err(failed)?;
        let target = target.into_os_string().into_string();
        target.map_err(|_| failed(Errno::EILSEQ.into()))
    }

    /// Reads a link as [`Self::read_link_name`] does; `None` if there is no such link.
    ///
    /// # Errors
    ///
    /// As [`Self::read_link_name`], but for a missing link.
    pub fn read_link_name_if_exists(&self, path: &str) -> Result<Option<String>, FileError> {
        none_if_missing(self.read_link_name(path))
    }

    /// Reads the drivers of `/proc/devices`, which is read at most once.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the file cannot be read.
    pub fn read_drivers(&self) -> Result<&ProcDevices, FileError> {
        let read = || {
            self.read_text("/proc/devices")
                .map(|text| ProcDevices::parse(&text))
        };
        self.cache
            .drivers
            .get_or_init(read)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Reads the kernel's id of this boot (random(4)).
    ///
    /// # Errors
    ///
    /// [`FileError`] if the file cannot be read.
    pub fn read_boot_id(&self) -> Result<String, FileError> {
        let text = self.read_text("/proc/sys/kernel/random/boot_id")?;
        Ok(text.trim_end().to_owned())
    }

    /// Keeps the minor of a MIG instance whose file the driver has.
    pub(super) fn add_named_instance(&self, minor: u32) {
        self.cache.named_instances.borrow_mut().insert(minor);
    }

    /// Tells whether a MIG instance with this minor exists: it was read by its name, or is among those that `list`
    /// finds at the first call.
    ///
    /// # Errors
    ///
    /// The error of `list`.
    pub(super) fn has_instance(
        &self,
        minor: u32,
        list: impl FnOnce() -> Result<BTreeSet<u32>, FileError>,
    ) -> Result<bool, FileError> {
        if self.cache.named_instances.borrow().contains(&minor) {
            return Ok(true);
        }
        match self.cache.live_instances.get_or_init(list) {
            Ok(live) => Ok(live.contains(&minor)),
            Err(error) => Err(error.clone()),
        }
    }

    /// Rewrites a message so that paths below this tree's root are those of the node: for the root `/a`,
    /// `/a/b: /b/a/c, /ab` becomes `/b: /b/a/c, /ab`. Without another root, or with one that is not UTF-8, it stays.
    pub fn strip_root(&self, text: &str) -> String {
        let root = match self.root.to_str() {
            Some(root) if self.has_other_root() => root,
            _ => return text.to_owned(),
        };
        let mut shown = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(root) {
            // In `/b/a/c` the root is found, but begins no path.
            let is_inside_path =
                before.ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c));
            shown.push_str(before);
            match after.strip_prefix('/') {
                // The slash goes with the root, so that `/a/a/d` loses it only once.
                Some(below) if !is_inside_path => {
                    shown.push('/');
                    rest = below;
                }
                // The root found inside a path, or as the beginning of a longer name: `/ab`.
                _ => {
                    shown.push_str(root);
                    rest = after;
                }
            }
        }
        shown + rest
    }

    /// Tells whether the tree is not the node's own: then files may stand for device nodes.
    fn has_other_root(&self) -> bool {
        self.root != Path::new("/")
    }

    /// Takes type and numbers from the status of an open file, or from its text if it stands for a node.
    fn node_from_stat(&self, fd: &OwnedFd, stat: &FileStat) -> Result<DeviceNode, NodeError> {
        match file_type(stat) {
            SFlag::S_IFREG if self.has_other_root() => DeviceNode::read_stand_in(fd),
            _ => DeviceNode::from_stat(stat),
        }
    }
}

/// A file of the node that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{operation} {path}: {}", .errno.desc())]
pub struct FileError {
    operation: &'static str,
    path: String,
    errno: Errno,
}

impl FileError {
    /// Describes a failed operation on a file. An error without a number of the kernel becomes number 0.
    fn new(operation: &'static str, path: &str, error: &io::Error) -> Self {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        Self {
            operation,
            path: path.to_owned(),
            errno,
        }
    }

    /// Tells whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self.errno, Errno::ENOENT | Errno::ENOTDIR)
    }
}

/// Turns the error of a missing file into `None`. Any other failure stays.
pub(crate) fn none_if_missing<T>(result: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists the names of a path, the last one first.
fn reversed_names(path: &str) -> Vec<String> {
    let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    names.rev().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Scratch;
    use protocol::DeviceType;

    fn tree(scratch: &Scratch) -> Tree {
        Tree::with_root(scratch.path(), scratch.trust())
    }

    fn char_device(major: u32, minor: u32) -> DeviceNode {
        DeviceNode {
            kind: DeviceType::Char,
            major,
            minor,
        }
    }

    #[test]
    fn host_has_dev_null() {
        let null = Ok(char_device(1, 3));
        assert_eq!(Tree::host().read_node("/dev/null"), null);
        assert_eq!(Tree::host().read_node_behind_links("/dev/null"), null);
        assert_eq!(
            Tree::host().read_node("/etc/passwd"),
            Err(NodeError::NotADevice)
        );
        assert_eq!(Tree::host().read_node("/dev"), Err(NodeError::NotADevice));
    }

    #[test]
    fn regular_file_of_the_host_is_no_device() {
        for path in ["/etc/hostname", "/etc/passwd"] {
            assert_eq!(Tree::host().read_node(path), Err(NodeError::NotADevice));
            assert_eq!(
                Tree::host().read_node_behind_links(path),
                Err(NodeError::NotADevice)
            );
        }
        let scratch = Scratch::new();
        let path = scratch.file("nvidia0", "c 195:0");
        assert!(Tree::host().read_node(path.to_str().unwrap()).is_err());
        assert!(
            Tree::host()
                .read_node_behind_links(path.to_str().unwrap())
                .is_err()
        );
    }

    #[test]
    fn regular_file_below_another_root_stands_for_a_node() {
        let scratch = Scratch::new();
        scratch.file("dev/nvidia0", "c 195:0\n");
        scratch.file("dev/loop1", "b 7:1");
        let loop1 = DeviceNode {
            kind: DeviceType::Block,
            major: 7,
            minor: 1,
        };
        assert_eq!(
            tree(&scratch).read_node("/dev/nvidia0"),
            Ok(char_device(195, 0))
        );
        assert_eq!(tree(&scratch).read_node("/dev/loop1"), Ok(loop1));
        for text in ["", "c", "c 1", "x 1:2", "c 1:-1", "c 1:2:3", "c  1:2"] {
            scratch.file("dev/odd", text);
            assert_eq!(
                tree(&scratch).read_node("/dev/odd"),
                Err(NodeError::NotADevice),
                "{text:?}"
            );
        }
    }

    #[test]
    fn links_are_followed_on_request_only_and_never_above_the_root() {
        let scratch = Scratch::new();
        scratch.file("dev/real", "c 1:3");
        symlink("/dev/real", scratch.path().join("dev/link")).unwrap();
        symlink("dev", scratch.path().join("devices")).unwrap();
        symlink(
            "/../../../../../../../etc/passwd",
            scratch.path().join("dev/out"),
        )
        .unwrap();
        let tree = tree(&scratch);
        assert_eq!(
            tree.read_node_behind_links("/dev/link"),
            Ok(char_device(1, 3))
        );
        assert_eq!(tree.read_node("/dev/link"), Err(NodeError::SymbolicLink));
        assert_eq!(
            tree.read_node("/devices/real"),
            Err(NodeError::SymbolicLink)
        );
        assert_eq!(
            tree.read_node("/dev/../dev/real"),
            Err(NodeError::SymbolicLink)
        );
        assert_eq!(
            tree.read_node_behind_links("/dev/out"),
            Err(NodeError::Open(Errno::ENOENT))
        );
    }

    #[test]
    fn node_below_a_world_writable_directory_is_refused() {
        let scratch = Scratch::new();
        scratch.file("dev/shm/node", "c 195:0");
        scratch.file("dev/shm/dir/node", "c 195:0");
        scratch.mode("dev/shm", 0o1777);
        for path in ["/dev/shm/node", "/dev/shm/dir/node", "/dev/./shm//node"] {
            assert_eq!(
                tree(&scratch).read_node(path),
                Err(NodeError::WorldWritableParent),
                "{path}"
            );
        }
        assert_eq!(
            tree(&scratch).read_node("/dev/shm"),
            Err(NodeError::NotADevice)
        );
    }

    #[test]
    fn files_are_bounded_and_names_are_sorted() {
        let scratch = Scratch::new();
        let long = "x".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1);
        scratch.file("proc/long", &long);
        let error = tree(&scratch).read_text("/proc/long").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("read /proc/long: {}", Errno::EFBIG.desc())
        );
        assert!(
            tree(&scratch)
                .read_text("/proc/none")
                .unwrap_err()
                .is_missing()
        );
        scratch.file("sys/b", "");
        scratch.file("sys/a", "");
        assert_eq!(tree(&scratch).list_names("/sys").unwrap(), ["a", "b"]);
        assert!(tree(&scratch).list_names_up_to("/sys", 2).is_ok());
        let other_error = tree(&scratch).list_names_up_to("/sys", 1).unwrap_err();
        assert_eq!(
            other_error.to_string(),
            format!("list /sys: {}", Errno::EFBIG.desc())
        );
    }

    /// A resolution reads a file such as `/proc/devices` repeatedly and must see one state of it.
    #[test]
    fn file_is_read_once() {
        let scratch = Scratch::new();
        scratch.file("proc/a", "before");
        let tree = tree(&scratch);
        assert!(tree.read_text("/proc/b").unwrap_err().is_missing());
        assert_eq!(tree.read_text("/proc/a").unwrap(), "before");
        scratch.file("proc/a", "after");
        scratch.file("proc/b", "after");
        assert_eq!(tree.read_text("/proc/a").unwrap(), "before");
        assert!(tree.read_text("/proc/b").unwrap_err().is_missing());
    }
}
