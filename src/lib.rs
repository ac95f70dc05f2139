//! What happens when a user logs in to a compute node: the login joins its user's running job
//! and sees that job's devices only.
//!
//! The tree tells what runs as root inside sshd and what does not. Data flows one way: a login is
//! a [`plan::Request`], the unprivileged half answers with a [`plan::Reply`], the privileged half
//! carries the plan out.
//!
//! | folder | runs as | what it owns |
//! |---|---|---|
//! | [`pam`] | root, in sshd | the C edge: entry points, arguments, conversation, log |
//! | [`session`] | root, in sshd | account and session as ordered steps, and their undo |
//! | [`cgroup`] | root, in sshd; where the mount is, both halves | mount, path, leaf, state, stamp, move |
//! | [`bpf`] | root, in sshd | allowlist to instructions (pure); load, query, pin, attach |
//! | [`plan`] | both halves | the boundary: request, reply, allowlist, and their encoding |
//! | [`resolve`] | user `job-adopt` | configuration, sources, choice of one job, PAM stack |
//! | [`source`] | user `job-adopt` | where jobs are looked up |
//! | [`device`] | user `job-adopt` | specifiers and policy to an allowlist |
//! | [`callerid`] | users `job-adopt` | which job a login's ssh client runs in: both ends of the question |
//! | [`chosen`] | root, in sshd; the user, `job-adopt` | the directory of a user's choice, and where it is |
//! | [`stepd`] | both halves | the daemons of Slurm's job steps: socket, questions, deadlines |
//! | [`registry`] | root, from prolog and epilog | records: their grammar, writing and removing them |
//! | [`switch`] | as its caller | root's switch that turns the module off |
//! | [`flux`] | both halves | jobs of Flux's: ids, units, which process is the IMP |
//! | [`keeper`] | root, outside every session | ends the logins of a job of Flux's |
//! | [`removed`] | as its caller | names that earlier versions knew, and what replaces each |
//! | [`failed`] | as its caller | a system call that failed: operation, object, why |
//! | [`legible`] | as its caller | texts of others, made fit for one line |
//! | [`proc`] | as its caller | what `/proc` tells about processes |
//! | [`lock`] | root | one writer at a time: locks on a root-only file |
//! | [`log`] | root | lines to syslog |
//! | [`trust`] | as its caller | reading what only root can have written |
//! | [`cli`] | whoever calls it | the admin's subcommands |
//! | [`sys`] | as its caller | every unsafe block but those of the command alone, which are in `cli::sys` |

// The system calls that change identity take 16-bit numbers on 32-bit machines (setresuid(2),
// "C library/kernel differences"), and a truncated uid could be root's.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pam_job_adopt is for 64-bit Linux");

pub mod bpf;
pub mod callerid;
pub mod cgroup;
pub mod chosen;
pub mod cli;
pub mod device;
pub mod failed;
pub mod flux;
pub mod keeper;
pub mod legible;
pub mod lock;
pub mod log;
pub mod pam;
pub mod plan;
pub mod proc;
#[cfg(test)]
mod random;
pub mod registry;
pub mod removed;
pub mod resolve;
pub mod session;
pub mod source;
pub mod stepd;
pub mod switch;
pub mod sys;
pub mod trust;
