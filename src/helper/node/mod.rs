//! What the node has: its files, device nodes, drivers, and the GPUs of any vendor.
//!
//! A [`Tree`] reads the files. `driver` checks that a device node belongs to the driver that its path
//! promises, `nvidia` reads what NVIDIA's driver reports, and `topology` finds the GPUs of all vendors
//! by number and by PCI address.

mod device;
pub mod driver;
mod major;
pub mod nvidia;
mod pci;
pub mod topology;
pub(crate) mod tree;

pub use device::{Device, DeviceError, ResolvedDevices};
pub use major::gpu_count;
pub use pci::{InvalidPciAddress, PciAddress};
pub use tree::{DeviceNode, FileError, NodeError, ProcDevices, Tree};
