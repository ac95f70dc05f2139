//! `notify`: writes to the terminals of logins that their job ends soon.
//!
//! A timer runs it each minute, so it is no daemon. A file below /run has the notices that were given, so
//! that each comes once, also from a run that is late or beside another one.

use crate::terminals::{open_terminals, write_to_terminals};
use clap::Args;
use command::accounts::require_root;
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINE};
use command::options::{Conf, OPERATION_TIMEOUT};
use command::output::Output;
use command::replace_file::replace_file;
use facts::jobs::{NodeJob, NodeJobs};
use facts::squeue;
use helper::Config;
use kernel::cgroup::Listing;
use kernel::lock::Lock;
use kernel::sys::clock::{local_time, now};
use protocol::{JobId, Placement};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const STATE_FILE: &str = "/run/job-adopt/notices.json";
/// Version of the state's format.
const STATE_VERSION: u32 = 1;
/// Longest answer of Slurm about one job. All answers of a round share [`OPERATION_TIMEOUT`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time of a round for the processes of one user, who can make any number of them: other users' notices
/// must not wait.
const LISTING_TIME_OF_USER: Duration = Duration::from_secs(1);
/// A later end gives new notices if it is later by this much. Slurm corrects ends by seconds.
const EXTENSION_SECONDS_MIN: i64 = 60;
/// How long after a job's end its entry is kept if no source has the job, and if it got a notice: a
/// scheduler may fail to answer for a while, and the notice must not come again.
const ENTRY_KEPT_SECONDS: i64 = 600;

/// Tell users on their terminals when their job ends (root)
#[derive(Debug, Args)]
#[command(after_help = "\
Writes a line to the terminals of a job's logins, as many minutes before its end as the key \"notice\" says, and
at the end of a Slurm or Flux job. job-adopt-notify.timer runs it each minute.
Exit status: 0 fine, 2 wrong usage, 3 something could not be read or written.")]
pub struct Options {
    /// Stay for so many seconds, and give the notices that become due
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=3600))]
    seconds: u32,
    #[command(flatten)]
    conf: Conf,
}

/// Runs `notify`: gives the notices that are due, and stays for those that become due within the time of the
/// options. Returns [`EXIT_FAILED`] if a job could not be read.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    require_root("notify logins")?;
    let config = options.conf.read()?;
    if config.notice.is_empty() {
        return Ok(EXIT_FINE);
    }
    let until = now().saturating_add(options.seconds.into());
    let mut code = EXIT_FINE;
    loop {
        let outlook = give_due_notices(&config, output)?;
        output.out.flush()?;
        if !outlook.is_complete {
            code = EXIT_FAILED;
        }
        let Some(next) = outlook.next.filter(|next| *next <= until) else {
            return Ok(code);
        };
        sleep(Duration::from_secs((next - now()).max(1).unsigned_abs()));
    }
}

/// A notice that is due.
struct Notice<'a> {
    job: &'a NodeJob,
    terminals: Vec<OwnedFd>,
    line: String,
}

/// What comes after a round of notices.
struct Outlook {
    /// When the next notice is due, in seconds since the epoch.
    next: Option<i64>,
    /// False if a job could not be read.
    is_complete: bool,
}

/// Gives the notices that are due now, and finds out when the next one is.
///
/// The state counts them as given before they are written to terminals: if it cannot be stored, none is written,
/// since each run would give it again. It fails with [`Error::Failed`] if jobs cannot be listed, or if the state can be
/// neither locked, read nor written.
fn give_due_notices(config: &Config, output: &mut Output<'_>) -> Result<Outlook, Error> {
    let _lock = Lock::take(Lock::NOTICES_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
    let NodeJobs {
        running, doubts, ..
    } = NodeJobs::read(config)?;
    for doubt in &doubts {
        output.warn(&doubt.cause);
    }
    let mut state = NoticeState::read(Path::new(STATE_FILE), output)?;
    let old_state = state.clone();
    let mut round = Round {
        config,
        now: now(),
        deadline: Instant::now() + OPERATION_TIMEOUT,
        listing_times: BTreeMap::new(),
        output,
        is_complete: doubts.is_empty(),
    };
    let mut notices = Vec::new();
    for job in &running {
        let key = job_key(job);
        match round.update(job, state.jobs.get(&key).copied()) {
            Update::Unknown => {}
            Update::Silent(entry) => {
                state.jobs.insert(key, entry);
            }
            Update::Due(entry, notice) => {
                state.jobs.insert(key, entry);
                notices.push(notice);
            }
        }
    }
    let keys: BTreeSet<String> = running.iter().map(job_key).collect();
    state
        .jobs
        .retain(|key, entry| keys.contains(key) || entry.is_kept(round.now));
    if state != old_state {
        state.write(Path::new(STATE_FILE))?;
    }
    for Notice {
        job,
        terminals,
        line,
    } in notices
    {
        let count = write_to_terminals(job.uid, &terminals, &line);
        writeln!(
            round.output.out,
            "{line} {count} of {} terminals",
            terminals.len()
        )?;
    }
    let next = running
        .iter()
        .filter_map(|job| {
            let ends = state.jobs.get(&job_key(job))?.ends?;
            Schedule::new(&config.notice, &job.placement).find_next(ends, round.now)
        })
        .min();
    Ok(Outlook {
        next,
        is_complete: round.is_complete,
    })
}

/// One round of notices.
struct Round<'r, 'o> {
    config: &'r Config,
    /// Seconds since the epoch.
    now: i64,
    /// End of the queries of Slurm.
    deadline: Instant,
    /// Time for which each user's processes were listed.
    listing_times: BTreeMap<u32, Duration>,
    output: &'r mut Output<'o>,
    is_complete: bool,
}

impl Round<'_, '_> {
    fn warn(&mut self, job: &NodeJob, why: impl Display) {
        self.output.warn(format_args!("job {}: {why}", job.id));
        self.is_complete = false;
    }

    /// Opens the terminals of a job's logins, as far as they are found in [`LISTING_TIME_OF_USER`], which all jobs of
    /// the user share. It warns if not all processes could be listed.
    fn open_terminals(&mut self, job: &NodeJob) -> Vec<OwnedFd> {
        let began = Instant::now();
        let spent = self.listing_times.entry(job.uid).or_default();
        let processes =
            job.list_login_processes(began + LISTING_TIME_OF_USER.saturating_sub(*spent));
        *spent += began.elapsed();
        match processes {
            Ok(Listing { all, cut }) => {
                if let Some(error) = cut {
                    self.warn(job, error);
                }
                open_terminals(job.uid, &all)
            }
            Err(error) => {
                self.warn(job, error);
                Vec::new()
            }
        }
    }

    /// Updates the entry of a job, which is `old` or new, and finds the notice that is due. Slurm is asked only if a
    /// notice may be due and logins have terminals.
    fn update<'j>(&mut self, job: &'j NodeJob, old: Option<JobNotices>) -> Update<'j> {
        let now = self.now;
        let schedule = Schedule::new(&self.config.notice, &job.placement);
        // Another end in the record replaces the one that is stored.
        let stored = old.filter(|entry| entry.recorded == job.ends);
        let Some(entry) = stored.or_else(|| JobNotices::from_record(job, old)) else {
            return Update::Unknown;
        };
        let may_be_due = match entry.ends {
            Some(ends) => is_late(job, ends, now) || entry.find_due(&schedule, now).is_some(),
            // A new entry without an end needs Slurm's answer. A stored one without an end has it: there is no end.
            None => stored.is_none(),
        };
        let terminals = if may_be_due {
            self.open_terminals(job)
        } else {
            Vec::new()
        };
        if terminals.is_empty() {
            return match entry.ends {
                Some(_) => Update::Silent(entry),
                // Stored, it would count as Slurm's answer.
                None => Update::Unknown,
            };
        }
        let Some(mut known) = self.ask_for_end(job, entry) else {
            return Update::Unknown;
        };
        let Some((ends, minutes)) = known.find_due(&schedule, now) else {
            return Update::Silent(known);
        };
        known.minutes = Some(minutes);
        let notice = Notice {
            job,
            terminals,
            line: describe_end(&job.id, ends, now),
        };
        Update::Due(known, notice)
    }

    /// Takes the end of Slurm's job from Slurm; that of another job is in its record. Without an answer it warns, and the
    /// end that is known stays; `None` if there is none.
    fn ask_for_end(&mut self, job: &NodeJob, entry: JobNotices) -> Option<JobNotices> {
        if !is_slurms(job) {
            return Some(entry);
        }
        match query_job_end(&job.id, self.config, self.deadline) {
            Ok(ends) => Some(entry.with_end(ends)),
            Err(why) => {
                self.warn(job, format_args!("squeue: {why}"));
                entry.ends.map(|_| entry)
            }
        }
    }
}

/// What a round has found out about a job.
enum Update<'j> {
    /// Nothing about its end: an old entry stays as it is.
    Unknown,
    /// The new entry; no notice is due, or no login has a terminal.
    Silent(JobNotices),
    /// The new entry, and the notice that is due.
    Due(JobNotices, Notice<'j>),
}

fn is_slurms(job: &NodeJob) -> bool {
    matches!(job.placement, Placement::Extern { .. })
}

/// Tells whether a job of Slurm runs past its known end: it has another one by now, or Slurm lets it exceed its limit.
fn is_late(job: &NodeJob, ends: i64, now: i64) -> bool {
    is_slurms(job) && ends.saturating_add(EXTENSION_SECONDS_MIN) < now
}

/// The key of a job in the state. Ids of different sources may be the same.
fn job_key(job: &NodeJob) -> String {
    format!("{}:{}:{}", job.placement.source().as_str(), job.uid, job.id)
}

/// Describes the end of a job for its users, with the minutes that are left and the node's local time. An end
/// that is over is described as reached.
fn describe_end(id: &JobId, ends: i64, now: i64) -> String {
    let at = match local_time(ends) {
        Some(time) => format!(" ({:02}:{:02})", time.tm_hour, time.tm_min),
        None => String::new(),
    };
    // Rounded up: the notice of 5 minutes may come a second late.
    let minutes = ends.saturating_sub(now).saturating_add(59).div_euclid(60);
    if minutes < 1 {
        return format!("job {id} has reached its end{at}. This login ends with it.");
    }
    let unit = if minutes == 1 { "minute" } else { "minutes" };
    format!("job {id} ends in {minutes} {unit}{at}. Save your work: this login ends with it.")
}

/// The minutes before the end of a job at which its logins get a notice, in ascending order:
/// [`Schedule::find_due`] needs that.
struct Schedule(BTreeSet<u32>);

impl Schedule {
    /// Builds the schedule of a job from the configured minutes. It adds 0, for the end itself, unless the job is a
    /// registered one: `unregister` notifies the logins of such a job.
    fn new(minutes: &[u32], placement: &Placement) -> Self {
        let is_registered = matches!(placement, Placement::Cgroup { .. });
        let at_end = (!is_registered).then_some(0);
        Self(minutes.iter().copied().chain(at_end).collect())
    }

    /// Finds the notice that is due, in minutes before the end. `given` is the last notice that was given, or `None`
    /// before the first one. The result is `None` before the first one is due, and if this one or one nearer to the end
    /// was given. A late run gives only the last one that it missed.
    fn find_due(&self, ends: i64, now: i64, given: Option<u32>) -> Option<u32> {
        let left = ends.saturating_sub(now);
        // Of the notices whose time has come, the one with the fewest minutes.
        let due = *self
            .0
            .iter()
            .find(|minutes| left <= i64::from(**minutes) * 60)?;
        if given.is_some_and(|given| given <= due) {
            return None;
        }
        Some(due)
    }

    /// Finds the time when the next notice is due; `None` if the last one was due before.
    fn find_next(&self, ends: i64, now: i64) -> Option<i64> {
        self.0
            .iter()
            .map(|minutes| ends.saturating_sub(i64::from(*minutes) * 60))
            .filter(|time| *time > now)
            .min()
    }
}

/// Asks Slurm when a running job ends, in seconds since the epoch; `None` for a job without an end.
///
/// # Errors
///
/// A text for the log: squeue's own message, why it was not asked, or that its answer has nothing about the
/// job.
fn query_job_end(id: &JobId, config: &Config, deadline: Instant) -> Result<Option<i64>, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("not asked: the queries for other jobs used up the time".into());
    }
    let text = squeue::query_jobs(id.as_str(), "%A %e", config, ANSWER_TIMEOUT.min(left))?;
    parse_end(&text, id).ok_or_else(|| "no answer about this job".to_owned())
}

/// Parses the end of this job in the lines of `squeue`, which has all tasks of an array if the job is one of
/// them. `None` if no line is about this job; the inner value is `None` for a job without an end, for which Slurm has
/// `N/A` or another text that is no positive number.
fn parse_end(text: &str, id: &JobId) -> Option<Option<i64>> {
    let (_, end) = text
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .find(|(job, _)| *job == id.as_str())?;
    Some(end.trim().parse().ok().filter(|seconds| *seconds > 0))
}

/// The notices that were given, by job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NoticeState {
    version: u32,
    jobs: BTreeMap<String, JobNotices>,
}

/// The known end of a job, and the last notice of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JobNotices {
    /// The end in the job's record, if that has one: another one there replaces `ends`.
    recorded: Option<i64>,
    /// The last known end; `None` if Slurm has said that there is none.
    ends: Option<i64>,
    /// The last notice that was given, in minutes before the end; `None` before the first one.
    minutes: Option<u32>,
}

impl JobNotices {
    /// Creates the entry from the job's record; of an `old` entry it keeps the end if the record has none,
    /// and the last notice unless the end is later. `None` if the record has no end and the job is none of Slurm,
    /// which could be asked.
    fn from_record(job: &NodeJob, old: Option<Self>) -> Option<Self> {
        let is_slurm = matches!(job.placement, Placement::Extern { .. });
        let old = old.unwrap_or(Self {
            recorded: None,
            ends: None,
            minutes: None,
        });
        // The record of a running job may be gone: the end that it had still counts.
        let entry = Self {
            recorded: job.ends,
            ..old.with_end(job.ends.or(old.ends))
        };
        (job.ends.is_some() || is_slurm).then_some(entry)
    }

    /// Whether the entry stays although no source has the job.
    fn is_kept(&self, now: i64) -> bool {
        self.minutes.is_some()
            && self
                .ends
                .is_some_and(|ends| ends.saturating_add(ENTRY_KEPT_SECONDS) > now)
    }

    /// Finds the notice that is due: the job's end, and the minutes before it. `None` if none is due, and for
    /// a job without an end.
    fn find_due(&self, schedule: &Schedule, now: i64) -> Option<(i64, u32)> {
        let ends = self.ends?;
        Some((ends, schedule.find_due(ends, now, self.minutes)?))
    }

    /// Replaces the end, and forgets the notices, so that they are given again, if the new end is later than the old
    /// one by at least [`EXTENSION_SECONDS_MIN`], or if one of both is unknown.
    fn with_end(self, ends: Option<i64>) -> Self {
        let is_extended = match (self.ends, ends) {
            (Some(old), Some(new)) => new >= old.saturating_add(EXTENSION_SECONDS_MIN),
            _ => true,
        };
        Self {
            ends,
            minutes: if is_extended { None } else { self.minutes },
            ..self
        }
    }
}

impl NoticeState {
    /// Reads the state; starts an empty one if the file is missing and, with a warning, if it is malformed or
    /// of another version. It fails with [`Error::Failed`] if there is a file that cannot be read.
    fn read(path: &Path, output: &mut Output<'_>) -> Result<Self, Error> {
        let new = Self {
            version: STATE_VERSION,
            jobs: BTreeMap::new(),
        };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(new),
            Err(error) => return Err(Error::failed("read", path.display(), error)),
        };
        let why = match serde_json::from_slice::<Self>(&bytes) {
            Ok(state) if state.version == STATE_VERSION => return Ok(state),
            Ok(state) => format!("is of version {}", state.version),
            Err(error) => error.to_string(),
        };
        output.warn(format_args!(
            "{}: {why}; notices may come again",
            path.display()
        ));
        Ok(new)
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string(self).map_err(std::io::Error::from)?;
        replace_file(path, &text, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn id(text: &str) -> JobId {
        text.parse().unwrap()
    }

    fn job(ends: Option<i64>) -> NodeJob {
        let spool = "/s".parse().unwrap();
        let node = "n1".parse().unwrap();
        NodeJob {
            id: id("7"),
            uid: 5,
            placement: Placement::Extern { spool, node },
            started: None,
            ends,
            record: None,
        }
    }

    #[test]
    fn each_notice_is_due_once_and_a_late_run_gives_the_last() {
        let schedule = Schedule([15, 5, 1, 0].into());
        for (left, given, due) in [
            (901, None, None),
            (900, None, Some(15)),
            (301, None, Some(15)),
            (899, Some(15), None),
            (300, Some(15), Some(5)),
            (240, Some(5), None),
            (60, Some(5), Some(1)),
            (30, None, Some(1)),
            (1, Some(1), None),
            (0, Some(1), Some(0)),
            (-7, Some(5), Some(0)),
            (-7, Some(0), None),
        ] {
            assert_eq!(
                schedule.find_due(5000, 5000 - left, given),
                due,
                "{left} {given:?}"
            );
        }
        let next = |left: i64| schedule.find_next(5000, 5000 - left);
        assert_eq!(
            [next(2000), next(900), next(60), next(0)],
            [Some(4100), Some(4700), Some(5000), None]
        );
        // A job that unregister ends: a run that comes too late still says what it missed.
        let own = Schedule([15, 5].into());
        assert_eq!(own.find_due(5000, 5001, Some(15)), Some(5));
        assert_eq!(own.find_due(5000, 5001, Some(5)), None);
    }

    #[test]
    fn line_has_minutes_left_and_time() {
        let line = |left: i64| describe_end(&id("4242"), 1_795_201_200, 1_795_201_200 - left);
        let time = local_time(1_795_201_200).unwrap();
        let at = format!("({:02}:{:02})", time.tm_hour, time.tm_min);
        let rest = "Save your work: this login ends with it.";
        assert_eq!(
            line(300),
            format!("job 4242 ends in 5 minutes {at}. {rest}")
        );
        assert_eq!(
            line(299),
            format!("job 4242 ends in 5 minutes {at}. {rest}")
        );
        assert_eq!(
            line(240),
            format!("job 4242 ends in 4 minutes {at}. {rest}")
        );
        assert_eq!(line(1), format!("job 4242 ends in 1 minute {at}. {rest}"));
        for over in [0, -100] {
            let line = line(over);
            assert_eq!(
                line,
                format!("job 4242 has reached its end {at}. This login ends with it.")
            );
        }
    }

    #[test]
    fn later_end_gives_new_notices_and_correction_does_not() {
        let known = JobNotices {
            recorded: Some(9),
            ends: Some(5000),
            minutes: Some(5),
        };
        assert_eq!(known.with_end(Some(5059)).minutes, Some(5));
        assert_eq!(
            known.with_end(Some(4000)),
            JobNotices {
                ends: Some(4000),
                ..known
            }
        );
        let extended = known.with_end(Some(5060));
        assert_eq!(
            extended,
            JobNotices {
                ends: Some(5060),
                minutes: None,
                ..known
            }
        );
        // A job that runs again under its number has another record.
        let again = JobNotices::from_record(&job(Some(8000)), Some(known)).unwrap();
        assert_eq!(
            again,
            JobNotices {
                recorded: Some(8000),
                ends: Some(8000),
                minutes: None
            }
        );
        assert_eq!(
            JobNotices::from_record(&job(None), None).unwrap().ends,
            None
        );
    }

    #[test]
    fn end_of_one_array_task_is_parsed() {
        let text = "41 2\n40 1795201800\n42 N/A\n";
        assert_eq!(parse_end(text, &id("40")), Some(Some(1_795_201_800)));
        assert_eq!(parse_end(text, &id("41")), Some(Some(2)));
        assert_eq!(parse_end(text, &id("42")), Some(None));
        for missing in ["43", "4", "2"] {
            assert_eq!(parse_end(text, &id(missing)), None, "{missing}");
        }
        assert_eq!(
            parse_end(
                "slurm_load_jobs error: Invalid job id specified\n",
                &id("40")
            ),
            None
        );
    }

    #[test]
    fn state_is_read_back_and_a_broken_one_begins_anew() {
        let scratch = Scratch::new();
        let mut out = Vec::new();
        let mut err = Vec::new();
        let mut output = Output {
            out: &mut out,
            err: &mut err,
        };
        let path = scratch.path().join("notices.json");
        let mut state = NoticeState::read(&path, &mut output).unwrap();
        let entry = JobNotices {
            recorded: None,
            ends: Some(7),
            minutes: Some(5),
        };
        state.jobs.insert("slurm:5:7".into(), entry);
        state.write(&path).unwrap();
        assert_eq!(NoticeState::read(&path, &mut output).unwrap(), state);
        for broken in ["", "[]", r#"{"version":2,"jobs":{}}"#] {
            scratch.file("notices.json", broken);
            assert!(
                NoticeState::read(&path, &mut output)
                    .unwrap()
                    .jobs
                    .is_empty()
            );
        }
        assert_eq!(String::from_utf8(err).unwrap().lines().count(), 3);
    }
}
