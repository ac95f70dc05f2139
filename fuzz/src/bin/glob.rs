//! Patterns of names: the first line is a pattern, the second a name.
//!
//! At most 512 bytes: a file name has at most 255.
#![no_main]

use helper::devices::Glob;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (pattern, name) = text.split_once('\n').unwrap_or((text, text));
    let Ok(glob) = Glob::parse(pattern) else {
        return;
    };
    if !Glob::is_wild(pattern) {
        assert_eq!(
            glob.matches(name),
            pattern == name,
            "{pattern:?} is not itself"
        );
    } else if !pattern.contains('[') {
        assert_eq!(
            glob.matches(name),
            expected(pattern, name),
            "{pattern:?} and {name:?}"
        );
    } else if glob.matches(name) {
        if let Ok(wider) = Glob::parse(&format!("*{pattern}")) {
            assert!(
                wider.matches(name),
                "*{pattern:?} stands for less than without the star"
            );
        }
    }
});

/// Returns whether a pattern of `*` and `?` matches a name, character by character: `reached` holds
/// the lengths of the name that the pattern so far matches.
fn expected(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for token in pattern.chars() {
        let mut next = vec![false; name.len() + 1];
        for length in 0..=name.len() {
            next[length] = match token {
                '*' => reached[length] || (length > 0 && next[length - 1]),
                '?' => length > 0 && reached[length - 1],
                plain => length > 0 && reached[length - 1] && name[length - 1] == plain,
            };
        }
        reached = next;
    }
    reached[name.len()]
}
