//! Judges one login in ordered steps: ask the unprivileged half, check its reply, confine, move,
//! verify. Runs as root inside sshd.
//!
//! `account` admits or refuses, and moves nothing. `session` moves the login into the job, or rolls
//! back all changes but two: a filter belongs to the job and stays, and so does the directory for
//! the user's choice of a job. Neither depends on PAM: the input is the facts of a login in a
//! [`Request`](protocol::Request), the output an [`Outcome`] with the texts for user and log.
//!
//! # One login, from libpam's call to the return
//!
//! 1. **The scope.** The C edge (crate `pam`, `src/pam/lib.rs`) collects what libpam has. [`Scope`] lets root, a
//!    switched-off node ([`is_off`]), other services and exempt users pass, by the line's arguments ([`Settings`]).
//!    For every other login the edge starts the clock ([`Budget`]) and calls [`judge_login`] with a [`LoginContext`].
//! 2. **The question.** [`ask_helper`] starts the helper as an account of its own and writes a
//!    [`Request`](protocol::Request) to it. In `session` a reply that `account` was given a moment ago takes the
//!    place of the question; if a login fails with it, it is tried anew with a fresh reply.
//! 3. **The answer.** A [`Reply`](protocol::Reply) is decoded strictly. Its [`Verdict`](protocol::Verdict) is a
//!    refusal, or a [`Plan`](protocol::Plan): a job, its [`Placement`](protocol::Placement), the
//!    [`Containment`](protocol::Containment) that must hold, and what else the login gets. In `account` a stack
//!    whose [`SessionLine`](protocol::SessionLine) is not effective refuses the login.
//! 4. **The proof.** The plan is a claim. [`Job`] opens the job's cgroups without following links
//!    ([`CgroupChain`](kernel::cgroup::CgroupChain)) and asks those who know whose job it is: the
//!    [`Stamp`](kernel::cgroup::Stamp) that only root can set, the [`Daemon`](schedulers::stepd::Daemon) of the
//!    Slurm step, or the processes of the Flux unit ([`OwnerProof`]). A frozen job refuses.
//! 5. **The prediction.** In `account`, and under `observe`, the login ends here:
//!    [`predict_containment`](kernel::bpf::predict_containment) says whether the filters could hold.
//! 6. **The way back** is opened before anything changes: [`Origin`](kernel::cgroup::Origin) has the login's own
//!    cgroups. From here a failure or panic at any step rolls back (`undo.rs`).
//! 7. **The filters.** [`confine`](kernel::bpf::confine) attaches what is missing at the leaf, by the rules of
//!    `docs/design.md`, so that no filter is loosened for anyone.
//! 8. **The move.** [`enter`](kernel::cgroup::enter) writes `0` to `cgroup.procs`, so that no other process can
//!    move. For Slurm the daemon moves the login, and the filters follow.
//! 9. **The verification** reads back what holds: the owner once more, the filters in force
//!    ([`Confinement::verify`](kernel::bpf::Confinement::verify)), and the login's own cgroup
//!    ([`verify_in_leaf`](kernel::cgroup::verify_in_leaf)).
//! 10. **The rest of the session**: cores and priorities of the job's tasks (`attributes.rs`), namespaces of a job with private files ([`JobNamespaces`], joined later by
//!     [`AuthLines`]), and variables ([`Environment`]).
//! 11. **The outcome.** A [`Failure`] is a refusal with a [`Reason`](protocol::Reason), unless an argument spelled
//!     out by the admin changes that ([`Settings::action`]). The log names the
//!     [`Decision`](protocol::Decision) and the argument, the user reads the text of the [`Outcome`], and its
//!     [`Ruling`] is the code for libpam.
//!
//! | file | what it answers |
//! |---|---|
//! | `scope.rs` | who is judged at all, and why a user is exempt |
//! | `login.rs` | which steps a login takes, in which order |
//! | `decide.rs` | what a failure means: refuse, admit, observe, exempt |
//! | `report.rs`, `text.rs`, `log.rs` | what is logged and shown |
//! | `job/` | whose job it is, whether it lives, how a login joins it |
//! | `attributes.rs` | which cores and priorities a login has |
//! | `undo.rs` | how all changes are rolled back |
//! | `ask.rs`, `keeper.rs` | how the two helper processes are started |
//! | `settings.rs`, `context.rs` | what the admin's arguments and the call say |

#![forbid(unsafe_code)]

mod ask;
mod attributes;
mod auth_lines;
mod budget;
mod context;
mod decide;
mod error;
mod job;
mod keeper;
mod log;
mod login;
mod namespaces;
mod probe;
mod report;
mod scope;
mod settings;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
mod text;
mod undo;
mod variables;

pub use ask::{Account, ask_helper};
pub use auth_lines::AuthLines;
pub use budget::Budget;
pub use context::LoginContext;
pub use decide::Ruling;
pub use error::Failure;
pub use job::{Job, JoinResult, LeafJob, LeafLimit, OwnerProof};
pub use kernel::log::{Line, Severity};
pub use log::{decision_line, write_log};
pub use login::{PredictedJoin, judge_login, predict_login};
pub use namespaces::{JobNamespaces, end_process};
pub use report::{Outcome, misconfiguration_outcome};
pub use scope::{
    DEFAULT_SERVICE, Exemption, Scope, UNKNOWN_UID, Unjudged, is_inside_sshd, is_never_judged,
};
pub use settings::{Action, ArgumentOrigin, OFF_SWITCH_PATH, Settings, is_off};
pub use variables::Environment;

/// This node's name if the admin sets none (`nodename=`): the host name up to its first dot (gethostname(2)).
pub fn node_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}
