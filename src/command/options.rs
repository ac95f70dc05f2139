//! The options and values that several commands take.

use crate::error::Error;
use clap::Args;
use helper::Config;
use helper::jobs::FluxId;
use kernel::trust::Trust;
use protocol::{JobId, Request};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Longest wait for a lock, for processes to end, and for systemd to move one.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest query of Slurm's daemons, and longest walk through Flux's units.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Parses a job's id. An id with Flux's own sign gets the form that is stored.
///
/// # Errors
///
/// The errors of a [`JobId`].
pub fn parse_job_id(text: &str) -> Result<JobId, protocol::InvalidText> {
    let of_flux = text
        .starts_with('\u{192}')
        .then(|| FluxId::parse_job_id(text))
        .flatten();
    of_flux.map_or_else(|| text.parse(), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flux_id_with_sign_is_canonicalized() {
        let parse = |text| parse_job_id(text).map(|id| id.to_string());
        assert_eq!(parse("\u{192}uZZybuNNy"), Ok("fuZZybuNNy".into()));
        for same in ["fuZZybuNNy", "4242", "a.b"] {
            assert_eq!(parse(same), Ok(same.into()));
        }
        for text in ["\u{192}", "\u{192}0", "\u{192}111", "", "a/b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
