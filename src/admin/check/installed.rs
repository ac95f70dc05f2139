//! Checks that the installation is complete and from one source: one package, or by hand.

use super::finding::{Check, Finding};
use super::site::Site;
use super::trusted_file::require_trusted;
use crate::child_process::{query_in_clean_environment, run_in_child};
use crate::sys::process::load_shared_object;
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Suffixes of new files that have not yet replaced the old ones, as make, dpkg and rpm write them.
const UNFINISHED_SUFFIXES: [&str; 4] = [".new", ".dpkg-new", ".dpkg-tmp", ";"];

/// Folders of documentation, which many images leave out (`path-exclude` of dpkg).
const DOCUMENTATION_DIRS: [&str; 5] = [
    "/usr/share/doc/", "/usr/share/man/", "/usr/share/lintian/", "/usr/share/locale/",
    "/usr/share/info/",
];

/// A package manager, with the command lines that query it.
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
    complete: &'static str,
    /// The command that installs both packages again.
    reinstall: &'static str,
}

const PACKAGE_MANAGERS: [PackageManager; 2] = [
    PackageManager {
        names: ["libpam-job-adopt", "job-adopt"],
        list: &["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Version}\n"],
        files: &["dpkg-query", "--listfiles"],
        verify: &["dpkg", "--verify"],
        complete: "dpkg --configure --pending, then apt-get --fix-broken install",
        reinstall: "apt-get install --reinstall libpam-job-adopt job-adopt",
    },
    PackageManager {
        names: ["pam_job_adopt", "job-adopt"],
        list: &["rpm", "--query", "--queryformat=installed %{NAME} %{VERSION}\n"],
        files: &["rpm", "--query", "--list"],
        verify: &["rpm", "--verify", "--nodeps"],
        complete: "dnf reinstall job-adopt pam_job_adopt",
        reinstall: "dnf reinstall job-adopt pam_job_adopt",
    },
];

impl PackageManager {
    /// Checks our packages, and whether the module belongs to one; `None` if neither is installed.
    fn findings(&self, module: &Path) -> Option<Vec<Finding>> {
        let listed = read_output(self.list, &self.names);
        let states = listed.lines().filter_map(|line| {
            let [state, name, version] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let gone = ["not-installed", "config-files"].contains(&state);
            (self.names.contains(&name) && !gone).then_some((state, version, line))
        });
        let packages: Vec<(&str, &str, &str)> = states.collect();
        let mut findings = Vec::new();
        match packages.as_slice() {
            [] => return None,
            [("installed", first, _), ("installed", second, _)] if first == second => {}
            _ => {
                let shown: Vec<&str> = packages.iter().map(|(.., line)| *line).collect();
                let text =
                    format!("are not both installed, in the same version: {}", shown.join(", "));
                findings.push(Finding::error(
                    Check::Upgrade,
                    self.names.join(" and "),
                    text,
                    self.complete,
                ));
            }
        }
        let verified = read_output(self.verify, &self.names);
        let exists = |path: &str| Path::new(path).symlink_metadata().is_ok();
        for (path, line) in verified.lines().filter_map(|line| parse_damage(line, exists)) {
            let text = format!("differs from the file of the package ({line})");
            findings.push(Finding::warning(Check::Installed, path, text, self.reinstall));
        }
        let [package, _] = self.names;
        let files = read_output(self.files, &[package]);
        let is_module =
            |line: &str| Path::new(line).canonicalize().is_ok_and(|path| path == module);
        findings.push(if files.lines().any(is_module) {
            Finding::fine(Check::Installed, module.display(), format!("belongs to the package {package}"))
        } else {
            let text = format!(
                "was installed by hand, but the package {package} is installed too, perhaps in another \
                 version"
            );
            let remedy = "make uninstall, or remove both packages";
            Finding::warning(Check::Installed, module.display(), text, remedy)
        });
        Some(findings)
    }
}

/// Parses a line of `dpkg --verify` or `rpm --verify`. Returns the path of a file that is not as its
/// package has it, with the line; `None` for changed configuration, which the line marks with a "c",
/// and for missing documentation. dpkg before 1.21 (Debian 11) reports a missing file as a changed one.
fn parse_damage(line: &str, exists: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
    let path = &line[line.find(" /")? + 1..];
    let is_documentation = DOCUMENTATION_DIRS.iter().any(|dir| path.starts_with(dir));
    let is_left_out = is_documentation && !exists(path);
    (!line.contains(" c ") && !is_left_out).then_some((path, line))
}

/// Returns the output of a package manager; an empty text if it is not installed.
fn read_output(command: &[&str], names: &[&str]) -> String {
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    let result = query_in_clean_environment(Command::new(program).args(arguments).args(names));
    result.map(|(_, output)| output).unwrap_or_default()
}

/// Checks the module, whose file exists, and the programs that it runs.
pub(super) fn findings(site: &Site, module: &Path, helper: &Path) -> Vec<Finding> {
    let keeper = helper.with_file_name("keeper");
    let command = site.at("/usr/bin/job-adopt");
    let leftovers = [module, helper, &keeper, &command].into_iter().flat_map(find_unfinished);
    let leftovers = leftovers.map(|path| {
        let text = "is left over from an interrupted upgrade";
        let remedy = format!("install both packages again, then rm {}", path.display());
        Finding::warning(Check::Upgrade, path.display(), text, remedy)
    });
    let mut findings: Vec<Finding> = leftovers.collect();
    if site.is_here() {
        // Root loads no file here that another user may have written.
        if require_trusted(&site.trust, module).is_ok() {
            findings.push(check_loading(module));
        }
        let by_hand = || {
            let text = "was installed by hand: it belongs to no package";
            vec![Finding::fine(Check::Installed, module.display(), text)]
        };
        let packaged = PACKAGE_MANAGERS.iter().find_map(|manager| manager.findings(module));
        findings.extend(packaged.unwrap_or_else(by_hand));
    }
    findings
}

/// Lists the files beside `path` that an interrupted upgrade has left.
fn find_unfinished(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let is_next = |other: &Path| {
        let other = other.file_name().unwrap_or_default().as_bytes();
        let rest = other.strip_prefix(name.as_bytes());
        let begins = |rest: &[u8]| {
            UNFINISHED_SUFFIXES.iter().any(|suffix| rest.starts_with(suffix.as_bytes()))
        };
        rest.is_some_and(begins)
    };
    let beside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    beside.map(|entry| entry.path()).filter(|path| is_next(path)).collect()
}

/// Loads the module in a child, as libpam would: a module for another C library or architecture
/// refuses every login.
fn check_loading(module: &Path) -> Finding {
    let object = module.display();
    let mut why = String::new();
    let status = UnixStream::pair().and_then(|(mut read, mut write)| {
        let path = CString::new(module.as_os_str().as_bytes())?;
        let status = run_in_child(|| match load_shared_object(&path) {
            Ok(()) => 0,
            Err(why) => write.write_all(why.as_bytes()).map_or(2, |()| 1),
        })?;
        drop(write);
        read.read_to_string(&mut why).map(|_| status)
    });
    match status {
        Ok(0) => Finding::fine(Check::ModuleLoaded, object, "can be loaded"),
        Ok(1) => {
            let text = format!("cannot be loaded, so every login is refused, root's too: {why}");
            let remedy =
                "job-adopt pam --remove, then install the module for this system's C library";
            Finding::error(Check::ModuleLoaded, object, text, remedy)
        }
        _ => {
            let text = "could not be tried: no child process could load it";
            Finding::unknown(Check::ModuleLoaded, object, text, "run job-adopt check again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_damage;

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
            ("Unsatisfied dependencies for job-adopt-0.1.0-1.x86_64:", None),
        ] {
            let exists = |path: &str| path.ends_with("/changelog.gz");
            assert_eq!(parse_damage(line, exists), path.map(|path| (path, line)), "{line}");
        }
    }
}
