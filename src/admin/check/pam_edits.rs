//! Edits of PAM files as commands to paste. One is offered only if the line has the text that it changes, at one
//! place: the words of a logical line may be in brackets, or on another line of the file.

use super::remedy::{Remedy, edit_line, run, sed_pattern, sed_replacement, shell_path};
use helper::stack::{FileLine, Group, LineFault, Rejection, StackError};
use std::fs;
use std::path::Path;

/// Reads the line at `place` as it is in the file; `None` if it cannot be read.
fn read_line(place: &FileLine) -> Option<String> {
    let text = fs::read(&place.file).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .nth(place.line.checked_sub(1)?)
        .map(str::to_owned)
}

/// Checks whether a line has `word` behind a blank, and no other word there that begins like it.
fn has_word_once(place: &FileLine, word: &str) -> bool {
    let Some(line) = read_line(place) else {
        return false;
    };
    let sought = format!(" {word}");
    let mut places = line.match_indices(&sought);
    let (Some((at, _)), None) = (places.next(), places.next()) else {
        return false;
    };
    let after = &line[at + sought.len()..];
    after.is_empty() || after.starts_with([' ', '\t'])
}

/// The command that removes an argument from a line; `None` if no simple one does.
pub(super) fn remove_word(place: &FileLine, word: &str) -> Option<Remedy> {
    has_word_once(place, word).then(|| {
        run(edit_line(
            &place.file,
            place.line,
            &format!("s/ {}//", sed_pattern(word)),
        ))
    })
}

/// The command that writes another word in place of one of a line; `None` if no simple one does.
fn replace_word(place: &FileLine, word: &str, new: &str) -> Option<Remedy> {
    has_word_once(place, word).then(|| {
        let expression = format!("s/ {}/ {}/", sed_pattern(word), sed_replacement(new));
        run(edit_line(&place.file, place.line, &expression))
    })
}

/// What to do about a line that may skip our lines of a group: a session line of the service's own file that is
/// sufficient becomes optional, which ends no stack. In other files, and if `sole_file` is `None`, it serves other services
/// too, and an auth line that is optional admits nobody: where the next one denies all, everybody is locked out.
pub(super) fn unskip(place: &FileLine, group: Group, sole_file: Option<&Path>) -> Remedy {
    if group == Group::Auth {
        return format!(
            "use the file of {place} by substack instead of include; if it is the service's own file, move that line \
             and those that it skips into a file of their own"
        )
        .into();
    }
    let advice = format!(
        "change {place} so that it neither ends the stack nor jumps, or use its file by substack instead of \
         include"
    );
    let edit = replace_word(place, "sufficient", "optional");
    match edit.filter(|_| sole_file == Some(&place.file)) {
        Some(remedy) => remedy.and(format!("or {advice}")),
        None => advice.into(),
    }
}

/// What to do about the line at `place` that libpam rejects: a command, if one edit mends it, and `advice` for a
/// person.
pub(super) fn unreject(place: &FileLine, why: &Rejection, advice: &str) -> Remedy {
    let remedy = match why {
        // No control refuses more than this one.
        Rejection::BadControl(word) => replace_word(place, word, "required"),
        Rejection::FalseBlank('\r') => return end_lines(place),
        Rejection::Unfinished => Some(run(format!(
            "sed -i --follow-symlinks '$s/\\\\$//' {}",
            shell_path(&place.file)
        ))),
        Rejection::MissingModule(path) if path.is_absolute() => {
            replace_word(place, &path.display().to_string(), "pam_job_adopt.so")
        }
        _ => None,
    };
    match remedy {
        Some(remedy) => remedy.and(format!("or {advice}")),
        None => advice.into(),
    }
}

/// The command that gives a file the line ends of Unix.
fn end_lines(place: &FileLine) -> Remedy {
    run(format!(
        "sed -i --follow-symlinks 's/\\r$//' {}",
        shell_path(&place.file)
    ))
}

/// What to do about a stack that cannot be read.
pub(super) fn unread(why: &StackError) -> Remedy {
    match why {
        StackError::MissingFile { place, name } if name.ends_with('\r') => end_lines(place),
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
            let advice = "or add observe to the account line";
            remove_word(place, "observe").map(|remedy| remedy.and(advice))
        }
        LineFault::OtherService(other) => {
            let new = format!("service={service}");
            let advice = format!("or look at that service: job-adopt check --service {other}");
            replace_word(place, &format!("service={other}"), &new).map(|remedy| remedy.and(advice))
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
        assert_eq!(remedy.command, "");
        assert!(remedy.advice.contains("comon-auth"), "{remedy}");
    }

    /// In `auth sufficient pam_unix.so` and `auth required pam_deny.so`, the first admits: optional, it would admit nobody.
    #[test]
    fn sufficient_line_is_edited_only_where_it_serves_sessions_of_this_service() {
        let scratch = Scratch::new();
        let sole_file = scratch.path().join("sshd");
        for (name, group, is_edited) in [
            ("sshd", Group::Session, true),
            ("sshd", Group::Auth, false),
            ("password-auth", Group::Session, false),
            ("password-auth", Group::Auth, false),
        ] {
            let file = scratch.file(name, "x sufficient pam_unix.so\n");
            let remedy = unskip(&FileLine { file, line: 1 }, group, Some(&sole_file));
            assert_eq!(!remedy.command.is_empty(), is_edited, "{remedy}");
            assert!(remedy.advice.contains("by substack instead of include"));
        }
    }

    #[test]
    fn argument_is_removed_only_if_one_edit_does() {
        for (line, is_offered) in [
            ("session required pam_job_adopt.so a=1", true),
            ("session required pam_job_adopt.so a=1 b", true),
            ("session required pam_job_adopt.so a=10", false),
            ("session required pam_job_adopt.so a=10 a=1", false),
            ("session required pam_job_adopt.so\ta=1", false),
            ("session required pam_job_adopt.so [a=1]", false),
            ("session required pam_job_adopt.so \\", false),
        ] {
            let scratch = Scratch::new();
            scratch.file("sshd", &format!("# ours\n{line}\n"));
            let file = scratch.path().join("sshd");
            let place = FileLine {
                file: file.clone(),
                line: 2,
            };
            let remedy = remove_word(&place, "a=1");
            assert_eq!(remedy.is_some(), is_offered, "{line}");
            let Some(remedy) = remedy else { continue };
            let status = std::process::Command::new("sh")
                .args(["-c", &remedy.command])
                .status();
            assert!(status.unwrap().success());
            let text = fs::read_to_string(file).unwrap();
            assert_eq!(text, format!("# ours\n{}\n", line.replace(" a=1", "")));
        }
    }
}
