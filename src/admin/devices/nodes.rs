//! The device nodes of a machine, and what they are called.

use super::super::Error;
use helper::devices::{DeviceNode, NodeError, Tree};
use helper::printable;
use protocol::DeviceType;
use std::os::unix::fs::PermissionsExt;

/// Most files and directories that are looked at.
const MOST: usize = 65_536;
/// Most directories in one another.
const DEPTH: usize = 8;
/// A directory in which anybody may make files, as `/dev/shm` is.
const ANYBODY: u32 = 0o002;

/// Every device node below `/dev`, sorted by their paths. No link is followed: what it leads to has a
/// path of its own. Directories in which anybody may make files are left out; no driver puts a node
/// there.
/// Fails: [`Error::Failed`] for a directory that cannot be listed, and past [`MOST`] and [`DEPTH`].
pub(super) fn nodes(tree: &Tree) -> Result<Vec<(String, DeviceNode)>, Error> {
    bounded(tree, MOST)
}

fn bounded(tree: &Tree, mut rest: usize) -> Result<Vec<(String, DeviceNode)>, Error> {
    let mut found = Vec::new();
    let mut levels = vec![vec!["/dev".to_owned()]];
    while let Some(waiting) = levels.last_mut() {
        let Some(dir) = waiting.pop() else {
            levels.pop();
            continue;
        };
        let below = look(tree, &dir, &mut rest, &mut found)?;
        if levels.len() >= DEPTH && !below.is_empty() {
            let cause = "there are more directories in one another than are looked at";
            return Err(Error::failed("list", dir, cause));
        }
        levels.push(below);
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Takes the nodes of one directory; the directories in it are what is returned.
fn look(
    tree: &Tree,
    dir: &str,
    rest: &mut usize,
    found: &mut Vec<(String, DeviceNode)>,
) -> Result<Vec<String>, Error> {
    let names = match tree.list_names(dir) {
        Ok(names) => names,
        // Gone meanwhile, unless it is /dev itself.
        Err(error) if error.is_missing() && dir != "/dev" => return Ok(Vec::new()),
        Err(error) => return Err(Error::Failed(error.to_string())),
    };
    let mut below = Vec::new();
    for name in names {
        *rest = rest.checked_sub(1).ok_or_else(|| {
            Error::failed("list", "/dev", "there are more files in it than are looked at")
        })?;
        let path = format!("{dir}/{name}");
        match tree.read_node(&path) {
            Ok(node) => found.push((path, node)),
            Err(NodeError::NotADevice) if is_drivers_directory(tree, &path) => below.push(path),
            Err(_) => {}
        }
    }
    Ok(below)
}

fn is_drivers_directory(tree: &Tree, path: &str) -> bool {
    std::fs::symlink_metadata(tree.locate(path))
        .is_ok_and(|found| found.is_dir() && found.permissions().mode() & ANYBODY == 0)
}

/// The drivers of a major, as `/proc/devices` names them; `None` where there is none, or where that
/// file cannot be read.
pub(super) fn driver(tree: &Tree, kind: DeviceType, major: u32) -> Option<String> {
    let names: Vec<&str> = tree.read_drivers().ok()?.names_of(kind, major).collect();
    (!names.is_empty()).then(|| printable(&names.join(",")))
}

/// Says so where no driver can be named.
pub(super) fn no_drivers(tree: &Tree) -> Option<String> {
    let error = tree.read_drivers().err()?;
    Some(printable(&format!("no driver is named: {error}")))
}

/// The type in a table and in JSON, as specifiers of classes begin.
pub(super) fn type_name(kind: DeviceType) -> &'static str {
    match kind {
        DeviceType::Char => "char",
        DeviceType::Block => "block",
    }
}

/// A cell for what may not be known.
pub(super) fn cell(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    fn tree(scratch: &Scratch) -> Tree {
        Tree::with_root(scratch.path(), scratch.trust())
    }

    fn paths(scratch: &Scratch) -> Vec<String> {
        nodes(&tree(scratch)).unwrap().into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn every_node_is_found_once_and_links_are_not_followed() {
        let scratch = Scratch::new();
        for name in ["nvidia0", "dri/by/card0", "dri/renderD128"] {
            scratch.file(&format!("dev/{name}"), "c 195:0");
        }
        scratch.file("dev/text", "no device");
        scratch.file("elsewhere/null", "c 1:3");
        symlink("nvidia0", scratch.path().join("dev/first")).unwrap();
        symlink("../elsewhere", scratch.path().join("dev/out")).unwrap();
        symlink(".", scratch.path().join("dev/again")).unwrap();
        let all = ["/dev/dri/by/card0", "/dev/dri/renderD128", "/dev/nvidia0"];
        assert_eq!(paths(&scratch), all);
        let nodes = nodes(&tree(&scratch)).unwrap();
        let node = DeviceNode { kind: DeviceType::Char, major: 195, minor: 0 };
        assert!(nodes.contains(&("/dev/dri/by/card0".to_owned(), node)));
    }

    #[test]
    fn what_anybody_may_fill_is_left_out() {
        let scratch = Scratch::new();
        scratch.file("dev/shm/x", "c 1:3");
        assert_eq!(paths(&scratch), ["/dev/shm/x"]);
        scratch.mode("dev/shm", 0o1777);
        assert_eq!(paths(&scratch), [""; 0]);
    }

    #[test]
    fn too_many_files_are_an_error() {
        let scratch = Scratch::new();
        for name in ["a", "b/c"] {
            scratch.file(&format!("dev/{name}"), "c 1:3");
        }
        assert!(bounded(&tree(&scratch), 3).is_ok());
        let Err(error) = bounded(&tree(&scratch), 2) else { panic!() };
        assert!(error.to_string().starts_with("list /dev: there are more"), "{error:?}");
    }

    #[test]
    fn depth_is_bounded_and_no_dev_is_an_error() {
        let scratch = Scratch::new();
        assert!(nodes(&tree(&scratch)).is_err());
        let path = format!("dev{}/null", "/a".repeat(DEPTH - 1));
        scratch.file(&path, "c 1:3");
        assert_eq!(paths(&scratch), [format!("/{path}")]);
        scratch.dir(&format!("dev{}", "/a".repeat(DEPTH)));
        assert!(nodes(&tree(&scratch)).is_err());
    }

    #[test]
    fn a_driver_is_named_where_it_is_known() {
        let scratch = Scratch::new();
        assert_eq!(driver(&tree(&scratch), DeviceType::Char, 5), None);
        scratch.file("proc/devices", "Character devices:\n 5 /dev/tty\n 5 ptmx\n");
        let named = driver(&tree(&scratch), DeviceType::Char, 5);
        assert_eq!(named.as_deref(), Some("/dev/tty,ptmx"));
        assert_eq!(driver(&tree(&scratch), DeviceType::Block, 5), None);
    }
}
