//! What is attached to one cgroup, and what runs there.

use super::{Error, Program, Result};
use crate::cgroup::Dir;
use crate::sys::bpf as kernel;
use std::os::fd::AsFd;

/// How the programs of one cgroup are attached; one cgroup has one way (`linux/bpf.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// No program here.
    Nothing,
    /// Flags 0: no child may attach anything.
    Exclusive,
    /// `BPF_F_ALLOW_OVERRIDE`: a child's program takes this one's place.
    Override,
    /// `BPF_F_ALLOW_MULTI`: a child's programs come on top.
    Multi,
}

/// The programs of one cgroup.
#[derive(Debug)]
pub struct Level {
    /// How they are attached.
    pub attached: Attached,
    /// The programs, in the kernel's order.
    pub programs: Vec<Program>,
}

impl Level {
    /// Reads one cgroup's own programs.
    ///
    /// # Errors
    /// As `bpf(2)`; a program that vanishes while it is read is left out.
    pub fn read(dir: &Dir) -> Result<Self> {
        let (ids, flags) = kernel::prog_query(dir.as_fd(), 0)
            .map_err(|error| Error::system("query filters of", dir.path(), error))?;
        let programs: Vec<Program> = ids
            .into_iter()
            .filter_map(|id| Program::by_id(id).transpose())
            .collect::<Result<_>>()?;
        let attached = match flags {
            _ if programs.is_empty() => Attached::Nothing,
            kernel::BPF_F_ALLOW_OVERRIDE => Attached::Override,
            flags if flags & kernel::BPF_F_ALLOW_MULTI != 0 => Attached::Multi,
            _ => Attached::Exclusive,
        };
        Ok(Self { attached, programs })
    }

    /// Ids of the programs.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.programs.iter().map(Program::id).collect()
    }
}

/// Ids of the programs that run at a cgroup, ancestors' included.
///
/// # Errors
/// As `bpf(2)`.
pub fn effective(dir: &Dir) -> Result<Vec<u32>> {
    kernel::prog_query(dir.as_fd(), kernel::BPF_F_QUERY_EFFECTIVE)
        .map(|(ids, _)| ids)
        .map_err(|error| Error::system("query filters in force at", dir.path(), error))
}
