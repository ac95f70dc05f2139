//! Lists the processes in a cgroup and below it, in a time that its user cannot draw out: users who own
//! cgroups in their job decide how many there are, and limits of the system how many processes.

use crate::process::{Process, has_ended, read_process};
use helper::jobs::sources::processes;
use kernel::cgroup::{
    self, Dir, Listing, Membership, Mount, list_own_processes, list_processes, read_event,
    walk_selected,
};
use kernel::proc::Proc;
use protocol::is_within;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Maximum cgroups below a cgroup that are visited. If there are more, all processes of the node are asked
/// for their cgroup, which takes some milliseconds as well.
const VISITED_CGROUPS_MAX: u64 = 1000;

/// Length from which on the kernel may not show a path, before Linux 6.8 (`cgroup_path_ns_locked` with `PATH_MAX`).
const SHOWN_PATH_BYTES_MAX: usize = 4095;

/// Lists the numbers of the processes in a cgroup and below it. If too many cgroups are below it, it asks each process
/// of the node for its cgroup instead of visiting them, unless `/proc` hides processes.
pub fn list_members(dir: &Dir, deadline: Instant) -> Listing<i32> {
    let is_large = count_descendants(dir).is_some_and(|count| count > VISITED_CGROUPS_MAX);
    if !is_large || !shows_all_processes() {
        return list_processes(dir, deadline);
    }
    let Ok(pids) = processes::list_numbers::<i32>(Path::new("/proc")) else {
        return list_processes(dir, deadline);
    };
    let mut members = Vec::new();
    // Processes whose path the kernel does not show, so that they may be members.
    let mut hidden = Vec::new();
    for pid in pids.flatten() {
        match Membership::read(pid) {
            Ok(membership) if is_member(&membership, dir) => members.push(pid),
            Ok(_) => {}
            // The process has ended.
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ESRCH)) => {}
            // Before Linux 6.8 the kernel shows no path of more than 4096 bytes.
            Err(_) => hidden.push(pid),
        }
    }
    // /proc also lists zombies, which the list of a cgroup lacks.
    members.retain(|pid| {
        Proc::host()
            .read_process(*pid)
            .is_ok_and(|process| !has_ended(&process))
    });
    if hidden.is_empty() {
        return Listing {
            all: members,
            cut: None,
        };
    }
    let Listing { all: visited, cut } = list_processes_with_long_paths(dir, deadline);
    members.extend(visited.into_iter().filter(|pid| hidden.contains(pid)));
    Listing { all: members, cut }
}

/// Lists the processes in a cgroup and below it, at least those whose path has more bytes than the kernel shows.
///
/// It visits no cgroup without processes, whatever their number is, and none with a short path and without
/// children: these cost one system call each, or none.
fn list_processes_with_long_paths(top: &Dir, deadline: Instant) -> Listing<i32> {
    let mut all = Vec::new();
    let result = walk_selected(top, deadline, open_if_path_may_be_hidden, |dir| {
        all.extend(list_own_processes(dir)?);
        Ok(())
    });
    Listing {
        all,
        cut: result.err(),
    }
}

/// Opens a child that has processes, if its path or that of a cgroup below it may be too long to be shown.
fn open_if_path_may_be_hidden(parent: &Dir, name: &OsStr) -> cgroup::Result<Option<Dir>> {
    let is_short = parent.path().len() + 1 + name.len() < SHOWN_PATH_BYTES_MAX;
    if is_short && !parent.child_has_children(name)? {
        return Ok(None);
    }
    let child = parent.child(name)?;
    Ok((read_event(&child, "populated")? != Some(false)).then_some(child))
}

/// Reads the processes in a cgroup and below it, except this one.
///
/// It lists them twice: a number may pass to a process elsewhere before it is read, and then the second
/// list lacks it. To read the cgroup of each instead would fail for long paths (`SHOWN_PATH_BYTES_MAX`).
pub fn read_processes(dir: &Dir, deadline: Instant) -> Listing<Process> {
    let own_pid = nix::unistd::getpid().as_raw();
    let Listing { all: pids, cut } = list_members(dir, deadline);
    let mut all: Vec<Process> = pids
        .into_iter()
        .filter(|&pid| pid != own_pid)
        .filter_map(read_process)
        .collect();
    let again = list_members(dir, deadline);
    let remaining: BTreeSet<i32> = again.all.into_iter().collect();
    all.retain(|process| remaining.contains(&process.pid));
    Listing {
        all,
        cut: cut.or(again.cut),
    }
}

fn is_member(membership: &Membership, dir: &Dir) -> bool {
    membership
        .unified()
        .is_some_and(|path| is_within(path, dir.path()))
}

/// Counts the cgroups below a cgroup of version 2; `None` for version 1, in which no user owns one.
fn count_descendants(dir: &Dir) -> Option<u64> {
    let text = dir.read("cgroup.stat").ok()??;
    text.lines()
        .find_map(|line| line.strip_prefix("nr_descendants "))?
        .parse()
        .ok()
}

/// Whether `/proc` shows the processes of all users (`hidepid`), with the paths of the mount.
fn shows_all_processes() -> bool {
    fs::metadata("/proc/1").is_ok()
        && Mount::open()
            .and_then(|mount| mount.require_own_namespace())
            .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::process::Command;
    use std::time::Duration;

    /// A directory with the path of this process's cgroup and a count of descendants, but without a list
    /// of processes.
    fn own_cgroup(scratch: &Scratch, descendants: u64) -> Option<Dir> {
        scratch.file(
            "cgroup.stat",
            &format!("nr_descendants {descendants}\nnr_dying 7\n"),
        );
        scratch.file("cgroup.procs", "");
        let membership = Membership::read_own().unwrap();
        let file = fs::File::open(scratch.path()).unwrap();
        Some(Dir::new(file.into(), membership.unified()?))
    }

    #[test]
    fn members_of_large_cgroup_are_found_in_proc_without_zombies() {
        let scratch = Scratch::new();
        let Some(large) = own_cgroup(&scratch, VISITED_CGROUPS_MAX + 1) else {
            return;
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut zombie = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(zombie.id()).unwrap();
        while !fs::read_to_string(format!("/proc/{pid}/stat"))
            .unwrap()
            .contains(") Z ")
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let found = list_members(&large, deadline).complete().unwrap();
        zombie.wait().unwrap();
        if shows_all_processes() {
            assert!(found.contains(&nix::unistd::getpid().as_raw()), "{found:?}");
        }
        assert!(!found.contains(&pid), "{found:?}");
        let small = own_cgroup(&scratch, VISITED_CGROUPS_MAX).unwrap();
        assert!(
            list_members(&small, deadline)
                .complete()
                .unwrap()
                .is_empty()
        );
    }
}
