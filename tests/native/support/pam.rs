//! PAM stacks, and runs of `pamtester` against them.

use super::{Node, Outcome, User};

/// A complete stack with both lines of ours and these arguments.
pub(super) fn stack(arguments: &str) -> String {
    format!(
        "auth required pam_unix.so\n\
         account required pam_job_adopt.so {arguments}\n\
         account required pam_unix.so\n\
         session required pam_permit.so\n\
         session required pam_job_adopt.so {arguments}\n"
    )
}

/// Reports, behind ours, the cgroup that the session ended up in.
const REPORT: &str = "session optional pam_exec.so stdout /usr/bin/cat /proc/self/cgroup\n";

fn session_stack(control: &str, arguments: &str) -> String {
    format!(
        "account required pam_permit.so\nsession required pam_permit.so\n\
         session {control} pam_job_adopt.so {arguments}\n{REPORT}"
    )
}

impl Node {
    /// Both lines of ours with these arguments.
    pub(crate) fn arguments(&self, arguments: &str) {
        self.stack(&stack(arguments));
    }

    /// As [`Node::arguments`], and a line behind ours that prints the cgroup.
    pub(crate) fn reporting(&self, arguments: &str) {
        self.stack(&format!("{}{REPORT}", stack(arguments)));
    }

    /// Both lines of ours, and behind them one that runs a program and prints what it says.
    pub(super) fn running(&self, program: &str) {
        self.stack(&format!("{}session optional pam_exec.so stdout {program}\n", stack("")));
    }

    /// Account and session of service sshd, in one process.
    pub(crate) fn pam(&self, user: User) -> Outcome {
        self.phases("sshd", user, &["acct_mgmt", "open_session", "close_session"])
    }

    /// The account phase alone.
    pub(crate) fn account(&self, user: User) -> Outcome {
        self.phases("sshd", user, &["acct_mgmt"])
    }

    /// The session phase alone.
    pub(crate) fn session(&self, user: User) -> Outcome {
        self.phases("sshd", user, &["open_session", "close_session"])
    }

    /// These phases of that service.
    pub(crate) fn phases(&self, service: &str, user: User, phases: &[&str]) -> Outcome {
        self.run("pamtester", &[&[service, user.name], phases].concat())
    }

    /// Account and session under `strace` with these options.
    pub(crate) fn pam_under_strace(&self, options: &[&str], user: User) -> Outcome {
        let phases = ["acct_mgmt", "open_session", "close_session"];
        self.under_strace("/tmp/strace", options, user, &phases)
    }

    /// The account phase alone under `strace` with these options.
    pub(crate) fn account_under_strace(&self, options: &[&str], user: User) -> Outcome {
        self.under_strace("/tmp/strace", options, user, &["acct_mgmt"])
    }

    /// Our session line alone, with these arguments, so that nothing refuses before it; a line
    /// behind it prints the cgroup in any case.
    pub(crate) fn session_alone(&self, arguments: &str) {
        self.stack(&session_stack("required", arguments));
    }

    /// As [`Node::session_alone`], where a refusal is passed over: to see where the process is.
    pub(crate) fn session_reporting(&self, arguments: &str) {
        self.stack(&session_stack("[default=ignore]", arguments));
    }

    /// The session being opened under `strace` with these options, which writes to `log`.
    pub(crate) fn session_under_strace(&self, log: &str, options: &[&str], user: User) -> Outcome {
        self.under_strace(log, options, user, &["open_session"])
    }

    /// Where a call is delayed the tracer is nobody's parent: the login can do without it then.
    fn under_strace(&self, log: &str, options: &[&str], user: User, phases: &[&str]) -> Outcome {
        let delayed = options.iter().any(|option| option.contains("delay_"));
        let common = [if delayed { "-fD" } else { "-f" }, "-qq", "-o", log];
        let tested = [&["pamtester", "sshd", user.name], phases].concat();
        let outcome = self.run("strace", &[&common, options, &tested].concat());
        if delayed {
            let end = format!(
                "while pgrep --full '^strace -fD -qq -o {log} ' >/dev/null; do sleep 0.01; done"
            );
            self.sh(&end).ok();
        }
        outcome
    }
}
