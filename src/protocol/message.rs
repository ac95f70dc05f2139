//! Defines the request of the privileged half and the reply of the unprivileged half.

use super::names::{AbsolutePath, CgroupPath, JobId, LeafName, NodeName};
use super::schema::{self, DecodeError, Field, Reader, Text, Writer, schema};
use super::words::{ChoiceRule, Phase, Reason, SessionLine, SeveralJobsPolicy, SourceName};
use super::{Allowlist, END_GRACE_SECONDS_MAX, Probe, Variables};
use std::ops::RangeInclusive;

schema! {
    /// The facts about one login that the unprivileged half needs. A text that PAM does not provide is
    /// empty.
    #[derive(Default)]
    struct Request {
        /// Phase that sends the request.
        phase: Phase = "phase",
        /// Name of the user: `PAM_USER` (pam_get_item(3)).
        user: String = "user",
        /// Numeric id of the user, from PAM's account; never 0, which is not judged.
        uid: u32 = "uid",
        /// Name of the service: `PAM_SERVICE`, for example `sshd`. The account phase examines its stack.
        service: String = "service",
        /// Name of this node (`nodename=`, else the host name up to the first dot).
        node: String = "node",
        /// Host of the client: `PAM_RHOST`, a name or address that the client's DNS may choose. Only logged.
        rhost: String = "rhost",
        /// PAM's `SSH_CONNECTION`: client address and port, server address and port.
        ssh_connection: String = "ssh_connection",
        /// Path of the configuration file (`conf=`).
        conf: String = "conf",
        /// What to do if the user has several jobs and no other rule decides (`action_unknown=`).
        several: SeveralJobsPolicy = "several",
        /// Milliseconds that are left of the phase's budget (`timeout=`), at most 60,000.
        budget_ms: u32 = "budget_ms",
        /// Milliseconds for which the sources are asked again while the user has no job (`wait_job=`);
        /// below the budget.
        wait_ms: u32 = "wait_ms",
        /// Unit file that the service manager of Flux's account has for the job, if no filter is in force
        /// at the unit; else empty. The unit's policy is read from it. At most
        /// [`Request::UNIT_BYTES_MAX`] bytes.
        unit: String = "unit",
    }
}

impl Request {
    /// Path of the configuration file without `conf=`.
    pub const DEFAULT_CONF: &str = "/etc/security/job_adopt.conf";
    /// Maximum bytes of an encoded request. It must fit a pipe before anything reads that.
    pub const BYTES_MAX: usize = 56 * 1024;
    /// Maximum bytes of [`Request::unit`].
    pub const UNIT_BYTES_MAX: usize = 40 * 1024;

    /// Tells whether the reply to the one request serves for the other too, so that `session` can use what `account` got.
    /// Only `phase` and `budget_ms` may differ: the time left changes no answer, and what the phase changes (for
    /// `account` our session line is looked for too) does no harm in `session`, where that line runs.
    pub fn shares_answer_with(&self, other: &Self) -> bool {
        let Self {
            phase, budget_ms, ..
        } = *self;
        *self
            == Self {
                phase,
                budget_ms,
                ..other.clone()
            }
    }

    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        schema::encode(self)
    }

    /// Decodes a request.
    ///
    /// # Errors
    ///
    /// Any bytes that [`Request::encode`] of this version does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        schema::decode(bytes)
    }
}

/// Maximum bytes of an encoded reply.
pub const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of the scheduler's command.
const HINT_BYTES_MAX: usize = 80;
/// Maximum bytes of the site's text.
const MESSAGE_BYTES_MAX: usize = 400;

/// The place of a job's logins, as the job's source reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A cgroup that carries our stamp.
    Cgroup {
        /// Path of the job's cgroup.
        path: CgroupPath,
        /// Child that the record names for logins; without one the privileged half decides.
        leaf: Option<LeafName>,
    },
    /// The cgroup into which the daemon of the job's extern step puts logins (slurmstepd).
    Extern {
        /// Directory of the daemon's socket: `SlurmdSpoolDir` of slurm.conf(5).
        spool: AbsolutePath,
        /// Name of the node in the socket's name: `NodeName` of slurm.conf(5).
        node: NodeName,
    },
    /// A leaf below the unit that the job's shell runs in (Flux, `sdexec`).
    Unit {
        /// Path of the unit's cgroup.
        path: CgroupPath,
        /// Uid of the account that Flux runs as, from the configuration; never 0. Its service manager has the
        /// unit.
        flux: u32,
    },
}

impl Placement {
    /// The source whose jobs have this kind of place.
    pub fn source(&self) -> SourceName {
        match self {
            Self::Cgroup { .. } => SourceName::Registry,
            Self::Extern { .. } => SourceName::Slurm,
            Self::Unit { .. } => SourceName::Flux,
        }
    }

    /// The path of the job's cgroup; an empty text for a Slurm job, whose daemon decides.
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

/// A name that is never empty.
trait Name: Text {}

impl Name for JobId {}
impl Name for LeafName {}

/// A name; an empty text stands for `None`.
impl<T: Name> Field for Option<T> {
    fn write(&self, key: &str, out: &mut Writer) {
        let name = self.as_ref().map(T::to_string).unwrap_or_default();
        out.push_entry(key, b's', &name);
    }

    /// Reads the name: `None` for an empty text, an error for a text that is no such name.
    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match input.take_entry(key, b's')? {
            "" => Ok(None),
            name => name
                .parse()
                .map(Some)
                .map_err(|_| DecodeError::invalid_value(key)),
        }
    }
}

/// The device containment that a login must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Containment {
    /// The job needs no filter. A filter that is found at the job is kept.
    None,
    /// The scheduler constrains the job: its filter must be in force.
    Inherit,
    /// This list must hold, and any filter that is in force already.
    Enforce(Allowlist),
    /// A filter of the scheduler must be in force, and this list must hold as well.
    InheritAndEnforce(Allowlist),
}

impl Containment {
    /// The list that we enforce; `None` without one. An empty list counts: it allows nothing.
    pub fn list(&self) -> Option<&Allowlist> {
        match self {
            Self::None | Self::Inherit => None,
            Self::Enforce(list) | Self::InheritAndEnforce(list) => Some(list),
        }
    }
}

schema!(enum Containment by "mode" {
    "none" => None {},
    "inherit" => Inherit {},
    "enforce" => Enforce { 0 as list: "device" },
    "inherit+enforce" => InheritAndEnforce { 0 as list: "device" },
});

schema! {
    /// The limits for all logins of a job together; 0 stands for no limit.
    #[derive(Copy, Default)]
    struct LoginLimits {
        /// MiB of memory, at least [`LoginLimits::MEMORY_MIB_MIN`].
        memory_mib: u32 = "memory",
        /// Percent of the job's memory, 1 to 100, in place of a size.
        memory_percent: u32 = "memory_percent",
        /// MiB of memory from which on the logins are slowed down, as `memory_mib`.
        memory_high_mib: u32 = "memory_high",
        /// The same in percent of the job's memory.
        memory_high_percent: u32 = "memory_high_percent",
        /// Number of tasks, 16 to 4,194,304.
        tasks: u32 = "tasks",
        /// Weight of the logins' processor time, 1 to 10,000, beside 100 for each other cgroup in the job.
        cpu_weight: u32 = "cpu_weight",
        /// Weight of the logins' disk accesses, in the same form.
        io_weight: u32 = "io_weight",
    }
}

/// The value of a limit in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitValue {
    /// A size in MiB, or, if `percent` is not 0, that part of the job's own limit.
    Memory {
        /// The size.
        mib: u32,
        /// The part, 1 to 100.
        percent: u32,
    },
    /// A number of tasks.
    Tasks(u32),
    /// A weight beside others.
    Weight(u32),
}

impl LimitValue {
    fn is_set(self) -> bool {
        match self {
            Self::Memory { mib, percent } => mib.max(percent) != 0,
            Self::Tasks(value) | Self::Weight(value) => value != 0,
        }
    }
}

/// A key of the configuration that limits logins, and where the kernel has such a limit (cgroup-v2.rst).
#[derive(Clone, Copy, Debug)]
pub struct LimitKey {
    /// Name of the key in job_adopt.conf(5).
    pub key: &'static str,
    /// Controller that the parent of a cgroup must enable in `cgroup.subtree_control`.
    pub controller: &'static str,
    /// File of the limit in the cgroup's directory.
    pub file: &'static str,
    /// Value in the configuration.
    pub value: LimitValue,
}

impl LoginLimits {
    /// File of a second weight for disks: the scheduler BFQ counts this one, and is not on every node.
    pub const BFQ_FILE: &str = "io.bfq.weight";

    /// Iterates over the keys of the limits that are set, with one entry for each file.
    pub fn list_keys(&self) -> impl Iterator<Item = LimitKey> + use<> {
        use LimitValue::{Memory, Tasks, Weight};
        let memory = Memory {
            mib: self.memory_mib,
            percent: self.memory_percent,
        };
        let memory_high = Memory {
            mib: self.memory_high_mib,
            percent: self.memory_high_percent,
        };
        let cpu_weight = Weight(self.cpu_weight);
        let io_weight = Weight(self.io_weight);
        // The maximum weight of BFQ is lower (`BFQ_MAX_WEIGHT`).
        let bfq_weight = Weight(self.io_weight.min(1000));
        let rows = [
            ("login_memory", "memory", "memory.max", memory),
            ("login_memory_high", "memory", "memory.high", memory_high),
            ("login_tasks", "pids", "pids.max", Tasks(self.tasks)),
            ("login_cpu_weight", "cpu", "cpu.weight", cpu_weight),
            ("login_io_weight", "io", "io.weight", io_weight),
            ("login_io_weight", "io", Self::BFQ_FILE, bfq_weight),
        ];
        rows.into_iter().filter(|(.., value)| value.is_set()).map(
            |(key, controller, file, value)| LimitKey {
                key,
                controller,
                file,
                value,
            },
        )
    }

    /// Least memory with which a login starts, in MiB.
    pub const MEMORY_MIB_MIN: u32 = 64;

    /// Tells whether each limit is 0 or in its range, and each of memory has one form. Below the minima no login
    /// starts; the maxima are the kernel's.
    pub fn is_valid(&self) -> bool {
        let fits = |value, range: RangeInclusive<u32>| value == 0 || range.contains(&value);
        let fits_memory = |mib, percent| {
            (mib == 0 || percent == 0)
                && fits(mib, Self::MEMORY_MIB_MIN..=u32::MAX)
                && fits(percent, 1..=100)
        };
        fits_memory(self.memory_mib, self.memory_percent)
            && fits_memory(self.memory_high_mib, self.memory_high_percent)
            && fits(self.tasks, 16..=4_194_304)
            && fits(self.cpu_weight, 1..=10_000)
            && fits(self.io_weight, 1..=10_000)
    }
}

schema! {
    /// Everything that the privileged half needs for one login.
    struct Plan {
        /// Job that the login joins.
        job: JobId = "job",
        /// Rule that has chosen this job.
        rule: ChoiceRule = "rule",
        /// Place of the job's logins.
        placement: Placement = "source",
        /// End of the job, in seconds since the epoch; `None` if the source does not know it.
        ends: Option<i64> = "ends",
        /// Number of GPUs in the allowlist, 0 if it is not known. The user reads it unless `probes` give the number.
        gpus: u32 = "gpus",
        /// Device containment that must hold.
        containment: Containment = "mode",
        /// Limits for the job's logins.
        limits: LoginLimits = "",
        /// Seconds that programs of logins have to save at the end of a Flux job, at most [`END_GRACE_SECONDS_MAX`].
        end_grace: u32 = "end_grace",
        /// Record whose pinned mount namespace the login sees, of the job's owner, for a job that its scheduler places;
        /// `None` without one.
        namespaces: Option<JobId> = "namespaces",
        /// One node of each GPU that the scheduler gives out here or, if it names none and variables for
        /// GPUs are wanted, of each GPU of this node. The privileged half finds out which of these the login
        /// can open, and opens none.
        probes: Vec<Probe> = "probe",
        /// Requested device specifiers that could not be resolved, each with the reason.
        dropped: Vec<String> = "dropped",
        /// Variables for the login. They describe this job.
        env: Variables = "env",
    }
}

impl Plan {
    /// Requires limits and a grace in their ranges, and variables that describe this job.
    ///
    /// # Errors
    ///
    /// [`DecodeError::InvalidValue`], with the keys of the limits, of the grace, or of the first wrong variable.
    fn require_consistent(&self) -> Result<(), DecodeError> {
        if !self.limits.is_valid() {
            return Err(DecodeError::invalid_value(
                "memory, memory_high, tasks, cpu_weight or io_weight",
            ));
        }
        if self.end_grace > END_GRACE_SECONDS_MAX.into() {
            return Err(DecodeError::invalid_value("end_grace"));
        }
        self.env
            .require_described_job(&self.job, self.placement.source())
    }
}

schema! {
    /// The reason for a refusal, and the facts that its text names.
    struct Refusal {
        /// Code of the refusal; never [`Reason::Admitted`].
        reason: Reason = "code",
        /// The user's own jobs that the text names.
        jobs: Vec<JobId> = "job",
        /// End of the named job, in seconds since the epoch; `None` if it is not over or no job is named.
        ended: Option<i64> = "ended",
        /// Device that the text names, else empty.
        device: String = "device",
    }
}

/// The decision of the unprivileged half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The login joins this job.
    Admit(Plan),
    /// The login is refused.
    Refuse(Refusal),
    /// The node does not enforce, as configured (`enforce = if-exists:PATH`).
    NotEnforced,
}

schema! {
    /// The answer of the unprivileged half to one request.
    struct Reply {
        /// State of our session line in the PAM stack.
        stack: SessionLine = "stack",
        /// What is wrong with our auth lines in the PAM stack, without which no login joins a job with private
        /// files; empty if they are as they have to be.
        auth_fault: String = "auth_fault",
        /// Cause in full, for the log. The user never sees it.
        detail: String = "detail",
        /// Command for the user: the one that lists their jobs or, for [`Reason::ChoiceNeeded`], chooses one.
        hint: String = "hint",
        /// Text of the site, which follows ours; at most 400 bytes.
        message: String = "message",
        /// Further facts for the log: broken records, failed sources.
        warnings: Vec<String> = "warning",
        /// The decision.
        verdict: Verdict = "verdict",
    }
}

schema!(enum Verdict by "verdict" {
    "admit" => Admit { 0 as plan: "" },
    "refuse" => Refuse { 0 as refusal: "" },
    "not-enforced" => NotEnforced {},
});

impl Reply {
    /// Encodes the reply.
    pub fn encode(&self) -> Vec<u8> {
        schema::encode(self)
    }

    /// Decodes a reply.
    ///
    /// # Errors
    ///
    /// Any bytes that [`Reply::encode`] of this version does not write; texts past their limits, variables
    /// of another job, and a refusal with the code of an admission.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let reply: Self = schema::decode(bytes)?;
        // The types of the values do not rule these out.
        if reply.hint.len() > HINT_BYTES_MAX {
            return Err(DecodeError::invalid_value("hint"));
        }
        if reply.message.len() > MESSAGE_BYTES_MAX {
            return Err(DecodeError::invalid_value("message"));
        }
        match &reply.verdict {
            Verdict::Admit(plan) => plan.require_consistent()?,
            Verdict::Refuse(refusal) if refusal.reason == Reason::Admitted => {
                return Err(DecodeError::invalid_value("code"));
            }
            Verdict::Refuse(_) | Verdict::NotEnforced => {}
        }
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
            several: SeveralJobsPolicy::Deny,
            budget_ms: 5000,
            wait_ms: 2000,
            unit: "[Service]\nDevicePolicy=closed\n".into(),
        }
    }

    #[test]
    fn request_round_trips() {
        assert_eq!(Request::decode(&request().encode()), Ok(request()));
    }

    #[test]
    fn requests_of_different_logins_share_no_answer() {
        let same_login = Request {
            phase: Phase::Account,
            budget_ms: 1,
            ..request()
        };
        assert!(request().shares_answer_with(&same_login));
        for other in [
            Request {
                user: "bob".into(),
                ..request()
            },
            Request {
                uid: 1002,
                ..request()
            },
            Request {
                service: "su".into(),
                ..request()
            },
            Request {
                node: "gpu018".into(),
                ..request()
            },
            Request {
                rhost: "10.1.0.7".into(),
                ..request()
            },
            Request {
                ssh_connection: String::new(),
                ..request()
            },
            Request {
                conf: "/etc/other".into(),
                ..request()
            },
            Request {
                several: SeveralJobsPolicy::Newest,
                ..request()
            },
            Request {
                wait_ms: 0,
                ..request()
            },
            Request {
                unit: String::new(),
                ..request()
            },
        ] {
            assert!(!request().shares_answer_with(&other), "{other:?}");
        }
    }

    #[test]
    fn truncated_request_is_refused() {
        let bytes = request().encode();
        for length in 0..bytes.len() {
            assert!(Request::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn other_version_is_named() {
        let bytes = request().encode();
        let text = String::from_utf8(bytes).unwrap().replace(VERSION, "9.9.9");
        let error = Request::decode(text.as_bytes()).unwrap_err();
        assert_eq!(error, DecodeError::WrongVersion("9.9.9".into()));
    }
}
