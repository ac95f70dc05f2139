//! Every unsafe block of the crate, each with its argument for safety.

#![allow(unsafe_code)]
