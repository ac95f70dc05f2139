//! Whether the sources of jobs answer, asked as at a login.

use super::config::with_its_rights;
use super::{Check, Finding, Site, slurm};
use crate::plan::SourceName;
use crate::resolve::{Health, Node};
use crate::session::node_name;
use crate::source::{Found, SourceError};
use std::time::Duration;

const SOURCES: Check = "sources";

/// Of whom the sources are asked: nobody, who has no jobs.
const NOBODY: u32 = 65534;
/// What a login gives them (`timeout`, of which a round may take half).
const EACH: Duration = Duration::from_millis(2500);
/// From here on a source is slow.
const SLOW: Duration = Duration::from_secs(1);

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let config = &site.scene.config;
    let node = site.settings().node.unwrap_or_else(node_name);
    let asked = with_its_rights(site, || Node::here().health(&node, config, NOBODY, EACH));
    let health = match asked.and_then(|health| health) {
        Ok(health) => health,
        Err(why) => {
            let text = format!("cannot be asked: {why}");
            return vec![Finding::unknown(SOURCES, "all", text, "mend what it names")];
        }
    };
    let is_slurms = slurm::is_expected(site);
    let expected = |source| match source {
        SourceName::Slurm if is_slurms => Expected::Here,
        _ if config.sources == SourceName::ALL => Expected::Perhaps,
        _ => Expected::Named,
    };
    judge(&health, expected)
}

/// Whether a source has to be on this node.
#[derive(Clone, Copy)]
enum Expected {
    /// Nobody said so.
    Perhaps,
    /// `sources` names it.
    Named,
    /// What it belongs to is set up here.
    Here,
}

fn judge(health: &[Health], expected: impl Fn(SourceName) -> Expected) -> Vec<Finding> {
    let mut found: Vec<_> = health.iter().flat_map(|one| of(one, expected(one.source))).collect();
    if health.iter().all(|one| matches!(one.answer, Err(SourceError::Absent(_)))) {
        let text = "no source of jobs is on this node: every login is refused (JA11)";
        let remedy = "start the scheduler's daemon, or register jobs; on a login node see enforce \
                      in job_adopt.conf(5)";
        found.push(Finding::error(SOURCES, "all", text, remedy));
    }
    found
}

fn of(health: &Health, expected: Expected) -> Vec<Finding> {
    let source = health.source.as_str();
    let took = health.took.as_millis();
    match &health.answer {
        Err(SourceError::Absent(what)) => {
            let text = format!("is not on this node: {what}");
            let remedy = "start it, or leave it out of sources in the configuration";
            vec![match expected {
                Expected::Perhaps => Finding::fine(SOURCES, source, text),
                Expected::Named => Finding::note(SOURCES, source, text, remedy),
                Expected::Here => {
                    let text = format!("is set up, but no login finds a job of it: {what}");
                    Finding::warning(SOURCES, source, text, remedy)
                }
            }]
        }
        Err(SourceError::Failed(what)) => {
            let text = format!("fails, so that who has no other job is refused (JA09): {what}");
            vec![Finding::error(SOURCES, source, text, "mend what it names")]
        }
        Ok(answer) => {
            let mut found = troubles(source, answer);
            if health.took >= SLOW {
                let text = format!("answers slowly, in {took} ms");
                let remedy = "find out what it waits for; logins wait as long";
                found.push(Finding::warning(SOURCES, source, text, remedy));
            }
            if found.is_empty() {
                found.push(Finding::fine(SOURCES, source, format!("answers, in {took} ms")));
            }
            found
        }
    }
}

fn troubles(source: &str, answer: &Found) -> Vec<Finding> {
    let broken = answer.broken.iter().map(|what| {
        let text = format!("cannot use what may stand for a job: {what}");
        Finding::warning(SOURCES, source, text, "mend or remove it")
    });
    let silent = answer.silent.iter().map(|what| {
        let text = format!("had no answer from what may stand for a job: {what}");
        Finding::warning(SOURCES, source, text, "find out why it hangs")
    });
    broken.chain(silent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::Severity;

    fn severities(
        answer: Result<Found, SourceError>,
        took: u64,
        expected: Expected,
    ) -> Vec<Severity> {
        let took = Duration::from_millis(took);
        let slurm = Health { source: SourceName::Slurm, answer, took };
        let answer = Ok(Found::default());
        let registry = Health { source: SourceName::Registry, answer, took: Duration::ZERO };
        let found = judge(&[slurm, registry], |_| expected);
        let slurms = found.into_iter().filter(|one| one.object == "slurm");
        slurms.map(|one| one.severity).collect()
    }

    #[test]
    fn answers_are_told_apart() {
        use Expected::{Here, Named, Perhaps};
        use Severity::{Error, Fine, Note, Warning};
        let absent = || Err(SourceError::Absent("x".into()));
        assert_eq!(severities(Ok(Found::default()), 1, Here), [Fine]);
        assert_eq!(severities(absent(), 1, Perhaps), [Fine]);
        assert_eq!(severities(absent(), 1, Named), [Note]);
        assert_eq!(severities(absent(), 1, Here), [Warning]);
        assert_eq!(severities(Err(SourceError::Failed("x".into())), 1, Perhaps), [Error]);
        let one = || vec!["x".to_owned()];
        let broken = Found { broken: one(), silent: one(), ..Found::default() };
        assert_eq!(severities(Ok(broken), 1, Here), [Warning, Warning]);
        assert_eq!(severities(Ok(Found::default()), 1000, Here), [Warning]);
    }

    #[test]
    fn a_node_without_any_source_refuses_everybody() {
        let answer = Err(SourceError::Absent("x".into()));
        let health = Health { source: SourceName::Slurm, answer, took: Duration::ZERO };
        let found = judge(&[health], |_| Expected::Perhaps);
        assert!(found.iter().any(|one| one.severity == Severity::Error), "{found:?}");
    }
}
