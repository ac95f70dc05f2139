//! What the unprivileged half answers.

mod codec;

pub(super) use codec::check_version;

use super::{Allowlist, JobId, Placement, Probe, Reason, Variables};

/// Most bytes of a reply.
pub const REPLY_MAX: usize = 64 * 1024;

/// Where a job was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// Root-owned job records.
    Registry,
    /// The daemons of Slurm's job steps.
    Slurm,
    /// The units of Flux's jobs.
    Flux,
}

impl SourceName {
    /// Every source, in the order in which they are asked.
    pub const ALL: [Self; 3] = [Self::Registry, Self::Slurm, Self::Flux];

    /// The name in configuration, protocol and log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Registry => "registry",
            Self::Slurm => "slurm",
            Self::Flux => "flux",
        }
    }
}

/// Which rule chose the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is the user's only job here.
    OnlyJob,
    /// The ssh client runs in it.
    Caller,
    /// The user chose it.
    Chosen,
    /// It started last.
    Newest,
}

impl Rule {
    /// The name in protocol and log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnlyJob => "only-job",
            Self::Caller => "caller",
            Self::Chosen => "chosen",
            Self::Newest => "newest",
        }
    }
}

/// What the service's flattened PAM stack says about our session line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// A line of ours must succeed before a session opens.
    Effective,
    /// There is none, it is optional, or another line can skip it.
    Missing,
    /// Not judged: the session phase is itself the proof.
    Unchecked,
}

impl Stack {
    fn as_str(self) -> &'static str {
        match self {
            Self::Effective => "effective",
            Self::Missing => "missing",
            Self::Unchecked => "unchecked",
        }
    }
}

/// What must hold for the login's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Containment {
    /// The job was spelled out to have none; a filter found at the job is kept all the same.
    None,
    /// The scheduler constrains the job; a filter of its has to be in force.
    Inherit,
    /// This list holds besides whatever is in force already.
    Enforce(Allowlist),
    /// Both: a filter of the scheduler's has to be in force, and this list holds besides.
    Both(Allowlist),
}

impl Containment {
    /// The name in protocol and log.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Inherit => "inherit",
            Self::Enforce(_) => "enforce",
            Self::Both(_) => "inherit+enforce",
        }
    }

    /// The list of ours, where there is one.
    #[must_use]
    pub fn list(&self) -> Option<&Allowlist> {
        match self {
            Self::None | Self::Inherit => None,
            Self::Enforce(list) | Self::Both(list) => Some(list),
        }
    }
}

/// Everything that the privileged half needs for one login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The job to join.
    pub job: JobId,
    /// Why this job and no other of the user's.
    pub rule: Rule,
    /// Where its logins go.
    pub placement: Placement,
    /// When the job ends, in seconds since the epoch, where the source knows it.
    pub ends: Option<i64>,
    /// Number of GPUs in the allowlist, for the line that the user reads.
    pub gpus: u32,
    /// What must hold for the devices.
    pub containment: Containment,
    /// One node for each GPU that the scheduler gives out here, at most [`super::MAX_PROBES`]: what
    /// the login can open of these is the job's.
    pub probes: Vec<Probe>,
    /// Device specifiers that were asked for and could not be resolved, each with the reason.
    pub dropped: Vec<String>,
    /// Variables for the login, which describe this job.
    pub env: Variables,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code; never [`Reason::Admitted`].
    pub reason: Reason,
    /// The user's own jobs that the text names.
    pub jobs: Vec<JobId>,
    /// When the named job ended, in seconds since the epoch.
    pub ended: Option<i64>,
    /// The device that the text names, else empty.
    pub device: String,
}

/// The answer proper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Join this job.
    Admit(Plan),
    /// Refuse, for this reason.
    Refuse(Refusal),
    /// The configuration says that this node does not enforce (`enforce = if-exists:PATH`).
    NotEnforced,
}

/// One answer of the unprivileged half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What the PAM stack says about our session line.
    pub stack: Stack,
    /// The cause in full, for the log; never shown to the user.
    pub detail: String,
    /// What else the log has to name: broken records, sources that erred.
    pub warnings: Vec<String>,
    /// The scheduler's own command for "my jobs".
    pub hint: String,
    /// The site's text below ours, at most 400 bytes.
    pub message: String,
    /// The answer proper.
    pub verdict: Verdict,
}

#[cfg(test)]
mod tests;
