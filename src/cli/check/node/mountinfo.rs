//! `/proc/PID/mountinfo` (proc_pid_mountinfo(5)): which mounts a process has, and which it sees.

use crate::plan::is_within;
use crate::proc;
use std::path::Path;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    id: u32,
    parent: u32,
    /// `MAJOR:MINOR` of the file system.
    pub(super) device: String,
    /// The directory of the file system that is its root.
    pub(super) root: String,
    /// Where it is, relative to the process's root.
    pub(super) point: String,
    /// Options of the mount, with commas between them.
    options: String,
    /// Type of the file system.
    pub(super) kind: String,
    /// Options of the file system.
    super_options: String,
}

/// The mounts of a process, in the kernel's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Those of the process whose directory in `/proc` is `dir`.
    ///
    /// # Errors
    /// As `read(2)`.
    pub(super) fn of(dir: &Path) -> std::io::Result<Self> {
        proc::read_table(dir.join("mountinfo")).map(|text| Self::parse(&text))
    }

    /// Reads the text of such a file; a line that is not of its form is no mount.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(Mount::parse).collect())
    }

    /// Those that no other mount covers.
    pub(super) fn seen(&self) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(|mount| self.is_seen(mount))
    }

    /// The one that is seen at a place.
    pub(super) fn at(&self, point: &str) -> Option<&Mount> {
        self.seen().find(|mount| mount.point == point)
    }

    /// A mount is covered by one on its own root, and by one that is mounted beside it, or beside
    /// any mount that it is below, further up in the tree.
    fn is_seen(&self, mount: &Mount) -> bool {
        let on_root = |other: &Mount| other.parent == mount.id && other.point == mount.point;
        if self.0.iter().any(|other| other.id != mount.id && on_root(other)) {
            return false;
        }
        let (mut child, mut left) = (mount, self.0.len());
        while let Some(parent) = self.0.iter().find(|other| other.id == child.parent) {
            let covers = |other: &Mount| {
                other.parent == parent.id
                    && other.id != child.id
                    && other.id != parent.id
                    && other.point != child.point
                    && is_within(&child.point, &other.point)
            };
            if self.0.iter().any(covers) {
                return false;
            }
            left = left.saturating_sub(1);
            if left == 0 || parent.id == child.id {
                break;
            }
            child = parent;
        }
        true
    }
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        // Optional fields in between end with one that is a hyphen.
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ');
        let mut next = || fields.next();
        let (id, parent) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let (device, root, point, options) = (next()?, next()?, next()?, next()?);
        let mut fields = system.split(' ');
        let (kind, _source) = (fields.next()?, fields.next()?);
        Some(Self {
            id,
            parent,
            device: device.to_owned(),
            root: unescaped(root),
            point: unescaped(point),
            options: options.to_owned(),
            kind: unescaped(kind),
            super_options: fields.next().unwrap_or_default().to_owned(),
        })
    }

    /// Whether the mount, or its file system, has this option.
    pub(super) fn has(&self, option: &str) -> bool {
        self.all_options().any(|found| found == option)
    }

    /// The value of an option `name=value`.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.all_options().find_map(|found| found.strip_prefix(name)?.strip_prefix('='))
    }

    fn all_options(&self) -> impl Iterator<Item = &str> {
        self.options.split(',').chain(self.super_options.split(','))
    }
}

/// Blanks, tabs, newlines and backslashes stand there as three octal digits after a backslash
/// (`mangle` in `fs/proc_namespace.c`).
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let byte = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                out.push(byte.into());
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const NODE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:26 / /sys rw,nosuid shared:7 - sysfs sysfs rw
31 30 0:27 / /sys/fs/cgroup ro,nosuid shared:8 master:3 - cgroup2 cgroup2 rw,nsdelegate
32 22 0:5 / /mnt/a\\040b rw - tmpfs t\\134mp rw,size=4k
";

    #[test]
    fn fields_are_found_behind_any_number_of_optional_ones() {
        let mounts = Mounts::parse(NODE);
        let cgroup = mounts.at("/sys/fs/cgroup").unwrap();
        assert_eq!((cgroup.kind.as_str(), cgroup.device.as_str()), ("cgroup2", "0:27"));
        assert!(cgroup.has("ro") && cgroup.has("nsdelegate") && !cgroup.has("nodev"));
        assert_eq!(mounts.at("/mnt/a b").unwrap().value("size"), Some("4k"));
        assert_eq!(mounts.at("/none"), None);
    }

    #[test]
    fn what_another_mount_covers_is_not_seen() {
        let on_it = format!("{NODE}40 31 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n");
        assert_eq!(Mounts::parse(&on_it).at("/sys/fs/cgroup").unwrap().kind, "tmpfs");
        let above = format!("{NODE}41 30 0:41 / /sys/fs rw - tmpfs tmpfs rw\n");
        assert_eq!(Mounts::parse(&above).at("/sys/fs/cgroup"), None);
        let beside = format!("{NODE}42 30 0:42 / /sys/fs/cg rw - tmpfs tmpfs rw\n");
        assert!(Mounts::parse(&beside).at("/sys/fs/cgroup").is_some());
        let far_above = format!("{NODE}43 22 0:43 / /sys rw - tmpfs tmpfs rw\n");
        // Two on one place: the second would have the first for its parent.
        assert!(Mounts::parse(&far_above).at("/sys/fs/cgroup").is_some());
        let on_parent = format!("{NODE}44 30 0:44 / /sys rw - tmpfs tmpfs rw\n");
        assert_eq!(Mounts::parse(&on_parent).at("/sys/fs/cgroup"), None);
    }

    #[test]
    fn broken_lines_are_no_mounts() {
        for line in ["", "1 2 3 - a b", "x 1 0:1 / / rw - a b rw", "1 1 0:1 / / rw a b rw", "- "] {
            assert_eq!(Mounts::parse(line), Mounts::default(), "{line:?}");
        }
        // Parents in a circle keep nobody searching.
        let own =
            Mounts::parse("1 1 0:1 / / rw - a b rw\n2 3 0:1 / /a rw - a b\n3 2 0:1 / / rw - a b\n");
        assert_eq!(own.seen().count(), 3);
    }

    /// As the kernel writes them.
    fn escaped(text: &str) -> String {
        let one = |c: char| match c {
            ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", u32::from(c)),
            c => c.to_string(),
        };
        text.chars().map(one).collect()
    }

    #[test]
    fn every_name_is_read_back() {
        let mut random = Random::new(7);
        for _ in 0..2000 {
            let mut name = String::from("/");
            for _ in 0..random.below(12) {
                name.push(
                    random.one_of(&['a', ' ', '\\', '\n', '\t', '-', '0', '1', '\u{e4}', '/']),
                );
            }
            let line = format!(
                "{} {} 0:{} {} {} rw - cgroup2 none rw",
                random.below(99),
                random.below(99),
                random.below(99),
                escaped(&name),
                escaped(&name)
            );
            let mount = Mount::parse(&line).unwrap();
            assert_eq!((&mount.point, &mount.root), (&name, &name), "{line}");
        }
    }

    #[test]
    fn no_text_is_too_much() {
        let mut random = Random::new(11);
        let words =
            ["1", "2", "-", "/", "/a", "\\0", "\\04", "\u{e4}", "rw", " ", "\n", " - ", "0:1"];
        for _ in 0..2000 {
            let text: String = (0..random.below(60)).map(|_| random.one_of(&words)).collect();
            let mounts = Mounts::parse(&text);
            assert!(mounts.seen().count() <= mounts.0.len());
        }
    }
}
