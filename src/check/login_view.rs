//! What a login finds when it looks for jobs: the helper is run as the module runs it, and the sources and devices are
//! read with the helper's rights. For an sshd it is read in the mount namespace and the cgroup of that sshd, where the
//! settings of its unit hold.

use super::login_stack::{AccountLines, LoginStack};
use super::site::Site;
use ::kernel::cgroup::{Membership, Mount};
use ::kernel::proc::Proc;
use command::accounts::NOBODY_UID;
use command::accounts::find_helper;
use command::child_process::{query_in_clean_environment, run_in_child};
use facts::root_processes::root_processes;
use helper::devices::gres::Dialect;
use helper::jobs::sources::SourceError;
use helper::stack::{Group, StackFinding, judge_stack};
use helper::{Config, Node};
use module::{Account, Budget, Failure, ask_helper, node_name};
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Gid, Uid, chroot, fchdir, setgroups, setresgid, setresuid};
use protocol::{CgroupPath, Phase, Reason, Reply, Request, Verdict};
use schedulers::stepd::Release;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest query of a source.
const SOURCE_TIMEOUT: Duration = Duration::from_millis(2500);
/// Maximum bytes of a view in its encoding.
const VIEW_BYTES_MAX: u64 = 1024 * 1024;

/// What a login finds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoginView {
    pub(super) answer: Answer,
    /// The service's stack, as the helper reads it; it confines if there is no answer.
    pub(super) stack: LoginStack,
    /// What the helper finds wrong with our auth lines, in which root finds nothing wrong; empty if that is nothing.
    pub(super) auth_fault: String,
    /// The file system of the helper runs no programs.
    pub(super) is_noexec: bool,
    /// By the name of each source, what keeps it from answering.
    pub(super) sources: BTreeMap<String, Option<String>>,
    /// Slurm's devices as a login to one of its jobs reads them.
    pub(super) slurm_devices: SlurmDevicesView,
}

/// The helper's answer to the question for a user without a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The code, and the cause for the log.
    Given { code: String, cause: String },
    /// The code with which a login is refused then, and the cause.
    Missing { code: String, cause: String },
}

/// What a login to a Slurm job finds about its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SlurmDevicesView {
    /// No login reads them.
    Unused,
    /// The warnings that each login logs.
    Readable(Vec<String>),
    /// The cause of the refusal.
    Unreadable(String),
}

/// The question of a login, and what is needed to ask it in another place.
#[derive(Debug)]
pub(super) struct LoginQuestion {
    helper: String,
    account: Account,
    request: Request,
    timeout: Duration,
    config: Config,
    /// Logins to Slurm jobs read Slurm's configuration.
    reads_slurm: bool,
    /// How the node's slurmd reads it.
    dialect: Dialect,
}

impl LoginQuestion {
    /// Prepares the question of a user without a job; `None` in a test's folder, for a caller that is not root, and without
    /// the helper's account, which is a finding of its own. `reads_slurm` is true where Slurm's configuration can be read.
    pub(super) fn new(site: &Site, reads_slurm: bool) -> Option<Self> {
        if !site.is_here() || !site.is_root() {
            return None;
        }
        let user = find_helper().ok()?;
        let settings = site.settings();
        let node = settings.node.unwrap_or_else(node_name);
        let budget_ms = u32::try_from(settings.timeout.as_millis()).unwrap_or(u32::MAX);
        Some(Self {
            helper: settings.helper,
            account: Account {
                uid: user.uid.as_raw(),
                gid: user.gid.as_raw(),
            },
            request: Request {
                phase: Phase::Account,
                user: "nobody".to_owned(),
                uid: NOBODY_UID,
                service: site.service.clone(),
                node,
                conf: site.conf.display().to_string(),
                budget_ms,
                ..Request::default()
            },
            timeout: settings.timeout,
            config: site.config.clone(),
            reads_slurm,
            dialect: Dialect(find_slurmd_release()),
        })
    }

    /// Reads what a login finds where this process stands.
    ///
    /// # Errors
    ///
    /// As [`ask_in_child`].
    pub(super) fn ask_here(&self) -> io::Result<LoginView> {
        ask_in_child(|| self.ask())
    }

    /// Reads what a login finds where a server stands: with its mounts and in its cgroup.
    ///
    /// # Errors
    ///
    /// As [`ask_in_child`], and if this process cannot go there.
    pub(super) fn ask_at(&self, pid: i32) -> io::Result<LoginView> {
        let place = ServerPlace::open(pid)?;
        ask_in_child(|| {
            place.enter()?;
            self.ask()
        })
    }

    /// Reads the service's stack where a server stands, and runs no program there.
    ///
    /// # Errors
    ///
    /// As [`Self::ask_at`].
    pub(super) fn read_stack_at(&self, pid: i32) -> io::Result<LoginStack> {
        let place = ServerPlace::open(pid)?;
        ask_in_child(|| {
            place.enter()?;
            let account = AccountLines::read(&self.request.service);
            self.take_helper_rights()?;
            Ok(LoginStack::read(&self.request.service, account))
        })
    }

    /// Runs the helper, and then reads sources and devices with its rights, which this process keeps. It fails if they
    /// cannot be taken.
    fn ask(&self) -> io::Result<LoginView> {
        let account = AccountLines::read(&self.request.service);
        let auth = judge_stack(Path::new("/"), &self.request.service, Group::Auth);
        let result = self.run_helper();
        let flags = statvfs(self.helper.as_str()).map_or(FsFlags::empty(), |stat| stat.flags());
        self.take_helper_rights()?;
        let stack = result.as_ref().map_or(LoginStack::Confines, |reply| {
            LoginStack::from_reply(reply, &self.request.service, account)
        });
        Ok(LoginView {
            auth_fault: match (auth, &stack) {
                (StackFinding::Effective(_), LoginStack::Confines) => {
                    read_auth_fault(&self.request.service)
                }
                // Another check names what root finds, or what refuses every login, and nobody needs these lines where
                // there are none.
                _ => String::new(),
            },
            stack,
            answer: Answer::from_result(result),
            is_noexec: flags.contains(FsFlags::ST_NOEXEC),
            sources: self.read_sources(),
            slurm_devices: self.read_slurm_devices(),
        })
    }

    fn take_helper_rights(&self) -> io::Result<()> {
        let (uid, gid) = (
            Uid::from_raw(self.account.uid),
            Gid::from_raw(self.account.gid),
        );
        setgroups(&[])?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
        Ok(())
    }

    fn run_helper(&self) -> Result<Reply, Failure> {
        let budget = Budget::start(self.timeout);
        ask_helper(&self.helper, Some(self.account), &self.request, &budget)
    }

    fn read_sources(&self) -> BTreeMap<String, Option<String>> {
        let node = Node::host();
        let health =
            node.query_source_health(&self.request.node, &self.config, NOBODY_UID, SOURCE_TIMEOUT);
        let mut sources = BTreeMap::new();
        match health {
            Ok(health) => {
                for source in health {
                    let fault = match source.answer {
                        Ok(_) | Err(SourceError::Unused(_)) => None,
                        Err(error) => Some(error.to_string()),
                    };
                    sources.insert(source.source.to_string(), fault);
                }
            }
            Err(error) => {
                sources.insert("all".to_owned(), Some(error.to_string()));
            }
        }
        sources
    }

    fn read_slurm_devices(&self) -> SlurmDevicesView {
        if !self.reads_slurm {
            return SlurmDevicesView::Unused;
        }
        match Node::host().read_slurm_devices(&self.request.node, &self.config, self.dialect) {
            Ok(warnings) => SlurmDevicesView::Readable(warnings),
            Err(error) => SlurmDevicesView::Unreadable(error.to_string()),
        }
    }
}

impl Answer {
    fn from_result(result: Result<Reply, Failure>) -> Self {
        match result {
            Ok(reply) => {
                let reason = match reply.verdict {
                    Verdict::Refuse(refusal) => refusal.reason,
                    Verdict::Admit(_) | Verdict::NotEnforced => Reason::Admitted,
                };
                Self::Given {
                    code: reason.to_string(),
                    cause: reply.detail,
                }
            }
            Err(failure) => Self::Missing {
                code: code_of(&failure).to_string(),
                cause: failure.to_string(),
            },
        }
    }
}

/// Reads what is wrong with our auth lines with the rights of this process, as the helper's reply says it; empty if that is
/// nothing.
fn read_auth_fault(service: &str) -> String {
    match judge_stack(Path::new("/"), service, Group::Auth) {
        StackFinding::Effective(_) => String::new(),
        fault => fault.describe(Group::Auth),
    }
}

/// Runs `ask` in a child, which may go to another place for it.
///
/// # Errors
///
/// The errors of `ask` and of starting the child, and [`io::ErrorKind::TimedOut`].
fn ask_in_child<T>(ask: impl FnOnce() -> io::Result<T>) -> io::Result<T>
where
    T: Serialize + DeserializeOwned,
{
    let mut output = File::from(memfd_create(c"view", MFdFlags::MFD_CLOEXEC)?);
    let mut writer = output.try_clone()?;
    let status = run_in_child(move || {
        let result = ask().map_err(|error| error.to_string());
        let bytes = serde_json::to_vec(&result).unwrap_or_default();
        i32::from(writer.write_all(&bytes).is_err())
    })?;
    if status != 0 {
        return Err(io::Error::other("the child that asks has failed"));
    }
    output.rewind()?;
    let mut bytes = Vec::new();
    output.take(VIEW_BYTES_MAX).read_to_end(&mut bytes)?;
    let result: Result<T, String> = serde_json::from_slice(&bytes)?;
    result.map_err(io::Error::other)
}

/// Asks the slurmd that runs here for its release; `None` if none runs, or it does not tell.
fn find_slurmd_release() -> Option<Release> {
    let (_, pid) = root_processes(&["slurmd"]).into_iter().next()?;
    // Root has written the program, and started it.
    let program = Proc::host().dir(pid).join("exe").read_link().ok()?;
    let output = query_in_clean_environment(Command::new(program).arg("-V")).ok()?;
    Release::from_version(output.split_whitespace().last()?)
}

/// The code with which a login is refused if the helper gives no answer.
fn code_of(failure: &Failure) -> Reason {
    match failure {
        Failure::CheckFailed { reason, .. } => *reason,
        Failure::OtherVersion(_) => Reason::Timeout,
        Failure::HelperRefused { .. } | Failure::CgroupGone(_) | Failure::MoveBackFailed(..) => {
            Reason::Configuration
        }
    }
}

/// Where the logins of a server are judged.
#[derive(Debug)]
struct ServerPlace {
    mounts: OwnedFd,
    root: OwnedFd,
    /// Its cgroup on v2; `None` if it is in the root cgroup, or there is no v2 mount.
    procs: Option<OwnedFd>,
}

impl ServerPlace {
    /// Opens what is needed to go where a server is. It fails if the server has ended.
    fn open(pid: i32) -> io::Result<Self> {
        let dir = Proc::host().dir(pid);
        let open_path = |path: &Path, flags| open(path, flags | OFlag::O_CLOEXEC, Mode::empty());
        Ok(Self {
            mounts: open_path(&dir.join("ns/mnt"), OFlag::O_RDONLY)?,
            root: open_path(&dir.join("root"), OFlag::O_PATH | OFlag::O_DIRECTORY)?,
            procs: open_cgroup(pid),
        })
    }

    /// Goes there. A cgroup that takes no process is left out: the rest can be judged all the same.
    fn enter(&self) -> io::Result<()> {
        if let Some(procs) = &self.procs {
            let _ = nix::unistd::write(procs, b"0");
        }
        setns(&self.mounts, CloneFlags::CLONE_NEWNS)?;
        fchdir(&self.root)?;
        chroot(".")?;
        Ok(())
    }
}

/// Opens the cgroup of a process for a move into it; `None` if that cannot be done.
fn open_cgroup(pid: i32) -> Option<OwnedFd> {
    let path: CgroupPath = Membership::read(pid).ok()?.unified()?.parse().ok()?;
    let chain = Mount::open().ok()?.open_chain(&path).ok()?;
    chain.dir().ok()?.open_procs().ok()
}
