//! What is wrong with a line of `gres.conf`.

use super::hostlist::HostListError;
use crate::slurm_conf::{ConfPosition, NoPairs};
use thiserror::Error;

/// What slurmd refuses about a line, or what is beyond the bounds here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum RecordFault {
    #[error(transparent)]
    NoPairs(#[from] NoPairs),
    #[error("neither Name= nor AutoDetect=")]
    UnknownLine,
    #[error("unknown key {0}")]
    UnknownKey(String),
    #[error("NodeName= must be the first key: slurmd refuses it elsewhere")]
    LateNodeName,
    /// The value of this key is no list of names, or of too many.
    #[error("{0}=: {1}")]
    InvalidList(&'static str, HostListError),
    /// Releases of Slurm read the list of nodes differently, and which one reads it here is not known.
    #[error(
        "NodeName=: releases of Slurm read this list differently; the prolog asks slurmd with DEVICES=lists"
    )]
    ReleaseDependentNodes,
    #[error("{0}= without File=: only slurmd knows which device that is")]
    DeviceByOtherKey(String),
    #[error("{0} is not below /dev")]
    FileOutsideDev(String),
    #[error("{0} stands twice in the records of the name")]
    RepeatedFile(String),
    #[error("File=, Files= and MultipleFiles= exclude each other")]
    SeveralLists,
    #[error("MultipleFiles= has one file: slurmd wants File=")]
    SingleFile,
    #[error("Count= is not a number")]
    InvalidCount,
    #[error("Count= is not the number of files")]
    WrongCount,
    #[error("some records of the name have File= and others not: slurmd refuses both")]
    MixedFiles,
    #[error("more than one Type=, and a record of the name without: slurmd refuses both")]
    MixedTypes,
    #[error("a second record of the name without File= and Type=: slurmd refuses it")]
    RepeatedCount,
}

impl RecordFault {
    /// Tells whether another release of Slurm may find no fault.
    pub(super) fn depends_on_release(&self) -> bool {
        matches!(
            self,
            Self::UnknownLine
                | Self::UnknownKey(_)
                | Self::ReleaseDependentNodes
                | Self::DeviceByOtherKey(_)
        )
    }
}

/// A line that slurmd refuses and that may be a record of any name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{at}: {fault}")]
pub struct FaultyLine {
    /// The place of the first part of the line.
    pub at: ConfPosition,
    /// The fault.
    pub fault: RecordFault,
}

/// A record that slurmd refuses, or that is beyond the bounds here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{at}: {fault}")]
pub struct FaultyRecord {
    /// The place of the first part of the line.
    pub at: ConfPosition,
    /// The name of the resource.
    pub name: String,
    /// The fault.
    pub fault: RecordFault,
}
