//! What one login gets: the survey of the sources, the choice of a job, its plan, the reply.

mod answer;
mod caller;
mod choice;
mod containment;
mod device_numbers;
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
pub use containment::{add_slurm_list, contain_by_record};
pub use device_numbers::{find_change, note_numbers};
pub use environment::list_nameable_gpus;
pub use evidence::Evidence;
pub use node::Node;
pub use refusal::LoginRefusal;
pub use survey::{RunningJobs, SourceHealth};
