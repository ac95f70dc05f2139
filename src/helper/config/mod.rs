//! The site's configuration, `key = value` lines.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::callerid::Network;
use crate::devices::{Settings, Specifier};
use crate::printable;
use crate::records::Registry;
use kernel::trust::{Trust, TrustError};
use protocol::{CDI_ENV, CDI_GIDS, Request, SourceName, decimal, words};

const FILE_MAX: u64 = 256 * 1024;
/// Most characters of a key in a message.
const KEY_SHOWN: usize = 64;
/// How long an answer about the caller may be waited for, in milliseconds.
const CALLER_MS: std::ops::RangeInclusive<u32> = 10..=2000;
/// Flux's account where the site does not say.
const FLUX_USER: &str = "flux";

/// What a site may decide; [`Config::default`] is what an empty file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Sources that are asked, in this order.
    pub sources: Vec<SourceName>,
    /// Logins are judged where this exists; everywhere without it.
    pub enforce: Option<PathBuf>,
    /// Where records lie.
    pub registry: Registry,
    /// Devices for every job that is not `strict`.
    pub always_allowed: Vec<Specifier>,
    /// Where names of devices are looked up.
    pub devices: Settings,
    /// `SlurmdSpoolDir`, where `slurm.conf` is not to be asked.
    pub slurm_spool: Option<PathBuf>,
    /// What contains the logins to Slurm's jobs whose record, if there is one, has no list of devices.
    pub slurm_devices: SlurmDevices,
    /// What of a job's environment its logins are given.
    pub env: JobEnvironment,
    /// Users whose slices of systemd's are not closed.
    pub exempt_uids: Vec<u32>,
    /// Groups of such users, by name.
    pub exempt_groups: Vec<String>,
    /// The account that Flux's system instance runs as.
    pub flux_user: String,
    /// The hosts that are asked which job an ssh client runs in, and that are answered.
    pub callerid_networks: Vec<Network>,
    /// How long an answer is waited for, connecting included.
    pub callerid_timeout: Duration,
    /// A file whose text is added to refusals.
    pub message_file: Option<PathBuf>,
    /// The command by which users see their jobs, in place of the source's own.
    pub hint: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sources: SourceName::ALL.to_vec(),
            enforce: None,
            registry: Registry::new(Path::new(Registry::DEFAULT)),
            always_allowed: Vec::new(),
            devices: Settings::default(),
            slurm_spool: None,
            slurm_devices: SlurmDevices::default(),
            env: JobEnvironment::default(),
            exempt_uids: Vec::new(),
            exempt_groups: Vec::new(),
            flux_user: FLUX_USER.to_owned(),
            callerid_networks: Vec::new(),
            callerid_timeout: Duration::from_millis(300),
            message_file: None,
            hint: None,
        }
    }
}

impl Config {
    /// Reads the file at `path`, which must be trusted. The usual file may be missing, which means the
    /// defaults; a file that was named must be there.
    /// Fails: [`ConfigError`] with file, line and key.
    pub fn read(path: &Path, trust: &Trust) -> Result<Self, ConfigError> {
        match trust.read(path, FILE_MAX) {
            Ok(bytes) => Self::parse(&bytes)
                .map_err(|(line, fault)| ConfigError::Line(path.to_owned(), line, fault)),
            Err(error) if error.is_missing() && path == Path::new(Request::CONF) => {
                Ok(Self::default())
            }
            Err(error) => Err(ConfigError::File(error)),
        }
    }

    /// Reads where the registry is, and no more: a mistake elsewhere in the file must not stop the end
    /// of a job. Also gives the error for which [`Config::read`] would refuse the file.
    /// Fails: [`ConfigError`] where the file is not trusted, or its registry is no path.
    pub fn registry_at(
        path: &Path,
        trust: &Trust,
    ) -> Result<(Registry, Option<ConfigError>), ConfigError> {
        let fault = match Self::read(path, trust) {
            Ok(config) => return Ok((config.registry, None)),
            Err(error @ ConfigError::File(_)) => return Err(error),
            Err(fault) => fault,
        };
        let bytes = trust.read(path, FILE_MAX).map_err(ConfigError::File)?;
        let mut config = Self::default();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            if let Ok(Some((key @ "registry", value))) = pair(line) {
                config
                    .set(key, value)
                    .map_err(|fault| ConfigError::Line(path.to_owned(), index + 1, fault))?;
            }
        }
        Ok((config.registry, Some(fault)))
    }

    /// Reads the text of the file.
    /// Fails: the first line at fault, counted from 1, and what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, (usize, String)> {
        let mut config = Self::default();
        let mut seen = Vec::new();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let fault = |fault| (index + 1, fault);
            let Some((key, value)) = pair(line).map_err(fault)? else { continue };
            if seen.contains(&key) {
                return Err(fault(format!("key {} stands twice", shown(key))));
            }
            config.set(key, value).map_err(fault)?;
            seen.push(key);
        }
        Ok(config)
    }

    /// The path for want of which logins are not judged here. One of which it cannot be told whether it
    /// exists is taken to.
    pub fn not_enforced(&self) -> Option<&Path> {
        let missing = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        self.enforce.as_deref().filter(|path| path.symlink_metadata().is_err_and(missing))
    }

    /// The keys that there are.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|(name, ..)| *name)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let name = shown(key);
        if let Some((_, instead)) = REMOVED.iter().find(|(removed, _)| *removed == key) {
            return Err(format!("key {name} {instead}"));
        }
        if value.is_empty() || value.chars().any(char::is_control) {
            let wanted = "text: it is empty or has a control character";
            return Err(format!("the value of {name} is not {wanted}"));
        }
        let Some((_, wanted, take)) = KEYS.iter().find(|(known, ..)| *known == key) else {
            let meant = Self::keys().find(|known| is_near(known, key));
            let hint = meant.map(|known| format!(", did you mean {known}?")).unwrap_or_default();
            return Err(format!("unknown key {name}{hint}"));
        };
        take(self, value).map_err(|wrong| match wrong {
            Wrong::Value => format!("the value of {name} is not {wanted}"),
            Wrong::Entry(entry, why) => format!("entry {entry:?} of {name}: {why}"),
        })
    }
}

/// A key, what its value must be, and where that goes.
type Key = (&'static str, &'static str, fn(&mut Config, &str) -> Result<(), Wrong>);

enum Wrong {
    /// It is not what the key wants.
    Value,
    /// This entry of the list is refused, and why.
    Entry(String, String),
}

const PATH: &str = "an absolute path";

/// Every key of the configuration, as job_adopt.conf(5) has them.
const KEYS: [Key; 17] = [
    ("sources", "a list of: registry, slurm, flux", |config, value| {
        put(&mut config.sources, sources(value))
    }),
    ("enforce", "always or if-exists:/PATH", |config, value| {
        put(&mut config.enforce, enforce(value))
    }),
    ("registry", PATH, |config, value| {
        put(&mut config.registry, path(value).map(|dir| Registry::new(&dir)))
    }),
    ("always_allowed", "a list of devices", |config, value| {
        entries(value).map(|list| config.always_allowed = list)
    }),
    ("cdi_dirs", "a list of absolute paths", |config, value| {
        put(&mut config.devices.cdi_dirs, each(value, path))
    }),
    ("nodename", "a host name", |config, value| {
        put(&mut config.devices.node_name, host_name(value).map(Some))
    }),
    ("slurm_conf", PATH, |config, value| {
        put(&mut config.devices.slurm_conf, path(value).map(Some))
    }),
    ("slurm_spool", PATH, |config, value| put(&mut config.slurm_spool, path(value).map(Some))),
    ("slurm_devices", "inherit or closed", |config, value| {
        put(&mut config.slurm_devices, value.parse().ok())
    }),
    ("env", "none, id, gpus or full", |config, value| put(&mut config.env, value.parse().ok())),
    ("exempt_uids", "a list of numbers", |config, value| {
        put(&mut config.exempt_uids, each(value, decimal))
    }),
    ("exempt_groups", "a list of names of groups", |config, value| {
        put(&mut config.exempt_groups, each(value, account))
    }),
    ("flux_user", "the name or number of an account", |config, value| {
        put(&mut config.flux_user, account(value))
    }),
    ("callerid_networks", "a list of networks", |config, value| {
        entries(value).map(|networks| config.callerid_networks = networks)
    }),
    ("callerid_timeout", "a number of milliseconds, 10 to 2000", |config, value| {
        let millis = decimal(value).filter(|millis| CALLER_MS.contains(millis));
        put(&mut config.callerid_timeout, millis.map(|millis| Duration::from_millis(millis.into())))
    }),
    ("message_file", PATH, |config, value| put(&mut config.message_file, path(value).map(Some))),
    ("hint", "ASCII text of at most 64 characters", |config, value| {
        let fits = value.is_ascii() && value.len() <= 64;
        put(&mut config.hint, fits.then(|| Some(value.to_owned())))
    }),
];

/// Keys that earlier versions knew, each with what replaces it.
const REMOVED: &[(&str, &str)] = &[
    ("cdi_env", CDI_ENV),
    ("cdi_gids", CDI_GIDS),
    (
        "limits",
        "was removed; use ulimit_pam_adopt of slurm.conf, pam_limits, or LimitMEMLOCK= of sshd's unit",
    ),
    ("guarded", "was removed; systemd closes users' slices: job-adopt slices --write"),
];

fn put<T>(place: &mut T, value: Option<T>) -> Result<(), Wrong> {
    *place = value.ok_or(Wrong::Value)?;
    Ok(())
}

/// Whether a name is another one in a wrong case, or with one character wrong, missing or too many.
fn is_near(known: &str, name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let (one, other) = (known.as_bytes(), name.as_bytes());
    let front = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let [rest, other_rest] = [one, other].map(|bytes| bytes.get(front..).unwrap_or_default());
    let back = rest.iter().rev().zip(other_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    rest.len().max(other_rest.len()) - back <= 1
}

/// Key and value of a line; `None` for one that is empty but for a comment.
fn pair(line: &[u8]) -> Result<Option<(&str, &str)>, String> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let line = without_comment(line).trim();
    if line.is_empty() {
        return Ok(None);
    }
    let (key, value) = line.split_once('=').ok_or("not of the form key = value")?;
    Ok(Some((key.trim(), value.trim())))
}

/// The line up to a `#` that stands at its beginning or after a blank.
fn without_comment(line: &str) -> &str {
    let start = line.match_indices('#').map(|(at, _)| at).find(|&at| {
        line.get(..at).is_some_and(|before| before.is_empty() || before.ends_with([' ', '\t']))
    });
    start.and_then(|at| line.get(..at)).unwrap_or(line)
}

fn sources(value: &str) -> Option<Vec<SourceName>> {
    let mut sources = Vec::new();
    for name in value.split(',') {
        let source = name.trim().parse().ok()?;
        if sources.contains(&source) {
            return None;
        }
        sources.push(source);
    }
    Some(sources)
}

fn enforce(value: &str) -> Option<Option<PathBuf>> {
    match value {
        "always" => Some(None),
        value => value.strip_prefix("if-exists:").and_then(path).map(Some),
    }
}

fn host_name(value: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (value.len() <= 64 && value.bytes().all(plain)).then(|| value.to_owned())
}

fn account(value: &str) -> Option<String> {
    let fits = !value.is_empty() && value.len() <= 64 && !value.contains([' ', ':', '/']);
    fits.then(|| value.to_owned())
}

fn path(value: &str) -> Option<PathBuf> {
    value.starts_with('/').then(|| PathBuf::from(value))
}

/// What is read of each entry of a list.
fn each<T>(value: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    value.split(',').map(|entry| read(entry.trim())).collect()
}

/// The same where the first entry at fault is told.
fn entries<T: FromStr<Err: fmt::Display>>(value: &str) -> Result<Vec<T>, Wrong> {
    let entry =
        |text: &str| text.parse().map_err(|why: T::Err| Wrong::Entry(shown(text), why.to_string()));
    value.split(',').map(|text| entry(text.trim())).collect()
}

/// A key or an entry as a message shows it.
fn shown(key: &str) -> String {
    printable(key).chars().take(KEY_SHOWN).collect()
}

words! {
    /// What contains the logins to Slurm's jobs.
    #[derive(Default)]
    SlurmDevices {
        /// Slurm's own filter.
        #[default]
        Inherit = "inherit",
        /// Beside it, the standard devices, all of Slurm's generic resources, and `always_allowed`.
        Closed = "closed",
    }
}

words! {
    /// What of a job's environment its logins are given.
    #[derive(Default)]
    JobEnvironment {
        /// Nothing.
        None = "none",
        /// The job's id, as its scheduler names the variable.
        #[default]
        Id = "id",
        /// The same, and the GPUs that the login can open.
        Gpus = "gpus",
        /// What the scheduler gives a shell in the allocation.
        Full = "full",
    }
}

/// Why there is no configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The file is not believed.
    #[error("{0}")]
    File(TrustError),
    /// This line of the file is at fault, and why.
    #[error("{path}:{1}: {2}", path = .0.display())]
    Line(PathBuf, usize, String),
}

#[cfg(test)]
mod tests;
