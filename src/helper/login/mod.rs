//! What one login gets: the survey of the sources, the choice of a job, its plan, the reply.

mod answer;
mod caller;
mod choice;
mod environment;
mod evidence;
mod node;
mod plan;
mod refusal;
mod survey;
mod unit_policy;

pub use answer::{answer, main};
pub use choice::{parse_choice, read_choice};
pub use evidence::Evidence;
pub use node::Node;
pub use plan::{JobContainment, PlanRefusal, contain_by_record};
pub use survey::SourceHealth;
