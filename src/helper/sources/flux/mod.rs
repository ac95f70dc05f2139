//! Jobs of Flux's, by the units that its system instance runs them in.
//!
//! No broker is asked: the service manager of Flux's account has a unit for each job here, and who
//! the job's shell is in it says whose the job is. A unit without an IMP is what a job left behind,
//! and units of the same name in a user's own service manager are nobody's. The privileged half
//! looks at the chosen one once more.

mod look;

use super::shown;
use super::{Found, Job, Source, SourceError};
use crate::{local_uid, printable};
use kernel::proc::{self, Proc};
use look::{Look, Seen};
use protocol::{CgroupPath, JobId, Placement, SourceName};
use schedulers::flux::{self, Unit, folders};
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Most names of a folder of units.
const NAMES_MAX: usize = 65_536;

/// Flux as a source.
#[derive(Debug)]
pub struct FluxSource {
    account: String,
    mount: PathBuf,
    root: PathBuf,
}

/// Jobs that run and jobs that are ending, with their owners, and what else was found.
type All = (Vec<(u32, Job)>, Vec<(u32, JobId)>, Found);

/// A unit of a job's, by its id and its broker's rank, and its cgroup's path below the mount.
type Units = BTreeMap<(FluxId, u32, String), PathBuf>;

impl FluxSource {
    /// A source over the units of an account, given by name or number, of cgroups at `mount`, on the
    /// node whose `proc` and `run` are below `root`.
    pub fn new(account: &str, mount: PathBuf, root: &Path) -> Self {
        Self { account: account.to_owned(), mount, root: root.to_owned() }
    }

    /// The running jobs of all users, each with its owner, and what cannot be told.
    pub fn everyones(&self, deadline: Instant) -> Result<(Vec<(u32, Job)>, Found), SourceError> {
        self.all(deadline).map(|(jobs, _, found)| (jobs, found))
    }

    /// The same, and the jobs that are ending, each with its owner.
    fn all(&self, deadline: Instant) -> Result<All, SourceError> {
        let flux = account_uid(&self.account)?;
        let mut found = Found::default();
        let units = self.units(flux, &mut found)?;
        let look = Look { proc: &Proc::at(self.root.join("proc")), flux, deadline };
        let (mut jobs, mut ending) = (BTreeMap::new(), Vec::new());
        let (mut running, mut waiting, mut left, mut late) = (0_usize, 0_usize, 0_usize, 0_usize);
        for ((id, _, path), dir) in units {
            match look.at(&dir) {
                Seen::Running { owner, started } => {
                    running += 1;
                    // Of several brokers' units of one job, that of the lowest rank comes first.
                    let job = job(id, &path, flux, started);
                    let other = |job: Job| found.skipped.extend(second(&job));
                    match jobs.get(&(id, owner)) {
                        Some(_) => job.map(other),
                        None => job.map(|job| drop(jobs.insert((id, owner), job))),
                    };
                }
                Seen::Waiting => {
                    waiting += 1;
                    found.skipped.push(format!("{path}: its shell is not there yet"));
                }
                Seen::Ending(owner) => {
                    waiting += 1;
                    ending.extend(id.to_string().parse().map(|id| (owner, id)));
                    found.skipped.push(format!("{path}: its shell has ended, and tasks linger"));
                }
                Seen::Full => {
                    left += 1;
                    let most = flux::LOOKED_AT;
                    found.skipped.push(format!("{path}: no IMP among its first {most} processes"));
                }
                Seen::Left => left += 1,
                Seen::Strange(why) => found.broken.push(format!("{path}: {why}")),
                Seen::Late => late += 1,
            }
        }
        if late > 0 {
            found.silent.push(format!("flux: {late} units could not be looked at in time"));
        }
        found.seen.push(format!(
            "account {}: {running} units run a job, {waiting} have no shell, {left} are left over",
            self.account
        ));
        let jobs = jobs.into_iter().map(|((_, owner), job)| (owner, job)).collect();
        Ok((jobs, ending, found))
    }

    /// The jobs of this user whose prolog runs. Its wrapper leaves the environment in a file for the
    /// time; since flux-core 0.89 only root can read that.
    fn starting(&self, uid: u32) -> impl Iterator<Item = JobId> {
        let own = format!("FLUX_JOB_USERID={uid}");
        let entries = std::fs::read_dir(self.root.join("run")).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name();
            let id = name.to_str()?.strip_prefix("flux-prolog@")?.strip_suffix(".env")?;
            let text = proc::read(entry.path()).ok()?;
            text.lines().any(|line| line == own).then(|| FluxId::job(id))?
        })
    }

    /// The units of jobs that there are.
    /// Fails: [`SourceError::Absent`] where the account has no slice here.
    fn units(&self, flux: u32, found: &mut Found) -> Result<Units, SourceError> {
        let slice = format!("/user.slice/user-{flux}.slice");
        let mut units = Units::new();
        if !self.at(&slice).is_dir() {
            return Err(SourceError::Absent(format!(
                "account {} has no cgroup {slice}: Flux runs no jobs here by sdexec",
                self.account
            )));
        }
        for folder in folders(flux) {
            let entries = match std::fs::read_dir(self.at(&folder)) {
                Ok(entries) => entries.take(NAMES_MAX),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    found.broken.push(format!("{folder}: {error}"));
                    continue;
                }
            };
            for entry in entries {
                match entry {
                    Ok(entry) => {
                        let name = entry.file_name();
                        let unit = name.to_str().and_then(Unit::parse);
                        let id =
                            unit.and_then(|unit| Some((FluxId::canonical(unit.id)?, unit.rank)));
                        let path = format!("{folder}/{}", name.to_string_lossy());
                        units.extend(id.map(|(id, rank)| ((id, rank, path), entry.path())));
                    }
                    Err(error) => found.broken.push(format!("{folder}: {error}")),
                }
            }
        }
        Ok(units)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }
}

impl Source for FluxSource {
    fn name(&self) -> SourceName {
        SourceName::Flux
    }

    fn jobs(&self, uid: u32, deadline: Instant) -> Result<Found, SourceError> {
        let (jobs, ending, mut found) = self.all(deadline)?;
        found.jobs.extend(jobs.into_iter().filter(|(owner, _)| *owner == uid).map(|(_, job)| job));
        if found.jobs.is_empty() {
            let ending = ending.into_iter().filter(|(owner, _)| *owner == uid);
            found.starting.extend(self.starting(uid));
            found.ending.extend(ending.map(|(_, id)| id));
        }
        Ok(found)
    }
}

/// The cgroup in which the prolog of a job runs, by the unit that flux-core has for it.
pub(super) fn prolog(id: &JobId) -> Option<CgroupPath> {
    format!("/system.slice/system-flux\\x2dprolog.slice/flux-prolog@{id}.service").parse().ok()
}

fn job(id: FluxId, path: &str, flux: u32, started: i64) -> Option<Job> {
    let (id, path): (JobId, CgroupPath) = (id.to_string().parse().ok()?, path.parse().ok()?);
    let placement = Placement::Unit { path, flux };
    Some(Job { id, started, ends: None, placement, record: None })
}

fn second(job: &Job) -> Option<String> {
    let shown = printable(&shown(&job.placement, &job.id));
    Some(format!("{shown}: another broker of this node has the job as well"))
}

/// The number of an account of `/etc/passwd`, or the number itself; never root's, since everything of
/// root's would look like an IMP.
/// Errors: [`SourceError::Absent`] where there is no such account.
pub fn account_uid(account: &str) -> Result<u32, SourceError> {
    match local_uid(account) {
        Ok(Some(0)) => {
            Err(SourceError::Failed(format!("flux_user {account} is root, which Flux is not")))
        }
        Ok(Some(uid)) => Ok(uid),
        Ok(None) => Err(SourceError::Absent(format!("no account {account} in /etc/passwd"))),
        Err(error) => Err(SourceError::Failed(format!("/etc/passwd: {error}"))),
    }
}

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

    /// Reads an id in the notations that Flux prints and takes (RFC 19): F58 with either sign in
    /// front, decimal, hexadecimal, dotted hexadecimal, and the key of the KVS that has the last.
    /// Words and emoji are not taken.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let hexadecimal = |digits: &str| {
            let all = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| all && digits.len() <= 16)
        };
        let number = if text.contains('.') {
            let groups: Vec<&str> = text.strip_prefix("job.").unwrap_or(text).split('.').collect();
            let whole = groups.len() == 4 && groups.iter().all(|group| group.len() == 4);
            hexadecimal(&groups.concat()).filter(|_| whole)
        } else if let Some(digits) = text.strip_prefix("0x") {
            hexadecimal(digits)
        } else if text.starts_with(|first: char| first.is_ascii_digit()) {
            text.parse().ok().filter(|number: &u64| number.to_string() == text)
        } else {
            let digits = text.strip_prefix(['\u{192}', 'f'])?;
            return Self::canonical(&format!("f{digits}"));
        };
        number.map(Self)
    }

    /// The id of Flux that this text stands for, in the one form that records, choices, units and
    /// the log have.
    #[must_use]
    pub fn job(text: &str) -> Option<JobId> {
        Self::read(text)?.to_string().parse().ok()
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

#[cfg(test)]
mod tests;

#[cfg(test)]
mod id_tests {
    use super::*;
    use crate::testing::Random;

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
