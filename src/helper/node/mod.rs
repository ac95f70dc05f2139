//! What the node has: its files, device nodes, drivers, and the GPUs of any vendor.
//!
//! A [`Tree`] reads the files. `driver` checks that a device node belongs to the driver that its path
//! promises, `nvidia` reads what NVIDIA's driver reports, and `topology` finds the GPUs of all vendors
//! by number and by PCI address.

mod container_parts;
mod device;
mod device_node;
pub mod driver;
mod error;
mod major;
pub mod nvidia;
mod pci;
mod proc_devices;
pub mod topology;
mod tree;

pub use container_parts::ContainerParts;
pub use container_parts::list_first;
pub use device::{Device, ResolvedDevices};
pub use device_node::{DeviceNode, NodeError};
pub use error::DeviceError;
pub use major::gpu_count;
pub use pci::{InvalidPciAddress, PciAddress};
pub use proc_devices::ProcDevices;
pub(crate) use tree::none_if_missing;
pub use tree::{FileError, Tree};
