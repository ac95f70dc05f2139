//! Whether logins can use a configuration.

use command::accounts::{RightsError, with_helper_rights_if_any};
use helper::{Config, ConfigError};
use kernel::trust::Trust;
use std::path::Path;

/// Why it is not sure that logins can use the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFault {
    /// Logins are refused for it.
    #[error("{0}")]
    Unusable(#[from] ConfigError),
    /// It could not be read with a login's rights, so nothing is known.
    #[error("{0}")]
    Unread(RightsError),
}

/// Requires that logins can use the configuration at `conf`: on this node, whose root is `/`, it is read with the rights of
/// the helper's account if there is that account.
///
/// # Errors
///
/// As [`Config::read`]; [`ConfigFault::Unread`] if it cannot be read so.
pub fn require_configuration(conf: &Path, trust: &Trust, root: &Path) -> Result<(), ConfigFault> {
    let read = || Config::read(conf, trust).map(drop);
    let result = if root == Path::new("/") {
        with_helper_rights_if_any(read).map_err(ConfigFault::Unread)?
    } else {
        read()
    };
    Ok(result?)
}

/// Describes why logins cannot use the configuration, and what becomes of them, or that it is not known.
pub fn describe_fault(fault: &ConfigFault) -> String {
    let state = match fault {
        ConfigFault::Unread(error) => {
            return format!("could not be read as a login reads it: {error}");
        }
        ConfigFault::Unusable(ConfigError::UntrustedFile(_)) => "cannot be used",
        ConfigFault::Unusable(ConfigError::InvalidLine(..)) => "has a mistake",
    };
    format!("{state}, so every login is refused (JA09): {fault}")
}
