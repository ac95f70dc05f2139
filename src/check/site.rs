//! The node that is checked: its files and accounts.

use command::accounts::{self, RightsError, with_helper_rights, with_helper_rights_if_any};
use command::error::Error;
use facts::exempt_accounts::{ExemptAccounts, read_service_lines};
use helper::Config;
use helper::node::Tree;
use helper::stack::{Entry, Group, read_entries};
use kernel::trust::Trust;
use module::Settings;
use nix::unistd::{Uid, User};
use protocol::parse_decimal;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The drop-in by which `job-adopt enable` closes the slices of all users.
const CLOSED_DROP_IN_PATH: &str = "/etc/systemd/system/user-.slice.d/job-adopt.conf";

/// The node that is checked, with the service's stack and the configuration.
#[derive(Debug)]
pub(super) struct Site {
    /// `/`, except in tests.
    pub(super) root: PathBuf,
    /// The PAM service.
    pub(super) service: String,
    /// The account lines of the service's stack; none if it cannot be read.
    pub(super) account: Vec<Entry>,
    /// The session lines of the service's stack; none if it cannot be read.
    pub(super) session: Vec<Entry>,
    /// The path of the configuration.
    pub(super) conf: PathBuf,
    /// The configuration, or the default if it cannot be read.
    pub(super) config: Config,
    pub(super) trust: Trust,
}

impl Site {
    /// Reads the stack of a service below `root`, of which the caller has read the configuration. A test's
    /// folder may belong to the account that runs the test.
    pub(super) fn read(root: PathBuf, service: &str, conf: PathBuf, config: Config) -> Self {
        let account = read_entries(&root, service, Group::Account).unwrap_or_default();
        let session = read_entries(&root, service, Group::Session).unwrap_or_default();
        let trust = if root == Path::new("/") {
            Trust::root()
        } else {
            Trust::below(&root, Uid::effective().as_raw())
        };
        Self {
            root,
            service: service.to_owned(),
            account,
            session,
            conf,
            config,
            trust,
        }
    }

    /// Checks whether the site is this node, not a folder of a test.
    pub(super) fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Checks whether this process can read files that only root can read.
    pub(super) fn is_root(&self) -> bool {
        !self.is_here() || Uid::effective().is_root()
    }

    /// Puts an absolute path of the node below the site's root.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads the accounts of passwd(5).
    pub(super) fn local_accounts(&self) -> Vec<Account> {
        // Names of people may be in any encoding.
        let passwd = std::fs::read(self.at("/etc/passwd")).unwrap_or_default();
        String::from_utf8_lossy(&passwd)
            .lines()
            .filter_map(Account::parse)
            .collect()
    }

    /// Finds an account by name or number in the name service of this node, as the module does; in a test's
    /// folder by its passwd(5). `None` if there is none, or if the name service cannot be asked.
    pub(super) fn find_account(&self, name: &str) -> Option<Account> {
        let number = parse_decimal(name);
        if !self.is_here() {
            let mut local = self.local_accounts().into_iter();
            return local.find(|account| account.name == name || Some(account.uid) == number);
        }
        let result = match number {
            Some(uid) => User::from_uid(uid.into()),
            None => User::from_name(name),
        };
        let user = result.ok().flatten()?;
        Some(Account {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })
    }

    /// Describes each exempt user and group of the settings that does not exist; none in a test's folder, whose
    /// accounts the name service does not know.
    pub(super) fn describe_missing_accounts(&self, settings: &Settings) -> Vec<String> {
        if !self.is_here() {
            return Vec::new();
        }
        accounts::describe_missing_accounts(&settings.exempt_uids, &settings.exempt_groups)
    }

    /// Lists the accounts whose slices stay open, each with the reason.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if an account or group cannot be looked up.
    pub(super) fn list_exempt_accounts(&self) -> Result<BTreeMap<u32, String>, Error> {
        let lines = read_service_lines(&self.root)?;
        Ok(ExemptAccounts::read(&self.config, &lines)?.into_uids())
    }

    /// Iterates over the lines of our module, except those that name another service.
    pub(super) fn own_lines(&self) -> impl Iterator<Item = &Entry> {
        self.account
            .iter()
            .chain(&self.session)
            .filter(|entry| entry.is_for_service())
    }

    /// Checks whether `job-adopt enable` has set anything up here: without our lines, a node whose slices are closed has
    /// lost them, and any other is new.
    pub(super) fn is_set_up(&self) -> bool {
        self.own_lines().next().is_some() || self.at(CLOSED_DROP_IN_PATH).exists()
    }

    /// Parses the arguments of the first session line that is valid, else of the first such account
    /// line, else the defaults.
    pub(super) fn settings(&self) -> Settings {
        let lines = self
            .session
            .iter()
            .chain(&self.account)
            .filter(|line| line.is_for_service());
        lines
            .filter_map(|line| Settings::parse(&line.arguments).ok())
            .next()
            .unwrap_or_default()
    }

    /// Checks whether a file that root owns switches the module off: it ignores any other.
    pub(super) fn is_switched_off(&self) -> bool {
        self.at(module::OFF_SWITCH_PATH)
            .symlink_metadata()
            .is_ok_and(|meta| meta.uid() == self.trust.owner())
    }

    /// Calls `look_up` with the rights of the helper's account.
    pub(super) fn with_helper_rights<T>(
        &self,
        look_up: impl FnOnce() -> T,
    ) -> Result<T, RightsError> {
        if self.is_here() {
            with_helper_rights(look_up)
        } else {
            Ok(look_up())
        }
    }

    /// Calls `look_up` with the rights of the helper's account if there is that account.
    pub(super) fn with_helper_rights_if_any<T>(
        &self,
        look_up: impl Fn() -> T,
    ) -> Result<T, RightsError> {
        if self.is_here() {
            with_helper_rights_if_any(look_up)
        } else {
            Ok(look_up())
        }
    }

    /// The files that describe devices and schedulers.
    pub(super) fn tree(&self) -> Tree {
        Tree::with_root(&self.root, self.trust.clone())
    }
}

/// An account of the node.
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Account {
    /// Parses a line of passwd(5); `None` for another text.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, ..] = *fields.as_slice() else {
            return None;
        };
        Some(Self {
            name: name.to_owned(),
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
        })
    }
}
