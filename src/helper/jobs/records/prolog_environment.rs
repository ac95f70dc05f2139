//! Variables of a job as the scheduler's prolog sees them.

use protocol::{JobId, Scheduler, Variable, Variables};
use std::collections::BTreeMap;
use thiserror::Error;

/// Maximum bytes of a variable with its name and `=`.
const VARIABLE_BYTES_MAX: usize = 1024;

/// Variables of a job by their names in the scheduler's prolog. The names are those of a fixed table: the
/// variables from which a login's environment is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrologEnvironment(BTreeMap<String, String>);

/// A variable that a record cannot have, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} {fault}: leave it out")]
pub struct UnusableVariable {
    name: String,
    fault: &'static str,
}

const UNKNOWN_NAME: &str =
    "is none of the variables of such a job, which job-adopt-record(5) lists";
const OPENED_GPUS: &str = "is made of the GPUs that a login opens (env = gpus)";
const INVALID_VALUE: &str = "is empty, not printable, or has more than 1024 bytes with its name";

impl PrologEnvironment {
    /// The names that a record of a Slurm job may have (slurm.conf(5), prolog and epilog). Slurm sets them, not
    /// the job; the user chooses only the value of the working directory.
    pub const SLURM_NAMES: [&str; 13] = [
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

    /// Checks the variables of a record and keeps them. Those of a Slurm job are named in [`Self::SLURM_NAMES`], and
    /// the variables of its logins are derived from them; those of any other job are the variables of its logins.
    ///
    /// # Errors
    ///
    /// The first variable that a record of such a job cannot have, and why.
    pub fn new(
        variables: BTreeMap<String, String>,
        job: &JobId,
        scheduler: Scheduler,
    ) -> Result<Self, UnusableVariable> {
        let environment = Self(variables);
        match scheduler {
            Scheduler::Slurm => environment.check_slurm()?,
            // Each login makes its variables anew; here only their errors matter.
            _ => drop(environment.login_variables(job, scheduler)?),
        }
        Ok(environment)
    }

    /// Tells whether a value of a Slurm job is valid: printable, not empty and not too long.
    pub fn is_valid_value(name: &str, value: &str) -> bool {
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let short = name.len() + 1 + value.len() <= VARIABLE_BYTES_MAX;
        short && !value.is_empty() && value.bytes().all(printable)
    }

    /// The variables of logins to this job, which is not Slurm's. The first one has the id: as the prolog wrote it, or
    /// else `job`.
    ///
    /// # Errors
    ///
    /// [`UnusableVariable`] for a variable that is not the scheduler's or not of this job, for a list of GPUs, which
    /// is made at each login, and for too many variables.
    pub(crate) fn login_variables(
        &self,
        job: &JobId,
        scheduler: Scheduler,
    ) -> Result<Variables, UnusableVariable> {
        let mut variables = id_variable(Some(self), job, scheduler)?;
        for (name, value) in &self.0 {
            // `id_variable` has put it first.
            if name == Variable::id_name(scheduler) {
                continue;
            }
            if Variable::lists_gpus(name) {
                return Err(unusable(name, OPENED_GPUS));
            }
            add_variable(&mut variables, name, value, job, scheduler)?;
        }
        Ok(variables)
    }

    /// The value of a variable; `None` if the prolog did not set it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The variables by their names.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Checks the names and values of a Slurm job.
    ///
    /// # Errors
    ///
    /// The first variable that a record of a Slurm job cannot have, and why.
    fn check_slurm(&self) -> Result<(), UnusableVariable> {
        for (name, value) in &self.0 {
            if !Self::SLURM_NAMES.contains(&name.as_str()) {
                return Err(unusable(name, UNKNOWN_NAME));
            }
            if !Self::is_valid_value(name, value) {
                return Err(unusable(name, INVALID_VALUE));
            }
        }
        Ok(())
    }
}

/// The variable with the id of a job, alone in a list: the one that the `environment` of its record has, or else the
/// job's own id.
///
/// # Errors
///
/// [`UnusableVariable`] if the record has the id of another job.
pub(crate) fn id_variable(
    environment: Option<&PrologEnvironment>,
    job: &JobId,
    scheduler: Scheduler,
) -> Result<Variables, UnusableVariable> {
    let name = Variable::id_name(scheduler);
    let value = environment
        .and_then(|environment| environment.get(name))
        .unwrap_or(job.as_str());
    let mut variables = Variables::default();
    add_variable(&mut variables, name, value, job, scheduler)?;
    Ok(variables)
}

/// Appends a variable of this job to the list.
///
/// # Errors
///
/// [`UnusableVariable`] for a variable that is not the scheduler's or not of this job, and for one too many.
fn add_variable(
    variables: &mut Variables,
    name: &str,
    value: &str,
    job: &JobId,
    scheduler: Scheduler,
) -> Result<(), UnusableVariable> {
    Variable::of_job(name, value, job, scheduler)
        .and_then(|variable| variables.push(variable))
        .map_err(|fault| unusable(name, fault.as_str()))
}

fn unusable(name: &str, fault: &'static str) -> UnusableVariable {
    UnusableVariable {
        name: name.to_owned(),
        fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scheduler::{GridEngine, HtCondor, Lsf, Oar, OpenPbs, Other, Slurm};

    fn environment(
        scheduler: Scheduler,
        id: &str,
        variables: &[(&str, &str)],
    ) -> Result<PrologEnvironment, UnusableVariable> {
        let owned = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        PrologEnvironment::new(owned.collect(), &id.parse().unwrap(), scheduler)
    }

    fn fault(scheduler: Scheduler, id: &str, name: &str, value: &str) -> String {
        environment(scheduler, id, &[(name, value)])
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn variable_with_known_name_is_valid() {
        for name in PrologEnvironment::SLURM_NAMES {
            let environment = environment(Slurm, "7", &[(name, "x")]).unwrap();
            assert_eq!(environment.get(name), Some("x"), "{name}");
        }
        assert!(PrologEnvironment::SLURM_NAMES.is_sorted());
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
            let text = fault(Slurm, "7", name, "x");
            assert!(
                text.starts_with(&format!("{name} is none of the variables")),
                "{text}"
            );
        }
        let long = "x".repeat(1024);
        for value in ["", "a\nb", "\u{e4}", "\u{1b}[2J", &long] {
            let text = fault(Slurm, "7", "SLURM_JOB_WORK_DIR", value);
            assert!(text.starts_with("SLURM_JOB_WORK_DIR is empty"), "{text}");
        }
    }

    #[test]
    fn each_scheduler_has_its_own_names() {
        for (scheduler, id, variables) in [
            (
                GridEngine,
                "77.3",
                &[
                    ("JOB_ID", "77"),
                    ("SGE_TASK_ID", "3"),
                    ("NSLOTS", "8"),
                    (
                        "PE_HOSTFILE",
                        "/var/spool/node/active_jobs/77.3/pe_hostfile",
                    ),
                    ("TMPDIR", "/tmp/77.3.all.q"),
                ][..],
            ),
            (
                HtCondor,
                "12.0-slot1_1",
                &[
                    ("JOB_ADOPT_JOB_ID", "12.0"),
                    ("_CONDOR_SCRATCH_DIR", "/var/lib/condor/execute/dir_7"),
                    ("_CONDOR_SLOT", "slot1_1"),
                ],
            ),
            (
                Oar,
                "77",
                &[
                    ("OAR_JOB_ID", "77"),
                    ("OAR_JOBID", "77"),
                    ("OAR_NODEFILE", "/var/lib/oar/77"),
                ],
            ),
            (
                OpenPbs,
                "77.3.site",
                &[
                    ("PBS_JOBID", "77[3].site"),
                    ("PBS_NODEFILE", "/var/spool/pbs/aux/77[3].site"),
                ],
            ),
            (
                Lsf,
                "77.0",
                &[
                    ("LSB_JOBID", "77"),
                    ("LSB_HOSTS", "n1 n1 n2"),
                    ("LSB_MCPU_HOSTS", "n1 2 n2 1"),
                ],
            ),
            (
                Other,
                "a",
                &[("JOB_ADOPT_NODEFILE", "/run/a"), ("JOB_ADOPT_TASKS", "2")],
            ),
        ] {
            let valid = environment(scheduler, id, variables);
            assert!(valid.is_ok(), "{scheduler} {valid:?}");
            for other in [GridEngine, HtCondor, Oar, OpenPbs, Lsf, Other, Slurm] {
                let refused = environment(other, id, variables);
                assert!(
                    other == scheduler || refused.is_err(),
                    "{scheduler} {other}"
                );
            }
        }
    }

    /// A login runs programs, and these names decide which, or what in them.
    #[test]
    fn name_that_decides_what_programs_run_is_refused() {
        for scheduler in [GridEngine, HtCondor, Oar, OpenPbs, Lsf, Other] {
            for name in [
                "PATH",
                "LD_PRELOAD",
                "LD_LIBRARY_PATH",
                "LD_AUDIT",
                "BASH_ENV",
                "ENV",
                "IFS",
                "PYTHONPATH",
                "PYTHONSTARTUP",
                "PERL5LIB",
                "PERL5OPT",
                "SHELL",
                "HOME",
                "USER",
                "EDITOR",
                "PAGER",
                "GLIBC_TUNABLES",
                "GCONV_PATH",
                "GIT_SSH_COMMAND",
                "OMPI_MCA_plm_rsh_agent",
                "JAVA_TOOL_OPTIONS",
                "SGE_ROOT",
                "LSF_SERVERDIR",
                "LSF_ENVDIR",
                "PBS_EXEC",
                "PBS_CONF_FILE",
                "CONDOR_CONFIG",
                "_CONDOR_SHELL",
                "DISPLAY",
            ] {
                let text = fault(scheduler, "77", name, "7");
                assert!(
                    text.starts_with(&format!("{name} is none of the variables")),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn value_of_another_form_or_job_is_refused_with_its_name() {
        for (scheduler, name, value, expected) in [
            (GridEngine, "NSLOTS", "PATH=1", "is no number"),
            (
                GridEngine,
                "PE_HOSTFILE",
                "pe_hostfile",
                "is no absolute path",
            ),
            (GridEngine, "TMPDIR", "/tmp/../etc", "is no absolute path"),
            (GridEngine, "ARC", "../../tmp", "is no name"),
            (GridEngine, "QUEUE", "$(id)", "is empty, or has blanks"),
            (GridEngine, "QUEUE", "", "is empty, or has blanks"),
            (GridEngine, "QUEUE", "a\nb", "is empty, or has blanks"),
            (GridEngine, "JOB_ID", "78", "is the id of another job"),
            (GridEngine, "JOB_ID", "7", "is the id of another job"),
            (Lsf, "LSB_HOSTS", "n1  n2", "is empty, or has blanks"),
            (
                Lsf,
                "LSB_HOSTS",
                "n1 -oProxyCommand=x",
                "is empty, or has blanks",
            ),
            (
                OpenPbs,
                "PBS_JOBID",
                "77[4].site",
                "is the id of another job",
            ),
            (Other, "CUDA_VISIBLE_DEVICES", "0", "is made of the GPUs"),
        ] {
            let text = fault(scheduler, "77.3.site", name, value);
            assert!(
                text.starts_with(&format!("{name} {expected}")),
                "{value:?}: {text}"
            );
        }
        let long = "n1 ".repeat(350) + "n1";
        let text = fault(Lsf, "77", "LSB_HOSTS", &long);
        assert!(
            text.starts_with("LSB_HOSTS has more than 1024 bytes"),
            "{text}"
        );
    }

    #[test]
    fn more_variables_than_a_login_can_have_are_refused() {
        let long = format!("/{}", "d".repeat(900));
        let names = [
            "OAR_FILE_NODES",
            "OAR_NODEFILE",
            "OAR_NODE_FILE",
            "OAR_RESOURCE_FILE",
            "OAR_RESOURCE_PROPERTIES_FILE",
        ];
        let all = names.map(|name| (name, long.as_str()));
        assert!(environment(Oar, "7", all.get(..4).unwrap()).is_ok());
        let text = environment(Oar, "7", &all).unwrap_err().to_string();
        assert!(text.contains("more than 4096 bytes"), "{text}");
    }

    #[test]
    fn login_has_the_id_of_the_record_or_of_the_job() {
        let variables = |env: &[(&str, &str)]| {
            let environment = environment(GridEngine, "77.3", env).unwrap();
            let id = "77.3".parse().unwrap();
            let all = environment.login_variables(&id, GridEngine).unwrap();
            all.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(variables(&[]), "JOB_ID=77.3");
        let given = [("JOB_ID", "77"), ("ARC", "lx-amd64")];
        assert_eq!(variables(&given), "JOB_ID=77 ARC=lx-amd64");
    }
}
