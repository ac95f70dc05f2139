//! Mounts that logins depend on (proc_pid_mountinfo(5)): cgroup v2, /proc, /run/job-adopt.

use super::{Check, Finding, Scene};
use crate::admin::people::HELPER_USER;
use crate::kernel::proc as procfs;
use crate::protocol::is_within;
use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag, lstat};
use nix::unistd::User;
use std::fmt;
use std::path::Path;

const MOUNT: Check = "cgroup-mount";
const HIDEPID: Check = "proc-hidepid";
const DIRECTORY: Check = "run-directory";

pub(super) fn findings(mounts: &Mounts, scene: &Scene) -> Vec<Finding> {
    let mut found = vec![cgroup(mounts), proc(mounts)];
    for path in ["/run/job-adopt", "/run/job-adopt/use"] {
        found.push(directory(path, lstat(&scene.at(path))));
    }
    found
}

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
        procfs::read_table(dir.join("mountinfo")).map(|text| Self::parse(&text))
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

/// Where the module looks for cgroup v2, as [`crate::kernel::cgroup::Mount`] does.
const PLACES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// How the module finds cgroup v2 among some mounts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hierarchy<'a> {
    /// Nowhere, and at these places it does not look.
    Missing(Vec<&'a Mount>),
    /// There, but nothing can be changed in it.
    ReadOnly(&'a Mount),
    /// There, but with a root that is another cgroup namespace's.
    Foreign(&'a Mount),
    /// There, to be used.
    Usable(&'a Mount),
}

impl<'a> Hierarchy<'a> {
    pub(super) fn of(mounts: &'a Mounts) -> Self {
        let unified: Vec<&Mount> = mounts.seen().filter(|mount| mount.kind == "cgroup2").collect();
        let at = |place: &&str| unified.iter().find(|mount| mount.point == **place);
        match PLACES.iter().find_map(at) {
            None => Self::Missing(unified),
            Some(mount) if mount.has("ro") => Self::ReadOnly(mount),
            Some(mount) if mount.root != "/" => Self::Foreign(mount),
            Some(mount) => Self::Usable(mount),
        }
    }
}

impl fmt::Display for Hierarchy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(elsewhere) => {
                f.write_str("no cgroup v2 hierarchy is mounted where it is looked for")?;
                if let Some(mount) = elsewhere.first() {
                    write!(f, ", but at {}", mount.point)?;
                }
                f.write_str(": every login is refused")
            }
            Self::ReadOnly(Mount { point, .. }) => {
                write!(f, "{point} is mounted read-only: no login can be moved into its job")
            }
            Self::Foreign(Mount { point, root, .. }) => {
                write!(f, "{point} is mounted for another cgroup namespace (its root is {root})")
            }
            Self::Usable(Mount { point, .. }) => write!(f, "{point} can be used"),
        }
    }
}

/// As this process sees it.
fn cgroup(mounts: &Mounts) -> Finding {
    let hierarchy = Hierarchy::of(mounts);
    let remedy = match hierarchy {
        Hierarchy::Usable(mount) => {
            return Finding::fine(MOUNT, &mount.point, "cgroup v2 is mounted writable");
        }
        Hierarchy::Missing(_) => {
            "boot with systemd.unified_cgroup_hierarchy=1, or mount it beside version 1: mkdir \
             /sys/fs/cgroup/unified; mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
        }
        Hierarchy::ReadOnly(_) => {
            "mount -o remount,rw what is named; in a container, run it with a writable one"
        }
        Hierarchy::Foreign(_) => {
            "mount it in this cgroup namespace, or run sshd and this command in the other one"
        }
    };
    Finding::error(MOUNT, "/sys/fs/cgroup", hierarchy, remedy)
}

/// Whether the helper sees the processes of others (`hidepid`, proc(5)).
fn proc(mounts: &Mounts) -> Finding {
    let Some(proc) = mounts.at("/proc") else {
        let text = "it is not mounted: no login can be judged";
        return Finding::error(HIDEPID, "/proc", text, "mount -t proc proc /proc");
    };
    hides(proc, is_helper_in)
}

fn hides(proc: &Mount, helper_in: impl Fn(u32) -> bool) -> Finding {
    let hidden = proc.value("hidepid").unwrap_or("0");
    if matches!(hidden, "0" | "off") {
        return Finding::fine(HIDEPID, "/proc", "everybody sees every process");
    }
    let gid = proc.value("gid").and_then(|gid| gid.parse().ok()).unwrap_or(0);
    let text = format!("it hides the processes of others (hidepid={hidden}, gid={gid})");
    if gid != 0 && helper_in(gid) {
        let text = format!("{text}, and the group of {HELPER_USER} sees them");
        return Finding::fine(HIDEPID, "/proc", text);
    }
    let text = format!(
        "{text}, from {HELPER_USER} as well: jobs of records and of Slurm are found all the same, jobs \
         of Flux are not, and other nodes are not told whose a connection is"
    );
    let remedy = format!(
        "mount -o remount,gid=N /proc, N being the primary group of {HELPER_USER} (the helper has no \
         other), and SupplementaryGroups= of it in job-adopt-callerid@.service"
    );
    Finding::warning(HIDEPID, "/proc", text, remedy)
}

/// By its primary group: the helper gives up all others.
fn is_helper_in(gid: u32) -> bool {
    let helper = User::from_name(HELPER_USER).ok().flatten();
    helper.is_some_and(|user| user.gid.as_raw() == gid)
}

/// Every directory above a record has to be root's alone; the helper has to get through.
fn directory(path: &str, stat: nix::Result<FileStat>) -> Finding {
    let remedy = format!(
        "install -d -m 0755 -o root -g root {path}; at each boot systemd-tmpfiles \
                          does so by tmpfiles.d/job-adopt.conf"
    );
    let stat = match stat {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => {
            let text = "it is not there: users with several jobs cannot choose";
            return Finding::note(DIRECTORY, path, text, remedy);
        }
        Err(errno) => return Finding::unknown(DIRECTORY, path, errno.desc(), "run this as root"),
    };
    let format = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let mode = stat.st_mode & 0o7777;
    let text = if format != SFlag::S_IFDIR {
        "it is no directory".to_owned()
    } else if stat.st_uid != 0 || mode & 0o022 != 0 {
        format!(
            "it is not root's alone (uid {}, mode {mode:04o}): what is in it is not believed",
            stat.st_uid
        )
    } else if mode & 0o055 != 0o055 {
        format!("the helper cannot read it (mode {mode:04o})")
    } else {
        return Finding::fine(DIRECTORY, path, "it is root's, and the helper can read it");
    };
    Finding::error(DIRECTORY, path, format!("{text}: logins are refused"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::check::finding::Severity;
    use crate::kernel::trust::tests::Scratch;
    use crate::random::Random;
    use std::os::unix::fs::PermissionsExt;

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

    fn found(mounts: &str) -> Severity {
        let text: String = mounts
            .lines()
            .enumerate()
            .map(|(index, line)| format!("{} 1 0:{index} {line}\n", index + 10))
            .collect();
        cgroup(&Mounts::parse(&text)).severity
    }

    #[test]
    fn layouts() {
        use Severity::{Error, Fine};
        let unified = "/ /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let hybrid = "/ /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
        let elsewhere = "/ /mnt rw - cgroup2 cgroup2 rw\n";
        let legacy = "/ /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
        assert_eq!(found(unified), Fine);
        assert_eq!(found(hybrid), Fine);
        assert_eq!(found(elsewhere), Error);
        assert_eq!(found(legacy), Error);
        assert_eq!(found(&format!("{unified}{elsewhere}")), Fine);
        for broken in [
            "/ /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
            "/ /sys/fs/cgroup rw - cgroup2 cgroup2 ro\n",
            "/../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        ] {
            assert_eq!(found(broken), Error, "{broken}");
        }
    }

    #[test]
    fn the_group_that_sees_has_to_be_the_helpers() {
        let judged = |options: &str, member: bool| {
            let mounts =
                Mounts::parse(&format!("9 1 0:9 / /proc rw,nosuid - proc proc {options}\n"));
            hides(mounts.at("/proc").unwrap(), |gid| gid == 44 && member).severity
        };
        assert_eq!(judged("rw", false), Severity::Fine);
        for hidden in ["hidepid=2", "hidepid=invisible", "hidepid=1", "hidepid=ptraceable"] {
            assert_eq!(judged(&format!("rw,{hidden}"), true), Severity::Warning, "{hidden}");
            assert_eq!(judged(&format!("rw,{hidden},gid=44"), true), Severity::Fine, "{hidden}");
            assert_eq!(judged(&format!("rw,{hidden},gid=44"), false), Severity::Warning);
        }
        assert_eq!(proc(&Mounts::default()).severity, Severity::Error);
    }

    #[test]
    fn a_directory_of_the_registry_is_roots_alone() {
        let stat = |uid, mode| {
            let mut stat = lstat("/").unwrap();
            (stat.st_uid, stat.st_mode) = (uid, mode);
            directory("/x", Ok(stat)).severity
        };
        assert_eq!(stat(0, 0o040_755), Severity::Fine);
        assert_eq!(stat(5, 0o040_755), Severity::Error);
        assert_eq!(stat(0, 0o040_775), Severity::Error);
        assert_eq!(stat(0, 0o040_757), Severity::Error);
        assert_eq!(stat(0, 0o040_750), Severity::Error);
        assert_eq!(stat(0, 0o100_755), Severity::Error);
        assert_eq!(directory("/x", Err(Errno::ENOENT)).severity, Severity::Note);
        assert_eq!(directory("/x", Err(Errno::EACCES)).severity, Severity::Unknown);
    }

    #[test]
    fn modes_are_those_of_the_file() {
        let scratch = Scratch::new();
        let path = scratch.path().join("d");
        scratch.dir("d");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(directory("/d", lstat(&path)).severity, Severity::Error);
    }
}
