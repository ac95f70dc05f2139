//! What the privileged half asks.

use super::schema::{self, DecodeError, Field, Reader, Writer, schema};
use super::text::words;

words! {
    /// Which PAM phase asks.
    Phase {
        /// `pam_sm_acct_mgmt`: may the user log in at all?
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
    /// One question to the unprivileged half. Texts that PAM did not give are empty.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::VERSION;

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
