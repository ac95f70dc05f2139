//! How a line of the configuration reads, and values that are written as text.

use std::path::PathBuf;

use super::{Enforce, Fault};
use crate::callerid::{Network, NetworkError};
use crate::device::{Specifier, SpecifierError};
use crate::legible::legible;
use crate::plan::SourceName;

/// Most characters of a key in a message.
const KEY_SHOWN: usize = 64;

/// Key and value of a line; `None` for one that is empty but for a comment.
pub(super) fn pair(line: &[u8]) -> Result<Option<(&str, &str)>, Fault> {
    let line = std::str::from_utf8(line).map_err(|_| Fault::Encoding)?;
    let line = without_comment(line).trim();
    if line.is_empty() {
        return Ok(None);
    }
    let (key, value) = line.split_once('=').ok_or(Fault::Form)?;
    Ok(Some((key.trim(), value.trim())))
}

/// The line up to a `#` that stands at its beginning or after a blank.
fn without_comment(line: &str) -> &str {
    let start = line.match_indices('#').map(|(at, _)| at).find(|&at| {
        line.get(..at).is_some_and(|before| before.is_empty() || before.ends_with([' ', '\t']))
    });
    start.and_then(|at| line.get(..at)).unwrap_or(line)
}

pub(super) fn sources(value: &str) -> Option<Vec<SourceName>> {
    let mut sources = Vec::new();
    for name in value.split(',') {
        let source = SourceName::ALL.into_iter().find(|source| source.as_str() == name.trim())?;
        if sources.contains(&source) {
            return None;
        }
        sources.push(source);
    }
    Some(sources)
}

pub(super) fn enforce(value: &str) -> Option<Enforce> {
    if value == "always" {
        return Some(Enforce::Always);
    }
    value.strip_prefix("if-exists:").and_then(path).map(Enforce::IfExists)
}

pub(super) fn specifier(text: &str) -> Result<Specifier, (String, String)> {
    text.parse().map_err(|error: SpecifierError| (shown(text), error.to_string()))
}

pub(super) fn network(text: &str) -> Result<Network, (String, String)> {
    text.parse().map_err(|error: NetworkError| (shown(text), error.to_string()))
}

pub(super) fn is_of_host_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

/// A name of an account or a group.
pub(super) fn account(value: &str) -> Option<String> {
    let fits = !value.is_empty() && value.len() <= 64 && !value.contains([' ', ':', '/']);
    fits.then(|| value.to_owned())
}

pub(super) fn path(value: &str) -> Option<PathBuf> {
    value.starts_with('/').then(|| PathBuf::from(value))
}

/// A key or an entry as a message shows it.
pub(super) fn shown(key: &str) -> String {
    legible(key).chars().take(KEY_SHOWN).collect()
}
