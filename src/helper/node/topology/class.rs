//! The names of nodes that programs compute through: DRM render nodes and accelerators.

use protocol::parse_decimal;

pub(super) fn is_render(name: &str) -> bool {
    is_numbered(name, "renderD")
}

pub(super) fn is_accel(name: &str) -> bool {
    is_numbered(name, "accel")
}

pub(super) fn is_render_or_accel(name: &str) -> bool {
    is_render(name) || is_accel(name)
}

/// A card node, which reaches the whole card.
pub(super) fn is_card(name: &str) -> bool {
    is_numbered(name, "card")
}

/// Parses the minor in the name of a render node.
pub(super) fn render_minor(name: &str) -> Option<u32> {
    name.strip_prefix("renderD").and_then(parse_decimal)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}
