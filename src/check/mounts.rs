//! Checks the mounts that logins need: cgroup v2 as the module finds it, /proc, and /run/job-adopt.

use super::finding::{Check, Finding};
use super::own_command::{OwnCommand, OwnFile, Subcommand};
use super::remedy::{Remedy, page_path, run, shell_path, shell_word};
use super::site::Site;
use command::accounts::HELPER_USER;
use facts::trusted_file::is_exposed;
use kernel::cgroup::{self, Mount};
use kernel::choice::DIR as CHOICE_DIR;
use kernel::mounts::{OWN_TABLE, parse_lines};
use kernel::proc as procfs;
use kernel::trust::{Trust, TrustError};
use nix::sys::stat::fstat;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the cgroup v2 hierarchy of a node is mounted.
const CGROUP_PATH: &str = "/sys/fs/cgroup";
/// The unit of the file system of choices.
const MOUNT_UNIT: &str = r"run-job\x2dadopt-use.mount";
/// The mount option of cgroup v2 with which moves do not wait for the kernel.
const FAVORDYNMODS: &str = "favordynmods";

/// What was found out about the mounts of the node.
#[derive(Debug)]
pub(super) struct MountFacts {
    hierarchy: Result<(), HierarchyError>,
    /// The table of the mounts.
    mounts: String,
    /// The group of the helper's account. The helper gives up all groups but this one.
    helper_gid: Option<u32>,
    favordynmods: FavorDynMods,
    directories: Vec<Directory>,
    /// The directory of users' choices exists.
    has_choices: bool,
    /// systemd may not mount that directory's file system.
    is_use_masked: bool,
}

/// The kernel's option for moves without a wait, since Linux 6.0.
#[derive(Debug)]
enum FavorDynMods {
    /// The kernel lacks the option, or cgroup v2 is not mounted at the usual place.
    Unsupported,
    On,
    Off,
}

/// A directory of choices and records.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// The permission bits, if only root can write it; 0, which nobody can use, if they cannot be read.
    mode: Result<u32, TrustError>,
}

impl MountFacts {
    /// Reads the mounts and directories of the node.
    pub(super) fn read(site: &Site) -> Self {
        let mounts = procfs::read(site.at(OWN_TABLE)).unwrap_or_default();
        let features = procfs::read(site.at("/sys/kernel/cgroup/features")).unwrap_or_default();
        let directories = ["/run/job-adopt", CHOICE_DIR]
            .map(|path| Directory::read(&site.trust, site.at(path)))
            .into();
        Self {
            hierarchy: check_hierarchy(&site.root),
            helper_gid: site.find_account(HELPER_USER).map(|account| account.gid),
            favordynmods: FavorDynMods::parse(&mounts, &features),
            mounts,
            directories,
            has_choices: site.at(CHOICE_DIR).is_dir(),
            is_use_masked: fs::read_link(site.at("/etc/systemd/system").join(MOUNT_UNIT))
                .is_ok_and(|target| target == Path::new("/dev/null")),
        }
    }

    /// Judges the mounts and directories, but for the mount of `job-adopt use` ([`MountFacts::judge_use_mount`]).
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![
            judge_hierarchy(&self.hierarchy),
            judge_proc(&self.mounts, self.helper_gid),
        ];
        findings.extend(self.favordynmods.finding());
        findings.extend(self.judge_directories());
        findings
    }

    /// Judges the directories, the upper one first. A fault that they share is one finding.
    fn judge_directories(&self) -> Vec<Finding> {
        let mut errors: Vec<&TrustError> = Vec::new();
        let mut findings = Vec::new();
        for directory in &self.directories {
            if let Err(error) = &directory.mode {
                if errors.contains(&error) {
                    continue;
                }
                errors.push(error);
            }
            findings.push(directory.finding());
        }
        findings
    }

    /// Judges whether files of users are in a file system of their own, if there is a directory for them.
    pub(super) fn judge_use_mount(&self) -> Option<Finding> {
        self.has_choices
            .then(|| judge_choices(&self.mounts, self.is_use_masked))
    }
}

/// A cgroup v2 hierarchy in which no login joins a job.
#[derive(Debug, thiserror::Error)]
pub(super) enum HierarchyError {
    #[error("{0}, so every login is refused")]
    Missing(cgroup::Error),
    #[error("{0} is mounted read-only: no login can be moved into its job")]
    ReadOnly(String),
    #[error("{0}")]
    OtherNamespace(cgroup::Error),
}

impl HierarchyError {
    /// Names what to do about the fault.
    fn remedy(&self) -> Remedy {
        match self {
            Self::Missing(_) => "boot with systemd.unified_cgroup_hierarchy=1; or mount it beside version 1: mkdir -p \
                                 /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
                .into(),
            Self::ReadOnly(path) => {
                let path = shell_word(path);
                format!("make it writable: mount -o remount,rw {path}; in a container, run it with a writable one")
                    .into()
            }
            Self::OtherNamespace(_) => {
                "run sshd and this command in the cgroup namespace of that mount, or mount cgroup v2 \
                 anew in this one"
                    .into()
            }
        }
    }
}

/// Opens the cgroup v2 hierarchy below a root directory. A mount whose flags cannot be read counts as writable.
///
/// # Errors
///
/// [`HierarchyError::Missing`], and [`HierarchyError::ReadOnly`].
pub(super) fn open_hierarchy(root: &Path) -> Result<Mount, HierarchyError> {
    let mount = Mount::open_below(root).map_err(HierarchyError::Missing)?;
    let flags = fstatvfs(mount.root()).map_or(FsFlags::empty(), |stat| stat.flags());
    if flags.contains(FsFlags::ST_RDONLY) {
        return Err(HierarchyError::ReadOnly(mount.path().to_string()));
    }
    Ok(mount)
}

/// Checks the cgroup v2 hierarchy as this process sees it.
fn check_hierarchy(root: &Path) -> Result<(), HierarchyError> {
    open_hierarchy(root)?
        .require_own_namespace()
        .map_err(HierarchyError::OtherNamespace)
}

/// Judges whether logins can be moved in the node's cgroup v2 hierarchy.
fn judge_hierarchy(hierarchy: &Result<(), HierarchyError>) -> Finding {
    match hierarchy {
        Ok(()) => Finding::fine(
            Check::CgroupMount,
            CGROUP_PATH,
            "cgroup v2 is mounted writable",
        ),
        Err(error) => Finding::error(Check::CgroupMount, CGROUP_PATH, error, error.remedy()),
    }
}

/// Finds the options of the file system at `path` in a table of mounts, if it has this type.
fn mount_options<'a>(mounts: &'a str, path: &str, kind: &str) -> Option<&'a str> {
    let mut matching = parse_lines(mounts).filter(|mount| mount.at == path && mount.kind == kind);
    matching.next_back().map(|mount| mount.options)
}

impl FavorDynMods {
    /// Parses the table of mounts, and the features of the kernel's cgroup v2.
    fn parse(mounts: &str, features: &str) -> Self {
        let Some(options) = mount_options(mounts, CGROUP_PATH, "cgroup2") else {
            return Self::Unsupported;
        };
        if options.split(',').any(|option| option == FAVORDYNMODS) {
            Self::On
        } else if features.lines().any(|feature| feature == FAVORDYNMODS) {
            Self::Off
        } else {
            Self::Unsupported
        }
    }

    /// Tells that lone logins wait for the kernel without the option; `None` if there is no choice, because it is not
    /// supported here.
    fn finding(&self) -> Option<Finding> {
        match self {
            Self::Unsupported => None,
            Self::On => {
                let text = "is mounted with favordynmods, so the kernel moves logins at once";
                Some(Finding::fine(Check::CgroupFavordynmods, CGROUP_PATH, text))
            }
            Self::Off => {
                let text = "is mounted without favordynmods, so on an idle node the kernel takes 10 to 20 ms to move a \
                            login, not 2 ms";
                let remedy = format!(
                    "nothing, or turn it on: systemctl enable --now job-adopt-favordynmods.service; {} says what it costs",
                    page_path("systemd.md")
                );
                Some(Finding::note(
                    Check::CgroupFavordynmods,
                    CGROUP_PATH,
                    text,
                    remedy,
                ))
            }
        }
    }
}

/// Finds the value of a mount option; `None` if the options lack it.
fn option_value<'a>(options: &'a str, name: &str) -> Option<&'a str> {
    options
        .split(',')
        .find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
}

/// Judges whether the helper's group sees the processes of others (`hidepid`, proc(5)). `helper_gid` is `None` if
/// the helper has no account. The service job-adopt-callerid@ runs as an account of its own and sees processes by the
/// same group, through `SupplementaryGroups=`; a new gid must be set there too.
fn judge_proc(mounts: &str, helper_gid: Option<u32>) -> Finding {
    let Some(options) = mount_options(mounts, "/proc", "proc") else {
        let text = "is not mounted, so every login is refused";
        return Finding::error(
            Check::ProcHidepid,
            "/proc",
            text,
            "it is missing: mount -t proc proc /proc",
        );
    };
    let hidden = option_value(options, "hidepid").unwrap_or("0");
    if matches!(hidden, "0" | "off") {
        return Finding::fine(
            Check::ProcHidepid,
            "/proc",
            "every user can see all processes",
        );
    }
    // Without the option it is root's group, in which the helper never is.
    let gid = option_value(options, "gid")
        .and_then(|gid| gid.parse().ok())
        .unwrap_or(0);
    let hides = format!("hides the processes of other users (hidepid={hidden}, gid={gid})");
    // Such a mount asks for the right to trace a process, whatever its gid (`has_pid_permissions`, fs/proc/base.c).
    let ignores_gid = matches!(hidden, "4" | "ptraceable");
    if !ignores_gid && gid != 0 && helper_gid == Some(gid) {
        let text = format!("{hides}, but not from the group of {HELPER_USER}");
        return Finding::fine(Check::ProcHidepid, "/proc", text);
    }
    let text = format!(
        "{hides}, also from {HELPER_USER}: no login finds a Flux job, and other nodes get no answer \
         about callers; jobs of Slurm and of records are found"
    );
    // The other modes of hidepid respect gid=, so that they may stay.
    let right_hidepid = if ignores_gid {
        "hidepid=invisible,"
    } else {
        ""
    };
    let remedy = match helper_gid {
        Some(right_gid) => format!(
            "let the primary group of {HELPER_USER} see them: mount -o remount,{right_hidepid}gid={right_gid} /proc; \
             the options are to be in /etc/fstab, and SupplementaryGroups={right_gid} in job-adopt-callerid@.service"
        ),
        // A missing account is a finding of its own.
        None => {
            format!("write gid=GROUP into its options, the primary group of {HELPER_USER}")
        }
    };
    Finding::warning(Check::ProcHidepid, "/proc", text, remedy)
}

impl Directory {
    fn read(trust: &Trust, path: PathBuf) -> Self {
        let mode = trust
            .dir(&path)
            .map(|dir| fstat(&dir).map_or(0, |stat| stat.st_mode & 0o7777));
        Self { path, mode }
    }

    /// Judges the directory: only root may write it, and the helper must be able to read it.
    fn finding(&self) -> Finding {
        let object = self.path.display();
        let path = shell_path(&self.path);
        let give_back = format!("install -d -m 0755 -o root -g root {path}");
        let why = match &self.mode {
            Ok(mode) if mode & 0o055 == 0o055 => {
                let text = "belongs to root, and the helper can read it";
                return Finding::fine(Check::RunDirectory, object, text);
            }
            Ok(mode) => {
                let text =
                    format!("the helper cannot read it (mode {mode:04o}), so logins are refused");
                let remedy = run(OwnCommand::reset_mode(OwnFile::RunDirectory(&self.path)));
                return Finding::error(Check::RunDirectory, object, text, remedy);
            }
            Err(error) if error.is_missing() => {
                let text = "is missing, so users with several jobs cannot choose one";
                let remedy = format!("make it, as systemd-tmpfiles does at each boot: {give_back}");
                return Finding::note(Check::RunDirectory, object, text, remedy);
            }
            Err(error) if is_exposed(error) => {
                let text = format!("{error}, so logins are refused");
                let advice = format!(
                    "others could write there: look at ls -laR {path}, and move away what root did not make; only \
                     then {give_back}, and register the jobs again"
                );
                return Finding::error(Check::RunDirectory, object, text, advice);
            }
            Err(error) => error,
        };
        let text = format!("{why}, so logins are refused");
        let remedy = format!("replace it by a directory of root's: {give_back}");
        Finding::error(Check::RunDirectory, object, text, remedy)
    }
}

/// Judges by the table of mounts whether the files of users' choices are in a file system of their own.
fn judge_choices(mounts: &str, is_masked: bool) -> Finding {
    if parse_lines(mounts).any(|mount| mount.at == CHOICE_DIR) {
        return Finding::fine(Check::UseMount, CHOICE_DIR, "is a file system of its own");
    }
    let text = "is part of /run: any user who has logged in to a job can fill it, which stops \
                prologs and logins";
    let enable = OwnCommand::job_adopt(Subcommand::Enable, ["--only", "mount"]);
    let remedy = if is_masked {
        let unit = shell_word(MOUNT_UNIT);
        format!("somebody has masked its unit; if it may be mounted: systemctl unmask {unit}, then {enable}").into()
    } else {
        run(enable)
    };
    Finding::warning(Check::UseMount, CHOICE_DIR, text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;
    use crate::testing::Scratch;

    /// Writes a line of the table of mounts.
    fn mount(at: &str, kind: &str, options: &str) -> String {
        format!("20 1 0:20 / {at} rw,nosuid shared:5 - {kind} x {options}\n")
    }

    #[test]
    fn node_without_cgroup_v2_is_an_error() {
        let scratch = Scratch::new();
        scratch.dir("sys/fs/cgroup/freezer");
        let hierarchy = check_hierarchy(scratch.path());
        assert_eq!(judge_hierarchy(&hierarchy).severity, Severity::Error);
    }

    #[test]
    fn read_only_hierarchy_is_an_error_with_its_path() {
        let finding = judge_hierarchy(&Err(HierarchyError::ReadOnly("/sys/fs/cgroup".to_owned())));
        assert_eq!(finding.severity, Severity::Error);
        assert!(
            finding
                .text
                .starts_with("/sys/fs/cgroup is mounted read-only"),
            "{finding:?}"
        );
        assert!(
            finding
                .remedy
                .advice()
                .contains("mount -o remount,rw /sys/fs/cgroup"),
            "{finding:?}"
        );
        assert_eq!(judge_hierarchy(&Ok(())).severity, Severity::Fine);
    }

    #[test]
    fn missing_favordynmods_is_noted_if_kernel_has_option() {
        let severity = |options: &str, features: &str| {
            let mounts = mount("/sys/fs/cgroup", "cgroup2", options);
            FavorDynMods::parse(&mounts, features)
                .finding()
                .map(|finding| finding.severity)
        };
        assert_eq!(severity("rw,nsdelegate", "nsdelegate\n"), None);
        assert_eq!(
            severity("rw,nsdelegate", "nsdelegate\nfavordynmods\n"),
            Some(Severity::Note)
        );
        assert_eq!(
            severity("rw,favordynmods", "favordynmods\n"),
            Some(Severity::Fine)
        );
        let v1 = mount("/sys/fs/cgroup", "tmpfs", "rw")
            + &mount("/sys/fs/cgroup/unified", "cgroup2", "rw");
        assert_eq!(FavorDynMods::parse(&v1, "favordynmods\n").finding(), None);
    }

    #[test]
    fn hidepid_is_a_warning_unless_helper_group_sees_processes() {
        let severity = |options: &str, member: bool| {
            let mounts = mount("/proc", "proc", "rw,hidepid=4")
                + &mount("/proc", "proc", options)
                + &mount("/proc/x", "proc", "hidepid=2");
            judge_proc(&mounts, Some(if member { 44 } else { 45 })).severity
        };
        assert_eq!(severity("rw", false), Severity::Fine);
        for hidden in ["hidepid=2", "hidepid=invisible", "hidepid=1"] {
            assert_eq!(
                severity(&format!("rw,{hidden}"), true),
                Severity::Warning,
                "{hidden}"
            );
            assert_eq!(
                severity(&format!("rw,{hidden},gid=44"), true),
                Severity::Fine,
                "{hidden}"
            );
            assert_eq!(
                severity(&format!("rw,{hidden},gid=44"), false),
                Severity::Warning
            );
        }
        // The kernel ignores the group in this mode.
        for hidden in ["hidepid=4", "hidepid=ptraceable"] {
            let mounts = mount("/proc", "proc", &format!("rw,{hidden},gid=44"));
            let finding = judge_proc(&mounts, Some(44));
            assert_eq!(finding.severity, Severity::Warning, "{hidden}");
            assert!(
                finding
                    .remedy
                    .advice()
                    .contains("remount,hidepid=invisible,gid=44")
            );
        }
        let without_proc = mount("/sys", "sysfs", "rw") + "/proc\n";
        assert_eq!(
            judge_proc(&without_proc, Some(44)).severity,
            Severity::Error
        );
    }

    #[test]
    fn choices_on_the_file_system_of_run_are_a_warning() {
        let run = mount("/run", "tmpfs", "rw") + &mount("/run/job-adopt/used", "tmpfs", "rw");
        let finding = judge_choices(&run, false);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(
            finding.remedy.command() == "job-adopt enable --only mount",
            "{finding:?}"
        );
        let masked = judge_choices(&run, true).remedy;
        assert_eq!(masked.command(), "");
        let expected =
            r"systemctl unmask 'run-job\x2dadopt-use.mount', then job-adopt enable --only mount";
        assert!(masked.advice().ends_with(expected), "{masked}");
        let own = run + &mount(CHOICE_DIR, "tmpfs", "rw");
        assert_eq!(judge_choices(&own, false).severity, Severity::Fine);
    }

    #[test]
    fn fault_that_directories_share_is_one_finding() {
        let scratch = Scratch::new();
        scratch.dir("run/job-adopt/use");
        let count = || {
            let trust = scratch.trust();
            let site = Site {
                trust,
                ..Site::read(
                    scratch.path().to_owned(),
                    "sshd",
                    "/none".into(),
                    helper::Config::default(),
                )
            };
            let findings = MountFacts::read(&site).judge_directories();
            findings
                .iter()
                .filter(|finding| finding.severity == Severity::Error)
                .count()
        };
        assert_eq!(count(), 0);
        for dir in ["run/job-adopt/use", "run/job-adopt", "run"] {
            scratch.mode(dir, 0o777);
            assert_eq!(count(), 1, "{dir}");
            scratch.mode(dir, 0o755);
        }
    }

    #[test]
    fn directory_that_others_write_or_helper_cannot_read_is_an_error() {
        let scratch = Scratch::new();
        let path = scratch.path().join("d");
        let severity = || {
            Directory::read(&scratch.trust(), path.clone())
                .finding()
                .severity
        };
        assert_eq!(severity(), Severity::Note);
        scratch.dir("d");
        assert_eq!(severity(), Severity::Fine);
        for (mode, has_command) in [(0o775, false), (0o757, false), (0o750, true)] {
            scratch.mode("d", mode);
            assert_eq!(severity(), Severity::Error, "{mode:o}");
            let remedy = Directory::read(&scratch.trust(), path.clone())
                .finding()
                .remedy;
            // What others could write, a person has to look at.
            assert_eq!(!remedy.command().is_empty(), has_command, "{remedy:?}");
        }
        scratch.mode("d", 0o755);
        let others = Trust::below(scratch.path(), scratch.trust().owner() + 1);
        assert_eq!(
            Directory::read(&others, path.clone()).finding().severity,
            Severity::Error
        );
        std::fs::remove_dir(&path).unwrap();
        scratch.file("d", "");
        assert_eq!(severity(), Severity::Error);
    }
}
