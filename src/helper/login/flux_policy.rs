//! The device policy that a Flux job must have, by its unit and its record.

use super::containment::{JobContainment, Planner, refuse_configuration};
use super::refusal::LoginRefusal;
use super::unit_policy::UnitPolicy;
use crate::devices::{DeviceRequest, Glob, JobAllowlist, Policy, TooManyEntries, build_allowlist};
use crate::node::ResolvedDevices;
use protocol::{Access, Allowlist, Containment, DeviceRule, InvalidText, Placement};

impl Planner<'_> {
    /// Decides the containment of a login to a Flux job.
    ///
    /// `unit` is empty at first: then the filter applies that Flux's IMP put on the job's unit, and besides it the list
    /// of the job's record. If the privileged half finds no filter at the unit, it asks again with the text of the unit
    /// in `unit`: then the policy in that text applies in place of the filter, with the list that the IMP would have
    /// made of it. A list of the record applies too: the result is what both lists allow.
    ///
    /// # Errors
    ///
    /// [`LoginRefusal`] if the text is no unit's, the devices of the record do not resolve, or a list
    /// is too long.
    pub(super) fn contain_by_flux(&mut self, unit: &str) -> Result<JobContainment, LoginRefusal> {
        let by_record = match self.job.record_of_devices() {
            Some(record) => self.contain_by_record(record)?,
            None => JobContainment::none(),
        };
        if unit.is_empty() {
            return Ok(by_record.with_inherited_filter());
        }
        let by_unit = self.contain_by_unit(unit)?;
        let containment = match (by_record.containment, by_unit.containment) {
            (Containment::Enforce(one), Containment::Enforce(other)) => {
                let both =
                    intersect(&one, &other).map_err(|_| self.refuse_devices(TooManyEntries))?;
                Containment::Enforce(both)
            }
            (Containment::Enforce(list), _) | (_, Containment::Enforce(list)) => {
                Containment::Enforce(list)
            }
            _ => Containment::None,
        };
        Ok(JobContainment {
            containment,
            dropped: [by_record.dropped, by_unit.dropped].concat(),
            warnings: [by_record.warnings, by_unit.warnings].concat(),
        })
    }

    /// Decides the containment by the policy in the text of the job's unit: none for `auto` without entries, as for
    /// the IMP, else the list. Entries that the IMP does not resolve are dropped.
    ///
    /// # Errors
    ///
    /// [`LoginRefusal`] for a text that is no unit's, and for a list that is too long.
    fn contain_by_unit(&mut self, text: &str) -> Result<JobContainment, LoginRefusal> {
        let id = &self.job.id;
        let UnitPolicy { policy, allow } = UnitPolicy::parse(text).map_err(|error| {
            let unit = self.unit_name();
            refuse_configuration(id, format!("job {id}: unit {unit}: {error}"))
        })?;
        let word = policy.as_str();
        let count = allow.len();
        self.evidence.add(
            "unit",
            format!("DevicePolicy={word}, {count} entries of DeviceAllow"),
        );
        if policy == Policy::Auto && allow.is_empty() {
            return Ok(JobContainment::none());
        }
        let (literal, others): (Vec<_>, Vec<_>) =
            allow.into_iter().partition(|(name, _)| is_literal(name));
        let request = DeviceRequest {
            policy,
            allow: &literal,
        };
        let allowlist = build_allowlist(
            &request,
            ResolvedDevices::default(),
            &self.config.always_allowed,
            self.resolver,
        )
        .map_err(|error| self.refuse_devices(error))?;
        let JobAllowlist {
            list,
            mut dropped,
            warnings,
            // The text of a unit names no GPU.
            late: _,
            container: _,
        } = allowlist;
        for (name, access) in others {
            dropped.push(format!("{name} {access}: no name that Flux resolves"));
        }
        Ok(JobContainment {
            containment: Containment::Enforce(list),
            dropped,
            warnings,
        })
    }

    /// The name of the job's unit, for messages.
    fn unit_name(&self) -> &str {
        match &self.job.placement {
            Placement::Unit { path, .. } => path.as_str().rsplit('/').next().unwrap_or_default(),
            _ => "",
        }
    }
}

/// Tells whether the IMP resolves an entry as this node's resolver does. The IMP compares names of
/// drivers literally, and knows neither patterns nor majors (`char-195`), nor the groups of ours that begin with `@`.
/// Leaving an entry out only tightens.
fn is_literal(name: &str) -> bool {
    if name.starts_with('@') || Glob::is_wild(name) {
        return false;
    }
    let class = name
        .strip_prefix("char-")
        .or_else(|| name.strip_prefix("block-"));
    class.is_none_or(|class| class.bytes().any(|byte| !byte.is_ascii_digit()))
}

/// Intersects two lists: the devices in both, with their common access, as if both lists applied.
///
/// # Errors
///
/// The result has more entries than a list may have.
pub(super) fn intersect(one: &Allowlist, other: &Allowlist) -> Result<Allowlist, InvalidText> {
    let mut both = Allowlist::new();
    let other_rules = merge_rules(other);
    for a in merge_rules(one) {
        for &b in &other_rules {
            if let Some(rule) = intersect_rules(a, b) {
                both.push(rule)?;
            }
        }
    }
    Ok(both)
}

/// Merges the rules of the same device: separate rules for `r` and `w` allow `O_RDWR` together, and the
/// other list may allow it in one rule.
fn merge_rules(list: &Allowlist) -> Vec<DeviceRule> {
    let mut merged: Vec<DeviceRule> = Vec::new();
    for rule in list.rules() {
        match merged.iter_mut().find(|known| is_same_device(known, rule)) {
            Some(known) => *known = with_access(known, known.access().union(rule.access())),
            None => merged.push(*rule),
        }
    }
    merged
}

/// Tells whether two rules are about the same device, or about all minors of the same major.
fn is_same_device(a: &DeviceRule, b: &DeviceRule) -> bool {
    (a.kind(), a.major(), a.minor()) == (b.kind(), b.major(), b.minor())
}

/// Returns the rule with another access, which must not be empty.
fn with_access(rule: &DeviceRule, access: Access) -> DeviceRule {
    DeviceRule::from_numbers(rule.kind(), rule.major(), rule.minor(), access).unwrap_or(*rule)
}

/// Returns the rule for the devices of both rules, with the access that both allow; `None` if there is no such device
/// or access.
fn intersect_rules(a: DeviceRule, b: DeviceRule) -> Option<DeviceRule> {
    if (a.kind(), a.major()) != (b.kind(), b.major()) {
        return None;
    }
    let minor = match (a.minor(), b.minor()) {
        (None, minor) | (minor, None) => minor,
        (Some(one), Some(other)) if one == other => Some(one),
        _ => return None,
    };
    let access = Access::from_bits(a.access().bits() & b.access().bits())?;
    // Without a common access this fails: no rule is empty.
    DeviceRule::from_numbers(a.kind(), a.major(), minor, access).ok()
}

#[cfg(test)]
mod tests;
