//! NVIDIA's GPUs by the files of the driver below `/proc` and `/dev`, without its libraries.
//!
//! The kernel assigns most majors when the driver loads, and a tool may make a node long after that,
//! at its first use. So the numbers come from `/proc/devices`, and an existing node must agree. No
//! file tells how a job uses its GPUs, so each GPU comes with the devices that any process computing
//! on it opens (`nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`), without `nvidia-modeset`, which is
//! for displays, and never with devices that manage the node.

pub(super) mod capabilities;
mod information;
mod mig;
mod shared;
mod uuid;

pub use capabilities::{describe_incomplete_instances, has_instances};
pub use information::{
    NvidiaGpu, find_by_uuid, find_only_gpu, gpu_minors, is_tegra, list_gpus, verify_uuid,
};
pub use mig::resolve_instance;
pub use shared::{
    future_node, future_node_warning, resolve_gpu_node, resolve_imex_channel, resolve_shared_nodes,
};
pub use uuid::{InvalidUuid, Uuid};

#[cfg(test)]
pub(super) mod tests;
