//! Jobs of Slurm's, by the daemons of their steps on this node.
//!
//! No command of Slurm's is run and no controller asked: where jobs are, the daemons of their
//! extern steps listen at sockets in a directory of slurmd's, and say whose they are to anybody who
//! asks. The privileged half asks the chosen one once more.

mod ask;
mod spool;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Found, Job, Source, SourceError};
use crate::helper::devices::{Settings, Tree};
use crate::protocol::{Placement, SourceName};
use crate::schedulers::stepd::{Answer, Error, State};
use ask::{Terms, ask};
use spool::Socket;

/// How long one daemon is waited for, where others may have the answer.
const EACH: Duration = Duration::from_secs(1);

/// Slurm as a source.
#[derive(Debug)]
pub struct SlurmSource {
    tree: Tree,
    settings: Settings,
    spool: Option<PathBuf>,
}

impl SlurmSource {
    /// A source over the step daemons' sockets in `spool`, or in the directory that `slurm.conf`
    /// names, which is looked for as `settings` say. Where they give the node's name, only that
    /// node's count, else those of every node that this host is.
    pub fn new(tree: Tree, settings: Settings, spool: Option<PathBuf>) -> Self {
        Self { tree, settings, spool }
    }

    /// The running jobs of all users, each with its owner, and what cannot be told.
    pub fn everyones(&self, deadline: Instant) -> Result<(Vec<(u32, Job)>, Found), SourceError> {
        let mut found = Found::default();
        let heard = self.heard(&mut found, None, deadline)?;
        let running = heard.into_iter().filter(|(_, answer)| answer.state == State::Running);
        let jobs = running.map(|(socket, answer)| (answer.uid, socket.into())).collect();
        Ok((jobs, found))
    }

    /// The daemons that answered; about the others `found` tells.
    fn heard(
        &self,
        found: &mut Found,
        whose: Option<u32>,
        deadline: Instant,
    ) -> Result<Vec<(Socket, Answer)>, SourceError> {
        let spool = self.spool.as_deref();
        let sockets = spool::sockets(&self.tree, &self.settings, spool, found)?;
        let paths: Vec<&Path> = sockets.iter().map(|socket| socket.path.as_path()).collect();
        let terms = Terms { owner: self.tree.trust().owner(), whose, each: EACH, deadline };
        let answers = ask(&paths, terms);
        let (mut heard, mut gone, mut unasked) = (Vec::new(), 0, 0);
        for (socket, answer) in sockets.into_iter().zip(answers) {
            let path = socket.path.display();
            match answer {
                Some(Ok(answer)) => heard.push((socket, answer)),
                // Slurm leaves the sockets of daemons that were killed.
                Some(Err(Error::Gone)) => gone += 1,
                Some(Err(error @ (Error::Timeout | Error::Closed))) => {
                    found.silent.push(format!("{path}: {error}"));
                }
                Some(Err(error)) => found.broken.push(format!("{path}: {error}")),
                None => unasked += 1,
            }
        }
        if unasked > 0 {
            found.silent.push(format!("{unasked} more daemons could not be asked in time"));
        }
        found.seen.push(format!("{} daemons answered, {gone} sockets are stale", heard.len()));
        Ok(heard)
    }
}

impl Source for SlurmSource {
    fn name(&self) -> SourceName {
        SourceName::Slurm
    }

    fn jobs(&self, uid: u32, deadline: Instant) -> Result<Found, SourceError> {
        let mut found = Found::default();
        for (socket, answer) in self.heard(&mut found, Some(uid), deadline)? {
            if answer.uid == uid {
                found.take(socket, answer.state);
            }
        }
        Ok(found)
    }
}

impl Found {
    fn take(&mut self, socket: Socket, state: State) {
        let id = socket.name.job.clone();
        match state {
            State::Starting => self.starting.push(id),
            State::Ending => self.ending.push(id),
            State::Running => match self.jobs.iter_mut().find(|job| job.id == id) {
                // A job of several nodes that are one host; to join one of them is to join it.
                Some(job) => {
                    let other = Job::from(socket);
                    let shown = other.placement.shown(&id);
                    self.skipped.push(format!("{shown}: the job is on several nodes of this host"));
                    if job.started < other.started {
                        *job = other;
                    }
                }
                None => self.jobs.push(socket.into()),
            },
        }
    }
}

impl From<Socket> for Job {
    fn from(Socket { name, spool, started, .. }: Socket) -> Self {
        let placement = Placement::Extern { spool, node: name.node };
        Self { id: name.job, started, ends: None, placement, record: None }
    }
}

#[cfg(test)]
pub(crate) mod tests;
