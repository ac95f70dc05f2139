//! Chooses the job that a login joins, and reads the user's own choice without privilege.

use crate::jobs::{Job, find_by_name};
use crate::login::evidence::Evidence;
use kernel::choice::{Choices, FILE, UserDir, permissions, read_status};
use kernel::sys::file::FileStatus;
use kernel::trust::{Distrust, TrustError};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag};
use protocol::{ChoiceRule, JobId, SeveralJobsPolicy};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The choice of a job for a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The user has no job that takes logins.
    None,
    /// This job, by this rule.
    Job(Box<Job>, ChoiceRule),
    /// The user must choose one of these jobs, the oldest of which comes first.
    Needed(Vec<Job>),
    /// The login comes from the first of these jobs, which takes no logins. The others take them.
    Closed(Vec<JobId>),
}

impl Choice {
    /// Chooses the last of the jobs by this rule; [`Choice::None`] without jobs.
    fn of_last(mut jobs: Vec<Job>, rule: ChoiceRule) -> Self {
        jobs.pop()
            .map_or(Self::None, |job| Self::Job(Box::new(job), rule))
    }
}

/// Chooses a job. If the user has several, `find_id` is called with the rules that choose among them, in their
/// order; an id of no job does not count. Of two jobs that started in the same second, the one with the larger id
/// is newer. A longer id is larger.
///
/// The jobs that are `closed` take no logins. A login from inside one of them joins none of the others: it would
/// have their devices, and outlive its own job.
pub(super) fn choose_job(
    mut jobs: Vec<Job>,
    closed: &[Job],
    several: SeveralJobsPolicy,
    mut find_id: impl FnMut(ChoiceRule, &[Job]) -> Option<JobId>,
) -> Choice {
    jobs.sort_by(|a, b| age_key(a).cmp(&age_key(b)));
    if jobs.is_empty() {
        return Choice::None;
    }
    // The caller may be in a job that takes no logins, so this rule is asked about all jobs.
    if jobs.len() + closed.len() > 1 {
        let id = find_id(ChoiceRule::Caller, &[jobs.as_slice(), closed].concat());
        if let Some(job) = closed.iter().find(|job| Some(&job.id) == id.as_ref()) {
            let ids = std::iter::once(job).chain(&jobs).map(|job| job.id.clone());
            return Choice::Closed(ids.collect());
        }
        if let Some(job) = jobs.iter().find(|job| Some(&job.id) == id.as_ref()) {
            return Choice::Job(Box::new(job.clone()), ChoiceRule::Caller);
        }
    }
    if jobs.len() < 2 {
        return Choice::of_last(jobs, ChoiceRule::OnlyJob);
    }
    let chosen = find_id(ChoiceRule::Chosen, &jobs);
    if let Some(job) = jobs.iter().find(|job| Some(&job.id) == chosen.as_ref()) {
        return Choice::Job(Box::new(job.clone()), ChoiceRule::Chosen);
    }
    match several {
        SeveralJobsPolicy::Deny => Choice::Needed(jobs),
        SeveralJobsPolicy::Newest => Choice::of_last(jobs, ChoiceRule::Newest),
    }
}

/// Finds the rule to report if some daemons did not answer. The job is then not known to be the
/// only or the newest one.
pub(super) fn rule_among_answers(rule: ChoiceRule) -> ChoiceRule {
    match rule {
        ChoiceRule::OnlyJob | ChoiceRule::Newest | ChoiceRule::Answered => ChoiceRule::Answered,
        ChoiceRule::Caller | ChoiceRule::Chosen => rule,
    }
}

/// Makes a key that is larger for a newer job.
fn age_key(job: &Job) -> (i64, usize, &str) {
    let id = job.id.as_str();
    (job.started, id.len(), id)
}

/// What one rule says about the user's jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleAnswer {
    /// The job that the rule chooses, if it chooses one.
    pub(super) job: Option<JobId>,
    /// What led to the answer.
    pub(super) evidence: Evidence,
    /// Faults for the log.
    pub(super) warnings: Vec<String>,
}

/// Finds the one of these jobs that the user has chosen. A choice that cannot be used counts as none,
/// with a warning.
pub(super) fn find_chosen_job(choices: &Choices, uid: u32, jobs: &[Job]) -> RuleAnswer {
    let id = match read_choice(choices, uid) {
        Ok(Some(id)) => id,
        Ok(None) => {
            let evidence = Evidence::of_line("chosen", "none");
            return RuleAnswer {
                evidence,
                ..RuleAnswer::default()
            };
        }
        Err(error) => {
            let warnings = vec![format!("choice not used: {error}")];
            return RuleAnswer {
                warnings,
                ..RuleAnswer::default()
            };
        }
    };
    match find_by_name(jobs, &id) {
        Some(job) => RuleAnswer {
            job: Some(job.id.clone()),
            ..RuleAnswer::default()
        },
        None => RuleAnswer {
            warnings: vec![format!("chosen job {id} is not running here")],
            ..RuleAnswer::default()
        },
    }
}

/// Maximum bytes of the file: a job's id and the end of its line.
const FILE_BYTES_MAX: u64 = 65;
/// Mode bits that let other accounts than the owner write.
const OTHERS_WRITE_MODE: u32 = 0o022;

/// Reads the id of the job that the user has chosen; `None` if the user has no directory, or no file
/// in it. This never waits.
///
/// # Errors
///
/// [`TrustError`] if another account may have written the file, if it is not a plain file of its own or cannot be
/// read, or if it does not hold an id.
pub fn read_choice(choices: &Choices, uid: u32) -> Result<Option<JobId>, TrustError> {
    let base = match choices.trust.dir(&choices.dir) {
        Ok(base) => base,
        Err(error) if error.is_missing() => return Ok(None),
        Err(error) => return Err(error),
    };
    match choices.find(&base, uid)? {
        Some(dir) => read_from_dir(&dir, uid),
        None => Ok(None),
    }
}

/// Reads the choice from the user's directory; `None` if it has no file of a choice.
///
/// # Errors
///
/// [`TrustError`] if another account may have written the file, if it is not a plain file of its own or cannot be
/// read, or if it does not hold an id.
fn read_from_dir(dir: &UserDir, uid: u32) -> Result<Option<JobId>, TrustError> {
    require_sole_writer(&dir.status, uid).map_err(|cause| TrustError::new(&dir.path, cause))?;
    let path = dir.path.join(FILE);
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = match openat(&dir.fd, FILE, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(TrustError::from_error("open", &path, errno)),
    };
    let status = read_status(&file, &path)?;
    require_choice_file(&dir.status, &status, uid)
        .map_err(|cause| TrustError::new(&path, cause))?;
    let text = read_opened(&file, &path)?;
    let id = parse_choice(&text).map_err(|cause| TrustError::new(&path, cause))?;
    Ok(Some(id))
}

/// Requires that only this user can write the file or directory.
fn require_sole_writer(status: &FileStatus, uid: u32) -> Result<(), Distrust> {
    if status.uid != uid {
        return Err(Distrust::WrongOwner(status.uid));
    }
    let mode = permissions(status);
    if mode & OTHERS_WRITE_MODE != 0 {
        return Err(Distrust::WrongMode(mode));
    }
    Ok(())
}

/// Requires that a file in this directory can be this user's choice: a small regular file that only the user can write,
/// not mounted over the directory's own and with no second name (hard link), so that it was made here.
fn require_choice_file(dir: &FileStatus, file: &FileStatus, uid: u32) -> Result<(), Distrust> {
    if file.mount != dir.mount {
        return Err(Distrust::Mounted);
    }
    if file.mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() {
        return Err(Distrust::NotRegular);
    }
    if file.links != 1 {
        return Err(Distrust::SeveralNames(file.links));
    }
    if file.size > FILE_BYTES_MAX {
        return Err(Distrust::TooLarge(FILE_BYTES_MAX));
    }
    require_sole_writer(file, uid)
}

/// Reads the file by the descriptor that was checked, so that no other file can take its place.
/// `O_NONBLOCK` keeps the call from waiting for a lease on the file (fcntl(2)).
fn read_opened(file: &OwnedFd, path: &Path) -> Result<Vec<u8>, TrustError> {
    let by_fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let readable = open(by_fd.as_str(), flags, Mode::empty())
        .map_err(|errno| TrustError::from_error("open", path, errno))?;
    let mut text = Vec::new();
    File::from(readable)
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| TrustError::from_error("read", path, error))?;
    Ok(text)
}

/// Parses the text of a choice: an id alone on one line.
///
/// # Errors
///
/// [`Distrust::TooLarge`] for a text of more than 65 bytes, [`Distrust::MissingContent`] if it is no such
/// line.
pub fn parse_choice(text: &[u8]) -> Result<JobId, Distrust> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Distrust::TooLarge(FILE_BYTES_MAX));
    }
    let line = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.strip_suffix('\n'));
    line.and_then(|id| id.parse().ok())
        .ok_or(Distrust::MissingContent("job's id"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::records::Record;
    use crate::testing::Scratch;
    use protocol::Placement;

    fn job(id: &str, started: i64) -> Job {
        let text = format!(r#"{{"version":1,"id":"{id}","uid":5,"cgroup":"/a","cdi":[]}}"#);
        Job {
            id: id.parse().unwrap(),
            started,
            ends: None,
            placement: Placement::Cgroup {
                path: "/a".parse().unwrap(),
                leaf: None,
            },
            slurm: None,
            record: Some(Record::parse(text.as_bytes()).unwrap()),
        }
    }

    fn find_none(_: ChoiceRule, _: &[Job]) -> Option<JobId> {
        None
    }

    fn choose_newest(jobs: &[(&str, i64)]) -> (String, ChoiceRule) {
        let jobs = jobs.iter().map(|(id, started)| job(id, *started)).collect();
        job_and_rule(choose_job(jobs, &[], SeveralJobsPolicy::Newest, find_none))
    }

    fn job_and_rule(choice: Choice) -> (String, ChoiceRule) {
        match choice {
            Choice::Job(job, rule) => (job.id.to_string(), rule),
            other => panic!("{other:?}"),
        }
    }

    /// Chooses between 1 and the newer 2 by the ids of the caller and of the user's choice. Returns
    /// the choice and the rules that were tried.
    fn choose_by(
        caller: &str,
        chosen: &str,
        several: SeveralJobsPolicy,
    ) -> (Choice, Vec<ChoiceRule>) {
        let mut rules = Vec::new();
        let choice = choose_job(
            vec![job("2", 9), job("1", 5)],
            &[],
            several,
            |rule, jobs| {
                assert_eq!(jobs.len(), 2);
                rules.push(rule);
                if rule == ChoiceRule::Caller {
                    caller
                } else {
                    chosen
                }
                .parse()
                .ok()
            },
        );
        (choice, rules)
    }

    #[test]
    fn only_or_newest_job_is_chosen_without_a_rule() {
        assert_eq!(
            choose_job(Vec::new(), &[], SeveralJobsPolicy::Newest, find_none),
            Choice::None
        );
        assert_eq!(
            choose_job(Vec::new(), &[], SeveralJobsPolicy::Deny, find_none),
            Choice::None
        );
        assert_eq!(
            choose_newest(&[("1", 5)]),
            ("1".into(), ChoiceRule::OnlyJob)
        );
        assert_eq!(
            choose_newest(&[("1", 5), ("2", 9), ("3", 7)]),
            ("2".into(), ChoiceRule::Newest)
        );
        assert_eq!(
            choose_newest(&[("10", 5), ("9", 5), ("8", 0)]),
            ("10".into(), ChoiceRule::Newest)
        );
    }

    #[test]
    fn missing_answer_changes_the_rules_that_compare_jobs() {
        for rule in [ChoiceRule::Caller, ChoiceRule::Chosen] {
            assert_eq!(rule_among_answers(rule), rule);
        }
        for rule in [
            ChoiceRule::OnlyJob,
            ChoiceRule::Newest,
            ChoiceRule::Answered,
        ] {
            assert_eq!(rule_among_answers(rule), ChoiceRule::Answered);
        }
    }

    #[test]
    fn several_jobs_need_a_choice_if_the_site_denies_the_newest() {
        let needed = choose_job(
            vec![job("2", 9), job("1", 5)],
            &[],
            SeveralJobsPolicy::Deny,
            find_none,
        );
        assert_eq!(needed, Choice::Needed(vec![job("1", 5), job("2", 9)]));
        let one = choose_job(vec![job("2", 9)], &[], SeveralJobsPolicy::Deny, find_none);
        assert!(matches!(one, Choice::Job(_, ChoiceRule::OnlyJob)));
    }

    #[test]
    fn caller_comes_before_the_users_choice() {
        let both = vec![ChoiceRule::Caller, ChoiceRule::Chosen];
        for several in [SeveralJobsPolicy::Newest, SeveralJobsPolicy::Deny] {
            let (choice, rules) = choose_by("1", "2", several);
            assert_eq!(
                (job_and_rule(choice), rules),
                (("1".into(), ChoiceRule::Caller), vec![ChoiceRule::Caller])
            );
            let (other_choice, other_rules) = choose_by("", "1", several);
            assert_eq!(
                (job_and_rule(other_choice), other_rules),
                (("1".into(), ChoiceRule::Chosen), both.clone())
            );
        }
    }

    #[test]
    fn id_of_another_job_does_not_count() {
        let (choice, rules) = choose_by("3", "4", SeveralJobsPolicy::Newest);
        assert_eq!(job_and_rule(choice), ("2".into(), ChoiceRule::Newest));
        assert_eq!(rules.len(), 2);
        assert!(matches!(
            choose_by("3", "4", SeveralJobsPolicy::Deny).0,
            Choice::Needed(_)
        ));
        assert_eq!(
            job_and_rule(choose_by("3", "1", SeveralJobsPolicy::Deny).0),
            ("1".into(), ChoiceRule::Chosen)
        );
    }

    #[test]
    fn login_from_a_job_that_takes_none_joins_no_other() {
        for open in [vec![job("1", 5)], vec![job("1", 5), job("2", 9)]] {
            let choose = |caller: &str| {
                choose_job(
                    open.clone(),
                    &[job("7", 1)],
                    SeveralJobsPolicy::Newest,
                    |rule, jobs| {
                        let has_closed = jobs.iter().any(|job| job.id.as_str() == "7");
                        assert_eq!(has_closed, rule == ChoiceRule::Caller);
                        (rule == ChoiceRule::Caller).then(|| caller.parse().ok())?
                    },
                )
            };
            let Choice::Closed(ids) = choose("7") else {
                panic!("{:?}", choose("7"))
            };
            assert_eq!(ids.len(), 1 + open.len(), "{ids:?}");
            assert_eq!(ids[0].as_str(), "7");
            assert_eq!(job_and_rule(choose("1")), ("1".into(), ChoiceRule::Caller));
            let newest = open.last().unwrap().id.to_string();
            assert_eq!(job_and_rule(choose("9")).0, newest);
        }
    }

    #[test]
    fn single_job_needs_no_rule() {
        for jobs in [vec![], vec![job("1", 5)]] {
            for several in [SeveralJobsPolicy::Newest, SeveralJobsPolicy::Deny] {
                choose_job(jobs.clone(), &[], several, |rule, _| panic!("{rule:?}"));
            }
        }
    }

    #[test]
    fn mounted_file_or_file_of_another_user_is_distrusted() {
        let scratch = Scratch::new();
        let file = scratch.file("directory/job", "4242\n");
        let status = |path: &Path| read_status(&File::open(path).unwrap(), path).unwrap();
        let dir = status(file.parent().unwrap());
        let file = status(&file);
        let uid = nix::unistd::geteuid().as_raw();
        assert_eq!(
            (
                require_sole_writer(&dir, uid),
                require_choice_file(&dir, &file, uid)
            ),
            (Ok(()), Ok(()))
        );
        let mounted = FileStatus {
            mount: file.mount + 1,
            ..file
        };
        assert_eq!(
            require_choice_file(&dir, &mounted, uid),
            Err(Distrust::Mounted)
        );
        let other = uid + 1;
        assert_eq!(
            require_choice_file(&dir, &file, other),
            Err(Distrust::WrongOwner(uid))
        );
        assert_eq!(
            require_sole_writer(&dir, other),
            Err(Distrust::WrongOwner(uid))
        );
    }
}
