//! Reads records, and the notes that jobs ended, from a user's directory.

use super::error::{RecordError, json_error};
use super::record::{LoginTarget, Record, VERSION};
use super::strict_json::MapOnly;
use crate::trusted_dir;
use kernel::trust::{Trust, TrustError, TrustedDir};
use protocol::{CgroupPath, JobId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The content of a user's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRecords {
    /// The records that can be used, in the order of their ids.
    pub records: Vec<Record>,
    /// Notes of jobs that ended, in the order of their ids.
    pub ended: Vec<(JobId, Note)>,
    /// Files that cannot be used. None of them hides a usable one.
    pub broken: Vec<UnusableFile>,
}

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableFile {
    /// The file's path.
    pub path: PathBuf,
    /// The reason.
    pub cause: String,
    /// The running job whose record it may be; `None` for notes and unknown names.
    pub job: Option<JobId>,
}

impl fmt::Display for UnusableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.cause)
    }
}

/// Reason why no record of a user can be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The registry's directory does not exist.
    #[error("the registry does not exist")]
    NoRegistry,
    /// The registry or the user's directory cannot be trusted.
    #[error("{0}")]
    Distrusted(TrustError),
}

impl Registry {
    /// Reads every record and note of `uid`. A user without a directory has no jobs.
    ///
    /// # Errors
    ///
    /// [`ReadError::NoRegistry`] if the registry is missing, [`ReadError::Distrusted`] if a directory
    /// cannot be trusted or listed, or the user has more than [`Registry::USER_FILES_MAX`] files.
    pub fn read_user(&self, trust: &Trust, uid: u32) -> Result<UserRecords, ReadError> {
        let registry = trust.dir(self.dir()).map_err(|error| {
            if error.is_missing() {
                ReadError::NoRegistry
            } else {
                ReadError::Distrusted(error)
            }
        })?;
        let dir = match registry.dir(Path::new(&uid.to_string())) {
            Ok(dir) => dir,
            Err(error) if error.is_missing() => return Ok(UserRecords::default()),
            Err(error) => return Err(ReadError::Distrusted(error)),
        };
        let names = trusted_dir::list_visible_names(&dir, Self::USER_FILES_MAX)
            .map_err(ReadError::Distrusted)?;
        let mut records = UserRecords::default();
        for name in names {
            records.add(&dir, &name, uid);
        }
        Ok(records)
    }

    /// Tells whether the registry has no entry; `false` if it cannot be listed.
    pub(crate) fn is_empty(&self, trust: &Trust) -> bool {
        // A second name is an error, so that the listing of a full registry ends early.
        let names = trust
            .dir(self.dir())
            .and_then(|dir| trusted_dir::list_visible_names(&dir, 1));
        names.is_ok_and(|names| names.is_empty())
    }

    /// Reads all usable notes of `uid`. Their number is not limited, so that a directory with too many files for
    /// logins can be cleared. Empty if the user's directory is missing, not trusted or cannot be listed.
    pub(super) fn read_notes(&self, trust: &Trust, uid: u32) -> Vec<(JobId, Note)> {
        let Ok(dir) = trust.dir(&self.user_dir(uid)) else {
            return Vec::new();
        };
        let mut notes = Vec::new();
        for name in trusted_dir::list_visible_names(&dir, usize::MAX).unwrap_or_default() {
            if let UserFile::Note(id) = UserFile::parse(&name) {
                if let Ok(Some(note)) = read_note(&dir, &name) {
                    notes.push((id, note));
                }
            }
        }
        notes
    }
}

impl UserRecords {
    /// Reads one file of a user's directory, and adds it to the records, to the notes, or with the cause to the
    /// broken files. A file that disappeared since it was listed is left out.
    fn add(&mut self, dir: &TrustedDir, name: &str, uid: u32) {
        let (cause, job) = match UserFile::parse(name) {
            UserFile::Record(id) => match read_record(dir, name, uid, &id) {
                Ok(read) => return self.records.extend(read),
                Err(cause) => (cause, Some(id)),
            },
            UserFile::Note(id) => match read_note(dir, name) {
                Ok(read) => return self.ended.extend(read.map(|note| (id, note))),
                Err(cause) => (cause, None),
            },
            UserFile::Foreign => ("neither a record nor a note".to_owned(), None),
        };
        self.broken.push(UnusableFile {
            path: dir.path().join(name),
            cause,
            job,
        });
    }
}

/// Reads the record of the job `id` of `uid`; `None` if it disappeared since it was listed.
fn read_record(
    dir: &TrustedDir,
    name: &str,
    uid: u32,
    id: &JobId,
) -> Result<Option<Record>, String> {
    let Some(bytes) = read_file(dir, name)? else {
        return Ok(None);
    };
    Record::parse_for_job(&bytes, uid, id).map(Some)
}

/// Reads a note; `None` if it disappeared since it was listed.
fn read_note(dir: &TrustedDir, name: &str) -> Result<Option<Note>, String> {
    let Some(bytes) = read_file(dir, name)? else {
        return Ok(None);
    };
    let note = Note::parse(&bytes).map_err(|error| error.to_string())?;
    Ok(Some(note))
}

/// Reads a file; `None` if it disappeared since it was listed: the job has ended.
fn read_file(dir: &TrustedDir, name: &str) -> Result<Option<Vec<u8>>, String> {
    match dir.read(Path::new(name), Registry::FILE_BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.cause().to_string()),
    }
}

impl Record {
    /// Parses the record of the job `id` of `uid`.
    ///
    /// # Errors
    ///
    /// The reason why the bytes are no record, or which other job they describe.
    pub(super) fn parse_for_job(bytes: &[u8], uid: u32, id: &JobId) -> Result<Self, String> {
        match Self::parse(bytes) {
            Ok(record) if record.uid == uid && record.has_name(id) => Ok(record),
            Ok(record) => Err(format!("is of job {} of uid {}", record.id, record.uid)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The cgroup of the job `id` of `uid` from JSON that is not a valid record; `None`
    /// without a valid path. The result lacks the devices: use it only to end cgroups that carry
    /// the job's stamp.
    pub(super) fn salvage(bytes: &[u8], uid: u32, id: &JobId) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str);
        let path: CgroupPath = text("cgroup")?.parse().ok()?;
        Some(Self {
            id: id.clone(),
            uid,
            target: LoginTarget::Cgroup(path),
            started: None,
            ends: None,
            leaf: text("leaf").and_then(|leaf| leaf.parse().ok()),
            options: None,
            cdi: None,
            gpus: None,
            gres: None,
            device_dir: None,
            accounts: None,
            namespaces: None,
            logins: None,
            scheduler: None,
            env: None,
            resolved: None,
        })
    }
}

/// A directory of job records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    dir: PathBuf,
}

impl Registry {
    /// The registry's path if the configuration names none.
    pub const DEFAULT: &str = "/run/job-adopt/jobs";
    /// Mode of records and notes: the unprivileged half must be able to read them.
    pub const FILE_MODE: u32 = 0o644;
    /// Maximum bytes of a record or note.
    pub const FILE_BYTES_MAX: u64 = 64 * 1024;
    /// Maximum records and notes of one user.
    pub const USER_FILES_MAX: usize = 4096;

    const RECORD_SUFFIX: &str = "json";
    const NOTE_SUFFIX: &str = "ended";

    /// A registry in `dir`, which is an absolute path.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// The registry's own directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a user's directory.
    pub fn user_dir(&self, uid: u32) -> PathBuf {
        self.dir.join(uid.to_string())
    }

    /// The path of a job's record.
    pub fn record_path(&self, uid: u32, id: &JobId) -> PathBuf {
        self.user_dir(uid)
            .join(format!("{id}.{}", Self::RECORD_SUFFIX))
    }

    /// The path of the note that a job ended.
    pub fn note_path(&self, uid: u32, id: &JobId) -> PathBuf {
        self.user_dir(uid)
            .join(format!("{id}.{}", Self::NOTE_SUFFIX))
    }
}

/// A name in a user's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UserFile {
    /// The record of this job.
    Record(JobId),
    /// The note of this job's end.
    Note(JobId),
    /// Any other name.
    Foreign,
}

impl UserFile {
    /// Parses a name: `ID.json`, `ID.ended`, or any other.
    pub(super) fn parse(name: &str) -> Self {
        let Some((stem, kind)) = name.rsplit_once('.') else {
            return Self::Foreign;
        };
        match (stem.parse(), kind) {
            (Ok(id), Registry::RECORD_SUFFIX) => Self::Record(id),
            (Ok(id), Registry::NOTE_SUFFIX) => Self::Note(id),
            _ => Self::Foreign,
        }
    }
}

/// How long users are told that a job ended.
const NOTE_VALID_SECONDS: i64 = 600;

/// The note that a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    version: u32,
    ended: i64,
}

impl Note {
    /// A note for a job that ended at `ended`, in seconds since the epoch.
    pub fn new(ended: i64) -> Self {
        Self {
            version: VERSION,
            ended,
        }
    }

    /// Parses a note.
    ///
    /// # Errors
    ///
    /// [`RecordError`] for anything but a JSON object with exactly the two keys of a note.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let MapOnly(note): MapOnly<Self> =
            serde_json::from_slice(bytes).map_err(|error| json_error(&error))?;
        if note.version != VERSION {
            return Err(RecordError::unknown_version(note.version, VERSION));
        }
        if note.ended <= 0 {
            return Err(RecordError::invalid_value("ended"));
        }
        Ok(note)
    }

    /// The note as one line of JSON.
    pub fn to_json(&self) -> String {
        format!(
            "{{\"version\":{},\"ended\":{}}}\n",
            self.version, self.ended
        )
    }

    /// When the job ended, in seconds since the epoch.
    pub fn ended(&self) -> i64 {
        self.ended
    }

    /// Tells whether the end is at most `NOTE_VALID_SECONDS` seconds before `now`, and not after it.
    pub fn is_valid(&self, now: i64) -> bool {
        (0..=NOTE_VALID_SECONDS).contains(&now.saturating_sub(self.ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn record(id: &str, uid: u32) -> String {
        format!(r#"{{"version":1,"id":"{id}","uid":{uid},"cgroup":"/a","cdi":[]}}"#)
    }

    fn read(scratch: &Scratch) -> Result<UserRecords, ReadError> {
        Registry::new(&scratch.path().join("jobs")).read_user(&scratch.trust(), 5)
    }

    fn broken(found: &UserRecords) -> Vec<&str> {
        found
            .broken
            .iter()
            .map(|broken| broken.path.file_name().unwrap().to_str().unwrap())
            .collect()
    }

    #[test]
    fn only_the_users_directory_is_read() {
        let scratch = Scratch::new();
        scratch.file("jobs/5/a.json", &record("a", 5));
        scratch.file("jobs/6/b.json", "broken");
        scratch.file("jobs/5/.a.json.tmp", "half");
        scratch.file("jobs/5/c.ended", &Note::new(9).to_json());
        let found = read(&scratch).unwrap();
        assert_eq!(found.records.len(), 1);
        assert_eq!(found.ended, [("c".parse().unwrap(), Note::new(9))]);
        assert!(found.broken.is_empty(), "{:?}", found.broken);
    }

    #[test]
    fn missing_directory_is_no_jobs_and_missing_registry_is_an_error() {
        let scratch = Scratch::new();
        assert_eq!(read(&scratch), Err(ReadError::NoRegistry));
        scratch.dir("jobs");
        assert_eq!(read(&scratch), Ok(UserRecords::default()));
    }

    #[test]
    fn unusable_record_hides_no_usable_one() {
        let scratch = Scratch::new();
        scratch.file("jobs/5/a.json", "{");
        scratch.file("jobs/5/b.json", &record("b", 6));
        scratch.file("jobs/5/c.json", &record("d", 5));
        scratch.file("jobs/5/e.json", &"x".repeat(65 * 1024));
        scratch.file("jobs/5/f.json", &record("f", 5));
        scratch.mode("jobs/5/f.json", 0o664);
        scratch.file("jobs/5/g.json", &record("g", 5));
        scratch.file("jobs/5/h.ended", "?");
        scratch.file("jobs/5/README", "");
        std::os::unix::fs::symlink("g.json", scratch.path().join("jobs/5/i.json")).unwrap();
        let found = read(&scratch).unwrap();
        assert_eq!(found.records.len(), 1);
        assert_eq!(found.records.first().unwrap().id.as_str(), "g");
        assert_eq!(
            broken(&found),
            [
                "README", "a.json", "b.json", "c.json", "e.json", "f.json", "h.ended", "i.json"
            ]
        );
        assert_eq!(
            found
                .broken
                .iter()
                .filter(|broken| broken.job.is_some())
                .count(),
            6
        );
    }

    #[test]
    fn directory_that_others_can_write_is_distrusted() {
        let scratch = Scratch::new();
        scratch.file("jobs/5/a.json", &record("a", 5));
        for dir in ["jobs/5", "jobs"] {
            scratch.mode(dir, 0o775);
            assert!(
                matches!(read(&scratch), Err(ReadError::Distrusted(_))),
                "{dir}"
            );
            scratch.mode(dir, 0o755);
        }
        assert!(read(&scratch).is_ok());
    }

    #[test]
    fn cgroup_is_salvaged_from_invalid_record() {
        let salvage = |text: &str| Record::salvage(text.as_bytes(), 5, &"7".parse().unwrap());
        let left = salvage(r#"{"version":9,"cgroup":"/a","leaf":"l","options":7}"#).unwrap();
        assert_eq!(
            (left.uid, left.target),
            (5, LoginTarget::Cgroup("/a".parse().unwrap()))
        );
        assert_eq!(left.leaf.unwrap().as_str(), "l");
        for text in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"cgroup":7}"#,
            r#"{"cgroup":"/a/../b"}"#,
        ] {
            assert_eq!(salvage(text), None, "{text}");
        }
    }
}

#[cfg(test)]
mod layout_tests {
    use super::*;

    #[test]
    fn paths_have_uid_id_and_suffix() {
        let registry = Registry::new(Path::new("/r"));
        let id: JobId = "4242.a".parse().unwrap();
        assert_eq!(
            registry.record_path(1001, &id),
            Path::new("/r/1001/4242.a.json")
        );
        assert_eq!(
            registry.note_path(1001, &id),
            Path::new("/r/1001/4242.a.ended")
        );
    }

    #[test]
    fn names_parse_as_record_note_or_foreign() {
        let id = || "4242.a".parse().unwrap();
        assert_eq!(UserFile::parse("4242.a.json"), UserFile::Record(id()));
        assert_eq!(UserFile::parse("4242.a.ended"), UserFile::Note(id()));
        for name in [
            "json",
            ".json",
            "4242",
            "4242.JSON",
            "4242.json~",
            "a b.json",
            "-1.ended",
        ] {
            assert_eq!(UserFile::parse(name), UserFile::Foreign, "{name:?}");
        }
    }
}

#[cfg(test)]
mod note_tests {
    use super::*;

    #[test]
    fn note_round_trips() {
        let note = Note::new(1_795_201_200);
        assert_eq!(Note::parse(note.to_json().as_bytes()), Ok(note));
    }

    #[test]
    fn note_is_valid_for_ten_minutes() {
        let note = Note::new(1000);
        for (now, valid) in [(999, false), (1000, true), (1600, true), (1601, false)] {
            assert_eq!(note.is_valid(now), valid, "{now}");
        }
        assert!(!Note::new(i64::MAX).is_valid(i64::MIN));
    }

    #[test]
    fn malformed_notes_are_refused() {
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
