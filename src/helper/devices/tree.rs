//! The files by which a node tells its devices: `/dev`, `/proc` and `/sys`, below a root directory,
//! and the drivers that `/proc/devices` lists.

use super::DeviceError;
use super::slurm::Files;
use crate::kernel::proc;
use crate::kernel::trust::{Distrust, Trust, TrustError, TrustedDir};
use crate::protocol::{DeviceType, MAJOR_MAX};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::fstatat;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, major, minor};
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

/// Most bytes of a file of `/proc` or `/sys`; `/proc/driver/nvidia-caps/mig-minors`, the largest of
/// those that are read, has about 100 KiB.
const FILE_MAX: u64 = 1024 * 1024;
const NAMES_MAX: usize = 65_536;
/// Most bytes of a file that stands for a device node.
const STAND_IN_MAX: u64 = 32;

/// A node's files, below `/` or, for tests and dry runs, below another directory.
///
/// Clones share what was read, so that one phase sees one state of it.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    trust: Trust,
    seen: Rc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    drivers: OnceCell<Result<ProcDevices, FileError>>,
    texts: RefCell<BTreeMap<String, Result<String, FileError>>>,
    slurm: RefCell<Option<Files>>,
}

/// What a device node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Character or block device.
    pub kind: DeviceType,
    /// Device major.
    pub major: u32,
    /// Device minor.
    pub minor: u32,
}

impl fmt::Display for Node {
    /// As in ls(1), with a colon: `c 195:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", self.kind.letter(), self.major, self.minor)
    }
}

impl Tree {
    /// This node.
    pub fn here() -> Self {
        Self::laid_out(Path::new("/"), Trust::root())
    }

    /// A node that is laid out below `root`, whose files are believed as `trust` says. There a
    /// regular file with the text `c 195:0` or `b 7:1` stands for a device node, since only root
    /// can make a real one.
    pub fn laid_out(root: &Path, trust: Trust) -> Self {
        Self { root: root.to_owned(), trust, seen: Rc::default() }
    }

    /// Who has to own the files that root writes, as device specifications are.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Where an absolute path of the node is.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The device node at an absolute path, on which no component may be a symbolic link or `..`,
    /// nor a directory in which everyone may put something, as in `/dev/shm`: a file system of a
    /// user's own shows whatever nodes he likes. Nothing is opened for use: no driver hears of it
    /// (`O_PATH`, open(2)).
    pub fn node(&self, path: &str) -> Result<Node, NodeError> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut fd = nix::fcntl::open(&self.root, flags, Mode::empty()).map_err(NodeError::Open)?;
        let mut stat = fstat(&fd).map_err(NodeError::Open)?;
        let mut everyones = false;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if part == ".." {
                return Err(NodeError::Link);
            }
            if everyones {
                return Err(NodeError::Everyones);
            }
            fd = openat(&fd, part, flags, Mode::empty()).map_err(NodeError::Open)?;
            stat = fstat(&fd).map_err(NodeError::Open)?;
            if format_of(&stat) == SFlag::S_IFLNK {
                return Err(NodeError::Link);
            }
            everyones = stat.st_mode & Mode::S_IWOTH.bits() != 0;
        }
        self.node_of(&fd, &stat)
    }

    /// The device node at an absolute path, symbolic links followed as stat(2) does, but not to
    /// above the root.
    pub fn node_behind_links(&self, path: &str) -> Result<Node, NodeError> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let fd = if self.is_laid_out() {
            let root = nix::fcntl::open(&self.root, flags, Mode::empty());
            let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
            openat2(root.map_err(NodeError::Open)?, path, how)
        } else {
            nix::fcntl::open(path, flags, Mode::empty())
        };
        let fd = fd.map_err(NodeError::Open)?;
        let stat = fstat(&fd).map_err(NodeError::Open)?;
        self.node_of(&fd, &stat)
    }

    /// The text of a file of `/proc` or `/sys`, bytes that are no UTF-8 replaced. Each file is read
    /// once, so that whatever is resolved together is so by one state.
    /// Fails: [`FileError`]; `EFBIG` past a mebibyte.
    pub fn text(&self, path: &str) -> Result<String, FileError> {
        if let Some(text) = self.seen.texts.borrow().get(path) {
            return text.clone();
        }
        let text = self.read(path);
        self.seen.texts.borrow_mut().insert(path.to_owned(), text.clone());
        text
    }

    fn read(&self, path: &str) -> Result<String, FileError> {
        let failed = |error: std::io::Error| FileError::new("read", path, &error);
        proc::read_at_most(&self.at(path), FILE_MAX).map_err(failed)
    }

    /// The names in a directory of `/dev`, `/proc` or `/sys`, sorted by their bytes.
    /// Fails: [`FileError`]; `EFBIG` past 65,536 names.
    pub fn names(&self, path: &str) -> Result<Vec<String>, FileError> {
        self.names_within(path, NAMES_MAX)
    }

    /// The same of a directory that may not be there, and then holds nothing.
    /// Fails: also where it has more than `most` names.
    pub(super) fn entries(&self, path: &str, most: usize) -> Result<Vec<String>, DeviceError> {
        match self.names(path).or_else(missing_is(Vec::new))? {
            names if names.len() > most => {
                Err(DeviceError::at(path, format_args!("more than {most} entries")))
            }
            names => Ok(names),
        }
    }

    fn names_within(&self, path: &str, most: usize) -> Result<Vec<String>, FileError> {
        let failed = |error: std::io::Error| FileError::new("list", path, &error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.at(path)).map_err(failed)? {
            if names.len() >= most {
                return Err(failed(Errno::EFBIG.into()));
            }
            let name = entry.map_err(failed)?.file_name();
            // No file of the kernel's has another name, and no specifier could spell it.
            if let Ok(name) = name.into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The last component of what a symbolic link of `/sys` points to, as for a device's driver.
    /// Fails: [`FileError`]; `EINVAL` where it is no link.
    pub fn link_name(&self, path: &str) -> Result<String, FileError> {
        let failed = |error: std::io::Error| FileError::new("read link", path, &error);
        let target = std::fs::read_link(self.at(path)).map_err(failed)?;
        let name = target.file_name().map(|name| name.as_bytes()).unwrap_or_default();
        String::from_utf8(name.to_vec()).map_err(|_| failed(Errno::EILSEQ.into()))
    }

    /// The drivers of `/proc/devices`, read at most once.
    pub fn drivers(&self) -> Result<&ProcDevices, FileError> {
        let read = || self.text("/proc/devices").map(|text| ProcDevices::parse(&text));
        self.seen.drivers.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// Slurm's files, once they were found.
    pub(super) fn slurm(&self) -> &RefCell<Option<Files>> {
        &self.seen.slurm
    }

    /// A text with the paths of this node's files as they are on the node itself.
    pub fn as_on_the_node(&self, text: &str) -> String {
        let Some(root) = self.root.to_str().filter(|_| self.is_laid_out()) else {
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

    fn is_laid_out(&self) -> bool {
        self.root != Path::new("/")
    }

    fn node_of(&self, fd: &OwnedFd, stat: &FileStat) -> Result<Node, NodeError> {
        let format = format_of(stat);
        let kind = match format {
            SFlag::S_IFCHR => DeviceType::Char,
            SFlag::S_IFBLK => DeviceType::Block,
            SFlag::S_IFREG if self.is_laid_out() => return stand_in(fd),
            _ => return Err(NodeError::NoDevice),
        };
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Ok(Node { kind, major: number(major(stat.st_rdev)), minor: number(minor(stat.st_rdev)) })
    }
}

fn format_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn stand_in(fd: &OwnedFd) -> Result<Node, NodeError> {
    use std::os::fd::AsRawFd;
    let mut text = String::new();
    // A descriptor of O_PATH cannot be read; this is how it is opened anew.
    File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .and_then(|file| file.take(STAND_IN_MAX).read_to_string(&mut text))
        .map_err(|_| NodeError::NoDevice)?;
    let parse = |text: &str| {
        let (kind, numbers) = text.split_once(' ')?;
        let kind = match kind {
            "c" => DeviceType::Char,
            "b" => DeviceType::Block,
            _ => return None,
        };
        let (major, minor) = numbers.split_once(':')?;
        Some(Node { kind, major: major.parse().ok()?, minor: minor.parse().ok()? })
    };
    parse(text.trim_end()).ok_or(NodeError::NoDevice)
}

/// Why there is no device node at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    /// It cannot be reached.
    #[error("{}", .0.desc())]
    Open(Errno),
    /// A component is a symbolic link or `..`.
    #[error("there is a symbolic link or .. in the path")]
    Link,
    /// Everyone may write a directory on the way.
    #[error("in a directory that everyone may write")]
    Everyones,
    /// It is something else.
    #[error("not a device")]
    NoDevice,
}

impl NodeError {
    /// Whether there is simply nothing.
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

    /// Whether the file is simply not there.
    pub fn is_missing(&self) -> bool {
        matches!(self.errno, Errno::ENOENT | Errno::ENOTDIR)
    }
}

/// What a file that is not there stands for; any other failure stays one.
pub(super) fn missing_is<T>(
    value: impl FnOnce() -> T,
) -> impl FnOnce(FileError) -> Result<T, FileError> {
    |error| if error.is_missing() { Ok(value()) } else { Err(error) }
}

/// The drivers of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcDevices(Vec<(DeviceType, u32, String)>);

impl ProcDevices {
    /// Reads the text of `/proc/devices`. A line that is not of its form names no driver.
    pub fn parse(text: &str) -> Self {
        let mut section = None;
        let mut drivers = Vec::new();
        for line in text.lines() {
            match line.trim_end() {
                "Character devices:" => section = Some(DeviceType::Char),
                "Block devices:" => section = Some(DeviceType::Block),
                line => {
                    if let (Some(kind), Some((major, name))) = (section, driver(line)) {
                        drivers.push((kind, major, name.to_owned()));
                    }
                }
            }
        }
        Self(drivers)
    }

    /// The majors whose driver has exactly this name; several lines may.
    pub fn majors(&self, kind: DeviceType, name: &str) -> impl Iterator<Item = u32> {
        self.of_kind(kind).filter(move |(_, driver)| *driver == name).map(|(major, _)| major)
    }

    /// The majors of one kind with the names of their drivers. A major may have several, and a
    /// name may have several majors.
    pub fn of_kind(&self, kind: DeviceType) -> impl Iterator<Item = (u32, &str)> {
        let own = self.0.iter().filter(move |(of, _, _)| *of == kind);
        own.map(|(_, major, driver)| (*major, driver.as_str()))
    }

    /// The names of the drivers that have a major; none where it is free, several where they share
    /// its minors.
    pub fn names(&self, kind: DeviceType, major: u32) -> impl Iterator<Item = &str> {
        self.of_kind(kind).filter(move |(number, _)| *number == major).map(|(_, name)| name)
    }
}

/// Blanks, the major in decimal, one blank, the name.
fn driver(line: &str) -> Option<(u32, &str)> {
    let (major, name) = line.trim_start_matches(' ').split_once(' ')?;
    let digits = major.len() <= 4 && major.bytes().all(|byte| byte.is_ascii_digit());
    let major = major.parse().ok().filter(|major| digits && *major <= MAJOR_MAX)?;
    let plain = !name.is_empty() && !name.starts_with(' ') && !name.chars().any(char::is_control);
    plain.then_some((major, name))
}

/// What a name in a directory stands for.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A directory, which has been checked.
    Dir(TrustedDir),
    /// A regular file.
    File,
    /// A character device, as where `/dev/null` is mounted over a file.
    CharDevice,
    /// A symbolic link, a pipe, a socket or a block device.
    Other,
}

/// The names in the directory, sorted, without those that begin with a dot. A name that is no
/// UTF-8 is given with replacement characters, which no name of ours has.
/// Fails: [`Distrust::Open`] where it cannot be listed, [`Distrust::Crowded`] past `limit`
/// names.
pub(crate) fn names(dir: &TrustedDir, limit: usize) -> Result<Vec<String>, TrustError> {
    list(dir, limit, |name| !name.starts_with('.'))
}

/// As [`names`], those that begin with a dot included.
pub(crate) fn all_names(dir: &TrustedDir, limit: usize) -> Result<Vec<String>, TrustError> {
    list(dir, limit, |name| name != "." && name != "..")
}

fn list(
    dir: &TrustedDir,
    limit: usize,
    wanted: fn(&str) -> bool,
) -> Result<Vec<String>, TrustError> {
    let failed = |errno| TrustError::new(dir.path(), Distrust::Open(errno));
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listing = Dir::openat(dir, ".", flags, Mode::empty()).map_err(failed)?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !wanted(&name) {
            continue;
        }
        if names.len() >= limit {
            return Err(TrustError::new(dir.path(), Distrust::Crowded(limit)));
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

/// What the entry of this name is, for a caller to whom a file says all by its name. A
/// directory is checked as [`crate::kernel::trust::Trust::dir`] does; of a file only the type is looked at, since in
/// a directory that has been checked nobody else can have named it.
pub(crate) fn entry(dir: &TrustedDir, name: &Path) -> Result<Entry, TrustError> {
    let stat = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .map_err(|errno| TrustError::new(&dir.path().join(name), Distrust::Open(errno)))?;
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => dir.dir(name).map(Entry::Dir),
        SFlag::S_IFREG => Ok(Entry::File),
        SFlag::S_IFCHR => Ok(Entry::CharDevice),
        _ => Ok(Entry::Other),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Scratch;

    fn tree(scratch: &Scratch) -> Tree {
        Tree::laid_out(scratch.path(), scratch.trust())
    }

    fn char_device(major: u32, minor: u32) -> Node {
        Node { kind: DeviceType::Char, major, minor }
    }

    #[test]
    fn this_node_has_null() {
        let null = Ok(char_device(1, 3));
        assert_eq!(Tree::here().node("/dev/null"), null);
        assert_eq!(Tree::here().node_behind_links("/dev/null"), null);
        assert_eq!(Tree::here().node("/etc/passwd"), Err(NodeError::NoDevice));
        assert_eq!(Tree::here().node("/dev"), Err(NodeError::NoDevice));
    }

    #[test]
    fn on_a_node_that_is_not_laid_out_no_file_stands_for_a_device() {
        for path in ["/etc/hostname", "/etc/passwd"] {
            assert_eq!(Tree::here().node(path), Err(NodeError::NoDevice));
            assert_eq!(Tree::here().node_behind_links(path), Err(NodeError::NoDevice));
        }
        let scratch = Scratch::new();
        let path = scratch.file("nvidia0", "c 195:0");
        assert!(Tree::here().node(path.to_str().unwrap()).is_err());
        assert!(Tree::here().node_behind_links(path.to_str().unwrap()).is_err());
    }

    #[test]
    fn a_file_stands_for_a_node_where_a_node_is_laid_out() {
        let scratch = Scratch::new();
        scratch.file("dev/nvidia0", "c 195:0\n");
        scratch.file("dev/loop1", "b 7:1");
        let (char, block) =
            (tree(&scratch).node("/dev/nvidia0"), tree(&scratch).node("/dev/loop1"));
        assert_eq!(char, Ok(char_device(195, 0)));
        assert_eq!(block, Ok(Node { kind: DeviceType::Block, major: 7, minor: 1 }));
        for text in ["", "c", "c 1", "x 1:2", "c 1:-1", "c 1:2:3", "c  1:2"] {
            scratch.file("dev/odd", text);
            assert_eq!(tree(&scratch).node("/dev/odd"), Err(NodeError::NoDevice), "{text:?}");
        }
    }

    #[test]
    fn links_are_followed_only_where_that_is_asked_for_and_never_out() {
        let scratch = Scratch::new();
        scratch.file("dev/real", "c 1:3");
        symlink("/dev/real", scratch.path().join("dev/link")).unwrap();
        symlink("dev", scratch.path().join("devices")).unwrap();
        symlink("/../../../../../../../etc/passwd", scratch.path().join("dev/out")).unwrap();
        let tree = tree(&scratch);
        assert_eq!(tree.node_behind_links("/dev/link"), Ok(char_device(1, 3)));
        assert_eq!(tree.node("/dev/link"), Err(NodeError::Link));
        assert_eq!(tree.node("/devices/real"), Err(NodeError::Link));
        assert_eq!(tree.node("/dev/../dev/real"), Err(NodeError::Link));
        assert_eq!(tree.node_behind_links("/dev/out"), Err(NodeError::Open(Errno::ENOENT)));
    }

    #[test]
    fn what_anyone_could_have_put_there_is_no_node() {
        let scratch = Scratch::new();
        scratch.file("dev/shm/node", "c 195:0");
        scratch.file("dev/shm/dir/node", "c 195:0");
        scratch.mode("dev/shm", 0o1777);
        for path in ["/dev/shm/node", "/dev/shm/dir/node", "/dev/./shm//node"] {
            assert_eq!(tree(&scratch).node(path), Err(NodeError::Everyones), "{path}");
        }
        assert_eq!(tree(&scratch).node("/dev/shm"), Err(NodeError::NoDevice));
    }

    #[test]
    fn files_are_bounded_and_names_sorted() {
        let scratch = Scratch::new();
        let long = "x".repeat(usize::try_from(FILE_MAX).unwrap() + 1);
        scratch.file("proc/long", &long);
        let error = tree(&scratch).text("/proc/long").unwrap_err();
        assert_eq!(error.to_string(), format!("read /proc/long: {}", Errno::EFBIG.desc()));
        assert!(tree(&scratch).text("/proc/none").unwrap_err().is_missing());
        scratch.file("sys/b", "");
        scratch.file("sys/a", "");
        assert_eq!(tree(&scratch).names("/sys").unwrap(), ["a", "b"]);
        assert!(tree(&scratch).names_within("/sys", 2).is_ok());
        let error = tree(&scratch).names_within("/sys", 1).unwrap_err();
        assert_eq!(error.to_string(), format!("list /sys: {}", Errno::EFBIG.desc()));
    }

    /// One resolution asks for a file again and again, as for the drivers, and has to see one state.
    #[test]
    fn a_file_is_read_once() {
        let scratch = Scratch::new();
        scratch.file("proc/a", "before");
        let tree = tree(&scratch);
        assert!(tree.text("/proc/b").unwrap_err().is_missing());
        assert_eq!(tree.text("/proc/a").unwrap(), "before");
        scratch.file("proc/a", "after");
        scratch.file("proc/b", "after");
        assert_eq!(tree.text("/proc/a").unwrap(), "before");
        assert!(tree.text("/proc/b").unwrap_err().is_missing());
    }

    const TEXT: &str = "Character devices:\n  1 mem\n  5 /dev/tty\n136 pts\n137 pts\n\
                        195 nvidia\n\nBlock devices:\n  7 loop\n259 blkext\n";

    fn majors(text: &str, kind: DeviceType, name: &str) -> Vec<u32> {
        ProcDevices::parse(text).majors(kind, name).collect()
    }

    #[test]
    fn names_are_exact_and_may_have_several_majors() {
        assert_eq!(majors(TEXT, DeviceType::Char, "pts"), [136, 137]);
        assert_eq!(majors(TEXT, DeviceType::Char, "/dev/tty"), [5]);
        assert_eq!(majors(TEXT, DeviceType::Block, "loop"), [7]);
        for name in ["pt", "pts ", "PTS", "*", "nvidia*", "nvidia-frontend", "195", ""] {
            assert!(majors(TEXT, DeviceType::Char, name).is_empty(), "{name:?}");
        }
    }

    #[test]
    fn a_major_leads_back_to_its_names() {
        let drivers = ProcDevices::parse("Character devices:\n 5 /dev/tty\n 5 ptmx\n 7 vcs\n");
        let names = |kind, major| drivers.names(kind, major).collect::<Vec<_>>();
        assert_eq!(names(DeviceType::Char, 5), ["/dev/tty", "ptmx"]);
        assert_eq!(names(DeviceType::Char, 6), [""; 0]);
        assert_eq!(names(DeviceType::Block, 5), [""; 0]);
    }

    #[test]
    fn sections_are_kept_apart() {
        assert!(majors(TEXT, DeviceType::Char, "loop").is_empty());
        assert!(majors(TEXT, DeviceType::Block, "mem").is_empty());
        assert!(majors("  7 loop\n", DeviceType::Block, "loop").is_empty());
    }

    #[test]
    fn a_major_is_told_with_all_its_drivers() {
        let text = "Character devices:\n195 nvidia\n195 nvidiactl\nBlock devices:\n195 other\n";
        let drivers = ProcDevices::parse(text);
        let names = |kind, major| drivers.names(kind, major).collect::<Vec<_>>();
        assert_eq!(names(DeviceType::Char, 195), ["nvidia", "nvidiactl"]);
        assert_eq!(names(DeviceType::Block, 195), ["other"]);
        assert!(names(DeviceType::Char, 19).is_empty());
    }

    #[test]
    fn odd_lines_name_no_driver() {
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
        assert_eq!(names(&dir, 2), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(names(&dir, 1).unwrap_err().cause(), &Distrust::Crowded(1));
        assert_eq!(all_names(&dir, 3).unwrap(), [".hidden", "a", "b"]);
        assert_eq!(all_names(&dir, 2).unwrap_err().cause(), &Distrust::Crowded(2));
    }

    #[test]
    fn entries_are_told_apart_without_opening_them() {
        let scratch = Scratch::new();
        for name in ["d/file", "d/dir/x", "d/open/x"] {
            scratch.file(name, "");
        }
        scratch.mode("d/open", 0o777);
        symlink("file", scratch.path().join("d/link")).unwrap();
        symlink("dir", scratch.path().join("d/linked-dir")).unwrap();
        nix::unistd::mkfifo(&scratch.path().join("d/fifo"), Mode::S_IRUSR).unwrap();
        let dir = scratch.trust().dir(&scratch.path().join("d")).unwrap();
        let entry = |name: &str| super::entry(&dir, Path::new(name));
        assert!(matches!(entry("file"), Ok(Entry::File)));
        assert!(matches!(entry("dir"), Ok(Entry::Dir(below)) if below.path().ends_with("d/dir")));
        for name in ["link", "linked-dir", "fifo"] {
            assert!(matches!(entry(name), Ok(Entry::Other)), "{name}");
        }
        assert_eq!(entry("open").unwrap_err().cause(), &Distrust::Writable(0o777));
        assert!(entry("none").unwrap_err().is_missing());
        let dev = Trust::below(Path::new("/dev"), 0).dir(Path::new("/dev")).unwrap();
        let here = super::entry(&dev, Path::new("null"));
        assert!(matches!(here, Ok(Entry::CharDevice)));
    }
}
