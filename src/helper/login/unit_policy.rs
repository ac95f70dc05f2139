//! The device policy that a Flux job must have, by its unit and its record.

use super::plan::{
    JobContainment, PlanRefusal, configuration_refusal, contain_by_record, devices_refusal,
    has_device_list, with_inherited_filter,
};
use crate::config::Config;
use crate::devices::{
    AllowlistError, DeviceRequest, Glob, JobAllowlist, Policy, Resolver, build_allowlist,
};
use crate::jobs::Job;
use crate::login::evidence::Evidence;
use crate::text::printable;
use protocol::{Access, Allowlist, Containment, DeviceRule, InvalidText, Placement};

/// Decides the containment of a login to a Flux job.
///
/// The IMP's filter applies, and besides it the list of the job's record. If the privileged half
/// found no filter at the unit, it passes the text of the unit in `unit`: the policy in that text
/// applies instead, with the list that the IMP would have made of it. A list of the record then
/// applies too, as one intersected list.
///
/// # Errors
///
/// The text is no unit's, the devices of the record do not resolve, or a list is too long.
pub(super) fn contain_by_flux(
    job: &Job,
    unit: &str,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<JobContainment, PlanRefusal> {
    let mut result = match job.record.as_ref().filter(|_| has_device_list(job)) {
        Some(record) => contain_by_record(record, config, resolver)?,
        None => JobContainment::none(),
    };
    let by_record = std::mem::replace(&mut result.containment, Containment::None);
    if unit.is_empty() {
        result.containment = with_inherited_filter(by_record);
        return Ok(result);
    }
    let by_unit = contain_by_unit(job, unit, config, resolver, evidence)?;
    result.dropped.extend(by_unit.dropped);
    result.warnings.extend(by_unit.warnings);
    result.containment = match (by_record, by_unit.containment) {
        (Containment::Enforce(one), Containment::Enforce(other)) => {
            let both = intersect(&one, &other);
            Containment::Enforce(
                both.map_err(|_| devices_refusal(job)(AllowlistError::TooManyEntries))?,
            )
        }
        (Containment::Enforce(list), _) | (_, Containment::Enforce(list)) => {
            Containment::Enforce(list)
        }
        _ => Containment::None,
    };
    Ok(result)
}

/// Decides the containment by the policy in the text of the job's unit.
fn contain_by_unit(
    job: &Job,
    text: &str,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<JobContainment, PlanRefusal> {
    let unit = match &job.placement {
        Placement::Unit { path, .. } => path.as_str().rsplit('/').next().unwrap_or_default(),
        _ => "",
    };
    let policy = UnitPolicy::parse(text).map_err(|error| {
        configuration_refusal(&job.id, format!("job {}: unit {unit}: {error}", job.id))
    })?;
    let count = policy.allow.len();
    evidence.add(
        "unit",
        format_args!("DevicePolicy={}, {count} entries of DeviceAllow", policy.policy.as_str()),
    );
    if policy.policy == Policy::Auto && policy.allow.is_empty() {
        return Ok(JobContainment::none());
    }
    let (allow, others): (Vec<_>, Vec<_>) =
        policy.allow.into_iter().partition(|(name, _)| is_literal(name));
    let request = DeviceRequest { policy: policy.policy, allow: &allow, names: Vec::new() };
    let allowlist = build_allowlist(&request, &config.always_allowed, resolver);
    let JobAllowlist { list, mut dropped, warnings, .. } =
        allowlist.map_err(devices_refusal(job))?;
    let fault = |(name, access)| format!("{name} {access}: no name that Flux resolves");
    dropped.extend(others.into_iter().map(fault));
    Ok(JobContainment { containment: Containment::Enforce(list), dropped, warnings })
}

/// Returns whether the IMP resolves an entry as this node's resolver does. The IMP compares names of
/// drivers literally and knows neither patterns nor majors. Leaving an entry out only tightens.
fn is_literal(name: &str) -> bool {
    let class = ["char-", "block-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let is_number = |class: &str| class.bytes().all(|byte| byte.is_ascii_digit());
    !name.starts_with('@') && !Glob::is_wild(name) && !class.is_some_and(is_number)
}

/// Maximum characters of a line that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 64;

/// The device policy in the text of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitPolicy {
    /// The last `DevicePolicy`.
    pub(super) policy: Policy,
    /// The entries of `DeviceAllow`, each with its access.
    pub(super) allow: Vec<(String, String)>,
}

/// Returns the error of a line, whose number counts from 1.
fn line_error(number: usize, text: &str, why: &str) -> String {
    let text: String = printable(text).chars().take(SHOWN_CHARACTERS_MAX).collect();
    format!("line {number}: {text}: {why}")
}

const INVALID_LINE: &str = "neither [SECTION] nor KEY=VALUE";

impl UnitPolicy {
    /// Parses the text of a unit. A later policy replaces an earlier one. A later entry is added, or
    /// replaces the entry with the same name; an empty `DeviceAllow` removes all entries.
    ///
    /// # Errors
    ///
    /// A line has an unknown form, since it may contain a part that matters.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut unit = Self::default();
        let mut section = None;
        for (number, text) in join_continued_lines(text)? {
            let error = |why| line_error(number, &text, why);
            let header = text.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
            if let Some(name) = header {
                let name = name.filter(|name| !name.is_empty() && !name.contains(['[', ']']));
                section = Some(name.ok_or_else(|| error(INVALID_LINE))?.to_owned());
                continue;
            }
            let (key, value) = text.split_once('=').ok_or_else(|| error(INVALID_LINE))?;
            let section = section.as_deref().ok_or_else(|| error("is in no section"))?;
            match (section, key.trim_end()) {
                (_, "") => return Err(error(INVALID_LINE)),
                ("Service", "DevicePolicy") => {
                    unit.policy = value
                        .trim()
                        .parse()
                        .map_err(|_| error("DevicePolicy is auto, closed or strict"))?;
                }
                ("Service", "DeviceAllow") => unit.add_allow(value.trim()),
                _ => {}
            }
        }
        Ok(unit)
    }

    /// Adds an entry of `DeviceAllow`. Without an access it allows all, as systemd spells it out for
    /// the IMP.
    fn add_allow(&mut self, value: &str) {
        if value.is_empty() {
            self.allow.clear();
            return;
        }
        let (name, access) = value.split_once(char::is_whitespace).unwrap_or((value, "rwm"));
        self.allow.retain(|(known, _)| known != name);
        self.allow.push((name.to_owned(), access.trim_start().to_owned()));
    }
}

/// Returns the lines that are neither empty nor comments, each with its number. A backslash at the
/// end of a line continues it with the next line that is no comment.
fn join_continued_lines(text: &str) -> Result<Vec<(usize, String)>, String> {
    let mut lines = Vec::new();
    let mut unfinished: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with(['#', ';']) || (line.is_empty() && unfinished.is_none()) {
            continue;
        }
        let (number, mut text) = unfinished.take().unwrap_or((index + 1, String::new()));
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        match line.strip_suffix('\\').filter(|_| backslashes % 2 == 1) {
            Some(part) => unfinished = Some((number, text + part + " ")),
            None => {
                text.push_str(line);
                lines.push((number, text));
            }
        }
    }
    match unfinished {
        Some((number, text)) => {
            Err(line_error(number, &text, "the text ends in the middle of a line"))
        }
        None => Ok(lines),
    }
}

/// Returns the devices in both lists with their common access, as if both lists applied.
///
/// # Errors
///
/// The result has more entries than a list may have.
pub(super) fn intersect(one: &Allowlist, other: &Allowlist) -> Result<Allowlist, InvalidText> {
    let mut both = Allowlist::new();
    for a in merge_rules(one) {
        for b in merge_rules(other) {
            if let Some(rule) = intersect_rules(a, b) {
                both.push(rule)?;
            }
        }
    }
    Ok(both)
}

/// Returns the rules with those of the same device merged: separate rules for `r` and `w` allow
/// `O_RDWR` together, and the other list may allow it in one rule.
fn merge_rules(list: &Allowlist) -> Vec<DeviceRule> {
    let mut rules: Vec<DeviceRule> = Vec::new();
    for rule in list.rules() {
        let has_same_device = |known: &&mut DeviceRule| {
            let device = |rule: &DeviceRule| (rule.kind(), rule.major(), rule.minor());
            device(known) == device(rule)
        };
        match rules.iter_mut().find(has_same_device) {
            Some(known) => *known = with_access(known, known.access().union(rule.access())),
            None => rules.push(*rule),
        }
    }
    rules
}

fn with_access(rule: &DeviceRule, access: Access) -> DeviceRule {
    DeviceRule::from_numbers(rule.kind(), rule.major(), rule.minor(), access).unwrap_or(*rule)
}

fn intersect_rules(a: DeviceRule, b: DeviceRule) -> Option<DeviceRule> {
    let has_same_major = (a.kind(), a.major()) == (b.kind(), b.major());
    let minor = match (a.minor(), b.minor()) {
        (None, minor) | (minor, None) => minor,
        (Some(one), Some(other)) if one == other => Some(one),
        _ => return None,
    };
    let access = Access::from_bits(a.access().bits() & b.access().bits())?;
    has_same_major.then(|| DeviceRule::from_numbers(a.kind(), a.major(), minor, access).ok())?
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn parse(text: &str) -> (&'static str, Vec<String>) {
        let unit = UnitPolicy::parse(text).unwrap();
        let entries = unit.allow.into_iter().map(|(name, access)| format!("{name} {access}"));
        (unit.policy.as_str(), entries.collect())
    }

    /// A unit as systemd 252 and 257 write it.
    const TRANSIENT: &str = "# This is a transient unit file, created programmatically via the \
        systemd API. Do not edit.\n[Unit]\nDescription=User workload for Flux job fxyzzy\n\n\
        [Service]\nType=notify\nRemainAfterExit=yes\nDevicePolicy=closed\nDeviceAllow=\n\
        DeviceAllow=/dev/nvidia0 rw\nDeviceAllow=/dev/nvidiactl rw\n\
        Environment=\"A=x\\\\y\" \"B=[Service]\"\nExecStart=\nExecStart=@/usr/libexec/imp \"imp\" \\\n\
        \"exec\"\n";

    #[test]
    fn transient_unit_of_systemd_is_parsed() {
        let (policy, allow) = parse(TRANSIENT);
        assert_eq!(
            (policy, allow.join(", ").as_str()),
            ("closed", "/dev/nvidia0 rw, /dev/nvidiactl rw")
        );
        assert_eq!(parse(""), ("auto", vec![]));
        assert_eq!(parse("[Service]\n"), ("auto", vec![]));
    }

    #[test]
    fn later_entries_are_added_and_an_empty_one_removes_all() {
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
            assert_eq!(parse(&format!("[Service]\n{lines}\n")).1.join(", "), allow, "{lines:?}");
        }
        let policy = |lines: &str| parse(&format!("[Service]\n{lines}\n")).0;
        assert_eq!(policy("DevicePolicy=strict\nDevicePolicy=closed"), "closed");
        assert_eq!(policy("[Unit]\nDevicePolicy=closed"), "auto");
        assert_eq!(policy("DevicePolicy = strict "), "strict");
    }

    #[test]
    fn malformed_text_is_refused_with_its_line() {
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
            assert!(error.starts_with(&format!("line {line}: ")), "{text:?} {error}");
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
    fn intersection_allows_the_common_devices() {
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
            assert_eq!(intersect(&list(one), &list(other)), Ok(list(both)), "{one} and {other}");
            assert_eq!(intersect(&list(other), &list(one)), Ok(list(both)), "{other} and {one}");
        }
    }
}
