//! Where the installation comes from, and whether it is whole.

use super::ask::{ask, in_a_child};
use super::{Check, Finding, Site};
use crate::sys::process::load;
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

const LOADED: Check = "module-loaded";
const INSTALLED: Check = "installed";
const UPGRADE: Check = "upgrade";

/// What follows the name of a file that has not yet taken its place, as make, dpkg and rpm write it.
const UNFINISHED: [&str; 4] = [".new", ".dpkg-new", ".dpkg-tmp", ";"];

/// A package manager, and how it is asked.
struct Manager {
    /// Our packages, that of the module first.
    names: [&'static str; 2],
    /// Prints the state, name and version of each.
    list: &'static [&'static str],
    /// Prints the files of the first.
    files: &'static [&'static str],
    /// Prints the files that are not as they were packed.
    verify: &'static [&'static str],
    /// What ends an upgrade that was cut short.
    remedy: &'static str,
}

const MANAGERS: [Manager; 2] = [
    Manager {
        names: ["libpam-job-adopt", "job-adopt"],
        list: &["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Version}\n"],
        files: &["dpkg-query", "--listfiles"],
        verify: &["dpkg", "--verify"],
        remedy: "dpkg --configure --pending, then apt-get --fix-broken install",
    },
    Manager {
        names: ["pam_job_adopt", "job-adopt"],
        list: &["rpm", "--query", "--queryformat=installed %{NAME} %{VERSION}\n"],
        files: &["rpm", "--query", "--list"],
        verify: &["rpm", "--verify", "--nodeps"],
        remedy: "dnf reinstall job-adopt pam_job_adopt",
    },
];

impl Manager {
    /// What is amiss with our packages, and whether the module is theirs; `None` where it has neither.
    fn findings(&self, module: &Path) -> Option<Vec<Finding>> {
        let listed = says(self.list, &self.names);
        let states = listed.lines().filter_map(|line| {
            let [state, name, version] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let gone = ["not-installed", "config-files"].contains(&state);
            (self.names.contains(&name) && !gone).then_some((state, version, line))
        });
        let packages: Vec<(&str, &str, &str)> = states.collect();
        let mut found = Vec::new();
        match packages.as_slice() {
            [] => return None,
            [("installed", one, _), ("installed", other, _)] if one == other => {}
            _ => {
                let shown: Vec<&str> = packages.iter().map(|(.., line)| *line).collect();
                let text = format!("are not both installed in one version: {}", shown.join(", "));
                found.push(Finding::error(UPGRADE, self.names.join(" and "), text, self.remedy));
            }
        }
        let changed = says(self.verify, &self.names);
        // A "c" before the path: the admin's own configuration.
        for line in changed.lines().filter(|line| !line.contains(" c ")) {
            let Some((_, path)) = line.split_once(" /") else { continue };
            let text = format!("is not as the package has it ({line})");
            found.push(Finding::warning(INSTALLED, format!("/{path}"), text, self.remedy));
        }
        let [package, _] = self.names;
        let files = says(self.files, &[package]);
        let is_it = |line: &str| Path::new(line).canonicalize().is_ok_and(|path| path == module);
        found.push(if files.lines().any(is_it) {
            Finding::fine(INSTALLED, module.display(), format!("is of the package {package}"))
        } else {
            let text = format!("was installed by hand, beside the package {package}");
            let remedy = "remove the one or the other; they may be of different versions";
            Finding::warning(INSTALLED, module.display(), text, remedy)
        });
        Some(found)
    }
}

/// What a package manager prints; nothing where it is not there.
fn says(command: &[&str], names: &[&str]) -> String {
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    let said = ask(Command::new(program).args(arguments).args(names));
    said.map(|(_, said)| said).unwrap_or_default()
}

/// Of the module, whose file exists, and of what it runs.
pub(super) fn findings(site: &Site, module: &Path, helper: &Path) -> Vec<Finding> {
    let keeper = helper.with_file_name("keeper");
    let command = site.at("/usr/bin/job-adopt");
    let left = [module, helper, &keeper, &command].into_iter().flat_map(unfinished);
    let left = left.map(|path| {
        let text = "is left of an upgrade that did not end";
        let remedy = "install all of one version, then remove it";
        Finding::warning(UPGRADE, path.display(), text, remedy)
    });
    let mut found: Vec<Finding> = left.collect();
    if site.is_here() {
        // Whatever somebody else has written is not run here.
        if super::programs::trusted(&site.trust, module).is_ok() {
            found.push(loads(module));
        }
        let by_hand = || {
            let text = "was installed by hand: no package has it";
            vec![Finding::fine(INSTALLED, module.display(), text)]
        };
        let packaged = MANAGERS.iter().find_map(|manager| manager.findings(module));
        found.extend(packaged.unwrap_or_else(by_hand));
    }
    found
}

/// What stands beside a file in place of its next version.
fn unfinished(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let is_next = |other: &Path| {
        let other = other.file_name().unwrap_or_default().as_bytes();
        let rest = other.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| UNFINISHED.iter().any(|end| rest.starts_with(end.as_bytes())))
    };
    let beside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    beside.map(|entry| entry.path()).filter(|path| is_next(path)).collect()
}

/// A module for another C library or architecture refuses everybody. A child tries it, as libpam would.
fn loads(module: &Path) -> Finding {
    let (object, mut why) = (module.display(), String::new());
    let tried = UnixStream::pair().and_then(|(mut read, mut write)| {
        let path = CString::new(module.as_os_str().as_bytes())?;
        let status = in_a_child(|| match load(&path) {
            Ok(()) => 0,
            Err(why) => write.write_all(why.as_bytes()).map_or(2, |()| 1),
        })?;
        drop(write);
        read.read_to_string(&mut why).map(|_| status)
    });
    match tried {
        Ok(0) => Finding::fine(LOADED, object, "can be loaded"),
        Ok(1) => {
            let text =
                format!("cannot be loaded, so that libpam refuses every login, root's too: {why}");
            let remedy =
                "install one for this machine's C library, or take our lines out of the stack";
            Finding::error(LOADED, object, text, remedy)
        }
        _ => Finding::unknown(LOADED, object, "no process could try to load it", ""),
    }
}
