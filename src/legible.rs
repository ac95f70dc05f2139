//! Texts of others, made fit for one line that a person reads.

#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

/// Reads a file of the kernel's in which users' own names may stand, of processes or of cgroups:
/// these are bytes, and what is no UTF-8 in them is replaced. The rest of the file can be read all
/// the same, or whoever chose such a name would not be seen.
///
/// # Errors
/// As `read(2)`.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The text with `?` for control characters.
#[must_use]
pub fn legible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let path = std::env::temp_dir().join(format!("legible-{}", std::process::id()));
        std::fs::write(&path, b"7 (a\xff\xc3) S 3").unwrap();
        let text = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.unwrap(), "7 (a\u{fffd}\u{fffd}) S 3");
        assert!(read(&path).is_err());
    }

    #[test]
    fn a_text_stays_on_its_line() {
        assert_eq!(legible("a\u{e4}\n\u{1b}[1m\u{9b}"), "a\u{e4}??[1m?");
    }
}
