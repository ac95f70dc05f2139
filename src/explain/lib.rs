//! What a login would get: its decision, its devices, and how two modules differ.

#![forbid(unsafe_code)]

mod child_leaf;
pub mod compare;
pub mod config;
pub mod devices;
pub mod list;
pub mod resolve;
mod share;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
