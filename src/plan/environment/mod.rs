//! Variables that cross the boundary, for the environment of a login.

mod never;

use std::fmt;
use std::str::FromStr;

use never::is_never_given;

/// Most bytes of a name.
const NAME_MAX: usize = 128;
/// Most bytes of `NAME=VALUE`.
const VARIABLE_MAX: usize = 1024;
/// Most variables of one login.
pub const MAX_VARIABLES: usize = 32;
/// Most bytes of all variables of one login together, as `NAME=VALUE` each.
pub const ENVIRONMENT_MAX: usize = 4096;

/// Name of a variable that a login may be given: `[A-Za-z_][A-Za-z0-9_]{0,127}`, and none that
/// decides what programs run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VariableName(String);

impl VariableName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for VariableName {
    type Err = VariableError;

    fn from_str(text: &str) -> Result<Self, VariableError> {
        let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let plain = text.len() <= NAME_MAX
            && text.bytes().next().is_some_and(letter)
            && text.bytes().all(|byte| letter(byte) || byte.is_ascii_digit());
        match plain {
            false => Err(VariableError::Name),
            true if is_never_given(text) => Err(VariableError::Never),
            true => Ok(Self(text.to_owned())),
        }
    }
}

/// A variable with its value: printable ASCII, and with name and `=` at most 1,024 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    name: VariableName,
    value: String,
}

impl Variable {
    /// A variable of that name with that value.
    ///
    /// # Errors
    /// [`VariableError`] for a name or a value that no login is given.
    pub fn new(name: &str, value: &str) -> Result<Self, VariableError> {
        let name: VariableName = name.parse()?;
        let printable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let variable = Self { name, value: value.to_owned() };
        if printable && variable.len() <= VARIABLE_MAX {
            Ok(variable)
        } else {
            Err(VariableError::Value)
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &VariableName {
        &self.name
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether the value is of characters that no shell gives a meaning in a word: letters, digits
    /// and those of Slurm's lists, of paths and of UUIDs. A bracket is one at most for the names of
    /// files, a parenthesis for a text that is read as a command. And nothing in it, be it an entry
    /// of a list, begins as an option does: ssh(1) takes one for a node of that name, and runs what
    /// it says.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+,:@/=[]()".contains(&byte);
        let option = |entry: &str| entry.starts_with('-');
        !self.value.is_empty()
            && self.value.bytes().all(plain)
            && !self.value.split([',', '[']).any(option)
    }

    /// Bytes of `NAME=VALUE`.
    fn len(&self) -> usize {
        self.name.0.len() + 1 + self.value.len()
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl FromStr for Variable {
    type Err = VariableError;

    fn from_str(text: &str) -> Result<Self, VariableError> {
        let (name, value) = text.split_once('=').ok_or(VariableError::Name)?;
        Self::new(name, value)
    }
}

/// The variables of one login: no name twice, at most [`MAX_VARIABLES`] and [`ENVIRONMENT_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<Variable>);

impl Variables {
    /// Adds one.
    ///
    /// # Errors
    /// [`VariableError`] for a second one of that name, and for one too many.
    pub fn push(&mut self, variable: Variable) -> Result<(), VariableError> {
        if self.0.iter().any(|known| known.name == variable.name) {
            return Err(VariableError::Twice);
        }
        let bytes: usize = self.0.iter().chain([&variable]).map(Variable::len).sum();
        if self.0.len() >= MAX_VARIABLES || bytes > ENVIRONMENT_MAX {
            return Err(VariableError::TooMany);
        }
        self.0.push(variable);
        Ok(())
    }

    /// The variables, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Variable> {
        self.0.iter()
    }
}

/// Why a login is not given a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableError {
    /// The name has another form.
    Name,
    /// A login is given no variable of that name, whoever asks for it.
    Never,
    /// The value has other characters, or too many.
    Value,
    /// There is one of that name already.
    Twice,
    /// There are as many as one login is given.
    TooMany,
}

impl fmt::Display for VariableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str(
                "the name of a variable is 1 to 128 of A-Z a-z 0-9 _ and begins with no digit",
            ),
            Self::Never => f.write_str("a variable of this name decides what programs run"),
            Self::Value => {
                write!(f, "more than {VARIABLE_MAX} bytes, or not printable ASCII throughout")
            }
            Self::Twice => f.write_str("given twice"),
            Self::TooMany => write!(
                f,
                "more than {MAX_VARIABLES} variables, or {ENVIRONMENT_MAX} bytes of them together"
            ),
        }
    }
}

impl std::error::Error for VariableError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        let longest = "A".repeat(128);
        for good in ["NVIDIA_VISIBLE_DEVICES", "a", "x1", "NVCT_EMPTY_DEVICE", &longest] {
            assert_eq!(good.parse::<VariableName>().unwrap().as_str(), good);
        }
        let long = "A".repeat(129);
        for bad in ["", "1A", "A-B", "A B", "A=", "BASH_FUNC_x%%", "\u{c4}", "A\n", &long] {
            assert_eq!(bad.parse::<VariableName>(), Err(VariableError::Name), "{bad:?}");
        }
    }

    #[test]
    fn values_are_printable_and_short() {
        let variable: Variable = "A=b=c d".parse().unwrap();
        assert_eq!((variable.name().as_str(), variable.to_string().as_str()), ("A", "A=b=c d"));
        assert_eq!(Variable::new("A", "").unwrap().to_string(), "A=");
        assert!(Variable::new("A", &"v".repeat(1022)).is_ok());
        for bad in ["a\nb", "a\0", "\u{1b}[2J", "\u{7f}", "\u{e4}", &"v".repeat(1023)] {
            assert_eq!(Variable::new("A", bad), Err(VariableError::Value), "{bad:?}");
        }
        assert_eq!("A".parse::<Variable>(), Err(VariableError::Name));
    }

    #[test]
    fn plain_values_have_neither_blanks_nor_what_a_shell_expands() {
        let is_plain = |value: &str| Variable::new("A", value).unwrap().is_plain();
        for good in ["n[1-3,7]", "2(x3),1", "/home/a.b/c+d", "GPU-1,MIG-GPU-2/1/0", "a@b:c=d"] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["", "a b", "$(x)", "`x`", "a;b", "a|b", "a&b", "<a", "~", "*", "?", "'a'", "\\"]
        {
            assert!(!is_plain(bad), "{bad}");
        }
    }

    #[test]
    fn nothing_that_a_program_takes_for_an_option_is_plain() {
        let is_plain = |value: &str| Variable::new("A", value).unwrap().is_plain();
        for good in ["gpu-1,gpu-2", "n[1-3,7]-ib", "/home/-a", "a--b", "[1-3]"] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["-oProxyCommand=/tmp/x", "n1,-oProxyCommand=/tmp/x", "n[-x", "-1", "--rsh=x"] {
            assert!(!is_plain(bad), "{bad}");
        }
    }

    #[test]
    fn a_login_is_given_no_name_twice_and_no_more_than_the_limits() {
        let mut variables = Variables::default();
        let of = |number: usize, value: &str| Variable::new(&format!("V{number}"), value).unwrap();
        for number in 0..MAX_VARIABLES {
            variables.push(of(number, "x")).unwrap();
        }
        assert_eq!(variables.push(of(99, "x")), Err(VariableError::TooMany));
        assert_eq!(variables.push(of(0, "y")), Err(VariableError::Twice));
        assert_eq!(variables.iter().count(), MAX_VARIABLES);
        let mut variables = Variables::default();
        let long = "x".repeat(1021);
        for number in 0..4 {
            variables.push(of(number, &long)).unwrap();
        }
        assert_eq!(variables.push(of(4, "")), Err(VariableError::TooMany));
    }
}
