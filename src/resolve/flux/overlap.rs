//! What two allowlists both allow.

use crate::plan::{Access, Allowlist, DeviceRule, RuleError};

/// The devices that are in both lists, with the access that both have; as if both were in force.
///
/// # Errors
/// More entries than a list may have.
pub(super) fn overlap(one: &Allowlist, other: &Allowlist) -> Result<Allowlist, RuleError> {
    let mut both = Allowlist::new();
    for a in merged(one) {
        for b in merged(other) {
            if let Some(rule) = common(a, b) {
                both.push(rule)?;
            }
        }
    }
    Ok(both)
}

/// The rules, with those of the same device as one: `r` and `w` of one list let a device be opened
/// for both, and the other list may have that in one rule.
fn merged(list: &Allowlist) -> Vec<DeviceRule> {
    let mut rules: Vec<DeviceRule> = Vec::new();
    for rule in list.rules() {
        let same = |known: &&mut DeviceRule| {
            let device = |rule: &DeviceRule| (rule.kind(), rule.major(), rule.minor());
            device(known) == device(rule)
        };
        match rules.iter_mut().find(same) {
            Some(known) => *known = with(known, known.access().union(rule.access())),
            None => rules.push(*rule),
        }
    }
    rules
}

fn with(rule: &DeviceRule, access: Access) -> DeviceRule {
    DeviceRule::new(rule.kind(), rule.major(), rule.minor(), access).unwrap_or(*rule)
}

fn common(a: DeviceRule, b: DeviceRule) -> Option<DeviceRule> {
    let same_class = (a.kind(), a.major()) == (b.kind(), b.major());
    let minor = match (a.minor(), b.minor()) {
        (None, minor) | (minor, None) => minor,
        (Some(one), Some(other)) if one == other => Some(one),
        _ => return None,
    };
    let access = Access::from_bits(a.access().bits() & b.access().bits())?;
    same_class.then(|| DeviceRule::new(a.kind(), a.major(), minor, access).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rules: &str) -> Allowlist {
        let mut list = Allowlist::new();
        for rule in rules.split_whitespace() {
            list.push(rule.parse().unwrap()).unwrap();
        }
        list
    }

    #[test]
    fn what_both_allow() {
        for (one, other, both) in [
            ("c:195:0:rw", "c:195:0:rwm", "c:195:0:rw"),
            ("c:195:-1:rw", "c:195:1:r c:195:2:w", "c:195:1:r c:195:2:w"),
            ("c:195:0:rw", "b:195:0:rw", ""),
            ("c:195:0:rw", "c:195:1:rw", ""),
            ("c:195:0:r", "c:195:0:w", ""),
            ("c:195:0:r c:195:0:w", "c:195:0:rw", "c:195:0:rw"),
            ("c:1:-1:r", "c:1:-1:rm", "c:1:-1:r"),
            ("c:1:3:rw", "", ""),
        ] {
            assert_eq!(overlap(&list(one), &list(other)), Ok(list(both)), "{one} and {other}");
            assert_eq!(overlap(&list(other), &list(one)), Ok(list(both)), "{other} and {one}");
        }
    }
}
