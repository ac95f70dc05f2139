//! Names that earlier versions knew, and what replaces each. Whoever still writes one is refused,
//! like anybody who writes a name that is unknown, and is told what to do instead.

/// Removed names, each with the rest of the sentence that refuses it.
pub type Removed = [(&'static str, &'static str)];

const CDI_ENV: &str = "was removed; logins are given the variables that the key env names, and pam_env can set others";
const CDI_GIDS: &str =
    "was removed; pam_group can add groups, and an auth line of this module does nothing";

const DEVICES: &str = "was removed; devices --cgroup shows what the filters of a job let through";

/// Keys of the configuration.
pub const KEYS: &Removed = &[
    ("cdi_env", CDI_ENV),
    ("cdi_gids", CDI_GIDS),
    (
        "limits",
        "was removed; use ulimit_pam_adopt of slurm.conf, pam_limits, or LimitMEMLOCK= of sshd's unit",
    ),
    ("guarded", "was removed; systemd closes users' slices: job-adopt slices --write"),
];

/// Arguments of the PAM line.
pub const ARGUMENTS: &Removed = &[("cdi_env", CDI_ENV), ("cdi_gids", CDI_GIDS)];

/// Commands of `job-adopt` (`NAME`), and their options (`COMMAND --OPTION`).
pub const COMMAND_LINE: &Removed = &[
    (
        "check --live",
        "was removed; try the stack with pamtester(1), and see what a login would get with job-adopt \
         resolve --user",
    ),
    ("devices --policy", DEVICES),
    ("devices --would-deny", DEVICES),
    ("guard", "was removed; systemd closes users' slices: job-adopt slices --write"),
];

/// What is said of a name, where it was removed.
#[must_use]
pub fn instead(table: &Removed, name: &str) -> Option<&'static str> {
    table.iter().find(|(removed, _)| *removed == name).map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::Config;

    #[test]
    fn every_removed_key_is_refused_with_its_replacement() {
        for (key, instead) in KEYS {
            let (_, fault) = Config::parse(format!("{key} = none").as_bytes()).unwrap_err();
            assert_eq!(fault.to_string(), format!("key {key} {instead}"));
        }
    }

    #[test]
    fn every_removed_argument_is_refused_with_its_replacement() {
        for (argument, instead) in ARGUMENTS {
            for written in [(*argument).to_owned(), format!("{argument}=1")] {
                let error = crate::module::pam::parse(&[written]).unwrap_err();
                assert_eq!(error.why, *instead);
            }
        }
    }

    #[test]
    fn every_replacement_says_that_the_name_was_removed() {
        for (name, instead) in [KEYS, ARGUMENTS, COMMAND_LINE].concat() {
            assert!(instead.starts_with("was removed; "), "{name}: {instead}");
        }
        assert_eq!(instead(KEYS, "limit"), None);
    }
}
