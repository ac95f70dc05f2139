//! Checks that systemd keeps GPUs from processes outside of jobs (job-adopt(1), `slices`).

use super::finding::{Check, Finding, Severity};
use super::site::{NOBODY_UID, Site, root_processes};
use crate::child_process::query_in_clean_environment;
use crate::closed_slices::exempt_accounts;
use helper::stack::Entry;
use kernel::bpf::{self, AttachMode, CgroupPrograms};
use kernel::cgroup::{Membership, Mount};
use protocol::CgroupPath;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Programs that run commands of users.
const DAEMONS: [&str; 5] = ["cron", "crond", "atd", "anacron", "fcron"];
/// A uid without an account: its slice has the settings of all users' slices.
const UNUSED_UID: u32 = u32::MAX - 2;
const WRITE_REMEDY: &str =
    "job-adopt slices --write && systemctl daemon-reload && systemctl reload dbus";

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let all = "user-.slice";
    if fs::symlink_metadata(site.at("/run/systemd/system")).is_err() {
        let text = "systemd does not run here, so there are no slices of users to close";
        return vec![Finding::note(Check::SlicesDropIn, all, text, "")];
    }
    let exempt: BTreeSet<u32> = match exempt_accounts(&site.config) {
        Ok(exempt) => exempt.into_keys().collect(),
        Err(error) => {
            let remedy = "correct exempt_uids, exempt_groups or flux_user in job_adopt.conf";
            return vec![Finding::unknown(Check::SlicesDropIn, all, error.to_string(), remedy)];
        }
    };
    let closed = match read_closed_slices(&exempt) {
        Ok(closed) => closed,
        Err(why) => {
            let remedy = "systemctl show --property=DevicePolicy user-1000.slice shows why";
            return vec![Finding::unknown(Check::SlicesDropIn, all, why, remedy)];
        }
    };
    let mut findings: Vec<Finding> =
        exempt.intersection(&closed).map(|uid| closed_but_exempt(*uid)).collect();
    let logins_join_jobs = site.config.missing_enforce_path().is_none()
        && !site.session.iter().any(Entry::is_observing);
    findings.push(match (closed.contains(&UNUSED_UID), logins_join_jobs) {
        (true, true) => Finding::fine(Check::SlicesDropIn, all, "users' slices are closed"),
        (true, false) => Finding::warning(
            Check::SlicesObserve,
            all,
            "users' slices are closed, but logins stay in them (observe, or enforce) and lose their \
             GPUs",
            "rm /etc/systemd/system/user-.slice.d/job-adopt.conf && systemctl daemon-reload, and have \
             users log out; or remove observe",
        ),
        (false, true) => Finding::warning(
            Check::SlicesDropIn,
            all,
            "is not closed: what users run outside of jobs can open every device",
            WRITE_REMEDY,
        ),
        (false, false) => return findings,
    });
    if logins_join_jobs {
        findings.push(check_bus(site));
        findings.extend(check_existing_slices(&exempt));
        let mut daemons = root_processes(&DAEMONS);
        // While a user's command runs, a copy of the daemon is its parent.
        daemons.dedup_by(|second, first| second.0 == first.0);
        findings.extend(daemons.iter().map(|(name, pid)| check_cron(name, *pid)));
    }
    findings
}

/// Counts the slices of users that are not closed; `None` if a slice could not be checked.
pub(super) fn count_open(findings: &[Finding]) -> Option<usize> {
    findings.iter().map(|finding| names_open_slice(finding).map(usize::from)).sum()
}

/// Returns whether a finding names a slice that is not closed; `None` if that could not be checked.
fn names_open_slice(finding: &Finding) -> Option<bool> {
    let is_about_closing = [Check::SlicesDropIn, Check::SlicesClosed].contains(&finding.check);
    match finding.severity {
        Severity::Unknown if is_about_closing => None,
        severity => Some(is_about_closing && severity <= Severity::Warning),
    }
}

/// Returns the exempt uids, and [`UNUSED_UID`], whose slices have a device policy that closes them.
fn read_closed_slices(exempt: &BTreeSet<u32>) -> Result<BTreeSet<u32>, String> {
    let uids: Vec<u32> = exempt.iter().copied().chain([UNUSED_UID]).collect();
    let units = uids.iter().map(|uid| format!("user-{uid}.slice"));
    let mut systemctl = Command::new("systemctl");
    systemctl.args(["--no-pager", "show", "--property=DevicePolicy"]).args(units);
    let output = match query_in_clean_environment(&mut systemctl) {
        Ok((true, output)) => output,
        Ok((false, why)) | Err(why) => return Err(format!("systemctl show: {}", why.trim())),
    };
    let values = output.lines().filter_map(|line| line.strip_prefix("DevicePolicy="));
    let values: Vec<&str> = values.collect();
    if values.len() != uids.len() {
        return Err("systemctl show prints no DevicePolicy".into());
    }
    let closed = uids.into_iter().zip(values).filter(|(_, value)| *value != "auto");
    Ok(closed.map(|(uid, _)| uid).collect())
}

fn closed_but_exempt(uid: u32) -> Finding {
    let object = format!("user-{uid}.slice");
    let text = "is closed, but the account is exempt (root, exempt_uids, exempt_groups, flux_user)";
    Finding::warning(Check::SlicesExempt, object, text, WRITE_REMEDY)
}

/// Checks the filters of the slices that exist. `daemon-reload` closes a slice, but opens none again.
fn check_existing_slices(exempt: &BTreeSet<u32>) -> Vec<Finding> {
    let Ok(above) = Mount::open().and_then(|mount| mount.root().child("user.slice")) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for name in above.children().unwrap_or_default() {
        let name = name.to_string_lossy();
        let uid = name.strip_prefix("user-").and_then(|name| name.strip_suffix(".slice"));
        let Some(uid) = uid.and_then(|uid| uid.parse().ok()) else { continue };
        let Ok(slice) = above.child(&*name) else { continue };
        match CgroupPrograms::read(&slice).map(|level| level.mode) {
            Ok(AttachMode::Nothing) if exempt.contains(&uid) => {}
            Ok(_) if exempt.contains(&uid) => findings.push(Finding::warning(
                Check::SlicesExempt,
                &name,
                "still has a device filter, although the account is exempt by now",
                format!("loginctl terminate-user {uid}: a filter goes only with the whole slice"),
            )),
            Ok(AttachMode::Nothing) => findings.push(Finding::warning(
                Check::SlicesClosed,
                &name,
                "has no device filter: what the user runs outside of jobs can open every device",
                format!("systemctl daemon-reload, then loginctl terminate-user {uid}"),
            )),
            Ok(_) => {}
            Err(error) => findings.push(Finding::unknown(
                Check::SlicesClosed,
                &name,
                error,
                "run this as root",
            )),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine(
            Check::SlicesClosed,
            "user.slice",
            "every user's slice is closed, unless exempt",
        ));
    }
    findings
}

/// Checks that users cannot make systemd move their processes, for instance out of the job.
///
/// The call names a unit that does not exist: systemd reports that only to a user whose call it
/// accepts. Root makes the call as `nobody`.
fn check_bus(site: &Site) -> Finding {
    let object = "system bus";
    if fs::symlink_metadata(site.at("/run/dbus/system_bus_socket")).is_err() {
        return Finding::fine(Check::BusClosed, object, "there is none on this node");
    }
    let mut call = Command::new("busctl");
    call.args(["--system", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]);
    call.args(["org.freedesktop.systemd1.Manager", "AttachProcessesToUnit"]);
    call.args(["ssau", "job-adopt-no-such.service", "", "0"]);
    if site.is_root() {
        call.uid(NOBODY_UID).gid(NOBODY_UID);
    }
    match query_in_clean_environment(&mut call) {
        Ok((_, output)) if output.contains("not loaded") => Finding::warning(
            Check::BusClosed,
            object,
            "users can make systemd move their processes out of their jobs, with the devices that \
             these have open (systemd-run --user --scope)",
            WRITE_REMEDY,
        ),
        Ok((false, output)) if output.contains("denied") => Finding::fine(
            Check::BusClosed,
            object,
            "users cannot make systemd move a process out of its job",
        ),
        Ok((_, why)) | Err(why) => {
            Finding::unknown(Check::BusClosed, object, why.trim(), "busctl --system list shows why")
        }
    }
}

fn check_cron(name: &str, pid: i32) -> Finding {
    let object = format!("{name} (process {pid})");
    match has_filter(pid) {
        Ok(true) => Finding::fine(
            Check::CronClosed,
            object,
            "what it starts can open only the devices of its unit",
        ),
        Ok(false) => Finding::warning(
            Check::CronClosed,
            object,
            "runs commands of users outside of jobs, where they can open every device",
            format!(
                "cp -r /usr/share/job-adopt/systemd/{name}.service.d /etc/systemd/system/ && systemctl \
                 daemon-reload && systemctl restart {name}; or let no user have jobs of {name}"
            ),
        ),
        Err(why) => Finding::unknown(Check::CronClosed, object, why, "run this as root"),
    }
}

/// Returns whether a filter applies to a process.
fn has_filter(pid: i32) -> bpf::Result<bool> {
    let membership = Membership::read(pid)?;
    // The root cgroup, which is no valid path of a job, counts as unfiltered.
    let Ok(path) = membership.unified().unwrap_or("/").parse::<CgroupPath>() else {
        return Ok(false);
    };
    Ok(!bpf::query_effective(Mount::open()?.open_chain(&path)?.dir()?)?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_slice_leaves_no_count() {
        let open = Finding::warning(Check::SlicesDropIn, "user-.slice", "is not closed", "");
        let closed = Finding::fine(Check::SlicesClosed, "user.slice", "is closed");
        let unknown = Finding::unknown(Check::SlicesClosed, "user-7.slice", "run this as root", "");
        let other = Finding::unknown(Check::BusClosed, "system bus", "no busctl", "");
        for (findings, count) in [
            (vec![closed.clone()], Some(0)),
            (vec![closed, open.clone(), other], Some(1)),
            (vec![open, unknown], None),
        ] {
            assert_eq!(count_open(&findings), count, "{findings:?}");
        }
        let without_systemctl =
            Finding::unknown(Check::SlicesDropIn, "user-.slice", "no systemctl", "");
        assert_eq!(count_open(&[without_systemctl]), None);
    }
}
