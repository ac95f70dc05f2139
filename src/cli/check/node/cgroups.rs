//! How the hierarchies of cgroups are mounted (cgroups(7)), here and as an sshd sees it.

use super::mountinfo::{Mount, Mounts};
use super::{Check, Finding};

const MOUNT: Check = "cgroup-mount";
const OTHERS: Check = "cgroup-mount-others";
const LEGACY: Check = "cgroup-legacy";

/// Where the module looks for cgroup v2, as [`crate::cgroup::Mount`] does.
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

/// As this process sees it.
pub(super) fn here(mounts: &Mounts) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(match Hierarchy::of(mounts) {
        Hierarchy::Missing(elsewhere) => Finding::error(
            MOUNT,
            "/sys/fs/cgroup",
            match elsewhere.first() {
                None => "no cgroup v2 hierarchy is mounted: every login is refused".to_owned(),
                Some(mount) => format!(
                    "cgroup v2 is mounted at {}, where it is not looked for: every login is refused",
                    mount.point
                ),
            },
            "boot with systemd.unified_cgroup_hierarchy=1, or mount it beside version 1: mkdir \
             /sys/fs/cgroup/unified; mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified",
        ),
        Hierarchy::ReadOnly(mount) => Finding::error(
            MOUNT,
            &mount.point,
            "cgroup v2 is mounted read-only: no login can be moved into its job",
            format!("mount -o remount,rw {}; in a container, run it with a writable one", mount.point),
        ),
        Hierarchy::Foreign(mount) => Finding::error(
            MOUNT,
            &mount.point,
            format!(
                "cgroup v2 is mounted for another cgroup namespace than this one (its root is {})",
                mount.root
            ),
            "mount it in this cgroup namespace, or run sshd and this command in the other one",
        ),
        Hierarchy::Usable(mount) => {
            let delegate = if mount.has("nsdelegate") { ", nsdelegate" } else { "" };
            Finding::fine(MOUNT, &mount.point, format!("cgroup v2 is mounted writable{delegate}"))
        }
    });
    findings.extend(others(mounts));
    findings.extend(legacy(mounts));
    findings
}

/// Further mounts of cgroup v2, which nothing here uses.
fn others(mounts: &Mounts) -> Option<Finding> {
    let points = mounts.seen().filter(|mount| mount.kind == "cgroup2").map(|mount| &*mount.point);
    let points: Vec<&str> = points.collect();
    let used = PLACES.iter().find(|place| points.contains(place))?;
    let more: Vec<&str> = points.into_iter().filter(|point| point != used).collect();
    (!more.is_empty()).then(|| {
        let text = format!("cgroup v2 is mounted at {} as well; {used} is used", more.join(", "));
        Finding::note(OTHERS, used, text, "records name cgroups below the one that is used")
    })
}

/// Hierarchies of version 1.
fn legacy(mounts: &Mounts) -> Option<Finding> {
    let points = mounts.seen().filter(|mount| mount.kind == "cgroup").map(|mount| &*mount.point);
    let points: Vec<&str> = points.collect();
    (!points.is_empty()).then(|| {
        Finding::note(
            LEGACY,
            points.join(", "),
            "hierarchies of cgroup version 1 are mounted beside version 2: of them, only jobs of \
             Slurm's cgroup/v1 plugin are joined",
            "give jobs that are registered a cgroup of version 2",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Severity;
    use super::*;

    fn found(mounts: &str) -> Vec<(Severity, &'static str)> {
        let text: String = mounts
            .lines()
            .enumerate()
            .map(|(index, line)| format!("{} 1 0:{index} {line}\n", index + 10))
            .collect();
        let findings = here(&Mounts::parse(&text));
        findings.iter().map(|finding| (finding.severity, finding.check)).collect()
    }

    #[test]
    fn layouts() {
        use Severity::{Error, Fine, Note};
        let unified = "/ /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let hybrid = "/ /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
        let elsewhere = "/ /mnt rw - cgroup2 cgroup2 rw\n";
        let legacy = "/ /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
        assert_eq!(found(unified), [(Fine, MOUNT)]);
        assert_eq!(found(hybrid), [(Fine, MOUNT), (Note, LEGACY)]);
        assert_eq!(found(elsewhere), [(Error, MOUNT)]);
        assert_eq!(found(legacy), [(Error, MOUNT), (Note, LEGACY)]);
        assert_eq!(found(&format!("{unified}{elsewhere}")), [(Fine, MOUNT), (Note, OTHERS)]);
        for broken in [
            "/ /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
            "/ /sys/fs/cgroup rw - cgroup2 cgroup2 ro\n",
            "/../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        ] {
            assert_eq!(found(broken), [(Error, MOUNT)], "{broken}");
        }
    }
}
