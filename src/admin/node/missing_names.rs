//! What the arguments of our lines and the configuration name, and what of it this node does not have.

use super::file_change::at;
use crate::accounts::describe_missing_accounts;
use crate::error::Error;
use helper::Config;
use module::Settings;
use std::path::Path;

/// Checks that the files exist which the arguments name: without one, our lines refuse every login but root's. The usual
/// configuration may be missing, since its defaults then hold, and the usual helper comes with the module.
///
/// # Errors
///
/// [`Error::Failed`] with the first argument whose file is missing.
pub(super) fn require_files(settings: &Settings, root: &Path) -> Result<(), Error> {
    let usual = Settings::default();
    for (argument, path, usual_path) in [
        ("conf", &settings.conf, &usual.conf),
        ("helper", &settings.helper, &usual.helper),
    ] {
        if path != usual_path && !at(root, Path::new(path)).exists() {
            let why = "no such file, without which every login is refused";
            return Err(Error::failed(
                "enable",
                format_args!("argument {argument}={path}"),
                why,
            ));
        }
    }
    Ok(())
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

    fn settings(words: &[&str]) -> Settings {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Settings::parse(&words).unwrap()
    }

    #[test]
    fn missing_file_of_an_argument_is_refused_by_name() {
        let image = Scratch::new();
        assert!(require_files(&settings(&[]), image.path()).is_ok());
        for argument in ["conf=/etc/site.conf", "helper=/opt/helper"] {
            let error = require_files(&settings(&[argument]), image.path()).unwrap_err();
            assert!(error.to_string().contains(argument), "{error}");
        }
        image.file("etc/site.conf", "");
        assert!(require_files(&settings(&["conf=/etc/site.conf"]), image.path()).is_ok());
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
