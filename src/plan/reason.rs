//! The codes that users, launchers and help desks read. Stable forever.

use std::fmt;
use std::str::FromStr;

/// Why a login was admitted or refused; each has a section in pam_job_adopt(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// JA00: admitted.
    Admitted,
    /// JA01: the user has no running job here.
    NoJob,
    /// JA02: the job is still starting.
    Starting,
    /// JA03: the job ended a moment ago.
    Ended,
    /// JA04: the job is frozen.
    Suspended,
    /// JA05: several jobs, and the site wants a choice.
    ChoiceNeeded,
    /// JA06: the job's devices cannot be enforced here.
    CannotConfine,
    /// JA07: the move into the job failed.
    AdoptionFailed,
    /// JA08: no answer in time, or the two halves are of different versions.
    Timeout,
    /// JA09: the node is not set up correctly.
    Configuration,
    /// JA10: a device of the job is not on this node.
    DeviceUnknown,
    /// JA11: no job service runs here.
    NoScheduler,
}

impl Reason {
    /// Every reason, in the order of the codes.
    pub const ALL: [Self; 12] = [
        Self::Admitted,
        Self::NoJob,
        Self::Starting,
        Self::Ended,
        Self::Suspended,
        Self::ChoiceNeeded,
        Self::CannotConfine,
        Self::AdoptionFailed,
        Self::Timeout,
        Self::Configuration,
        Self::DeviceUnknown,
        Self::NoScheduler,
    ];

    /// The code, `JA00` to `JA11`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Admitted => "JA00",
            Self::NoJob => "JA01",
            Self::Starting => "JA02",
            Self::Ended => "JA03",
            Self::Suspended => "JA04",
            Self::ChoiceNeeded => "JA05",
            Self::CannotConfine => "JA06",
            Self::AdoptionFailed => "JA07",
            Self::Timeout => "JA08",
            Self::Configuration => "JA09",
            Self::DeviceUnknown => "JA10",
            Self::NoScheduler => "JA11",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl FromStr for Reason {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|reason| reason.code() == text).ok_or(())
    }
}
