//! Device filters: `BPF_PROG_TYPE_CGROUP_DEVICE` programs.
//!
//! The pure part: [`generate`] turns an allowlist into instructions ([`insn`]), and `compose`
//! decides what may be attached where. The rest carries that out: `program` and `level` read and
//! load, `confine` attaches under a lock and proves the result.

#![forbid(unsafe_code)]

mod compose;
mod confine;
mod error;
pub mod generate;
mod ground;
pub mod insn;
mod level;
mod name;
mod point;
mod program;

pub use compose::{Decision, Demand, Obstacle, Reach, decide};
pub use confine::{Confinement, Outcome, confine, foresee};
pub use error::{Error, Result};
pub use generate::{allow, allow_rules};
pub use ground::Ground;
pub use insn::{INSN_LEN, Insn};
pub use level::{Attached, Level, effective, in_force};
pub(crate) use name::is_ours;
pub use program::Program;
