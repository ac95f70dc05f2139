//! `/run/job-adopt`: what is in it, whose it is, and how it is mounted.

use super::mountinfo::Mounts;
use super::{Check, Finding, Scene};
use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag, lstat};
use std::fs;

const DIRECTORY: Check = "run-directory";
const CHOICES: Check = "run-use";
const CALLERID: Check = "callerid-socket";

/// Where users write which job they choose.
const USE: &str = "/run/job-adopt/use";
/// The port on which other nodes ask (RFC 1413), as `/proc/net/tcp` has it.
const PORT: &str = "0071";

pub(super) fn findings(mounts: &Mounts, scene: &Scene) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in ["/run/job-adopt", USE] {
        findings.push(directory(path, lstat(&scene.at(path))));
    }
    findings.push(choices(mounts));
    findings.extend(callerid(scene));
    findings
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

fn choices(mounts: &Mounts) -> Finding {
    match mounts.at(USE) {
        Some(mount) => {
            let bounded =
                mount.value("size").is_some() && mount.has("nosuid") && mount.has("nodev");
            if bounded {
                return Finding::fine(CHOICES, USE, "it is a file system of its own, with a limit");
            }
            let text = "it is a file system of its own, without a limit, nosuid or nodev";
            Finding::note(CHOICES, USE, text, "mount it by the unit that is installed")
        }
        None => Finding::note(
            CHOICES,
            USE,
            "it is a part of /run: whoever fills it up keeps others from choosing a job, and more",
            "systemctl enable --now 'run-job\\x2dadopt-use.mount'",
        ),
    }
}

/// Whether other nodes are answered, where they are configured to be.
fn callerid(scene: &Scene) -> Option<Finding> {
    if scene.config.caller.networks.is_empty() {
        return None;
    }
    let listens = ["tcp", "tcp6"].iter().any(|table| {
        let text = fs::read_to_string(scene.at(&format!("/proc/net/{table}")));
        text.is_ok_and(|text| text.lines().any(is_socket))
    });
    Some(match listens {
        true => Finding::fine(CALLERID, "port 113", "other nodes are answered"),
        false => Finding::warning(
            CALLERID,
            "port 113",
            "callerid_networks is set and nobody answers here: of logins from this node to others, \
             theirs cannot tell by which job they were made",
            "systemctl enable --now job-adopt-callerid.socket",
        ),
    })
}

/// Whether a line of `/proc/net/tcp` is a socket that listens on the port (state 0A).
fn is_socket(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = fields.next().and_then(|address| address.rsplit(':').next());
    local == Some(PORT) && fields.nth(1) == Some("0A")
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Severity;
    use super::*;
    use crate::trust::tests::Scratch;
    use std::os::unix::fs::PermissionsExt;

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
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(directory("/d", lstat(&path)).severity, Severity::Error);
    }

    #[test]
    fn choices_have_room_of_their_own() {
        let judged = |lines: &str| choices(&Mounts::parse(lines)).severity;
        let line = "9 1 0:9 / /run/job-adopt/use rw,nosuid,nodev - tmpfs tmpfs rw";
        assert_eq!(judged(&format!("{line},size=4096k")), Severity::Fine);
        assert_eq!(judged(line), Severity::Note);
        assert_eq!(judged(""), Severity::Note);
    }

    #[test]
    fn a_socket_is_known_by_port_and_state() {
        let line = "   0: 00000000:0071 00000000:0000 0A 00000000:00000000 00:00000000 00000000";
        assert!(is_socket(line));
        assert!(!is_socket(&line.replace("0A", "01")));
        assert!(!is_socket(&line.replace("0071", "0016")));
        assert!(!is_socket("  sl  local_address rem_address   st"));
    }
}
