//! Checks that the installation is complete and from one source: one package, or by hand.

use super::finding::{Check, Finding};
use super::remedy::{Remedy, shell_path};
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

/// A package manager, with the command lines that query it.
#[derive(Debug)]
struct PackageManager {
    /// Our packages; the first one has the module.
    names: [&'static str; 2],
    /// Prints the state, name and version of each.
    list: &'static [&'static str],
    /// Prints the files of the first.
    files: &'static [&'static str],
    /// How to see which files differ from the packages.
    verify: &'static str,
    /// How to complete an interrupted upgrade.
    completion: &'static str,
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
        verify: "dpkg --verify libpam-job-adopt job-adopt",
        completion: "complete the upgrade, by dpkg --configure --pending, or install both packages again, in one version",
    },
    PackageManager {
        names: ["pam_job_adopt", "job-adopt"],
        list: &[
            "rpm",
            "--query",
            "--queryformat=installed %{NAME} %{VERSION}\n",
        ],
        files: &["rpm", "--query", "--list"],
        verify: "rpm --verify job-adopt pam_job_adopt",
        completion: "install both packages again, in one version",
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
    /// The first package has the module.
    have_module: bool,
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

    /// How to see whether files of the packages were changed; `None` if the module is of none.
    pub(super) fn verify(&self) -> Option<&'static str> {
        match &self.origin {
            Some(Origin::Packages(packages)) if packages.have_module => {
                Some(packages.manager.verify)
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
                .map(|loading| loading.finding(&self.module, self.verify())),
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

/// The remedy for a module without which libpam refuses every login: `advice`. What opens the node instead is only for a
/// person.
pub(super) fn bring_back(advice: &str) -> Remedy {
    format!(
        "{advice}; if root must log in before, job-adopt disable takes our lines out: then everybody gets in"
    )
    .into()
}

/// Reports a file that an interrupted upgrade has left.
fn judge_leftover(path: &Path) -> Finding {
    let text = "is left over from an interrupted upgrade";
    let remedy = format!(
        "remove {}, and install both packages again",
        shell_path(path)
    );
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
        Some(Self {
            manager,
            states,
            have_module: paths.any(|path| path == module),
        })
    }

    /// Judges whether both packages are complete, and whether the module is one of their files.
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
                self.manager.completion,
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
    /// every login. `verify` is how to see whether the packages' files were changed, if it is of one.
    fn finding(&self, module: &Path, verify: Option<&str>) -> Finding {
        let object = module.display();
        match self {
            Self::Done => Finding::fine(Check::ModuleLoaded, object, "can be loaded"),
            Self::Failed(why) => {
                let text =
                    format!("cannot be loaded, so every login is refused, root's too: {why}");
                let how = verify.map_or_else(String::new, |verify| {
                    format!(" ({verify} shows what has changed)")
                });
                let remedy = bring_back(&format!(
                    "install the module for this system's C library again{how}"
                ));
                Finding::error(Check::ModuleLoaded, object, text, remedy)
            }
            Self::Unknown => {
                let text = "could not be tried: no child process could load it";
                Finding::unknown(Check::ModuleLoaded, object, text, "run this again")
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

    fn packages(lines: &[&str]) -> Packages {
        let [manager, _] = &PACKAGE_MANAGERS;
        let states = lines
            .iter()
            .filter_map(|line| parse_state(line, &manager.names))
            .collect();
        Packages {
            manager,
            states,
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
    fn module_of_no_package_beside_a_package_is_a_warning() {
        let good = packages(&["installed libpam-job-adopt 1", "installed job-adopt 1"]);
        let findings = Packages {
            have_module: false,
            ..good
        }
        .findings(Path::new("/m.so"));
        let [module] = findings.as_slice() else {
            panic!("{findings:?}")
        };
        assert_eq!(module.object, "/m.so");
        assert_eq!(module.severity, Severity::Warning);
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

    /// `disable` lets everybody in. Which packages there are, and from where, is for a person.
    #[test]
    fn module_that_cannot_be_loaded_has_no_command() {
        for verify in [None, Some("rpm --verify job-adopt pam_job_adopt")] {
            let finding = Loading::Failed(String::new()).finding(Path::new("/m.so"), verify);
            let remedy = finding.remedy;
            assert_eq!(remedy.command(), "");
            assert_eq!(remedy.advice().contains("rpm --verify"), verify.is_some());
            assert!(
                remedy
                    .advice()
                    .contains("job-adopt disable takes our lines out")
            );
        }
    }
}
