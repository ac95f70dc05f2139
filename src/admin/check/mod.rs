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
use super::ending::real_uid;
use super::people::as_helper;
use super::{Conf, Error, Output};
use ::kernel::proc::Proc;
use ::kernel::trust::Trust;
use clap::Args;
use finding::{Check, Finding, Report};
use helper::Config;
use helper::devices::Tree;
use helper::sources::processes;
use helper::stack::{Entry, Group, read_entries};
use module::Settings;
use nix::unistd::{Uid, User};
use protocol::decimal;
use std::path::{Path, PathBuf};

/// The account of nobody in particular, who has no job.
const NOBODY: u32 = 65_534;

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
    let site = Site::of("/".into(), &options.service, conf, config);
    let report = Report::of([set_up(&site), node(&site)].concat());
    let (_, code, nagios, nhc) = report.state();
    if options.nagios || options.nhc {
        writeln!(output.out, "{}", report.line())?;
        return Ok(if options.nhc { nhc } else { nagios });
    }
    report.write(options.json, options.verbose, output)?;
    Ok(code)
}

/// How many slices of users are not closed.
pub(super) fn open_slices(conf: PathBuf, config: Config) -> usize {
    let site = Site::of("/".into(), "sshd", conf, config);
    slices::findings(&site).iter().filter(|finding| slices::is_open(finding)).count()
}

/// What the site has set up.
fn set_up(site: &Site) -> Vec<Finding> {
    let subjects = [stack::findings, programs::findings, config::findings, sources::findings];
    subjects.iter().flat_map(|findings| findings(site)).collect()
}

/// The node itself: sshd, kernel, mounts, users. Nothing is changed but for one cgroup that is
/// made, tried and removed again ([`kernel`]).
fn node(site: &Site) -> Vec<Finding> {
    let subjects =
        [sshd::findings, mounts::findings, kernel::findings, slices::findings, users::findings];
    subjects.iter().flat_map(|findings| findings(site)).collect()
}

/// The node that is checked, and what its site has set up.
#[derive(Debug)]
struct Site {
    /// `/`, but in tests.
    root: PathBuf,
    /// The PAM service, and the lines of its stack, as far as that can be read.
    service: String,
    account: Vec<Entry>,
    session: Vec<Entry>,
    /// Where the configuration is.
    conf: PathBuf,
    /// The configuration, or the default where it cannot be read.
    config: Config,
    trust: Trust,
}

impl Site {
    fn of(root: PathBuf, service: &str, conf: PathBuf, config: Config) -> Self {
        let read = |group| read_entries(&root, service, group).unwrap_or_default();
        let (account, session) = (read(Group::Account), read(Group::Session));
        let trust = match root == Path::new("/") {
            true => Trust::root(),
            false => Trust::below(&root, Uid::effective().as_raw()),
        };
        Self { root, service: service.to_owned(), account, session, conf, config, trust }
    }

    /// Whether it is this node, not one laid out for a test.
    fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether what only root can read can be read.
    fn is_root(&self) -> bool {
        !self.is_here() || Uid::effective().is_root()
    }

    /// Where an absolute path of the node is.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The accounts of passwd(5).
    fn local_accounts(&self) -> Vec<Account> {
        let text = std::fs::read_to_string(self.at("/etc/passwd")).unwrap_or_default();
        let account = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, gid, ..] = *fields.as_slice() else { return None };
            Some(Account { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()? })
        };
        text.lines().filter_map(account).collect()
    }

    /// An account by name or number, by the name service of this node, as the module has it.
    fn account(&self, name: &str) -> Option<Account> {
        let number = decimal(name);
        if !self.is_here() {
            let mut local = self.local_accounts().into_iter();
            return local.find(|account| account.name == name || Some(account.uid) == number);
        }
        let found = match number {
            Some(uid) => User::from_uid(uid.into()),
            None => User::from_name(name),
        };
        let User { name, uid, gid, .. } = found.ok().flatten()?;
        Some(Account { name, uid: uid.as_raw(), gid: gid.as_raw() })
    }

    /// Lines of ours, but for those that are for other services.
    fn ours(&self) -> impl Iterator<Item = &Entry> {
        self.account.iter().chain(&self.session).filter(|entry| entry.is_for_service())
    }

    /// What the session line says, else the account line, else the defaults.
    fn settings(&self) -> Settings {
        let ours = self.session.iter().chain(&self.account).filter(|one| one.is_for_service());
        ours.filter_map(|one| Settings::parse(&one.arguments).ok()).next().unwrap_or_default()
    }

    /// What the helper's account would read.
    fn with_its_rights<T>(&self, look: impl FnOnce() -> T) -> Result<T, String> {
        match self.is_here() {
            true => as_helper(look),
            false => Ok(look()),
        }
    }

    /// The files that describe devices and schedulers.
    fn tree(&self) -> Tree {
        Tree::with_root(&self.root, self.trust.clone())
    }
}

/// Root's processes with these names, in order: name and number.
fn roots(names: &[&str]) -> Vec<(String, i32)> {
    let pids = processes::list_numbers::<i32>(Path::new("/proc")).into_iter().flatten().flatten();
    let named = |pid: i32| {
        let name = processes::read_stat(&Proc::here(), pid).ok()?.name;
        let is_roots = real_uid(pid).is_some_and(Uid::is_root);
        (is_roots && names.contains(&name.as_str())).then_some((name, pid))
    };
    let mut found: Vec<_> = pids.filter_map(named).collect();
    found.sort();
    found
}

/// An account of the node.
struct Account {
    name: String,
    uid: u32,
    gid: u32,
}
