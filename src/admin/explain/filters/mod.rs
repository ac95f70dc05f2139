//! Reads the filters at a cgroup back from the kernel, no matter which program attached them.

mod owner;

use crate::sys::read_instructions;
use helper::printable;
use kernel::OperationError;
use kernel::bpf::{AttachMode, CgroupPrograms, Program, Result, query_effective};
use kernel::cgroup::{self, Dir};
use nix::errno::Errno;
use serde::Serialize;
use std::os::fd::AsFd;

use owner::Owner;

/// Maximum bytes of instructions that are read back. The kernel loads up to a million instructions
/// (`BPF_COMPLEXITY_LIMIT_INSNS`), and blinding replaces one with a constant by three.
const INSTRUCTION_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Maximum rounds of reading programs, of which one may vanish meanwhile.
const READ_TRIES: usize = 64;

/// A filter that is attached at a cgroup or above it, in the form of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Filter {
    /// The cgroup that it is attached to; `None` if that is above the root that is visible here.
    pub(super) cgroup: Option<String>,
    /// The flags of its attachment.
    pub(super) attached: &'static str,
    /// Id of the program.
    pub(super) id: u32,
    /// The program's name, as its owner gave it; may be empty.
    pub(super) name: String,
    /// The kernel's digest of the loaded instructions.
    pub(super) tag: String,
    /// The program that attached it.
    pub(super) owner: &'static str,
    /// True if it runs for processes in the inspected cgroup.
    pub(super) in_force: bool,
}

/// Reads the filters at a cgroup, those of the cgroup itself first, then those of each level above up to the visible
/// root, and last those in force that are attached above it. `levels` begin with that cgroup and end with the visible
/// root.
///
/// # Errors
///
/// The errors of `bpf(2)`: `EPERM` without `CAP_SYS_ADMIN`.
pub(super) fn read_filters(levels: &[Dir]) -> Result<Vec<Filter>> {
    let running = match levels.first() {
        Some(dir) => read_effective_programs(dir)?,
        None => Vec::new(),
    };
    let read: Vec<CgroupPrograms> = levels
        .iter()
        .map(CgroupPrograms::read)
        .collect::<Result<_>>()?;
    let in_force = levels_in_force(&read.iter().map(|level| level.mode).collect::<Vec<_>>());
    // The programs that run, less those whose level was found. An id may appear at two levels: a pin and its original
    // can be one program.
    let mut rest: Vec<&Program> = running.iter().collect();
    let mut filters = Vec::new();
    for (index, (dir, level)) in levels.iter().zip(&read).enumerate() {
        // The program that this project has marked as its pin there; `None` without a mark.
        let mark = cgroup::pinned_program_id(dir)?;
        let above = read.get(index + 1..).unwrap_or_default();
        for program in &level.programs {
            let mut filter = Filter::read(program, Some(dir.path()), level.mode)?;
            if is_pin(program, level.mode, mark, above) {
                filter.owner = Owner::Pin.as_str();
            }
            let place = rest.iter().position(|other| other.id() == program.id());
            filter.in_force = false;
            if let (Some(place), Some(true)) = (place, in_force.get(index)) {
                rest.remove(place);
                filter.in_force = true;
            }
            filters.push(filter);
        }
    }
    // These run too, and so are attached above the visible root.
    for program in rest {
        filters.push(Filter::read(program, None, AttachMode::Nothing)?);
    }
    Ok(filters)
}

/// Returns the name of an attachment in reports.
pub(crate) fn attach_mode_name(attached: AttachMode) -> &'static str {
    match attached {
        AttachMode::Nothing => "no filter",
        AttachMode::Exclusive => "flags 0",
        AttachMode::Override => "allow-override",
        AttachMode::Multi => "allow-multi",
    }
}

/// Reads the programs that run at a cgroup, with those of its ancestors, in the kernel's order. It fails with
/// `EAGAIN` if they change in each of [`READ_TRIES`] rounds.
fn read_effective_programs(dir: &Dir) -> Result<Vec<Program>> {
    for _ in 0..READ_TRIES {
        let programs = query_effective(dir)?.into_iter().map(Program::open_by_id);
        // `None` means that one has gone since the query.
        if let Some(programs) = programs.collect::<Result<Option<_>>>()? {
            return Ok(programs);
        }
    }
    Err(dir
        .failed("query filters in force at", "", Errno::EAGAIN)
        .into())
}

impl Filter {
    /// Describes a program in the form of a report, as one in force. `level` is the path of the cgroup that
    /// it is attached to; `None` if that is above the visible root. It fails if the program's instructions
    /// cannot be read.
    fn read(program: &Program, level: Option<&str>, attached: AttachMode) -> Result<Self> {
        let insns = read_program(program)?;
        Ok(Self {
            cgroup: level.map(printable),
            attached: attach_mode_name(attached),
            id: program.id(),
            name: printable(&program.name()),
            tag: program
                .info
                .tag
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            owner: Owner::from_program(&program.name(), insns.as_deref()).as_str(),
            in_force: true,
        })
    }
}

/// Tells for each level whether its programs run at the first one: those of the nearest level that has
/// any, and those of `ALLOW_MULTI` levels above it (`compute_effective_progs` in
/// `kernel/bpf/cgroup.c`).
fn levels_in_force(levels: &[AttachMode]) -> Vec<bool> {
    let nearest = levels
        .iter()
        .position(|attached| *attached != AttachMode::Nothing);
    let runs = |(index, attached): (usize, &AttachMode)| {
        Some(index) == nearest || nearest.is_some() && *attached == AttachMode::Multi
    };
    levels.iter().enumerate().map(runs).collect()
}

/// Returns whether a program is a pin: its level's mark names it, or it is an `ALLOW_MULTI` copy of a
/// program of an `ALLOW_OVERRIDE` level above.
fn is_pin(
    program: &Program,
    attached: AttachMode,
    mark: Option<u32>,
    above: &[CgroupPrograms],
) -> bool {
    let copied = || {
        let overridable = above
            .iter()
            .filter(|level| level.mode == AttachMode::Override);
        overridable
            .flat_map(|level| &level.programs)
            .any(|original| original.is_same_program(program))
    };
    mark == Some(program.id()) || attached == AttachMode::Multi && copied()
}

/// Reads the instructions of a program as the verifier left them; `None` if the kernel hides them: all from a process
/// without `CAP_BPF`, and from root those whose constants it has blinded (`net.core.bpf_jit_harden`), where
/// `kernel.kptr_restrict` hides addresses.
///
/// # Errors
///
/// As [`read_instructions`], with the program's number.
fn read_program(program: &Program) -> Result<Option<Vec<u8>>> {
    let bytes = read_instructions(program.as_fd(), INSTRUCTION_BYTES_MAX).map_err(|error| {
        OperationError::new(
            "read instructions of program",
            program.id().to_string(),
            error,
        )
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_level_and_multi_levels_above_are_in_force() {
        use AttachMode::{Exclusive, Multi, Nothing, Override};
        for (levels, counts) in [
            (&[Nothing, Nothing][..], &[false, false][..]),
            (
                &[Nothing, Override, Nothing, Multi],
                &[false, true, false, true],
            ),
            (&[Multi, Override, Multi], &[true, false, true]),
            (&[Override, Override, Exclusive], &[true, false, false]),
        ] {
            assert_eq!(levels_in_force(levels), counts, "{levels:?}");
        }
    }
}
