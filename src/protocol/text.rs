//! Texts that cross the boundary: checked once, when they are made.

use std::fmt;
use std::str::FromStr;

use super::schema::Text;
use thiserror::Error;

/// Why a text is none of its kind: what one of that kind looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Invalid(pub(super) &'static str);

impl Invalid {
    /// Said of what is no value of an enum.
    pub(crate) const NO_WORD: Self = Self("is none of the words for it");
}

/// Kinds of names: how each is checked, and what is said of one that is wrong.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident if $check:expr, $wrong:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(Invalid($wrong)) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Text for $name {}
    )*};
}

names! {
    /// A job's id, in its source's canonical form.
    JobId if is_plain,
    "a job id is 1 to 64 of A-Z a-z 0-9 . _ + - and begins with a letter or digit";

    /// Name of a child cgroup. It has no dot, unlike the kernel's own files (`cgroup.procs`).
    LeafName if |text| is_plain(text) && !text.contains('.'),
    "a leaf is 1 to 64 of A-Z a-z 0-9 _ + - and begins with a letter or digit";

    /// Path of a cgroup below the cgroup v2 mount, `/` in front, never the root itself.
    CgroupPath if is_straight,
    "a cgroup path begins with / and has no empty, . or .. component and no control character";

    /// Absolute path without detours.
    AbsolutePath if is_straight,
    "a path begins with / and has no empty, . or .. component and no control character";

    /// Name of a node, as in Slurm's `NodeName`.
    NodeName if |text| is_plain(text) && !text.contains('+'),
    "a node's name is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit";
}

impl LeafName {
    /// The leaf of a job that names none.
    pub const DEFAULT: &str = "job-adopt";
}

impl Default for LeafName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl CgroupPath {
    /// The path without its leading `/`, as `openat2(2)` below the mount wants it.
    pub fn relative(&self) -> &str {
        self.0.strip_prefix('/').unwrap_or(&self.0)
    }
}

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
pub fn is_within(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Decimal digits only: no sign, no blank, no leading zero, so that one number has one spelling.
pub(crate) fn decimal(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

/// An enum whose values are words of protocol, log, configuration or record.
macro_rules! words {
    ($(#[$doc:meta])* $type:ident { $($(#[$about:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(unreachable_pub, reason = "some are for one folder only")]
        pub enum $type { $($(#[$about])* $value,)* }

        #[allow(unreachable_pub, reason = "some are for one folder only")]
        impl $type {
            /// Every value.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::protocol::Invalid;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|value| value.as_str() == text);
                found.ok_or(Self::Err::NO_WORD)
            }
        }
    };
}
pub(crate) use words;

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
    fn a_number_has_one_spelling() {
        assert_eq!((decimal("0"), decimal("4294967295")), (Some(0), Some(u32::MAX)));
        for bad in ["", "00", "01", "+1", "-1", " 1", "1 ", "4294967296", "\u{661}", "x"] {
            assert_eq!(decimal(bad), None, "{bad:?}");
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
