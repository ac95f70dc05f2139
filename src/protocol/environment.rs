//! Variables that a login may get. A fixed table names them, and they describe the login's job. No shell
//! expands anything in a value, and no program reads a value as an option.

use std::fmt;
use std::str::FromStr;

use super::names::{JobId, parse_decimal};
use super::schema::{DecodeError, Field, InvalidText, Reader, Text, Writer, item_key};
use super::words::SourceName;

/// Maximum bytes of `NAME=VALUE`.
const VARIABLE_BYTES_MAX: usize = 1024;
/// Maximum bytes of all variables of one login together, each as `NAME=VALUE`.
pub const ENVIRONMENT_BYTES_MAX: usize = 4096;
/// Maximum bytes of the value that names one GPU.
const GPU_NAME_BYTES_MAX: usize = 64;

/// The form of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The id of the job that the login joins.
    Id,
    /// Numbers, in Slurm's form `2(x3),1`. Scripts calculate with them, and a shell reads a name in an
    /// arithmetic expression as a variable, to which it may even assign (`PATH=1`).
    Numbers,
    /// A name, a list of names, or a path.
    Word,
}

use Form::{Id, Numbers, Word};
use SourceName::{Flux, Slurm};

/// A variable of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VariableKind {
    name: &'static str,
    /// The scheduler whose logins may have it.
    source: SourceName,
    /// The form of its value.
    form: Form,
}

/// Makes a row of the table.
const fn kind(name: &'static str, source: SourceName, form: Form) -> VariableKind {
    VariableKind { name, source, form }
}

/// Every variable that a helper can pass on. None makes a program load or run another one, or names a file
/// that a program reads. Launchers and libraries learn from them how many processes to start, and which of
/// the GPUs that the filter allows to use. docs/threats.md says what a subverted helper could do with them.
const VARIABLE_KINDS: [VariableKind; 19] = [
    kind("CUDA_VISIBLE_DEVICES", Slurm, Word),
    kind("FLUX_JOB_ID", Flux, Id),
    kind("GPU_DEVICE_ORDINAL", Slurm, Word),
    kind("ROCR_VISIBLE_DEVICES", Slurm, Word),
    kind("SLURM_CLUSTER_NAME", Slurm, Word),
    kind("SLURM_JOBID", Slurm, Id),
    kind("SLURM_JOB_ACCOUNT", Slurm, Word),
    kind("SLURM_JOB_CPUS_PER_NODE", Slurm, Numbers),
    kind("SLURM_JOB_ID", Slurm, Id),
    kind("SLURM_JOB_NODELIST", Slurm, Word),
    kind("SLURM_JOB_NUM_NODES", Slurm, Numbers),
    kind("SLURM_JOB_PARTITION", Slurm, Word),
    kind("SLURM_JOB_UID", Slurm, Numbers),
    kind("SLURM_JOB_USER", Slurm, Word),
    kind("SLURM_NNODES", Slurm, Numbers),
    kind("SLURM_NODELIST", Slurm, Word),
    kind("SLURM_SUBMIT_DIR", Slurm, Word),
    kind("SLURM_TASKS_PER_NODE", Slurm, Numbers),
    kind("ZE_AFFINITY_MASK", Slurm, Word),
];

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
    /// A name that is not in the table; a value that is empty, of more than 1,024 bytes as `NAME=VALUE`, no
    /// number or list where the table has one, or active in a shell or as an option.
    pub fn from_pair(name: &str, value: &str) -> Result<Self, InvalidText> {
        let kind = VARIABLE_KINDS
            .into_iter()
            .find(|kind| kind.name == name)
            .ok_or(UNKNOWN_NAME)?;
        let is_short = name.len() + 1 + value.len() <= VARIABLE_BYTES_MAX;
        let has_form = kind.form != Numbers || is_numbers(value);
        if !is_short || !has_form || !is_inert_value(value) {
            return Err(INVALID_VALUE);
        }
        Ok(Self {
            kind,
            value: value.to_owned(),
        })
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
                kind: kind(name, Slurm, Word),
                value: value.to_owned(),
            })
            .collect()
    }

    /// The name, one of a fixed table, or `DISPLAY` and `XAUTHORITY` of an X11 display.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Parses a variable that lists GPUs, with one GPU in the list.
    ///
    /// # Errors
    ///
    /// A text that is no variable for a login, lists no GPUs, or lists several.
    pub(super) fn parse_gpu_list(text: &str) -> Result<Self, InvalidText> {
        let variable: Self = text.parse()?;
        let lists = [
            "CUDA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "ZE_AFFINITY_MASK",
        ];
        let value = &variable.value;
        let is_one_gpu = value.len() <= GPU_NAME_BYTES_MAX && !value.contains(',');
        if !is_one_gpu || !lists.contains(&variable.name()) {
            return Err(UNKNOWN_NAME);
        }
        Ok(variable)
    }

    /// The number of bytes of `NAME=VALUE`.
    fn byte_count(&self) -> usize {
        self.name().len() + 1 + self.value.len()
    }
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
fn is_inert_value(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+,:@/=[]()".contains(&byte);
    let is_option = |entry: &str| entry.starts_with('-');
    !value.is_empty() && value.bytes().all(is_plain) && !value.split([',', '[']).any(is_option)
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
    const ITEMS_MAX: usize = VARIABLE_KINDS.len();
}

/// The variables of one login: each name once, at most [`ENVIRONMENT_BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<Variable>);

impl Variables {
    /// Adds a variable.
    ///
    /// # Errors
    ///
    /// A name that is there already; more than [`ENVIRONMENT_BYTES_MAX`] bytes together.
    pub fn push(&mut self, variable: Variable) -> Result<(), InvalidText> {
        let is_known = self.0.iter().any(|known| known.name() == variable.name());
        let bytes: usize = self
            .0
            .iter()
            .chain([&variable])
            .map(Variable::byte_count)
            .sum();
        if is_known || bytes > ENVIRONMENT_BYTES_MAX {
            return Err(REPEATED_OR_TOO_MANY);
        }
        self.0.push(variable);
        Ok(())
    }

    /// Adds a GPU to the list of this name. A number becomes the next number in the list: programs count the
    /// GPUs that they can open.
    pub fn append_gpu(&mut self, gpu: &Variable) {
        match self.0.iter_mut().find(|list| list.name() == gpu.name()) {
            Some(list) if parse_decimal(&gpu.value).is_some() => {
                list.value = format!("{},{}", list.value, list.value.split(',').count());
            }
            Some(list) => list.value = format!("{},{}", list.value, gpu.value),
            None => self.0.push(gpu.clone()),
        }
    }

    /// Requires that the variables describe this job of this source.
    ///
    /// # Errors
    ///
    /// [`DecodeError::InvalidValue`] for the first variable of another scheduler or another job.
    pub(super) fn require_described_job(
        &self,
        job: &JobId,
        source: SourceName,
    ) -> Result<(), DecodeError> {
        for (index, variable) in self.0.iter().enumerate() {
            let kind = variable.kind;
            let describes_job =
                kind.source == source && (kind.form != Id || variable.value == job.as_str());
            if !describes_job {
                return Err(DecodeError::InvalidValue(item_key("env", index)));
            }
        }
        Ok(())
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

    /// Reads the list; a name that stands twice, and more than [`ENVIRONMENT_BYTES_MAX`] bytes, are errors.
    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut variables = Self::default();
        for (index, variable) in Vec::read(key, input)?.into_iter().enumerate() {
            let result = variables.push(variable);
            result.map_err(|_| DecodeError::InvalidValue(item_key(key, index)))?;
        }
        Ok(variables)
    }
}

const UNKNOWN_NAME: InvalidText = InvalidText("no login is given a variable of this name");
const INVALID_VALUE: InvalidText = InvalidText(
    "has a value that is empty or too long, or has blanks, signs that a shell reads, or what looks \
     like an option",
);
const REPEATED_OR_TOO_MANY: InvalidText =
    InvalidText("is given twice, or there are more than 4096 bytes of variables");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_outside_table_is_refused() {
        assert!(VARIABLE_KINDS.is_sorted_by_key(|kind| kind.name));
        for VariableKind { name, .. } in VARIABLE_KINDS {
            assert_eq!(
                Variable::from_pair(name, "7").unwrap().to_string(),
                format!("{name}=7")
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
            &"v".repeat(1025 - "SLURM_JOB_NODELIST=".len()),
        ] {
            assert_eq!(make(bad), Err(INVALID_VALUE), "{bad:?}");
        }
    }

    #[test]
    fn variable_for_arithmetic_takes_only_numbers() {
        for name in ["SLURM_NNODES", "SLURM_TASKS_PER_NODE", "SLURM_JOB_UID"] {
            assert!(Variable::from_pair(name, "2(x3),1").is_ok());
            for bad in ["PATH=1", "2(x3),y", "n1", "1-2"] {
                assert_eq!(
                    Variable::from_pair(name, bad),
                    Err(INVALID_VALUE),
                    "{name}={bad}"
                );
            }
        }
    }

    #[test]
    fn variable_of_other_scheduler_or_job_is_refused() {
        let job: JobId = "4242".parse().unwrap();
        let is_accepted = |text: &str, source| {
            let mut variables = Variables::default();
            variables
                .push(Variable::from_pair("ZE_AFFINITY_MASK", "0").unwrap())
                .unwrap();
            variables
                .0
                .iter_mut()
                .for_each(|variable| variable.kind.source = source);
            variables.push(text.parse().unwrap()).unwrap();
            let result = variables.require_described_job(&job, source);
            assert!(result.is_ok() || result == Err(DecodeError::invalid_value("env.1")));
            result.is_ok()
        };
        for good in [
            "SLURM_JOB_ID=4242",
            "SLURM_JOBID=4242",
            "CUDA_VISIBLE_DEVICES=0,1",
        ] {
            assert!(is_accepted(good, Slurm), "{good}");
            assert!(
                !is_accepted(good, Flux) && !is_accepted(good, SourceName::Registry),
                "{good}"
            );
        }
        assert!(is_accepted("FLUX_JOB_ID=4242", Flux) && !is_accepted("FLUX_JOB_ID=4242", Slurm));
        for bad in ["SLURM_JOB_ID=4243", "SLURM_JOBID=4242,1", "SLURM_JOBID=42"] {
            assert!(!is_accepted(bad, Slurm), "{bad}");
        }
        assert!(!is_accepted("FLUX_JOB_ID=f2", Flux));
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
            .into_iter()
            .filter(|kind| kind.form == Word)
            .take(4)
        {
            variables.push(make(name, &long)).unwrap();
        }
        assert_eq!(
            variables.push(make("SLURM_SUBMIT_DIR", &long)),
            Err(REPEATED_OR_TOO_MANY)
        );
        assert_eq!(variables.iter().count(), 5);
    }
}
