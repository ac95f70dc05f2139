//! What a login says about the devices it can open.

use super::{Cgroup, Node, Outcome, User};

/// Answer of a stand-in device whose open was allowed: there is no driver.
pub(crate) const OPENS: &str = "ENXIO";
/// Answer of a device filter that refused.
pub(crate) const DENIED: &str = "EPERM";

/// Prints the cgroup and probes every stand-in.
pub(crate) const LOOK: &str = "cat /proc/self/cgroup; probe /dev/nvidia0 /dev/nvidia1 \
    /dev/nvidia2 /dev/nvidia3 /dev/dri/renderD128 /dev/null /dev/full";

/// Every stand-in, by the order of [`LOOK`].
const LOOKED_AT: [&str; 5] =
    ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/null"];

impl Node {
    /// What [`LOOK`] says in a session of both our lines, which does not need `sshd`'s key exchange.
    pub(crate) fn look(&self, user: User) -> Outcome {
        self.in_session(LOOK, user)
    }

    /// The output of that shell script, run as root in a session of both our lines.
    pub(crate) fn in_session(&self, script: &str, user: User) -> Outcome {
        self.write("/usr/bin/in-session", &format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n"));
        self.mode("/usr/bin/in-session", 0o755);
        self.running("/usr/bin/in-session");
        self.pam(user)
    }

    /// What a process in that cgroup can open, without a login.
    pub(crate) fn probe_in(&self, cgroup: &Cgroup) -> Outcome {
        Outcome::of(self.daemon(cgroup, "probe").args(LOOKED_AT)).ok()
    }
}

impl Outcome {
    /// What a probe said about `device`.
    #[track_caller]
    pub(crate) fn device(&self, device: &str) -> &str {
        let answer = self
            .stdout
            .lines()
            .find_map(|line| line.trim_end().strip_prefix(device)?.strip_prefix(' '));
        answer.unwrap_or_else(|| panic!("nothing about {device}: {self}"))
    }

    /// Asserts these answers, `(device, answer)`.
    #[track_caller]
    pub(crate) fn devices(self, expected: &[(&str, &str)]) -> Self {
        for (device, answer) in expected {
            assert!(self.device(device) == *answer, "{device} is not {answer}: {self}");
        }
        self
    }

    /// The cgroup v2 path in a printed `/proc/PID/cgroup`.
    #[track_caller]
    pub(crate) fn cgroup(&self) -> &str {
        let line = self.output_lines().find_map(|line| line.trim_end().strip_prefix("0::"));
        line.unwrap_or_else(|| panic!("no cgroup: {self}"))
    }

    /// The lines of standard output and those of standard error.
    pub(super) fn output_lines(&self) -> impl Iterator<Item = &str> {
        self.stdout.lines().chain(self.stderr.lines())
    }

    /// Asserts that the printed cgroup is this one.
    #[track_caller]
    pub(crate) fn stands_in(self, cgroup: &Cgroup) -> Self {
        assert!(self.cgroup() == cgroup.path(), "not in {}: {self}", cgroup.path());
        self
    }
}
