//! `compare`: counts how often this module, while it observes, agrees with the rival module in the
//! stack.

use clap::Args;
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE};
use command::output::Output;
use facts::journal::{LogEntry, read_file, read_journal};
use helper::printable;
use protocol::{Decision, Phase};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// Sum up where the module that observes and the one beside it differ
#[derive(Debug, Args)]
#[command(after_help = "\
Reads what the module logged with observe beside pam_slurm_adopt, pam_flux or pam_oar_adopt: where that
put each login, and what ours would have done. Reads the journal of this boot unless a log file is given.
Exit status: 0 they agree on every login, 1 they differ, 2 wrong usage, 3 no login was seen, or the log cannot be read.")]
pub struct Options {
    /// A log file in place of the journal
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs `compare`: counts on which logins of the log the module and its rival agree. Returns [`EXIT_FINDINGS`] if they
/// differ on one, and [`EXIT_FAILED`] if the log has no login that was compared.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let mut comparison = Comparison::default();
    let mut add = |entry| comparison.add(entry);
    match &options.log {
        Some(path) => read_file(path, &mut add)?,
        None => drop(read_journal(None, &mut add)?),
    }
    comparison.count_waiting();
    if options.json {
        output.json(&comparison.to_json())?;
    } else {
        comparison.write(output)?;
    }
    Ok(if comparison.logins == 0 {
        EXIT_FAILED
    } else if comparison.agreed == comparison.logins {
        EXIT_FINE
    } else {
        EXIT_FINDINGS
    })
}

/// A kind of difference: its key in JSON, and its text. A login without a session was refused, or its
/// user never requested one.
type Difference = (&'static str, &'static str);

const ONLY_OURS_REFUSES: Difference = (
    "only-ours-refuses",
    "theirs let the login in, ours would refuse it",
);
const ONLY_THEIRS_REFUSES: Difference = (
    "only-theirs-refuses",
    "ours would let the login in, and no session followed",
);
const ELSEWHERE: Difference = (
    "elsewhere",
    "theirs left the login outside of the job that ours would join",
);

/// The parts of an example: the key in JSON, the key in the log, and the word in the text.
const EXAMPLE_KEYS: [(&str, &str, &str); 5] = [
    ("user", "user", "user"),
    ("code", "code", "code"),
    ("theirs", "theirs", "theirs"),
    ("ours", "cgroup", "ours"),
    ("error", "error", "why"),
];

/// The counts of a log.
#[derive(Debug, Default)]
struct Comparison {
    logins: u64,
    agreed: u64,
    /// The number of differences of each kind, and the latest one.
    differences: BTreeMap<Difference, (u64, LogEntry)>,
    /// The account lines of each user, for which no session has come yet.
    waiting: BTreeMap<String, VecDeque<LogEntry>>,
}

impl Comparison {
    /// Takes an entry of an observing module; others are left out. An account entry waits for a session of the same
    /// user, with which the login is counted.
    fn add(&mut self, entry: LogEntry) {
        if entry.decision("decision") != Some(Decision::Observe) {
            return;
        }
        match entry.phase() {
            Some(Phase::Account) => {
                let user = entry.get("user").to_owned();
                self.waiting.entry(user).or_default().push_back(entry);
            }
            Some(Phase::Session) => self.add_session(entry),
            None => {}
        }
    }

    /// Compares a login whose session has begun, and so was let in by the rival module, with what ours would
    /// have done. The user's oldest account entry waits no longer.
    fn add_session(&mut self, entry: LogEntry) {
        // "yes" if theirs has put the login into the job that ours would join; empty if the module did not compare.
        let agree = entry.get("agree");
        if agree.is_empty() {
            return;
        }
        self.waiting
            .get_mut(entry.get("user"))
            .and_then(VecDeque::pop_front);
        let difference = match entry.decision("would") {
            Some(Decision::Exempt) => None,
            Some(Decision::Adopt) if agree == "yes" => None,
            Some(Decision::Adopt) => Some(ELSEWHERE),
            _ => Some(ONLY_OURS_REFUSES),
        };
        self.count(entry, difference);
    }

    /// Counts logins without a session as refused by the rival module.
    fn count_waiting(&mut self) {
        for entry in std::mem::take(&mut self.waiting).into_values().flatten() {
            let difference = match entry.decision("would") {
                Some(Decision::Refuse) => None,
                _ => Some(ONLY_THEIRS_REFUSES),
            };
            self.count(entry, difference);
        }
    }

    /// Counts a login under its difference, of which `entry` is the latest example; `None` counts it as
    /// agreed.
    fn count(&mut self, entry: LogEntry, difference: Option<Difference>) {
        self.logins += 1;
        let Some(difference) = difference else {
            self.agreed += 1;
            return;
        };
        let before = self
            .differences
            .get(&difference)
            .map_or(0, |(count, _)| *count);
        self.differences.insert(difference, (before + 1, entry));
    }

    /// Shows the counts as JSON, with the latest example of each difference.
    fn to_json(&self) -> Value {
        let mut differences = Map::new();
        for ((kind, _), (count, entry)) in &self.differences {
            let mut object = Map::new();
            for (key, log_key, _) in EXAMPLE_KEYS {
                object.insert(key.to_owned(), entry.get(log_key).into());
            }
            object.insert("count".to_owned(), (*count).into());
            object.insert("at".to_owned(), entry.at.into());
            differences.insert((*kind).to_owned(), object.into());
        }
        let Self { logins, agreed, .. } = self;
        json!({ "schema": 1, "logins": logins, "agreed": agreed, "differences": differences })
    }

    /// Writes the counts as text, with the latest example of each difference. A log without compared logins
    /// gives a warning.
    fn write(&self, output: &mut Output<'_>) -> Result<(), Error> {
        let Self { logins, agreed, .. } = self;
        writeln!(
            output.out,
            "logins: {logins}, agreed: {agreed}, differed: {}",
            logins - agreed
        )?;
        for ((_, text), (count, entry)) in &self.differences {
            writeln!(output.out, "{count}: {text}")?;
            let mut parts = Vec::new();
            for (_, log_key, word) in EXAMPLE_KEYS {
                let value = entry.get(log_key);
                if !value.is_empty() {
                    parts.push(format!("{word} {}", printable(value)));
                }
            }
            writeln!(output.out, "  for example: {}", parts.join(", "))?;
        }
        if *logins == 0 {
            output.warn("the log has no login that was compared; see observe in pam_job_adopt(8)");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn compare(lines: &[&str]) -> (u8, String) {
        let scratch = Scratch::new();
        let lines = lines
            .iter()
            .map(|line| format!("sshd[1]: pam_job_adopt(sshd:x): decision={line}\n"));
        let log = Some(scratch.file("auth.log", &lines.collect::<String>()));
        let mut out = Vec::new();
        let mut err = Vec::new();
        let mut output = Output {
            out: &mut out,
            err: &mut err,
        };
        let code = execute(
            &Options {
                log: log.clone(),
                json: false,
            },
            &mut output,
        )
        .unwrap();
        let mut json = Vec::new();
        let mut json_output = Output {
            out: &mut json,
            err: &mut err,
        };
        execute(&Options { log, json: true }, &mut json_output).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["schema"], 1);
        (code, String::from_utf8(out).unwrap())
    }

    const FINE: [&str; 2] = [
        "observe code=JA00 user=a phase=account would=adopt",
        "observe code=JA00 user=a phase=session cgroup=/j would=adopt theirs=/j agree=yes",
    ];

    #[test]
    fn agreement_is_only_counted() {
        // Both modules refuse the second login.
        let both = "observe code=JA01 user=b phase=account would=refuse";
        let (code, text) = compare(&[FINE[0], FINE[1], both]);
        assert_eq!(
            (code, text.as_str()),
            (0, "logins: 2, agreed: 2, differed: 0\n")
        );
        // Ours lets an exempt user in as theirs does.
        let exempt = |phase: &str| {
            format!("observe code=JA01 user=o phase={phase} would=exempt theirs=/s agree=no")
        };
        let only_exempt = compare(&[&exempt("account"), &exempt("session")]);
        assert_eq!(
            only_exempt,
            (0, "logins: 1, agreed: 1, differed: 0\n".to_owned())
        );
        // Theirs refuses one.
        let (status, refused) =
            compare(&[&exempt("account"), &exempt("session"), &exempt("account")]);
        assert_eq!(status, 1);
        assert!(
            refused.starts_with("logins: 2, agreed: 1, differed: 1\n"),
            "{refused}"
        );
        assert_eq!(compare(&["adopt code=JA00 user=a phase=session"]).0, 3);
    }

    #[test]
    fn each_kind_of_difference_has_an_example() {
        let (code, text) = compare(&[
            FINE[0],
            "observe code=JA01 user=b phase=account would=refuse",
            "observe code=JA01 user=b phase=session would=refuse theirs=/s agree=no error=\"no job\"",
            FINE[1],
            "observe code=JA00 user=c phase=account would=adopt cgroup=/k",
            "observe code=JA00 user=c phase=session cgroup=/k would=adopt theirs=/user.slice agree=no",
            "observe code=JA00 user=d phase=account would=adopt cgroup=/l",
        ]);
        assert_eq!(code, 1);
        for line in [
            "logins: 4, agreed: 1, differed: 3",
            "1: theirs let the login in, ours would refuse it",
            "  for example: user b, code JA01, theirs /s, why no job",
            "1: ours would let the login in, and no session followed",
            "  for example: user d, code JA00, ours /l",
            "1: theirs left the login outside of the job that ours would join",
            "  for example: user c, code JA00, theirs /user.slice, ours /k",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }
}
