//! The unsafe blocks that only the set-up of a node needs, each with its argument for safety.

#![allow(unsafe_code)]

pub(crate) mod pam;
