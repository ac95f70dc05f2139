//! Writes the registry. Callers are root and hold its lock.
//!
//! Readers never see part of a record: it is written under a name that they skip and then renamed.
//! A job that ends is first renamed to a name that they skip too, and forgotten only when its
//! logins are gone, so that an interrupted `unregister` can be repeated.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::read::UserFile;
use super::{Note, Record, Registry};
use crate::jobs::FluxId;
use kernel::OperationError;
use kernel::trust::{Trust, TrustError, TrustedDir};
use protocol::{JobId, parse_decimal};

/// A job in the registry, running or ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredJob {
    /// The id in its file's name.
    pub id: JobId,
    /// The user whose directory has it.
    pub uid: u32,
    /// The record, or the reason why it cannot be used.
    pub record: Result<Record, String>,
    /// The cgroup that an unusable record still names.
    pub salvage: Option<Record>,
    /// It is ending: no login joins it any more.
    pub ending: bool,
}

impl Registry {
    /// Finds all jobs with this id, of any user, running or ending. If none has it, returns the
    /// Flux jobs with the id in another notation: Flux gives different ones to its prologs and to
    /// its housekeeping.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the registry cannot be listed, or a file that exists cannot be looked at.
    pub fn find_jobs(
        &self,
        trust: &Trust,
        id: &JobId,
    ) -> Result<Vec<RegisteredJob>, OperationError> {
        let exact = self.find_by_id(trust, id)?;
        if !exact.is_empty() {
            return Ok(exact);
        }
        let Some(canonical) = FluxId::parse_job_id(id.as_str()) else {
            return Ok(Vec::new());
        };
        let mut jobs = self.find_by_id(trust, &canonical)?;
        // Only a Flux job has further names. A record that cannot be read may be a Flux job's, so it stays.
        jobs.retain(|job| {
            job.record
                .as_ref()
                .map_or(true, |record| record.has_name(id))
        });
        Ok(jobs)
    }

    /// Finds all jobs whose file has exactly this id, of any user, running or ending.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the registry cannot be listed, or a file that exists cannot be looked at.
    fn find_by_id(&self, trust: &Trust, id: &JobId) -> Result<Vec<RegisteredJob>, OperationError> {
        let mut jobs = Vec::new();
        for uid in self.list_users()? {
            for (path, ending) in [
                (self.record_path(uid, id), false),
                (self.ending_path(uid, id), true),
            ] {
                match fs::symlink_metadata(&path) {
                    Ok(_) => {
                        let dir = trust.dir(&self.user_dir(uid));
                        jobs.push(read_job(dir.as_ref(), &path, uid, id, ending));
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(failed("stat", &path, error)),
                }
            }
        }
        Ok(jobs)
    }

    /// Lists all jobs of all users, running or ending. In a directory that is not trusted, no record is usable.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the registry or a user's directory cannot be listed.
    pub fn list_jobs(&self, trust: &Trust) -> Result<Vec<RegisteredJob>, OperationError> {
        let mut jobs = Vec::new();
        for uid in self.list_users()? {
            let path = self.user_dir(uid);
            // One check of the path serves all records of the user.
            let dir = trust.dir(&path);
            for name in self.list_user_files(uid)? {
                if let Some((id, ending)) = parse_job_file(&name) {
                    jobs.push(read_job(dir.as_ref(), &path.join(name), uid, &id, ending));
                }
            }
        }
        Ok(jobs)
    }

    /// Lists the names in a user's directory, also those that begin with a dot; none if it is missing. Invalid UTF-8
    /// is replaced: no file of the registry has such a name.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the directory cannot be listed.
    fn list_user_files(&self, uid: u32) -> Result<Vec<String>, OperationError> {
        let dir = self.user_dir(uid);
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("list", &dir, error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed("list", &dir, error))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    /// Lists the uids that have a directory, in order; none if the registry is missing. Other names are skipped.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the registry cannot be listed.
    pub fn list_users(&self) -> Result<Vec<u32>, OperationError> {
        let failed = |error| failed("list", self.dir(), error);
        let entries = match fs::read_dir(self.dir()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut users = Vec::new();
        for entry in entries {
            users.extend(
                entry
                    .map_err(failed)?
                    .file_name()
                    .to_str()
                    .and_then(parse_decimal),
            );
        }
        users.sort_unstable();
        Ok(users)
    }

    /// Writes a record, replaces an earlier one of the same id and user, and removes the note of an
    /// earlier end.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the record cannot be encoded or written; then the earlier one stays. Also if the note
    /// cannot be removed: then the record is written all the same.
    pub fn write_record(&self, trust: &Trust, record: &Record) -> Result<(), OperationError> {
        let path = self.record_path(record.uid, &record.id);
        let text = record
            .to_json()
            .map_err(|error| failed("encode", &path, io::Error::other(error)))?;
        self.make_user_dir(trust, record.uid)?;
        self.write(&path, &self.unfinished_path(record.uid, &record.id), &text)?;
        remove(&self.note_path(record.uid, &record.id))
    }

    /// Hides a job from logins by renaming its record, which needs no disk space; `false` if no record has the name
    /// that logins read: the job is hidden already, or is not registered.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the record cannot be renamed.
    pub fn withdraw_job(&self, uid: u32, id: &JobId) -> Result<bool, OperationError> {
        let path = self.record_path(uid, id);
        match fs::rename(&path, self.ending_path(uid, id)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("withdraw", &path, error)),
        }
    }

    /// Writes the note that a job ended at `now`, in seconds since the epoch.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the note cannot be written.
    pub fn write_end_note(&self, uid: u32, id: &JobId, now: i64) -> Result<(), OperationError> {
        let note = Note::new(now).to_json();
        self.write(
            &self.note_path(uid, id),
            &self.unfinished_path(uid, id),
            &note,
        )
    }

    /// Removes the file of a job that [`Self::withdraw_job`] hid, if it is there.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if its file cannot be removed.
    pub fn forget_job(&self, uid: u32, id: &JobId) -> Result<(), OperationError> {
        remove(&self.ending_path(uid, id))
    }

    /// Removes the notes that are no longer valid at `now`, and empty directories of users. A user without notes costs
    /// one listing: each prolog and epilog calls this, for all users.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if the registry cannot be listed, and for the first note that cannot be removed.
    pub fn remove_old_notes(&self, trust: &Trust, now: i64) -> Result<(), OperationError> {
        for uid in self.list_users()? {
            let names = self.list_user_files(uid).unwrap_or_default();
            let is_note = |name: &String| matches!(UserFile::parse(name), UserFile::Note(_));
            // Without any name the directory is empty, or cannot be listed: below it is removed only if it is empty.
            if !names.is_empty() && !names.iter().any(is_note) {
                continue;
            }
            for (id, note) in self.read_notes(trust, uid) {
                if !note.is_valid(now) {
                    remove(&self.note_path(uid, &id))?;
                }
            }
            // The call fails if the directory is not empty.
            let _ = fs::remove_dir(self.user_dir(uid));
        }
        Ok(())
    }

    /// Makes the registry and a user's directory if they are missing, and checks that readers will
    /// trust them.
    ///
    /// # Errors
    ///
    /// [`OperationError`] with the first directory that cannot be made or trusted.
    pub fn make_user_dir(&self, trust: &Trust, uid: u32) -> Result<(), OperationError> {
        let dir = self.user_dir(uid);
        let result = trust.make_dir(&dir).map(drop);
        result.map_err(|error| failed("open", &dir, io::Error::other(error.to_string())))
    }

    /// Writes a file under another name and then renames it, so that readers see the old text or the new one. After
    /// an error neither file is left half written.
    fn write(&self, path: &Path, unfinished: &Path, text: &str) -> Result<(), OperationError> {
        let result = create(unfinished, text).and_then(|()| fs::rename(unfinished, path));
        result.map_err(|error| {
            let _ = fs::remove_file(unfinished);
            failed("write", path, error)
        })
    }

    /// The path under which a record or note is written.
    fn unfinished_path(&self, uid: u32, id: &JobId) -> PathBuf {
        self.user_dir(uid).join(format!(".{id}.new"))
    }

    /// The path of the record of a job that is ending.
    fn ending_path(&self, uid: u32, id: &JobId) -> PathBuf {
        self.user_dir(uid).join(format!(".{id}.ending"))
    }
}

/// Parses the name of a job's file; returns its id, and whether the job is ending. `None` for a note and any other
/// name.
fn parse_job_file(name: &str) -> Option<(JobId, bool)> {
    if let UserFile::Record(id) = UserFile::parse(name) {
        return Some((id, false));
    }
    let id = name
        .strip_prefix('.')?
        .strip_suffix(".ending")?
        .parse()
        .ok()?;
    Some((id, true))
}

/// Describes a failed operation on a file of the registry.
fn failed(operation: &'static str, path: &Path, error: io::Error) -> OperationError {
    OperationError::new(operation, path.to_string_lossy(), error)
}

/// Makes a file with this text that all accounts can read, whatever the umask is. A file that an interrupted call has
/// left there is removed first.
fn create(path: &Path, text: &str) -> io::Result<()> {
    remove_stale(path)?;
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(Registry::FILE_MODE)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(Registry::FILE_MODE))?;
    file.write_all(text.as_bytes())
}

/// Removes a file, unless it does not exist.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file of the registry, unless it does not exist.
fn remove(path: &Path) -> Result<(), OperationError> {
    remove_stale(path).map_err(|error| failed("remove", path, error))
}

/// Reads the file of one job: its record, or why that cannot be used, with the cgroup that it still names. `dir` is the
/// user's directory, or why it is not trusted, which makes the record unusable.
fn read_job(
    dir: Result<&TrustedDir, &TrustError>,
    path: &Path,
    uid: u32,
    id: &JobId,
    ending: bool,
) -> RegisteredJob {
    let name = Path::new(path.file_name().unwrap_or_default());
    let bytes = match dir {
        Ok(dir) => dir
            .read(name, Registry::FILE_BYTES_MAX)
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let record = bytes
        .as_deref()
        .map_err(String::clone)
        .and_then(|bytes| Record::parse_for_job(bytes, uid, id));
    let salvage = match (&record, bytes) {
        (Err(_), Ok(bytes)) => Record::salvage(&bytes, uid, id),
        _ => None,
    };
    RegisteredJob {
        id: id.clone(),
        uid,
        record,
        salvage,
        ending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn record(id: &str, uid: u32) -> Record {
        let text = format!(r#"{{"version":1,"id":"{id}","uid":{uid},"cgroup":"/a","cdi":[]}}"#);
        Record::parse(text.as_bytes()).unwrap()
    }

    fn registry(scratch: &Scratch) -> Registry {
        Registry::new(&scratch.path().join("jobs"))
    }

    fn write_file(scratch: &Scratch, name: &str, record: &Record) {
        scratch.file(name, &record.to_json().unwrap());
    }

    #[test]
    fn id_is_found_for_any_user() {
        let scratch = Scratch::new();
        write_file(&scratch, "jobs/5/7.json", &record("7", 5));
        write_file(&scratch, "jobs/6/.7.ending", &record("7", 6));
        scratch.file("jobs/8/7.json", "{");
        write_file(&scratch, "jobs/9/77.json", &record("77", 9));
        scratch.dir("jobs/not-a-number");
        let found = registry(&scratch)
            .find_jobs(&scratch.trust(), &"7".parse().unwrap())
            .unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|job| (job.uid, job.record.is_ok(), job.ending))
            .collect();
        assert_eq!(
            found,
            [(5, true, false), (6, true, true), (8, false, false)]
        );
    }

    #[test]
    fn flux_job_is_found_by_each_notation_of_its_id() {
        let scratch = Scratch::new();
        let flux = r#"{"version":1,"id":"fxyzzy","uid":5,"via":"flux","cdi":[]}"#;
        write_file(
            &scratch,
            "jobs/5/fxyzzy.json",
            &Record::parse(flux.as_bytes()).unwrap(),
        );
        let find = |id: &str| {
            let found = registry(&scratch)
                .find_jobs(&scratch.trust(), &id.parse().unwrap())
                .unwrap();
            found
                .iter()
                .map(|job| (job.uid, job.id.to_string()))
                .collect::<Vec<_>>()
        };
        for id in ["fxyzzy", "633528662", "0x25c2e156", "0000.0000.25c2.e156"] {
            assert_eq!(find(id), [(5, "fxyzzy".into())], "{id}");
        }
        assert_eq!(find("633528663"), []);
        // A job with this very id comes first; only Flux jobs have other notations.
        write_file(&scratch, "jobs/6/633528662.json", &record("633528662", 6));
        assert_eq!(find("633528662"), [(6, "633528662".into())]);
        write_file(&scratch, "jobs/7/f2JL.json", &record("f2JL", 7));
        assert_eq!(find("4369"), []);
    }

    #[test]
    fn running_and_ending_jobs_of_all_users_are_listed() {
        let scratch = Scratch::new();
        let registry = registry(&scratch);
        write_file(&scratch, "jobs/5/7.json", &record("7", 5));
        write_file(&scratch, "jobs/6/8.json", &record("8", 6));
        scratch.file("jobs/6/9.json", "{");
        scratch.file("jobs/6/.9.new", "{");
        registry
            .write_end_note(5, &"3".parse().unwrap(), 1000)
            .unwrap();
        assert!(registry.withdraw_job(6, &"8".parse().unwrap()).unwrap());
        let mut jobs = registry.list_jobs(&scratch.trust()).unwrap();
        jobs.sort_by_key(|job| job.id.to_string());
        let facts =
            |job: &RegisteredJob| (job.uid, job.id.to_string(), job.ending, job.record.is_ok());
        assert_eq!(
            jobs.iter().map(facts).collect::<Vec<_>>(),
            [
                (5, "7".into(), false, true),
                (6, "8".into(), true, true),
                (6, "9".into(), false, false)
            ]
        );
    }

    #[test]
    fn withdrawn_job_is_hidden_until_forgotten() {
        let scratch = Scratch::new();
        let registry = registry(&scratch);
        let id = "7".parse().unwrap();
        write_file(&scratch, "jobs/5/7.json", &record("7", 5));
        assert!(registry.withdraw_job(5, &id).unwrap());
        registry.write_end_note(5, &id, 1000).unwrap();
        let seen = registry.read_user(&scratch.trust(), 5).unwrap();
        assert!(
            seen.records.is_empty() && seen.broken.is_empty(),
            "{seen:?}"
        );
        assert_eq!(seen.ended, [(id.clone(), Note::new(1000))]);
        assert!(registry.find_jobs(&scratch.trust(), &id).unwrap()[0].ending);
        assert!(!registry.withdraw_job(5, &id).unwrap(), "it ended twice");
        registry.forget_job(5, &id).unwrap();
        assert!(
            registry
                .find_jobs(&scratch.trust(), &id)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn old_notes_are_removed_and_valid_ones_stay() {
        let scratch = Scratch::new();
        scratch.file("jobs/5/7.ended", &Note::new(1000).to_json());
        scratch.file("jobs/6/8.ended", &Note::new(1500).to_json());
        registry(&scratch)
            .remove_old_notes(&scratch.trust(), 1700)
            .unwrap();
        assert!(!scratch.path().join("jobs/5").exists());
        assert!(scratch.path().join("jobs/6/8.ended").exists());
    }

    #[test]
    fn old_notes_are_removed_beyond_the_file_limit() {
        let scratch = Scratch::new();
        for number in 0..=Registry::USER_FILES_MAX {
            scratch.file(
                &format!("jobs/5/{number}.ended"),
                &Note::new(1000).to_json(),
            );
        }
        registry(&scratch)
            .remove_old_notes(&scratch.trust(), 1700)
            .unwrap();
        assert!(!scratch.path().join("jobs/5").exists());
    }

    #[test]
    fn only_canonical_uids_are_users() {
        let scratch = Scratch::new();
        for name in ["5", "+5", "05", "-5", "6x"] {
            scratch.dir(&format!("jobs/{name}"));
        }
        assert_eq!(registry(&scratch).list_users().unwrap(), [5]);
    }

    #[test]
    fn written_record_is_read_back_and_replaces_earlier_one() {
        let scratch = Scratch::new();
        let registry = registry(&scratch);
        let trust = scratch.trust();
        scratch.file("jobs/5/7.ended", &Note::new(1000).to_json());
        registry.write_record(&trust, &record("7", 5)).unwrap();
        let later = Record {
            started: Some(9),
            ..record("7", 5)
        };
        registry.write_record(&trust, &later).unwrap();
        let seen = registry.read_user(&trust, 5).unwrap();
        assert_eq!(seen.records, [later]);
        assert!(seen.ended.is_empty() && seen.broken.is_empty(), "{seen:?}");
    }

    #[test]
    fn record_is_not_written_to_untrusted_directory() {
        let scratch = Scratch::new();
        scratch.dir("jobs/5");
        scratch.mode("jobs/5", 0o777);
        assert!(
            registry(&scratch)
                .write_record(&scratch.trust(), &record("7", 5))
                .is_err()
        );
        assert!(!scratch.path().join("jobs/5/7.json").exists());
    }
}
