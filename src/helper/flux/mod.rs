//! Which device policy a Flux job must have.

use super::plan::{Contained, NoPlan, contained, has_list, inherited, misconfigured, unusable};
use super::{Config, Evidence};
use crate::devices::{
    AllowlistError, DeviceRequest, Glob, JobAllowlist, Policy, Resolver, build_allowlist,
};
use crate::printable;
use crate::sources::Job;
use protocol::{Access, Allowlist, Containment, DeviceRule, Invalid, Placement};

/// The filter of the IMP holds, and besides it what a record says. Where the privileged half found
/// no filter at the unit and so gives the unit's text, the policy in there does: the same list as
/// the IMP would have made of it. With a record as well both lists hold, as one.
/// Fails: [`NoPlan`] where the text is none of a unit's, and as for a record.
pub(super) fn by_flux(
    job: &Job,
    unit: &str,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<Contained, NoPlan> {
    let mut own = match job.record.as_ref().filter(|_| has_list(job)) {
        Some(record) => contained(record, config, resolver)?,
        None => Contained::none(),
    };
    let asked = std::mem::replace(&mut own.containment, Containment::None);
    if unit.is_empty() {
        own.containment = inherited(asked);
        return Ok(own);
    }
    let by_unit = by_text(job, unit, config, resolver, evidence)?;
    own.dropped.extend(by_unit.dropped);
    own.warnings.extend(by_unit.warnings);
    own.containment = match (asked, by_unit.containment) {
        (Containment::Enforce(one), Containment::Enforce(other)) => {
            let both = overlap(&one, &other);
            Containment::Enforce(both.map_err(|_| unusable(job)(AllowlistError::TooManyEntries))?)
        }
        (Containment::Enforce(list), _) | (_, Containment::Enforce(list)) => {
            Containment::Enforce(list)
        }
        _ => Containment::None,
    };
    Ok(own)
}

fn by_text(
    job: &Job,
    text: &str,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<Contained, NoPlan> {
    let shown = match &job.placement {
        Placement::Unit { path, .. } => path.as_str().rsplit('/').next().unwrap_or_default(),
        _ => "",
    };
    let policy = UnitPolicy::parse(text).map_err(|error| {
        misconfigured(&job.id, format!("job {}: unit {shown}: {error}", job.id))
    })?;
    let count = policy.allow.len();
    evidence.add(
        "unit",
        format_args!("DevicePolicy={}, {count} entries of DeviceAllow", policy.policy.as_str()),
    );
    if policy.policy == Policy::Auto && policy.allow.is_empty() {
        return Ok(Contained::none());
    }
    let (allow, odd): (Vec<_>, Vec<_>) =
        policy.allow.into_iter().partition(|(name, _)| is_literal(name));
    let wanted = DeviceRequest { policy: policy.policy, allow: &allow, names: Vec::new() };
    let resolved = build_allowlist(&wanted, &config.always_allowed, resolver);
    let JobAllowlist { list, mut dropped, warnings, .. } = resolved.map_err(unusable(job))?;
    let odd = odd.into_iter();
    dropped
        .extend(odd.map(|(name, access)| format!("{name} {access}: no name that Flux resolves")));
    Ok(Contained { containment: Containment::Enforce(list), dropped, warnings })
}

/// Whether the IMP takes an entry for what this node's resolver takes it for. It compares names of
/// drivers as they are: a pattern, or a major's number, is none to it. To leave one out only
/// tightens.
fn is_literal(name: &str) -> bool {
    let class = ["char-", "block-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let number = |class: &str| class.bytes().all(|byte| byte.is_ascii_digit());
    !name.starts_with('@') && !Glob::is_wild(name) && !class.is_some_and(number)
}

/// Most characters of a line in a message.
const SHOWN: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitPolicy {
    /// The last that is said.
    pub(super) policy: Policy,
    /// What is allowed, each with its access.
    pub(super) allow: Vec<(String, String)>,
}

/// What is wrong with a line, counted from 1.
fn bad_line(number: usize, text: &str, why: &str) -> String {
    let text: String = printable(text).chars().take(SHOWN).collect();
    format!("line {number}: {text}: {why}")
}

const FORM: &str = "neither [SECTION] nor KEY=VALUE";

impl UnitPolicy {
    /// Reads a unit's text. A later policy counts instead of an earlier one and a later entry beside
    /// it, instead of an entry with the same name; an empty `DeviceAllow` takes back all.
    /// Fails at a line that is not understood: the part that matters may be in it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut unit = Self::default();
        let mut section = None;
        for (number, text) in logical_lines(text)? {
            let bad = |why| bad_line(number, &text, why);
            let header = text.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
            if let Some(name) = header {
                let name = name.filter(|name| !name.is_empty() && !name.contains(['[', ']']));
                section = Some(name.ok_or_else(|| bad(FORM))?.to_owned());
                continue;
            }
            let (key, value) = text.split_once('=').ok_or_else(|| bad(FORM))?;
            let section = section.as_deref().ok_or_else(|| bad("is in no section"))?;
            match (section, key.trim_end()) {
                (_, "") => return Err(bad(FORM)),
                ("Service", "DevicePolicy") => {
                    unit.policy = value
                        .trim()
                        .parse()
                        .map_err(|_| bad("DevicePolicy is auto, closed or strict"))?;
                }
                ("Service", "DeviceAllow") => unit.allow(value.trim()),
                _ => {}
            }
        }
        Ok(unit)
    }

    /// Without an access all is meant, as systemd writes it out for the IMP.
    fn allow(&mut self, value: &str) {
        if value.is_empty() {
            self.allow.clear();
            return;
        }
        let (name, access) = value.split_once(char::is_whitespace).unwrap_or((value, "rwm"));
        self.allow.retain(|(known, _)| known != name);
        self.allow.push((name.to_owned(), access.trim_start().to_owned()));
    }
}

/// The lines that say something, each with its number. A backslash at the end continues a line with the next that is no
/// comment.
fn logical_lines(text: &str) -> Result<Vec<(usize, String)>, String> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with(['#', ';']) || (line.is_empty() && open.is_none()) {
            continue;
        }
        let (number, mut text) = open.take().unwrap_or((index + 1, String::new()));
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        match line.strip_suffix('\\').filter(|_| backslashes % 2 == 1) {
            Some(begun) => open = Some((number, text + begun + " ")),
            None => {
                text.push_str(line);
                lines.push((number, text));
            }
        }
    }
    match open {
        Some((number, text)) => {
            Err(bad_line(number, &text, "the text ends in the middle of a line"))
        }
        None => Ok(lines),
    }
}

/// The devices that are in both lists, with the access that both have; as if both were in force.
/// Fails: more entries than a list may have.
pub(super) fn overlap(one: &Allowlist, other: &Allowlist) -> Result<Allowlist, Invalid> {
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
mod tests;

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn parsed(text: &str) -> (&'static str, Vec<String>) {
        let unit = UnitPolicy::parse(text).unwrap();
        let entries = unit.allow.into_iter().map(|(name, access)| format!("{name} {access}"));
        (unit.policy.as_str(), entries.collect())
    }

    /// As systemd 252 and 257 write it.
    const TRANSIENT: &str = "# This is a transient unit file, created programmatically via the \
        systemd API. Do not edit.\n[Unit]\nDescription=User workload for Flux job fxyzzy\n\n\
        [Service]\nType=notify\nRemainAfterExit=yes\nDevicePolicy=closed\nDeviceAllow=\n\
        DeviceAllow=/dev/nvidia0 rw\nDeviceAllow=/dev/nvidiactl rw\n\
        Environment=\"A=x\\\\y\" \"B=[Service]\"\nExecStart=\nExecStart=@/usr/libexec/imp \"imp\" \\\n\
        \"exec\"\n";

    #[test]
    fn what_a_service_manager_writes() {
        let (policy, allow) = parsed(TRANSIENT);
        assert_eq!(
            (policy, allow.join(", ").as_str()),
            ("closed", "/dev/nvidia0 rw, /dev/nvidiactl rw")
        );
        assert_eq!(parsed(""), ("auto", vec![]));
        assert_eq!(parsed("[Service]\n"), ("auto", vec![]));
    }

    #[test]
    fn later_lines_add_and_an_empty_one_takes_back() {
        for (lines, allow) in [
            ("DeviceAllow=/dev/a r\nDeviceAllow=/dev/b w", "/dev/a r, /dev/b w"),
            ("DeviceAllow=/dev/a r\nDeviceAllow=\nDeviceAllow=/dev/b", "/dev/b rwm"),
            ("DeviceAllow=/dev/a rw\nDeviceAllow = \t", ""),
            ("DeviceAllow=/dev/a rw\nDeviceAllow=/dev/a r", "/dev/a r"),
            ("  DeviceAllow =  char-pts \t rw  ", "char-pts rw"),
            ("DeviceAllow=/dev/a \\\n# not this\n r\nDeviceAllow=/dev/b r", "/dev/a r, /dev/b r"),
            ("# DeviceAllow=/dev/a rw\n;DeviceAllow=/dev/b rw", ""),
            ("deviceallow=/dev/a rw\nDeviceAllows=/dev/b rw", ""),
            ("[Unit]\nDeviceAllow=/dev/a rw\n[Service]\nDeviceAllow=/dev/b r", "/dev/b r"),
            ("DeviceAllow=/dev/a r w", "/dev/a r w"),
            ("X=1\\\nDeviceAllow=/dev/a r", ""),
            ("X=1\\\\\nDeviceAllow=/dev/a r", "/dev/a r"),
        ] {
            assert_eq!(parsed(&format!("[Service]\n{lines}\n")).1.join(", "), allow, "{lines:?}");
        }
        let policy = |lines: &str| parsed(&format!("[Service]\n{lines}\n")).0;
        assert_eq!(policy("DevicePolicy=strict\nDevicePolicy=closed"), "closed");
        assert_eq!(policy("[Unit]\nDevicePolicy=closed"), "auto");
        assert_eq!(policy("DevicePolicy = strict "), "strict");
    }

    #[test]
    fn a_text_that_is_not_understood_is_refused_by_its_line() {
        for (text, line) in [
            ("DevicePolicy=closed\n", 1),
            ("[Service]\n\nrubbish\n", 3),
            ("[Service\n", 1),
            ("[]\n", 1),
            ("[Service]\n=x\n", 2),
            ("[Service]\nDevicePolicy=\n", 2),
            ("[Service]\nDevicePolicy=Closed\n", 2),
            ("[Service]\nDevicePolicy=closed \\\n strict\n", 2),
            ("[Service]\nDeviceAllow=/dev/a \\\n", 2),
        ] {
            let error = UnitPolicy::parse(text).unwrap_err();
            assert!(error.to_string().starts_with(&format!("line {line}: ")), "{text:?} {error}");
        }
    }

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
