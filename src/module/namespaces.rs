//! The namespaces of a job that has private files. Its user makes the files there, so this module is the only
//! code that may run in them as root.
//!
//! `session` only compares: it joins, and leaves again before it returns. The process of sshd that becomes
//! the user joins for good, in the last call of its last module.

use crate::error::Failure;
use crate::log::{decision_line, write_log};
use kernel::OperationError;
use kernel::log::{Log, Severity};
use kernel::namespace::{Namespace, NamespaceOrigin};
use nix::sys::signal::{Signal, raise};
use protocol::{Decision, Reason, Request};
use std::fmt::Display;

/// The namespaces of a job, the directories in which they may have other files than the node, and the login
/// that joins them.
#[derive(Debug)]
pub struct JobNamespaces {
    namespaces: Vec<Namespace>,
    private_dirs: Vec<String>,
    login: Request,
}

impl JobNamespaces {
    /// Keeps the namespaces for `login`, which must be open, and the directories that the job may have to itself
    /// there. No namespace is joined.
    pub(super) fn new(
        namespaces: Vec<Namespace>,
        private_dirs: &[String],
        login: &Request,
    ) -> Self {
        Self {
            namespaces,
            private_dirs: private_dirs.to_vec(),
            login: login.clone(),
        }
    }

    /// Checks that the calling process can join the namespaces, and that their files are the node's. It is
    /// back in its own when this returns or panics.
    ///
    /// # Errors
    ///
    /// The errors of [`NamespaceOrigin::open`] and [`NamespaceOrigin::enter`].
    pub(super) fn verify(&self) -> Result<(), Failure> {
        let origin = NamespaceOrigin::open(&self.namespaces)?;
        let visit = Visit {
            job: self,
            origin,
            log: Log::open().ok(),
        };
        Ok(visit.origin.enter(&self.namespaces, &self.private_dirs)?)
    }

    /// Joins the namespaces for good, and compares their files with the node's once more. Ends the process
    /// if that fails: sshd lets in a user with a key after an error of `setcred`.
    pub(super) fn join(&mut self) {
        let log = Log::open().ok();
        if let Err(error) = self.try_join() {
            self.end_inside(log.as_ref(), "setcred", error);
        }
        // The user's process needs no descriptor of them.
        self.namespaces.clear();
    }

    /// Joins the namespaces and compares their files with the node's ([`NamespaceOrigin::enter`]). After an error the
    /// process may be in them.
    fn try_join(&self) -> Result<(), OperationError> {
        NamespaceOrigin::open(&self.namespaces)?.enter(&self.namespaces, &self.private_dirs)
    }

    /// Logs the refusal of a login in `setcred`, and ends the process.
    pub(super) fn refuse(&self, why: impl Display) -> ! {
        self.end_process(None, "setcred", why)
    }

    /// Ends this process, which may be in the namespaces, and logs why to the node's log. Without a log from before
    /// that is left out: a socket that is opened now may be the user's.
    fn end_inside(&self, log: Option<&Log>, phase: &str, why: impl Display) -> ! {
        match log {
            Some(log) => self.end_process(Some(log), phase, why),
            None => end_process(),
        }
    }

    /// Logs why the login is refused, and ends this process: no further code of it runs in the user's files. `phase`
    /// is the function of libpam.
    fn end_process(&self, log: Option<&Log>, phase: &str, why: impl Display) -> ! {
        let reason = Some(Reason::AdoptionFailed);
        let line = decision_line(Severity::Alert, Decision::Refuse, reason, &self.login)
            .with("error", why);
        write_log(log, &[line], Severity::Alert, &self.login.service, phase);
        end_process()
    }
}

/// Ends this process at once by `SIGKILL`: none of its code runs any more.
pub fn end_process() -> ! {
    let _ = raise(Signal::SIGKILL);
    // No process survives the signal.
    std::process::abort()
}

/// A visit to a job's namespaces. Its end leaves them, or ends the process: the modules after this one and
/// sshd would work as root where the user made the paths.
struct Visit<'a> {
    job: &'a JobNamespaces,
    origin: NamespaceOrigin,
    /// The node's log, opened before the visit: the namespaces may have another one.
    log: Option<Log>,
}

impl Drop for Visit<'_> {
    /// Leaves the namespaces; ends the process if that fails.
    fn drop(&mut self) {
        if let Err(error) = self.origin.leave() {
            self.job.end_inside(self.log.as_ref(), "session", error);
        }
    }
}
