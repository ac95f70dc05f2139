//! What stands after our session line, or beside our lines.

use super::{Check, Finding, Site};
use crate::resolve::stack::{Entry, Group};

const ORDER: Check = "pam-order";
const RIVAL: Check = "pam-rival";

/// Modules that put a login into a cgroup when its session opens.
const MOVERS: [(&str, &str); 7] = [
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
const RIVALS: [&str; 4] = ["pam_slurm_adopt.so", "pam_slurm.so", "pam_flux.so", "pam_oar_adopt.so"];

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(last) = site.session.iter().rposition(|entry| entry.ours == Some(Ok(()))) {
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
    let text = match file {
        "pam_loginuid.so" => {
            "runs after ours: a login that ours refuses has no audit session, by which unregister \
             knows what a login left behind"
        }
        _ => return None,
    };
    Some(Finding::note(ORDER, place, format!("{file} {text}"), below))
}

/// Modules that decide about the same, wherever they stand but where they would be named already.
fn rivals(site: &Site<'_>) -> Vec<Finding> {
    let ours = site.session.iter().rposition(|entry| entry.ours == Some(Ok(())));
    let before = site.session.iter().take(ours.unwrap_or(usize::MAX));
    let all = site.group(Group::Account).iter().chain(before);
    let rival = |entry: &Entry| {
        let file = entry.file();
        let text = format!("{file} decides about logins as well: who has no job of its is refused");
        let remedy = "take this line out, unless both are to agree on every login";
        RIVALS.contains(&file).then(|| Finding::warning(RIVAL, &entry.place, text, remedy))
    };
    all.filter_map(rival).collect()
}
