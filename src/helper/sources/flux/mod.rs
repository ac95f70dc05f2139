//! Finds Flux jobs by the units in which the system instance runs them.
//!
//! This source queries no broker: the service manager of Flux's account has a unit for each job on
//! this node, and the user of the job's shell owns the job. A unit without an IMP is left over from
//! a job. Units of the same name in a user's own service manager do not count. The privileged half
//! checks the chosen unit again.

mod unit;

use super::describe_placement;
use super::{Job, Source, SourceError, SourceReport};
use crate::{Deadline, find_local_uid, printable};
use kernel::proc::{self, Proc};
use protocol::{CgroupPath, JobId, Placement, SourceName};
use schedulers::flux::{self, Unit, unit_parents};
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use unit::{UnitInspector, UnitState};

/// Maximum names read from a directory of units.
const NAMES_MAX: usize = 65_536;

/// The source of Flux jobs.
#[derive(Debug)]
pub struct FluxSource {
    account: String,
    mount: PathBuf,
    root: PathBuf,
}

/// Running jobs and ending jobs with their owners, and the report of all else.
type InspectedUnits = (Vec<(u32, Job)>, Vec<(u32, JobId)>, SourceReport);

/// Units of jobs: id, broker's rank and cgroup path below the mount, with the directory.
type Units = BTreeMap<(FluxId, u32, String), PathBuf>;

impl FluxSource {
    /// A source that reads the units of an account, given by name or number, in the cgroups at
    /// `mount`, on the node whose `proc` and `run` are below `root`.
    pub fn new(account: &str, mount: PathBuf, root: &Path) -> Self {
        Self { account: account.to_owned(), mount, root: root.to_owned() }
    }

    /// Returns the running jobs of all users, each with its owner, and a report of all else.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the account or its slice is missing, or `/etc/passwd` cannot be read.
    pub fn jobs_of_all_users(
        &self,
        deadline: Deadline,
    ) -> Result<(Vec<(u32, Job)>, SourceReport), SourceError> {
        self.inspect_units(deadline).map(|(jobs, _, report)| (jobs, report))
    }

    /// Inspects all units; returns the running and the ending jobs, each with its owner.
    fn inspect_units(&self, deadline: Deadline) -> Result<InspectedUnits, SourceError> {
        let flux = account_uid(&self.account)?;
        let mut report = SourceReport::default();
        let units = self.list_units(flux, &mut report)?;
        let inspector =
            UnitInspector { proc: &Proc::with_root(self.root.join("proc")), flux, deadline };
        let (mut jobs, mut ending) = (BTreeMap::new(), Vec::new());
        let (mut running, mut waiting, mut left, mut late) = (0_usize, 0_usize, 0_usize, 0_usize);
        for ((id, _, path), dir) in units {
            match inspector.inspect(&dir) {
                UnitState::Running { owner, started } => {
                    running += 1;
                    // If several brokers have a unit of the job, the lowest rank comes first.
                    let job = unit_job(id, &path, flux, started);
                    let skip = |job: Job| report.skipped.extend(describe_second_broker(&job));
                    match jobs.get(&(id, owner)) {
                        Some(_) => job.map(skip),
                        None => job.map(|job| drop(jobs.insert((id, owner), job))),
                    };
                }
                UnitState::NoShell => {
                    waiting += 1;
                    report.skipped.push(format!("{path}: its shell is not there yet"));
                }
                UnitState::Ending(owner) => {
                    waiting += 1;
                    ending.extend(id.to_string().parse().map(|id| (owner, id)));
                    report.skipped.push(format!("{path}: its shell has ended, and tasks linger"));
                }
                UnitState::TooManyProcesses => {
                    left += 1;
                    let max = flux::UNIT_PROCESSES_MAX;
                    report.skipped.push(format!("{path}: no IMP among its first {max} processes"));
                }
                UnitState::Over => left += 1,
                UnitState::Invalid(why) => report.broken.push(format!("{path}: {why}")),
                UnitState::TimedOut => late += 1,
            }
        }
        if late > 0 {
            report.silent.push(format!("flux: {late} units could not be looked at in time"));
        }
        report.seen.push(format!(
            "account {}: {running} units run a job, {waiting} have no shell, {left} are left over",
            self.account
        ));
        let jobs = jobs.into_iter().map(|((_, owner), job)| (owner, job)).collect();
        Ok((jobs, ending, report))
    }

    /// Returns the user's jobs whose prolog runs. Meanwhile its wrapper keeps the environment in a
    /// file; since flux-core 0.89 only root can read it.
    fn jobs_in_prolog(&self, uid: u32) -> impl Iterator<Item = JobId> {
        let owner_line = format!("FLUX_JOB_USERID={uid}");
        let entries = std::fs::read_dir(self.root.join("run")).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name();
            let id = name.to_str()?.strip_prefix("flux-prolog@")?.strip_suffix(".env")?;
            let text = proc::read(entry.path()).ok()?;
            text.lines().any(|line| line == owner_line).then(|| FluxId::parse_job_id(id))?
        })
    }

    /// Returns the units of jobs.
    ///
    /// # Errors
    ///
    /// [`SourceError::Absent`] if the account has no slice on this node.
    fn list_units(&self, flux: u32, report: &mut SourceReport) -> Result<Units, SourceError> {
        let slice = format!("/user.slice/user-{flux}.slice");
        let mut units = Units::new();
        if !self.locate(&slice).is_dir() {
            return Err(SourceError::Absent(format!(
                "account {} has no cgroup {slice}: Flux runs no jobs here by sdexec",
                self.account
            )));
        }
        for folder in unit_parents(flux) {
            let entries = match std::fs::read_dir(self.locate(&folder)) {
                Ok(entries) => entries.take(NAMES_MAX),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    report.broken.push(format!("{folder}: {error}"));
                    continue;
                }
            };
            for entry in entries {
                match entry {
                    Ok(entry) => {
                        let name = entry.file_name();
                        let unit = name.to_str().and_then(Unit::parse);
                        let id = unit
                            .and_then(|unit| Some((FluxId::parse_canonical(unit.id)?, unit.rank)));
                        let path = format!("{folder}/{}", name.to_string_lossy());
                        units.extend(id.map(|(id, rank)| ((id, rank, path), entry.path())));
                    }
                    Err(error) => report.broken.push(format!("{folder}: {error}")),
                }
            }
        }
        Ok(units)
    }

    fn locate(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }
}

impl Source for FluxSource {
    fn name(&self) -> SourceName {
        SourceName::Flux
    }

    fn jobs(&self, uid: u32, deadline: Deadline) -> Result<SourceReport, SourceError> {
        let (jobs, ending, mut report) = self.inspect_units(deadline)?;
        report.jobs.extend(jobs.into_iter().filter(|(owner, _)| *owner == uid).map(|(_, job)| job));
        if report.jobs.is_empty() {
            let ending = ending.into_iter().filter(|(owner, _)| *owner == uid);
            report.starting.extend(self.jobs_in_prolog(uid));
            report.ending.extend(ending.map(|(_, id)| id));
        }
        Ok(report)
    }
}

/// Returns the cgroup of flux-core's unit for a job's prolog.
pub(super) fn prolog_cgroup(id: &JobId) -> Option<CgroupPath> {
    format!("/system.slice/system-flux\\x2dprolog.slice/flux-prolog@{id}.service").parse().ok()
}

fn unit_job(id: FluxId, path: &str, flux: u32, started: i64) -> Option<Job> {
    let (id, path): (JobId, CgroupPath) = (id.to_string().parse().ok()?, path.parse().ok()?);
    let placement = Placement::Unit { path, flux };
    Some(Job { id, started, ends: None, placement, record: None })
}

fn describe_second_broker(job: &Job) -> Option<String> {
    let shown = printable(&describe_placement(&job.placement, &job.id));
    Some(format!("{shown}: another broker of this node has the job as well"))
}

/// Returns the uid of an account of `/etc/passwd`, or of a number. It is never root's: all processes
/// of root would look like an IMP.
///
/// # Errors
///
/// [`SourceError::Absent`] if there is no such account, [`SourceError::Failed`] for root and if
/// `/etc/passwd` cannot be read.
pub fn account_uid(account: &str) -> Result<u32, SourceError> {
    match find_local_uid(account) {
        Ok(Some(0)) => {
            Err(SourceError::Failed(format!("flux_user {account} is root, which Flux is not")))
        }
        Ok(Some(uid)) => Ok(uid),
        Ok(None) => Err(SourceError::Absent(format!("no account {account} in /etc/passwd"))),
        Err(error) => Err(SourceError::Failed(format!("/etc/passwd: {error}"))),
    }
}

/// The digits of Flux's notation F58 (RFC 19), by value.
const F58_DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The id of a Flux job. `Display` writes the canonical form: F58 after an ASCII `f`, as in names of
/// units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FluxId(pub u64);

impl FluxId {
    /// Parses the canonical form only.
    pub fn parse_canonical(text: &str) -> Option<Self> {
        let number = text.strip_prefix('f')?.bytes().try_fold(0_u64, |number, digit| {
            let value = F58_DIGITS.iter().position(|known| *known == digit)?;
            number.checked_mul(58)?.checked_add(u64::try_from(value).ok()?)
        });
        number.map(Self).filter(|id| id.to_string() == text)
    }

    /// Parses an id in the notations that Flux prints and accepts (RFC 19): F58 with either prefix,
    /// decimal, hexadecimal, dotted hexadecimal, and the KVS key with the latter. Words and emoji
    /// are refused.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
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
            return Self::parse_canonical(&format!("f{digits}"));
        };
        number.map(Self)
    }

    /// Parses an id in any notation into the canonical form, which records, choices, units and the
    /// log have.
    #[must_use]
    pub fn parse_job_id(text: &str) -> Option<JobId> {
        Self::parse(text)?.to_string().parse().ok()
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
            let digit = F58_DIGITS.get(value).copied().unwrap_or_default();
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
    fn ids_of_rfc_19_are_parsed() {
        for (number, text) in VECTORS {
            assert_eq!(FluxId(number).to_string(), text);
            assert_eq!(FluxId::parse_canonical(text), Some(FluxId(number)), "{text}");
            assert_eq!(FluxId::parse(text), Some(FluxId(number)), "{text}");
            let signed = text.replacen('f', "\u{192}", 1);
            assert_eq!(FluxId::parse(&signed), Some(FluxId(number)), "{signed}");
            assert_eq!(FluxId::parse(&number.to_string()), Some(FluxId(number)));
            assert_eq!(FluxId::parse_canonical(&signed), None, "{signed}");
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
            assert_eq!(FluxId::parse(text), Some(FluxId(6_731_191_091_817_518)), "{text}");
            assert_eq!(FluxId::parse_job_id(text).unwrap().as_str(), "fuZZybuNNy");
        }
        for text in ["000e.daf9.7d00.0000", "0xedaf97d000000", "\u{192}ZemgA8Bzf"] {
            assert_eq!(FluxId::parse(text), Some(FluxId(0x000e_daf9_7d00_0000)), "{text}");
        }
    }

    #[test]
    fn each_notation_parses_to_its_number() {
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
                assert_eq!(FluxId::parse_job_id(&text).unwrap().as_str(), f58, "{text}");
            }
        }
    }

    #[test]
    fn malformed_ids_are_refused() {
        for text in [
            "", "f", "\u{192}", "ff1 ", "aaa", "flux", "f1230", "x1", "f-1", "f 1", "F1", "f1\0",
            "f\u{e4}", "f\u{192}1", "f0", "fO", "fI", "fl", "f111", "f11", "f12",
            // One more than 64 bits hold, more digits than they take, and many more.
            "fjpXCZedGfVR", "fzzzzzzzzzzz", "f211111111111", "fjpXCZedGfVQ1",
        ] {
            assert_eq!(FluxId::parse_canonical(text), None, "{text:?}");
            assert_eq!(FluxId::parse(text), None, "{text:?}");
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
            assert_eq!(FluxId::parse(text), None, "{text:?}");
        }
        assert_eq!(FluxId::parse_canonical("1234"), None);
        assert_eq!(FluxId::parse_canonical(&format!("f{}", "z".repeat(5000))), None);
    }

    #[test]
    fn each_number_has_one_canonical_form() {
        let mut random = Random::new(19);
        let mut previous: Option<(u64, String)> = None;
        for _ in 0..20_000 {
            let wide = u64::from(random.below(u32::MAX)) << 32 | u64::from(random.below(u32::MAX));
            let number = wide >> random.below(64);
            let text = FluxId(number).to_string();
            assert_eq!(FluxId::parse_canonical(&text), Some(FluxId(number)), "{text}");
            if let Some((other, shown)) = previous {
                assert_eq!(other == number, shown == text);
            }
            previous = Some((number, text));
        }
    }

    #[test]
    fn canonical_form_is_displayed_unchanged() {
        let mut random = Random::new(58);
        let signs: Vec<char> = "f12zQOl0 \u{192}\u{e4}".chars().collect();
        for _ in 0..20_000 {
            let length = random.index(14);
            let text: String = (0..length).map(|_| random.one_of(&signs)).collect();
            if let Some(id) = FluxId::parse_canonical(&text) {
                assert_eq!(id.to_string(), text);
            }
        }
    }
}
