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
//! | `registration` | which numbers the names of a record mean, for `register` |
//! | `jobs` | which jobs a user has here: records and sources |
//! | `devices` | which devices a name means: specifiers, CDI, GPUs, generic resources |
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
mod registration;
pub mod slurm_conf;
pub mod stack;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
mod text;
mod trusted_dir;

pub use clock::{Clock, Deadline};
pub use config::{Config, ConfigError, ConfigFault, JobEnvironment, KeyInForce, SlurmDevices};
pub use login::{
    Evidence, ExplainedReply, LoginRefusal, Node, RunningJobs, SourceHealth, answer,
    contain_by_record, find_change, main, parse_choice, read_choice,
};
pub use registration::{Registration, RegistrationError, resolve_record};
pub use text::printable;
