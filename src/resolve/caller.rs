//! Which of a user's jobs an ssh client runs in.

use std::net::IpAddr;
use std::time::Instant;

use super::answer::host_name;
use super::config::Callers;
use super::survey::Survey;
use super::{Config, Evidence, Node};
use crate::callerid::diag::{self, DiagError, Owner};
use crate::callerid::{self, Answer, AskError, Flow, Ground, holder};
use crate::plan::{JobId, Request};
use crate::source::Job;

/// Who can be asked about the ssh client of one login.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    node: &'a Node,
    callers: &'a Callers,
    /// PAM's `SSH_CONNECTION`.
    connection: &'a str,
    /// When the request has to be answered.
    last: Instant,
    owner: fn(&Flow) -> Result<Option<Owner>, DiagError>,
    ask: fn(Flow, Instant) -> Result<Answer, AskError>,
}

/// What was found out.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The job, and who says so.
    Job(JobId, String),
    /// Nothing, as is to be expected of this site.
    Nothing(String),
    /// Nothing, which an administrator should know.
    Fault(String),
}

impl<'a> Caller<'a> {
    pub(super) fn new(
        node: &'a Node,
        request: &'a Request,
        config: &'a Config,
        last: Instant,
    ) -> Self {
        let (callers, connection) = (&config.caller, request.ssh_connection.as_str());
        let owner = |flow: &Flow| diag::owner(flow.client, flow.server);
        Self { node, callers, connection, last, owner, ask: callerid::ask }
    }

    /// The one of these jobs that the client runs in. Where it runs on this node, nobody else is
    /// asked.
    pub(super) fn job(
        &self,
        jobs: &[Job],
        evidence: &mut Evidence,
        warnings: &mut Vec<String>,
    ) -> Option<JobId> {
        let Some(flow) = Flow::of_ssh(self.connection) else {
            let why = match self.connection {
                "" => "the connection is not known (--connection gives it)",
                _ => "the connection is none of TCP",
            };
            evidence.add("caller", why);
            return None;
        };
        let found = match (self.owner)(&flow) {
            Ok(Some(owner)) => self.here(owner, flow, jobs),
            Ok(None) => self.elsewhere(flow, jobs),
            Err(error) => {
                warnings.push(format!("caller: {error}"));
                self.elsewhere(flow, jobs)
            }
        };
        match found {
            Found::Job(job, text) => {
                evidence.add("caller", text);
                Some(job)
            }
            Found::Nothing(text) => {
                evidence.add("caller", text);
                None
            }
            Found::Fault(text) => {
                warnings.push(format!("caller: {text}"));
                evidence.add("caller", text);
                None
            }
        }
    }

    fn here(&self, owner: Owner, flow: Flow, jobs: &[Job]) -> Found {
        let client = flow.client;
        match self.node.holder(jobs, owner.cgroup, self.until()) {
            Some(job) => {
                Found::Job(job.clone(), format!("{client} is a process here, of job {job}"))
            }
            None => Found::Nothing(format!("{client} is a process here, of none of these jobs")),
        }
    }

    fn elsewhere(&self, flow: Flow, jobs: &[Job]) -> Found {
        let host: IpAddr = flow.client.ip();
        if !self.callers.networks.contain(host) {
            return Found::Nothing(format!("{host} is not asked: callerid_networks lacks it"));
        }
        match (self.ask)(flow, self.until()) {
            Ok(Answer::Job(job)) if jobs.iter().any(|one| one.id == job) => {
                let text = format!("{host} says job {job}");
                Found::Job(job, text)
            }
            Ok(Answer::Job(job)) => {
                Found::Fault(format!("{host} says job {job}, which the user has not running here"))
            }
            Ok(Answer::NoUser) => Found::Nothing(format!("{host} says that it is in no job")),
            Ok(Answer::Hidden) => Found::Nothing(format!(
                "{host} does not tell: its callerid_networks lack this host"
            )),
            Ok(Answer::InvalidPort | Answer::Unknown) => {
                Found::Fault(format!("{host} cannot tell: see its log"))
            }
            Err(error @ AskError::Absent(_)) => Found::Nothing(format!("{host} {error}")),
            Err(error) => Found::Fault(format!("{host} {error}")),
        }
    }

    fn until(&self) -> Instant {
        self.last.min(Instant::now() + self.callers.timeout)
    }
}

impl Node {
    /// The running jobs of `uid` here, as far as they can be told until `deadline`, and what may have
    /// hidden others.
    ///
    /// # Errors
    /// Why no source can be asked.
    pub fn running(
        &self,
        config: &Config,
        uid: u32,
        deadline: Instant,
    ) -> Result<(Vec<Job>, Vec<String>), String> {
        let sources = self.sources(&self.tree(), &host_name(), config)?;
        let mut survey = Survey::of(&sources, uid, deadline);
        let jobs = std::mem::take(&mut survey.jobs);
        Ok((jobs, survey.warnings()))
    }

    /// The one of these jobs whose cgroup, or one below it, has this id; `None` also where that
    /// cannot be told until `deadline`.
    #[must_use]
    pub fn holder<'a>(&self, jobs: &'a [Job], cgroup: u64, deadline: Instant) -> Option<&'a JobId> {
        let mount = self.cgroup_mount().ok()?;
        holder(jobs, cgroup, Ground { mount: &mount, owner: self.trust.owner(), deadline })
    }
}

#[cfg(test)]
mod tests;
