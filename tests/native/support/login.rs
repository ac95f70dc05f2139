//! Logins that report which devices they can open.

use super::{Cgroup, Node, Outcome, User};

/// Error of a stand-in device that the filters allow: it has no driver.
pub(crate) const OPENS: &str = "ENXIO";
/// Error of a device that a filter denies.
pub(crate) const DENIED: &str = "EPERM";

/// Prints the cgroup and probes every stand-in.
pub(crate) const LOOK: &str = "cat /proc/self/cgroup; probe /dev/nvidia0 /dev/nvidia1 \
    /dev/nvidia2 /dev/nvidia3 /dev/dri/renderD128 /dev/null /dev/full";

/// Every stand-in, in the order of [`LOOK`].
const LOOKED_AT: [&str; 5] = [
    "/dev/nvidia0",
    "/dev/nvidia1",
    "/dev/nvidia2",
    "/dev/nvidia3",
    "/dev/null",
];

impl Node {
    /// Runs [`LOOK`] in a session with both of our lines. That spares the key exchange of `sshd`.
    pub(crate) fn look(&self, user: User) -> Outcome {
        self.run_in_session(LOOK, user)
    }

    /// Runs a shell script as root in a session with both of our lines, and returns its output.
    pub(crate) fn run_in_session(&self, script: &str, user: User) -> Outcome {
        self.write(
            "/usr/bin/in-session",
            &format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n"),
        );
        self.set_mode("/usr/bin/in-session", 0o755);
        self.running("/usr/bin/in-session");
        self.pam(user)
    }

    /// Probes every stand-in from a process in that cgroup, without a login.
    pub(crate) fn probe_in(&self, cgroup: &Cgroup) -> Outcome {
        Outcome::run(self.daemon(cgroup, "probe").args(LOOKED_AT)).ok()
    }
}

impl Outcome {
    /// Returns the printed answer of `device`.
    #[track_caller]
    pub(crate) fn device(&self, device: &str) -> &str {
        let answer = self
            .stdout
            .lines()
            .find_map(|line| line.trim_end().strip_prefix(device)?.strip_prefix(' '));
        answer.unwrap_or_else(|| panic!("nothing about {device}: {self}"))
    }

    /// Asserts these printed answers, `(device, answer)`.
    #[track_caller]
    pub(crate) fn devices(self, expected: &[(&str, &str)]) -> Self {
        for (device, answer) in expected {
            assert!(
                self.device(device) == *answer,
                "{device} is not {answer}: {self}"
            );
        }
        self
    }

    /// Returns the cgroup v2 path in a printed `/proc/PID/cgroup`.
    #[track_caller]
    pub(crate) fn cgroup(&self) -> &str {
        let line = self
            .output_lines()
            .find_map(|line| line.trim_end().strip_prefix("0::"));
        line.unwrap_or_else(|| panic!("no cgroup: {self}"))
    }

    /// Returns the lines of standard output, then those of standard error.
    pub(super) fn output_lines(&self) -> impl Iterator<Item = &str> {
        self.stdout.lines().chain(self.stderr.lines())
    }

    /// Asserts that the printed cgroup is this one.
    #[track_caller]
    pub(crate) fn joins_cgroup(self, cgroup: &Cgroup) -> Self {
        assert!(
            self.cgroup() == cgroup.path(),
            "not in {}: {self}",
            cgroup.path()
        );
        self
    }
}
