//! Paths in an image of a node, where links lead to the image's own files.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Maximum links on the way, as in Linux.
const LINKS_MAX: usize = 40;

/// Resolves the links in a path below `root` as programs that run with that root would: an absolute target is below it too,
/// and `..` does not lead out. For this node's own root, and for a path elsewhere, the path as it is. What is missing stays
/// in the result, and so does what follows too many links: whoever opens it gets the error.
pub(super) fn resolve_below<'a>(root: &Path, path: &'a Path) -> Cow<'a, Path> {
    let Ok(inner) = path.strip_prefix(root) else {
        return path.into();
    };
    if root == Path::new("/") {
        return path.into();
    }
    let mut pending: VecDeque<OsString> = split(inner);
    let mut resolved = PathBuf::new();
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        let Ok(target) = root.join(&resolved).join(&name).read_link() else {
            resolved.push(name);
            continue;
        };
        // An image has no devices. A link there masks a file.
        if target == Path::new("/dev/null") && pending.is_empty() {
            return target.into();
        }
        links += 1;
        if links > LINKS_MAX {
            return path.into();
        }
        if target.is_absolute() {
            resolved.clear();
        }
        let mut names = split(&target);
        names.append(&mut pending);
        pending = names;
    }
    root.join(resolved).into()
}

/// Splits a path into its names, and those that lead up.
fn split(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_an_image_lead_to_its_own_files() {
        let scratch = Scratch::new();
        let root = scratch.path();
        let target = scratch.file("etc/authselect/system-auth", "");
        scratch.file("etc/pam.d/sshd", "");
        for (name, to) in [
            ("system-auth", "/etc/authselect/system-auth"),
            ("password-auth", "../../../../etc/authselect/system-auth"),
            ("chain", "system-auth"),
            ("loop", "/etc/pam.d/loop"),
        ] {
            symlink(to, root.join("etc/pam.d").join(name)).unwrap();
        }
        for name in ["system-auth", "password-auth", "chain"] {
            let path = root.join("etc/pam.d").join(name);
            assert_eq!(resolve_below(root, &path), target, "{name}");
        }
        let looping = root.join("etc/pam.d/loop");
        assert_eq!(resolve_below(root, &looping), looping);
        let missing = root.join("etc/none/x");
        assert_eq!(resolve_below(root, &missing), missing);
        let link = root.join("etc/pam.d/system-auth");
        assert_eq!(resolve_below(Path::new("/"), &link), link);
    }
}
