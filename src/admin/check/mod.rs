//! `check`: what refuses a login, admits one outside of its job, or lets one out of it.
//!
//! Each file looks at one subject and changes nothing; a finding names one cause and what to do
//! about it.

mod ask;
mod config;
mod finding;
mod installed;
mod kernel;
mod mounts;
pub(super) mod programs;
mod slices;
mod sources;
mod sshd;
pub(super) mod stack;
#[cfg(test)]
mod tests;
mod users;

use super::command_line::service;
use super::people::as_helper;
use super::{Conf, Error, Output};
use crate::helper::Config;
use crate::helper::devices::Tree;
use crate::helper::stack::{Entry, Group, entries};
use crate::kernel::trust::Trust;
use crate::module::Settings;
use crate::protocol::decimal;
use clap::Args;
use finding::{Check, Finding, Report};
use nix::unistd::{Uid, User, geteuid};
use std::path::{Path, PathBuf};

/// Show what is amiss with this node, and what to do about it
#[derive(Debug, Args)]
#[command(after_help = "\
Shows what refuses logins, admits them outside of their jobs, or lets them leave the job, the worst first.
Much of it only root can tell. It changes nothing; it tries the kernel in a temporary cgroup.
Exit status: 0 fine, notes at most, 1 warnings or errors, 2 wrong usage, 3 cannot tell; --nagios and --nhc
have their own.")]
pub(super) struct Options {
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = service)]
    service: String,
    /// Show what is fine as well
    #[arg(long)]
    verbose: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// As one line, with the exit status of Nagios plugins
    #[arg(long, conflicts_with_all = ["verbose", "json"])]
    nagios: bool,
    /// As one line for NHC, which drains the node if there are errors
    #[arg(long, conflicts_with_all = ["verbose", "json", "nagios"])]
    nhc: bool,
    #[command(flatten)]
    conf: Conf,
}

pub(super) fn command(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let conf = options.conf.path()?;
    // What is wrong with it is one of the findings.
    let config = Config::read(&conf, &Trust::root()).unwrap_or_default();
    let scene = Scene { root: "/".into(), service: options.service.clone(), conf, config };
    let mut findings = site(&scene);
    findings.extend(node(&scene));
    let report = Report::of(findings);
    if options.nagios || options.nhc {
        writeln!(output.out, "{}", report.line())?;
        return Ok(if options.nhc { report.nhc() } else { report.nagios() });
    }
    report.write(options.json, options.verbose, output)?;
    Ok(report.code())
}

/// How many slices of users are not closed.
pub(super) fn open_slices(conf: PathBuf, config: Config) -> usize {
    let scene = Scene { root: "/".into(), service: "sshd".into(), conf, config };
    slices::findings(&scene).iter().filter(|finding| slices::is_open(finding)).count()
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
/// made, tried and removed again ([`kernel`]).
fn node(scene: &Scene) -> Vec<Finding> {
    let mut found = sshd::findings(scene);
    found.extend(mounts::findings(scene));
    found.extend(kernel::findings(scene));
    found.extend(slices::findings(scene));
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
    /// The accounts of passwd(5).
    fn local_accounts(&self) -> Vec<Account> {
        let text = std::fs::read_to_string(self.at("/etc/passwd")).unwrap_or_default();
        text.lines().filter_map(Account::parse).collect()
    }

    /// An account by name or number, by the name service of this node, as the module has it.
    fn account(&self, name: &str) -> Option<Account> {
        let number = decimal(name);
        let mut local = self.local_accounts().into_iter();
        if !self.is_here() {
            return local.find(|account| account.name == name || Some(account.uid) == number);
        }
        let found = match number {
            Some(uid) => User::from_uid(uid.into()),
            None => User::from_name(name),
        };
        let User { name, uid, gid, .. } = found.ok().flatten()?;
        Some(Account { name, uid: uid.as_raw(), gid: gid.as_raw() })
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

/// An account of the node.
struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, ..] = fields.as_slice() else { return None };
        Some(Self { name: (*name).to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()? })
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
        let line = |(group, entry): (Group, &Entry)| {
            let settings = Settings::parse(&entry.arguments).ok()?;
            Some(Line { group, entry: entry.clone(), settings })
        };
        site.lines = site.ours().filter_map(line).collect();
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
        all.filter(|(_, entry)| entry.is_for_service())
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
