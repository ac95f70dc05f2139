//! Servers of ssh on this node, and what their configuration comes to.

mod effective;
mod instance;

use super::{Check, Finding};
use effective::Effective;
use instance::{Instance, Unasked, instances, others};
use nix::unistd::geteuid;
use std::path::Path;

const CONFIG: Check = "sshd-config";
const PAM: Check = "sshd-pam";
const SERVICE: Check = "sshd-service";
const ENVIRONMENT: Check = "sshd-environment";
const KEYBOARD: Check = "sshd-keyboard";
const STARTUPS: Check = "sshd-startups";
const PENALTIES: Check = "sshd-penalties";
const OTHERS: Check = "ssh-others";

/// Fewest connections that may be authenticating at once before sshd drops any, of which nothing
/// is said: a launch over ssh opens as many within a second.
const STARTUPS_MIN: u32 = 100;

pub(super) fn findings(service: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let asked: Vec<(Instance, Result<Effective, Unasked>)> = instances()
        .into_iter()
        .map(|instance| {
            let effective = instance.effective();
            (instance, effective)
        })
        .collect();
    if asked.is_empty() {
        let text = "no sshd listens, and there is no /usr/sbin/sshd";
        found.push(Finding::note(CONFIG, "sshd", text, ""));
    }
    let serves = |(_, effective): &(Instance, Result<Effective, Unasked>)| {
        effective.as_ref().is_ok_and(|effective| effective.service == service)
    };
    let served = asked.iter().any(serves);
    for (instance, effective) in &asked {
        let object = instance.shown();
        match effective {
            Ok(effective) => found.extend(judge(&object, effective, service, served)),
            Err(why) => found.push(unasked(&object, why)),
        }
    }
    found.extend(others().into_iter().map(|other| {
        let text = "serves logins and may ask no PAM module of this service";
        Finding::warning(OTHERS, other, text, "stop it, or let only operators reach it")
    }));
    found
}

fn unasked(object: &str, why: &Unasked) -> Finding {
    match why {
        Unasked::NotRoot => {
            let text = "only root can ask it for its configuration (sshd -T)";
            Finding::unknown(CONFIG, object, text, "run this as root")
        }
        Unasked::Distrusted(why) => {
            Finding::error(CONFIG, object, format!("runs as root, and {why}"), "install it again")
        }
        Unasked::Failed(why) => {
            let text = format!("sshd -T fails, and so will its next start: {why}");
            Finding::error(CONFIG, object, text, "mend what it names")
        }
        Unasked::Silent(why) => Finding::unknown(CONFIG, object, why, "run sshd -T by hand"),
    }
}

/// What an instance's configuration comes to. Another instance than that of the service in question
/// may have a service of its own.
fn judge(object: &str, effective: &Effective, service: &str, served: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    found.push(match effective.use_pam {
        true => Finding::fine(PAM, object, "UsePAM yes"),
        false => {
            let text = "UsePAM no: sshd runs no PAM module, and every login is outside of jobs";
            Finding::error(PAM, object, text, "write \"UsePAM yes\" into sshd_config and reload")
        }
    });
    let own = &effective.service;
    found.push(match (own == service, served) {
        (true, _) => Finding::fine(SERVICE, object, format!("its PAM service is {own}")),
        (false, true) => {
            let text = format!("its PAM service is {own}, which was not checked");
            Finding::note(SERVICE, object, text, format!("run: job-adopt check --service {own}"))
        }
        (false, false) => {
            let text = format!("its PAM service is {own}, and not {service}");
            let remedy = format!("set up /etc/pam.d/{own}, with service={own} on our lines");
            Finding::error(SERVICE, object, text, remedy)
        }
    });
    found.extend(notes(object, effective));
    found
}

fn notes(object: &str, effective: &Effective) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut note = |check, text: String, remedy: &str| {
        found.push(Finding::note(check, object, text, remedy));
    };
    if let Some(value) = &effective.user_environment {
        let text = format!(
            "PermitUserEnvironment {value}: users' own variables replace those that their logins \
             are given"
        );
        note(ENVIRONMENT, text, "write \"PermitUserEnvironment no\" unless users need it");
    }
    if effective.keyboard {
        let text = "keyboard-interactive logins have their account judged in a process of its own; \
                    the session is judged anew, so nothing is open";
        note(KEYBOARD, text.to_owned(), "");
    }
    if let Some((begin, whole)) =
        effective.startups.as_ref().filter(|(begin, _)| *begin < STARTUPS_MIN)
    {
        let text = format!(
            "MaxStartups {whole}: from the {begin}th connection on that authenticates at once, some \
             are dropped, which a launch over ssh meets"
        );
        note(STARTUPS, text, "MaxStartups above the most logins at once, see docs/mpi.md");
    }
    if effective.penalties {
        let text =
            "PerSourcePenalties with no PerSourcePenaltyExemptList: refused logins lock the \
                    node out that they come from"
                .to_owned();
        note(PENALTIES, text, "exempt the cluster's addresses, see docs/mpi.md");
    }
    found
}

/// Whether a file's configuration has parts that depend on who connects.
fn has_match(path: &Path) -> bool {
    let is_match = |line: &str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        word.eq_ignore_ascii_case("match")
    };
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let own = read(path).lines().any(is_match);
    let parts = std::fs::read_dir(path.with_extension("d"));
    own || parts.into_iter().flatten().flatten().any(|one| read(&one.path()).lines().any(is_match))
}

/// Whether this process may ask for everything.
fn is_root() -> bool {
    geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NINE: &str = "usepam yes\npermituserenvironment no\nkbdinteractiveauthentication no\n\
                        maxstartups 400:30:500\n";

    fn severities(text: &str, service: &str, served: bool) -> Vec<String> {
        let effective = Effective::parse(text, "sshd");
        let found = judge("sshd", &effective, service, served);
        let bad = found.iter().filter(|one| one.severity != crate::cli::check::Severity::Fine);
        bad.map(|one| format!("{:?} {}", one.severity, one.check)).collect()
    }

    #[test]
    fn a_plain_configuration_is_fine() {
        assert_eq!(severities(NINE, "sshd", true), [""; 0]);
        let ten = "pamservicename sshd\npersourcepenalties crash:90 authfail:5 max:600\n\
                   persourcepenaltyexemptlist 10.0.0.0/8\n";
        assert_eq!(severities(&format!("{NINE}{ten}"), "sshd", true), [""; 0]);
        let off = "persourcepenalties no\npersourcepenaltyexemptlist none\n";
        assert_eq!(severities(&format!("{NINE}{off}"), "sshd", true), [""; 0]);
    }

    #[test]
    fn what_is_amiss_is_named() {
        for (from, to, expected) in [
            ("usepam yes", "usepam no", "Error sshd-pam"),
            ("usepam yes\n", "", "Error sshd-pam"),
            ("permituserenvironment no", "permituserenvironment LANG", "Note sshd-environment"),
            ("authentication no", "authentication yes", "Note sshd-keyboard"),
            ("400:30:500", "10:30:100", "Note sshd-startups"),
            (
                "usepam",
                "persourcepenalties crash:90 max:600\npersourcepenaltyexemptlist none\nusepam",
                "Note sshd-penalties",
            ),
            ("usepam", "pamservicename ssh-alt\nusepam", "Error sshd-service"),
        ] {
            assert_eq!(severities(&NINE.replace(from, to), "sshd", false), [expected], "{to}");
        }
        let alt = NINE.replace("usepam", "pamservicename ssh-alt\nusepam");
        assert_eq!(severities(&alt, "sshd", true), ["Note sshd-service"]);
        assert_eq!(severities(&alt, "ssh-alt", true), [""; 0]);
    }
}
