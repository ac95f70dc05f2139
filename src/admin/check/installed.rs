//! Where the installation comes from, and whether it is whole.

use super::{Check, Finding, Site};
use crate::admin::sys::process::load;
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
    /// What a program of its prints; nothing where it is not there.
    fn says(command: &[&str], names: &[&str]) -> String {
        let Some((program, arguments)) = command.split_first() else { return String::new() };
        let output = Command::new(program).args(arguments).args(names).output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    }

    /// State, name and version of those of our packages that are there.
    fn packages(&self) -> Vec<[String; 3]> {
        let listed = Self::says(self.list, &self.names);
        let parted = listed.lines().filter_map(|line| {
            let fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
            <[String; 3]>::try_from(fields).ok()
        });
        let gone = ["not-installed", "config-files"];
        let is_ours = |[state, name, _]: &[String; 3]| {
            self.names.contains(&&**name) && !gone.contains(&&**state)
        };
        parted.filter(is_ours).collect()
    }

    /// What is amiss with them, and that the module is theirs.
    fn findings(&self, packages: &[[String; 3]], module: &Path) -> Vec<Finding> {
        let mut found = Vec::new();
        let shown: Vec<String> = packages.iter().map(|package| package.join(" ")).collect();
        let whole = match packages {
            [[_, _, one], [_, _, other]] => one == other,
            _ => false,
        };
        if !whole || packages.iter().any(|[state, ..]| state != "installed") {
            let text = format!("are not both installed in one version: {}", shown.join(", "));
            let names = self.names.join(" and ");
            found.push(Finding::error(UPGRADE, names, text, self.remedy));
        }
        // A "c" before the path: the admin's own configuration.
        let changed = Self::says(self.verify, &self.names);
        for line in changed.lines().filter(|line| !line.contains(" c ")) {
            let path = line.split_whitespace().last().unwrap_or(line);
            let text = format!("is not as the package has it ({line})");
            found.push(Finding::warning(INSTALLED, path, text, self.remedy));
        }
        let [package, _] = self.names;
        let files = Self::says(self.files, &[package]);
        let is_it = |line: &str| Path::new(line).canonicalize().is_ok_and(|path| path == module);
        found.push(if files.lines().any(is_it) {
            let text = format!("is of the package {package}");
            Finding::fine(INSTALLED, module.display(), text)
        } else {
            let text = format!("was installed by hand, beside the package {package}");
            let remedy = "remove the one or the other; they may be of different versions";
            Finding::warning(INSTALLED, module.display(), text, remedy)
        });
        found
    }
}

/// Of the module, whose file exists, and of what it runs.
pub(super) fn findings(site: &Site<'_>, module: &Path, helper: &Path) -> Vec<Finding> {
    let keeper = helper.with_file_name("keeper");
    let command = site.scene.at("/usr/bin/job-adopt");
    let files = [module, helper, &keeper, &command];
    let left = files.into_iter().flat_map(unfinished).map(|path| {
        let text = "is left of an upgrade that did not end";
        Finding::warning(
            UPGRADE,
            path.display(),
            text,
            "install all of one version, then remove it",
        )
    });
    let mut found: Vec<Finding> = left.collect();
    if site.scene.is_here() {
        // Whatever somebody else has written is not run here.
        let own = super::programs::distrust(&site.trust, module).is_none();
        found.extend(own.then(|| loads(module)));
        let known = MANAGERS.iter().map(|manager| (manager, manager.packages()));
        match known.into_iter().find(|(_, packages)| !packages.is_empty()) {
            Some((manager, packages)) => found.extend(manager.findings(&packages, module)),
            None => {
                let text = "was installed by hand: no package has it";
                found.push(Finding::fine(INSTALLED, module.display(), text));
            }
        }
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
    let (object, unknown) = (module.display(), "no process could try to load it");
    let tried = UnixStream::pair().ok().zip(CString::new(module.as_os_str().as_bytes()).ok());
    let Some(((mut read, mut write), path)) = tried else {
        return Finding::unknown(LOADED, object, unknown, "");
    };
    let status = super::kernel::in_a_child(|| match load(&path) {
        Ok(()) => 0,
        Err(why) => write.write_all(why.as_bytes()).map_or(2, |()| 1),
    });
    drop(write);
    let mut why = String::new();
    match status.is_ok() && read.read_to_string(&mut why).is_ok() {
        true if why.is_empty() => Finding::fine(LOADED, object, "can be loaded"),
        true => {
            let text =
                format!("cannot be loaded, so that libpam refuses every login, root's too: {why}");
            let remedy =
                "install one for this machine's C library, or take our lines out of the stack";
            Finding::error(LOADED, object, text, remedy)
        }
        false => Finding::unknown(LOADED, object, unknown, ""),
    }
}
