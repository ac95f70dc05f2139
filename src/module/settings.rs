//! What the admin set by PAM arguments.

use crate::kernel::log::Severity;
use crate::protocol::{Reason, Request, Several};
use std::time::Duration;

/// What becomes of a login that would be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Refuse it.
    Deny,
    /// Leave it to the other modules of the stack.
    Ignore,
    /// Let it in, outside the job.
    Allow,
}

/// Uid and gid of the system user that the unprivileged half runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Never 0.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
}

/// The module's arguments, checked. See pam_job_adopt(8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `action_no_jobs=deny|ignore`
    pub no_jobs: Action,
    /// `action_unknown=newest|deny`
    pub several: Several,
    /// `action_adopt_failure=deny|allow`
    pub adopt_failure: Action,
    /// `action_generic_failure=deny|ignore|allow`
    pub generic_failure: Action,
    /// `service=`, in lower case: the only PAM service that is not ignored, `sshd` unless given.
    pub service: Option<String>,
    /// `nodename=`
    pub node: Option<String>,
    /// `log_level=`: lines less severe than this are not written.
    pub log_level: Severity,
    /// `helper=`
    pub helper: String,
    /// `conf=`
    pub conf: String,
    /// `timeout=`
    pub timeout: Duration,
    /// `wait_job=`
    pub wait_job: Duration,
    /// `require_devices`
    pub require_devices: bool,
    /// `observe`
    pub observe: bool,
    /// `exempt_uids=`
    pub exempt_uids: Vec<u32>,
    /// `exempt_groups=`
    pub exempt_groups: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            no_jobs: Action::Deny,
            several: Several::Newest,
            adopt_failure: Action::Deny,
            generic_failure: Action::Deny,
            service: None,
            node: None,
            log_level: Severity::Info,
            helper: "/usr/libexec/job-adopt/resolve".into(),
            conf: Request::CONF.into(),
            timeout: Duration::from_secs(5),
            wait_job: Duration::ZERO,
            require_devices: false,
            observe: false,
            exempt_uids: Vec::new(),
            exempt_groups: Vec::new(),
        }
    }
}

impl Settings {
    /// What the admin wants for a refusal of this kind, and the argument that says so. A frozen
    /// job and a choice that is due are no failures: nothing opens them.
    #[must_use]
    pub fn action(&self, reason: Reason) -> (Action, &'static str) {
        match reason {
            Reason::NoJob | Reason::Starting | Reason::Ended | Reason::NoScheduler => {
                (self.no_jobs, "action_no_jobs")
            }
            Reason::CannotConfine | Reason::AdoptionFailed | Reason::DeviceUnknown => {
                (self.adopt_failure, "action_adopt_failure")
            }
            Reason::Timeout | Reason::Configuration => {
                (self.generic_failure, "action_generic_failure")
            }
            Reason::Admitted | Reason::Suspended | Reason::ChoiceNeeded => (Action::Deny, ""),
        }
    }
}
