//! The node that is checked: its files, accounts and processes of root.

use crate::accounts::{self, RightsError, with_helper_rights, with_helper_rights_if_any};
use crate::error::Error;
use crate::exempt_accounts::{ExemptAccounts, read_service_lines};
use helper::Config;
use helper::jobs::sources::processes;
use helper::node::Tree;
use helper::stack::{Entry, Group, read_entries};
use kernel::proc::Proc;
use kernel::trust::Trust;
use module::Settings;
use nix::unistd::{Uid, User};
use protocol::parse_decimal;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The drop-in by which `job-adopt enable` closes the slices of all users.
const CLOSED_DROP_IN_PATH: &str = "/etc/systemd/system/user-.slice.d/job-adopt.conf";
/// The uid of the account `nobody`, which has no job.
pub(super) const NOBODY_UID: u32 = 65_534;
/// The mode bits set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;

/// The node that is checked, with the service's stack and the configuration.
#[derive(Debug)]
pub(super) struct Site {
    /// `/`, except in tests.
    pub(super) root: PathBuf,
    /// The PAM service.
    pub(super) service: String,
    /// The account lines of the service's stack; none if it cannot be read.
    pub(super) account: Vec<Entry>,
    /// The session lines of the service's stack; none if it cannot be read.
    pub(super) session: Vec<Entry>,
    /// The path of the configuration.
    pub(super) conf: PathBuf,
    /// The configuration, or the default if it cannot be read.
    pub(super) config: Config,
    pub(super) trust: Trust,
}

impl Site {
    /// Reads the stack of a service below `root`, of which the caller has read the configuration. A test's
    /// folder may belong to the account that runs the test.
    pub(super) fn read(root: PathBuf, service: &str, conf: PathBuf, config: Config) -> Self {
        let account = read_entries(&root, service, Group::Account).unwrap_or_default();
        let session = read_entries(&root, service, Group::Session).unwrap_or_default();
        let trust = if root == Path::new("/") {
            Trust::root()
        } else {
            Trust::below(&root, Uid::effective().as_raw())
        };
        Self {
            root,
            service: service.to_owned(),
            account,
            session,
            conf,
            config,
            trust,
        }
    }

    /// Checks whether the site is this node, not a folder of a test.
    pub(super) fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Checks whether this process can read files that only root can read.
    pub(super) fn is_root(&self) -> bool {
        !self.is_here() || Uid::effective().is_root()
    }

    /// Puts an absolute path of the node below the site's root.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads the accounts of passwd(5).
    pub(super) fn local_accounts(&self) -> Vec<Account> {
        // Names of people may be in any encoding.
        let passwd = std::fs::read(self.at("/etc/passwd")).unwrap_or_default();
        String::from_utf8_lossy(&passwd)
            .lines()
            .filter_map(Account::parse)
            .collect()
    }

    /// Finds an account by name or number in the name service of this node, as the module does; in a test's
    /// folder by its passwd(5). `None` if there is none, or if the name service cannot be asked.
    pub(super) fn find_account(&self, name: &str) -> Option<Account> {
        let number = parse_decimal(name);
        if !self.is_here() {
            let mut local = self.local_accounts().into_iter();
            return local.find(|account| account.name == name || Some(account.uid) == number);
        }
        let result = match number {
            Some(uid) => User::from_uid(uid.into()),
            None => User::from_name(name),
        };
        let user = result.ok().flatten()?;
        Some(Account {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })
    }

    /// Describes each exempt user and group of the settings that does not exist; none in a test's folder, whose
    /// accounts the name service does not know.
    pub(super) fn describe_missing_accounts(&self, settings: &Settings) -> Vec<String> {
        if !self.is_here() {
            return Vec::new();
        }
        accounts::describe_missing_accounts(&settings.exempt_uids, &settings.exempt_groups)
    }

    /// Lists the accounts whose slices stay open, each with the reason.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if an account or group cannot be looked up.
    pub(super) fn list_exempt_accounts(&self) -> Result<BTreeMap<u32, String>, Error> {
        let lines = read_service_lines(&self.root)?;
        Ok(ExemptAccounts::read(&self.config, &lines)?.into_uids())
    }

    /// Iterates over the lines of our module, except those that name another service.
    pub(super) fn own_lines(&self) -> impl Iterator<Item = &Entry> {
        self.account
            .iter()
            .chain(&self.session)
            .filter(|entry| entry.is_for_service())
    }

    /// Checks whether `job-adopt enable` has set anything up here: without our lines, a node whose slices are closed has
    /// lost them, and any other is new.
    pub(super) fn is_set_up(&self) -> bool {
        self.own_lines().next().is_some() || self.at(CLOSED_DROP_IN_PATH).exists()
    }

    /// Parses the arguments of the first session line that is valid, else of the first such account
    /// line, else the defaults.
    pub(super) fn settings(&self) -> Settings {
        let lines = self
            .session
            .iter()
            .chain(&self.account)
            .filter(|line| line.is_for_service());
        lines
            .filter_map(|line| Settings::parse(&line.arguments).ok())
            .next()
            .unwrap_or_default()
    }

    /// Checks whether a file that root owns switches the module off: it ignores any other.
    pub(super) fn is_switched_off(&self) -> bool {
        self.at(module::OFF_SWITCH_PATH)
            .symlink_metadata()
            .is_ok_and(|meta| meta.uid() == self.trust.owner())
    }

    /// Calls `look_up` with the rights of the helper's account.
    pub(super) fn with_helper_rights<T>(
        &self,
        look_up: impl FnOnce() -> T,
    ) -> Result<T, RightsError> {
        if self.is_here() {
            with_helper_rights(look_up)
        } else {
            Ok(look_up())
        }
    }

    /// Calls `look_up` with the rights of the helper's account if there is that account.
    pub(super) fn with_helper_rights_if_any<T>(
        &self,
        look_up: impl Fn() -> T,
    ) -> Result<T, RightsError> {
        if self.is_here() {
            with_helper_rights_if_any(look_up)
        } else {
            Ok(look_up())
        }
    }

    /// The files that describe devices and schedulers.
    pub(super) fn tree(&self) -> Tree {
        Tree::with_root(&self.root, self.trust.clone())
    }
}

/// Checks whether a daemon of Slurm runs here. Those of steps live on without slurmd, which is down during an upgrade.
pub(super) fn runs_slurm() -> bool {
    !root_processes(&["slurmd", "slurmstepd"]).is_empty()
}

/// Lists the processes whose real uid is root's and whose name is one of these (proc_pid_comm(5)), sorted by name and
/// number; none if `/proc` cannot be listed. No user can make one up ([`is_roots_program`]), and none is of a container
/// ([`is_of_this_node`]).
pub(super) fn root_processes(names: &[&str]) -> Vec<(String, i32)> {
    root_processes_in(Path::new("/proc"), &Trust::root(), names)
}

/// Lists processes as [`root_processes`] does, in a mount of `/proc`.
fn root_processes_in(proc_dir: &Path, trust: &Trust, names: &[&str]) -> Vec<(String, i32)> {
    let proc = Proc::with_root(proc_dir.to_owned());
    let pids = processes::list_numbers::<i32>(proc_dir)
        .into_iter()
        .flatten()
        .flatten();
    let mut matching = Vec::new();
    for pid in pids {
        let Ok(stat) = processes::read_stat(&proc, pid) else {
            continue;
        };
        if names.contains(&stat.name.as_str()) && is_roots_program(&proc, trust, pid, &stat.name) {
            matching.push((stat.name, pid));
        }
    }
    matching.sort();
    matching
}

/// Checks whether root has started a process, as the program that its name says.
///
/// The name is that of the link by which a program was started, and set-user-ID programs such as `sudo` and `at` have
/// root's real uid for a while, with the environment of the user who started them. So the program itself must have that
/// name, belong to root and have no set-ID bits. The effective uid says nothing: that of atd is another account's.
///
/// Without root's rights nothing is known of root's processes, and none counts.
fn is_roots_program(proc: &Proc, trust: &Trust, pid: i32, name: &str) -> bool {
    let is_root = proc
        .read_process(pid)
        .is_ok_and(|process| process.uids[0] == 0);
    if !is_root {
        return false;
    }
    let exe = proc.dir(pid).join("exe");
    let (Ok(program), Ok(meta)) = (exe.read_link(), exe.metadata()) else {
        return false;
    };
    // The name of a process is cut after 15 bytes, and a file that was replaced has " (deleted)" behind its name.
    let is_named = program
        .file_name()
        .is_some_and(|file| file.as_bytes().starts_with(name.as_bytes()));
    is_named
        && meta.mode() & SET_ID_BITS == 0
        && trust.check_owner(meta.uid(), meta.mode(), &program).is_ok()
        && is_of_this_node(proc, pid, &program)
}

/// Checks whether a process is in this process's pid namespace, and runs a program of this node, whatever mounts its unit
/// gives it. Who is root in a container may run what they like there, and serves another node. What cannot be read counts
/// as this node's.
fn is_of_this_node(proc: &Proc, pid: i32, program: &Path) -> bool {
    if shares_namespace(proc, pid, "pid") == Some(false) {
        return false;
    }
    shares_namespace(proc, pid, "mnt") != Some(false)
        || is_same_file(&proc.dir(pid).join("exe"), program)
}

/// Tells whether a process and this one are in the same namespace of a kind; `None` if that cannot be read.
pub(super) fn shares_namespace(proc: &Proc, pid: i32, kind: &str) -> Option<bool> {
    let read = |dir: PathBuf| dir.join("ns").join(kind).read_link().ok();
    let own_pid = i32::try_from(std::process::id()).ok()?;
    Some(read(proc.dir(pid))? == read(proc.dir(own_pid))?)
}

/// The device and inode of a file, which its other names share; `None` if it cannot be looked at.
pub(super) fn file_identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Checks whether two paths lead to one file.
pub(super) fn is_same_file(first: &Path, second: &Path) -> bool {
    let identity = file_identity(first);
    identity.is_some() && identity == file_identity(second)
}

/// An account of the node.
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Account {
    /// Parses a line of passwd(5); `None` for another text.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, ..] = *fields.as_slice() else {
            return None;
        };
        Some(Self {
            name: name.to_owned(),
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A root daemon of a container may be anything, and its files are not this node's.
    #[test]
    fn process_of_a_container_is_none_of_the_node() {
        let scratch = Scratch::new();
        let own = i32::try_from(std::process::id()).unwrap();
        fs::create_dir(scratch.path().join(own.to_string())).unwrap();
        let join = |pid: i32, pids: &str, mounts: &str| {
            let dir = scratch.path().join(format!("{pid}/ns"));
            fs::create_dir(&dir).unwrap();
            symlink(pids, dir.join("pid")).unwrap();
            symlink(mounts, dir.join("mnt")).unwrap();
        };
        join(own, "pid:[1]", "mnt:[1]");
        for (pid, pids, mounts) in [
            (11, "pid:[1]", "mnt:[1]"),
            (12, "pid:[2]", "mnt:[2]"),
            // A unit with PrivateTmp.
            (13, "pid:[1]", "mnt:[2]"),
        ] {
            make_slurmd(&scratch, pid, 0, "slurmd", 0o755);
            join(pid, pids, mounts);
        }
        let trust = Trust::below(scratch.path(), Uid::effective().as_raw());
        let found = root_processes_in(scratch.path(), &trust, &["slurmd"]);
        let pids: Vec<i32> = found.iter().map(|(_, pid)| *pid).collect();
        assert_eq!(pids, [11, 13]);
        // In a container with the pids of its host the program is not the one of that path here.
        let proc = Proc::with_root(scratch.path().to_owned());
        for program in ["11/slurmd", "none"] {
            assert!(!is_of_this_node(&proc, 13, &scratch.path().join(program)));
        }
    }

    /// Makes a process with this real uid that runs a program with this name and mode.
    fn make_slurmd(scratch: &Scratch, pid: i32, uid: u32, program: &str, mode: u32) {
        let dir = scratch.path().join(pid.to_string());
        fs::create_dir(&dir).unwrap();
        let fields = "S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0";
        fs::write(dir.join("stat"), format!("{pid} (slurmd) {fields}\n")).unwrap();
        let uids = format!("{uid}\t2\t2\t2");
        let status = format!("Name:\tslurmd\nState:\tS (sleeping)\nPPid:\t1\nUid:\t{uids}\n");
        fs::write(dir.join("status"), status).unwrap();
        let file = dir.join(program);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        symlink(&file, dir.join("exe")).unwrap();
    }

    /// Each user may start sudo or at through a link `slurmd`.
    #[test]
    fn no_user_makes_up_a_process_of_root() {
        let scratch = Scratch::new();
        make_slurmd(&scratch, 11, 0, "slurmd", 0o755);
        make_slurmd(&scratch, 12, 0, "slurmd (deleted)", 0o755);
        make_slurmd(&scratch, 13, 0, "at", 0o755);
        make_slurmd(&scratch, 14, 0, "slurmd", 0o4755);
        make_slurmd(&scratch, 15, 0, "slurmd", 0o2755);
        make_slurmd(&scratch, 16, 0, "slurmd", 0o775);
        make_slurmd(&scratch, 17, 1001, "slurmd", 0o755);
        make_slurmd(&scratch, 18, 0, "slurmd", 0o755);
        fs::remove_file(scratch.path().join("18/exe")).unwrap();
        let own = Trust::below(scratch.path(), Uid::effective().as_raw());
        let found = root_processes_in(scratch.path(), &own, &["slurmd"]);
        let name = || "slurmd".to_owned();
        assert_eq!(found, [(name(), 11), (name(), 12)]);
        let others = Trust::below(scratch.path(), Uid::effective().as_raw() + 1);
        assert_eq!(root_processes_in(scratch.path(), &others, &["slurmd"]), []);
    }
}
