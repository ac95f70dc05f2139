//! The service's stack: whether libpam really runs our lines, what stands behind them, and which
//! modules undo or forestall what ours does.

use super::finding::Severity;
use super::{Check, Finding, Site};
use helper::stack::{self, Entry, Group, LineFault, judge_stack};
use module::{Action, Settings};
use protocol::Request;
use std::fmt::Display;
use std::path::Path;

const SESSION: Check = "pam-session";
const ACCOUNT: Check = "pam-account";
const ARGUMENTS: Check = "pam-arguments";
const OPEN: Check = "pam-open";
const ORDER: Check = "pam-order";
const RIVAL: Check = "pam-rival";
const CLOSE: Check = "pam-close";

/// The lines of an account stack in front of which ours belongs.
const ACCOUNT_LINE: &str = "put \"account required pam_job_adopt.so\" above every other account \
                            line but pam_nologin's";
const SESSION_LINE: &str =
    "put \"session required pam_job_adopt.so\" below every other session line";

/// Modules that put a process into a cgroup when its session opens.
pub(super) const MOVERS: [(&str, &str); 7] = [
    ("pam_systemd.so", "has logind put the login into a scope of its own"),
    ("pam_elogind.so", "has elogind put the login into a cgroup of its own"),
    ("pam_flux.so", "puts the login into a scope of Flux's"),
    ("pam_slurm_adopt.so", "puts the login into a job of Slurm's"),
    ("pam_oar_adopt.so", "puts the login into a job of OAR's"),
    ("pam_cgfs.so", "puts the login into a cgroup of its own"),
    ("pam_cgroup.so", "puts the login where cgrules.conf says"),
];
/// Modules that work on no path of users when a session is closed.
const QUIET: [&str; 19] = [
    "pam_access.so",
    "pam_deny.so",
    "pam_env.so",
    "pam_keyinit.so",
    "pam_lastlog.so",
    "pam_limits.so",
    "pam_loginuid.so",
    "pam_mail.so",
    "pam_mkhomedir.so",
    "pam_motd.so",
    "pam_nologin.so",
    "pam_oddjob_mkhomedir.so",
    "pam_permit.so",
    "pam_selinux.so",
    "pam_sss.so",
    "pam_succeed_if.so",
    "pam_systemd.so",
    "pam_umask.so",
    "pam_unix.so",
];
/// Modules that do what a file of the site's says.
const SCRIPTED: [&str; 4] = ["pam_exec.so", "pam_script.so", "pam_python.so", "pam_perl.so"];
/// Modules that decide as ours does who may log in, or into which job.
pub(crate) const RIVALS: [&str; 4] =
    ["pam_slurm_adopt.so", "pam_slurm.so", "pam_flux.so", "pam_oar_adopt.so"];

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let mut found = vec![phase(site, Group::Session), phase(site, Group::Account)];
    found.extend(site.ours().flat_map(|entry| arguments(site, entry)));
    found.extend(order(site));
    found.extend(close(site));
    found.extend(rivals(site));
    found
}

/// Whether libpam runs our line of a group. Without the account line nobody is let out of a job, since
/// the session phase judges again; but whoever is refused is so late, and without a text.
fn phase(site: &Site, group: Group) -> Finding {
    let (check, severity, line, absent) = match group {
        Group::Account => (
            ACCOUNT,
            Severity::Warning,
            ACCOUNT_LINE,
            "has no account line of pam_job_adopt.so: who has no job is refused only after the \
             login, without being told why",
        ),
        _ if site.account.iter().any(Entry::is_for_service) => (
            SESSION,
            Severity::Error,
            SESSION_LINE,
            "has an account line but no session line: every login is refused (JA09)",
        ),
        _ => (
            SESSION,
            Severity::Error,
            SESSION_LINE,
            "has no line of pam_job_adopt.so: logins are in no job",
        ),
    };
    let service = format!("service {}", site.service);
    let new = |object: &dyn Display, text: &str, remedy: &str| {
        Finding::new(severity, check, object, text, remedy)
    };
    match judge_stack(&site.root, &site.service, group) {
        stack::Finding::Effective(place) => {
            Finding::fine(check, place, "nobody is let in past this line")
        }
        stack::Finding::Absent => new(&service, absent, line),
        stack::Finding::Skipped { ours, by } => {
            let text = format!("can be skipped by {by}, which may end the stack or leap over it");
            let change = format!(
                "change {by} so that it neither ends the stack nor leaps, or take its file in by \
                 substack instead of include"
            );
            new(&ours, &text, if check == ACCOUNT { line } else { &change })
        }
        stack::Finding::Undone { by } => {
            let text = "can undo a refusal of pam_job_adopt.so (action reset)";
            new(&by, text, "take the action reset out of this line")
        }
        stack::Finding::Unfit(place, why) => {
            let remedy = match &why {
                LineFault::NotRequired => "write \"required\" for its control".to_owned(),
                LineFault::LeadingDash => "take the leading \"-\" away".to_owned(),
                LineFault::ObservesAlone => {
                    "take observe away, or add it to the account line".to_owned()
                }
                LineFault::OtherService(other) => {
                    format!("take service={other} away, or run: job-adopt check --service {other}")
                }
            };
            new(&place, &format!("this line of pam_job_adopt.so {why}"), &remedy)
        }
        stack::Finding::TooManyPaths => {
            let text = "has too many ways through it to tell whether one leads past our line";
            new(&service, text, "leap less in it")
        }
        stack::Finding::Unreadable(why) if site.is_root() => {
            let text = format!("cannot be read, so that libpam refuses every login: {why}");
            Finding::error(check, service, text, "correct what it names")
        }
        stack::Finding::Unreadable(why) => {
            Finding::unknown(check, service, why, "run this as root")
        }
    }
}

/// What a line of ours has, and whatever in it lets a login be outside of a job.
fn arguments(site: &Site, entry: &Entry) -> Vec<Finding> {
    let place = &entry.place;
    let settings = match Settings::parse(&entry.arguments) {
        Ok(settings) => settings,
        Err(error) => {
            let text = format!("{error}: every login is refused (JA09)");
            let remedy = "correct the argument; pam_job_adopt(8) has them all";
            return vec![Finding::error(ARGUMENTS, place, text, remedy)];
        }
    };
    let mut found = vec![conf(site, entry, Path::new(&settings.conf))];
    let knobs = [
        ("action_no_jobs", settings.no_jobs, "users without a job are left to other modules"),
        ("action_adopt_failure", settings.adopt_failure, "logins that cannot join are let in"),
        ("action_generic_failure", settings.generic_failure, "faults of the node let logins in"),
    ];
    for (name, action, does) in knobs.into_iter().filter(|(_, action, _)| *action != Action::Deny) {
        let text = format!("{name}={action} opens: {does}, outside of jobs");
        found.push(Finding::warning(OPEN, place, text, format!("take {name} away")));
    }
    if settings.observe {
        let text = "observe: nothing is enforced, logins are only written about in the log";
        let remedy = "take observe away when the log says what you expect";
        found.push(Finding::warning(OPEN, place, text, remedy));
    }
    if found.len() == 1 {
        found.push(Finding::fine(OPEN, place, "no argument opens anything"));
    }
    found
}

/// Whether the line's configuration is the one that is checked.
fn conf(site: &Site, entry: &Entry, conf: &Path) -> Finding {
    let (place, shown) = (&entry.place, conf.display());
    if conf != Path::new(Request::CONF) && conf.symlink_metadata().is_err() {
        let text = format!("has conf={shown}, which is not there: every login is refused (JA09)");
        return Finding::error(ARGUMENTS, place, text, "write the file, or take conf= away");
    }
    if conf != site.conf && site.is_here() {
        let text = format!("has conf={shown}, but {} was checked", site.conf.display());
        return Finding::warning(
            ARGUMENTS,
            place,
            text,
            format!("run: job-adopt check --conf {shown}"),
        );
    }
    Finding::fine(ARGUMENTS, place, "its arguments are known")
}

/// What stands after our session line.
fn order(site: &Site) -> Vec<Finding> {
    let Some(last) = site.session.iter().rposition(Entry::is_fit) else { return Vec::new() };
    let late = |entry: &Entry| {
        let (file, place, below) = (entry.file(), &entry.place, "move our session line below it");
        if let Some((_, does)) = MOVERS.iter().find(|(name, _)| *name == file) {
            let text = format!("{file} runs after ours and {does}, out of the job");
            return Some(Finding::error(ORDER, place, text, below));
        }
        let text = format!("{file} runs after ours, and what it runs may move the login");
        SCRIPTED.contains(&file).then(|| Finding::warning(ORDER, place, text, below))
    };
    let mut found: Vec<_> = site.session.iter().skip(last + 1).filter_map(late).collect();
    if found.is_empty() {
        let ours = format!("service {}", site.service);
        found.push(Finding::fine(ORDER, ours, "no module known to move logins follows our line"));
    }
    found
}

/// Finds a module that closes the session before ours goes back to the node's namespaces: libpam calls the
/// lines in the same order as at its beginning.
fn close(site: &Site) -> Option<Finding> {
    let last = site.session.iter().rposition(Entry::is_fit)?;
    if !site.settings().join_container {
        return None;
    }
    let before = site.session.iter().take(last).take_while(|entry| !entry.is_close_only());
    let is_loud = |entry: &&Entry| ![&QUIET[..], &RIVALS].concat().contains(&entry.file());
    let Some(entry) = before.into_iter().find(is_loud) else {
        let service = format!("service {}", site.service);
        let text = "no module that works on files closes in a job's namespaces";
        return Some(Finding::fine(CLOSE, service, text));
    };
    let text = format!(
        "{} closes sessions in a job's private /tmp, where its user decides what a path leads to",
        entry.file()
    );
    let remedy =
        "put \"session optional pam_job_adopt.so close_only\" above every other session line";
    Some(Finding::warning(CLOSE, &entry.place, text, remedy))
}

/// Modules that decide about the same, wherever they stand but where they would be named already.
fn rivals(site: &Site) -> Vec<Finding> {
    let ours = site.session.iter().rposition(Entry::is_fit);
    let before = site.session.iter().take(ours.unwrap_or(usize::MAX));
    let observes = site.settings().observe;
    let rival = |entry: &Entry| {
        let (file, place) = (entry.file(), &entry.place);
        if observes {
            let text = format!("{file} decides, and ours observes: job-adopt compare sums it up");
            return Finding::note(RIVAL, place, text, "");
        }
        let text = format!("{file} decides about logins as well: who has no job of its is refused");
        let remedy = "take this line out, unless both are to agree on every login";
        Finding::warning(RIVAL, place, text, remedy)
    };
    let all = site.account.iter().chain(before);
    all.filter(|entry| RIVALS.contains(&entry.file())).map(rival).collect()
}
