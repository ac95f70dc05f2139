//! Checks that the running jobs of Flux have the device filter of the IMP from their start.

use super::finding::{Check, Finding};
use super::flux::refuses_filters;
use super::site::Site;
use facts::jobs::query_scheduler;
use kernel::bpf::{self, CgroupPrograms};
use kernel::cgroup::Mount;
use protocol::{CgroupPath, Placement, SourceName};

/// The running jobs' units of this node, as far as they could be read.
#[derive(Debug, Default)]
pub(super) struct FluxUnitFacts {
    units: Vec<Unit>,
    /// The site has written that jobs get no filter.
    refuses_filters: bool,
}

#[derive(Debug)]
struct Unit {
    path: CgroupPath,
    /// A filter is attached to the unit itself, whoever attached it.
    has_filter: bpf::Result<bool>,
}

impl FluxUnitFacts {
    /// Reads the filters of all running jobs' units. There are none on a node without Flux.
    pub(super) fn read(site: &Site) -> Self {
        if !site.config.sources.contains(&SourceName::Flux) {
            return Self::default();
        }
        // The check of the sources reports why Flux cannot be queried.
        let Ok(found) = query_scheduler(SourceName::Flux, &site.config) else {
            return Self::default();
        };
        // Every job of Flux is placed in a unit.
        let paths = found
            .jobs
            .into_iter()
            .filter_map(|(_, job)| match job.placement {
                Placement::Unit { path, .. } => Some(path),
                _ => None,
            });
        let units = paths.filter_map(|path| {
            let has_filter = has_own_filter(&path);
            Unit::new(path, has_filter)
        });
        Self {
            units: units.collect(),
            refuses_filters: refuses_filters(site),
        }
    }

    /// Judges all units in one finding, since they have the same IMP and the same configuration. If the
    /// filter of one cannot be read, nothing is known about them.
    pub(super) fn findings(&self) -> Vec<Finding> {
        for Unit { path, has_filter } in &self.units {
            if let Err(error) = has_filter {
                let remedy = "run this as root";
                return vec![Finding::unknown(Check::FluxFilter, path, error, remedy)];
            }
        }
        let mut open = self
            .units
            .iter()
            .filter(|unit| matches!(unit.has_filter, Ok(false)));
        if let Some(first) = open.next() {
            return vec![self.judge_open(&first.path, open.count())];
        }
        if self.units.is_empty() {
            return Vec::new();
        }
        let text = "have a filter from their start";
        vec![Finding::fine(Check::FluxFilter, "running jobs", text)]
    }

    /// Judges a unit without a filter, of which there are so many more.
    fn judge_open(&self, path: &CgroupPath, others: usize) -> Finding {
        if self.refuses_filters {
            let text = format!(
                "has no filter of the IMP, nor have {others} other jobs, as sdexec-constrain-resources = false \
                 says: they have all devices"
            );
            let remedy = "to confine jobs to their devices, write sdexec-constrain-resources = true under \
                          [exec]";
            return Finding::note(Check::FluxFilter, path, text, remedy);
        }
        let text = format!(
            "has no filter of the IMP, nor have {others} other jobs: until the first login to it a job has all \
             devices"
        );
        let remedy = "take flux-security 0.15 or newer, and write sdexec-constrain-resources = true \
                      under [exec]; = false if jobs are to have all devices";
        Finding::warning(Check::FluxFilter, path, text, remedy)
    }
}

impl Unit {
    /// Makes a unit of its path and the answer about its filter; `None` if its cgroup is gone, since the job has
    /// then ended after it was listed.
    fn new(path: CgroupPath, has_filter: bpf::Result<bool>) -> Option<Self> {
        if let Err(bpf::Error::System(error)) = &has_filter {
            if matches!(
                error.source.raw_os_error(),
                Some(libc::ENOENT | libc::ENODEV)
            ) {
                return None;
            }
        }
        Some(Self { path, has_filter })
    }
}

/// Tells whether a program for devices is attached to the cgroup itself.
fn has_own_filter(path: &CgroupPath) -> bpf::Result<bool> {
    let chain = Mount::open()?.open_chain(path)?;
    Ok(!CgroupPrograms::read(chain.dir()?)?.programs.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;
    use kernel::OperationError;
    use std::io;

    fn read(answer: Result<bool, i32>) -> FluxUnitFacts {
        let has_filter = answer.map_err(|errno| {
            let error = io::Error::from_raw_os_error(errno);
            OperationError::new("query", "/unit", error).into()
        });
        let unit = Unit::new("/unit".parse().unwrap(), has_filter);
        FluxUnitFacts {
            units: unit.into_iter().collect(),
            refuses_filters: false,
        }
    }

    #[test]
    fn open_unit_is_noted_if_the_site_wants_no_filter() {
        let facts = FluxUnitFacts {
            refuses_filters: true,
            ..read(Ok(false))
        };
        let findings = facts.findings();
        let finding = findings.first().unwrap();
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.text.contains("have all devices"), "{finding:?}");
    }

    #[test]
    fn unit_that_has_gone_meanwhile_has_no_finding() {
        assert_eq!(read(Err(libc::ENOENT)).findings(), []);
        assert_eq!(read(Err(libc::ENODEV)).findings(), []);
        let severity = |answer| read(answer).findings().first().unwrap().severity;
        assert_eq!(severity(Err(libc::EPERM)), Severity::Unknown);
        assert_eq!(severity(Ok(false)), Severity::Warning);
        assert_eq!(severity(Ok(true)), Severity::Fine);
    }
}
