//! What `check` prints.

use super::{Finding, Severity};
use crate::cli::{EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE};
use crate::legible::legible;
use serde::Serialize;
use std::io::{self, Write};

/// Every finding, the gravest first.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    findings: Vec<Finding>,
    counts: Counts,
}

/// How many there are of each severity.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    error: usize,
    warning: usize,
    unknown: usize,
    note: usize,
    fine: usize,
}

impl Report {
    pub(super) fn of(mut findings: Vec<Finding>) -> Self {
        let mut counts = Counts::default();
        for finding in &findings {
            *counts.of(finding.severity) += 1;
        }
        // Within a severity the order of the checks stays, which go from the login inwards.
        findings.sort_by_key(|finding| rank(finding.severity));
        Self { schema: 1, findings, counts }
    }

    /// The exit status: what is found counts more than what cannot be told.
    pub(super) fn code(&self) -> u8 {
        let Counts { error, warning, unknown, .. } = self.counts;
        match (error + warning, unknown) {
            (0, 0) => EXIT_FINE,
            (0, _) => EXIT_FAILED,
            _ => EXIT_FINDINGS,
        }
    }

    /// One line per finding, its remedy indented below it; what is fine only where asked for.
    ///
    /// # Errors
    /// As `write(2)`.
    pub(super) fn write_text(&self, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
        let shown = |finding: &&Finding| verbose || finding.severity != Severity::Fine;
        for finding in self.findings.iter().filter(shown) {
            let (severity, check) = (word(finding.severity), finding.check);
            let (object, text) = (legible(&finding.object), legible(&finding.text));
            writeln!(out, "{severity} {check} {object}: {text}")?;
            if !finding.remedy.is_empty() {
                writeln!(out, "  do: {}", legible(&finding.remedy))?;
            }
        }
        let Counts { error, warning, unknown, note, fine } = self.counts;
        writeln!(
            out,
            "errors: {error}, warnings: {warning}, cannot be told: {unknown}, notes: {note}, \
             fine: {fine}"
        )
    }

    /// Everything, as one object.
    ///
    /// # Errors
    /// As `write(2)`.
    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", serde_json::to_string(self)?)
    }
}

impl Counts {
    fn of(&mut self, severity: Severity) -> &mut usize {
        match severity {
            Severity::Error => &mut self.error,
            Severity::Warning => &mut self.warning,
            Severity::Unknown => &mut self.unknown,
            Severity::Note => &mut self.note,
            Severity::Fine => &mut self.fine,
        }
    }
}

/// Where it stands in the report.
fn rank(severity: Severity) -> u8 {
    match severity {
        Severity::Error => 0,
        Severity::Warning => 1,
        Severity::Unknown => 2,
        Severity::Note => 3,
        Severity::Fine => 4,
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Unknown => "unknown",
        Severity::Note => "note",
        Severity::Fine => "fine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::Check;

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
            assert_eq!(report(severities).code(), code, "{severities:?}");
        }
    }

    #[test]
    fn people_read_the_gravest_first_and_nothing_of_what_is_fine() {
        let report = report(&[Severity::Note, Severity::Fine, Severity::Error]);
        let text = |verbose| {
            let mut out = Vec::new();
            report.write_text(verbose, &mut out).unwrap();
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
        let mut out = Vec::new();
        report(&[Severity::Unknown]).write_json(&mut out).unwrap();
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
