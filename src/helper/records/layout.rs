//! Where records lie, and the note that a job ended.

use super::RecordError;
use super::record::{MapOnly, VERSION, json_error};
use crate::protocol::JobId;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A directory of job records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    dir: PathBuf,
}

impl Registry {
    /// The registry of a node whose configuration names none.
    pub const DEFAULT: &str = "/run/job-adopt/jobs";
    /// Mode of records and notes: the unprivileged half has to read them.
    pub const FILE_MODE: u32 = 0o644;
    /// Most bytes of a record or note.
    pub const FILE_MAX: u64 = 64 * 1024;
    /// Most records and notes of one user.
    pub const USER_MAX: usize = 4096;

    const RECORD: &str = "json";
    const NOTE: &str = "ended";

    /// The registry in `dir`, an absolute path.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The registry itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of one user's jobs.
    pub fn user_dir(&self, uid: u32) -> PathBuf {
        self.dir.join(uid.to_string())
    }

    /// The record of a job.
    pub fn record(&self, uid: u32, id: &JobId) -> PathBuf {
        self.user_dir(uid).join(format!("{id}.{}", Self::RECORD))
    }

    /// The note that a job has ended.
    pub fn note(&self, uid: u32, id: &JobId) -> PathBuf {
        self.user_dir(uid).join(format!("{id}.{}", Self::NOTE))
    }
}

/// What a name in a user's directory stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The record of this job.
    Record(JobId),
    /// The note of this job's end.
    Note(JobId),
    /// Nothing of ours.
    Foreign,
}

impl Entry {
    pub(super) fn of(name: &str) -> Self {
        let Some((stem, kind)) = name.rsplit_once('.') else { return Self::Foreign };
        match (stem.parse(), kind) {
            (Ok(id), Registry::RECORD) => Self::Record(id),
            (Ok(id), Registry::NOTE) => Self::Note(id),
            _ => Self::Foreign,
        }
    }
}

/// Seconds for which a note of the end is told to users.
pub const NOTE_VALID: i64 = 600;

/// When a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    version: u32,
    ended: i64,
}

impl Note {
    /// A note for a job that ended at `ended`, in seconds since the epoch.
    pub fn new(ended: i64) -> Self {
        Self { version: VERSION, ended }
    }

    /// Reads a note.
    /// Fails: [`RecordError`] for anything but a JSON object of its two keys.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let MapOnly(note): MapOnly<Self> =
            serde_json::from_slice(bytes).map_err(|error| json_error(&error))?;
        if note.version != VERSION {
            return Err(RecordError::version(note.version));
        }
        if note.ended <= 0 {
            return Err(RecordError::key("ended"));
        }
        Ok(note)
    }

    /// The note as one line of JSON.
    pub fn to_json(&self) -> String {
        format!("{{\"version\":{},\"ended\":{}}}\n", self.version, self.ended)
    }

    /// When the job ended, in seconds since the epoch.
    pub fn ended(&self) -> i64 {
        self.ended
    }

    /// Whether the end is at most [`NOTE_VALID`] seconds before `now`.
    pub fn is_valid(&self, now: i64) -> bool {
        (0..=NOTE_VALID).contains(&now.saturating_sub(self.ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let registry = Registry::new(Path::new("/r"));
        let id: JobId = "4242.a".parse().unwrap();
        assert_eq!(registry.record(1001, &id), Path::new("/r/1001/4242.a.json"));
        assert_eq!(registry.note(1001, &id), Path::new("/r/1001/4242.a.ended"));
    }

    #[test]
    fn names() {
        let id = || "4242.a".parse().unwrap();
        assert_eq!(Entry::of("4242.a.json"), Entry::Record(id()));
        assert_eq!(Entry::of("4242.a.ended"), Entry::Note(id()));
        for name in ["json", ".json", "4242", "4242.JSON", "4242.json~", "a b.json", "-1.ended"] {
            assert_eq!(Entry::of(name), Entry::Foreign, "{name:?}");
        }
    }
}

#[cfg(test)]
mod note_tests {
    use super::*;

    #[test]
    fn round_trip() {
        let note = Note::new(1_795_201_200);
        assert_eq!(Note::parse(note.to_json().as_bytes()), Ok(note));
    }

    #[test]
    fn ten_minutes() {
        let note = Note::new(1000);
        for (now, valid) in [(999, false), (1000, true), (1600, true), (1601, false)] {
            assert_eq!(note.is_valid(now), valid, "{now}");
        }
        assert!(!Note::new(i64::MAX).is_valid(i64::MIN));
    }

    #[test]
    fn nothing_else_is_a_note() {
        for text in [
            "",
            "{}",
            "[1,5]",
            r#"{"version":2,"ended":5}"#,
            r#"{"version":1,"ended":0}"#,
            r#"{"version":1,"ended":5,"x":1}"#,
            r#"{"version":1,"ended":"5"}"#,
            r#"{"version":1,"ended":5,"ended":6}"#,
            r#"{"version":1,"ended":5} x"#,
        ] {
            assert!(Note::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
