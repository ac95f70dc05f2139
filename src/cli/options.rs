//! Options of a command line: `--name VALUE`, `--name=VALUE`, `--flag`; `--` ends them.

use super::Error;
use crate::removed::{self, instead};
use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;

/// An option that a command knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Without a value.
    Flag(&'static str),
    /// With a value, at most once.
    Once(&'static str),
    /// With a value, as often as wanted.
    Many(&'static str),
}

impl Known {
    fn name(self) -> &'static str {
        match self {
            Self::Flag(name) | Self::Once(name) | Self::Many(name) => name,
        }
    }
}

/// A command line, taken apart.
#[derive(Debug)]
pub(super) struct Options {
    command: &'static str,
    given: Vec<(&'static str, String)>,
    /// What is no option, in its order.
    pub(super) operands: Vec<OsString>,
    /// What follows `--`, where that was given.
    pub(super) rest: Option<Vec<OsString>>,
}

impl Options {
    /// Takes the arguments of `command` apart. `--help` is known to every command.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the option that is unknown, without its value, with one that it
    /// does not take, or there twice.
    pub(super) fn parse(
        command: &'static str,
        known: &[Known],
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, Error> {
        let mut options = Self { command, given: Vec::new(), operands: Vec::new(), rest: None };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--") => {
                    options.rest = Some(arguments.collect());
                    break;
                }
                Some(text) if text.starts_with('-') && text.len() > 1 => {
                    options.take(text, known, &mut arguments)?;
                }
                _ => options.operands.push(argument),
            }
        }
        Ok(options)
    }

    fn take(
        &mut self,
        text: &str,
        known: &[Known],
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), Error> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        if name == "--help" {
            self.given.push(("--help", String::new()));
            return Ok(());
        }
        let written = format!("{} {name}", self.command);
        if let Some(instead) = instead(removed::COMMAND_LINE, &written) {
            return Err(self.usage(format!("option {name} {instead}")));
        }
        let known = known.iter().find(|known| known.name() == name);
        let &known = known.ok_or_else(|| self.usage(format!("unknown option {name}")))?;
        let name = known.name();
        let value = match (known, value) {
            (Known::Flag(_), None) => String::new(),
            (Known::Flag(_), Some(_)) => {
                return Err(self.usage(format!("option {name} takes no value")));
            }
            (_, Some(value)) => value,
            (_, None) => match rest.next().map(OsString::into_string) {
                Some(Ok(value)) => value,
                Some(Err(_)) => {
                    return Err(self.usage(format!("option {name}: the value is no UTF-8")));
                }
                None => return Err(self.usage(format!("option {name} needs a value"))),
            },
        };
        if !matches!(known, Known::Many(_)) && self.has(name) {
            return Err(self.usage(format!("option {name} is given twice")));
        }
        self.given.push((name, value));
        Ok(())
    }

    /// Whether an option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// Whether no option at all was given, but for these.
    pub(super) fn none_but(&self, names: &[&str]) -> bool {
        self.given.iter().all(|(given, _)| names.contains(given))
    }

    /// The value of an option that is given at most once.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// The values of an option, in their order.
    pub(super) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.given.iter().filter(move |(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// The value of an option as something better than a text.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the option and what it wants.
    pub(super) fn parsed<T: FromStr>(&self, name: &str, wants: &str) -> Result<Option<T>, Error> {
        let parse = |value: &str| {
            value.parse().map_err(|_| self.usage(format!("option {name}: {value} is no {wants}")))
        };
        self.value(name).map(parse).transpose()
    }

    /// A usage error of this command.
    pub(super) fn usage(&self, what: impl Display) -> Error {
        Error::Usage(self.command, what.to_string())
    }

    /// # Errors
    /// [`Error::Usage`] where there is an operand.
    pub(super) fn no_operands(&self) -> Result<(), Error> {
        match self.operands.iter().chain(self.rest.iter().flatten()).next() {
            None => Ok(()),
            Some(operand) => {
                Err(self.usage(format!("unexpected operand {}", operand.to_string_lossy())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Known; 3] = [Known::Flag("--json"), Known::Once("--id"), Known::Many("--gpu")];

    fn parse(line: &[&str]) -> Result<Options, Error> {
        Options::parse("test", &KNOWN, line.iter().map(OsString::from))
    }

    fn refusal(line: &[&str]) -> String {
        match parse(line) {
            Err(Error::Usage("test", what)) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_spellings_and_operands() {
        let options =
            parse(&["--id", "7", "a", "--gpu=0", "--gpu", "1", "-", "--json", "--", "--id"])
                .unwrap();
        assert_eq!(options.value("--id"), Some("7"));
        assert_eq!(options.values("--gpu").collect::<Vec<_>>(), ["0", "1"]);
        assert!(options.has("--json"));
        assert_eq!(options.operands, ["a", "-"]);
        assert_eq!(options.rest.unwrap(), ["--id"]);
        assert_eq!(parse(&["--id=a=b"]).unwrap().value("--id"), Some("a=b"));
        assert_eq!(parse(&["--id", "--json"]).unwrap().value("--id"), Some("--json"));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(refusal(&["--idx", "7"]), "unknown option --idx");
        assert_eq!(refusal(&["-v"]), "unknown option -v");
        assert_eq!(refusal(&["--id"]), "option --id needs a value");
        assert_eq!(refusal(&["--id=1", "--id=2"]), "option --id is given twice");
        assert_eq!(refusal(&["--json=1"]), "option --json takes no value");
    }

    #[test]
    fn values_have_types() {
        let options = parse(&["--id", "x"]).unwrap();
        assert!(matches!(options.parsed::<u32>("--id", "number"), Err(Error::Usage(..))));
        assert_eq!(options.parsed::<u32>("--none", "number").unwrap(), None);
    }
}
