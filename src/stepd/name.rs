//! Names of step daemons' sockets.

use std::fmt;

use crate::plan::{JobId, NodeName, decimal};

/// Number of the step that a job's logins belong to (`SLURM_EXTERN_CONT` of `slurm.h`).
const EXTERN_STEP: u32 = 0xffff_fffc;

/// Name of the socket of a job's extern step: `NODE_JOB.4294967292`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName {
    /// The node, as Slurm calls it.
    pub node: NodeName,
    /// The job, in decimal digits.
    pub job: JobId,
}

impl SocketName {
    /// The name for this job; `None` for an id that is no number of Slurm's.
    #[must_use]
    pub fn new(node: &NodeName, job: &JobId) -> Option<Self> {
        decimal(job.as_str())?;
        Some(Self { node: node.clone(), job: job.clone() })
    }

    /// Reads a name; `None` for anything but the socket of an extern step.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (name, step) = Self::with_step(name)?;
        (step == EXTERN_STEP).then_some(name)
    }

    /// Whether this is the name of a socket of a step that is no extern step.
    #[must_use]
    pub fn is_of_step(name: &str) -> bool {
        Self::with_step(name).is_some_and(|(_, step)| step != EXTERN_STEP)
    }

    fn with_step(name: &str) -> Option<(Self, u32)> {
        let (rest, step) = name.rsplit_once('.')?;
        let (node, job) = rest.rsplit_once('_')?;
        let name = Self::new(&node.parse().ok()?, &job.parse().ok()?)?;
        Some((name, decimal(step)?))
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}.{EXTERN_STEP}", self.node, self.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_nothing_else_is_one() {
        for good in ["gpu017_4242.4294967292", "a_b_1.4294967292", "n.cluster-1_7.4294967292"] {
            assert_eq!(SocketName::parse(good).unwrap().to_string(), good);
            assert!(!SocketName::is_of_step(good));
        }
        for bad in [
            "",
            "gpu017_4242.0",
            "gpu017_4242.4294967291",
            "gpu017_4242.4294967292.0",
            "gpu017_04242.4294967292",
            "gpu017_4294967296.4294967292",
            "gpu017_x.4294967292",
            "_1.4294967292",
            "gpu017.4294967292",
            "gpu/17_1.4294967292",
        ] {
            assert_eq!(SocketName::parse(bad), None, "{bad}");
            let of_step = ["gpu017_4242.0", "gpu017_4242.4294967291"].contains(&bad);
            assert_eq!(SocketName::is_of_step(bad), of_step, "{bad}");
        }
    }
}
