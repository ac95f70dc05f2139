//! The module's own lines in the log: in the journal, or in a file of a syslog daemon, from where the
//! last reader stopped.

use super::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Start of every message of the module, before `SERVICE:PHASE): `.
const PREFIX: &str = "pam_job_adopt(";
/// Programs whose messages count: sshd's (since OpenSSH 9.8 of several files) and the command. Other
/// programs of root log text that users choose.
const PROGRAMS: [&str; 4] = ["sshd", "sshd-session", "sshd-auth", "job-adopt"];
/// More than the module writes, and than a syslog daemon puts before it.
const LINE_MAX: u64 = 64 * 1024;

/// How far the log was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Cursor {
    /// As journalctl(1) names it.
    Journal(String),
    /// A file by its number, and the byte behind the last line.
    File { inode: u64, offset: u64 },
}

/// A line of the module's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// When it was written, in seconds since the epoch; of a file, when that was last written to.
    pub(super) at: i64,
    pairs: BTreeMap<String, String>,
}

impl Entry {
    /// Parses a message; `None` for one that does not begin as those of the module do. sshd logs what
    /// a client calls itself, so the prefix may stand anywhere else.
    fn parse(message: &str, at: i64) -> Option<Self> {
        let (_, text) = message.strip_prefix(PREFIX)?.split_once("): ")?;
        Some(Self { at, pairs: pairs(text) })
    }

    /// Parses a line of a file: time and host, `PROGRAM[PID]: ` and the message.
    fn parse_line(line: &str, at: i64) -> Option<Self> {
        let (head, message) = line.split_once(": ")?;
        let program = head.rsplit(' ').next()?.split('[').next()?;
        if PROGRAMS.contains(&program) { Self::parse(message, at) } else { None }
    }

    /// The value of a key; empty where it has none.
    pub(super) fn get(&self, key: &str) -> &str {
        self.pairs.get(key).map(String::as_str).unwrap_or_default()
    }
}

/// The pairs of a line as [`kernel::log::Line`] writes them.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let (mut pairs, mut rest) = (BTreeMap::new(), text);
    while let Some((key, after)) = rest.trim_start().split_once('=') {
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let (value, left) = after.split_once(' ').unwrap_or((after, ""));
                (value.to_owned(), left)
            }
        };
        pairs.insert(key.to_owned(), value);
        rest = left;
    }
    pairs
}

fn unquoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
    (value, chars.as_str())
}

/// Hands over each line of the module's that is behind the cursor; returns the new one. Without a cursor
/// it begins with this boot's part of the journal, or with the file.
/// Fails: [`Error::Failed`] where the log cannot be read.
pub(super) fn read(
    file: Option<&Path>,
    from: Option<&Cursor>,
    each: &mut dyn FnMut(Entry),
) -> Result<Option<Cursor>, Error> {
    match (file, from) {
        (None, Some(Cursor::Journal(cursor))) => read_journal(Some(cursor), each),
        (None, _) => read_journal(None, each),
        (Some(path), from) => read_files(path, from, each)
            .map(Some)
            .map_err(|error| Error::failed("read", path.display(), error)),
    }
}

/// One entry of `journalctl --output=json`.
#[derive(Deserialize)]
struct Exported {
    #[serde(rename = "__CURSOR")]
    cursor: String,
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    micros: String,
    /// Numbers, where it is no text.
    #[serde(rename = "MESSAGE", default)]
    message: serde_json::Value,
    /// The file that the process ran. Missing if the process was gone before the journal looked, as
    /// sshd's often is after a refusal.
    #[serde(rename = "_EXE")]
    executable: Option<PathBuf>,
    /// The name that the process gave itself.
    #[serde(rename = "SYSLOG_IDENTIFIER", default)]
    identifier: serde_json::Value,
}

impl Exported {
    fn entry(&self) -> Option<Entry> {
        let program = match &self.executable {
            Some(file) => file.file_name()?.to_str()?,
            None => self.identifier.as_str()?,
        };
        let at = self.micros.parse::<i64>().unwrap_or_default() / 1_000_000;
        if PROGRAMS.contains(&program) { Entry::parse(self.message.as_str()?, at) } else { None }
    }
}

/// Only what root has written: the journal knows who did, and everybody may write to the log.
fn read_journal(after: Option<&str>, each: &mut dyn FnMut(Entry)) -> Result<Option<Cursor>, Error> {
    let failed = |cause: &dyn std::fmt::Display| Error::failed("run", "journalctl", cause);
    let mut command = Command::new("journalctl");
    command.args([
        "--quiet",
        "--no-pager",
        "--output=json",
        "--output-fields=MESSAGE,_EXE,SYSLOG_IDENTIFIER",
    ]);
    match after {
        Some(cursor) => command.arg(format!("--after-cursor={cursor}")),
        None => command.arg("--boot"),
    };
    let command = command.args(["_UID=0", "SYSLOG_FACILITY=10"]).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| failed(&error))?;
    let mut last = after.map(str::to_owned);
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line.map_err(|error| failed(&error))?;
        let entry: Exported = serde_json::from_str(&line).map_err(|error| failed(&error))?;
        entry.entry().into_iter().for_each(&mut *each);
        last = Some(entry.cursor);
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    if !status.success() {
        return Err(failed(&status));
    }
    Ok(last.map(Cursor::Journal))
}

/// The file, and before it what is left of the one that was rotated away.
fn read_files(
    path: &Path,
    from: Option<&Cursor>,
    each: &mut dyn FnMut(Entry),
) -> std::io::Result<Cursor> {
    let file = File::open(path)?;
    let (inode, size) = (file.metadata()?.ino(), file.metadata()?.len());
    let mut offset = 0;
    if let Some(Cursor::File { inode: known, offset: read }) = from {
        let rotated = PathBuf::from(format!("{}.1", path.display()));
        if *known == inode {
            // One that was cut is read from its beginning.
            offset = if *read <= size { *read } else { 0 };
        } else if fs::metadata(&rotated).is_ok_and(|meta| meta.ino() == *known) {
            read_file(File::open(&rotated)?, *read, each)?;
        }
    }
    let offset = read_file(file, offset, each)?;
    Ok(Cursor::File { inode, offset })
}

/// Reads whole lines; returns where the last one ends.
fn read_file(mut file: File, mut offset: u64, each: &mut dyn FnMut(Entry)) -> std::io::Result<u64> {
    let at = file.metadata()?.mtime();
    file.seek(SeekFrom::Start(offset))?;
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    loop {
        line.clear();
        let count = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? as u64;
        if count == 0 || (count < LINE_MAX && !line.ends_with(b"\n")) {
            return Ok(offset);
        }
        offset += count;
        let text = String::from_utf8_lossy(&line);
        Entry::parse_line(text.trim_end_matches('\n'), at).into_iter().for_each(&mut *each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use kernel::log::{Line, Severity};

    const HEAD: &str = "Nov 22 23:00:00 n sshd[1]: pam_job_adopt(sshd:session): ";

    #[test]
    fn what_the_module_writes_is_read_back() {
        let nasty = "a \"b\" \\ c=d";
        let line = Line::new(Severity::Info).with("decision", "adopt").with("error", nasty);
        let line = line.with("ms", 4);
        let entry = Entry::parse_line(&format!("{HEAD}{}", line.text()), 7).unwrap();
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
            assert_eq!(Entry::parse_line(other, 0), None);
        }
    }

    const FORGED: &str = "pam_job_adopt(sshd:session): decision=adopt code=JA00 phase=session";

    #[test]
    fn prefix_within_a_message_is_no_line_of_the_module() {
        let line = |message: &str| format!("Nov 22 23:00:00 n sshd[1]: {message}");
        assert!(Entry::parse_line(&line(FORGED), 0).is_some());
        for name in [FORGED.to_owned(), format!("x: {FORGED}")] {
            let message = format!("Invalid user {name} from 10.0.0.1 port 4242");
            assert_eq!(Entry::parse_line(&line(&message), 0), None, "{message}");
        }
        for program in ["su", "xsshd", "sshd: x", "sshd-fake[1]"] {
            let line = format!("Nov 22 23:00:00 n {program}: {FORGED}");
            assert_eq!(Entry::parse_line(&line, 0), None, "{line}");
        }
    }

    #[test]
    fn message_in_journal_counts_if_a_program_of_sshd_wrote_it() {
        let entry = |more: &str| {
            let text = format!(r#"{{"__CURSOR":"c","__REALTIME_TIMESTAMP":"7000000"{more}}}"#);
            serde_json::from_str::<Exported>(&text).unwrap().entry()
        };
        let ours = |file: &str| entry(&format!(r#","MESSAGE":"{FORGED}","_EXE":"{file}""#));
        for file in ["/usr/sbin/sshd", "/usr/lib/openssh/sshd-session", "/usr/bin/job-adopt"] {
            assert_eq!(ours(file).unwrap().at, 7, "{file}");
        }
        for file in ["/usr/bin/su", "/usr/bin/logger", "/", ""] {
            assert_eq!(ours(file), None, "{file}");
        }
        let gone =
            |name: &str| entry(&format!(r#","MESSAGE":"{FORGED}","SYSLOG_IDENTIFIER":"{name}""#));
        assert!(gone("sshd").is_some(), "its name is all that is known");
        assert_eq!(gone("su"), None);
        let named_sshd = r#","_EXE":"/usr/bin/su","SYSLOG_IDENTIFIER":"sshd""#;
        assert_eq!(entry(&format!(r#","MESSAGE":"{FORGED}"{named_sshd}"#)), None);
        assert_eq!(entry(&format!(r#","MESSAGE":"{FORGED}""#)), None, "nobody knows the program");
        assert_eq!(entry(r#","MESSAGE":[112,97],"_EXE":"/usr/sbin/sshd""#), None);
    }

    fn ids(path: &Path, from: Option<&Cursor>) -> (Vec<String>, Cursor) {
        let mut ids = Vec::new();
        let cursor = read(Some(path), from, &mut |entry| ids.push(entry.get("job").to_owned()));
        (ids, cursor.unwrap().unwrap())
    }

    #[test]
    fn every_line_of_a_file_is_read_once_also_across_its_rotation() {
        let scratch = Scratch::new();
        let line = |id: &str| format!("{HEAD}decision=adopt job={id}\n");
        let path = scratch.file("auth.log", &format!("{}other\n{}", line("1"), &line("2")[..30]));
        let (found, cursor) = ids(&path, None);
        assert_eq!(found, ["1"]);
        // Half a line was there; now it is whole.
        scratch.file("auth.log", "");
        fs::write(&path, format!("{}other\n{}", line("1"), line("2"))).unwrap();
        let (found, cursor) = ids(&path, Some(&cursor));
        assert_eq!(found, ["2"]);
        fs::write(&path, format!("{}other\n{}{}", line("1"), line("2"), line("3"))).unwrap();
        fs::rename(&path, scratch.path().join("auth.log.1")).unwrap();
        fs::write(&path, line("4")).unwrap();
        let (found, cursor) = ids(&path, Some(&cursor));
        assert_eq!(found, ["3", "4"]);
        assert_eq!(ids(&path, Some(&cursor)).0, [""; 0]);
        // One that was cut is read from its beginning.
        fs::write(&path, &line("5")[..line("5").len()]).unwrap();
        fs::write(&path, "x\n").unwrap();
        assert_eq!(ids(&path, Some(&cursor)).0, [""; 0]);
    }
}
