//! What `check` finds, and how it is printed.

use crate::{EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE, Error, Output};
use helper::printable;
use protocol::words;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;

words! {
    /// How grave a finding is, the gravest first.
    #[derive(PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    Severity {
        /// Logins will be refused, or admitted outside of their jobs.
        Error = "error",
        /// A way past the confinement stays open, or something is weaker than it looks.
        Warning = "warning",
        /// It could not be told.
        Unknown = "unknown",
        /// Worth knowing; nothing is open and nobody is locked out.
        Note = "note",
        /// As it should be.
        Fine = "fine",
    }
}

/// The stable name of a check. Each is a constant of this type, by which tests/manual.rs knows it
/// and looks for its entry in job-adopt(1).
pub(super) type Check = &'static str;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) check: Check,
    /// What it is about: a file and line, a unit, a user.
    pub(super) object: String,
    /// How it is, in one sentence.
    pub(super) text: String,
    /// What to do; empty where nothing is to be done.
    pub(super) remedy: String,
}

macro_rules! findings_of {
    ($($name:ident: $severity:ident),*) => {
        $(pub(super) fn $name(
            check: Check,
            object: impl Display,
            text: impl Display,
            remedy: impl Display,
        ) -> Self {
            Self::new(Severity::$severity, check, object, text, remedy)
        })*
    };
}

impl Finding {
    findings_of!(error: Error, warning: Warning, unknown: Unknown, note: Note);

    pub(super) fn fine(check: Check, object: impl Display, text: impl Display) -> Self {
        Self::new(Severity::Fine, check, object, text, "")
    }

    pub(super) fn new(
        severity: Severity,
        check: Check,
        object: impl Display,
        text: impl Display,
        remedy: impl Display,
    ) -> Self {
        let (object, text, remedy) = (object.to_string(), text.to_string(), remedy.to_string());
        Self { severity, check, object, text, remedy }
    }
}

/// Every finding, the gravest first.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    findings: Vec<Finding>,
    /// How many there are of each severity.
    counts: BTreeMap<Severity, usize>,
}

impl Report {
    pub(super) fn of(mut findings: Vec<Finding>) -> Self {
        // Within a severity the order of the checks stays, which go from the login inwards.
        findings.sort_by_key(|finding| finding.severity);
        let mut counts = BTreeMap::from(Severity::ALL.map(|severity| (severity, 0)));
        for finding in &findings {
            *counts.entry(finding.severity).or_default() += 1;
        }
        Self { schema: 1, findings, counts }
    }

    /// The gravest finding that is worse than a note.
    fn first(&self) -> Option<&Finding> {
        self.findings.first().filter(|finding| finding.severity <= Severity::Unknown)
    }

    /// The state of the node, and the exit statuses of this command, of a Nagios plugin, and for NHC,
    /// which takes a node out of service for any but 0. What is found counts more than what cannot be
    /// told.
    pub(super) fn state(&self) -> (&'static str, u8, u8, u8) {
        match self.first().map(|finding| finding.severity) {
            Some(Severity::Error) => ("CRITICAL", EXIT_FINDINGS, 2, 1),
            Some(Severity::Warning) => ("WARNING", EXIT_FINDINGS, 1, 0),
            Some(_) => ("UNKNOWN", EXIT_FAILED, 3, 0),
            None => ("OK", EXIT_FINE, 0, 0),
        }
    }

    /// The gravest finding and how many there are, as monitoring shows it.
    pub(super) fn line(&self) -> String {
        let (state, ..) = self.state();
        let count = |severity| self.counts.get(&severity).copied().unwrap_or_default();
        let [errors, warnings, unknown] =
            [Severity::Error, Severity::Warning, Severity::Unknown].map(count);
        let shown = |one: &Finding| format!("{} {}: {}", one.check, one.object, one.text);
        let first = self.first().map_or_else(|| "nothing is amiss".to_owned(), shown);
        // What follows a bar is data to Nagios.
        let first = printable(&first).replace('|', "/");
        format!(
            "JOB_ADOPT {state} - {first} ({errors} errors, {warnings} warnings, {unknown} cannot be \
             told) | errors={errors} warnings={warnings} unknown={unknown}"
        )
    }

    /// One line per finding, its remedy indented below it, and what is fine only where `verbose`;
    /// or everything as one object.
    pub(super) fn write(
        &self,
        json: bool,
        verbose: bool,
        output: &mut Output<'_>,
    ) -> Result<(), Error> {
        if json {
            return output.json(self);
        }
        let shown = |finding: &&Finding| verbose || finding.severity != Severity::Fine;
        for finding in self.findings.iter().filter(shown) {
            let (severity, check) = (finding.severity.as_str(), finding.check);
            let (object, text) = (printable(&finding.object), printable(&finding.text));
            writeln!(output.out, "{severity} {check} {object}: {text}")?;
            if !finding.remedy.is_empty() {
                writeln!(output.out, "  do: {}", printable(&finding.remedy))?;
            }
        }
        let names = ["errors", "warnings", "cannot be told", "notes", "fine"];
        let counts = names.iter().zip(self.counts.values());
        let counts: Vec<String> = counts.map(|(name, count)| format!("{name}: {count}")).collect();
        Ok(writeln!(output.out, "{}", counts.join(", "))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Check = "x-y";

    fn report(severities: &[Severity]) -> Report {
        let finding = |&severity: &Severity| {
            let mut finding = Finding::note(CHECK, "/a", "it is\nso", "change it");
            finding.severity = severity;
            if severity == Severity::Fine {
                finding.remedy.clear();
            }
            finding
        };
        Report::of(severities.iter().map(finding).collect())
    }

    #[test]
    fn the_exit_status_is_of_the_gravest() {
        use Severity::{Error, Fine, Note, Unknown, Warning};
        for (severities, code) in [
            (&[][..], 0),
            (&[Fine, Note], 0),
            (&[Fine, Unknown], 3),
            (&[Unknown, Warning], 1),
            (&[Error], 1),
        ] {
            assert_eq!(report(severities).state().1, code, "{severities:?}");
        }
    }

    #[test]
    fn monitoring_reads_one_line_with_its_own_exit_statuses() {
        use Severity::{Error, Note, Unknown, Warning};
        for (severities, word, nagios, nhc) in [
            (&[Note][..], "OK - nothing is amiss (0 errors", 0, 0),
            (&[Unknown], "UNKNOWN - x-y /a: it is?so (0 errors", 3, 0),
            (&[Unknown, Warning, Warning], "WARNING - x-y /a: it is?so (0 errors, 2 warn", 1, 0),
            (&[Warning, Error], "CRITICAL - x-y /a: it is?so (1 errors, 1 warnings, ", 2, 1),
        ] {
            let report = report(severities);
            let line = report.line();
            assert!(line.starts_with(&format!("JOB_ADOPT {word}")), "{line}");
            let (_, _, to_nagios, to_nhc) = report.state();
            assert_eq!((to_nagios, to_nhc), (nagios, nhc), "{severities:?}");
            assert!(line.matches('|').count() == 1 && !line.contains('\n'), "{line}");
        }
        let line = report(&[Error, Warning]).line();
        assert!(line.ends_with("| errors=1 warnings=1 unknown=0"), "{line}");
    }

    #[test]
    fn people_read_the_gravest_first_and_nothing_of_what_is_fine() {
        let report = report(&[Severity::Note, Severity::Fine, Severity::Error]);
        let text = |verbose| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut output = Output { out: &mut out, err: &mut err };
            report.write(false, verbose, &mut output).unwrap();
            String::from_utf8(out).unwrap()
        };
        let first =
            "error x-y /a: it is?so\n  do: change it\nnote x-y /a: it is?so\n  do: change it\n";
        let last = "errors: 1, warnings: 0, cannot be told: 0, notes: 1, fine: 1\n";
        assert_eq!(text(false), format!("{first}{last}"));
        assert_eq!(text(true), format!("{first}fine x-y /a: it is?so\n{last}"));
    }

    #[test]
    fn programs_read_everything() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output { out: &mut out, err: &mut err };
        report(&[Severity::Unknown]).write(true, false, &mut output).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "schema": 1,
                "findings": [{ "severity": "unknown", "check": "x-y", "object": "/a",
                    "text": "it is\nso", "remedy": "change it" }],
                "counts": { "error": 0, "warning": 0, "unknown": 1, "note": 0, "fine": 0 },
            })
        );
    }
}
