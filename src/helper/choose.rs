//! Which of a user's jobs a login joins; and the choice that the user has made, read without
//! privilege.

use super::{Evidence, Node};
use crate::sources::{Job, find_by_name};
use kernel::choice::{Choices, FILE, UserDir, facts_of, permissions};
use kernel::sys::file::Facts;
use kernel::trust::{Distrust, TrustError};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag};
use protocol::{JobId, Rule, SeveralJobsPolicy};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// There is no job.
    None,
    /// This one, by this rule.
    Job(Box<Job>, Rule),
    /// The user has to say which of these.
    Needed(Vec<JobId>),
}

/// What says which of several jobs a login is to join, in the order of asking.
const SAYING: [Rule; 2] = [Rule::Caller, Rule::Chosen];

/// Chooses. Where there are several jobs, `meant` is asked by each rule that can tell which one is
/// meant; an answer that names none of them does not count. Of two jobs that started in the same second
/// the one with the larger id is newer. A longer id is larger.
pub(super) fn choose(
    mut jobs: Vec<Job>,
    several: SeveralJobsPolicy,
    mut meant: impl FnMut(Rule, &[Job]) -> Option<JobId>,
) -> Choice {
    jobs.sort_by(|a, b| age(a).cmp(&age(b)));
    if jobs.len() < 2 {
        return joined(jobs.pop(), Rule::OnlyJob);
    }
    for rule in SAYING {
        let said = meant(rule, &jobs);
        if let Some(at) = said.and_then(|id| jobs.iter().position(|job| job.id == id)) {
            return joined(Some(jobs.swap_remove(at)), rule);
        }
    }
    match several {
        SeveralJobsPolicy::Deny => Choice::Needed(jobs.into_iter().map(|job| job.id).collect()),
        SeveralJobsPolicy::Newest => joined(jobs.pop(), Rule::Newest),
    }
}

/// The rule by which a job was chosen, if another of the user's jobs may not have answered: neither
/// that it is the only one is known then nor that it is the newest.
pub(super) fn rule_among_answers(rule: Rule) -> Rule {
    match rule {
        Rule::OnlyJob | Rule::Newest | Rule::Answered => Rule::Answered,
        Rule::Caller | Rule::Chosen => rule,
    }
}

fn joined(job: Option<Job>, rule: Rule) -> Choice {
    job.map_or(Choice::None, |job| Choice::Job(Box::new(job), rule))
}

fn age(job: &Job) -> (i64, usize, &str) {
    let id = job.id.as_str();
    (job.started, id.len(), id)
}

impl Node {
    /// The one of these jobs that the user has chosen; `None` also for a choice that cannot be
    /// used, of which `warnings` then tells.
    pub(super) fn chosen(
        &self,
        uid: u32,
        jobs: &[Job],
        evidence: &mut Evidence,
        warnings: &mut Vec<String>,
    ) -> Option<JobId> {
        let id = match read_choice(&self.choices(), uid) {
            Ok(Some(id)) => id,
            Ok(None) => {
                evidence.add("chosen", "none");
                return None;
            }
            Err(error) => {
                warnings.push(format!("choice not used: {error}"));
                return None;
            }
        };
        let job = find_by_name(jobs, &id);
        if job.is_none() {
            warnings.push(format!("chosen job {id} is not running here"));
        }
        job.map(|job| job.id.clone())
    }
}

/// Most bytes of the file: a job's id and the end of its line.
const FILE_MAX: u64 = 65;
/// What nobody but the owner may have: leave to write.
const OTHERS_WRITE: u32 = 0o022;

/// The job that the user wants; `None` where there is no directory of theirs, or no file in it.
/// This waits for nobody.
/// Errors: [`TrustError`] where the file cannot be trusted to be this user's choice.
pub fn read_choice(choices: &Choices, uid: u32) -> Result<Option<JobId>, TrustError> {
    let base = match choices.trust.dir(&choices.dir) {
        Ok(base) => base,
        Err(error) if error.is_missing() => return Ok(None),
        Err(error) => return Err(error),
    };
    match choices.find(&base, uid)? {
        Some(dir) => read_in(&dir, uid),
        None => Ok(None),
    }
}

fn read_in(dir: &UserDir, uid: u32) -> Result<Option<JobId>, TrustError> {
    is_only(&dir.facts, uid).map_err(|wrong| TrustError::new(&dir.path, wrong))?;
    let path = dir.path.join(FILE);
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let found = match openat(&dir.fd, FILE, flags, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(TrustError::cannot("open", &path, errno)),
    };
    let facts = facts_of(&found, &path)?;
    let text = match may_hold(&dir.facts, &facts, uid) {
        Ok(()) => read(&found, &path)?,
        Err(wrong) => return Err(TrustError::new(&path, wrong)),
    };
    parse(&text).map(Some).map_err(|wrong| TrustError::new(&path, wrong))
}

/// Whether nobody but this user may write it.
fn is_only(facts: &Facts, uid: u32) -> Result<(), Distrust> {
    match permissions(facts) {
        _ if facts.uid != uid => Err(Distrust::Owner(facts.uid)),
        mode if mode & OTHERS_WRITE != 0 => Err(Distrust::Mode(mode)),
        _ => Ok(()),
    }
}

/// Whether a file in this directory may be a choice of this user's.
fn may_hold(dir: &Facts, file: &Facts, uid: u32) -> Result<(), Distrust> {
    match file {
        _ if file.mount != dir.mount => Err(Distrust::Mounted),
        _ if file.mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() => Err(Distrust::NotRegular),
        _ if file.links != 1 => Err(Distrust::Links(file.links)),
        _ if file.size > FILE_MAX => Err(Distrust::TooLarge(FILE_MAX)),
        _ => is_only(file, uid),
    }
}

/// Reads the file by the descriptor that found it, so no other can have taken its place. `O_NONBLOCK`
/// keeps the call from waiting for a lease on the file (fcntl(2)).
fn read(found: &OwnedFd, path: &Path) -> Result<Vec<u8>, TrustError> {
    let by_fd = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = open(by_fd.as_str(), flags, Mode::empty())
        .map_err(|errno| TrustError::cannot("open", path, errno))?;
    let mut text = Vec::new();
    File::from(file)
        .take(FILE_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| TrustError::cannot("read", path, error))?;
    Ok(text)
}

/// The id that a choice is: alone on the one line of its file.
/// Errors: [`Distrust::TooLarge`], [`Distrust::Lacks`].
pub fn parse(text: &[u8]) -> Result<JobId, Distrust> {
    if text.len() as u64 > FILE_MAX {
        return Err(Distrust::TooLarge(FILE_MAX));
    }
    let line = std::str::from_utf8(text).ok().and_then(|text| text.strip_suffix('\n'));
    line.and_then(|id| id.parse().ok()).ok_or(Distrust::Lacks("job's id"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Record;
    use crate::testing::Scratch;
    use protocol::Placement;

    fn job(id: &str, started: i64) -> Job {
        let text = format!(r#"{{"version":1,"id":"{id}","uid":5,"cgroup":"/a","cdi":[]}}"#);
        Job {
            id: id.parse().unwrap(),
            started,
            ends: None,
            placement: Placement::Cgroup { path: "/a".parse().unwrap(), leaf: None },
            record: Some(Record::parse(text.as_bytes()).unwrap()),
        }
    }

    fn nobody(_: Rule, _: &[Job]) -> Option<JobId> {
        None
    }

    fn chosen(jobs: &[(&str, i64)]) -> (String, Rule) {
        let jobs = jobs.iter().map(|(id, started)| job(id, *started)).collect();
        of(choose(jobs, SeveralJobsPolicy::Newest, nobody))
    }

    fn of(choice: Choice) -> (String, Rule) {
        match choice {
            Choice::Job(job, rule) => (job.id.to_string(), rule),
            other => panic!("{other:?}"),
        }
    }

    /// The choice between 1 and the newer 2 with these answers, and who was asked.
    fn said(caller: &str, chosen: &str, several: SeveralJobsPolicy) -> (Choice, Vec<Rule>) {
        let mut asked = Vec::new();
        let choice = choose(vec![job("2", 9), job("1", 5)], several, |rule, jobs| {
            assert_eq!(jobs.len(), 2);
            asked.push(rule);
            if rule == Rule::Caller { caller } else { chosen }.parse().ok()
        });
        (choice, asked)
    }

    #[test]
    fn the_only_job_or_the_newest() {
        assert_eq!(choose(Vec::new(), SeveralJobsPolicy::Newest, nobody), Choice::None);
        assert_eq!(choose(Vec::new(), SeveralJobsPolicy::Deny, nobody), Choice::None);
        assert_eq!(chosen(&[("1", 5)]), ("1".into(), Rule::OnlyJob));
        assert_eq!(chosen(&[("1", 5), ("2", 9), ("3", 7)]), ("2".into(), Rule::Newest));
        assert_eq!(chosen(&[("10", 5), ("9", 5), ("8", 0)]), ("10".into(), Rule::Newest));
    }

    #[test]
    fn only_the_rules_of_who_names_a_job_outlast_a_missing_answer() {
        for rule in [Rule::Caller, Rule::Chosen] {
            assert_eq!(rule_among_answers(rule), rule);
        }
        for rule in [Rule::OnlyJob, Rule::Newest, Rule::Answered] {
            assert_eq!(rule_among_answers(rule), Rule::Answered);
        }
    }

    #[test]
    fn a_choice_is_needed_where_the_site_says_so() {
        let needed = choose(vec![job("2", 9), job("1", 5)], SeveralJobsPolicy::Deny, nobody);
        assert_eq!(needed, Choice::Needed(vec!["1".parse().unwrap(), "2".parse().unwrap()]));
        let one = choose(vec![job("2", 9)], SeveralJobsPolicy::Deny, nobody);
        assert!(matches!(one, Choice::Job(_, Rule::OnlyJob)));
    }

    #[test]
    fn the_caller_comes_first_then_the_users_choice() {
        let both = vec![Rule::Caller, Rule::Chosen];
        for several in [SeveralJobsPolicy::Newest, SeveralJobsPolicy::Deny] {
            let (choice, asked) = said("1", "2", several);
            assert_eq!((of(choice), asked), (("1".into(), Rule::Caller), vec![Rule::Caller]));
            let (choice, asked) = said("", "1", several);
            assert_eq!((of(choice), asked), (("1".into(), Rule::Chosen), both.clone()));
        }
    }

    #[test]
    fn what_is_none_of_the_jobs_does_not_count() {
        let (choice, asked) = said("3", "4", SeveralJobsPolicy::Newest);
        assert_eq!(of(choice), ("2".into(), Rule::Newest));
        assert_eq!(asked.len(), 2);
        assert!(matches!(said("3", "4", SeveralJobsPolicy::Deny).0, Choice::Needed(_)));
        assert_eq!(of(said("3", "1", SeveralJobsPolicy::Deny).0), ("1".into(), Rule::Chosen));
    }

    #[test]
    fn nobody_is_asked_where_there_is_nothing_to_choose() {
        for jobs in [vec![], vec![job("1", 5)]] {
            for several in [SeveralJobsPolicy::Newest, SeveralJobsPolicy::Deny] {
                choose(jobs.clone(), several, |rule, _| panic!("{rule:?}"));
            }
        }
    }

    #[test]
    fn neither_a_mounted_file_nor_one_of_another_user_is_read() {
        let scratch = Scratch::new();
        let file = scratch.file("directory/job", "4242\n");
        let facts = |path: &Path| facts_of(&File::open(path).unwrap(), path).unwrap();
        let (dir, file) = (facts(file.parent().unwrap()), facts(&file));
        let uid = nix::unistd::geteuid().as_raw();
        assert_eq!((is_only(&dir, uid), may_hold(&dir, &file, uid)), (Ok(()), Ok(())));
        let mounted = Facts { mount: file.mount + 1, ..file };
        assert_eq!(may_hold(&dir, &mounted, uid), Err(Distrust::Mounted));
        let other = uid + 1;
        assert_eq!(may_hold(&dir, &file, other), Err(Distrust::Owner(uid)));
        assert_eq!(is_only(&dir, other), Err(Distrust::Owner(uid)));
    }
}
