//! Checks the programs of a login: the module, its helper and keeper, and the helper's account.

use super::finding::{Check, Finding};
use super::flux::find_flux_account;
use super::module_loading::{Loading, bring_back};
use super::name_service::PasswdUnread;
use super::own_command::{ACCOUNT_PROGRAM, OwnCommand, OwnFile, ProgramKind};
use super::remedy::{Remedy, run, shell_path};
use super::site::{Account, Site};
use super::trusted_file::trust_remedy;
use command::accounts::HELPER_USER;
use command::accounts::NOBODY_UID;
use facts::own_programs::read_version;
use facts::own_programs::{describe_helper_fault, require_executable};
use facts::trusted_file::{EXECUTE_BY_OTHERS, is_exposed, require_trusted};
use helper::stack::find_module_folder;
use kernel::sys::clock::now;
use kernel::sys::file::get_xattr;
use kernel::trust::{Distrust, TrustError};
use nix::fcntl::OFlag;
use protocol::VERSION;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What was found out about the programs of a login.
#[derive(Debug)]
pub(super) struct ProgramFacts {
    modules: Vec<Result<ModuleFile, MissingModule>>,
    helper: Program,
    /// This process can read the helper, which only root can.
    is_root: bool,
    /// `None` on a node without Flux, where it may be missing.
    keeper: Option<Program>,
    /// `None` unless SELinux enforces.
    selinux: Option<SelinuxLabel>,
    account: HelperAccount,
}

/// The file of a module that the stack names.
#[derive(Debug)]
struct ModuleFile {
    path: PathBuf,
    /// The mode of the file, if only root can have written it.
    trusted: Result<u32, TrustError>,
    /// `None` as for [`Program::version`].
    version: Option<String>,
    /// `None` for a module that root must not load, since another user may have written it, and in the folder of a test.
    loading: Option<Loading>,
}

/// A module that the stack names and that is not there.
#[derive(Debug)]
enum MissingModule {
    /// The folder of the PAM modules is not known, so neither is the file of this name.
    UnknownFolder(String),
    NoFile(PathBuf),
}

/// A program that the module runs.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    exists: bool,
    /// Why the module would not run it.
    executable: Result<(), TrustError>,
    /// `None` if the file cannot be read, others could have written it, or it is no program of this project.
    version: Option<String>,
}

/// The label of the helper where SELinux enforces.
#[derive(Debug)]
struct SelinuxLabel {
    path: PathBuf,
    text: String,
    /// The loaded policy knows the label.
    is_known: bool,
}

/// The account of the helper.
#[derive(Debug, PartialEq, Eq)]
enum HelperAccount {
    Missing,
    /// It is in passwd(5), and the name service does not find it there.
    Unread(PasswdUnread),
    /// It has root's uid or gid.
    Root,
    Found {
        uid: u32,
        /// Another account has the uid, or it is that of `nobody`.
        is_shared: bool,
        /// It is not both locked and expired; false if that cannot be read.
        is_usable: bool,
    },
}

impl ProgramFacts {
    /// Reads the module files that the stack names, the helper with its account and its SELinux label, and
    /// the keeper.
    pub(super) fn read(site: &Site) -> Self {
        let helper = site.at(&site.settings().helper);
        let names: BTreeSet<&str> = site
            .own_lines()
            .map(|entry| entry.module.as_str())
            .collect();
        Self {
            modules: names
                .into_iter()
                .map(|name| ModuleFile::read(site, name))
                .collect(),
            is_root: site.is_root(),
            keeper: read_keeper(site, &helper),
            selinux: SelinuxLabel::read(site, &helper),
            account: HelperAccount::read(site),
            helper: Program::read(site, helper, EXECUTE_BY_OTHERS),
        }
    }

    /// Judges the modules, the helper, the keeper, the label of the helper and its account.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for module in &self.modules {
            match module {
                Ok(file) => findings.extend(file.findings()),
                Err(missing) => findings.push(missing.finding()),
            }
        }
        findings.push(judge_helper(&self.helper, self.is_root));
        findings.extend(self.keeper.as_ref().map(judge_keeper));
        findings.extend(self.selinux.as_ref().map(SelinuxLabel::finding));
        findings.push(self.account.finding());
        findings
    }
}

impl ModuleFile {
    /// Reads the file that libpam loads for a module's `name` in the stack. It fails with [`MissingModule`]
    /// if there is none, or if the folder of the PAM modules is not known.
    fn read(site: &Site, name: &str) -> Result<Self, MissingModule> {
        let folder = if name.starts_with('/') {
            Some(site.root.clone())
        } else {
            find_module_folder(&site.root)
        };
        let folder = folder.ok_or_else(|| MissingModule::UnknownFolder(name.to_owned()))?;
        let path = folder.join(name.trim_start_matches('/'));
        // libpam follows links.
        let Ok(real) = path.canonicalize() else {
            return Err(MissingModule::NoFile(path));
        };
        let trusted = require_trusted(&site.trust, &real);
        Ok(Self {
            path,
            version: trusted.as_ref().ok().and_then(|_| read_version(&real)),
            loading: (site.is_here() && trusted.is_ok()).then(|| Loading::run(&real)),
            trusted,
        })
    }

    /// Judges the owner and the version of the module, and its installation.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![judge_module_file(&self.path, &self.trusted)];
        if self.trusted.is_ok() {
            findings.push(judge_version(
                Check::ModuleVersion,
                &self.path,
                self.version.as_deref(),
                "install both packages again",
            ));
        }
        let loading = self.loading.as_ref();
        findings.extend(loading.map(|loading| loading.finding(&self.path)));
        findings
    }
}

impl MissingModule {
    /// Reports the missing module as an error, or as unknown if its folder is not known.
    fn finding(&self) -> Finding {
        match self {
            Self::UnknownFolder(name) => {
                let text = "was not found: the folder of the PAM modules is not known";
                let remedy =
                    "find / -name pam_permit.so shows it; give the full path in the PAM lines";
                Finding::unknown(Check::ModuleFile, name, text, remedy)
            }
            Self::NoFile(path) => {
                let text = "is missing, so every login of the service is refused, root's too";
                let remedy = bring_back("install both packages again");
                Finding::error(Check::ModuleFile, path.display(), text, remedy)
            }
        }
    }
}

/// Judges whether only root can change the module: whoever else can is root at the next login.
fn judge_module_file(path: &Path, trusted: &Result<u32, TrustError>) -> Finding {
    match trusted {
        Ok(_) => {
            let text = "exists, and only root can change it";
            Finding::fine(Check::ModuleFile, path.display(), text)
        }
        Err(why) => {
            let text = format!("runs as root at every login, but {why}");
            // The fault may be that of a folder above the module, which no package brings back. Comparing paths does not
            // tell: the module may be named by a link.
            let remedy = if is_exposed(why) && !why.path().is_dir() {
                replace_remedy(why.path())
            } else {
                trust_remedy(why)
            };
            Finding::error(Check::ModuleFile, path.display(), text, remedy)
        }
    }
}

/// Names the remedy for a program that others could write: only its package knows what was in it.
fn replace_remedy(program: &Path) -> Remedy {
    format!(
        "others could write {}: do not give it back, install both packages again",
        shell_path(program)
    )
    .into()
}

/// Judges whether a file has the version of this program: module and helper refuse logins if their
/// versions differ. `unread_remedy` is the remedy for a file that shows none.
fn judge_version(check: Check, path: &Path, version: Option<&str>, unread_remedy: &str) -> Finding {
    let object = path.display();
    match version {
        Some(VERSION) => Finding::fine(
            check,
            object,
            format!("can be used, and is of version {VERSION}"),
        ),
        Some(other) => {
            let text = format!(
                "is of version {other}, but job-adopt is of {VERSION}: module and helper of different \
                 versions refuse logins (JA08)"
            );
            let remedy = "install both packages again, in one version";
            Finding::error(check, object, text, remedy)
        }
        None => Finding::unknown(check, object, "shows no version", unread_remedy),
    }
}

impl Program {
    /// Reads a program, whose mode must have one of the execute bits `rights`.
    fn read(site: &Site, path: PathBuf, rights: u32) -> Self {
        let executable = require_executable(&site.trust, &path, rights);
        // A wrong mode is found last: nobody but root could have written that file either.
        let is_trusted = executable
            .as_ref()
            .err()
            .is_none_or(|why| matches!(why.cause(), Distrust::WrongMode(_)));
        Self {
            exists: path.symlink_metadata().is_ok(),
            version: if is_trusted {
                read_version(&path)
            } else {
                None
            },
            executable,
            path,
        }
    }

    /// Names the remedy for a program that the module would not run.
    fn remedy(&self, why: &TrustError, kind: ProgramKind) -> Remedy {
        if !self.exists {
            return "install both packages again".into();
        }
        // The fault is that of a folder above the program.
        if why.path() != self.path {
            return trust_remedy(why);
        }
        if is_exposed(why) {
            return replace_remedy(&self.path);
        }
        let path = &self.path;
        match why.cause() {
            Distrust::WrongMode(_) if self.version.is_some() => {
                run(OwnCommand::reset_mode(OwnFile::Program(kind, path)))
            }
            // A mistyped helper= may name any file.
            Distrust::WrongMode(_) => format!(
                "if it is a program of this project, chmod {} {}; if not, correct its path",
                kind.mode(),
                shell_path(path)
            )
            .into(),
            _ => trust_remedy(why),
        }
    }
}

/// Judges whether the module would run the helper, and whether both have the version of this program.
fn judge_helper(helper: &Program, is_root: bool) -> Finding {
    if let Err(why) = &helper.executable {
        let text = describe_helper_fault(why);
        let remedy = helper.remedy(why, ProgramKind::Helper);
        return Finding::error(Check::Helper, helper.path.display(), text, remedy);
    }
    let unread_remedy = if is_root {
        "install both packages again"
    } else {
        "run this as root"
    };
    judge_version(
        Check::Helper,
        &helper.path,
        helper.version.as_deref(),
        unread_remedy,
    )
}

/// Reads the keeper, which ends the logins of Flux jobs; `None` if it is missing on a node without Flux,
/// which does not need it.
fn read_keeper(site: &Site, helper: &Path) -> Option<Program> {
    let path = helper.with_file_name("keeper");
    // `flux_user = root` is a mistake, which the check of Flux reports.
    let has_flux = find_flux_account(site).is_some_and(|account| account.uid != 0);
    let keeper = Program::read(site, path, 0o111);
    (has_flux || keeper.exists).then_some(keeper)
}

/// Judges whether the keeper can be run, without which no login joins a Flux job.
fn judge_keeper(keeper: &Program) -> Finding {
    let object = keeper.path.display();
    let Err(why) = &keeper.executable else {
        return Finding::fine(Check::Keeper, object, "can be run");
    };
    let text = format!("cannot be run, so logins to Flux jobs are refused: {why}");
    let remedy = keeper.remedy(why, ProgramKind::Keeper);
    Finding::error(Check::Keeper, object, text, remedy)
}

impl SelinuxLabel {
    /// Reads the helper's label, and asks the kernel whether the loaded policy knows it: `context` takes no
    /// other one. `None` unless SELinux enforces and the helper can be opened.
    fn read(site: &Site, helper: &Path) -> Option<Self> {
        let selinux = site.at("/sys/fs/selinux");
        if std::fs::read(selinux.join("enforce")).ok()? != b"1" {
            return None;
        }
        // A mistyped helper= may name a FIFO, for which `open` would wait.
        let file = File::options()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(helper)
            .ok()?;
        let label = get_xattr(file.as_fd(), c"security.selinux").unwrap_or_default();
        let context = File::options().write(true).open(selinux.join("context"));
        Some(Self {
            path: helper.to_owned(),
            is_known: context
                .and_then(|mut context| context.write_all(&label))
                .is_ok(),
            text: String::from_utf8_lossy(&label).into_owned(),
        })
    }

    /// Judges the label: only our policy lets sshd do what a login needs. A label that the loaded policy
    /// does not know counts as missing.
    fn finding(&self) -> Finding {
        let object = self.path.display();
        if self.is_known && self.text.contains(":job_adopt_helper_exec_t") {
            return Finding::fine(Check::Selinux, object, "has the label of our policy");
        }
        let text = format!(
            "SELinux enforces without our policy, or this file lacks its label: every login but \
             root's is refused (label {:?})",
            self.text
        );
        let remedy = "load our policy and label our files: semodule -X 200 -i /usr/share/job-adopt/selinux/job-adopt.cil \
                      && restorecon -RF /usr/libexec/job-adopt /run/job-adopt";
        Finding::error(Check::Selinux, object, text, remedy)
    }
}

impl HelperAccount {
    /// Looks up the helper's account, whether other accounts of passwd(5) share its uid, and in shadow(5) whether
    /// services still run programs for it. Without root's rights the latter counts as false, so that no warning comes
    /// from ignorance.
    fn read(site: &Site) -> Self {
        let Some(Account { uid, gid, .. }) = site.find_account(HELPER_USER) else {
            return PasswdUnread::find(site, HELPER_USER).map_or(Self::Missing, Self::Unread);
        };
        if uid == 0 || gid == 0 {
            return Self::Root;
        }
        let accounts = site.local_accounts();
        let mut others = accounts.iter().filter(|other| other.name != HELPER_USER);
        let shadow = std::fs::read(site.at("/etc/shadow")).unwrap_or_default();
        Self::Found {
            uid,
            is_shared: uid == NOBODY_UID || others.any(|other| other.uid == uid),
            is_usable: is_usable(&String::from_utf8_lossy(&shadow)),
        }
    }

    /// Judges the account: it must exist, must not be root, and no other account and no service may run
    /// programs as it. Of several faults it reports the first in this order.
    fn finding(&self) -> Finding {
        let object = format!("account {HELPER_USER}");
        match self {
            Self::Unread(unread) => {
                let text = format!(
                    "is not found, since {}: every login is refused (JA09)",
                    unread.cause()
                );
                Finding::error(Check::Account, object, text, unread.remedy())
            }
            Self::Missing => {
                let text = "does not exist, so every login is refused (JA09)";
                Finding::error(
                    Check::Account,
                    object,
                    text,
                    run(OwnCommand::make_account()),
                )
            }
            Self::Root => {
                let text = "has root's uid or gid, so every login is refused (JA09)";
                let remedy = format!("remove it from /etc/passwd; {ACCOUNT_PROGRAM} makes it anew");
                Finding::error(Check::Account, object, text, remedy)
            }
            Self::Found {
                uid,
                is_shared: true,
                ..
            } => {
                let text = format!(
                    "shares uid {uid} with other accounts, whose processes can change what a login finds"
                );
                // Its files are root's, and no process of it outlives a login.
                let remedy = format!(
                    "remove the account {HELPER_USER} (userdel), then run {ACCOUNT_PROGRAM}, which makes it anew with a uid \
                     of its own"
                );
                Finding::warning(Check::Account, object, text, remedy)
            }
            Self::Found {
                is_usable: true, ..
            } => {
                let text =
                    "is not locked and expired, so cron and other services run programs for it";
                let remedy = "lock and expire it, by usermod --lock --expiredate 1 job-adopt";
                Finding::warning(Check::Account, object, text, remedy)
            }
            Self::Found { uid, .. } => {
                Finding::fine(Check::Account, object, format!("exists, uid {uid}"))
            }
        }
    }
}

/// Checks in the text of shadow(5) whether the helper's account is not both locked and expired. An account that
/// the text lacks counts as unusable: it is of another name service, or this process cannot read the file.
fn is_usable(shadow: &str) -> bool {
    let account = shadow
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&HELPER_USER));
    let Some(fields) = account else { return false };
    let today = now() / (24 * 60 * 60);
    let expiry = fields.get(7).and_then(|day| day.parse::<i64>().ok());
    // Day 0 may count as no expiry (shadow(5)).
    let has_expired = expiry.is_some_and(|day| (1..today).contains(&day));
    let is_locked = fields
        .get(1)
        .is_some_and(|password| password.starts_with(['!', '*']));
    !(has_expired && is_locked)
}
