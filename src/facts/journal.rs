//! Reads the module's lines from the log: from the journal, where a cursor continues behind the last reader, or from a
//! file of a syslog daemon. What the module answers to a trial is of no login, and left out. Of the journal's last part,
//! the lines of sshd that admit a user are read too.

use command::accounts::run_as_helper;
use command::error::Error;
use kernel::log::{self, Line, Severity};
use protocol::{Decision, Phase};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Start of every message of the module, before `SERVICE:PHASE): `.
const MESSAGE_PREFIX: &str = "pam_job_adopt(";
/// The name by which the command logs.
const COMMAND: &str = "job-adopt";
/// The group that may read the journal (systemd-journald(8)).
const JOURNAL_GROUP: &str = "systemd-journal";
/// Maximum entries of the journal's last part that are read: the logins of an hour, three each second.
const RECENT_ENTRIES_MAX: u32 = 40_000;
/// Maximum bytes of a line: more than the module and a syslog daemon write.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Whether the messages of a program count: OpenSSH's, under its own names, and the command's. Other programs of root log
/// text that users choose.
fn is_login_program(program: &str) -> bool {
    program == COMMAND || keeper::sshd::PROGRAMS.contains(&program)
}

/// A line of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The time of the line, in seconds since the epoch. For a line in a file it is the time of the
    /// file's last change.
    pub at: i64,
    pairs: BTreeMap<String, String>,
}

impl LogEntry {
    /// Parses a message; `None` for one that does not begin as the module's messages do. sshd logs
    /// names that clients choose, so the prefix may occur later in a message of another origin.
    fn parse(message: &str, at: i64) -> Option<Self> {
        let (_, text) = message.strip_prefix(MESSAGE_PREFIX)?.split_once("): ")?;
        Some(Self {
            at,
            pairs: parse_pairs(text),
        })
    }

    /// Parses a line of a file: time and host, `PROGRAM[PID]: ` and the message. `None` for a line of another
    /// program, and for a message that is none of the module.
    fn parse_line(line: &str, at: i64) -> Option<Self> {
        let (head, message) = line.split_once(": ")?;
        let program = head.rsplit(' ').next()?.split('[').next()?;
        if is_login_program(program) {
            Self::parse(message, at)
        } else {
            None
        }
    }

    /// Makes a line of these pairs, as the module writes them.
    pub fn from_pairs(text: &str, at: i64) -> Self {
        Self {
            at,
            pairs: parse_pairs(text),
        }
    }

    /// The value of a key; empty if the line lacks the key.
    pub fn get(&self, key: &str) -> &str {
        self.pairs.get(key).map(String::as_str).unwrap_or_default()
    }

    /// The decision that a key has as its value; `None` for another value.
    pub fn decision(&self, key: &str) -> Option<Decision> {
        self.get(key).parse().ok()
    }

    /// The phase of the line; `None` for a line without one.
    pub fn phase(&self) -> Option<Phase> {
        self.get("phase").parse().ok()
    }
}

/// Parses the pairs of a line in the form of [`kernel::log::Line`]. Of several values of a key the last counts, and a
/// rest without `=` is dropped.
fn parse_pairs(text: &str) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    let mut rest = text;
    while let Some((key, after)) = rest.trim_start().split_once('=') {
        let (value, tail) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (value, tail) = after.split_once(' ').unwrap_or((after, ""));
                (value.to_owned(), tail)
            }
        };
        pairs.insert(key.to_owned(), value);
        rest = tail;
    }
    pairs
}

/// Reads a quoted value, given the text behind its opening quote. Returns the value, in which a character
/// behind a backslash stands for itself, and the text behind the closing quote. Without a closing quote the
/// value is all of the text.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
    (value, chars.as_str())
}

/// The key of the lines around a question of `enable --try`.
const TRY_KEY: &str = "try";
const TRY_BEGIN: &str = "begin";
const TRY_END: &str = "end";
/// Maximum decisions of the module on one question: one for each phase.
const TRY_DECISIONS_MAX: u8 = 2;

/// Logs that `ask`, which is called between two lines, asks a stack about this user: the module logs its decision as it
/// does at a login.
pub fn log_question<T>(service: &str, user: &str, ask: impl FnOnce() -> T) -> T {
    let write = |word: &str| {
        let line = Line::new(Severity::Info)
            .with("user", user)
            .with(TRY_KEY, word);
        let prefix = format!("{MESSAGE_PREFIX}{service}:try): ");
        log::write(&[line], Severity::Info, "job-adopt", &prefix);
    };
    write(TRY_BEGIN);
    let answer = ask();
    write(TRY_END);
    answer
}

/// The questions of trials in a log that have no end yet: for each user the decisions that may still follow. A trial
/// that was killed hides no more than these.
#[derive(Debug, Default)]
struct Questions(BTreeMap<String, u8>);

impl Questions {
    /// Returns whether the entry is of a login. One of a trial's question is counted.
    fn is_login(&mut self, entry: &LogEntry) -> bool {
        let user = entry.get("user");
        match entry.get(TRY_KEY) {
            TRY_BEGIN => {
                self.0.insert(user.to_owned(), TRY_DECISIONS_MAX);
                return false;
            }
            TRY_END => {
                self.0.remove(user);
                return false;
            }
            _ => {}
        }
        let Some(left) = self.0.get_mut(user) else {
            return true;
        };
        if entry.phase().is_some() {
            *left -= 1;
            if *left == 0 {
                self.0.remove(user);
            }
        }
        false
    }

    /// Returns whether the message is of a login, as [`Questions::is_login`] does for a line of the module. sshd's own
    /// are of logins.
    fn is_login_message(&mut self, message: &LoginMessage) -> bool {
        match &message.content {
            LoginContent::Module(entry) => self.is_login(entry),
            LoginContent::Accepted(_) => true,
        }
    }
}

/// Returns what passes the module's lines on logins on to `each`, without those on questions of a trial.
fn without_questions(each: &mut dyn FnMut(LogEntry)) -> impl FnMut(LogEntry) {
    let mut questions = Questions::default();
    move |entry| {
        if questions.is_login(&entry) {
            each(entry);
        }
    }
}

/// Calls `each` for every line of the module on a login in the journal: behind the cursor `after`, or without one since
/// the node's last start. Returns the cursor of the journal's last entry, or `after` if there is no new one.
///
/// # Errors
///
/// [`Error::Failed`] if the journal cannot be read, or does not know the cursor.
pub fn read_journal(
    after: Option<&str>,
    each: &mut dyn FnMut(LogEntry),
) -> Result<Option<String>, Error> {
    let start = match after {
        Some(cursor) => format!("--after-cursor={cursor}"),
        None => "--boot".to_owned(),
    };
    let mut each_login = without_questions(each);
    let mut last = after.map(str::to_owned);
    query_journal(&[start], &mut |entry| {
        if let Some(log_entry) = entry.to_log_entry() {
            each_login(log_entry);
        }
        last = Some(entry.cursor);
    })?;
    Ok(last)
}

/// Calls `each` for every line of the module on a login in the file of a syslog daemon. A line of more than
/// `LINE_BYTES_MAX` bytes is taken in pieces of that size.
///
/// # Errors
///
/// [`Error::Failed`] if the file cannot be read.
pub fn read_file(path: &Path, each: &mut dyn FnMut(LogEntry)) -> Result<(), Error> {
    let failed = |error| Error::failed("read", path.display(), error);
    let file = File::open(path).map_err(failed)?;
    let at = file.metadata().map_err(failed)?.mtime();
    let mut each_login = without_questions(each);
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut piece = reader.by_ref().take(LINE_BYTES_MAX);
        let count = piece.read_until(b'\n', &mut line).map_err(failed)?;
        if count == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(entry) = LogEntry::parse_line(text.trim_end_matches('\n'), at) {
            each_login(entry);
        }
    }
}

/// A message about a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginMessage {
    /// The process that wrote it, 0 if the journal does not know that. The one that opens a user's session has logged
    /// before that sshd accepts the user.
    pub pid: i32,
    /// The time of the message, in seconds since the epoch.
    pub at: i64,
    /// What it says.
    pub content: LoginContent,
}

/// What a message about a login says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginContent {
    /// A line of the module.
    Module(LogEntry),
    /// sshd has authenticated this user, whom PAM's account phase has admitted (OpenSSH's `auth_log`).
    Accepted(String),
}

/// Calls `each` for the module's lines on logins, and for those in which sshd accepts a user, that this boot's journal has
/// since the time `since`; of very many for the last ones.
///
/// # Errors
///
/// As [`read_journal`].
pub fn read_recent(since: i64, each: &mut dyn FnMut(LoginMessage)) -> Result<(), Error> {
    // Facility 4 is auth, to which sshd writes unless its configuration says otherwise.
    let arguments = [
        "--boot".to_owned(),
        format!("--since=@{since}"),
        format!("--lines={RECENT_ENTRIES_MAX}"),
        "SYSLOG_FACILITY=4".to_owned(),
    ];
    let mut questions = Questions::default();
    query_journal(&arguments, &mut |entry| {
        let Some(message) = entry.to_login_message() else {
            return;
        };
        if questions.is_login_message(&message) {
            each(message);
        }
    })
}

/// An entry in the output of `journalctl --output=json`.
#[derive(Deserialize)]
struct JournalEntry {
    #[serde(rename = "__CURSOR")]
    cursor: String,
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    micros: String,
    /// The message: a string, or numbers if it is no valid text.
    #[serde(rename = "MESSAGE", default)]
    message: serde_json::Value,
    /// The file that the process ran. It is missing if the process ended before the journal read it, as
    /// sshd often does after a refusal.
    #[serde(rename = "_EXE")]
    executable: Option<PathBuf>,
    /// The name that the process gave itself.
    #[serde(rename = "SYSLOG_IDENTIFIER", default)]
    identifier: serde_json::Value,
    /// The number of the process.
    #[serde(rename = "_PID", default)]
    pid: serde_json::Value,
}

impl JournalEntry {
    /// The message and its time; `None` if a program other than those of logins and the command wrote it, and if it is no text. The program is
    /// the file that the process ran, or the name that it gave itself if the journal does not know the file. A time that
    /// is no number counts as 0.
    fn message(&self) -> Option<(&str, i64)> {
        let program = match &self.executable {
            Some(file) => file.file_name()?.to_str()?,
            None => self.identifier.as_str()?,
        };
        let at = self.micros.parse::<i64>().unwrap_or_default() / 1_000_000;
        let message = self.message.as_str()?;
        is_login_program(program).then_some((message, at))
    }

    /// Parses a line of the module; `None` for another message.
    fn to_log_entry(&self) -> Option<LogEntry> {
        let (message, at) = self.message()?;
        LogEntry::parse(message, at)
    }

    /// Parses a message about a login; `None` for another one.
    fn to_login_message(&self) -> Option<LoginMessage> {
        let (message, at) = self.message()?;
        let content = match LogEntry::parse(message, at) {
            Some(entry) => LoginContent::Module(entry),
            None => LoginContent::Accepted(parse_accepted(message)?.to_owned()),
        };
        let pid = self.pid.as_str().and_then(|pid| pid.parse().ok());
        Some(LoginMessage {
            // 0: the journal does not know it.
            pid: pid.unwrap_or_default(),
            at,
            content,
        })
    }
}

/// Finds the user in sshd's message that it accepts one: `Accepted METHOD for USER from ADDRESS`. `None` in another one.
fn parse_accepted(message: &str) -> Option<&str> {
    let (_, rest) = message.strip_prefix("Accepted ")?.split_once(" for ")?;
    let (user, _) = rest.rsplit_once(" from ")?;
    Some(user)
}

/// Gives each entry that root wrote to authpriv, the module's facility, to `each`: every user may write to the journal,
/// which records the writer's uid. `arguments` say which part of the journal is read, and name further facilities. It
/// fails with [`Error::Failed`] if journalctl cannot be run, fails, or prints something else than entries.
fn query_journal(arguments: &[String], each: &mut dyn FnMut(JournalEntry)) -> Result<(), Error> {
    let failed = |cause: &dyn std::fmt::Display| Error::failed("run", "journalctl", cause);
    let mut command = Command::new("journalctl");
    command.args([
        "--quiet",
        "--no-pager",
        "--output=json",
        "--output-fields=MESSAGE,_EXE,SYSLOG_IDENTIFIER,_PID",
    ]);
    run_as_helper(&mut command, Some(JOURNAL_GROUP)).map_err(|why| failed(&why))?;
    // Facility 10 is authpriv.
    let mut child = command
        .args(arguments)
        .args(["_UID=0", "SYSLOG_FACILITY=10"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines())
    {
        let line = line.map_err(|error| failed(&error))?;
        each(serde_json::from_str(&line).map_err(|error| failed(&error))?);
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    if !status.success() {
        return Err(failed(&status));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use kernel::log::{Line, Severity};

    const HEAD: &str = "Nov 22 23:00:00 n sshd[1]: pam_job_adopt(sshd:session): ";

    #[test]
    fn line_of_module_is_parsed_back() {
        let nasty = "a \"b\" \\ c=d";
        let line = Line::new(Severity::Info)
            .with("decision", "adopt")
            .with("error", nasty)
            .with("ms", 4);
        let entry = LogEntry::parse_line(&format!("{HEAD}{}", line.text()), 7).unwrap();
        assert_eq!(
            [entry.get("decision"), entry.get("error"), entry.get("ms")],
            ["adopt", nasty, "4"]
        );
        assert_eq!((entry.at, entry.get("code")), (7, ""));
        for other in [
            "sshd[1]: Accepted publickey",
            "sshd[1]: pam_job_adopt(sshd",
            "sshd[1]: pam_unix(sshd:session): x",
        ] {
            assert_eq!(LogEntry::parse_line(other, 0), None);
        }
    }

    const FORGED: &str = "pam_job_adopt(sshd:session): decision=adopt code=JA00 phase=session";

    #[test]
    fn prefix_within_message_is_no_line_of_module() {
        let line = |message: &str| format!("Nov 22 23:00:00 n sshd[1]: {message}");
        assert!(LogEntry::parse_line(&line(FORGED), 0).is_some());
        for name in [FORGED.to_owned(), format!("x: {FORGED}")] {
            let message = format!("Invalid user {name} from 10.0.0.1 port 4242");
            assert_eq!(LogEntry::parse_line(&line(&message), 0), None, "{message}");
        }
        for program in ["su", "xsshd", "sshd: x", "sshd-fake[1]"] {
            let of_other = format!("Nov 22 23:00:00 n {program}: {FORGED}");
            assert_eq!(LogEntry::parse_line(&of_other, 0), None, "{of_other}");
        }
    }

    #[test]
    fn journal_message_counts_if_sshd_or_command_wrote_text() {
        let entry = |more: &str| {
            let text = format!(r#"{{"__CURSOR":"c","__REALTIME_TIMESTAMP":"7000000"{more}}}"#);
            serde_json::from_str::<JournalEntry>(&text)
                .unwrap()
                .to_log_entry()
        };
        let ours = |file: &str| entry(&format!(r#","MESSAGE":"{FORGED}","_EXE":"{file}""#));
        for file in [
            "/usr/sbin/sshd",
            "/usr/lib/openssh/sshd-session",
            "/usr/bin/job-adopt",
        ] {
            assert_eq!(ours(file).unwrap().at, 7, "{file}");
        }
        for file in ["/usr/bin/su", "/usr/bin/logger", "/", ""] {
            assert_eq!(ours(file), None, "{file}");
        }
        let gone = |name: &str| {
            entry(&format!(
                r#","MESSAGE":"{FORGED}","SYSLOG_IDENTIFIER":"{name}""#
            ))
        };
        assert!(gone("sshd").is_some(), "its name is all that is known");
        assert_eq!(gone("su"), None);
        let named_sshd = r#","_EXE":"/usr/bin/su","SYSLOG_IDENTIFIER":"sshd""#;
        assert_eq!(
            entry(&format!(r#","MESSAGE":"{FORGED}"{named_sshd}"#)),
            None
        );
        assert_eq!(
            entry(&format!(r#","MESSAGE":"{FORGED}""#)),
            None,
            "nobody knows the program"
        );
        assert_eq!(
            entry(r#","MESSAGE":[112,97],"_EXE":"/usr/sbin/sshd""#),
            None
        );
    }

    #[test]
    fn message_about_a_login_has_its_process() {
        let parse = |message: &str| {
            let text = format!(
                r#"{{"__CURSOR":"c","__REALTIME_TIMESTAMP":"7000000","_PID":"42","_EXE":"/usr/sbin/sshd","MESSAGE":"{message}"}}"#
            );
            serde_json::from_str::<JournalEntry>(&text)
                .unwrap()
                .to_login_message()
        };
        let accepted =
            parse("Accepted publickey for alice from 10.0.0.1 port 4242 ssh2: ED25519 x");
        let content = LoginContent::Accepted("alice".to_owned());
        let (pid, at) = (42, 7);
        assert_eq!(accepted, Some(LoginMessage { pid, at, content }));
        let of_module = parse(FORGED).unwrap();
        assert!(of_module.pid == 42 && matches!(of_module.content, LoginContent::Module(_)));
        for other in [
            "Failed password for alice from 10.0.0.1 port 1 ssh2",
            "Accepted x",
            "Connection closed by invalid user Accepted x for root from 1 port 2",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn lines_of_file_are_read_to_its_end() {
        let scratch = Scratch::new();
        let line = |id: &str| format!("{HEAD}decision=adopt job={id}\n");
        let long = "x".repeat(LINE_BYTES_MAX as usize + 1);
        let text = [&line("1"), "other\n", &long, "\n", line("2").trim_end()].concat();
        let mut ids = Vec::new();
        read_file(&scratch.file("auth.log", &text), &mut |entry| {
            ids.push(entry.get("job").to_owned())
        })
        .unwrap();
        assert_eq!(ids, ["1", "2"]);
        assert!(read_file(&scratch.path().join("none"), &mut |_| ()).is_err());
    }

    /// They are written by the module, in a process of the command, as at a login.
    #[test]
    fn questions_of_a_trial_are_no_logins() {
        let decision = |user: &str, job: u8| {
            format!("{HEAD}decision=observe job={job} user={user} phase=account would=adopt\n")
        };
        let question = |user: &str, word: &str| {
            format!(
                "Nov 22 23:00:00 n job-adopt[2]: pam_job_adopt(sshd:try): user={user} try={word}\n"
            )
        };
        let text = [
            decision("a", 1),
            question("a", "begin"),
            decision("a", 2),
            decision("b", 3),
            question("a", "end"),
            decision("a", 4),
            // A killed trial writes no end.
            question("b", "begin"),
            decision("b", 5),
            decision("b", 6),
            decision("b", 7),
        ];
        let scratch = Scratch::new();
        let mut ids = Vec::new();
        read_file(&scratch.file("auth.log", &text.concat()), &mut |entry| {
            ids.push(entry.get("job").to_owned())
        })
        .unwrap();
        assert_eq!(ids, ["1", "3", "4", "7"]);
    }

    #[test]
    fn recent_messages_have_no_questions_of_a_trial() {
        let mut questions = Questions::default();
        let mut is_login = |content: LoginContent| {
            questions.is_login_message(&LoginMessage {
                pid: 1,
                at: 7,
                content,
            })
        };
        let line = |text: &str| LoginContent::Module(LogEntry::from_pairs(text, 7));
        let refused = "decision=refuse code=JA09 user=a phase=account";
        assert!(!is_login(line("user=a try=begin")));
        assert!(!is_login(line(refused)));
        assert!(is_login(LoginContent::Accepted("a".to_owned())));
        assert!(!is_login(line("user=a try=end")));
        assert!(is_login(line(refused)));
    }
}
