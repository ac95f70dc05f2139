//! Checks Flux's configuration (flux-config(5)): logins must find and join jobs.

use super::finding::{Check, Finding};
use super::other_modules::find_effect;
use super::remedy::shell_word;
use super::site::{Account, Site};
use facts::rival_modules::module_name;
use helper::Config;
use helper::stack::{Entry, FileLine, Group, StackError, read_entries};
use protocol::{SourceName, parse_decimal};
use std::io;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The folder of the system instance's configuration (flux-config(5)).
const CONF_DIR: &str = "/etc/flux/system/conf.d";
const LINGER_DIR: &str = "/var/lib/systemd/linger";

/// What was found out about Flux.
#[derive(Debug)]
pub(super) enum FluxFacts {
    /// Flux is no source, or has no account here.
    Missing,
    /// The site has chosen an account that does not exist.
    MissingAccount(String),
    /// The account is root.
    Root(String),
    /// The account has no configured instance, and so runs no jobs: a package made it.
    Unconfigured,
    Configured(Instance),
}

/// A configured instance of Flux.
#[derive(Debug)]
pub(super) struct Instance {
    user: String,
    /// The service manager of the account runs without a login.
    lingers: io::Result<bool>,
    conf: Result<InstanceConf, ConfFault>,
}

/// A file of Flux's configuration that cannot be read.
#[derive(Debug)]
struct ConfFault {
    file: PathBuf,
    cause: ConfError,
}

#[derive(Debug, thiserror::Error)]
enum ConfError {
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    #[error("{}", .0.message())]
    Malformed(#[from] toml::de::Error),
}

#[derive(Debug)]
struct InstanceConf {
    dir: PathBuf,
    /// All files of the folder in one.
    settings: Value,
    /// The stack of the service `flux`, of which the IMP opens a session for each job.
    stack: FluxStack,
}

/// Whether the session of a job stays in its unit.
#[derive(Debug)]
enum FluxStack {
    /// There is no such service.
    Missing,
    Unreadable(StackError),
    /// No module moves the processes of jobs.
    Still,
    /// A module moves them.
    Moves {
        module: String,
        place: FileLine,
    },
}

impl FluxFacts {
    /// Finds Flux's account, and reads the configuration of its system instance.
    pub(super) fn read(site: &Site) -> Self {
        let Config {
            sources, flux_user, ..
        } = &site.config;
        let Some(Account {
            name: user, uid, ..
        }) = find_flux_account(site)
        else {
            // A name that the site chose must have an account. The default name has one only on nodes
            // with Flux.
            let is_chosen = *flux_user != Config::default().flux_user;
            if is_chosen && sources.contains(&SourceName::Flux) {
                return Self::MissingAccount(flux_user.clone());
            }
            return Self::Missing;
        };
        if uid == 0 {
            return Self::Root(user);
        }
        let Some(conf) = InstanceConf::read(site) else {
            return Self::Unconfigured;
        };
        let lingers = site.at(LINGER_DIR).join(&user).try_exists();
        Self::Configured(Instance {
            user,
            lingers,
            conf,
        })
    }

    /// Judges Flux's account and, if an instance is configured, the instance. There are no findings on a node
    /// without Flux, and for an account without an instance, which is one that a package made.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Missing | Self::Unconfigured => Vec::new(),
            Self::MissingAccount(user) => {
                let text = "is no account of /etc/passwd, so no login finds a Flux job";
                let remedy = "set flux_user in job_adopt.conf to Flux's account, or to its uid if it is \
                              elsewhere";
                vec![Finding::warning(Check::FluxAccount, user, text, remedy)]
            }
            Self::Root(user) => {
                let text =
                    "is root, which Flux never is: users without another job are refused (JA09)";
                let remedy =
                    "set flux_user in job_adopt.conf to the account of Flux's system instance";
                vec![Finding::error(Check::FluxAccount, user, text, remedy)]
            }
            Self::Configured(instance) => instance.findings(),
        }
    }
}

/// Whether the configuration of Flux's system instance says that jobs get no filter.
pub(super) fn refuses_filters(site: &Site) -> bool {
    matches!(InstanceConf::read(site), Some(Ok(conf)) if conf.refuses_filters())
}

/// Finds Flux's account. `None` if Flux is no source; for a name that is not in `/etc/passwd`, where alone the helper
/// looks; and if [`Site::find_account`] finds none, also for a number, although the helper takes any number.
pub(super) fn find_flux_account(site: &Site) -> Option<Account> {
    let Config {
        sources,
        flux_user: name,
        ..
    } = &site.config;
    if !sources.contains(&SourceName::Flux) {
        return None;
    }
    let mut local = site.local_accounts().into_iter();
    let helper_finds_it =
        parse_decimal(name).is_some() || local.any(|account| account.name == *name);
    if helper_finds_it {
        site.find_account(name)
    } else {
        None
    }
}

impl Instance {
    /// Judges the configuration of the instance, and whether its account lingers.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = match &self.conf {
            Ok(conf) => conf.findings(),
            Err(ConfFault { file, cause }) => {
                let remedy = "correct the file, or run this as root";
                vec![Finding::unknown(
                    Check::FluxExec,
                    file.display(),
                    cause,
                    remedy,
                )]
            }
        };
        findings.push(self.judge_linger());
        findings
    }

    /// Judges whether the account lingers: jobs run below its own service manager.
    fn judge_linger(&self) -> Finding {
        let user = &self.user;
        match &self.lingers {
            Ok(true) => Finding::fine(Check::FluxLinger, user, "lingers"),
            Ok(false) => {
                let text = "does not linger, so it has no service manager in which jobs could run";
                let remedy = format!("let it linger: loginctl enable-linger {}", shell_word(user));
                Finding::warning(Check::FluxLinger, user, text, remedy)
            }
            Err(error) => Finding::unknown(Check::FluxLinger, user, error, "run this as root"),
        }
    }
}

impl InstanceConf {
    /// Reads the configuration of the system instance; `None` if there is no folder for it, or if this
    /// process cannot list that.
    fn read(site: &Site) -> Option<Result<Self, ConfFault>> {
        let dir = site.at(CONF_DIR);
        let entries = std::fs::read_dir(&dir).ok()?;
        let mut files: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "toml"))
            .collect();
        files.sort();
        let mut settings = Table::new();
        for file in files {
            match read_table(&file) {
                Ok(table) => merge_tables(&mut settings, table),
                Err(cause) => return Some(Err(ConfFault { file, cause })),
            }
        }
        Some(Ok(Self {
            dir,
            settings: Value::Table(settings),
            stack: FluxStack::read(site),
        }))
    }

    fn get(&self, path: &str) -> Option<&Value> {
        path.split('.')
            .try_fold(&self.settings, |value, key| value.get(key))
    }

    /// Whether the site has written that jobs get no filter. Without the setting there is none either, but then nobody
    /// has decided it.
    fn refuses_filters(&self) -> bool {
        self.get("exec.sdexec-constrain-resources") == Some(&Value::Boolean(false))
    }

    fn is(&self, path: &str, text: &str) -> bool {
        self.get(path).and_then(Value::as_str) == Some(text)
    }

    /// Lists the faults that settings can have, which keep logins from finding jobs or end a job because
    /// of a login: the check, whether the fault is present, the text and the remedy.
    fn faults(&self) -> [(Check, bool, &'static str, &'static str); 6] {
        let slice = "exec.sdexec-properties.Slice";
        [
            (
                Check::FluxExec,
                !self.is("exec.service", "sdexec"),
                "[exec] service is not \"sdexec\": jobs have no units of their own, and no login finds \
                 them",
                "write service = \"sdexec\" under [exec]",
            ),
            (
                Check::FluxExec,
                self.get("systemd.enable").and_then(Value::as_bool) != Some(true),
                "[systemd] enable is not true: sdexec is not loaded, and no job starts in a unit",
                "write enable = true under [systemd]",
            ),
            (
                Check::FluxExec,
                self.get("exec.imp").is_none(),
                "[exec] imp is not set: nothing shows whose a job is, and no login finds it",
                "write imp = \"/usr/libexec/flux/flux-imp\" under [exec]",
            ),
            (
                Check::FluxExec,
                self.is("exec.method", "bgexec"),
                "[exec] method is \"bgexec\": units are not named by their job, and no login finds them",
                "remove method under [exec]",
            ),
            (
                Check::FluxExec,
                self.get(slice).is_some() && !self.is(slice, "app.slice"),
                "[exec.sdexec-properties] sets a Slice, in which no login looks for jobs",
                "remove Slice, or set it to app.slice",
            ),
            (
                Check::FluxOomPolicy,
                !self.is("exec.sdexec-properties.OOMPolicy", "continue"),
                "OOMPolicy is not \"continue\": when a login runs out of memory, systemd ends the whole \
                 job",
                "write OOMPolicy = \"continue\" under [exec.sdexec-properties]",
            ),
        ]
    }

    /// Reports each fault of the settings, each check without one as fine, and what the stack does.
    fn findings(&self) -> Vec<Finding> {
        let object = self.dir.display();
        let mut findings = Vec::new();
        for (check, is_present, text, remedy) in self.faults() {
            if is_present {
                findings.push(Finding::warning(check, &object, text, remedy));
            }
        }
        for (check, text) in [
            (Check::FluxExec, "jobs run in units (sdexec)"),
            (
                Check::FluxOomPolicy,
                "a login that runs out of memory ends alone",
            ),
        ] {
            if !findings.iter().any(|finding| finding.check == check) {
                findings.push(Finding::fine(check, &object, text));
            }
        }
        findings.extend(self.stack.finding());
        findings
    }
}

/// Reads a file of Flux's configuration. Comments may be in any encoding, and no setting that matters
/// here has such letters.
fn read_table(file: &Path) -> Result<Table, ConfError> {
    let bytes = std::fs::read(file)?;
    Ok(String::from_utf8_lossy(&bytes).parse()?)
}

/// Merges two configuration files as Flux does: the value of the later file wins.
fn merge_tables(into: &mut Table, other: Table) {
    for (key, value) in other {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(table)) => merge_tables(inner, table),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

fn is_mover(entry: &Entry) -> bool {
    find_effect(module_name(entry)).is_some()
}

impl FluxStack {
    /// Reads the session stack of the service `flux`, and finds its first module that moves processes out of
    /// their unit.
    fn read(site: &Site) -> Self {
        if !site.at("/etc/pam.d/flux").exists() {
            return Self::Missing;
        }
        match read_entries(&site.root, "flux", Group::Session) {
            Ok(entries) => match entries.into_iter().find(is_mover) {
                Some(entry) => Self::Moves {
                    module: module_name(&entry).to_owned(),
                    place: entry.place,
                },
                None => Self::Still,
            },
            Err(why) => Self::Unreadable(why),
        }
    }

    /// Judges whether the session of a job leaves the job's processes in their unit; `None` without the
    /// service.
    fn finding(&self) -> Option<Finding> {
        let service = "service flux";
        match self {
            Self::Missing => None,
            Self::Unreadable(why) => Some(Finding::unknown(
                Check::FluxPam,
                service,
                why,
                "run this as root",
            )),
            Self::Still => {
                let text = "leaves processes of jobs in their unit";
                Some(Finding::fine(Check::FluxPam, service, text))
            }
            Self::Moves { module, place } => {
                let text = format!(
                    "{module} moves processes of jobs out of their unit, so no login finds the job"
                );
                let remedy = "remove that module from /etc/pam.d/flux, or the include that brings it, \
                              such as common-session";
                Some(Finding::warning(Check::FluxPam, place, text, remedy))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    /// The findings of an instance with these settings that are not fine.
    fn bad_findings(settings: &str, lingers: io::Result<bool>, stack: FluxStack) -> Vec<String> {
        let settings = Value::Table(settings.parse().unwrap());
        let conf = Ok(InstanceConf {
            dir: "/conf.d".into(),
            settings,
            stack,
        });
        let instance = Instance {
            user: "flux".to_owned(),
            lingers,
            conf,
        };
        let findings = FluxFacts::Configured(instance).findings();
        let bad = findings
            .iter()
            .filter(|finding| finding.severity != Severity::Fine);
        bad.map(|finding| format!("{} {}", finding.severity, finding.check))
            .collect()
    }

    const GOOD: &str = "systemd.enable = true\n[exec]\nservice = 'sdexec'\nimp = '/imp'\n\
                        sdexec-properties.OOMPolicy = 'continue'\n";

    #[test]
    fn each_fault_of_an_instance_is_reported() {
        assert_eq!(bad_findings(GOOD, Ok(true), FluxStack::Still), [""; 0]);
        let lingers_not = bad_findings(GOOD, Ok(false), FluxStack::Missing);
        assert_eq!(lingers_not, ["warning flux-linger"]);
        let why = Err(io::ErrorKind::PermissionDenied.into());
        let stack = FluxStack::Unreadable(StackError::UnnamedService);
        let unreadable = bad_findings(GOOD, why, stack);
        assert_eq!(unreadable, ["unknown flux-pam", "unknown flux-linger"]);
        assert_eq!(
            bad_findings("", Ok(true), FluxStack::Still),
            [
                "warning flux-exec",
                "warning flux-exec",
                "warning flux-exec",
                "warning flux-oom-policy"
            ]
        );
    }

    #[test]
    fn file_that_cannot_be_read_is_unknown() {
        let cause = ConfError::Unreadable(io::ErrorKind::PermissionDenied.into());
        let conf = Err(ConfFault {
            file: "/conf.d/a.toml".into(),
            cause,
        });
        let instance = Instance {
            user: "flux".to_owned(),
            lingers: Ok(true),
            conf,
        };
        let findings = FluxFacts::Configured(instance).findings();
        assert_eq!(findings[0].severity, Severity::Unknown);
        assert_eq!(findings[0].object, "/conf.d/a.toml");
        assert_eq!(findings.len(), 2);
    }
}
