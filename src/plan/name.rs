//! Names that cross the boundary: checked once, when they are made.

use std::fmt;
use std::str::FromStr;

/// Why a text is no name of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// A job id is `[A-Za-z0-9][A-Za-z0-9._+-]{0,63}`.
    JobId,
    /// A leaf is `[A-Za-z0-9][A-Za-z0-9_+-]{0,63}`: without dots, unlike the kernel's own files.
    Leaf,
    /// A cgroup path is absolute below the mount, without `.`, `..`, empty or odd components.
    Cgroup,
    /// A path is absolute, without `.`, `..`, empty or odd components.
    Path,
    /// A node is `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`, as Slurm's NodeName.
    Node,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::JobId => "a job id is 1 to 64 of A-Z a-z 0-9 . _ + - and begins with a letter or digit",
            Self::Leaf => "a leaf is 1 to 64 of A-Z a-z 0-9 _ + - and begins with a letter or digit",
            Self::Cgroup => "a cgroup path begins with / and has no empty, . or .. component and no control character",
            Self::Path => "a path begins with / and has no empty, . or .. component and no control character",
            Self::Node => "a node's name is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit",
        })
    }
}

impl std::error::Error for NameError {}

fn is_plain(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 64
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
}

/// An absolute path without detours and control characters, never `/` itself.
fn is_straight(path: &str) -> bool {
    path.len() < 4096
        && !path.chars().any(char::is_control)
        && path.strip_prefix('/').is_some_and(|relative| {
            relative.split('/').all(|part| !matches!(part, "" | "." | ".."))
        })
}

/// Whether an absolute path, of a cgroup or a file, is `top` or below it. All is below `/`.
#[must_use]
pub fn is_within(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $error:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err($error) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_text!(
    /// A job's id, in its source's canonical form.
    JobId,
    NameError::JobId,
    is_plain
);

checked_text!(
    /// Name of a child cgroup. A dot is refused: the kernel's own files (`cgroup.procs`,
    /// `memory.max`) have one each, and no name of ours may ever meet one of theirs.
    LeafName,
    NameError::Leaf,
    |text| is_plain(text) && !text.contains('.')
);

checked_text!(
    /// Path of a cgroup below the cgroup v2 mount, `/` in front, never the root itself.
    CgroupPath,
    NameError::Cgroup,
    is_straight
);

checked_text!(
    /// Absolute path without detours.
    AbsolutePath,
    NameError::Path,
    is_straight
);

checked_text!(
    /// Name of a node as its scheduler spells it.
    NodeName,
    NameError::Node,
    |text| is_plain(text) && !text.contains('+')
);

impl LeafName {
    /// The leaf of a job that names none.
    pub const DEFAULT: &str = "job-adopt";
}

impl CgroupPath {
    /// The path without its leading `/`, as `openat2(2)` below the mount wants it.
    #[must_use]
    pub fn relative(&self) -> &str {
        self.0.strip_prefix('/').unwrap_or(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids() {
        for good in ["4242", "f2bLbcUR", "12_3", "a.b+c-d", "0"] {
            assert!(good.parse::<JobId>().is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "a\0", "ä", &long] {
            assert!(bad.parse::<JobId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_is_within_itself_and_those_above() {
        for (path, top, within) in [
            ("/a/b", "/a/b", true),
            ("/a/b/c d", "/a/b", true),
            ("/a", "/", true),
            ("/", "/", true),
            ("/a/bc", "/a/b", false),
            ("/a", "/a/b", false),
            ("/", "/a", false),
            ("/x/a/b", "/a/b", false),
            ("", "/a", false),
        ] {
            assert_eq!(is_within(path, top), within, "{path} {top}");
        }
    }

    #[test]
    fn leaves_never_name_kernel_files() {
        assert!(LeafName::DEFAULT.parse::<LeafName>().is_ok());
        for bad in ["cgroup.procs", "memory.max", "..", "a/b", ""] {
            assert!(bad.parse::<LeafName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nodes_are_named_as_slurm_names_them() {
        for good in ["gpu017", "n.cluster-1", "a_b", "0"] {
            assert!(good.parse::<NodeName>().is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", ".a", "-a", "a/b", "a+b", "a b", "a\n", &long] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn cgroup_paths_stay_below_the_mount() {
        for good in ["/a", "/system.slice/site-job-4242.scope", "/a b", "/a\\x2db"] {
            assert!(good.parse::<CgroupPath>().is_ok(), "{good}");
        }
        for bad in
            ["", "/", "a", "/a/", "//a", "/a//b", "/../a", "/a/..", "/a/./b", "/a\nb", "/a\0"]
        {
            assert!(bad.parse::<CgroupPath>().is_err(), "{bad:?}");
        }
    }
}
