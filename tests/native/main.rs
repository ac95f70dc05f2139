//! The native tier: a real kernel, a real `sshd`, real PAM stacks, each test in a world of its own.
//!
//! Every test needs root and a few kernel features. Without them it says "skipped: …" and passes;
//! with `JOB_ADOPT_TESTS=all` in the environment (as `make test` sets it) a skip is a failure.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

mod support;

mod caller;
mod callerid;
mod carried;
mod check;
mod check_node;
mod choice;
mod chosen;
mod cli;
mod compose;
mod controllers;
mod deadline;
mod death;
mod devices;
mod elf;
mod ending;
mod env;
mod fanout;
mod faults;
mod favordynmods;
mod flux;
mod freeze;
mod helper;
mod hooks;
mod hygiene;
mod install;
mod leaf;
mod login;
mod mpi;
mod namespaces;
mod naming;
mod nproc;
mod panic;
mod policy;
mod privilege;
mod quiet;
mod race;
mod ranks;
mod record;
mod refusal;
mod resolve;
mod rival;
mod rollout;
mod slices;
mod slurm;
mod soak;
mod staging;
mod stepd;
mod stepd_devices;
mod stepd_trust;
mod strays;
mod switch;
mod undo;
mod vanish;
mod verify;
mod world;
