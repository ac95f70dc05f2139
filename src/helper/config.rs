//! The site's configuration: lines of `key = value`.

mod in_force;

pub use in_force::KeyInForce;

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::callerid::Network;
use crate::devices::{DeviceSettings, Specifier, is_site_name};
use crate::jobs::records::Registry;
use crate::text::printable;
use kernel::trust::{Trust, TrustError};
use protocol::{
    END_GRACE_SECONDS_MAX, LoginLimits, NodeName, Request, SourceName, parse_decimal, string_enum,
};

const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Maximum length of a group's name.
const GROUP_BYTES_MAX: usize = 255;
/// Maximum characters of a key or an entry that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 64;
/// Allowed values of `notice`.
const NOTICE_MINUTES: std::ops::RangeInclusive<u32> = 1..=1440;
/// Allowed values of `callerid_timeout`, in milliseconds.
const CALLERID_TIMEOUT_MS: std::ops::RangeInclusive<u32> = 10..=2000;
/// Flux's account if the site sets none.
const DEFAULT_FLUX_USER: &str = "flux";

/// The settings of a site. An empty file has the settings of [`Config::default`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Sources of jobs, as the site lists them; Slurm is queried last.
    pub sources: Vec<SourceName>,
    /// Logins are judged only if this path exists; `None` judges them on every node.
    pub enforce: Option<PathBuf>,
    /// The directory of job records.
    pub registry: Registry,
    /// Devices for every job that is not `strict`.
    pub always_allowed: Vec<Specifier>,
    /// Settings for the resolution of device names.
    pub devices: DeviceSettings,
    /// `SlurmdSpoolDir`; `None` reads it from `slurm.conf`.
    pub slurm_spool: Option<PathBuf>,
    /// Containment of logins to Slurm jobs without a record or with a record without devices.
    pub slurm_devices: SlurmDevices,
    /// The devices in Slurm's `AllowedDevicesFile` join `always_allowed` in Slurm jobs.
    pub slurm_allowed_devices: bool,
    /// Variables of a job's environment that its logins get.
    pub env: JobEnvironment,
    /// The limits for all logins of a job together.
    pub login_limits: LoginLimits,
    /// Seconds that programs of logins have to save at the end of their job.
    pub end_grace: u32,
    /// Users whose systemd slices stay open.
    pub exempt_uids: Vec<u32>,
    /// Groups of such users, by name.
    pub exempt_groups: Vec<String>,
    /// The account of Flux's system instance.
    pub flux_user: String,
    /// Hosts that exchange caller identity with this node, in both directions.
    pub callerid_networks: Vec<Network>,
    /// Maximum time for a caller identity query, with its connection.
    pub callerid_timeout: Duration,
    /// When terminals of logins get a notice, in minutes before the end of their job; empty for never.
    pub notice: Vec<u32>,
    /// A file whose text is added to refusals.
    pub message_file: Option<PathBuf>,
    /// A command that shows users their jobs, in place of the source's own.
    pub hint: Option<String>,
}

impl Default for Config {
    /// The settings of a site without a configuration file.
    fn default() -> Self {
        Self {
            sources: SourceName::ALL.to_vec(),
            enforce: None,
            registry: Registry::new(Path::new(Registry::DEFAULT)),
            always_allowed: Vec::new(),
            devices: DeviceSettings::default(),
            slurm_spool: None,
            slurm_devices: SlurmDevices::default(),
            slurm_allowed_devices: false,
            env: JobEnvironment::default(),
            login_limits: LoginLimits::default(),
            end_grace: 2,
            exempt_uids: Vec::new(),
            exempt_groups: Vec::new(),
            flux_user: DEFAULT_FLUX_USER.to_owned(),
            callerid_networks: Vec::new(),
            callerid_timeout: Duration::from_millis(300),
            notice: vec![15, 5, 1],
            message_file: None,
            hint: None,
        }
    }
}

impl Config {
    /// Reads the file at `path`. If the default file is missing, the defaults apply; any other file
    /// must exist.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file is missing, not trusted or malformed.
    pub fn read(path: &Path, trust: &Trust) -> Result<Self, ConfigError> {
        Self::parse(&Self::read_bytes(path, trust)?)
            .map_err(|(line, fault)| ConfigError::InvalidLine(path.to_owned(), line, fault))
    }

    /// Reads the text of the file; a missing default file is an empty one.
    ///
    /// # Errors
    ///
    /// [`ConfigError::UntrustedFile`].
    fn read_bytes(path: &Path, trust: &Trust) -> Result<Vec<u8>, ConfigError> {
        match trust.read(path, FILE_BYTES_MAX) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.is_missing() && path == Path::new(Request::DEFAULT_CONF) => {
                Ok(Vec::new())
            }
            Err(error) => Err(ConfigError::UntrustedFile(error)),
        }
    }

    /// Reads the settings that the end of a job needs, which are the registry's directory and the grace, so
    /// that a mistake elsewhere in the file cannot stop that end. With a mistake all other settings are defaults, and so
    /// is a grace that is malformed itself; then the error for which [`Config::read`] refuses the file comes with them.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file is not trusted, or its registry is no path.
    pub fn read_for_end(
        path: &Path,
        trust: &Trust,
    ) -> Result<(Self, Option<ConfigError>), ConfigError> {
        let fault = match Self::read(path, trust) {
            Ok(config) => return Ok((config, None)),
            Err(error @ ConfigError::UntrustedFile(_)) => return Err(error),
            Err(fault) => fault,
        };
        let mut config = Self::read_key(path, trust, "registry")?;
        if let Ok(Self { end_grace, .. }) = Self::read_key(path, trust, "end_grace") {
            config.end_grace = end_grace;
        }
        Ok((config, Some(fault)))
    }

    /// Reads only the path of the site's message, so that a mistake elsewhere in the file does not keep users from
    /// reading whom to ask. `None` without a message, and if the file is not trusted or the path is none.
    pub(crate) fn read_message_file(path: &Path, trust: &Trust) -> Option<PathBuf> {
        Self::read_key(path, trust, "message_file")
            .ok()?
            .message_file
    }

    /// Reads only where Slurm's configuration is, so that a mistake elsewhere in the file does not show another one.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file is not trusted, or the path is none.
    pub fn read_slurm_conf(path: &Path, trust: &Trust) -> Result<Option<PathBuf>, ConfigError> {
        match Self::read(path, trust) {
            Ok(config) => Ok(config.devices.slurm_conf),
            Err(_) => Ok(Self::read_key(path, trust, "slurm_conf")?
                .devices
                .slurm_conf),
        }
    }

    /// Reads one key, and ignores all other lines. All other settings have their defaults. Of several lines with the key
    /// the last one counts.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file is missing or not trusted, or the key's value is malformed.
    fn read_key(path: &Path, trust: &Trust, name: &str) -> Result<Self, ConfigError> {
        let bytes = trust
            .read(path, FILE_BYTES_MAX)
            .map_err(ConfigError::UntrustedFile)?;
        let mut config = Self::default();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            match parse_line(line) {
                Ok(ConfigLine::Section(NAMES_SECTION)) => break,
                Ok(ConfigLine::Pair(key, value)) if key == name => {
                    config.set_key(key, value).map_err(|fault| {
                        ConfigError::InvalidLine(path.to_owned(), index + 1, fault)
                    })?;
                }
                _ => {}
            }
        }
        Ok(config)
    }

    /// Parses the text of the file.
    ///
    /// # Errors
    ///
    /// The number of the first malformed line, from 1, and its fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, (usize, ConfigFault)> {
        let mut config = Self::default();
        let mut keys = Vec::new();
        let mut has_names = false;
        // Stays 0 without such a line: then the list is empty, and has no fault.
        let mut device_list_line = 0;
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let number = index + 1;
            match parse_line(line).map_err(|fault| (number, fault))? {
                ConfigLine::Empty => {}
                ConfigLine::Section(NAMES_SECTION) if !has_names => has_names = true,
                ConfigLine::Section(section) => {
                    return Err((number, ConfigFault::UnknownSection(shorten(section))));
                }
                ConfigLine::Pair(name, value) if has_names => config
                    .add_name(name, value)
                    .map_err(|fault| (number, fault))?,
                ConfigLine::Pair(key, _) if keys.contains(&key) => {
                    return Err((number, ConfigFault::RepeatedKey(shorten(key))));
                }
                ConfigLine::Pair(key, value) => {
                    config
                        .set_key(key, value)
                        .map_err(|fault| (number, fault))?;
                    keys.push(key);
                    if key == DEVICE_LIST_KEY {
                        device_list_line = number;
                    }
                }
            }
        }
        config
            .check_device_list()
            .map_err(|fault| (device_list_line, fault))?;
        Ok(config)
    }

    /// Checks that the names of the site's own in `always_allowed` (`@NAME`) stand in the section `[devices]`.
    fn check_device_list(&self) -> Result<(), ConfigFault> {
        for specifier in &self.always_allowed {
            let name = specifier.site_name();
            if name.is_some_and(|known| !self.devices.names.contains_key(known)) {
                return Err(ConfigFault::InvalidEntry(
                    DEVICE_LIST_KEY.to_owned(),
                    specifier.to_string(),
                    "not in [devices]".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Adds a line of the section `[devices]`: a name of the site's own for a list of devices.
    ///
    /// # Errors
    ///
    /// [`ConfigFault`] for a name that has other characters than it may, is a key or is there already, and for an entry
    /// that is no specifier of a device or itself a site's name.
    fn add_name(&mut self, name: &str, value: &str) -> Result<(), ConfigFault> {
        let shown = shorten(name);
        if !is_site_name(name) {
            return Err(ConfigFault::InvalidName(shown));
        }
        if Self::keys().any(|key| key == name) {
            return Err(ConfigFault::KeyAsName(shown));
        }
        let parse = |text: &str| match text.parse::<Specifier>() {
            Ok(specifier) if specifier.site_name().is_some() => {
                Err("a name stands for no other name".to_owned())
            }
            Ok(specifier) => Ok(specifier),
            Err(why) => Err(why.to_string()),
        };
        let entries = parse_entries(value, parse).map_err(|error| match error {
            ValueError::WrongForm => ConfigFault::WrongForm(shown.clone(), "a list of devices"),
            ValueError::InvalidEntry(entry, why) => {
                ConfigFault::InvalidEntry(shown.clone(), entry, why)
            }
        })?;
        if self
            .devices
            .names
            .insert(name.to_owned(), entries)
            .is_some()
        {
            return Err(ConfigFault::RepeatedKey(shown));
        }
        Ok(())
    }

    /// Tells whether the site has chosen the registry as a source: it names some sources and not
    /// all, or another directory.
    pub(crate) fn has_chosen_registry(&self) -> bool {
        let default = Self::default();
        self.sources.len() < default.sources.len() || self.registry != default.registry
    }

    /// Finds the path of `enforce` if it does not exist, so that logins are not judged here. `None` if they are: the
    /// site has set no path, or it exists. Any other error than a missing file counts as existence.
    pub fn missing_enforce_path(&self) -> Option<&Path> {
        let path = self.enforce.as_deref()?;
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Some(path),
            _ => None,
        }
    }

    /// Iterates over all keys of the configuration.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        KEY_RULES.iter().map(|rule| rule.name)
    }

    /// Parses and stores the value of a key.
    ///
    /// # Errors
    ///
    /// [`ConfigFault`] for a key that is unknown, and for a value that is empty, has a control character, or has
    /// another form than the key requires. The list of `always_allowed` may be empty and may have tabs.
    fn set_key(&mut self, key: &str, value: &str) -> Result<(), ConfigFault> {
        let name = shorten(key);
        // Flux's `allowed-devices`, which a site may copy, may be empty and may have tabs.
        let is_device_list = key == DEVICE_LIST_KEY;
        let is_text = |c: char| !c.is_control() || (is_device_list && c == '\t');
        if (value.is_empty() && !is_device_list) || !value.chars().all(is_text) {
            let form = "text: it is empty or has a control character";
            return Err(ConfigFault::WrongForm(name, form));
        }
        let Some(rule) = KEY_RULES.iter().find(|rule| rule.name == key) else {
            let similar = Self::keys().find(|known| is_similar(known, key));
            return Err(ConfigFault::UnknownKey(name, similar));
        };
        (rule.store)(self, value).map_err(|error| match error {
            ValueError::WrongForm => ConfigFault::WrongForm(name, rule.form),
            ValueError::InvalidEntry(entry, why) => ConfigFault::InvalidEntry(name, entry, why),
        })
    }
}

/// A key of the configuration.
struct KeyRule {
    name: &'static str,
    /// The form of its value, for messages.
    form: &'static str,
    /// The value without a line of it; empty: it is not set.
    default: &'static str,
    /// Parses and stores a value.
    store: fn(&mut Config, &str) -> Result<(), ValueError>,
}

/// Why the value of a key is refused.
enum ValueError {
    /// The value has another form than the key requires.
    WrongForm,
    /// An entry of the list is invalid, for this reason.
    InvalidEntry(String, String),
}

const ABSOLUTE_PATH: &str = "an absolute path";
/// The section of a site's own names of devices.
const NAMES_SECTION: &str = "devices";
/// The key whose entries are device specifiers.
const DEVICE_LIST_KEY: &str = "always_allowed";
const MEMORY: &str = "a size in M, G or T, at least 64M, or 1% to 100%";
const WEIGHT: &str = "a number, 1 to 10000";

/// Every key of the configuration, in the order of job_adopt.conf(5).
const KEY_RULES: [KeyRule; 25] = [
    KeyRule {
        name: "sources",
        form: "a list of: registry, slurm, flux",
        default: "registry, slurm, flux",
        store: |config, value| store(&mut config.sources, parse_sources(value)),
    },
    KeyRule {
        name: "enforce",
        form: "always or if-exists:/PATH",
        default: "always",
        store: |config, value| store(&mut config.enforce, parse_enforce(value)),
    },
    KeyRule {
        name: "registry",
        form: ABSOLUTE_PATH,
        default: Registry::DEFAULT,
        store: |config, value| {
            store(
                &mut config.registry,
                parse_path(value).map(|dir| Registry::new(&dir)),
            )
        },
    },
    KeyRule {
        name: DEVICE_LIST_KEY,
        form: "a list of devices",
        default: "",
        store: |config, value| {
            parse_entries(value, Specifier::parse_site_entry)
                .map(|list| config.always_allowed = list)
        },
    },
    KeyRule {
        name: "cdi_dirs",
        form: "a list of absolute paths",
        default: "/etc/cdi, /run/cdi",
        store: |config, value| store(&mut config.devices.cdi_dirs, parse_list(value, parse_path)),
    },
    KeyRule {
        name: "nodename",
        form: "a host name",
        default: "",
        store: |config, value| {
            store(
                &mut config.devices.node_name,
                parse_host_name(value).map(Some),
            )
        },
    },
    KeyRule {
        name: "slurm_conf",
        form: ABSOLUTE_PATH,
        default: "",
        store: |config, value| store(&mut config.devices.slurm_conf, parse_path(value).map(Some)),
    },
    KeyRule {
        name: "slurm_spool",
        form: ABSOLUTE_PATH,
        default: "",
        store: |config, value| store(&mut config.slurm_spool, parse_path(value).map(Some)),
    },
    KeyRule {
        name: "slurm_devices",
        form: "inherit or closed",
        default: "inherit",
        store: |config, value| store(&mut config.slurm_devices, value.parse().ok()),
    },
    KeyRule {
        name: "slurm_allowed_devices",
        form: "yes or no",
        default: "no",
        store: |config, value| {
            let is_allowed = match value {
                "yes" => Some(true),
                "no" => Some(false),
                _ => None,
            };
            store(&mut config.slurm_allowed_devices, is_allowed)
        },
    },
    KeyRule {
        name: "env",
        form: "none, id, gpus or full",
        default: "id",
        store: |config, value| store(&mut config.env, value.parse().ok()),
    },
    KeyRule {
        name: "login_memory",
        form: MEMORY,
        default: "",
        store: |config, value| {
            store_limit(config, parse_memory(value), |limits, (mib, percent)| {
                (limits.memory_mib, limits.memory_percent) = (mib, percent);
            })
        },
    },
    KeyRule {
        name: "login_memory_high",
        form: MEMORY,
        default: "",
        store: |config, value| {
            store_limit(config, parse_memory(value), |limits, (mib, percent)| {
                (limits.memory_high_mib, limits.memory_high_percent) = (mib, percent);
            })
        },
    },
    KeyRule {
        name: "login_tasks",
        form: "a number, 16 to 4194304",
        default: "",
        store: |config, value| {
            store_limit(config, parse_decimal(value), |limits, tasks| {
                limits.tasks = tasks
            })
        },
    },
    KeyRule {
        name: "login_cpu_weight",
        form: WEIGHT,
        default: "",
        store: |config, value| {
            store_limit(config, parse_decimal(value), |limits, weight| {
                limits.cpu_weight = weight
            })
        },
    },
    KeyRule {
        name: "login_io_weight",
        form: WEIGHT,
        default: "",
        store: |config, value| {
            store_limit(config, parse_decimal(value), |limits, weight| {
                limits.io_weight = weight
            })
        },
    },
    KeyRule {
        name: "end_grace",
        form: "a number of seconds, 0 to 60",
        default: "2",
        store: |config, value| {
            let fits = |seconds: &u32| *seconds <= END_GRACE_SECONDS_MAX.into();
            store(&mut config.end_grace, parse_decimal(value).filter(fits))
        },
    },
    KeyRule {
        name: "exempt_uids",
        form: "a list of numbers",
        default: "",
        store: |config, value| store(&mut config.exempt_uids, parse_list(value, parse_decimal)),
    },
    KeyRule {
        name: "exempt_groups",
        form: "a list of names of groups",
        default: "",
        store: |config, value| store(&mut config.exempt_groups, parse_list(value, parse_group)),
    },
    KeyRule {
        name: "flux_user",
        form: "the name or number of an account",
        default: DEFAULT_FLUX_USER,
        store: |config, value| store(&mut config.flux_user, parse_account(value)),
    },
    KeyRule {
        name: "callerid_networks",
        form: "a list of networks",
        default: "",
        store: |config, value| {
            parse_entries(value, Network::from_str)
                .map(|networks| config.callerid_networks = networks)
        },
    },
    KeyRule {
        name: "callerid_timeout",
        form: "a number of milliseconds, 10 to 2000",
        default: "300",
        store: |config, value| {
            let millis = parse_decimal(value).filter(|millis| CALLERID_TIMEOUT_MS.contains(millis));
            store(
                &mut config.callerid_timeout,
                millis.map(|millis| Duration::from_millis(millis.into())),
            )
        },
    },
    KeyRule {
        name: "notice",
        form: "none or a list of minutes, 1 to 1440",
        default: "15, 5, 1",
        store: |config, value| store(&mut config.notice, parse_notice(value)),
    },
    KeyRule {
        name: "message_file",
        form: ABSOLUTE_PATH,
        default: "",
        store: |config, value| store(&mut config.message_file, parse_path(value).map(Some)),
    },
    KeyRule {
        name: "hint",
        form: "ASCII text of at most 64 characters",
        default: "",
        store: |config, value| {
            let fits = value.is_ascii() && value.len() <= 64;
            store(&mut config.hint, fits.then(|| Some(value.to_owned())))
        },
    },
];

/// Stores a parsed value in its field; `None` stands for one of the wrong form.
fn store<T>(place: &mut T, value: Option<T>) -> Result<(), ValueError> {
    *place = value.ok_or(ValueError::WrongForm)?;
    Ok(())
}

/// Stores a limit of logins. It refuses a value that could not be parsed, one out of range, and 0, which stands for
/// "no limit" inside and which nobody may write.
fn store_limit<T: PartialEq + Default>(
    config: &mut Config,
    value: Option<T>,
    set: impl Fn(&mut LoginLimits, T),
) -> Result<(), ValueError> {
    let value = value
        .filter(|value| *value != T::default())
        .ok_or(ValueError::WrongForm)?;
    set(&mut config.login_limits, value);
    if config.login_limits.is_valid() {
        Ok(())
    } else {
        Err(ValueError::WrongForm)
    }
}

/// Tells whether a name is a known one in another case or with `-` for `_`, or with one character wrong, missing or too
/// many.
fn is_similar(known: &str, name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    // What differs lies between a common beginning and a common end.
    let same_front = known
        .bytes()
        .zip(name.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let known_rest = known.as_bytes().get(same_front..).unwrap_or_default();
    let name_rest = name.as_bytes().get(same_front..).unwrap_or_default();
    let backwards = known_rest.iter().rev().zip(name_rest.iter().rev());
    let same_back = backwards.take_while(|(a, b)| a == b).count();
    known_rest.len().max(name_rest.len()) - same_back <= 1
}

/// A line of the file.
enum ConfigLine<'a> {
    /// Nothing but a comment.
    Empty,
    /// The name of a section, which goes to the end of the file.
    Section(&'a str),
    /// A key and its value, or a name and its devices.
    Pair(&'a str, &'a str),
}

/// Parses a line: nothing, `[SECTION]`, or `KEY = VALUE`. Its comment may be in any encoding, the rest must be UTF-8.
fn parse_line(line: &[u8]) -> Result<ConfigLine<'_>, ConfigFault> {
    let text = std::str::from_utf8(without_comment(line))
        .map_err(|_| ConfigFault::NotUtf8)?
        .trim();
    if text.is_empty() {
        return Ok(ConfigLine::Empty);
    }
    let section = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(section) = section {
        return Ok(ConfigLine::Section(section.trim()));
    }
    let (key, value) = text.split_once('=').ok_or(ConfigFault::NoPair)?;
    Ok(ConfigLine::Pair(key.trim(), value.trim()))
}

/// Cuts a line before its comment: a `#` at its beginning or after a blank.
fn without_comment(line: &[u8]) -> &[u8] {
    if line.starts_with(b"#") {
        return b"";
    }
    let comment = line
        .windows(2)
        .position(|pair| matches!(pair, b" #" | b"\t#"));
    comment.and_then(|blank| line.get(..blank)).unwrap_or(line)
}

/// Parses a list of sources; `None` if one is unknown or there twice.
fn parse_sources(value: &str) -> Option<Vec<SourceName>> {
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

/// Parses `always`, which gives `Some(None)`, or `if-exists:PATH`; `None` for any other value.
fn parse_enforce(value: &str) -> Option<Option<PathBuf>> {
    match value {
        "always" => Some(None),
        value => value
            .strip_prefix("if-exists:")
            .and_then(parse_path)
            .map(Some),
    }
}

/// Parses a size or a percentage: returns MiB and percent, of which one is 0. `None` for a value of another form or
/// too large a size. [`store_limit`] checks the ranges.
fn parse_memory(value: &str) -> Option<(u32, u32)> {
    if let Some(percent) = value.strip_suffix('%') {
        return Some((0, parse_decimal(percent)?));
    }
    for (unit, mib) in [('M', 1), ('G', 1 << 10), ('T', 1 << 20)] {
        if let Some(number) = value.strip_suffix(unit) {
            return Some((parse_decimal(number)?.checked_mul(mib)?, 0));
        }
    }
    None
}

/// Parses `none`, which gives an empty list, or a list of minutes; `None` for any other value.
fn parse_notice(value: &str) -> Option<Vec<u32>> {
    if value == "none" {
        return Some(Vec::new());
    }
    parse_list(value, |entry| {
        parse_decimal(entry).filter(|minutes| NOTICE_MINUTES.contains(minutes))
    })
}

/// Parses the name of the node in Slurm, of which the names of sockets are made; `None` for a text that cannot be
/// one.
fn parse_host_name(value: &str) -> Option<String> {
    let name = value.parse::<NodeName>().ok()?;
    Some(name.to_string())
}

/// Parses the name or number of an account; `None` for a text that can be neither.
fn parse_account(value: &str) -> Option<String> {
    let fits = !value.is_empty() && value.len() <= 64 && !value.contains([' ', ':', '/']);
    fits.then(|| value.to_owned())
}

/// Parses the name of a group; `None` for a text that cannot be one. The names of groups in directories may have
/// blanks.
fn parse_group(value: &str) -> Option<String> {
    let fits = !value.contains(char::is_control) && value.len() <= GROUP_BYTES_MAX;
    (fits && !value.is_empty() && !value.contains([':', '/'])).then(|| value.to_owned())
}

/// Parses an absolute path; `None` for any other text.
fn parse_path(value: &str) -> Option<PathBuf> {
    value.starts_with('/').then(|| PathBuf::from(value))
}

/// Parses each entry of a list; `None` if one is invalid.
fn parse_list<T>(value: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    value.split(',').map(|entry| read(entry.trim())).collect()
}

/// Parses each entry of a list; the error names the first invalid entry.
fn parse_entries<T, E: fmt::Display>(
    value: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, ValueError> {
    let mut entries = Vec::new();
    for text in value.split(',').map(str::trim) {
        let entry =
            parse(text).map_err(|why| ValueError::InvalidEntry(shorten(text), why.to_string()))?;
        entries.push(entry);
    }
    Ok(entries)
}

/// Shortens a key or an entry for a message.
fn shorten(key: &str) -> String {
    printable(key).chars().take(SHOWN_CHARACTERS_MAX).collect()
}

string_enum! {
    /// The containment of logins to Slurm jobs.
    #[derive(Default)]
    SlurmDevices {
        /// Slurm's own filter.
        #[default]
        Inherit = "inherit",
        /// Slurm's own filter, and a list of the standard devices, all of Slurm's generic resources,
        /// and `always_allowed`.
        Closed = "closed",
    }
}

string_enum! {
    /// The variables of a job's environment that its logins get.
    #[derive(Default)]
    JobEnvironment {
        /// No variables.
        None = "none",
        /// The job's id, in the variable of its scheduler.
        #[default]
        Id = "id",
        /// The job's id, and the GPUs that the login can open.
        Gpus = "gpus",
        /// Besides, all variables of the job that a login may have.
        Full = "full",
    }
}

impl JobEnvironment {
    /// Tells whether a login gets the GPUs that it can open.
    pub fn names_gpus(self) -> bool {
        matches!(self, Self::Gpus | Self::Full)
    }
}

/// What is wrong with a line of the configuration. Keys and entries are printable and shortened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigFault {
    /// The line is in another encoding.
    #[error("not UTF-8")]
    NotUtf8,
    /// The line has no `=`.
    #[error("not of the form key = value")]
    NoPair,
    /// No key has this name; a known one may be similar.
    #[error("unknown key {0}{hint}", hint = describe_similar(*.1))]
    UnknownKey(String, Option<&'static str>),
    /// There is no such section, or it stands twice.
    #[error("section [{0}]: only [devices] is known, once")]
    UnknownSection(String),
    /// A site's name of devices has other characters than it may.
    #[error("{0:?} is no name of devices: lower-case letters, digits, _, -, . and :, and not hpc")]
    InvalidName(String),
    /// A key stands among the site's names of devices, where it would have no effect.
    #[error("{0} is a key: it stands above [devices]")]
    KeyAsName(String),
    /// An earlier line has this key.
    #[error("key {0} stands twice")]
    RepeatedKey(String),
    /// The value of this key has another form than this one.
    #[error("the value of {0} is not {1}")]
    WrongForm(String, &'static str),
    /// In the list of this key, this entry is invalid, for this reason.
    #[error("entry {1:?} of {0}: {2}")]
    InvalidEntry(String, String, String),
}

/// The question whether another key was meant; empty if none is similar.
fn describe_similar(known: Option<&str>) -> String {
    known
        .map(|known| format!(", did you mean {known}?"))
        .unwrap_or_default()
}

/// Why the configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The file is missing or not trusted.
    #[error("{0}")]
    UntrustedFile(TrustError),
    /// A line of the file is malformed: the file, the line's number, and the fault.
    #[error("{path}:{1}: {2}", path = .0.display())]
    InvalidLine(PathBuf, usize, ConfigFault),
}

#[cfg(test)]
mod tests;
