//! The unprivileged half: from a request to a reply.

#![forbid(unsafe_code)]

mod config;
pub mod stack;

pub use config::{Config, ConfigError, Enforce, Fault};
