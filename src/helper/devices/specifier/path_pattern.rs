//! Path patterns below `/dev`, and the device nodes that match them.

use std::fmt;

use super::error::SpecifierError;
use super::glob::Glob;
use crate::node::{DeviceError, DeviceNode, FileError, Tree};

/// Maximum wild components of a pattern.
const WILD_COMPONENTS_MAX: usize = 4;
/// Maximum devices that a pattern may match.
const MATCHES_MAX: usize = 1024;
/// Maximum names that are compared with one pattern.
const NAMES_MAX: usize = 65_536;
/// Directories that users may write, whatever their mode. They contain no device nodes, and their
/// content must not decide whether a pattern resolves.
const USER_DIRS: [&str; 2] = ["/dev/shm", "/dev/mqueue"];

/// A path with patterns as components. A wild component matches names in one directory: never `/`,
/// and a name that begins with a dot only if the component begins with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Plain(String),
    Wild { text: String, glob: Glob },
}

/// The device nodes that match a pattern, and the directories that could not be listed.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// Paths and nodes, sorted by the components of the paths.
    pub(super) nodes: Vec<(String, DeviceNode)>,
    /// Errors of directories that may contain more matches.
    pub(super) unlisted: Vec<FileError>,
    /// The names in all directories that were listed.
    names_seen: usize,
}

/// The error of a pattern with too many matches. A part of them would be a list that no one wrote.
fn too_many() -> DeviceError {
    DeviceError::new(
        "more than 1,024 device nodes match, or more than 65,536 names had to be looked at",
    )
}

impl PathPattern {
    /// Parses the pattern of a path that begins with `/dev/`.
    ///
    /// # Errors
    ///
    /// [`SpecifierError::InvalidPattern`] if a component is no pattern, or more than four are wild;
    /// [`SpecifierError::RecursivePattern`] if one has `**`.
    pub(super) fn parse(path: &str) -> Result<Self, SpecifierError> {
        let mut parts = Vec::new();
        let mut wild_count = 0;
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            let text = name.to_owned();
            if !Glob::is_wild(name) {
                parts.push(Part::Plain(text));
                continue;
            }
            if name.contains("**") {
                return Err(SpecifierError::RecursivePattern);
            }
            wild_count += 1;
            parts.push(Part::Wild {
                text,
                glob: Glob::parse(name)?,
            });
        }
        if wild_count > WILD_COMPONENTS_MAX {
            return Err(SpecifierError::InvalidPattern);
        }
        Ok(Self(parts))
    }

    /// Finds the device nodes that match the pattern. Symbolic links are neither matched nor
    /// followed, and other files are skipped.
    ///
    /// # Errors
    ///
    /// More than 1,024 nodes match, or a search would compare more than 65,536 names.
    pub(super) fn find_matches(&self, tree: &Tree) -> Result<Matches, DeviceError> {
        let mut matches = Matches::default();
        walk(tree, "", &self.0, &mut matches)?;
        Ok(matches)
    }
}

/// Adds the matches of the remaining components `parts` below the directory `dir`, which is empty for the root.
fn walk(tree: &Tree, dir: &str, parts: &[Part], matches: &mut Matches) -> Result<(), DeviceError> {
    let Some((part, rest)) = parts.split_first() else {
        // Every component has matched: this is no directory, but perhaps a node.
        return matches.add_node(tree, dir);
    };
    match part {
        Part::Plain(name) => walk(tree, &format!("{dir}/{name}"), rest, matches),
        Part::Wild { text, glob } => {
            let takes_hidden = text.starts_with('.');
            for name in matches.list_names(tree, dir)? {
                if glob.matches(&name) && (takes_hidden || !name.starts_with('.')) {
                    walk(tree, &format!("{dir}/{name}"), rest, matches)?;
                }
            }
            Ok(())
        }
    }
}

impl Matches {
    /// Adds the path if it is a device node; any other file, and one that cannot be opened, is skipped.
    ///
    /// # Errors
    ///
    /// More nodes than a pattern may match.
    fn add_node(&mut self, tree: &Tree, path: &str) -> Result<(), DeviceError> {
        let Ok(node) = tree.read_node(path) else {
            return Ok(());
        };
        if self.nodes.len() >= MATCHES_MAX {
            return Err(too_many());
        }
        self.nodes.push((path.to_owned(), node));
        Ok(())
    }

    /// Lists the names in a directory; none if it is missing, behind a link, or users may write it or a directory above
    /// it. The error of one that cannot be listed, or has too many names by itself, is kept in [`Matches::unlisted`].
    ///
    /// # Errors
    ///
    /// The directories have more names together than one pattern is compared with.
    fn list_names(&mut self, tree: &Tree, path: &str) -> Result<Vec<String>, DeviceError> {
        if !tree.is_node_dir(path) || USER_DIRS.contains(&path) {
            return Ok(Vec::new());
        }
        match tree.list_names(path) {
            Ok(names) => {
                self.names_seen = self.names_seen.saturating_add(names.len());
                if self.names_seen > NAMES_MAX {
                    Err(too_many())
                } else {
                    Ok(names)
                }
            }
            Err(error) if error.is_missing() => Ok(Vec::new()),
            Err(error) => {
                self.unlisted.push(error);
                Ok(Vec::new())
            }
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Part::Plain(text) | Part::Wild { text, .. } in &self.0 {
            write!(f, "/{text}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Scratch;
    use nix::unistd::{Uid, setfsuid};

    fn paths(scratch: &Scratch, pattern: &str) -> Vec<String> {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let matches = PathPattern::parse(pattern)
            .unwrap()
            .find_matches(&tree)
            .unwrap();
        assert!(matches.unlisted.is_empty());
        matches.nodes.into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn star_stays_in_its_directory_and_skips_hidden_names() {
        let scratch = Scratch::new();
        for name in [
            "sda",
            "sda1",
            "sdb",
            ".sda",
            "cpu/0/msr",
            "cpu/1/msr",
            "cpu/microcode",
        ] {
            scratch.file(&format!("dev/{name}"), "c 1:3");
        }
        scratch.file("dev/sdaemon", "no device");
        assert_eq!(paths(&scratch, "/dev/sda*"), ["/dev/sda", "/dev/sda1"]);
        assert_eq!(
            paths(&scratch, "/dev/*/*/msr"),
            ["/dev/cpu/0/msr", "/dev/cpu/1/msr"]
        );
        assert_eq!(paths(&scratch, "/dev/cpu/*"), ["/dev/cpu/microcode"]);
        assert_eq!(
            paths(&scratch, "/dev/cpu/*/*"),
            ["/dev/cpu/0/msr", "/dev/cpu/1/msr"]
        );
        assert_eq!(paths(&scratch, "/dev/.s*"), ["/dev/.sda"]);
        assert_eq!(paths(&scratch, "/dev/[.]sda"), [""; 0]);
        assert_eq!(paths(&scratch, "/dev/gone/*"), [""; 0]);
    }

    #[test]
    fn links_are_neither_matched_nor_followed() {
        let scratch = Scratch::new();
        scratch.file("dev/real/a", "c 1:3");
        symlink("real", scratch.path().join("dev/link")).unwrap();
        symlink("a", scratch.path().join("dev/real/b")).unwrap();
        assert_eq!(paths(&scratch, "/dev/*/*"), ["/dev/real/a"]);
        assert_eq!(paths(&scratch, "/dev/link/*"), [""; 0]);
        assert_eq!(paths(&scratch, "/dev/l*/a"), [""; 0]);
    }

    #[test]
    fn directory_behind_a_link_is_not_listed() {
        let scratch = Scratch::new();
        scratch.file("dev/real/a", "c 1:3");
        symlink("real", scratch.path().join("dev/link")).unwrap();
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let mut matches = Matches::default();
        assert_eq!(matches.list_names(&tree, "/dev/link"), Ok(Vec::new()));
        assert_eq!(
            matches.list_names(&tree, "/dev/real"),
            Ok(vec!["a".to_owned()])
        );
    }

    /// Its names, which a user may make without end, would count against the limit of a pattern.
    #[test]
    fn directory_that_everyone_may_write_is_not_listed() {
        let scratch = Scratch::new();
        scratch.file("dev/open/a", "c 1:3");
        scratch.mode("dev/open", 0o1777);
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let mut matches = Matches::default();
        assert_eq!(matches.list_names(&tree, "/dev/open"), Ok(Vec::new()));
        scratch.mode("dev/open", 0o755);
        let names = matches.list_names(&tree, "/dev/open");
        assert_eq!(names, Ok(vec!["a".to_owned()]));
    }

    #[test]
    fn compared_names_are_bounded_over_all_directories() {
        let scratch = Scratch::new();
        scratch.file("dev/x/a", "c 1:3");
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let mut matches = Matches {
            names_seen: NAMES_MAX - 1,
            ..Matches::default()
        };
        assert!(matches.list_names(&tree, "/dev/x").is_ok());
        assert_eq!(matches.list_names(&tree, "/dev/x"), Err(too_many()));
    }

    #[test]
    fn directory_that_cannot_be_listed_is_named() {
        let scratch = Scratch::new();
        scratch.file("dev/x/a", "c 1:3");
        scratch.file("dev/y/a", "c 1:3");
        scratch.mode("dev/x", 0o300);
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        // Root lists every directory, so this thread opens files as nobody; for another user the call changes nothing.
        let before = setfsuid(Uid::from_raw(65_534));
        let matches = PathPattern::parse("/dev/*/*")
            .unwrap()
            .find_matches(&tree)
            .unwrap();
        setfsuid(before);
        scratch.mode("dev/x", 0o700);
        assert_eq!(matches.nodes.len(), 1);
        assert_eq!(
            matches.unlisted[0].to_string(),
            "list /dev/x: Permission denied"
        );
    }

    #[test]
    fn directories_of_users_are_not_searched() {
        let scratch = Scratch::new();
        for dir in USER_DIRS {
            scratch.file(format!("{dir}/a").trim_start_matches('/'), "c 1:3");
            scratch.file(format!("{dir}/x/b").trim_start_matches('/'), "c 1:3");
            scratch.mode(dir.trim_start_matches('/'), 0o1777);
        }
        scratch.file("dev/x/a", "c 1:3");
        assert_eq!(paths(&scratch, "/dev/*/*"), ["/dev/x/a"]);
        for pattern in [
            "/dev/shm/*",
            "/dev/./shm/*",
            "/dev/*/x/b",
            "/dev/*/x/*",
            "/dev/s*/a",
        ] {
            assert_eq!(paths(&scratch, pattern), [""; 0], "{pattern}");
        }
        assert_eq!(paths(&scratch, "/dev/*/a"), ["/dev/x/a"]);
    }

    #[test]
    fn more_matches_than_a_list_holds_are_an_error() {
        let scratch = Scratch::new();
        for number in 0..=MATCHES_MAX {
            scratch.file(&format!("dev/x/{number}"), "c 1:3");
        }
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let result = PathPattern::parse("/dev/x/*").unwrap().find_matches(&tree);
        assert_eq!(result.unwrap_err(), too_many());
        assert_eq!(paths(&scratch, "/dev/x/?").len(), 10);
    }

    #[test]
    fn more_than_four_wild_components_are_refused() {
        assert!(PathPattern::parse("/dev/*/*/*/*").is_ok());
        assert_eq!(
            PathPattern::parse("/dev/*/*/*/*/*"),
            Err(SpecifierError::InvalidPattern)
        );
        assert_eq!(
            PathPattern::parse("/dev/[a/b]"),
            Err(SpecifierError::InvalidPattern)
        );
    }
}
