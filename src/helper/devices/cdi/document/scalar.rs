//! What a word without quotes means in YAML.
//!
//! Container runtimes read the words of YAML 1.1, where `0666` is 438, `0x1F` is 31 and `no` is
//! false, and where text is wanted they take such a word for the text of its value: `name: 0x10`
//! names the device `16` for them. Here a word means what it means to them or is refused, so that
//! no device is found by a name that they do not know it by.

/// Whether the word stands for no value (YAML 1.1, "Null"; YAML 1.2.2, section 10.3.2).
pub(super) fn is_null(word: &str) -> bool {
    matches!(word, "" | "~" | "null" | "Null" | "NULL")
}

/// The whole number that the word is, in decimal digits, or in octal ones after a `0`.
pub(super) fn number(word: &str) -> Option<i64> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match digits.strip_prefix('0') {
        None | Some("") => word.parse().ok(),
        Some(octal) if digits.len() == word.len() => i64::from_str_radix(octal, 8).ok(),
        Some(_) => None,
    }
}

/// Whether the word as it stands is the text that is meant: no number but one in its shortest
/// decimal form, and no truth value.
pub(super) fn is_text(word: &str) -> bool {
    const TRUTH: [&str; 8] = ["true", "false", "yes", "no", "on", "off", "y", "n"];
    let shortest = number(word).is_some_and(|number| number.to_string() == word);
    let truth = TRUTH.iter().any(|truth| word.eq_ignore_ascii_case(truth));
    shortest || !(truth || is_number_somewhere(word))
}

/// Whether a container runtime may take the word for a number, by YAML 1.1 or 1.2.
fn is_number_somewhere(word: &str) -> bool {
    let word = word.to_ascii_lowercase().replace('_', "");
    let size = word.strip_prefix(['-', '+']).unwrap_or(&word);
    let based = |prefix: &str, base: u32| {
        let digits = size.strip_prefix(prefix).unwrap_or_default();
        !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base))
    };
    let starts_as_one = size.starts_with(|first: char| first == '.' || first.is_ascii_digit());
    let decimal = starts_as_one && size.parse::<f64>().is_ok();
    let special = matches!(size, ".inf" | ".nan");
    decimal || special || based("0x", 16) || based("0o", 8) || based("0b", 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_generators_write_them() {
        let numbers = [
            ("0", Some(0)),
            ("195", Some(195)),
            ("-1", Some(-1)),
            ("0666", Some(438)),
            ("00", Some(0)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("08", None),
            ("-0666", None),
            ("0x1F", None),
            ("0o17", None),
            ("0b1", None),
            ("1_000", None),
            ("+1", None),
            ("1.0", None),
            ("1e3", None),
            ("-", None),
            ("", None),
            ("\u{0661}", None),
        ];
        for (word, number_of) in numbers {
            assert_eq!(number(word), number_of, "{word:?}");
        }
    }

    #[test]
    fn a_word_that_readers_differ_about_is_no_text() {
        let odd = [
            "010", "00", "-0", "+1", "0x10", "0o7", "0b1", "1_0", "1.5", "1.", ".5", "1e3", "1E+3",
            ".inf", "-.INF", ".nan", "yes", "No", "ON", "off", "y", "N", "true", "False", "0_1",
        ];
        for word in odd {
            assert!(!is_text(word), "{word:?}");
        }
    }

    #[test]
    fn any_other_word_is_text() {
        let words = [
            "0", "12", "-1", "0.5.0", "GPU-0", "1:0", "0000-00-02-0-0x56c0", "/dev/null", "rwm",
            "none", "inf", "nan", "e3", "A=1", "0x", "0xg", "noexec", "-", ".",
            "18446744073709551616x",
        ];
        for word in words {
            assert!(is_text(word), "{word:?}");
        }
    }
}
