//! `check`: finds causes that refuse logins, admit them outside of their jobs, or let them leave.
//!
//! Each file checks one subject and changes nothing, except that [`kernel`] makes and removes a
//! cgroup. A finding names one cause and its remedy.

mod config;
mod finding;
mod installed;
mod kernel;
mod mounts;
mod penalties;
pub(super) mod programs;
mod slices;
mod sources;
pub(super) mod sshd;
mod sshd_config;
pub(super) mod stack;
#[cfg(test)]
mod tests;
mod users;

use super::accounts::with_helper_rights;
use crate::error::Error;
use crate::options::Conf;
use crate::options::parse_service;
use crate::output::Output;
use crate::process::real_uid;
use ::kernel::proc::Proc;
use ::kernel::trust::{Distrust, Trust, TrustError};
use clap::Args;
use finding::{Check, CheckReport, Finding};
use helper::Config;
use helper::jobs::sources::processes;
use helper::node::Tree;
use helper::stack::{Entry, Group, read_entries};
use module::Settings;
use nix::errno::Errno;
use nix::unistd::{Uid, User};
use protocol::parse_decimal;
use std::path::{Path, PathBuf};

/// The uid of the account `nobody`, which has no job.
const NOBODY_UID: u32 = 65_534;

/// Find problems of this node, and show how to solve them
#[derive(Debug, Args)]
#[command(after_help = "\
Shows what refuses logins, admits them outside of their jobs, or lets them leave the job, the worst first.
Much of it only root can check. It changes nothing; it tries the kernel in a temporary cgroup.
Exit status: 0 fine, notes at most, 1 warnings or errors, 2 wrong usage, 3 unknown; --nagios and --nhc
have their own.")]
pub(super) struct Options {
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = parse_service)]
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

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let conf = options.conf.path()?;
    // An unusable configuration is one of the findings.
    let config = Config::read(&conf, &Trust::root()).unwrap_or_default();
    let site = Site::read("/".into(), &options.service, conf, config);
    let report = CheckReport::new([check_setup(&site), check_node(&site)].concat());
    let (_, code, nagios, nhc) = report.exit_statuses();
    if options.nagios || options.nhc {
        writeln!(output.out, "{}", report.monitoring_line())?;
        return Ok(if options.nhc { nhc } else { nagios });
    }
    report.write(options.json, options.verbose, output)?;
    Ok(code)
}

/// Counts the slices of users that are not closed; `None` if a slice could not be checked.
pub(super) fn count_open_slices(conf: PathBuf, config: Config) -> Option<usize> {
    let site = Site::read("/".into(), "sshd", conf, config);
    slices::count_open(&slices::findings(&site))
}

/// Checks the files that the site has set up: PAM stack, programs, configuration, schedulers.
fn check_setup(site: &Site) -> Vec<Finding> {
    let subjects = [stack::findings, programs::findings, config::findings, sources::findings];
    subjects.iter().flat_map(|findings| findings(site)).collect()
}

/// Checks the running node: sshd, mounts, kernel, slices, users.
fn check_node(site: &Site) -> Vec<Finding> {
    let subjects = [
        sshd::findings,
        mounts::findings,
        kernel::findings,
        slices::findings,
        mounts::use_mount_findings,
        users::findings,
    ];
    subjects.iter().flat_map(|findings| findings(site)).collect()
}

/// The node that is checked, with the service's stack and the configuration.
#[derive(Debug)]
struct Site {
    /// `/`, except in tests.
    root: PathBuf,
    /// The PAM service.
    service: String,
    /// The account lines of the service's stack; none if it cannot be read.
    account: Vec<Entry>,
    /// The session lines of the service's stack; none if it cannot be read.
    session: Vec<Entry>,
    /// The path of the configuration.
    conf: PathBuf,
    /// The configuration, or the default if it cannot be read.
    config: Config,
    trust: Trust,
}

impl Site {
    fn read(root: PathBuf, service: &str, conf: PathBuf, config: Config) -> Self {
        let read = |group| read_entries(&root, service, group).unwrap_or_default();
        let (account, session) = (read(Group::Account), read(Group::Session));
        let trust = match root == Path::new("/") {
            true => Trust::root(),
            false => Trust::below(&root, Uid::effective().as_raw()),
        };
        Self { root, service: service.to_owned(), account, session, conf, config, trust }
    }

    /// Returns whether the site is this node, not a folder of a test.
    fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns whether this process can read files that only root can read.
    fn is_root(&self) -> bool {
        !self.is_here() || Uid::effective().is_root()
    }

    /// Returns an absolute path of the node below the site's root.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads the accounts of passwd(5).
    fn local_accounts(&self) -> Vec<Account> {
        // Names of people may be in any encoding.
        let text = std::fs::read(self.at("/etc/passwd")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let account = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, gid, ..] = *fields.as_slice() else { return None };
            Some(Account { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()? })
        };
        text.lines().filter_map(account).collect()
    }

    /// Finds an account by name or number in the name service of this node, as the module does.
    fn find_account(&self, name: &str) -> Option<Account> {
        let number = parse_decimal(name);
        if !self.is_here() {
            let mut local = self.local_accounts().into_iter();
            return local.find(|account| account.name == name || Some(account.uid) == number);
        }
        let user = match number {
            Some(uid) => User::from_uid(uid.into()),
            None => User::from_name(name),
        };
        let User { name, uid, gid, .. } = user.ok().flatten()?;
        Some(Account { name, uid: uid.as_raw(), gid: gid.as_raw() })
    }

    /// Returns the lines of our module, except those that name another service.
    fn own_lines(&self) -> impl Iterator<Item = &Entry> {
        self.account.iter().chain(&self.session).filter(|entry| entry.is_for_service())
    }

    /// Returns the arguments of the first session line that is valid, else of the first such account
    /// line, else the defaults.
    fn settings(&self) -> Settings {
        let lines = self.session.iter().chain(&self.account).filter(|line| line.is_for_service());
        lines.filter_map(|line| Settings::parse(&line.arguments).ok()).next().unwrap_or_default()
    }

    /// Calls `look_up` with the rights of the helper's account.
    fn with_helper_rights<T>(&self, look_up: impl FnOnce() -> T) -> Result<T, String> {
        match self.is_here() {
            true => with_helper_rights(look_up),
            false => Ok(look_up()),
        }
    }

    /// Returns the files that describe devices and schedulers.
    fn tree(&self) -> Tree {
        Tree::with_root(&self.root, self.trust.clone())
    }
}

/// Returns the remedy for a file or directory that others can write or the helper cannot read.
fn trust_remedy(error: &TrustError) -> String {
    let path = error.path().display();
    match error.cause() {
        Distrust::WrongOwner(_)
        | Distrust::Writable(_)
        | Distrust::WrongMode(_)
        | Distrust::Open(Errno::EACCES) => {
            format!("chown root: {path} && chmod go-w,a+rX {path}")
        }
        _ => format!("replace {path} by one that only root can write"),
    }
}

/// Lists root's processes with these names, sorted by name and number.
fn root_processes(names: &[&str]) -> Vec<(String, i32)> {
    let pids = processes::list_numbers::<i32>(Path::new("/proc")).into_iter().flatten().flatten();
    let named = |pid: i32| {
        let name = processes::read_stat(&Proc::host(), pid).ok()?.name;
        let runs_as_root = real_uid(pid).is_some_and(Uid::is_root);
        (runs_as_root && names.contains(&name.as_str())).then_some((name, pid))
    };
    let mut processes: Vec<_> = pids.filter_map(named).collect();
    processes.sort();
    processes
}

/// An account of the node.
struct Account {
    name: String,
    uid: u32,
    gid: u32,
}
