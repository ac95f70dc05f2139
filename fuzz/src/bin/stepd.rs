//! Answers of a Slurm step daemon: version, uid and state.
#![no_main]

use libfuzzer_sys::fuzz_target;
use schedulers::stepd::{Answer, State};

fuzz_target!(|bytes: [u8; 12]| {
    let [version, uid, state] =
        [0, 4, 8].map(|at| i32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte])));
    let expected = match state {
        _ if version < 0 => None,
        0 | 1 => Some(State::Starting),
        2 => Some(State::Running),
        3 | 4 => Some(State::Ending),
        _ => None,
    };
    let answer = Answer::parse(&bytes).ok();
    assert_eq!(answer.map(|answer| answer.state), expected);
    assert!(answer.is_none_or(|answer| answer.uid == u32::from_ne_bytes(uid.to_ne_bytes())));
});
