//! What a source cannot tell: that there may be a job, and whose.

use super::SourceReport;
use crate::jobs::Job;
use protocol::JobId;
use std::collections::BTreeSet;

/// The accounts that a job may belong to whose owner is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PossibleOwners {
    /// Nothing shows whose the job is.
    Any,
    /// The job belongs to one of these uids.
    Only(BTreeSet<u32>),
}

impl PossibleOwners {
    /// One of these uids; [`PossibleOwners::Any`] without one.
    pub(super) fn from_uids(uids: BTreeSet<u32>) -> Self {
        if uids.is_empty() {
            Self::Any
        } else {
            Self::Only(uids)
        }
    }

    /// The owners of several jobs together; [`PossibleOwners::Any`] without a job.
    pub(super) fn one_of_all(all: impl Iterator<Item = Self>) -> Self {
        let mut uids = BTreeSet::new();
        for owners in all {
            match owners {
                Self::Any => return Self::Any,
                Self::Only(some) => uids.extend(some),
            }
        }
        Self::from_uids(uids)
    }

    /// Tells whether the job may belong to `uid`.
    pub fn include(&self, uid: u32) -> bool {
        match self {
            Self::Any => true,
            Self::Only(uids) => uids.contains(&uid),
        }
    }

    /// Tells whether the job may belong to one of `sought`; `false` if nobody is sought.
    pub fn include_one_of(&self, sought: &BTreeSet<u32>) -> bool {
        match self {
            Self::Any => !sought.is_empty(),
            Self::Only(uids) => !uids.is_disjoint(sought),
        }
    }
}

/// A reason why there may be a job that is not known. It concerns those who may own the job, and nobody else: what
/// one user makes must cost no other user's epilog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What may be a job, and why it is not known.
    pub cause: String,
    /// Whose job it may be.
    pub owners: PossibleOwners,
    /// The id of the job, if it is known.
    pub job: Option<JobId>,
}

impl Doubt {
    /// A doubt that concerns everybody.
    pub fn about_anybody(cause: String) -> Self {
        Self {
            cause,
            owners: PossibleOwners::Any,
            job: None,
        }
    }
}

/// A file, daemon or unit that may stand for a running job and tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) doubt: Doubt,
    pub(super) kind: FaultKind,
}

/// Why nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// It cannot be used or judged.
    Broken,
    /// It did not answer in time, or there was no time to ask.
    Silent,
}

impl SourceReport {
    /// Adds faults to the report for a login of `uid`. Those that cannot concern it are `foreign`.
    pub(super) fn add_faults(&mut self, faults: Vec<Fault>, uid: u32) {
        for Fault { doubt, kind } in faults {
            match kind {
                _ if !doubt.owners.include(uid) => {
                    let cause = doubt.cause;
                    self.foreign
                        .push(format!("{cause}; its job is another user's"));
                }
                FaultKind::Broken => self.broken.push(doubt.cause),
                FaultKind::Silent => self.silent.push(doubt.cause),
            }
        }
    }
}

/// The running jobs of all users, or of those who were asked for, and the reasons why there may be others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsOfUsers {
    /// Each with its owner.
    pub jobs: Vec<(u32, Job)>,
    /// What may be a running job.
    pub doubts: Vec<Doubt>,
    /// What may be a running job that takes no logins.
    pub without_logins: Vec<Doubt>,
}
