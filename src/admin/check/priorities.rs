//! Checks the priorities that a running sshd's unit sets, and which of them reach logins.

use super::finding::{Check, Finding};
use crate::child_process::query_in_clean_environment;
use kernel::cgroup::Membership;
use std::process::Command;

/// Level of the class "best effort" by default, and the classes (`linux/ioprio.h`).
const USUAL_IO_LEVEL: i32 = 4;
const IO_REAL_TIME: i32 = 1;
const IO_BEST_EFFORT: i32 = 2;
const IO_IDLE: i32 = 3;
/// The settings of systemd.exec(5) that are asked for.
const SETTINGS: [&str; 6] = [
    "Nice",
    "OOMScoreAdjust",
    "CPUSchedulingPolicy",
    "IOSchedulingClass",
    "IOSchedulingPriority",
    "TimerSlackNSec",
];
/// Timer slack of the first process, in nanoseconds.
const USUAL_SLACK_NS: i32 = 50_000;

/// The priorities of a server's unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Priorities {
    unit: String,
    /// Each setting with its value; empty if systemd does not run the server, or cannot be asked.
    values: Vec<(String, i32)>,
}

impl Priorities {
    /// Asks systemd for the settings of the unit that runs the process. Without an answer all counts as
    /// usual.
    pub(super) fn read(pid: i32) -> Self {
        let Some(unit) = find_unit(pid) else {
            return Self::default();
        };
        let mut command = Command::new("systemctl");
        let property = format!("--property={}", SETTINGS.join(","));
        command.args(["--no-pager", "show", &property, &unit]);
        let text = query_in_clean_environment(&mut command).unwrap_or_default();
        Self {
            unit,
            values: parse_values(&text),
        }
    }

    fn value(&self, setting: &str) -> Option<i32> {
        let mut values = self.values.iter();
        values
            .find(|(name, _)| name == setting)
            .map(|(_, value)| *value)
    }

    /// Judges each priority: the module takes from logins what would put them before the tasks of their job, and leaves
    /// what puts them behind.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut lost = Vec::new();
        let mut kept = Vec::new();
        let io_level = self.value("IOSchedulingPriority").unwrap_or(USUAL_IO_LEVEL);
        for setting in SETTINGS {
            let Some(value) = self.value(setting) else {
                continue;
            };
            // -1 puts a login before the tasks of its job, 1 behind them, and 0 is the default.
            let order = match (setting, value) {
                ("Nice" | "OOMScoreAdjust", value) => value.signum(),
                // FIFO and RR; BATCH and IDLE.
                ("CPUSchedulingPolicy", 1 | 2) => -1,
                ("CPUSchedulingPolicy", 3 | 5) => 1,
                ("IOSchedulingClass", IO_REAL_TIME) => -1,
                ("IOSchedulingClass", IO_BEST_EFFORT) => (io_level - USUAL_IO_LEVEL).signum(),
                ("IOSchedulingClass", IO_IDLE) => 1,
                ("TimerSlackNSec", slack) if slack > 0 => (slack - USUAL_SLACK_NS).signum(),
                _ => 0,
            };
            match order {
                -1 => lost.push(format!("{setting}={value}")),
                1 => kept.push(format!("{setting}={value}")),
                _ => {}
            }
        }
        let mut findings = Vec::new();
        if !lost.is_empty() {
            let text = format!(
                "has {}, which logins lose in their job: they have the defaults there",
                lost.join(", ")
            );
            findings.push(Finding::fine(Check::SshdPriority, &self.unit, text));
        }
        if !kept.is_empty() {
            let settings = kept.join(", ");
            let text = format!(
                "has {settings}: so have logins, which are behind the tasks of their jobs then"
            );
            let advice = format!(
                "remove {settings} (systemctl edit --full {}), unless logins are to yield",
                self.unit
            );
            findings.push(Finding::note(Check::SshdPriority, &self.unit, text, advice));
        }
        findings
    }
}

/// Finds the service of systemd that runs a process: the last part of its cgroup's path. `None` if the process
/// is in no service's cgroup, or has ended.
pub(super) fn find_unit(pid: i32) -> Option<String> {
    let membership = Membership::read(pid).ok()?;
    // With cgroup v1 systemd keeps its services in a hierarchy of its own, else in cgroup v2.
    let path = membership
        .path("name=systemd")
        .filter(|path| path.ends_with(".service"))
        .or(membership.unified())?;
    let unit = path.rsplit('/').next()?;
    unit.ends_with(".service").then(|| unit.to_owned())
}

/// Parses what `systemctl show` prints. A value that is no number is left out.
fn parse_values(text: &str) -> Vec<(String, i32)> {
    let mut values = Vec::new();
    for line in text.lines() {
        let Some((setting, value)) = line.split_once('=') else {
            continue;
        };
        if let Ok(number) = value.parse() {
            values.push((setting.to_owned(), number));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns severity and text of each finding about a unit with these values.
    fn judge(text: &str) -> Vec<String> {
        let priorities = Priorities {
            unit: "ssh.service".to_owned(),
            values: parse_values(text),
        };
        let findings = priorities.findings();
        let show = |finding: &Finding| format!("{} {}", finding.severity, finding.text);
        findings.iter().map(show).collect()
    }

    #[test]
    fn usual_priorities_have_no_finding() {
        for text in [
            "",
            "Nice=0\nOOMScoreAdjust=0\nCPUSchedulingPolicy=0\nIOSchedulingClass=2\nIOSchedulingPriority=4\nTimerSlackNSec=50000\n",
            "Nice=0\nIOSchedulingClass=0\nIOSchedulingPriority=0\nTimerSlackNSec=50us\n",
        ] {
            assert_eq!(judge(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn priorities_that_logins_lose_are_fine_and_those_that_stay_are_noted() {
        let lost = "Nice=-5\nOOMScoreAdjust=-500\nCPUSchedulingPolicy=2\nIOSchedulingClass=2\n\
                    IOSchedulingPriority=0\nTimerSlackNSec=1000\n";
        assert_eq!(
            judge(lost),
            [
                "fine has Nice=-5, OOMScoreAdjust=-500, CPUSchedulingPolicy=2, IOSchedulingClass=2, \
              TimerSlackNSec=1000, which logins lose in their job: they have the defaults there"
            ]
        );
        let kept = "Nice=5\nOOMScoreAdjust=300\nCPUSchedulingPolicy=3\nIOSchedulingClass=3\n";
        assert_eq!(
            judge(kept),
            [
                "note has Nice=5, OOMScoreAdjust=300, CPUSchedulingPolicy=3, IOSchedulingClass=3: so have \
              logins, which are behind the tasks of their jobs then"
            ]
        );
        assert_eq!(judge("Nice=-5\nOOMScoreAdjust=300\n").len(), 2);
    }
}
