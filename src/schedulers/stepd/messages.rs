//! Requests to step daemons and their answers: integers of 4 bytes in the machine's own order.

use super::{Error, Result};

/// Version of the protocol that we send, from Slurm 26.05. A daemon refuses versions older than the oldest
/// that it knows, and logs a newer version.
const PROTOCOL_VERSION: i32 = 45 << 8;
pub(super) const REQUEST_STATE: i32 = 5;
pub(super) const REQUEST_STEP_UID: i32 = 20;
pub(super) const REQUEST_ADD_EXTERN_PID: i32 = 22;
pub(super) const REQUEST_X11_DISPLAY: i32 = 23;
/// Asks for the descriptor of one namespace. Daemons since Slurm 25.11 answer it only if the job has one.
pub(super) const REQUEST_GET_NS_FD: i32 = 26;
/// Asks for the descriptors of all namespaces, since Slurm 25.11.
pub(super) const REQUEST_GET_NS_FDS: i32 = 28;

/// Bytes of a query for owner and state.
pub const QUERY_BYTES: usize = 12;
/// Bytes of the answer to a query for owner and state.
pub const ANSWER_BYTES: usize = 12;

/// A release of Slurm, by the version of the protocol that its daemons speak (`slurm_protocol_common.h`). A job's step
/// daemons are of the release of the slurmd that started the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(i32);

impl Release {
    /// Slurm 22.05.
    pub const V22_05: Self = Self(38 << 8);
    /// Slurm 23.02.
    pub const V23_02: Self = Self(39 << 8);
    /// Slurm 23.11.
    pub const V23_11: Self = Self(40 << 8);
    /// Slurm 24.11.
    pub const V24_11: Self = Self(42 << 8);
    /// Slurm 25.11, the first one with `REQUEST_GET_NS_FDS`.
    pub const V25_11: Self = Self(44 << 8);
    /// Slurm 26.05.
    pub const V26_05: Self = Self(45 << 8);
    /// Slurm 26.11.
    pub const V26_11: Self = Self(46 << 8);

    /// Parses the version in the first answer of a daemon.
    ///
    /// # Errors
    ///
    /// [`Error::VersionRefused`] for a version below 0.
    pub fn parse(bytes: &[u8; ANSWER_BYTES]) -> Result<Self> {
        let [a, b, c, d, ..] = *bytes;
        match i32::from_ne_bytes([a, b, c, d]) {
            version @ 0.. => Ok(Self(version)),
            _ => Err(Error::VersionRefused),
        }
    }

    /// Finds the release of a program by the version that it reports, such as `22.05.8`; `None` for a version before
    /// 20.11 or after 26.11.
    pub fn from_version(version: &str) -> Option<Self> {
        const RELEASES: [&str; 11] = [
            "20.11.", "21.08.", "22.05.", "23.02.", "23.11.", "24.05.", "24.11.", "25.05.",
            "25.11.", "26.05.", "26.11.",
        ];
        let index = RELEASES
            .iter()
            .position(|release| version.starts_with(release))?;
        let number = i32::try_from(index).ok()? + 36;
        Some(Self(number << 8))
    }

    /// The release after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1 << 8))
    }
}

/// The state of a step (`slurmstepd_state_t` of `stepd_api.h`), from 0 to 4 there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The step does not accept processes yet.
    Starting,
    /// The step accepts processes.
    Running,
    /// The step accepts no processes any more.
    Ending,
}

/// A step daemon's answer about its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Uid of the job's owner.
    pub uid: u32,
    /// State of the step.
    pub state: State,
    /// Release of the daemon.
    pub release: Release,
}

impl Answer {
    /// Parses the answer to [`encode_query`]: version, uid and state.
    ///
    /// # Errors
    ///
    /// [`Error::VersionRefused`] for a version below 0; [`Error::MalformedAnswer`] for an unknown state.
    pub fn parse(bytes: &[u8; ANSWER_BYTES]) -> Result<Self> {
        Self::parse_later(bytes, Release::parse(bytes)?)
    }

    /// Parses an answer that has another number in place of the version, from a daemon of this release.
    pub(super) fn parse_later(bytes: &[u8; ANSWER_BYTES], release: Release) -> Result<Self> {
        let [_, _, _, _, uid @ .., e, f, g, h] = *bytes;
        let state = match i32::from_ne_bytes([e, f, g, h]) {
            0 | 1 => State::Starting,
            2 => State::Running,
            3 | 4 => State::Ending,
            _ => return Err(Error::MalformedAnswer),
        };
        Ok(Self {
            uid: u32::from_ne_bytes(uid),
            state,
            release,
        })
    }
}

/// Encodes our version and the requests for owner and state. A daemon reads them one by one.
pub fn encode_query() -> [u8; QUERY_BYTES] {
    let mut bytes = [0; QUERY_BYTES];
    let numbers = [PROTOCOL_VERSION, REQUEST_STEP_UID, REQUEST_STATE];
    bytes.copy_from_slice(numbers.map(i32::to_ne_bytes).as_flattened());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_answer(numbers: [i32; 3]) -> Result<Answer> {
        let mut bytes = [0; ANSWER_BYTES];
        bytes.copy_from_slice(numbers.map(i32::to_ne_bytes).as_flattened());
        Answer::parse(&bytes)
    }

    #[test]
    fn answer_is_version_uid_and_state() {
        let running = Answer {
            uid: 1001,
            state: State::Running,
            release: Release::V22_05,
        };
        assert_eq!(parse_answer([38 << 8, 1001, 2]), Ok(running));
        assert_eq!(parse_answer([0, -2, 2]).unwrap().uid, 4_294_967_294);
        assert_eq!(parse_answer([1, 2, 5]), Err(Error::MalformedAnswer));
        assert_eq!(parse_answer([1, 2, -1]), Err(Error::MalformedAnswer));
        assert_eq!(parse_answer([-1, 2, 2]), Err(Error::VersionRefused));
    }

    #[test]
    fn version_of_a_program_names_its_release() {
        for (version, release) in [
            ("22.05.8", Some(Release::V22_05)),
            ("23.11.0-0rc1", Some(Release::V23_11)),
            ("26.11.0", Some(Release::V26_11)),
            ("26.11", None),
            ("19.05.1", None),
            ("", None),
        ] {
            assert_eq!(Release::from_version(version), release, "{version:?}");
        }
    }

    #[test]
    fn every_state_of_slurm_is_known() {
        use State::{Ending, Running, Starting};
        for (number, state) in [
            (0, Starting),
            (1, Starting),
            (2, Running),
            (3, Ending),
            (4, Ending),
        ] {
            assert_eq!(
                parse_answer([0, 0, number]).unwrap().state,
                state,
                "{number}"
            );
        }
    }
}
