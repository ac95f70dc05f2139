//! Tries the kernel features that logins need, in a temporary cgroup.

use super::finding::{Check, Finding};
use super::remedy::Remedy;
use super::site::Site;
use super::trial_cgroup::TrialCgroup;
use command::child_process::run_in_child;
use command::sys::remove_xattr;
use facts::filters::attach_mode_name;
use kernel::OperationError;
use kernel::bpf::{self, AttachMode, CgroupPrograms, Program};
use kernel::cgroup::{self, Dir, read_event};
use kernel::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::getpid;
use protocol::{Access, DeviceRule, DeviceType};
use std::io;
use std::os::fd::AsFd;

/// The extended attribute that the trial sets; no other code reads it.
const TRIAL_XATTR: &std::ffi::CStr = c"trusted.job_adopt_check";
const OBJECT: &str = "kernel";

/// Names the remedy for a hierarchy in which nothing can be made.
fn writable_remedy() -> Remedy {
    "make it writable: mount -o remount,rw /sys/fs/cgroup; in a container, run it with a writable one".into()
}

/// What was found out about the kernel; nothing without root's rights.
#[derive(Debug)]
pub(super) struct KernelFacts(Option<Trials>);

#[derive(Debug)]
struct Trials {
    pidfd: io::Result<()>,
    /// The trials that need a cgroup, or why none can be made.
    cgroup: Result<CgroupTrials, cgroup::Error>,
}

/// The trials in a cgroup.
#[derive(Debug)]
struct CgroupTrials {
    path: String,
    has_freezer: bool,
    /// The value of an extended attribute, which was set to "1".
    xattr: io::Result<Vec<u8>>,
    /// The trials of a device filter, or why none can be attached.
    filter: bpf::Result<FilterTrials>,
}

/// The trials of an attached device filter.
#[derive(Debug)]
struct FilterTrials {
    reported: bpf::Result<ReportedFilters>,
    enforcement: Enforcement,
}

/// What the kernel reports of the filters of a cgroup that has one.
#[derive(Debug)]
struct ReportedFilters {
    /// The number of the filter that was attached.
    own: u32,
    mode: AttachMode,
    attached: Vec<u32>,
    effective: Vec<u32>,
}

/// What a filter does that allows `/dev/null` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enforcement {
    Holds,
    /// No process can be moved into the cgroup.
    NoMove,
    /// It refuses `/dev/null`.
    TooStrict,
    /// It allows another device.
    Ineffective,
    /// No child process could try it.
    Unknown,
}

impl KernelFacts {
    /// Tries what the kernel supports, in a cgroup that is made for this; nothing is tried without root's
    /// rights.
    pub(super) fn read(site: &Site) -> Self {
        if !site.is_root() {
            return Self(None);
        }
        Self(Some(Trials {
            pidfd: sys::pidfd::pidfd_open(getpid().as_raw()).map(drop),
            cgroup: TrialCgroup::create(&site.root).map(|trial| CgroupTrials::run(&trial.dir)),
        }))
    }

    /// Judges the trials. Without them it is unknown what the kernel supports.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let Some(trials) = &self.0 else {
            let text = "only root can try what it supports";
            return vec![Finding::unknown(
                Check::KernelCgroup,
                OBJECT,
                text,
                "run this as root",
            )];
        };
        let mut findings = vec![judge_pidfd(&trials.pidfd)];
        match &trials.cgroup {
            Ok(cgroup) => findings.extend(cgroup.findings()),
            Err(error) => {
                findings.push(Finding::error(
                    Check::KernelCgroup,
                    OBJECT,
                    error,
                    writable_remedy(),
                ));
            }
        }
        findings
    }
}

/// Judges whether the kernel has `pidfd_open(2)`, which the keeper and `unregister` need.
fn judge_pidfd(pidfd: &io::Result<()>) -> Finding {
    let Err(error) = pidfd else {
        return Finding::fine(Check::KernelPidfd, OBJECT, "it has pidfd_open");
    };
    let text = format!(
        "it has no pidfd_open ({error}), so logins to Flux jobs are refused, and unregister cannot \
         end logins"
    );
    let remedy = "boot Linux 5.3 or newer; in a container, allow pidfd_open in its seccomp profile";
    Finding::warning(Check::KernelPidfd, OBJECT, text, remedy)
}

impl CgroupTrials {
    /// Makes the trials in the cgroup `dir`. The filter that it attaches stays until the cgroup is removed.
    fn run(dir: &Dir) -> Self {
        // `Ok(None)` means that the kernel has no such file or event.
        let freeze = dir.read("cgroup.freeze");
        let frozen = read_event(dir, "frozen");
        Self {
            path: dir.path().to_owned(),
            has_freezer: matches!((freeze, frozen), (Ok(Some(_)), Ok(Some(_)))),
            xattr: try_xattr(dir),
            filter: attach_filter(dir).map(|program| FilterTrials {
                reported: read_filters(dir, &program),
                enforcement: try_filter(dir),
            }),
        }
    }

    /// Judges the trials in a cgroup, and those of a filter if one could be attached.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![
            judge_cgroup(&self.path),
            judge_freezer(self.has_freezer),
            judge_xattr(&self.xattr),
        ];
        match &self.filter {
            Ok(trials) => findings.extend(trials.findings()),
            Err(error) => findings.push(judge_attach_error(error)),
        }
        findings
    }
}

impl FilterTrials {
    /// Judges whether the kernel reports the attached filter, and whether the filter holds.
    fn findings(&self) -> [Finding; 3] {
        let text = "device filters can be attached";
        [
            Finding::fine(Check::KernelDeviceFilter, OBJECT, text),
            judge_filters(&self.reported),
            judge_enforcement(self.enforcement),
        ]
    }
}

fn judge_cgroup(path: &str) -> Finding {
    Finding::fine(
        Check::KernelCgroup,
        path,
        "a cgroup can be made, tried and removed",
    )
}

/// Reports why no device filter can be attached.
fn judge_attach_error(error: &bpf::Error) -> Finding {
    let text = format!(
        "no device filter can be attached ({error}), so logins to jobs with a device list are refused"
    );
    let remedy = "boot Linux 5.1 or newer with CONFIG_CGROUP_BPF and without \
                  lockdown=confidentiality; in a container, add CAP_BPF and CAP_NET_ADMIN";
    Finding::error(Check::KernelDeviceFilter, OBJECT, text, remedy)
}

/// Judges whether the kernel shows which cgroups are frozen: a login would wait in a frozen one.
fn judge_freezer(has_freezer: bool) -> Finding {
    if has_freezer {
        let text = "it shows which jobs are suspended";
        return Finding::fine(Check::KernelFreezer, OBJECT, text);
    }
    let text = "it has no cgroup.freeze, so a login to a suspended job hangs until the job goes on";
    Finding::warning(
        Check::KernelFreezer,
        OBJECT,
        text,
        "boot Linux 5.2 or newer",
    )
}

/// Sets an extended attribute, reads it back and removes it.
fn try_xattr(dir: &Dir) -> io::Result<Vec<u8>> {
    sys::file::set_xattr(dir.as_fd(), TRIAL_XATTR, b"1", 0)?;
    let value = sys::file::get_xattr(dir.as_fd(), TRIAL_XATTR)?;
    remove_xattr(dir.as_fd(), TRIAL_XATTR)?;
    Ok(value)
}

/// Judges whether an extended attribute of a cgroup keeps the value that was set: stamps and marks are such
/// attributes.
fn judge_xattr(value: &io::Result<Vec<u8>>) -> Finding {
    let why = match value {
        Ok(value) if value == b"1" => {
            let text = "root can mark cgroups (trusted.* attributes)";
            return Finding::fine(Check::KernelTrustedXattr, OBJECT, text);
        }
        Ok(_) => "it reads back another value".to_owned(),
        Err(error) => error.to_string(),
    };
    let text = format!(
        "root cannot mark cgroups (trusted.* attributes: {why}), so no job can be registered"
    );
    let remedy = "run it with CAP_SYS_ADMIN of the host: not in an unprivileged container, and \
                  without PrivateUsers= in the unit";
    Finding::error(Check::KernelTrustedXattr, OBJECT, text, remedy)
}

/// Attaches a filter that allows `/dev/null` and no other device.
fn attach_filter(dir: &Dir) -> bpf::Result<Program> {
    let null = DeviceRule::from_numbers(DeviceType::Char, 1, Some(3), Access::RW);
    let rules: Vec<DeviceRule> = null.into_iter().collect();
    let program = Program::load("job_adopt_check", &bpf::allow_rules(&rules))?;
    sys::bpf::prog_attach(
        dir.as_fd(),
        program.as_fd(),
        sys::bpf::BPF_F_ALLOW_MULTI,
        None,
    )
    .map_err(|error| OperationError::new("attach filter to", dir.path(), error))?;
    Ok(program)
}

/// Queries the attached and the effective programs of a cgroup to which `program` is attached.
fn read_filters(dir: &Dir, program: &Program) -> bpf::Result<ReportedFilters> {
    let level = CgroupPrograms::read(dir)?;
    let effective = bpf::query_effective(dir)?;
    Ok(ReportedFilters {
        own: program.id(),
        mode: level.mode,
        attached: level.ids(),
        effective,
    })
}

/// Judges whether the queries for attached and for effective programs both report the filter. In the trial's
/// new cgroup it is the only attached one; cgroups above may add effective ones.
fn judge_filters(reported: &bpf::Result<ReportedFilters>) -> Finding {
    let why = match reported {
        Ok(ReportedFilters {
            own,
            mode: AttachMode::Multi,
            attached,
            effective,
        }) if *attached == [*own] && effective.contains(own) => {
            let text = "it shows which device filters are attached and effective";
            return Finding::fine(Check::KernelFilterQuery, OBJECT, text);
        }
        Ok(ReportedFilters {
            mode,
            attached,
            effective,
            ..
        }) => format!(
            "it does not show an attached device filter (attached: {} {attached:?}, effective: \
             {effective:?})",
            attach_mode_name(*mode)
        ),
        Err(error) => error.to_string(),
    };
    let text = format!("{why}, so every login is refused");
    let remedy = "boot Linux 4.15 or newer; in a container, add CAP_SYS_ADMIN and CAP_NET_ADMIN";
    Finding::error(Check::KernelFilterQuery, OBJECT, text, remedy)
}

/// Moves a child into the cgroup, where it opens `/dev/null`, which the filter allows, and `/dev/zero`, which
/// it refuses. Opening them has no effect. The child's exit status tells how far it came.
fn try_filter(dir: &Dir) -> Enforcement {
    const HOLDS: i32 = 0;
    const NO_MOVE: i32 = 1;
    const TOO_STRICT: i32 = 2;
    const INEFFECTIVE: i32 = 3;
    let status = run_in_child(|| {
        if dir.write("cgroup.procs", "0").is_err() {
            return NO_MOVE;
        }
        if open(
            "/dev/null",
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .is_err()
        {
            return TOO_STRICT;
        }
        match open(
            "/dev/zero",
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        ) {
            Err(Errno::EPERM) => HOLDS,
            _ => INEFFECTIVE,
        }
    });
    match status {
        Ok(HOLDS) => Enforcement::Holds,
        Ok(NO_MOVE) => Enforcement::NoMove,
        Ok(TOO_STRICT) => Enforcement::TooStrict,
        Ok(INEFFECTIVE) => Enforcement::Ineffective,
        _ => Enforcement::Unknown,
    }
}

/// Judges whether an attached device filter holds.
fn judge_enforcement(enforcement: Enforcement) -> Finding {
    let other_kernel =
        "boot another kernel, such as the distribution's own: this one confines no login";
    let (text, remedy) = match enforcement {
        Enforcement::Holds => {
            let text = "device filters hold for the processes of a cgroup";
            return Finding::fine(Check::KernelFilterHolds, OBJECT, text);
        }
        Enforcement::Unknown => {
            let text = "no child process could try a device filter";
            return Finding::unknown(Check::KernelFilterHolds, OBJECT, text, "run this again");
        }
        Enforcement::NoMove => (
            "no process can be moved into a cgroup, so every login is refused",
            writable_remedy(),
        ),
        Enforcement::TooStrict => (
            "device filters refuse devices that they allow",
            other_kernel.into(),
        ),
        Enforcement::Ineffective => (
            "device filters let processes open devices that they refuse: logins are not confined",
            other_kernel.into(),
        ),
    };
    Finding::error(Check::KernelFilterHolds, OBJECT, text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn good_filter() -> FilterTrials {
        let reported = ReportedFilters {
            own: 7,
            mode: AttachMode::Multi,
            attached: vec![7],
            effective: vec![3, 7],
        };
        FilterTrials {
            reported: Ok(reported),
            enforcement: Enforcement::Holds,
        }
    }

    fn good_cgroup() -> CgroupTrials {
        CgroupTrials {
            path: "/trial".to_owned(),
            has_freezer: true,
            xattr: Ok(b"1".to_vec()),
            filter: Ok(good_filter()),
        }
    }

    /// Lists the findings that are not fine.
    fn bad_findings(cgroup: Result<CgroupTrials, cgroup::Error>) -> Vec<String> {
        let pidfd = Err(io::ErrorKind::Unsupported.into());
        let findings = KernelFacts(Some(Trials { pidfd, cgroup })).findings();
        let mut bad = findings
            .iter()
            .filter(|finding| finding.severity != Severity::Fine);
        assert_eq!(bad.next().unwrap().check, Check::KernelPidfd);
        bad.map(|finding| format!("{} {}", finding.severity, finding.check))
            .collect()
    }

    #[test]
    fn kernel_that_root_did_not_try_is_unknown() {
        let findings = KernelFacts(None).findings();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Unknown);
    }

    #[test]
    fn each_failed_trial_is_reported() {
        assert_eq!(bad_findings(Ok(good_cgroup())), [""; 0]);
        assert_eq!(
            bad_findings(Err(cgroup::Error::NotMounted)),
            ["error kernel-cgroup"]
        );
        let without_freezer = CgroupTrials {
            has_freezer: false,
            ..good_cgroup()
        };
        assert_eq!(
            bad_findings(Ok(without_freezer)),
            ["warning kernel-freezer"]
        );
        for xattr in [
            Ok(b"2".to_vec()),
            Err(io::ErrorKind::PermissionDenied.into()),
        ] {
            let cgroup = CgroupTrials {
                xattr,
                ..good_cgroup()
            };
            assert_eq!(bad_findings(Ok(cgroup)), ["error kernel-trusted-xattr"]);
        }
        let error = OperationError::new("load", "filter", io::ErrorKind::PermissionDenied);
        let without_filter = CgroupTrials {
            filter: Err(error.into()),
            ..good_cgroup()
        };
        assert_eq!(
            bad_findings(Ok(without_filter)),
            ["error kernel-device-filter"]
        );
    }

    #[test]
    fn filter_that_is_not_reported_is_an_error() {
        for (mode, attached, effective) in [
            (AttachMode::Override, vec![7], vec![7]),
            (AttachMode::Multi, vec![7, 8], vec![7, 8]),
            (AttachMode::Multi, vec![], vec![7]),
            (AttachMode::Multi, vec![7], vec![8]),
        ] {
            let reported = ReportedFilters {
                own: 7,
                mode,
                attached,
                effective,
            };
            let finding = judge_filters(&Ok(reported));
            assert_eq!(finding.severity, Severity::Error, "{finding:?}");
        }
    }

    #[test]
    fn filter_that_does_not_hold_is_an_error() {
        for (enforcement, severity) in [
            (Enforcement::Holds, Severity::Fine),
            (Enforcement::NoMove, Severity::Error),
            (Enforcement::TooStrict, Severity::Error),
            (Enforcement::Ineffective, Severity::Error),
            (Enforcement::Unknown, Severity::Unknown),
        ] {
            let filter = FilterTrials {
                enforcement,
                ..good_filter()
            };
            let findings = CgroupTrials {
                filter: Ok(filter),
                ..good_cgroup()
            }
            .findings();
            let last = findings.last().unwrap();
            assert_eq!(last.check, Check::KernelFilterHolds);
            assert_eq!(last.severity, severity, "{enforcement:?}");
        }
    }
}
