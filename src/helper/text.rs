//! Texts of others, made safe to show.

use kernel::log::is_disruptive;

/// Replaces each character of an untrusted text that the log replaces as well by `?`, so that the text
/// stays on one line, in its order.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_disruptive(c) { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::text::printable;

    #[test]
    fn printable_text_stays_on_one_line() {
        assert_eq!(printable("a\u{e4}\n\u{1b}[1m\u{9b}"), "a\u{e4}??[1m?");
        let reordered = "a\u{61c}\u{200f}\u{2028}\u{202e}\u{2066}\u{feff}b";
        assert_eq!(printable(reordered), "a??????b");
    }
}
