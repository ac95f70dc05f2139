//! Parses `containerEdits`: keeps the device nodes, and checks and drops the rest.

use super::SpecError;
use super::Version;
use super::container;
use super::fields::{Fields, nonempty_text, number_up_to};
use super::{Edits, NodeEdit, NodeKind};
use crate::devices::cdi::document::{Value, quote};
use protocol::{Access, MAJOR_MAX, MINOR_MAX};

/// Maximum bytes of a path without its final NUL (`PATH_MAX`, limits.h).
const PATH_BYTES_MAX: usize = 4095;

/// Parses edits; `None` if they are empty.
pub(super) fn parse_edits(value: Value, version: Version) -> Result<Option<Edits>, SpecError> {
    Fields::parse(value, |fields| {
        let nodes = fields.list("deviceNodes", |value| parse_node(value, version))?;
        let env = fields.list("env", check_variable)?;
        let gids = parse_gids(fields, version)?;
        let has_others = container::check_edits(fields, version)?;
        let is_empty = nodes.is_empty() && env.is_empty() && gids.is_empty() && !has_others;
        Ok((!is_empty).then_some(Edits { nodes }))
    })
}

/// Parses `additionalGids`. The text of version 0.8.0 also spells it `additionalGIDs`.
fn parse_gids(fields: &mut Fields, version: Version) -> Result<Vec<u32>, SpecError> {
    let gid = |value| {
        version.require(Version::V0_7, "the key")?;
        number_up_to(value, u32::MAX)
    };
    let gids = fields.list("additionalGids", gid)?;
    let other = fields.list("additionalGIDs", gid)?;
    match (gids.is_empty(), other.is_empty()) {
        (false, false) => Err(SpecError::rule("both additionalGids and additionalGIDs")),
        (true, _) => Ok(other),
        (false, true) => Ok(gids),
    }
}

/// Checks `NAME=VALUE`. A NUL or a newline would end the variable early in a runtime.
pub(super) fn check_variable(value: Value) -> Result<(), SpecError> {
    let text = value.into_text()?;
    if text.contains(['\0', '\n']) {
        return Err(SpecError::rule(format_args!("{} has a control character", quote(&text))));
    }
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(()),
        _ => Err(SpecError::rule(format_args!("{} is not NAME=VALUE", quote(&text)))),
    }
}

fn parse_node(value: Value, version: Version) -> Result<NodeEdit, SpecError> {
    Fields::parse(value, |fields| {
        let host_path = |value: Value| match &value {
            // Generators write an empty text if the path is the same.
            Value::Text(text) if text.is_empty() => Ok(None),
            _ => {
                version.require(Version::V0_5, "the key").and_then(|()| parse_path(value).map(Some))
            }
        };
        for unused in ["fileMode", "uid", "gid"] {
            fields.value(unused, |value| number_up_to(value, u32::MAX))?;
        }
        Ok(NodeEdit {
            path: fields.required("path", parse_path)?,
            host_path: fields.value("hostPath", host_path)?.flatten(),
            kind: fields.value("type", parse_kind)?.flatten(),
            major: fields.value("major", |value| number_up_to(value, MAJOR_MAX))?,
            minor: fields.value("minor", |value| number_up_to(value, MINOR_MAX))?,
            access: fields.value("permissions", parse_access)?.flatten(),
        })
    })
}

/// Parses a path that names the same file from every directory. The standard only requires that it
/// is not empty.
fn parse_path(value: Value) -> Result<String, SpecError> {
    let path = nonempty_text(value)?;
    let fault = if path.len() > PATH_BYTES_MAX {
        "too long"
    } else if !path.starts_with('/') {
        "not absolute"
    } else if path.split('/').any(|part| part == "..") {
        "has a part .."
    } else if path.chars().any(char::is_control) {
        "has a control character"
    } else {
        return Ok(path);
    };
    Err(SpecError::rule(format_args!("path {} {fault}", quote(&path))))
}

fn parse_kind(value: Value) -> Result<Option<NodeKind>, SpecError> {
    match value.into_text()?.as_str() {
        "" => Ok(None),
        "b" => Ok(Some(NodeKind::Block)),
        "c" | "u" => Ok(Some(NodeKind::Char)),
        "p" => Ok(Some(NodeKind::Fifo)),
        odd => Err(SpecError::rule(format_args!("{} is not one of b, c, u, p", quote(odd)))),
    }
}

/// Parses letters of `rwm`, or the word `none`. An empty text counts as a missing one.
fn parse_access(value: Value) -> Result<Option<Access>, SpecError> {
    let text = value.into_text()?;
    if text.is_empty() {
        return Ok(None);
    }
    if text == "none" {
        return Ok(Some(Access::NONE));
    }
    let letter = |letter| match letter {
        'r' => Some(Access::READ),
        'w' => Some(Access::WRITE),
        'm' => Some(Access::MKNOD),
        _ => None,
    };
    let set = text.chars().try_fold(Access::NONE, |set, c| letter(c).map(|bit| set.union(bit)));
    let invalid =
        || SpecError::rule(format_args!("{} is neither letters of rwm nor none", quote(&text)));
    set.map(Some).ok_or_else(invalid)
}
