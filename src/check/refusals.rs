//! Checks the log of the last hour for logins that failed although their users had done nothing wrong. It shows causes
//! that no other check looks for.
//!
//! It never reports an error: users can make their own logins fail (JA07, JA08), and no health check may take a node out
//! of service for that.

use super::finding::{Check, Finding, Severity};
use super::remedy::shell_word;
use super::site::Site;
use command::accounts::HELPER_USER;
use command::error::Error;
use facts::journal::{LogEntry, LoginContent, LoginMessage, read_recent};
use facts::process::is_sshd_process;
use facts::service_unit::find_unit;
use facts::sshd::list_servers;
use facts::systemd::list_files;
use helper::stack::{Group, find_module, read_entries};
use kernel::sys::clock::{local_time, now};
use protocol::{Decision, Phase, Reason};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The part of the log that counts, in seconds.
const RECENT_SECONDS: i64 = 60 * 60;
/// Folders of units that an admin changes (systemd.unit(5)).
const UNIT_DIRS: [&str; 2] = ["/etc/systemd/system", "/run/systemd/system"];
/// How long before sshd accepts a login the account phase may have admitted it in another process: the default of
/// `LoginGraceTime`, in seconds.
const LOGIN_GRACE_SECONDS: i64 = 120;
/// The object of findings about the whole log.
const LOG: &str = "log";

/// What the log has about recent logins.
#[derive(Debug)]
pub(super) enum RefusalFacts {
    /// The folder of a test has no log, and without the helper's account, a finding of its own, nobody can read it.
    Skipped,
    Unreadable(Error),
    Read(RecentLogins),
}

/// The failed logins of the part of the log that counts.
#[derive(Debug, Default)]
pub(super) struct RecentLogins {
    /// The start of that part, in seconds since the epoch.
    since: i64,
    /// By the words of the code and of the decision.
    refusals: BTreeMap<(String, &'static str), Refusals>,
    /// The PAM service that is checked: others may open sessions without our lines.
    service: String,
    /// The logins that our account line has admitted, and that sshd has not accepted yet.
    admitted: Vec<Admission>,
    /// The logins that sshd has accepted, and that have no session line yet, by sshd's process.
    accepted: BTreeMap<i32, AcceptedLogin>,
    /// Logins of this kind whose process is gone.
    lost: Vec<AcceptedLogin>,
}

/// A login that our account line has admitted.
#[derive(Debug)]
struct Admission {
    pid: i32,
    at: i64,
    user: String,
}

/// A login that sshd has accepted.
#[derive(Debug)]
struct AcceptedLogin {
    at: i64,
    user: String,
}

/// Refused logins with one code.
#[derive(Debug, Default)]
struct Refusals {
    logins: usize,
    users: BTreeSet<String>,
    /// Those users who have not joined a job since.
    waiting: BTreeSet<String>,
    last_at: i64,
    last_user: String,
    last_cause: String,
}

impl RefusalFacts {
    /// Reads the log of the last hour, from the last change on of our files, of those that PAM reads for the service, and of
    /// the units of sshd: what was logged before may have been mended by that.
    pub(super) fn read(site: &Site) -> Self {
        if !site.is_here() || site.find_account(HELPER_USER).is_none() {
            return Self::Skipped;
        }
        let files = [own_files(site), pam_files(site), unit_files()].concat();
        let changed = last_change(&files).unwrap_or_default();
        let since = changed.max(now() - RECENT_SECONDS);
        let mut logins = RecentLogins {
            since,
            service: site.service.clone(),
            ..RecentLogins::default()
        };
        match read_recent(since, &mut |message| logins.add(message)) {
            Ok(()) => {
                logins.end(is_sshd_process);
                Self::Read(logins)
            }
            Err(error) => Self::Unreadable(error),
        }
    }

    /// Judges the failed logins, each kind as one finding.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Skipped => Vec::new(),
            Self::Unreadable(error) => {
                let text = format!("recent refusals are not known: {error}");
                vec![Finding::note(Check::Refusals, LOG, text, "")]
            }
            Self::Read(logins) => logins.findings(),
        }
    }
}

/// The files of ours that decide about logins.
fn own_files(site: &Site) -> Vec<PathBuf> {
    let helper = site.at(&site.settings().helper);
    let mut files: Vec<PathBuf> = site
        .own_lines()
        .filter_map(|line| find_module(&site.root, &line.module))
        .collect();
    files.push(helper.with_file_name("keeper"));
    files.push(helper);
    files.push(site.conf.clone());
    files
}

/// The files that PAM reads for the service.
fn pam_files(site: &Site) -> Vec<PathBuf> {
    let auth = read_entries(&site.root, &site.service, Group::Auth).unwrap_or_default();
    let lines = auth.iter().chain(&site.account).chain(&site.session);
    let files: BTreeSet<PathBuf> = lines.map(|line| line.place.file.clone()).collect();
    files.into_iter().collect()
}

/// The files of the units that run an sshd, and the folders that another drop-in may have been removed from.
fn unit_files() -> Vec<PathBuf> {
    let pids = list_servers().into_iter();
    let units: BTreeSet<String> = pids.filter_map(find_unit).collect();
    let mut files = Vec::new();
    for unit in &units {
        files.extend(list_files(unit));
        files.extend(UNIT_DIRS.map(|dir| find_drop_in_folder(Path::new(dir), unit)));
    }
    files
}

/// Finds the folder below `dir` of an admin's drop-ins for a unit; `dir` itself without one, as after `systemctl revert`.
fn find_drop_in_folder(dir: &Path, unit: &str) -> PathBuf {
    let folder = dir.join(format!("{unit}.d"));
    if folder.is_dir() {
        folder
    } else {
        dir.to_owned()
    }
}

/// The time at which the content, the mode or the owner of one of these files was last changed; `None` if there is none of
/// them.
fn last_change(files: &[PathBuf]) -> Option<i64> {
    let times = files.iter().filter_map(|file| file.metadata().ok());
    times.map(|meta| meta.ctime()).max()
}

/// Checks whether a refusal with this code is the fault of the node, or of what runs on it, and never of what its user
/// asked for.
fn is_fault_of_node(reason: Reason) -> bool {
    match reason {
        Reason::CannotConfine
        | Reason::AdoptionFailed
        | Reason::Timeout
        | Reason::Configuration
        | Reason::DeviceUnknown
        | Reason::NoScheduler => true,
        Reason::Admitted
        | Reason::NoJob
        | Reason::Starting
        | Reason::Ended
        | Reason::Suspended
        | Reason::ChoiceNeeded
        | Reason::LoginsClosed => false,
    }
}

impl RecentLogins {
    /// Takes a message, which is newer than those before.
    fn add(&mut self, message: LoginMessage) {
        match message.content {
            LoginContent::Module(entry) => self.add_entry(message.pid, message.at, &entry),
            LoginContent::Accepted(user) => {
                if self.take_admission(message.pid, message.at, &user) {
                    let login = AcceptedLogin {
                        at: message.at,
                        user,
                    };
                    // Another process had the number before.
                    self.lost.extend(self.accepted.insert(message.pid, login));
                }
            }
        }
    }

    /// Takes away the admission of the login that the process `pid` accepts, if our account line has admitted it: another
    /// service has other lines, and they log nothing of exempt users. With a password PAM asks in another process, of which
    /// only the user is known.
    fn take_admission(&mut self, pid: i32, at: i64, user: &str) -> bool {
        let is_own = |admission: &Admission| admission.user == user && admission.pid == pid;
        let is_recent = |admission: &Admission| {
            admission.user == user && at - admission.at <= LOGIN_GRACE_SECONDS
        };
        let position = self
            .admitted
            .iter()
            .rposition(is_own)
            .or_else(|| self.admitted.iter().rposition(is_recent));
        position
            .map(|position| self.admitted.remove(position))
            .is_some()
    }

    /// Takes a line of the module, which the process `pid` has written.
    fn add_entry(&mut self, pid: i32, at: i64, entry: &LogEntry) {
        let Some(decision) = entry.decision("decision") else {
            return;
        };
        if entry.phase() == Some(Phase::Session) {
            self.accepted.remove(&pid);
        } else if decision == Decision::Admit && entry.get("service") == self.service {
            self.admitted.push(Admission {
                pid,
                at,
                user: entry.get("user").to_owned(),
            });
        }
        // Under `observe` a login joins nothing: what counts is what would have become of it.
        let (outcome, verb) = match entry.decision("would") {
            Some(would) => (would, "would have refused"),
            None => (decision, "refused"),
        };
        match outcome {
            Decision::Adopt => self.forget_waiting(entry.get("user")),
            Decision::Refuse => self.add_refusal(at, verb, entry),
            Decision::Admit
            | Decision::Exempt
            | Decision::Ignore
            | Decision::Observe
            | Decision::Opened => {}
        }
    }

    /// Notes that a user has joined a job.
    fn forget_waiting(&mut self, user: &str) {
        for refusals in self.refusals.values_mut() {
            refusals.waiting.remove(user);
        }
    }

    /// Counts a refusal, unless its code is the user's matter.
    fn add_refusal(&mut self, at: i64, verb: &'static str, entry: &LogEntry) {
        let code = entry.get("code");
        if !code.parse().is_ok_and(is_fault_of_node) {
            return;
        }
        let user = entry.get("user").to_owned();
        let refusals = self.refusals.entry((code.to_owned(), verb)).or_default();
        refusals.logins += 1;
        refusals.users.insert(user.clone());
        refusals.waiting.insert(user.clone());
        refusals.last_at = at;
        refusals.last_user = user;
        refusals.last_cause = entry.get("error").to_owned();
    }

    /// Counts the logins as lost that sshd has accepted, whose sshd is gone, and that have no session line.
    fn end(&mut self, is_sshd: impl Fn(i32) -> bool) {
        let accepted = std::mem::take(&mut self.accepted);
        let gone = accepted.into_iter().filter(|(pid, _)| !is_sshd(*pid));
        self.lost.extend(gone.map(|(_, login)| login));
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .refusals
            .iter()
            .map(|((code, verb), refusals)| refusals.finding(code, verb, self.since))
            .collect();
        findings.extend(self.judge_lost());
        if findings.is_empty() {
            let text = format!(
                "has no failed login since {} but those without a job to join",
                show_time(self.since)
            );
            findings.push(Finding::fine(Check::Refusals, LOG, text));
        }
        findings
    }

    /// Reports logins that were admitted and accepted, and whose session did not begin; `None` without such logins.
    fn judge_lost(&self) -> Option<Finding> {
        let last = self.lost.iter().max_by_key(|login| login.at)?;
        let users: BTreeSet<&str> = self.lost.iter().map(|login| login.user.as_str()).collect();
        let text = format!(
            "{} admitted {} have no session since {}, the last of {} at {}: their sshd was ended on the way, or a module \
             above ours refused",
            count(self.lost.len(), "login"),
            count_users(users.len()),
            show_time(self.since),
            last.user,
            show_time(last.at)
        );
        let remedy = "see at that time what ended sshd: journalctl --boot --grep='sshd.*(signal|segfault|killed)|type=1326', \
                      and coredumpctl; a system call that its unit forbids ends it without a word (SystemCallFilter=)";
        Some(Finding::warning(Check::Refusals, LOG, text, remedy))
    }
}

impl Refusals {
    /// Reports the refusals with a code. They are over, and worth a note alone, once each of their users has joined a
    /// job.
    fn finding(&self, code: &str, verb: &str, since: i64) -> Finding {
        let mut text = format!(
            "{verb} {} {} since {}, the last of {} at {}",
            count(self.logins, "login"),
            count_users(self.users.len()),
            show_time(since),
            self.last_user,
            show_time(self.last_at)
        );
        let severity = if self.waiting.is_empty() {
            text += "; each of them has joined a job since";
            Severity::Note
        } else {
            Severity::Warning
        };
        if !self.last_cause.is_empty() {
            text += &format!(": {}", self.last_cause);
        }
        let remedy = format!(
            "see what such a login gets now: job-adopt resolve --user {}; what {code} means: man pam_job_adopt",
            shell_word(&self.last_user)
        );
        Finding::new(severity, Check::Refusals, code, text, remedy)
    }
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

fn count_users(number: usize) -> String {
    format!("of {}", count(number, "user"))
}

/// Shows a time of the last hour; empty for one that cannot be shown.
fn show_time(at: i64) -> String {
    local_time(at).map_or(String::new(), |time| {
        format!("{:02}:{:02}:{:02}", time.tm_hour, time.tm_min, time.tm_sec)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn read(lines: &[(i32, &str)]) -> Vec<Finding> {
        let mut logins = RecentLogins::default();
        for (at, (pid, text)) in (1000..).zip(lines) {
            let content = match text.strip_prefix("Accepted ") {
                Some(user) => LoginContent::Accepted(user.to_owned()),
                None => LoginContent::Module(LogEntry::from_pairs(text, at)),
            };
            logins.add(LoginMessage {
                pid: *pid,
                at,
                content,
            });
        }
        logins.end(|pid| pid == 77);
        logins.findings()
    }

    const REFUSED: &str =
        "decision=refuse code=JA09 user=alice phase=account error=\"gres.conf: no\"";

    #[test]
    fn each_code_that_is_no_users_fault_is_one_warning() {
        let findings = read(&[
            (1, REFUSED),
            (
                2,
                "decision=refuse code=JA09 user=bob phase=account error=first",
            ),
            (
                3,
                "decision=refuse code=JA01 user=carol phase=account error=x",
            ),
            (4, REFUSED),
            (
                5,
                "decision=refuse code=JA07 user=dave phase=session error=y",
            ),
        ]);
        let shown: Vec<&str> = findings.iter().map(|f| f.object.as_str()).collect();
        assert_eq!(shown, ["JA07", "JA09"]);
        let of_config = &findings[1];
        assert_eq!(of_config.severity, Severity::Warning);
        assert!(
            of_config
                .text
                .starts_with("refused 3 logins of 2 users since "),
            "{of_config:?}"
        );
        assert!(of_config.text.contains("the last of alice at "));
        assert!(of_config.text.ends_with(": gres.conf: no"));
        assert!(
            of_config
                .remedy
                .advice()
                .contains("job-adopt resolve --user alice;")
        );
    }

    #[test]
    fn users_own_reasons_are_fine() {
        let user = "decision=refuse code=JA05 user=alice phase=account";
        let findings = read(&[
            (1, user),
            (2, "decision=adopt code=JA00 user=a phase=session"),
        ]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Fine);
    }

    /// Else each cause that was mended would keep the warning for an hour.
    #[test]
    fn refusals_of_users_who_joined_a_job_since_are_a_note() {
        let joined = "decision=adopt code=JA00 user=alice phase=session";
        let severity = |lines: &[(i32, &str)]| read(lines)[0].severity;
        assert_eq!(severity(&[(1, REFUSED), (2, joined)]), Severity::Note);
        assert_eq!(severity(&[(2, joined), (1, REFUSED)]), Severity::Warning);
        let of_another = "decision=adopt code=JA00 user=bob phase=session";
        assert_eq!(
            severity(&[(1, REFUSED), (2, of_another)]),
            Severity::Warning
        );
        // Account alone promises nothing.
        let admitted = "decision=admit code=JA00 user=alice phase=account";
        assert_eq!(severity(&[(1, REFUSED), (2, admitted)]), Severity::Warning);
    }

    #[test]
    fn observed_refusal_is_told_from_one_that_was_enforced() {
        let observed = "decision=observe would=refuse code=JA09 user=alice phase=account error=x";
        let findings = read(&[(1, observed)]);
        assert!(
            findings[0]
                .text
                .starts_with("would have refused 1 login of 1 user")
        );
    }

    #[test]
    fn accepted_login_whose_sshd_is_gone_has_no_session() {
        let admit = "decision=admit code=JA00 user=alice phase=account";
        let adopt = "decision=adopt code=JA00 user=alice phase=session";
        let is_lost = |lines: &[(i32, &str)]| {
            let findings = read(lines);
            findings[0].severity == Severity::Warning && findings[0].text.contains("no session")
        };
        assert!(is_lost(&[(1, admit), (1, "Accepted alice")]));
        assert!(!is_lost(&[(1, admit), (1, "Accepted alice"), (1, adopt)]));
        // PAM asks in a process of its own where it also asks for the password.
        assert!(!is_lost(&[(9, admit), (1, "Accepted alice"), (1, adopt)]));
        // It is still at it.
        assert!(!is_lost(&[(77, admit), (77, "Accepted alice")]));
        // The log level leaves out what is no refusal, or the user is exempt.
        assert!(!is_lost(&[(1, "Accepted alice")]));
        // A login before was admitted, and this one is exempt, or of another service.
        let before = [(1, admit), (1, "Accepted alice"), (1, adopt)];
        assert!(!is_lost(&[&before[..], &[(2, "Accepted alice")]].concat()));
        let elsewhere = "decision=admit code=JA00 user=alice phase=account service=login";
        assert!(!is_lost(&[(1, elsewhere), (1, "Accepted alice")]));
        assert!(!is_lost(&[(1, admit), (1, "Accepted bob")]));
        assert!(is_lost(&[(9, admit), (1, "Accepted alice")]));
        assert!(!is_lost(&[(1, admit)]), "refused by another module");
        let refused = "decision=refuse code=JA04 user=alice phase=session";
        assert!(!is_lost(&[(1, admit), (1, "Accepted alice"), (1, refused)]));
    }

    /// The password was asked for long before, so this is another login.
    #[test]
    fn admission_in_another_process_counts_for_the_time_of_a_login() {
        for (at, is_taken) in [(1120, true), (1121, false)] {
            let mut logins = RecentLogins::default();
            logins.admitted.push(Admission {
                pid: 9,
                at: 1000,
                user: "alice".to_owned(),
            });
            assert_eq!(logins.take_admission(1, at, "alice"), is_taken);
        }
    }

    /// `systemctl revert` takes the folder away with its drop-ins.
    #[test]
    fn removal_of_a_drop_in_changes_a_folder_that_counts() {
        let scratch = Scratch::new();
        assert_eq!(
            find_drop_in_folder(scratch.path(), "ssh.service"),
            scratch.path()
        );
        let drop_in = scratch.file("ssh.service.d/a.conf", "");
        let folder = find_drop_in_folder(scratch.path(), "ssh.service");
        assert_eq!(Some(folder.as_path()), drop_in.parent());
    }

    #[test]
    fn files_of_the_stack_count_that_have_no_line_of_ours() {
        let scratch = Scratch::new();
        let main = scratch.file(
            "etc/pam.d/sshd",
            "auth include common\nsession required pam_x.so\n",
        );
        let common = scratch.file("etc/pam.d/common", "auth required pam_unix.so\n");
        let config = helper::Config::default();
        let site = Site::read(scratch.path().to_owned(), "sshd", "/none".into(), config);
        assert_eq!(pam_files(&site), [common, main]);
    }

    #[test]
    fn change_of_mode_is_a_change_of_our_files() {
        let scratch = Scratch::new();
        let file = scratch.file("conf", "");
        let missing = scratch.path().join("none");
        let before = now() - 1;
        assert_eq!(last_change(std::slice::from_ref(&missing)), None);
        scratch.mode("conf", 0o600);
        assert!(last_change(&[missing, file]) >= Some(before));
    }
}
