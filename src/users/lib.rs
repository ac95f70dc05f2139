//! The commands of users, which have their rights and no others.

pub mod enter;
mod sys;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
pub mod use_job;
