//! Parses `containerEdits`: keeps the device nodes, checks the rest, and keeps what to name of it.

use super::container;
use super::fields::{Fields, nonempty_text, number_up_to};
use super::version::Version;
use crate::cdi::document::{Value, quote};
use crate::cdi::error::SpecError;
use helper::node::ContainerParts;
use protocol::{Access, MAJOR_MAX, MINOR_MAX};

/// The parts of `containerEdits` that matter on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// `deviceNodes`.
    pub nodes: Vec<NodeEdit>,
    /// What only a container gets.
    pub container: ContainerParts,
}

/// An element of `deviceNodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEdit {
    /// The node's path in a container.
    pub path: String,
    /// The node's path on the host, if it differs.
    pub host_path: Option<String>,
    /// The type in the file.
    pub kind: Option<NodeKind>,
    /// The major in the file, 0 to 4095.
    pub major: Option<u32>,
    /// The minor in the file, 0 to 1048575.
    pub minor: Option<u32>,
    /// `permissions`. `None` grants all accesses, the empty set none.
    pub access: Option<Access>,
}

/// `type` of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// `b`
    Block,
    /// `c` and `u`, which are the same to the kernel (mknod(1)).
    Char,
    /// `p`. A FIFO is no device.
    Fifo,
}

/// Maximum bytes of a path without its final NUL (`PATH_MAX`, limits.h).
const PATH_BYTES_MAX: usize = 4095;

/// Parses edits; `None` if they are empty.
pub(super) fn parse_edits(edits: Value, version: Version) -> Result<Option<Edits>, SpecError> {
    Fields::parse(edits, |fields| {
        let nodes = fields.list("deviceNodes", |value| parse_node(value, version))?;
        let sets_node_modes = nodes.iter().any(|(_, sets_mode)| *sets_mode);
        let env = fields.list("env", container::check_variable)?;
        let gids = parse_gids(fields, version)?;
        let (has_others, parts) = container::check_edits(fields, version)?;
        let is_empty = nodes.is_empty() && env.is_empty() && gids.is_empty() && !has_others;
        let container = ContainerParts {
            // The standard ignores the group 0.
            gids: gids.into_iter().filter(|gid| *gid != 0).collect(),
            variables: env.into_iter().collect(),
            sets_node_modes,
            ..parts
        };
        let nodes = nodes.into_iter().map(|(node, _)| node).collect();
        Ok((!is_empty).then_some(Edits { nodes, container }))
    })
}

/// Parses `additionalGids`. The text of version 0.8.0 also spells it `additionalGIDs`.
fn parse_gids(fields: &mut Fields, version: Version) -> Result<Vec<u32>, SpecError> {
    let gids = fields.list("additionalGids", |value| parse_gid(value, version))?;
    let other = fields.list("additionalGIDs", |value| parse_gid(value, version))?;
    if !gids.is_empty() && !other.is_empty() {
        return Err(SpecError::rule("both additionalGids and additionalGIDs"));
    }
    Ok(if gids.is_empty() { other } else { gids })
}

/// Parses the number of a group.
fn parse_gid(value: Value, version: Version) -> Result<u32, SpecError> {
    version.require(Version::V0_7, "the key")?;
    number_up_to(value, u32::MAX)
}

/// Parses an element of `deviceNodes`, and tells whether it sets the mode or owner of the node in a container; these are
/// checked and dropped. A text that is empty counts as a missing one, except for the path.
fn parse_node(node: Value, version: Version) -> Result<(NodeEdit, bool), SpecError> {
    Fields::parse(node, |fields| {
        let mut sets_mode = false;
        for unused in ["fileMode", "uid", "gid"] {
            let value = fields.value(unused, |value| number_up_to(value, u32::MAX))?;
            sets_mode |= value.is_some();
        }
        let edit = NodeEdit {
            path: fields.required("path", parse_path)?,
            host_path: fields
                .value("hostPath", |value| parse_host_path(value, version))?
                .flatten(),
            kind: fields.value("type", parse_kind)?.flatten(),
            major: fields.value("major", |value| number_up_to(value, MAJOR_MAX))?,
            minor: fields.value("minor", |value| number_up_to(value, MINOR_MAX))?,
            access: fields.value("permissions", parse_access)?.flatten(),
        };
        Ok((edit, sets_mode))
    })
}

/// Parses the path on the host; `None` for an empty text, which generators write if it is the same.
fn parse_host_path(value: Value, version: Version) -> Result<Option<String>, SpecError> {
    if matches!(&value, Value::Text(text) if text.is_empty()) {
        return Ok(None);
    }
    version.require(Version::V0_5, "the key")?;
    parse_path(value).map(Some)
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
    Err(SpecError::rule(format_args!(
        "path {} {fault}",
        quote(&path)
    )))
}

/// Parses the type of a node; `None` for an empty text, which counts as a missing one.
fn parse_kind(value: Value) -> Result<Option<NodeKind>, SpecError> {
    match value.into_text()?.as_str() {
        "" => Ok(None),
        "b" => Ok(Some(NodeKind::Block)),
        "c" | "u" => Ok(Some(NodeKind::Char)),
        "p" => Ok(Some(NodeKind::Fifo)),
        odd => Err(SpecError::rule(format_args!(
            "{} is not one of b, c, u, p",
            quote(odd)
        ))),
    }
}

/// Parses letters of `rwm`, or the word `none`; `None` for an empty text, which counts as a missing one and so grants
/// all accesses.
fn parse_access(value: Value) -> Result<Option<Access>, SpecError> {
    let text = value.into_text()?;
    if text.is_empty() {
        return Ok(None);
    }
    if text == "none" {
        return Ok(Some(Access::NONE));
    }
    let mut set = Access::NONE;
    for letter in text.chars() {
        set = set.union(match letter {
            'r' => Access::READ,
            'w' => Access::WRITE,
            'm' => Access::MKNOD,
            _ => {
                let text = quote(&text);
                let why = format!("{text} is neither letters of rwm nor none");
                return Err(SpecError::rule(why));
            }
        });
    }
    Ok(Some(set))
}
