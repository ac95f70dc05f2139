//! The service's stack: whether libpam really runs our lines, what stands behind them, and which
//! modules undo or forestall what ours does.

use super::{Check, Finding, Line, Site};
use crate::helper::stack::{self, Entry, Group, Place, Unfit, judge_group};
use crate::module::{Action, Settings};
use crate::protocol::Request;
use std::path::Path;

const SESSION: Check = "pam-session";
const ACCOUNT: Check = "pam-account";
const ARGUMENTS: Check = "pam-arguments";
const OPEN: Check = "pam-open";
const EXEMPT: Check = "pam-exemptions";
const ORDER: Check = "pam-order";
const RIVAL: Check = "pam-rival";

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
/// Modules that do what a file of the site's says.
const SCRIPTED: [&str; 4] = ["pam_exec.so", "pam_script.so", "pam_python.so", "pam_perl.so"];
/// Modules that decide as ours does who may log in, or into which job.
pub(in crate::admin) const RIVALS: [&str; 4] =
    ["pam_slurm_adopt.so", "pam_slurm.so", "pam_flux.so", "pam_oar_adopt.so"];

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let mut found = vec![session(site), account(site)];
    found.extend(arguments(site));
    found.extend(order(site));
    found
}

fn object(site: &Site<'_>) -> String {
    format!("service {}", site.scene.service)
}

fn session(site: &Site<'_>) -> Finding {
    let service = object(site);
    match judge_group(&site.scene.root, &site.scene.service, Group::Session) {
        stack::Finding::Effective(place) => {
            Finding::fine(SESSION, place, "no session opens past this line")
        }
        stack::Finding::Absent => {
            let admits = !site.account.iter().any(Entry::is_for_service);
            let text = match admits {
                true => "has no line of pam_job_adopt.so: logins are in no job",
                false => "has an account line but no session line: every login is refused (JA09)",
            };
            Finding::error(SESSION, service, text, SESSION_LINE)
        }
        other => doubtful(site, SESSION, &other, Finding::error),
    }
}

/// Without it nobody is let out of a job, since the session phase judges again; but whoever is
/// refused is so late, and without a text.
fn account(site: &Site<'_>) -> Finding {
    match judge_group(&site.scene.root, &site.scene.service, Group::Account) {
        stack::Finding::Effective(place) => {
            Finding::fine(ACCOUNT, place, "no account is let in past this line")
        }
        stack::Finding::Absent => {
            let text = "has no account line of pam_job_adopt.so: who has no job is refused only \
                        after the login, without being told why";
            Finding::warning(ACCOUNT, object(site), text, ACCOUNT_LINE)
        }
        other => doubtful(site, ACCOUNT, &other, Finding::warning),
    }
}

/// A finding of a severity.
type Grave = fn(Check, String, String, String) -> Finding;

fn doubtful(site: &Site<'_>, check: Check, what: &stack::Finding, grave: Grave) -> Finding {
    let finding = |object: &Place, text: String, remedy: String| {
        grave(check, object.to_string(), text, remedy)
    };
    match what {
        stack::Finding::Skipped { ours, by } => {
            let text = format!("can be skipped by {by}, which may end the stack or leap over it");
            let remedy = match check == ACCOUNT {
                true => ACCOUNT_LINE.to_owned(),
                false => format!(
                    "change {by} so that it neither ends the stack nor leaps, or take its file in \
                     by substack instead of include"
                ),
            };
            finding(ours, text, remedy)
        }
        stack::Finding::Undone { by } => {
            let text = "can undo a refusal of pam_job_adopt.so (action reset)";
            finding(by, text.to_owned(), "take the action reset out of this line".to_owned())
        }
        stack::Finding::Unfit(place, why) => {
            finding(place, format!("this line of pam_job_adopt.so {why}"), fit(why))
        }
        stack::Finding::Maze => {
            let text = "has too many ways through it to tell whether one leads past our line";
            grave(check, object(site), text.to_owned(), "leap less in it".to_owned())
        }
        stack::Finding::Unreadable(why) => unreadable(site, check, why),
        stack::Finding::Effective(_) | stack::Finding::Absent => {
            grave(check, object(site), what.to_string(), String::new())
        }
    }
}

fn fit(why: &Unfit) -> String {
    match why {
        Unfit::Control => "write \"required\" for its control".to_owned(),
        Unfit::Dash => "take the leading \"-\" away".to_owned(),
        Unfit::Service(service) => {
            format!("take service={service} away, or run: job-adopt check --service {service}")
        }
        Unfit::Observe => "take observe away, or add it to the account line".to_owned(),
    }
}

/// libpam refuses every login where it cannot read a stack; who is not root may not be able to.
fn unreadable(site: &Site<'_>, check: Check, why: &str) -> Finding {
    match site.is_root() {
        true => {
            let text = format!("cannot be read, so that libpam refuses every login: {why}");
            Finding::error(check, object(site), text, "mend what it names")
        }
        false => Finding::unknown(check, object(site), why, "run this as root"),
    }
}

fn arguments(site: &Site<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, entry) in site.ours() {
        match crate::module::Settings::parse(&entry.arguments) {
            Ok(_) => found.push(Finding::fine(ARGUMENTS, &entry.place, "its arguments are known")),
            Err(error) => {
                let text = format!("{error}: every login is refused (JA09)");
                let remedy = "mend the argument; pam_job_adopt(8) has them all";
                found.push(Finding::error(ARGUMENTS, &entry.place, text, remedy));
            }
        }
    }
    for line in &site.lines {
        found.extend(opens(&line.settings, &line.entry.place));
        found.extend(other_conf(site, line));
    }
    found.extend(exempt(site));
    found
}

/// Whatever lets a login be outside of a job.
fn opens(settings: &Settings, place: &Place) -> Vec<Finding> {
    let default = |action| action == Action::Deny;
    let knobs = [
        ("action_no_jobs", settings.no_jobs, "users without a job are left to other modules"),
        ("action_adopt_failure", settings.adopt_failure, "logins that cannot join are let in"),
        ("action_generic_failure", settings.generic_failure, "faults of the node let logins in"),
    ];
    let mut found = Vec::new();
    for (name, action, does) in knobs.into_iter().filter(|(_, action, _)| !default(*action)) {
        let text = format!("{name}={action} opens: {does}, outside of jobs");
        found.push(Finding::warning(OPEN, place, text, format!("take {name} away")));
    }
    if settings.observe {
        let text = "observe: nothing is enforced, logins are only written about in the log";
        let remedy = "take observe away when the log says what you expect";
        found.push(Finding::warning(OPEN, place, text, remedy));
    }
    if found.is_empty() {
        found.push(Finding::fine(OPEN, place, "no argument opens anything"));
    }
    found
}

fn other_conf(site: &Site<'_>, line: &Line) -> Option<Finding> {
    let (conf, checked) = (Path::new(&line.settings.conf), &site.scene.conf);
    if conf != Path::new(Request::CONF) && conf.symlink_metadata().is_err() {
        let text = format!(
            "has conf={}, which is not there: every login is refused (JA09)",
            conf.display()
        );
        let remedy = "write the file, or take conf= away";
        return Some(Finding::error(ARGUMENTS, &line.entry.place, text, remedy));
    }
    let text = format!("has conf={}, but {} was checked", conf.display(), checked.display());
    let remedy = format!("run: job-adopt check --conf {}", conf.display());
    (conf != checked && site.scene.is_here())
        .then(|| Finding::warning(ARGUMENTS, &line.entry.place, text, remedy))
}

/// The lists of the PAM line leave logins outside of jobs, those of the configuration leave slices
/// open: who is in the first only loses their GPUs, who is in the second only keeps them.
fn exempt(site: &Site<'_>) -> Option<Finding> {
    let line = site.lines.iter().find(|line| line.group == Group::Session)?;
    let (settings, config) = (&line.settings, &site.scene.config);
    let mut only = Vec::new();
    let mut compare = |what: &str, pam: Vec<String>, conf: Vec<String>| {
        let lacking = |have: &[String], other: &[String]| {
            let rest: Vec<_> = have.iter().filter(|one| !other.contains(one)).cloned().collect();
            rest.join(",")
        };
        let (here, there) = (lacking(&pam, &conf), lacking(&conf, &pam));
        for (list, place) in [(here, "the PAM line"), (there, "the configuration")] {
            if !list.is_empty() {
                only.push(format!("{what} {list} only in {place}"));
            }
        }
    };
    let texts = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect();
    compare("exempt_uids", texts(&settings.exempt_uids), texts(&config.exempt_uids));
    compare("exempt_groups", settings.exempt_groups.clone(), config.exempt_groups.clone());
    let text = format!(
        "{}; the line leaves logins outside of jobs, the configuration leaves slices open",
        only.join("; ")
    );
    let remedy = "name them in both, unless it is meant so";
    (!only.is_empty()).then(|| Finding::note(EXEMPT, &line.entry.place, text, remedy))
}

/// What stands after our session line, or beside our lines.
fn order(site: &Site<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(last) = site.session.iter().rposition(Entry::is_fit) {
        let after = site.session.iter().skip(last + 1).filter_map(late);
        found.extend(after);
        if let (true, Some(ours)) = (found.is_empty(), site.session.get(last)) {
            let text = "no module known to move logins follows it";
            found.push(Finding::fine(ORDER, &ours.place, text));
        }
    }
    found.extend(rivals(site));
    found
}

fn late(entry: &Entry) -> Option<Finding> {
    let (file, place) = (entry.file(), &entry.place);
    let below = "move our session line below it";
    if let Some((_, does)) = MOVERS.iter().find(|(name, _)| *name == file) {
        let text = format!("{file} runs after ours and {does}, out of the job");
        return Some(Finding::error(ORDER, place, text, below));
    }
    if SCRIPTED.contains(&file) {
        let text = format!("{file} runs after ours, and what it runs may move the login");
        return Some(Finding::warning(ORDER, place, text, below));
    }
    let text = "pam_loginuid.so runs after ours: unregister knows by the audit session what a login \
                left behind, and one that ours refuses has none";
    (file == "pam_loginuid.so").then(|| Finding::note(ORDER, place, text, below))
}

/// Modules that decide about the same, wherever they stand but where they would be named already.
fn rivals(site: &Site<'_>) -> Vec<Finding> {
    let ours = site.session.iter().rposition(Entry::is_fit);
    let before = site.session.iter().take(ours.unwrap_or(usize::MAX));
    let all = site.account.iter().chain(before);
    let rival = |entry: &Entry| {
        let file = entry.file();
        let text = format!("{file} decides about logins as well: who has no job of its is refused");
        let remedy = "take this line out, unless both are to agree on every login";
        let beside = format!("{file} decides, and ours observes: job-adopt compare sums it up");
        RIVALS.contains(&file).then(|| match site.settings().observe {
            true => Finding::note(RIVAL, &entry.place, beside, ""),
            false => Finding::warning(RIVAL, &entry.place, text, remedy),
        })
    };
    all.filter_map(rival).collect()
}
