//! The words of messages, of the log and of the configuration.

use super::schema::Text;
use crate::string_enum;

string_enum! {
    /// The PAM phase that sends a request.
    #[derive(Default)]
    Phase {
        /// `pam_sm_acct_mgmt`, which admits or refuses the user.
        #[default]
        Account = "account",
        /// `pam_sm_open_session`, which moves the login into a job.
        Session = "session",
    }
}

string_enum! {
    /// The policy for a user with several jobs if no other rule decides (`action_unknown`).
    #[derive(Default)]
    SeveralJobsPolicy {
        /// Join the job that started last.
        #[default]
        Newest = "newest",
        /// Refuse and ask for a choice.
        Deny = "deny",
    }
}

string_enum! {
    /// A source of jobs.
    SourceName {
        /// Root-owned job records.
        Registry = "registry",
        /// The daemons of Slurm's job steps.
        Slurm = "slurm",
        /// The units of Flux's jobs.
        Flux = "flux",
    }
}

string_enum! {
    /// A scheduler, whose jobs have variables of their own names.
    Scheduler {
        /// Slurm.
        Slurm = "slurm",
        /// Flux.
        Flux = "flux",
        /// Grid Engine and its descendants.
        GridEngine = "gridengine",
        /// HTCondor.
        HtCondor = "htcondor",
        /// LSF.
        Lsf = "lsf",
        /// OAR.
        Oar = "oar",
        /// OpenPBS and PBS Professional.
        OpenPbs = "openpbs",
        /// Any other one. Its jobs have variables of our names.
        Other = "other",
    }
}

impl Scheduler {
    /// The source of this scheduler's jobs.
    pub fn source(self) -> SourceName {
        match self {
            Self::Slurm => SourceName::Slurm,
            Self::Flux => SourceName::Flux,
            Self::GridEngine
            | Self::HtCondor
            | Self::Lsf
            | Self::Oar
            | Self::OpenPbs
            | Self::Other => SourceName::Registry,
        }
    }
}

string_enum! {
    /// The rule that has chosen the job.
    ChoiceRule {
        /// The user has no other job here.
        OnlyJob = "only-job",
        /// The ssh client runs in the job.
        Caller = "caller",
        /// The user has named the job.
        Chosen = "chosen",
        /// No other job of the user started later.
        Newest = "newest",
        /// No other job that is known started later, but a source of further jobs did not answer in time.
        Answered = "answered",
    }
}

string_enum! {
    /// The state of our session line in the service's flattened PAM stack.
    SessionLine {
        /// A line of this module must succeed before a session opens.
        Effective = "effective",
        /// No line exists, it is optional, or another line can skip it.
        Missing = "missing",
        /// The stack was not examined: the session phase itself proves that the line is there.
        Unchecked = "unchecked",
    }
}

string_enum! {
    /// The reason why a login is admitted or refused: the code that users, launchers and help desks read.
    /// Codes are stable forever; each has a section in pam_job_adopt(8).
    Reason {
        /// The login is admitted.
        Admitted = "JA00",
        /// The user has no running job here.
        NoJob = "JA01",
        /// The job is still starting.
        Starting = "JA02",
        /// The job ended a moment ago.
        Ended = "JA03",
        /// The job is frozen.
        Suspended = "JA04",
        /// The user has several jobs, and the site requires a choice.
        ChoiceNeeded = "JA05",
        /// The job's devices cannot be enforced here.
        CannotConfine = "JA06",
        /// The move into the job failed.
        AdoptionFailed = "JA07",
        /// No answer came in time, or the two halves are of different versions.
        Timeout = "JA08",
        /// The node is not set up correctly.
        Configuration = "JA09",
        /// A device of the job is not on this node.
        DeviceUnknown = "JA10",
        /// No job service runs here.
        NoScheduler = "JA11",
        /// The user's jobs here take no logins (`logins` of job-adopt-record(5)).
        LoginsClosed = "JA12",
    }
}

string_enum! {
    /// What the module did with a login: the value of `decision=` in the log.
    Decision {
        /// `account` admits the user, and moves nothing.
        Admit = "admit",
        /// `session` has moved the login into its job.
        Adopt = "adopt",
        /// An exempt user is let in outside of a job (`exempt_uids=`, `exempt_groups=`).
        Exempt = "exempt",
        /// The module leaves the login to the other modules: the node does not enforce, or it is switched
        /// off.
        Ignore = "ignore",
        /// The argument `observe` lets the login in; `would=` has the decision without it.
        Observe = "observe",
        /// An argument lets a login in that would be refused; `knob=` names the argument.
        Opened = "opened",
        /// The login is refused.
        Refuse = "refuse",
    }
}

impl Text for SourceName {}
impl Text for ChoiceRule {}
impl Text for SessionLine {}
impl Text for Reason {}
impl Text for Phase {}
impl Text for SeveralJobsPolicy {}
