//! Checked names and paths. A value is checked once, when it is constructed.

use super::schema::{InvalidText, Text, checked_string};
use std::fmt;
use std::str::FromStr;

checked_string! {
    /// A job's id, in its source's canonical form: decimal for Slurm, F58 for Flux.
    JobId if is_plain_name,
    "a job id is 1 to 64 of A-Z a-z 0-9 . _ + - and begins with a letter or digit";

    /// Name of a child cgroup. It has no dot, unlike the kernel's own files (`cgroup.procs`).
    LeafName if |text| is_plain_name(text) && !text.contains('.'),
    "a leaf is 1 to 64 of A-Z a-z 0-9 _ + - and begins with a letter or digit";

    /// Path of a cgroup below the cgroup v2 mount. It begins with `/` and is never the root itself.
    CgroupPath if is_normal_path,
    "a cgroup path begins with / and has no empty, . or .. component and no control character";

    /// Absolute path without `.` and `..`, never `/` itself.
    AbsolutePath if is_normal_path,
    "a path begins with / and has no empty, . or .. component and no control character";

    /// Name of a node, as in Slurm's `NodeName`.
    NodeName if |text| is_plain_name(text) && !text.contains('+'),
    "a node's name is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit";
}

impl LeafName {
    /// Name of a job's leaf if neither record nor scheduler names one.
    pub const DEFAULT: &str = "job-adopt";
}

impl Default for LeafName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl CgroupPath {
    /// The path without its leading `/`, as `openat2(2)` below the mount needs it.
    pub fn relative(&self) -> &str {
        self.0.strip_prefix('/').unwrap_or(&self.0)
    }
}

/// Tells whether a text is 1 to 64 letters, digits and `. _ + -`, and begins with a letter or digit.
fn is_plain_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 64
        && bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
}

/// Tells whether a path is absolute, is not `/` itself, and has no empty, `.` or `..` component and no
/// control character.
fn is_normal_path(path: &str) -> bool {
    path.len() < 4096
        && !path.chars().any(char::is_control)
        && path.strip_prefix('/').is_some_and(|relative| {
            relative
                .split('/')
                .all(|part| !matches!(part, "" | "." | ".."))
        })
}

/// Tells whether an absolute path, of a cgroup or a file, is `top` or below it. Every path is below `/`.
pub fn is_within(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Parses a number of decimal digits alone, at most `u32::MAX`. It has no sign, blank or leading zero, so that each
/// number has one spelling; `None` for any other text.
pub fn parse_decimal(text: &str) -> Option<u32> {
    text.parse()
        .ok()
        .filter(|number: &u32| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_id_is_one_plain_word() {
        for good in ["4242", "f2bLbcUR", "12_3", "a.b+c-d", "0"] {
            assert!(good.parse::<JobId>().is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in [
            "", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "a\0", "ä", &long,
        ] {
            assert!(bad.parse::<JobId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn path_is_within_itself_and_its_ancestors() {
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
    fn leaf_named_like_kernel_file_is_refused() {
        assert!(LeafName::DEFAULT.parse::<LeafName>().is_ok());
        for bad in ["cgroup.procs", "memory.max", "..", "a/b", ""] {
            assert!(bad.parse::<LeafName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn node_name_follows_slurm() {
        for good in ["gpu017", "n.cluster-1", "a_b", "0"] {
            assert!(good.parse::<NodeName>().is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", ".a", "-a", "a/b", "a+b", "a b", "a\n", &long] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn number_has_one_spelling() {
        assert_eq!(
            (parse_decimal("0"), parse_decimal("4294967295")),
            (Some(0), Some(u32::MAX))
        );
        for bad in [
            "",
            "00",
            "01",
            "+1",
            "-1",
            " 1",
            "1 ",
            "4294967296",
            "\u{661}",
            "x",
        ] {
            assert_eq!(parse_decimal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn cgroup_path_outside_mount_is_refused() {
        for good in [
            "/a",
            "/system.slice/site-job-4242.scope",
            "/a b",
            "/a\\x2db",
        ] {
            assert!(good.parse::<CgroupPath>().is_ok(), "{good}");
        }
        for bad in [
            "", "/", "a", "/a/", "//a", "/a//b", "/../a", "/a/..", "/a/./b", "/a\nb", "/a\0",
        ] {
            assert!(bad.parse::<CgroupPath>().is_err(), "{bad:?}");
        }
    }
}
