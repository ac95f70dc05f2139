//! The files that describe a node's devices, `/dev`, `/proc` and `/sys` below a root directory, and
//! the drivers that `/proc/devices` lists.

use super::DeviceError;
use crate::slurm_conf::SlurmConfFiles;
use kernel::proc;
use kernel::trust::{Distrust, Trust, TrustError, TrustedDir};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::fstatat;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, major, minor, stat};
use protocol::{DeviceType, MAJOR_MAX};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;

/// Maximum bytes of a file of `/proc` or `/sys`. The largest one that is read,
/// `/proc/driver/nvidia-caps/mig-minors`, has about 100 KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const NAMES_MAX: usize = 65_536;
/// Maximum bytes of a file that stands for a device node.
const STAND_IN_BYTES_MAX: u64 = 32;

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
    slurm: RefCell<Option<SlurmConfFiles>>,
    /// The directory of the node that was read last, and its path: most nodes are in `/dev`.
    node_dir: RefCell<Option<(String, OpenedFile)>>,
}

/// The type and numbers of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNode {
    /// Character or block device.
    pub kind: DeviceType,
    /// Device major.
    pub major: u32,
    /// Device minor.
    pub minor: u32,
}

impl fmt::Display for DeviceNode {
    /// Writes type and numbers as ls(1) does, but with a colon: `c 195:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", self.kind.letter(), self.major, self.minor)
    }
}

impl Tree {
    /// Returns the files of the node that this process runs on.
    pub fn host() -> Self {
        Self::with_root(Path::new("/"), Trust::root())
    }

    /// Returns the files of a node below `root`, which are trusted according to `trust`.
    ///
    /// Below another root than `/`, a regular file with the text `c 195:0` or `b 7:1` stands for a
    /// device node, since only root can make a real one.
    pub fn with_root(root: &Path, trust: Trust) -> Self {
        Self { root: root.to_owned(), trust, cache: Rc::default() }
    }

    /// Returns the owners that are accepted for files that root writes, such as device
    /// specifications.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Returns where an absolute path of the node lies for this process.
    pub fn locate(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the device node at an absolute path. It opens the node with `O_PATH` (open(2)), so
    /// that no driver notices.
    ///
    /// # Errors
    ///
    /// [`NodeError`], also if a component is a symbolic link, `..`, or a directory that everyone may
    /// write, such as `/dev/shm`: a file system that a user mounts there shows any nodes.
    pub fn read_node(&self, path: &str) -> Result<DeviceNode, NodeError> {
        // The root is no device.
        let Some((dir_path, name)) = path.trim_end_matches('/').rsplit_once('/') else {
            return Err(NodeError::NotADevice);
        };
        let mut cached = self.cache.node_dir.borrow_mut();
        let dir = match cached.take() {
            Some((path, dir)) if path == dir_path => dir,
            _ => {
                let mut dir = self.open_root()?;
                for part in dir_path.split('/').filter(|part| !part.is_empty()) {
                    dir = dir.open(part)?;
                }
                dir
            }
        };
        let file = dir.open(name);
        *cached = Some((dir_path.to_owned(), dir));
        file.and_then(|file| self.node_from_stat(&file.fd, &file.stat))
    }

    /// Returns an absolute path without the symbolic links in it. It follows a link only if
    /// [`Tree::read_node`] would open a file in the link's directory.
    ///
    /// # Errors
    ///
    /// [`NodeError`] for a path or a target with `..` that leads above the root, for a missing name,
    /// for a directory that everyone may write, and for more links than the kernel would follow.
    pub fn follow_links(&self, path: &str) -> Result<String, NodeError> {
        let mut names: Vec<String> = reversed_names(path);
        // Most paths have no link, and then the node opens as it is.
        if self.read_node(path).is_ok() {
            names.reverse();
            return Ok(format!("/{}", names.join("/")));
        }
        let mut dirs = vec![self.open_root()?];
        let mut real: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(name) = names.pop() {
            if name == ".." {
                dirs.pop();
                real.pop();
            }
            let Some(dir) = dirs.last() else { return Err(NodeError::SymbolicLink) };
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

    fn open_root(&self) -> Result<OpenedFile, NodeError> {
        let root = nix::fcntl::open(&self.root, NODE_FLAGS, Mode::empty());
        OpenedFile::new(root.map_err(NodeError::Open)?)
    }

    /// Returns the device node at an absolute path. It follows symbolic links as stat(2) does, but
    /// never to above the root.
    ///
    /// # Errors
    ///
    /// [`NodeError`] if there is no such file, or if it is no device node.
    pub fn read_node_behind_links(&self, path: &str) -> Result<DeviceNode, NodeError> {
        if !self.has_other_root() {
            return node_of_device(&stat(path).map_err(NodeError::Open)?);
        }
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(&self.root, flags, Mode::empty()).map_err(NodeError::Open)?;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
        let file = OpenedFile::new(openat2(root, path, how).map_err(NodeError::Open)?)?;
        self.node_from_stat(&file.fd, &file.stat)
    }

    /// Returns the text of a file of `/proc` or `/sys`; invalid UTF-8 is replaced. Each file is read
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
        self.cache.texts.borrow_mut().insert(path.to_owned(), text.clone());
        text
    }

    fn read_uncached(&self, path: &str) -> Result<String, FileError> {
        let failed = |error: std::io::Error| FileError::new("read", path, &error);
        proc::read_at_most(&self.locate(path), FILE_BYTES_MAX).map_err(failed)
    }

    /// Returns the names in a directory of `/dev`, `/proc` or `/sys`, sorted by their bytes.
    ///
    /// # Errors
    ///
    /// [`FileError`]; `EFBIG` if there are more than 65,536 names.
    pub fn list_names(&self, path: &str) -> Result<Vec<String>, FileError> {
        self.list_names_up_to(path, NAMES_MAX)
    }

    /// Returns the sorted names in a directory; none if the directory is missing.
    ///
    /// # Errors
    ///
    /// The directory cannot be listed, or has more than `max` names.
    pub(crate) fn list_entries(&self, path: &str, max: usize) -> Result<Vec<String>, DeviceError> {
        match self.list_names(path).or_else(if_missing(Vec::new))? {
            names if names.len() > max => {
                Err(DeviceError::at(path, format_args!("more than {max} entries")))
            }
            names => Ok(names),
        }
    }

    fn list_names_up_to(&self, path: &str, max: usize) -> Result<Vec<String>, FileError> {
        let failed = |error: std::io::Error| FileError::new("list", path, &error);
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

    /// Returns the last component of the target of a symbolic link of `/sys`, for instance the name
    /// of a device's driver.
    ///
    /// # Errors
    ///
    /// [`FileError`]; `EINVAL` if the file is no link.
    pub fn read_link_name(&self, path: &str) -> Result<String, FileError> {
        let failed = |error: std::io::Error| FileError::new("read link", path, &error);
        let target = std::fs::read_link(self.locate(path)).map_err(failed)?;
        let name = target.file_name().map(|name| name.as_bytes()).unwrap_or_default();
        String::from_utf8(name.to_vec()).map_err(|_| failed(Errno::EILSEQ.into()))
    }

    /// Returns the drivers of `/proc/devices`, which is read at most once.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the file cannot be read.
    pub fn read_drivers(&self) -> Result<&ProcDevices, FileError> {
        let read = || self.read_text("/proc/devices").map(|text| ProcDevices::parse(&text));
        self.cache.drivers.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// The place where Slurm's configuration is kept once it was found.
    pub(crate) fn slurm_conf_cache(&self) -> &RefCell<Option<SlurmConfFiles>> {
        &self.cache.slurm
    }

    /// Returns a text in which each path below this tree's root is the path on the node itself.
    pub fn strip_root(&self, text: &str) -> String {
        let Some(root) = self.root.to_str().filter(|_| self.has_other_root()) else {
            return text.to_owned();
        };
        let (mut shown, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once(root) {
            let within = before.ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c));
            let below = after.strip_prefix('/').filter(|_| !within);
            shown.extend([before, if below.is_some() { "/" } else { root }]);
            rest = below.unwrap_or(after);
        }
        shown + rest
    }

    fn has_other_root(&self) -> bool {
        self.root != Path::new("/")
    }

    fn node_from_stat(&self, fd: &OwnedFd, stat: &FileStat) -> Result<DeviceNode, NodeError> {
        match file_type(stat) {
            SFlag::S_IFREG if self.has_other_root() => read_stand_in(fd),
            _ => node_of_device(stat),
        }
    }
}

/// Flags with which no driver notices that its node is opened.
const NODE_FLAGS: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Maximum symbolic links of a path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Returns the names of a path, the last one first.
fn reversed_names(path: &str) -> Vec<String> {
    let is_name = |name: &&str| !name.is_empty() && *name != ".";
    path.split('/').rev().filter(is_name).map(str::to_owned).collect()
}

/// A file or directory that is open, and its attributes.
#[derive(Debug)]
struct OpenedFile {
    fd: OwnedFd,
    stat: FileStat,
}

impl OpenedFile {
    fn new(fd: OwnedFd) -> Result<Self, NodeError> {
        let stat = fstat(&fd).map_err(NodeError::Open)?;
        Ok(Self { fd, stat })
    }

    /// Opens a file of this directory.
    ///
    /// # Errors
    ///
    /// [`NodeError`], also if it is a symbolic link or `..`, or if everyone may write the directory.
    fn open(&self, name: &str) -> Result<Self, NodeError> {
        if name == ".." {
            return Err(NodeError::SymbolicLink);
        }
        if self.stat.st_mode & Mode::S_IWOTH.bits() != 0 {
            return Err(NodeError::WorldWritableParent);
        }
        let file = openat(&self.fd, name, NODE_FLAGS, Mode::empty()).map_err(NodeError::Open)?;
        match Self::new(file)? {
            link if file_type(&link.stat) == SFlag::S_IFLNK => Err(NodeError::SymbolicLink),
            file => Ok(file),
        }
    }

    /// Returns the target of a symbolic link in this directory; `None` if the name is no link.
    ///
    /// # Errors
    ///
    /// [`NodeError`] if there is no such name, or if everyone may write the directory.
    fn read_link(&self, name: &str) -> Result<Option<String>, NodeError> {
        if self.stat.st_mode & Mode::S_IWOTH.bits() != 0 {
            return Err(NodeError::WorldWritableParent);
        }
        match nix::fcntl::readlinkat(&self.fd, name) {
            Ok(target) => target.into_string().map(Some).map_err(|_| NodeError::SymbolicLink),
            Err(Errno::EINVAL) => Ok(None),
            Err(errno) => Err(NodeError::Open(errno)),
        }
    }
}

/// Returns type and numbers of a device node.
fn node_of_device(stat: &FileStat) -> Result<DeviceNode, NodeError> {
    let kind = match file_type(stat) {
        SFlag::S_IFCHR => DeviceType::Char,
        SFlag::S_IFBLK => DeviceType::Block,
        _ => return Err(NodeError::NotADevice),
    };
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let (major, minor) = (number(major(stat.st_rdev)), number(minor(stat.st_rdev)));
    Ok(DeviceNode { kind, major, minor })
}

fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn read_stand_in(fd: &OwnedFd) -> Result<DeviceNode, NodeError> {
    use std::os::fd::AsRawFd;
    let mut text = String::new();
    // An O_PATH descriptor cannot be read, so the file is opened again through it.
    File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .and_then(|file| file.take(STAND_IN_BYTES_MAX).read_to_string(&mut text))
        .map_err(|_| NodeError::NotADevice)?;
    let parse = |text: &str| {
        let (kind, numbers) = text.split_once(' ')?;
        let kind = match kind {
            "c" => DeviceType::Char,
            "b" => DeviceType::Block,
            _ => return None,
        };
        let (major, minor) = numbers.split_once(':')?;
        Some(DeviceNode { kind, major: major.parse().ok()?, minor: minor.parse().ok()? })
    };
    parse(text.trim_end()).ok_or(NodeError::NotADevice)
}

/// Why there is no device node at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    /// The path cannot be opened.
    #[error("{}", .0.desc())]
    Open(Errno),
    /// A component is a symbolic link or `..`.
    #[error("there is a symbolic link or .. in the path")]
    SymbolicLink,
    /// Everyone may write a directory of the path.
    #[error("in a directory that everyone may write")]
    WorldWritableParent,
    /// The file has another type.
    #[error("not a device")]
    NotADevice,
}

impl NodeError {
    /// Returns whether nothing exists at the path.
    pub fn is_absent(self) -> bool {
        self == Self::Open(Errno::ENOENT)
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
    fn new(operation: &'static str, path: &str, error: &std::io::Error) -> Self {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        Self { operation, path: path.to_owned(), errno }
    }

    /// Returns whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self.errno, Errno::ENOENT | Errno::ENOTDIR)
    }
}

/// Returns a function for `or_else` that replaces the error of a missing file by `value`. Any other
/// failure stays.
pub(crate) fn if_missing<T>(
    value: impl FnOnce() -> T,
) -> impl FnOnce(FileError) -> Result<T, FileError> {
    |error| if error.is_missing() { Ok(value()) } else { Err(error) }
}

/// The drivers of a node with their majors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcDevices(Vec<(DeviceType, u32, String)>);

impl ProcDevices {
    /// Parses the text of `/proc/devices`. A line of another form names no driver.
    pub fn parse(text: &str) -> Self {
        let mut section = None;
        let mut drivers = Vec::new();
        for line in text.lines() {
            match line.trim_end() {
                "Character devices:" => section = Some(DeviceType::Char),
                "Block devices:" => section = Some(DeviceType::Block),
                line => {
                    if let (Some(kind), Some((major, name))) = (section, parse_driver(line)) {
                        drivers.push((kind, major, name.to_owned()));
                    }
                }
            }
        }
        Self(drivers)
    }

    /// Returns the majors of the drivers with exactly this name. Several lines may have it.
    pub fn majors_of(&self, kind: DeviceType, name: &str) -> impl Iterator<Item = u32> {
        self.drivers_of_kind(kind)
            .filter(move |(_, driver)| *driver == name)
            .map(|(major, _)| major)
    }

    /// Returns the majors of one kind with the names of their drivers. A major may have several
    /// names, and a name several majors.
    pub fn drivers_of_kind(&self, kind: DeviceType) -> impl Iterator<Item = (u32, &str)> {
        let drivers = self.0.iter().filter(move |(own_kind, _, _)| *own_kind == kind);
        drivers.map(|(_, major, driver)| (*major, driver.as_str()))
    }

    /// Returns the names of the drivers of a major: none if the major is free, several if drivers
    /// share its minors.
    pub fn names_of(&self, kind: DeviceType, major: u32) -> impl Iterator<Item = &str> {
        self.drivers_of_kind(kind).filter(move |(number, _)| *number == major).map(|(_, name)| name)
    }
}

/// Parses a line of blanks, the major in decimal, one blank, and the name.
fn parse_driver(line: &str) -> Option<(u32, &str)> {
    let (major, name) = line.trim_start_matches(' ').split_once(' ')?;
    let is_decimal = major.len() <= 4 && major.bytes().all(|byte| byte.is_ascii_digit());
    let major = major.parse().ok().filter(|major| is_decimal && *major <= MAJOR_MAX)?;
    let is_plain =
        !name.is_empty() && !name.starts_with(' ') && !name.chars().any(char::is_control);
    is_plain.then_some((major, name))
}

/// An entry of a trusted directory.
#[derive(Debug)]
pub(crate) enum TrustedEntry {
    /// A directory that is trusted itself.
    Dir(TrustedDir),
    /// A regular file.
    File,
    /// A character device, as where `/dev/null` is mounted over a file.
    CharDevice,
    /// A symbolic link, a pipe, a socket or a block device.
    Other,
}

/// Returns the sorted names in a directory that do not begin with a dot. Invalid UTF-8 is replaced;
/// no name that this crate accepts has a replacement character.
///
/// # Errors
///
/// [`Distrust::Open`] if the directory cannot be listed, [`Distrust::TooManyNames`] if it has more than
/// `max` names.
pub(crate) fn list_visible_names(dir: &TrustedDir, max: usize) -> Result<Vec<String>, TrustError> {
    list_filtered(dir, max, |name| !name.starts_with('.'))
}

/// Returns the sorted names in a directory, including those that begin with a dot.
///
/// # Errors
///
/// The errors of [`list_visible_names`].
pub(crate) fn list_all_names(dir: &TrustedDir, max: usize) -> Result<Vec<String>, TrustError> {
    list_filtered(dir, max, |name| name != "." && name != "..")
}

fn list_filtered(
    dir: &TrustedDir,
    max: usize,
    is_wanted: fn(&str) -> bool,
) -> Result<Vec<String>, TrustError> {
    let failed = |errno| TrustError::new(dir.path(), Distrust::Open(errno));
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let listing = Dir::openat(dir, ".", flags, Mode::empty()).map_err(failed)?;
    let mut names = Vec::new();
    for entry in listing.into_iter() {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !is_wanted(&name) {
            continue;
        }
        if names.len() >= max {
            return Err(TrustError::new(dir.path(), Distrust::TooManyNames(max)));
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the type of the entry with this name, without opening it. Only root can have named a file
/// in a trusted directory, so a file needs no check of its own.
///
/// # Errors
///
/// [`TrustError`] if the entry is missing, or is a directory that [`Trust::dir`] would not trust.
pub(crate) fn read_entry(dir: &TrustedDir, name: &Path) -> Result<TrustedEntry, TrustError> {
    let stat = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .map_err(|errno| TrustError::new(&dir.path().join(name), Distrust::Open(errno)))?;
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => dir.dir(name).map(TrustedEntry::Dir),
        SFlag::S_IFREG => Ok(TrustedEntry::File),
        SFlag::S_IFCHR => Ok(TrustedEntry::CharDevice),
        _ => Ok(TrustedEntry::Other),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Scratch;

    fn tree(scratch: &Scratch) -> Tree {
        Tree::with_root(scratch.path(), scratch.trust())
    }

    fn char_device(major: u32, minor: u32) -> DeviceNode {
        DeviceNode { kind: DeviceType::Char, major, minor }
    }

    #[test]
    fn host_has_dev_null() {
        let null = Ok(char_device(1, 3));
        assert_eq!(Tree::host().read_node("/dev/null"), null);
        assert_eq!(Tree::host().read_node_behind_links("/dev/null"), null);
        assert_eq!(Tree::host().read_node("/etc/passwd"), Err(NodeError::NotADevice));
        assert_eq!(Tree::host().read_node("/dev"), Err(NodeError::NotADevice));
    }

    #[test]
    fn regular_file_of_the_host_is_no_device() {
        for path in ["/etc/hostname", "/etc/passwd"] {
            assert_eq!(Tree::host().read_node(path), Err(NodeError::NotADevice));
            assert_eq!(Tree::host().read_node_behind_links(path), Err(NodeError::NotADevice));
        }
        let scratch = Scratch::new();
        let path = scratch.file("nvidia0", "c 195:0");
        assert!(Tree::host().read_node(path.to_str().unwrap()).is_err());
        assert!(Tree::host().read_node_behind_links(path.to_str().unwrap()).is_err());
    }

    #[test]
    fn regular_file_below_another_root_stands_for_a_node() {
        let scratch = Scratch::new();
        scratch.file("dev/nvidia0", "c 195:0\n");
        scratch.file("dev/loop1", "b 7:1");
        let loop1 = DeviceNode { kind: DeviceType::Block, major: 7, minor: 1 };
        assert_eq!(tree(&scratch).read_node("/dev/nvidia0"), Ok(char_device(195, 0)));
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
        symlink("/../../../../../../../etc/passwd", scratch.path().join("dev/out")).unwrap();
        let tree = tree(&scratch);
        assert_eq!(tree.read_node_behind_links("/dev/link"), Ok(char_device(1, 3)));
        assert_eq!(tree.read_node("/dev/link"), Err(NodeError::SymbolicLink));
        assert_eq!(tree.read_node("/devices/real"), Err(NodeError::SymbolicLink));
        assert_eq!(tree.read_node("/dev/../dev/real"), Err(NodeError::SymbolicLink));
        assert_eq!(tree.read_node_behind_links("/dev/out"), Err(NodeError::Open(Errno::ENOENT)));
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
        assert_eq!(tree(&scratch).read_node("/dev/shm"), Err(NodeError::NotADevice));
    }

    #[test]
    fn files_are_bounded_and_names_are_sorted() {
        let scratch = Scratch::new();
        let long = "x".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1);
        scratch.file("proc/long", &long);
        let error = tree(&scratch).read_text("/proc/long").unwrap_err();
        assert_eq!(error.to_string(), format!("read /proc/long: {}", Errno::EFBIG.desc()));
        assert!(tree(&scratch).read_text("/proc/none").unwrap_err().is_missing());
        scratch.file("sys/b", "");
        scratch.file("sys/a", "");
        assert_eq!(tree(&scratch).list_names("/sys").unwrap(), ["a", "b"]);
        assert!(tree(&scratch).list_names_up_to("/sys", 2).is_ok());
        let error = tree(&scratch).list_names_up_to("/sys", 1).unwrap_err();
        assert_eq!(error.to_string(), format!("list /sys: {}", Errno::EFBIG.desc()));
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

    const TEXT: &str = "Character devices:\n  1 mem\n  5 /dev/tty\n136 pts\n137 pts\n\
                        195 nvidia\n\nBlock devices:\n  7 loop\n259 blkext\n";

    fn majors(text: &str, kind: DeviceType, name: &str) -> Vec<u32> {
        ProcDevices::parse(text).majors_of(kind, name).collect()
    }

    #[test]
    fn driver_name_matches_exactly_and_may_have_several_majors() {
        assert_eq!(majors(TEXT, DeviceType::Char, "pts"), [136, 137]);
        assert_eq!(majors(TEXT, DeviceType::Char, "/dev/tty"), [5]);
        assert_eq!(majors(TEXT, DeviceType::Block, "loop"), [7]);
        for name in ["pt", "pts ", "PTS", "*", "nvidia*", "nvidia-frontend", "195", ""] {
            assert!(majors(TEXT, DeviceType::Char, name).is_empty(), "{name:?}");
        }
    }

    #[test]
    fn major_has_the_names_of_all_its_drivers() {
        let drivers = ProcDevices::parse("Character devices:\n 5 /dev/tty\n 5 ptmx\n 7 vcs\n");
        let names = |kind, major| drivers.names_of(kind, major).collect::<Vec<_>>();
        assert_eq!(names(DeviceType::Char, 5), ["/dev/tty", "ptmx"]);
        assert_eq!(names(DeviceType::Char, 6), [""; 0]);
        assert_eq!(names(DeviceType::Block, 5), [""; 0]);
    }

    #[test]
    fn character_and_block_sections_are_separate() {
        assert!(majors(TEXT, DeviceType::Char, "loop").is_empty());
        assert!(majors(TEXT, DeviceType::Block, "mem").is_empty());
        assert!(majors("  7 loop\n", DeviceType::Block, "loop").is_empty());
    }

    #[test]
    fn driver_names_of_a_major_keep_to_its_section() {
        let text = "Character devices:\n195 nvidia\n195 nvidiactl\nBlock devices:\n195 other\n";
        let drivers = ProcDevices::parse(text);
        let names = |kind, major| drivers.names_of(kind, major).collect::<Vec<_>>();
        assert_eq!(names(DeviceType::Char, 195), ["nvidia", "nvidiactl"]);
        assert_eq!(names(DeviceType::Block, 195), ["other"]);
        assert!(names(DeviceType::Char, 19).is_empty());
    }

    #[test]
    fn malformed_lines_name_no_driver() {
        for line in
            ["-1 x", "+1 x", "0x1 x", "4096 x", "99999999999 x", "1", "1 ", "1  x", "x", "1\tx"]
        {
            let text = format!("Character devices:\n{line}\n");
            assert_eq!(ProcDevices::parse(&text), ProcDevices::default(), "{line:?}");
        }
    }

    #[test]
    fn names_are_sorted_and_bounded() {
        let scratch = Scratch::new();
        for name in ["d/b", "d/a", "d/.hidden"] {
            scratch.file(name, "");
        }
        let dir = scratch.trust().dir(&scratch.path().join("d")).unwrap();
        assert_eq!(list_visible_names(&dir, 2), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(list_visible_names(&dir, 1).unwrap_err().cause(), &Distrust::TooManyNames(1));
        assert_eq!(list_all_names(&dir, 3).unwrap(), [".hidden", "a", "b"]);
        assert_eq!(list_all_names(&dir, 2).unwrap_err().cause(), &Distrust::TooManyNames(2));
    }

    #[test]
    fn entries_are_classified_unopened() {
        let scratch = Scratch::new();
        for name in ["d/file", "d/dir/x", "d/open/x"] {
            scratch.file(name, "");
        }
        scratch.mode("d/open", 0o777);
        symlink("file", scratch.path().join("d/link")).unwrap();
        symlink("dir", scratch.path().join("d/linked-dir")).unwrap();
        nix::unistd::mkfifo(&scratch.path().join("d/fifo"), Mode::S_IRUSR).unwrap();
        let dir = scratch.trust().dir(&scratch.path().join("d")).unwrap();
        let entry = |name: &str| read_entry(&dir, Path::new(name));
        assert!(matches!(entry("file"), Ok(TrustedEntry::File)));
        assert!(
            matches!(entry("dir"), Ok(TrustedEntry::Dir(below)) if below.path().ends_with("d/dir"))
        );
        for name in ["link", "linked-dir", "fifo"] {
            assert!(matches!(entry(name), Ok(TrustedEntry::Other)), "{name}");
        }
        assert_eq!(entry("open").unwrap_err().cause(), &Distrust::Writable(0o777));
        assert!(entry("none").unwrap_err().is_missing());
        let dev = Trust::below(Path::new("/dev"), 0).dir(Path::new("/dev")).unwrap();
        let null = read_entry(&dev, Path::new("null"));
        assert!(matches!(null, Ok(TrustedEntry::CharDevice)));
    }
}
