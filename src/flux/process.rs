//! Which processes of a unit are its IMP and the job's shell, by what the kernel says of them
//! (proc_pid_status(5)).

use crate::legible;
use std::io;
use std::path::Path;

/// A process, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// That of its parent.
    pub parent: i32,
    /// Real, effective, saved and file system uid.
    pub uids: [u32; 4],
    /// Whether it is over, and only its parent has not heard of that.
    pub ended: bool,
}

/// The IMP of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imp {
    /// Its number.
    pub pid: i32,
}

/// What an IMP's children say about the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// The job's shell, which is this user's.
    Of(u32),
    /// There is none: not yet, or no more.
    None,
    /// Children of several users', which an IMP has not.
    Several,
}

impl Process {
    /// Reads about a process; `proc` is where proc(5) is mounted.
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` for one that is gone or hidden; [`io::ErrorKind::InvalidData`] for lines
    /// that are not as documented.
    pub fn read(proc: &Path, pid: i32) -> io::Result<Self> {
        let text = legible::read(proc.join(pid.to_string()).join("status"))?;
        Self::parse(pid, &text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Reads the text of such a file. A process's name stands in it with its line ends escaped.
    fn parse(pid: i32, text: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
            lines.next().map(str::trim)
        };
        let mut numbers = field("Uid:")?.split_ascii_whitespace().map(str::parse);
        let mut uids = [0_u32; 4];
        for uid in &mut uids {
            *uid = numbers.next()?.ok()?;
        }
        let ended = matches!(field("State:")?.as_bytes().first()?, b'Z' | b'X');
        Some(Self { pid, parent: field("PPid:")?.parse().ok()?, uids, ended })
    }

    /// Whether it has the uids of an IMP that this account started: a setuid program keeps the real
    /// one of its caller.
    #[must_use]
    pub fn is_imp(&self, flux: u32) -> bool {
        !self.ended && self.uids == [flux, 0, 0, 0]
    }

    /// The user that it is altogether, where that is neither root nor this account.
    fn user(&self, flux: u32) -> Option<u32> {
        let [uid, ..] = self.uids;
        (!self.ended && self.uids == [uid; 4] && uid != 0 && uid != flux).then_some(uid)
    }
}

/// The IMP among the processes of a unit's own cgroup, `flux` being the uid of Flux's account. A
/// child that it has just forked looks like it for a moment.
#[must_use]
pub fn imp(processes: &[Process], flux: u32) -> Option<Imp> {
    let imps = || processes.iter().filter(|process| process.is_imp(flux));
    let mut first = imps().filter(|one| !imps().any(|other| other.pid == one.parent));
    match (first.next(), first.next()) {
        (Some(process), None) => Some(Imp { pid: process.pid }),
        _ => None,
    }
}

/// The job's shell: the IMP's child that is a user's altogether. Looked for among what the kernel
/// lists as its children and among `processes`, those of the unit's own cgroup.
#[must_use]
pub fn shell(proc: &Path, imp: Imp, processes: &[Process], flux: u32) -> Shell {
    let here = processes.iter().filter(|process| process.parent == imp.pid).copied();
    let mut users = children(proc, imp).into_iter().chain(here).filter_map(|one| one.user(flux));
    match users.next() {
        None => Shell::None,
        Some(uid) if users.all(|other| other == uid) => Shell::Of(uid),
        Some(_) => Shell::Several,
    }
}

/// The IMP's children by the kernel's list, which not every kernel has, and which may miss one while
/// another ends (proc_pid_task(5)).
fn children(proc: &Path, imp: Imp) -> Vec<Process> {
    let pid = imp.pid.to_string();
    let list = proc.join(&pid).join("task").join(&pid).join("children");
    let text = legible::read(list).unwrap_or_default();
    let pids = text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    let read = pids.filter_map(|pid| Process::read(proc, pid).ok());
    read.filter(|process| process.parent == imp.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::tests::Scratch;

    const FLUX: u32 = 992;

    fn process(pid: i32, parent: i32, uids: [u32; 4]) -> Process {
        Process { pid, parent, uids, ended: false }
    }

    fn text(process: &Process) -> String {
        let [real, effective, saved, files] = process.uids;
        let state = if process.ended { "Z (zombie)" } else { "S (sleeping)" };
        format!(
            "Name:\tx\\nUid:\t0 0 0 0\nState:\t{state}\nPid:\t{}\nPPid:\t{}\nUid:\t{real}\t\
             {effective}\t{saved}\t{files}\nGid:\t0\t0\t0\t0\n",
            process.pid, process.parent
        )
    }

    #[test]
    fn a_status_file() {
        let one = process(7, 3, [992, 0, 0, 0]);
        assert_eq!(Process::parse(7, &text(&one)), Some(one));
        let ended = Process { ended: true, ..one };
        assert_eq!(Process::parse(7, &text(&ended)), Some(ended));
        for bad in ["", "State:\tS\nPPid:\t1\n", "State:\tS\nPPid:\t1\nUid:\t1 2 3\n"] {
            assert_eq!(Process::parse(7, bad), None, "{bad:?}");
        }
        let own = Process::read(Path::new("/proc"), std::process::id().cast_signed()).unwrap();
        assert!(!own.ended && own.parent > 0);
        assert!(Process::read(Path::new("/proc"), -1).is_err());
    }

    #[test]
    fn the_imp_is_the_accounts_setuid_process() {
        let is = |uids| imp(&[process(7, 1, uids)], FLUX).is_some();
        assert!(is([992, 0, 0, 0]));
        for uids in [
            [0, 0, 0, 0],
            [992, 992, 0, 0],
            [992, 0, 992, 0],
            [992, 0, 0, 992],
            [992; 4],
            [1001, 0, 0, 0],
            [0, 992, 992, 992],
        ] {
            assert!(!is(uids), "{uids:?}");
        }
        let zombie = Process { ended: true, ..process(7, 1, [992, 0, 0, 0]) };
        assert_eq!(imp(&[zombie], FLUX), None);
        assert_eq!(imp(&[], FLUX), None);
    }

    #[test]
    fn a_child_that_looks_like_the_imp_is_not_it() {
        let (one, child) = (process(9, 1, [992, 0, 0, 0]), process(7, 9, [992, 0, 0, 0]));
        assert_eq!(imp(&[child, one], FLUX), Some(Imp { pid: 9 }));
        let other = process(12, 1, [992, 0, 0, 0]);
        assert_eq!(imp(&[child, one, other], FLUX), None);
    }

    /// What is said of an IMP's children with these uids, by the kernel's list and by the cgroup.
    fn said(children: &[Process]) -> [Shell; 2] {
        let scratch = Scratch::new();
        let mut list = String::new();
        for child in children {
            scratch.file(&format!("{}/status", child.pid), &text(child));
            list.push_str(&format!("{} ", child.pid));
        }
        let without = shell(scratch.path(), Imp { pid: 9 }, children, FLUX);
        scratch.file("9/task/9/children", &list);
        [shell(scratch.path(), Imp { pid: 9 }, &[], FLUX), without]
    }

    #[test]
    fn the_shell_is_a_users_altogether() {
        let shell = process(20, 9, [1001; 4]);
        assert_eq!(said(&[shell]), [Shell::Of(1001); 2]);
        let helper = process(19, 9, [FLUX; 4]);
        assert_eq!(said(&[helper, shell]), [Shell::Of(1001); 2]);
        for none in [
            process(20, 9, [FLUX; 4]),
            process(20, 9, [0; 4]),
            process(20, 9, [FLUX, 0, 0, 0]),
            process(20, 9, [1001, 0, 0, 0]),
            process(20, 9, [0, 1001, 1001, 1001]),
            process(20, 8, [1001; 4]),
            Process { ended: true, ..shell },
        ] {
            assert_eq!(said(&[none]), [Shell::None; 2], "{none:?}");
        }
        assert_eq!(said(&[]), [Shell::None; 2]);
        assert_eq!(said(&[shell, process(21, 9, [1002; 4])]), [Shell::Several; 2]);
        assert_eq!(said(&[shell, process(21, 9, [1001; 4])]), [Shell::Of(1001); 2]);
    }
}
