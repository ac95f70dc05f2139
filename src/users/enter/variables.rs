//! The variables of what a login runs in a container.
//!
//! They are those of the container's process, which has them already, as `podman exec` and `apptainer shell` take
//! those of the container. Of the login's own only `TERM` comes with it: others may be secrets, such as the socket
//! of an ssh agent.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Beginnings of the names of variables that belong to one rank of an MPI program: they name a connection that
/// only that process has.
const RANK_PREFIXES: [&str; 2] = ["PMI_", "PMIX_"];
/// Variables that a container's process may lack, with the values that podman gives them.
const DEFAULTS: [(&str, &str); 2] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("HOME", "/"),
];

pub(super) type Variables = BTreeMap<OsString, OsString>;

/// Chooses the variables from the text of `/proc/PID/environ`, without those of an MPI rank, and adds [`DEFAULTS`] for
/// those that it lacks, and the login's terminal type if there is one.
pub(super) fn choose_variables(environ: &[u8], term: Option<OsString>) -> Variables {
    let mut variables: Variables = DEFAULTS
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    for text in environ.split(|byte| *byte == 0) {
        let Some(end) = text.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = text.split_at(end);
        let is_of_rank = RANK_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()));
        if !name.is_empty() && !is_of_rank {
            let value = OsStr::from_bytes(value.get(1..).unwrap_or_default());
            variables.insert(OsString::from_vec(name.to_vec()), value.to_owned());
        }
    }
    variables.extend(term.map(|term| ("TERM".into(), term)));
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(environ: &[u8], term: Option<&str>) -> Vec<String> {
        choose_variables(environ, term.map(OsString::from))
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .collect()
    }

    #[test]
    fn variables_are_those_of_the_container_and_the_terminals() {
        let environ = b"PATH=/opt/bin\0A=b=c\0TERM=dumb\0EMPTY=\0";
        let expected = ["A=b=c", "EMPTY=", "HOME=/", "PATH=/opt/bin", "TERM=xterm"];
        assert_eq!(chosen(environ, Some("xterm")), expected);
        assert!(chosen(environ, None).contains(&"TERM=dumb".to_owned()));
    }

    #[test]
    fn connection_of_a_rank_and_malformed_text_are_left_out() {
        let environ = b"PMI_FD=9\0PMIX_RANK=1\0SLURM_JOB_ID=7\0=x\0nothing\0\0";
        let expected = [
            "HOME=/",
            &format!("PATH={}", DEFAULTS[0].1),
            "SLURM_JOB_ID=7",
        ];
        assert_eq!(chosen(environ, None), expected);
    }

    #[test]
    fn name_that_is_not_utf8_is_kept() {
        let variables = choose_variables(b"\xff=\xfe\0", None);
        assert_eq!(
            variables
                .get(OsStr::from_bytes(b"\xff"))
                .map(|v| v.as_bytes()),
            Some(&b"\xfe"[..])
        );
    }
}
