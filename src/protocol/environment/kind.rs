//! The table of the variables that a helper can pass on, and the forms of their values.

use crate::schema::InvalidText;
use crate::words::Scheduler;

/// The form of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The id of the job that the login joins.
    Id,
    /// One number, of digits alone.
    Number,
    /// Numbers, in Slurm's form `2(x3),1`. Scripts calculate with them, and a shell reads a name in an
    /// arithmetic expression as a variable, to which it may even assign (`PATH=1`).
    Numbers,
    /// A name that is no path: programs may look below a folder for it.
    Name,
    /// A name, a list of names, or a path.
    Word,
    /// Words with one blank between them.
    Words,
    /// An absolute path that does not lead back up.
    Path,
}

use Form::{Id, Name, Number, Numbers, Path, Word, Words};
use Scheduler::{Flux, GridEngine, HtCondor, Lsf, Oar, OpenPbs, Other, Slurm};

/// A variable of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VariableKind {
    pub(super) name: &'static str,
    /// The schedulers whose logins may have it.
    pub(super) schedulers: &'static [Scheduler],
    /// The form of its value.
    pub(super) form: Form,
}

/// Makes a row of the table.
pub(super) const fn kind(
    name: &'static str,
    schedulers: &'static [Scheduler],
    form: Form,
) -> VariableKind {
    VariableKind {
        name,
        schedulers,
        form,
    }
}

/// Every variable that a helper can pass on. None names a program to load or run; but root's scripts of later session
/// lines (`pam_exec`) have them too, and a shell writes its here-documents to `TMPDIR`. Launchers and
/// libraries learn from them how many processes to start on which nodes, where to write temporary files, and
/// which of the GPUs that the filter allows to use. So `SGE_ROOT`, `LSF_SERVERDIR`, `PBS_EXEC` and their like are
/// missing, whose programs launchers run, and HTCondor has only the names that it gives its jobs, since it takes any
/// other `_CONDOR_NAME` for a setting. docs/threats.md says what a subverted helper could do with them.
pub(super) const VARIABLE_KINDS: &[VariableKind] = &[
    // What programs read of the GPUs that a login can open.
    kind("CUDA_VISIBLE_DEVICES", &Scheduler::ALL, Word),
    kind("GPU_DEVICE_ORDINAL", &[Slurm], Word),
    kind("ROCR_VISIBLE_DEVICES", &Scheduler::ALL, Word),
    kind("ZE_AFFINITY_MASK", &Scheduler::ALL, Word),
    kind("FLUX_JOB_ID", &[Flux], Id),
    kind("SLURM_CLUSTER_NAME", &[Slurm], Word),
    kind("SLURM_JOBID", &[Slurm], Id),
    kind("SLURM_JOB_ACCOUNT", &[Slurm], Word),
    kind("SLURM_JOB_CPUS_PER_NODE", &[Slurm], Numbers),
    kind("SLURM_JOB_ID", &[Slurm], Id),
    kind("SLURM_JOB_NODELIST", &[Slurm], Word),
    kind("SLURM_JOB_NUM_NODES", &[Slurm], Numbers),
    kind("SLURM_JOB_PARTITION", &[Slurm], Word),
    kind("SLURM_JOB_UID", &[Slurm], Numbers),
    kind("SLURM_JOB_USER", &[Slurm], Word),
    kind("SLURM_NNODES", &[Slurm], Numbers),
    kind("SLURM_NODELIST", &[Slurm], Word),
    kind("SLURM_SUBMIT_DIR", &[Slurm], Word),
    kind("SLURM_TASKS_PER_NODE", &[Slurm], Numbers),
    // Several schedulers make a directory for each job, and name it so; two name its cores.
    kind("OMP_NUM_THREADS", &[HtCondor, OpenPbs], Number),
    kind(
        "TMPDIR",
        &[GridEngine, HtCondor, Lsf, Oar, OpenPbs, Other],
        Path,
    ),
    // qsub(1) of Grid Engine.
    kind("ARC", &[GridEngine], Name),
    kind("JOB_ID", &[GridEngine], Id),
    kind("NHOSTS", &[GridEngine], Number),
    kind("NSLOTS", &[GridEngine], Number),
    kind("PE", &[GridEngine], Name),
    kind("PE_HOSTFILE", &[GridEngine], Path),
    kind("QUEUE", &[GridEngine], Name),
    kind("SGE_CELL", &[GridEngine], Name),
    kind("SGE_JOB_SPOOL_DIR", &[GridEngine], Path),
    kind("SGE_TASK_ID", &[GridEngine], Number),
    // The manual of HTCondor, "Environment Variables Available to the Job".
    kind("BATCH_SYSTEM", &[HtCondor], Name),
    kind("_CONDOR_JOB_AD", &[HtCondor], Path),
    kind("_CONDOR_JOB_IWD", &[HtCondor], Path),
    kind("_CONDOR_MACHINE_AD", &[HtCondor], Path),
    kind("_CONDOR_SCRATCH_DIR", &[HtCondor], Path),
    kind("_CONDOR_SLOT", &[HtCondor], Name),
    // oarsub(1).
    kind("OAR_ARRAY_ID", &[Oar], Number),
    kind("OAR_ARRAY_INDEX", &[Oar], Number),
    kind("OAR_FILE_NODES", &[Oar], Path),
    kind("OAR_JOBID", &[Oar], Id),
    kind("OAR_JOB_ID", &[Oar], Id),
    kind("OAR_NODEFILE", &[Oar], Path),
    kind("OAR_NODE_FILE", &[Oar], Path),
    kind("OAR_PROJECT_NAME", &[Oar], Name),
    kind("OAR_RESOURCE_FILE", &[Oar], Path),
    kind("OAR_RESOURCE_PROPERTIES_FILE", &[Oar], Path),
    kind("OAR_WORKDIR", &[Oar], Path),
    kind("OAR_WORKING_DIRECTORY", &[Oar], Path),
    // qsub(1B) of OpenPBS.
    kind("NCPUS", &[OpenPbs], Number),
    kind("PBS_ARRAY_ID", &[OpenPbs], Word),
    kind("PBS_ARRAY_INDEX", &[OpenPbs], Number),
    kind("PBS_JOBDIR", &[OpenPbs], Path),
    kind("PBS_JOBID", &[OpenPbs], Id),
    kind("PBS_NODEFILE", &[OpenPbs], Path),
    kind("PBS_O_WORKDIR", &[OpenPbs], Path),
    kind("PBS_QUEUE", &[OpenPbs], Name),
    // "Environment variables set for job execution" of LSF.
    kind("LSB_DJOB_HOSTFILE", &[Lsf], Path),
    kind("LSB_DJOB_NUMPROC", &[Lsf], Number),
    kind("LSB_HOSTS", &[Lsf], Words),
    kind("LSB_JOBID", &[Lsf], Id),
    kind("LSB_JOBINDEX", &[Lsf], Number),
    kind("LSB_MAX_NUM_PROCESSORS", &[Lsf], Number),
    kind("LSB_MCPU_HOSTS", &[Lsf], Words),
    kind("LSB_QUEUE", &[Lsf], Name),
    kind("LS_SUBCWD", &[Lsf], Path),
    // Names of ours for a scheduler without a list. No other program reads them.
    kind("JOB_ADOPT_CPUS", &[Other], Number),
    kind("JOB_ADOPT_JOB_ID", &[HtCondor, Other], Id),
    kind("JOB_ADOPT_NODEFILE", &[Other], Path),
    kind("JOB_ADOPT_NODELIST", &[Other], Words),
    kind("JOB_ADOPT_NODES", &[Other], Number),
    kind("JOB_ADOPT_TASKS", &[Other], Number),
];

impl Form {
    /// Checks that a value has this form, and is active neither in a shell nor as an option.
    ///
    /// # Errors
    ///
    /// The text describes the form.
    pub(super) fn check(self, value: &str) -> Result<(), InvalidText> {
        let is_plain = match self {
            Words => value.split(' ').all(is_inert_value),
            Id | Number | Numbers | Name | Word | Path => is_inert_value(value),
        };
        if !is_plain {
            return Err(INVALID_VALUE);
        }
        match self {
            Number if !value.bytes().all(|byte| byte.is_ascii_digit()) => Err(NO_NUMBERS),
            Numbers if !is_numbers(value) => Err(NO_NUMBERS),
            Name if value.contains('/') || value.starts_with('.') => Err(NO_NAME),
            Path if !is_straight_path(value) => Err(NO_PATH),
            _ => Ok(()),
        }
    }
}

/// Tells whether a path is absolute and does not lead back up.
fn is_straight_path(value: &str) -> bool {
    value.starts_with('/') && !value.split('/').any(|part| part == "..")
}

/// Tells whether a value consists of digits and the signs of Slurm's lists of numbers.
fn is_numbers(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"(x),".contains(&byte))
}

/// Tells whether a value is active neither in a shell nor as an option.
///
/// It has only characters that mean nothing to a shell inside of a word: letters, digits, and the characters
/// of Slurm's lists, of paths and of UUIDs. A bracket can at most match names of files. A parenthesis matters
/// only in a text that is run as a command. No entry of a list begins with a hyphen: ssh(1) would read a node
/// of such a name as an option, and an option can run a command.
pub(super) fn is_inert_value(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+,:@/=[]()".contains(&byte);
    let is_option = |entry: &str| entry.starts_with('-');
    !value.is_empty() && value.bytes().all(is_plain) && !value.split([',', '[']).any(is_option)
}

pub(super) const INVALID_VALUE: InvalidText =
    InvalidText("is empty, or has blanks, signs that a shell reads, or what looks like an option");
pub(super) const NO_NUMBERS: InvalidText = InvalidText("is no number, or no list of numbers");
const NO_NAME: InvalidText = InvalidText("is no name but a path");
const NO_PATH: InvalidText = InvalidText("is no absolute path without \"..\"");
