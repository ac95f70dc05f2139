//! What the arguments of our lines and the configuration name, and what of it this node does not have, or logins cannot use.

use super::file_change::at;
use command::accounts::describe_missing_accounts;
use command::error::Error;
use facts::configuration::{describe_fault, require_configuration};
use facts::own_programs::{describe_helper_fault, read_version, require_helper};
use helper::{Config, printable};
use kernel::trust::Trust;
use module::Settings;
use nix::unistd::Uid;
use protocol::VERSION;
use std::path::Path;

/// Requires that logins can use the files which the arguments name: without one, our lines refuse every login but root's.
/// The usual configuration may be missing: then its defaults hold. In an image the usual helper may be missing too: it
/// comes with the module.
///
/// # Errors
///
/// [`Error::Failed`] with the first file that logins cannot use, and why, in the words of `check`.
pub(super) fn require_files(settings: &Settings, root: &Path) -> Result<(), Error> {
    let usual = Settings::default();
    let is_node = root == Path::new("/");
    let trust = if is_node {
        Trust::root()
    } else {
        // Whoever shows what would change in an image may own it.
        Trust::below(root, 0).or_owned_by(Uid::effective().as_raw())
    };
    let conf = at(root, Path::new(&settings.conf));
    if settings.conf != usual.conf || conf.symlink_metadata().is_ok() {
        require_configuration(&conf, &trust, root)
            .map_err(|error| failed("configuration", &settings.conf, &describe_fault(&error)))?;
    }
    let helper = at(root, Path::new(&settings.helper));
    if is_node || settings.helper != usual.helper || helper.symlink_metadata().is_ok() {
        require_helper(&trust, &helper)
            .map_err(|why| failed("helper", &settings.helper, &describe_helper_fault(&why)))?;
        require_version(&helper, root).map_err(|why| failed("helper", &settings.helper, why))?;
    }
    Ok(())
}

/// Requires that an executable file is a program of this project and, on this node, of this version. Without root's
/// rights, which reading the helper needs, nothing is required. It fails with a text for another file.
fn require_version(helper: &Path, root: &Path) -> Result<(), &'static str> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    match read_version(helper) {
        None => Err("is no program of pam_job_adopt, so every login is refused"),
        Some(version) if root == Path::new("/") && version != VERSION => {
            Err("is of another version than job-adopt, so every login is refused (JA08)")
        }
        Some(_) => Ok(()),
    }
}

/// Reports the file of a kind that logins cannot use. It does not name the argument, which nobody gives for a usual file.
fn failed(kind: &str, path: &str, why: &str) -> Error {
    Error::failed("enable", format!("{kind} {path}"), printable(why))
}

/// Describes each exempt user and group that the name service of this node does not know. An image has another name
/// service, so nothing is known of its accounts.
pub(super) fn describe_missing(
    settings: Option<&Settings>,
    config: Option<&Config>,
    root: &Path,
) -> Vec<String> {
    if root != Path::new("/") {
        return Vec::new();
    }
    let mut missing = Vec::new();
    if let Some(settings) = settings {
        missing.extend(describe_missing_accounts(
            &settings.exempt_uids,
            &settings.exempt_groups,
        ));
    }
    // A missing group of the configuration is an error when the drop-ins are built.
    if let Some(config) = config {
        let texts = describe_missing_accounts(&config.exempt_uids, &[]);
        missing.extend(texts.iter().map(|text| format!("{text} (job_adopt.conf)")));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use protocol::VERSION_MISMATCH;

    fn settings(words: &[&str]) -> Settings {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Settings::parse(&words).unwrap()
    }

    #[test]
    fn file_that_logins_cannot_use_is_refused_by_name() {
        let image = Scratch::new();
        assert!(require_files(&settings(&[]), image.path()).is_ok());
        let conf = "conf=/etc/site.conf";
        let helper = "helper=/opt/helper";
        let refusal = |argument: &str| {
            let result = require_files(&settings(&[argument]), image.path());
            result.map_err(|error| error.to_string()).err()
        };
        let assert_refused = |argument: &str, why: &str| {
            let text = refusal(argument).unwrap_or_default();
            let file = argument
                .replace("conf=", "configuration ")
                .replace('=', " ");
            let begin = format!("enable {file}: ");
            let is_named = text.starts_with(&begin) && text.contains(why);
            assert!(is_named, "{argument}: {why:?}: {text:?}");
        };
        assert_refused(conf, "cannot be used, so every login is refused (JA09)");
        assert_refused(helper, "cannot be run, so every login is refused (JA09)");
        image.file("etc/other.conf", "");
        let link = image.path().join("etc/site.conf");
        std::os::unix::fs::symlink("other.conf", &link).unwrap();
        assert_refused(conf, "a symbolic link");
        std::fs::remove_file(&link).unwrap();
        image.file("etc/site.conf", "key = value\n");
        assert_refused(conf, "has a mistake, so every login is refused (JA09)");
        image.file("etc/site.conf", "");
        assert_eq!(refusal(conf), None);
        assert_refused("conf=/etc", "cannot be used");
        image.file("opt/helper", "");
        assert_refused(helper, "has mode 0644");
        image.mode("opt/helper", 0o711);
        if Uid::effective().is_root() {
            assert_refused(helper, "is no program of pam_job_adopt");
        }
        // The image decides about the version.
        image.file("opt/helper", &VERSION_MISMATCH.replace(VERSION, "0.0.1"));
        image.mode("opt/helper", 0o711);
        assert_eq!(refusal(helper), None);
        assert_refused("helper=/opt", "not a regular file");
        // Nobody gave an argument for the usual one.
        image.file("etc/security/job_adopt.conf", "key = value\n");
        let usual = require_files(&settings(&[]), image.path()).unwrap_err();
        let begin = "enable configuration /etc/security/job_adopt.conf: has a mistake";
        assert!(usual.to_string().starts_with(begin), "{usual}");
    }

    #[test]
    fn unknown_group_and_uid_are_named_but_not_in_an_image() {
        let words = settings(&[
            "exempt_groups=root,no-such-group",
            "exempt_uids=0,4294967000",
        ]);
        let missing = describe_missing(Some(&words), None, Path::new("/"));
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(
            missing[0].starts_with("exempt_uids=4294967000: "),
            "{missing:?}"
        );
        assert!(
            missing[1].starts_with("exempt_groups=no-such-group: "),
            "{missing:?}"
        );
        let image = Scratch::new();
        assert!(describe_missing(Some(&words), None, image.path()).is_empty());
    }
}
