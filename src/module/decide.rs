//! Decides what a failure means for a login: a refusal, unless the admin's arguments change that.

use crate::error::Failure;
use crate::settings::{Action, Settings};
use kernel::log::Severity;
use protocol::{Decision, Reason};

/// The result of this module for a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ruling {
    /// `PAM_SUCCESS`.
    Admit,
    /// `PAM_IGNORE`: the other modules decide.
    Ignore,
    /// `PAM_PERM_DENIED` or `PAM_SESSION_ERR`.
    #[default]
    Refuse,
}

/// What a failure means for the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailureDecision {
    /// The word of the decision in the log.
    pub(super) word: Decision,
    pub(super) ruling: Ruling,
    /// The severity of the decision's log line.
    pub(super) severity: Severity,
    /// The argument that lets the login in; `None` if none does.
    pub(super) knob: Option<&'static str>,
    /// Under `observe`, the decision without it.
    pub(super) would: Option<Decision>,
}

/// Decides on a login that cannot join its job: it is refused, unless `observe`, an exemption or
/// `action_*` changes that. `exemption` is the argument that exempts the user.
pub(super) fn decide_on_failure(
    failure: &Failure,
    settings: &Settings,
    exemption: Option<&'static str>,
) -> FailureDecision {
    let severity = refusal_severity(failure);
    if settings.observe {
        let would = if exemption.is_some() {
            Decision::Exempt
        } else {
            Decision::Refuse
        };
        return FailureDecision {
            word: Decision::Observe,
            ruling: Ruling::Ignore,
            severity: Severity::Info,
            knob: None,
            would: Some(would),
        };
    }
    let refusal = FailureDecision {
        word: Decision::Refuse,
        ruling: Ruling::Refuse,
        severity,
        knob: None,
        would: None,
    };
    // The arguments let logins in outside of the job, and this one may still be in it.
    if let Failure::MoveBackFailed(..) = failure {
        return refusal;
    }
    if exemption.is_some() {
        // A fault of the node is one for exempt users too.
        let is_fault = severity == Severity::Error;
        return FailureDecision {
            word: Decision::Exempt,
            ruling: Ruling::Ignore,
            severity: if is_fault {
                Severity::Error
            } else {
                Severity::Info
            },
            knob: exemption,
            would: None,
        };
    }
    let (action, knob) = settings.action(failure.reason());
    let ruling = match action {
        Action::Deny => return refusal,
        Action::Ignore => Ruling::Ignore,
        Action::Allow => Ruling::Admit,
    };
    FailureDecision {
        word: Decision::Opened,
        ruling,
        severity: Severity::Alert,
        knob: Some(knob),
        would: None,
    }
}

/// The severity of a refusal: a notice if the user could have expected it, an alert if the login could not be moved
/// back, else an error, for a fault of the node or of this module.
fn refusal_severity(failure: &Failure) -> Severity {
    use Reason::{ChoiceNeeded, Ended, LoginsClosed, NoJob, Starting, Suspended};
    if let Failure::MoveBackFailed(..) = failure {
        return Severity::Alert;
    }
    match failure.reason() {
        NoJob | Starting | Ended | Suspended | ChoiceNeeded | LoginsClosed => Severity::Notice,
        _ => Severity::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reason: Reason) -> Failure {
        Failure::new(reason, "x")
    }

    fn move_back_failure() -> Failure {
        let error = kernel::cgroup::Error::NotMounted;
        Failure::MoveBackFailed(Box::new(failure(Reason::Ended)), error)
    }

    /// Settings under which every failure that an argument can open is opened.
    fn open_settings() -> Settings {
        Settings {
            no_jobs: Action::Ignore,
            adopt_failure: Action::Allow,
            generic_failure: Action::Ignore,
            ..Settings::default()
        }
    }

    #[test]
    fn failure_refuses_by_default() {
        for reason in Reason::ALL {
            let decision = decide_on_failure(&failure(reason), &Settings::default(), None);
            assert_eq!(
                (decision.word, decision.ruling),
                (Decision::Refuse, Ruling::Refuse)
            );
            assert_eq!((decision.knob, decision.would), (None, None), "{reason}");
        }
    }

    #[test]
    fn opened_login_is_an_alert_with_its_argument() {
        let settings = open_settings();
        for (reason, ruling, knob) in [
            (Reason::NoJob, Ruling::Ignore, "action_no_jobs"),
            (
                Reason::AdoptionFailed,
                Ruling::Admit,
                "action_adopt_failure",
            ),
            (Reason::Timeout, Ruling::Ignore, "action_generic_failure"),
        ] {
            let decision = decide_on_failure(&failure(reason), &settings, None);
            assert_eq!((decision.word, decision.ruling), (Decision::Opened, ruling));
            assert_eq!(
                (decision.severity, decision.knob),
                (Severity::Alert, Some(knob))
            );
        }
        for reason in [Reason::Suspended, Reason::ChoiceNeeded] {
            let decision = decide_on_failure(&failure(reason), &settings, None);
            assert_eq!(decision.word, Decision::Refuse, "{reason}");
        }
    }

    #[test]
    fn exempt_user_is_let_in_and_faults_stay_errors() {
        let knob = Some("exempt_uids");
        for (reason, severity) in [
            (Reason::NoJob, Severity::Info),
            (Reason::Configuration, Severity::Error),
        ] {
            let decision = decide_on_failure(&failure(reason), &Settings::default(), knob);
            assert_eq!(
                (decision.word, decision.ruling),
                (Decision::Exempt, Ruling::Ignore)
            );
            assert_eq!(
                (decision.severity, decision.knob),
                (severity, knob),
                "{reason}"
            );
        }
    }

    #[test]
    fn login_that_was_not_moved_back_is_refused_whatever_the_arguments() {
        for exemption in [None, Some("exempt_uids")] {
            let decision = decide_on_failure(&move_back_failure(), &open_settings(), exemption);
            assert_eq!(
                (decision.word, decision.ruling),
                (Decision::Refuse, Ruling::Refuse)
            );
            assert_eq!((decision.severity, decision.knob), (Severity::Alert, None));
        }
    }

    #[test]
    fn observe_lets_in_and_names_the_decision_without_it() {
        let settings = Settings {
            observe: true,
            ..open_settings()
        };
        for (exemption, would) in [(None, Decision::Refuse), (Some("x"), Decision::Exempt)] {
            let decision = decide_on_failure(&failure(Reason::NoJob), &settings, exemption);
            assert_eq!(
                (decision.word, decision.ruling),
                (Decision::Observe, Ruling::Ignore)
            );
            assert_eq!(
                (decision.severity, decision.would),
                (Severity::Info, Some(would))
            );
        }
    }
}
