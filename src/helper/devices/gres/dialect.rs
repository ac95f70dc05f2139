//! How slurmd reads `gres.conf` and its lists of names, as far as releases differ.
//!
//! A release that is not known may be any one: a line counts only if all of them read it alike.

use schedulers::stepd::Release;

/// The newest release whose source was read. A later one may have keys and words of which nothing is known here.
const NEWEST: Release = Release::V26_11;

/// Words of `AutoDetect=` that turn detection on, each with the first release that has it (`_handle_autodetect_flags`
/// in `gres.c`). Slurm ignores every other word but `off`.
const AUTO_DETECT_WORDS: [(&str, Option<Release>); 6] = [
    ("full", Some(Release::V26_05)),
    ("nvml", None),
    ("rsmi", None),
    ("oneapi", Some(Release::V22_05)),
    ("nrt", Some(Release::V23_11)),
    ("nvidia", Some(Release::V24_11)),
];

/// Keys of a record that not every release has, with the first one that has them.
const LATER_KEYS: [(&str, Release); 1] = [("UUID", Release::V26_11)];

/// The release of the slurmd that has read a file; `None` if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect(pub Option<Release>);

/// How a release reads the brackets of a list of names (`_hostlist_create_bracketed` in `hostlist.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListSyntax {
    /// Up to 22.05: a bracket that is not closed becomes part of a name, and a text behind the last bracket makes the
    /// list malformed.
    UnclosedIsName,
    /// 23.02: either makes the list malformed.
    Plain,
    /// From 23.11 on: a text behind the last bracket is part of the names.
    HasSuffixes,
}

/// Whether slurmd detects devices by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Detection {
    #[default]
    Off,
    /// Only slurmd knows: its release may have words that are not known here, or a line cannot be read.
    Uncertain,
    On,
}

impl Dialect {
    /// The ways in which slurmd may read a list: one if its release is known.
    pub(super) fn list_syntaxes(self) -> &'static [ListSyntax] {
        use ListSyntax::{HasSuffixes, Plain, UnclosedIsName};
        match self.0 {
            None => &[UnclosedIsName, Plain, HasSuffixes],
            Some(release) if release < Release::V23_02 => &[UnclosedIsName],
            Some(release) if release < Release::V23_11 => &[Plain],
            Some(_) => &[HasSuffixes],
        }
    }

    /// The way that reads most lists of files. Where slurmd cannot read one it does not start.
    pub(super) fn file_list_syntax(self) -> ListSyntax {
        match self.list_syntaxes() {
            [only] => *only,
            _ => ListSyntax::HasSuffixes,
        }
    }

    /// Tells whether a key that not every release has is certainly one for this slurmd.
    pub(super) fn has_later_key(self, key: &str) -> bool {
        let first = LATER_KEYS
            .iter()
            .find(|(later, _)| later.eq_ignore_ascii_case(key));
        match (first, self.0) {
            (Some((_, first)), Some(release)) => release >= *first,
            _ => false,
        }
    }

    /// Reads a value of `AutoDetect=`, which may contain a word anywhere and in any case; `None` for a value that
    /// slurmd ignores. A release that is not known may have each word.
    pub(super) fn detection(self, value: &str) -> Option<Detection> {
        let value = value.to_ascii_lowercase();
        let has_word = AUTO_DETECT_WORDS.iter().any(|(word, first)| {
            let is_known = self.0.is_none() || self.0 >= *first;
            is_known && value.contains(word)
        });
        if has_word {
            return Some(Detection::On);
        }
        if value == "off" {
            return Some(Detection::Off);
        }
        let is_newer = self.0.is_some_and(|release| release > NEWEST);
        is_newer.then_some(Detection::Uncertain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_turns_detection_on_from_its_release_on() {
        let newer = Release::V26_11.next();
        for (word, release, detection) in [
            ("NVML", Some(Release::V22_05), Some(Detection::On)),
            ("nvidia", Some(Release::V23_11), None),
            ("nvidia", Some(Release::V24_11), Some(Detection::On)),
            ("nvidia", None, Some(Detection::On)),
            ("full", Some(Release::V25_11), None),
            ("Off", Some(Release::V22_05), Some(Detection::Off)),
            ("off,", Some(Release::V22_05), None),
            ("other", None, None),
            ("other", Some(NEWEST), None),
            ("other", Some(newer), Some(Detection::Uncertain)),
        ] {
            assert_eq!(
                Dialect(release).detection(word),
                detection,
                "{word} {release:?}"
            );
        }
    }

    #[test]
    fn later_key_counts_only_for_a_release_that_has_it() {
        for (release, has_key) in [
            (None, false),
            (Some(Release::V26_05), false),
            (Some(Release::V26_11), true),
            (Some(Release::V26_11.next()), true),
        ] {
            assert_eq!(
                Dialect(release).has_later_key("uuid"),
                has_key,
                "{release:?}"
            );
            assert!(!Dialect(release).has_later_key("UUIDs"));
        }
    }
}
