//! The unprivileged half: from a request to a reply.
//!
//! ```text
//! request -> Config -> Survey of the sources -> choose one job -> its devices -> reply
//!                 \-> stack: does the service's PAM stack run our session line?
//! ```

#![forbid(unsafe_code)]

mod answer;
mod caller;
mod choose;
mod config;
mod environment;
mod evidence;
mod fit;
mod flux;
mod harden;
mod health;
mod main;
mod message;
mod plan;
mod selection;
mod slurm;
pub mod stack;
mod survey;

pub use answer::{Node, answer};
pub use config::{Callers, Config, ConfigError, Enforce, Fault, JobEnvironment, SlurmDevices};
pub use evidence::Evidence;
pub use health::Health;
pub use main::main;
pub use plan::{Contained, NoPlan, contained};
pub use selection::Selection;
