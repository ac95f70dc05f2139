//! `containerEdits`: what is of use on the node is kept, the rest is checked and dropped.

use super::SpecError;
use super::Version;
use super::container;
use super::fields::{Fields, number, some_text};
use super::{Edits, NodeEdit, NodeKind};
use crate::devices::cdi::document::{Value, quoted};
use protocol::{Access, MAJOR_MAX, MINOR_MAX};

/// Bytes of a path without the NUL at its end (`PATH_MAX`, limits.h).
const PATH_BYTES_MAX: usize = 4095;

/// Reads edits; `None` where they say nothing at all.
pub(super) fn edits(value: Value, version: Version) -> Result<Option<Edits>, SpecError> {
    Fields::read(value, |fields| {
        let nodes = fields.list("deviceNodes", |value| node(value, version))?;
        let env = fields.list("env", variable)?;
        let gids = gids(fields, version)?;
        let more = container::edits(fields, version)?;
        let something = more || !(nodes.is_empty() && env.is_empty() && gids.is_empty());
        Ok(something.then_some(Edits { nodes }))
    })
}

/// `additionalGids`, which the text of version 0.8.0 spells in another way too.
fn gids(fields: &mut Fields, version: Version) -> Result<Vec<u32>, SpecError> {
    let gid = |value| {
        version.has(Version::V0_7, "the key")?;
        number(value, u32::MAX)
    };
    let gids = fields.list("additionalGids", gid)?;
    let other = fields.list("additionalGIDs", gid)?;
    match (gids.is_empty(), other.is_empty()) {
        (false, false) => Err(SpecError::rule("both additionalGids and additionalGIDs")),
        (true, _) => Ok(other),
        (false, true) => Ok(gids),
    }
}

/// `NAME=VALUE`. A NUL or the end of a line would end the variable where it is handed on.
pub(super) fn variable(value: Value) -> Result<(), SpecError> {
    let text = value.into_text()?;
    if text.contains(['\0', '\n']) {
        return Err(SpecError::rule(format_args!("{} has a control character", quoted(&text))));
    }
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(()),
        _ => Err(SpecError::rule(format_args!("{} is not NAME=VALUE", quoted(&text)))),
    }
}

fn node(value: Value, version: Version) -> Result<NodeEdit, SpecError> {
    Fields::read(value, |fields| {
        let host_path = |value: Value| match &value {
            // Generators write this for no other path.
            Value::Text(text) if text.is_empty() => Ok(None),
            _ => version.has(Version::V0_5, "the key").and_then(|()| path(value).map(Some)),
        };
        for unused in ["fileMode", "uid", "gid"] {
            fields.value(unused, |value| number(value, u32::MAX))?;
        }
        Ok(NodeEdit {
            path: fields.required("path", path)?,
            host_path: fields.value("hostPath", host_path)?.flatten(),
            kind: fields.value("type", kind)?.flatten(),
            major: fields.value("major", |value| number(value, MAJOR_MAX))?,
            minor: fields.value("minor", |value| number(value, MINOR_MAX))?,
            access: fields.value("permissions", access)?.flatten(),
        })
    })
}

/// A path that names the same file wherever it is read from. The specification asks for less: it
/// wants it not empty.
fn path(value: Value) -> Result<String, SpecError> {
    let path = some_text(value)?;
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
    Err(SpecError::rule(format_args!("path {} {fault}", quoted(&path))))
}

fn kind(value: Value) -> Result<Option<NodeKind>, SpecError> {
    match value.into_text()?.as_str() {
        "" => Ok(None),
        "b" => Ok(Some(NodeKind::Block)),
        "c" | "u" => Ok(Some(NodeKind::Char)),
        "p" => Ok(Some(NodeKind::Fifo)),
        odd => Err(SpecError::rule(format_args!("{} is not one of b, c, u, p", quoted(odd)))),
    }
}

/// Letters out of `rwm`, or the word `none`; an empty text says nothing, as an absent one.
fn access(value: Value) -> Result<Option<Access>, SpecError> {
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
    let odd =
        || SpecError::rule(format_args!("{} is neither letters of rwm nor none", quoted(&text)));
    set.map(Some).ok_or_else(odd)
}
