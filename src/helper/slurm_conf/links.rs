//! Paths of Slurm's files and directories behind symbolic links.

use kernel::trust::{Distrust, Trust, TrustError};
use nix::errno::Errno;
use std::path::{Component, Path, PathBuf};

/// Maximum links in one path, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Resolves all symbolic links of a path. It follows a link only in a trusted directory, since a
/// user who can change the link determines its target.
///
/// # Errors
///
/// [`TrustError`] for the first untrusted directory that contains a link of the path, for a name that is
/// missing or cannot be looked up, and for more links than the kernel would follow.
pub fn resolve_links(trust: &Trust, path: &Path) -> Result<PathBuf, TrustError> {
    // The part that is resolved, which has no links: its parent is the directory above.
    let mut real = PathBuf::from("/");
    // The names that are still to be resolved, the next one last.
    let mut rest: Vec<PathBuf> = reversed_names(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == Path::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        let failed = |error: std::io::Error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            TrustError::new(&next, Distrust::Open(errno))
        };
        if !next.symlink_metadata().map_err(failed)?.is_symlink() {
            real = next;
            continue;
        }
        trust.dir(&real)?;
        links += 1;
        if links > LINKS_MAX {
            return Err(TrustError::new(path, Distrust::Open(Errno::ELOOP)));
        }
        let target = next.read_link().map_err(failed)?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        rest.extend(reversed_names(&target));
    }
    Ok(real)
}

/// Lists the names of a path, the last one first.
fn reversed_names(path: &Path) -> Vec<PathBuf> {
    let is_name =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components()
        .rev()
        .filter(is_name)
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_in_trusted_directories_resolve_as_in_the_kernel() {
        let scratch = Scratch::new();
        let real = scratch.dir("a/b/c");
        scratch.dir("links");
        for (name, target) in [
            ("one", "../a/b"),
            ("two", "one/../b/c"),
            ("three", real.to_str().unwrap()),
        ] {
            symlink(target, scratch.path().join("links").join(name)).unwrap();
        }
        for path in [
            "a/b/c",
            "links/one/c",
            "links/two",
            "links/three",
            "links/../links/three",
        ] {
            let path = scratch.path().join(path);
            assert_eq!(
                resolve_links(&scratch.trust(), &path).unwrap(),
                path.canonicalize().unwrap()
            );
        }
    }

    #[test]
    fn link_in_writable_directory_is_refused() {
        let scratch = Scratch::new();
        scratch.dir("a");
        symlink("a", scratch.path().join("first")).unwrap();
        symlink("../a", scratch.dir("open").join("link")).unwrap();
        symlink("open/link", scratch.path().join("second")).unwrap();
        scratch.mode("open", 0o777);
        assert!(resolve_links(&scratch.trust(), &scratch.path().join("first")).is_ok());
        for path in ["open/link", "second"] {
            let error = resolve_links(&scratch.trust(), &scratch.path().join(path)).unwrap_err();
            assert_eq!(error.path(), scratch.path().join("open"));
            assert!(matches!(error.cause(), Distrust::Writable(_)));
        }
    }

    #[test]
    fn missing_name_and_link_loop_are_errors() {
        let scratch = Scratch::new();
        symlink("round", scratch.path().join("round")).unwrap();
        let cause = |name: &str| {
            let error = resolve_links(&scratch.trust(), &scratch.path().join(name)).unwrap_err();
            error.cause().clone()
        };
        assert_eq!(cause("round"), Distrust::Open(Errno::ELOOP));
        assert_eq!(cause("none/below"), Distrust::Open(Errno::ENOENT));
    }
}
