//! What a login would get: its decision, its devices, and how two modules differ.

pub(crate) mod compare;
pub(crate) mod config;
pub(crate) mod devices;
pub(crate) mod resolve;
mod share;
