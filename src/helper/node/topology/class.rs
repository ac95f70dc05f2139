//! The names of nodes that programs compute through: DRM render nodes and accelerators.

use protocol::parse_decimal;

/// Tells whether a name is that of a DRM render node.
pub(super) fn is_render(name: &str) -> bool {
    is_numbered(name, "renderD")
}

/// Tells whether a name is that of an accelerator's node.
pub(super) fn is_accel(name: &str) -> bool {
    is_numbered(name, "accel")
}

/// Tells whether programs compute through a node of this name.
pub(super) fn is_render_or_accel(name: &str) -> bool {
    is_render(name) || is_accel(name)
}

/// Tells whether a name is that of a card node, which reaches the whole card.
pub(super) fn is_card(name: &str) -> bool {
    is_numbered(name, "card")
}

/// Parses the minor in the name of a render node; `None` for another name.
pub(super) fn render_minor(name: &str) -> Option<u32> {
    name.strip_prefix("renderD").and_then(parse_decimal)
}

/// Tells whether a name is the prefix and a decimal number.
fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}
