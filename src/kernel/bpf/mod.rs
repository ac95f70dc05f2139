//! Generates, loads and attaches device filters: `BPF_PROG_TYPE_CGROUP_DEVICE` programs.
//!
//! [`generate`] turns an allowlist into instructions. `program` loads programs and reads those of a cgroup.
//! `compose` decides which may be attached where, attaches them under a lock and verifies the result.

mod compose;
mod error;
pub mod generate;
mod program;

pub use compose::{
    AttachScope, AttachTarget, Confinement, OldFilter, confine, find_confinement,
    predict_containment,
};
pub use error::{Error, Obstacle, Result};
pub use generate::{INSN_BYTES, Insn, allow_rules};
pub use program::{AttachMode, CgroupPrograms, Program, detach, is_ours, query_effective};
