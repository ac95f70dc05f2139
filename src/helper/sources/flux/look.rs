//! What goes on in one unit.

use crate::sources::processes;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::time::Instant;

use kernel::proc::{Proc, Process};
use schedulers::flux::{self, Shell};

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
    /// Its IMP has no shell yet.
    Waiting,
    /// Its IMP has none any more, and tasks of this user's linger.
    Ending(u32),
    /// There is no IMP: the job is over.
    Left,
    /// There is none among the first processes, and there are more.
    Full,
    /// It cannot be told whether it runs a job, or whose.
    Strange(String),
    /// There was no time to look.
    Late,
}

/// The processes of a unit that were read, and what is with the others.
#[derive(Default)]
struct Table {
    processes: Vec<Process>,
    /// Whether there are any that could not be read.
    unread: bool,
    /// Whether there are any of another pid namespace.
    foreign: bool,
}

impl Look<'_> {
    pub(super) fn at(&self, dir: &Path) -> Seen {
        let pids = match pids(dir) {
            Ok(pids) => pids,
            Err(error) if is_gone(&error) => return Seen::Left,
            Err(error) => return Seen::Strange(format!("cgroup.procs: {error}")),
        };
        let is_full = pids.len() > flux::LOOKED_AT;
        let mut pids = pids.into_iter().take(flux::LOOKED_AT);
        let mut table = Table::default();
        // The unit's first process comes first in the kernel's list.
        let Some(found) = self.read(&mut pids, &mut table, |one| flux::is_imp(one, self.flux))
        else {
            return Seen::Late;
        };
        let imp = flux::imp(&table.processes, self.flux).filter(|_| found);
        let Some(imp) = imp else {
            return match () {
                () if table.foreign => Seen::Strange("its processes have no numbers here".into()),
                () if table.unread && self.is_blind() => Seen::Strange(HIDDEN.into()),
                () if is_full => Seen::Full,
                () => Seen::Left,
            };
        };
        let mut shell = flux::shell(self.proc, imp, &table.processes, self.flux);
        if shell == Shell::None {
            // Some kernels have no list of children.
            if self.read(&mut pids, &mut table, |_| false).is_none() {
                return Seen::Late;
            }
            shell = flux::shell(self.proc, imp, &table.processes, self.flux);
        }
        match shell {
            Shell::Of(owner) => {
                Seen::Running { owner, started: processes::started(self.proc, imp).unwrap_or(0) }
            }
            Shell::None => {
                match table.processes.iter().find_map(|one| flux::user(one, self.flux)) {
                    Some(owner) => Seen::Ending(owner),
                    None => Seen::Waiting,
                }
            }
            Shell::Several => Seen::Strange("its IMP has children of several users'".to_owned()),
        }
    }

    /// Reads about processes up to the first of that kind; whether there was one. `None` where there
    /// was no time to.
    fn read(
        &self,
        pids: &mut impl Iterator<Item = i32>,
        table: &mut Table,
        is_wanted: impl Fn(&Process) -> bool,
    ) -> Option<bool> {
        for pid in pids {
            if Instant::now() >= self.deadline {
                return None;
            }
            table.foreign |= pid == 0;
            match self.proc.process(pid) {
                Ok(process) => {
                    table.processes.push(process);
                    if is_wanted(&process) {
                        return Some(true);
                    }
                }
                Err(_) => table.unread = true,
            }
        }
        Some(false)
    }

    /// Whether processes of others cannot be seen: then the first is hidden too.
    fn is_blind(&self) -> bool {
        self.proc.process(1).is_err()
    }
}

/// The first processes of a cgroup itself, one more than are looked at. A 0 stands for one that has
/// no number here.
fn pids(dir: &Path) -> io::Result<Vec<i32>> {
    let lines = BufReader::new(File::open(dir.join("cgroup.procs"))?).lines();
    let pids = lines.take(flux::LOOKED_AT + 1).map(|line| Ok(line?.parse().ok()));
    Ok(pids.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
