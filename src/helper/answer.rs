//! The program `resolve`: a request on standard input, its answer on standard output.

use super::caller::Caller;
use super::choose::{Choice, choose, rule_among_answers};
use super::plan::plan;
use super::stack::judge_session_stack;
use super::survey::Survey;
use super::{Config, Evidence, refusal, reply};
use crate::devices::{Resolver, Settings, Tree};
use crate::printable;
use crate::sources::{FluxSource, Job, RegistrySource, SlurmSource, Source};
use kernel::cgroup::Mount;
use kernel::choice::Choices;
use kernel::sys::clock;
use kernel::trust::{Trust, TrustError};
use nix::sys::prctl::set_dumpable;
use nix::unistd::Uid;
use protocol::{
    DecodeError, Phase, Placement, Reason, Refusal, Reply, Request, Rule, SourceName, Stack,
    VERSION, Verdict,
};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

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
        if let Some(path) = config.missing_enforce_path() {
            reply.detail = format!("{} does not exist", path.display());
            evidence.add("enforce", &reply.detail);
            return;
        }
        self.decide(request, config, reply, evidence);
        if request.phase == Phase::Account {
            let finding = judge_session_stack(&self.root, &request.service);
            reply.stack = finding.to_stack();
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
        let jobs = std::mem::take(&mut survey.found.jobs);
        let choice = choose(jobs, request.several, |rule, jobs| match rule {
            Rule::Caller => {
                let caller = Caller::new(self, request, config, last(request, began));
                caller.job(jobs, evidence, &mut survey.found.broken)
            }
            Rule::Chosen => self.chosen(request.uid, jobs, evidence, &mut survey.found.broken),
            Rule::OnlyJob | Rule::Newest | Rule::Answered => None,
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
                let is_known = survey.found.silent.is_empty();
                let rule = if is_known { rule } else { rule_among_answers(rule) };
                evidence.add("rule", format_args!("{} ({})", rule.as_str(), job.id));
                let resolver = self.resolver(tree, request, config, &job);
                match plan(&job, rule, &request.unit, config, &resolver, evidence) {
                    Ok((plan, warnings)) => {
                        survey.found.broken.extend(warnings);
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
            Some(_) => Tree::with_root(&self.root, self.trust.clone()),
            None => Tree::host(),
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
                    let spool = config.slurm_spool.clone();
                    Ok(Box::new(SlurmSource::new(tree.clone(), settings, spool)))
                }
                SourceName::Flux => {
                    let mount = self.cgroup_mount()?;
                    Ok(Box::new(FluxSource::new(&config.flux_user, mount, &self.root)))
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
        let survey = Survey::query(sources, request.uid, Instant::now() + budget / SHARE);
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

const DETAIL_MAX: usize = 1024;
/// Most bytes of one text in a list, and of a device name.
const TEXT_MAX: usize = 192;
/// Most warnings, and most dropped devices. With full lists of devices, 40 KiB, all of it takes less
/// than 64 KiB.
const WARNINGS_MAX: usize = 24;
const DROPPED_MAX: usize = 40;

/// Most jobs of a refusal, as a list of the reply may have.
const JOBS_MAX: usize = 256;

/// The reply with its texts on one line each, cut to lengths with which it can be sent.
pub(super) fn fit(mut reply: Reply) -> Reply {
    reply.detail = cut(&reply.detail, DETAIL_MAX);
    reply.warnings = list(reply.warnings, WARNINGS_MAX);
    match &mut reply.verdict {
        Verdict::Admit(plan) => plan.dropped = list(std::mem::take(&mut plan.dropped), DROPPED_MAX),
        Verdict::Refuse(refusal) => {
            refusal.device = cut(&refusal.device, TEXT_MAX);
            refusal.jobs.truncate(JOBS_MAX);
        }
        Verdict::NotEnforced => {}
    }
    reply
}

fn list(texts: Vec<String>, most: usize) -> Vec<String> {
    let more = texts.len().saturating_sub(most);
    let kept = if more > 0 { most.saturating_sub(1) } else { texts.len() };
    let mut fitted: Vec<_> = texts.iter().take(kept).map(|text| cut(text, TEXT_MAX)).collect();
    if more > 0 {
        fitted.push(format!("and {} more", texts.len() - kept));
    }
    fitted
}

fn cut(text: &str, most: usize) -> String {
    let text = printable(text);
    if text.len() <= most {
        return text;
    }
    let mut end = most.saturating_sub(3);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", text.get(..end).unwrap_or_default())
}

const MESSAGE_MAX: u64 = 400;

/// Reads the text: plain ASCII, lines kept, anything else replaced.
/// Fails: [`TrustError`] where the file is missing, not believed or too large.
pub(super) fn message(path: &Path, trust: &Trust) -> Result<String, TrustError> {
    let bytes = trust.read(path, MESSAGE_MAX)?;
    let plain = |byte: &u8| match *byte {
        b'\n' => Some('\n'),
        b'\t' => Some(' '),
        byte if byte.is_ascii_control() => None,
        byte if byte.is_ascii() => Some(char::from(byte)),
        _ => Some('?'),
    };
    Ok(bytes.iter().filter_map(plain).collect::<String>().trim_end().to_owned())
}

const USAGE: &str = "\
usage: resolve < REQUEST > REPLY

Run by pam_job_adopt.so at each login, as the system user job-adopt; it refuses to run as root.
To see what a login would get, use: job-adopt resolve --user USER

  --help      show this text
  --version   show the version
";

const EXIT_FAILURE: i32 = 1;
const EXIT_USAGE: i32 = 2;

/// Runs the program; returns its exit status.
pub fn main() -> i32 {
    let mut arguments = std::env::args_os().skip(1);
    let argument = arguments.next();
    match argument.as_ref().and_then(|argument| argument.to_str()) {
        Some("--help") => return say(USAGE.as_bytes()),
        Some("--version") => return say(format!("resolve {VERSION}\n").as_bytes()),
        _ => {}
    }
    if argument.is_some() || Uid::effective().is_root() || Uid::current().is_root() {
        // Nobody is left to tell where this fails.
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return EXIT_USAGE;
    }
    serve().map_or(EXIT_FAILURE, |reply| say(&reply))
}

/// The encoded reply; `None` where there is no request that could be answered.
fn serve() -> Option<Vec<u8>> {
    // No tracer of the same user: whoever could write this process's memory would write the plan. An
    // exec undoes this, so that it cannot be done before; limits come from the privileged half.
    set_dumpable(false).ok()?;
    let mut bytes = Vec::new();
    let limit = Request::BYTES_MAX as u64;
    std::io::stdin().lock().take(limit + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() > Request::BYTES_MAX {
        return None;
    }
    reply_to(&bytes).map(|reply| reply.encode())
}

fn reply_to(bytes: &[u8]) -> Option<Reply> {
    match Request::decode(bytes) {
        Ok(request) => Some(answer(&request)),
        // A module of another version reads the version of this reply and no more: while an upgrade
        // is under way, that is what it has to say.
        Err(error @ DecodeError::WrongVersion(_)) => {
            Some(reply(Verdict::Refuse(refusal(Reason::Timeout)), error.to_string()))
        }
        Err(_) => None,
    }
}

fn say(bytes: &[u8]) -> i32 {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(_) => EXIT_FAILURE,
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod fit_tests {
    use super::*;
    use protocol::{
        ALLOWLIST_ENTRIES_MAX, Allowlist, Containment, ENVIRONMENT_BYTES_MAX, PROBES_MAX,
        Placement, Plan, REPLY_BYTES_MAX, Reason, Refusal, Rule, Stack, Variable, Variables,
    };

    /// As many and as long as they may be.
    fn env() -> Variables {
        let mut env = Variables::default();
        for name in ["SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_SUBMIT_DIR", "SLURM_JOB_USER"] {
            let value = "v".repeat(ENVIRONMENT_BYTES_MAX / 4 - name.len() - 1);
            env.push(Variable::from_pair(name, &value).unwrap()).unwrap();
        }
        env
    }

    #[test]
    fn the_largest_reply_fits_and_is_read() {
        let mut list = Allowlist::new();
        for minor in 0..ALLOWLIST_ENTRIES_MAX {
            list.push(format!("c:4095:{}:rwm", 1_000_000 + minor).parse().unwrap()).unwrap();
        }
        let long = "\u{e4}".repeat(5000);
        let (path, gpu) = ("p".repeat(27), "g".repeat(64));
        let probe = format!("c:4095:1048575:rw /dev/{path} CUDA_VISIBLE_DEVICES={gpu}");
        let probe = probe.parse().unwrap();
        let reply = Reply {
            stack: Stack::Effective,
            detail: long.clone(),
            warnings: vec![long.clone(); 5000],
            hint: "h".repeat(64),
            message: "m".repeat(400),
            verdict: Verdict::Admit(Plan {
                job: "j".repeat(64).parse().unwrap(),
                rule: Rule::Newest,
                placement: Placement::Extern {
                    spool: format!("/{}", "c".repeat(4094)).parse().unwrap(),
                    node: "n".repeat(64).parse().unwrap(),
                },
                ends: Some(i64::MAX),
                gpus: u32::MAX,
                containment: Containment::Enforce(list),
                probes: vec![probe; PROBES_MAX],
                dropped: vec![long; 5000],
                env: env(),
            }),
        };
        let bytes = fit(reply).encode();
        assert!(bytes.len() < REPLY_BYTES_MAX, "{} bytes", bytes.len());
        let Verdict::Admit(plan) = Reply::decode(&bytes).unwrap().verdict else { panic!() };
        assert_eq!(plan.env, env());
        assert_eq!(plan.dropped.len(), DROPPED_MAX);
        assert_eq!(plan.dropped.last().unwrap(), "and 4961 more");
    }

    #[test]
    fn a_refusal_of_a_user_with_many_jobs_is_read() {
        let jobs = (0..5000).map(|id| format!("{id}").parse().unwrap()).collect();
        let (reason, device) = (Reason::ChoiceNeeded, "d".repeat(5000));
        let reply = Reply {
            stack: Stack::Effective,
            detail: String::new(),
            warnings: Vec::new(),
            hint: String::new(),
            message: String::new(),
            verdict: Verdict::Refuse(Refusal { reason, jobs, ended: None, device }),
        };
        assert!(Reply::decode(&reply.encode()).is_err());
        let Verdict::Refuse(refusal) = Reply::decode(&fit(reply).encode()).unwrap().verdict else {
            panic!()
        };
        assert_eq!(refusal.jobs.len(), JOBS_MAX);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
        assert_eq!(cut("ab\u{e4}defg", 6), "ab...");
        assert_eq!(cut("a\nb", 6), "a?b");
        assert_eq!(list(vec!["a".into(), "b".into()], 2), ["a", "b"]);
        assert_eq!(list(vec!["a".into(), "b".into(), "c".into()], 2), ["a", "and 2 more"]);
    }

    use crate::testing::Scratch;

    #[test]
    fn only_plain_text_passes() {
        let scratch = Scratch::new();
        let path = scratch.file("motd", "Help:\thpc@x\r\n\x1b[31mred\x07\u{e4}\n\n");
        assert_eq!(message(&path, &scratch.trust()).unwrap(), "Help: hpc@x\n[31mred??");
        scratch.file("motd", &"x".repeat(401));
        assert!(message(&path, &scratch.trust()).is_err());
    }
}

#[cfg(test)]
mod main_tests {
    use super::*;

    #[test]
    fn another_version_is_answered_and_rubbish_is_not() {
        let reply = reply_to(b"version\0s9.9.9\0anything\0ielse").unwrap();
        let bytes = reply.encode();
        assert!(bytes.starts_with(format!("version\0s{VERSION}\0").as_bytes()));
        assert!(reply.detail.contains("9.9.9"));
        for bytes in [&b""[..], b"version", b"GET / HTTP/1.0\r\n", b"\0\0\0"] {
            assert_eq!(reply_to(bytes), None, "{bytes:?}");
        }
    }
}
