//! Finds out whether a Flux unit runs a job, and whose.

use crate::clock::Deadline;
use crate::jobs::sources::doubt::PossibleOwners;
use crate::jobs::sources::processes;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::Path;

use kernel::proc::{Proc, Process};
use schedulers::flux::{self, Shell};

/// Remedy if proc(5) is mounted so that users see only their own processes.
const HIDDEN_PROCESSES: &str = "its processes are hidden (hidepid) from the account job-adopt: gid= of the mount \
    of /proc has to be that account's group";

const ROOT_UID: u32 = 0;

/// Inspects units until a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitInspector<'a> {
    pub(super) proc: &'a Proc,
    /// Uid of Flux's account.
    pub(super) flux: u32,
    pub(super) deadline: Deadline,
}

/// The state of a unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnitState {
    /// It runs a job of this user.
    Running {
        owner: u32,
        /// When its IMP started, in seconds since the epoch; 0 if unknown.
        started: i64,
    },
    /// Its IMP has no shell yet.
    NoShell,
    /// Its IMP has no shell any more, and tasks of this user linger.
    Ending(u32),
    /// It has no IMP: the job is over.
    Over,
    /// It has more processes than are read, and no IMP among them.
    TooManyProcesses,
    /// The job or its user cannot be determined; whose it may be, by its processes.
    Invalid {
        cause: String,
        owners: PossibleOwners,
    },
    /// The deadline passed first.
    TimedOut,
}

/// The processes of a unit that were read, and facts about the others.
#[derive(Default)]
struct ProcessTable {
    processes: Vec<Process>,
    /// At least one process was not there when it was read: it has ended, or is hidden.
    has_absent: bool,
    /// At least one process is there and could not be read.
    has_unreadable: bool,
    /// At least one process is in another pid namespace.
    has_foreign: bool,
}

impl UnitInspector<'_> {
    /// Inspects the unit with this cgroup. Its IMP, a setuid program that Flux's account starts, starts the job's shell
    /// as the job's user: so a shell below an IMP shows that the job runs, and whose it is.
    pub(super) fn inspect(&self, dir: &Path) -> UnitState {
        let pids = match read_pids(dir) {
            Ok(pids) => pids,
            Err(error) if is_gone(&error) => return UnitState::Over,
            Err(error) => {
                return UnitState::Invalid {
                    cause: format!("cgroup.procs: {error}"),
                    owners: PossibleOwners::Any,
                };
            }
        };
        let is_full = pids.len() > flux::UNIT_PROCESSES_MAX;
        let mut pids = pids.into_iter().take(flux::UNIT_PROCESSES_MAX);
        let mut table = ProcessTable::default();
        // The kernel's list begins with the unit's first process, as a rule the IMP, so that reading ends there.
        let in_time = self.read_processes(&mut pids, &mut table, |process| {
            flux::is_imp(process, self.flux)
        });
        if in_time.is_none() {
            return UnitState::TimedOut;
        }
        let Some(imp) = flux::find_imp(&table.processes, self.flux) else {
            // The job is over, unless the IMP may be among the processes that could not be read.
            if table.has_foreign {
                return self.invalid("its processes have no numbers here", &table);
            }
            if let Some(cause) = self.find_unread(&table) {
                return self.invalid(cause, &table);
            }
            return if is_full {
                UnitState::TooManyProcesses
            } else {
                UnitState::Over
            };
        };
        let mut shell = flux::find_shell(self.proc, imp, &table.processes, self.flux);
        if shell == Shell::None {
            // Some kernels provide no list of the IMP's children: look for one among the unit's other processes.
            if self
                .read_processes(&mut pids, &mut table, |_| false)
                .is_none()
            {
                return UnitState::TimedOut;
            }
            shell = flux::find_shell(self.proc, imp, &table.processes, self.flux);
        }
        match shell {
            Shell::Of(owner) => UnitState::Running {
                owner,
                started: processes::start_time(self.proc, imp).unwrap_or(0),
            },
            // Tasks of the user run only after a shell has: it has ended.
            Shell::None => {
                let mut processes = table.processes.iter();
                match processes.find_map(|process| flux::sole_user(process, self.flux)) {
                    Some(owner) => UnitState::Ending(owner),
                    None => UnitState::NoShell,
                }
            }
            Shell::Several => {
                // The kernel's list of children may have some that are in no list of the unit's own cgroup.
                table.processes.extend(self.proc.children(imp));
                self.invalid("its IMP has children of several users'", &table)
            }
        }
    }

    /// A unit whose user cannot be determined. One of the users with processes in it has the job; of a process that
    /// could not be read, nobody knows whose it is.
    fn invalid(&self, cause: &str, table: &ProcessTable) -> UnitState {
        let users = table
            .processes
            .iter()
            .flat_map(|process| process.uids)
            .filter(|uid| *uid != ROOT_UID && *uid != self.flux)
            .collect();
        let is_whole = !table.has_foreign && self.find_unread(table).is_none();
        UnitState::Invalid {
            cause: cause.to_owned(),
            owners: if is_whole {
                PossibleOwners::from_uids(users)
            } else {
                PossibleOwners::Any
            },
        }
    }

    /// Reads processes into the table, up to the first one that is sought, and leaves the others in `pids`. `None` if
    /// the deadline passes first.
    fn read_processes(
        &self,
        pids: &mut impl Iterator<Item = i32>,
        table: &mut ProcessTable,
        is_sought: impl Fn(&Process) -> bool,
    ) -> Option<()> {
        for pid in pids {
            if self.deadline.has_passed() {
                return None;
            }
            table.has_foreign |= pid == 0;
            match self.proc.read_process(pid) {
                Ok(process) => {
                    table.processes.push(process);
                    if is_sought(&process) {
                        return Some(());
                    }
                }
                Err(error) if is_absent(&error) => table.has_absent = true,
                Err(_) => table.has_unreadable = true,
            }
        }
        Some(())
    }

    /// Finds why processes of the unit may be missing in the table; `None` if all that were not read have ended, which
    /// puts nothing in doubt.
    fn find_unread(&self, table: &ProcessTable) -> Option<&'static str> {
        if !table.has_absent && !table.has_unreadable {
            return None;
        }
        if self.has_hidden_processes() {
            return Some(HIDDEN_PROCESSES);
        }
        table
            .has_unreadable
            .then_some("a process in it cannot be read")
    }

    /// Tells whether other users' processes are hidden: then process 1 is hidden too.
    fn has_hidden_processes(&self) -> bool {
        self.proc.read_process(1).is_err()
    }
}

/// Reads the first processes of a cgroup itself: at most one more than are inspected, which shows the caller that there
/// are more. 0 means a process of another pid namespace.
fn read_pids(dir: &Path) -> io::Result<Vec<i32>> {
    let lines = BufReader::new(File::open(dir.join("cgroup.procs"))?).lines();
    let mut pids = Vec::new();
    for line in lines.take(flux::UNIT_PROCESSES_MAX + 1) {
        pids.extend(line?.parse::<i32>());
    }
    Ok(pids)
}

/// Tells whether the cgroup is gone or being removed.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// Tells whether a process was not there when it was read: its directory was gone, or it ended while it was read.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}
