//! Tries the kernel features that logins need, in a temporary cgroup.

use super::finding::{Check, Finding, Severity};
use super::site::Site;
use crate::child_process::run_in_child;
use crate::explain::filters::attach_mode_name;
use crate::job::ending::kill_all;
use crate::sys::remove_xattr;
use kernel::bpf::{self, AttachMode, CgroupPrograms, Program};
use kernel::cgroup::{self, Dir, Mount, read_event};
use kernel::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpid};
use protocol::{Access, DeviceRule, DeviceType};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The extended attribute that the trial sets; no other code reads it.
const TRIAL_XATTR: &std::ffi::CStr = c"trusted.job_adopt_check";
/// Longest wait for processes to leave the cgroup.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);
const WRITABLE_REMEDY: &str =
    "mount -o remount,rw /sys/fs/cgroup; in a container, run it with a writable one";

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    if !site.is_root() {
        let text = "only root can try what it supports";
        return vec![Finding::unknown(Check::KernelCgroup, "kernel", text, "run this as root")];
    }
    let mut findings = vec![check_pidfd()];
    match TrialCgroup::create(&site.root) {
        Err(error) => {
            findings.push(Finding::error(Check::KernelCgroup, "kernel", error, WRITABLE_REMEDY));
        }
        Ok(trial) => {
            let text = "a cgroup can be made, tried and removed";
            findings.push(Finding::fine(Check::KernelCgroup, trial.dir.path(), text));
            findings.extend([check_freezer(&trial.dir), check_xattr(&trial.dir)]);
            findings.extend(check_filter(&trial.dir));
        }
    }
    findings
}

fn check_pidfd() -> Finding {
    let Err(error) = sys::pidfd::pidfd_open(getpid().as_raw()) else {
        return Finding::fine(Check::KernelPidfd, "kernel", "it has pidfd_open");
    };
    let text = format!(
        "it has no pidfd_open ({error}), so logins to Flux jobs are refused, and unregister cannot \
         end logins"
    );
    let remedy = "boot Linux 5.3 or newer; in a container, allow pidfd_open in its seccomp profile";
    Finding::warning(Check::KernelPidfd, "kernel", text, remedy)
}

fn check_freezer(dir: &Dir) -> Finding {
    if let (Ok(Some(_)), Ok(Some(_))) = (dir.read("cgroup.freeze"), read_event(dir, "frozen")) {
        return Finding::fine(Check::KernelFreezer, "kernel", "it shows which jobs are suspended");
    }
    let text = "it has no cgroup.freeze, so a login to a suspended job hangs until the job goes on";
    Finding::warning(Check::KernelFreezer, "kernel", text, "boot Linux 5.2 or newer")
}

fn check_xattr(dir: &Dir) -> Finding {
    let read_back = sys::file::set_xattr(dir.as_fd(), TRIAL_XATTR, b"1", 0)
        .and_then(|()| sys::file::get_xattr(dir.as_fd(), TRIAL_XATTR))
        .and_then(|value| remove_xattr(dir.as_fd(), TRIAL_XATTR).map(|()| value));
    let why = match read_back {
        Ok(value) if value == b"1" => {
            return Finding::fine(
                Check::KernelTrustedXattr,
                "kernel",
                "root can mark cgroups (trusted.* attributes)",
            );
        }
        Ok(_) => "it reads back another value".to_owned(),
        Err(error) => error.to_string(),
    };
    let text = format!(
        "root cannot mark cgroups (trusted.* attributes: {why}), so no job can be registered"
    );
    let remedy = "run it with CAP_SYS_ADMIN of the host: not in an unprivileged container, and \
                  without PrivateUsers= in the unit";
    Finding::error(Check::KernelTrustedXattr, "kernel", text, remedy)
}

/// Loads and attaches a filter, queries it, and tries it on a process.
fn check_filter(dir: &Dir) -> Vec<Finding> {
    let program = match attach_filter(dir) {
        Ok(program) => program,
        Err(error) => {
            let text = format!(
                "no device filter can be attached ({error}), so logins to jobs with a device list are \
                 refused"
            );
            let remedy = "boot Linux 5.1 or newer with CONFIG_CGROUP_BPF and without \
                          lockdown=confidentiality; in a container, add CAP_BPF and CAP_NET_ADMIN";
            return vec![Finding::error(Check::KernelDeviceFilter, "kernel", text, remedy)];
        }
    };
    let fine = Finding::fine(Check::KernelDeviceFilter, "kernel", "device filters can be attached");
    let query = match check_queries(dir, &program) {
        Ok(()) => Finding::fine(
            Check::KernelFilterQuery,
            "kernel",
            "it shows which device filters are attached and effective",
        ),
        Err(why) => {
            let text = format!("{why}, so every login is refused");
            let remedy =
                "boot Linux 4.15 or newer; in a container, add CAP_SYS_ADMIN and CAP_NET_ADMIN";
            Finding::error(Check::KernelFilterQuery, "kernel", text, remedy)
        }
    };
    vec![fine, query, check_enforcement(dir)]
}

/// Attaches a filter that allows `/dev/null` and no other device.
fn attach_filter(dir: &Dir) -> Result<Program, String> {
    let null = DeviceRule::from_numbers(DeviceType::Char, 1, Some(3), Access::RW);
    let rules: Vec<DeviceRule> = null.into_iter().collect();
    let program = Program::load("job_adopt_check", &bpf::allow_rules(&rules));
    let program = program.map_err(|error| error.to_string())?;
    sys::bpf::prog_attach(dir.as_fd(), program.as_fd(), sys::bpf::BPF_F_ALLOW_MULTI, None)
        .map_err(|error| format!("attach filter to {}: {error}", dir.path()))?;
    Ok(program)
}

/// Checks that the queries for attached and for effective programs both report the program.
fn check_queries(dir: &Dir, program: &Program) -> Result<(), String> {
    let level = CgroupPrograms::read(dir).map_err(|error| error.to_string())?;
    let running = bpf::query_effective(dir).map_err(|error| error.to_string())?;
    let ids = level.ids();
    let attached = level.mode;
    let is_reported = ids == [program.id()] && running.contains(&program.id());
    if is_reported && attached == AttachMode::Multi {
        return Ok(());
    }
    let attached = attach_mode_name(attached);
    Err(format!(
        "it does not show an attached device filter (attached: {attached} {ids:?}, effective: \
         {running:?})"
    ))
}

/// Moves a child into the cgroup, where it opens two devices of the kernel; opening them has no
/// effect.
fn check_enforcement(dir: &Dir) -> Finding {
    let status = run_in_child(|| {
        let open = |path| open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let entered = dir.write("cgroup.procs", "0");
        match (entered, open("/dev/null"), open("/dev/zero")) {
            (Ok(()), Ok(_), Err(Errno::EPERM)) => 0,
            (Err(_), ..) => 1,
            (_, Err(_), _) => 2,
            _ => 3,
        }
    });
    let tested = "boot another kernel, such as the distribution's own: this one confines no login";
    let (severity, text, remedy) = match status {
        Ok(0) => (Severity::Fine, "device filters hold for the processes of a cgroup", ""),
        Ok(1) => (
            Severity::Error,
            "no process can be moved into a cgroup, so every login is refused",
            WRITABLE_REMEDY,
        ),
        Ok(2) => (Severity::Error, "device filters refuse devices that they allow", tested),
        Ok(3) => (
            Severity::Error,
            "device filters let processes open devices that they refuse: logins are not confined",
            tested,
        ),
        _ => (
            Severity::Unknown,
            "no child process could try a device filter",
            "run job-adopt check again",
        ),
    };
    Finding::new(severity, Check::KernelFilterHolds, "kernel", text, remedy)
}

/// Name of the cgroup below the trial's for a second move.
const SECOND_MOVE_CGROUP: &str = "second";
/// Pause before the first move. A move does not wait while the kernel remembers an earlier one, of this
/// command or of another program.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Measures how long two moves of a child of this process into a temporary cgroup take: one after a
/// pause, and one right after it, which need not wait for the kernel. `None` if they cannot be made.
pub(super) fn measure_moves(root: &Path) -> Option<[Duration; 2]> {
    let trial = TrialCgroup::create(root).ok()?;
    trial.dir.make_child(SECOND_MOVE_CGROUP).ok()?;
    let second = trial.dir.child(SECOND_MOVE_CGROUP).ok()?;
    let mut times = File::from(memfd_create(c"times", MFdFlags::MFD_CLOEXEC).ok()?);
    let status = run_in_child(|| {
        sleep(IDLE_INTERVAL);
        let written = [&trial.dir, &second].iter().all(|dir| {
            let began = Instant::now();
            dir.write("cgroup.procs", "0").is_ok()
                && times.write_all(&began.elapsed().as_secs_f64().to_ne_bytes()).is_ok()
        });
        i32::from(!written)
    });
    let mut seconds = [[0; 8]; 2];
    times.rewind().ok()?;
    seconds.iter_mut().try_for_each(|time| times.read_exact(time)).ok()?;
    let times = seconds.map(|time| Duration::from_secs_f64(f64::from_ne_bytes(time)));
    (status.ok()? == 0).then_some(times)
}

/// Prefix of the cgroups' names; the pid namespace and the process follow.
const NAME_PREFIX: &str = "job-adopt-check-";

/// A cgroup for trials, in the root of the mount.
///
/// Below the cgroup of this process another program's filter may prevent attaching more, and a cgroup
/// there that hands controllers down takes no process. This one exists for some milliseconds, gets no
/// controller, and systemd leaves cgroups alone that it did not make. `drop` removes it; if this
/// process was killed before, the next check does.
#[derive(Debug)]
struct TrialCgroup {
    root: Dir,
    name: String,
    dir: Dir,
}

impl TrialCgroup {
    /// Creates the cgroup in the mount of the node whose root is `root`, and removes those of checks
    /// that were killed.
    ///
    /// # Errors
    ///
    /// The errors of `mkdir(2)`: `EROFS` for a mount that is read-only.
    fn create(root: &Path) -> Result<Self, cgroup::Error> {
        let root = Mount::open_below(root)?.root().clone();
        // A process number is valid in one pid namespace; the name has the inode of this one.
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let namespace = namespace.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
        let prefix = format!("{NAME_PREFIX}{namespace}-");
        for name in root.children()? {
            let pid = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
            if pid.is_some_and(|pid| kill(Pid::from_raw(pid), None).is_err()) {
                remove(&root, name.to_string_lossy().as_ref());
            }
        }
        let name = format!("{prefix}{}", getpid());
        root.make_child(&name)?;
        Ok(Self { dir: root.child(&name)?, root, name })
    }
}

impl Drop for TrialCgroup {
    fn drop(&mut self) {
        remove(&self.root, &self.name);
    }
}

/// Kills every process in a trial cgroup and removes it. If that fails, the next check tries again.
fn remove(root: &Dir, name: &str) {
    let _ = root.child(name).and_then(|dir| {
        let _ = kill_all(&dir, Instant::now() + REMOVAL_TIMEOUT);
        dir.remove_child(SECOND_MOVE_CGROUP)?;
        root.remove_child(name)
    });
}
