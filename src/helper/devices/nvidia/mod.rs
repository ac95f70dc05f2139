//! NVIDIA's GPUs by the files of its driver below `/proc` and `/dev`; its libraries are not asked.
//!
//! Most majors are given out as the driver loads, and a node may be made long after that, by a tool
//! that runs at the first use: `/proc/devices` is where the numbers come from, and a node that is
//! there has to agree. Nothing says how a job uses its GPUs, so each comes with what any process
//! computing on it opens (`nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`), not with
//! `nvidia-modeset`, which is for displays, and never with what manages the node.

mod information;
mod mig;
mod node;

pub(super) use information::by_uuid;
pub use information::{Gpu, confirm, gpus, is_tegra, minors, only_gpu};
pub(super) use mig::{capability_name, is_instance};
pub use mig::{has_instances, instance};
pub(super) use node::unborn_warning;
pub use node::{imex, node, shared, unborn_node};

pub(super) const CAPS: &str = "nvidia-caps";

#[cfg(test)]
pub(super) mod tests;
