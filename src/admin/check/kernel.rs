//! What logins need of the kernel, by trying it in a cgroup of our own.

use super::ask::in_a_child;
use super::finding::Severity;
use super::{Check, Finding, Site};
use crate::ending::kill_all;
use crate::filters::attachment;
use crate::sys::remove_xattr;
use keeper::subtree;
use kernel::bpf::{self, Attached, Level, Program};
use kernel::cgroup::{self, Dir, Mount, event};
use kernel::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpid};
use protocol::{Access, DeviceRule, DeviceType};
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
/// How long a process may take to leave the cgroup.
const REMOVAL: Duration = Duration::from_secs(2);
const WRITABLE: &str = "mount cgroup v2 writable for root";

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    if !site.is_root() {
        let text = "what it can do cannot be tried";
        return vec![Finding::unknown(SCRATCH, "kernel", text, "run this as root")];
    }
    let mut found = vec![pidfd()];
    match Scratch::make(&site.root) {
        Err(error) => found.push(Finding::error(SCRATCH, "kernel", error, WRITABLE)),
        Ok(scratch) => {
            let text = "a cgroup can be made, tried and removed";
            found.push(Finding::fine(SCRATCH, scratch.dir.path(), text));
            found.extend([freezer(&scratch.dir), mark(&scratch.dir)]);
            found.extend(filter(&scratch.dir));
        }
    }
    found
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

fn freezer(dir: &Dir) -> Finding {
    if let (Ok(Some(_)), Ok(Some(_))) = (dir.read("cgroup.freeze"), event(dir, "frozen")) {
        return Finding::fine(FREEZER, "kernel", "a suspended job is told from a running one");
    }
    let text = "it has no cgroup.freeze: a login to a job that is suspended by other means stops";
    Finding::warning(FREEZER, "kernel", text, "Linux 5.2")
}

fn mark(dir: &Dir) -> Finding {
    let tried = sys::file::set_xattr(dir.as_fd(), TRIED, b"1", 0)
        .and_then(|()| sys::file::get_xattr(dir.as_fd(), TRIED))
        .and_then(|value| remove_xattr(dir.as_fd(), TRIED).map(|()| value));
    let why = match tried {
        Ok(value) if value == b"1" => {
            return Finding::fine(MARK, "kernel", "cgroups can carry marks of root's (trusted.*)");
        }
        Ok(_) => "another one is read back".to_owned(),
        Err(error) => error.to_string(),
    };
    let text = format!("cgroups cannot carry marks of root's ({why}): no job can be registered");
    let remedy = "CAP_SYS_ADMIN in the first user namespace: no unprivileged container, no \
                  PrivateUsers=";
    Finding::error(MARK, "kernel", text, remedy)
}

/// Loads and attaches a filter, asks for it, and has a process meet it.
fn filter(dir: &Dir) -> Vec<Finding> {
    let program = match attached(dir) {
        Ok(program) => program,
        Err(error) => {
            let text = format!(
                "no filter can be put on a cgroup ({error}): jobs with a device list are refused"
            );
            let remedy = "CONFIG_BPF_SYSCALL, CONFIG_CGROUP_BPF and Linux 5.1; as root with \
                          CAP_BPF and CAP_NET_ADMIN, and no lockdown=confidentiality";
            return vec![Finding::error(LOAD, "kernel", text, remedy)];
        }
    };
    let fine = Finding::fine(LOAD, "kernel", "filters can be loaded and attached (ALLOW_MULTI)");
    let query = match told(dir, &program) {
        Ok(()) => Finding::fine(QUERY, "kernel", "it tells which filters are attached and run"),
        Err(why) => {
            let text = format!("{why}: every login is refused");
            let remedy = "CAP_SYS_ADMIN and CAP_NET_ADMIN; Linux 4.15";
            Finding::error(QUERY, "kernel", text, remedy)
        }
    };
    vec![fine, query, holds(dir)]
}

/// A filter that allows `/dev/null` and nothing else.
fn attached(dir: &Dir) -> Result<Program, String> {
    let null = DeviceRule::new(DeviceType::Char, 1, Some(3), Access::RW);
    let rules: Vec<DeviceRule> = null.into_iter().collect();
    let program = Program::load("job_adopt_check", &bpf::allow_rules(&rules));
    let program = program.map_err(|error| error.to_string())?;
    sys::bpf::prog_attach(dir.as_fd(), program.as_fd(), sys::bpf::BPF_F_ALLOW_MULTI, None)
        .map_err(|error| format!("attach filter to {}: {error}", dir.path()))?;
    Ok(program)
}

/// Asks in both ways: what is attached there and how, and what runs.
fn told(dir: &Dir, program: &Program) -> Result<(), String> {
    let level = Level::read(dir).map_err(|error| error.to_string())?;
    let running = bpf::effective(dir).map_err(|error| error.to_string())?;
    let (ids, attached) = (level.ids(), level.attached);
    let own = ids == [program.id()] && running.contains(&program.id());
    if own && attached == Attached::Multi {
        return Ok(());
    }
    let attached = attachment(attached);
    Err(format!(
        "a filter that was attached is not told of: {attached} {ids:?}, running {running:?}"
    ))
}

/// Has a child enter the cgroup and open two devices of the kernel's own, which nothing happens by.
fn holds(dir: &Dir) -> Finding {
    let status = in_a_child(|| {
        let open = |path| open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let entered = subtree::write(dir, "cgroup.procs", "0");
        match (entered, open("/dev/null"), open("/dev/zero")) {
            (Ok(()), Ok(_), Err(Errno::EPERM)) => 0,
            (Err(_), ..) => 1,
            (_, Err(_), _) => 2,
            _ => 3,
        }
    });
    let tested = "use a kernel that its distribution has tested: nothing here can be confined";
    let (severity, text, remedy) = match status {
        Ok(0) => (Severity::Fine, "a process meets the filter of its cgroup", ""),
        Ok(1) => (
            Severity::Error,
            "a process cannot be moved into a cgroup: every login is refused",
            WRITABLE,
        ),
        Ok(2) => {
            (Severity::Error, "a process cannot open what the filter of its cgroup allows", tested)
        }
        Ok(3) => (
            Severity::Error,
            "a process opens what the filter of its cgroup refuses: logins would not be confined",
            tested,
        ),
        _ => (Severity::Unknown, "no process could try a filter", "run this again"),
    };
    Finding::new(severity, HOLDS, "kernel", text, remedy)
}

/// What every name begins with; the pid namespace and the process follow.
const PREFIX: &str = "job-adopt-check-";

/// A cgroup to try things in. It is made in the root of the mount: below the cgroup of this process
/// a filter of somebody else's may keep others from being attached, and a cgroup there that hands
/// controllers down takes no process. It is there for some milliseconds, no controller is handed to
/// it, and systemd leaves cgroups alone that it did not make. It is removed when this is dropped, or
/// by the next check, where this one was killed.
#[derive(Debug)]
struct Scratch {
    root: Dir,
    name: String,
    dir: Dir,
}

impl Scratch {
    /// Makes it below the mount of the node whose root is `root`.
    /// Fails: as `mkdir(2)`: `EROFS` for a mount that is read-only.
    fn make(root: &Path) -> Result<Self, cgroup::Error> {
        let root = Mount::below(root)?.root().try_clone()?;
        // Numbers of processes are of one pid namespace: by the inode of ours.
        let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let space = space.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
        let prefix = format!("{PREFIX}{space}-");
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

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.root, &self.name);
    }
}

/// Removes a cgroup of ours, with what is in it. What cannot be removed is for the next check.
fn remove(root: &Dir, name: &str) {
    let ended = root.child(name).map(|dir| kill_all(&dir, Instant::now() + REMOVAL));
    let _ = ended.map(|_| root.remove_child(name));
}
