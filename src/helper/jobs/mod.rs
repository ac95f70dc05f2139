//! Which jobs a user has on this node: the job records, and the sources that report jobs.

mod cgroup_search;
mod extern_socket;
mod flux_id;
mod job;
pub mod records;
pub mod sources;

pub(crate) use cgroup_search::CgroupSearch;
pub use extern_socket::{ExternSocket, find_cgroup};
pub use flux_id::FluxId;
pub use job::{Job, describe_placement, find_by_name};
