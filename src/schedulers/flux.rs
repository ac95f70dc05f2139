//! Recognizes jobs of Flux's system instance: their units by name, and the job's user by the processes in
//! a unit.
//!
//! The account of Flux runs each job in a unit of its own service manager (`imp-shell-RANK-ID.service`).
//! The unit's first process is the IMP of flux-security, a setuid program: its real uid is the account's,
//! its other uids are 0. No user can make such a process in a cgroup of that account. The IMP starts the
//! job's shell as the job's user.

use kernel::proc::{Proc, Process};
use protocol::parse_decimal;

/// A job's unit, as its name `imp-shell-RANK-ID.service` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// The job's id as Flux names units: in F58, with an ASCII `f` in front.
    pub id: &'a str,
    /// Rank of the broker that runs the job: a node may have several brokers.
    pub rank: u32,
}

impl<'a> Unit<'a> {
    /// Parses a unit's name; `None` for a unit that is not a job's. The digits of the id are not checked to be F58.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (rank, id) = name
            .strip_prefix("imp-shell-")?
            .strip_suffix(".service")?
            .split_once('-')?;
        let digits = id.strip_prefix('f').filter(|digits| !digits.is_empty())?;
        let is_id = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
        is_id.then_some(Self {
            id,
            rank: parse_decimal(rank)?,
        })
    }
}

/// The cgroups below the cgroup v2 mount in which the service manager of Flux's account has its
/// units. Newer managers have a slice for applications.
pub fn unit_parents(flux: u32) -> [String; 2] {
    let manager = format!("/user.slice/user-{flux}.slice/user@{flux}.service");
    [format!("{manager}/app.slice"), manager]
}

/// Parses the path of a unit's cgroup; `None` unless it is a job's unit right below one of
/// [`unit_parents`].
pub fn unit_at(cgroup: &str, flux: u32) -> Option<Unit<'_>> {
    let (parent, name) = cgroup.rsplit_once('/')?;
    if !unit_parents(flux).iter().any(|known| known == parent) {
        return None;
    }
    Unit::parse(name)
}

/// Maximum processes of a unit that a login reads. A user's job may have any number, and every login to
/// the node reads the unit. The IMP is its first process.
pub const UNIT_PROCESSES_MAX: usize = 1024;

/// The owner of the job's shell, as the IMP's children show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// The shell runs as this user.
    Of(u32),
    /// No shell has started yet, or it has ended.
    None,
    /// Children belong to several users, which no IMP has.
    Several,
}

/// Tells whether a process has the uids of an IMP that Flux's account has started. A setuid program
/// keeps the real uid of its caller.
pub fn is_imp(process: &Process, flux: u32) -> bool {
    !process.ended && process.uids == [flux, 0, 0, 0]
}

/// The user whose uid is all four uids of a process; `None` for root, for Flux's account and for
/// an ended process.
pub fn sole_user(process: &Process, flux: u32) -> Option<u32> {
    let [uid, ..] = process.uids;
    (!process.ended && process.uids == [uid; 4] && uid != 0 && uid != flux).then_some(uid)
}

/// Finds the process number of the IMP among the processes in a unit's own cgroup; `None` if there is none, or
/// several. A child that the IMP has just forked has the same uids for a moment and does not count.
pub fn find_imp(processes: &[Process], flux: u32) -> Option<i32> {
    let imps = || processes.iter().filter(|process| is_imp(process, flux));
    let mut first_imps = imps().filter(|imp| !imps().any(|other| other.pid == imp.parent));
    match (first_imps.next(), first_imps.next()) {
        (Some(process), None) => Some(process.pid),
        _ => None,
    }
}

/// Finds the job's shell: the IMP's child whose uids are all one user's. It reads the kernel's list of
/// children and `processes`, which are in the unit's own cgroup: either may miss a child.
pub fn find_shell(proc: &Proc, imp: i32, processes: &[Process], flux: u32) -> Shell {
    let in_unit = processes
        .iter()
        .filter(|process| process.parent == imp)
        .copied();
    let children = proc.children(imp).into_iter().chain(in_unit);
    let mut users = children.filter_map(|child| sole_user(&child, flux));
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
    fn only_name_that_flux_gives_is_unit_of_job() {
        let unit = Unit {
            id: "fxyzzy",
            rank: 12,
        };
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
    fn unit_outside_service_manager_of_account_is_no_job() {
        let is_unit = |path: &str| unit_at(path, 992).is_some();
        for path in [
            "/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@992.service/imp-shell-0-f1.service",
        ] {
            assert!(is_unit(path), "{path}");
        }
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
            assert!(!is_unit(path), "{path}");
        }
    }

    const FLUX: u32 = 992;

    fn process(pid: i32, parent: i32, uids: [u32; 4]) -> Process {
        Process {
            pid,
            parent,
            uids,
            ended: false,
            namespaces: 1,
        }
    }

    fn status_text(process: &Process) -> String {
        let [real, effective, saved, files] = process.uids;
        let state = if process.ended {
            "Z (zombie)"
        } else {
            "S (sleeping)"
        };
        format!(
            "Name:\tx\\nUid:\t0 0 0 0\nState:\t{state}\nPid:\t{}\nPPid:\t{}\nUid:\t{real}\t\
             {effective}\t{saved}\t{files}\nGid:\t0\t0\t0\t0\n",
            process.pid, process.parent
        )
    }

    #[test]
    fn only_setuid_process_of_account_is_imp() {
        let has_imp = |uids| find_imp(&[process(7, 1, uids)], FLUX).is_some();
        assert!(has_imp([992, 0, 0, 0]));
        for uids in [
            [0, 0, 0, 0],
            [992, 992, 0, 0],
            [992, 0, 992, 0],
            [992, 0, 0, 992],
            [992; 4],
            [1001, 0, 0, 0],
            [0, 992, 992, 992],
        ] {
            assert!(!has_imp(uids), "{uids:?}");
        }
        let zombie = Process {
            ended: true,
            ..process(7, 1, [992, 0, 0, 0])
        };
        assert_eq!(find_imp(&[zombie], FLUX), None);
        assert_eq!(find_imp(&[], FLUX), None);
    }

    #[test]
    fn child_with_uids_of_imp_is_no_imp() {
        let imp = process(9, 1, [992, 0, 0, 0]);
        let child = process(7, 9, [992, 0, 0, 0]);
        assert_eq!(find_imp(&[child, imp], FLUX), Some(9));
        let other_imp = process(12, 1, [992, 0, 0, 0]);
        assert_eq!(find_imp(&[child, imp, other_imp], FLUX), None);
    }

    /// Finds the shell among these children of an IMP, by the kernel's list and by the cgroup.
    fn find_by_list_and_cgroup(children: &[Process]) -> [Shell; 2] {
        let scratch = Scratch::new();
        let mut list = String::new();
        for child in children {
            scratch.file(&format!("{}/status", child.pid), &status_text(child));
            list.push_str(&format!("{} ", child.pid));
        }
        let proc = Proc::with_root(scratch.path().to_owned());
        let by_cgroup = find_shell(&proc, 9, children, FLUX);
        scratch.file("9/task/9/children", &list);
        [find_shell(&proc, 9, &[], FLUX), by_cgroup]
    }

    #[test]
    fn only_process_with_all_uids_of_user_is_shell() {
        let shell = process(20, 9, [1001; 4]);
        assert_eq!(find_by_list_and_cgroup(&[shell]), [Shell::Of(1001); 2]);
        let helper = process(19, 9, [FLUX; 4]);
        assert_eq!(
            find_by_list_and_cgroup(&[helper, shell]),
            [Shell::Of(1001); 2]
        );
        for no_shell in [
            process(20, 9, [FLUX; 4]),
            process(20, 9, [0; 4]),
            process(20, 9, [FLUX, 0, 0, 0]),
            process(20, 9, [1001, 0, 0, 0]),
            process(20, 9, [0, 1001, 1001, 1001]),
            process(20, 8, [1001; 4]),
            Process {
                ended: true,
                ..shell
            },
        ] {
            assert_eq!(
                find_by_list_and_cgroup(&[no_shell]),
                [Shell::None; 2],
                "{no_shell:?}"
            );
        }
        assert_eq!(find_by_list_and_cgroup(&[]), [Shell::None; 2]);
        let with_child_of = |uid| find_by_list_and_cgroup(&[shell, process(21, 9, [uid; 4])]);
        assert_eq!(with_child_of(1002), [Shell::Several; 2]);
        assert_eq!(with_child_of(1001), [Shell::Of(1001); 2]);
    }
}
