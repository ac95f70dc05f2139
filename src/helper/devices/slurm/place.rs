//! Where Slurm's configuration files lie, who is believed to have written them, and what they say
//! with what they include.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::ConfError;
use super::lines::{At, Text, joined};
use crate::helper::devices::{Settings, Tree};
use crate::helper::local_uid;
use crate::kernel::trust::{Distrust, Trust, TrustError};

const FILE_MAX: u64 = 1024 * 1024;
/// Most bytes of a file with all that it includes.
const WHOLE_MAX: u64 = 4 * 1024 * 1024;
/// Most lines of a file with all that it includes.
const LINES_MAX: usize = 65_536;
/// Most files that include one another.
const DEPTH_MAX: usize = 8;
/// Where packages and builds from source have `slurm.conf`.
const PLACES: [&str; 3] = ["/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc"];
/// Where a node that gets its configuration from the controller has it: `conf` is a symbolic link
/// of slurmd's to its spool.
const CONFIGLESS: &str = "/run/slurm";
const NAME: &str = "slurm.conf";

const TOO_LONG: &str = "more than 65,536 lines or 4 MiB, with what is included";
/// A line takes in a file whose name cannot be told, or in too many steps.
const NO_INCLUDE: &str =
    "Include of a pattern, of %c before ClusterName=, or through more than 8 files";

/// The configuration of the Slurm that this node runs.
///
/// It is found once for each [`Tree`], and each of its files is read once.
#[derive(Clone, Debug)]
pub struct Files {
    trust: Trust,
    /// Where the site says that it lies.
    given: Option<PathBuf>,
    conf: PathBuf,
    dir: PathBuf,
    read: Rc<RefCell<BTreeMap<PathBuf, Texts>>>,
}

/// The lines of a file and of what it includes.
pub type Texts = Rc<[Text]>;

impl Files {
    /// Finds `slurm.conf`, where the site says or Slurm would look. Slurm reads no other file than
    /// those beside it, since any other would be of an older set-up.
    /// Fails: [`ConfError::NoConf`], and [`ConfError::File`] for a directory that is not believed.
    pub fn find(tree: &Tree, settings: &Settings) -> Result<Self, ConfError> {
        let known = tree.slurm_conf_cache().borrow().clone();
        if let Some(files) = known.filter(|files| files.given == settings.slurm_conf) {
            return Ok(files);
        }
        let files = Self::look(tree, settings)?;
        *tree.slurm_conf_cache().borrow_mut() = Some(files.clone());
        Ok(files)
    }

    fn look(tree: &Tree, settings: &Settings) -> Result<Self, ConfError> {
        let conf = match &settings.slurm_conf {
            Some(conf) => tree.locate(conf.to_str().ok_or(ConfError::NoConf)?),
            None => {
                let mut dirs = PLACES.iter().map(|place| tree.locate(place));
                match dirs.find(|dir| is_there(&dir.join(NAME))) {
                    Some(dir) => dir.join(NAME),
                    None => configless(tree)?.join(NAME),
                }
            }
        };
        let dir = conf.parent().ok_or(ConfError::NoConf)?.to_owned();
        let (trust, given) = (tree.trust().clone(), settings.slurm_conf.clone());
        Ok(Self { trust, given, conf, dir, read: Rc::default() })
    }

    /// The lines of `slurm.conf`.
    pub fn slurm_conf(&self) -> Result<Texts, ConfError> {
        self.read(self.conf.clone())
    }

    /// The lines of the file of this name beside `slurm.conf`.
    /// Fails: [`ConfError`] where it or a file that it includes is missing, not believed, or too
    /// large.
    pub fn lines(&self, name: &str) -> Result<Texts, ConfError> {
        self.read(self.path(name))
    }

    /// Where the file of this name lies.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&self, path: PathBuf) -> Result<Texts, ConfError> {
        if let Some(texts) = self.read.borrow().get(&path) {
            return Ok(Rc::clone(texts));
        }
        let mut whole = Whole { files: self, texts: Vec::new(), bytes: 0, cluster: None };
        whole.take(path.clone(), DEPTH_MAX)?;
        let texts: Texts = whole.texts.into();
        self.read.borrow_mut().insert(path, Rc::clone(&texts));
        Ok(texts)
    }
}

/// A file with those that it includes in the place of the lines that say so.
struct Whole<'a> {
    files: &'a Files,
    texts: Vec<Text>,
    bytes: u64,
    /// What `%c` stands for in the name of a file.
    cluster: Option<String>,
}

impl Whole<'_> {
    fn take(&mut self, path: PathBuf, depth: usize) -> Result<(), ConfError> {
        let trust = &self.files.trust;
        let bytes =
            believed(trust, |trust| trust.read(&path, FILE_MAX)).map_err(ConfError::File)?;
        let file: Rc<Path> = path.into();
        let at = |line| At { file: Rc::clone(&file), line };
        self.bytes += bytes.len() as u64;
        if self.bytes > WHOLE_MAX {
            return Err(ConfError::Line(at(1), TOO_LONG.to_owned()));
        }
        for (line, text) in joined(&String::from_utf8_lossy(&bytes)) {
            let text = Text { at: at(line), text };
            if let Some(name) = text.includes() {
                let path = self.included(name).filter(|_| depth > 1);
                let fault = |fault| ConfError::Line(text.at.clone(), fault);
                let path = path.ok_or_else(|| fault(NO_INCLUDE.to_owned()))?;
                self.take(path, depth - 1).map_err(|error| match error {
                    // Other than the file itself, it is meant to be there.
                    ConfError::File(why) if why.is_missing() => fault(format!("Include: {why}")),
                    error => error,
                })?;
                continue;
            }
            if self.texts.len() >= LINES_MAX {
                return Err(ConfError::Line(text.at, TOO_LONG.to_owned()));
            }
            if let Some(Ok(name)) = text.setting("ClusterName") {
                self.cluster = Some(name.to_ascii_lowercase());
            }
            self.texts.push(text);
        }
        Ok(())
    }

    /// The path of an included file: beside `slurm.conf` unless absolute; `None` where it cannot be
    /// told.
    fn included(&self, name: &str) -> Option<PathBuf> {
        let name = match &self.cluster {
            Some(cluster) => name.replace("%c", cluster),
            None => name.to_owned(),
        };
        let plain = !name.is_empty() && !name.contains(['%', '*', '\\']);
        plain.then(|| self.files.dir.join(name))
    }
}

fn configless(tree: &Tree) -> Result<PathBuf, ConfError> {
    let dir = tree.locate(CONFIGLESS);
    let conf = dir.join("conf");
    if !is_there(&conf) {
        return Err(ConfError::NoConf);
    }
    // The link is believed as what lies in this directory, and what it leads to as every file.
    believed(tree.trust(), |trust| trust.dir(&dir)).map_err(ConfError::File)?;
    match std::fs::read_link(&conf) {
        Ok(target) => target
            .to_str()
            .filter(|target| target.starts_with('/'))
            .map(|target| tree.locate(target))
            .ok_or(ConfError::NoConf),
        Err(_) => Ok(conf),
    }
}

fn is_there(path: &Path) -> bool {
    let missing = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    path.symlink_metadata().map_or_else(|error| !missing.contains(&error.kind()), |_| true)
}

/// The account that packages of Slurm make. `slurmctld` runs as it and has jobs started as root, so
/// that it gains nothing by what it owns on a node.
const ACCOUNT: &str = "slurm";

/// What `read` believes, and where an owner alone speaks against it, what it believes with Slurm's
/// account taken for root, as `/etc/passwd` has it.
/// Fails: those of `read`.
pub fn believed<T>(
    trust: &Trust,
    read: impl Fn(&Trust) -> Result<T, TrustError>,
) -> Result<T, TrustError> {
    let error = match read(trust) {
        Err(error) => error,
        good => return good,
    };
    match error.cause() {
        Distrust::Owner(uid) if is_slurms(*uid) => read(&trust.clone().or_owned_by(*uid)),
        _ => Err(error),
    }
}

fn is_slurms(uid: u32) -> bool {
    local_uid(ACCOUNT).is_ok_and(|slurm| slurm == Some(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::trust::Distrust;
    use crate::testing::Scratch;

    fn read(scratch: &Scratch) -> Result<Vec<String>, ConfError> {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let texts = Files::find(&tree, &Settings::default())?.slurm_conf()?;
        let shown = |text: &Text| {
            let name = text.at.file.file_name().unwrap().to_str().unwrap();
            format!("{name}:{} {}", text.at.line, text.text)
        };
        Ok(texts.iter().map(shown).collect())
    }

    /// Else the job could be found by one configuration and its devices by another.
    #[test]
    fn what_was_found_and_read_stays_for_one_tree() {
        let scratch = Scratch::new();
        let path = scratch.file("etc/slurm-llnl/slurm.conf", "A=1\n");
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let find = || Files::find(&tree.clone(), &Settings::default()).unwrap();
        assert_eq!(find().slurm_conf().unwrap().len(), 1);
        scratch.file("etc/slurm/slurm.conf", "A=1\nB=2\n");
        scratch.file("etc/slurm-llnl/slurm.conf", "");
        assert_eq!(find().path(NAME), path);
        assert_eq!(find().slurm_conf().unwrap().len(), 1);
        assert_eq!(read(&scratch).unwrap().len(), 2, "another tree looks anew");
        let given = scratch.file("other/slurm.conf", "A=1\nB=2\nC=3\n");
        let settings =
            Settings { slurm_conf: Some("/other/slurm.conf".into()), ..Settings::default() };
        assert_eq!(Files::find(&tree, &settings).unwrap().path(NAME), given);
    }

    #[test]
    fn what_is_included_stands_in_the_place_of_its_line() {
        let scratch = Scratch::new();
        scratch.file(
            "etc/slurm/slurm.conf",
            "A=1\nClusterName=Big\nInclude more\\\n.conf\ninclude\tsub/%c.conf # x\nB=2\n",
        );
        scratch.file("etc/slurm/more.conf", "C=3\n");
        let absolute = scratch.file("etc/other.conf", "# nothing\nD=4\n");
        scratch.file("etc/slurm/sub/big.conf", &format!("Include {}", absolute.display()));
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
    fn an_include_that_cannot_be_followed_is_a_fault() {
        let scratch = Scratch::new();
        for name in ["*.conf", "%c.conf", "slurm.conf", "a\\b"] {
            scratch.file("etc/slurm/slurm.conf", &format!("A=1\nInclude {name}\n"));
            let error = read(&scratch).unwrap_err();
            assert!(
                matches!(&error, ConfError::Line(at, why) if at.line == 2 && why == NO_INCLUDE),
                "{name}: {error}"
            );
        }
        scratch.file("etc/slurm/slurm.conf", "Include gone\n");
        let error = read(&scratch).unwrap_err();
        assert!(error.to_string().contains("etc/slurm/gone: cannot open"));
        assert!(!error.is_missing(), "as if there were no slurm.conf: {error}");
        scratch.file("etc/slurm/gone", "");
        scratch.mode("etc/slurm/gone", 0o666);
        let error = read(&scratch).unwrap_err();
        assert!(
            matches!(&error, ConfError::File(why) if *why.cause() == Distrust::Writable(0o666))
        );
    }

    #[test]
    fn files_include_one_another_so_deep_and_no_deeper() {
        let scratch = Scratch::new();
        let included = |depth: usize| {
            scratch.file("etc/slurm/slurm.conf", "Include 2\n");
            for file in 2..depth {
                scratch.file(&format!("etc/slurm/{file}"), &format!("Include {}\n", file + 1));
            }
            scratch.file(&format!("etc/slurm/{depth}"), "A=1\n");
            read(&scratch)
        };
        assert_eq!(included(DEPTH_MAX).unwrap(), ["8:1 A=1"]);
        let error = included(DEPTH_MAX + 1).unwrap_err();
        assert!(
            matches!(&error, ConfError::Line(at, why) if at.line == 1 && why == NO_INCLUDE),
            "{error}"
        );
    }

    #[test]
    fn many_small_files_are_bounded_as_one_large_one() {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", &"A=1\n".repeat(LINES_MAX));
        assert_eq!(read(&scratch).unwrap().len(), LINES_MAX);
        scratch.file("etc/slurm/more", "A=1\n");
        let text = format!("{}Include more\n", "A=1\n".repeat(LINES_MAX));
        scratch.file("etc/slurm/slurm.conf", &text);
        assert!(read(&scratch).unwrap_err().to_string().ends_with(&format!(":1: {TOO_LONG}")));
        scratch.file("etc/slurm/more", &"#".repeat(1024 * 1024 - 1));
        scratch.file("etc/slurm/slurm.conf", &"Include more\n".repeat(5));
        assert!(read(&scratch).unwrap_err().to_string().ends_with(&format!(":1: {TOO_LONG}")));
    }

    #[test]
    fn slurms_account_is_believed_and_no_other() {
        let Ok(Some(slurm)) = local_uid(ACCOUNT) else {
            println!("no account {ACCOUNT}: skipped");
            return;
        };
        if !nix::unistd::Uid::effective().is_root() {
            println!("not root: skipped");
            return;
        }
        let scratch = Scratch::new();
        let path = scratch.file("etc/slurm.conf", "x");
        let read = || believed(&scratch.trust(), |trust| trust.read(&path, 9));
        let give = |uid| std::os::unix::fs::chown(scratch.path().join("etc"), Some(uid), None);
        give(slurm).unwrap();
        assert_eq!(read(), Ok(b"x".to_vec()));
        scratch.mode("etc", 0o775);
        assert!(matches!(read().unwrap_err().cause(), Distrust::Writable(_)));
        scratch.mode("etc", 0o755);
        give(slurm + 1).unwrap();
        assert!(matches!(read().unwrap_err().cause(), Distrust::Owner(_)));
    }
}
