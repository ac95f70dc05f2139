//! The C edge: what libpam calls, and what is said to it.
//!
//! Nothing here outlives a call: no state, no thread, no handler; a panic ends at the entry point
//! as a refusal. The one exception is libpam's to keep: the groups that `session` grants, which
//! only `auth` can add.

mod arguments;
mod call;
mod credentials;
pub mod entry;

pub use arguments::{ArgumentError, parse};
