//! The files of a unit of systemd, and the lines in them that set a key: what a person has to change is named by file and
//! line.

use super::file_edit::FileEdit;
use super::remedy::{Remedy, shell_word};
use facts::systemd::list_files;
use helper::stack::FileLine;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose files belong to packages: an upgrade would bring a line back.
const VENDOR_DIRS: [&str; 2] = ["/usr/", "/lib/"];

/// A line that sets a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) place: FileLine,
    /// The line without blanks around it.
    pub(super) text: String,
}

impl Setting {
    /// The value of the key.
    pub(super) fn value(&self) -> &str {
        self.text
            .split_once('=')
            .map_or("", |(_, value)| value.trim())
    }
}

/// Finds the lines that set one of these keys, in files that no package has.
fn find_settings(files: &[PathBuf], keys: &[&str]) -> Vec<Setting> {
    let is_own = |file: &&PathBuf| !VENDOR_DIRS.iter().any(|dir| file.starts_with(dir));
    let mut settings = Vec::new();
    for file in files.iter().filter(is_own) {
        settings.extend(find_in_file(file, keys));
    }
    settings
}

/// Finds the lines of a file that give one of these keys a value.
pub(super) fn find_in_file(file: &Path, keys: &[&str]) -> Vec<Setting> {
    let bytes = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut settings = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let Some((key, value)) = content.split_once('=') else {
            continue;
        };
        if keys.contains(&key.trim()) && !value.trim().is_empty() {
            settings.push(Setting {
                place: FileLine {
                    file: file.to_owned(),
                    line,
                },
                text: content.trim().to_owned(),
            });
        }
    }
    settings
}

/// What to change so that a unit has none of these keys: each line that sets one, and `advice` if there are none, as in a
/// unit of a package. The unit must start again then.
pub(super) fn unset_keys(unit: &str, keys: &[&str], advice: &str) -> Remedy {
    describe(&find_settings(&list_files(unit), keys), unit, advice)
}

/// Names the lines of [`unset_keys`].
fn describe(settings: &[Setting], unit: &str, advice: &str) -> Remedy {
    let unit = shell_word(unit);
    let restart = format!("systemctl daemon-reload && systemctl restart {unit}");
    let Some((last, others)) = settings.split_last() else {
        return format!("{advice} (systemctl edit {unit}), then: {restart}").into();
    };
    let mut remedy = Remedy::default();
    for Setting { place, text } in others {
        remedy = remedy.and(FileEdit::remove(place, text).to_string());
    }
    remedy.and(
        FileEdit::remove(&last.place, &last.text)
            .then(restart)
            .to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn lines_that_set_a_key_are_named_and_those_of_packages_are_not() {
        let scratch = Scratch::new();
        let file = scratch.file(
            "hard.conf",
            "[Service]\n# PrivateDevices=yes\nPrivateDevices = yes\nProtectHome=yes\nPrivateMounts=\n",
        );
        let files = [
            PathBuf::from("/usr/lib/systemd/system/none.service"),
            file.clone(),
        ];
        let found = find_settings(&files, &["PrivateDevices", "PrivateMounts"]);
        let name = file.display();
        assert_eq!(
            describe(&found, "ssh.service", "remove it").advice(),
            format!(
                "{name}:3: remove the line \"PrivateDevices = yes\", then: systemctl daemon-reload && systemctl restart \
                 ssh.service"
            )
        );
        assert_eq!(
            describe(&[], "ssh.service", "remove it").advice(),
            "remove it (systemctl edit ssh.service), then: systemctl daemon-reload && systemctl restart ssh.service"
        );
    }
}
