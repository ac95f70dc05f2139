//! What the privileged half asks, and what the unprivileged half answers.

use super::schema::{self, DecodeError, Field, Reader, Writer, schema};
use super::{AbsolutePath, Allowlist, CgroupPath, JobId, LeafName, NodeName, Probe, Variables};
use crate::words;

words! {
    /// Which PAM phase asks.
    #[derive(Default)]
    Phase {
        /// `pam_sm_acct_mgmt`: may the user log in at all?
        #[default]
        Account = "account",
        /// `pam_sm_open_session`: into which job?
        Session = "session",
    }
}

words! {
    /// What to do where a user has several jobs and nothing else decides (`action_unknown`).
    #[derive(Default)]
    Several {
        /// Join the job that started last.
        #[default]
        Newest = "newest",
        /// Refuse and ask for a choice.
        Deny = "deny",
    }
}

schema! {
    /// One login, and what is asked of the unprivileged half about it. Texts that PAM did not give are
    /// empty.
    #[derive(Default)]
    struct Request {
        /// Which phase asks.
        phase: Phase = "phase",
        /// `PAM_USER`.
        user: String = "user",
        /// The user's numeric id.
        uid: u32 = "uid",
        /// `PAM_SERVICE`, whose stack is judged in the account phase.
        service: String = "service",
        /// Name of this node (`nodename=`, else the host name up to the first dot).
        node: String = "node",
        /// `PAM_RHOST`.
        rhost: String = "rhost",
        /// PAM's `SSH_CONNECTION`: client address and port, server address and port.
        ssh_connection: String = "ssh_connection",
        /// Path of the configuration file (`conf=`).
        conf: String = "conf",
        /// `action_unknown=`.
        several: Several = "several",
        /// Milliseconds that are left of the phase's budget.
        budget_ms: u32 = "budget_ms",
        /// Milliseconds for which "no job" is asked again (`wait_job=`); below the budget.
        wait_ms: u32 = "wait_ms",
        /// What the service manager of Flux's account keeps of the job's unit, where no filter is in
        /// force at the unit and its policy must be known; else empty. At most [`Request::UNIT_MAX`]
        /// bytes.
        unit: String = "unit",
    }
}

impl Request {
    /// Where the configuration lies, unless the admin says otherwise.
    pub const CONF: &str = "/etc/security/job_adopt.conf";
    /// Most bytes of an encoded request: it must fit a pipe that nobody reads yet.
    pub const MAX: usize = 56 * 1024;
    /// Most bytes of [`Request::unit`].
    pub const UNIT_MAX: usize = 40 * 1024;

    /// Whether an answer to this request answers the other as well: nothing but the phase, which
    /// decides about the stack alone, and the time that is left may differ.
    pub fn is_also(&self, other: &Self) -> bool {
        let Self { phase, budget_ms, .. } = *self;
        *self == Self { phase, budget_ms, ..other.clone() }
    }

    /// The request's bytes.
    pub fn encode(&self) -> Vec<u8> {
        schema::encode(self)
    }

    /// Reads the bytes that [`Request::encode`] of this version writes; all else is an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        schema::decode(bytes)
    }
}

/// Most bytes of a reply.
pub const REPLY_MAX: usize = 64 * 1024;
/// Most bytes of the scheduler's command, and of the site's text.
const HINT_MAX: usize = 80;
const MESSAGE_MAX: usize = 400;

words! {
    /// Where a job was found, in the order in which they are asked.
    SourceName {
        /// Root-owned job records.
        Registry = "registry",
        /// The daemons of Slurm's job steps.
        Slurm = "slurm",
        /// The units of Flux's jobs.
        Flux = "flux",
    }
}

words! {
    /// Which rule chose the job.
    Rule {
        /// It is the user's only job here.
        OnlyJob = "only-job",
        /// The ssh client runs in it.
        Caller = "caller",
        /// The user chose it.
        Chosen = "chosen",
        /// It started last.
        Newest = "newest",
        /// It is the only or the newest one of those that are known, and what may stand for another
        /// one did not answer in time.
        Answered = "answered",
    }
}

words! {
    /// What the service's flattened PAM stack says about our session line.
    Stack {
        /// A line of ours must succeed before a session opens.
        Effective = "effective",
        /// There is none, it is optional, or another line can skip it.
        Missing = "missing",
        /// Not judged: the session phase is itself the proof.
        Unchecked = "unchecked",
    }
}

words! {
    /// Why a login was admitted or refused: the codes that users, launchers and help desks read.
    /// Stable forever; each has a section in pam_job_adopt(8).
    Reason {
        /// Admitted.
        Admitted = "JA00",
        /// The user has no running job here.
        NoJob = "JA01",
        /// The job is still starting.
        Starting = "JA02",
        /// The job ended a moment ago.
        Ended = "JA03",
        /// The job is frozen.
        Suspended = "JA04",
        /// Several jobs, and the site wants a choice.
        ChoiceNeeded = "JA05",
        /// The job's devices cannot be enforced here.
        CannotConfine = "JA06",
        /// The move into the job failed.
        AdoptionFailed = "JA07",
        /// No answer in time, or the two halves are of different versions.
        Timeout = "JA08",
        /// The node is not set up correctly.
        Configuration = "JA09",
        /// A device of the job is not on this node.
        DeviceUnknown = "JA10",
        /// No job service runs here.
        NoScheduler = "JA11",
    }
}

/// Where a job's logins go, as its source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Into a cgroup, which carries our stamp.
    Cgroup {
        /// The job's cgroup.
        path: CgroupPath,
        /// The child that the record wants its logins in; else the privileged half decides.
        leaf: Option<LeafName>,
    },
    /// Where the daemon of the job's extern step puts them (slurmstepd).
    Extern {
        /// The directory of the daemon's socket: `SlurmdSpoolDir` of slurm.conf(5).
        spool: AbsolutePath,
        /// The node's name in the socket's.
        node: NodeName,
    },
    /// Into a leaf below the unit that the job's shell runs in (Flux, `sdexec`).
    Unit {
        /// The unit's cgroup.
        path: CgroupPath,
        /// Uid of the account that Flux runs as, whose service manager has the unit.
        flux: u32,
    },
}

impl Placement {
    /// The source that places so.
    pub fn source(&self) -> SourceName {
        match self {
            Self::Cgroup { .. } => SourceName::Registry,
            Self::Extern { .. } => SourceName::Slurm,
            Self::Unit { .. } => SourceName::Flux,
        }
    }

    /// The job's cgroup, where it is known beforehand.
    pub fn cgroup(&self) -> &str {
        match self {
            Self::Cgroup { path, .. } | Self::Unit { path, .. } => path.as_str(),
            Self::Extern { .. } => "",
        }
    }
}

schema!(enum Placement by "source" {
    "registry" => Cgroup { path as path: "cgroup", leaf as leaf: "leaf" },
    "slurm" => Extern { spool as spool: "spool", node as node: "node" },
    "flux" => Unit { path as path: "cgroup", flux as flux: "manager" },
});

/// An empty text for none.
impl Field for Option<LeafName> {
    fn write(&self, key: &str, out: &mut Writer) {
        out.entry(key, b's', self.as_ref().map_or("", LeafName::as_str));
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match input.entry(key, b's')? {
            "" => Ok(None),
            name => name.parse().map(Some).map_err(|_| DecodeError::value(key)),
        }
    }
}

/// What must hold for the login's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Containment {
    /// The job was spelled out to have none; a filter found at the job is kept all the same.
    None,
    /// The scheduler constrains the job; a filter of its own must be in force.
    Inherit,
    /// This list holds besides whatever is in force already.
    Enforce(Allowlist),
    /// Both: a filter of the scheduler must be in force, and this list holds besides.
    Both(Allowlist),
}

impl Containment {
    /// The list of ours, where there is one.
    pub fn list(&self) -> Option<&Allowlist> {
        match self {
            Self::None | Self::Inherit => None,
            Self::Enforce(list) | Self::Both(list) => Some(list),
        }
    }
}

schema!(enum Containment by "mode" {
    "none" => None {},
    "inherit" => Inherit {},
    "enforce" => Enforce { 0 as list: "device" },
    "inherit+enforce" => Both { 0 as list: "device" },
});

schema! {
    /// Everything that the privileged half needs for one login.
    struct Plan {
        /// The job to join.
        job: JobId = "job",
        /// Why this job and no other of the user's.
        rule: Rule = "rule",
        /// Where its logins go.
        placement: Placement = "source",
        /// When the job ends, in seconds since the epoch, where the source knows it.
        ends: Option<i64> = "ends",
        /// Number of GPUs in the allowlist, for the line that the user reads.
        gpus: u32 = "gpus",
        /// What must hold for the devices.
        containment: Containment = "mode",
        /// One node for each GPU that the scheduler gives out here: what the login can open of these is
        /// the job's.
        probes: Vec<Probe> = "probe",
        /// Device specifiers that were asked for and could not be resolved, each with the reason.
        dropped: Vec<String> = "dropped",
        /// Variables for the login, which describe this job.
        env: Variables = "env",
    }
}

schema! {
    /// Why there is no plan.
    struct Refusal {
        /// The code; never [`Reason::Admitted`].
        reason: Reason = "code",
        /// The user's own jobs that the text names.
        jobs: Vec<JobId> = "job",
        /// When the named job ended, in seconds since the epoch.
        ended: Option<i64> = "ended",
        /// The device that the text names, else empty.
        device: String = "device",
    }
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

schema! {
    /// One answer of the unprivileged half.
    struct Reply {
        /// What the PAM stack says about our session line.
        stack: Stack = "stack",
        /// The cause in full, for the log; never shown to the user.
        detail: String = "detail",
        /// The scheduler's own command for "my jobs".
        hint: String = "hint",
        /// The site's text below ours, at most 400 bytes.
        message: String = "message",
        /// What else the log names: broken records, sources that erred.
        warnings: Vec<String> = "warning",
        /// The answer proper.
        verdict: Verdict = "verdict",
    }
}

schema!(enum Verdict by "verdict" {
    "admit" => Admit { 0 as plan: "" },
    "refuse" => Refuse { 0 as refusal: "" },
    "not-enforced" => NotEnforced {},
});

impl Reply {
    /// The reply's bytes.
    pub fn encode(&self) -> Vec<u8> {
        schema::encode(self)
    }

    /// Reads the bytes that [`Reply::encode`] of this version writes; all else is an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let reply: Self = schema::decode(bytes)?;
        // What the type of a value alone does not rule out.
        match &reply.verdict {
            _ if reply.hint.len() > HINT_MAX => Err(DecodeError::value("hint")),
            _ if reply.message.len() > MESSAGE_MAX => Err(DecodeError::value("message")),
            Verdict::Admit(plan) => plan.env.require(&plan.job, plan.placement.source()),
            Verdict::Refuse(refusal) if refusal.reason == Reason::Admitted => {
                Err(DecodeError::value("code"))
            }
            _ => Ok(()),
        }?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VERSION;

    fn request() -> Request {
        Request {
            phase: Phase::Session,
            user: "alice".into(),
            uid: 1001,
            service: "sshd".into(),
            node: "gpu017".into(),
            rhost: "10.1.0.5".into(),
            ssh_connection: "10.1.0.5 5000 10.1.0.6 22".into(),
            conf: "/etc/security/job_adopt.conf".into(),
            several: Several::Deny,
            budget_ms: 5000,
            wait_ms: 2000,
            unit: "[Service]\nDevicePolicy=closed\n".into(),
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(Request::decode(&request().encode()), Ok(request()));
    }

    #[test]
    fn an_answer_is_for_one_login() {
        let asked = request();
        assert!(asked.is_also(&Request { phase: Phase::Account, budget_ms: 1, ..request() }));
        for other in [
            Request { user: "bob".into(), ..request() },
            Request { uid: 1002, ..request() },
            Request { service: "su".into(), ..request() },
            Request { node: "gpu018".into(), ..request() },
            Request { rhost: "10.1.0.7".into(), ..request() },
            Request { ssh_connection: String::new(), ..request() },
            Request { conf: "/etc/other".into(), ..request() },
            Request { several: Several::Newest, ..request() },
            Request { wait_ms: 0, ..request() },
            Request { unit: String::new(), ..request() },
        ] {
            assert!(!asked.is_also(&other), "{other:?}");
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = request().encode();
        for length in 0..bytes.len() {
            assert!(Request::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn another_version_is_named() {
        let bytes = request().encode();
        let text = String::from_utf8(bytes).unwrap().replace(VERSION, "9.9.9");
        let error = Request::decode(text.as_bytes()).unwrap_err();
        assert_eq!(error, DecodeError::Version("9.9.9".into()));
    }
}
