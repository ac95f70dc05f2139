//! Mounts that logins depend on: cgroup v2 as the module finds it, /proc, and /run/job-adopt.

use super::{Check, Finding, Site};
use crate::people::HELPER_USER;
use kernel::cgroup::Mount;
use kernel::proc as procfs;
use kernel::trust::Trust;
use nix::sys::stat::fstat;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::path::Path;

const MOUNT: Check = "cgroup-mount";
const FAVORDYNMODS: Check = "cgroup-favordynmods";
const HIDEPID: Check = "proc-hidepid";
const DIRECTORY: Check = "run-directory";

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let read = |path| procfs::read(site.at(path)).unwrap_or_default();
    let mounts = read("/proc/self/mounts");
    // The helper gives up all groups but this.
    let helper = site.account(HELPER_USER).map(|account| account.gid);
    let mut found = vec![cgroup(&site.root), proc(&mounts, helper)];
    found.extend(favordynmods(&mounts, &read("/sys/kernel/cgroup/features")));
    let paths = ["/run/job-adopt", "/run/job-adopt/use"];
    found.extend(paths.map(|path| directory(&site.trust, &site.at(path))));
    found
}

/// The cgroup v2 hierarchy below a root directory, or why no login joins a job in it, and what to do.
pub(super) fn hierarchy(root: &Path) -> Result<Mount, (String, &'static str)> {
    let mount = Mount::below(root).map_err(|error| {
        let remedy = "boot with systemd.unified_cgroup_hierarchy=1, or mount it beside version 1: \
                      mkdir /sys/fs/cgroup/unified; mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified";
        (format!("{error}: every login is refused"), remedy)
    })?;
    let flags = fstatvfs(mount.root()).map_or(FsFlags::empty(), |found| found.flags());
    match flags.contains(FsFlags::ST_RDONLY) {
        true => Err((
            format!("{} is mounted read-only: no login can be moved into its job", mount.path()),
            "mount -o remount,rw what is named; in a container, run it with a writable one",
        )),
        false => Ok(mount),
    }
}

/// As this process sees it.
fn cgroup(root: &Path) -> Finding {
    let found = hierarchy(root).and_then(|mount| {
        let remedy =
            "mount it in this cgroup namespace, or run sshd and this command in the other one";
        mount.require_own_namespace().map_err(|error| (error.to_string(), remedy))
    });
    match found {
        Ok(()) => Finding::fine(MOUNT, "/sys/fs/cgroup", "cgroup v2 is mounted writable"),
        Err((text, remedy)) => Finding::error(MOUNT, "/sys/fs/cgroup", text, remedy),
    }
}

/// The options of what is mounted at a place, if it is of that type.
fn options<'a>(mounts: &'a str, place: &str, kind: &str) -> Option<&'a str> {
    // The last mount on a place is the one that is seen.
    mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == place && fields.next()? == kind).then(|| fields.next())?
    })
}

/// Whether moves wait for the kernel although it could do without.
fn favordynmods(mounts: &str, features: &str) -> Option<Finding> {
    const OPTION: &str = "favordynmods";
    const PLACE: &str = "/sys/fs/cgroup";
    let mut options = options(mounts, PLACE, "cgroup2")?.split(',');
    if options.any(|option| option == OPTION) {
        return Some(Finding::fine(FAVORDYNMODS, PLACE, "moves do not wait for the kernel"));
    }
    features.lines().any(|feature| feature == OPTION).then(|| {
        let text = "without the mount option favordynmods a login on an idle node waits 10 to 20 ms \
                    for the kernel to move it, with it 2 ms";
        let remedy = "systemctl enable --now job-adopt-favordynmods.service, or nothing: \
                      docs/systemd.md says what it costs";
        Finding::note(FAVORDYNMODS, PLACE, text, remedy)
    })
}

/// Whether the helper, by its group, sees the processes of others (`hidepid`, proc(5)).
fn proc(mounts: &str, helper: Option<u32>) -> Finding {
    let Some(options) = options(mounts, "/proc", "proc") else {
        let text = "it is not mounted: no login can be judged";
        return Finding::error(HIDEPID, "/proc", text, "mount -t proc proc /proc");
    };
    let value = |name| options.split(',').find_map(|own| own.strip_prefix(name)?.strip_prefix('='));
    let hidden = value("hidepid").unwrap_or("0");
    if matches!(hidden, "0" | "off") {
        return Finding::fine(HIDEPID, "/proc", "everybody sees every process");
    }
    let gid = value("gid").and_then(|gid| gid.parse().ok()).unwrap_or(0);
    let text = format!("it hides the processes of others (hidepid={hidden}, gid={gid})");
    if gid != 0 && helper == Some(gid) {
        let text = format!("{text}, and the group of {HELPER_USER} sees them");
        return Finding::fine(HIDEPID, "/proc", text);
    }
    let text = format!(
        "{text}, from {HELPER_USER} as well: jobs of records and of Slurm are found all the same, jobs \
         of Flux are not, and other nodes are not told whose a connection is"
    );
    let remedy = format!(
        "mount -o remount,gid=N /proc, N being the primary group of {HELPER_USER} (the helper has no \
         other), and SupplementaryGroups= of it in job-adopt-callerid@.service"
    );
    Finding::warning(HIDEPID, "/proc", text, remedy)
}

/// Every directory above a record has to be root's alone; the helper has to get through.
fn directory(trust: &Trust, path: &Path) -> Finding {
    let object = path.display();
    let remedy = format!(
        "install -d -m 0755 -o root -g root {object}; at each boot systemd-tmpfiles does so by \
         tmpfiles.d/job-adopt.conf"
    );
    let found = trust.dir(path).map(|dir| fstat(&dir).map_or(0, |stat| stat.st_mode & 0o7777));
    let why = match found {
        Ok(mode) if mode & 0o055 == 0o055 => {
            return Finding::fine(DIRECTORY, object, "it is root's, and the helper can read it");
        }
        Ok(mode) => format!("the helper cannot read it (mode {mode:04o})"),
        Err(error) if error.is_missing() => {
            let text = "it is not there: users with several jobs cannot choose";
            return Finding::note(DIRECTORY, object, text, remedy);
        }
        Err(error) => error.to_string(),
    };
    Finding::error(DIRECTORY, object, format!("{why}: logins are refused"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Severity;
    use crate::testing::Scratch;

    #[test]
    fn a_node_without_cgroup_v2_is_found() {
        let scratch = Scratch::new();
        scratch.dir("sys/fs/cgroup/freezer");
        assert_eq!(cgroup(scratch.path()).severity, Severity::Error);
    }

    #[test]
    fn that_moves_wait_is_told_where_the_kernel_could_do_without() {
        let severity = |options: &str, features: &str| {
            let mounts = format!("cgroup2 /sys/fs/cgroup cgroup2 {options} 0 0\n");
            favordynmods(&mounts, features).map(|finding| finding.severity)
        };
        assert_eq!(severity("rw,nsdelegate", "nsdelegate\n"), None);
        assert_eq!(severity("rw,nsdelegate", "nsdelegate\nfavordynmods\n"), Some(Severity::Note));
        assert_eq!(severity("rw,favordynmods", "favordynmods\n"), Some(Severity::Fine));
        let v1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\nx /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(favordynmods(v1, "favordynmods\n"), None);
    }

    #[test]
    fn the_group_that_sees_has_to_be_the_helpers() {
        let judged = |options: &str, member: bool| {
            let mounts = format!(
                "proc /proc proc rw,hidepid=4 0 0\nproc /proc proc rw,nosuid,{options} 0 0\n\
                 x /proc/x proc hidepid=2 0 0\n"
            );
            proc(&mounts, Some(if member { 44 } else { 45 })).severity
        };
        assert_eq!(judged("rw", false), Severity::Fine);
        for hidden in ["hidepid=2", "hidepid=invisible", "hidepid=1", "hidepid=ptraceable"] {
            assert_eq!(judged(&format!("rw,{hidden}"), true), Severity::Warning, "{hidden}");
            assert_eq!(judged(&format!("rw,{hidden},gid=44"), true), Severity::Fine, "{hidden}");
            assert_eq!(judged(&format!("rw,{hidden},gid=44"), false), Severity::Warning);
        }
        assert_eq!(proc("sysfs /sys sysfs rw 0 0\n/proc\n", Some(44)).severity, Severity::Error);
    }

    #[test]
    fn a_directory_of_the_registry_is_roots_alone() {
        let scratch = Scratch::new();
        let path = scratch.path().join("d");
        let severity = || directory(&scratch.trust(), &path).severity;
        assert_eq!(severity(), Severity::Note);
        scratch.dir("d");
        assert_eq!(severity(), Severity::Fine);
        for mode in [0o775, 0o757, 0o750] {
            scratch.mode("d", mode);
            assert_eq!(severity(), Severity::Error, "{mode:o}");
        }
        scratch.mode("d", 0o755);
        let others = Trust::below(scratch.path(), scratch.trust().owner() + 1);
        assert_eq!(directory(&others, &path).severity, Severity::Error);
        std::fs::remove_dir(&path).unwrap();
        scratch.file("d", "");
        assert_eq!(severity(), Severity::Error);
    }
}
