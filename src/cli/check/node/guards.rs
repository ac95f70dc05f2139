//! The guard of users' slices (job-adopt(1), `guard`): whether it stands where it has to, and is
//! put there for whoever comes next.

use super::systemctl;
use super::users::Users;
use super::{Check, Finding, Scene};
use crate::cgroup::Mount;
use crate::cli::check::Severity;
use crate::cli::people;
use crate::device::{Resolver, Tree};
use crate::guard::{self, State};
use crate::plan::{Allowlist, CgroupPath};
use crate::resolve::{Guarded, guarding};
use nix::unistd::{Uid, User};
use std::fs;

const DROP_IN: Check = "guard-drop-in";
const DEVICES: Check = "guard-devices";
const SLICE: Check = "guard-slice";
const LINGER: Check = "users-lingering";

/// The unit that systemd starts before a user's service manager, for each user.
const UNIT: &str = "user-runtime-dir@.service";
/// What the drop-in of that unit has it run.
const COMMAND: &str = "job-adopt guard";
/// Where systemd keeps whose services run without a login (loginctl(1), `enable-linger`).
const LINGERING: &str = "/var/lib/systemd/linger";

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    if !scene.is_enforced() {
        return Vec::new();
    }
    if scene.config.guarded == Guarded::Nothing {
        let text = "guarded = none: what users run outside of jobs, as by systemd-run --user, may \
                    open every device";
        let remedy = "take the line away, or name the devices that jobs are given";
        return vec![Finding::warning(DEVICES, scene.conf.display(), text, remedy)];
    }
    let resolver = Resolver::new(Tree::here(), scene.config.devices.clone());
    let mut findings = Vec::new();
    match guarding(&scene.config, &resolver) {
        Err(why) => findings.push(Finding::error(
            DEVICES,
            scene.conf.display(),
            format!("what is guarded cannot be told ({why}): users' slices are not guarded anew"),
            "correct the key guarded: job_adopt.conf(5)",
        )),
        Ok(guarding) => {
            let remedy = "load the driver, or correct the key guarded: job_adopt.conf(5)";
            let notes = guarding.warnings.iter();
            findings.extend(
                notes.map(|text| Finding::note(DEVICES, scene.conf.display(), text, remedy)),
            );
            if guarding.list.is_empty() {
                let text =
                    "no name of guarded stands for a device of this node: nothing is guarded";
                findings.push(Finding::warning(DEVICES, scene.conf.display(), text, remedy));
            } else {
                findings.extend(slices(scene, &guarding.list));
            }
        }
    }
    let known = drop_in(scene);
    findings.extend(lingering(scene, known.severity == Severity::Fine));
    findings.push(known);
    findings
}

/// The slices that are there of users whom the guard is for.
fn slices(scene: &Scene, list: &Allowlist) -> Vec<Finding> {
    let users = Users::of(scene);
    let uids = running().into_iter().filter(|uid| !users.is_exempt(*uid));
    uids.filter_map(|uid| slice(uid, list)).collect()
}

/// Whose slices there are.
fn running() -> Vec<u32> {
    let above = Mount::open().and_then(|mount| mount.root().child("user.slice"));
    let names = above.and_then(|dir| dir.children()).unwrap_or_default();
    let uid = |name: &str| name.strip_prefix("user-")?.strip_suffix(".slice")?.parse().ok();
    let mut uids: Vec<u32> = names.iter().filter_map(|name| uid(name.to_str()?)).collect();
    uids.sort_unstable();
    uids
}

fn slice(uid: u32, list: &Allowlist) -> Option<Finding> {
    let object = format!("user-{uid}.slice ({})", people::name_of(uid));
    let remedy = format!("job-adopt guard --uid {uid}");
    let path = guard::slice(uid).ok()?;
    Some(match guard::state(&path, list) {
        Ok(State::NoSlice) => return None,
        Ok(State::Guarded { current: true }) => {
            Finding::fine(SLICE, object, "nothing in it opens a guarded device")
        }
        Ok(State::Guarded { current: false }) => Finding::warning(
            SLICE,
            object,
            "its guard is of another list than the node and the configuration have now",
            remedy,
        ),
        Ok(State::Unguarded) => unguarded(object, &path, remedy),
        Err(error) if !Uid::effective().is_root() => {
            Finding::unknown(SLICE, object, error, "run this as root")
        }
        Err(error) => Finding::warning(
            SLICE,
            object,
            format!("it cannot be guarded: {error}"),
            "see whose filters are there: job-adopt devices --cgroup /user.slice",
        ),
    })
}

/// One that holds a job is not to be guarded. Where that cannot be told, it is.
fn unguarded(object: String, path: &CgroupPath, remedy: String) -> Finding {
    match guard::job_in(path) {
        Ok(Some(job)) => {
            let text = format!("it holds the cgroup of job {job}, and so is not guarded");
            Finding::note(SLICE, object, text, "make cgroups of jobs outside of users' slices")
        }
        _ => {
            let text = "it is not guarded: what the user runs outside of jobs opens every device";
            Finding::warning(SLICE, object, text, remedy)
        }
    }
}

/// Whether slices that are yet to come are guarded, too.
fn drop_in(scene: &Scene) -> Finding {
    if fs::symlink_metadata(scene.at("/run/systemd/system")).is_err() {
        let text = "systemd does not run here, so there are no slices of users to guard";
        return Finding::note(DROP_IN, UNIT, text, "");
    }
    let remedy = "cp -r /usr/share/job-adopt/systemd/user-runtime-dir@.service.d \
                  /etc/systemd/system/; systemctl daemon-reload; job-adopt guard --all";
    let shown = match systemctl::run(scene, &["cat", UNIT]) {
        Ok(shown) => shown,
        Err(why) => return Finding::unknown(DROP_IN, UNIT, why, remedy),
    };
    let runs = |line: &str| {
        let value = line
            .trim()
            .strip_prefix("ExecStartPost=")
            .or(line.trim().strip_prefix("ExecStartPre="));
        value.is_some_and(|command| command.contains(COMMAND))
    };
    let Some(line) = shown.lines().find(|line| runs(line)) else {
        let text = "nothing guards the slice of a user who comes next, until a login of theirs \
                    joins a job";
        return Finding::warning(DROP_IN, UNIT, text, remedy);
    };
    if line.contains("=-") {
        let text = "its guard may fail and the user's services start all the same (`-` before the \
                    command)";
        return Finding::warning(DROP_IN, UNIT, text, "take the - away: root's never fails");
    }
    // What was edited since systemd read it is not what it does.
    let reload =
        systemctl::run(scene, &["show", "-P", "NeedDaemonReload", "user-runtime-dir@0.service"]);
    match reload.as_deref().map(str::trim) {
        Ok("yes") => {
            let text = "systemd has not read it since it was changed";
            Finding::warning(DROP_IN, UNIT, text, "systemctl daemon-reload")
        }
        _ => Finding::fine(DROP_IN, UNIT, "the slice of a user who comes next is guarded"),
    }
}

/// Users whose services run whether they are logged in or not.
fn lingering(scene: &Scene, guarded: bool) -> Vec<Finding> {
    let users = Users::of(scene);
    let entries = fs::read_dir(scene.at(LINGERING)).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let bound = |name: &&String| match User::from_name(name) {
        Ok(Some(user)) => !users.is_exempt(user.uid.as_raw()),
        _ => true,
    };
    names.iter().filter(bound).map(|name| linger(name, guarded)).collect()
}

fn linger(name: &str, guarded: bool) -> Finding {
    let text = "their services run without a login and outside of jobs (lingering)";
    let remedy = format!("loginctl disable-linger {name}, where that is not meant to be");
    match guarded {
        true => Finding::note(LINGER, name, format!("{text}; the guard is put there"), remedy),
        false => {
            let text = format!("{text}, and nothing guards them when they are started");
            Finding::warning(LINGER, name, text, remedy)
        }
    }
}
