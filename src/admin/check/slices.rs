//! Whether systemd keeps what users run outside of jobs from GPUs (job-adopt(1), `slices`).

use super::ask::ask;
use super::finding::Severity;
use super::{Check, Finding, NOBODY, Site, roots};
use crate::slices::exempt;
use helper::stack::Entry;
use kernel::bpf::{self, Attached, Level};
use kernel::cgroup::{Membership, Mount};
use protocol::CgroupPath;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

const DROP_IN: Check = "slices-drop-in";
const OBSERVED: Check = "slices-observe";
const EXEMPT: Check = "slices-exempt";
const SLICE: Check = "slices-closed";
const CRON: Check = "cron-closed";
const BUS: Check = "bus-closed";

/// Programs that run commands of users.
const DAEMONS: [&str; 5] = ["cron", "crond", "atd", "anacron", "fcron"];
/// A number that no account has: its slice has what all users' slices have.
const NOBODYS: u32 = u32::MAX - 2;
const WRITE: &str = "job-adopt slices --write && systemctl daemon-reload && systemctl reload dbus";

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let all = "user-.slice";
    if fs::symlink_metadata(site.at("/run/systemd/system")).is_err() {
        let text = "systemd does not run here, so there are no slices of users to close";
        return vec![Finding::note(DROP_IN, all, text, "")];
    }
    let exempt: BTreeSet<u32> = match exempt(&site.config) {
        Ok(exempt) => exempt.into_keys().collect(),
        Err(error) => {
            let remedy = "correct the configuration";
            return vec![Finding::unknown(DROP_IN, all, error.to_string(), remedy)];
        }
    };
    let closed = match policies(&exempt) {
        Ok(closed) => closed,
        Err(why) => return vec![Finding::unknown(DROP_IN, all, why, WRITE)],
    };
    let mut found: Vec<Finding> = exempt.intersection(&closed).map(not_exempt).collect();
    // Whether logins are taken into jobs on this node.
    let joins = site.config.missing_enforce_path().is_none()
        && !site.session.iter().any(Entry::is_observing);
    found.push(match (closed.contains(&NOBODYS), joins) {
        (true, true) => Finding::fine(DROP_IN, all, "users' slices are closed"),
        (true, false) => Finding::warning(
            OBSERVED,
            all,
            "users' slices are closed, and logins are not taken into jobs here (observe, or \
             enforce): they stay in these slices and lose their GPUs",
            "take observe away, or the drop-in: rm /etc/systemd/system/user-.slice.d/job-adopt.conf, \
             daemon-reload, and have users log out",
        ),
        (false, true) => Finding::warning(
            DROP_IN,
            all,
            "it is not closed: what users run outside of jobs opens every device",
            WRITE,
        ),
        (false, false) => return found,
    });
    if joins {
        found.push(bus(site));
        found.extend(running(&exempt));
        let mut daemons = roots(&DAEMONS);
        // Each job of a user's has a copy of the daemon above it.
        daemons.dedup_by(|one, other| one.0 == other.0);
        found.extend(daemons.iter().map(|(name, pid)| cron(name, *pid)));
    }
    found
}

/// Whether it names a slice that is not closed.
pub(super) fn is_open(finding: &Finding) -> bool {
    [DROP_IN, SLICE].contains(&finding.check) && finding.severity <= Severity::Warning
}

/// Which of these slices, and of that of nobody, have a policy that closes them.
fn policies(exempt: &BTreeSet<u32>) -> Result<BTreeSet<u32>, String> {
    let uids: Vec<u32> = exempt.iter().copied().chain([NOBODYS]).collect();
    let units = uids.iter().map(|uid| format!("user-{uid}.slice"));
    let mut systemctl = Command::new("systemctl");
    systemctl.args(["--no-pager", "show", "--property=DevicePolicy"]).args(units);
    let answer = match ask(&mut systemctl) {
        Ok((true, answer)) => answer,
        Ok((false, why)) | Err(why) => return Err(format!("systemctl show: {}", why.trim())),
    };
    let values = answer.lines().filter_map(|line| line.strip_prefix("DevicePolicy="));
    let values: Vec<&str> = values.collect();
    if values.len() != uids.len() {
        return Err("systemctl show tells no DevicePolicy".into());
    }
    let closed = uids.into_iter().zip(values).filter(|(_, value)| *value != "auto");
    Ok(closed.map(|(uid, _)| uid).collect())
}

fn not_exempt(uid: &u32) -> Finding {
    let object = format!("user-{uid}.slice");
    let text =
        "it is closed, but the account is exempt (root, exempt_uids, exempt_groups, flux_user)";
    Finding::warning(EXEMPT, object, text, WRITE)
}

/// The slices that are there. `daemon-reload` closes one; it opens none again.
fn running(exempt: &BTreeSet<u32>) -> Vec<Finding> {
    let Ok(above) = Mount::open().and_then(|mount| mount.root().child("user.slice")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for name in above.children().unwrap_or_default() {
        let name = name.to_string_lossy();
        let uid = name.strip_prefix("user-").and_then(|name| name.strip_suffix(".slice"));
        let Some(uid) = uid.and_then(|uid| uid.parse().ok()) else { continue };
        let Ok(slice) = above.child(&*name) else { continue };
        match Level::read(&slice).map(|level| level.attached) {
            Ok(Attached::Nothing) if exempt.contains(&uid) => {}
            Ok(_) if exempt.contains(&uid) => found.push(Finding::warning(
                EXEMPT,
                &name,
                "the account is exempt, but its slice still has the filter of before",
                "loginctl terminate-user: systemd takes a filter away with the slice only",
            )),
            Ok(Attached::Nothing) => found.push(Finding::warning(
                SLICE,
                &name,
                "it has no filter: what the user runs outside of jobs opens every device",
                "systemctl daemon-reload; loginctl terminate-user ends what runs there",
            )),
            Ok(_) => {}
            Err(error) => found.push(Finding::unknown(SLICE, &name, error, "run this as root")),
        }
    }
    if found.is_empty() {
        found.push(Finding::fine(
            SLICE,
            "user.slice",
            "every user's slice here is closed, unless exempt",
        ));
    }
    found
}

/// Whether users may have systemd move a process of theirs, out of the job for instance. It is asked
/// about a unit that is not there, and says so to whom it listens to: with the rights of nobody in
/// particular where this is root.
fn bus(site: &Site) -> Finding {
    let object = "system bus";
    if fs::symlink_metadata(site.at("/run/dbus/system_bus_socket")).is_err() {
        return Finding::fine(BUS, object, "there is none on this node");
    }
    let mut call = Command::new("busctl");
    call.args(["--system", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]);
    call.args(["org.freedesktop.systemd1.Manager", "AttachProcessesToUnit"]);
    call.args(["ssau", "job-adopt-no-such.service", "", "0"]);
    if site.is_root() {
        call.uid(NOBODY).gid(NOBODY);
    }
    match ask(&mut call) {
        Ok((_, said)) if said.contains("not loaded") => Finding::warning(
            BUS,
            object,
            "users can have systemd move their processes out of their jobs, with every device that \
             these have open (systemd-run --user --scope)",
            WRITE,
        ),
        Ok((false, said)) if said.contains("denied") => {
            Finding::fine(BUS, object, "users cannot have systemd move a process out of its job")
        }
        Ok((_, why)) | Err(why) => {
            Finding::unknown(BUS, object, why.trim(), "see whether busctl(1) works here")
        }
    }
}

fn cron(name: &str, pid: i32) -> Finding {
    let object = format!("{name} (process {pid})");
    match is_closed(pid) {
        Ok(true) => {
            Finding::fine(CRON, object, "what it starts opens the devices of its unit only")
        }
        Ok(false) => Finding::warning(
            CRON,
            object,
            "it runs commands of users outside of jobs and of their slices, with every device",
            "close its service: cp -r the folder of its name in /usr/share/job-adopt/systemd to \
             /etc/systemd/system/, systemctl daemon-reload, and restart it; or let users have none: \
             crontab(1), at.allow(5)",
        ),
        Err(why) => Finding::unknown(CRON, object, why, "run this as root"),
    }
}

/// Whether a filter is in force where a process is.
fn is_closed(pid: i32) -> bpf::Result<bool> {
    let membership = Membership::of(pid)?;
    // The root has no filter of anybody's.
    let Ok(path) = membership.unified().unwrap_or("/").parse::<CgroupPath>() else {
        return Ok(false);
    };
    Ok(!bpf::effective(Mount::open()?.place(&path)?.dir()?)?.is_empty())
}
