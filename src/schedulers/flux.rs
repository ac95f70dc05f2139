//! Jobs of Flux's system instance, as both halves know them: how their units are named, and which
//! processes in a unit tell the job's user.
//!
//! The account of Flux runs each user's job in a unit of its own service manager
//! (`imp-shell-RANK-ID.service`). The unit's first process is the IMP of flux-security, a setuid
//! program: its real uid is the account's, its other uids are root's. No user can make such a process in
//! a cgroup of that account. The IMP starts the job's shell as the job's user.

use kernel::proc::{Proc, Process};
use protocol::parse_decimal;

/// The unit of a job, by its name `imp-shell-RANK-ID.service`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// The job's id as Flux names units: in F58, with an ASCII `f` in front.
    pub id: &'a str,
    /// Rank of the broker that runs it: a node may have several.
    pub rank: u32,
}

impl<'a> Unit<'a> {
    /// Reads a unit's name; `None` for one that is not a job's.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (rank, id) =
            name.strip_prefix("imp-shell-")?.strip_suffix(".service")?.split_once('-')?;
        let digits = id.strip_prefix('f').filter(|digits| !digits.is_empty())?;
        let is_id = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
        is_id.then_some(Self { id, rank: parse_decimal(rank)? })
    }
}

/// Where the service manager of this account has its units: their cgroups' parents, below the
/// cgroup v2 mount. Newer ones have a slice of applications.
pub fn folders(flux: u32) -> [String; 2] {
    let manager = format!("/user.slice/user-{flux}.slice/user@{flux}.service");
    [format!("{manager}/app.slice"), manager]
}

/// The unit whose cgroup this is; `None` for anything that is not right below where the account has
/// its units.
pub fn unit_at(cgroup: &str, flux: u32) -> Option<Unit<'_>> {
    let (folder, name) = cgroup.rsplit_once('/')?;
    folders(flux).iter().any(|known| known == folder).then(|| Unit::parse(name))?
}

/// Most processes of a unit that are looked at. A user's job may have any number, and every login to
/// the node looks at the unit; its IMP is the first.
pub const LOOKED_AT: usize = 1024;

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

/// Whether a process has the uids of an IMP that this account started: a setuid program keeps the
/// real one of its caller.
pub fn is_imp(process: &Process, flux: u32) -> bool {
    !process.ended && process.uids == [flux, 0, 0, 0]
}

/// The user that a process is altogether, where that is neither root nor this account.
pub fn user(process: &Process, flux: u32) -> Option<u32> {
    let [uid, ..] = process.uids;
    (!process.ended && process.uids == [uid; 4] && uid != 0 && uid != flux).then_some(uid)
}

/// Number of the IMP among the processes of a unit's own cgroup, `flux` being the uid of Flux's
/// account. A child that it has just forked looks like it for a moment.
pub fn imp(processes: &[Process], flux: u32) -> Option<i32> {
    let imps = || processes.iter().filter(|process| is_imp(process, flux));
    let mut first = imps().filter(|one| !imps().any(|other| other.pid == one.parent));
    match (first.next(), first.next()) {
        (Some(process), None) => Some(process.pid),
        _ => None,
    }
}

/// The job's shell: the IMP's child that is a user's altogether. Looked for among what the kernel
/// lists as its children and among `processes`, those of the unit's own cgroup.
pub fn shell(proc: &Proc, imp: i32, processes: &[Process], flux: u32) -> Shell {
    let here = processes.iter().filter(|process| process.parent == imp).copied();
    let children = proc.children(imp).into_iter().chain(here);
    let mut users = children.filter_map(|child| user(&child, flux));
    match users.next() {
        None => Shell::None,
        Some(uid) if users.all(|other| other == uid) => Shell::Of(uid),
        Some(_) => Shell::Several,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn units_are_named_as_flux_names_them() {
        let unit = Unit { id: "fxyzzy", rank: 12 };
        assert_eq!(Unit::parse("imp-shell-12-fxyzzy.service"), Some(unit));
        assert!(Unit::parse("imp-shell-0-f1.service").is_some());
        for name in [
            "",
            "shell-0-f1.service",
            "imp-shell-f1.service",
            "imp-shell--f1.service",
            "imp-shell-00-f1.service",
            "imp-shell-+1-f1.service",
            "imp-shell--1-f1.service",
            "imp-shell-4294967296-f1.service",
            "imp-shell-0-1234.service",
            "imp-shell-0-f.service",
            "imp-shell-0-\u{192}1.service",
            "imp-shell-0-f1",
            "imp-shell-0-f1.scope",
            "imp-shell-0-f1.service.service",
            "imp-shell-0-f1.service ",
            "imp-shell-0-f1-2.service",
            " imp-shell-0-f1.service",
            "ximp-shell-0-f1.service",
            "imp-shell@0-f1.service",
        ] {
            assert_eq!(Unit::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn only_the_accounts_own_service_manager_has_them() {
        let at = |path: &str| unit_at(path, 992).is_some();
        assert!(at("/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service"));
        assert!(at("/user.slice/user-992.slice/user@992.service/imp-shell-0-f1.service"));
        for path in [
            "",
            "imp-shell-0-f1.service",
            "/imp-shell-0-f1.service",
            "/user.slice/user-1001.slice/user@1001.service/app.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@1001.service/app.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@992.service/background.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@992.service/app.slice/x/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service/x",
            "/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service/",
            "/x/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service",
            "/user.slice/user-0992.slice/user@992.service/imp-shell-0-f1.service",
        ] {
            assert!(!at(path), "{path}");
        }
    }

    const FLUX: u32 = 992;

    fn process(pid: i32, parent: i32, uids: [u32; 4]) -> Process {
        Process { pid, parent, uids, ended: false, namespaces: 1 }
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
        assert_eq!(imp(&[child, one], FLUX), Some(9));
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
        let proc = Proc::at(scratch.path().to_owned());
        let without = shell(&proc, 9, children, FLUX);
        scratch.file("9/task/9/children", &list);
        [shell(&proc, 9, &[], FLUX), without]
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
