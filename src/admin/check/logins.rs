//! Checks that the helper answers when it is run as a login runs it, and that logins of each sshd find what this process
//! finds: the unit of an sshd may hide files, forbid programs and forbid system calls.

use super::finding::{Check, Finding, Severity};
use super::login_view::{Answer, LoginQuestion, LoginView, SlurmDevicesView};
use super::priorities::find_unit;
use super::remedy::Remedy;
use super::server_process::process_object;
use super::site::{Site, file_identity};
use super::sshd::list_servers;
use super::system_calls::ForbiddenCalls;
use super::unit_files::unset_keys;
use kernel::proc::Proc;
use protocol::Reason;
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
    view: io::Result<LoginView>,
    /// What to do if it is not as here: the lines of its unit that set one of [`VIEW_SETTINGS`].
    remedy: Remedy,
    forbidden: Option<ForbiddenCalls>,
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
        let servers = list_servers()
            .into_iter()
            .filter_map(|pid| ServerLogins::read(pid, &question))
            .collect();
        Self {
            helper,
            own: Some(own),
            servers,
        }
    }

    /// Judges what logins find.
    pub(super) fn findings(&self) -> Vec<Finding> {
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
    /// Asks the question of a login where a server stands; `None` for one that no unit of this node runs as this node's
    /// program: the root of a container chooses what is run there.
    fn read(pid: i32, question: &LoginQuestion) -> Option<Self> {
        let unit = find_unit(pid)?;
        let exe = Proc::host().dir(pid).join("exe");
        let program = exe.read_link().ok()?;
        let program = program.to_str()?.trim_end_matches(" (deleted)").to_owned();
        // After an upgrade the running file has no name any more.
        let is_gone = exe.read_link().ok()?.to_str()?.ends_with(" (deleted)");
        if !is_gone && file_identity(&exe) != file_identity(program.as_ref()) {
            return None;
        }
        Some(Self {
            pid,
            view: question.ask_at(pid),
            remedy: unset_keys(&unit, &VIEW_SETTINGS, "remove from it what causes this"),
            forbidden: ForbiddenCalls::read(&unit),
        })
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
        let view = match &self.view {
            Ok(view) => view,
            Err(error) => {
                let text = format!("what its logins find is not known: {error}");
                findings.push(Finding::unknown(Check::SshdLogins, &object, text, ""));
                return findings;
            }
        };
        let faults = find_faults(view, own);
        if faults.is_empty() {
            let text = "its logins find what this process finds";
            findings.push(Finding::fine(Check::SshdLogins, &object, text));
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

/// Finds what the logins of a server lack beside those that start where this process stands.
fn find_faults(view: &LoginView, own: &LoginView) -> Vec<(Severity, String)> {
    let mut faults = Vec::new();
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
    use super::*;

    fn view() -> LoginView {
        LoginView {
            answer: Answer::Given {
                code: "JA01".to_owned(),
                cause: "no job".to_owned(),
            },
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
            view: Ok(view),
            remedy: "/a:2: remove the line \"NoExecPaths=/usr/libexec\"".into(),
            forbidden: None,
        };
        server.findings(own)
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
