//! The C edge: what libpam calls, and what is said to it.
//!
//! Nothing here outlives a call: no state, no thread, no handler; a panic ends at the entry point
//! as a refusal.

mod call;
pub mod entry;
