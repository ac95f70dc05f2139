//! The unprivileged half: turns a request into a reply.
//!
//! ```text
//! request -> Config -> Survey of the sources -> choose one job -> its devices -> reply
//!                 \-> stack: does the service's PAM stack run our session line?
//! ```
//!
//! | room | what it answers |
//! |---|---|
//! | `login` | what one login gets: the survey, the choice, the plan, the reply |
//! | `jobs` | which jobs a user has here: records and sources |
//! | `devices` | which devices a name means: specifiers, generic resources |
//! | `slurm_conf` | what Slurm's own configuration says |
//! | `node` | what the node has: its files, device nodes, drivers, GPUs |
//! | `callerid` | in which job an ssh client runs |
//! | `stack` | what a PAM stack does |

#![forbid(unsafe_code)]

mod accounts;
pub mod callerid;
mod clock;
mod config;
pub mod devices;
pub mod jobs;
mod login;
pub mod node;
pub mod slurm_conf;
pub mod stack;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
mod text;
pub mod trusted_dir;

pub use clock::{Clock, Deadline};
pub use config::{Config, ConfigError, ConfigFault, JobEnvironment, KeyInForce, SlurmDevices};
pub use login::{
    Evidence, ExplainedReply, LoginRefusal, Node, RunningJobs, SourceHealth, add_slurm_list,
    answer, contain_by_record, find_change, list_nameable_gpus, main, note_numbers, parse_choice,
    read_choice,
};
pub use text::printable;
