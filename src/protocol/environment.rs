//! The variables that a login may be given: those of a fixed table, which describe its job, with
//! values that no shell reads as anything but themselves and no program as an option.

use std::fmt;
use std::str::FromStr;

use super::schema::{DecodeError, Field, Invalid, Reader, Text, Writer, item_key};
use super::{JobId, SourceName, decimal};

/// Most bytes of `NAME=VALUE`.
const VARIABLE_MAX: usize = 1024;
/// Most bytes of all variables of one login together, as `NAME=VALUE` each.
pub const ENVIRONMENT_MAX: usize = 4096;

/// What the value of a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The id of the job that the login joins.
    Id,
    /// Numbers, in Slurm's form `2(x3),1`. Scripts count with them: in an arithmetic expression a
    /// shell takes a name in a value for a variable of its own, which may be assigned to (`PATH=1`).
    Numbers,
    /// Names, lists of them, or a path.
    Word,
}

use Form::{Id, Numbers, Word};
use SourceName::{Flux, Slurm};

/// Every variable that there is, with the scheduler whose logins may have it. None has a program
/// loaded or run, or names a file that one reads; launchers and libraries read them to know how many
/// processes to start and which of the GPUs, that the filter lets through anyway, to use. What a
/// subverted helper could do with them stands in docs/threats.md.
const TABLE: [(&str, SourceName, Form); 19] = [
    ("CUDA_VISIBLE_DEVICES", Slurm, Word),
    ("FLUX_JOB_ID", Flux, Id),
    ("GPU_DEVICE_ORDINAL", Slurm, Word),
    ("ROCR_VISIBLE_DEVICES", Slurm, Word),
    ("SLURM_CLUSTER_NAME", Slurm, Word),
    ("SLURM_JOBID", Slurm, Id),
    ("SLURM_JOB_ACCOUNT", Slurm, Word),
    ("SLURM_JOB_CPUS_PER_NODE", Slurm, Numbers),
    ("SLURM_JOB_ID", Slurm, Id),
    ("SLURM_JOB_NODELIST", Slurm, Word),
    ("SLURM_JOB_NUM_NODES", Slurm, Numbers),
    ("SLURM_JOB_PARTITION", Slurm, Word),
    ("SLURM_JOB_UID", Slurm, Numbers),
    ("SLURM_JOB_USER", Slurm, Word),
    ("SLURM_NNODES", Slurm, Numbers),
    ("SLURM_NODELIST", Slurm, Word),
    ("SLURM_SUBMIT_DIR", Slurm, Word),
    ("SLURM_TASKS_PER_NODE", Slurm, Numbers),
    ("ZE_AFFINITY_MASK", Slurm, Word),
];

/// A variable of the table, with a value of its form and at most 1,024 bytes as `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its row of the table.
    kind: (&'static str, SourceName, Form),
    value: String,
}

impl Variable {
    /// A variable of that name with that value, where a login may be given it.
    pub fn new(name: &str, value: &str) -> Result<Self, Invalid> {
        let kind = TABLE.into_iter().find(|(known, ..)| *known == name).ok_or(NAME)?;
        let short = name.len() + 1 + value.len() <= VARIABLE_MAX;
        let counts = |byte: u8| byte.is_ascii_digit() || b"(x),".contains(&byte);
        let of_form = kind.2 != Numbers || value.bytes().all(counts);
        match short && of_form && is_plain(value) {
            true => Ok(Self { kind, value: value.to_owned() }),
            false => Err(VALUE),
        }
    }

    /// The variables of an X11 display of the job's, and of the file with the keys to it. Its step
    /// daemon tells them: no answer of the helper can have them. What no login is given is left out.
    pub fn of_display(number: i32, keys: &str) -> Vec<Self> {
        let display = if number > 0 { format!("localhost:{number}.0") } else { String::new() };
        let keys = if keys.starts_with('/') { keys } else { "" };
        let both = [("DISPLAY", display.as_str()), ("XAUTHORITY", keys)];
        let given = both.into_iter().filter(|(_, value)| is_plain(value));
        given.map(|(name, value)| Self { kind: (name, Slurm, Word), value: value.into() }).collect()
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.kind.0
    }

    /// A list of GPUs with one of them.
    pub(super) fn of_gpu(text: &str) -> Result<Self, Invalid> {
        let one: Self = text.parse()?;
        let lists = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
        let fits = one.value.len() <= 64 && !one.value.contains(',');
        if fits && lists.contains(&one.name()) { Ok(one) } else { Err(NAME) }
    }

    /// Bytes of `NAME=VALUE`.
    fn len(&self) -> usize {
        self.name().len() + 1 + self.value.len()
    }
}

/// Whether a value is of characters that no shell gives a meaning in a word: letters, digits and
/// those of Slurm's lists, of paths and of UUIDs. A bracket is one at most for the names of files, a
/// parenthesis for a text that is read as a command. And nothing in it, be it an entry of a list,
/// begins as an option does: ssh(1) takes one for a node of that name, and runs what it says.
fn is_plain(value: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+,:@/=[]()".contains(&byte);
    let option = |entry: &str| entry.starts_with('-');
    !value.is_empty() && value.bytes().all(plain) && !value.split([',', '[']).any(option)
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name(), self.value)
    }
}

impl FromStr for Variable {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (name, value) = text.split_once('=').ok_or(NAME)?;
        Self::new(name, value)
    }
}

impl Text for Variable {
    const MOST: usize = TABLE.len();
}

/// The variables of one login: no name twice, at most [`ENVIRONMENT_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<Variable>);

impl Variables {
    /// Adds one; a second one of that name and one too many are errors.
    pub fn push(&mut self, variable: Variable) -> Result<(), Invalid> {
        let known = self.0.iter().any(|known| known.name() == variable.name());
        let bytes: usize = self.0.iter().chain([&variable]).map(Variable::len).sum();
        if known || bytes > ENVIRONMENT_MAX {
            return Err(FULL);
        }
        self.0.push(variable);
        Ok(())
    }

    /// Adds a GPU to the list of this name. A number becomes the next one in it, as a program counts
    /// which sees these alone.
    pub fn list(&mut self, gpu: &Variable) {
        match self.0.iter_mut().find(|list| list.name() == gpu.name()) {
            Some(list) if decimal(&gpu.value).is_some() => {
                list.value = format!("{},{}", list.value, list.value.split(',').count());
            }
            Some(list) => list.value = format!("{},{}", list.value, gpu.value),
            None => self.0.push(gpu.clone()),
        }
    }

    /// Requires that a login to this job of that source may have them: each is its scheduler's, and
    /// names no other job.
    pub(super) fn require(&self, job: &JobId, source: SourceName) -> Result<(), DecodeError> {
        let is_of = |one: &Variable| {
            let (_, of, form) = one.kind;
            of == source && (form != Id || one.value == job.as_str())
        };
        match self.0.iter().position(|variable| !is_of(variable)) {
            Some(index) => Err(DecodeError::Value(item_key("env", index))),
            None => Ok(()),
        }
    }

    /// The variables, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Variable> {
        self.0.iter()
    }
}

impl Field for Variables {
    fn write(&self, key: &str, out: &mut Writer) {
        self.0.write(key, out);
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut variables = Self::default();
        for (index, variable) in Vec::read(key, input)?.into_iter().enumerate() {
            let added = variables.push(variable);
            added.map_err(|_| DecodeError::Value(item_key(key, index)))?;
        }
        Ok(variables)
    }
}

const NAME: Invalid = Invalid("no login is given a variable of this name");
const VALUE: Invalid = Invalid(
    "has a value that is empty or too long, or has blanks, signs that a shell reads, or what looks \
     like an option",
);
const FULL: Invalid = Invalid("is given twice, or there are more than 4096 bytes of variables");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_taken_but_those_of_the_table() {
        assert!(TABLE.is_sorted_by_key(|(name, ..)| *name));
        for (name, ..) in TABLE {
            assert_eq!(Variable::new(name, "7").unwrap().to_string(), format!("{name}=7"));
        }
        for bad in [
            "", "A", "PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "PYTHONPATH",
            "SLURM_CONF", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_NTASKS", "SLURM_JOB_ID ",
            "slurm_job_id", "OMPI_MCA_plm_rsh_agent", "CUDA_CACHE_PATH", "CUDA_INJECTION64_PATH",
            "NVIDIA_VISIBLE_DEVICES", "DISPLAY", "XAUTHORITY",
        ] {
            assert_eq!(Variable::new(bad, "7"), Err(NAME), "{bad:?}");
            assert_eq!(format!("{bad}=7").parse::<Variable>(), Err(NAME), "{bad}");
        }
        assert_eq!("SLURM_JOB_ID".parse::<Variable>(), Err(NAME));
    }

    #[test]
    fn a_display_is_a_number_and_its_keys_are_a_plain_path() {
        let of = |number, keys: &str| {
            let given = Variable::of_display(number, keys);
            given.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(10, "/tmp/.X-a"), "DISPLAY=localhost:10.0 XAUTHORITY=/tmp/.X-a");
        assert_eq!(of(10, ""), "DISPLAY=localhost:10.0");
        for keys in ["", "a", "/a b", "/$x", "-a", "/a\n"] {
            assert_eq!(of(0, keys), "", "{keys}");
            assert_eq!(of(-1, keys), "", "{keys}");
        }
    }

    #[test]
    fn values_are_short_and_nothing_that_a_shell_expands_or_a_program_takes_for_an_option() {
        let make = |value: &str| Variable::new("SLURM_JOB_NODELIST", value);
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
            assert_eq!(make(bad), Err(VALUE), "{bad:?}");
        }
    }

    #[test]
    fn what_scripts_count_with_is_numbers() {
        for name in ["SLURM_NNODES", "SLURM_TASKS_PER_NODE", "SLURM_JOB_UID"] {
            assert!(Variable::new(name, "2(x3),1").is_ok());
            for bad in ["PATH=1", "2(x3),y", "n1", "1-2"] {
                assert_eq!(Variable::new(name, bad), Err(VALUE), "{name}={bad}");
            }
        }
    }

    #[test]
    fn a_login_is_given_what_its_own_scheduler_says_of_its_own_job() {
        let job: JobId = "4242".parse().unwrap();
        let is_of = |text: &str, source| {
            let mut variables = Variables::default();
            variables.push(Variable::new("ZE_AFFINITY_MASK", "0").unwrap()).unwrap();
            variables.0.iter_mut().for_each(|one| one.kind.1 = source);
            variables.push(text.parse().unwrap()).unwrap();
            let required = variables.require(&job, source);
            assert!(required.is_ok() || required == Err(DecodeError::value("env.1")));
            required.is_ok()
        };
        for good in ["SLURM_JOB_ID=4242", "SLURM_JOBID=4242", "CUDA_VISIBLE_DEVICES=0,1"] {
            assert!(is_of(good, Slurm), "{good}");
            assert!(!is_of(good, Flux) && !is_of(good, SourceName::Registry), "{good}");
        }
        assert!(is_of("FLUX_JOB_ID=4242", Flux) && !is_of("FLUX_JOB_ID=4242", Slurm));
        for bad in ["SLURM_JOB_ID=4243", "SLURM_JOBID=4242,1", "SLURM_JOBID=42"] {
            assert!(!is_of(bad, Slurm), "{bad}");
        }
        assert!(!is_of("FLUX_JOB_ID=f2", Flux));
    }

    #[test]
    fn a_login_is_given_no_name_twice_and_no_more_than_the_limit() {
        let mut variables = Variables::default();
        let of = |name: &str, value: &str| Variable::new(name, value).unwrap();
        variables.push(of("SLURM_JOB_ID", "7")).unwrap();
        assert_eq!(variables.push(of("SLURM_JOB_ID", "7")), Err(FULL));
        let long = "x".repeat(1000);
        for (name, ..) in TABLE.into_iter().filter(|(.., form)| *form == Word).take(4) {
            variables.push(of(name, &long)).unwrap();
        }
        assert_eq!(variables.push(of("SLURM_SUBMIT_DIR", &long)), Err(FULL));
        assert_eq!(variables.iter().count(), 5);
    }
}
