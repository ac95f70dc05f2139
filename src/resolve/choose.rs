//! Which of a user's jobs a login joins.

use crate::plan::{JobId, Rule, Several};
use crate::source::Job;

/// The outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// There is no job.
    None,
    /// This one, by this rule.
    Job(Box<Job>, Rule),
    /// The user has to say which of these.
    Needed(Vec<JobId>),
}

/// Chooses among several: the one that the user has chosen, else as the site says. Of jobs that started in the same second, the one with the larger id is newer, a longer
/// id counting as larger, as it is with ids that are counted up.
pub(super) fn choose(
    mut jobs: Vec<Job>,
    several: Several,
    wish: impl FnOnce(&[Job]) -> Option<JobId>,
) -> Choice {
    jobs.sort_by(|a, b| age(a).cmp(&age(b)));
    let wish = if jobs.len() > 1 { wish(&jobs) } else { None };
    if let Some(job) = jobs.iter().find(|job| Some(&job.id) == wish.as_ref()) {
        return Choice::Job(Box::new(job.clone()), Rule::Chosen);
    }
    if jobs.len() > 1 && several == Several::Deny {
        return Choice::Needed(jobs.into_iter().map(|job| job.id).collect());
    }
    let rule = if jobs.len() > 1 { Rule::Newest } else { Rule::OnlyJob };
    jobs.pop().map_or(Choice::None, |job| Choice::Job(Box::new(job), rule))
}

fn age(job: &Job) -> (i64, usize, &str) {
    let id = job.id.as_str();
    (job.started, id.len(), id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Placement;
    use crate::registry::Record;

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

    fn chosen(jobs: &[(&str, i64)]) -> (String, Rule) {
        let jobs = jobs.iter().map(|(id, started)| job(id, *started)).collect();
        match choose(jobs, Several::Newest, |_| None) {
            Choice::Job(job, rule) => (job.id.to_string(), rule),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_only_job_or_the_newest() {
        assert_eq!(choose(Vec::new(), Several::Newest, |_| None), Choice::None);
        assert_eq!(choose(Vec::new(), Several::Deny, |_| None), Choice::None);
        assert_eq!(chosen(&[("1", 5)]), ("1".into(), Rule::OnlyJob));
        assert_eq!(chosen(&[("1", 5), ("2", 9), ("3", 7)]), ("2".into(), Rule::Newest));
        assert_eq!(chosen(&[("10", 5), ("9", 5), ("8", 0)]), ("10".into(), Rule::Newest));
    }

    #[test]
    fn a_choice_is_needed_where_the_site_says_so() {
        let needed = choose(vec![job("2", 9), job("1", 5)], Several::Deny, |_| None);
        assert_eq!(needed, Choice::Needed(vec!["1".parse().unwrap(), "2".parse().unwrap()]));
        let one = choose(vec![job("2", 9)], Several::Deny, |_| None);
        assert!(matches!(one, Choice::Job(_, Rule::OnlyJob)));
    }
}
