//! PAM modules of others: which of them move a login out of its job, or decide on logins as ours does.

use super::finding::{Check, Finding};
use super::remedy::Remedy;
use facts::rival_modules::module_name;
use helper::stack::Entry;

/// Modules that put a process into a cgroup when its session opens.
const MOVERS: [(&str, &str); 10] = [
    (
        "pam_systemd.so",
        "has logind put the login into a scope of its own",
    ),
    (
        "pam_elogind.so",
        "has elogind put the login into a cgroup of its own",
    ),
    ("pam_flux.so", "puts the login into a scope of Flux"),
    ("pam_slurm_adopt.so", "puts the login into a job of Slurm"),
    ("pam_oar_adopt", "puts the login into a job of OAR"),
    ("pam_crane.so", "puts the login into a job of CraneSched"),
    ("libcsmpam.so", "puts the login into an allocation of CSM"),
    (
        "pam_csession.so",
        "puts the login into a session of its own",
    ),
    ("pam_cgfs.so", "puts the login into a cgroup of its own"),
    ("pam_cgroup.so", "puts the login where cgrules.conf says"),
];
/// Modules that leave a process in its cgroup.
const HARMLESS_MODULES: [&str; 60] = [
    "pam_access.so",
    "pam_afs_session.so",
    "pam_apparmor.so",
    "pam_canonicalize_user.so",
    "pam_cap.so",
    "pam_ck_connector.so",
    "pam_debug.so",
    "pam_deny.so",
    "pam_echo.so",
    "pam_ecryptfs.so",
    "pam_env.so",
    "pam_faildelay.so",
    "pam_faillock.so",
    "pam_fprintd.so",
    "pam_fscrypt.so",
    "pam_gnome_keyring.so",
    "pam_group.so",
    "pam_issue.so",
    "pam_keyinit.so",
    "pam_krb5.so",
    "pam_kwallet5.so",
    "pam_lastlog.so",
    "pam_lastlog2.so",
    "pam_ldap.so",
    "pam_limits.so",
    "pam_listfile.so",
    "pam_localuser.so",
    "pam_loginuid.so",
    "pam_mail.so",
    "pam_mkhomedir.so",
    "pam_mktemp.so",
    "pam_motd.so",
    "pam_mount.so",
    "pam_namespace.so",
    "pam_nologin.so",
    "pam_oddjob_mkhomedir.so",
    "pam_permit.so",
    "pam_pwhistory.so",
    "pam_rootok.so",
    "pam_securetty.so",
    "pam_selinux.so",
    "pam_sepermit.so",
    "pam_setquota.so",
    "pam_shells.so",
    "pam_ssh_agent_auth.so",
    "pam_sss.so",
    "pam_succeed_if.so",
    "pam_tally2.so",
    "pam_time.so",
    "pam_timestamp.so",
    "pam_tmpdir.so",
    "pam_tty_audit.so",
    "pam_u2f.so",
    "pam_umask.so",
    "pam_unix.so",
    "pam_usertype.so",
    "pam_warn.so",
    "pam_wheel.so",
    "pam_winbind.so",
    "pam_xauth.so",
];
/// Modules that run a script of the site.
const SCRIPT_MODULES: [&str; 4] = [
    "pam_exec.so",
    "pam_script.so",
    "pam_python.so",
    "pam_perl.so",
];

/// What a module does to a login's cgroup when its session opens; `None` for one that is not known to move logins.
pub(super) fn find_effect(module: &str) -> Option<&'static str> {
    MOVERS
        .iter()
        .find(|(name, _)| *name == module)
        .map(|(_, effect)| *effect)
}

/// Judges a module that runs after our session line and may move the login out of its job; `None` for a
/// module that does not.
pub(super) fn judge_late_module(
    entry: &Entry,
    passes_variables: bool,
    remedy: Remedy,
) -> Option<Finding> {
    let file = module_name(entry);
    let place = &entry.place;
    if let Some(effect) = find_effect(file) {
        let text = format!("{file} runs after our session line and {effect}, out of the job");
        return Some(Finding::error(Check::PamOrder, place, text, remedy));
    }
    if SCRIPT_MODULES.contains(&file) {
        let mut text =
            format!("{file} runs after our session line, and its script may move the login");
        if passes_variables {
            text += "; it has the job's variables (env = full), and a shell writes to TMPDIR";
        }
        return Some(Finding::warning(Check::PamOrder, place, text, remedy));
    }
    if HARMLESS_MODULES.contains(&file) || entry.is_our_module() {
        return None;
    }
    let text = format!(
        "{file} runs after our session line, and it is not known here whether it moves the login out of \
         the job"
    );
    Some(Finding::unknown(Check::PamOrder, place, text, remedy))
}

/// Reports a rival module, which a site that observes compares with ours on purpose.
pub(super) fn judge_rival(entry: &Entry, observes: bool, remedy: Remedy) -> Finding {
    let file = module_name(entry);
    let place = &entry.place;
    if observes {
        let text =
            format!("{file} decides, and ours observes: job-adopt compare sums up the differences");
        return Finding::note(Check::PamRival, place, text, "");
    }
    let text =
        format!("{file} decides on logins too, and refuses users without a job of its scheduler");
    Finding::warning(Check::PamRival, place, text, remedy)
}
