//! Edits of a service file, by the numbers of its physical lines.

use super::Output;
use helper::stack::{LogicalLine, MODULE_FILES, is_missing_module, parse_lines};
use std::path::Path;

/// Comment mark before a line that our lines replace.
pub(super) const REPLACED_MARK: &str = "#job-adopt: ";

/// A text without our lines.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) text: Vec<u8>,
    /// The lines that stay commented out, because their module is not there.
    left_out: Vec<LeftOut>,
}

/// A line that is not restored.
#[derive(Debug)]
struct LeftOut {
    number: usize,
    module: String,
}

impl Restored {
    /// Warns of each line that stays commented out.
    pub(crate) fn warn(&self, path: &Path, output: &mut Output<'_>) {
        for LeftOut { number, module } in &self.left_out {
            output.warn(format_args!(
                "{}:{number} stays commented out: {module} is not there, so libpam would refuse every \
                 login, root's too",
                path.display()
            ));
        }
    }

    /// Returns whether every line came back.
    pub(crate) fn is_complete(&self) -> bool {
        self.left_out.is_empty()
    }
}

/// A line to insert in front of the line with the number `before`, or at the end.
#[derive(Debug)]
pub(super) struct NewLine {
    pub(super) before: usize,
    pub(super) text: String,
}

/// Returns a text for the parser. Its lines have the numbers of the bytes' lines.
pub(super) fn decode(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Returns each physical line with its line break, and its number from 1.
pub(super) fn physical_lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    (1..).zip(text.split_inclusive(|byte| *byte == b'\n'))
}

pub(super) fn is_our_line(line: &LogicalLine) -> bool {
    let module = line.words.get(2).map(|word| word.rsplit('/').next().unwrap_or_default());
    module.is_some_and(|module| MODULE_FILES.contains(&module))
}

fn covers(line: &LogicalLine, number: usize) -> bool {
    (line.number..=line.last).contains(&number)
}

/// Returns the text without our lines.
pub(super) fn remove_our_lines(text: &[u8]) -> Vec<u8> {
    let mut ours = parse_lines(&decode(text)).unwrap_or_default();
    ours.retain(is_our_line);
    let is_other = |(number, _): &(usize, _)| !ours.iter().any(|line| covers(line, *number));
    physical_lines(text).filter(is_other).flat_map(|(_, line)| line).copied().collect()
}

/// Returns the text without our lines, and with the lines that they replaced; `None` if it ends within a
/// line.
pub(super) fn without_our_lines(root: &Path, text: &[u8]) -> Option<Restored> {
    parse_lines(&decode(text))?;
    let others = remove_our_lines(text);
    let rest = physical_lines(&others)
        .map(|(_, line)| match line.strip_prefix(REPLACED_MARK.as_bytes()) {
            Some(line) => (true, line),
            None => (false, line),
        })
        .collect();
    comment_out_missing(root, rest)
}

/// Returns `before` without the lines that are commented out in `current` and whose module is not there;
/// `None` if it ends within a line.
pub(super) fn restore(root: &Path, before: &[u8], current: &[u8]) -> Option<Restored> {
    let replaced: Vec<&[u8]> = physical_lines(current)
        .filter_map(|(_, line)| line.strip_prefix(REPLACED_MARK.as_bytes()))
        .collect();
    let lines = physical_lines(before).map(|(_, line)| (replaced.contains(&line), line)).collect();
    comment_out_missing(root, lines)
}

/// Joins lines, of which some are restored; those of modules that are not there get their mark back.
fn comment_out_missing(root: &Path, lines: Vec<(bool, &[u8])>) -> Option<Restored> {
    let text: Vec<u8> = lines.iter().flat_map(|(_, line)| line.iter().copied()).collect();
    let mut missing = parse_lines(&decode(&text))?;
    missing.retain(|line| is_module_missing(root, line));
    let mut restored = Restored { text: Vec::new(), left_out: Vec::new() };
    for (number, (is_restored, line)) in (1..).zip(lines) {
        let owner = missing.iter().find(|missing| covers(missing, number));
        if let (true, Some(owner)) = (is_restored, owner) {
            restored.text.extend_from_slice(REPLACED_MARK.as_bytes());
            if restored.left_out.last().is_none_or(|last| last.number < owner.number) {
                let module = owner.words.get(2).cloned().unwrap_or_default();
                restored.left_out.push(LeftOut { number, module });
            }
        }
        restored.text.extend_from_slice(line);
    }
    Some(restored)
}

/// Returns whether the line calls a module whose file is not there. A leading `-` only keeps libpam from
/// logging that.
fn is_module_missing(root: &Path, line: &LogicalLine) -> bool {
    let [group, control, module, ..] = line.words.as_slice() else { return false };
    let includes = ["include", "substack"].iter().any(|word| control.eq_ignore_ascii_case(word));
    if includes || group.eq_ignore_ascii_case("@include") || module.contains('$') {
        return false;
    }
    is_missing_module(root, module)
}

/// Returns the text with new lines, and with the logical lines that begin at the numbers `replaced`
/// commented out.
pub(super) fn edit(text: &[u8], new: &[NewLine], replaced: &[usize]) -> Vec<u8> {
    let mut old = parse_lines(&decode(text)).unwrap_or_default();
    old.retain(|line| replaced.contains(&line.number));
    let mut result = Vec::new();
    for (number, line) in physical_lines(text) {
        for line in new.iter().filter(|line| line.before.max(1) == number) {
            result.extend_from_slice(format!("{}\n", line.text).as_bytes());
        }
        if old.iter().any(|line| covers(line, number)) {
            result.extend_from_slice(REPLACED_MARK.as_bytes());
        }
        result.extend_from_slice(line);
    }
    if result.last().is_some_and(|byte| *byte != b'\n') {
        result.push(b'\n');
    }
    let last = physical_lines(text).count();
    for line in new.iter().filter(|line| line.before > last) {
        result.extend_from_slice(format!("{}\n", line.text).as_bytes());
    }
    result
}

/// Returns the lines by which two texts of a service's file differ, with `-` before those that go and
/// `+` before those that come.
pub(crate) fn changed_lines(old: &[u8], new: &[u8]) -> Vec<String> {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let mut old = old.lines().peekable();
    let mut changes = Vec::new();
    for line in new.lines() {
        // Only our own lines go without a line that comes in their place.
        while let Some(gone) = old.next_if(|old| *old != line && is_our_text(old)) {
            changes.push(format!("- {gone}"));
        }
        if old.next_if_eq(&line).is_some() {
            continue;
        }
        if let Some(gone) =
            old.next_if(|old| without_mark(line) == *old || without_mark(old) == line)
        {
            changes.push(format!("- {gone}"));
        }
        changes.push(format!("+ {line}"));
    }
    changes.extend(old.map(|gone| format!("- {gone}")));
    changes
}

fn is_our_text(line: &str) -> bool {
    parse_lines(line).unwrap_or_default().iter().any(is_our_line)
}

fn without_mark(line: &str) -> &str {
    line.strip_prefix(REPLACED_MARK).unwrap_or(line)
}
