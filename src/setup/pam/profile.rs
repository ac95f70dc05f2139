//! Profiles of pam-auth-update(8) with a module that decides about logins, as Debian's package of pam_slurm_adopt has one.
//!
//! `enable` cannot replace their lines, which are in files of several services: the admin turns the profile off. So no
//! mark in the service's file shows what has to come back.

use super::stack::Stack;
use command::error::Error;
use command::output::Output;
use facts::rival_modules::RIVAL_MODULES;
use helper::stack::{Group, is_missing_module};
use std::fs;
use std::path::Path;

/// The folder of the profiles.
const PROFILE_DIR: &str = "usr/share/pam-configs";
/// The files by which pam_nologin lets nobody in but root.
const NOLOGIN_FILES: [&str; 2] = ["etc/nologin", "run/nologin"];

/// What keeps users without a job out of a service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// A line that judges logins.
    Judged,
    /// The file of pam_nologin, for now; the profile that is off, if there is one.
    Shut(Option<String>),
    /// Nothing, and a profile is off that could.
    ProfileOff(String),
    /// Nothing.
    Open,
}

impl Stack<'_> {
    /// Finds what keeps users without a job out if the service's file has this text.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a stack that cannot be read.
    pub(crate) fn find_door(&self, text: &[u8]) -> Result<Door, Error> {
        if self.has_judge(text)? {
            return Ok(Door::Judged);
        }
        let profile = find_profile(self.root);
        let account = self.read_entries(Group::Account, text)?;
        let asks_nologin = account.iter().any(|entry| entry.file() == "pam_nologin.so");
        if asks_nologin
            && NOLOGIN_FILES
                .iter()
                .any(|file| self.root.join(file).exists())
        {
            return Ok(Door::Shut(profile));
        }
        Ok(profile.map_or(Door::Open, Door::ProfileOff))
    }

    /// Warns if a profile is off and nothing else keeps users without a job out, or only the file of pam_nologin does.
    /// Returns whether nothing does.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a stack that cannot be read.
    pub(crate) fn warn_if_profile_off(&self, output: &mut Output<'_>) -> Result<bool, Error> {
        match self.find_door(&self.text)? {
            Door::ProfileOff(profile) => {
                output.warn(format_args!(
                    "warning: nothing keeps users without a job out now: pam-auth-update --enable {profile}"
                ));
                Ok(true)
            }
            Door::Shut(Some(profile)) => {
                output.warn(format_args!(
                    "warning: only nologin keeps users without a job out now: pam-auth-update --enable {profile} \
                     before you remove it"
                ));
                Ok(false)
            }
            Door::Judged | Door::Shut(None) | Door::Open => Ok(false),
        }
    }
}

/// Finds the first profile with a module that decides about logins and is installed. Without a folder of profiles there
/// is none.
fn find_profile(root: &Path) -> Option<String> {
    let mut names: Vec<String> = fs::read_dir(root.join(PROFILE_DIR))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.into_iter().find(|name| {
        let text = fs::read(root.join(PROFILE_DIR).join(name)).unwrap_or_default();
        calls_rival(root, &String::from_utf8_lossy(&text))
    })
}

/// Whether a profile has a line of such a module. Its lines are those of a stack without their group.
fn calls_rival(root: &Path, profile: &str) -> bool {
    profile.split_whitespace().any(|word| {
        let file = word.rsplit('/').next().unwrap_or_default();
        RIVAL_MODULES.contains(&file) && !is_missing_module(root, word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const PROFILE: &str = "Name: Slurm\nDefault: no\nAccount-Type: Additional\nAccount:\n\
                           \trequired\tpam_slurm_adopt.so action_adopt_failure=deny\n";

    #[test]
    fn profile_counts_if_its_module_is_installed() {
        let scratch = Scratch::new();
        scratch.file(
            "usr/share/pam-configs/unix",
            "Name: Unix\nAuth:\n\tpam_unix.so\n",
        );
        scratch.file("usr/share/pam-configs/slurm-adopt", PROFILE);
        // Without a module of libpam the folder of modules is not known, and none is missing.
        scratch.file("usr/lib/security/pam_permit.so", "");
        assert_eq!(find_profile(scratch.path()), None);
        scratch.file("usr/lib/security/pam_slurm_adopt.so", "");
        assert_eq!(find_profile(scratch.path()).as_deref(), Some("slurm-adopt"));
        assert_eq!(find_profile(Scratch::new().path()), None);
    }

    #[test]
    fn door_is_judged_shut_or_open() {
        let scratch = Scratch::new();
        let file = "account required pam_nologin.so\naccount required pam_unix.so\nsession required pam_unix.so\n";
        scratch.file("etc/pam.d/sshd", file);
        scratch.file("usr/lib/security/pam_slurm_adopt.so", "");
        let door = || {
            let stack = Stack::read(scratch.path(), "sshd").unwrap();
            stack.find_door(&stack.text).unwrap()
        };
        assert_eq!(door(), Door::Open);
        scratch.file("etc/nologin", "");
        assert_eq!(door(), Door::Shut(None));
        scratch.file("usr/share/pam-configs/slurm-adopt", PROFILE);
        assert_eq!(door(), Door::Shut(Some("slurm-adopt".to_owned())));
        std::fs::remove_file(scratch.path().join("etc/nologin")).unwrap();
        assert_eq!(door(), Door::ProfileOff("slurm-adopt".to_owned()));
        scratch.file(
            "etc/pam.d/sshd",
            &format!("account required pam_slurm_adopt.so\n{file}"),
        );
        assert_eq!(door(), Door::Judged);
    }
}
