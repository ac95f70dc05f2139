//! The cgroup v2 hierarchy: where it is mounted, a job's place in it, and the move there; and what
//! a scheduler on cgroup v1 does to a login ([`v1`]).
//!
//! Everything is done on descriptors that were opened once, component by component from the
//! mount, so that checks, stamp, filter and move are about one and the same directory.

#![forbid(unsafe_code)]

mod dir;
mod enter;
mod error;
mod leaf;
mod membership;
mod place;
mod stamp;
mod state;
pub mod v1;

pub use dir::Dir;
pub use enter::{Entry, Origin, stands_in};
pub use error::{Error, Result};
pub use leaf::{Leaf, LeafKind};
pub use membership::Membership;
pub use place::{Mount, Place};
pub use stamp::{MadeMark, PinMark, ScopeMark, Stamp};
pub use state::{State, event, frozen_level};
