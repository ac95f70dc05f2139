//! PAM stacks, and runs of `pamtester` against them.

use super::{Node, Outcome, User};

/// Returns a complete stack with both of our lines and these arguments. Debian 13's `pam_unix` runs a child for an
/// account, and sets the disposition of `SIGCHLD` for that.
pub(super) fn stack(arguments: &str) -> String {
    format!(
        "auth required pam_unix.so\n\
         account required pam_job_adopt.so {arguments}\n\
         account required pam_permit.so\n\
         session required pam_permit.so\n\
         session required pam_job_adopt.so {arguments}\n"
    )
}

/// Prints the cgroup of the session, behind our line.
const REPORT: &str = "session optional pam_exec.so stdout /usr/bin/cat /proc/self/cgroup\n";

fn session_stack(control: &str, arguments: &str) -> String {
    format!(
        "account required pam_permit.so\nsession required pam_permit.so\n\
         session {control} pam_job_adopt.so {arguments}\n{REPORT}"
    )
}

impl Node {
    /// Installs both of our lines with these arguments.
    pub(crate) fn arguments(&self, arguments: &str) {
        self.write_stack(&stack(arguments));
    }

    /// Installs both of our lines like [`Node::arguments`], with a line behind ours that prints the
    /// cgroup.
    pub(crate) fn reporting(&self, arguments: &str) {
        self.write_stack(&format!("{}{REPORT}", stack(arguments)));
    }

    /// Installs both of our lines, and behind them a line that runs a program and prints its
    /// output.
    pub(super) fn running(&self, program: &str) {
        self.write_stack(&format!(
            "{}session optional pam_exec.so stdout {program}\n",
            stack("")
        ));
    }

    /// Runs account and session of service sshd in one process.
    pub(crate) fn pam(&self, user: User) -> Outcome {
        self.phases(
            "sshd",
            user,
            &["acct_mgmt", "open_session", "close_session"],
        )
    }

    /// Runs the account phase alone.
    pub(crate) fn account(&self, user: User) -> Outcome {
        self.phases("sshd", user, &["acct_mgmt"])
    }

    /// Runs the session phase alone.
    pub(crate) fn session(&self, user: User) -> Outcome {
        self.phases("sshd", user, &["open_session", "close_session"])
    }

    /// Runs these phases of that service.
    pub(crate) fn phases(&self, service: &str, user: User, phases: &[&str]) -> Outcome {
        self.run("pamtester", &[&[service, user.name], phases].concat())
    }

    /// Runs account and session under `strace` with these options.
    pub(crate) fn pam_under_strace(&self, options: &[&str], user: User) -> Outcome {
        let phases = ["acct_mgmt", "open_session", "close_session"];
        self.under_strace("/tmp/strace", options, user, &phases)
    }

    /// Runs the account phase alone under `strace` with these options.
    pub(crate) fn account_under_strace(&self, options: &[&str], user: User) -> Outcome {
        self.under_strace("/tmp/strace", options, user, &["acct_mgmt"])
    }

    /// Installs our session line alone, with these arguments, so that no other line refuses first.
    /// A line behind it prints the cgroup, also after a refusal.
    pub(crate) fn session_alone(&self, arguments: &str) {
        self.write_stack(&session_stack("required", arguments));
    }

    /// Installs our session line like [`Node::session_alone`], but the stack ignores a refusal: the
    /// process then shows where it is.
    pub(crate) fn session_reporting(&self, arguments: &str) {
        self.write_stack(&session_stack("[default=ignore]", arguments));
    }

    /// Runs a program with a session keyring called `login-keys`, in which there is a key.
    pub(crate) fn in_keyring(&self, program: &[&str]) -> Outcome {
        // The wrappers of keyctl(2) are in a library that no other test needs.
        let script = "import ctypes, os, platform, sys\n\
            call = ctypes.CDLL(None).syscall\n\
            add, control = (248, 250) if platform.machine() == 'x86_64' else (217, 219)\n\
            assert call(control, 1, b'login-keys') > 0\n\
            assert call(add, b'user', b'secret', b'x', 1, -3) > 0\n\
            os.execvp(sys.argv[1], sys.argv[1:])\n";
        self.run("python3", &[&["-c", script], program].concat())
    }

    /// Runs the session phase under `strace` with these options; strace writes to `log`.
    pub(crate) fn session_under_strace(&self, log: &str, options: &[&str], user: User) -> Outcome {
        self.under_strace(log, options, user, &["open_session"])
    }

    /// Runs the session phase under a `strace` that delays calls with these options and stays to the end. Other calls
    /// take no longer than untraced ones.
    pub(crate) fn session_delayed_by_strace(
        &self,
        log: &str,
        options: &[&str],
        user: User,
    ) -> Outcome {
        self.trace_to_end(log, options, user, &["open_session"])
    }

    /// Runs phases under `strace`. They survive the end of a tracer that delays calls.
    fn under_strace(&self, log: &str, options: &[&str], user: User, phases: &[&str]) -> Outcome {
        if !options.iter().any(|option| option.contains("delay_")) {
            return self.trace_to_end(log, options, user, phases);
        }
        let tested = [&["pamtester", "sshd", user.name], phases].concat();
        // With -D the tracer is not their parent.
        let outcome = self.run(
            "strace",
            &[&["-fD", "-qq", "-o", log], options, &tested].concat(),
        );
        let end = format!(
            "while pgrep --full '^strace -fD -qq -o {log} ' >/dev/null; do sleep 0.01; done"
        );
        self.sh(&end).ok();
        outcome
    }

    /// Runs phases under a `strace` that nothing ends before them.
    fn trace_to_end(&self, log: &str, options: &[&str], user: User, phases: &[&str]) -> Outcome {
        let tested = [&["pamtester", "sshd", user.name], phases].concat();
        // The kernel stops the login at these calls alone, instead of twice at each. A login that outlived its tracer
        // could make none of them.
        let calls = find_traced_calls(options).map(|calls| format!("trace={calls}"));
        let filter = calls
            .iter()
            .flat_map(|calls| ["--seccomp-bpf", "-e", calls]);
        let filter: Vec<&str> = filter.collect();
        self.run(
            "strace",
            &[&["-f", "-qq", "-o", log], &filter[..], options, &tested].concat(),
        )
    }
}

/// Returns the calls that strace traces or changes with these options; `None` for all.
fn find_traced_calls(options: &[&str]) -> Option<String> {
    let named = |kind: &str| -> Vec<&str> {
        let sets = options
            .iter()
            .filter_map(|option| option.strip_prefix(kind));
        sets.map(|set| set.split(':').next().unwrap()).collect()
    };
    let traced = named("trace=");
    let calls = if traced.is_empty() {
        named("inject=")
    } else {
        traced
    };
    (!calls.is_empty()).then(|| calls.join(","))
}
