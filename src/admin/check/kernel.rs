//! What logins need of the kernel, by trying it in a cgroup of our own.

use super::{Check, Finding, Scene};
use crate::admin::sys::remove_xattr;
use crate::kernel::bpf::{self, Attached, Level, Program};
use crate::kernel::cgroup::{Dir, Error, Mount, event};
use crate::kernel::sys;
use crate::protocol::{Access, DeviceRule, DeviceType};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SIGKILL, SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, getpid};
use std::fmt::Display;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

const SCRATCH: Check = "kernel-cgroup";
const LOAD: Check = "kernel-device-filter";
const QUERY: Check = "kernel-filter-query";
const HOLDS: Check = "kernel-filter-holds";
const FREEZER: Check = "kernel-freezer";
const MARK: Check = "kernel-trusted-xattr";
const PIDFD: Check = "kernel-pidfd";

/// The attribute that is tried; no name of those that mean something.
const TRIED: &std::ffi::CStr = c"trusted.job_adopt_check";
/// How long a process in the cgroup may take to open two devices.
const TRIAL: Duration = Duration::from_secs(2);

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !Uid::effective().is_root() {
        let text = "what it can do cannot be tried";
        findings.push(Finding::unknown(SCRATCH, "kernel", text, "run this as root"));
        return findings;
    }
    findings.push(pidfd());
    let scratch = match Scratch::make(&scene.root) {
        Ok(scratch) => scratch,
        Err(error) => {
            let remedy = "mount cgroup v2 writable for root";
            findings.push(Finding::error(SCRATCH, "kernel", words(error), remedy));
            return findings;
        }
    };
    let dir = &scratch.dir;
    findings.push(Finding::fine(SCRATCH, dir.path(), "a cgroup can be made, tried and removed"));
    findings.extend([freezer(dir), mark(dir)]);
    findings.extend(filter(dir));
    findings
}

fn words(error: impl Display) -> String {
    error.to_string()
}

/// Loads and attaches a filter, asks for it, and has a process meet it.
fn filter(dir: &Dir) -> Vec<Finding> {
    let program = match attached(dir) {
        Ok(program) => program,
        Err(error) => {
            let text = format!(
                "no filter can be put on a cgroup ({error}): jobs with a device list \
                                are refused"
            );
            let remedy = "CONFIG_BPF_SYSCALL, CONFIG_CGROUP_BPF and Linux 5.1; as root with \
                          CAP_BPF and CAP_NET_ADMIN, and no lockdown=confidentiality";
            return vec![Finding::error(LOAD, "kernel", text, remedy)];
        }
    };
    let fine = Finding::fine(LOAD, "kernel", "filters can be loaded and attached (ALLOW_MULTI)");
    vec![fine, query(dir, &program), holds(dir)]
}

/// A filter that allows `/dev/null` and nothing else.
fn attached(dir: &Dir) -> Result<Program, String> {
    let null = DeviceRule::new(DeviceType::Char, 1, Some(3), Access::RW);
    let rules: Vec<DeviceRule> = null.into_iter().collect();
    let program = Program::load("job_adopt_check", &bpf::allow_rules(&rules)).map_err(words)?;
    sys::bpf::prog_attach(dir.as_fd(), program.as_fd(), sys::bpf::BPF_F_ALLOW_MULTI, None)
        .map_err(|error| format!("attach filter to {}: {error}", dir.path()))?;
    Ok(program)
}

/// Both ways of asking: what is attached there and how, and what runs.
fn query(dir: &Dir, program: &Program) -> Finding {
    let level = Level::read(dir).map(|level| (level.attached, level.ids()));
    let running = bpf::effective(dir);
    let wrong = |text: String| {
        let remedy = "CAP_SYS_ADMIN and CAP_NET_ADMIN; Linux 4.15";
        Finding::error(QUERY, "kernel", format!("{text}: every login is refused"), remedy)
    };
    match (level, running) {
        (Err(error), _) | (_, Err(error)) => wrong(words(error)),
        (Ok((Attached::Multi, ids)), Ok(running))
            if ids == [program.id()] && running.contains(&program.id()) =>
        {
            Finding::fine(QUERY, "kernel", "it tells which filters are attached and which run")
        }
        (Ok((attached, ids)), Ok(running)) => wrong(format!(
            "a filter that was attached is not told of: {} {ids:?}, running {running:?}",
            attached.as_str()
        )),
    }
}

/// What a process in the cgroup found, as its exit status.
mod status {
    /// The allowed device could be opened and the other one not.
    pub(super) const HELD: i32 = 0;
    /// The process could not enter the cgroup.
    pub(super) const OUTSIDE: i32 = 1;
    /// The allowed device could not be opened.
    pub(super) const CLOSED: i32 = 2;
    /// The other one could be opened.
    pub(super) const OPEN: i32 = 3;
}

fn holds(dir: &Dir) -> Finding {
    let wrong = |text: &str| {
        let remedy = "use a kernel that its distribution has tested: nothing here can be confined";
        Finding::error(HOLDS, "kernel", format!("{text}: logins would not be confined"), remedy)
    };
    match tried(dir) {
        Ok(status::HELD) => {
            Finding::fine(HOLDS, "kernel", "a process meets the filter of its cgroup")
        }
        Ok(status::OPEN) => wrong("a process opens what the filter of its cgroup refuses"),
        Ok(status::CLOSED) => wrong("a process cannot open what the filter of its cgroup allows"),
        Ok(status::OUTSIDE) => {
            let remedy = "mount cgroup v2 writable for root";
            let text = "a process cannot be moved into a cgroup: every login is refused";
            Finding::error(HOLDS, "kernel", text, remedy)
        }
        Ok(_) => Finding::unknown(HOLDS, "kernel", "the process that was to try it ended", ""),
        Err(errno) => {
            let text = format!("no process could try it: {}", errno.desc());
            Finding::unknown(HOLDS, "kernel", text, "")
        }
    }
}

/// Has a child enter the cgroup and open two devices of the kernel's own, which nothing happens by.
fn tried(dir: &Dir) -> Result<i32, Errno> {
    in_a_child(|| {
        if dir.write("cgroup.procs", "0").is_err() {
            return status::OUTSIDE;
        }
        let open = |path| open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        match (open("/dev/null"), open("/dev/zero")) {
            (Err(_), _) => status::CLOSED,
            (_, Err(Errno::EPERM)) => status::HELD,
            _ => status::OPEN,
        }
    })
}

/// The exit status of a child that runs this, which is ended after a while.
pub(super) fn in_a_child(body: impl FnOnce() -> i32) -> Result<i32, Errno> {
    let child = crate::admin::sys::process::fork_and(body);
    reaped(child.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?)
}

/// Its exit status, or an end after a while.
fn reaped(child: Pid) -> Result<i32, Errno> {
    let deadline = Instant::now() + TRIAL;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, status)) => return Ok(status),
            Ok(WaitStatus::StillAlive) => {}
            Ok(_) => return Err(Errno::EINTR),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        if Instant::now() > deadline {
            let _ = kill(child, SIGKILL);
            let _ = waitpid(child, None);
            return Err(Errno::ETIMEDOUT);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn freezer(dir: &Dir) -> Finding {
    let asked = dir.read("cgroup.freeze").ok().flatten();
    let done = event(dir, "frozen").ok().flatten();
    if asked.is_some() && done.is_some() {
        return Finding::fine(FREEZER, "kernel", "a suspended job is told from a running one");
    }
    let text = "it has no cgroup.freeze: a login to a job that is suspended by other means stops";
    Finding::warning(FREEZER, "kernel", text, "Linux 5.2")
}

fn mark(dir: &Dir) -> Finding {
    let tried = sys::file::set_xattr(dir.as_fd(), TRIED, b"1", 0)
        .and_then(|()| sys::file::get_xattr(dir.as_fd(), TRIED))
        .and_then(|value| remove_xattr(dir.as_fd(), TRIED).map(|()| value));
    match tried {
        Ok(value) if value == b"1" => {
            Finding::fine(MARK, "kernel", "cgroups can carry marks of root's (trusted.*)")
        }
        Ok(_) => Finding::error(MARK, "kernel", "a mark on a cgroup is read back as another", ""),
        Err(error) => {
            let text =
                format!("cgroups cannot carry marks of root's ({error}): no job can be registered");
            let remedy = "CAP_SYS_ADMIN in the first user namespace: no unprivileged container, no \
                          PrivateUsers=";
            Finding::error(MARK, "kernel", text, remedy)
        }
    }
}

fn pidfd() -> Finding {
    let Err(error) = sys::process::pidfd_open(getpid().as_raw()) else {
        return Finding::fine(PIDFD, "kernel", "processes can be held on to (pidfd)");
    };
    let text = format!(
        "there is no pidfd_open ({error}): jobs of Flux are refused, and unregister cannot end \
         logins"
    );
    let remedy = "Linux 5.3, and no filter of system calls that refuses it";
    Finding::warning(PIDFD, "kernel", text, remedy)
}

/// What every name begins with; the pid namespace and the process follow.
const PREFIX: &str = "job-adopt-check-";
/// What asks a process to end.
const ENDING: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGPIPE];
/// How long its last process may take to go.
const REMOVAL: Duration = Duration::from_secs(2);

/// A cgroup to try things in. It is made in the root of the mount: below the cgroup of this process
/// a filter of somebody else's may keep others from being attached, and a cgroup there that hands
/// controllers down takes no process. It is there for some milliseconds, no controller is handed to
/// it, and systemd leaves cgroups alone that it did not make. It is emptied and removed when this is dropped; until then this process is not ended
/// by what can be put off.
#[derive(Debug)]
struct Scratch {
    root: Dir,
    name: String,
    dir: Dir,
    before: SigSet,
}

impl Scratch {
    /// Makes it below the mount of the node whose root is `root`, and removes what an earlier one
    /// left that was killed.
    /// Fails: as `mkdir(2)`: `EROFS` for a mount that is read-only.
    fn make(root: &Path) -> Result<Self, Error> {
        let mount = Mount::below(root)?;
        let top = mount.root().try_clone()?;
        let space = namespace();
        sweep(&top, &space);
        let mut before = SigSet::empty();
        let ending: SigSet = ENDING.into_iter().collect();
        // Where it fails they are not put off, and the next call sweeps.
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&ending), Some(&mut before));
        let name = format!("{PREFIX}{space}-{}", getpid());
        let made = top.make_child(&name).and_then(|_| top.child(&name));
        match made {
            Ok(dir) => Ok(Self { root: top, name, dir, before }),
            Err(error) => {
                let _ = top.remove_child(&name);
                restore(&before);
                Err(error)
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.root, &self.dir, &self.name);
        restore(&self.before);
    }
}

fn restore(before: &SigSet) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(before), None);
}

/// Ends what is in it and removes it, as long as that may take.
fn remove(root: &Dir, dir: &Dir, name: &str) {
    let deadline = Instant::now() + REMOVAL;
    while root.remove_child(name).is_err() && Instant::now() < deadline {
        let procs = dir.read("cgroup.procs").ok().flatten().unwrap_or_default();
        for pid in procs.lines().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid > 1) {
            let _ = kill(Pid::from_raw(pid), SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Numbers of processes are of one pid namespace: by the inode of ours.
fn namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
}

/// Removes those of this pid namespace whose process is gone.
fn sweep(top: &Dir, space: &str) {
    for name in top.children().unwrap_or_default() {
        let Some(name) = name.to_str() else { continue };
        let pid = name.strip_prefix(&format!("{PREFIX}{space}-"));
        let Some(pid) = pid.and_then(|pid| pid.parse().ok()) else { continue };
        if let (Err(_), Ok(dir)) = (kill(Pid::from_raw(pid), None), top.child(name)) {
            remove(top, &dir, name);
        }
    }
}
