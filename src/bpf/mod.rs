//! Device filters: `BPF_PROG_TYPE_CGROUP_DEVICE` programs.
//!
//! The pure part: [`generate`] turns an allowlist into instructions ([`insn`]), [`interpret`] runs
//! instructions without the kernel, [`program_name`] names a program by them.

pub mod generate;
pub mod insn;
pub mod interpret;
mod name;

pub use generate::{allow, allow_rules, deny, deny_rules};
pub use insn::{INSN_LEN, Insn};
pub use name::{NAME_PREFIX, program_name};
