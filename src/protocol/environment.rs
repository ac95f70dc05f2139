//! Variables that a login may get. A fixed table names them, and they describe the login's job. No shell
//! expands anything in a value, and no program reads a value as an option.

mod kind;

use kind::{Form, VARIABLE_KINDS, VariableKind, is_inert_value, kind};
use std::fmt;
use std::str::FromStr;

use super::names::{JobId, parse_decimal};
use super::schema::{DecodeError, Field, InvalidText, Reader, Text, Writer, item_key};
use super::words::{Scheduler, SourceName};
use Scheduler::{Flux, GridEngine, HtCondor, Lsf, Oar, OpenPbs, Other, Slurm};

/// Maximum bytes of `NAME=VALUE`.
const VARIABLE_BYTES_MAX: usize = 1024;
/// Maximum bytes of all variables of one login together, each as `NAME=VALUE`.
pub const ENVIRONMENT_BYTES_MAX: usize = 4096;
/// Maximum variables of one login.
const VARIABLES_MAX: usize = 32;
/// Maximum bytes of the value that names one GPU.
const GPU_NAME_BYTES_MAX: usize = 64;

/// The list that NVIDIA's libraries read.
const CUDA_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// The list that NVIDIA's container tools read.
const NVIDIA_VARIABLE: &str = "NVIDIA_VISIBLE_DEVICES";
/// The value by which these tools give a container no GPU.
const NO_NVIDIA_GPU: &str = "void";

/// A variable with a checked value: one of the table ([`Variable::from_pair`]), or `DISPLAY` or `XAUTHORITY` of an
/// X11 display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    kind: VariableKind,
    value: String,
}

impl Variable {
    /// Makes a variable of the table from a name and a value. Whether an id is that of the login's job is
    /// checked later, with the whole reply.
    ///
    /// # Errors
    ///
    /// A name that is not in the table; a value that is empty, of more than 1,024 bytes as `NAME=VALUE`, of
    /// another form than the table has, or active in a shell or as an option.
    pub fn from_pair(name: &str, value: &str) -> Result<Self, InvalidText> {
        let kind = *VARIABLE_KINDS
            .iter()
            .find(|kind| kind.name == name)
            .ok_or(UNKNOWN_NAME)?;
        if name.len() + 1 + value.len() > VARIABLE_BYTES_MAX {
            return Err(LONG_VALUE);
        }
        kind.form.check(value)?;
        Ok(Self {
            kind,
            value: value.to_owned(),
        })
    }

    /// Makes the variable for logins of this job of a scheduler, under one of its names.
    ///
    /// # Errors
    ///
    /// Those of [`Self::from_pair`]; a name of another scheduler; the id of another job.
    pub fn of_job(
        name: &str,
        value: &str,
        job: &JobId,
        scheduler: Scheduler,
    ) -> Result<Self, InvalidText> {
        let variable = Self::from_pair(name, value)?;
        if !variable.kind.schedulers.contains(&scheduler) {
            return Err(UNKNOWN_NAME);
        }
        if !variable.describes(job, scheduler) {
            return Err(OTHER_JOB);
        }
        Ok(variable)
    }

    /// The name by which a scheduler tells its jobs their id. HTCondor has none, so that its jobs have ours.
    pub fn id_name(scheduler: Scheduler) -> &'static str {
        match scheduler {
            Slurm => "SLURM_JOB_ID",
            Flux => "FLUX_JOB_ID",
            GridEngine => "JOB_ID",
            Lsf => "LSB_JOBID",
            Oar => "OAR_JOB_ID",
            OpenPbs => "PBS_JOBID",
            HtCondor | Other => "JOB_ADOPT_JOB_ID",
        }
    }

    /// Tells whether a login to a job of any scheduler gets a variable of this name from the GPUs that it can open, so
    /// that no record may give it.
    pub fn lists_gpus(name: &str) -> bool {
        // The table has only these lists for all schedulers.
        let is_list = |kind: &VariableKind| kind.schedulers == Scheduler::ALL;
        name == NVIDIA_VARIABLE
            || VARIABLE_KINDS
                .iter()
                .any(|kind| kind.name == name && is_list(kind))
    }

    /// Tells whether this names an NVIDIA GPU otherwise than by its number.
    fn is_nvidia_uuid(&self) -> bool {
        self.name() == CUDA_VARIABLE && parse_decimal(&self.value).is_none()
    }

    /// The names that a record of this scheduler's jobs may have: those of GPUs are not among them.
    pub fn names(scheduler: Scheduler) -> impl Iterator<Item = &'static str> {
        VARIABLE_KINDS
            .iter()
            .filter(move |kind| kind.schedulers.contains(&scheduler))
            .map(|kind| kind.name)
            .filter(|name| !Self::lists_gpus(name))
    }

    /// Tells whether the variable may describe this job of a scheduler: only the id of another job does not. The id of a
    /// record is the scheduler's own one, for some followed by the task or the slot (`77.1` for `77`, `12.3.site` for
    /// `12[3].site`). A scheduler that is not known here has its records' ids.
    fn describes(&self, job: &JobId, scheduler: Scheduler) -> bool {
        let job = job.as_str();
        let value = self.value.as_str();
        if self.kind.form != Form::Id || job == value {
            return true;
        }
        if scheduler == Other || scheduler.source() != SourceName::Registry {
            return false;
        }
        let translated = match scheduler {
            Lsf | OpenPbs => translate_index(value),
            _ => None,
        };
        let scheduler_id = translated.as_deref().unwrap_or(value);
        job.strip_prefix(scheduler_id)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    }

    /// Makes the variables for the X11 display of a job and for the file with its keys. They come from the step
    /// daemon: no reply of the helper can contain them. A number that is not above 0 and a path that is not absolute,
    /// or that a shell would change, give no variable.
    pub fn from_display(number: i32, key_file: &str) -> Vec<Self> {
        let display = format!("localhost:{number}.0");
        let mut variables = Vec::new();
        if number > 0 {
            variables.push(("DISPLAY", display.as_str()));
        }
        if key_file.starts_with('/') && is_inert_value(key_file) {
            variables.push(("XAUTHORITY", key_file));
        }
        variables
            .into_iter()
            .map(|(name, value)| Self {
                kind: kind(name, &[Slurm], Form::Word),
                value: value.to_owned(),
            })
            .collect()
    }

    /// The name, one of a fixed table, or `DISPLAY` and `XAUTHORITY` of an X11 display.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Parses the variable of a [`Probe`](super::Probe), which names to programs the one GPU whose node is probed: one of
    /// the lists of GPUs, with one GPU in it.
    ///
    /// # Errors
    ///
    /// A text that is no variable for a login, lists no GPUs, or lists several.
    pub(super) fn parse_gpu_list(text: &str) -> Result<Self, InvalidText> {
        let variable: Self = text.parse()?;
        // Those that a login to a job of any scheduler may have.
        let list_names = [CUDA_VARIABLE, "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
        if !list_names.contains(&variable.name()) {
            return Err(UNKNOWN_NAME);
        }
        let value = &variable.value;
        if value.len() > GPU_NAME_BYTES_MAX || value.contains(',') {
            return Err(NOT_ONE_GPU);
        }
        Ok(variable)
    }

    /// The number of bytes of `NAME=VALUE`.
    fn byte_count(&self) -> usize {
        self.name().len() + 1 + self.value.len()
    }
}

/// Writes the id of an array's task as a record does: `12.3.site` for `12[3].site`. `None` for any other text.
fn translate_index(id: &str) -> Option<String> {
    let (array, rest) = id.split_once('[')?;
    let (index, site) = rest.split_once(']')?;
    let is_index = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    let is_end = site.is_empty() || site.starts_with('.');
    (is_index && is_end).then(|| format!("{array}.{index}{site}"))
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name(), self.value)
    }
}

impl FromStr for Variable {
    type Err = InvalidText;

    /// Parses `NAME=VALUE` for a variable of the table.
    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let (name, value) = text.split_once('=').ok_or(UNKNOWN_NAME)?;
        Self::from_pair(name, value)
    }
}

impl Text for Variable {
    const ITEMS_MAX: usize = VARIABLES_MAX;
}

/// The variables of one login: each name once, at most 32 of them and [`ENVIRONMENT_BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<Variable>);

impl Variables {
    /// Adds a variable.
    ///
    /// # Errors
    ///
    /// A name that is there already; more variables, or more bytes together, than a login can have.
    pub fn push(&mut self, variable: Variable) -> Result<(), InvalidText> {
        let bytes: usize = self
            .0
            .iter()
            .chain([&variable])
            .map(Variable::byte_count)
            .sum();
        if self.has(variable.name())
            || bytes > ENVIRONMENT_BYTES_MAX
            || self.0.len() >= VARIABLES_MAX
        {
            return Err(REPEATED_OR_TOO_MANY);
        }
        self.0.push(variable);
        Ok(())
    }

    /// Adds the GPUs that a login can open, of those that were probed, to the lists of their names. A number becomes
    /// the next number in its list: programs count the GPUs that they can open. The limits of [`Variables::push`] are for
    /// the helper's reply, and these come on top.
    ///
    /// If the probes name NVIDIA GPUs by UUID, their container tools get the same list, or the word for none. No reply
    /// of the helper can contain that list, and a number would not do: a daemon that starts containers counts all GPUs
    /// of the node.
    pub fn add_gpus<'a>(
        &mut self,
        probed: impl IntoIterator<Item = &'a Variable>,
        openable: &[Variable],
    ) {
        for gpu in openable {
            self.append_gpu(gpu);
        }
        if !probed.into_iter().any(Variable::is_nvidia_uuid) {
            return;
        }
        let uuids: Vec<&str> = openable
            .iter()
            .filter(|gpu| gpu.is_nvidia_uuid())
            .map(|gpu| gpu.value.as_str())
            .collect();
        let value = if uuids.is_empty() {
            NO_NVIDIA_GPU.to_owned()
        } else {
            uuids.join(",")
        };
        self.0.push(Variable {
            kind: kind(NVIDIA_VARIABLE, &Scheduler::ALL, Form::Word),
            value,
        });
    }

    /// Adds one GPU to the list of its name, or begins that list with it.
    fn append_gpu(&mut self, gpu: &Variable) {
        match self.0.iter_mut().find(|list| list.name() == gpu.name()) {
            Some(list) if parse_decimal(&gpu.value).is_some() => {
                list.value = format!("{},{}", list.value, list.value.split(',').count());
            }
            Some(list) => list.value = format!("{},{}", list.value, gpu.value),
            None => self.0.push(gpu.clone()),
        }
    }

    /// Requires that the variables describe this job of this source, and that one scheduler gives them all.
    ///
    /// # Errors
    ///
    /// [`DecodeError::InvalidValue`] for the first variable of another scheduler or another job.
    pub(super) fn require_described_job(
        &self,
        job: &JobId,
        source: SourceName,
    ) -> Result<(), DecodeError> {
        // Those that may have given all variables so far.
        let mut schedulers: Vec<Scheduler> = Scheduler::ALL
            .into_iter()
            .filter(|scheduler| scheduler.source() == source)
            .collect();
        for (index, variable) in self.0.iter().enumerate() {
            schedulers.retain(|scheduler| {
                variable.kind.schedulers.contains(scheduler) && variable.describes(job, *scheduler)
            });
            if schedulers.is_empty() {
                return Err(DecodeError::InvalidValue(item_key("env", index)));
            }
        }
        Ok(())
    }

    /// Removes the variable of this name, if there is one.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|variable| variable.name() != name);
    }

    /// Tells whether there is a variable of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|variable| variable.name() == name)
    }

    /// Iterates over the variables in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Variable> {
        self.0.iter()
    }
}

impl Field for Variables {
    fn write(&self, key: &str, out: &mut Writer) {
        self.0.write(key, out);
    }

    /// Reads the list; a name that stands twice, and more variables or bytes than a login can have, are errors.
    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut variables = Self::default();
        for (index, variable) in Vec::read(key, input)?.into_iter().enumerate() {
            let result = variables.push(variable);
            result.map_err(|_| DecodeError::InvalidValue(item_key(key, index)))?;
        }
        Ok(variables)
    }
}

const UNKNOWN_NAME: InvalidText =
    InvalidText("is none of the variables of such a job, which job-adopt-record(5) lists");
const NOT_ONE_GPU: InvalidText = InvalidText("names not one GPU, or has more than 64 bytes");
const LONG_VALUE: InvalidText = InvalidText("has more than 1024 bytes with its name");
const OTHER_JOB: InvalidText = InvalidText("is the id of another job");
const REPEATED_OR_TOO_MANY: InvalidText = InvalidText(
    "is given twice, or there are more than 32 variables or more than 4096 bytes of them",
);

#[cfg(test)]
mod tests {
    use super::kind::{INVALID_VALUE, NO_NUMBERS};
    use super::*;

    #[test]
    fn name_outside_table_is_refused() {
        for (index, VariableKind { name, form, .. }) in VARIABLE_KINDS.iter().enumerate() {
            let value = if *form == Form::Path { "/7" } else { "7" };
            assert_eq!(
                Variable::from_pair(name, value).unwrap().to_string(),
                format!("{name}={value}")
            );
            let is_same = |kind: &&VariableKind| kind.name == *name;
            assert_eq!(
                VARIABLE_KINDS.iter().position(|kind| is_same(&kind)),
                Some(index)
            );
        }
        for bad in [
            "",
            "A",
            "PATH",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "PYTHONPATH",
            "SLURM_CONF",
            "SLURM_PROCID",
            "SLURM_STEP_ID",
            "SLURM_NTASKS",
            "SLURM_JOB_ID ",
            "slurm_job_id",
            "OMPI_MCA_plm_rsh_agent",
            "CUDA_CACHE_PATH",
            "CUDA_INJECTION64_PATH",
            "NVIDIA_VISIBLE_DEVICES",
            "DISPLAY",
            "XAUTHORITY",
        ] {
            assert_eq!(Variable::from_pair(bad, "7"), Err(UNKNOWN_NAME), "{bad:?}");
            assert_eq!(
                format!("{bad}=7").parse::<Variable>(),
                Err(UNKNOWN_NAME),
                "{bad}"
            );
        }
        assert_eq!("SLURM_JOB_ID".parse::<Variable>(), Err(UNKNOWN_NAME));
    }

    #[test]
    fn display_needs_a_number_and_key_file_a_plain_path() {
        let format_display = |number, key_file: &str| {
            let variables = Variable::from_display(number, key_file);
            variables
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let expected = "DISPLAY=localhost:10.0 XAUTHORITY=/tmp/.X-a";
        assert_eq!(format_display(10, "/tmp/.X-a"), expected);
        assert_eq!(format_display(10, ""), "DISPLAY=localhost:10.0");
        for key_file in ["", "a", "/a b", "/$x", "-a", "/a\n"] {
            assert_eq!(format_display(0, key_file), "", "{key_file}");
            assert_eq!(format_display(-1, key_file), "", "{key_file}");
        }
    }

    #[test]
    fn value_that_is_long_or_active_in_shell_or_option_is_refused() {
        let make = |value: &str| Variable::from_pair("SLURM_JOB_NODELIST", value);
        for good in [
            "n[1-3,7]",
            "2(x3),1",
            "/home/a.b/c+d",
            "GPU-1,MIG-GPU-2/1/0",
            "a@b:c=d",
            "n[1-3,7]-ib",
            "/home/-a",
            "a--b",
            "[1-3]",
            &"v".repeat(1024 - "SLURM_JOB_NODELIST=".len()),
        ] {
            assert!(make(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a b",
            "a\nb",
            "a\0",
            "\u{1b}[2J",
            "\u{e4}",
            "$(x)",
            "`x`",
            "a;b",
            "a|b",
            "a&b",
            "<a",
            "~",
            "*",
            "?",
            "'a'",
            "\\",
            "-oProxyCommand=/tmp/x",
            "n1,-oProxyCommand=/tmp/x",
            "n[-x",
            "-1",
            "--rsh=x",
        ] {
            assert_eq!(make(bad), Err(INVALID_VALUE), "{bad:?}");
        }
        let long = "v".repeat(1025 - "SLURM_JOB_NODELIST=".len());
        assert_eq!(make(&long), Err(LONG_VALUE));
    }

    #[test]
    fn variable_for_arithmetic_takes_only_numbers() {
        for name in ["SLURM_NNODES", "SLURM_TASKS_PER_NODE", "SLURM_JOB_UID"] {
            assert!(Variable::from_pair(name, "2(x3),1").is_ok());
            for bad in ["PATH=1", "2(x3),y", "n1", "1-2"] {
                assert_eq!(
                    Variable::from_pair(name, bad),
                    Err(NO_NUMBERS),
                    "{name}={bad}"
                );
            }
        }
    }

    #[test]
    fn variable_of_other_scheduler_or_job_is_refused() {
        let is_accepted = |text: &str, job: &str, source| {
            let mut variables = Variables::default();
            variables
                .push(Variable::from_pair("ZE_AFFINITY_MASK", "0").unwrap())
                .unwrap();
            variables.push(text.parse().unwrap()).unwrap();
            let result = variables.require_described_job(&job.parse().unwrap(), source);
            assert!(result.is_ok() || result == Err(DecodeError::invalid_value("env.1")));
            result.is_ok()
        };
        let registry = SourceName::Registry;
        for (text, source) in [
            ("SLURM_JOB_ID=4242", SourceName::Slurm),
            ("SLURM_JOBID=4242", SourceName::Slurm),
            ("FLUX_JOB_ID=4242", SourceName::Flux),
            ("JOB_ID=4242", registry),
            ("PBS_JOBID=4242", registry),
            ("JOB_ADOPT_JOB_ID=4242", registry),
        ] {
            for other in SourceName::ALL {
                assert_eq!(
                    is_accepted(text, "4242", other),
                    source == other,
                    "{text} {other}"
                );
            }
            assert!(!is_accepted(text, "4243", source), "{text}");
            assert!(!is_accepted(text, "42424", source), "{text}");
        }
        for (text, job) in [
            ("JOB_ID=77", "77.3"),
            ("JOB_ADOPT_JOB_ID=12.0", "12.0-slot1_1"),
            ("PBS_JOBID=77[3].site", "77.3.site"),
            ("LSB_JOBID=77", "77.0"),
            ("LSB_JOBID=77[3]", "77.3"),
        ] {
            assert!(is_accepted(text, job, registry), "{text}");
        }
        for (text, job) in [
            ("JOB_ID=7", "77.3"),
            ("JOB_ID=77.3", "77"),
            ("JOB_ADOPT_JOB_ID=12.0", "12.00-slot1_1"),
            ("PBS_JOBID=77[4].site", "77.3.site"),
            ("PBS_JOBID=7]7", "77"),
            ("PBS_JOBID=77]]", "77"),
            ("PBS_JOBID=7[7]7", "7.77"),
            ("PBS_JOBID=77[x]", "77.x"),
            ("PBS_JOBID=77[]", "77."),
            ("PBS_JOBID=7[7][7]", "7.7.7"),
            ("JOB_ID=77[3]", "77.3"),
        ] {
            assert!(!is_accepted(text, job, registry), "{text}");
        }
        assert!(!is_accepted("SLURM_JOB_ID=77", "77.3", SourceName::Slurm));
    }

    #[test]
    fn part_of_an_id_names_no_job_of_an_unknown_scheduler() {
        let name = "JOB_ADOPT_JOB_ID";
        for (scheduler, job, expected) in [
            (Other, "77", Ok(())),
            (Other, "77-x", Err(OTHER_JOB)),
            (Other, "77.3", Err(OTHER_JOB)),
            (HtCondor, "77-x", Ok(())),
        ] {
            let result = Variable::of_job(name, "77", &job.parse().unwrap(), scheduler);
            assert_eq!(result.map(drop), expected, "{scheduler:?} {job}");
        }
    }

    /// A subverted helper could otherwise make one scheduler's launcher believe what another's says.
    #[test]
    fn variables_of_two_schedulers_are_refused() {
        let job: JobId = "77".parse().unwrap();
        let mut variables = Variables::default();
        for text in ["JOB_ID=77", "TMPDIR=/tmp/77", "LSB_JOBID=77"] {
            assert_eq!(
                variables.require_described_job(&job, SourceName::Registry),
                Ok(())
            );
            variables.push(text.parse().unwrap()).unwrap();
        }
        assert_eq!(
            variables.require_described_job(&job, SourceName::Registry),
            Err(DecodeError::invalid_value("env.2"))
        );
    }

    #[test]
    fn value_has_the_form_of_its_variable() {
        for (name, good, bad) in [
            ("ARC", "lx-amd64", &["lx/amd64", "..", ".x"][..]),
            (
                "TMPDIR",
                "/tmp/77.1.all.q",
                &["tmp", "/tmp/../x", "/..", "/a b"],
            ),
            (
                "LSB_HOSTS",
                "n1 n1 n2",
                &["n1  n2", " n1", "n1 ", "n1 -x", "n1\tn2", "n1 $(x)"],
            ),
            ("NSLOTS", "8", &["PATH=1", "8 8", "x", "2(x3)", "2,1"]),
        ] {
            assert!(Variable::from_pair(name, good).is_ok(), "{name}={good}");
            for value in bad {
                assert!(Variable::from_pair(name, value).is_err(), "{name}={value}");
            }
        }
    }

    #[test]
    fn container_tools_get_the_nvidia_gpus_that_open_by_uuid() {
        let lists = |probed: &[&str], openable: &[&str]| {
            let parse = |texts: &[&str]| -> Vec<Variable> {
                texts.iter().map(|text| text.parse().unwrap()).collect()
            };
            let mut variables = Variables::default();
            variables.add_gpus(&parse(probed), &parse(openable));
            let texts: Vec<_> = variables.iter().map(ToString::to_string).collect();
            texts.join(" ")
        };
        let [one, two] = ["CUDA_VISIBLE_DEVICES=GPU-a", "CUDA_VISIBLE_DEVICES=GPU-b"];
        let amd = "ROCR_VISIBLE_DEVICES=0";
        assert_eq!(
            lists(&[one, two, amd], &[one, amd, two]),
            "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b ROCR_VISIBLE_DEVICES=0 \
             NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b"
        );
        assert_eq!(
            lists(&[one, two, amd], &[amd]),
            "ROCR_VISIBLE_DEVICES=0 NVIDIA_VISIBLE_DEVICES=void"
        );
        assert_eq!(lists(&[amd], &[]), "");
        let number = "CUDA_VISIBLE_DEVICES=0";
        assert_eq!(
            lists(&[number, number], &[number, number]),
            "CUDA_VISIBLE_DEVICES=0,1"
        );
    }

    #[test]
    fn repeated_name_and_too_many_bytes_are_refused() {
        let mut variables = Variables::default();
        let make = |name: &str, value: &str| Variable::from_pair(name, value).unwrap();
        variables.push(make("SLURM_JOB_ID", "7")).unwrap();
        assert_eq!(
            variables.push(make("SLURM_JOB_ID", "7")),
            Err(REPEATED_OR_TOO_MANY)
        );
        let long = "x".repeat(1000);
        for VariableKind { name, .. } in VARIABLE_KINDS
            .iter()
            .filter(|kind| kind.form == Form::Word)
            .take(4)
        {
            variables.push(make(name, &long)).unwrap();
        }
        assert_eq!(
            variables.push(make("SLURM_SUBMIT_DIR", &long)),
            Err(REPEATED_OR_TOO_MANY)
        );
        assert_eq!(variables.iter().count(), 5);
        let mut many = Variables::default();
        let numbers = VARIABLE_KINDS.iter().map(|kind| kind.name);
        let paths = numbers.filter_map(|name| {
            let number =
                Variable::from_pair(name, "7").or_else(|_| Variable::from_pair(name, "/7"));
            many.push(number.unwrap()).err()
        });
        assert_eq!(paths.count(), VARIABLE_KINDS.len() - VARIABLES_MAX);
    }
}
