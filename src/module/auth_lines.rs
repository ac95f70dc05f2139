//! The two auth lines, the first and the last of the stack, in `pam_setcred(3)`.
//!
//! sshd calls it in the monitor before it opens the session, and again in the process that it forks to become
//! the user. There the first line forbids the user's programs, and the last one joins the job's namespaces
//! and allows them again. If another module ends the stack in between, the login starts no program.

use crate::namespaces::JobNamespaces;
use kernel::proc;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use std::io;

/// What the auth lines have done in this transaction, and have yet to do. libpam keeps it between the calls,
/// and sshd's fork copies it into the process that becomes the user.
#[derive(Debug, Default)]
pub struct AuthLines {
    /// The number of the process in which a line ran last, and how many lines ran there.
    ran: (u32, u32),
    join: Join,
}

/// The join of the job's namespaces.
#[derive(Debug, Default)]
enum Join {
    /// The login joins none.
    #[default]
    None,
    /// The process with this number has opened the session.
    Due(u32, JobNamespaces),
    /// The first line ran in the process that becomes the user.
    Begun(JobNamespaces, ProgramBan),
    /// The last line ran there.
    Done(JobNamespaces),
}

impl AuthLines {
    /// Whether both lines ran once each in the process of this number, and in no other since.
    pub fn ran_in(&self, process: u32) -> bool {
        self.ran == (process, 2)
    }

    /// Makes the process that becomes the user join these namespaces; `None` cancels that. `opener` is the
    /// number of the process that opens the session and must not join.
    pub fn set_join(&mut self, opener: u32, namespaces: Option<JobNamespaces>) {
        self.join = namespaces.map_or(Join::None, |job| Join::Due(opener, job));
    }

    /// Whether a process has namespaces to join.
    pub fn has_join(&self) -> bool {
        !matches!(self.join, Join::None)
    }

    /// Runs one of the two lines, for a call of `pam_setcred(3)` in the process of this number. In the process that
    /// becomes the user, the first call forbids programs, and the second allows them again and joins the namespaces. The
    /// process ends if a step fails: an error would not help, since sshd lets in a user with a key all the same.
    pub fn run(&mut self, process: u32) {
        self.ran = if self.ran.0 == process {
            (process, self.ran.1 + 1)
        } else {
            (process, 1)
        };
        self.join = match std::mem::take(&mut self.join) {
            Join::Due(opener, job) if opener != process => match ProgramBan::start() {
                Ok(ban) => Join::Begun(job, ban),
                Err(error) => job.refuse(format_args!("forbid programs: {error}")),
            },
            Join::Begun(mut job, ban) => {
                if let Err(error) = ban.end() {
                    job.refuse(format_args!("allow programs: {error}"));
                }
                job.join();
                Join::Done(job)
            }
            // The modules of a third call would work in the user's files.
            Join::Done(job) => job.refuse("credentials are set again after both auth lines"),
            // Nothing is to be joined, or this is the process that opened the session.
            join => join,
        };
    }
}

/// The time in which no user but root can start a process, by the limit of processes.
#[derive(Debug)]
struct ProgramBan {
    soft: rlim_t,
    hard: rlim_t,
}

/// Its bit among a process's capabilities. Root without it raises no hard limit (capabilities(7)).
const CAP_SYS_RESOURCE: u64 = 1 << 24;

impl ProgramBan {
    /// Sets the soft limit to 0, and the hard one too if this process may raise it again. A process of the user
    /// may set the soft limit of this one anew (prlimit(2)), but only up to the hard one.
    ///
    /// # Errors
    ///
    /// As `setrlimit(2)`, and as for reading `/proc/self/status`.
    fn start() -> io::Result<Self> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
        let status = proc::read("/proc/self/status")?;
        // A process whose capabilities cannot be read counts as one without any.
        let effective = proc::find_field(&status, "CapEff:").unwrap_or_default();
        let effective = u64::from_str_radix(effective, 16).unwrap_or_default();
        let during = if effective & CAP_SYS_RESOURCE == 0 {
            hard
        } else {
            0
        };
        setrlimit(Resource::RLIMIT_NPROC, 0, during)?;
        Ok(Self { soft, hard })
    }

    /// Restores both limits.
    ///
    /// # Errors
    ///
    /// As `setrlimit(2)`.
    fn end(&self) -> io::Result<()> {
        Ok(setrlimit(Resource::RLIMIT_NPROC, self.soft, self.hard)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libpam stops before the last line after a failure, and a child has a copy of what its parent did.
    #[test]
    fn only_both_lines_in_one_process_count() {
        let mut lines = AuthLines::default();
        lines.run(7);
        assert!(!lines.ran_in(7));
        lines.run(7);
        assert!(lines.ran_in(7) && !lines.ran_in(8));
        lines.run(7);
        assert!(!lines.ran_in(7));
        lines.run(8);
        assert!(!lines.ran_in(8));
        lines.run(8);
        assert!(lines.ran_in(8) && !lines.ran_in(7));
        assert!(!lines.has_join());
    }
}
