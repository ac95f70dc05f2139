//! The site's configuration, `key = value` lines.

mod error;
mod text;
mod values;

pub use error::{ConfigError, Fault};
pub(super) use values::Slurm;
pub use values::SlurmDevices;
pub use values::{Callers, Enforce, JobEnvironment};

use std::path::{Path, PathBuf};
use std::time::Duration;

use self::text::{
    account, enforce, is_of_host_name, network, pair, path, shown, sources, specifier,
};
use crate::device::{Settings, Specifier};
use crate::plan::{Request, SourceName, decimal};
use crate::registry::Registry;
use crate::removed::{self, instead};
use crate::trust::Trust;

/// Most bytes of a configuration file.
const FILE_MAX: u64 = 256 * 1024;
/// How long an answer about the caller may be waited for, in milliseconds.
const CALLER_MS: std::ops::RangeInclusive<u32> = 10..=2000;
/// Flux's account where the site does not say.
const FLUX_USER: &str = "flux";

/// What a site may decide; [`Config::default`] is what an empty file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Sources that are asked, in this order.
    pub sources: Vec<SourceName>,
    /// Where logins are judged at all.
    pub enforce: Enforce,
    /// Where records lie.
    pub registry: Registry,
    /// Devices for every job that is not `strict`.
    pub always_allowed: Vec<Specifier>,
    /// Where names of devices are looked up.
    pub devices: Settings,
    /// How Slurm's jobs are found and contained.
    pub slurm: Slurm,
    /// What of a job's environment its logins are given.
    pub env: JobEnvironment,
    /// Users whose slices of systemd's are not closed.
    pub exempt_uids: Vec<u32>,
    /// Groups of such users, by name.
    pub exempt_groups: Vec<String>,
    /// The account that Flux's system instance runs as.
    pub flux_user: String,
    /// Who may say which job an ssh client runs in.
    pub caller: Callers,
    /// A file whose text is added to refusals.
    pub message_file: Option<PathBuf>,
    /// The command by which users see their jobs, in place of the source's own.
    pub hint: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sources: SourceName::ALL.to_vec(),
            enforce: Enforce::default(),
            registry: Registry::new(Path::new(Registry::DEFAULT)),
            always_allowed: Vec::new(),
            devices: Settings::default(),
            slurm: Slurm::default(),
            env: JobEnvironment::default(),
            exempt_uids: Vec::new(),
            exempt_groups: Vec::new(),
            flux_user: FLUX_USER.to_owned(),
            caller: Callers::default(),
            message_file: None,
            hint: None,
        }
    }
}

impl Config {
    /// Reads the file at `path`, which has to be believed. Only the usual one may be missing, for the
    /// defaults: whoever names another means what is in it.
    ///
    /// # Errors
    /// [`ConfigError`] with file, line and key.
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

    /// Reads where the registry is, and no more: for the end of a job, which a mistake elsewhere in
    /// the file must not stop. Beside it, what [`Config::read`] would refuse the file for.
    ///
    /// # Errors
    /// [`ConfigError`] where the file is not believed, or says of the registry what is no path.
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
    ///
    /// # Errors
    /// The first line at fault, counted from 1, and what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, (usize, Fault)> {
        let mut config = Self::default();
        let mut seen = Vec::new();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let fault = |fault| (index + 1, fault);
            let Some((key, value)) = pair(line).map_err(fault)? else { continue };
            if seen.contains(&key) {
                return Err(fault(Fault::Twice(shown(key))));
            }
            config.set(key, value).map_err(fault)?;
            seen.push(key);
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Fault> {
        let bad = |wanted| Fault::Value(shown(key), wanted);
        let entry = |(entry, why)| Fault::Entry(shown(key), entry, why);
        if let Some(instead) = instead(removed::KEYS, key) {
            return Err(Fault::Removed(shown(key), instead));
        }
        if value.is_empty() || value.chars().any(char::is_control) {
            return Err(bad("text: it is empty or has a control character"));
        }
        match key {
            "sources" => {
                self.sources =
                    sources(value).ok_or_else(|| bad("a list of: registry, slurm, flux"))?
            }
            "enforce" => {
                self.enforce = enforce(value).ok_or_else(|| bad("always or if-exists:/PATH"))?;
            }
            "registry" => {
                self.registry = Registry::new(&path(value).ok_or_else(|| bad("an absolute path"))?);
            }
            "always_allowed" => {
                let specifiers = value.split(',').map(|text| specifier(text.trim()));
                self.always_allowed = specifiers.collect::<Result<_, _>>().map_err(entry)?;
            }
            "cdi_dirs" => {
                let dirs: Option<Vec<_>> = value.split(',').map(|dir| path(dir.trim())).collect();
                self.devices.cdi_dirs = dirs.ok_or_else(|| bad("a list of absolute paths"))?;
            }
            "nodename" => {
                let name = (value.len() <= 64 && value.bytes().all(is_of_host_name))
                    .then(|| value.to_owned())
                    .ok_or_else(|| bad("a host name"))?;
                self.devices.node_name = Some(name);
            }
            "slurm_conf" => {
                let conf = path(value).ok_or_else(|| bad("an absolute path"))?;
                self.devices.slurm_conf = Some(conf);
            }
            "slurm_spool" => {
                self.slurm.spool = Some(path(value).ok_or_else(|| bad("an absolute path"))?);
            }
            "slurm_devices" => {
                self.slurm.devices = match value {
                    "inherit" => SlurmDevices::Inherit,
                    "closed" => SlurmDevices::Closed,
                    _ => return Err(bad("inherit or closed")),
                };
            }
            "env" => {
                self.env = match value {
                    "none" => JobEnvironment::None,
                    "id" => JobEnvironment::Id,
                    "full" => JobEnvironment::Full,
                    _ => return Err(bad("none, id or full")),
                };
            }
            "exempt_uids" => {
                let uids: Option<Vec<u32>> =
                    value.split(',').map(|uid| decimal(uid.trim())).collect();
                self.exempt_uids = uids.ok_or_else(|| bad("a list of numbers"))?;
            }
            "exempt_groups" => {
                let groups: Option<Vec<_>> =
                    value.split(',').map(|group| account(group.trim())).collect();
                self.exempt_groups = groups.ok_or_else(|| bad("a list of names of groups"))?;
            }
            "flux_user" => {
                self.flux_user = account(value).ok_or_else(|| bad("the name of an account"))?;
            }
            "callerid_networks" => {
                let networks = value.split(',').map(|text| network(text.trim()));
                self.caller.networks = networks.collect::<Result<_, _>>().map_err(entry)?;
            }
            "callerid_timeout" => {
                let millis = decimal(value).filter(|millis| CALLER_MS.contains(millis));
                let millis = millis.ok_or_else(|| bad("a number of milliseconds, 10 to 2000"))?;
                self.caller.timeout = Duration::from_millis(millis.into());
            }
            "message_file" => {
                self.message_file = Some(path(value).ok_or_else(|| bad("an absolute path"))?);
            }
            "hint" => {
                let short = value.is_ascii() && value.len() <= 64;
                self.hint = Some(
                    short
                        .then(|| value.to_owned())
                        .ok_or_else(|| bad("ASCII text of at most 64 characters"))?,
                );
            }
            _ => return Err(Fault::Unknown(shown(key))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
