//! Words of command lines that people paste.

use std::fmt::Display;
use std::path::Path;

/// Quotes a word for the shell, unless it has no character that means anything there.
pub fn shell_word(word: impl Display) -> String {
    let word = word.to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word;
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A path as a word for the shell.
pub fn shell_path(path: &Path) -> String {
    shell_word(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_shell_if_they_have_to_be() {
        for (word, quoted) in [
            ("/etc/pam.d/sshd", "/etc/pam.d/sshd"),
            (
                r"run-job\x2dadopt-use.mount",
                r"'run-job\x2dadopt-use.mount'",
            ),
            ("it's", r"'it'\''s'"),
            ("a b", "'a b'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }
}
