//! Slurm's own account.

use nix::unistd::User;

use crate::trust::{Distrust, Trust, TrustError};

/// The account that packages of Slurm make. `slurmctld` runs as it and has jobs started as root, so
/// that it gains nothing by what it owns on a node.
const ACCOUNT: &str = "slurm";

/// What `read` believes, and where an owner alone speaks against it, what it believes with Slurm's
/// account taken for root. The account is looked up only then, since that may ask a directory
/// service.
///
/// # Errors
/// Those of `read`.
pub fn believed<T>(
    trust: &Trust,
    read: impl Fn(&Trust) -> Result<T, TrustError>,
) -> Result<T, TrustError> {
    let error = match read(trust) {
        Err(error) => error,
        good => return good,
    };
    match error.cause() {
        Distrust::Owner(uid) if is_slurms(*uid) => read(&trust.clone().or_owned_by(*uid)),
        _ => Err(error),
    }
}

fn is_slurms(uid: u32) -> bool {
    User::from_name(ACCOUNT).ok().flatten().is_some_and(|user| user.uid.as_raw() == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::tests::Scratch;

    #[test]
    fn slurms_account_is_believed_and_no_other() {
        let Ok(Some(slurm)) = User::from_name(ACCOUNT) else {
            println!("no account {ACCOUNT}: skipped");
            return;
        };
        if !nix::unistd::Uid::effective().is_root() {
            println!("not root: skipped");
            return;
        }
        let scratch = Scratch::new();
        let path = scratch.file("etc/slurm.conf", "x");
        let read = || believed(&scratch.trust(), |trust| trust.read(&path, 9));
        let give = |uid| std::os::unix::fs::chown(scratch.path().join("etc"), Some(uid), None);
        give(slurm.uid.as_raw()).unwrap();
        assert_eq!(read(), Ok(b"x".to_vec()));
        scratch.mode("etc", 0o775);
        assert!(matches!(read().unwrap_err().cause(), Distrust::Writable(_)));
        scratch.mode("etc", 0o755);
        give(slurm.uid.as_raw() + 1).unwrap();
        assert!(matches!(read().unwrap_err().cause(), Distrust::Owner(_)));
    }
}
