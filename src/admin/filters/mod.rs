//! What the filters at a cgroup are, and what they let through: programs that are read back and
//! run without the kernel, whoever wrote them.

pub mod interpret;
mod owner;

use crate::sys::read_instructions;
use helper::printable;
use interpret::Request;
use kernel::Failed;
use kernel::bpf::{Attached, INSN_LEN, Insn, Level, Program, Result, effective};
use kernel::cgroup::{self, Dir};
use nix::errno::Errno;
use serde::Serialize;
use std::os::fd::AsFd;

pub use owner::Owner;

/// Most bytes of instructions that are read back. A million can be loaded
/// (`BPF_COMPLEXITY_LIMIT_INSNS`), and blinding makes three of one that has a constant.
const XLATED_MAX: usize = 32 * 1024 * 1024;

/// How often programs are read anew of which one vanishes meanwhile.
const TRIES: usize = 64;

/// A filter that is attached at a cgroup or above it, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// The cgroup that it is attached to; `None` where that is above what can be seen from here.
    pub cgroup: Option<String>,
    /// How it is attached there.
    pub attached: &'static str,
    /// Id of the program.
    pub id: u32,
    /// The program's name, as its owner gave it; may be empty.
    pub name: String,
    /// The kernel's digest of what was loaded.
    pub tag: String,
    /// Whose it is.
    pub owner: &'static str,
    /// Whether it runs for processes in the cgroup that was asked about.
    pub in_force: bool,
}

/// The filters at a cgroup, and the programs of those that run there.
#[derive(Debug)]
pub struct Inspection {
    /// All filters, those of the cgroup itself first and those of the root last.
    pub filters: Vec<Filter>,
    /// What runs there.
    pub judge: Judge,
}

impl Inspection {
    /// Looks at a cgroup; `levels` are that cgroup first and the root last.
    /// Fails: as `bpf(2)`: `EPERM` without `CAP_SYS_ADMIN`.
    pub fn of(levels: &[Dir]) -> Result<Self> {
        let running = match levels.first() {
            Some(dir) => in_force(dir)?,
            None => Vec::new(),
        };
        let read: Vec<Level> = levels.iter().map(Level::read).collect::<Result<_>>()?;
        let counts = counting(&read.iter().map(|level| level.attached).collect::<Vec<_>>());
        // By level and not by id alone: a pin and what it is a copy of are one program.
        let mut rest: Vec<&Program> = running.iter().collect();
        let mut filters = Vec::new();
        for (index, (dir, level)) in levels.iter().zip(&read).enumerate() {
            let mark = cgroup::pin(dir)?;
            let above = read.get(index + 1..).unwrap_or_default();
            for program in &level.programs {
                let mut filter = Filter::of(program, Some(dir.path()), level.attached)?;
                if is_pin(program, level.attached, mark, above) {
                    filter.owner = Owner::Pin.as_str();
                }
                let runs = rest.iter().position(|other| other.id() == program.id());
                let runs = runs.filter(|_| counts.get(index) == Some(&true));
                filter.in_force = runs.map(|at| rest.remove(at)).is_some();
                filters.push(filter);
            }
        }
        for program in rest {
            filters.push(Filter::of(program, None, Attached::Nothing)?);
        }
        Ok(Self { filters, judge: Judge::of(&running)? })
    }
}

/// The name in a report.
pub(super) fn attach_mode_name(attached: Attached) -> &'static str {
    match attached {
        Attached::Nothing => "no filter",
        Attached::Exclusive => "flags 0",
        Attached::Override => "allow-override",
        Attached::Multi => "allow-multi",
    }
}

/// The programs that run at a cgroup, ancestors' included, in the kernel's order.
fn in_force(dir: &Dir) -> Result<Vec<Program>> {
    for _ in 0..TRIES {
        let programs = effective(dir)?.into_iter().map(Program::by_id);
        if let Some(programs) = programs.collect::<Result<Option<_>>>()? {
            return Ok(programs);
        }
    }
    Err(dir.failed("query filters in force at", "", Errno::EAGAIN).into())
}

impl Filter {
    fn of(program: &Program, level: Option<&str>, attached: Attached) -> Result<Self> {
        let insns = insns(program)?;
        Ok(Self {
            cgroup: level.map(printable),
            attached: attach_mode_name(attached),
            id: program.id(),
            name: printable(program.name()),
            tag: program.info.tag.iter().map(|byte| format!("{byte:02x}")).collect(),
            owner: Owner::by_looks(program.name(), insns.as_deref()).as_str(),
            in_force: true,
        })
    }
}

/// The levels whose programs run at the first one: the nearest that has any, and those above it
/// that are `ALLOW_MULTI` (`compute_effective_progs` in `kernel/bpf/cgroup.c`).
fn counting(levels: &[Attached]) -> Vec<bool> {
    let nearest = levels.iter().position(|attached| *attached != Attached::Nothing);
    let counts = |(at, attached): (usize, &Attached)| {
        Some(at) == nearest || nearest.is_some() && *attached == Attached::Multi
    };
    levels.iter().enumerate().map(counts).collect()
}

/// A pin is the program that its level is marked with, or an `ALLOW_MULTI` copy of what an
/// `ALLOW_OVERRIDE` level above runs.
fn is_pin(program: &Program, attached: Attached, mark: Option<u32>, above: &[Level]) -> bool {
    let copied = || {
        let overridable = above.iter().filter(|level| level.attached == Attached::Override);
        overridable.flat_map(|level| &level.programs).any(|original| original.same_as(program))
    };
    mark == Some(program.id()) || attached == Attached::Multi && copied()
}

/// The instructions of a program as the verifier left them; `None` where the kernel does not show
/// them: to anybody without `CAP_BPF`, and with blinded constants (`net.core.bpf_jit_harden`) where
/// `kernel.kptr_restrict` hides addresses.
fn insns(program: &Program) -> Result<Option<Vec<Insn>>> {
    let bytes = read_instructions(program.as_fd(), XLATED_MAX).map_err(|error| {
        Failed::new("read instructions of program", program.id().to_string(), error)
    })?;
    let insn = |bytes: &[u8]| bytes.try_into().ok().map(interpret::decode);
    Ok(bytes.and_then(|bytes| bytes.chunks(INSN_LEN).map(insn).collect()))
}

/// Programs that all have to agree, as those in force at a cgroup do.
#[derive(Debug, Default)]
pub struct Judge {
    /// Id and instructions of each; `None` where the kernel does not show them.
    programs: Vec<(u32, Option<Vec<Insn>>)>,
}

/// What the programs say to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Ids of the programs that refuse.
    pub refused_by: Vec<u32>,
    /// Ids of the programs whose answer cannot be told.
    pub unclear: Vec<u32>,
}

impl Answer {
    /// Whether the request is allowed; `None` where that depends on a program that is not
    /// understood.
    #[must_use]
    pub fn allowed(&self) -> Option<bool> {
        match (self.refused_by.is_empty(), self.unclear.is_empty()) {
            (false, _) => Some(false),
            (true, true) => Some(true),
            (true, false) => None,
        }
    }
}

impl Judge {
    /// Reads these programs back.
    fn of(programs: &[Program]) -> Result<Self> {
        let read = |program: &Program| Ok((program.id(), insns(program)?));
        Ok(Self { programs: programs.iter().map(read).collect::<Result<_>>()? })
    }

    /// Of these instructions, each by an id.
    #[cfg(test)]
    pub(crate) fn over(programs: Vec<(u32, Option<Vec<Insn>>)>) -> Self {
        Self { programs }
    }

    /// Ids of the programs whose instructions the kernel does not show.
    pub fn hidden(&self) -> impl Iterator<Item = u32> {
        self.programs.iter().filter(|(_, insns)| insns.is_none()).map(|(id, _)| *id)
    }

    /// What the programs say. All of them are asked, since the kernel runs all of them and one
    /// that refuses is enough (`bpf_prog_run_array_cg` in `kernel/bpf/cgroup.c`).
    #[must_use]
    pub fn answer(&self, request: Request) -> Answer {
        let mut answer = Answer::default();
        for (id, insns) in &self.programs {
            match insns.as_deref().and_then(|insns| interpret::run(insns, request)) {
                Some(true) => {}
                Some(false) => answer.refused_by.push(*id),
                None => answer.unclear.push(*id),
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests;
