//! What a record keeps of the environment that a scheduler's prolog has of its job.

use std::collections::BTreeMap;

const VARIABLE_MAX: usize = 1024;

/// Variables of a job by their names in Slurm's prolog, out of a fixed table: what a login is given
/// is made of these, and what is not needed for that is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The names that a record may have (slurm.conf(5), prolog and epilog). Slurm sets them, not
    /// the job; of one alone, the working directory, the user chooses the value.
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

    /// The variables, where every name is one of [`Self::NAMES`] and every value can be kept; `None`
    /// otherwise.
    pub fn new(variables: BTreeMap<String, String>) -> Option<Self> {
        let good = |(name, value): (&String, &String)| {
            Self::NAMES.contains(&name.as_str()) && Self::may_be(name, value)
        };
        variables.iter().all(good).then_some(Self(variables))
    }

    /// Whether a value can be kept: printable, neither empty nor too long.
    pub fn may_be(name: &str, value: &str) -> bool {
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let short = name.len() + 1 + value.len() <= VARIABLE_MAX;
        short && !value.is_empty() && value.bytes().all(printable)
    }

    /// The value of a variable.
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

    fn made(name: &str, value: &str) -> Option<Environment> {
        Environment::new([(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn every_name_of_the_table_is_kept() {
        for name in Environment::NAMES {
            assert_eq!(made(name, "x").unwrap().get(name), Some("x"), "{name}");
        }
        assert!(Environment::NAMES.is_sorted());
    }

    #[test]
    fn neither_other_names_nor_other_values_are_kept() {
        for name in ["PATH", "LD_PRELOAD", "SLURM_PROCID", "SLURM_JOB_COMMENT", "", "A=B"] {
            assert_eq!(made(name, "x"), None, "{name}");
        }
        let long = "x".repeat(1024);
        for value in ["", "a\nb", "\u{e4}", "\u{1b}[2J", &long] {
            assert_eq!(made("SLURM_JOB_WORK_DIR", value), None, "{value:?}");
        }
    }
}
