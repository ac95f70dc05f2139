//! What one login gets: the survey of the sources, the choice of a job, its plan, the reply.

mod answer;
mod caller;
mod choice;
mod containment;
mod environment;
mod evidence;
mod flux_policy;
mod node;
mod plan;
mod refusal;
mod slurm_devices;
mod slurm_policy;
mod survey;
mod unit_policy;

pub use answer::{ExplainedReply, answer, main};
pub use choice::{parse_choice, read_choice};
pub(crate) use containment::add_slurm_list;
pub use containment::{contain_by_record, find_change};
pub(crate) use environment::list_nameable_gpus;
pub use evidence::Evidence;
pub use node::Node;
pub use refusal::LoginRefusal;
pub use survey::{RunningJobs, SourceHealth};
