//! Small C programs and keys for the tests, made once per run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::artifact::{LIBEXEC, module_path};
use super::{Artifact, Outcome, User, artifact_path};

/// A program of `tests/native/tools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Opens devices and prints the results.
    Probe,
    /// Plays a broken helper.
    Fake,
    /// Attaches, lists and detaches device filters.
    Filter,
    /// Runs PAM twice in one process and compares the process before and after.
    Cycles,
    /// Makes one system call of a program fail.
    Inject,
    /// Runs a PAM transaction in sshd's order.
    SshdLogin,
    /// A PAM module that writes to `/tmp` in each of its calls.
    PamWrites,
    /// A PAM module with a thread.
    PamThreads,
    /// Runs the phases of a PAM transaction step by step, and changes their input in between.
    Steps,
    /// Runs PAM in a process with its own disposition of `SIGCHLD`.
    Reaper,
    /// Stands in for the daemon of a Slurm job's extern step, and adopts logins.
    Extern,
    /// A file system that never answers.
    StuckFs,
    /// Holds a device in one of two threads.
    Threads,
    /// Plays a Slurm step daemon to the helper.
    Stepd,
    /// Plays the step daemons of many jobs, silent or not.
    Stepds,
    /// Listens, and runs a command for each connection.
    Listen,
    /// Sums a number over the ranks of Open MPI.
    Sum,
    /// Plays the IMP of Flux.
    Imp,
    /// Counts the page faults of a program.
    Faults,
    /// Prints what the PAM stack of sshd answers, again and again in one process.
    Verdicts,
    /// Asks the library of CUDA for its GPUs.
    Cuda,
    /// Is many processes of a user, which wait for nothing.
    Crowd,
    /// Opens and makes devices in the ways that its arguments name.
    Access,
    /// Answers a message of PAM with an exception.
    Raise,
}

const ALL: [(Tool, &str, &str); 24] = [
    (Tool::Probe, "probe", include_str!("../tools/probe.c")),
    (Tool::Fake, "fake", include_str!("../tools/fake.c")),
    (Tool::Filter, "filter", include_str!("../tools/filter.c")),
    (Tool::Cycles, "cycles", include_str!("../tools/cycles.c")),
    (Tool::Inject, "inject", include_str!("../tools/inject.c")),
    (
        Tool::SshdLogin,
        "sshd-login",
        include_str!("../tools/sshd-login.c"),
    ),
    (
        Tool::PamWrites,
        "pam_writes.so",
        include_str!("../modules/pam_writes.c"),
    ),
    (
        Tool::PamThreads,
        "pam_threads.so",
        include_str!("../modules/pam_threads.c"),
    ),
    (Tool::Steps, "steps", include_str!("../tools/steps.c")),
    (Tool::Reaper, "reaper", include_str!("../tools/reaper.c")),
    (Tool::Extern, "extern", include_str!("../tools/extern.c")),
    (Tool::StuckFs, "stuckfs", include_str!("../tools/stuckfs.c")),
    (Tool::Threads, "threads", include_str!("../tools/threads.c")),
    (Tool::Stepd, "stepd", include_str!("../tools/stepd.c")),
    (Tool::Stepds, "stepds", include_str!("../tools/stepds.c")),
    (Tool::Listen, "listen", include_str!("../tools/listen.c")),
    (Tool::Sum, "sum", include_str!("../tools/sum.c")),
    (Tool::Imp, "imp", include_str!("../tools/imp.c")),
    (Tool::Faults, "faults", include_str!("../tools/faults.c")),
    (
        Tool::Verdicts,
        "verdicts",
        include_str!("../tools/verdicts.c"),
    ),
    (Tool::Cuda, "cuda", include_str!("../tools/cuda.c")),
    (Tool::Crowd, "crowd", include_str!("../tools/crowd.c")),
    (Tool::Access, "access", include_str!("../tools/access.c")),
    (Tool::Raise, "raise", include_str!("../tools/raise.c")),
];

impl Tool {
    /// Returns the path of the compiled program.
    pub(crate) fn path(self) -> PathBuf {
        let (_, name, _) = ALL.iter().find(|(tool, ..)| *tool == self).unwrap();
        workshop().join(name)
    }
}

/// Returns the folder with everything that is made once. `JOB_ADOPT_TOOLS` names a finished one,
/// for machines without a compiler.
fn workshop() -> &'static Path {
    static READY: OnceLock<PathBuf> = OnceLock::new();
    READY.get_or_init(|| {
        if let Some(finished) = std::env::var_os("JOB_ADOPT_TOOLS") {
            return finished.into();
        }
        let folder = make_run_folder(Path::new(env!("CARGO_TARGET_TMPDIR")));
        std::thread::scope(|scope| {
            for (_, name, source) in ALL {
                let folder = &folder;
                scope.spawn(move || compile(folder, name, source));
            }
        });
        make_key(&folder.join("user-key"));
        make_key(&folder.join("host-key"));
        folder
    })
}

/// Start of the name of a run's folder. The number of the run's process follows.
const RUN_PREFIX: &str = "native-";

/// Makes a folder below `parent` for this run, so that two runs of a checkout do not disturb each other.
fn make_run_folder(parent: &Path) -> PathBuf {
    remove_folders_of_ended_runs(parent);
    let folder = parent.join(format!("{RUN_PREFIX}{}", std::process::id()));
    // An ended run may have had the same number.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn remove_folders_of_ended_runs(parent: &Path) {
    let entries = parent.read_dir().into_iter().flatten().flatten();
    for folder in entries.map(|entry| entry.path()) {
        let name = folder.file_name().unwrap().to_string_lossy();
        let pid = name
            .strip_prefix(RUN_PREFIX)
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another run may remove it at the same time.
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}

fn compile(folder: &Path, name: &str, source: &str) {
    let file = folder.join(format!("{name}.c"));
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(folder.join(name));
    if name.ends_with(".so") {
        cc.args(["-shared", "-fPIC"]);
    }
    Outcome::run(cc.arg(&file).args(["-lpam", "-pthread"])).ok();
}

fn make_key(path: &Path) {
    let mut keygen = Command::new("ssh-keygen");
    Outcome::run(
        keygen
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"])
            .arg(path),
    )
    .ok();
}

/// Returns a folder with the files under test, and with `probe`, where each node has them: a node does not copy them.
pub(super) fn installed_product() -> &'static Path {
    static READY: OnceLock<PathBuf> = OnceLock::new();
    READY.get_or_init(|| {
        let folder = workshop().join("installed");
        let files = [
            (artifact_path(Artifact::Module), module_path()),
            (artifact_path(Artifact::Helper), format!("{LIBEXEC}/helper")),
            (artifact_path(Artifact::Keeper), format!("{LIBEXEC}/keeper")),
            (
                artifact_path(Artifact::Program),
                "/usr/bin/job-adopt".to_owned(),
            ),
            (Tool::Probe.path(), "/usr/bin/probe".to_owned()),
        ];
        for (from, path) in files {
            let mut install = Command::new("sh");
            install
                .args(["-c", r#"umask 022 && install -D -m 0755 "$0" "$1""#])
                .arg(from);
            Outcome::run(install.arg(folder.join(path.trim_start_matches('/')))).ok();
        }
        folder
    })
}

/// Returns the path of the private key with that name. Its public half has the suffix `.pub`.
pub(super) fn key(name: &str) -> PathBuf {
    workshop().join(name)
}

/// Returns the hash of a user's password for `/etc/shadow`.
pub(super) fn password_hash(user: User) -> String {
    static HASHES: OnceLock<Vec<(User, String)>> = OnceLock::new();
    let hashes = HASHES.get_or_init(|| {
        super::user::PEOPLE
            .iter()
            .map(|person| (*person, hash(&person.password())))
            .collect()
    });
    hashes
        .iter()
        .find(|(known, _)| *known == user)
        .unwrap()
        .1
        .clone()
}

fn hash(password: &str) -> String {
    let mut openssl = Command::new("openssl");
    let outcome = Outcome::run(openssl.args(["passwd", "-6", "-salt", "testsalt", password])).ok();
    outcome.stdout.trim().to_owned()
}
