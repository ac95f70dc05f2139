//! Blocks of a service file that another program writes, and would write again without our lines.

/// A block, by the numbers of its first and last line. Both are the comments that mark it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManagedBlock {
    pub(super) first: usize,
    pub(super) last: usize,
    /// Set if no mark ends it: it reaches to the end of the file.
    pub(super) is_open: bool,
    /// The comment that begins it.
    pub(super) title: String,
}

impl ManagedBlock {
    /// Whether a new line in front of this one would be inside.
    pub(super) fn encloses(&self, before: usize) -> bool {
        before > self.first && (before <= self.last || self.is_open)
    }

    pub(super) fn contains(&self, line: usize) -> bool {
        (self.first..=self.last).contains(&line)
    }
}

/// What a comment says about the lines below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// `# BEGIN …` or `# >>> …`
    Begin,
    /// `# END …` or `# <<< …`
    End,
    /// `# … Do not edit …`
    Keep,
}

const BEGIN_WORDS: [&str; 2] = ["begin", "start"];
const END_WORDS: [&str; 2] = ["end", "stop"];
const KEEP_TEXTS: [&str; 8] = [
    "do not edit",
    "do not modify",
    "do not change",
    "do not touch",
    "don't edit",
    "don't modify",
    "don't change",
    "don't touch",
];

/// Finds the blocks of a text. A block begins at a comment with the mark [`Mark::Begin`] or [`Mark::Keep`], and
/// ends at the next one with [`Mark::End`] or with the same text. If there is none, only [`Mark::Keep`] makes a
/// block, up to the end of the file; above the first line that is no comment it is about the whole file instead, and
/// makes none.
pub(super) fn find_blocks(text: &str) -> Vec<ManagedBlock> {
    let lines: Vec<&str> = text.lines().collect();
    let first_line = lines
        .iter()
        .position(|line| comment(line).is_none() && !line.trim().is_empty());
    let mut blocks = Vec::new();
    let mut index = 0;
    while let Some(line) = lines.get(index) {
        let mark = find_mark(line);
        if mark.is_none() || mark == Some(Mark::End) {
            index += 1;
            continue;
        }
        let ends = |other: &&str| find_mark(other) == Some(Mark::End) || *other == *line;
        let end = lines
            .iter()
            .skip(index + 1)
            .position(ends)
            .map(|after| index + 1 + after);
        let is_open = end.is_none()
            && mark == Some(Mark::Keep)
            && first_line.is_some_and(|first| first < index);
        if end.is_some() || is_open {
            let last = end.unwrap_or(lines.len() - 1);
            blocks.push(ManagedBlock {
                first: index + 1,
                last: last + 1,
                is_open,
                title: line.trim().to_owned(),
            });
            index = last;
        }
        index += 1;
    }
    blocks
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix('#')
}

/// Finds the mark of another tool in a line: its first or last word, or a text in it, says that a block
/// begins or ends there or must not be edited. `None` for a line without a mark, and for one that is no
/// comment.
fn find_mark(line: &str) -> Option<Mark> {
    let text = comment(line)?.to_lowercase();
    let mut words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    let last = words.next_back().unwrap_or(first);
    let has = |marks: &[&str]| marks.contains(&first) || marks.contains(&last);
    if has(&END_WORDS) || text.contains("<<<") {
        Some(Mark::End)
    } else if has(&BEGIN_WORDS) || text.contains(">>>") {
        Some(Mark::Begin)
    } else if KEEP_TEXTS.iter().any(|keep| text.contains(keep)) {
        Some(Mark::Keep)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<(usize, usize, bool)> {
        find_blocks(text)
            .iter()
            .map(|block| (block.first, block.last, block.is_open))
            .collect()
    }

    #[test]
    fn marks_of_other_programs_enclose_blocks() {
        for (text, expected) in [
            (
                "a\n# BEGIN ANSIBLE MANAGED BLOCK\nb\n# END ANSIBLE MANAGED BLOCK\nc\n",
                (2, 4, false),
            ),
            ("a\n# >>> kit >>>\nb\n# <<< kit <<<\n", (2, 4, false)),
            (
                "a\n#### Kit: Do not edit ####\nb\n#### End of Kit ####\nc\n",
                (2, 4, false),
            ),
            (
                "a\n#### Kit: Do not edit ####\nb\n#### Kit: Do not edit ####\nc\n",
                (2, 4, false),
            ),
            ("a\n#### Kit. Do not edit below ####\nb\nc\n", (2, 4, true)),
            ("# KIT START\n# Do not edit\nb\n# KIT END\n", (1, 4, false)),
        ] {
            assert_eq!(blocks(text), [expected], "{text}");
        }
    }

    #[test]
    fn other_comments_enclose_nothing() {
        for text in [
            "# Do not edit: written by puppet\na\nb\n",
            "a\n# begin with the account\nb\n",
            "a\n# pam_selinux.so close should be the first session rule\nb\n",
            "a\n# END\nb\n",
        ] {
            assert_eq!(blocks(text), [], "{text}");
        }
    }

    #[test]
    fn lines_below_and_above_a_block_are_outside() {
        let [closed] = find_blocks("a\n# BEGIN\nb\n# END\nc\n").try_into().unwrap();
        assert_eq!(
            [2, 3, 4, 5].map(|line| closed.encloses(line)),
            [false, true, true, false]
        );
        let [open] = find_blocks("a\n# Do not edit\nb\n").try_into().unwrap();
        assert!(open.encloses(4));
    }
}
