//! Writing the registry, as root and under its lock.
//!
//! A record is there or not, never in part: it is written under a name that readers skip and then
//! renamed. A job that ends is first renamed to a name that readers skip as well, and forgotten
//! only when its logins are gone, so that an `unregister` that was cut short can be done again.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{Note, Record, Registry};
use crate::sources::FluxId;
use kernel::Failed;
use kernel::trust::Trust;
use protocol::{JobId, decimal};

/// A job that the registry knows by an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The id that its file is named by.
    pub id: JobId,
    /// The user in whose directory it is.
    pub uid: u32,
    /// The record, or what is wrong with it.
    pub record: Result<Record, String>,
    /// Where the job is, as far as a record that is broken still tells.
    pub salvage: Option<Record>,
    /// Whether it is on its way out: no login joins it any more.
    pub ending: bool,
}

impl Registry {
    /// Every job of this id, of whatever user, running or ending. Where there is none, those of
    /// Flux that have the id in another notation: its prologs and its housekeeping are given
    /// different ones.
    /// Fails: [`Failed`] where the registry cannot be listed.
    pub fn find(&self, trust: &Trust, id: &JobId) -> Result<Vec<Known>, Failed> {
        let found = self.find_exactly(trust, id)?;
        let of_flux = FluxId::job(id.as_str()).filter(|_| found.is_empty());
        let Some(of_flux) = of_flux else { return Ok(found) };
        let mut found = self.find_exactly(trust, &of_flux)?;
        found.retain(|known| known.record.as_ref().map_or(true, |record| record.is_of(id)));
        Ok(found)
    }

    fn find_exactly(&self, trust: &Trust, id: &JobId) -> Result<Vec<Known>, Failed> {
        let mut found = Vec::new();
        for uid in self.users()? {
            for (path, ending) in [(self.record(uid, id), false), (self.ending(uid, id), true)] {
                match fs::symlink_metadata(&path) {
                    Ok(_) => {
                        found.push(known(trust, &path, uid, id, ending));
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(failed("stat", &path, error)),
                }
            }
        }
        Ok(found)
    }

    /// The users who have a directory here, in the order of their numbers; none where the registry
    /// itself is missing.
    /// Fails: [`Failed`] where it cannot be listed.
    pub fn users(&self) -> Result<Vec<u32>, Failed> {
        let failed = |error| failed("list", self.dir(), error);
        let entries = match fs::read_dir(self.dir()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut users = Vec::new();
        for entry in entries {
            users.extend(entry.map_err(failed)?.file_name().to_str().and_then(decimal));
        }
        users.sort_unstable();
        Ok(users)
    }

    /// Writes a record in place of any other of its id and user, and takes away the note of an
    /// earlier end.
    /// Fails: [`Failed`]; nothing is changed then.
    pub fn put(&self, trust: &Trust, record: &Record) -> Result<(), Failed> {
        let path = self.record(record.uid, &record.id);
        let text =
            record.to_json().map_err(|error| failed("encode", &path, io::Error::other(error)))?;
        self.prepare(trust, record.uid)?;
        self.write(&path, &self.unfinished(record.uid, &record.id), &text)?;
        remove(&self.note(record.uid, &record.id))
    }

    /// Takes a job out of sight; `false` where it is out of sight already. This needs no space.
    pub fn withdraw(&self, uid: u32, id: &JobId) -> Result<bool, Failed> {
        let path = self.record(uid, id);
        match fs::rename(&path, self.ending(uid, id)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("withdraw", &path, error)),
        }
    }

    /// Leaves a note that a job ended at `now`, in seconds since the epoch.
    pub fn note_end(&self, uid: u32, id: &JobId, now: i64) -> Result<(), Failed> {
        let note = Note::new(now).to_json();
        self.write(&self.note(uid, id), &self.unfinished(uid, id), &note)
    }

    /// Forgets a job that was withdrawn.
    pub fn forget(&self, uid: u32, id: &JobId) -> Result<(), Failed> {
        remove(&self.ending(uid, id))
    }

    /// Removes the notes that are no longer valid at `now`, and users' directories that are empty.
    /// Fails: [`Failed`] for the first that cannot be removed.
    pub fn purge(&self, trust: &Trust, now: i64) -> Result<(), Failed> {
        for uid in self.users()? {
            for (id, note) in self.notes(trust, uid) {
                if !note.is_valid(now) {
                    remove(&self.note(uid, &id))?;
                }
            }
            // Refused while anything is in it.
            let _ = fs::remove_dir(self.user_dir(uid));
        }
        Ok(())
    }

    /// Makes the registry and a user's directory where they are missing, and looks whether they
    /// will be believed.
    /// Fails: [`Failed`] naming the first directory that cannot be made or is not believed.
    pub fn prepare(&self, trust: &Trust, uid: u32) -> Result<(), Failed> {
        let dir = self.user_dir(uid);
        let made = trust.make_dir(&dir).map(drop);
        made.map_err(|error| failed("open", &dir, io::Error::other(error.to_string())))
    }

    fn write(&self, path: &Path, unfinished: &Path, text: &str) -> Result<(), Failed> {
        let result = create(unfinished, text).and_then(|()| fs::rename(unfinished, path));
        result.map_err(|error| {
            let _ = fs::remove_file(unfinished);
            failed("write", path, error)
        })
    }

    fn unfinished(&self, uid: u32, id: &JobId) -> PathBuf {
        self.user_dir(uid).join(format!(".{id}.new"))
    }

    fn ending(&self, uid: u32, id: &JobId) -> PathBuf {
        self.user_dir(uid).join(format!(".{id}.ending"))
    }
}

fn failed(operation: &'static str, path: &Path, error: io::Error) -> Failed {
    Failed::new(operation, path.to_string_lossy(), error)
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    remove_stale(path)?;
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).mode(Registry::FILE_MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(Registry::FILE_MODE))?;
    file.write_all(text.as_bytes())
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), Failed> {
    remove_stale(path).map_err(|error| failed("remove", path, error))
}

fn known(trust: &Trust, path: &Path, uid: u32, id: &JobId, ending: bool) -> Known {
    let bytes = trust.read(path, Registry::FILE_MAX).map_err(|error| error.to_string());
    let record =
        bytes.as_deref().map_err(String::clone).and_then(|bytes| Record::of(bytes, uid, id));
    let salvage = match (&record, bytes) {
        (Err(_), Ok(bytes)) => Record::salvage(&bytes, uid, id),
        _ => None,
    };
    Known { id: id.clone(), uid, record, salvage, ending }
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

    fn lay(scratch: &Scratch, name: &str, record: &Record) {
        scratch.file(name, &record.to_json().unwrap());
    }

    #[test]
    fn an_id_is_found_whoever_has_it() {
        let scratch = Scratch::new();
        lay(&scratch, "jobs/5/7.json", &record("7", 5));
        lay(&scratch, "jobs/6/.7.ending", &record("7", 6));
        scratch.file("jobs/8/7.json", "{");
        lay(&scratch, "jobs/9/77.json", &record("77", 9));
        scratch.dir("jobs/not-a-number");
        let found = registry(&scratch).find(&scratch.trust(), &"7".parse().unwrap()).unwrap();
        let found: Vec<_> =
            found.iter().map(|known| (known.uid, known.record.is_ok(), known.ending)).collect();
        assert_eq!(found, [(5, true, false), (6, true, true), (8, false, false)]);
    }

    #[test]
    fn a_job_of_flux_is_found_by_each_notation_of_its_id() {
        let scratch = Scratch::new();
        let flux = r#"{"version":1,"id":"fxyzzy","uid":5,"via":"flux","cdi":[]}"#;
        lay(&scratch, "jobs/5/fxyzzy.json", &Record::parse(flux.as_bytes()).unwrap());
        let find = |id: &str| {
            let found = registry(&scratch).find(&scratch.trust(), &id.parse().unwrap()).unwrap();
            found.iter().map(|known| (known.uid, known.id.to_string())).collect::<Vec<_>>()
        };
        for id in ["fxyzzy", "633528662", "0x25c2e156", "0000.0000.25c2.e156"] {
            assert_eq!(find(id), [(5, "fxyzzy".into())], "{id}");
        }
        assert_eq!(find("633528663"), []);
        // What is called so comes first, and what is called otherwise is of Flux alone.
        lay(&scratch, "jobs/6/633528662.json", &record("633528662", 6));
        assert_eq!(find("633528662"), [(6, "633528662".into())]);
        lay(&scratch, "jobs/7/f2JL.json", &record("f2JL", 7));
        assert_eq!(find("4369"), []);
    }

    #[test]
    fn a_job_goes_out_of_sight_before_it_is_forgotten() {
        let scratch = Scratch::new();
        let (registry, id) = (registry(&scratch), "7".parse().unwrap());
        lay(&scratch, "jobs/5/7.json", &record("7", 5));
        assert!(registry.withdraw(5, &id).unwrap());
        registry.note_end(5, &id, 1000).unwrap();
        let seen = registry.read_user(&scratch.trust(), 5).unwrap();
        assert!(seen.records.is_empty() && seen.broken.is_empty(), "{seen:?}");
        assert_eq!(seen.ended, [(id.clone(), Note::new(1000))]);
        assert!(registry.find(&scratch.trust(), &id).unwrap()[0].ending);
        assert!(!registry.withdraw(5, &id).unwrap(), "it ended twice");
        registry.forget(5, &id).unwrap();
        assert!(registry.find(&scratch.trust(), &id).unwrap().is_empty());
    }

    #[test]
    fn old_notes_go_and_others_stay() {
        let scratch = Scratch::new();
        scratch.file("jobs/5/7.ended", &Note::new(1000).to_json());
        scratch.file("jobs/6/8.ended", &Note::new(1500).to_json());
        registry(&scratch).purge(&scratch.trust(), 1700).unwrap();
        assert!(!scratch.path().join("jobs/5").exists());
        assert!(scratch.path().join("jobs/6/8.ended").exists());
    }

    #[test]
    fn old_notes_go_however_many_there_are() {
        let scratch = Scratch::new();
        for number in 0..=Registry::USER_MAX {
            scratch.file(&format!("jobs/5/{number}.ended"), &Note::new(1000).to_json());
        }
        registry(&scratch).purge(&scratch.trust(), 1700).unwrap();
        assert!(!scratch.path().join("jobs/5").exists());
    }

    #[test]
    fn a_number_is_spelt_in_one_way() {
        let scratch = Scratch::new();
        for name in ["5", "+5", "05", "-5", "6x"] {
            scratch.dir(&format!("jobs/{name}"));
        }
        assert_eq!(registry(&scratch).users().unwrap(), [5]);
    }

    #[test]
    fn what_is_put_is_read_back_and_replaces() {
        let scratch = Scratch::new();
        let (registry, trust) = (registry(&scratch), scratch.trust());
        scratch.file("jobs/5/7.ended", &Note::new(1000).to_json());
        registry.put(&trust, &record("7", 5)).unwrap();
        let later = Record { started: Some(9), ..record("7", 5) };
        registry.put(&trust, &later).unwrap();
        let seen = registry.read_user(&trust, 5).unwrap();
        assert_eq!(seen.records, [later]);
        assert!(seen.ended.is_empty() && seen.broken.is_empty(), "{seen:?}");
    }

    #[test]
    fn nothing_is_put_where_it_would_not_be_believed() {
        let scratch = Scratch::new();
        scratch.dir("jobs/5");
        scratch.mode("jobs/5", 0o777);
        assert!(registry(&scratch).put(&scratch.trust(), &record("7", 5)).is_err());
        assert!(!scratch.path().join("jobs/5/7.json").exists());
    }
}
