//! Checks the service's stack: libpam must run our lines, their arguments must confine logins, and no
//! other module may undo their effect.

use super::finding::{Check, Finding, Severity};
use super::site::Site;
use helper::stack::{self, Entry, Group, LineFault, Rejection, judge_stack, service_dirs};
use module::{Action, Settings};
use protocol::Request;
use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Remedy for an account line that is missing or at a wrong place.
const ACCOUNT_REMEDY: &str = "job-adopt pam --install, or by hand: \"account required \
                            pam_job_adopt.so\" above every other account line but pam_nologin's";
/// Remedy for a session line that is missing or at a wrong place.
const SESSION_REMEDY: &str = "job-adopt pam --install, or by hand: \"session required pam_job_adopt.so\" as the last session \
     line";
/// Remedy for auth lines that are missing or at wrong places.
const AUTH_REMEDY: &str = "job-adopt pam --install, or by hand: \"auth required pam_job_adopt.so\" as the first and as the \
     last auth line";

/// Modules that put a process into a cgroup when its session opens.
pub(super) const MOVERS: [(&str, &str); 10] = [
    ("pam_systemd.so", "has logind put the login into a scope of its own"),
    ("pam_elogind.so", "has elogind put the login into a cgroup of its own"),
    ("pam_flux.so", "puts the login into a scope of Flux"),
    ("pam_slurm_adopt.so", "puts the login into a job of Slurm"),
    ("pam_oar_adopt", "puts the login into a job of OAR"),
    ("pam_crane.so", "puts the login into a job of CraneSched"),
    ("libcsmpam.so", "puts the login into an allocation of CSM"),
    ("pam_csession.so", "puts the login into a session of its own"),
    ("pam_cgfs.so", "puts the login into a cgroup of its own"),
    ("pam_cgroup.so", "puts the login where cgrules.conf says"),
];
/// Modules that leave a process in its cgroup.
const STILL_MODULES: [&str; 61] = [
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
    "pam_systemd.so",
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
const SCRIPT_MODULES: [&str; 4] = ["pam_exec.so", "pam_script.so", "pam_python.so", "pam_perl.so"];
/// Modules that, like ours, decide who may log in, or into which job.
pub(crate) const RIVAL_MODULES: [&str; 10] = [
    "libcsmpam.so", "pam_bright.so", "pam_crane.so", "pam_csession.so", "pam_flux.so",
    "pam_oar_adopt", "pam_pbssimpleauth.so", "pam_sge_authorize.so", "pam_slurm.so",
    "pam_slurm_adopt.so",
];
/// Programs that do the work of such a module, run by `pam_exec`.
const MODULE_PROGRAMS: [&str; 1] = ["pam_oar_adopt"];

/// Returns the file name of a line's module, or of the program of [`MODULE_PROGRAMS`] that it runs.
pub(crate) fn module_name(entry: &Entry) -> &str {
    let mut words = entry.arguments.iter().filter_map(|word| word.rsplit('/').next());
    match entry.file() {
        "pam_exec.so" => words.find(|name| MODULE_PROGRAMS.contains(name)).unwrap_or("pam_exec.so"),
        file => file,
    }
}

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let mut findings = vec![check_line(site, Group::Session), check_line(site, Group::Account)];
    let join_jobs = findings.iter().all(|finding| finding.severity == Severity::Fine);
    if join_jobs && site.settings().join_container {
        findings.push(check_line(site, Group::Auth));
    }
    findings.extend(site.own_lines().flat_map(|entry| check_arguments(site, entry)));
    findings.extend(check_order(site));
    findings.extend(find_rivals(site));
    findings.extend(find_aliases(site));
    findings
}

/// Checks that libpam runs our lines of a group. Without the account line no login is outside of a job,
/// because the session phase decides again; but refusals come late, and without a text. Without the auth
/// lines no login joins a job that has private files.
fn check_line(site: &Site, group: Group) -> Finding {
    let finding = judge_stack(&site.root, &site.service, group);
    let (check, severity, line, absent) = match group {
        Group::Auth => (
            Check::PamAuth,
            if finding == stack::Finding::Absent { Severity::Note } else { Severity::Warning },
            AUTH_REMEDY,
            "has no auth lines of pam_job_adopt.so: logins to jobs with private files are refused (JA09)",
        ),
        Group::Account => (
            Check::PamAccount,
            Severity::Warning,
            ACCOUNT_REMEDY,
            "has no account line of pam_job_adopt.so, so users without a job are refused late, \
             without a reason",
        ),
        Group::Session if site.account.iter().any(Entry::is_for_service) => (
            Check::PamSession,
            Severity::Error,
            SESSION_REMEDY,
            "has an account line but no session line: every login is refused (JA09)",
        ),
        Group::Session => (
            Check::PamSession,
            Severity::Error,
            SESSION_REMEDY,
            "has no line of pam_job_adopt.so: logins are in no job",
        ),
    };
    let service = format!("service {}", site.service);
    let new = |object: &dyn Display, text: &str, remedy: &str| {
        Finding::new(severity, check, object, text, remedy)
    };
    match finding {
        stack::Finding::Effective(place) if group == Group::Auth => {
            Finding::fine(check, place, "logins join private files when all modules are done")
        }
        stack::Finding::Effective(place) => {
            Finding::fine(check, place, "no login gets past this line")
        }
        stack::Finding::Absent => new(&service, absent, line),
        stack::Finding::Skipped { ours, by } => {
            let text = format!("can be skipped: {by} may end the stack or jump over it");
            let change = format!(
                "change {by} so that it neither ends the stack nor jumps, or use its file by substack \
                 instead of include"
            );
            new(&ours, &text, if check == Check::PamAccount { line } else { &change })
        }
        stack::Finding::Undone { by } => {
            let text = "can undo a refusal of pam_job_adopt.so (action reset)";
            new(&by, text, "remove the action reset from this line")
        }
        stack::Finding::Outweighed { ours, by } => {
            let text = format!(
                "its refusal does not count where {by} asks for a new password: sshd still has users \
                 without a job change theirs"
            );
            new(&ours, &text, line)
        }
        stack::Finding::Rejected(place, why) => {
            let refuses =
                if group == Group::Session { ": every login is refused (JA09)" } else { "" };
            Finding::error(check, place, format!("{why}{refuses}"), rejection_remedy(&why))
        }
        stack::Finding::Unreliable(place, why) => {
            let remedy = match &why {
                LineFault::NotRequired => "write \"required\" as its control".to_owned(),
                LineFault::LeadingDash => "remove the leading \"-\"".to_owned(),
                LineFault::ObservesAlone => {
                    "remove observe, or add it to the account line".to_owned()
                }
                LineFault::NotOutermost | LineFault::NotTwo(_) => AUTH_REMEDY.to_owned(),
                LineFault::OtherService(other) => {
                    format!(
                        "write service={} into both lines, or run job-adopt check --service {other}",
                        site.service
                    )
                }
            };
            new(&place, &format!("this line of pam_job_adopt.so {why}"), &remedy)
        }
        stack::Finding::TooManyPaths => {
            let text =
                "has so many jumps that it cannot be checked whether one leads past our line";
            new(&service, text, "use fewer [success=N] jumps in it")
        }
        stack::Finding::Unreadable(why) if site.is_root() => {
            let text = format!("cannot be read, so every login is refused: {why}");
            Finding::error(
                check,
                service,
                text,
                "restore the file that is named, or remove its include",
            )
        }
        stack::Finding::Unreadable(why) => {
            Finding::unknown(check, service, why, "run this as root")
        }
    }
}

/// Returns what to do about a line that libpam rejects, or that its versions read differently.
pub(crate) fn rejection_remedy(why: &Rejection) -> &'static str {
    match why {
        Rejection::ContinuedOverGap => "remove the empty lines and comments within it",
        Rejection::TooLong(_) => {
            "write less than 1,024 bytes: a shorter comment, or one group with the members of many"
        }
        Rejection::Unfinished => "remove the backslash at its end",
        Rejection::FalseBlank('\r') => {
            "give the file the line ends of Unix: sed -i 's/\\r$//' FILE"
        }
        Rejection::FalseBlank(_) => "write an ordinary blank there, or nothing",
        Rejection::HugeJump(_) => "write the number of lines that it is to jump over",
        Rejection::MissingModule(path) if path.is_absolute() => {
            "write pam_job_adopt.so without a path"
        }
        Rejection::MissingModule(_) => "job-adopt pam --remove, or install the module again",
        Rejection::PamConf => "write the service's lines into a file of its own in /etc/pam.d",
        Rejection::UnknownGroup(_)
        | Rejection::NoControl
        | Rejection::NoModule
        | Rejection::NoFile
        | Rejection::UnusableModuleName(_)
        | Rejection::BadControl(_) => "correct this line, or remove it (man pam.conf)",
    }
}

/// Checks the arguments of a line of our module, and reports those that let a login be outside of a
/// job.
fn check_arguments(site: &Site, entry: &Entry) -> Vec<Finding> {
    let place = &entry.place;
    let settings = match Settings::parse(&entry.arguments) {
        Ok(settings) => settings,
        Err(error) => {
            let text = format!("{error}: every login is refused (JA09)");
            let remedy = "correct that argument; man pam_job_adopt has all";
            return vec![Finding::error(Check::PamArguments, place, text, remedy)];
        }
    };
    let mut findings = vec![check_conf(site, entry, Path::new(&settings.conf))];
    let knobs = [
        ("action_no_jobs", settings.no_jobs, "users without a job are left to other modules"),
        ("action_adopt_failure", settings.adopt_failure, "logins that cannot join are let in"),
        ("action_generic_failure", settings.generic_failure, "faults of the node let logins in"),
    ];
    for (name, action, does) in knobs.into_iter().filter(|(_, action, _)| *action != Action::Deny) {
        let text = format!("{name}={action} opens: {does}, outside of jobs");
        findings.push(Finding::warning(Check::PamOpen, place, text, format!("remove {name}")));
    }
    if settings.observe {
        let text = "observe: nothing is enforced; the log shows what would happen";
        let remedy = "job-adopt compare sums up the log; if it is as you expect, remove observe";
        findings.push(Finding::warning(Check::PamOpen, place, text, remedy));
    }
    findings.extend(
        list_exemptions(&settings).map(|text| Finding::note(Check::PamOpen, place, text, "")),
    );
    if settings.exempt_join && settings.exempt_uids.is_empty() && settings.exempt_groups.is_empty()
    {
        let text = "exempt_join has no effect: no user is exempt";
        let remedy = "add exempt_groups=NAMES or exempt_uids=NUMBERS, or remove exempt_join";
        findings.push(Finding::warning(Check::PamArguments, place, text, remedy));
    }
    if findings.len() == 1 {
        findings.push(Finding::fine(Check::PamOpen, place, "no argument opens anything"));
    }
    findings
}

/// Describes each argument that exempts users, and what these get.
fn list_exemptions(settings: &Settings) -> impl Iterator<Item = String> {
    let uids: Vec<String> = settings.exempt_uids.iter().map(u32::to_string).collect();
    let result = match settings.exempt_join {
        true => "log in to their job, and outside of jobs if they have none or cannot join it",
        false => "log in outside of jobs, also while they have one",
    };
    let text = move |argument: &str, users: &str, list: &str| {
        (!list.is_empty()).then(|| format!("{argument}={list} opens: {users} {result}"))
    };
    [
        text("exempt_uids", "these users", &uids.join(",")),
        text("exempt_groups", "members of these groups", &settings.exempt_groups.join(",")),
    ]
    .into_iter()
    .flatten()
}

/// Checks that the line's configuration exists, and is the one that is checked.
fn check_conf(site: &Site, entry: &Entry, conf: &Path) -> Finding {
    let (place, shown) = (&entry.place, conf.display());
    if conf != Path::new(Request::DEFAULT_CONF) && conf.symlink_metadata().is_err() {
        let text = format!("has conf={shown}, which does not exist: every login is refused (JA09)");
        return Finding::error(Check::PamArguments, place, text, "make the file, or remove conf=");
    }
    if conf != site.conf && site.is_here() {
        let text = format!("has conf={shown}, but {} was checked", site.conf.display());
        return Finding::warning(
            Check::PamArguments,
            place,
            text,
            format!("job-adopt check --conf {shown}"),
        );
    }
    Finding::fine(Check::PamArguments, place, "its arguments are valid")
}

/// Finds modules after our session line that may move the login out of its job.
fn check_order(site: &Site) -> Vec<Finding> {
    let Some(last) = site.session.iter().rposition(Entry::is_fit) else { return Vec::new() };
    let after = site.session.iter().skip(last + 1);
    let mut findings: Vec<Finding> = after.filter_map(check_late_module).collect();
    // A line that libpam may skip or undo is reported as that.
    if !matches!(
        judge_stack(&site.root, &site.service, Group::Session),
        stack::Finding::Effective(_)
    ) {
        findings.retain(|finding| finding.severity != Severity::Unknown);
    }
    if findings.is_empty() {
        let service = format!("service {}", site.service);
        let text = "no module that moves logins follows our line";
        findings.push(Finding::fine(Check::PamOrder, service, text));
    }
    findings
}

/// Checks a module that runs after our session line.
fn check_late_module(entry: &Entry) -> Option<Finding> {
    let file = module_name(entry);
    let place = &entry.place;
    let below = "move our session line below it";
    if let Some((_, does)) = MOVERS.iter().find(|(name, _)| *name == file) {
        let text = format!("{file} runs after our session line and {does}, out of the job");
        return Some(Finding::error(Check::PamOrder, place, text, below));
    }
    if SCRIPT_MODULES.contains(&file) {
        let text = format!("{file} runs after our session line, and its script may move the login");
        return Some(Finding::warning(Check::PamOrder, place, text, below));
    }
    let is_still = STILL_MODULES.contains(&file);
    if is_still || entry.is_our_module() {
        return None;
    }
    let text = format!(
        "{file} runs after our session line, and it is not known here whether it moves the login out of \
         the job"
    );
    Some(Finding::unknown(Check::PamOrder, place, text, below))
}

/// Finds other names of the service's file, as which libpam reads our lines for another service: the
/// module then ignores the login.
fn find_aliases(site: &Site) -> Vec<Finding> {
    let dirs = service_dirs(&site.root);
    let identity = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let Some(own) = dirs.iter().find_map(|dir| identity(&dir.join(&site.service))) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for entry in dirs.iter().filter_map(|dir| dir.read_dir().ok()).flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == site.service || name.starts_with('.') || identity(&path) != Some(own) {
            continue;
        }
        if !matches!(judge_stack(&site.root, &name, Group::Session), stack::Finding::Effective(_)) {
            let text = format!(
                "is the file of service {} under another name, and our lines in it are not for service \
                 {name}: logins through that are in no job",
                site.service
            );
            let remedy = format!(
                "make it a file of its own, with service={name} on our lines, or remove it if no program \
                 uses it"
            );
            findings.push(Finding::warning(Check::PamAlias, path.display(), text, remedy));
        }
    }
    findings
}

/// Finds rival modules anywhere in the stack, except behind our session line: [`check_order`] reports
/// those.
fn find_rivals(site: &Site) -> Vec<Finding> {
    let ours = site.session.iter().rposition(Entry::is_fit);
    let before = site.session.iter().take(ours.unwrap_or(usize::MAX));
    let observes = site.settings().observe;
    let rival = |entry: &Entry| {
        let file = module_name(entry);
        let place = &entry.place;
        if observes {
            let text = format!(
                "{file} decides, and ours observes: job-adopt compare sums up the differences"
            );
            return Finding::note(Check::PamRival, place, text, "");
        }
        let text = format!(
            "{file} decides on logins too, and refuses users without a job of its scheduler"
        );
        let remedy = "remove this line, unless both modules shall have to agree on each login";
        Finding::warning(Check::PamRival, place, text, remedy)
    };
    let all = site.account.iter().chain(before);
    all.filter(|entry| RIVAL_MODULES.contains(&module_name(entry))).map(rival).collect()
}
