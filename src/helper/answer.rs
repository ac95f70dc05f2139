//! The answer to one request.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::caller::Caller;
use super::choose::{Choice, choose};
use super::fit::fit;
use super::fit::message;
use super::plan::plan;
use super::stack::judge;
use super::survey::Survey;
use super::{Config, Enforce, Evidence, refusal, reply};
use crate::helper::devices::{Resolver, Settings, Tree};
use crate::helper::sources::{Account, FluxSource, Job, RegistrySource, SlurmSource, Source};
use crate::kernel::cgroup::Mount;
use crate::kernel::choice::Choices;
use crate::kernel::sys::clock;
use crate::kernel::trust::Trust;
use crate::protocol::{
    Phase, Placement, Reason, Refusal, Reply, Request, Rule, SourceName, Stack, Verdict,
};

/// How long to wait before "no job" is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// What is kept of the budget for the answer itself and the way back.
const RESERVE: Duration = Duration::from_millis(250);
/// What part of the budget one round of questions may take: the privileged half asks once more.
const SHARE: u32 = 2;
/// How users of Slurm see their jobs.
const SQUEUE: &str = "squeue --me";
const FLUX_JOBS: &str = "flux jobs";

/// A node as the unprivileged half sees it.
#[derive(Clone, Debug)]
pub struct Node {
    root: PathBuf,
    pub(super) trust: Trust,
    cgroup: OnceLock<PathBuf>,
}

/// The answer for this node.
pub fn answer(request: &Request) -> Reply {
    Node::here().answer(request, &mut Evidence::default())
}

impl Node {
    /// This node.
    pub fn here() -> Self {
        Self { root: PathBuf::from("/"), trust: Trust::root(), cgroup: OnceLock::new() }
    }

    /// A node laid out for a test: `dev`, `proc` and `etc/pam.d` below `root`, files believed as
    /// `trust` says, cgroups in the directory `cgroup`.
    pub fn laid_out(root: &Path, trust: Trust, cgroup: &Path) -> Self {
        Self { root: root.to_owned(), trust, cgroup: cgroup.to_owned().into() }
    }

    /// The answer, and in `evidence` what led to it.
    pub fn answer(&self, request: &Request, evidence: &mut Evidence) -> Reply {
        let mut reply = reply(Verdict::NotEnforced, String::new());
        evidence.add("config", &request.conf);
        match Config::read(Path::new(&request.conf), &self.trust) {
            Ok(config) => self.judge(request, &config, &mut reply, evidence),
            Err(error) => {
                reply.detail = error.to_string();
                reply.verdict = Verdict::Refuse(refusal(Reason::Configuration));
            }
        }
        fit(reply)
    }

    fn judge(
        &self,
        request: &Request,
        config: &Config,
        reply: &mut Reply,
        evidence: &mut Evidence,
    ) {
        if let Enforce::IfExists(path) = &config.enforce {
            // Where it cannot be told whether the path exists, it is taken to.
            if is_missing(path) {
                reply.detail = format!("{} does not exist", path.display());
                evidence.add("enforce", &reply.detail);
                return;
            }
        }
        self.decide(request, config, reply, evidence);
        if request.phase == Phase::Account {
            let finding = judge(&self.root, &request.service);
            reply.stack = finding.stack();
            evidence.add("stack", &finding);
            if reply.stack == Stack::Missing {
                reply.warnings.insert(0, format!("service {}: {finding}", request.service));
            }
        }
        if let (Verdict::Refuse(_), Some(path)) = (&reply.verdict, &config.message_file) {
            match message(path, &self.trust) {
                Ok(text) => reply.message = text,
                Err(error) => reply.warnings.push(error.to_string()),
            }
        }
        if let Some(hint) = &config.hint {
            reply.hint.clone_from(hint);
        }
    }

    fn decide(
        &self,
        request: &Request,
        config: &Config,
        reply: &mut Reply,
        evidence: &mut Evidence,
    ) {
        let began = Instant::now();
        let tree = self.tree();
        let sources = match self.sources(&tree, &request.node, config) {
            Ok(sources) => sources,
            Err(cause) => {
                reply.detail = cause;
                reply.verdict = Verdict::Refuse(refusal(Reason::Configuration));
                return;
            }
        };
        let mut survey = ask(&sources, request);
        survey.tell(evidence);
        let commands = [(SourceName::Slurm, SQUEUE), (SourceName::Flux, FLUX_JOBS)];
        let command = commands.iter().find(|(source, _)| survey.present.contains(source));
        command.map_or("", |(_, command)| command).clone_into(&mut reply.hint);
        let jobs = std::mem::take(&mut survey.jobs);
        let caller = Caller::new(self, request, config, last(request, began));
        let choice = choose(jobs, request.several, |rule, jobs| match rule {
            Rule::Caller => caller.job(jobs, evidence, &mut survey.faults),
            Rule::Chosen => self.chosen(request.uid, jobs, evidence, &mut survey.faults),
            Rule::OnlyJob | Rule::Newest => None,
        });
        (reply.verdict, reply.detail) = match choice {
            Choice::None => {
                let (refusal, cause) =
                    survey.without_job(clock::now(), config.sources != SourceName::ALL);
                (reply.verdict, reply.detail) = (Verdict::Refuse(refusal), cause);
                return;
            }
            Choice::Needed(jobs) => {
                let refusal = Refusal { jobs, ..refusal(Reason::ChoiceNeeded) };
                (Verdict::Refuse(refusal), "action_unknown=deny".to_owned())
            }
            Choice::Job(job, rule) => {
                evidence.add("rule", format_args!("{} ({})", rule.as_str(), job.id));
                let resolver = self.resolver(tree, request, config, &job);
                match plan(&job, rule, &request.unit, config, &resolver, evidence) {
                    Ok((plan, warnings)) => {
                        survey.faults.extend(warnings);
                        (Verdict::Admit(plan), String::new())
                    }
                    Err((refusal, cause)) => (Verdict::Refuse(refusal), cause),
                }
            }
        };
        reply.warnings = survey.warnings();
    }

    /// What the site says about devices, with the name that a PAM line gives the node.
    fn settings(node: &str, config: &Config) -> Settings {
        let node_name = config.devices.node_name.clone().or_else(|| named(node, &host_name()));
        Settings { node_name, ..config.devices.clone() }
    }

    /// Where Slurm has said what it calls the node, its files are read for that.
    fn resolver(&self, tree: Tree, request: &Request, config: &Config, job: &Job) -> Resolver {
        let mut settings = Self::settings(&request.node, config);
        if let Placement::Extern { node, .. } = &job.placement {
            settings.node_name = Some(node.to_string());
        }
        Resolver::new(tree, settings)
    }

    pub(super) fn tree(&self) -> Tree {
        match self.root.parent() {
            Some(_) => Tree::laid_out(&self.root, self.trust.clone()),
            None => Tree::here(),
        }
    }

    pub(super) fn choices(&self) -> Choices {
        Choices::below(&self.root, self.trust.clone())
    }

    pub(super) fn sources(
        &self,
        tree: &Tree,
        node: &str,
        config: &Config,
    ) -> Result<Vec<Box<dyn Source>>, String> {
        let source = |name: &SourceName| -> Result<Box<dyn Source>, String> {
            match name {
                SourceName::Registry => {
                    let (registry, cgroup) = (config.registry.clone(), self.cgroup_mount()?);
                    Ok(Box::new(RegistrySource::new(registry, self.trust.clone(), cgroup)))
                }
                SourceName::Slurm => {
                    let settings = Self::settings(node, config);
                    let spool = config.slurm.spool.clone();
                    Ok(Box::new(SlurmSource::new(tree.clone(), settings, spool)))
                }
                SourceName::Flux => {
                    let account = Account::Name(config.flux_user.clone());
                    Ok(Box::new(FluxSource::new(account, self.cgroup_mount()?, &self.root)))
                }
            }
        };
        // Slurm's daemons may be waited for; who answers without waiting comes first.
        let (slow, fast): (Vec<_>, Vec<_>) =
            config.sources.iter().partition(|name| **name == SourceName::Slurm);
        fast.into_iter().chain(slow).map(source).collect()
    }

    pub(super) fn cgroup_mount(&self) -> Result<PathBuf, String> {
        if let Some(cgroup) = self.cgroup.get() {
            return Ok(cgroup.clone());
        }
        let mount = Mount::below(&self.root).map_err(|error| error.to_string())?;
        let mount = self.root.join(mount.path().trim_start_matches('/'));
        Ok(self.cgroup.get_or_init(|| mount).clone())
    }
}

/// When a request that came at `began` has to be answered.
fn last(request: &Request, began: Instant) -> Instant {
    began + Duration::from_millis(request.budget_ms.into()).saturating_sub(RESERVE)
}

/// Asks the sources, and while there is no job, again until the time for that is over.
fn ask(sources: &[Box<dyn Source>], request: &Request) -> Survey {
    let budget = Duration::from_millis(request.budget_ms.into()).saturating_sub(RESERVE);
    let wait = Duration::from_millis(request.wait_ms.into()).min(budget);
    let began = Instant::now();
    loop {
        let survey = Survey::of(sources, request.uid, Instant::now() + budget / SHARE);
        let left = wait.saturating_sub(began.elapsed());
        if !survey.may_change() || left.is_zero() {
            return survey;
        }
        sleep(AGAIN.min(left));
    }
}

pub(super) fn host_name() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// The name that a PAM line gives the node; `None` for the host's own, which is told in full where
/// it is needed: a request has it up to its first dot.
fn named(node: &str, host: &str) -> Option<String> {
    let own = host.split('.').next().unwrap_or_default();
    (node != own && node != host).then(|| node.to_owned())
}

fn is_missing(path: &Path) -> bool {
    let missing = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    std::fs::symlink_metadata(path).err().is_some_and(missing)
}

#[cfg(test)]
mod tests;
