//! Lists the device nodes of a machine, and names their types and drivers.

use command::error::Error;
use helper::node::{DeviceNode, NodeError, Tree};
use helper::printable;
use protocol::DeviceType;
use std::os::unix::fs::PermissionsExt;

/// Maximum files and directories that are read.
const FILES_MAX: usize = 65_536;
/// Maximum depth of directories, `/dev` included.
const DEPTH_MAX: usize = 8;
/// The mode bit of a directory in which every user may create files, such as `/dev/shm`.
const WRITABLE_BY_OTHERS: u32 = 0o002;

/// Lists every device node below `/dev`, sorted by path.
///
/// It follows no links: their targets have paths of their own. It skips directories in which every
/// user may create files; no driver puts a node there.
///
/// # Errors
///
/// [`Error::Failed`] for a directory that cannot be listed, and past [`FILES_MAX`] and [`DEPTH_MAX`].
pub(super) fn list_nodes(tree: &Tree) -> Result<Vec<(String, DeviceNode)>, Error> {
    list_at_most(tree, FILES_MAX)
}

/// Lists every device node below `/dev`, sorted by path. It fails with [`Error::Failed`] if there are more
/// than `rest` files, if directories are nested deeper than [`DEPTH_MAX`], or if one cannot be listed.
fn list_at_most(tree: &Tree, mut rest: usize) -> Result<Vec<(String, DeviceNode)>, Error> {
    let mut nodes = Vec::new();
    // For each depth that was entered, the directories that are still to be read.
    let mut levels = vec![vec!["/dev".to_owned()]];
    while let Some(waiting) = levels.last_mut() {
        let Some(dir) = waiting.pop() else {
            levels.pop();
            continue;
        };
        let below = read_directory(tree, &dir, &mut rest, &mut nodes)?;
        if levels.len() >= DEPTH_MAX && !below.is_empty() {
            let cause = "there are more directories in one another than are looked at";
            return Err(Error::failed("list", dir, cause));
        }
        levels.push(below);
    }
    nodes.sort_by(|(first, _), (second, _)| first.cmp(second));
    Ok(nodes)
}

/// Adds the nodes of one directory to `nodes`; returns the directories in it that are to be read as well. `rest` is
/// the number of files that may still be read; it fails with [`Error::Failed`] if there are more.
fn read_directory(
    tree: &Tree,
    dir: &str,
    rest: &mut usize,
    nodes: &mut Vec<(String, DeviceNode)>,
) -> Result<Vec<String>, Error> {
    let names = match tree.list_names(dir) {
        Ok(names) => names,
        // A directory other than /dev may vanish meanwhile.
        Err(error) if error.is_missing() && dir != "/dev" => return Ok(Vec::new()),
        Err(error) => return Err(Error::Failed(error.to_string())),
    };
    let mut below = Vec::new();
    for name in names {
        *rest = rest.checked_sub(1).ok_or_else(|| {
            Error::failed(
                "list",
                "/dev",
                "there are more files in it than are looked at",
            )
        })?;
        let path = format!("{dir}/{name}");
        match tree.read_node(&path) {
            Ok(node) => nodes.push((path, node)),
            Err(NodeError::NotADevice) if is_driver_directory(tree, &path) => below.push(path),
            // Any other file, a link, and what has vanished meanwhile.
            Err(_) => {}
        }
    }
    Ok(below)
}

/// Checks whether a path is a directory in which not every user may create files.
fn is_driver_directory(tree: &Tree, path: &str) -> bool {
    std::fs::symlink_metadata(tree.locate(path))
        .is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & WRITABLE_BY_OTHERS == 0)
}

/// Returns the drivers of a major from `/proc/devices`; `None` if there is none, or if that file
/// cannot be read.
pub(super) fn driver_names(tree: &Tree, kind: DeviceType, major: u32) -> Option<String> {
    let names: Vec<&str> = tree.read_drivers().ok()?.names_of(kind, major).collect();
    (!names.is_empty()).then(|| printable(&names.join(",")))
}

/// Returns a warning if the drivers cannot be read.
pub(super) fn driver_warning(tree: &Tree) -> Option<String> {
    let error = tree.read_drivers().err()?;
    Some(printable(&format!("no driver is named: {error}")))
}

/// Returns the type in a table and in JSON, which is the prefix of class specifiers.
pub(super) fn type_name(kind: DeviceType) -> &'static str {
    match kind {
        DeviceType::Char => "char",
        DeviceType::Block => "block",
    }
}

/// Returns the cell of a table for a value that may be unknown.
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
        list_nodes(&tree(scratch))
            .unwrap()
            .into_iter()
            .map(|(path, _)| path)
            .collect()
    }

    #[test]
    fn every_node_is_listed_once_and_links_are_not_followed() {
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
        let nodes = list_nodes(&tree(&scratch)).unwrap();
        let node = DeviceNode {
            kind: DeviceType::Char,
            major: 195,
            minor: 0,
        };
        assert!(nodes.contains(&("/dev/dri/by/card0".to_owned(), node)));
    }

    #[test]
    fn directory_that_every_user_may_write_is_skipped() {
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
        assert!(list_at_most(&tree(&scratch), 3).is_ok());
        let Err(error) = list_at_most(&tree(&scratch), 2) else {
            panic!()
        };
        assert!(
            error.to_string().starts_with("list /dev: there are more"),
            "{error:?}"
        );
    }

    #[test]
    fn depth_is_bounded_and_no_dev_is_an_error() {
        let scratch = Scratch::new();
        assert!(list_nodes(&tree(&scratch)).is_err());
        let path = format!("dev{}/null", "/a".repeat(DEPTH_MAX - 1));
        scratch.file(&path, "c 1:3");
        assert_eq!(paths(&scratch), [format!("/{path}")]);
        scratch.dir(&format!("dev{}", "/a".repeat(DEPTH_MAX)));
        assert!(list_nodes(&tree(&scratch)).is_err());
    }

    #[test]
    fn driver_in_proc_devices_is_named() {
        let scratch = Scratch::new();
        assert_eq!(driver_names(&tree(&scratch), DeviceType::Char, 5), None);
        scratch.file("proc/devices", "Character devices:\n 5 /dev/tty\n 5 ptmx\n");
        let names = driver_names(&tree(&scratch), DeviceType::Char, 5);
        assert_eq!(names.as_deref(), Some("/dev/tty,ptmx"));
        assert_eq!(driver_names(&tree(&scratch), DeviceType::Block, 5), None);
    }
}
