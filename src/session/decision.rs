//! The line that a decision is for the log.

use super::{Failure, Line, Login, Severity};
use crate::plan::{Plan, Reason};

/// The beginning of a decision's line.
#[must_use]
pub fn decision_line(
    severity: Severity,
    decision: &str,
    reason: Option<Reason>,
    login: &Login,
) -> Line {
    Line::new(severity)
        .with("decision", decision)
        .with("code", reason.map_or("", Reason::as_str))
        .with("user", &login.user)
        .with("uid", login.uid)
        .with("rhost", &login.rhost)
        .with("service", &login.service)
        .with("phase", login.phase.as_str())
}

/// The line with what is known of the job: of devices as many as the list has, and without one
/// as many as were found open.
pub(super) fn with_plan(
    line: Line,
    plan: &Plan,
    cgroup: &str,
    containment: &str,
    opened: Option<u32>,
) -> Line {
    let listed = plan.containment.list().map(|list| list.rules().len().to_string());
    let devices = listed.or(opened.map(|count| count.to_string())).unwrap_or_default();
    line.with("job", &plan.job)
        .with("source", plan.placement.source().as_str())
        .with("rule", plan.rule.as_str())
        .with("cgroup", cgroup)
        .with("containment", containment)
        .with("devices", devices)
        .with("dropped", plan.dropped.len())
}

/// What the user could have known is a refusal; the rest is a fault, ours or the node's.
pub(super) fn severity(failure: &Failure, reason: Reason) -> Severity {
    match (failure, reason) {
        (Failure::Stuck(..), _) => Severity::Alert,
        (
            _,
            Reason::NoJob
            | Reason::Starting
            | Reason::Ended
            | Reason::Suspended
            | Reason::ChoiceNeeded,
        ) => Severity::Notice,
        _ => Severity::Error,
    }
}
