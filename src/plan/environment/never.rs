//! Names of variables that no login is given, whoever asks for them.

/// Names that decide which code a program loads or runs, where a login looks for its own things,
/// or who it is. Whoever may set one of them could run commands as the user.
const NEVER: &[&str] = &[
    "BROWSER",
    "CDPATH",
    "EDITOR",
    "ENV",
    "EXINIT",
    "FPATH",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "GLOBIGNORE",
    "HISTFILE",
    "HOME",
    "HOSTALIASES",
    "IFS",
    "INPUTRC",
    "JAVA_TOOL_OPTIONS",
    "LESSCLOSE",
    "LESSOPEN",
    "LOCALDOMAIN",
    "LOCPATH",
    "LOGNAME",
    "MAIL",
    "MANPAGER",
    "NLSPATH",
    "OLDPWD",
    "PAGER",
    "PATH",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "PWD",
    "RES_OPTIONS",
    "SHELL",
    "SHELLOPTS",
    "SHLVL",
    "TERMCAP",
    "TERMINFO",
    "TMPDIR",
    "TZDIR",
    "USER",
    "VIMINIT",
    "VISUAL",
    "ZDOTDIR",
];
/// The same for whole families.
const NEVER_PREFIX: &[&str] = &[
    "BASH",
    "CUDA_INJECTION",
    "DBUS_",
    "GIT_",
    "JDK_",
    "KRB5",
    "LD_",
    "LUA_",
    "MALLOC_",
    "NODE_",
    "NPM_",
    "OPENSSL_",
    "PAM_",
    "PERL",
    "PYTHON",
    "R_",
    "RESOLV_",
    "RUBY",
    "SSH_",
    "SUDO_",
    "SYSTEMD_",
    "TERMINFO_",
    "XDG_",
    "_JAVA",
];
/// And by their end.
const NEVER_SUFFIX: &[&str] = &["_PRELOAD"];

/// Whether no login is given a variable of that name.
pub(super) fn is_never_given(name: &str) -> bool {
    NEVER.contains(&name)
        || NEVER_PREFIX.iter().any(|prefix| name.starts_with(prefix))
        || NEVER_SUFFIX.iter().any(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use crate::plan::{Variable, VariableError, VariableName};

    #[test]
    fn no_name_that_decides_what_programs_run_is_taken() {
        for bad in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "PATH",
            "IFS",
            "ENV",
            "BASH_ENV",
            "SHELL",
            "HOME",
            "USER",
            "LOGNAME",
            "PYTHONPATH",
            "PERL5LIB",
            "GCONV_PATH",
            "LOCPATH",
            "NLSPATH",
            "MALLOC_CHECK_",
            "GLIBC_TUNABLES",
            "FOO_PRELOAD",
            "XDG_RUNTIME_DIR",
            "DBUS_SESSION_BUS_ADDRESS",
            "KRB5CCNAME",
            "SSH_AUTH_SOCK",
            "PAM_X",
            "PROMPT_COMMAND",
            "PS1",
        ] {
            assert_eq!(bad.parse::<VariableName>(), Err(VariableError::Never), "{bad}");
            assert_eq!(format!("{bad}=x").parse::<Variable>(), Err(VariableError::Never), "{bad}");
        }
    }
}
