//! Names of variables that no login is given, whoever asks for them.

/// Names that decide which code a program loads or runs, where a login looks for its own things,
/// or who it is. Whoever may set one of them could run commands as the user.
const NEVER: &[&str] = &[
    "BROWSER",
    "CDPATH",
    "CLASSPATH",
    "DISPLAY",
    "EDITOR",
    "EMACSLOADPATH",
    "ENV",
    "EXINIT",
    "FCEDIT",
    "FLUX_CONNECTOR_PATH",
    "FLUX_EXEC_PATH",
    "FLUX_MODULE_PATH",
    "FLUX_URI",
    "FPATH",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "GLOBIGNORE",
    "GNUPGHOME",
    "HISTFILE",
    "HOME",
    "HOSTALIASES",
    "HSA_TOOLS_LIB",
    "IFS",
    "INPUTRC",
    "JAVA_TOOL_OPTIONS",
    "LOCALDOMAIN",
    "LOCPATH",
    "LOGNAME",
    "MANPAGER",
    "NLSPATH",
    "NULLCMD",
    "OCL_ICD_FILENAMES",
    "OCL_ICD_VENDORS",
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
    "READNULLCMD",
    "RES_OPTIONS",
    "SHELL",
    "SHELLOPTS",
    "SHLVL",
    "SLURM_CONF",
    "TAR_OPTIONS",
    "TERMCAP",
    "TERMINFO",
    "TMPDIR",
    "TZDIR",
    "USER",
    "VISUAL",
    "XAUTHORITY",
    "ZDOTDIR",
];
/// The same for whole families.
const NEVER_PREFIX: &[&str] = &[
    "BASH",
    "CUDA_INJECTION",
    "DBUS_",
    "GIT_",
    "HYDRA_",
    "JDK_",
    "KRB5",
    "LD_",
    "LESS",
    "LMOD_",
    "LUA_",
    "MAIL",
    "MAKE",
    "MALLOC_",
    "MODULE",
    "NODE_",
    "NPM_",
    "OMPI_MCA_",
    "OPENSSL_",
    "PAM_",
    "PERL",
    "PMIX_MCA_",
    "PRTE_MCA_",
    "PYTHON",
    "RESOLV_",
    "RUBY",
    "R_",
    "SSH_",
    "SUDO_",
    "SYSTEMD_",
    "TERMINFO_",
    "VIM",
    "VK_",
    "XDG_",
    "_JAVA",
    "__EGL_",
];
/// And by their end.
const NEVER_SUFFIX: &[&str] =
    &["_ASKPASS", "_EDITOR", "_INJECTION64_PATH", "_PAGER", "_PLUGIN_PATH", "_PRELOAD", "_RSH"];

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
            // A shell expands the text of its messages.
            "MAILPATH",
            "LESSOPEN",
            "LESSKEYIN",
            "VIMRUNTIME",
            "LMOD_CMD",
            "MODULEPATH",
            "OMPI_MCA_plm_rsh_agent",
            "SLURM_CONF",
            "DISPLAY",
            "SSH_ASKPASS",
            "SVN_EDITOR",
            "NVTX_INJECTION64_PATH",
        ] {
            assert_eq!(bad.parse::<VariableName>(), Err(VariableError::Never), "{bad}");
            assert_eq!(format!("{bad}=x").parse::<Variable>(), Err(VariableError::Never), "{bad}");
        }
    }

    #[test]
    fn what_devices_ask_for_is_taken() {
        for good in [
            "CUDA_VISIBLE_DEVICES",
            "HABANA_VISIBLE_DEVICES",
            "NVIDIA_DRIVER_CAPABILITIES",
            "NVIDIA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "SLURM_JOB_ID",
            "UCX_NET_DEVICES",
        ] {
            assert!(good.parse::<VariableName>().is_ok(), "{good}");
        }
    }
}
