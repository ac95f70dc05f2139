//! What both halves know of the jobs of Flux's system instance: how their ids and units are named,
//! and which processes of a unit say whose it is.
//!
//! Flux's account runs each job of another user's in a unit of its own service manager
//! (`imp-shell-RANK-ID.service`). The IMP of flux-security is that unit's first process: a setuid
//! program, so that its real uid is the account's and the others are root's, which no user can
//! bring about in a cgroup that is the account's. It starts the job's shell as the job's user.

#![forbid(unsafe_code)]

use std::fmt;

use crate::kernel::proc::{Proc, Process};
use crate::protocol::decimal;

/// The digits of Flux's notation F58 (RFC 19): those of base 58, by value.
const DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// A job's id. It is shown in F58 with an ASCII `f` in front, as names of units have it, which is
/// its canonical form here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FluxId(pub u64);

impl FluxId {
    /// Reads the canonical form alone.
    pub fn canonical(text: &str) -> Option<Self> {
        let number = text.strip_prefix('f')?.bytes().try_fold(0_u64, |number, digit| {
            let value = DIGITS.iter().position(|known| *known == digit)?;
            number.checked_mul(58)?.checked_add(u64::try_from(value).ok()?)
        });
        number.map(Self).filter(|id| id.to_string() == text)
    }
}

impl fmt::Display for FluxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = 1_u64;
        while self.0 / place >= 58 {
            place = place.saturating_mul(58);
        }
        f.write_str("f")?;
        while place > 0 {
            let value = usize::try_from(self.0 / place % 58).unwrap_or_default();
            let digit = DIGITS.get(value).copied().unwrap_or_default();
            fmt::Write::write_char(f, char::from(digit))?;
            place /= 58;
        }
        Ok(())
    }
}

/// A unit of a job's, by its name `imp-shell-RANK-ID.service`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// The job.
    pub id: FluxId,
    /// Rank of the broker that runs it: a node may have several.
    pub rank: u32,
}

impl Unit {
    /// Reads a unit's name; `None` for one that is not a job's, spelled as Flux spells it.
    pub fn parse(name: &str) -> Option<Self> {
        let (rank, id) =
            name.strip_prefix("imp-shell-")?.strip_suffix(".service")?.split_once('-')?;
        Some(Self { id: FluxId::canonical(id)?, rank: decimal(rank)? })
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
pub fn unit_at(cgroup: &str, flux: u32) -> Option<Unit> {
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
    use crate::kernel::trust::tests::Scratch;
    use crate::random::Random;

    #[test]
    fn units_are_named_as_flux_names_them() {
        let unit = Unit { id: FluxId(633_528_662), rank: 12 };
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
            "imp-shell-0-f11.service",
            "imp-shell-0-f0.service",
            "imp-shell-0-1234.service",
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

    /// RFC 19 and the tests of flux-core.
    const VECTORS: [(u64, &str); 14] = [
        (0, "f1"),
        (1, "f2"),
        (57, "fz"),
        (1234, "fNH"),
        (1888, "fZZ"),
        (3363, "fzz"),
        (3364, "f211"),
        (4369, "f2JL"),
        (65535, "fLUv"),
        (4_294_967_295, "f7YXq9G"),
        (633_528_662, "fxyzzy"),
        (6_731_191_091_817_518, "fuZZybuNNy"),
        (u64::MAX - 1, "fjpXCZedGfVP"),
        (u64::MAX, "fjpXCZedGfVQ"),
    ];

    #[test]
    fn known_ids() {
        for (number, text) in VECTORS {
            assert_eq!(FluxId(number).to_string(), text);
            assert_eq!(FluxId::canonical(text), Some(FluxId(number)), "{text}");
            assert_eq!(FluxId::read(text), Some(FluxId(number)), "{text}");
            let signed = text.replacen('f', "\u{192}", 1);
            assert_eq!(FluxId::read(&signed), Some(FluxId(number)), "{signed}");
            assert_eq!(FluxId::read(&number.to_string()), Some(FluxId(number)));
            assert_eq!(FluxId::canonical(&signed), None, "{signed}");
        }
        for text in [
            "6731191091817518",
            "\u{192}uZZybuNNy",
            "fuZZybuNNy",
            "0x17e9fb8df16c2e",
            "0x0017E9FB8DF16C2E",
            "0017.e9fb.8df1.6c2e",
            "job.0017.e9fb.8df1.6c2e",
        ] {
            assert_eq!(FluxId::read(text), Some(FluxId(6_731_191_091_817_518)), "{text}");
            assert_eq!(FluxId::job(text).unwrap().as_str(), "fuZZybuNNy");
        }
        for text in ["000e.daf9.7d00.0000", "0xedaf97d000000", "\u{192}ZemgA8Bzf"] {
            assert_eq!(FluxId::read(text), Some(FluxId(0x000e_daf9_7d00_0000)), "{text}");
        }
    }

    #[test]
    fn every_notation_of_a_number_is_read_as_that_number() {
        let mut random = Random::new(1958);
        for _ in 0..20_000 {
            let wide = u64::from(random.below(u32::MAX)) << 32 | u64::from(random.below(u32::MAX));
            let number = wide >> random.below(64);
            let [a, b, c, d] = [48, 32, 16, 0].map(|shift| number >> shift & 0xffff);
            let f58 = FluxId(number).to_string();
            for text in [
                f58.replacen('f', "\u{192}", 1),
                number.to_string(),
                format!("{number:#x}"),
                format!("{a:04x}.{b:04x}.{c:04x}.{d:04x}"),
                format!("job.{a:04x}.{b:04x}.{c:04x}.{d:04x}"),
                f58.clone(),
            ] {
                assert_eq!(FluxId::job(&text).unwrap().as_str(), f58, "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_id() {
        for text in [
            "", "f", "\u{192}", "ff1 ", "aaa", "flux", "f1230", "x1", "f-1", "f 1", "F1", "f1\0",
            "f\u{e4}", "f\u{192}1", "f0", "fO", "fI", "fl", "f111", "f11", "f12",
            // One more than 64 bits hold, more digits than they take, and many more.
            "fjpXCZedGfVR", "fzzzzzzzzzzz", "f211111111111", "fjpXCZedGfVQ1",
        ] {
            assert_eq!(FluxId::canonical(text), None, "{text:?}");
            assert_eq!(FluxId::read(text), None, "{text:?}");
        }
        for text in [
            "-1",
            "+1",
            "007",
            "1 ",
            "1.2",
            "18446744073709551616",
            "\u{661}",
            "0x",
            "0X10",
            "0x+1",
            "0x10000000000000000",
            "0x0g",
            "0017.e9fb.8df1",
            "0017.e9fb.8df1.6c2e.0000",
            "17.e9fb.8df1.6c2e",
            "+017.e9fb.8df1.6c2e",
            "job.f1",
            "job.1",
            "0017.e9fb.8df1.6c2",
            "reform-remote-galileo--heart-package-academy",
        ] {
            assert_eq!(FluxId::read(text), None, "{text:?}");
        }
        assert_eq!(FluxId::canonical("1234"), None);
        assert_eq!(FluxId::canonical(&format!("f{}", "z".repeat(5000))), None);
    }

    #[test]
    fn every_number_has_one_text() {
        let mut random = Random::new(19);
        let mut previous: Option<(u64, String)> = None;
        for _ in 0..20_000 {
            let wide = u64::from(random.below(u32::MAX)) << 32 | u64::from(random.below(u32::MAX));
            let number = wide >> random.below(64);
            let text = FluxId(number).to_string();
            assert_eq!(FluxId::canonical(&text), Some(FluxId(number)), "{text}");
            if let Some((other, shown)) = previous {
                assert_eq!(other == number, shown == text);
            }
            previous = Some((number, text));
        }
    }

    #[test]
    fn whatever_is_read_is_shown_as_it_was() {
        let mut random = Random::new(58);
        let signs: Vec<char> = "f12zQOl0 \u{192}\u{e4}".chars().collect();
        for _ in 0..20_000 {
            let length = random.index(14);
            let text: String = (0..length).map(|_| random.one_of(&signs)).collect();
            if let Some(id) = FluxId::canonical(&text) {
                assert_eq!(id.to_string(), text);
            }
        }
    }
}
