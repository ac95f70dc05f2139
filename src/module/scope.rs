//! Decides who is judged: whether this module takes a login at all, and why not ("why is bob exempt?").
//!
//! The arguments of the PAM line decide about logins, and `resolve` and `enable --try` ask the same functions. For users'
//! slices and `strays`, `src/facts/exempt_accounts.rs` takes the lists of all lines and of the file together.

use crate::log::decision_line;
use crate::report::Outcome;
use crate::settings::{OFF_SWITCH_PATH, Settings, is_off};
use crate::{Line, Ruling, Severity};
use protocol::{Decision, Phase, Request};

/// The uid that no account has (credentials(7)), for a user without an account.
pub const UNKNOWN_UID: u32 = u32::MAX;

/// The service of a line without `service=`.
pub const DEFAULT_SERVICE: &str = "sshd";

/// Whether a line of this module judges a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The login is judged.
    Judged {
        /// The arguments of the line.
        settings: Box<Settings>,
        /// With `exempt_join`, what lets the user in outside of jobs if the login cannot join one.
        exemption: Option<Exemption>,
    },
    /// The login is left to the other modules.
    Ignored {
        /// Why it is not judged.
        cause: Unjudged,
        /// The line's minimum severity of log lines.
        log_level: Severity,
    },
    /// The line is wrong: every login but root's is refused.
    Refused {
        /// The argument, and what is wrong with it.
        fault: String,
        /// The line's minimum severity of log lines.
        log_level: Severity,
    },
    /// The user has no account.
    NoAccount,
}

/// The cause why a login is not judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unjudged {
    /// Root is never locked out, whatever is wrong here.
    Root,
    /// Root has switched the module off on this node ([`OFF_SWITCH_PATH`]).
    Off,
    /// The line is for another service: the one that it names, or `sshd` if it names none.
    OtherService(Option<String>),
    /// A session line with `close_only` does nothing.
    CloseOnly,
    /// The line exempts the user.
    Exempt(Exemption),
}

/// The entry of a list that exempts a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// `exempt_uids` has this uid.
    Uid(u32),
    /// `exempt_groups` has this group of the user's.
    Group(String),
}

impl Exemption {
    /// Finds the first entry that exempts the user with this uid. The lines and the
    /// file have one rule of membership, that of a login: primary, supplementary (getgrouplist(3)) or listed.
    ///
    /// # Errors
    ///
    /// The error of `is_in_group`.
    pub fn find<E>(
        uids: &[u32],
        groups: &[String],
        uid: u32,
        is_in_group: impl Fn(&str) -> Result<bool, E>,
    ) -> Result<Option<Self>, E> {
        if uids.contains(&uid) {
            return Ok(Some(Self::Uid(uid)));
        }
        for group in groups {
            if is_in_group(group)? {
                return Ok(Some(Self::Group(group.clone())));
            }
        }
        Ok(None)
    }

    /// The name of the argument, or key, whose value has the entry.
    pub fn argument(&self) -> &'static str {
        match self {
            Self::Uid(_) => "exempt_uids",
            Self::Group(_) => "exempt_groups",
        }
    }
}

/// Whether a user is never judged: root, whom no fault may lock out.
pub fn is_never_judged(uid: u32) -> bool {
    uid == 0
}

/// Returns whether sshd makes this call, whatever the program's name: OpenSSH, from 8.0 at the latest to 10.5, gives
/// each transaction the login's connection (`sshpam_init` in auth-pam.c), and no other program does.
pub fn is_inside_sshd(login: &Request) -> bool {
    !login.ssh_connection.is_empty()
}

impl Scope {
    /// Decides about a login on this node by the arguments of a line. `is_in_group` tells whether the user is in the group
    /// of this name.
    ///
    /// # Errors
    ///
    /// The error of `is_in_group`.
    pub fn of_login<E>(
        login: &Request,
        arguments: &[String],
        is_in_group: impl Fn(&str) -> Result<bool, E>,
    ) -> Result<Self, E> {
        // Root comes first: no typo further down may lock it out.
        if !is_never_judged(login.uid) && is_off() {
            return Ok(Self::ignored(Unjudged::Off, Severity::Info));
        }
        Self::of_line(login, arguments, is_in_group)
    }

    /// Decides as [`Self::of_login`], but for a module that is switched off.
    ///
    /// # Errors
    ///
    /// The error of `is_in_group`.
    pub fn of_line<E>(
        login: &Request,
        arguments: &[String],
        is_in_group: impl Fn(&str) -> Result<bool, E>,
    ) -> Result<Self, E> {
        if is_never_judged(login.uid) {
            return Ok(Self::ignored(Unjudged::Root, Severity::Info));
        }
        let settings = match Settings::parse(arguments) {
            Ok(settings) => Box::new(settings),
            Err(fault) => {
                let log_level = Severity::Info;
                return Ok(Self::Refused { fault, log_level });
            }
        };
        let log_level = settings.log_level;
        if login.service != settings.service.as_deref().unwrap_or(DEFAULT_SERVICE) {
            let cause = Unjudged::OtherService(settings.service);
            return Ok(Self::ignored(cause, log_level));
        }
        if settings.close_only {
            return Ok(match login.phase {
                Phase::Session => Self::ignored(Unjudged::CloseOnly, log_level),
                Phase::Account => Self::Refused {
                    fault: "argument close_only: is for session lines".into(),
                    log_level,
                },
            });
        }
        if login.uid == UNKNOWN_UID {
            return Ok(Self::NoAccount);
        }
        let Settings {
            exempt_uids: uids,
            exempt_groups: groups,
            ..
        } = &*settings;
        let exemption = Exemption::find(uids, groups, login.uid, is_in_group)?;
        Ok(match exemption {
            Some(exemption) if !settings.exempt_join => {
                Self::ignored(Unjudged::Exempt(exemption), log_level)
            }
            exemption => Self::Judged {
                settings,
                exemption,
            },
        })
    }

    fn ignored(cause: Unjudged, log_level: Severity) -> Self {
        Self::Ignored { cause, log_level }
    }
}

impl Unjudged {
    /// Makes the outcome of a login that is not judged: libpam ignores the module.
    pub fn outcome(&self, login: &Request) -> Outcome {
        Outcome {
            ruling: Ruling::Ignore,
            lines: self.log_line(login).into_iter().collect(),
            ..Outcome::default()
        }
    }

    /// Returns the log line of the decision; `None` if nothing is logged.
    fn log_line(&self, login: &Request) -> Option<Line> {
        let line = |severity, decision| decision_line(severity, decision, None, login);
        match self {
            Self::Root | Self::CloseOnly => None,
            Self::Off => Some(line(Severity::Alert, Decision::Ignore).with("off", OFF_SWITCH_PATH)),
            // A mistyped name would admit all users, and so would a missing one in the stack of a second sshd.
            // Files that all services include have our lines without a name for cron, su and the like.
            Self::OtherService(named) if named.is_some() || is_inside_sshd(login) => {
                let name = named.as_deref().unwrap_or(DEFAULT_SERVICE);
                let line = line(Severity::Warning, Decision::Ignore);
                let line = line.with("knob", format_args!("service={name}"));
                Some(unfilter_session(login, line))
            }
            Self::OtherService(_) => None,
            Self::Exempt(exemption) => {
                let line = line(Severity::Info, Decision::Exempt);
                Some(unfilter_session(
                    login,
                    line.with("knob", exemption.argument()),
                ))
            }
        }
    }
}

/// Keeps `log_level` from leaving the line out in `session`, which leaves the login outside of jobs.
fn unfilter_session(login: &Request, line: Line) -> Line {
    match login.phase {
        Phase::Session => line.unfiltered(),
        Phase::Account => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn login(uid: u32) -> Request {
        Request {
            user: "bob".into(),
            uid,
            service: "sshd".into(),
            ..Request::default()
        }
    }

    /// The scope of a login by a line with these arguments, of a user in the group `ops`.
    fn scope(login: &Request, arguments: &str) -> Scope {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let Ok(scope) = Scope::of_line(login, &arguments, |group| {
            Ok::<_, Infallible>(group == "ops")
        });
        scope
    }

    fn cause(login: &Request, arguments: &str) -> Unjudged {
        match scope(login, arguments) {
            Scope::Ignored { cause, .. } => cause,
            other => panic!("{arguments}: {other:?}"),
        }
    }

    #[test]
    fn root_is_ignored_whatever_the_line_says() {
        for arguments in ["", "nonsense", "service=other", "close_only"] {
            assert_eq!(cause(&login(0), arguments), Unjudged::Root, "{arguments}");
        }
    }

    #[test]
    fn wrong_line_refuses_exempt_users_too() {
        for arguments in ["nonsense exempt_uids=7", "exempt_uids=7 exempt_groups=,"] {
            assert!(matches!(scope(&login(7), arguments), Scope::Refused { .. }));
        }
        // In `account`, a line that does nothing would leave the login to the others.
        assert!(matches!(
            scope(&login(7), "close_only exempt_uids=7"),
            Scope::Refused { .. }
        ));
    }

    #[test]
    fn exempt_user_is_ignored_by_the_entry_that_is_named() {
        for (arguments, expected) in [
            ("exempt_uids=6,7", Exemption::Uid(7)),
            ("exempt_groups=no,ops", Exemption::Group("ops".into())),
            ("exempt_groups=ops exempt_uids=7", Exemption::Uid(7)),
        ] {
            assert_eq!(
                cause(&login(7), arguments),
                Unjudged::Exempt(expected.clone())
            );
            let joining = scope(&login(7), &format!("{arguments} exempt_join"));
            let Scope::Judged { exemption, .. } = joining else {
                panic!("{joining:?}");
            };
            assert_eq!(exemption, Some(expected));
        }
        let Scope::Judged { exemption, .. } = scope(&login(7), "exempt_uids=6 exempt_groups=no")
        else {
            panic!("bob is not exempt");
        };
        assert_eq!(exemption, None);
    }

    #[test]
    fn other_service_and_unknown_user_are_decided_before_exemptions() {
        let other = Request {
            service: "su".into(),
            ..login(7)
        };
        let unnamed = Unjudged::OtherService(None);
        assert_eq!(cause(&other, "exempt_uids=7"), unnamed);
        assert_eq!(unnamed.outcome(&other).lines.len(), 0);
        let of_sshd = Request {
            ssh_connection: "10.1.0.5 1 10.1.0.6 22".into(),
            ..other.clone()
        };
        assert_eq!(unnamed.outcome(&of_sshd).lines.len(), 1);
        assert_eq!(cause(&other, "service=sshd").outcome(&other).lines.len(), 1);
        assert_eq!(
            scope(&login(UNKNOWN_UID), "exempt_groups=ops"),
            Scope::NoAccount
        );
    }

    #[test]
    fn group_that_cannot_be_looked_up_is_an_error() {
        let groups = ["ops".to_owned()];
        let found = Exemption::find(&[], &groups, 7, |_| Err("no answer"));
        assert_eq!(found, Err("no answer"));
    }
}
