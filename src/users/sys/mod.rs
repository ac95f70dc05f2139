//! The unsafe blocks that only the commands of users need, each with its argument for safety.

#![allow(unsafe_code)]

pub(crate) mod terminal;
