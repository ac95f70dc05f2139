//! Reads the filters at a cgroup back from the kernel, no matter which program attached them.

use crate::closed_slices::SYSTEMD_FILTER;
use helper::printable;
use kernel::bpf::{self, AttachMode, CgroupPrograms, Program, is_ours, query_effective};
use kernel::cgroup::{self, Dir};
use nix::errno::Errno;
use protocol::string_enum;
use serde::Serialize;

/// Slurm's name of its programs (`BPF_OBJ_NAME_LEN` of `linux/bpf.h` cuts names at 15 bytes).
const SLURM_PROGRAM: &str = "Slurm_Cgroup_v2";

/// Maximum rounds of reading programs, of which one may vanish meanwhile.
const READ_TRIES: usize = 64;

string_enum! {
    /// The program that attached a filter, by the filter's name. Only root can load or name one.
    Owner {
        /// This project's filter of a job.
        Ours = "ours",
        /// A copy of another level's program that this project attached, so that its own filter does
        /// not replace that program.
        Pin = "pin",
        /// Slurm's.
        Slurm = "slurm",
        /// systemd's.
        Systemd = "systemd",
        /// Another program's, such as Flux's IMP or a container runtime, which name none.
        Unknown = "unknown",
    }
}

/// A filter that is attached at a cgroup or above it, in the form of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// The cgroup that it is attached to; `None` if that is above the root that is visible here.
    pub cgroup: Option<String>,
    /// The flags of its attachment.
    pub attached: &'static str,
    /// Id of the program.
    pub id: u32,
    /// The program's name, as its owner gave it; may be empty.
    pub name: String,
    /// The kernel's digest of the loaded instructions.
    pub tag: String,
    /// The program that attached it.
    pub owner: &'static str,
    /// True if it runs for processes in the inspected cgroup.
    pub in_force: bool,
}

/// Reads the filters at a cgroup, those of the cgroup itself first, then those of each level above up to the visible
/// root, and last those in force that are attached above it. `levels` begin with that cgroup and end with the visible
/// root.
///
/// # Errors
///
/// The errors of `bpf(2)`: `EPERM` without `CAP_SYS_ADMIN`.
pub fn read_filters(levels: &[Dir]) -> bpf::Result<Vec<Filter>> {
    let running = match levels.first() {
        Some(dir) => read_effective_programs(dir)?,
        None => Vec::new(),
    };
    let read: Vec<CgroupPrograms> = levels
        .iter()
        .map(CgroupPrograms::read)
        .collect::<bpf::Result<_>>()?;
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
            let mut filter = Filter::new(program, Some(dir.path()), level.mode);
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
        filters.push(Filter::new(program, None, AttachMode::Nothing));
    }
    Ok(filters)
}

/// Returns the name of an attachment in reports.
pub fn attach_mode_name(attached: AttachMode) -> &'static str {
    match attached {
        AttachMode::Nothing => "no filter",
        AttachMode::Exclusive => "flags 0",
        AttachMode::Override => "allow-override",
        AttachMode::Multi => "allow-multi",
    }
}

/// Reads the programs that run at a cgroup, with those of its ancestors, in the kernel's order. It fails with
/// `EAGAIN` if they change in each of [`READ_TRIES`] rounds.
fn read_effective_programs(dir: &Dir) -> bpf::Result<Vec<Program>> {
    for _ in 0..READ_TRIES {
        let programs = query_effective(dir)?.into_iter().map(Program::open_by_id);
        // `None` means that one has gone since the query.
        if let Some(programs) = programs.collect::<bpf::Result<Option<_>>>()? {
            return Ok(programs);
        }
    }
    Err(dir
        .failed("query filters in force at", "", Errno::EAGAIN)
        .into())
}

impl Filter {
    /// Describes a program in the form of a report, as one in force. `level` is the path of the cgroup that
    /// it is attached to; `None` if that is above the visible root.
    fn new(program: &Program, level: Option<&str>, attached: AttachMode) -> Self {
        let name = program.name();
        Self {
            cgroup: level.map(printable),
            attached: attach_mode_name(attached),
            id: program.id(),
            tag: program
                .info
                .tag
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            owner: Owner::from_name(&name).as_str(),
            name: printable(&name),
            in_force: true,
        }
    }
}

impl Owner {
    /// Recognizes the owner by a filter's name. A pin looks like its original.
    fn from_name(name: &str) -> Self {
        match name {
            SLURM_PROGRAM => Self::Slurm,
            SYSTEMD_FILTER => Self::Systemd,
            name if is_ours(name) => Self::Ours,
            _ => Self::Unknown,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_decides_owner() {
        for (name, owner) in [
            ("Slurm_Cgroup_v2", Owner::Slurm),
            ("sd_devices", Owner::Systemd),
            ("ja_0123456789ab", Owner::Ours),
            ("other", Owner::Unknown),
            ("", Owner::Unknown),
        ] {
            assert_eq!(Owner::from_name(name), owner, "{name}");
        }
    }

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
