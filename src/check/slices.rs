//! Checks that systemd keeps GPUs from processes outside of jobs (job-adopt(1), `slices`).

use super::finding::{Check, Finding, Severity};
use super::own_command::{OwnCommand, Subcommand};
use super::remedy::{Remedy, run};
use super::site::Site;
use command::accounts::NOBODY_UID;
use command::child_process::{QueryError, query_in_clean_environment};
use command::error::Error;
use facts::closed_slices::{DevicePolicy, UNUSED_SLICE, UNUSED_UID};
use facts::root_processes::root_processes;
use facts::systemd;
use facts::user_slices::list_user_slices;
use helper::stack::Entry;
use kernel::bpf::{self, AttachMode, CgroupPrograms};
use kernel::cgroup::{self, Membership, Mount};
use protocol::CgroupPath;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::os::unix::process::CommandExt;

/// Programs that run commands of users.
const DAEMONS: [&str; 5] = ["cron", "crond", "atd", "anacron", "fcron"];
/// The object of findings about the slices of all users.
const ALL_SLICES: &str = "user-.slice";

/// The remedy that writes the drop-ins and the policy of the bus, and closes slices that exist.
fn write_remedy() -> Remedy {
    run(OwnCommand::job_adopt(
        Subcommand::Enable,
        ["--only", "slices,bus"],
    ))
}

/// What was found out about the slices of users.
#[derive(Debug)]
pub(super) enum SliceFacts {
    /// systemd does not run here.
    Missing,
    UnknownPolicy(PolicyError),
    Read(Slices),
}

#[derive(Debug)]
pub(super) struct Slices {
    /// The uids whose slices must stay open; an error if it is not known who is exempt.
    exempt: Result<BTreeSet<u32>, Error>,
    /// Those of `exempt`, and [`UNUSED_UID`], whose slices have a device policy that closes them; where all should be open,
    /// also those of `existing` with a filter.
    closed: BTreeSet<u32>,
    /// The slices that exist; `None` if users have none here.
    existing: cgroup::Result<Option<Vec<ExistingSlice>>>,
    /// What else runs outside of jobs; `None` if logins are in users' slices, because the node is not set up, or the
    /// module observes or does not decide.
    outside: Option<OutsideJobs>,
}

/// What can open devices outside of jobs, or take them there.
#[derive(Debug)]
struct OutsideJobs {
    bus: Bus,
    daemons: Vec<Daemon>,
}

/// What the system bus says to a user who makes systemd move processes.
#[derive(Debug)]
enum Bus {
    Missing,
    /// systemd takes the call.
    Accepts,
    Denies,
    /// There is another answer, or none.
    Unclear(String),
}

#[derive(Debug)]
struct ExistingSlice {
    name: String,
    uid: u32,
    /// How filters are attached to the slice itself.
    filters: bpf::Result<AttachMode>,
}

/// A daemon that runs commands of users.
#[derive(Debug)]
struct Daemon {
    name: String,
    pid: i32,
    /// A device filter applies to it, and so to what it starts.
    is_filtered: bpf::Result<bool>,
}

/// systemd does not show the device policy of users' slices.
#[derive(Debug, thiserror::Error)]
pub(super) enum PolicyError {
    #[error("systemctl show: {0}")]
    FailedQuery(String),
    #[error("systemctl show prints no DevicePolicy")]
    MissingPolicy,
}

impl SliceFacts {
    /// Reads the device policies and filters of slices and, unless logins stay in users' slices, what else can open
    /// devices there.
    pub(super) fn read(site: &Site) -> Self {
        if fs::symlink_metadata(site.at("/run/systemd/system")).is_err() {
            return Self::Missing;
        }
        let exempt = site.list_exempt_accounts();
        Slices::read(site, exempt.map(|accounts| accounts.into_keys().collect()))
            .map_or_else(Self::UnknownPolicy, Self::Read)
    }

    /// Judges the slices of users, or reports why nothing is known about them.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let (error, remedy): (&dyn Display, Remedy) = match self {
            Self::Read(slices) => return slices.findings(),
            Self::Missing => {
                let text = "systemd does not run here, so there are no slices of users to close";
                return vec![Finding::note(Check::SlicesDropIn, ALL_SLICES, text, "")];
            }
            Self::UnknownPolicy(error) => (
                error,
                "systemd does not answer: systemctl show --property=DevicePolicy user-1000.slice shows why".into(),
            ),
        };
        vec![Finding::unknown(
            Check::SlicesDropIn,
            ALL_SLICES,
            error,
            remedy,
        )]
    }
}

/// Checks whether users' slices have to be closed here: not where logins stay in them, because the node is not set up, or
/// the module observes or does not decide.
pub(super) fn must_close_slices(site: &Site) -> bool {
    site.is_set_up()
        && !site.is_switched_off()
        && site.config.missing_enforce_path().is_none()
        && !site.session.iter().any(Entry::is_observing)
}

impl Slices {
    /// Reads the policies and the slices that exist. It fails as [`read_closed_slices`] does.
    fn read(site: &Site, exempt: Result<BTreeSet<u32>, Error>) -> Result<Self, PolicyError> {
        let must_be_closed = must_close_slices(site);
        let mut uids: BTreeSet<u32> = exempt.iter().flatten().copied().collect();
        uids.insert(UNUSED_UID);
        let mut closed = read_closed_slices(uids)?;
        let existing = read_existing_slices();
        // Closed ones have long lists of devices, so those of hundreds of users are not asked for.
        if !must_be_closed && !closed.contains(&UNUSED_UID) {
            let filtered = existing
                .iter()
                .flatten()
                .flatten()
                .filter(|slice| slice.has_filter())
                .map(|slice| slice.uid)
                .collect();
            closed.extend(read_closed_slices(filtered)?);
        }
        Ok(Self {
            exempt,
            closed,
            existing,
            outside: must_be_closed.then(|| OutsideJobs::read(site)),
        })
    }

    /// Judges whether users' slices are closed, except the exempt ones, and what else can open devices
    /// outside of jobs. While logins stay in the slices (`outside` is `None`), these must be open instead.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = self.judge_exempt();
        let are_closed = self.closed.contains(&UNUSED_UID);
        let Some(outside) = &self.outside else {
            if are_closed {
                findings.push(closed_with_logins());
            } else {
                findings.extend(self.judge_existing(|slice| slice.judge_open(&self.closed)));
            }
            return findings;
        };
        findings.push(self.with_known_accounts(judge_drop_in(are_closed)));
        findings.push(self.with_known_accounts(outside.bus.finding()));
        findings.extend(self.judge_closed());
        findings.extend(outside.daemons.iter().map(Daemon::finding));
        findings
    }

    /// The finding with a remedy that helps: `enable` fails while it is not known who is exempt.
    fn with_known_accounts(&self, finding: Finding) -> Finding {
        if self.exempt.is_ok() {
            return finding;
        }
        Finding {
            remedy: finding.remedy.after("the exempt accounts are known"),
            ..finding
        }
    }

    /// Judges whether the slices that exist are closed, unless exempt.
    fn judge_closed(&self) -> Vec<Finding> {
        let Ok(exempt) = &self.exempt else {
            // Which of them may be open is not known, but whether they can be listed is.
            return self.judge_existing(|_| None);
        };
        let findings = self.judge_existing(|slice| slice.judge_closed(exempt.contains(&slice.uid)));
        if findings.is_empty() && matches!(self.existing, Ok(Some(_))) {
            let text = "every user's slice is closed, unless exempt";
            return vec![Finding::fine(Check::SlicesClosed, "user.slice", text)];
        }
        findings
    }

    /// Warns of each exempt account whose slice is closed, or reports that it is not known who is exempt.
    fn judge_exempt(&self) -> Vec<Finding> {
        match &self.exempt {
            Ok(exempt) => exempt
                .intersection(&self.closed)
                .map(|uid| closed_but_exempt(*uid, self.exempt_remedy()))
                .collect(),
            Err(error) => {
                let remedy = "correct what it names: a stack in /etc/pam.d, or exempt_uids, exempt_groups or flux_user in \
                              job_adopt.conf";
                let finding = Finding::unknown(Check::SlicesExempt, ALL_SLICES, error, remedy);
                vec![finding]
            }
        }
    }

    /// The remedy for an exempt slice that is closed. While logins stay in users' slices, the command would close those.
    fn exempt_remedy(&self) -> Remedy {
        if self.outside.is_some() {
            return write_remedy();
        }
        "see which drop-in closes it (systemctl cat): remove that, or write DevicePolicy=auto into one that comes after it"
            .into()
    }

    /// Judges the filters of the slices that exist. They may differ from the policy that systemd shows: a slice that
    /// was closed keeps its filter until it ends, whatever `daemon-reload` reads.
    fn judge_existing(&self, judge: impl Fn(&ExistingSlice) -> Option<Finding>) -> Vec<Finding> {
        match &self.existing {
            Ok(slices) => slices.iter().flatten().filter_map(judge).collect(),
            Err(error) => {
                let finding = Finding::unknown(Check::SlicesClosed, "user.slice", error, "");
                vec![finding]
            }
        }
    }
}

/// Counts what is not closed: each slice of a user that exists, and one more for the drop-in that closes
/// those to come. `None` if one of these could not be checked, or if it is not known who is exempt.
pub(super) fn count_open(findings: &[Finding]) -> Option<usize> {
    let mut count = 0;
    for finding in findings {
        if finding.check == Check::SlicesExempt && finding.severity == Severity::Unknown {
            return None;
        }
        if ![Check::SlicesDropIn, Check::SlicesClosed].contains(&finding.check) {
            continue;
        }
        match finding.severity {
            Severity::Unknown => return None,
            Severity::Error | Severity::Warning => count += 1,
            Severity::Note | Severity::Fine => {}
        }
    }
    Some(count)
}

/// Lists those of the uids whose slices have a device policy that closes them.
fn read_closed_slices(uids: BTreeSet<u32>) -> Result<BTreeSet<u32>, PolicyError> {
    let units: Vec<String> = uids.iter().map(|uid| format!("user-{uid}.slice")).collect();
    let policies = systemd::read_device_policies(&units)
        .map_err(|error| PolicyError::FailedQuery(error.to_string()))?;
    if policies.len() != uids.len() {
        return Err(PolicyError::MissingPolicy);
    }
    let closed = uids
        .into_iter()
        .zip(policies)
        .filter(|(_, policy)| *policy == DevicePolicy::Limited);
    Ok(closed.map(|(uid, _)| uid).collect())
}

fn closed_but_exempt(uid: u32, remedy: Remedy) -> Finding {
    let object = format!("user-{uid}.slice");
    let text = "is closed, but the account is exempt (root, exempt_uids, exempt_groups, flux_user)";
    Finding::warning(Check::SlicesExempt, object, text, remedy)
}

fn closed_with_logins() -> Finding {
    let text = "users' slices are closed, but logins stay in them (observe, enforce, or the off switch) and lose their \
                GPUs";
    // No command: open slices give all GPUs to whoever is outside of jobs.
    let remedy = "when check shows no error, end the cause: remove observe, rm /run/job-adopt/off, or make the file of \
                  enforce; or open all GPUs to these logins by job-adopt disable --only slices";
    Finding::warning(Check::SlicesObserve, ALL_SLICES, text, remedy)
}

fn judge_drop_in(are_closed: bool) -> Finding {
    if are_closed {
        return Finding::fine(Check::SlicesDropIn, ALL_SLICES, "users' slices are closed");
    }
    let text = "is not closed: what users run outside of jobs can open every device";
    Finding::warning(Check::SlicesDropIn, ALL_SLICES, text, write_remedy())
}

impl OutsideJobs {
    /// Reads the answer of the system bus, the slices that exist, and the daemons of root that run commands
    /// of users.
    fn read(site: &Site) -> Self {
        let bus = Bus::read(site);
        let mut daemons = root_processes(&DAEMONS);
        // Of each name the first counts: for a user's command a daemon forks a copy of itself, with a higher number.
        daemons.dedup_by(|second, first| second.0 == first.0);
        let daemons = daemons
            .into_iter()
            .map(|(name, pid)| Daemon {
                name,
                pid,
                is_filtered: has_filter(pid),
            })
            .collect();
        Self { bus, daemons }
    }
}

/// Reads the filters of the slices of users that exist; `None` if there is no `user.slice` on cgroup v2. It fails as
/// [`list_user_slices`] does.
fn read_existing_slices() -> cgroup::Result<Option<Vec<ExistingSlice>>> {
    let Some(slices) = list_user_slices()? else {
        return Ok(None);
    };
    let existing = slices.into_iter().map(|slice| ExistingSlice {
        name: slice.name,
        uid: slice.uid,
        filters: CgroupPrograms::read(&slice.dir).map(|level| level.mode),
    });
    Ok(Some(existing.collect()))
}

impl ExistingSlice {
    /// Checks whether a filter is attached, as far as that is known.
    fn has_filter(&self) -> bool {
        !matches!(self.filters, Ok(AttachMode::Nothing) | Err(_))
    }

    /// Judges a slice of a user: a filter must be attached or, if the account is exempt, none. `None` if that
    /// is so.
    fn judge_closed(&self, is_exempt: bool) -> Option<Finding> {
        let Self { name, uid, .. } = self;
        match &self.filters {
            Err(error) => Some(self.report_unread(error)),
            Ok(AttachMode::Nothing) if !is_exempt => Some(Finding::warning(
                Check::SlicesClosed,
                name,
                "has no device filter: what the user runs outside of jobs can open every device",
                format!(
                    "have systemd read the drop-in: systemctl daemon-reload && systemctl show --property=Id {UNUSED_SLICE}; \
                     if it stays: loginctl terminate-user {uid}, which ends what the user runs there"
                ),
            )),
            Ok(_) if self.has_filter() && is_exempt => Some(Finding::warning(
                Check::SlicesExempt,
                name,
                "still has a device filter, although the account is exempt by now",
                // No command: it opens all GPUs to what the user runs there, and ends a try.
                "it goes with the user's last logout; job-adopt enable --keep opens it at once if a try exempts the \
                 account, else job-adopt enable --undo does",
            )),
            Ok(_) => None,
        }
    }

    /// Judges a slice of a user while logins stay in it and the settings of all users' slices are open: no filter may be
    /// attached, unless the site closes this one, as `closed` tells. `None` if that is so.
    fn judge_open(&self, closed: &BTreeSet<u32>) -> Option<Finding> {
        match &self.filters {
            Err(error) => Some(self.report_unread(error)),
            Ok(_) if self.has_filter() && !closed.contains(&self.uid) => {
                let text = "still has a device filter, although users' slices are open by now: logins there lose their \
                            GPUs";
                // No command: open slices give all GPUs to whoever is outside of jobs.
                let remedy = "it goes with the user's last logout; or open all GPUs to these logins at once by job-adopt \
                              enable --undo, which also takes back what is tried";
                Some(Finding::warning(
                    Check::SlicesObserve,
                    &self.name,
                    text,
                    remedy,
                ))
            }
            Ok(_) => None,
        }
    }

    fn report_unread(&self, error: &bpf::Error) -> Finding {
        Finding::unknown(Check::SlicesClosed, &self.name, error, "run this as root")
    }
}

impl Bus {
    /// Asks whether users can make systemd move their processes, for instance out of the job.
    ///
    /// The call names a unit that does not exist, and no process: systemd reports the unit as "not loaded" only to
    /// a user whose call it accepts. Root makes the call as `nobody`.
    fn read(site: &Site) -> Self {
        if fs::symlink_metadata(site.at("/run/dbus/system_bus_socket")).is_err() {
            return Self::Missing;
        }
        let arguments = ["ssau", "job-adopt-no-such.service", "", "0"];
        let mut call = systemd::manager_call("AttachProcessesToUnit", &arguments);
        if site.is_root() {
            call.uid(NOBODY_UID).gid(NOBODY_UID);
        }
        match query_in_clean_environment(&mut call) {
            Err(QueryError::Failed { complaint, .. }) if complaint.contains("not loaded") => {
                Self::Accepts
            }
            Err(QueryError::Failed { complaint, .. }) if complaint.contains("denied") => {
                Self::Denies
            }
            Err(why) => Self::Unclear(why.to_string()),
            Ok(answer) => Self::Unclear(answer.trim().to_owned()),
        }
    }

    /// Judges whether the system bus keeps users from having systemd move their processes.
    fn finding(&self) -> Finding {
        let object = "system bus";
        match self {
            Self::Missing => Finding::fine(Check::BusClosed, object, "there is none on this node"),
            Self::Denies => {
                let text = "users cannot make systemd move a process out of its job";
                Finding::fine(Check::BusClosed, object, text)
            }
            Self::Accepts => {
                let text = "users can make systemd move their processes out of their jobs, with the \
                            devices that these have open (systemd-run --user --scope)";
                Finding::warning(Check::BusClosed, object, text, write_remedy())
            }
            Self::Unclear(why) => {
                let remedy = "see whether the bus works for others: busctl --system list";
                Finding::unknown(Check::BusClosed, object, why, remedy)
            }
        }
    }
}

impl Daemon {
    /// Judges whether a filter applies to what the daemon runs for users.
    fn finding(&self) -> Finding {
        let Self { name, pid, .. } = self;
        let object = format!("{name} (process {pid})");
        match &self.is_filtered {
            Ok(true) => {
                let text = "what it starts can open only the devices of its unit";
                Finding::fine(Check::CronClosed, object, text)
            }
            Ok(false) => {
                let text =
                    "runs commands of users outside of jobs, where they can open every device";
                let remedy = format!(
                    "copy the folder /usr/share/job-adopt/systemd/{name}.service.d into /etc/systemd/system, then: \
                     systemctl daemon-reload && systemctl restart {name}; or let no user have jobs of {name}"
                );
                Finding::warning(Check::CronClosed, object, text, remedy)
            }
            Err(error) => Finding::unknown(Check::CronClosed, object, error, "run this as root"),
        }
    }
}

/// Checks whether a filter applies to a process, by its cgroup on cgroup v2.
fn has_filter(pid: i32) -> bpf::Result<bool> {
    let membership = Membership::read(pid)?;
    // "/" is no `CgroupPath`: the root cgroup counts as unfiltered, and so does a process outside of cgroup v2.
    let Ok(path) = membership.unified().unwrap_or("/").parse::<CgroupPath>() else {
        return Ok(false);
    };
    Ok(!bpf::query_effective(Mount::open()?.open_chain(&path)?.dir()?)?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::OperationError;
    use nix::errno::Errno;

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
        let without_accounts = Finding::unknown(Check::SlicesExempt, "user-.slice", "gone", "");
        assert_eq!(count_open(&[without_accounts]), None);
    }

    fn slices(
        exempt: &[u32],
        closed: &[u32],
        existing: cgroup::Result<Option<Vec<ExistingSlice>>>,
        outside: Option<OutsideJobs>,
    ) -> Vec<String> {
        let closed = closed.iter().copied().collect();
        let findings = SliceFacts::Read(Slices {
            exempt: Ok(exempt.iter().copied().collect()),
            closed,
            existing,
            outside,
        })
        .findings();
        let shown =
            |finding: Finding| format!("{} {} {}", finding.severity, finding.check, finding.object);
        findings.into_iter().map(shown).collect()
    }

    fn outside() -> Option<OutsideJobs> {
        Some(OutsideJobs {
            bus: Bus::Denies,
            daemons: Vec::new(),
        })
    }

    fn existing(uid: u32, mode: AttachMode) -> cgroup::Result<Option<Vec<ExistingSlice>>> {
        Ok(Some(vec![ExistingSlice {
            name: format!("user-{uid}.slice"),
            uid,
            filters: Ok(mode),
        }]))
    }

    #[test]
    fn exempt_slice_that_is_closed_is_a_warning() {
        let bus = "fine bus-closed system bus";
        let fine = "fine slices-drop-in user-.slice";
        assert_eq!(
            slices(&[0, 7], &[UNUSED_UID], Ok(None), outside()),
            [fine, bus]
        );
        assert_eq!(
            slices(&[0, 7], &[7, UNUSED_UID], Ok(None), outside()),
            ["warning slices-exempt user-7.slice", fine, bus]
        );
        assert_eq!(
            slices(&[0], &[], Ok(None), outside()),
            ["warning slices-drop-in user-.slice", bus]
        );
    }

    /// A stack of another service may exempt anybody.
    #[test]
    fn unknown_exemptions_hide_nothing_that_is_known() {
        let findings = SliceFacts::Read(Slices {
            exempt: Err(Error::failed("read", "the session lines of sshd", "gone")),
            closed: BTreeSet::new(),
            existing: existing(8, AttachMode::Nothing),
            outside: outside(),
        })
        .findings();
        let shown = |finding: &Finding| format!("{} {}", finding.severity, finding.check);
        let shown: Vec<String> = findings.iter().map(shown).collect();
        assert_eq!(
            shown,
            [
                "unknown slices-exempt",
                "warning slices-drop-in",
                "fine bus-closed"
            ]
        );
        assert!(findings[0].remedy.advice().contains("/etc/pam.d"));
        // `enable` asks for the same accounts.
        assert_eq!(findings[1].remedy.command(), "");
    }

    #[test]
    fn closed_slices_are_a_warning_if_logins_stay_in_them() {
        assert_eq!(
            slices(&[0], &[UNUSED_UID], Ok(None), None),
            ["warning slices-observe user-.slice"]
        );
        let remedy = closed_with_logins().remedy;
        assert_eq!(remedy.command(), "");
        assert!(
            remedy.advice().contains("rm /run/job-adopt/off"),
            "{remedy}"
        );
        assert_eq!(slices(&[0], &[], Ok(None), None), [""; 0]);
    }

    #[test]
    fn filter_of_existing_slice_is_judged_by_exemption() {
        let judge = |uid: u32, mode: AttachMode| {
            slices(&[7], &[UNUSED_UID], existing(uid, mode), outside())
                .pop()
                .unwrap()
        };
        let closed = "fine slices-closed user.slice";
        assert_eq!(judge(7, AttachMode::Nothing), closed);
        assert_eq!(
            judge(7, AttachMode::Multi),
            "warning slices-exempt user-7.slice"
        );
        assert_eq!(
            judge(8, AttachMode::Nothing),
            "warning slices-closed user-8.slice"
        );
        assert_eq!(judge(8, AttachMode::Multi), closed);
    }

    /// Whoever is logged in loses their GPUs, and no policy shows it.
    #[test]
    fn slice_that_was_closed_is_named_while_logins_stay_in_it() {
        let left = "warning slices-observe user-8.slice";
        let judge = |closed: &[u32], mode| slices(&[7], closed, existing(8, mode), None);
        assert_eq!(judge(&[], AttachMode::Multi), [left]);
        assert_eq!(judge(&[], AttachMode::Nothing), [""; 0]);
        // The site closes it by a file of its own.
        assert_eq!(judge(&[8], AttachMode::Multi), [""; 0]);
        assert_eq!(
            judge(&[UNUSED_UID], AttachMode::Multi),
            ["warning slices-observe user-.slice"]
        );
    }

    #[test]
    fn slices_that_cannot_be_listed_are_unknown() {
        let unknown = "unknown slices-closed user.slice";
        let failed = || {
            let error = OperationError::new("open", "user.slice", Errno::EMFILE);
            Err(cgroup::Error::from(error))
        };
        assert_eq!(slices(&[], &[], failed(), None), [unknown]);
        let with_jobs = slices(&[], &[UNUSED_UID], failed(), outside());
        assert_eq!(with_jobs.last().unwrap(), unknown);
        assert_eq!(with_jobs.len(), 3, "{with_jobs:?}");
    }

    /// systemd 257 closes no slice before it loads another unit.
    #[test]
    fn reload_that_closes_a_slice_loads_another_unit() {
        let slice = existing(8, AttachMode::Nothing).unwrap().unwrap().remove(0);
        let remedy = slice.judge_closed(false).unwrap().remedy;
        let load = format!(" && systemctl show --property=Id {UNUSED_SLICE};");
        assert!(remedy.advice().contains(&load), "{remedy}");
    }

    #[test]
    fn answer_of_the_bus_decides_severity() {
        for (bus, severity) in [
            (Bus::Missing, Severity::Fine),
            (Bus::Denies, Severity::Fine),
            (Bus::Accepts, Severity::Warning),
            (Bus::Unclear("no busctl".to_owned()), Severity::Unknown),
        ] {
            assert_eq!(bus.finding().severity, severity, "{bus:?}");
        }
    }

    #[test]
    fn daemon_without_filter_is_a_warning() {
        for (is_filtered, severity) in [(true, Severity::Fine), (false, Severity::Warning)] {
            let daemon = Daemon {
                name: "cron".to_owned(),
                pid: 7,
                is_filtered: Ok(is_filtered),
            };
            assert_eq!(daemon.finding().severity, severity);
        }
    }
}
