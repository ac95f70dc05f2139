//! Patterns of paths below `/dev`, and the nodes that they stand for.

use std::fmt;

use super::{Glob, SpecifierError};
use crate::helper::devices::{DeviceError, FileError, Node, NodeError, Tree};

/// Most wild components of a pattern.
const WILD_MAX: usize = 4;
/// Most devices that a pattern may stand for.
const MATCHES_MAX: usize = 1024;
/// Most names that are looked at for one pattern.
const LOOKED_AT_MAX: usize = 65_536;
/// Directories that users may write. What they put there must not decide whether a pattern
/// resolves, and no device node can be among it.
const OF_USERS: [&str; 2] = ["/dev/shm", "/dev/mqueue"];

/// A path of which components are patterns. A wild component stands for names in one directory:
/// never for `/`, and for a name that begins with a dot only where it begins with one itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Plain(String),
    Wild { text: String, glob: Glob },
}

/// What a pattern stands for, and the directories that could not be looked into.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// Paths and nodes, sorted as their components are.
    pub(super) nodes: Vec<(String, Node)>,
    /// Directories below which there may be more.
    pub(super) unseen: Vec<FileError>,
    looked_at: usize,
}

/// A part of them would be a list that nobody wrote.
fn too_many() -> DeviceError {
    DeviceError::new(
        "more than 1,024 device nodes match, or more than 65,536 names had to be looked at",
    )
}

impl PathPattern {
    /// The pattern of a path that begins with `/dev/`.
    /// Fails: [`SpecifierError::Pattern`] for a component that is no pattern, and for more than four
    /// that are wild.
    pub(super) fn parse(path: &str) -> Result<Self, SpecifierError> {
        let part = |text: &str| match Glob::is_wild(text) {
            true => Glob::parse(text).map(|glob| Part::Wild { text: text.to_owned(), glob }),
            false => Ok(Part::Plain(text.to_owned())),
        };
        let parts = path.split('/').filter(|text| !matches!(*text, "" | ".")).map(part);
        let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
        let wild = parts.iter().filter(|part| matches!(part, Part::Wild { .. })).count();
        if wild > WILD_MAX { Err(SpecifierError::Pattern) } else { Ok(Self(parts)) }
    }

    /// The device nodes that the pattern stands for. Symbolic links are neither matched nor
    /// followed, and what is no device is passed over.
    /// Fails: [`TooMany`]; a part of them would be a list that nobody wrote.
    pub(super) fn matches(&self, tree: &Tree) -> Result<Matches, DeviceError> {
        let mut found = Matches::default();
        walk(tree, "", &self.0, &mut found)?;
        Ok(found)
    }
}

fn walk(tree: &Tree, at: &str, parts: &[Part], found: &mut Matches) -> Result<(), DeviceError> {
    let Some((part, rest)) = parts.split_first() else { return found.end(tree, at) };
    match part {
        Part::Plain(name) => walk(tree, &format!("{at}/{name}"), rest, found),
        Part::Wild { text, glob } => {
            let hidden = text.starts_with('.');
            for name in found.names(tree, at)? {
                if glob.matches(&name) && (hidden || !name.starts_with('.')) {
                    walk(tree, &format!("{at}/{name}"), rest, found)?;
                }
            }
            Ok(())
        }
    }
}

impl Matches {
    fn end(&mut self, tree: &Tree, path: &str) -> Result<(), DeviceError> {
        let Ok(node) = tree.node(path) else { return Ok(()) };
        if self.nodes.len() >= MATCHES_MAX {
            return Err(too_many());
        }
        self.nodes.push((path.to_owned(), node));
        Ok(())
    }

    /// The names in a directory that no link leads to; none where there is no such directory.
    fn names(&mut self, tree: &Tree, path: &str) -> Result<Vec<String>, DeviceError> {
        let real = tree.node(path) == Err(NodeError::NoDevice);
        if !real || OF_USERS.contains(&path) {
            return Ok(Vec::new());
        }
        match tree.names(path) {
            Ok(names) => {
                self.looked_at = self.looked_at.saturating_add(names.len());
                if self.looked_at > LOOKED_AT_MAX { Err(too_many()) } else { Ok(names) }
            }
            Err(error) if error.is_missing() => Ok(Vec::new()),
            Err(error) => {
                self.unseen.push(error);
                Ok(Vec::new())
            }
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Plain(text) | Part::Wild { text, .. } => write!(f, "/{text}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Scratch;

    fn paths(scratch: &Scratch, pattern: &str) -> Vec<String> {
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        let found = PathPattern::parse(pattern).unwrap().matches(&tree).unwrap();
        assert!(found.unseen.is_empty());
        found.nodes.into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn a_star_stays_in_its_directory_and_passes_over_hidden_names() {
        let scratch = Scratch::new();
        for name in ["sda", "sda1", "sdb", ".sda", "cpu/0/msr", "cpu/1/msr", "cpu/microcode"] {
            scratch.file(&format!("dev/{name}"), "c 1:3");
        }
        scratch.file("dev/sdaemon", "no device");
        assert_eq!(paths(&scratch, "/dev/sda*"), ["/dev/sda", "/dev/sda1"]);
        assert_eq!(paths(&scratch, "/dev/*/*/msr"), ["/dev/cpu/0/msr", "/dev/cpu/1/msr"]);
        assert_eq!(paths(&scratch, "/dev/cpu/*"), ["/dev/cpu/microcode"]);
        assert_eq!(paths(&scratch, "/dev/cpu/*/*"), ["/dev/cpu/0/msr", "/dev/cpu/1/msr"]);
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
    fn a_directory_behind_a_link_is_not_even_listed() {
        let scratch = Scratch::new();
        scratch.file("dev/real/a", "c 1:3");
        symlink("real", scratch.path().join("dev/link")).unwrap();
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        let mut found = Matches::default();
        assert_eq!(found.names(&tree, "/dev/link"), Ok(Vec::new()));
        assert_eq!(found.names(&tree, "/dev/real"), Ok(vec!["a".to_owned()]));
    }

    #[test]
    fn what_is_looked_at_is_bounded_over_all_directories() {
        let scratch = Scratch::new();
        scratch.file("dev/x/a", "c 1:3");
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        let mut found = Matches { looked_at: LOOKED_AT_MAX - 1, ..Matches::default() };
        assert!(found.names(&tree, "/dev/x").is_ok());
        assert_eq!(found.names(&tree, "/dev/x"), Err(too_many()));
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_named() {
        if nix::unistd::Uid::effective().is_root() {
            println!("root lists every directory: skipped");
            return;
        }
        let scratch = Scratch::new();
        scratch.file("dev/x/a", "c 1:3");
        scratch.file("dev/y/a", "c 1:3");
        scratch.mode("dev/x", 0o300);
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        let found = PathPattern::parse("/dev/*/*").unwrap().matches(&tree).unwrap();
        scratch.mode("dev/x", 0o700);
        assert_eq!(found.nodes.len(), 1);
        assert_eq!(found.unseen[0].to_string(), "list /dev/x: Permission denied");
    }

    #[test]
    fn what_users_can_write_is_not_looked_at() {
        let scratch = Scratch::new();
        for dir in OF_USERS {
            scratch.file(format!("{dir}/a").trim_start_matches('/'), "c 1:3");
            scratch.file(format!("{dir}/x/b").trim_start_matches('/'), "c 1:3");
            scratch.mode(dir.trim_start_matches('/'), 0o1777);
        }
        scratch.file("dev/x/a", "c 1:3");
        assert_eq!(paths(&scratch, "/dev/*/*"), ["/dev/x/a"]);
        for pattern in ["/dev/shm/*", "/dev/./shm/*", "/dev/*/x/b", "/dev/*/x/*", "/dev/s*/a"] {
            assert_eq!(paths(&scratch, pattern), [""; 0], "{pattern}");
        }
        assert_eq!(paths(&scratch, "/dev/*/a"), ["/dev/x/a"]);
    }

    #[test]
    fn more_than_a_list_can_hold_is_nothing() {
        let scratch = Scratch::new();
        for number in 0..=MATCHES_MAX {
            scratch.file(&format!("dev/x/{number}"), "c 1:3");
        }
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        let result = PathPattern::parse("/dev/x/*").unwrap().matches(&tree);
        assert_eq!(result.unwrap_err(), too_many());
        assert_eq!(paths(&scratch, "/dev/x/?").len(), 10);
    }

    #[test]
    fn at_most_four_components_are_wild() {
        assert!(PathPattern::parse("/dev/*/*/*/*").is_ok());
        assert_eq!(PathPattern::parse("/dev/*/*/*/*/*"), Err(SpecifierError::Pattern));
        assert_eq!(PathPattern::parse("/dev/[a/b]"), Err(SpecifierError::Pattern));
    }
}
