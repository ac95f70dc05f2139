//! Files that only root may have written.

use super::own_command::{OwnCommand, OwnFile};
use super::remedy::{Remedy, run, shell_path};
use facts::trusted_file::find_closed_folder;
use facts::trusted_file::is_exposed;
use kernel::trust::{Distrust, TrustError};
use nix::errno::Errno;
use protocol::Request;
use std::path::Path;

/// Names the remedy for a file or directory that others can write or the helper cannot read. What others could write
/// has no command: one that gave it to root would make root's what they have written. Nor has what may hold a secret, such
/// as a part of slurm.conf, or a file that a mistyped argument names.
pub(super) fn trust_remedy(error: &TrustError) -> Remedy {
    let path = shell_path(error.path());
    if is_exposed(error) {
        return format!(
            "others could write {path}: look at it, and at what is in it, and replace what root did not write; only \
             then chown root: {path} && chmod go-w {path}"
        )
        .into();
    }
    match error.cause() {
        Distrust::Open(Errno::EACCES) => match find_closed_folder(error.path()) {
            // Who may pass a folder such as /root is for a person.
            Some(folder) => {
                let folder = shell_path(folder);
                format!(
                    "{folder} lets only some pass: put {path} elsewhere, or, if everybody may pass it, chmod o+x {folder}"
                )
                .into()
            }
            // It has no secrets, and keeps its owner: a user's file is the next finding.
            None if error.path() == Path::new(Request::DEFAULT_CONF) => {
                run(OwnCommand::reset_mode(OwnFile::Configuration))
            }
            None => format!(
                "the helper, and so everybody, has to read {path}: if there is no secret in it, chmod a+rX {path}"
            )
            .into(),
        },
        _ => format!("replace {path} by one that only root can write").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    /// The mode of the file changes nothing then.
    #[test]
    fn folder_that_keeps_the_helper_out_is_named_instead_of_its_file() {
        let scratch = Scratch::new();
        let conf = scratch.file("root/site/conf", "");
        scratch.mode("root", 0o700);
        let error = TrustError::new(&conf, Distrust::Open(Errno::EACCES));
        let remedy = trust_remedy(&error);
        assert_eq!(remedy.command(), "");
        let folder = scratch.path().join("root").display().to_string();
        let advice = format!("{folder} lets only some pass");
        assert!(remedy.advice().starts_with(&advice), "{remedy}");
        scratch.mode("root", 0o755);
        let of_file = trust_remedy(&error);
        let part = format!("chmod a+rX {}", conf.display());
        assert!(of_file.advice().ends_with(&part), "{of_file}");
    }

    /// slurm.conf may include a file with the password of the database.
    #[test]
    fn no_command_lets_everybody_read_a_file_but_our_configuration() {
        for (path, command) in [
            (
                "/etc/security/job_adopt.conf",
                "chmod a+rX /etc/security/job_adopt.conf",
            ),
            ("/etc/shadow", ""),
            ("/etc/slurm/secret.conf", ""),
        ] {
            let error = TrustError::new(Path::new(path), Distrust::Open(Errno::EACCES));
            assert_eq!(trust_remedy(&error).command(), command);
        }
    }

    #[test]
    fn file_that_others_could_write_is_looked_at_before_it_becomes_roots() {
        let remedy = |cause| trust_remedy(&TrustError::new(Path::new("/etc/x"), cause));
        for cause in [Distrust::WrongOwner(7), Distrust::Writable(0o666)] {
            let remedy = remedy(cause);
            assert_eq!(remedy.command(), "");
            assert!(
                remedy
                    .advice()
                    .contains("others could write /etc/x: look at it")
            );
        }
    }
}
