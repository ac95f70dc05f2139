//! The cgroup that filters are attached to: what stands there, and how it is changed.

use super::{Error, Insn, Level, Program, Result, name::program_name};
use crate::cgroup::{Dir, PinMark};
use crate::lock::Lock;
use crate::sys::bpf as kernel;
use std::os::fd::AsFd;

/// A filter of ours, not loaded yet.
pub(super) struct Ours {
    /// By it the filter is found again: it is a hash of the instructions. Reading them back would
    /// not do where the kernel blinds constants (`net.core.bpf_jit_harden`).
    name: String,
    insns: Vec<Insn>,
}

impl Ours {
    pub(super) fn new(insns: Vec<Insn>) -> Self {
        Self { name: program_name(&insns), insns }
    }
}

/// A cgroup, the programs on it, and the right to change them where the lock is held.
pub(super) struct Point<'a> {
    pub(super) dir: &'a Dir,
    pub(super) level: &'a Level,
    pub(super) lock: Option<&'a Lock>,
}

impl Point<'_> {
    /// The ids here of the programs that stand for those of `above`; `None` where one was missing
    /// and, with the lock, has been attached now.
    pub(super) fn pin(&self, above: &Level) -> Result<Option<Vec<u32>>> {
        let mut ids = Vec::new();
        for program in &above.programs {
            match self.level.programs.iter().find(|found| found.same_as(program)) {
                Some(found) => ids.push(found.id()),
                None => {
                    self.attach_pin(program)?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(ids))
    }

    /// Attaches a pin, in place of the one that an earlier login attached and that the scheduler
    /// has since replaced by another program. Without that, each step of a job would leave a pin.
    fn attach_pin(&self, program: &Program) -> Result<()> {
        if self.lock.is_none() {
            return Ok(());
        }
        let stale = PinMark::read(self.dir).map_err(|error| self.failed("read mark of", error))?;
        let stale = self.level.programs.iter().find(|found| Some(found.id()) == stale);
        self.attach(program, stale)?;
        PinMark::set(self.dir, program.id()).map_err(|error| self.failed("mark", error))
    }

    /// The id of this filter of ours; `None` where it is missing or another one stands here and,
    /// with the lock, that has been put right now: exactly one of ours.
    pub(super) fn ours(&self, ours: &Ours) -> Result<Option<u32>> {
        let found: Vec<&Program> = self.level.ours().collect();
        if let [only] = found.as_slice() {
            if only.name() == ours.name {
                return Ok(Some(only.id()));
            }
        }
        if self.lock.is_some() {
            let program = Program::load(&ours.name, &ours.insns)?;
            self.attach(&program, found.first().copied())?;
            found.iter().skip(1).try_for_each(|surplus| detach(self.dir, surplus))?;
        }
        Ok(None)
    }

    fn attach(&self, program: &Program, replace: Option<&Program>) -> Result<()> {
        let old = replace.map(AsFd::as_fd);
        let flags = kernel::BPF_F_ALLOW_MULTI;
        match kernel::prog_attach(self.dir.as_fd(), program.as_fd(), flags, old) {
            // "The same program twice": then the next look will find it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && replace.is_none() => {
                match Level::read(self.dir)?.ids().contains(&program.id()) {
                    true => Ok(()),
                    false => Err(Error::system("attach filter to", self.dir.path(), error)),
                }
            }
            result => {
                result.map_err(|error| Error::system("attach filter to", self.dir.path(), error))
            }
        }
    }

    fn failed(&self, operation: &'static str, error: crate::cgroup::Error) -> Error {
        Error::system(operation, self.dir.path(), std::io::Error::other(error.to_string()))
    }
}

fn detach(dir: &Dir, program: &Program) -> Result<()> {
    kernel::prog_detach(dir.as_fd(), program.as_fd())
        .map_err(|error| Error::system("detach filter from", dir.path(), error))
}
