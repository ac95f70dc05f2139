//! What is found of a login, as text and as JSON.

use super::super::{EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE, Error, Output};
use super::Case;
use crate::plan::Reason;
use serde::Serialize;

/// What the login would get.
#[derive(Debug)]
pub(super) enum Finding {
    Admitted,
    /// The module would leave it to others, for this reason.
    Ignored(String),
    /// The code, and the text that the user would read.
    Refused(Reason, String),
    /// Only root can see the rest.
    Unsure,
}

impl Finding {
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Admitted | Self::Ignored(_) => EXIT_FINE,
            Self::Refused(..) => EXIT_FINDINGS,
            Self::Unsure => EXIT_FAILED,
        }
    }

    pub(super) fn decision(&self) -> &'static str {
        match self {
            Self::Admitted => "admit",
            Self::Ignored(_) => "ignore",
            Self::Refused(..) => "refuse",
            Self::Unsure => "unknown",
        }
    }
}

impl Case {
    pub(super) fn write_text(&self, output: &mut Output<'_>) -> Result<(), Error> {
        match &self.finding {
            Finding::Admitted => writeln!(output.out, "{}", Reason::Admitted)?,
            Finding::Ignored(why) => writeln!(output.out, "not judged: {why}")?,
            Finding::Refused(_, text) => writeln!(output.out, "{text}")?,
            Finding::Unsure => writeln!(output.out, "cannot tell: run this as root")?,
        }
        for (word, text) in &self.evidence {
            writeln!(output.out, "{word}: {text}")?;
        }
        Ok(())
    }

    pub(super) fn write_json(&self, output: &mut Output<'_>) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            schema: u32,
            decision: &'static str,
            code: Option<&'static str>,
            text: Option<&'a str>,
            evidence: Vec<Line<'a>>,
        }
        #[derive(Serialize)]
        struct Line<'a> {
            key: &'a str,
            value: &'a str,
        }
        let (code, text) = match &self.finding {
            Finding::Admitted => (Some(Reason::Admitted.as_str()), None),
            Finding::Refused(reason, text) => (Some(reason.as_str()), Some(text.as_str())),
            Finding::Ignored(why) => (None, Some(why.as_str())),
            Finding::Unsure => (None, None),
        };
        let evidence = self.evidence.iter().map(|(key, value)| Line { key, value }).collect();
        let decision = self.finding.decision();
        let shown = serde_json::to_string(&Shown { schema: 1, decision, code, text, evidence });
        writeln!(output.out, "{}", shown.map_err(std::io::Error::from)?)?;
        Ok(())
    }
}
