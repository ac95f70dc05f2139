//! Variables of a job as the scheduler's prolog sees them.

use std::collections::BTreeMap;

/// Maximum bytes of a variable with its name and `=`.
const VARIABLE_BYTES_MAX: usize = 1024;

/// Variables of a job by their names in Slurm's prolog. The names are those of a fixed table: the
/// variables from which a login's environment is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrologEnvironment(BTreeMap<String, String>);

impl PrologEnvironment {
    /// The names that a record may have (slurm.conf(5), prolog and epilog). Slurm sets them, not
    /// the job; the user chooses only the value of the working directory.
    pub const NAMES: [&str; 13] = [
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "ROCR_VISIBLE_DEVICES",
        "SLURM_CLUSTER_NAME",
        "SLURM_JOB_ACCOUNT",
        "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_NTASKS",
        "SLURM_JOB_NUM_NODES",
        "SLURM_JOB_PARTITION",
        "SLURM_JOB_USER",
        "SLURM_JOB_WORK_DIR",
        "ZE_AFFINITY_MASK",
    ];

    /// The variables, if every name is one of [`Self::NAMES`] and every value is valid; else `None`.
    pub fn new(variables: BTreeMap<String, String>) -> Option<Self> {
        let is_valid = |(name, value): (&String, &String)| {
            Self::NAMES.contains(&name.as_str()) && Self::is_valid_value(name, value)
        };
        variables.iter().all(is_valid).then_some(Self(variables))
    }

    /// Tells whether a value is valid: printable, not empty and not too long.
    pub fn is_valid_value(name: &str, value: &str) -> bool {
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let short = name.len() + 1 + value.len() <= VARIABLE_BYTES_MAX;
        short && !value.is_empty() && value.bytes().all(printable)
    }

    /// The value of a variable; `None` if the prolog did not set it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The variables by their names.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str, value: &str) -> Option<PrologEnvironment> {
        PrologEnvironment::new([(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn variable_with_known_name_is_valid() {
        for name in PrologEnvironment::NAMES {
            assert_eq!(
                environment(name, "x").unwrap().get(name),
                Some("x"),
                "{name}"
            );
        }
        assert!(PrologEnvironment::NAMES.is_sorted());
    }

    #[test]
    fn unknown_name_or_unprintable_value_is_refused() {
        for name in [
            "PATH",
            "LD_PRELOAD",
            "SLURM_PROCID",
            "SLURM_JOB_COMMENT",
            "",
            "A=B",
        ] {
            assert_eq!(environment(name, "x"), None, "{name}");
        }
        let long = "x".repeat(1024);
        for value in ["", "a\nb", "\u{e4}", "\u{1b}[2J", &long] {
            assert_eq!(environment("SLURM_JOB_WORK_DIR", value), None, "{value:?}");
        }
    }
}
