//! NVIDIA's GPUs by the files of its driver below `/proc` and `/dev`; its libraries are not asked.
//!
//! Most majors are given out as the driver loads, and a node may be made long after that, by a tool
//! that runs at the first use: `/proc/devices` is where the numbers come from, and a node that is
//! there has to agree. Nothing says how a job uses its GPUs, so each comes with what any process
//! computing on it opens (`nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`), not with
//! `nvidia-modeset`, which is for displays, and never with what manages the node.

mod error;
mod information;
mod mig;
mod node;

pub use error::NvidiaError;
pub use information::{Gpu, gpus};
pub use mig::instance;
pub(super) use mig::{capability_name, is_instance};
pub use node::{imex, node, shared, unborn_node};

/// Largest minor of a GPU; the ones above are reserved and the control devices'.
pub(super) const MINOR_MAX: u32 = 247;
/// The driver of the capabilities.
pub(super) const CAPS: &str = "nvidia-caps";

/// Decimal digits only, so that one number has one spelling.
fn decimal(text: &str) -> Option<u32> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
pub(super) mod tests;
