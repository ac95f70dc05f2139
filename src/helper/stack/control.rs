//! Control fields: what libpam does with each value that a module returns (pam.conf(5)). `compare` asks for the outcomes
//! of a line while it walks a stack before and after a change.

use super::rejection::Rejection;

/// What libpam does with a value that a module returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Leaves the verdict as it is.
    Ignore,
    /// Makes the verdict favourable, unless it is unfavourable.
    Ok,
    /// Acts as `Ok`, and ends the stack or substack unless the verdict is unfavourable.
    Done,
    /// Makes the verdict unfavourable.
    Bad,
    /// Acts as `Bad`, and ends the stack or substack.
    Die,
    /// Restores the verdict at the entry to the stack or substack.
    Reset,
    /// Skips this many lines.
    Jump(usize),
}

/// Return values in the order of their numbers (`security/_pam_types.h`), as controls spell them.
const RETURNS: [&str; 32] = [
    "success",
    "open_err",
    "symbol_err",
    "service_err",
    "system_err",
    "buf_err",
    "perm_denied",
    "auth_err",
    "cred_insufficient",
    "authinfo_unavail",
    "user_unknown",
    "maxtries",
    "new_authtok_reqd",
    "acct_expired",
    "session_err",
    "cred_unavail",
    "cred_expired",
    "cred_err",
    "no_module_data",
    "conv_err",
    "authtok_err",
    "authtok_recover_err",
    "authtok_lock_busy",
    "authtok_disable_aging",
    "try_again",
    "ignore",
    "abort",
    "authtok_expired",
    "module_unknown",
    "bad_item",
    "conv_again",
    "incomplete",
];

const ACTIONS: [(&str, Action); 6] = [
    ("ignore", Action::Ignore),
    ("ok", Action::Ok),
    ("done", Action::Done),
    ("bad", Action::Bad),
    ("die", Action::Die),
    ("reset", Action::Reset),
];

/// Return values, as far as the analysis distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Return {
    Success,
    /// `PAM_IGNORE`, which our module returns for logins that it does not judge.
    Ignore,
    /// `PAM_NEW_AUTHTOK_REQD`, with which applications admit an account all the same.
    Renew,
    /// Any other value but `PAM_INCOMPLETE`.
    Other,
}

/// The values that a module may return for a user whose login is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleReturn {
    /// Any value.
    Any,
    /// Any value but `PAM_IGNORE`, and success if the line is reached only after the change. It
    /// belongs to modules that refuse no accounts but those that are locked or expired.
    AccountCheck,
    /// Any value, and success if the line is reached only after the change. It belongs to modules
    /// that refuse the same accounts, and ignore some.
    IgnorableAccountCheck,
    /// `PAM_SUCCESS`.
    Success,
    /// `PAM_PERM_DENIED`.
    Denied,
    /// `PAM_IGNORE`.
    Ignore,
}

/// The action of every return value; `None` counts as bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Control([Option<Action>; 32]);

impl Control {
    /// The control of a line that libpam refuses whatever its module returns.
    pub(super) const ALL_BAD: Self = Self([None; 32]);

    /// A control with the same action at every value.
    pub(super) fn always(action: Action) -> Self {
        Self([Some(action); 32])
    }

    /// Parses a control field other than `include` and `substack`.
    ///
    /// # Errors
    ///
    /// [`Rejection::BadControl`] or [`Rejection::HugeJump`].
    pub(super) fn parse(word: &str) -> Result<Self, Rejection> {
        let word = match word.to_ascii_lowercase().as_str() {
            "required" => "success=ok new_authtok_reqd=ok ignore=ignore default=bad",
            "requisite" => "success=ok new_authtok_reqd=ok ignore=ignore default=die",
            "optional" => "success=ok new_authtok_reqd=ok default=ignore",
            "sufficient" => "success=done new_authtok_reqd=done default=ignore",
            _ => word,
        };
        Self::parse_pairs(word)
    }

    /// Parses `return=action` pairs. As in libpam, a name ends as soon as it is complete, so that the
    /// blank before the next pair may be missing.
    fn parse_pairs(text: &str) -> Result<Self, Rejection> {
        let malformed = || Rejection::BadControl(text.to_owned());
        let mut control = Self::ALL_BAD;
        let mut rest = trim_blanks(text);
        while !rest.is_empty() {
            let (code, after) = parse_return(rest).ok_or_else(malformed)?;
            let after = trim_blanks(after).strip_prefix('=').ok_or_else(malformed)?;
            let (action, after) = parse_action(trim_blanks(after), text)?;
            control.set(code, action);
            rest = trim_blanks(after);
        }
        Ok(control)
    }

    /// Sets the action of the value with this index; it replaces an earlier one. Without an index the pair is
    /// `default`, which fills in the values that have no action yet.
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

    /// Returns the line's action for every return value of a module but `PAM_INCOMPLETE`, each pair once, since
    /// [`Return`] tells few values apart.
    pub(super) fn outcomes(&self) -> Vec<(Return, Action)> {
        let outcome = |(name, action): (&&str, &Option<Action>)| {
            let code = match *name {
                "success" => Return::Success,
                "ignore" => Return::Ignore,
                "new_authtok_reqd" => Return::Renew,
                // The application calls again; no session is open afterwards.
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

    /// Lists the outcomes of a line whose module returns what `returns` allows: each value with the line's action. A
    /// request for a new password is never among them: a comparison of two stacks leaves out accounts whose password is
    /// due. Which stack reaches the line is not known here; for account checks that only the new one reaches, the
    /// comparison asks with [`ModuleReturn::Success`].
    pub(super) fn returning(&self, returns: ModuleReturn) -> Vec<(Return, Action)> {
        let only = |code: Return, name: &str| vec![(code, self.action_at(name))];
        match returns {
            ModuleReturn::Success => only(Return::Success, "success"),
            ModuleReturn::Denied => only(Return::Other, "perm_denied"),
            ModuleReturn::Ignore => only(Return::Ignore, "ignore"),
            ModuleReturn::Any
            | ModuleReturn::AccountCheck
            | ModuleReturn::IgnorableAccountCheck => {
                let may_ignore = returns != ModuleReturn::AccountCheck;
                let mut outcomes = self.outcomes();
                outcomes.retain(|(code, _)| *code != Return::Renew);
                outcomes.retain(|(code, _)| may_ignore || *code != Return::Ignore);
                outcomes
            }
        }
    }

    /// Returns whether a module that cannot be loaded counts as a failure (`module_unknown`).
    pub(super) fn fails_without_module(&self) -> bool {
        matches!(self.action_at("module_unknown"), Action::Bad | Action::Die)
    }

    /// Returns whether a line that libpam cannot understand counts as a failure: it then acts as if its module had returned
    /// `PAM_PERM_DENIED` (`PAM_MUST_FAIL_CODE`), so that `optional` and `sufficient` ignore it.
    pub(super) fn fails_at_mistake(&self) -> bool {
        matches!(self.action_at("perm_denied"), Action::Bad | Action::Die)
    }

    /// Returns the action at the value of this name.
    pub(super) fn action_at(&self, name: &str) -> Action {
        let index = RETURNS.iter().position(|listed| *listed == name);
        let action = index.and_then(|index| self.0.get(index).copied().flatten());
        action.unwrap_or(Action::Bad)
    }

    /// Returns whether `PAM_NEW_AUTHTOK_REQD` counts as a failure. libpam returns the first failure of a stack, and
    /// applications admit the account at this one, so that no later failure would refuse it.
    pub(super) fn fails_renewal(&self) -> bool {
        let is_bad = |action| matches!(action, Action::Bad | Action::Die);
        self.outcomes()
            .iter()
            .any(|(code, action)| *code == Return::Renew && is_bad(*action))
    }

    /// Returns whether it acts for our module as `required` or `requisite` do: success counts, every failure
    /// refuses, and `PAM_IGNORE` neither jumps nor resets. Two values do not matter: `new_authtok_reqd`, which our
    /// module never returns, and `incomplete`, after which the application calls again.
    pub(super) fn is_required(&self) -> bool {
        let is_accepted = |(name, action): (&&str, &Option<Action>)| {
            let action = action.unwrap_or(Action::Bad);
            match *name {
                "success" => matches!(action, Action::Ok | Action::Done),
                "ignore" => !matches!(action, Action::Jump(_) | Action::Reset),
                "new_authtok_reqd" | "incomplete" => true,
                _ => matches!(action, Action::Bad | Action::Die),
            }
        };
        RETURNS.iter().zip(&self.0).all(is_accepted)
    }
}

/// Parses a return value: its index in [`RETURNS`], or `None` for `default`, and the text after it. The outer `None`
/// stands for a text that begins with neither.
fn parse_return(text: &str) -> Option<(Option<usize>, &str)> {
    let mut names = RETURNS.iter().enumerate();
    let named = names.find_map(|(code, name)| Some((Some(code), text.strip_prefix(name)?)));
    named.or_else(|| Some((None, text.strip_prefix("default")?)))
}

/// Parses an action of the control `text`; returns it and what follows it.
///
/// # Errors
///
/// [`Rejection::BadControl`] for a text that begins with no action or jumps over no lines; [`Rejection::HugeJump`].
fn parse_action<'a>(rest: &'a str, text: &str) -> Result<(Action, &'a str), Rejection> {
    for (name, action) in ACTIONS {
        if let Some(after) = rest.strip_prefix(name) {
            return Ok((action, after));
        }
    }
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = rest.strip_suffix(after).unwrap_or_default();
    // This holds for no digits at all, too. libpam rejects jumps over no lines.
    if digits.bytes().all(|digit| digit == b'0') {
        return Err(Rejection::BadControl(text.to_owned()));
    }
    match digits.parse::<i32>() {
        Ok(count) => Ok((Action::Jump(count.unsigned_abs() as usize), after)),
        Err(_) => Err(Rejection::HugeJump(digits.to_owned())),
    }
}

/// Skips what isspace(3) takes for a blank.
fn trim_blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_words_equal_their_pairs() {
        let required = Control::parse("success=ok new_authtok_reqd=ok ignore=ignore default=bad");
        assert!(required.is_ok());
        assert_eq!(Control::parse("required"), required);
        assert_eq!(Control::parse("Required"), required);
        let requisite =
            Control::parse(" default = die success=ok ignore=ignorenew_authtok_reqd=ok");
        assert_eq!(Control::parse("requisite"), requisite);
    }

    #[test]
    fn control_that_libpam_rejects_is_rejected() {
        for word in [
            "x",
            "success",
            "success=",
            "success=0",
            "success=00",
            "success=okay",
            "success=-1",
            "ok=success",
            "success=1\u{a0}default=ignore",
            "success=ok,default=bad",
            "mandatory",
        ] {
            assert_eq!(
                Control::parse(word),
                Err(Rejection::BadControl(word.to_owned()))
            );
        }
        for number in [
            "2147483648",
            "4294967294",
            "4294967297",
            "99999999999999999999999",
        ] {
            let word = format!("default=ignore success={number}");
            assert_eq!(
                Control::parse(&word),
                Err(Rejection::HugeJump(number.to_owned()))
            );
        }
        let widest = Control::parse("default=2147483647").unwrap();
        assert!(
            widest
                .outcomes()
                .contains(&(Return::Success, Action::Jump(2_147_483_647)))
        );
        assert_eq!(Control::parse(" \u{b}\u{c}").unwrap(), Control::ALL_BAD);
    }

    #[test]
    fn outcomes_distinguish_success_ignore_and_renew() {
        let outcomes = Control::parse("success=2 default=ignore")
            .unwrap()
            .outcomes();
        let expected = [
            (Return::Success, Action::Jump(2)),
            (Return::Ignore, Action::Ignore),
            (Return::Renew, Action::Ignore),
            (Return::Other, Action::Ignore),
        ];
        assert_eq!(outcomes, expected);
    }

    #[test]
    fn pairs_that_act_as_required_are_required() {
        for word in [
            "required",
            "requisite",
            "success=ok default=bad",
            "success=done default=die",
            "success=ok ignore=ignore default=die",
        ] {
            assert!(Control::parse(word).unwrap().is_required(), "{word}");
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
            "",
        ] {
            assert!(!Control::parse(word).unwrap().is_required(), "{word}");
        }
    }
}
