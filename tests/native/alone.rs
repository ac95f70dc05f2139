//! Tests that run while no other test has a node.
//!
//! The name of this module puts them before all others: in the middle of a run, the other threads would have nothing to
//! do until the last of their tests has ended.

mod burst;
mod fanout;
mod soak;
