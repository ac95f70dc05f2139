//! The first words of a line of a service file.

use super::entry::{MODULE_FILES, file_name};
use super::lines::LogicalLine;
use super::rejection::Rejection;

/// Words that a line may begin with.
const GROUP_NAMES: [&str; 4] = ["auth", "account", "password", "session"];

/// The first words of a line.
pub(super) struct Statement<'a> {
    /// The word that should name a group, without a leading `-`.
    pub(super) group: &'a str,
    pub(super) control: &'a str,
    /// The module, or the file to include.
    pub(super) module: Option<&'a str>,
}

impl<'a> Statement<'a> {
    /// Takes the first words of a line. Words that are missing are empty, or `None` for the module.
    pub(super) fn new(line: &'a LogicalLine) -> Self {
        let mut words = line.words.iter().map(String::as_str);
        let group = words.next().unwrap_or_default();
        Self {
            group: group.strip_prefix('-').unwrap_or(group),
            control: words.next().unwrap_or_default(),
            module: words.next(),
        }
    }

    /// Tells whether the first word is a group.
    pub(super) fn has_group(&self) -> bool {
        GROUP_NAMES
            .iter()
            .any(|name| self.group.eq_ignore_ascii_case(name))
    }

    /// Finds what keeps libpam from understanding a line that calls a module: no group, or no module. Such a line refuses as
    /// if its module did, and so does whatever its control makes of that.
    pub(super) fn find_mistake(&self) -> Option<Rejection> {
        if !self.has_group() {
            return Some(Rejection::UnknownGroup(self.group.to_owned()));
        }
        self.module.is_none().then_some(Rejection::NoModule)
    }

    /// Tells whether the first word is `@include`, which not every libpam knows.
    pub(super) fn is_at_include(&self) -> bool {
        self.group.eq_ignore_ascii_case("@include")
    }

    /// Tells whether the line names our module.
    pub(super) fn is_our_module(&self) -> bool {
        self.module
            .is_some_and(|module| MODULE_FILES.contains(&file_name(module)))
    }

    /// Tells whether the line includes a file as a substack.
    pub(super) fn is_substack(&self) -> bool {
        self.control.eq_ignore_ascii_case("substack")
    }

    /// Tells whether the line includes a file, as a substack or not.
    pub(super) fn is_include(&self) -> bool {
        self.is_substack() || self.control.eq_ignore_ascii_case("include")
    }
}

/// Returns how many words of a line decide what it does in the group, or in which group it is: all words of a line of
/// this module, up to the module of any other line in the group, and the first word of a line in another group.
pub(super) fn count_decisive_words(line: &LogicalLine, is_in_group: bool) -> usize {
    if Statement::new(line).is_our_module() {
        line.words.len()
    } else if is_in_group {
        3
    } else {
        1
    }
}
