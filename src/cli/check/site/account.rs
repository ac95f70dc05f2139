//! The account that jobs are looked up as.

use super::{Check, Finding, Site};
use crate::cli::as_helper::HELPER_USER;
use nix::unistd::User;

const ACCOUNT: Check = "account";

/// A line of passwd(5).
struct Entry {
    name: String,
    uid: u32,
    gid: u32,
    shell: String,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, _, shell] = fields.as_slice() else { return None };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        Some(Self { name: (*name).to_owned(), uid, gid, shell: (*shell).to_owned() })
    }
}

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let local = std::fs::read_to_string(site.path("/etc/passwd")).unwrap_or_default();
    let local: Vec<Entry> = local.lines().filter_map(Entry::parse).collect();
    vec![judge(own(site, &local).as_ref(), &local)]
}

/// By the name service of the node, as the module has it.
fn own(site: &Site<'_>, local: &[Entry]) -> Option<Entry> {
    if !site.is_here() {
        let own = local.iter().find(|entry| entry.name == HELPER_USER)?;
        let (name, shell) = (own.name.clone(), own.shell.clone());
        return Some(Entry { name, shell, ..*own });
    }
    let user = User::from_name(HELPER_USER).ok().flatten()?;
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    Some(Entry { name: user.name, uid, gid, shell: user.shell.display().to_string() })
}

fn judge(own: Option<&Entry>, local: &[Entry]) -> Finding {
    let object = format!("account {HELPER_USER}");
    let make = "make a system account of its own: systemd-sysusers, or \
                useradd --system --shell /usr/sbin/nologin job-adopt";
    let Some(own) = own else {
        let text = "does not exist: every login is refused (JA09)";
        return Finding::error(ACCOUNT, object, text, make);
    };
    if own.uid == 0 || own.gid == 0 {
        let text = "has root's uid or gid: every login is refused (JA09)";
        return Finding::error(ACCOUNT, object, text, make);
    }
    let shared: Vec<&str> = local
        .iter()
        .filter(|other| other.uid == own.uid && other.name != own.name)
        .map(|other| other.name.as_str())
        .collect();
    if !shared.is_empty() || own.uid == 65534 {
        let others = if shared.is_empty() { "nobody".to_owned() } else { shared.join(", ") };
        let text = format!(
            "shares uid {} with {others}, whose processes can trace those that look jobs up",
            own.uid
        );
        return Finding::warning(ACCOUNT, object, text, "give it a uid of its own");
    }
    if !["nologin", "false"].iter().any(|shell| own.shell.ends_with(shell)) {
        let text = format!("has a login shell, {}", own.shell);
        let remedy = "usermod --shell /usr/sbin/nologin job-adopt";
        return Finding::note(ACCOUNT, object, text, remedy);
    }
    Finding::fine(ACCOUNT, object, format!("exists, uid {}", own.uid))
}
