//! NVIDIA's GPUs by the files of its driver below `/proc`.

use std::fmt;

use super::gpu_name::{PciAddress, Uuid};
use super::{Found, Node, Tree};

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its PCI address.
    pub address: PciAddress,
    /// Its UUID, where the driver knows it.
    pub uuid: Option<Uuid>,
    /// Minor of its device node, 0 to 247.
    pub minor: u32,
}

/// The GPUs that the driver has and does not exclude, by PCI address. None where there is no
/// driver.
///
/// # Errors
/// [`NvidiaError`].
pub fn gpus(tree: &Tree) -> Result<Vec<Gpu>, NvidiaError> {
    let _ = tree;
    Ok(Vec::new())
}

/// The device node of one GPU.
///
/// # Errors
/// [`NvidiaError`].
pub fn node(tree: &Tree, gpu: &Gpu) -> Result<Found, NvidiaError> {
    let _ = (tree, gpu);
    Err(NvidiaError::Later)
}

/// The devices that every process computing on a GPU needs besides it.
///
/// # Errors
/// [`NvidiaError`].
pub fn shared(tree: &Tree) -> Result<Found, NvidiaError> {
    let _ = tree;
    Err(NvidiaError::Later)
}

/// A MIG instance of a GPU: the parent's node, what [`shared`] says, and the capabilities of both
/// instances.
///
/// # Errors
/// [`NvidiaError`].
pub fn instance(tree: &Tree, gpu: &Uuid, gi: u32, ci: u32) -> Result<Found, NvidiaError> {
    let _ = (tree, gpu, gi, ci);
    Err(NvidiaError::Later)
}

/// An IMEX channel.
///
/// # Errors
/// [`NvidiaError`].
pub fn imex(tree: &Tree, channel: u32) -> Result<Found, NvidiaError> {
    let _ = (tree, channel);
    Err(NvidiaError::Later)
}

/// What a node of the driver's that is made when it is first used will be: its numbers follow from
/// `/proc/devices` and its name. `None` for any other path.
///
/// # Errors
/// [`NvidiaError`].
pub fn unborn_node(tree: &Tree, path: &str) -> Result<Option<Node>, NvidiaError> {
    let _ = (tree, path);
    Ok(None)
}

/// Why there is no such GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NvidiaError {
    /// Not there yet.
    Later,
}

impl fmt::Display for NvidiaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this version cannot resolve it")
    }
}

impl std::error::Error for NvidiaError {}
