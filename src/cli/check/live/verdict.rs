//! What a run says of the stack.

use super::event::{Event, Place, Step};
use super::watch::Run;
use crate::cli::check::{Check, Finding};
use crate::cli::resolve::Expected;
use crate::plan::is_within;
use std::time::Duration;

const STACK: Check = "live-stack";
const PLACE: Check = "live-place";
const FILTERS: Check = "live-filters";
const LIMITS: Check = "live-limits";
const LEFT: Check = "live-left";

/// Judges a run for `user`.
pub(super) fn findings(
    user: &str,
    run: &Run,
    expected: &Expected,
    limit: Duration,
) -> Vec<Finding> {
    let judge = Judge { user, run, expected };
    let mut findings = vec![judge.stack(limit)];
    if judge.admitted() {
        findings.push(judge.place());
        findings.extend(judge.filters());
        findings.extend(judge.limits());
    }
    findings.extend(judge.troubles());
    if run.left > 0 {
        let text = format!("{} processes that modules had started were left, and ended", run.left);
        let remedy = "see which module of the stack starts them, and whether it ends them";
        findings.push(Finding::note(LEFT, user, text, remedy));
    }
    findings
}

struct Judge<'a> {
    user: &'a str,
    run: &'a Run,
    expected: &'a Expected,
}

impl Judge<'_> {
    /// The call that was the last to begin.
    fn last(&self) -> Option<Step> {
        let begun = |event: &Event| match event {
            Event::Began(step) => Some(*step),
            _ => None,
        };
        self.run.events.iter().rev().find_map(begun)
    }

    /// The first call that a login does not go on after, and libpam's words for it.
    fn refused(&self) -> Option<(Step, &str)> {
        self.run.events.iter().find_map(|event| match event {
            Event::Answered { step, fine: false, words }
                if matches!(step, Step::Start | Step::Account | Step::Open) =>
            {
                Some((*step, words.as_str()))
            }
            _ => None,
        })
    }

    fn admitted(&self) -> bool {
        let opened =
            |event: &Event| matches!(event, Event::Answered { step: Step::Open, fine: true, .. });
        self.run.events.iter().any(opened)
    }

    /// All that modules said to the user.
    fn said(&self) -> String {
        let texts = self.run.events.iter().filter_map(|event| match event {
            Event::Said(text) => Some(text.trim()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    fn stood(&self) -> Option<&Place> {
        self.run.events.iter().find_map(|event| match event {
            Event::Stands(place) => Some(place),
            _ => None,
        })
    }

    fn stack(&self, limit: Duration) -> Finding {
        let user = self.user;
        let remedy =
            "job-adopt resolve --user USER says why; the log (authpriv) has every decision";
        if self.run.late {
            let step = self.last().map_or("the beginning", Step::as_str);
            let text = format!(
                "the stack was not done after {} s, and was ended: it was in the phase {step}",
                limit.as_secs()
            );
            let remedy = "see which module of that phase waits: each has to have a deadline";
            return Finding::error(STACK, user, text, remedy);
        }
        if let Some((step, words)) = self.refused() {
            return self.refusal(step, words);
        }
        if !self.admitted() {
            let text = "the process that ran the stack ended before it was done";
            let remedy =
                "see the kernel's log: a module of the stack ends the process that calls it";
            return Finding::error(STACK, user, text, remedy);
        }
        match self.expected.decision {
            "refuse" => {
                let text =
                    format!("a login is admitted, but is to be refused: {}", self.expected.text);
                let why = "see the stack's lines of this module (pam-account, pam-session), and \
                           whether its arguments exempt the user or open anything";
                Finding::error(STACK, user, text, why)
            }
            "unknown" => {
                let text = "a login is admitted; whether it is to be cannot be told";
                Finding::unknown(STACK, user, text, remedy)
            }
            _ => Finding::fine(STACK, user, "a login is admitted"),
        }
    }

    /// One that is to be refused is told so by this module.
    fn refusal(&self, step: Step, words: &str) -> Finding {
        let (user, said) = (self.user, self.said());
        let phase = step.as_str();
        let shown = if said.is_empty() { "nothing".to_owned() } else { said.replace('\n', " / ") };
        let code = self.expected.reason.map(|reason| format!("[{reason}]"));
        let text =
            format!("a login is refused in the phase {phase} ({words}); the user reads: {shown}");
        match (self.expected.decision, code) {
            ("refuse", Some(code)) if said.contains(&code) => {
                let text = format!("{text}; so it is to be, as job-adopt resolve says");
                Finding::note(
                    STACK,
                    user,
                    text,
                    "give the user a job here to see a login that joins",
                )
            }
            (_, _) if said.contains("[JA") => Finding::error(
                STACK,
                user,
                format!("{text}; job-adopt resolve says otherwise ({})", self.expected.decision),
                "see the log (authpriv) for what differs: arguments of the module, or what \
                 happened in between",
            ),
            _ => Finding::error(
                STACK,
                user,
                format!("{text}; this module did not refuse it"),
                "see which other module of the stack did, in the log (authpriv)",
            ),
        }
    }

    /// Whether the login is in the job.
    fn place(&self) -> Finding {
        let user = self.user;
        let Some(place) = self.stood() else {
            return Finding::unknown(PLACE, user, "where the login is cannot be told", "");
        };
        let shown = place.cgroups.first().map(String::as_str).unwrap_or("/");
        match &self.expected.job {
            Some((job, foreseen)) => {
                let within = place.cgroups.iter().any(|path| is_within(path, &foreseen.cgroup));
                if within {
                    let text = format!("the login is in job {job}, in {shown}");
                    return Finding::fine(PLACE, user, text);
                }
                let text = format!(
                    "the login is admitted and landed outside of job {job}: in {shown}, not in {}",
                    foreseen.cgroup
                );
                let remedy = "make this module's session line required, and the last one of the \
                              session that moves processes: job-adopt check names the lines";
                Finding::error(PLACE, user, text, remedy)
            }
            None if self.expected.decision == "ignore" => {
                let text = format!(
                    "the login is admitted outside of any job, in {shown}: {}",
                    self.expected.text
                );
                Finding::note(PLACE, user, text, "")
            }
            None => {
                let text =
                    format!("the login is admitted and landed outside of any job: in {shown}");
                let remedy = "where the module's arguments exempt the user, it is meant to be so; \
                              else see the stack's lines of this module (pam-session)";
                Finding::error(PLACE, user, text, remedy)
            }
        }
    }

    fn filters(&self) -> Option<Finding> {
        let (user, place) = (self.user, self.stood()?);
        let force = match place.filters.as_slice() {
            [] => "no filter is in force there".to_owned(),
            filters => format!("in force there: {}", filters.join(", ")),
        };
        let part = |word: &str, paths: &[String]| match paths {
            [] => String::new(),
            paths => format!("; {word} {}", paths.join(" ")),
        };
        let text = format!(
            "{force}{}{}{}",
            part("opens", &place.opens),
            part("is refused", &place.refuses),
            part("it cannot be told of", &place.unclear)
        );
        let (job, foreseen) = self.expected.job.as_ref()?;
        if place.filters.is_empty() && foreseen.containment != "none" {
            let text = format!("{text}, though job {job} is to have {}", foreseen.containment);
            let remedy = "see which module or service takes filters away after this one";
            return Some(Finding::error(FILTERS, user, text, remedy));
        }
        Some(match place.filters.is_empty() {
            true => Finding::note(
                FILTERS,
                user,
                format!("{text}: job {job} is not confined to any devices"),
                "give the job's record a list of devices, or the module require_devices",
            ),
            false => Finding::fine(FILTERS, user, text),
        })
    }

    fn limits(&self) -> Option<Finding> {
        let place = self.stood().filter(|place| !place.limits.is_empty())?;
        let text = format!("the stack has set limits: {}", place.limits.join(", "));
        Some(Finding::fine(LIMITS, self.user, text))
    }

    fn troubles(&self) -> Vec<Finding> {
        let troubles = self.run.events.iter().filter_map(|event| match event {
            Event::Trouble(text) => Some(text),
            _ => None,
        });
        troubles.map(|text| Finding::unknown(PLACE, self.user, text, "")).collect()
    }
}
