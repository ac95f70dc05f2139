//! The integers of the exchange.

use super::{Error, Result};

/// Our version of the protocol: that of Slurm 26.05. A daemon refuses what is older than the oldest
/// that it knows, and does no more with a newer one than log it.
const VERSION: i32 = 45 << 8;

/// `REQUEST_STATE`
const STATE: i32 = 5;
/// `REQUEST_STEP_UID`
const UID: i32 = 20;
/// `REQUEST_ADD_EXTERN_PID`
const ADD_EXTERN_PID: i32 = 22;

/// Bytes of [`query`].
pub const QUERY_LEN: usize = 12;
/// Bytes of the answer to it.
pub const ANSWER_LEN: usize = 12;

/// What a step is doing (`slurmstepd_state_t` of `stepd_api.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not take processes yet.
    Starting,
    /// It takes processes.
    Running,
    /// It takes processes no more.
    Ending,
}

impl State {
    fn of(number: i32) -> Option<Self> {
        match number {
            0 | 1 => Some(Self::Starting),
            2 => Some(Self::Running),
            3 | 4 => Some(Self::Ending),
            _ => None,
        }
    }
}

/// What a step daemon says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Version of its protocol: Slurm 22.05 is 38 times 256, 26.05 is 45 times 256.
    pub version: i32,
    /// Uid of the job's owner.
    pub uid: u32,
    /// What its step is doing.
    pub state: State,
}

impl Answer {
    /// Reads the answer to [`query`].
    ///
    /// # Errors
    /// [`Error::Refused`] for a daemon that does not talk to our version, [`Error::Malformed`] for
    /// a state that does not exist.
    pub fn read(bytes: &[u8; ANSWER_LEN]) -> Result<Self> {
        let [version, uid, state] = numbers(bytes);
        let version = i32::from_ne_bytes(version);
        if version < 0 {
            return Err(Error::Refused);
        }
        let state = State::of(i32::from_ne_bytes(state)).ok_or(Error::Malformed)?;
        Ok(Self { version, uid: u32::from_ne_bytes(uid), state })
    }
}

/// Greeting and the two questions about owner and state; a daemon reads them one by one.
#[must_use]
pub fn query() -> [u8; QUERY_LEN] {
    three(VERSION, UID, STATE)
}

/// The two questions again.
pub(super) fn query_again() -> [u8; 8] {
    two(UID, STATE)
}

/// Reads the answer to [`query_again`].
pub(super) fn answer_again(version: i32, bytes: [u8; 8]) -> Result<Answer> {
    let [a, b, c, d, e, f, g, h] = bytes;
    let [i, j, k, l] = version.to_ne_bytes();
    Answer::read(&[i, j, k, l, a, b, c, d, e, f, g, h])
}

/// "Take this process into the step."
pub(super) fn add(pid: i32) -> [u8; 8] {
    two(ADD_EXTERN_PID, pid)
}

fn numbers(bytes: &[u8; ANSWER_LEN]) -> [[u8; 4]; 3] {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
    [[a, b, c, d], [e, f, g, h], [i, j, k, l]]
}

fn two(first: i32, second: i32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d, e, f, g, h]
}

fn three(first: i32, second: i32, third: i32) -> [u8; QUERY_LEN] {
    let ([a, b, c, d, e, f, g, h], [i, j, k, l]) = (two(first, second), third.to_ne_bytes());
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let answer = Answer::read(&three(38 << 8, 1001, 2)).unwrap();
        assert_eq!(answer, Answer { version: 38 << 8, uid: 1001, state: State::Running });
        assert_eq!(Answer::read(&three(1, 2, 5)), Err(Error::Malformed));
        assert_eq!(Answer::read(&three(1, 2, -1)), Err(Error::Malformed));
        assert_eq!(Answer::read(&three(-1, 2, 2)), Err(Error::Refused));
        assert_eq!(answer_again(7, two(9, 3)).unwrap().state, State::Ending);
        assert_eq!(query(), three(45 << 8, 20, 5));
    }

    #[test]
    fn every_state_has_its_meaning() {
        use State::{Ending, Running, Starting};
        for (number, state) in
            [(0, Starting), (1, Starting), (2, Running), (3, Ending), (4, Ending)]
        {
            assert_eq!(Answer::read(&three(0, 0, number)).unwrap().state, state, "{number}");
        }
    }

    #[test]
    fn what_is_asked_later_has_no_greeting() {
        assert_eq!(query_again(), two(20, 5));
        assert_eq!(add(4711), two(22, 4711));
        let answer = answer_again(38 << 8, two(9, 2)).unwrap();
        assert_eq!(answer, Answer { version: 38 << 8, uid: 9, state: State::Running });
    }
}
