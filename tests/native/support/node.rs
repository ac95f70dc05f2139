//! A private node with its own mounts, processes, network, users, devices and log.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::iter;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::artifact::module_path;
use super::syslog::Syslog;
use super::user::{self, PEOPLE};
use super::{Cgroup, HELPER, Mount, Outcome, timeout_factor, tool};

/// Moves itself into the node's cgroup, then executes the command. libpam closes each number up to the limit of
/// descriptors before it starts a program, and strace stops at each of these calls.
const ENTER: &str = r#"ulimit -n 1024 && echo 0 > "$0" && exec "$@""#;

/// The files of `/dev`.
const DEVICES: &str = include_str!("devices");

/// Returns the folders of the checkout and of what is compiled. A node has a `/root` and a `/tmp` of its own, where a
/// checkout often lies: so no node has one, wherever it lies.
fn hidden_dirs() -> Vec<&'static Path> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let outside = target.filter(|target| !target.starts_with(checkout));
    iter::once(checkout).chain(outside).collect()
}

static NODES: AtomicU32 = AtomicU32::new(0);

/// A private node. Dropping it removes everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Node {
    mount: Mount,
    cgroup: Cgroup,
    name: String,
    unshare: Child,
    life: Mutex<Option<ChildStdin>>,
    pub(crate) log: Syslog,
}

impl Node {
    pub(super) fn new(mount: Mount) -> Self {
        Self::new_named(mount, "gpu017")
    }

    pub(super) fn new_named(mount: Mount, name: &str) -> Self {
        let run = std::env::var("JOB_ADOPT_RUN").unwrap_or_else(|_| "0".into());
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let unique = format!("ja-test-{run}-{}-{number}", std::process::id());
        let path = format!("/{unique}");
        let cgroup = if mount == Mount::Namespace {
            Cgroup::new_namespace_root(path)
        } else {
            Cgroup::new(path)
        };
        // Slurm names its cgroups after the node, in hierarchies that the whole machine shares.
        let name = if mount == Mount::V1 {
            unique
        } else {
            name.into()
        };
        cgroup.create().child("node").create();
        cgroup.child("jobs").create();
        let (mut command, inside) = match mount {
            // The root of a cgroup namespace is the cgroup of the process that creates it.
            Mount::Namespace => (enter_cgroup(&cgroup, "unshare"), "."),
            _ => (
                Command::new("unshare"),
                cgroup.path().trim_start_matches('/'),
            ),
        };
        command.args((mount == Mount::Namespace).then_some("--cgroup"));
        let mut unshare = command
            .args([
                "--mount",
                "--propagation",
                "private",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args([
                "--uts",
                "--net",
                "bash",
                "-c",
                include_str!("node.sh"),
                "node",
            ])
            .args([mount.layout(), inside, &name])
            .arg(tool::installed_product())
            .args(hidden_dirs())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let life = Mutex::new(unshare.stdin.take());
        let mut ready = String::new();
        let mut output = BufReader::new(unshare.stdout.take().unwrap());
        output.read_line(&mut ready).unwrap();
        if mount == Mount::Namespace {
            // unshare(1) itself does not belong to the node.
            Cgroup::new("").write("cgroup.procs", &unshare.id().to_string());
        }
        let log = Syslog::listen(&root_dir(&unshare).join("dev/log"));
        let node = Self {
            mount,
            cgroup,
            name,
            unshare,
            life,
            log,
        };
        assert_eq!(ready, "ready\n", "the node did not come up");
        node.populate();
        node
    }

    fn populate(&self) {
        self.make_devices();
        self.write("/etc/passwd", &user::passwd());
        self.write("/etc/group", &user::group());
        self.write("/etc/shadow", &user::shadow(tool::password_hash));
        self.write(
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
        );
        self.write(
            "/etc/hosts",
            &format!("127.0.0.1 localhost {}\n", self.name),
        );
        for person in PEOPLE {
            self.create_dir(&person.home(), 0o700);
            chown(
                self.path(&person.home()),
                Some(person.uid),
                Some(person.uid),
            )
            .unwrap();
        }
        self.write_stack(&super::pam::stack(""));
    }

    fn make_devices(&self) {
        self.create_dir("/dev/dri", 0o755);
        self.create_dir("/dev/shm", 0o755);
        for line in DEVICES.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split(' ').collect();
            let path = self.path(&format!("/dev/{}", fields[0]));
            if fields[1] == "link" {
                symlink(fields[2], path).unwrap();
                continue;
            }
            let kind = if fields[1] == "b" {
                SFlag::S_IFBLK
            } else {
                SFlag::S_IFCHR
            };
            let number = makedev(fields[2].parse().unwrap(), fields[3].parse().unwrap());
            mknod(&path, kind, Mode::empty(), number).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        }
    }

    /// Returns the host name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns process 1 of the node, in this process's PID namespace.
    pub(super) fn first(&self) -> Option<i32> {
        let unshare = self.unshare.id();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
        children.ok()?.split_whitespace().next()?.parse().ok()
    }

    /// Returns a process in the node's namespaces, in this process's PID namespace.
    pub(super) fn pid(&self) -> u32 {
        self.unshare.id()
    }

    /// Returns the path of the module on the node.
    pub(crate) fn module(&self) -> String {
        module_path()
    }

    /// Converts a path of the node to a path of this process.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        root_dir(&self.unshare).join(path.trim_start_matches('/'))
    }

    /// Runs `look` in a thread that sees the files of the node and has the helper's rights to them.
    pub(crate) fn look_as_login<T: Send>(&self, look: impl FnOnce() -> T + Send) -> T {
        let open =
            |name: &str| File::open(format!("/proc/{}/ns/{name}", self.unshare.id())).unwrap();
        let (mounts, names) = (open("mnt"), open("uts"));
        let inside = || {
            // A thread that shares its working directory cannot change mounts.
            unshare(CloneFlags::CLONE_FS).unwrap();
            setns(mounts, CloneFlags::CLONE_NEWNS).unwrap();
            setns(names, CloneFlags::CLONE_NEWUTS).unwrap();
            setfsgid(Gid::from_raw(HELPER.uid));
            setfsuid(Uid::from_raw(HELPER.uid));
            look()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// Copies a file to the node, owned by root and executable. A child process copies it: another
    /// thread's fork would inherit a descriptor that is open for writing, and the kernel would
    /// refuse to execute the file.
    pub(crate) fn install(&self, from: &Path, to: &str) {
        let mut install = Command::new("install");
        Outcome::run(install.args(["-m", "0755"]).arg(from).arg(self.path(to))).ok();
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    pub(crate) fn read(&self, path: &str) -> String {
        let path = self.path(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    pub(crate) fn set_mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn create_dir(&self, path: &str, mode: u32) {
        fs::create_dir_all(self.path(path)).unwrap();
        self.set_mode(path, mode);
    }

    /// Replaces `/etc/pam.d/sshd`. Our lines without `timeout=` get its maximum: a small machine is slow,
    /// and slower while calls are traced or its processor is emulated.
    pub(crate) fn write_stack(&self, text: &str) {
        let patient = |line: &str| {
            let ours = line.contains("pam_job_adopt.so") && !line.contains("timeout=");
            format!("{line}{}\n", if ours { " timeout=60" } else { "" })
        };
        self.write(
            "/etc/pam.d/sshd",
            &text.lines().map(patient).collect::<String>(),
        );
    }

    /// Replaces `/etc/security/job_adopt.conf`.
    pub(crate) fn configure(&self, text: &str) {
        self.write("/etc/security/job_adopt.conf", text);
    }

    /// Returns the cgroup that contains everything of this node.
    pub(crate) fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Returns the cgroup in which commands of this node start, outside every job.
    pub(crate) fn outside(&self) -> Cgroup {
        self.cgroup.child("node")
    }

    /// Prepares a command on the node, as root, with a clean environment and a limit of three
    /// minutes, which grows on an emulated processor.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.daemon(&self.outside(), "timeout");
        command.args([
            "--kill-after=1",
            &(180 * timeout_factor()).to_string(),
            program,
        ]);
        command
    }

    /// Prepares a command like [`Node::command`], without a limit and in that cgroup.
    pub(crate) fn daemon(&self, cgroup: &Cgroup, program: &str) -> Command {
        let namespace = |name: &str| format!("/proc/{}/ns/{name}", self.unshare.id());
        let mut command = match self.mount {
            // From the node's root it may move to any cgroup, wherever it came from.
            Mount::Namespace => enter_cgroup(&self.cgroup, "nsenter"),
            _ => Command::new("nsenter"),
        };
        if self.mount == Mount::Namespace {
            command.arg(format!("--cgroup={}", namespace("cgroup")));
        }
        command
            .arg(format!("--mount={}", namespace("mnt")))
            .arg(format!("--uts={}", namespace("uts")))
            .arg(format!("--net={}", namespace("net")))
            .arg(format!("--pid={}", namespace("pid_for_children")))
            .args(["sh", "-c", ENTER])
            .arg(format!(
                "{}{}/cgroup.procs",
                self.mount.path(),
                cgroup.path()
            ))
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Outcome {
        Outcome::run(self.command(program).args(arguments))
    }

    /// Runs a shell script to its end.
    pub(crate) fn sh(&self, script: &str) -> Outcome {
        self.run("sh", &["-c", script])
    }

    /// Runs `job-adopt` with these arguments.
    pub(crate) fn job_adopt(&self, arguments: &[&str]) -> Outcome {
        self.run("job-adopt", arguments)
    }

    /// Withdraws a job with the default time, and with more on an emulated processor.
    pub(crate) fn unregister(&self, id: &str) -> Outcome {
        let timeout = (10 * timeout_factor()).to_string();
        self.job_adopt(&["unregister", "--timeout", &timeout, id])
    }

    /// Returns the processes of the helper's account, in this process's PID namespace.
    pub(crate) fn helpers(&self) -> Vec<i32> {
        let ours = |pid: &i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains(&format!("Uid:\t{}\t", HELPER.uid))
        };
        self.processes().into_iter().filter(ours).collect()
    }

    /// Kills the oldest process of the node that runs this program. Its other processes live on.
    pub(crate) fn kill_program(&self, name: &str) {
        let runs = |pid: &i32| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.trim_end() == name
        };
        let oldest = self.processes().into_iter().filter(runs).min().unwrap();
        let pid = nix::unistd::Pid::from_raw(oldest);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    /// Returns every process of the node but its first, in this process's PID namespace.
    pub(crate) fn processes(&self) -> Vec<i32> {
        fn below(cgroup: &Cgroup) -> Vec<i32> {
            let mut pids = cgroup.pids_or_empty();
            cgroup
                .children()
                .iter()
                .for_each(|child| pids.extend(below(child)));
            pids
        }
        below(&self.cgroup)
    }

    /// Ends the node, and asserts that nothing is left of it.
    pub(super) fn end(mut self) {
        self.stop();
        assert!(!self.cgroup.exists(), "{} is left", self.cgroup.path());
    }

    /// Removes everything of the node, as a drop does.
    pub(crate) fn abandon(&self) {
        drop(self.life.lock().unwrap().take());
    }

    fn stop(&mut self) {
        self.abandon();
        // Kill unshare(1) first: it complains on standard error if its child was killed.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        let _ = fs::write(self.cgroup.dir().join("cgroup.kill"), "1");
        self.cgroup.remove();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the node:\n{}", self.log);
        }
        if self.life.lock().unwrap().is_some() {
            self.stop();
        }
    }
}

/// Prepares a command that starts in a cgroup, entered from outside the node.
fn enter_cgroup(cgroup: &Cgroup, program: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", ENTER])
        .arg(cgroup.dir().join("cgroup.procs"))
        .arg(program);
    command
}

fn root_dir(unshare: &Child) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root", unshare.id()))
}
