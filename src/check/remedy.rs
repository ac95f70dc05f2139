//! What an admin should do about a finding: a command of ours to paste, words for a person, or both.
//!
//! A command changes nothing but what is ours ([`OwnCommand`]). It never opens the node, never gives a job's login more
//! than it had, never makes a user's file root's, shows nobody a file that may have a secret, and ends no job, whatever
//! else is wrong there: it is pasted at night, or by a script. All else is words: the file and line, what stands there and
//! what should ([`FileEdit`]), or what to look at first.

use super::file_edit::FileEdit;
use super::own_command::OwnCommand;
pub(super) use command::shell::{shell_path, shell_word};
use helper::printable;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::fmt::{self, Display};
use std::path::Path;

/// The remedy of a finding; empty if there is nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remedy {
    /// A command line that mends the finding when it is pasted into a root shell.
    command: Option<OwnCommand>,
    /// What a person has to decide or to do, instead of the command or after it.
    advice: String,
}

/// A remedy that is a command line.
pub(super) fn run(command: OwnCommand) -> Remedy {
    Remedy {
        command: Some(command),
        advice: String::new(),
    }
}

impl Remedy {
    /// Adds what a person may do instead of the command or of what is said already, or has to do after it.
    pub(super) fn and(self, more: impl Into<String>) -> Self {
        let more = more.into();
        let advice = if self.advice.is_empty() {
            more
        } else {
            format!("{}; {more}", self.advice)
        };
        Self { advice, ..self }
    }

    /// The remedy while a change of the node is tried: `enable` would refuse, and the next call of check say the same.
    pub(super) fn during_try(self) -> Self {
        if !self.has_enable() {
            return self;
        }
        format!("a try is under way, which job-adopt enable --keep or --undo ends; then: {self}")
            .into()
    }

    /// The remedy while `enable` would fail for another cause: its command becomes words, with the condition `what` from
    /// which on it helps.
    pub(super) fn after(self, what: &str) -> Self {
        if !self.has_enable() {
            return self;
        }
        format!("once {what}: {self}").into()
    }

    fn has_enable(&self) -> bool {
        self.command.as_ref().is_some_and(OwnCommand::is_enable)
    }

    /// The text of the command; empty if no command mends the finding.
    pub(super) fn command(&self) -> String {
        self.command
            .as_ref()
            .map(OwnCommand::to_string)
            .unwrap_or_default()
    }

    /// The words for a person; empty if there are none.
    pub(super) fn advice(&self) -> &str {
        &self.advice
    }

    /// The lines of the remedy below its finding: the command behind `run:`, the advice behind `do:`.
    pub(super) fn lines(&self) -> Vec<String> {
        let shown = self.shown();
        let mut lines = Vec::new();
        for (label, text) in [("run", shown.command()), ("do", shown.advice)] {
            if !text.is_empty() {
                lines.push(format!("  {label}: {}", printable(&text)));
            }
        }
        lines
    }

    /// The remedy as reports show it: a command with a character that no report can print is no command to paste, since
    /// a shell or a configuration may take what follows a line break for a line of its own. It becomes words for a person.
    fn shown(&self) -> Self {
        let command = self.command();
        if printable(&command) == command {
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
impl From<FileEdit> for Remedy {
    fn from(edit: FileEdit) -> Self {
        edit.to_string().into()
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
        let advice = &self.advice;
        let command = self.command();
        let separator = if command.is_empty() || advice.is_empty() {
            ""
        } else {
            "; "
        };
        write!(f, "{command}{separator}{advice}")
    }
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
        keys.serialize_field("command", &shown.command())?;
        keys.end()
    }
}

/// Asserts that the command can be pasted, since it is one line, which a shell parses; and that the words do not look like a
/// command at their begin, and name none that edits a file. Each finding that a test makes is asserted so.
#[cfg(test)]
pub(super) fn assert_pasteable(remedy: &Remedy) {
    const PROGRAMS: [&str; 8] = [
        "chmod",
        "chown",
        "job-adopt",
        "kill",
        "mount",
        "rm",
        "systemctl",
        "touch",
    ];
    const EDITS: [&str; 6] = ["sed -i", ">>", "printf ", "tee ", " >/", "cp "];
    let advice = remedy.advice();
    let first = advice.split(' ').next().unwrap_or_default();
    assert!(!PROGRAMS.contains(&first), "{remedy:?}");
    assert!(
        !EDITS.iter().any(|edit| advice.contains(edit)),
        "{remedy:?}"
    );
    let command = remedy.command();
    assert_eq!(command, printable(&command));
    let parse = std::process::Command::new("sh")
        .args(["-n", "-c", &command])
        .output()
        .unwrap();
    assert!(parse.status.success(), "{remedy:?}: {parse:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_command::Subcommand;
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

    #[test]
    fn enable_waits_for_the_end_of_a_try() {
        let enable = run(OwnCommand::job_adopt(Subcommand::Enable, ["--only", "pam"])).during_try();
        assert_eq!(enable.command(), "");
        assert!(
            enable
                .advice()
                .ends_with("then: job-adopt enable --only pam")
        );
        let strays = run(OwnCommand::job_adopt::<&str>(Subcommand::Strays, [])).during_try();
        assert_eq!(strays.command(), "job-adopt strays");
    }

    /// `jq -r .command | sh` would write a second key.
    #[test]
    fn command_of_several_lines_is_words_for_a_person() {
        let command = OwnCommand::job_adopt(Subcommand::Unregister, ["--conf", "/a\nreboot", "7"]);
        let remedy = run(command).and("or not");
        let words = "by hand, since a name has characters that cannot be pasted (here ?): job-adopt unregister --conf \
                     '/a?reboot' 7; or not";
        assert_eq!(remedy.lines(), [format!("  do: {words}")]);
        assert_eq!(
            serde_json::to_value(&remedy).unwrap(),
            serde_json::json!({ "remedy": words, "command": "" })
        );
    }
}
