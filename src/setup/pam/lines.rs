//! Edits of a service file, by the numbers of its physical lines.

use command::output::Output;
use helper::stack::{LogicalLine, MODULE_FILES, is_missing_module, parse_lines};
use std::path::Path;

/// Comment mark before a line that our lines replace.
pub(super) const REPLACED_MARK: &str = "#job-adopt: ";

/// A text without our lines.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) text: Vec<u8>,
    /// The lines that stay commented out: all that ours replaced if the module of one is not there.
    left_out: Vec<LeftOut>,
}

/// A line that is not restored.
#[derive(Debug)]
struct LeftOut {
    /// Its number in [`Restored::text`].
    number: usize,
    /// The module of the line, if that is not there; `None` if only the module of another such line is not.
    missing_module: Option<String>,
}

/// Whether our mark comments a physical line out, and the line without the mark.
type MarkedLine<'a> = (bool, &'a [u8]);

impl Restored {
    /// Warns of each line that stays commented out.
    pub(crate) fn warn(&self, path: &Path, output: &mut Output<'_>) {
        for LeftOut {
            number,
            missing_module,
        } in &self.left_out
        {
            let why = match missing_module {
                Some(module) => format!(
                    "{module} is not there, so libpam would refuse every login, root's too"
                ),
                None => "without the line whose module is not there it would decide otherwise than it did"
                    .to_owned(),
            };
            output.warn(format_args!(
                "{}:{number} stays commented out: {why}",
                path.display()
            ));
        }
    }

    /// Whether every line came back.
    pub(crate) fn is_complete(&self) -> bool {
        self.left_out.is_empty()
    }
}

/// A line to insert in front of the line with the number `before`, or at the end if there are fewer lines.
#[derive(Debug)]
pub(super) struct NewLine {
    pub(super) before: usize,
    pub(super) text: String,
}

/// Decodes a text for the parser. Its lines have the numbers of the bytes' lines.
pub(super) fn decode(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Lists each physical line with its line break, and its number from 1.
pub(super) fn physical_lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    (1..).zip(text.split_inclusive(|byte| *byte == b'\n'))
}

pub(super) fn is_our_line(line: &LogicalLine) -> bool {
    let module = line
        .words
        .get(2)
        .map(|word| word.rsplit('/').next().unwrap_or_default());
    module.is_some_and(|module| MODULE_FILES.contains(&module))
}

fn covers(line: &LogicalLine, number: usize) -> bool {
    (line.number..=line.last).contains(&number)
}

/// Removes our lines from a text; a text that cannot be parsed stays as it is.
fn remove_our_lines(text: &[u8]) -> Vec<u8> {
    let mut ours = parse_lines(&decode(text)).unwrap_or_default();
    ours.retain(is_our_line);
    let mut others = Vec::new();
    for (number, line) in physical_lines(text) {
        if !ours.iter().any(|logical| covers(logical, number)) {
            others.extend_from_slice(line);
        }
    }
    others
}

/// Restores the text without our lines, and with the lines that they replaced; `None` if it ends in a
/// continued line.
pub(super) fn without_our_lines(root: &Path, text: &[u8]) -> Option<Restored> {
    // Our lines cannot be found in a text that ends in a continued line.
    parse_lines(&decode(text))?;
    let others = remove_our_lines(text);
    let mut lines: Vec<MarkedLine<'_>> = Vec::new();
    for (_, line) in physical_lines(&others) {
        let unmarked = line.strip_prefix(REPLACED_MARK.as_bytes());
        lines.push((unmarked.is_some(), unmarked.unwrap_or(line)));
    }
    join_restored(root, &lines)
}

/// Restores `before`. If the module of one of its lines that are commented out in `current` is not there, all of
/// these stay commented out. `None` if `before` ends in a continued line.
pub(super) fn restore(root: &Path, before: &[u8], current: &[u8]) -> Option<Restored> {
    join_restored(root, &find_replaced(before, current))
}

/// Finds the modules that lines of `before` call and that are commented out in `current`; `None` if `before` ends in a
/// continued line.
pub(super) fn replaced_modules(before: &[u8], current: &[u8]) -> Option<Vec<String>> {
    let replaced = parse_marked(&find_replaced(before, current))?;
    Some(
        replaced
            .iter()
            .filter_map(called_module)
            .map(str::to_owned)
            .collect(),
    )
}

/// Lists each physical line of `before`, marked if it is commented out in `current`. Of equal lines the first is
/// compared with the first copy in `current`, and so on; if `current` has fewer copies, one that is commented out
/// stands for the missing ones.
fn find_replaced<'a>(before: &'a [u8], current: &[u8]) -> Vec<MarkedLine<'a>> {
    let mut lines: Vec<MarkedLine<'_>> = Vec::new();
    for (_, line) in physical_lines(before) {
        let copies = find_copies(without_break(line), current);
        let equal_lines_before = lines
            .iter()
            .filter(|(_, other)| without_break(other) == without_break(line))
            .count();
        let own_copy = copies.get(equal_lines_before).copied();
        let is_replaced = own_copy.unwrap_or_else(|| copies.contains(&true));
        lines.push((is_replaced, line));
    }
    lines
}

/// Finds the copies of a line in a text; returns for each, in their order, whether it is commented out.
fn find_copies(line: &[u8], text: &[u8]) -> Vec<bool> {
    let mut is_marked = Vec::new();
    for (_, other) in physical_lines(text) {
        let other = without_break(other);
        if other == line {
            is_marked.push(false);
        } else if other.strip_prefix(REPLACED_MARK.as_bytes()) == Some(line) {
            is_marked.push(true);
        }
    }
    is_marked
}

fn without_break(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Parses the logical lines of which at least one physical line is marked; `None` if the text ends in a continued
/// line.
fn parse_marked(lines: &[MarkedLine<'_>]) -> Option<Vec<LogicalLine>> {
    let text: Vec<u8> = lines
        .iter()
        .flat_map(|(_, line)| line.iter().copied())
        .collect();
    let mut marked = parse_lines(&decode(&text))?;
    marked.retain(|logical| {
        (1..)
            .zip(lines)
            .any(|(number, (is_marked, _))| *is_marked && covers(logical, number))
    });
    Some(marked)
}

/// Joins lines, and so restores the marked ones; `None` if the text ends in a continued line. If the module of a
/// marked line is not there, all marked lines get their mark back: without the one line, a jump among the others
/// would skip another line than it did; and if it was sufficient, the lines after it would judge the owners of jobs
/// whom it had let past them.
fn join_restored(root: &Path, lines: &[MarkedLine<'_>]) -> Option<Restored> {
    let replaced = parse_marked(lines)?;
    let is_incomplete = replaced.iter().any(|line| calls_missing_module(root, line));
    let mut restored = Restored {
        text: Vec::new(),
        left_out: Vec::new(),
    };
    for (is_marked, line) in lines {
        if *is_marked && is_incomplete {
            restored.text.extend_from_slice(REPLACED_MARK.as_bytes());
        }
        restored.text.extend_from_slice(line);
    }
    if is_incomplete {
        for line in replaced {
            let missing_module = called_module(&line)
                .filter(|module| is_missing_module(root, module))
                .map(str::to_owned);
            restored.left_out.push(LeftOut {
                number: line.number,
                missing_module,
            });
        }
    }
    Some(restored)
}

/// Whether the line calls a module whose file is not there. A leading `-` only keeps libpam from logging
/// that.
fn calls_missing_module(root: &Path, line: &LogicalLine) -> bool {
    called_module(line).is_some_and(|module| is_missing_module(root, module))
}

/// The module that the line calls, as the line names it; `None` for an include, and for a name with `$`, in
/// which libpam or the loader replaces a part (`$ISA`, `$LIB`).
fn called_module(line: &LogicalLine) -> Option<&str> {
    let [group, control, module, ..] = line.words.as_slice() else {
        return None;
    };
    let includes = ["include", "substack"]
        .iter()
        .any(|word| control.eq_ignore_ascii_case(word));
    let is_other = includes || group.eq_ignore_ascii_case("@include") || module.contains('$');
    (!is_other).then_some(module.as_str())
}

/// Inserts new lines into the text, and comments out the logical lines that begin at the numbers `replaced`. None is
/// commented out in a text that ends in a continued line.
pub(super) fn edit(text: &[u8], new: &[NewLine], replaced: &[usize]) -> Vec<u8> {
    let mut old = parse_lines(&decode(text)).unwrap_or_default();
    old.retain(|line| replaced.contains(&line.number));
    let mut result = Vec::new();
    for (number, line) in physical_lines(text) {
        // Line numbers begin at 1; the place 0 is the top of the file as well.
        for inserted in new
            .iter()
            .filter(|inserted| inserted.before.max(1) == number)
        {
            result.extend_from_slice(format!("{}\n", inserted.text).as_bytes());
        }
        if old.iter().any(|logical| covers(logical, number)) {
            result.extend_from_slice(REPLACED_MARK.as_bytes());
        }
        result.extend_from_slice(line);
    }
    // The last line of the text may have no line break.
    if result.last().is_some_and(|byte| *byte != b'\n') {
        result.push(b'\n');
    }
    let last = physical_lines(text).count();
    for appended in new.iter().filter(|appended| appended.before > last) {
        result.extend_from_slice(format!("{}\n", appended.text).as_bytes());
    }
    result
}

/// Lists the lines by which two texts of a service's file differ, with `-` before those that go and `+` before
/// those that come, each run of them between its neighbours, which show the place: the next line above and below that
/// is no comment. `…` stands for further such lines.
pub(crate) fn changed_lines(old: &[u8], new: &[u8]) -> Vec<String> {
    let old = String::from_utf8_lossy(old);
    let new = String::from_utf8_lossy(new);
    let mut compared = compare_lines(&old, &new);
    if compared.iter().all(|(mark, _)| *mark == KEPT) {
        return Vec::new();
    }
    // Without them, neighbours are the next lines that are no comment.
    compared.retain(|(mark, line)| *mark != KEPT || !is_comment(line));
    let mut shown: Vec<String> = Vec::new();
    for (index, (mark, line)) in compared.iter().enumerate() {
        if is_changed_or_neighbour(&compared, index) {
            shown.push(format!("{mark} {line}"));
        } else if shown.last().is_none_or(|last| last != GAP) {
            shown.push(GAP.to_owned());
        }
    }
    shown
}

/// Checks whether a line, or the one above or below it, goes or comes.
fn is_changed_or_neighbour(compared: &[(char, &str)], index: usize) -> bool {
    let above = index.saturating_sub(1);
    let mut nearby = compared.iter().take(index + 2).skip(above);
    nearby.any(|(mark, _)| *mark != KEPT)
}

/// The mark of a line that both texts have.
const KEPT: char = ' ';
/// Stands for lines that are not shown.
const GAP: &str = "  …";

fn is_comment(line: &str) -> bool {
    let text = line.trim_start();
    text.is_empty() || text.starts_with('#')
}

/// Compares two texts of a service's file: all lines, each behind its mark. No general diff: the texts may differ only in
/// our own lines, and in lines of others that got or lost the mark of a replaced line.
fn compare_lines<'a>(old: &'a str, new: &'a str) -> Vec<(char, &'a str)> {
    let mut old_lines = old.lines().peekable();
    let mut compared = Vec::new();
    for line in new.lines() {
        // Only our own lines go without a line that comes in their place.
        while let Some(gone) = old_lines.next_if(|other| *other != line && is_our_text(other)) {
            compared.push(('-', gone));
        }
        if old_lines.next_if_eq(&line).is_some() {
            compared.push((KEPT, line));
            continue;
        }
        if let Some(gone) =
            old_lines.next_if(|other| without_mark(line) == *other || without_mark(other) == line)
        {
            compared.push(('-', gone));
        }
        compared.push(('+', line));
    }
    compared.extend(old_lines.map(|gone| ('-', gone)));
    compared
}

fn is_our_text(line: &str) -> bool {
    parse_lines(line)
        .unwrap_or_default()
        .iter()
        .any(is_our_line)
}

fn without_mark(line: &str) -> &str {
    line.strip_prefix(REPLACED_MARK).unwrap_or(line)
}
