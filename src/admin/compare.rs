//! `compare`: how often this module, which observes, and the one beside it in the stack agree.

use super::journal::{self, Entry};
use super::{Error, Output};
use clap::Args;
use helper::printable;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// Sum up where the module that observes and the one beside it differ
#[derive(Debug, Args)]
#[command(after_help = "\
Reads what the module logged with observe beside pam_slurm_adopt or pam_flux: where that put each login, and
what ours would have done. Reads the journal of this boot unless a log file is given.
Exit status: 0 they agree on every login, 1 they differ, 2 wrong usage, 3 no login was seen, or the log cannot be read.")]
pub(super) struct Options {
    /// A log file in place of the journal
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let mut sum = Sum::default();
    journal::read(options.log.as_deref(), None, &mut |entry| sum.add(entry))?;
    sum.end();
    match options.json {
        true => output.json(&sum.json())?,
        false => sum.write(output)?,
    }
    Ok(match () {
        () if sum.logins == 0 => super::EXIT_FAILED,
        () if sum.agreed == sum.logins => super::EXIT_FINE,
        () => super::EXIT_FINDINGS,
    })
}

/// How the two came apart: the key in JSON, and what people read. A login that has no session was refused,
/// or its user never asked for one.
type Difference = (&'static str, &'static str);

const ONLY_OURS_REFUSES: Difference =
    ("only-ours-refuses", "theirs let the login in, ours would refuse it");
const ONLY_THEIRS_REFUSES: Difference =
    ("only-theirs-refuses", "ours would let the login in, and no session followed");
const ELSEWHERE: Difference =
    ("elsewhere", "theirs left the login outside of the job that ours would join");

/// What an example tells: the key in JSON, that in the log, and what people read.
const EXAMPLE: [(&str, &str, &str); 5] = [
    ("user", "user", "user"),
    ("code", "code", "code"),
    ("theirs", "theirs", "theirs"),
    ("ours", "cgroup", "ours"),
    ("error", "error", "why"),
];

/// What the log comes to.
#[derive(Debug, Default)]
struct Sum {
    logins: u64,
    agreed: u64,
    /// How many there were of each kind, and the latest.
    differences: BTreeMap<Difference, (u64, Entry)>,
    /// What each user's account lines said, for which no session has come yet.
    waiting: BTreeMap<String, VecDeque<Entry>>,
}

impl Sum {
    fn add(&mut self, entry: Entry) {
        if entry.get("decision") != "observe" {
            return;
        }
        let user = entry.get("user").to_owned();
        match entry.get("phase") {
            "account" => self.waiting.entry(user).or_default().push_back(entry),
            // Of a version that does not compare.
            "session" if entry.get("agree").is_empty() => {}
            "session" => {
                self.waiting.get_mut(&user).and_then(VecDeque::pop_front);
                let difference = match (entry.get("agree"), entry.get("would")) {
                    ("yes", "adopt") => None,
                    (_, "adopt") => Some(ELSEWHERE),
                    _ => Some(ONLY_OURS_REFUSES),
                };
                self.count(entry, difference);
            }
            _ => {}
        }
    }

    /// Logins without a session count as refused by the other module.
    fn end(&mut self) {
        for entry in std::mem::take(&mut self.waiting).into_values().flatten() {
            let joins = entry.get("would") == "adopt";
            self.count(entry, joins.then_some(ONLY_THEIRS_REFUSES));
        }
    }

    fn count(&mut self, entry: Entry, difference: Option<Difference>) {
        self.logins += 1;
        let Some(difference) = difference else {
            self.agreed += 1;
            return;
        };
        let before = self.differences.get(&difference).map_or(0, |(count, _)| *count);
        self.differences.insert(difference, (before + 1, entry));
    }

    fn json(&self) -> Value {
        let differences = self.differences.iter().map(|((key, _), (count, entry))| {
            let example = EXAMPLE.map(|(key, log, _)| (key.to_owned(), entry.get(log).into()));
            let mut found = Map::from_iter(example);
            found.insert("count".into(), (*count).into());
            found.insert("at".into(), entry.at.into());
            ((*key).to_owned(), found.into())
        });
        let differences = Map::from_iter(differences);
        let Self { logins, agreed, .. } = self;
        json!({ "schema": 1, "logins": logins, "agreed": agreed, "differences": differences })
    }

    fn write(&self, output: &mut Output<'_>) -> Result<(), Error> {
        let Self { logins, agreed, .. } = self;
        writeln!(output.out, "logins: {logins}, agreed: {agreed}, differed: {}", logins - agreed)?;
        for ((_, text), (count, entry)) in &self.differences {
            writeln!(output.out, "{count}: {text}")?;
            let example = EXAMPLE.map(|(_, log, word)| (word, printable(entry.get(log))));
            let said = example.iter().filter(|(_, text)| !text.is_empty());
            let said: Vec<_> = said.map(|(word, text)| format!("{word} {text}")).collect();
            writeln!(output.out, "  for example: {}", said.join(", "))?;
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

    fn of(lines: &[&str]) -> (u8, String) {
        let scratch = Scratch::new();
        let lines =
            lines.iter().map(|line| format!("sshd[1]: pam_job_adopt(sshd:x): decision={line}\n"));
        let log = Some(scratch.file("auth.log", &lines.collect::<String>()));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output { out: &mut out, err: &mut err };
        let code = execute(&Options { log: log.clone(), json: false }, &mut output).unwrap();
        let mut json = Vec::new();
        let mut output = Output { out: &mut json, err: &mut err };
        execute(&Options { log, json: true }, &mut output).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["schema"], 1);
        (code, String::from_utf8(out).unwrap())
    }

    const FINE: [&str; 2] = [
        "observe code=JA00 user=a phase=account would=adopt",
        "observe code=JA00 user=a phase=session cgroup=/j would=adopt theirs=/j agree=yes",
    ];

    #[test]
    fn who_agrees_is_only_counted() {
        // Both refuse the second.
        let both = "observe code=JA01 user=b phase=account would=refuse";
        let (code, text) = of(&[FINE[0], FINE[1], both]);
        assert_eq!((code, text.as_str()), (0, "logins: 2, agreed: 2, differed: 0\n"));
        assert_eq!(of(&["adopt code=JA00 user=a phase=session"]).0, 3);
    }

    #[test]
    fn each_kind_of_difference_has_an_example() {
        let (code, text) = of(&[
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
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}
