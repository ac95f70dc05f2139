//! Edits of PAM files, in words for a person. A line is shown as it is in the file and as it should be, if it has the text
//! that changes, at one place: the words of a logical line may be in brackets, or on another line of the file.

use super::file_edit::FileEdit;
use super::remedy::Remedy;
use helper::stack::{FileLine, Group, LineFault, Rejection, StackError};
use std::fs;

/// Reads the line at `place` as it is in the file; `None` if it cannot be read.
fn read_line(place: &FileLine) -> Option<String> {
    let text = fs::read(&place.file).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .nth(place.line.checked_sub(1)?)
        .map(str::to_owned)
}

/// Checks whether a line has the text `sought`, which is a blank and a word, once, and the word ends there.
fn has_word_once(line: &str, sought: &str) -> bool {
    let mut places = line.match_indices(sought);
    let (Some((at, _)), None) = (places.next(), places.next()) else {
        return false;
    };
    let after = &line[at + sought.len()..];
    after.is_empty() || after.starts_with([' ', '\t'])
}

/// What to write so that a line lacks an argument.
pub(super) fn remove_word(place: &FileLine, word: &str) -> Remedy {
    match replace_in_line(place, &format!(" {word}"), "") {
        Some(edit) => edit.into(),
        None => format!("{place}: remove \"{word}\"").into(),
    }
}

/// What to do so that a file lacks a line.
pub(super) fn remove_line(place: &FileLine) -> Remedy {
    match read_line(place) {
        Some(line) => FileEdit::remove(place, line.trim()).into(),
        None => format!("{place}: remove that line").into(),
    }
}

/// What to write so that a line has another word in place of one.
pub(super) fn replace_word(place: &FileLine, word: &str, new: &str) -> Remedy {
    match replace_in_line(place, &format!(" {word}"), &format!(" {new}")) {
        Some(edit) => edit.into(),
        None => FileEdit::replace(place, word, new).into(),
    }
}

/// Changes a text of a line that has it once, as a word; `None` for another line.
fn replace_in_line(place: &FileLine, old: &str, new: &str) -> Option<FileEdit> {
    let line = read_line(place).filter(|line| has_word_once(line, old))?;
    Some(FileEdit::replace(
        place,
        line.trim_end(),
        line.replacen(old, new, 1).trim_end(),
    ))
}

/// How a line that passes over ours does so, and how its file came into the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Skip {
    /// It can jump; else it can end the stack.
    pub(super) jumps: bool,
    /// The line of the service's own file that includes the file of that line; `None` if it is in that file itself.
    pub(super) include: Option<FileLine>,
}

/// What to do about a line that may skip our lines of a group. In a file that the service includes it serves other services
/// too, perhaps: as a substack it ends no more than that. An auth line that is optional admits nobody: where the next one
/// denies all, everybody would be locked out.
pub(super) fn unskip(place: &FileLine, group: Group, skip: &Skip) -> Remedy {
    if skip.jumps {
        // In a substack a jump past its end refuses.
        return format!("{place}: lower the number of its jump, so that it ends above our line")
            .into();
    }
    match &skip.include {
        Some(include) => use_substack(include, group),
        None if group == Group::Auth => format!(
            "move {place} and the lines that it skips into a file of their own, and take that in by substack"
        )
        .into(),
        None => match replace_in_line(place, " sufficient", " optional") {
            Some(edit) => edit.into(),
            None => format!("{place}: change its control so that it does not end the stack (done, or sufficient)").into(),
        },
    }
}

/// Checks whether a line takes in a file, and not as a substack.
pub(super) fn is_include(place: &FileLine) -> bool {
    let line = read_line(place).unwrap_or_default();
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    first.eq_ignore_ascii_case("@include")
        || words
            .next()
            .is_some_and(|word| word.eq_ignore_ascii_case("include"))
}

/// What to write so that a file is a substack of a group, which ends alone. An `@include` brings in the lines of all groups.
fn use_substack(include: &FileLine, group: Group) -> Remedy {
    let line = read_line(include).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["@include", file] => format!(
            "{}, if that file has no other lines than {} ones",
            FileEdit::replace(
                include,
                line.trim(),
                format!("{} substack {file}", group.as_str())
            ),
            group.as_str()
        )
        .into(),
        _ => replace_word(include, "include", "substack"),
    }
}

/// What to do about the line at `place` that libpam rejects: the line as it should be, if that is known, and `advice`.
pub(super) fn unreject(place: &FileLine, why: &Rejection, advice: &str) -> Remedy {
    let edit = match why {
        // No control refuses more than this one.
        Rejection::BadControl(word) => replace_in_line(place, &format!(" {word}"), " required"),
        Rejection::Unfinished => read_line(place).and_then(|line| {
            let text = line.trim_end();
            Some(FileEdit::replace(
                place,
                text,
                text.strip_suffix('\\')?.trim_end(),
            ))
        }),
        Rejection::MissingModule(path) if path.is_absolute() => {
            replace_in_line(place, &format!(" {}", path.display()), " pam_job_adopt.so")
        }
        _ => None,
    };
    match edit {
        Some(edit) => Remedy::from(edit).and(format!("or {advice}")),
        None => format!("{place}: {advice}").into(),
    }
}

/// What to do about a stack that cannot be read.
pub(super) fn unread(why: &StackError) -> Remedy {
    match why {
        StackError::MissingFile { place, name } if name.ends_with('\r') => {
            format!("{place}: give the file the line ends of Unix (dos2unix)").into()
        }
        StackError::MissingFile { place, name } => {
            // Without the line nothing of that file judges: a password may then not be asked for.
            format!("restore the file {name}, or correct its name in {place}").into()
        }
        _ => "restore the file that is named".into(),
    }
}

/// What to do about our line at `place`, if its arguments are at fault; `None` for another fault.
pub(super) fn correct_arguments(
    place: &FileLine,
    fault: &LineFault,
    service: &str,
) -> Option<Remedy> {
    match fault {
        LineFault::ObservesAlone => {
            Some(remove_word(place, "observe").and("or add observe to the account line"))
        }
        LineFault::OtherService(other) => {
            let new = format!("service={service}");
            let advice = format!("or look at that service: job-adopt check --service {other}");
            Some(replace_word(place, &format!("service={other}"), &new).and(advice))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    /// Without the line the modules of the file judge nobody, and the others may admit.
    #[test]
    fn include_of_a_missing_file_is_left_to_a_person() {
        let why = StackError::MissingFile {
            place: FileLine {
                file: "/etc/pam.d/sshd".into(),
                line: 3,
            },
            name: "comon-auth".to_owned(),
        };
        let remedy = unread(&why);
        assert!(remedy.advice().contains("comon-auth"), "{remedy}");
    }

    #[test]
    fn line_that_ends_the_stack_is_shown_as_it_should_be() {
        let scratch = Scratch::new();
        let text =
            "session sufficient pam_unix.so\n@include common\nauth  include password-auth # all\n";
        let file = scratch.file("sshd", text);
        let place = |line| FileLine {
            file: file.clone(),
            line,
        };
        let skip = |include: Option<usize>| Skip {
            jumps: false,
            include: include.map(place),
        };
        let name = file.display();
        for (group, include, expected) in [
            (
                Group::Session,
                None,
                format!(
                    "{name}:1: in place of \"session sufficient pam_unix.so\" write \"session optional pam_unix.so\""
                ),
            ),
            (
                Group::Session,
                Some(2),
                format!(
                    "{name}:2: in place of \"@include common\" write \"session substack common\", if that file has \
                     no other lines than session ones"
                ),
            ),
            (
                Group::Auth,
                Some(3),
                format!(
                    "{name}:3: in place of \"auth  include password-auth # all\" write \"auth  substack password-auth \
                     # all\""
                ),
            ),
        ] {
            assert_eq!(unskip(&place(1), group, &skip(include)).advice(), expected);
        }
        // In `auth sufficient pam_unix.so` and `auth required pam_deny.so`, the first admits: optional, it would admit
        // nobody. And a substack would make a jump past its end a refusal.
        let auth = unskip(&place(1), Group::Auth, &skip(None));
        assert!(auth.advice().contains("into a file of their own"), "{auth}");
        let jump = Skip {
            jumps: true,
            include: Some(place(2)),
        };
        let lowered = unskip(&place(1), Group::Session, &jump);
        assert!(
            lowered.advice().contains("lower the number of its jump"),
            "{lowered}"
        );
    }

    #[test]
    fn line_is_shown_whole_only_if_one_word_of_it_changes() {
        for (line, is_whole) in [
            ("session required pam_job_adopt.so a=1", true),
            ("session required pam_job_adopt.so a=1 b", true),
            ("session required pam_job_adopt.so a=10", false),
            ("session required pam_job_adopt.so a=10 a=1", false),
            ("session required pam_job_adopt.so\ta=1", false),
            ("session required pam_job_adopt.so [a=1]", false),
            ("session required pam_job_adopt.so \\", false),
        ] {
            let scratch = Scratch::new();
            let file = scratch.file("sshd", &format!("# ours\n{line}\n"));
            let place = FileLine { file, line: 2 };
            let expected = if is_whole {
                format!(
                    "{place}: in place of \"{line}\" write \"{}\"",
                    line.replace(" a=1", "")
                )
            } else {
                format!("{place}: remove \"a=1\"")
            };
            assert_eq!(remove_word(&place, "a=1").advice(), expected);
        }
    }
}
