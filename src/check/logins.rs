//! Checks that the helper answers when it is run as a login runs it, and that logins of each sshd find what this process
//! finds: the unit of an sshd may hide files, forbid programs and forbid system calls.

use super::finding::{Check, Finding, Severity};
use super::login_stack::LoginStack;
use super::login_view::{Answer, LoginQuestion, LoginView, SlurmDevicesView};
use super::remedy::Remedy;
use super::server_process::process_object;
use super::site::Site;
use super::system_calls::ForbiddenCalls;
use super::unit_files::unset_keys;
use facts::file_identity::file_identity;
use facts::service_unit::find_unit;
use facts::sshd::list_servers_of;
use kernel::proc::Proc;
use protocol::{Reason, SessionLine};
use std::io;

/// Settings of a unit that may keep its processes from files and programs (systemd.exec(5), systemd.resource-control(5)).
const VIEW_SETTINGS: [&str; 10] = [
    "BindPaths",
    "BindReadOnlyPaths",
    "InaccessiblePaths",
    "MemoryMax",
    "MountImages",
    "NoExecPaths",
    "RootDirectory",
    "RootImage",
    "TasksMax",
    "TemporaryFileSystem",
];
/// Maximum warnings about Slurm's devices that are shown.
const WARNINGS_MAX: usize = 8;

/// What logins find, here and at each server.
#[derive(Debug)]
pub(super) struct LoginFacts {
    helper: String,
    /// `None` if it was not tried.
    own: Option<io::Result<LoginView>>,
    servers: Vec<ServerLogins>,
}

/// What the logins of a server find.
#[derive(Debug)]
struct ServerLogins {
    pid: i32,
    found: Found,
    /// What to do if it is not as here: the lines of its unit that set one of [`VIEW_SETTINGS`].
    remedy: Remedy,
    forbidden: Option<ForbiddenCalls>,
}

/// What was found out about the logins of a server.
#[derive(Debug)]
enum Found {
    /// What one finds. A unit of this node runs the server as this node's program.
    View(io::Result<LoginView>),
    /// The stack that one reads, and no more: the root of a container chooses what is run there, so no program is.
    Stack(io::Result<LoginStack>),
}

impl LoginFacts {
    /// Asks the question of a login here, and where each server of this node stands. `reads_slurm` is true where Slurm's
    /// configuration can be read.
    pub(super) fn read(site: &Site, reads_slurm: bool) -> Self {
        let helper = site.settings().helper;
        let Some(question) = LoginQuestion::new(site, reads_slurm) else {
            return Self {
                helper,
                own: None,
                servers: Vec::new(),
            };
        };
        let own = question.ask_here();
        let servers = list_servers_of(&site.service)
            .into_iter()
            .map(|pid| ServerLogins::read(pid, &question))
            .collect();
        Self {
            helper,
            own: Some(own),
            servers,
        }
    }

    /// Judges what logins find. `session` is the state of the stack by root's reading: another check names that fault.
    pub(super) fn findings(&self, session: SessionLine) -> Vec<Finding> {
        let own = match &self.own {
            None => return Vec::new(),
            Some(Ok(view)) => view,
            Some(Err(error)) => {
                let text = format!("could not be run as a login runs it: {error}");
                let finding = Finding::unknown(Check::HelperRun, &self.helper, text, "");
                return vec![finding];
            }
        };
        let mut findings = vec![judge_answer(&self.helper, own)];
        if session == SessionLine::Effective {
            findings.extend(judge_stack(&own.stack));
        }
        findings.extend(judge_auth_lines(&own.auth_fault));
        findings.extend(judge_slurm_devices(&own.slurm_devices));
        for server in &self.servers {
            findings.extend(server.findings(own));
        }
        findings
    }
}

/// Judges the helper's answer where this process stands. What it answers is the matter of other checks.
fn judge_answer(helper: &str, view: &LoginView) -> Finding {
    let Answer::Missing { code, cause } = &view.answer else {
        return Finding::fine(Check::HelperRun, helper, "answers as a login runs it");
    };
    let text = format!(
        "gives no answer as a login runs it, so every login is refused ({code}): {cause}{}",
        describe_noexec(view)
    );
    let remedy = if view.is_noexec {
        format!(
            "let that file system run programs: findmnt -T {helper} shows it and its options, and /etc/fstab or a mount \
             unit has noexec"
        )
    } else {
        "repair what the message names".to_owned()
    };
    Finding::new(severity_of(code), Check::HelperRun, helper, text, remedy)
}

/// Reports a stack in which the helper finds no session line of ours, although root finds one.
fn judge_stack(stack: &LoginStack) -> Option<Finding> {
    let text = stack.describe()?;
    let remedy = stack
        .remedy()
        .unwrap_or_else(|| "mend what the message names".into());
    Some(Finding::error(Check::PamSession, "PAM", text, remedy))
}

/// Reports auth lines of ours in which the helper finds a fault, although root finds none; `None` without one.
fn judge_auth_lines(fault: &str) -> Option<Finding> {
    if fault.is_empty() {
        return None;
    }
    let text = describe_auth_fault(fault);
    let remedy = "the helper, and so everybody, has to read the PAM files, which have no secret: chmod a+r the one that is named";
    Some(Finding::error(Check::PamAuth, "PAM", text, remedy))
}

/// Describes what becomes of logins where the helper finds this fault of our auth lines.
fn describe_auth_fault(fault: &str) -> String {
    format!(
        "as a login reads the PAM files, logins to jobs with private files are refused (JA09): {fault}"
    )
}

/// A busy node may be slow for a moment, for which no health check may take it out of service.
fn severity_of(code: &str) -> Severity {
    if code == Reason::Timeout.as_str() {
        Severity::Warning
    } else {
        Severity::Error
    }
}

fn describe_noexec(view: &LoginView) -> &'static str {
    if view.is_noexec {
        " (its file system is mounted noexec)"
    } else {
        ""
    }
}

/// Judges what a login to a Slurm job reads of Slurm's devices.
fn judge_slurm_devices(devices: &SlurmDevicesView) -> Vec<Finding> {
    const OBJECT: &str = "gres.conf";
    match devices {
        SlurmDevicesView::Unused => Vec::new(),
        SlurmDevicesView::Readable(warnings) if warnings.is_empty() => {
            let text = "can be read as a login reads it";
            vec![Finding::fine(Check::SlurmGres, OBJECT, text)]
        }
        SlurmDevicesView::Readable(warnings) => warnings
            .iter()
            .take(WARNINGS_MAX)
            .map(|warning| {
                let text = format!("each login to a Slurm job warns: {warning}");
                let remedy = "correct the line, or what it names";
                Finding::warning(Check::SlurmGres, OBJECT, text, remedy)
            })
            .collect(),
        SlurmDevicesView::Unreadable(cause) => {
            let text =
                format!("cannot be used, so logins to Slurm jobs are refused (JA09): {cause}");
            let remedy = "correct the line that is named; every user has to be able to read the file, which has no secret";
            vec![Finding::error(Check::SlurmGres, OBJECT, text, remedy)]
        }
    }
}

impl ServerLogins {
    /// Asks the question of a login where a server stands, or reads its stack alone.
    fn read(pid: i32, question: &LoginQuestion) -> Self {
        let unit = find_unit(pid).filter(|_| runs_program_of_this_node(pid));
        let Some(unit) = unit else {
            return Self {
                pid,
                found: Found::Stack(question.read_stack_at(pid)),
                remedy: "stop it, or start it by a unit and without mounts of its own".into(),
                forbidden: None,
            };
        };
        Self {
            pid,
            found: Found::View(question.ask_at(pid)),
            remedy: unset_keys(&unit, &VIEW_SETTINGS, "remove from it what causes this"),
            forbidden: ForbiddenCalls::read(&unit),
        }
    }

    /// Judges the differences from `own`, what a login finds where this process stands: the other checks judge that.
    fn findings(&self, own: &LoginView) -> Vec<Finding> {
        let object = process_object(self.pid);
        let mut findings = Vec::new();
        findings.extend(
            self.forbidden
                .as_ref()
                .map(|forbidden| forbidden.finding(&object)),
        );
        let (faults, fine) = match &self.found {
            Found::View(Ok(view)) => (
                find_faults(view, own),
                "its logins find what this process finds",
            ),
            Found::Stack(Ok(stack)) => (
                find_stack_fault(stack, own).into_iter().collect(),
                "its logins read the PAM files with our lines; no unit of this node runs it, so no more was judged",
            ),
            Found::View(Err(error)) | Found::Stack(Err(error)) => {
                let text = format!("what its logins find is not known: {error}");
                findings.push(Finding::unknown(Check::SshdLogins, &object, text, ""));
                return findings;
            }
        };
        if faults.is_empty() {
            findings.push(Finding::fine(Check::SshdLogins, &object, fine));
        }
        for (severity, text) in faults {
            findings.push(Finding::new(
                severity,
                Check::SshdLogins,
                &object,
                text,
                self.remedy.clone(),
            ));
        }
        findings
    }
}

/// Checks whether a process runs the program of this node at its path, or one that was there before an upgrade.
fn runs_program_of_this_node(pid: i32) -> bool {
    let exe = Proc::host().dir(pid).join("exe");
    let Ok(program) = exe.read_link() else {
        return false;
    };
    // After an upgrade the running file has no name any more.
    let is_gone = program.to_string_lossy().ends_with(" (deleted)");
    is_gone || file_identity(&exe) == file_identity(&program)
}

/// Finds what the stack that logins of a server read does to them; `None` if it is nothing, or as here.
fn find_stack_fault(stack: &LoginStack, own: &LoginView) -> Option<(Severity, String)> {
    if *stack == own.stack {
        return None;
    }
    Some((Severity::Error, stack.describe()?))
}

/// Finds what the logins of a server lack beside those that start where this process stands.
fn find_faults(view: &LoginView, own: &LoginView) -> Vec<(Severity, String)> {
    let mut faults: Vec<(Severity, String)> =
        find_stack_fault(&view.stack, own).into_iter().collect();
    match (&view.answer, &own.answer) {
        (theirs, ours) if theirs == ours => {}
        (Answer::Missing { code, cause }, _) => {
            let text = format!(
                "its logins cannot run the helper, so each is refused ({code}): {cause}{}",
                describe_noexec(view)
            );
            return vec![(severity_of(code), text)];
        }
        (Answer::Given { code, cause }, _) if is_fault_of_node(code) => {
            let text = format!("its logins are refused ({code}): {cause}");
            faults.push((severity_of(code), text));
        }
        (Answer::Given { .. }, _) => {}
    }
    if !view.auth_fault.is_empty() && view.auth_fault != own.auth_fault {
        let text = format!("where it stands, {}", describe_auth_fault(&view.auth_fault));
        faults.push((Severity::Error, text));
    }
    for (source, fault) in &view.sources {
        let is_fine_here = own.sources.get(source).is_some_and(Option::is_none);
        if let (Some(fault), true) = (fault, is_fine_here) {
            let text =
                format!("its logins find no jobs of {source}, which this process finds: {fault}");
            faults.push((Severity::Error, text));
        }
    }
    if let SlurmDevicesView::Unreadable(cause) = &view.slurm_devices {
        if view.slurm_devices != own.slurm_devices {
            let text = format!("its logins to Slurm jobs are refused (JA09): {cause}");
            faults.push((Severity::Error, text));
        }
    }
    faults
}

/// Checks whether an answer with this code, for a user without a job, shows a fault: that nobody has a job is none.
fn is_fault_of_node(code: &str) -> bool {
    code.parse().is_ok_and(|reason| {
        matches!(
            reason,
            Reason::Configuration
                | Reason::Timeout
                | Reason::AdoptionFailed
                | Reason::CannotConfine
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::login_stack::AccountLines;
    use super::*;

    fn view() -> LoginView {
        LoginView {
            answer: Answer::Given {
                code: "JA01".to_owned(),
                cause: "no job".to_owned(),
            },
            stack: LoginStack::Confines,
            auth_fault: String::new(),
            is_noexec: false,
            sources: [("slurm".to_owned(), None)].into(),
            slurm_devices: SlurmDevicesView::Readable(Vec::new()),
        }
    }

    fn missing() -> Answer {
        Answer::Missing {
            code: "JA09".to_owned(),
            cause: "start helper: execveat: Permission denied".to_owned(),
        }
    }

    fn judge_server(view: LoginView, own: &LoginView) -> Vec<Finding> {
        let server = ServerLogins {
            pid: 7,
            found: Found::View(Ok(view)),
            remedy: "/a:2: remove the line \"NoExecPaths=/usr/libexec\"".into(),
            forbidden: None,
        };
        server.findings(own)
    }

    #[test]
    fn auth_lines_that_the_helper_cannot_read_are_an_error() {
        let closed = LoginView {
            auth_fault: "/etc/pam.d/common-auth: Permission denied".to_owned(),
            ..view()
        };
        let finding = judge_auth_lines(&closed.auth_fault).unwrap();
        assert_eq!(finding.severity, Severity::Error);
        assert!(finding.text.ends_with("common-auth: Permission denied"));
        assert_eq!(judge_auth_lines(&view().auth_fault), None);
        let at_server = |own: &LoginView| judge_server(closed.clone(), own)[0].severity;
        assert_eq!(at_server(&view()), Severity::Error);
        assert_eq!(at_server(&closed), Severity::Fine, "named once");
    }

    #[test]
    fn helper_that_cannot_be_run_is_an_error_with_its_cause() {
        let found = LoginView {
            answer: missing(),
            is_noexec: true,
            ..view()
        };
        let finding = judge_answer("/h", &found);
        assert_eq!(finding.severity, Severity::Error);
        assert!(finding.text.contains("(JA09): start helper"), "{finding:?}");
        assert!(finding.text.contains("mounted noexec"));
        assert!(finding.remedy.advice().contains("findmnt -T /h"));
        assert_eq!(judge_answer("/h", &view()).severity, Severity::Fine);
    }

    #[test]
    fn slow_answer_takes_no_node_out_of_service() {
        let answer = Answer::Missing {
            code: "JA08".to_owned(),
            cause: "late".to_owned(),
        };
        let found = LoginView { answer, ..view() };
        assert_eq!(judge_answer("/h", &found).severity, Severity::Warning);
    }

    #[test]
    fn what_only_logins_of_a_server_lack_is_named_with_the_lines_of_its_unit() {
        let found = LoginView {
            answer: missing(),
            ..view()
        };
        let findings = judge_server(found, &view());
        assert_eq!(findings[0].severity, Severity::Error);
        assert_eq!(findings[0].object, "sshd (process 7)");
        assert!(findings[0].remedy.advice().contains("/a:2: remove"));
        let hidden = LoginView {
            sources: [("slurm".to_owned(), Some("/var/spool/slurmd: no".to_owned()))].into(),
            ..view()
        };
        let of_source = judge_server(hidden.clone(), &view());
        assert!(of_source[0].text.contains("find no jobs of slurm"));
        // It is the same here, where other checks name it.
        let same = judge_server(hidden.clone(), &hidden);
        assert_eq!(same[0].severity, Severity::Fine);
    }

    fn stack(account: AccountLines) -> LoginStack {
        match account {
            AccountLines::Ask => LoginStack::Refuses {
                cause: "service sshd: x".to_owned(),
                unreadable: None,
            },
            AccountLines::PassUsBy => LoginStack::Opens {
                cause: "no session line".to_owned(),
            },
        }
    }

    fn facts(own: LoginView, servers: Vec<ServerLogins>) -> LoginFacts {
        LoginFacts {
            helper: "/h".to_owned(),
            own: Some(Ok(own)),
            servers,
        }
    }

    #[test]
    fn stack_that_the_helper_cannot_read_is_an_error_unless_root_finds_the_fault() {
        let own = LoginView {
            stack: stack(AccountLines::Ask),
            ..view()
        };
        let errors = |session| {
            let findings = facts(own.clone(), Vec::new()).findings(session);
            let errors = findings
                .iter()
                .filter(|finding| finding.severity == Severity::Error);
            errors.count()
        };
        assert_eq!(errors(SessionLine::Effective), 1);
        assert_eq!(errors(SessionLine::Missing), 0);
    }

    #[test]
    fn stack_of_a_server_is_judged_where_it_stands() {
        for account in [AccountLines::Ask, AccountLines::PassUsBy] {
            let found = LoginView {
                stack: stack(account),
                ..view()
            };
            let findings = judge_server(found, &view());
            assert_eq!(findings[0].severity, Severity::Error, "{findings:?}");
            let by_hand = |own: &LoginView| {
                let server = ServerLogins {
                    pid: 7,
                    found: Found::Stack(Ok(stack(account))),
                    remedy: "stop it".into(),
                    forbidden: None,
                };
                server.findings(own)[0].severity
            };
            assert_eq!(by_hand(&view()), Severity::Error);
        }
    }

    #[test]
    fn devices_of_slurm_that_logins_cannot_read_are_an_error() {
        let unreadable = SlurmDevicesView::Unreadable("gres.conf:1: x".to_owned());
        assert_eq!(
            judge_slurm_devices(&unreadable)[0].severity,
            Severity::Error
        );
        let warns = SlurmDevicesView::Readable(vec!["Name=fpga is left out".to_owned()]);
        assert_eq!(judge_slurm_devices(&warns)[0].severity, Severity::Warning);
        assert!(judge_slurm_devices(&SlurmDevicesView::Unused).is_empty());
    }
}
