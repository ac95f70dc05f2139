//! Why a step daemon tells nothing of its job.

use crate::jobs::sources::doubt::FaultKind;
use nix::errno::Errno;
use schedulers::stepd::Error;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Tells why nothing is known of a job whose daemon has this error.
pub(super) fn fault_kind(error: &Error) -> FaultKind {
    match error {
        // A daemon that hung up may have a running job as well.
        Error::Timeout | Error::ConnectionClosed => FaultKind::Silent,
        _ => FaultKind::Broken,
    }
}

/// The mode that Slurm gives its sockets (`_domainsocket_create` of `slurmstepd`).
const SOCKET_MODE: u32 = 0o777;

/// Describes why a daemon cannot be asked: by the mode of its socket, if that is why.
pub(super) fn describe_error(path: &Path, error: &Error) -> String {
    if matches!(error, Error::SystemCall(_, Errno::EACCES)) {
        let mode = path.symlink_metadata().map(|meta| meta.mode() & 0o7777);
        match mode {
            Ok(mode) if mode & SOCKET_MODE != SOCKET_MODE => {
                return format!(
                    "its mode is {mode:04o}, and Slurm makes {SOCKET_MODE:04o}: {error}"
                );
            }
            _ => {}
        }
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    /// Slurm lets every user connect: the daemon knows its callers.
    #[test]
    fn mode_of_a_socket_that_keeps_logins_out_is_named() {
        let scratch = crate::testing::Scratch::new();
        let path = scratch.file("n1_7.4294967292", "");
        let denied = Error::SystemCall("connect", Errno::EACCES);
        let describe = |mode: u32, error: &Error| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            describe_error(&path, error)
        };
        assert_eq!(
            describe(0o700, &denied),
            format!("its mode is 0700, and Slurm makes 0777: {denied}")
        );
        assert_eq!(describe(0o777, &denied), denied.to_string());
        assert_eq!(describe(0o700, &Error::Timeout), Error::Timeout.to_string());
    }
}
