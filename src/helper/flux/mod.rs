//! Which device policy a Flux job must have.

mod unit;

use super::plan::{Contained, NoPlan, contained, has_list, misconfigured, unusable};
use super::{Config, Evidence};
use crate::helper::devices::{Glob, Policy, Resolved, Resolver, Unfit, Wanted, allowlist};
use crate::helper::sources::Job;
use crate::protocol::{Containment, Placement};
use unit::UnitPolicy;
use unit::overlap;

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
        own.containment = match asked {
            Containment::Enforce(list) | Containment::Both(list) => Containment::Both(list),
            Containment::None | Containment::Inherit => Containment::Inherit,
        };
        return Ok(own);
    }
    let by_unit = by_text(job, unit, config, resolver, evidence)?;
    own.dropped.extend(by_unit.dropped);
    own.warnings.extend(by_unit.warnings);
    own.containment = match (asked, by_unit.containment) {
        (Containment::Enforce(one), Containment::Enforce(other)) => {
            let both = overlap(&one, &other);
            Containment::Enforce(both.map_err(|_| unusable(job)(Unfit::TooMany))?)
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
    let policy = UnitPolicy::parse(text)
        .map_err(|error| misconfigured(job, format!("job {}: unit {shown}: {error}", job.id)))?;
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
    let wanted = Wanted { policy: policy.policy, allow: &allow, named: Vec::new() };
    let resolved = allowlist(&wanted, &config.always_allowed, resolver);
    let Resolved { list, mut dropped, warnings, .. } = resolved.map_err(unusable(job))?;
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

#[cfg(test)]
mod tests;
