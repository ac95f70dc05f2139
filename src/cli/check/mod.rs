//! `check`: what refuses a login, admits one outside of its job, or lets one out of it.
//!
//! Each file looks at one subject and changes nothing; a finding names one cause and what to do
//! about it.

mod config;
mod finding;
#[path = "node/guards.rs"]
mod guards;
mod kernel;
mod mounts;
mod programs;
mod report;
mod scratch;
mod sources;
mod sshd;
mod stack;
mod systemctl;
#[cfg(test)]
mod tests;
mod users;

use super::as_helper::as_helper;
use super::options::Known;
use super::{Error, Options, Output, conf, help, show};
use crate::device::Tree;
use crate::resolve::stack::{Entry, Group, entries};
use crate::resolve::{Config, Enforce};
use crate::session::Settings;
use crate::trust::Trust;
use finding::{Check, Finding, Severity};
use mounts::Mounts;
use nix::unistd::{Uid, geteuid};
use report::Report;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const KNOWN: [Known; 4] = [
    Known::Once("--service"),
    Known::Once("--conf"),
    Known::Flag("--json"),
    Known::Flag("--verbose"),
];

pub(super) fn command(
    arguments: impl IntoIterator<Item = OsString>,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let options = Options::parse("check", &KNOWN, arguments)?;
    if options.has("--help") {
        return show(help::CHECK, output);
    }
    options.no_operands()?;
    let scene = scene(&options)?;
    let mut findings = site(&scene);
    findings.extend(node(&scene));
    let report = Report::of(findings);
    match options.has("--json") {
        true => report.write_json(output.out)?,
        false => report.write_text(options.has("--verbose"), output.out)?,
    }
    Ok(report.code())
}

/// The node, as it is told by the options.
fn scene(options: &Options) -> Result<Scene, Error> {
    let conf = conf(options)?.to_owned();
    let service = options.value("--service").unwrap_or("sshd").to_owned();
    if service.is_empty() || service.contains('/') || service.starts_with('.') {
        return Err(options.usage(format!("option --service: {service} is no PAM service")));
    }
    // What is wrong with it is one of the findings.
    let config = Config::read(&conf, &Trust::root()).unwrap_or_default();
    Ok(Scene { root: PathBuf::from("/"), service, conf, config })
}

/// What the site has set up.
fn site(scene: &Scene) -> Vec<Finding> {
    let site = Site::of(scene);
    let mut found = stack::findings(&site);
    found.extend(programs::findings(&site));
    found.extend(config::findings(&site));
    found.extend(sources::findings(&site));
    found
}

/// The node itself: sshd, kernel, mounts, users. Nothing is changed but for one cgroup that is
/// made, tried and removed again ([`scratch`]).
fn node(scene: &Scene) -> Vec<Finding> {
    let mounts = Mounts::of(&scene.at("/proc/self")).unwrap_or_default();
    let mut found = sshd::findings(&mounts, scene);
    found.extend(mounts::findings(&mounts, scene));
    found.extend(kernel::findings(scene));
    found.extend(guards::findings(scene));
    found.extend(users::findings(scene));
    found
}

/// The node that is checked.
#[derive(Debug)]
struct Scene {
    /// `/`, but in tests.
    root: PathBuf,
    /// The PAM service.
    service: String,
    /// Where the configuration is.
    conf: PathBuf,
    /// The configuration, or the default where it cannot be read.
    config: Config,
}

impl Scene {
    /// Whether logins are judged on this node (`enforce`).
    fn is_enforced(&self) -> bool {
        match &self.config.enforce {
            Enforce::IfExists(path) => {
                let looked = path.symlink_metadata();
                !looked.is_err_and(|error| error.kind() == ErrorKind::NotFound)
            }
            Enforce::Always => true,
        }
    }

    /// Where an absolute path of the node is.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether it is this node, not one laid out for a test.
    fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }
}

/// A line of ours in the service's stack, whose arguments can be read.
#[derive(Debug)]
struct Line {
    group: Group,
    entry: Entry,
    settings: Settings,
}

/// The scene, with the service's stack.
#[derive(Debug)]
struct Site<'a> {
    scene: &'a Scene,
    trust: Trust,
    /// Of groups whose stack can be read.
    account: Vec<Entry>,
    session: Vec<Entry>,
    lines: Vec<Line>,
}

impl<'a> Site<'a> {
    fn of(scene: &'a Scene) -> Self {
        let read = |group| entries(&scene.root, &scene.service, group).unwrap_or_default();
        let trust = match scene.is_here() {
            true => Trust::root(),
            false => Trust::below(&scene.root, Uid::effective().as_raw()),
        };
        let (account, session) = (read(Group::Account), read(Group::Session));
        let mut site = Self { scene, trust, account, session, lines: Vec::new() };
        site.lines = site.ours().filter_map(|(group, entry)| Line::of(group, entry)).collect();
        site
    }

    /// Whether what only root can read can be read.
    fn is_root(&self) -> bool {
        !self.scene.is_here() || geteuid().is_root()
    }

    /// Lines of ours, but for those that are for other services.
    fn ours(&self) -> impl Iterator<Item = (Group, &Entry)> {
        let account = self.account.iter().map(|entry| (Group::Account, entry));
        let all = account.chain(self.session.iter().map(|entry| (Group::Session, entry)));
        all.filter(|(_, entry)| stack::is_for_service(entry))
    }

    /// What the session line says, else the account line, else the defaults.
    fn settings(&self) -> Settings {
        let of = |group| self.lines.iter().find(|line| line.group == group);
        let line = of(Group::Session).or_else(|| of(Group::Account));
        line.map(|line| line.settings.clone()).unwrap_or_default()
    }

    /// What the helper's account would read.
    fn with_its_rights<T>(&self, look: impl FnOnce() -> T) -> Result<T, String> {
        match self.scene.is_here() {
            true => as_helper(look),
            false => Ok(look()),
        }
    }

    /// The files that describe devices and schedulers.
    fn tree(&self) -> Tree {
        match self.scene.is_here() {
            true => Tree::here(),
            false => Tree::laid_out(&self.scene.root, self.trust.clone()),
        }
    }
}

impl Line {
    fn of(group: Group, entry: &Entry) -> Option<Self> {
        let settings = crate::pam::parse(&entry.arguments).ok()?;
        Some(Self { group, entry: entry.clone(), settings })
    }
}
