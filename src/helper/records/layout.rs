//! Where records lie.

use std::path::{Path, PathBuf};

use crate::protocol::JobId;

/// A directory of job records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    dir: PathBuf,
}

impl Registry {
    /// The registry of a node whose configuration names none.
    pub const DEFAULT: &str = "/run/job-adopt/jobs";
    /// Mode of the registry and of the users' directories in it.
    pub const DIR_MODE: u32 = 0o755;
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
