//! What `sshd -T` says (sshd(8)): a key in small letters and its value on each line.

/// What matters of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Effective {
    /// `UsePAM`.
    pub(super) use_pam: bool,
    /// `PAMServiceName` (OpenSSH 9.8), else the program's name.
    pub(super) service: String,
    /// `PermitUserEnvironment`, where that is not `no`.
    pub(super) user_environment: Option<String>,
    /// `KbdInteractiveAuthentication`, and no `AuthenticationMethods` without it.
    pub(super) keyboard: bool,
    /// The first number of `MaxStartups`, and all of it.
    pub(super) startups: Option<(u32, String)>,
    /// `PerSourcePenalties` (OpenSSH 9.8) from which nobody is exempt.
    pub(super) penalties: bool,
}

impl Effective {
    /// Reads the text that the program of this name wrote.
    pub(super) fn parse(text: &str, program: &str) -> Self {
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(own, _)| own.eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
        };
        let is = |key: &str, wanted: &str| value(key) == Some(wanted);
        let methods = value("authenticationmethods").unwrap_or("any");
        let startups = value("maxstartups").and_then(|whole| {
            let begin = whole.split(':').next()?.parse().ok()?;
            Some((begin, whole.to_owned()))
        });
        let exempt = value("persourcepenaltyexemptlist").is_some_and(|list| list != "none");
        Self {
            use_pam: is("usepam", "yes"),
            service: value("pamservicename").unwrap_or(program).to_owned(),
            user_environment: value("permituserenvironment")
                .filter(|value| *value != "no")
                .map(str::to_owned),
            keyboard: is("kbdinteractiveauthentication", "yes")
                && (methods == "any" || methods.contains("keyboard-interactive")),
            startups,
            penalties: value("persourcepenalties").is_some_and(|value| value != "no") && !exempt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_names_the_service_where_nothing_else_does() {
        assert_eq!(Effective::parse("usepam yes\n", "sshd-alt").service, "sshd-alt");
        assert_eq!(Effective::parse("pamservicename x\n", "sshd-alt").service, "x");
    }

    #[test]
    fn methods_without_the_keyboard_are_none() {
        let keyboard = |methods: &str| {
            let text =
                format!("kbdinteractiveauthentication yes\nauthenticationmethods {methods}\n");
            Effective::parse(&text, "sshd").keyboard
        };
        assert!(keyboard("any") && keyboard("publickey,keyboard-interactive:pam"));
        assert!(!keyboard("publickey"));
    }
}
