//! Following the symbolic links that only root can have made.

use std::path::{Component, Path, PathBuf};

use crate::kernel::trust::{Distrust, Trust, TrustError};
use nix::errno::Errno;

/// Most links on one way, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

impl Trust {
    /// The path without links. A link is followed where the directory that it lies in is believed:
    /// whoever can change a link decides what is found behind it.
    /// Errors: `TrustError` for the first directory with a link in it that is not believed, for a
    /// name that is missing, and for more links than the kernel would follow.
    pub(super) fn follow(&self, path: &Path) -> Result<PathBuf, TrustError> {
        let mut real = PathBuf::from("/");
        let mut rest: Vec<PathBuf> = names(path);
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
            self.dir(&real)?;
            links += 1;
            if links > LINKS_MAX {
                return Err(TrustError::new(path, Distrust::Open(Errno::ELOOP)));
            }
            let target = next.read_link().map_err(failed)?;
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            rest.extend(names(&target));
        }
        Ok(real)
    }
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<PathBuf> {
    let wanted = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(wanted).map(|part| PathBuf::from(part.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::trust::tests::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_in_believed_directories_lead_to_what_the_kernel_finds() {
        let scratch = Scratch::new();
        let real = scratch.dir("a/b/c");
        scratch.dir("links");
        for (name, target) in
            [("one", "../a/b"), ("two", "one/../b/c"), ("three", real.to_str().unwrap())]
        {
            symlink(target, scratch.path().join("links").join(name)).unwrap();
        }
        for path in ["a/b/c", "links/one/c", "links/two", "links/three", "links/../links/three"] {
            let path = scratch.path().join(path);
            assert_eq!(scratch.trust().follow(&path).unwrap(), path.canonicalize().unwrap());
        }
    }

    #[test]
    fn a_link_that_others_can_change_is_not_followed() {
        let scratch = Scratch::new();
        scratch.dir("a");
        symlink("a", scratch.path().join("first")).unwrap();
        symlink("../a", scratch.dir("open").join("link")).unwrap();
        symlink("open/link", scratch.path().join("second")).unwrap();
        scratch.mode("open", 0o777);
        assert!(scratch.trust().follow(&scratch.path().join("first")).is_ok());
        for path in ["open/link", "second"] {
            let error = scratch.trust().follow(&scratch.path().join(path)).unwrap_err();
            assert_eq!(error.path(), scratch.path().join("open"));
            assert!(matches!(error.cause(), Distrust::Writable(_)));
        }
    }

    #[test]
    fn what_is_missing_or_leads_in_a_circle_is_an_error() {
        let scratch = Scratch::new();
        symlink("round", scratch.path().join("round")).unwrap();
        let cause = |name: &str| {
            let error = scratch.trust().follow(&scratch.path().join(name)).unwrap_err();
            error.cause().clone()
        };
        assert_eq!(cause("round"), Distrust::Open(Errno::ELOOP));
        assert_eq!(cause("none/below"), Distrust::Open(Errno::ENOENT));
    }
}
