//! What an admin should do about a finding: a command line to paste, words for a person, or both.
//!
//! A command never opens the node, never gives a job's login more than it had, never makes a user's file root's, shows nobody a
//! file that may have a secret, and ends no job, whatever else is wrong there: it is pasted at night, or by a script. What
//! might is words, with what to look at first and the command to type then.

pub(super) use crate::shell::{shell_path, shell_word};
use helper::printable;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::fmt::{self, Display};
use std::path::Path;

/// The remedy of a finding; empty if there is nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remedy {
    /// A command line that mends the finding when it is pasted into a root shell; empty if none does.
    pub(super) command: String,
    /// What a person has to decide or to do, instead of the command or after it.
    pub(super) advice: String,
}

/// A remedy that is a command line. Each word of it that is not constant has passed [`shell_word`].
pub(super) fn run(command: impl Into<String>) -> Remedy {
    Remedy {
        command: command.into(),
        advice: String::new(),
    }
}

impl Remedy {
    /// Adds what a person may do instead of the command, or has to do after it.
    pub(super) fn and(self, advice: impl Into<String>) -> Self {
        Self {
            advice: advice.into(),
            ..self
        }
    }

    /// The lines of the remedy below its finding: the command behind `run:`, the advice behind `do:`.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { command, advice } = self.shown();
        let mut lines = Vec::new();
        for (label, text) in [("run", &command), ("do", &advice)] {
            if !text.is_empty() {
                lines.push(format!("  {label}: {}", printable(text)));
            }
        }
        lines
    }

    /// The remedy as reports show it: a command with a character that no report can print is no command to paste, since
    /// a shell or a configuration may take what follows a line break for a line of its own. It becomes words for a person.
    fn shown(&self) -> Self {
        if printable(&self.command) == self.command {
            return self.clone();
        }
        let text = printable(&self.to_string());
        format!("by hand, since a name has characters that cannot be pasted (here ?): {text}")
            .into()
    }
}

/// Words are for a person.
impl From<&str> for Remedy {
    fn from(advice: &str) -> Self {
        Self::default().and(advice)
    }
}

/// Words are for a person.
impl From<String> for Remedy {
    fn from(advice: String) -> Self {
        Self::default().and(advice)
    }
}

impl Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, advice } = self;
        let separator = if command.is_empty() || advice.is_empty() {
            ""
        } else {
            "; "
        };
        write!(f, "{command}{separator}{advice}")
    }
}

/// A command that edits one line of a file: a `sed` expression without its address. A link to the file stays one.
pub(super) fn edit_line(file: &Path, line: usize, expression: &str) -> String {
    format!(
        "sed -i --follow-symlinks {} {}",
        shell_word(format!("{line}{expression}")),
        shell_path(file)
    )
}

/// Escapes a text for `sed`, as pattern of a basic regular expression with `/` around it.
pub(super) fn sed_pattern(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if r"\/.*[]^$".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Escapes a text for `sed`, as replacement with `/` around it.
pub(super) fn sed_replacement(text: &str) -> String {
    let mut replacement = String::new();
    for c in text.chars() {
        if r"\/&".contains(c) {
            replacement.push('\\');
        }
        replacement.push(c);
    }
    replacement
}

/// Where packages of Debian, EL and SUSE have the pages.
const PAGE_DIRS: [&str; 3] = [
    "/usr/share/doc/libpam-job-adopt",
    "/usr/share/doc/pam_job_adopt",
    "/usr/share/doc/packages/pam_job_adopt",
];

/// The path of a page on this node, or its place in the source if the node has no pages.
pub(super) fn page_path(name: &str) -> String {
    page_path_below(Path::new("/"), name)
}

/// Finds a page below `root`. Debian compresses long ones.
fn page_path_below(root: &Path, name: &str) -> String {
    for dir in PAGE_DIRS {
        for file in [name.to_owned(), format!("{name}.gz")] {
            let path = format!("{dir}/{file}");
            if root.join(path.trim_start_matches('/')).exists() {
                return path;
            }
        }
    }
    format!("docs/{name} of the source")
}

/// Two keys of a finding: `remedy` has the whole text, `command` what can be pasted.
impl Serialize for Remedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = self.shown();
        let mut keys = serializer.serialize_struct("Remedy", 2)?;
        keys.serialize_field("remedy", &shown.to_string())?;
        keys.serialize_field("command", &shown.command)?;
        keys.end()
    }
}

/// Asserts that the command can be pasted: it is one line, which a shell parses, and which begins with a program, as
/// does each part of it. Each finding that a test makes is asserted so.
#[cfg(test)]
pub(super) fn assert_pasteable(remedy: &Remedy) {
    // Not chown, which would give root what a user has written.
    const PROGRAMS: [&str; 26] = [
        "/usr/libexec/job-adopt/account",
        "apt-get",
        "busctl",
        "chmod",
        "cp",
        "dnf",
        "dpkg",
        "install",
        "job-adopt",
        "kill",
        "loginctl",
        "mkdir",
        "mount",
        "mv",
        "pam-auth-update",
        "printf",
        "restorecon",
        "rm",
        "scontrol",
        "sed",
        "semodule",
        "sshd",
        "systemctl",
        "touch",
        "userdel",
        "usermod",
    ];
    let Remedy { command, advice } = remedy;
    // A program at its begin would be a command that nobody can paste.
    let first = advice.split(' ').next().unwrap_or_default();
    let is_command = PROGRAMS.contains(&first) && first != "install";
    assert!(!is_command, "{remedy:?}");
    if command.is_empty() {
        return;
    }
    assert_eq!(*command, printable(command));
    let parse = std::process::Command::new("sh")
        .args(["-n", "-c", command])
        .output()
        .unwrap();
    assert!(parse.status.success(), "{remedy:?}: {parse:?}");
    for part in command.split(" && ") {
        let program = part.split(' ').next().unwrap_or_default();
        assert!(PROGRAMS.contains(&program), "{program}: {remedy:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn page_is_named_where_the_package_has_it() {
        let root = Scratch::new();
        let find = || page_path_below(root.path(), "systemd.md");
        assert_eq!(find(), "docs/systemd.md of the source");
        root.file("usr/share/doc/pam_job_adopt/systemd.md", "");
        assert_eq!(find(), "/usr/share/doc/pam_job_adopt/systemd.md");
        root.file("usr/share/doc/libpam-job-adopt/systemd.md.gz", "");
        assert_eq!(find(), "/usr/share/doc/libpam-job-adopt/systemd.md.gz");
    }

    /// `jq -r .command | sh` would write a second key.
    #[test]
    fn command_of_several_lines_is_words_for_a_person() {
        let remedy = run("printf '/a\nenforce = if-exists:/none' >>conf").and("or not");
        let words = "by hand, since a name has characters that cannot be pasted (here ?): printf '/a?enforce = \
                     if-exists:/none' >>conf; or not";
        assert_eq!(remedy.lines(), [format!("  do: {words}")]);
        assert_eq!(
            serde_json::to_value(&remedy).unwrap(),
            serde_json::json!({ "remedy": words, "command": "" })
        );
    }

    #[test]
    fn sed_takes_words_literally() {
        let word = r"a/b.c[d]*e&f\g^$'";
        let script = format!("s/{}/{}/", sed_pattern(word), sed_replacement("x&/\\"));
        let script = shell_word(script);
        let command = format!(
            "printf '%s\\n' {} | sed {script}",
            shell_word(format!("<{word}>"))
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &command])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "<x&/\\>\n",
            "{command}"
        );
    }
}
