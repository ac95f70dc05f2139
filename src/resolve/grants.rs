//! What CDI specifications add to a login besides devices: variables and groups, those alone that
//! the site names.

use nix::unistd::Group;

use crate::legible::legible;
use crate::plan::{GroupId, MAX_GROUPS, MAX_VARIABLES, Variable, VariableName, Variables};

/// Most characters of the name of a group, and of an entry in a message.
const NAME_MAX: usize = 64;

/// An entry of a list of the configuration that is refused, and why.
pub(super) type Refused = (String, String);

/// The names of variables in a configuration's list.
///
/// # Errors
/// The first entry that is no name, one that no login is given, or stands twice.
pub(super) fn names(value: &str) -> Result<Vec<String>, Refused> {
    let mut names = Vec::new();
    for entry in value.split(',').map(str::trim) {
        let name: VariableName = entry.parse().map_err(|why| refused(entry, why))?;
        push(&mut names, name.as_str().to_owned(), entry, MAX_VARIABLES)?;
    }
    Ok(names)
}

/// The groups in a configuration's list: by number, and by a name to be looked up.
///
/// # Errors
/// The first entry that is neither, is root's group, or stands twice.
pub(super) fn groups(value: &str) -> Result<(Vec<u32>, Vec<String>), Refused> {
    let (mut numbers, mut names) = (Vec::new(), Vec::new());
    for entry in value.split(',').map(str::trim) {
        if entry.bytes().all(|byte| byte.is_ascii_digit()) {
            let group: GroupId = entry.parse().map_err(|why| refused(entry, why))?;
            push(&mut numbers, group.number(), entry, MAX_GROUPS)?;
        } else if is_group_name(entry) {
            push(&mut names, entry.to_owned(), entry, MAX_GROUPS)?;
        } else {
            return Err(refused(entry, "is no name of a group"));
        }
    }
    Ok((numbers, names))
}

fn push<T: PartialEq>(list: &mut Vec<T>, item: T, entry: &str, most: usize) -> Result<(), Refused> {
    if list.contains(&item) {
        return Err(refused(entry, "stands twice"));
    }
    if list.len() >= most {
        return Err(refused(
            entry,
            format_args!("is one more than the {most} that may stand here"),
        ));
    }
    list.push(item);
    Ok(())
}

fn refused(entry: &str, why: impl std::fmt::Display) -> Refused {
    (legible(entry).chars().take(NAME_MAX).collect(), why.to_string())
}

/// Not a number, no option, and no control character.
fn is_group_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@$".contains(&byte);
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.len() <= NAME_MAX && text.bytes().next().is_some_and(first) && text.bytes().all(good)
}

/// The numbers that these groups have on this node. One that is not there, or is root's, is left
/// out and named: that only withholds.
pub(super) fn looked_up(names: &[String]) -> (Vec<u32>, Vec<String>) {
    let (mut numbers, mut warnings) = (Vec::new(), Vec::new());
    for name in names {
        let why = match Group::from_name(name) {
            Ok(Some(group)) => match GroupId::new(group.gid.as_raw()) {
                Ok(group) => {
                    numbers.push(group.number());
                    continue;
                }
                Err(error) => error.to_string(),
            },
            Ok(None) => "there is no such group".to_owned(),
            Err(errno) => format!("look it up: {}", std::io::Error::from(errno)),
        };
        warnings.push(format!("cdi_gids: group {name}: {why}"));
    }
    (numbers, warnings)
}

/// The variables for a login. One that it cannot be given is left out and named.
pub(super) fn variables(env: Vec<(String, String)>, warnings: &mut Vec<String>) -> Variables {
    let mut variables = Variables::default();
    for (name, value) in env {
        let added = Variable::new(&name, &value).and_then(|variable| variables.push(variable));
        if let Err(error) = added {
            warnings.push(format!("variable {name} is left out: {error}"));
        }
    }
    variables
}

/// The groups for a login, likewise.
pub(super) fn group_ids(gids: Vec<u32>, warnings: &mut Vec<String>) -> Vec<GroupId> {
    let mut groups = Vec::new();
    for gid in gids {
        match GroupId::new(gid) {
            Ok(group) if groups.contains(&group) => {}
            Ok(group) if groups.len() < MAX_GROUPS => groups.push(group),
            Ok(_) => warnings.push(format!("group {gid} is left out: more than {MAX_GROUPS}")),
            Err(error) => warnings.push(format!("group {gid} is left out: {error}")),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(value: &str) -> String {
        let (entry, why) = names(value).map(drop).or(groups(value).map(drop)).unwrap_err();
        format!("{entry}: {why}")
    }

    #[test]
    fn lists_take_names_and_numbers() {
        assert_eq!(names("A, B_1"), Ok(vec!["A".into(), "B_1".into()]));
        let found = groups("render, 44,video");
        assert_eq!(found, Ok((vec![44], vec!["render".into(), "video".into()])));
    }

    #[test]
    fn what_no_login_is_given_is_refused_by_name() {
        let (entry, why) = names("A, LD_PRELOAD").unwrap_err();
        assert_eq!(entry, "LD_PRELOAD");
        assert!(why.contains("decides what programs run"), "{why}");
        assert!(names("A,A").is_err() && names("A,").is_err() && names("A B").is_err());
        for bad in ["0", "00", "4294967295", "44,44", "", "a,", "-1", "a b", "a\u{e4}"] {
            assert!(groups(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lists_have_limits() {
        let many = |count: usize, of: &str| {
            (1..=count).map(|number| format!("{of}{number}")).collect::<Vec<_>>().join(",")
        };
        assert!(names(&many(MAX_VARIABLES, "V")).is_ok());
        assert!(names(&many(MAX_VARIABLES + 1, "V")).is_err());
        assert!(groups(&many(MAX_GROUPS, "")).is_ok() && groups(&many(MAX_GROUPS, "g")).is_ok());
        assert!(groups(&many(MAX_GROUPS + 1, "")).is_err());
        assert!(why("no group!").contains("is no name of a group"));
    }

    #[test]
    fn a_group_that_is_not_there_or_roots_is_left_out_and_named() {
        let (numbers, warnings) = looked_up(&["root".into(), "no-such-group".into()]);
        assert!(numbers.is_empty());
        assert!(warnings.iter().any(|text| text.contains("group root: ")), "{warnings:?}");
        let named = "cdi_gids: group no-such-group: there is no such group";
        assert!(warnings.iter().any(|text| text == named), "{warnings:?}");
    }

    #[test]
    fn what_cannot_be_passed_on_is_left_out_and_named() {
        let mut warnings = Vec::new();
        let env = [("A", "1"), ("B", "x\ny"), ("LD_PRELOAD", "/x"), ("C", "2")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let kept: Vec<_> =
            variables(env.into(), &mut warnings).iter().map(ToString::to_string).collect();
        assert_eq!(kept, ["A=1", "C=2"]);
        assert!(warnings.iter().any(|text| text.starts_with("variable B is left out")));
        assert!(warnings.iter().any(|text| text.starts_with("variable LD_PRELOAD is left out")));
        warnings.clear();
        let gids: Vec<u32> = [0, 44, 44].into_iter().chain(100..120).collect();
        let groups = group_ids(gids, &mut warnings);
        assert_eq!(groups.len(), MAX_GROUPS);
        assert_eq!(groups.first().unwrap().number(), 44);
        assert_eq!(warnings.len(), 1 + 5);
    }
}
