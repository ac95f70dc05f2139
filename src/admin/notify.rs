//! `notify`: writes to the terminals of logins that their job ends soon.
//!
//! A timer runs it each minute, so it is no daemon. A file below /run has the notices that were given, so
//! that each comes once, also from a run that is late or beside another one.

use super::child_process::query_with_environment;
use super::pam::replace_file;
use super::running_jobs::{RunningJob, find_running_jobs};
use super::terminals::{open_terminals, write_to_terminals};
use super::{Conf, Error, OPERATION_TIMEOUT, Output, require_root};
use clap::Args;
use helper::Config;
use kernel::lock::Lock;
use kernel::sys::clock::{local_time, now};
use protocol::{JobId, Placement};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const STATE_FILE: &str = "/run/job-adopt/notices.json";
/// Version of the state's format.
const STATE_VERSION: u32 = 1;
/// Offset of the lock that keeps two runs apart; no inode of a cgroup has this number.
const LOCK_OFFSET: u64 = u64::MAX >> 2;
/// Longest answer of Slurm about one job. All answers of a run share [`OPERATION_TIMEOUT`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A later end gives new notices if it is later by this much. Slurm corrects ends by seconds.
const EXTENSION_SECONDS_MIN: i64 = 60;
/// How long notices of jobs that are gone are kept: a scheduler may fail to answer for a while.
const STATE_KEPT_SECONDS: i64 = 600;

/// Tell users on their terminals when their job ends (root)
#[derive(Debug, Args)]
#[command(after_help = "\
Writes a line to the terminals of a job's logins, as many minutes before its end as the key \"notice\" says, and
at its end. job-adopt-notify.timer runs it each minute.
Exit status: 0 fine, 2 wrong usage, 3 something could not be read or written.")]
pub(super) struct Options {
    /// Also give the notices of so many seconds, each at its time
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=3600))]
    seconds: u32,
    #[command(flatten)]
    conf: Conf,
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    require_root("notify logins")?;
    let config = options.conf.read()?;
    if config.notice.is_empty() {
        return Ok(super::EXIT_FINE);
    }
    let last = now().saturating_add(options.seconds.into());
    let mut code = super::EXIT_FINE;
    loop {
        let (next, is_complete) = give_due_notices(&config, output)?;
        output.out.flush()?;
        if !is_complete {
            code = super::EXIT_FAILED;
        }
        match next.filter(|next| *next <= last) {
            Some(next) => sleep(Duration::from_secs((next - now()).max(1).unsigned_abs())),
            None => return Ok(code),
        }
    }
}

/// A notice that is due.
struct Notice<'a> {
    job: &'a RunningJob,
    terminals: Vec<OwnedFd>,
    line: String,
}

/// Gives the notices that are due now. Returns when the next one is due, and whether all jobs could be
/// read.
///
/// The notices are stored before they are written: if that fails, none is given, since each run would
/// give it again.
fn give_due_notices(
    config: &Config,
    output: &mut Output<'_>,
) -> Result<(Option<i64>, bool), Error> {
    let _lock = Lock::take(LOCK_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
    let (jobs, mut is_complete) = find_running_jobs(config, output)?;
    let mut given = GivenNotices::read(Path::new(STATE_FILE), output)?;
    let (now, deadline) = (now(), Instant::now() + OPERATION_TIMEOUT);
    let before = given.clone();
    let mut notices = Vec::new();
    for job in &jobs {
        let schedule = Schedule::new(&config.notice, &job.placement);
        let entry = given.jobs.get(&job_key(job)).copied();
        let known = entry.filter(|entry| entry.recorded == job.ends);
        let was_asked = known.is_some();
        let Some(known) = known.or_else(|| Entry::from_record(job, entry)) else { continue };
        match known.ends {
            // Slurm has said that the job has no end.
            None if was_asked => continue,
            None => {}
            Some(ends) => {
                given.jobs.insert(job_key(job), known);
                if schedule.find_due(ends, now, known.minutes).is_none() {
                    continue;
                }
            }
        }
        let terminals = match job.list_logins(deadline) {
            Ok(logins) => open_terminals(job.uid, &logins),
            Err(error) => {
                output.warn(format_args!("job {}: {error}", job.id));
                is_complete = false;
                continue;
            }
        };
        if terminals.is_empty() {
            continue;
        }
        let is_slurm = matches!(job.placement, Placement::Extern { .. });
        let ends = match is_slurm.then(|| ask_slurm(&job.id, config, deadline)) {
            None => known.ends,
            Some(Ok(ends)) => ends,
            Some(Err(why)) => {
                output.warn(format_args!("job {}: scontrol: {why}", job.id));
                is_complete = false;
                if known.ends.is_none() {
                    continue;
                }
                known.ends
            }
        };
        let known = known.with_end(ends);
        let due = ends.and_then(|ends| Some((ends, schedule.find_due(ends, now, known.minutes)?)));
        let minutes = due.map(|(_, minutes)| minutes).or(known.minutes);
        given.jobs.insert(job_key(job), Entry { minutes, ..known });
        if let Some((ends, _)) = due {
            let line = describe_end(&job.id, ends, now);
            notices.push(Notice { job, terminals, line });
        }
    }
    let keys: BTreeSet<String> = jobs.iter().map(job_key).collect();
    let is_kept = |entry: &Entry| entry.ends.is_some_and(|ends| ends + STATE_KEPT_SECONDS > now);
    given.jobs.retain(|key, entry| keys.contains(key) || is_kept(entry));
    if given != before {
        given.write(Path::new(STATE_FILE))?;
    }
    for Notice { job, terminals, line } in notices {
        let count = write_to_terminals(job.uid, &terminals, &line);
        writeln!(output.out, "{line} {count} of {} terminals", terminals.len())?;
    }
    let next = jobs.iter().filter_map(|job| {
        let ends = given.jobs.get(&job_key(job))?.ends?;
        Schedule::new(&config.notice, &job.placement).find_next(ends, now)
    });
    Ok((next.min(), is_complete))
}

/// Returns the key of a job in the state. Ids of different sources may be the same.
fn job_key(job: &RunningJob) -> String {
    format!("{}:{}:{}", job.placement.source().as_str(), job.uid, job.id)
}

/// The line that users read.
fn describe_end(id: &JobId, ends: i64, now: i64) -> String {
    let at = local_time(ends).map(|time| format!(" ({:02}:{:02})", time.tm_hour, time.tm_min));
    let at = at.unwrap_or_default();
    // Rounded up: the notice of 5 minutes may come a second late.
    match (ends - now + 59).div_euclid(60) {
        ..1 => format!("job {id} has reached its end{at}. This login ends with it."),
        minutes => {
            let unit = if minutes == 1 { "minute" } else { "minutes" };
            format!(
                "job {id} ends in {minutes} {unit}{at}. Save your work: this login ends with it."
            )
        }
    }
}

/// The minutes before the end of a job at which its logins get a notice, in no order.
struct Schedule(BTreeSet<u32>);

impl Schedule {
    /// Adds the end itself for a job that its scheduler ends: `unregister` tells those of records.
    fn new(minutes: &[u32], placement: &Placement) -> Self {
        let has_last_line = matches!(placement, Placement::Cgroup { .. });
        Self(minutes.iter().copied().chain((!has_last_line).then_some(0)).collect())
    }

    /// Returns the notice that is due, unless it or a later one was given. A late run gives only the
    /// last one that it missed.
    fn find_due(&self, ends: i64, now: i64, given: Option<u32>) -> Option<u32> {
        let left = ends.saturating_sub(now);
        let due = self.0.iter().copied().find(|&minutes| left <= i64::from(minutes) * 60);
        let last = if left <= 0 { self.0.first().copied() } else { due };
        last.filter(|&minutes| given.is_none_or(|given| minutes < given))
    }

    /// Returns when the next notice is due.
    fn find_next(&self, ends: i64, now: i64) -> Option<i64> {
        let times = self.0.iter().map(|&minutes| ends.saturating_sub(i64::from(minutes) * 60));
        times.filter(|time| *time > now).min()
    }
}

/// Asks Slurm for the end of a running job, in seconds since the epoch; `None` for a job without one.
fn ask_slurm(id: &JobId, config: &Config, deadline: Instant) -> Result<Option<i64>, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("not asked: others took too long".into());
    }
    let mut command = Command::new("scontrol");
    command.args(["show", "job", id.as_str()]).env("SLURM_TIME_FORMAT", "%s");
    if let Some(path) = &config.devices.slurm_conf {
        command.env("SLURM_CONF", path);
    }
    let (succeeded, text) = query_with_environment(&mut command, ANSWER_TIMEOUT.min(left))?;
    match parse_end(&text, id) {
        Some(end) if succeeded => Ok(end),
        _ => Err(text.lines().last().unwrap_or("no answer").trim().to_owned()),
    }
}

/// Parses the end of this job in the text of `scontrol show job`, which has all tasks of an array if
/// the job is one of them. The inner value is `None` for a job without an end.
fn parse_end(text: &str, id: &JobId) -> Option<Option<i64>> {
    let lines = text.lines().map(str::trim_start);
    let head = format!("JobId={id}");
    let mut own =
        lines.skip_while(|line| line.split_ascii_whitespace().next() != Some(head.as_str()));
    own.next()?;
    let times = own
        .take_while(|line| !line.starts_with("JobId="))
        .find(|line| line.starts_with("StartTime="))?;
    let end = times.split_ascii_whitespace().find_map(|word| word.strip_prefix("EndTime="))?;
    Some(end.parse().ok().filter(|seconds| *seconds > 0))
}

/// The notices that were given, by job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct GivenNotices {
    version: u32,
    jobs: BTreeMap<String, Entry>,
}

/// The known end of a job, and the last notice of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// The end in the job's record: another one replaces `ends`.
    recorded: Option<i64>,
    /// The last known end; `None` if Slurm has said that there is none.
    ends: Option<i64>,
    /// The last notice, in minutes before the end.
    minutes: Option<u32>,
}

impl Entry {
    /// Returns what the record of a job has. `None` for a job without an end that cannot be asked for.
    fn from_record(job: &RunningJob, before: Option<Self>) -> Option<Self> {
        let is_slurm = matches!(job.placement, Placement::Extern { .. });
        let before = before.unwrap_or(Self { recorded: None, ends: None, minutes: None });
        (job.ends.is_some() || is_slurm)
            .then(|| Self { recorded: job.ends, ..before.with_end(job.ends) })
    }

    /// Replaces the end. A job that goes on for longer gets its notices again.
    fn with_end(self, ends: Option<i64>) -> Self {
        let is_extended = match (self.ends, ends) {
            (Some(old), Some(new)) => new >= old.saturating_add(EXTENSION_SECONDS_MIN),
            _ => true,
        };
        Self { ends, minutes: self.minutes.filter(|_| !is_extended), ..self }
    }
}

impl GivenNotices {
    /// Reads the state. It begins anew with a file that cannot be used.
    fn read(path: &Path, output: &mut Output<'_>) -> Result<Self, Error> {
        let new = Self { version: STATE_VERSION, jobs: BTreeMap::new() };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(new),
            Err(error) => return Err(Error::failed("read", path.display(), error)),
        };
        let why = match serde_json::from_slice::<Self>(&bytes) {
            Ok(given) if given.version == STATE_VERSION => return Ok(given),
            Ok(given) => format!("is of version {}", given.version),
            Err(error) => error.to_string(),
        };
        output.warn(format_args!("{}: {why}; notices may come again", path.display()));
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

    fn job(ends: Option<i64>) -> RunningJob {
        let (spool, node) = ("/s".parse().unwrap(), "n1".parse().unwrap());
        RunningJob { id: id("7"), uid: 5, placement: Placement::Extern { spool, node }, ends }
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
            assert_eq!(schedule.find_due(5000, 5000 - left, given), due, "{left} {given:?}");
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
        assert_eq!(line(300), format!("job 4242 ends in 5 minutes {at}. {rest}"));
        assert_eq!(line(299), format!("job 4242 ends in 5 minutes {at}. {rest}"));
        assert_eq!(line(240), format!("job 4242 ends in 4 minutes {at}. {rest}"));
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
        let known = Entry { recorded: Some(9), ends: Some(5000), minutes: Some(5) };
        assert_eq!(known.with_end(Some(5059)).minutes, Some(5));
        assert_eq!(known.with_end(Some(4000)), Entry { ends: Some(4000), ..known });
        let extended = known.with_end(Some(5060));
        assert_eq!(extended, Entry { ends: Some(5060), minutes: None, ..known });
        // A job that runs again under its number has another record.
        let again = Entry::from_record(&job(Some(8000)), Some(known)).unwrap();
        assert_eq!(again, Entry { recorded: Some(8000), ends: Some(8000), minutes: None });
        assert_eq!(Entry::from_record(&job(None), None).unwrap().ends, None);
    }

    #[test]
    fn end_of_the_very_job_is_parsed() {
        let text = "\
JobId=41 ArrayJobId=40 ArrayTaskId=1 JobName=a\n   StartTime=1 EndTime=2 Deadline=N/A\n\n\
JobId=40 ArrayJobId=40 ArrayTaskId=2 JobName=EndTime=9 StartTime=9\n   UserId=alice(1001)\n   \
RunTime=00:00:01 TimeLimit=00:10:00\n   StartTime=1795201200 EndTime=1795201800 Deadline=N/A\n\n\
JobId=42 JobName=b\n   StartTime=5 EndTime=Unknown Deadline=N/A\n\nJobId=43 JobName=c\n";
        assert_eq!(parse_end(text, &id("40")), Some(Some(1_795_201_800)));
        assert_eq!(parse_end(text, &id("41")), Some(Some(2)));
        assert_eq!(parse_end(text, &id("42")), Some(None));
        for missing in ["43", "4", "44"] {
            assert_eq!(parse_end(text, &id(missing)), None, "{missing}");
        }
        assert_eq!(parse_end("slurm_load_jobs error: Invalid job id specified\n", &id("40")), None);
    }

    #[test]
    fn state_is_read_back_and_a_broken_one_begins_anew() {
        let scratch = Scratch::new();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output { out: &mut out, err: &mut err };
        let path = scratch.path().join("notices.json");
        let mut given = GivenNotices::read(&path, &mut output).unwrap();
        let entry = Entry { recorded: None, ends: Some(7), minutes: Some(5) };
        given.jobs.insert("slurm:5:7".into(), entry);
        given.write(&path).unwrap();
        assert_eq!(GivenNotices::read(&path, &mut output).unwrap(), given);
        for broken in ["", "[]", r#"{"version":2,"jobs":{}}"#] {
            scratch.file("notices.json", broken);
            assert!(GivenNotices::read(&path, &mut output).unwrap().jobs.is_empty());
        }
        assert_eq!(String::from_utf8(err).unwrap().lines().count(), 3);
    }
}
