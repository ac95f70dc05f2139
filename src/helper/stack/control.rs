//! The control field: what libpam does with each return value of a module (pam.conf(5)).

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    Ignore,
    Ok,
    Done,
    Bad,
    Die,
    Reset,
    /// Skips this many lines.
    Jump(usize),
}

/// Return values in the order of their numbers (`security/_pam_types.h`), as controls spell them.
const RETURNS: [&str; 32] = [
    "success", "open_err", "symbol_err", "service_err", "system_err", "buf_err", "perm_denied",
    "auth_err", "cred_insufficient", "authinfo_unavail", "user_unknown", "maxtries",
    "new_authtok_reqd", "acct_expired", "session_err", "cred_unavail", "cred_expired", "cred_err",
    "no_module_data", "conv_err", "authtok_err", "authtok_recover_err", "authtok_lock_busy",
    "authtok_disable_aging", "try_again", "ignore", "abort", "authtok_expired", "module_unknown",
    "bad_item", "conv_again", "incomplete",
];

const ACTIONS: [(&str, Action); 6] = [
    ("ignore", Action::Ignore),
    ("ok", Action::Ok),
    ("done", Action::Done),
    ("bad", Action::Bad),
    ("die", Action::Die),
    ("reset", Action::Reset),
];

/// Which return value it was, as far as the analysis tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Return {
    Success,
    /// `PAM_IGNORE`, by which our module says that a login is none of its business.
    Ignore,
    /// `PAM_NEW_AUTHTOK_REQD`, with which applications let an account in all the same.
    Renew,
    /// Anything else that lets the stack go on.
    Other,
}

/// The action of every return value; one that nothing was said about is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Control([Option<Action>; 32]);

impl Control {
    /// The control that a word stands for, `include` and `substack` aside.
    pub(super) fn parse(word: &str) -> Self {
        let word = match word.to_ascii_lowercase().as_str() {
            "required" => "success=ok new_authtok_reqd=ok ignore=ignore default=bad",
            "requisite" => "success=ok new_authtok_reqd=ok ignore=ignore default=die",
            "optional" => "success=ok new_authtok_reqd=ok default=ignore",
            "sufficient" => "success=done new_authtok_reqd=done default=ignore",
            _ => word,
        };
        Self::parse_pairs(word).unwrap_or(Self([None; 32]))
    }

    /// `return=action` pairs. As in libpam, a name ends where it is complete, so that the blank
    /// before the next pair may be missing. `None` where a pair is malformed.
    fn parse_pairs(text: &str) -> Option<Self> {
        let mut control = Self([None; 32]);
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (code, after) = return_value(rest)?;
            let after = after.trim_start().strip_prefix('=')?.trim_start();
            let (action, after) = action(after)?;
            control.set(code, action);
            rest = after.trim_start();
        }
        Some(control)
    }

    /// `default` fills in what has no action yet; a later pair replaces an earlier one.
    fn set(&mut self, code: Option<usize>, action: Action) {
        match code {
            Some(code) => {
                if let Some(slot) = self.0.get_mut(code) {
                    *slot = Some(action);
                }
            }
            None => self.0.iter_mut().for_each(|slot| {
                slot.get_or_insert(action);
            }),
        }
    }

    /// Every return value that lets the stack go on, with its action, each pair once.
    pub(super) fn outcomes(&self) -> Vec<(Return, Action)> {
        let outcome = |(name, action): (&&str, &Option<Action>)| {
            let code = match *name {
                "success" => Return::Success,
                "ignore" => Return::Ignore,
                "new_authtok_reqd" => Return::Renew,
                // The application asks again; no session is open after it.
                "incomplete" => return None,
                _ => Return::Other,
            };
            Some((code, action.unwrap_or(Action::Bad)))
        };
        let mut outcomes: Vec<_> = RETURNS.iter().zip(&self.0).filter_map(outcome).collect();
        outcomes.sort_unstable();
        outcomes.dedup();
        outcomes
    }

    /// Whether it does as `required` or `requisite` do: success is taken, every failure refuses.
    /// What stands for `new_authtok_reqd` does not matter, since our module never returns it.
    pub(super) fn is_required(&self) -> bool {
        let good = |(name, action): (&&str, &Option<Action>)| {
            let action = action.unwrap_or(Action::Bad);
            match *name {
                "success" => matches!(action, Action::Ok | Action::Done),
                "ignore" => !matches!(action, Action::Jump(_) | Action::Reset),
                "new_authtok_reqd" | "incomplete" => true,
                _ => matches!(action, Action::Bad | Action::Die),
            }
        };
        RETURNS.iter().zip(&self.0).all(good)
    }
}

/// The index of the return value in front, `None` for `default`, and what follows it.
fn return_value(text: &str) -> Option<(Option<usize>, &str)> {
    let named = RETURNS.iter().enumerate();
    let found =
        named.filter_map(|(code, name)| Some((Some(code), text.strip_prefix(name)?))).next();
    found.or_else(|| Some((None, text.strip_prefix("default")?)))
}

fn action(text: &str) -> Option<(Action, &str)> {
    let named = ACTIONS.iter();
    if let Some(found) =
        named.filter_map(|(name, act)| Some((*act, text.strip_prefix(name)?))).next()
    {
        return Some(found);
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text.split_at_checked(digits)?;
    // A jump over nothing is refused, as is a number that libpam's own would wrap around.
    let count = number.parse().ok().filter(|count| (1..=i32::MAX as usize).contains(count))?;
    Some((Action::Jump(count), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_brackets() {
        let pairs = Control::parse("success=ok new_authtok_reqd=ok ignore=ignore default=bad");
        assert_eq!(Control::parse("required"), pairs);
        assert_eq!(Control::parse("Required"), pairs);
        let pairs = Control::parse(" default = die success=ok ignore=ignorenew_authtok_reqd=ok");
        assert_eq!(Control::parse("requisite"), pairs);
    }

    #[test]
    fn what_is_malformed_is_bad_throughout() {
        for word in [
            "", "x", "success", "success=", "success=0", "success=okay", "success=-1",
            "ok=success", "success=99999999999",
        ] {
            let outcomes = Control::parse(word).outcomes();
            assert!(outcomes.iter().all(|(_, action)| *action == Action::Bad), "{word:?}");
        }
    }

    #[test]
    fn outcomes_are_told_apart() {
        let outcomes = Control::parse("success=2 default=ignore").outcomes();
        let expected = [
            (Return::Success, Action::Jump(2)),
            (Return::Ignore, Action::Ignore),
            (Return::Renew, Action::Ignore),
            (Return::Other, Action::Ignore),
        ];
        assert_eq!(outcomes, expected);
    }

    #[test]
    fn required_in_other_words() {
        for word in [
            "required",
            "requisite",
            "success=ok default=bad",
            "success=done default=die",
            "success=ok ignore=ignore default=die",
        ] {
            assert!(Control::parse(word).is_required(), "{word}");
        }
        for word in [
            "optional",
            "sufficient",
            "success=ok default=ignore",
            "success=1 default=bad",
            "success=ok perm_denied=ok default=bad",
            "success=ok system_err=reset default=bad",
            "success=ok ignore=1 default=bad",
            "success=ignore default=die",
            "default=bad",
            "x",
        ] {
            assert!(!Control::parse(word).is_required(), "{word}");
        }
    }
}
