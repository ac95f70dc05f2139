//! The meaning of a word without quotes in YAML.
//!
//! Container runtimes read YAML 1.1, in which `0666` is 438, `0x1F` is 31 and `no` is false. If they
//! expect a text, they convert the value of such a word to a text: `name: 0x10` names the device `16`
//! for them. Here a word has the meaning that it has for them, or is refused, so that no device is
//! found by a name that they do not know.

/// Tells whether the word is a null value (YAML 1.1, "Null"; YAML 1.2.2, section 10.3.2).
pub(super) fn is_null(word: &str) -> bool {
    matches!(word, "" | "~" | "null" | "Null" | "NULL")
}

/// Parses a whole number in the forms that generators and people write: decimal (`195`, `-1`), or octal after `0` or
/// `0o` and without a sign (`0666` and `0o666` are 438). `None` for every other word, and for a number of more than 64
/// bits. Words such as `-0666`, `0x1F` and `+1`, which a runtime may read as numbers, are no texts either ([`is_text`]),
/// and so are refused.
pub(super) fn parse_number(word: &str) -> Option<i64> {
    if let Some(octal) = word.strip_prefix("0o") {
        let is_octal = !octal.is_empty() && octal.bytes().all(|byte| byte.is_ascii_digit());
        return is_octal.then(|| i64::from_str_radix(octal, 8).ok())?;
    }
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

/// Tells whether the word means its own text: it is no truth value, and no number except one in its
/// shortest decimal form.
pub(super) fn is_text(word: &str) -> bool {
    const TRUTH_WORDS: [&str; 8] = ["true", "false", "yes", "no", "on", "off", "y", "n"];
    let is_shortest = parse_number(word).is_some_and(|number| number.to_string() == word);
    let is_truth = TRUTH_WORDS
        .iter()
        .any(|truth| word.eq_ignore_ascii_case(truth));
    is_shortest || !(is_truth || may_be_number(word))
}

/// Tells whether a container runtime may read the word as a number, by YAML 1.1 or 1.2.
fn may_be_number(word: &str) -> bool {
    // YAML 1.1 skips each `_` of a number.
    let word = word.to_ascii_lowercase().replace('_', "");
    let magnitude = word.strip_prefix(['-', '+']).unwrap_or(&word);
    let is_in_base = |prefix: &str, base: u32| {
        let digits = magnitude.strip_prefix(prefix).unwrap_or_default();
        !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base))
    };
    // Rust also parses `inf`, `infinity` and `nan`, which are texts in YAML.
    let begins_decimal =
        magnitude.starts_with(|first: char| first == '.' || first.is_ascii_digit());
    let is_decimal = begins_decimal && magnitude.parse::<f64>().is_ok();
    let is_special = matches!(magnitude, ".inf" | ".nan");
    is_decimal || is_special || is_in_base("0x", 16) || is_in_base("0o", 8) || is_in_base("0b", 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parse_in_the_form_of_generators() {
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
            ("0o660", Some(432)),
            ("0o17", Some(15)),
            ("0o8", None),
            ("0o", None),
            ("0o+7", None),
            ("-0o7", None),
            ("0O7", None),
            ("0b1", None),
            ("1_000", None),
            ("+1", None),
            ("1.0", None),
            ("1e3", None),
            ("-", None),
            ("", None),
            ("\u{0661}", None),
        ];
        for (word, number) in numbers {
            assert_eq!(parse_number(word), number, "{word:?}");
        }
    }

    #[test]
    fn word_that_readers_interpret_differently_is_no_text() {
        let odd = [
            "010", "00", "-0", "+1", "0x10", "0o7", "0b1", "1_0", "1.5", "1.", ".5", "1e3", "1E+3",
            ".inf", "-.INF", ".nan", "yes", "No", "ON", "off", "y", "N", "true", "False", "0_1",
        ];
        for word in odd {
            assert!(!is_text(word), "{word:?}");
        }
    }

    #[test]
    fn other_words_are_text() {
        let words = [
            "0",
            "12",
            "-1",
            "0.5.0",
            "GPU-0",
            "1:0",
            "0000-00-02-0-0x56c0",
            "/dev/null",
            "rwm",
            "none",
            "inf",
            "nan",
            "e3",
            "A=1",
            "0x",
            "0xg",
            "noexec",
            "-",
            ".",
            "18446744073709551616x",
        ];
        for word in words {
            assert!(is_text(word), "{word:?}");
        }
    }
}
