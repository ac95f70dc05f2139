//! Checks the mounts that logins need: cgroup v2 as the module finds it, /proc, and /run/job-adopt.

use super::finding::{Check, Finding};
use super::kernel::measure_moves;
use super::site::Site;
use crate::accounts::HELPER_USER;
use kernel::cgroup::Mount;
use kernel::choice::DIR as CHOICE_DIR;
use kernel::proc as procfs;
use kernel::trust::Trust;
use nix::sys::stat::fstat;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::path::Path;
use std::time::Duration;

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let read = |path| procfs::read(site.at(path)).unwrap_or_default();
    let mounts = read("/proc/self/mounts");
    // The helper gives up all groups but this one.
    let helper_gid = site.find_account(HELPER_USER).map(|account| account.gid);
    let mut findings = vec![check_cgroup(&site.root), check_proc(&mounts, helper_gid)];
    let measure = || site.is_here().then(|| measure_moves(&site.root)).flatten();
    findings.extend(check_favordynmods(&mounts, &read("/sys/kernel/cgroup/features"), measure));
    let paths = ["/run/job-adopt", CHOICE_DIR];
    findings.extend(paths.map(|path| check_directory(&site.trust, &site.at(path))));
    findings
}

/// Opens the cgroup v2 hierarchy below a root directory.
///
/// # Errors
///
/// A text that says why no login joins a job in it, and the remedy.
pub(super) fn open_hierarchy(root: &Path) -> Result<Mount, (String, String)> {
    let mount = Mount::open_below(root).map_err(|error| {
        let remedy = "boot with systemd.unified_cgroup_hierarchy=1, or mount it beside version 1: \
                      mkdir /sys/fs/cgroup/unified; mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified";
        (format!("{error}, so every login is refused"), remedy.to_owned())
    })?;
    let flags = fstatvfs(mount.root()).map_or(FsFlags::empty(), |stat| stat.flags());
    if flags.contains(FsFlags::ST_RDONLY) {
        Err((
            format!("{} is mounted read-only: no login can be moved into its job", mount.path()),
            format!(
                "mount -o remount,rw {}; in a container, run it with a writable one",
                mount.path()
            ),
        ))
    } else {
        Ok(mount)
    }
}

/// Checks the cgroup v2 hierarchy as this process sees it.
fn check_cgroup(root: &Path) -> Finding {
    let result = open_hierarchy(root).and_then(|mount| {
        let remedy = "run sshd and this command in the cgroup namespace of that mount, or mount cgroup \
                      v2 anew in this one";
        mount.require_own_namespace().map_err(|error| (error.to_string(), remedy.to_owned()))
    });
    match result {
        Ok(()) => {
            Finding::fine(Check::CgroupMount, "/sys/fs/cgroup", "cgroup v2 is mounted writable")
        }
        Err((text, remedy)) => Finding::error(Check::CgroupMount, "/sys/fs/cgroup", text, remedy),
    }
}

/// Returns the options of the mount at `path`, if its file system has this type.
fn mount_options<'a>(mounts: &'a str, path: &str, kind: &str) -> Option<&'a str> {
    // The last mount at a path covers the others.
    mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == path && fields.next()? == kind).then(|| fields.next())?
    })
}

/// Shortest wait of a lone move that is worth a note.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Checks that moves do not wait for the kernel, if it has an option for that. Without the option,
/// `measure` returns the times of a lone move and of one right after it.
fn check_favordynmods(
    mounts: &str,
    features: &str,
    measure: impl FnOnce() -> Option<[Duration; 2]>,
) -> Option<Finding> {
    const OPTION: &str = "favordynmods";
    const MOUNT_PATH: &str = "/sys/fs/cgroup";
    let fine = |text: String| Some(Finding::fine(Check::CgroupFavordynmods, MOUNT_PATH, text));
    let mut options = mount_options(mounts, MOUNT_PATH, "cgroup2")?.split(',');
    if options.any(|option| option == OPTION) {
        return fine("is mounted with favordynmods, so the kernel moves logins at once".to_owned());
    }
    if !features.lines().any(|feature| feature == OPTION) {
        return None;
    }
    let millis = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let text = match measure() {
        Some([lone, next]) if lone < next + WAIT_MIN => {
            return fine(format!(
                "moves logins without a wait: a move took {} just now",
                millis(lone)
            ));
        }
        Some([lone, next]) => format!(
            "a lone move took {} just now, and one right after it {}: with the mount option \
             favordynmods no login waits for the difference",
            millis(lone),
            millis(next)
        ),
        None => {
            "is mounted without favordynmods, so on an idle node the kernel takes 10 to 20 ms to \
             move a login, not 2 ms"
                .to_owned()
        }
    };
    let remedy = "systemctl enable --now job-adopt-favordynmods.service, or nothing: docs/systemd.md \
                  says what it costs";
    Some(Finding::note(Check::CgroupFavordynmods, MOUNT_PATH, text, remedy))
}

/// Checks that the helper's group sees the processes of others (`hidepid`, proc(5)).
fn check_proc(mounts: &str, helper_gid: Option<u32>) -> Finding {
    let Some(options) = mount_options(mounts, "/proc", "proc") else {
        let text = "is not mounted, so every login is refused";
        return Finding::error(Check::ProcHidepid, "/proc", text, "mount -t proc proc /proc");
    };
    let value =
        |name| options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    let hidden = value("hidepid").unwrap_or("0");
    if matches!(hidden, "0" | "off") {
        return Finding::fine(Check::ProcHidepid, "/proc", "every user can see all processes");
    }
    let gid = value("gid").and_then(|gid| gid.parse().ok()).unwrap_or(0);
    let text = format!("hides the processes of other users (hidepid={hidden}, gid={gid})");
    if gid != 0 && helper_gid == Some(gid) {
        let text = format!("{text}, but not from the group of {HELPER_USER}");
        return Finding::fine(Check::ProcHidepid, "/proc", text);
    }
    let text = format!(
        "{text}, also from {HELPER_USER}: no login finds a Flux job, and other nodes get no answer \
         about callers; jobs of Slurm and of records are found"
    );
    let gid = helper_gid.map_or("GID".to_owned(), |gid| gid.to_string());
    let remedy = format!(
        "mount -o remount,gid={gid} /proc, here and in /etc/fstab (gid is the primary group of \
         {HELPER_USER}), and SupplementaryGroups={gid} in job-adopt-callerid@.service"
    );
    Finding::warning(Check::ProcHidepid, "/proc", text, remedy)
}

/// Checks a directory of choices and records: only root may write it, and the helper must be able to
/// read it.
fn check_directory(trust: &Trust, path: &Path) -> Finding {
    let object = path.display();
    let remedy = format!(
        "install -d -m 0755 -o root -g root {object} (systemd-tmpfiles does so at each boot)"
    );
    let mode = trust.dir(path).map(|dir| fstat(&dir).map_or(0, |stat| stat.st_mode & 0o7777));
    let why = match mode {
        Ok(mode) if mode & 0o055 == 0o055 => {
            return Finding::fine(
                Check::RunDirectory,
                object,
                "belongs to root, and the helper can read it",
            );
        }
        Ok(mode) => format!("the helper cannot read it (mode {mode:04o})"),
        Err(error) if error.is_missing() => {
            let text = "is missing, so users with several jobs cannot choose one";
            return Finding::note(Check::RunDirectory, object, text, remedy);
        }
        Err(error) => error.to_string(),
    };
    Finding::error(Check::RunDirectory, object, format!("{why}, so logins are refused"), remedy)
}

/// Checks that files of users are in a file system of their own, if there is a directory for them.
pub(super) fn use_mount_findings(site: &Site) -> Vec<Finding> {
    let mounts = procfs::read(site.at("/proc/self/mounts")).unwrap_or_default();
    let is_dir = site.at(CHOICE_DIR).is_dir();
    is_dir.then(|| check_use_mount(&mounts)).into_iter().collect()
}

fn check_use_mount(mounts: &str) -> Finding {
    let mut paths = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    if paths.any(|path| path == CHOICE_DIR) {
        return Finding::fine(Check::UseMount, CHOICE_DIR, "is a file system of its own");
    }
    let text = "is part of /run: any user who has logged in to a job can fill it, which stops \
                prologs and logins";
    let remedy = r"systemctl enable --now 'run-job\x2dadopt-use.mount'; with SELinux, also restorecon -F /run/job-adopt/use";
    Finding::warning(Check::UseMount, CHOICE_DIR, text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Severity;
    use crate::testing::Scratch;

    #[test]
    fn node_without_cgroup_v2_is_an_error() {
        let scratch = Scratch::new();
        scratch.dir("sys/fs/cgroup/freezer");
        assert_eq!(check_cgroup(scratch.path()).severity, Severity::Error);
    }

    #[test]
    fn missing_favordynmods_is_noted_if_kernel_has_option() {
        let severity = |options: &str, features: &str| {
            let mounts = format!("cgroup2 /sys/fs/cgroup cgroup2 {options} 0 0\n");
            check_favordynmods(&mounts, features, || None).map(|finding| finding.severity)
        };
        assert_eq!(severity("rw,nsdelegate", "nsdelegate\n"), None);
        assert_eq!(severity("rw,nsdelegate", "nsdelegate\nfavordynmods\n"), Some(Severity::Note));
        assert_eq!(severity("rw,favordynmods", "favordynmods\n"), Some(Severity::Fine));
        let v1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\nx /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(check_favordynmods(v1, "favordynmods\n", || None), None);
    }

    #[test]
    fn note_on_favordynmods_has_measured_times() {
        let check = |micros: [u64; 2]| {
            let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
            let measure = || Some(micros.map(Duration::from_micros));
            check_favordynmods(mounts, "favordynmods\n", measure).unwrap()
        };
        let slow = check([17_940, 310]);
        assert_eq!(slow.severity, Severity::Note);
        assert!(slow.text.contains("took 17.94 ms just now, and one right after it 0.31 ms"));
        assert_eq!(check([700, 310]).severity, Severity::Fine);
        assert_eq!(check([310, 700]).severity, Severity::Fine);
    }

    #[test]
    fn hidepid_is_a_warning_unless_helper_group_sees_processes() {
        let severity = |options: &str, member: bool| {
            let mounts = format!(
                "proc /proc proc rw,hidepid=4 0 0\nproc /proc proc rw,nosuid,{options} 0 0\n\
                 x /proc/x proc hidepid=2 0 0\n"
            );
            check_proc(&mounts, Some(if member { 44 } else { 45 })).severity
        };
        assert_eq!(severity("rw", false), Severity::Fine);
        for hidden in ["hidepid=2", "hidepid=invisible", "hidepid=1", "hidepid=ptraceable"] {
            assert_eq!(severity(&format!("rw,{hidden}"), true), Severity::Warning, "{hidden}");
            assert_eq!(severity(&format!("rw,{hidden},gid=44"), true), Severity::Fine, "{hidden}");
            assert_eq!(severity(&format!("rw,{hidden},gid=44"), false), Severity::Warning);
        }
        let without_proc = "sysfs /sys sysfs rw 0 0\n/proc\n";
        assert_eq!(check_proc(without_proc, Some(44)).severity, Severity::Error);
    }

    #[test]
    fn choices_on_the_file_system_of_run_are_a_warning() {
        let run = "tmpfs /run tmpfs rw 0 0\ntmpfs /run/job-adopt/used tmpfs rw 0 0\n";
        let finding = check_use_mount(run);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.remedy.contains(r"'run-job\x2dadopt-use.mount'"), "{finding:?}");
        let own = format!("{run}tmpfs /run/job-adopt/use tmpfs rw 0 0\n");
        assert_eq!(check_use_mount(&own).severity, Severity::Fine);
    }

    #[test]
    fn directory_that_others_write_or_helper_cannot_read_is_an_error() {
        let scratch = Scratch::new();
        let path = scratch.path().join("d");
        let severity = || check_directory(&scratch.trust(), &path).severity;
        assert_eq!(severity(), Severity::Note);
        scratch.dir("d");
        assert_eq!(severity(), Severity::Fine);
        for mode in [0o775, 0o757, 0o750] {
            scratch.mode("d", mode);
            assert_eq!(severity(), Severity::Error, "{mode:o}");
        }
        scratch.mode("d", 0o755);
        let others = Trust::below(scratch.path(), scratch.trust().owner() + 1);
        assert_eq!(check_directory(&others, &path).severity, Severity::Error);
        std::fs::remove_dir(&path).unwrap();
        scratch.file("d", "");
        assert_eq!(severity(), Severity::Error);
    }
}
