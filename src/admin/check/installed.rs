//! Checks that the installation is complete and from one source: one package, or by hand.

use super::finding::{Check, Finding};
use super::remedy::{Remedy, run, shell_path};
use super::site::Site;
use super::trusted_file::require_trusted;
use crate::child_process::{QueryError, query_in_clean_environment, run_in_child};
use crate::sys::process::load_shared_object;
use std::ffi::{CString, OsStr};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Suffixes of new files that have not yet replaced the old ones, as make, dpkg and rpm write them.
const UNFINISHED_SUFFIXES: [&str; 4] = [".new", ".dpkg-new", ".dpkg-tmp", ";"];

/// Folders of documentation, which many images leave out (`path-exclude` of dpkg).
const DOCUMENTATION_DIRS: [&str; 5] = [
    "/usr/share/doc/",
    "/usr/share/man/",
    "/usr/share/lintian/",
    "/usr/share/locale/",
    "/usr/share/info/",
];

/// A package manager, with the command lines that query it.
#[derive(Debug)]
struct PackageManager {
    /// Our packages; the first one has the module.
    names: [&'static str; 2],
    /// Prints the state, name and version of each.
    list: &'static [&'static str],
    /// Prints the files of the first.
    files: &'static [&'static str],
    /// Prints the files that differ from the package.
    verify: &'static [&'static str],
    /// The commands that complete an interrupted upgrade.
    completion: &'static str,
    /// The command that installs both packages again.
    reinstall: &'static str,
}

static PACKAGE_MANAGERS: [PackageManager; 2] = [
    PackageManager {
        names: ["libpam-job-adopt", "job-adopt"],
        list: &[
            "dpkg-query",
            "--show",
            "--showformat=${db:Status-Status} ${Package} ${Version}\n",
        ],
        files: &["dpkg-query", "--listfiles"],
        verify: &["dpkg", "--verify"],
        completion: "dpkg --configure --pending && apt-get --fix-broken install",
        reinstall: "apt-get install --reinstall libpam-job-adopt job-adopt",
    },
    PackageManager {
        names: ["pam_job_adopt", "job-adopt"],
        list: &[
            "rpm",
            "--query",
            "--queryformat=installed %{NAME} %{VERSION}\n",
        ],
        files: &["rpm", "--query", "--list"],
        verify: &["rpm", "--verify", "--nodeps"],
        completion: "dnf reinstall job-adopt pam_job_adopt",
        reinstall: "dnf reinstall job-adopt pam_job_adopt",
    },
];

/// What was found out about an installation.
#[derive(Debug)]
pub(super) struct InstalledFacts {
    /// The module, without links.
    module: PathBuf,
    /// Files beside the programs that an interrupted upgrade has left.
    leftovers: Vec<PathBuf>,
    /// `None` for a module that root must not load, since another user may have written it, and in the folder
    /// of a test.
    loading: Option<Loading>,
    /// `None` in the folder of a test.
    origin: Option<Origin>,
}

/// The result of loading the module as libpam would.
#[derive(Debug)]
enum Loading {
    Done,
    Failed(String),
    /// No child process could load it, or the cause of its failure was lost.
    Unknown,
}

/// Where the module comes from.
#[derive(Debug)]
enum Origin {
    ByHand,
    Packages(Packages),
}

/// Our packages, one or both of which are installed.
#[derive(Debug)]
struct Packages {
    manager: &'static PackageManager,
    states: Vec<PackageState>,
    /// Files that differ from their package.
    damage: Vec<DamagedFile>,
    /// The first package has the module.
    have_module: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct DamagedFile {
    path: String,
    /// As the package manager shows it.
    line: String,
}

#[derive(Debug, PartialEq, Eq)]
struct PackageState {
    is_installed: bool,
    version: String,
    /// As the package manager shows it.
    line: String,
}

impl InstalledFacts {
    /// Reads the installation of the module, whose file exists, and of the programs that it runs.
    pub(super) fn read(site: &Site, module: &Path, helper: &Path) -> Self {
        let keeper = helper.with_file_name("keeper");
        let command = site.at("/usr/bin/job-adopt");
        let programs = [module, helper, &keeper, &command];
        let is_trusted = require_trusted(&site.trust, module).is_ok();
        Self {
            module: module.to_owned(),
            leftovers: programs.into_iter().flat_map(find_unfinished).collect(),
            loading: (site.is_here() && is_trusted).then(|| Loading::run(module)),
            origin: site.is_here().then(|| Origin::read(module)),
        }
    }

    /// The command that installs both packages again; `None` if the module is of none.
    pub(super) fn reinstall(&self) -> Option<&'static str> {
        match &self.origin {
            Some(Origin::Packages(packages)) if packages.have_module => {
                Some(packages.manager.reinstall)
            }
            _ => None,
        }
    }

    /// Judges what an upgrade has left, whether the module can be loaded, and where it comes from.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .leftovers
            .iter()
            .map(|path| judge_leftover(path))
            .collect();
        findings.extend(
            self.loading
                .as_ref()
                .map(|loading| loading.finding(&self.module, self.reinstall())),
        );
        match &self.origin {
            Some(Origin::Packages(packages)) => findings.extend(packages.findings(&self.module)),
            Some(Origin::ByHand) => {
                let text = "was installed by hand: it belongs to no package";
                findings.push(Finding::fine(Check::Installed, self.module.display(), text));
            }
            None => {}
        }
        findings
    }
}

/// The command that installs the packages of this node again, also without a module; `None` without packages, and in the
/// folder of a test.
pub(super) fn find_reinstall(site: &Site) -> Option<&'static str> {
    if !site.is_here() {
        return None;
    }
    PACKAGE_MANAGERS
        .iter()
        .find(|manager| !manager.list_states().is_empty())
        .map(|manager| manager.reinstall)
}

/// The remedy for a module without which libpam refuses every login: `reinstall`, if there are packages, or else
/// `advice`. What opens the node instead is only for a person.
pub(super) fn bring_back(reinstall: Option<&str>, advice: &str) -> Remedy {
    let opening =
        "if root must log in before, job-adopt disable takes our lines out: then everybody gets in";
    match reinstall {
        Some(command) => run(command).and(opening),
        None => format!("{advice}; {opening}").into(),
    }
}

/// Reports a file that an interrupted upgrade has left.
fn judge_leftover(path: &Path) -> Finding {
    let text = "is left over from an interrupted upgrade";
    let remedy = run(format!("rm {}", shell_path(path))).and("and install both packages again");
    Finding::warning(Check::Upgrade, path.display(), text, remedy)
}

impl Origin {
    fn read(module: &Path) -> Self {
        let packages = PACKAGE_MANAGERS
            .iter()
            .find_map(|manager| Packages::read(manager, module));
        packages.map_or(Self::ByHand, Self::Packages)
    }
}

impl PackageManager {
    /// Lists which of our packages are installed, and how far.
    fn list_states(&self) -> Vec<PackageState> {
        read_output(self.list, &self.names)
            .lines()
            .filter_map(|line| parse_state(line, &self.names))
            .collect()
    }
}

impl Packages {
    /// Queries a package manager; `None` if neither package is installed.
    fn read(manager: &'static PackageManager, module: &Path) -> Option<Self> {
        let states = manager.list_states();
        if states.is_empty() {
            return None;
        }
        let [package, _] = manager.names;
        let files = read_output(manager.files, &[package]);
        // Without links, like `module`.
        let mut paths = files
            .lines()
            .filter_map(|line| Path::new(line).canonicalize().ok());
        let verified = read_output(manager.verify, &manager.names);
        let damage = verified
            .lines()
            .filter_map(|line| {
                parse_damage(line, |path| Path::new(path).symlink_metadata().is_ok())
            })
            .collect();
        Some(Self {
            manager,
            states,
            damage,
            have_module: paths.any(|path| path == module),
        })
    }

    /// Judges whether both packages are complete and unchanged, and whether the module is one of their files.
    fn findings(&self, module: &Path) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.are_complete() {
            let shown: Vec<&str> = self
                .states
                .iter()
                .map(|state| state.line.as_str())
                .collect();
            let object = self.manager.names.join(" and ");
            let text = format!(
                "are not both installed, in the same version: {}",
                shown.join(", ")
            );
            findings.push(Finding::error(
                Check::Upgrade,
                object,
                text,
                run(self.manager.completion),
            ));
        }
        for DamagedFile { path, line } in &self.damage {
            let text = format!("differs from the file of the package ({line})");
            findings.push(Finding::warning(
                Check::Installed,
                path,
                text,
                run(self.manager.reinstall),
            ));
        }
        findings.push(self.judge_module(module));
        findings
    }

    /// Checks whether both packages are installed, in one version.
    fn are_complete(&self) -> bool {
        match self.states.as_slice() {
            [first, second] => {
                first.is_installed && second.is_installed && first.version == second.version
            }
            _ => false,
        }
    }

    /// Judges whether the module belongs to the package that has one: otherwise two modules are installed.
    fn judge_module(&self, module: &Path) -> Finding {
        let [package, _] = self.manager.names;
        if self.have_module {
            let text = format!("belongs to the package {package}");
            return Finding::fine(Check::Installed, module.display(), text);
        }
        let text = format!(
            "was installed by hand, but the package {package} is installed too, perhaps in another \
             version"
        );
        let remedy = "make uninstall, or remove both packages";
        Finding::warning(Check::Installed, module.display(), text, remedy)
    }
}

/// Parses the state, name and version of one of these packages; `None` for a package that is gone, and for any
/// other line, such as an error of rpm about a package that is not installed.
fn parse_state(line: &str, names: &[&str]) -> Option<PackageState> {
    let [state, name, version] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    if !names.contains(&name) || ["not-installed", "config-files"].contains(&state) {
        return None;
    }
    Some(PackageState {
        is_installed: state == "installed",
        version: version.to_owned(),
        line: line.to_owned(),
    })
}

/// Parses a line of `dpkg --verify` or `rpm --verify` about a file that is not as its package has it.
/// It is `None` for changed configuration, which the line marks with a "c", and for missing documentation.
/// `exists` tells whether a file is missing: dpkg before 1.21 (Debian 11) reports a missing one as changed.
fn parse_damage(line: &str, exists: impl Fn(&str) -> bool) -> Option<DamagedFile> {
    let path = &line[line.find(" /")? + 1..];
    let is_documentation = DOCUMENTATION_DIRS.iter().any(|dir| path.starts_with(dir));
    let is_left_out = is_documentation && !exists(path);
    if line.contains(" c ") || is_left_out {
        return None;
    }
    Some(DamagedFile {
        path: path.to_owned(),
        line: line.to_owned(),
    })
}

/// Runs a package manager and returns its output, whatever its exit status; empty if it cannot be run.
fn read_output(command: &[&str], names: &[&str]) -> String {
    let Some((program, arguments)) = command.split_first() else {
        return String::new();
    };
    match query_in_clean_environment(Command::new(program).args(arguments).args(names)) {
        Ok(output) | Err(QueryError::Failed { output, .. }) => output,
        Err(QueryError::Unanswered(_)) => String::new(),
    }
}

/// Lists the files beside `path` that an interrupted upgrade has left; none if the folder cannot be listed.
fn find_unfinished(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let beside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    beside
        .filter(|entry| is_unfinished(&entry.file_name(), name))
        .map(|entry| entry.path())
        .collect()
}

/// Checks whether a file's name is that of a new file for `name`.
fn is_unfinished(file: &OsStr, name: &OsStr) -> bool {
    let Some(end) = file.as_bytes().strip_prefix(name.as_bytes()) else {
        return false;
    };
    UNFINISHED_SUFFIXES
        .iter()
        .any(|suffix| end.starts_with(suffix.as_bytes()))
}

impl Loading {
    /// Loads the module in a child, as libpam would.
    fn run(module: &Path) -> Self {
        load_in_child(module).unwrap_or(Self::Unknown)
    }

    /// Judges whether the module can be loaded: one for another C library or architecture refuses
    /// every login. `reinstall` is the command that installs it again, if there is one.
    fn finding(&self, module: &Path, reinstall: Option<&str>) -> Finding {
        let object = module.display();
        match self {
            Self::Done => Finding::fine(Check::ModuleLoaded, object, "can be loaded"),
            Self::Failed(why) => {
                let text =
                    format!("cannot be loaded, so every login is refused, root's too: {why}");
                let remedy = bring_back(
                    reinstall,
                    "install the module for this system's C library again",
                );
                Finding::error(Check::ModuleLoaded, object, text, remedy)
            }
            Self::Unknown => {
                let text = "could not be tried: no child process could load it";
                Finding::unknown(Check::ModuleLoaded, object, text, run("job-adopt check"))
            }
        }
    }
}

/// Loads a shared object in a child, so that its code does not run in this process. The child writes the cause
/// of a failure into a socket. This function itself fails if there can be no child or no socket, and if the child takes
/// too long.
fn load_in_child(module: &Path) -> io::Result<Loading> {
    const LOADED: i32 = 0;
    const NOT_LOADED: i32 = 1;
    const CAUSE_LOST: i32 = 2;
    let path = CString::new(module.as_os_str().as_bytes())?;
    let (mut read, mut write) = UnixStream::pair()?;
    let result = run_in_child(|| match load_shared_object(&path) {
        Ok(()) => LOADED,
        Err(why) => match write.write_all(why.as_bytes()) {
            Ok(()) => NOT_LOADED,
            Err(_) => CAUSE_LOST,
        },
    });
    let status = match result {
        // A signal ended it: a file that is cut off crashes whoever loads it.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Ok(Loading::Failed("it crashes the process".to_owned()));
        }
        result => result?,
    };
    drop(write);
    let mut why = String::new();
    read.read_to_string(&mut why)?;
    Ok(match status {
        LOADED => Loading::Done,
        NOT_LOADED => Loading::Failed(why),
        _ => Loading::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Severity;

    #[test]
    fn missing_documentation_and_changed_configuration_are_no_damage() {
        for (line, path) in [
            ("??5?????? /usr/bin/job-adopt", Some("/usr/bin/job-adopt")),
            (
                "missing     /usr/share/job-adopt/slurm/prolog.sh",
                Some("/usr/share/job-adopt/slurm/prolog.sh"),
            ),
            (
                "??5?????? /usr/share/doc/job-adopt/changelog.gz",
                Some("/usr/share/doc/job-adopt/changelog.gz"),
            ),
            ("missing     /usr/share/doc/job-adopt/copyright", None),
            ("??5?????? /usr/share/doc/job-adopt/copyright", None),
            ("missing   d /usr/share/man/man1/job-adopt.1.gz", None),
            ("missing     /usr/share/lintian/overrides/job-adopt", None),
            ("??5?????? c /etc/security/job_adopt.conf", None),
            (
                "Unsatisfied dependencies for job-adopt-0.1.0-1.x86_64:",
                None,
            ),
        ] {
            let damage = parse_damage(line, |file| file.ends_with("/changelog.gz"));
            let expected = path.map(|path| DamagedFile {
                path: path.to_owned(),
                line: line.to_owned(),
            });
            assert_eq!(damage, expected);
        }
    }

    fn packages(lines: &[&str]) -> Packages {
        let [manager, _] = &PACKAGE_MANAGERS;
        let states = lines
            .iter()
            .filter_map(|line| parse_state(line, &manager.names))
            .collect();
        Packages {
            manager,
            states,
            damage: Vec::new(),
            have_module: true,
        }
    }

    #[test]
    fn packages_must_both_be_installed_in_one_version() {
        for (lines, are_complete) in [
            (
                &["installed libpam-job-adopt 1", "installed job-adopt 1"][..],
                true,
            ),
            (
                &["installed libpam-job-adopt 1", "installed job-adopt 2"],
                false,
            ),
            (
                &["installed libpam-job-adopt 1", "unpacked job-adopt 1"],
                false,
            ),
            (
                &["installed libpam-job-adopt 1", "config-files job-adopt 1"],
                false,
            ),
            (
                &["installed libpam-job-adopt 1", "installed other 1"],
                false,
            ),
        ] {
            let findings = packages(lines).findings(Path::new("/m.so"));
            assert_eq!(findings.len() == 1, are_complete, "{findings:?}");
            assert_eq!(
                findings[0].check == Check::Upgrade,
                !are_complete,
                "{findings:?}"
            );
        }
    }

    #[test]
    fn damaged_file_and_module_of_no_package_are_warnings() {
        let good = packages(&["installed libpam-job-adopt 1", "installed job-adopt 1"]);
        let damage = vec![DamagedFile {
            path: "/usr/bin/job-adopt".to_owned(),
            line: "??5 /usr/bin/job-adopt".to_owned(),
        }];
        let findings = Packages {
            damage,
            have_module: false,
            ..good
        }
        .findings(Path::new("/m.so"));
        let [file, module] = findings.as_slice() else {
            panic!("{findings:?}")
        };
        assert_eq!(file.object, "/usr/bin/job-adopt");
        assert!(
            file.remedy
                .command
                .starts_with("apt-get install --reinstall"),
            "{file:?}"
        );
        assert_eq!(module.object, "/m.so");
        assert!(
            [file, module]
                .iter()
                .all(|finding| finding.severity == Severity::Warning)
        );
    }

    #[test]
    fn module_that_cannot_be_loaded_is_an_error() {
        let module = Path::new("/m.so");
        let finding = |loading: Loading| loading.finding(module, None);
        assert_eq!(finding(Loading::Done).severity, Severity::Fine);
        assert_eq!(finding(Loading::Unknown).severity, Severity::Unknown);
        let failed = finding(Loading::Failed("GLIBC_9.1 not found".to_owned()));
        assert_eq!(failed.severity, Severity::Error);
        assert!(failed.text.ends_with("GLIBC_9.1 not found"), "{failed:?}");
    }

    /// `disable` lets everybody in.
    #[test]
    fn module_comes_back_by_its_package_and_not_by_opening_the_node() {
        let module = Path::new("/m.so");
        let remedy = |reinstall| {
            Loading::Failed(String::new())
                .finding(module, reinstall)
                .remedy
        };
        let packaged = remedy(Some("dnf reinstall job-adopt pam_job_adopt"));
        assert_eq!(packaged.command, "dnf reinstall job-adopt pam_job_adopt");
        let by_hand = remedy(None);
        assert_eq!(by_hand.command, "");
        for Remedy { advice, .. } in [packaged, by_hand] {
            assert!(advice.contains("job-adopt disable takes our lines out"));
        }
    }
}
