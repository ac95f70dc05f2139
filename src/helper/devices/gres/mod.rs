//! Slurm's generic resources, by the device files that `gres.conf` lists for them.

mod conf;
mod device_file;
mod dialect;
mod fault;
mod hostlist;
mod inventory;
mod record;
mod resource;
mod slurmd_answer;

use crate::node::DeviceError;
pub use conf::GresConf;
pub use dialect::{Dialect, ListSyntax};
pub use fault::{FaultyLine, FaultyRecord, RecordFault};
pub use hostlist::{HostList, HostListError};
pub use inventory::Inventory;
pub use record::{GresRecord, Resources};
pub use resource::resolve;

/// Name of the file beside `slurm.conf`.
const GRES_CONF: &str = "gres.conf";
/// Resources whose devices and order Slurm detects itself if `AutoDetect` is on: GPUs, and resources
/// that share them.
const DETECTED_RESOURCES: [&str; 3] = ["gpu", "mps", "shard"];

/// The node's name in `gres.conf`: the configured one, else the host's.
fn node_or_host_name(configured: Option<&str>) -> Result<String, DeviceError> {
    if let Some(node) = configured {
        return Ok(node.to_owned());
    }
    let host = nix::unistd::gethostname()
        .map_err(|errno| DeviceError::at("get the host's name", errno.desc()))?;
    Ok(host.to_string_lossy().into_owned())
}
