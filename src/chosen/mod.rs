//! The job that a user wants the next logins to join, of several on this node (`job-adopt use`).
//!
//! The choice is the text of one file in a directory that is the user's own, so nothing in it is
//! believed but that this user wants it: it chooses among the user's running jobs, and anything else
//! is left unused.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// Where the directories of users are.
pub const DIR: &str = "/run/job-adopt/use";

/// Name of the file in it.
pub const FILE: &str = "job";

/// The directory of one user.
#[must_use]
pub fn user_dir(uid: u32) -> PathBuf {
    Path::new(DIR).join(uid.to_string())
}
