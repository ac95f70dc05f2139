//! The options and values that several commands take.

use crate::error::Error;
use clap::Args;
use helper::Config;
use kernel::trust::Trust;
use protocol::Request;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Longest wait for a lock, for processes to end, and for systemd to move one.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The option that names the configuration.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Conf {
    /// Configuration in place of /etc/security/job_adopt.conf
    #[arg(long, value_name = "FILE", value_parser = parse_absolute_path)]
    conf: Option<PathBuf>,
}

impl Conf {
    /// The path of the configuration. The default file may be missing.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the file of the option is missing.
    pub fn path(&self) -> Result<PathBuf, Error> {
        Ok(self
            .option()?
            .unwrap_or_else(|| PathBuf::from(Request::DEFAULT_CONF)))
    }

    /// The path that the option names; `None` without the option.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the file of the option is missing.
    pub fn option(&self) -> Result<Option<PathBuf>, Error> {
        let Some(path) = &self.conf else {
            return Ok(None);
        };
        match std::fs::symlink_metadata(path) {
            Ok(_) => Ok(Some(path.clone())),
            Err(error) => Err(Error::failed("read", path.display(), error)),
        }
    }

    /// Reads the configuration.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a file that others may write, or that has a mistake.
    pub fn read(&self) -> Result<Config, Error> {
        Ok(Config::read(&self.path()?, &Trust::root())?)
    }
}

/// Parses a value of any type.
///
/// # Errors
///
/// The type's error, as text.
pub fn parse_value<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Parses an absolute path.
fn parse_absolute_path(text: &str) -> Result<PathBuf, &'static str> {
    if !text.starts_with('/') {
        return Err("not an absolute path");
    }
    Ok(PathBuf::from(text))
}

/// Parses the name of a PAM service, in small letters as libpam takes it.
///
/// # Errors
///
/// A text, for a name that is no file name or begins with a dot.
pub fn parse_service(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.contains('/') || text.starts_with('.') {
        return Err("not the name of a PAM service");
    }
    Ok(text.to_ascii_lowercase())
}
