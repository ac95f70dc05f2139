//! What Flux's system instance needs for logins to find its jobs.

use super::{Check, Finding, Site};
use crate::plan::SourceName;
use crate::resolve::Config;
use nix::unistd::User;

const ACCOUNT: Check = "flux-account";
const LINGER: Check = "flux-linger";
const EXEC: Check = "flux-exec";

/// Where the system instance has its configuration (flux-config(5)).
const CONF: &str = "/etc/flux/system/conf.d";
const LINGERING: &str = "/var/lib/systemd/linger";

/// The number of Flux's account, where Flux is a source and this node has the account.
pub(super) fn account(site: &Site<'_>) -> Option<u32> {
    let config = &site.scene.config;
    if !config.sources.contains(&SourceName::Flux) {
        return None;
    }
    if site.is_here() {
        return Some(User::from_name(&config.flux_user).ok().flatten()?.uid.as_raw());
    }
    let local = std::fs::read_to_string(site.path("/etc/passwd")).ok()?;
    let mut lines = local.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.first() == Some(&config.flux_user.as_str()))?;
    line.get(2)?.parse().ok()
}

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let user = &site.scene.config.flux_user;
    match account(site) {
        None => return missing(site).into_iter().collect(),
        Some(0) => {
            let text = "is root, which Flux is not: who has no other job is refused (JA09)";
            let remedy = "name the account of Flux's system instance in flux_user";
            return vec![Finding::error(ACCOUNT, user, text, remedy)];
        }
        Some(_) => {}
    }
    let exec = exec(site);
    let mut found = vec![linger(site, user, exec.is_some())];
    found.extend(exec);
    found
}

/// A name that the site has chosen is of an account; the usual one is of nodes that have Flux only.
fn missing(site: &Site<'_>) -> Option<Finding> {
    let config = &site.scene.config;
    let chosen = config.flux_user != Config::default().flux_user;
    let text = "flux_user names no account of this node: no job of Flux's is found";
    let remedy = "mend the name, or take flux_user away where Flux does not run";
    (chosen && config.sources.contains(&SourceName::Flux))
        .then(|| Finding::warning(ACCOUNT, &config.flux_user, text, remedy))
}

/// Jobs run below this account's own service manager, which has to be there without a login. An account
/// that a package made, without a configured instance, runs none.
fn linger(site: &Site<'_>, user: &str, configured: bool) -> Finding {
    match site.path(LINGERING).join(user).try_exists() {
        Ok(true) => Finding::fine(LINGER, user, "lingers"),
        Ok(false) => {
            let text = "does not linger: it has no service manager that jobs could run below";
            let remedy = format!("loginctl enable-linger {user}, where Flux is to run here");
            match configured {
                true => Finding::warning(LINGER, user, text, remedy),
                false => Finding::note(LINGER, user, text, remedy),
            }
        }
        Err(error) => Finding::unknown(LINGER, user, error, "run this as root"),
    }
}

/// Without `sdexec` jobs have no unit, and no login finds them.
fn exec(site: &Site<'_>) -> Option<Finding> {
    let dir = site.path(CONF);
    let object = dir.display();
    let listed = std::fs::read_dir(&dir).ok()?.flatten().map(|entry| entry.path());
    let files = listed.filter(|path| path.extension().is_some_and(|end| end == "toml"));
    let texts: Option<Vec<String>> = files.map(|path| std::fs::read_to_string(path).ok()).collect();
    let Some(texts) = texts else {
        let text = "cannot be read";
        return Some(Finding::unknown(EXEC, object, text, "run this as root"));
    };
    Some(match texts.iter().any(|text| runs_in_units(text)) {
        true => Finding::fine(EXEC, object, "jobs run in units (sdexec)"),
        false => {
            let text = "jobs run in no units of their own: [exec] service is not \"sdexec\", and no \
                        login finds them";
            let remedy =
                "write service = \"sdexec\" under [exec], and enable = true under [systemd]";
            Finding::warning(EXEC, object, text, remedy)
        }
    })
}

/// Whether the table `exec` of a file says so.
fn runs_in_units(text: &str) -> bool {
    let mut table = String::new();
    text.lines().any(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            line.clone_into(&mut table);
        }
        let value = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let is = |key, wanted: &str| value == Some((key, wanted));
        (table == "[exec]" && (is("service", "\"sdexec\"") || is("service", "'sdexec'")))
            || (table.is_empty() && is("exec.service", "\"sdexec\""))
    })
}
