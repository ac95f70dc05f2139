//! Asks the kernel which accesses to the node's devices it allows in a cgroup.
//!
//! A child of this process enters the cgroup and asks, so the answer is that of the filters of cgroup v2 and
//! of the devices controller of v1, no matter which program set them. The child opens no device, executes no
//! program, and ends with this process. It moves to the cgroup, since only a process that is made there
//! (`CLONE_INTO_CGROUP`) is refused at `pids.max`, and cgroup v1 has no other way.

use command::child_process::{CHILD_TIMEOUT, run_in_child};
use command::error::Error;
use helper::node::{DeviceNode, NodeError, Tree};
use helper::printable;
use kernel::bpf::{AttachMode, CgroupPrograms};
use kernel::cgroup::{self, Dir, Membership, find_frozen, ignore_gone, takes_processes, v1};
use kernel::device::{is_device, require_access};
use kernel::proc;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{AccessFlags, Pid, getpid, getppid, unlink};
use protocol::DeviceType;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Seek, Write};

/// The accesses that are asked for: opening for reading, for writing and for both, and making a node
/// (`devcgroup_inode_permission`, `devcgroup_inode_mknod` in `include/linux/device_cgroup.h`).
const REQUESTS: [(&str, Request); 4] = [
    ("r", Request::Open(AccessFlags::R_OK)),
    ("w", Request::Open(AccessFlags::W_OK)),
    (
        "rw",
        Request::Open(AccessFlags::R_OK.union(AccessFlags::W_OK)),
    ),
    ("m", Request::MakeNode),
];

/// An access to a device.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// All of these at once.
    Open(AccessFlags),
    MakeNode,
}

/// Maximum cgroups that are looked at below one that takes no process itself.
const CGROUPS_MAX: usize = 256;
/// Where the child mounts a file system of its own to make nodes in, which no other process sees. It has
/// opened the cgroups below before.
const OWN_MOUNT: &str = "/sys/fs/cgroup";
/// The node that the child makes there, and removes at once.
const OWN_NODE: &str = "/sys/fs/cgroup/node";
/// `CAP_MKNOD` of `linux/capability.h`, without which the kernel asks no filter about making a node.
const CAP_MKNOD: u64 = 1 << 27;

/// The kernel's decision about one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Decision {
    /// The names of the allowed accesses, out of `r`, `w`, `rw` and `m`.
    Allowed(Vec<String>),
    /// The device has no node any more.
    Gone,
    /// Something else than a filter prevented the question: what the kernel said.
    Unknown(String),
}

/// The decisions about all devices of a node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Probe {
    /// One for each device, in the same order.
    pub(super) decisions: Vec<Decision>,
    /// Whether making nodes was asked for, too: root may lack the rights for that in a container.
    pub(super) has_mknod: bool,
}

/// The cgroup whose devices are asked for, in both hierarchies that decide about devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeSite<'a> {
    /// The path of the cgroup, for messages.
    pub(super) path: &'a str,
    /// The cgroup v2 with its ancestors, the root last; empty without cgroup v2.
    pub(super) levels: &'a [Dir],
    /// The cgroup in the hierarchy of the devices controller of cgroup v1.
    pub(super) v1: Option<&'a Dir>,
}

impl Probe {
    /// Asks for each of these device nodes of `tree`.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a cgroup that is frozen, or in which no process can ask; if the child was killed
    /// there, or took too long.
    pub(super) fn ask(
        site: ProbeSite<'_>,
        tree: &Tree,
        nodes: &[(String, DeviceNode)],
    ) -> Result<Self, Error> {
        let dirs = site.choose_cgroups()?;
        let mut output = File::from(
            memfd_create(c"decisions", MFdFlags::MFD_CLOEXEC)
                .map_err(|errno| Error::failed("create", "memory file", errno))?,
        );
        let parent = getpid();
        let status = run_in_child(|| {
            let written = serde_json::to_vec(&ask_from_inside(parent, &dirs, tree, nodes))
                .map_err(io::Error::from)
                .and_then(|bytes| (&output).write_all(&bytes));
            i32::from(written.is_err())
        });
        let failed = |cause: String| site.failed(&cause);
        match status {
            Ok(0) => {}
            Ok(_) => return Err(failed("the process that asks failed there".into())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let seconds = CHILD_TIMEOUT.as_secs();
                let cause = format!("no answer in {seconds} s: is it frozen, or out of memory?");
                return Err(failed(cause));
            }
            // A signal has ended the child.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(failed("the process that asks was killed there".into()));
            }
            Err(error) => return Err(failed(error.to_string())),
        }
        output.rewind().map_err(|error| failed(error.to_string()))?;
        // What the child has written: its answers, or why it could not ask.
        let result: Result<Self, String> =
            serde_json::from_reader(&output).map_err(|error| failed(error.to_string()))?;
        result.map_err(failed)
    }

    /// The number of accesses that were asked for.
    pub(super) fn request_count(&self) -> usize {
        requests(self.has_mknod).count()
    }
}

impl ProbeSite<'_> {
    /// Chooses the cgroups that the child enters: that of cgroup v1, if there is one, then one of v2.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a frozen cgroup, in which the child would stop, and for one in which no process
    /// can ask.
    fn choose_cgroups(&self) -> Result<Vec<Dir>, Error> {
        let mut dirs = Vec::new();
        if let Some(dir) = self.v1 {
            dirs.push(dir.clone());
        }
        let mut frozen = find_frozen(self.levels)?;
        if frozen.is_none() {
            // The freezer of cgroup v1 counts if it has one hierarchy with the devices controller.
            frozen = v1::find_stopped(&dirs)?;
        }
        if let Some(dir) = frozen {
            let dir = printable(dir.path());
            let cause = format!("cgroup {dir} is frozen: ask again after it is thawed");
            return Err(self.failed(&cause));
        }
        if let Some(dir) = self.levels.first() {
            let Some(place) = find_place(dir)? else {
                return Err(self.failed(
                    "it takes no process, and no cgroup below it that takes one has the same filters: \
                     give --cgroup one of those below",
                ));
            };
            dirs.push(place);
        }
        Ok(dirs)
    }

    fn failed(&self, cause: &str) -> Error {
        Error::failed(
            "ask for devices in",
            format_args!("cgroup {}", printable(self.path)),
            cause,
        )
    }
}

/// Finds a cgroup whose processes have the filters of `dir`: itself, or one below without filters of its own
/// if `dir` gives controllers to its children and therefore takes no process (cgroup-v2.rst, "No Internal
/// Process Constraint"). `None` if the first [`CGROUPS_MAX`] cgroups below have no such one that is not frozen.
fn find_place(dir: &Dir) -> Result<Option<Dir>, Error> {
    // The root has no type, and takes processes whatever it gives to its children.
    if dir.read("cgroup.type")?.is_none() || takes_processes(dir)? {
        return Ok(Some(dir.clone()));
    }
    let mut left = CGROUPS_MAX;
    let mut waiting = vec![dir.clone()];
    while let Some(parent) = waiting.pop() {
        for name in ignore_gone(parent.children())?.unwrap_or_default() {
            let Some(rest) = left.checked_sub(1) else {
                return Ok(None);
            };
            left = rest;
            let Some(child) = ignore_gone(parent.child(name))? else {
                continue;
            };
            if CgroupPrograms::read(&child)?.mode != AttachMode::Nothing
                || find_frozen(std::slice::from_ref(&child))?.is_some()
            {
                continue;
            }
            match takes_processes(&child) {
                Ok(true) => return Ok(Some(child)),
                Ok(false) => waiting.push(child),
                // It is threaded.
                Err(cgroup::Error::UnexpectedState(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(None)
}

/// Tells whether this process can make device nodes.
fn can_make_nodes() -> bool {
    let status = proc::read("/proc/self/status").unwrap_or_default();
    let effective = proc::find_field(&status, "CapEff:").unwrap_or_default();
    u64::from_str_radix(effective, 16).unwrap_or_default() & CAP_MKNOD != 0
}

/// Enters the cgroups and asks; runs in the child. Everything that can be done before is done outside, so that
/// the job pays for little.
fn ask_from_inside(
    parent: Pid,
    dirs: &[Dir],
    tree: &Tree,
    nodes: &[(String, DeviceNode)],
) -> Result<Probe, String> {
    set_pdeathsig(Signal::SIGKILL).map_err(|errno| format!("prctl: {errno}"))?;
    // A parent that ended before that sends no signal.
    if getppid() != parent {
        return Err("the command has ended".into());
    }
    let mut decisions = Vec::with_capacity(nodes.len());
    let has_mknod = can_make_nodes() && mount_own_file_system().is_ok();
    for dir in dirs {
        dir.write("cgroup.procs", "0")
            .map_err(|error| error.to_string())?;
    }
    let before = Membership::read_own().map_err(|error| error.to_string())?;
    for (path, node) in nodes {
        decisions.push(decide(tree, path, *node, has_mknod));
    }
    // Whoever owns a cgroup may move processes in it.
    let after = Membership::read_own().map_err(|error| error.to_string())?;
    if before != after {
        return Err("the process that asks was moved elsewhere".into());
    }
    Ok(Probe {
        decisions,
        has_mknod,
    })
}

/// Mounts an empty file system that this process alone sees.
fn mount_own_file_system() -> nix::Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("tmpfs"),
        OWN_MOUNT,
        Some("tmpfs"),
        flags,
        Some("mode=700"),
    )
}

fn requests(has_mknod: bool) -> impl Iterator<Item = (&'static str, Request)> {
    REQUESTS
        .into_iter()
        .filter(move |(_, request)| has_mknod || !matches!(request, Request::MakeNode))
}

/// Asks the kernel which accesses this process has to a node. The answer is [`Decision::Gone`] if the path
/// leads to another device now or to none, and [`Decision::Unknown`] if something else than a filter prevents
/// an answer. Without `has_mknod` it does not ask for the right to make nodes.
fn decide(tree: &Tree, path: &str, node: DeviceNode, has_mknod: bool) -> Decision {
    let file = match tree.open_node(path) {
        Ok((file, current)) if current == node => file,
        Ok(_) => return Decision::Gone,
        Err(error) if error.is_absent() || error == NodeError::NotADevice => return Decision::Gone,
        Err(error) => return Decision::Unknown(error.to_string()),
    };
    match is_device(&file, node.kind, (node.major, node.minor)) {
        Ok(true) => {}
        Ok(false) => return Decision::Unknown("no device, but a file that stands for one".into()),
        Err(errno) => return Decision::Unknown(errno.desc().into()),
    }
    let mut allowed = Vec::new();
    for (name, request) in requests(has_mknod) {
        let result = match request {
            Request::Open(access) => require_access(&file, access),
            Request::MakeNode => make_node(node),
        };
        match result {
            Ok(()) => allowed.push(name.to_owned()),
            Err(Errno::EPERM) => {}
            Err(errno) => return Decision::Unknown(errno.desc().into()),
        }
    }
    Decision::Allowed(allowed)
}

/// Makes a node of the device where no other process sees it, and removes it. It fails with `EPERM` if a
/// filter refuses that.
fn make_node(node: DeviceNode) -> nix::Result<()> {
    let format = match node.kind {
        DeviceType::Char => SFlag::S_IFCHR,
        DeviceType::Block => SFlag::S_IFBLK,
    };
    let number = makedev(node.major.into(), node.minor.into());
    mknod(OWN_NODE, format, Mode::empty(), number)?;
    unlink(OWN_NODE)
}
