//! The processes of root by which a check tells what runs on this node.

use super::file_identity::is_same_file;
use helper::jobs::sources::processes;
use kernel::proc::Proc;
use kernel::trust::Trust;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mode bits set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;

/// Checks whether a daemon of Slurm runs here. Those of steps live on without slurmd, which is down during an upgrade.
pub fn runs_slurm() -> bool {
    !root_processes(&["slurmd", "slurmstepd"]).is_empty()
}

/// Lists the processes whose real uid is root's and whose name is one of these (proc_pid_comm(5)), sorted by name and
/// number; none if `/proc` cannot be listed. No user can make one up (`is_roots_program`), and none is of a container
/// (`is_of_this_node`).
pub fn root_processes(names: &[&str]) -> Vec<(String, i32)> {
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
pub fn shares_namespace(proc: &Proc, pid: i32, kind: &str) -> Option<bool> {
    let read = |dir: PathBuf| dir.join("ns").join(kind).read_link().ok();
    let own_pid = i32::try_from(std::process::id()).ok()?;
    Some(read(proc.dir(pid))? == read(proc.dir(own_pid))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use nix::unistd::Uid;
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
