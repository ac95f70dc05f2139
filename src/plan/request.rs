//! What the privileged half asks.

use super::{DecodeError, Reader, VERSION, Writer};

/// Which PAM phase asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `pam_sm_acct_mgmt`: may the user log in at all?
    Account,
    /// `pam_sm_open_session`: into which job?
    Session,
}

impl Phase {
    /// The name in the protocol and in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Session => "session",
        }
    }
}

/// What to do where a user has several jobs and nothing else decides (`action_unknown`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Several {
    /// Join the job that started last.
    #[default]
    Newest,
    /// Refuse and ask for a choice.
    Deny,
}

impl Several {
    /// The value of the PAM argument.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Deny => "deny",
        }
    }
}

/// One question to the unprivileged half. Texts that PAM did not give are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which phase asks.
    pub phase: Phase,
    /// `PAM_USER`.
    pub user: String,
    /// The user's numeric id.
    pub uid: u32,
    /// `PAM_SERVICE`, whose stack is judged in the account phase.
    pub service: String,
    /// Name of this node (`nodename=`, else the host name up to the first dot).
    pub node: String,
    /// `PAM_RHOST`.
    pub rhost: String,
    /// PAM's `SSH_CONNECTION`: client address and port, server address and port.
    pub ssh_connection: String,
    /// Path of the configuration file (`conf=`).
    pub conf: String,
    /// `action_unknown=`.
    pub several: Several,
    /// Milliseconds that are left of the phase's budget.
    pub budget_ms: u32,
    /// Milliseconds for which "no job" is asked again (`wait_job=`); below the budget.
    pub wait_ms: u32,
    /// What the service manager of Flux's account keeps of the job's unit, where no filter is in
    /// force at the unit and its policy has to be known; else empty. At most [`Request::UNIT_MAX`]
    /// bytes.
    pub unit: String,
}

impl Request {
    /// Where the configuration lies, unless the admin says otherwise.
    pub const CONF: &str = "/etc/security/job_adopt.conf";
    /// Most bytes of an encoded request: it must fit a pipe that nobody reads yet.
    pub const MAX: usize = 56 * 1024;
    /// Most bytes of [`Request::unit`].
    pub const UNIT_MAX: usize = 40 * 1024;

    /// The request as RFC 38 key-values.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.string("version", VERSION)
            .string("phase", self.phase.as_str())
            .string("user", &self.user)
            .int("uid", self.uid.into())
            .string("service", &self.service)
            .string("node", &self.node)
            .string("rhost", &self.rhost)
            .string("ssh_connection", &self.ssh_connection)
            .string("conf", &self.conf)
            .string("several", self.several.as_str())
            .int("budget_ms", self.budget_ms.into())
            .int("wait_ms", self.wait_ms.into())
            .string("unit", &self.unit)
            .bool("end", true);
        out.finish()
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`DecodeError`] for anything but the bytes that [`Request::encode`] of this version writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        super::reply::check_version(input.string("version")?)?;
        let request = Self {
            phase: match input.string("phase")? {
                "account" => Phase::Account,
                "session" => Phase::Session,
                _ => return Err(DecodeError::value("phase")),
            },
            user: input.string("user")?.to_owned(),
            uid: number(&mut input, "uid")?,
            service: input.string("service")?.to_owned(),
            node: input.string("node")?.to_owned(),
            rhost: input.string("rhost")?.to_owned(),
            ssh_connection: input.string("ssh_connection")?.to_owned(),
            conf: input.string("conf")?.to_owned(),
            several: match input.string("several")? {
                "newest" => Several::Newest,
                "deny" => Several::Deny,
                _ => return Err(DecodeError::value("several")),
            },
            budget_ms: number(&mut input, "budget_ms")?,
            wait_ms: number(&mut input, "wait_ms")?,
            unit: input.string("unit")?.to_owned(),
        };
        if !input.bool("end")? {
            return Err(DecodeError::value("end"));
        }
        input.end()?;
        Ok(request)
    }
}

fn number(input: &mut Reader<'_>, key: &str) -> Result<u32, DecodeError> {
    u32::try_from(input.int(key)?).map_err(|_| DecodeError::value(key))
}

#[cfg(test)]
mod tests {
    use super::*;

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
