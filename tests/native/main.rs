//! Tests on this machine: a real kernel, a real `sshd` and real PAM stacks, with a private node for each test.
//!
//! Every test needs root and a few kernel features. Without them it prints "skipped: …" and passes;
//! with `JOB_ADOPT_TESTS=all` in the environment, which `make test` sets, a skip is a failure.
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

mod again;
mod alone;
mod attributes;
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
mod cost;
mod crowd;
mod deadline;
mod death;
mod devices;
mod doubts;
mod elf;
mod ending;
mod enter;
mod env;
mod faults;
mod favordynmods;
mod flux;
mod freeze;
mod gpu;
mod grace;
mod gres;
mod helper;
mod hooks;
mod hygiene;
mod leaf;
mod libpam;
mod login;
mod mpi;
mod namespaces;
mod naming;
mod notify;
mod nproc;
mod panic;
mod parity;
mod policy;
mod power;
mod privilege;
mod profile;
mod quiet;
mod race;
mod ranks;
mod record;
mod refusal;
mod resolve;
mod reuse;
mod rival;
mod rollout;
mod slices;
mod slurm;
mod staging;
mod stepd;
mod stepd_devices;
mod stepd_trust;
mod strays;
mod switch;
mod undo;
mod unwinder;
mod vanish;
mod vectors;
mod verify;
mod world;
