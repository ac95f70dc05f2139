//! What a change of the node has to know of itself later, beside the unit that takes it back.

use super::{Command, Steps, is_slice_folder};
use crate::file_change::{Content, FileChange};
use crate::part::Part;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::path::{Path, PathBuf};

/// The journal, beside the unit that needs it.
pub(super) const JOURNAL: &str = "/etc/systemd/system/job-adopt-undo.json";

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Not all of it may be made yet.
    Changing,
    /// All of it is made, and goes back unless it is kept.
    Trying,
}

/// A change as a later call has to know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
    pub(super) version: u32,
    /// What the unit finds in the journal of its own change, and in no other: a power cut may leave the unit of an
    /// earlier one. Empty in a journal of an earlier version, whose unit does not ask.
    #[serde(default)]
    pub(super) id: String,
    pub(super) command: Command,
    pub(super) state: State,
    /// The PAM service.
    pub(super) service: String,
    pub(super) files: Vec<JournalFile>,
    pub(super) steps: Steps,
    /// The modules that must be there before the old stack comes back.
    pub(super) modules: Vec<PathBuf>,
}

impl Journal {
    pub(super) const VERSION: u32 = 1;

    /// Makes the id of a new change.
    pub(super) fn new_id() -> String {
        format!("{:016x}", RandomState::new().hash_one(JOURNAL))
    }
}

/// A file of a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalFile {
    pub(super) part: Part,
    /// The path on the node.
    pub(super) path: PathBuf,
    /// Whether there was a file, so that there is a copy.
    pub(super) has_copy: bool,
    /// A hash of the new content; `None` if the file is removed.
    pub(super) new_hash: Option<u64>,
}

impl JournalFile {
    /// Describes a planned change of a file for the journal.
    pub(super) fn new(part: Part, change: &FileChange) -> Self {
        Self {
            part,
            path: change.path.clone(),
            has_copy: change.old.is_some(),
            new_hash: change.new.as_ref().map(hash),
        }
    }

    /// The folder that goes with the file if it is empty then.
    pub(super) fn own_folder(&self) -> Option<&Path> {
        self.path
            .parent()
            .filter(|folder| !self.has_copy && is_slice_folder(folder))
    }
}

/// Hashes a content, to see edits. Another build may hash otherwise; it then takes the file for an edited one.
pub(super) fn hash(content: &Content) -> u64 {
    let mut hasher = DefaultHasher::new();
    match content {
        Content::Text(text) => text.hash(&mut hasher),
        Content::Link(target) => target.hash(&mut hasher),
    }
    hasher.finish()
}

/// The name of a file's copy during a change: in the same folder, so that a rename restores it, and none that
/// systemd, the bus or libpam reads.
pub(super) fn copy_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.before-job-adopt"))
}
