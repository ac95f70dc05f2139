//! The arguments of our lines: those given by the admin, and those that the old lines agree on.

use super::refusal::Refusal;
use helper::stack::{Entry, parse_lines};

/// Splits a text into arguments as libpam splits a line: at blanks, and `[…]` is one argument.
///
/// # Errors
///
/// [`Refusal`] if libpam would read a part of it as a comment or as another line.
pub(super) fn split(text: &str) -> Result<Vec<String>, Refusal> {
    // The parser takes whole lines, of which the arguments are the words from the fourth on.
    let lines = parse_lines(&format!("account required module {text}"));
    match lines.as_deref() {
        Some([line]) if !text.contains('#') => Ok(line.words.get(3..).unwrap_or_default().to_vec()),
        _ => Err(Refusal::from(format!(
            "arguments {text}: a PAM line cannot have #, a line break or a last \\"
        ))),
    }
}

/// Joins arguments to the text of a PAM line, with brackets around those that have blanks.
///
/// # Errors
///
/// [`Refusal`], which names an argument that no PAM line can have.
pub(super) fn join(words: &[String]) -> Result<String, Refusal> {
    let mut quoted = Vec::new();
    for word in words {
        // Bytes of the file that are no UTF-8 were replaced by this character.
        if word.contains(char::REPLACEMENT_CHARACTER) {
            let why = format!("argument {word}: is no UTF-8; give it by --arguments");
            return Err(Refusal::from(why));
        }
        let text = if word.contains([' ', '\t']) || word.starts_with('[') {
            format!("[{}]", word.replace(']', "\\]"))
        } else {
            word.clone()
        };
        // libpam must read exactly this argument from the text.
        if split(&text).ok().as_deref() != Some(std::slice::from_ref(word)) {
            let why = format!("argument {word}: cannot be written in a PAM line");
            return Err(Refusal::from(why));
        }
        quoted.push(text);
    }
    Ok(quoted.join(" "))
}

/// Chooses the arguments of our lines: those of the old lines, in which all of these must agree, and then the `given`
/// ones, which replace those of the same name. Without old lines they are the given ones.
///
/// # Errors
///
/// [`Refusal`] with what to write, if the old lines differ in an argument that is not given. Each decides
/// about its own part of the logins, so the arguments of one are no answer for the others.
pub(super) fn merge(old_lines: &[&Entry], given: &[String]) -> Result<Vec<String>, Refusal> {
    let Some((first, others)) = old_lines.split_first() else {
        return Ok(given.to_vec());
    };
    let taken = not_given(first, given);
    for other in others {
        let others_words = not_given(other, given);
        if sorted(&others_words) == sorted(&taken) {
            continue;
        }
        return Err(Refusal::from(format!(
            "{} at {} has {}, and at {} {}: each line decides by its own arguments, and ours are \
             taken over only if all have the same. Run this again with --arguments '{}', or with what \
             your site means",
            first.file(),
            first.place,
            shown(&taken),
            other.place,
            shown(&others_words),
            propose(old_lines, given)
        )));
    }
    Ok(taken.into_iter().chain(given.iter().cloned()).collect())
}

/// The arguments of a line whose names are not among the given ones.
fn not_given(line: &Entry, given: &[String]) -> Vec<String> {
    let mut words = line.arguments.clone();
    words.retain(|word| given.iter().all(|other| name(other) != name(word)));
    words
}

/// Proposes a text for `--arguments` if old lines differ: the given ones and, for each name in which the lines differ,
/// the strictest action, or the value of the last line that has the name.
fn propose(old_lines: &[&Entry], given: &[String]) -> String {
    let mut all: Vec<String> = old_lines
        .iter()
        .flat_map(|line| not_given(line, given))
        .collect();
    all.sort();
    all.dedup();
    let mut proposed = given.to_vec();
    for word in all {
        let is_common = old_lines.iter().all(|line| line.arguments.contains(&word));
        let key = name(&word);
        // What all lines have is taken over without being given.
        if is_common || proposed.iter().any(|other| name(other) == key) {
            continue;
        }
        if key.starts_with("action_") {
            proposed.push(format!("{key}=deny"));
            continue;
        }
        let mut from_last = old_lines.iter().rev().flat_map(|line| &line.arguments);
        let last = from_last.find(|other| name(other) == key);
        proposed.push(last.cloned().unwrap_or(word));
    }
    // If they cannot be written in a PAM line, the text is an example.
    join(&proposed).unwrap_or_else(|_| "action_no_jobs=deny".to_owned())
}

/// The part of an argument up to its value, in lower case: old lines may have it in any case.
pub(super) fn name(word: &str) -> String {
    word.split('=')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase()
}

fn sorted(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    words.sort();
    words
}

fn shown(words: &[String]) -> String {
    if words.is_empty() {
        "no arguments".to_owned()
    } else {
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn arguments_with_blanks_have_brackets() {
        for (text, expected) in [
            ("", &[][..]),
            ("timeout=9\t debug", &["timeout=9", "debug"]),
            (
                "[conf=/etc/site hpc/x.conf] debug",
                &["conf=/etc/site hpc/x.conf", "debug"],
            ),
            (
                "[exempt_groups=hpc admins@ad.example,ops]",
                &["exempt_groups=hpc admins@ad.example,ops"],
            ),
            ("[exempt_groups=a\\]b c]", &["exempt_groups=a]b c"]),
        ] {
            assert_eq!(split(text).unwrap(), words(expected), "{text}");
            assert_eq!(
                split(&join(&words(expected)).unwrap()).unwrap(),
                words(expected),
                "{text}"
            );
        }
        assert_eq!(join(&words(&["conf=/a b", "x"])).unwrap(), "[conf=/a b] x");
    }

    #[test]
    fn text_that_no_line_can_have_is_refused() {
        for text in ["a#b", "a\nb", "a \\", "[a #b]"] {
            assert!(split(text).is_err(), "{text}");
        }
        for word in ["a#b", "a b\\", "a\nb", "", "a\u{fffd}"] {
            assert!(join(&words(&[word])).is_err(), "{word}");
        }
    }
}
