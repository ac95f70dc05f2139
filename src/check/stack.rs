//! Checks the service's stack: libpam must run our lines, their arguments must confine logins, and no
//! other module may undo their effect.

use super::finding::{Check, Finding, Severity};
use super::other_modules::{find_effect, judge_late_module, judge_rival};
use super::own_command::{OwnCommand, Subcommand};
use super::own_line::OwnLine;
use super::pam_edits::{
    Skip, correct_arguments, is_include, remove_line, unread, unreject, unskip,
};
use super::remedy::{Remedy, run, shell_word};
use super::site::Site;
use super::threaded_modules::judge_threaded_modules;
use facts::file_identity::file_identity;
use facts::pam_rejection::rejection_remedy;
use facts::rival_modules::{RIVAL_MODULES, module_name};
use helper::JobEnvironment;
use helper::stack::{
    Barrier, Entry, FileLine, Group, LineFault, StackFinding, find_barrier, find_jump_past_end,
    is_missing_module, judge_stack, read_entries, service_dirs,
};
use module::Settings;
use protocol::SessionLine;
use std::ffi::OsStr;
use std::path::PathBuf;

/// How our lines are written by hand.
const ACCOUNT_ADVICE: &str = "or by hand: \"account required pam_job_adopt.so\" above every other account line but \
                              pam_nologin's";
const SESSION_ADVICE: &str =
    "or by hand: \"session required pam_job_adopt.so\" as the last session line";
const AUTH_ADVICE: &str =
    "or by hand: \"auth required pam_job_adopt.so\" as the first and as the last auth line";

/// What was found out about the service's stack.
#[derive(Debug)]
pub(super) struct StackFacts<'a> {
    service: &'a str,
    /// The account lines.
    account: &'a [Entry],
    /// The session lines.
    session: &'a [Entry],
    /// Whether libpam runs our session lines; `account_line` and `auth_line` tell the same of the other groups.
    session_line: StackFinding,
    account_line: StackFinding,
    auth_line: StackFinding,
    /// Logins join the private files of jobs.
    joins_containers: bool,
    /// Our lines decide nothing.
    observes: bool,
    /// Our lines leave users to other modules, wherever they stand: by an argument, the off switch, or `enforce`.
    leaves_users_to_others: bool,
    /// Logins get the variables of records.
    passes_variables: bool,
    /// This process can read every file of the stack.
    is_root: bool,
    /// Debian's profile for the module of Slurm is installed.
    has_slurm_profile: bool,
    /// The node has something of what `enable` writes.
    is_set_up: bool,
    own_lines: Vec<OwnLine<'a>>,
    aliases: Vec<OtherService>,
    /// How the session line that passes over ours does so, if one does; `auth_skip` tells the same of auth lines.
    session_skip: Skip,
    auth_skip: Skip,
    /// Modules of others that are not there, although a login fails without them.
    missing_modules: Vec<MissingModule<'a>>,
    /// The account and the session line because of which nobody gets in.
    barriers: Vec<(Check, FileLine, Barrier)>,
    /// The account and the session line whose jump refuses some logins, where others get in.
    jumps_past_end: Vec<(Check, FileLine)>,
    /// Modules of others by which no login joins private files.
    threaded_modules: Vec<Finding>,
}

/// The check of our lines of a group, and what it reports if they are missing.
struct MissingLine {
    check: Check,
    severity: Severity,
    text: &'static str,
    /// Names the line that is due.
    advice: &'static str,
}

/// A line whose module is not there.
#[derive(Debug)]
struct MissingModule<'a> {
    check: Check,
    entry: &'a Entry,
}

impl MissingModule<'_> {
    fn finding(&self) -> Finding {
        let text = format!(
            "names {}, which does not exist, so libpam refuses every login that reaches this line",
            self.entry.module
        );
        let remedy = "install the package that has it, or correct or remove this line";
        Finding::warning(self.check, &self.entry.place, text, remedy)
    }
}

/// Finds the lines of other modules that fail because their module is not there; none in the folder of a test, which
/// has no modules.
fn find_missing_modules(site: &Site) -> Vec<MissingModule<'_>> {
    if !site.is_here() {
        return Vec::new();
    }
    let mut missing = Vec::new();
    for (check, entries) in [
        (Check::PamAccount, &site.account),
        (Check::PamSession, &site.session),
    ] {
        for entry in entries {
            let is_needed = entry.needs_module() && !entry.is_our_module();
            if is_needed && is_missing_module(&site.root, &entry.module) {
                missing.push(MissingModule { check, entry });
            }
        }
    }
    missing
}

/// Finds the lines because of which libpam lets nobody in; none in the folder of a test, which has no modules.
fn find_barriers(site: &Site) -> Vec<(Check, FileLine, Barrier)> {
    let mut barriers = Vec::new();
    if !site.is_here() {
        return barriers;
    }
    for (check, group) in [
        (Check::PamAccount, Group::Account),
        (Check::PamSession, Group::Session),
    ] {
        let found = find_barrier(&site.root, &site.service, group);
        barriers.extend(found.map(|(place, barrier)| (check, place, barrier)));
    }
    barriers
}

/// Reports a line because of which libpam lets nobody in, whatever our module says.
fn judge_barrier((check, place, barrier): &(Check, FileLine, Barrier)) -> Finding {
    let text = format!("{barrier}, so libpam refuses every login, root's too");
    let remedy: Remedy = match barrier {
        Barrier::MissingModule(_) => {
            "install the package that has it, or correct or remove this line".into()
        }
        Barrier::JumpPastEnd => format!("{place}: lower the number of its jump").into(),
        Barrier::Denies => {
            format!("{place}: see which line above it should let logins pass it").into()
        }
        Barrier::Control | Barrier::Mistake => {
            format!("{place}: correct this line (man pam.conf)").into()
        }
        Barrier::NoLines | Barrier::NoSuccess => {
            "add a line that succeeds, such as one of pam_unix.so".into()
        }
    };
    Finding::error(*check, place, text, remedy)
}

/// Finds the lines whose jump refuses the logins that take it, although others get in; none in the folder of a test, which
/// has no modules.
fn find_jumps_past_end(
    site: &Site,
    barriers: &[(Check, FileLine, Barrier)],
) -> Vec<(Check, FileLine)> {
    if !site.is_here() {
        return Vec::new();
    }
    [
        (Check::PamAccount, Group::Account),
        (Check::PamSession, Group::Session),
    ]
    .into_iter()
    .filter(|(check, _)| !barriers.iter().any(|(other, ..)| other == check))
    .filter_map(|(check, group)| {
        let place = find_jump_past_end(&site.root, &site.service, group)?;
        Some((check, place))
    })
    .collect()
}

/// Reports a line whose jump refuses the logins that take it.
fn judge_jump_past_end((check, place): &(Check, FileLine)) -> Finding {
    let text = format!(
        "{}, so libpam refuses a login that reaches this line if its module succeeds, root's too",
        Barrier::JumpPastEnd
    );
    let remedy = format!("{place}: lower the number of its jump");
    Finding::warning(*check, place, text, remedy)
}

/// Another service, and its file.
#[derive(Debug)]
struct OtherService {
    path: PathBuf,
    name: String,
}

impl<'a> StackFacts<'a> {
    /// Reads the service's stack, whether libpam runs our lines in it, and their arguments.
    pub(super) fn read(site: &'a Site) -> Self {
        let settings = site.settings();
        let is_enforced = site
            .config
            .enforce
            .as_ref()
            .is_none_or(|file| file.exists());
        let own_lines: Vec<OwnLine<'_>> = site
            .own_lines()
            .map(|entry| OwnLine::read(site, entry))
            .collect();
        let session_line = judge_stack(&site.root, &site.service, Group::Session);
        let auth_line = judge_stack(&site.root, &site.service, Group::Auth);
        let barriers = find_barriers(site);
        Self {
            service: &site.service,
            account: &site.account,
            session: &site.session,
            session_skip: find_skip(site, Group::Session, &session_line),
            session_line,
            account_line: judge_stack(&site.root, &site.service, Group::Account),
            auth_skip: find_skip(site, Group::Auth, &auth_line),
            auth_line,
            joins_containers: settings.join_container,
            observes: settings.observe,
            leaves_users_to_others: site.is_switched_off()
                || !is_enforced
                || own_lines.iter().any(OwnLine::opens),
            passes_variables: site.config.env == JobEnvironment::Full,
            is_root: site.is_root(),
            has_slurm_profile: site.at("/usr/share/pam-configs/slurm-adopt").exists(),
            is_set_up: site.is_set_up(),
            own_lines,
            aliases: find_aliases(site),
            missing_modules: find_missing_modules(site),
            jumps_past_end: find_jumps_past_end(site, &barriers),
            barriers,
            threaded_modules: judge_threaded_modules(site),
        }
    }

    /// Judges our lines, their arguments, and the modules around them. By the auth lines a login joins its job's private
    /// files (the mount namespace). They are judged only if `join_container` is set and both other lines are
    /// effective: otherwise no login joins a job.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![
            self.judge_line(Group::Session, &self.session_line),
            self.judge_line(Group::Account, &self.account_line),
        ];
        let both_lines_hold = is_effective(&self.session_line) && is_effective(&self.account_line);
        if both_lines_hold && self.joins_containers {
            findings.push(self.judge_line(Group::Auth, &self.auth_line));
            if is_effective(&self.auth_line) {
                findings.extend(self.threaded_modules.iter().cloned());
            }
        }
        findings.extend(self.own_lines.iter().flat_map(OwnLine::findings));
        findings.extend(self.judge_second_lines());
        findings.extend(self.judge_differing_lines());
        findings.extend(self.barriers.iter().map(judge_barrier));
        findings.extend(self.jumps_past_end.iter().map(judge_jump_past_end));
        let is_barrier = |missing: &&MissingModule<'_>| {
            let place = &missing.entry.place;
            self.barriers.iter().any(|(_, barrier, _)| barrier == place)
        };
        let others = self
            .missing_modules
            .iter()
            .filter(|missing| !is_barrier(missing));
        findings.extend(others.map(MissingModule::finding));
        findings.extend(self.judge_order());
        findings.extend(self.judge_rivals());
        findings.extend(
            self.aliases
                .iter()
                .map(|alias| alias.alias_finding(self.service)),
        );
        findings
    }

    /// Whether root's reading of the stack shows a session line of ours in each login.
    pub(super) fn session_state(&self) -> SessionLine {
        self.session_line.session_line()
    }

    /// What it means if our line of a group is missing. Without the account line no login is outside of a
    /// job, because the session phase decides again; but refusals come late, and without a text. Without the
    /// auth lines no login joins a job that has private files.
    fn missing_line(&self, group: Group) -> MissingLine {
        match group {
            Group::Auth => MissingLine {
                check: Check::PamAuth,
                severity: Severity::Warning,
                text: "has no auth lines of pam_job_adopt.so: logins to jobs with private files are \
                       refused (JA09)",
                advice: AUTH_ADVICE,
            },
            Group::Account => MissingLine {
                check: Check::PamAccount,
                severity: Severity::Warning,
                text: "has no account line of pam_job_adopt.so, so users without a job are refused \
                       late, without a reason",
                advice: ACCOUNT_ADVICE,
            },
            Group::Session => MissingLine {
                check: Check::PamSession,
                severity: Severity::Error,
                text: if self.account.iter().any(Entry::is_for_service) {
                    "has an account line but no session line: every login is refused (JA09)"
                } else {
                    "has no line of pam_job_adopt.so: logins are in no job"
                },
                advice: SESSION_ADVICE,
            },
        }
    }

    /// Judges whether libpam runs our lines of a group. A line that does not always count is as grave as a missing
    /// one.
    fn judge_line(&self, group: Group, line: &StackFinding) -> Finding {
        let MissingLine {
            check,
            severity,
            text: missing_text,
            advice,
        } = self.missing_line(group);
        let line_remedy = self.write_lines(advice);
        let service = format!("service {}", self.service);
        match line {
            StackFinding::Effective(place) => {
                let text = match group {
                    Group::Auth => "logins join private files when all modules are done",
                    Group::Account | Group::Session => "no login gets past this line",
                };
                Finding::fine(check, place, text)
            }
            // A node whose jobs have no private files needs no auth lines.
            StackFinding::Absent if group == Group::Auth => {
                Finding::note(check, service, missing_text, line_remedy)
            }
            StackFinding::Absent => {
                Finding::new(severity, check, service, missing_text, line_remedy)
            }
            StackFinding::Skipped { ours, by } => {
                let text = format!("can be skipped: {by} may end the stack or jump over it");
                let remedy = match group {
                    Group::Account => line_remedy,
                    Group::Session => unskip(by, group, &self.session_skip),
                    Group::Auth => unskip(by, group, &self.auth_skip),
                };
                Finding::new(severity, check, ours, text, remedy)
            }
            StackFinding::Undone { by } => {
                let text = "can undo a refusal of pam_job_adopt.so (action reset)";
                let remedy = format!("{by}: remove the action reset from this line");
                Finding::new(severity, check, by, text, remedy)
            }
            StackFinding::Outweighed { ours, by } => {
                let text = format!(
                    "its refusal does not count where {by} asks for a new password: sshd still has \
                     users without a job change theirs"
                );
                Finding::new(severity, check, ours, text, line_remedy)
            }
            StackFinding::Rejected(place, why) => {
                let consequence = if group == Group::Session {
                    ": every login is refused (JA09)"
                } else {
                    ""
                };
                let text = format!("{why}{consequence}");
                let remedy = unreject(place, why, rejection_remedy(why));
                Finding::error(check, place, text, remedy)
            }
            StackFinding::Unreliable(place, why) => {
                let text = format!("this line of pam_job_adopt.so {why}");
                Finding::new(severity, check, place, text, self.fault_remedy(place, why))
            }
            StackFinding::TooManyPaths => {
                let text =
                    "has so many jumps that it cannot be checked whether one leads past our line";
                let remedy = "use fewer [success=N] jumps in it";
                Finding::new(severity, check, service, text, remedy)
            }
            StackFinding::Unreadable(why) if self.is_root => {
                let text = format!("cannot be read, so every login is refused: {why}");
                Finding::error(check, service, text, unread(why))
            }
            StackFinding::Unreadable(why) => {
                Finding::unknown(check, service, why, "run this as root")
            }
        }
    }

    /// The way to set a new node up, for a person: what enforces at once is no command to paste there.
    fn describe_trial(&self) -> Remedy {
        let service = if self.service == "sshd" {
            String::new()
        } else {
            format!("--service {} ", shell_word(self.service))
        };
        format!("try it: job-adopt enable --try 15m {service}USER, with a user who has a job here (job-adopt list)")
            .into()
    }

    /// The command that writes our lines at their places, or moves them there; `advice` is what may be done instead. It
    /// takes the line of a rival away, and gives all our lines the arguments of one. So it is for a person while ours
    /// leave users to the rival, or differ, and on a node that is not set up.
    fn write_lines(&self, advice: &str) -> Remedy {
        let command = self.enable_command();
        let mut entries = self.account.iter().chain(self.session);
        let has_rival = entries.any(|entry| RIVAL_MODULES.contains(&module_name(entry)));
        // `enable` leaves a rival beside lines that observe.
        let takes_rival_away = has_rival && !self.observes;
        if takes_rival_away && self.leaves_users_to_others {
            return format!(
                "mend arguments that open, the off switch and enforce before {command}: it takes away the line of the \
                 other module, and nothing else judges logins; {advice}"
            )
            .into();
        }
        if !self.is_set_up {
            return self.describe_trial();
        }
        if !self.lines_agree() {
            return format!(
                "give all our lines the same arguments before {command}: it takes those of one; {advice}"
            )
            .into();
        }
        run(command).and(advice)
    }

    fn enable_command(&self) -> OwnCommand {
        let mut arguments = vec!["--only", "pam"];
        if self.service != "sshd" {
            arguments.extend(["--service", self.service]);
        }
        OwnCommand::job_adopt(Subcommand::Enable, arguments)
    }

    /// Checks whether no line of ours has an argument that opens or closes more than another one.
    fn lines_agree(&self) -> bool {
        let entries = self.account.iter().chain(self.session);
        let ours = entries.filter(|entry| entry.is_for_service());
        let mut settings = ours.map(|entry| parse_shared_settings(&entry.arguments));
        let first = settings.next();
        settings.all(|other| first.as_ref() == Some(&other))
    }

    /// The command that takes a rival's line away. `enable` replaces it only in the service's own file, and a profile
    /// (pam-auth-update(8)) writes it anew. Nothing takes it away while no other line judges logins.
    fn remove_rival(&self, entry: &Entry) -> Remedy {
        const ALTERNATIVE: &str = "unless both modules shall have to agree on each login";
        let is_own_file = entry.place.file.file_name() == Some(OsStr::new(self.service));
        // In its own file `enable` writes our lines in the same step.
        let judges_logins = !self.leaves_users_to_others
            && (is_own_file
                || (is_effective(&self.session_line) && is_effective(&self.account_line)));
        if !judges_logins {
            return "leave it until ours decides, since nothing else judges logins: mend what is named here of our \
                    lines, the off switch and enforce, then run job-adopt check again"
                .into();
        }
        if is_own_file {
            self.write_lines(ALTERNATIVE)
        } else if self.has_slurm_profile && entry.file() == "pam_slurm_adopt.so" {
            format!("switch off the profile that writes it, by pam-auth-update --disable slurm-adopt, {ALTERNATIVE}")
                .into()
        } else {
            // A jump above the line would skip another line once it is gone.
            let adjust = format!("adjust jumps ([success=N]) over it, {ALTERNATIVE}");
            remove_line(&entry.place).and(adjust)
        }
    }

    /// Names what to do about a fault of our lines.
    fn fault_remedy(&self, place: &FileLine, fault: &LineFault) -> Remedy {
        if let Some(remedy) = correct_arguments(place, fault, self.service) {
            return remedy;
        }
        match fault {
            LineFault::NotRequired => self.write_lines("or write \"required\" as its control"),
            LineFault::LeadingDash => self.write_lines("or remove the leading \"-\""),
            LineFault::NotOutermost | LineFault::NotTwo(_) => self.write_lines(AUTH_ADVICE),
            // [`correct_arguments`] has a remedy for these.
            LineFault::ObservesAlone | LineFault::OtherService(_) => Remedy::default(),
        }
    }

    /// Reports each line of ours but the first one of its group: both decide, and what `resolve` shows is by the
    /// arguments of the first.
    fn judge_second_lines(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (group, entries) in [("account", self.account), ("session", self.session)] {
            let ours = entries.iter().filter(|entry| entry.is_for_service());
            for entry in ours.skip(1) {
                let text = format!(
                    "is a second {group} line of pam_job_adopt.so: either may refuse a login, and resolve \
                     shows what the first decides"
                );
                let remedy = self.write_lines("or remove one of both");
                findings.push(Finding::warning(
                    Check::PamArguments,
                    &entry.place,
                    text,
                    remedy,
                ));
            }
        }
        findings
    }

    /// Reports the session line if it decides by other arguments than the account line. `None` if one of both is
    /// missing or has a wrong argument, which are findings of their own.
    fn judge_differing_lines(&self) -> Option<Finding> {
        let first = |entries: &'a [Entry]| entries.iter().find(|entry| entry.is_for_service());
        let account = first(self.account)?;
        let session = first(self.session)?;
        let decisions = [account, session].map(|entry| parse_job_choice(&entry.arguments));
        let [Some(account_settings), Some(session_settings)] = decisions else {
            return None;
        };
        if account_settings == session_settings {
            return None;
        }
        let text = format!(
            "has other arguments than {}: an admitted login may be refused, and resolve shows what one of \
             both decides",
            account.place
        );
        let remedy = format!(
            "give both the same arguments; {} takes those of the account line, which may open more",
            self.enable_command()
        );
        Some(Finding::warning(
            Check::PamArguments,
            &session.place,
            text,
            remedy,
        ))
    }

    /// Finds modules after our session line that may move the login out of its job.
    fn judge_order(&self) -> Vec<Finding> {
        let Some(last) = self.session.iter().rposition(Entry::is_fit) else {
            return Vec::new();
        };
        let after = self.session.iter().skip(last + 1);
        let mut findings: Vec<Finding> = after
            .filter_map(|entry| {
                let remedy = self.write_lines("or move our session line below it");
                judge_late_module(entry, self.passes_variables, remedy)
            })
            .collect();
        // An unknown module matters only after a line that libpam always runs. Any other line has a finding already.
        if !is_effective(&self.session_line) {
            findings.retain(|finding| finding.severity != Severity::Unknown);
        }
        if findings.is_empty() {
            let service = format!("service {}", self.service);
            let text = "no module that moves logins follows our line";
            findings.push(Finding::fine(Check::PamOrder, service, text));
        }
        findings
    }

    /// Finds rival modules in the account and the session stack, except those that [`Self::judge_order`] reports:
    /// behind our session line each one that is known to move logins and, if our line is effective, each other one.
    fn judge_rivals(&self) -> Vec<Finding> {
        let own_line = self.session.iter().rposition(Entry::is_fit);
        let mut rivals: Vec<&Entry> = self.account.iter().collect();
        for (index, entry) in self.session.iter().enumerate() {
            let is_behind = own_line.is_some_and(|own| index > own);
            let moves_logins = find_effect(module_name(entry)).is_some();
            let is_reported = is_behind && (moves_logins || is_effective(&self.session_line));
            if !is_reported {
                rivals.push(entry);
            }
        }
        rivals.retain(|entry| RIVAL_MODULES.contains(&module_name(entry)));
        rivals
            .into_iter()
            .map(|entry| judge_rival(entry, self.observes, self.remove_rival(entry)))
            .collect()
    }
}

fn is_effective(line: &StackFinding) -> bool {
    matches!(line, StackFinding::Effective(_))
}

/// Parses the arguments of a line, and resets those in which two lines may differ: the log level, the service, and how
/// long a login may wait. Lines that are equal then let in the same users, so `enable` may write one of both in place of
/// the other. `None` if an argument is wrong.
fn parse_shared_settings(words: &[String]) -> Option<Settings> {
    let settings = Settings::parse(words).ok()?;
    let defaults = Settings::default();
    Some(Settings {
        log_level: defaults.log_level,
        timeout: defaults.timeout,
        wait_job: defaults.wait_job,
        service: defaults.service,
        ..settings
    })
}

/// Parses the arguments of a line, and resets all but those that decide whether a user's login joins a job, and which:
/// beside those that [`parse_shared_settings`] resets these are X11, which is no decision, and actions and `observe`,
/// which are findings of their own. Of lines that are equal then, `resolve` shows what both decide. `None` if an argument
/// is wrong.
fn parse_job_choice(words: &[String]) -> Option<Settings> {
    let settings = parse_shared_settings(words)?;
    let defaults = Settings::default();
    Some(Settings {
        no_jobs: defaults.no_jobs,
        adopt_failure: defaults.adopt_failure,
        generic_failure: defaults.generic_failure,
        observe: defaults.observe,
        disable_x11: defaults.disable_x11,
        ..settings
    })
}

/// Finds other names (links) of the service's file. A program that gives libpam such a name is another service,
/// and our lines ignore its logins unless they have that name in `service=`.
fn find_aliases(site: &Site) -> Vec<OtherService> {
    let Some(own) = find_service_file(site).and_then(|file| file_identity(&file)) else {
        return Vec::new();
    };
    let mut aliases = list_other_services(site);
    aliases.retain(|alias| {
        file_identity(&alias.path) == Some(own)
            && !is_effective(&judge_stack(&site.root, &alias.name, Group::Session))
    });
    aliases
}

/// Lists the other services. libpam takes any file in its folders for one; a hidden one is a copy of an editor.
fn list_other_services(site: &Site) -> Vec<OtherService> {
    service_dirs(&site.root)
        .iter()
        .filter_map(|dir| dir.read_dir().ok())
        .flatten()
        .flatten()
        .map(|entry| OtherService {
            path: entry.path(),
            name: entry.file_name().to_string_lossy().into_owned(),
        })
        .filter(|other| other.name != site.service && !other.name.starts_with('.'))
        .filter(|other| other.path.is_file())
        .collect()
}

/// Finds the file of the service that libpam reads.
fn find_service_file(site: &Site) -> Option<PathBuf> {
    service_dirs(&site.root)
        .into_iter()
        .map(|dir| dir.join(&site.service))
        .find(|file| file.is_file())
}

/// Finds out how the line that passes over ours does so. Its file is taken in by an include that could be a substack only
/// if our line is not in there too.
fn find_skip(site: &Site, group: Group, finding: &StackFinding) -> Skip {
    let StackFinding::Skipped { ours, by } = finding else {
        return Skip::default();
    };
    let entries = read_entries(&site.root, &site.service, group).unwrap_or_default();
    let find = |place: &FileLine| entries.iter().find(|entry| entry.place == *place);
    let (Some(skipping), Some(own)) = (find(by), find(ours)) else {
        return Skip::default();
    };
    let include = find_service_file(site)
        .filter(|file| *file != by.file && skipping.top != own.top)
        .map(|file| FileLine {
            file,
            line: skipping.top,
        });
    Skip {
        jumps: skipping.can_jump(),
        include: include.filter(is_include),
    }
}

impl OtherService {
    /// Reports the file as another name of that of `service`.
    fn alias_finding(&self, service: &str) -> Finding {
        let name = &self.name;
        let text = format!(
            "is the file of service {service} under another name, and our lines in it are not for \
             service {name}: logins through that are in no job"
        );
        let remedy = format!(
            "make it a file of its own, with service={name} on our lines, or remove it if no program \
             uses it"
        );
        Finding::warning(Check::PamAlias, self.path.display(), text, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helper::stack::StackError;

    fn facts(is_root: bool) -> StackFacts<'static> {
        StackFacts {
            service: "sshd",
            account: &[],
            session: &[],
            session_line: StackFinding::Unreadable(StackError::UnnamedService),
            account_line: StackFinding::TooManyPaths,
            auth_line: StackFinding::Absent,
            joins_containers: true,
            observes: false,
            leaves_users_to_others: false,
            passes_variables: false,
            is_root,
            own_lines: Vec::new(),
            aliases: Vec::new(),
            session_skip: Skip::default(),
            auth_skip: Skip::default(),
            missing_modules: Vec::new(),
            barriers: Vec::new(),
            jumps_past_end: Vec::new(),
            threaded_modules: Vec::new(),
            has_slurm_profile: false,
            is_set_up: true,
        }
    }

    #[test]
    fn stack_that_only_root_can_read_is_unknown() {
        for (is_root, severity) in [(true, Severity::Error), (false, Severity::Unknown)] {
            let findings = facts(is_root).findings();
            assert_eq!(findings[0].severity, severity);
            assert_eq!(findings[1].severity, Severity::Warning);
            assert_eq!(findings.len(), 2, "auth lines alone confine no login");
        }
    }
}
