//! What is attached to one cgroup, and what runs there.

use super::{Error, Program, Result};
use crate::cgroup::Dir;
use crate::sys::bpf as kernel;
use nix::errno::Errno;
use std::os::fd::AsFd;

/// How often a level is read anew whose programs vanish meanwhile.
const TRIES: usize = 64;

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

impl Attached {
    /// The name in a report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "no filter",
            Self::Exclusive => "flags 0",
            Self::Override => "allow-override",
            Self::Multi => "allow-multi",
        }
    }
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
    /// Errors: as `bpf(2)`; `EAGAIN` for a cgroup whose programs are replaced faster than they are
    /// read.
    pub fn read(dir: &Dir) -> Result<Self> {
        read(dir, 0).map(|(programs, flags)| Self::of(programs, flags))
    }

    fn of(programs: Vec<Program>, flags: u32) -> Self {
        let attached = match flags {
            _ if programs.is_empty() => Attached::Nothing,
            kernel::BPF_F_ALLOW_OVERRIDE => Attached::Override,
            flags if flags & kernel::BPF_F_ALLOW_MULTI != 0 => Attached::Multi,
            _ => Attached::Exclusive,
        };
        Self { attached, programs }
    }

    /// Ids of the programs.
    pub fn ids(&self) -> Vec<u32> {
        self.programs.iter().map(Program::id).collect()
    }

    /// The programs of ours.
    pub fn ours(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|program| program.is_ours())
    }
}

/// The programs of one cgroup by one query, and the flags that it answers.
fn read(dir: &Dir, query: u32) -> Result<(Vec<Program>, u32)> {
    for _ in 0..TRIES {
        let (ids, flags) = kernel::prog_query(dir.as_fd(), query)
            .map_err(|error| Error::system("query filters of", dir.path(), error))?;
        let programs: Option<Vec<Program>> =
            ids.into_iter().map(Program::by_id).collect::<Result<_>>()?;
        // One that vanished has been replaced: a level read without it would not be this one.
        if let Some(programs) = programs {
            return Ok((programs, flags));
        }
    }
    Err(Error::system("query filters of", dir.path(), Errno::EAGAIN))
}

/// The programs that run at a cgroup, ancestors' included, in the kernel's order.
pub fn in_force(dir: &Dir) -> Result<Vec<Program>> {
    read(dir, kernel::BPF_F_QUERY_EFFECTIVE).map(|(programs, _)| programs)
}

/// Ids of the programs that run at a cgroup, ancestors' included.
pub fn effective(dir: &Dir) -> Result<Vec<u32>> {
    kernel::prog_query(dir.as_fd(), kernel::BPF_F_QUERY_EFFECTIVE)
        .map(|(ids, _)| ids)
        .map_err(|error| Error::system("query filters in force at", dir.path(), error))
}
