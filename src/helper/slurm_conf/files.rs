//! Finds Slurm's configuration files, checks that root or Slurm's account wrote them, and reads them
//! with the files that they include.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::ConfError;
use super::lines::{ConfLine, ConfPosition, join_lines};
use super::links::resolve_links;
use crate::accounts::find_local_uid;
use crate::node::Tree;
use kernel::trust::{Distrust, Trust, TrustError, TrustedDir};
use nix::errno::Errno;

/// Maximum bytes of a file with all files that it includes. 20,000 nodes with a line of 90 bytes each need 1.8 MB.
const TOTAL_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum lines of a file with all files that it includes.
const LINES_MAX: usize = 65_536;
/// Maximum length of a chain of files that include one another.
const INCLUDE_DEPTH_MAX: usize = 8;
/// Directories of `slurm.conf` in packages and in builds from source.
const CONF_DIRS: [&str; 3] = ["/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc"];
/// Directory on a node that gets its configuration from the controller: slurmd makes `conf` in it a
/// symbolic link to its spool, and sackd, the daemon of nodes without slurmd, a directory.
const CONFIGLESS_DIR: &str = "/run/slurm";
const SLURM_CONF: &str = "slurm.conf";
/// The pid file of slurmd, unless `slurm.conf` names another one.
const SLURMD_PID_FILE: &str = "/run/slurmd.pid";

const TOO_LONG: &str = "more than 65,536 lines or 4 MiB, with what is included";
/// Fault of a line that includes a file whose name is unknown, or at too great a depth.
const INVALID_INCLUDE: &str =
    "Include of a pattern, of %c before ClusterName=, or through more than 8 files";

/// The configuration files of the Slurm that this node runs.
///
/// Each file is read once.
#[derive(Clone, Debug)]
pub struct SlurmConfFiles {
    trust: Trust,
    conf: PathBuf,
    dir: PathBuf,
    /// The directory, once it was opened and checked.
    opened_dir: Rc<OnceCell<Rc<TrustedDir>>>,
    cache: Rc<RefCell<BTreeMap<PathBuf, Lines>>>,
}

/// A search for Slurm's configuration that is made once, at its first use. Clones share the result, so
/// that one login sees one configuration: else one could find the job, and another one its devices.
#[derive(Clone, Debug)]
pub struct SlurmConfSearch {
    tree: Tree,
    configured: Option<PathBuf>,
    found: Rc<OnceCell<SlurmConfFiles>>,
}

impl SlurmConfSearch {
    /// Prepares the search on a node whose site may have `configured` the path of `slurm.conf`.
    pub fn new(tree: Tree, configured: Option<PathBuf>) -> Self {
        Self {
            tree,
            configured,
            found: Rc::default(),
        }
    }

    /// The files of the node.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Finds the configuration, or returns what an earlier call has found.
    ///
    /// # Errors
    ///
    /// As [`SlurmConfFiles::find`]; the next call then searches again.
    pub fn files(&self) -> Result<&SlurmConfFiles, ConfError> {
        if let Some(files) = self.found.get() {
            return Ok(files);
        }
        let files = SlurmConfFiles::find(&self.tree, self.configured.as_deref())?;
        Ok(self.found.get_or_init(|| files))
    }
}

/// The lines of a file and of the files that it includes.
pub type Lines = Rc<[ConfLine]>;

impl SlurmConfFiles {
    /// Finds `slurm.conf` at the `configured` path, or where Slurm itself looks. The other files are
    /// those beside it: Slurm reads no other ones, which could belong to an older set-up.
    ///
    /// # Errors
    ///
    /// [`ConfError::MissingSlurmConf`] if Slurm itself would find none, or the configured path is no UTF-8; whether
    /// the configured file exists shows when it is read. [`ConfError::UnreadableFile`] if a directory is not trusted.
    pub fn find(tree: &Tree, configured: Option<&Path>) -> Result<Self, ConfError> {
        let conf = match configured {
            Some(conf) => tree.locate(conf.to_str().ok_or(ConfError::MissingSlurmConf)?),
            None => search_dir(tree)?.join(SLURM_CONF),
        };
        let dir = conf.parent().ok_or(ConfError::MissingSlurmConf)?.to_owned();
        Ok(Self {
            trust: tree.trust().clone(),
            conf,
            dir,
            opened_dir: Rc::default(),
            cache: Rc::default(),
        })
    }

    /// Reads the lines of `slurm.conf`.
    ///
    /// # Errors
    ///
    /// The errors of [`SlurmConfFiles::read_lines`].
    pub fn read_main_lines(&self) -> Result<Lines, ConfError> {
        self.read(self.conf.clone())
    }

    /// Reads the lines of the file with this name beside `slurm.conf`.
    ///
    /// # Errors
    ///
    /// The file, or one that it includes, is missing, not trusted, too large or malformed.
    pub fn read_lines(&self, name: &str) -> Result<Lines, ConfError> {
        self.read(self.path_of(name))
    }

    /// The path of the file with this name beside `slurm.conf`.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Reads the bytes of a file. If a symbolic link is in its path, it resolves the path in trusted directories and
    /// reads again.
    fn read_bytes(&self, path: &Path) -> Result<Vec<u8>, TrustError> {
        match self.read_without_links(path) {
            Err(error) if may_be_link(&error) => with_slurm_trusted(&self.trust, |trust| {
                trust.read(&resolve_links(trust, path)?, TOTAL_BYTES_MAX)
            }),
            result => result,
        }
    }

    /// Reads the bytes of a file and follows no link.
    fn read_without_links(&self, path: &Path) -> Result<Vec<u8>, TrustError> {
        let is_in_dir = path.parent() == Some(self.dir.as_path());
        if let Some(name) = path.file_name().filter(|_| is_in_dir) {
            match self.open_dir()?.read(Path::new(name), TOTAL_BYTES_MAX) {
                // A directory of root's is opened with root alone trusted, for its files as well. This one may be
                // Slurm's: it is read again by its path, with Slurm's account trusted too.
                Err(error) if matches!(error.cause(), Distrust::WrongOwner(_)) => {}
                result => return result,
            }
        }
        with_slurm_trusted(&self.trust, |trust| trust.read(path, TOTAL_BYTES_MAX))
    }

    /// Opens the directory of `slurm.conf`, where most files are, once.
    fn open_dir(&self) -> Result<Rc<TrustedDir>, TrustError> {
        if let Some(dir) = self.opened_dir.get() {
            return Ok(Rc::clone(dir));
        }
        let dir = with_slurm_trusted(&self.trust, |trust| trust.dir(&self.dir))?;
        Ok(Rc::clone(self.opened_dir.get_or_init(|| Rc::new(dir))))
    }

    /// Reads a file once, with its includes in place.
    fn read(&self, path: PathBuf) -> Result<Lines, ConfError> {
        if let Some(lines) = self.cache.borrow().get(&path) {
            return Ok(Rc::clone(lines));
        }
        // `%c` has a value only behind the file's own `ClusterName=`.
        let mut reader = IncludeReader {
            files: self,
            lines: Vec::new(),
            bytes: 0,
            cluster: None,
        };
        reader.add_file(path.clone(), INCLUDE_DEPTH_MAX)?;
        let lines: Lines = reader.lines.into();
        self.cache.borrow_mut().insert(path, Rc::clone(&lines));
        Ok(lines)
    }
}

/// The lines of a file, in which included files replace the lines that include them.
struct IncludeReader<'a> {
    files: &'a SlurmConfFiles,
    lines: Vec<ConfLine>,
    bytes: u64,
    /// The value of `%c` in file names; `None` before `ClusterName=`.
    cluster: Option<String>,
}

impl IncludeReader<'_> {
    /// Adds the lines of a file. `depth` is how many files a chain of includes may still have, this one included.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is not trusted, the limits are exceeded, or an included file is missing or its name
    /// unknown.
    fn add_file(&mut self, path: PathBuf, depth: usize) -> Result<(), ConfError> {
        let bytes = self
            .files
            .read_bytes(&path)
            .map_err(ConfError::UnreadableFile)?;
        let file: Rc<Path> = path.into();
        let at = |line| ConfPosition {
            file: Rc::clone(&file),
            line,
        };
        self.bytes += bytes.len() as u64;
        if self.bytes > TOTAL_BYTES_MAX {
            return Err(ConfError::InvalidLine(at(1), TOO_LONG.to_owned()));
        }
        for (number, text) in join_lines(&String::from_utf8_lossy(&bytes)) {
            let line = ConfLine {
                at: at(number),
                text,
            };
            if let Some(name) = line.included_name() {
                let included = match self.include_path(name) {
                    Some(included) if depth > 1 => included,
                    _ => return Err(ConfError::InvalidLine(line.at, INVALID_INCLUDE.to_owned())),
                };
                match self.add_file(included, depth - 1) {
                    // Unlike the file itself, an included file must exist.
                    Err(ConfError::UnreadableFile(why)) if why.is_missing() => {
                        return Err(ConfError::InvalidLine(line.at, format!("Include: {why}")));
                    }
                    result => result?,
                }
                continue;
            }
            if self.lines.len() >= LINES_MAX {
                return Err(ConfError::InvalidLine(line.at, TOO_LONG.to_owned()));
            }
            if let Some(Ok(name)) = line.value_of("ClusterName") {
                self.cluster = Some(name.to_ascii_lowercase());
            }
            self.lines.push(line);
        }
        Ok(())
    }

    /// Finds the path of an included file: beside `slurm.conf` unless absolute; `None` if the name is
    /// empty, or has a pattern, a backslash or a `%` whose value is unknown.
    fn include_path(&self, name: &str) -> Option<PathBuf> {
        let name = match &self.cluster {
            Some(cluster) => name.replace("%c", cluster),
            None => name.to_owned(),
        };
        let is_plain = !name.is_empty() && !name.contains(['%', '*', '\\']);
        is_plain.then(|| self.files.dir.join(name))
    }
}

/// Tells whether a file was not opened because of a symbolic link in its path.
fn may_be_link(error: &TrustError) -> bool {
    matches!(error.cause(), Distrust::Open(Errno::ELOOP | Errno::ENOTDIR))
}

/// Finds the directory in which Slurm itself looks for `slurm.conf`: the first of the usual ones that has the file,
/// else that of a node without its own configuration.
fn search_dir(tree: &Tree) -> Result<PathBuf, ConfError> {
    let mut dirs = CONF_DIRS.iter().map(|dir| tree.locate(dir));
    match dirs.find(|dir| exists(&dir.join(SLURM_CONF))) {
        Some(dir) => Ok(dir),
        None => find_configless_dir(tree),
    }
}

/// Finds the directory of the configuration that the node got from the controller: the target of slurmd's link, or the
/// directory of sackd, in [`CONFIGLESS_DIR`].
///
/// # Errors
///
/// [`ConfError::MissingSlurmConf`] if neither is there, or the link is relative, as slurmd never makes it;
/// [`ConfError::UnreadableFile`] if others than root and Slurm's account could have made it.
fn find_configless_dir(tree: &Tree) -> Result<PathBuf, ConfError> {
    let dir = tree.locate(CONFIGLESS_DIR);
    let conf = dir.join("conf");
    if !exists(&conf) {
        return Err(ConfError::MissingSlurmConf);
    }
    // The link is trusted because its directory is; its target is checked when its files are read.
    with_slurm_trusted(tree.trust(), |trust| trust.dir(&dir)).map_err(ConfError::UnreadableFile)?;
    match std::fs::read_link(&conf) {
        Ok(target) => target
            .to_str()
            .filter(|target| target.starts_with('/'))
            .map(|target| tree.locate(target))
            .ok_or(ConfError::MissingSlurmConf),
        // It is no link, but sackd's directory. Any other failure shows when files are read there.
        Err(_) => Ok(conf),
    }
}

/// Names the paths where `slurm.conf` is looked for, unless the configuration has its path.
pub fn list_conf_paths() -> String {
    let mut dirs: Vec<String> = CONF_DIRS.map(String::from).to_vec();
    dirs.push(format!("{CONFIGLESS_DIR}/conf"));
    dirs.join(", ")
}

/// Finds a sign that slurmd runs on this node; `None` also if its files lie elsewhere. The sign is its pid file
/// (slurm.conf(5), `SlurmdPidFile`) or [`CONFIGLESS_DIR`], which is the `RuntimeDirectory` of its unit if systemd starts
/// it without a pid file. With `conf` that directory may be the one of sackd on a login node, and is no sign.
///
/// Only root can write there. It is a clue for refusals, and decides about no job.
pub(crate) fn find_slurmd_sign(tree: &Tree) -> Option<&'static str> {
    if exists(&tree.locate(SLURMD_PID_FILE)) {
        return Some(SLURMD_PID_FILE);
    }
    let dir = tree.locate(CONFIGLESS_DIR);
    (exists(&dir) && !exists(&dir.join("conf"))).then_some(CONFIGLESS_DIR)
}

/// Tells whether something exists at the path, even a link without a target. Any other error than a
/// missing file counts as existence, so that a later read reports it.
fn exists(path: &Path) -> bool {
    let missing = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    path.symlink_metadata()
        .map_or_else(|error| !missing.contains(&error.kind()), |_| true)
}

/// The account that packages of Slurm create. `slurmctld` runs as this account and has jobs started
/// as root, so the account gains nothing from files that it owns on a node.
const SLURM_ACCOUNT: &str = "slurm";

/// Calls `read`; if only the owner of a file is not trusted, and the owner is Slurm's account in
/// `/etc/passwd`, calls it again with that account trusted like root.
///
/// # Errors
///
/// The errors of `read`.
pub fn with_slurm_trusted<T>(
    trust: &Trust,
    read: impl Fn(&Trust) -> Result<T, TrustError>,
) -> Result<T, TrustError> {
    match read(trust) {
        Err(error) => match error.cause() {
            Distrust::WrongOwner(uid) if is_slurm_account(*uid) => {
                read(&trust.clone().or_owned_by(*uid))
            }
            _ => Err(error),
        },
        result => result,
    }
}

/// Tells whether a uid is that of Slurm's account in `/etc/passwd`; `false` if that file cannot be read.
fn is_slurm_account(uid: u32) -> bool {
    find_local_uid(SLURM_ACCOUNT).is_ok_and(|slurm| slurm == Some(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use kernel::trust::Distrust;

    fn read(scratch: &Scratch) -> Result<Vec<String>, ConfError> {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let lines = SlurmConfFiles::find(&tree, None)?.read_main_lines()?;
        let display = |line: &ConfLine| {
            let name = line.at.file.file_name().unwrap().to_str().unwrap();
            format!("{name}:{} {}", line.at.line, line.text)
        };
        Ok(lines.iter().map(display).collect())
    }

    /// Each file is read once per search. Two readings of a file that changes between them could give the job from
    /// the one and its devices from the other.
    #[test]
    fn files_are_found_and_read_once_per_search() {
        let scratch = Scratch::new();
        let path = scratch.file("etc/slurm-llnl/slurm.conf", "A=1\n");
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let search = SlurmConfSearch::new(tree.clone(), None);
        let find = || search.clone().files().unwrap().clone();
        assert_eq!(find().read_main_lines().unwrap().len(), 1);
        scratch.file("etc/slurm/slurm.conf", "A=1\nB=2\n");
        scratch.file("etc/slurm-llnl/slurm.conf", "");
        assert_eq!(find().path_of(SLURM_CONF), path);
        assert_eq!(find().read_main_lines().unwrap().len(), 1);
        assert_eq!(
            read(&scratch).unwrap().len(),
            2,
            "another search begins anew"
        );
        let configured = scratch.file("other/slurm.conf", "A=1\nB=2\nC=3\n");
        let other = Some(Path::new("/other/slurm.conf"));
        assert_eq!(
            SlurmConfFiles::find(&tree, other)
                .unwrap()
                .path_of(SLURM_CONF),
            configured
        );
    }

    /// As in Slurm, the files beside a link count, not those beside its target: the `cgroup.conf` beside the target
    /// could say that Slurm attaches no filter, and logins would not wait for it.
    #[test]
    fn neighbours_of_a_link_lie_beside_the_link() {
        use std::os::unix::fs::symlink;
        let scratch = Scratch::new();
        scratch.file("shared/slurm.conf", "A=1\nInclude more.conf\n");
        scratch.file("shared/cgroup.conf", "ConstrainDevices=no\n");
        scratch.file("etc/slurm/cgroup.conf", "ConstrainDevices=yes\n");
        scratch.file("etc/slurm/more.conf", "B=2\n");
        let link = scratch.path().join("etc/slurm/slurm.conf");
        symlink("../../shared/slurm.conf", &link).unwrap();
        let constrains = || {
            let tree = Tree::with_root(scratch.path(), scratch.trust());
            super::super::read_constrain_devices(&SlurmConfFiles::find(&tree, None)?)
        };
        assert_eq!(
            read(&scratch).unwrap(),
            ["slurm.conf:1 A=1", "more.conf:1 B=2"]
        );
        assert_eq!(constrains(), Ok(true));
        symlink("slurm", scratch.path().join("etc/slurm-link")).unwrap();
        let linked = Some(Path::new("/etc/slurm-link/slurm.conf"));
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let files = SlurmConfFiles::find(&tree, linked).unwrap();
        assert_eq!(
            files.read_main_lines().unwrap().len(),
            2,
            "the directory is a link"
        );
        scratch.mode("shared", 0o777);
        let error = read(&scratch).unwrap_err().to_string();
        assert!(
            error.contains("shared: ") && error.contains("mode 0777"),
            "{error}"
        );
        scratch.mode("shared", 0o755);
        scratch.mode("etc/slurm", 0o777);
        assert!(
            read(&scratch)
                .unwrap_err()
                .to_string()
                .contains("etc/slurm: ")
        );
    }

    #[test]
    fn included_file_replaces_its_line() {
        let scratch = Scratch::new();
        scratch.file(
            "etc/slurm/slurm.conf",
            "A=1\nClusterName=Big\nInclude more\\\n.conf\ninclude\tsub/%c.conf # x\nB=2\n",
        );
        scratch.file("etc/slurm/more.conf", "C=3\n");
        let absolute = scratch.file("etc/other.conf", "# nothing\nD=4\n");
        scratch.file(
            "etc/slurm/sub/big.conf",
            &format!("Include {}", absolute.display()),
        );
        let expected = [
            "slurm.conf:1 A=1",
            "slurm.conf:2 ClusterName=Big",
            "more.conf:1 C=3",
            "other.conf:2 D=4",
            "slurm.conf:6 B=2",
        ];
        assert_eq!(read(&scratch).unwrap(), expected);
    }

    #[test]
    fn include_that_cannot_be_followed_is_an_error() {
        let scratch = Scratch::new();
        for name in ["*.conf", "%c.conf", "slurm.conf"] {
            scratch.file("etc/slurm/slurm.conf", &format!("A=1\nInclude {name}\n"));
            let error = read(&scratch).unwrap_err();
            assert!(
                matches!(&error, ConfError::InvalidLine(at, why) if at.line == 2 && why == INVALID_INCLUDE),
                "{name}: {error}"
            );
        }
        scratch.file("etc/slurm/slurm.conf", "Include gone\n");
        let error = read(&scratch).unwrap_err();
        assert!(error.to_string().contains("etc/slurm/gone: cannot open"));
        assert!(
            !error.is_missing(),
            "counts as a missing slurm.conf: {error}"
        );
        scratch.file("etc/slurm/gone", "");
        scratch.mode("etc/slurm/gone", 0o666);
        let other_error = read(&scratch).unwrap_err();
        assert!(
            matches!(&other_error, ConfError::UnreadableFile(why) if *why.cause() == Distrust::Writable(0o666))
        );
    }

    #[test]
    fn include_depth_is_bounded() {
        let scratch = Scratch::new();
        let included = |depth: usize| {
            scratch.file("etc/slurm/slurm.conf", "Include 2\n");
            for file in 2..depth {
                scratch.file(
                    &format!("etc/slurm/{file}"),
                    &format!("Include {}\n", file + 1),
                );
            }
            scratch.file(&format!("etc/slurm/{depth}"), "A=1\n");
            read(&scratch)
        };
        assert_eq!(included(INCLUDE_DEPTH_MAX).unwrap(), ["8:1 A=1"]);
        let error = included(INCLUDE_DEPTH_MAX + 1).unwrap_err();
        assert!(
            matches!(&error, ConfError::InvalidLine(at, why) if at.line == 1 && why == INVALID_INCLUDE),
            "{error}"
        );
    }

    #[test]
    fn line_for_each_of_20000_nodes_is_read() {
        let scratch = Scratch::new();
        let line = "NodeName=node00000 NodeAddr=10.128.127.255 CPUs=128 RealMemory=512000 Gres=gpu:8 State=UNKNOWN\n";
        scratch.file("etc/slurm/slurm.conf", &line.repeat(20_000));
        assert_eq!(read(&scratch).unwrap().len(), 20_000);
    }

    #[test]
    fn included_files_are_bounded_together() {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", &"A=1\n".repeat(LINES_MAX));
        assert_eq!(read(&scratch).unwrap().len(), LINES_MAX);
        scratch.file("etc/slurm/more", "A=1\n");
        let text = format!("{}Include more\n", "A=1\n".repeat(LINES_MAX));
        scratch.file("etc/slurm/slurm.conf", &text);
        assert!(
            read(&scratch)
                .unwrap_err()
                .to_string()
                .ends_with(&format!(":1: {TOO_LONG}"))
        );
        scratch.file("etc/slurm/more", &"#".repeat(1024 * 1024 - 1));
        scratch.file("etc/slurm/slurm.conf", &"Include more\n".repeat(5));
        assert!(
            read(&scratch)
                .unwrap_err()
                .to_string()
                .ends_with(&format!(":1: {TOO_LONG}"))
        );
    }

    #[test]
    fn slurm_account_is_trusted_and_no_other() {
        let Ok(Some(slurm)) = find_local_uid(SLURM_ACCOUNT) else {
            return crate::testing::skip("needs the account slurm");
        };
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        let scratch = Scratch::new();
        let path = scratch.file("etc/slurm.conf", "x");
        let read = || with_slurm_trusted(&scratch.trust(), |trust| trust.read(&path, 9));
        let give = |uid| std::os::unix::fs::chown(scratch.path().join("etc"), Some(uid), None);
        give(slurm).unwrap();
        assert_eq!(read(), Ok(b"x".to_vec()));
        scratch.mode("etc", 0o775);
        assert!(matches!(read().unwrap_err().cause(), Distrust::Writable(_)));
        scratch.mode("etc", 0o755);
        give(slurm + 1).unwrap();
        assert!(matches!(
            read().unwrap_err().cause(),
            Distrust::WrongOwner(_)
        ));
    }
}
