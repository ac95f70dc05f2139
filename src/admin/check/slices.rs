//! Whether systemd keeps what users run outside of jobs from GPUs (job-adopt(1), `slices`).

use super::ask::{ask, ask_as_user};
use super::{Check, Finding, Scene};
use crate::admin::ending::real_uid;
use crate::admin::slices::exempt;
use crate::helper::sources::processes;
use crate::helper::stack::{Group, entries};
use crate::kernel::bpf::{self, Attached, Level};
use crate::kernel::cgroup::{Membership, Mount};
use crate::kernel::proc::Proc;
use crate::protocol::CgroupPath;
use nix::unistd::Uid;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const DROP_IN: Check = "slices-drop-in";
const OBSERVED: Check = "slices-observe";
const EXEMPT: Check = "slices-exempt";
const SLICE: Check = "slices-closed";
const CRON: Check = "cron-closed";
const BUS: Check = "bus-closed";

/// Programs that run commands of users, by the names of their files.
const DAEMONS: [&str; 5] = ["cron", "crond", "atd", "anacron", "fcron"];
/// A number that no account has: its slice has what all users' slices have.
const NOBODYS: u32 = u32::MAX - 2;
const SYSTEMCTL: [&str; 2] = ["/usr/bin/systemctl", "/bin/systemctl"];
const WRITE: &str = "job-adopt slices --write && systemctl daemon-reload && systemctl reload dbus";

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    if fs::symlink_metadata(scene.at("/run/systemd/system")).is_err() {
        let text = "systemd does not run here, so there are no slices of users to close";
        return vec![Finding::note(DROP_IN, "user-.slice", text, "")];
    }
    let exempt = match exempt(&scene.config) {
        Ok(exempt) => exempt.into_keys().collect(),
        Err(error) => {
            let text = error.text().unwrap_or_default();
            let remedy = "correct the configuration";
            return vec![Finding::unknown(DROP_IN, "user-.slice", text, remedy)];
        }
    };
    let closed = match policies(scene, &exempt) {
        Ok(closed) => closed,
        Err(why) => return vec![Finding::unknown(DROP_IN, "user-.slice", why, WRITE)],
    };
    let (all, joins) = (closed.contains(&NOBODYS), joins(scene));
    let mut findings: Vec<Finding> =
        exempt.iter().filter(|uid| closed.contains(uid)).map(|uid| not_exempt(*uid)).collect();
    findings.push(match (all, joins) {
        (true, true) => Finding::fine(DROP_IN, "user-.slice", "users' slices are closed"),
        (true, false) => Finding::warning(
            OBSERVED,
            "user-.slice",
            "users' slices are closed, and logins are not taken into jobs here (observe, or \
             enforce): they stay in these slices and lose their GPUs",
            "take observe away, or the drop-in: rm /etc/systemd/system/user-.slice.d/job-adopt.conf, \
             daemon-reload, and have users log out",
        ),
        (false, true) => Finding::warning(
            DROP_IN,
            "user-.slice",
            "it is not closed: what users run outside of jobs opens every device",
            WRITE,
        ),
        (false, false) => return findings,
    });
    if joins {
        findings.push(bus(scene));
        findings.extend(running(&exempt));
        findings.extend(daemons().iter().map(|(pid, name)| cron(*pid, name)));
    }
    findings
}

/// Whether it names a slice that is not closed.
pub(super) fn is_open(finding: &Finding) -> bool {
    [DROP_IN, SLICE].contains(&finding.check) && finding.is_amiss()
}

/// Whether logins are taken into jobs on this node.
fn joins(scene: &Scene) -> bool {
    let lines = entries(&scene.root, &scene.service, Group::Session).unwrap_or_default();
    let ours = lines.iter().filter(|line| line.ours.is_some());
    let observes = ours.filter_map(|line| crate::module::Settings::parse(&line.arguments).ok());
    scene.config.enforce.missing().is_none()
        && !observes.into_iter().any(|settings| settings.observe)
}

/// Which of these slices, and of that of nobody, have a policy that closes them.
fn policies(scene: &Scene, exempt: &BTreeSet<u32>) -> Result<BTreeSet<u32>, String> {
    let uids: Vec<u32> = exempt.iter().copied().chain([NOBODYS]).collect();
    let units: Vec<String> = uids.iter().map(|uid| format!("user-{uid}.slice")).collect();
    let options = ["--no-pager", "show", "--property=DevicePolicy"].map(str::to_owned);
    let program = SYSTEMCTL.iter().map(|place| scene.at(place)).find(|path| path.exists());
    let program = program.ok_or("there is no systemctl")?;
    let answer = match ask(&program, &[&options[..], &units].concat()) {
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

fn not_exempt(uid: u32) -> Finding {
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
/// about a unit that is not there, and says so to whom it listens to.
fn bus(scene: &Scene) -> Finding {
    let object = "system bus";
    if fs::symlink_metadata(scene.at("/run/dbus/system_bus_socket")).is_err() {
        return Finding::fine(BUS, object, "there is none on this node");
    }
    let manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1"];
    let method = ["org.freedesktop.systemd1.Manager", "AttachProcessesToUnit"];
    let nothing = ["ssau", "job-adopt-no-such.service", "", "0"];
    let call = [&["--system", "call"][..], &manager, &method, &nothing].concat();
    match ask_as_user(&scene.at("/usr/bin/busctl"), &call) {
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

/// Those that run, by their executable: numbers and names.
fn daemons() -> Vec<(i32, String)> {
    let pids = processes::numbers::<i32>(Path::new("/proc")).into_iter().flatten().flatten();
    let daemon = |pid: i32| {
        let path = fs::read_link(Proc::here().dir(pid).join("exe")).ok()?;
        let name = path.file_name()?.to_str()?.trim_end_matches(" (deleted)").to_owned();
        let roots = real_uid(pid).is_some_and(Uid::is_root);
        (roots && DAEMONS.contains(&name.as_str())).then_some((pid, name))
    };
    let mut found: Vec<(i32, String)> = pids.filter_map(daemon).collect();
    // Each job of a user's has a copy of the daemon above it.
    found.sort();
    found.dedup_by(|one, other| one.1 == other.1);
    found
}

fn cron(pid: i32, name: &str) -> Finding {
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
fn is_closed(pid: i32) -> Result<bool, String> {
    let membership = Membership::of(pid).map_err(|error| error.to_string())?;
    // The root has no filter of anybody's.
    let Ok(path) = membership.unified().unwrap_or("/").parse::<CgroupPath>() else {
        return Ok(false);
    };
    let place = Mount::open().and_then(|mount| mount.place(&path));
    let place = place.map_err(|error| error.to_string())?;
    let dir = place.dir().map_err(|error| error.to_string())?;
    Ok(!bpf::effective(dir).map_err(|error| error.to_string())?.is_empty())
}
