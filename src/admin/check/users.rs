//! The users' processes that are in none of their jobs.

use super::{Check, Finding, Scene};
use crate::admin::people;
use crate::admin::strays::Look;
use std::collections::BTreeMap;

const STRAYS: Check = "users-outside-jobs";
/// Most users that are named.
const NAMED: usize = 8;

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    match Look::at(&scene.config) {
        Ok(look) => look.outside.iter().for_each(|one| *counts.entry(one.uid).or_default() += 1),
        Err(error) => {
            let text = error.text().unwrap_or_default();
            return vec![Finding::unknown(STRAYS, "users", text, "")];
        }
    }
    vec![found(&counts)]
}

fn found(counts: &BTreeMap<u32, usize>) -> Finding {
    if counts.is_empty() {
        return Finding::fine(STRAYS, "users", "no user has a process outside of their jobs");
    }
    let mut names: Vec<String> =
        counts.keys().take(NAMED).map(|uid| people::name_of(*uid)).collect();
    if counts.len() > NAMED {
        names.push(format!("and {} more", counts.len() - NAMED));
    }
    let sum: usize = counts.values().sum();
    let text = format!("{sum} of their processes are in none of their jobs");
    let remedy = "see those of users without a job: job-adopt strays; end them: --kill; what was \
                  started before the module was enabled stays until it is ended";
    Finding::note(STRAYS, names.join(", "), text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::check::finding::Severity;

    #[test]
    fn they_are_counted() {
        assert_eq!(found(&BTreeMap::new()).severity, Severity::Fine);
        let counts = (0..10).map(|uid| (4_000_000_000 + uid, 3));
        let finding = found(&counts.collect());
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.text.starts_with("30 of"), "{}", finding.text);
        assert!(finding.object.ends_with("and 2 more"), "{}", finding.object);
    }
}
