//! What goes on in one unit.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Instant;

use crate::kernel::proc::{self, Proc, Process};
use crate::schedulers::flux::{self, Shell};

/// What to do where proc(5) is mounted so that users see their own processes only.
const HIDDEN: &str = "its processes are hidden (hidepid) from the account job-adopt: gid= of the mount \
    of /proc has to be that account's group";

#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    pub(super) proc: &'a Proc,
    /// Uid of Flux's account.
    pub(super) flux: u32,
    pub(super) deadline: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It runs a job of this user's.
    Running {
        owner: u32,
        /// When its IMP started, in seconds since the epoch; 0 where that cannot be told.
        started: i64,
    },
    /// Its IMP has no shell.
    Waiting,
    /// There is no IMP: the job is over.
    Left,
    /// It cannot be told whether it runs a job, or whose.
    Strange(String),
    /// There was no time to look.
    Late,
}

/// The processes of a unit that could be read, up to its IMP, and what is with the others.
#[derive(Default)]
struct Table {
    processes: Vec<Process>,
    /// Those after the IMP.
    rest: Vec<i32>,
    /// Whether there are any that could not be read.
    unread: bool,
    /// Whether there are any of another pid namespace.
    foreign: bool,
}

impl Look<'_> {
    pub(super) fn at(&self, dir: &Path) -> Seen {
        if self.is_late() {
            return Seen::Late;
        }
        let pids = match pids(dir) {
            Ok(pids) => pids,
            Err(error) if is_gone(&error) => return Seen::Left,
            Err(error) => return Seen::Strange(format!("cgroup.procs: {error}")),
        };
        let Some(mut table) = self.table(pids) else { return Seen::Late };
        let Some(imp) = flux::imp(&table.processes, self.flux) else {
            return match () {
                () if table.foreign => Seen::Strange("its processes have no numbers here".into()),
                () if table.unread && self.is_blind() => Seen::Strange(HIDDEN.into()),
                () => Seen::Left,
            };
        };
        let mut shell = flux::shell(self.proc, imp, &table.processes, self.flux);
        if shell == Shell::None {
            // Some kernels have no list of children.
            for pid in std::mem::take(&mut table.rest) {
                if self.is_late() {
                    return Seen::Late;
                }
                table.processes.extend(self.proc.process(pid));
            }
            shell = flux::shell(self.proc, imp, &table.processes, self.flux);
        }
        match shell {
            Shell::Of(owner) => {
                Seen::Running { owner, started: self.proc.started(imp).unwrap_or(0) }
            }
            Shell::None => Seen::Waiting,
            Shell::Several => Seen::Strange("its IMP has children of several users'".to_owned()),
        }
    }

    /// Reads about processes up to the first that is like an IMP: the unit's first process comes
    /// first in the kernel's list, and a user's job may have any number of others. `None` where
    /// there was no time to.
    fn table(&self, pids: Vec<i32>) -> Option<Table> {
        let mut table = Table::default();
        let mut pids = pids.into_iter();
        for pid in pids.by_ref() {
            if self.is_late() {
                return None;
            }
            table.foreign |= pid == 0;
            match self.proc.process(pid) {
                Ok(process) => {
                    table.processes.push(process);
                    if flux::is_imp(&process, self.flux) {
                        break;
                    }
                }
                Err(_) => table.unread = true,
            }
        }
        table.rest = pids.collect();
        Some(table)
    }

    /// Whether processes of others cannot be seen: then the first is hidden too.
    fn is_blind(&self) -> bool {
        self.proc.process(1).is_err()
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

/// The processes of a cgroup itself. A 0 stands for one that has no number here.
fn pids(dir: &Path) -> io::Result<Vec<i32>> {
    let text = proc::read_table(dir.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
