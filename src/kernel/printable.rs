//! Texts of others, made fit for one line that a person reads.

#![forbid(unsafe_code)]

/// The text with `?` for control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_its_line() {
        assert_eq!(printable("a\u{e4}\n\u{1b}[1m\u{9b}"), "a\u{e4}??[1m?");
    }
}
