//! The files of an sshd's configuration: which of them sets a key, and whether sshd has read them as
//! they are now. What the keys amount to, `sshd -T` knows better.

use helper::stack::FileLine;
use nix::fcntl::OFlag;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file of an sshd that names no other.
pub(crate) const DEFAULT_FILE: &str = "/etc/ssh/sshd_config";
/// Maximum nesting of `Include`, as in sshd.
const DEPTH_MAX: usize = 16;
/// Maximum files that are read.
const FILES_MAX: usize = 256;

/// The files of one configuration.
#[derive(Debug, Default)]
pub struct ConfigFiles {
    /// Its files, and the folders that `Include` takes files from.
    sources: Vec<PathBuf>,
    /// Each line that sets a key, in the order in which sshd reads them: outside of `Match` the first one of a key
    /// counts.
    lines: Vec<ConfigLine>,
}

/// A line that sets a key.
#[derive(Debug)]
pub struct ConfigLine {
    /// In lower case.
    key: String,
    /// What it sets the key to.
    pub value: String,
    /// Where it is.
    pub place: FileLine,
    /// As it is in the file.
    text: String,
    /// The criteria of the blocks of `Match` that the line is in; `None` if it holds for all connections.
    criteria: Option<String>,
}

impl ConfigFiles {
    /// Reads a configuration. A file that cannot be read has no lines; sshd reports it.
    pub fn read(file: &Path) -> Self {
        let mut files = Self::default();
        files.add(file, 0, None);
        files
    }

    /// Finds the file and line that decide about a key, as `FILE:LINE`; `None` if no line outside of `Match`
    /// sets the key.
    pub(crate) fn find_line(&self, key: &str) -> Option<String> {
        Some(self.find_place(key)?.0.to_string())
    }

    /// Finds the line that decides about a key, as `Self::find_line` does, and its text.
    pub fn find_place(&self, key: &str) -> Option<(&FileLine, &str)> {
        let mut lines = self.lines.iter();
        let line = lines.find(|line| line.key == key && line.criteria.is_none())?;
        Some((&line.place, &line.text))
    }

    /// Lists the lines that set a key in a block of `Match`, each with the criteria of its block.
    pub fn list_in_match(&self, key: &str) -> Vec<(&str, &ConfigLine)> {
        let lines = self.lines.iter().filter(|line| line.key == key);
        lines
            .filter_map(|line| Some((line.criteria.as_deref()?, line)))
            .collect()
    }

    /// Finds the first file or folder that was changed after this time, in seconds and nanoseconds; `None` if
    /// none was.
    pub(crate) fn find_changed_since(&self, time: (i64, i64)) -> Option<&Path> {
        self.sources.iter().map(PathBuf::as_path).find(|path| {
            path.metadata()
                .is_ok_and(|meta| (meta.ctime(), meta.ctime_nsec()) > time)
        })
    }

    /// Adds the lines of a file, and at each `Include` those of the files that it includes. A `Match` block ends with
    /// its file at the latest, and holds for the files that it includes: `outer` has the criteria around this file.
    /// `depth` counts the files that include this one: past [`DEPTH_MAX`], or after [`FILES_MAX`] files, nothing is
    /// added.
    fn add(&mut self, file: &Path, depth: usize, outer: Option<&str>) {
        if depth > DEPTH_MAX || self.sources.len() >= FILES_MAX {
            return;
        }
        self.sources.push(file.to_owned());
        let text = read_regular(file).unwrap_or_default();
        let mut criteria = outer.map(str::to_owned);
        for (number, line) in (1..).zip(String::from_utf8_lossy(&text).lines()) {
            let Some((key, values)) = split_line(line) else {
                continue;
            };
            match key.as_str() {
                "include" => {
                    for pattern in values {
                        self.add_included(&pattern, depth, criteria.as_deref());
                    }
                }
                "match" => {
                    let block = values.join(" ");
                    criteria = Some(match outer {
                        Some(outer) => format!("{outer} and {block}"),
                        None => block,
                    });
                }
                _ => self.lines.push(ConfigLine {
                    key,
                    value: values.join(" "),
                    criteria: criteria.clone(),
                    place: FileLine {
                        file: file.to_owned(),
                        line: number,
                    },
                    text: line.trim().to_owned(),
                }),
            }
        }
    }

    /// Adds the files that a pattern names, in the order of their names. Only its last part may have
    /// wildcards.
    fn add_included(&mut self, pattern: &str, depth: usize, criteria: Option<&str>) {
        // sshd takes relative names from its own folder, whatever file includes them.
        let path = Path::new("/etc/ssh").join(pattern);
        let (Some(folder), Some(last)) = (path.parent(), path.file_name()) else {
            return;
        };
        let last_pattern = last.to_string_lossy();
        if !last_pattern.contains(['*', '?']) {
            return self.add(&path, depth + 1, criteria);
        }
        self.sources.push(folder.to_owned());
        let mut names: Vec<String> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.') && is_match(&last_pattern, name))
            .collect();
        names.sort();
        for name in names {
            self.add(&folder.join(name), depth + 1, criteria);
        }
    }
}

/// Reads a regular file. Opening another one may have an effect, as with a watchdog, or never end, as with a FIFO.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] for a file that is not regular, and the errors of its calls.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let require_regular = |meta: Metadata| {
        if meta.is_file() {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::InvalidInput))
    };
    require_regular(path.metadata()?)?;
    // It may be another one by now.
    let mut file = File::options()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits())
        .open(path)?;
    require_regular(file.metadata()?)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// Splits a line into its key, in lower case, and its values; `None` for a comment and an empty line. Between both are
/// blanks or one "=".
fn split_line(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line
        .find(|c: char| c.is_whitespace() || c == '=')
        .unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let values = rest.strip_prefix('=').unwrap_or(rest);
    Some((
        key.trim_matches('"').to_ascii_lowercase(),
        split_values(values),
    ))
}

/// Splits values as OpenSSH does from 8.7 on (`argv_split` of `misc.c`): quotes keep blanks together, and a word that begins
/// with `#` outside of quotes begins a comment. Earlier releases refuse a line with such a comment.
fn split_values(text: &str) -> Vec<String> {
    const BLANKS: [char; 2] = [' ', '\t'];
    let mut values = Vec::new();
    let mut rest = text.trim_start_matches(BLANKS);
    while !rest.is_empty() && !rest.starts_with('#') {
        let (value, tail) = take_value(rest);
        values.push(value);
        rest = tail.trim_start_matches(BLANKS);
    }
    values
}

/// Takes the first value off a text, without its quotes and the backslashes before quotes, backslashes and blanks. Returns
/// it and the text behind it.
fn take_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    loop {
        let rest = chars.as_str();
        let Some(c) = chars.next() else {
            return (value, rest);
        };
        match (c, quote) {
            (' ' | '\t', None) => return (value, rest),
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('\\', _) => match chars.as_str().chars().next() {
                Some(next @ ('"' | '\'' | '\\')) => {
                    value.push(next);
                    chars.next();
                }
                Some(' ') if quote.is_none() => {
                    value.push(' ');
                    chars.next();
                }
                _ => value.push('\\'),
            },
            (c, _) => value.push(c),
        }
    }
}

/// Checks whether a name matches a pattern with `*` and `?`.
fn is_match(pattern: &str, name: &str) -> bool {
    match pattern.chars().next() {
        None => name.is_empty(),
        Some('*') => {
            let after = &pattern[1..];
            (0..=name.len()).any(|at| name.get(at..).is_some_and(|end| is_match(after, end)))
        }
        Some(first) => {
            let mut rest = name.chars();
            let is_first = rest.next().is_some_and(|c| first == '?' || first == c);
            is_first && is_match(&pattern[first.len_utf8()..], rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn first_line_of_a_key_is_named() {
        let scratch = Scratch::new();
        let root = scratch.path().display().to_string();
        scratch.file(
            "d/10-site.conf",
            "# x\n usepam=no\nMatch all\nBanner none\n",
        );
        scratch.file("d/20-other.conf", "UsePAM yes\nX11Forwarding no\n");
        scratch.file("d/30-note.txt", "Port 7\n");
        scratch.file("block.conf", "MaxAuthTries 2\n");
        let main = format!(
            "Include \"{root}/d/*.conf\"\nUsePAM yes\nPort 22\nBanner /x\nMatch user a\n\
             Include {root}/block.conf\n"
        );
        scratch.file("site_config", &main);
        let files = ConfigFiles::read(&scratch.path().join("site_config"));
        for (key, line) in [
            ("usepam", Some("d/10-site.conf:2")),
            ("x11forwarding", Some("d/20-other.conf:2")),
            ("port", Some("site_config:3")),
            ("banner", Some("site_config:4")),
            ("maxauthtries", None),
        ] {
            assert_eq!(
                files.find_line(key),
                line.map(|line| format!("{root}/{line}")),
                "{key}"
            );
        }
    }

    #[test]
    fn file_that_is_not_regular_is_not_opened() {
        let scratch = Scratch::new();
        let fifo = scratch.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let text = format!("Include {}\nPort 22\n", fifo.display());
        let files = ConfigFiles::read(&scratch.file("site_config", &text));
        assert!(files.find_line("port").is_some());
        let error = read_regular(&fifo).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn values_are_split_as_sshd_splits_them() {
        for (line, expected) in [
            ("PAMServiceName sshd # x", &["pamservicename", "sshd"][..]),
            ("PAMServiceName sshd#x", &["pamservicename", "sshd#x"]),
            ("Banner \"#y\" #", &["banner", "#y"]),
            ("Banner=/x#y\t#z", &["banner", "/x#y"]),
            ("Banner = '/a b'", &["banner", "/a b"]),
            ("\"Banner\" \"/a\\\"b\"", &["banner", "/a\"b"]),
            ("Include /a\\ b /c\\d", &["include", "/a b", "/c\\d"]),
            ("Match user=bob # all", &["match", "user=bob"]),
            ("Banner #x", &["banner"]),
        ] {
            let (key, values) = split_line(line).unwrap();
            let words = [vec![key], values].concat();
            assert_eq!(words, expected, "{line}");
        }
        assert_eq!(split_line(" # x"), None);
    }

    #[test]
    fn change_of_a_file_or_folder_is_seen() {
        let scratch = Scratch::new();
        let root = scratch.path().display().to_string();
        scratch.file("d/a.conf", "");
        scratch.file("main", &format!("include {root}/d/*.conf\n"));
        let main = scratch.path().join("main");
        let seen = |time| {
            let files = ConfigFiles::read(&main);
            files.find_changed_since(time).map(Path::to_owned)
        };
        assert_eq!(seen((i64::MAX, 0)), None);
        assert_eq!(seen((0, 0)), Some(main.clone()));
        let meta = main.metadata().unwrap();
        let read_at = (meta.ctime(), meta.ctime_nsec());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(seen(read_at), None);
        std::fs::remove_file(scratch.path().join("d/a.conf")).unwrap();
        assert_eq!(seen(read_at), Some(scratch.path().join("d")));
    }

    #[test]
    fn names_match_patterns() {
        for (pattern, name, matches) in [
            ("*.conf", "10-a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("?0-*", "10-a", true),
            ("*", "", true),
            ("a", "b", false),
        ] {
            assert_eq!(is_match(pattern, name), matches, "{pattern} {name}");
        }
    }

    /// An endless include ends.
    #[test]
    fn file_that_includes_itself_ends() {
        let scratch = Scratch::new();
        let main = scratch.path().join("main");
        scratch.file("main", &format!("Include {}\nUsePAM no\n", main.display()));
        assert!(ConfigFiles::read(&main).find_line("usepam").is_some());
    }
}
