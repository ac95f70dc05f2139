//! A specification's text as a tree of values, the same for JSON and YAML.
//!
//! Whatever rules hold for every document are kept while the tree is built: its size, that no key
//! stands twice in one object, and that it is nowhere deeper than [`MAX_DEPTH`], so that whoever
//! walks it may recurse.

mod json;
mod scalar;
mod yaml;

use std::collections::BTreeMap;

use thiserror::Error;

use super::SpecError;

/// Lists and objects inside each other. A specification needs seven.
const MAX_DEPTH: usize = 32;

/// Values in a document, at whatever depth.
const MAX_VALUES: usize = 200_000;

/// How a file is written; its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.json`
    Json,
    /// `.yaml`
    Yaml,
}

impl Format {
    /// Bytes that a file may have. Generated ones have some tens of KiB.
    ///
    /// The YAML reader takes up to 300 bytes of memory for each byte inside brackets, and looks at
    /// every open bracket again for each word: at this length 300 MiB and two seconds at worst.
    pub fn max_bytes(self) -> usize {
        match self {
            Self::Json => 4 << 20,
            Self::Yaml => 1 << 20,
        }
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Value {
    /// `null`, and what YAML writes for it.
    Null,
    /// `true` or `false` in JSON.
    Bool(bool),
    /// A number in JSON: `None` where it is not whole or has more than 64 bits.
    Number(Option<i64>),
    /// A word without quotes in YAML: its meaning depends on what is wanted.
    Plain(String),
    /// Text in quotes, or as a block.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// An object, each key once.
    Object(Object),
}

pub(super) type Object = BTreeMap<String, Value>;

impl Value {
    pub(super) fn into_text(self) -> Result<String, SpecError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Plain(text) if scalar::is_text(&text) => Ok(text),
            Self::Plain(_) => Err(SpecError::rule("not text: put it in quotes")),
            _ => Err(SpecError::rule("not text")),
        }
    }

    /// A word, a truth value or a number in the place of a text of which nothing here makes use.
    /// Runtimes take each for its text.
    pub(super) fn check_scalar(&self) -> Result<(), SpecError> {
        match self {
            Self::Null | Self::List(_) | Self::Object(_) => Err(SpecError::rule("not text")),
            Self::Bool(_) | Self::Number(_) | Self::Plain(_) | Self::Text(_) => Ok(()),
        }
    }

    pub(super) fn into_number(self) -> Result<i64, SpecError> {
        let number = match self {
            Self::Number(number) => number,
            Self::Plain(text) => scalar::number(&text),
            _ => None,
        };
        number.ok_or_else(|| SpecError::rule("not a whole number"))
    }

    pub(super) fn into_bool(self) -> Result<bool, SpecError> {
        match self {
            Self::Bool(value) => Ok(value),
            Self::Plain(text) => text.parse().map_err(|_| SpecError::rule("not true or false")),
            _ => Err(SpecError::rule("not true or false")),
        }
    }

    pub(super) fn into_list(self) -> Result<Vec<Self>, SpecError> {
        match self {
            Self::List(values) => Ok(values),
            _ => Err(SpecError::rule("not a list")),
        }
    }

    pub(super) fn into_object(self) -> Result<Object, SpecError> {
        match self {
            Self::Object(object) => Ok(object),
            _ => Err(SpecError::rule("not an object")),
        }
    }
}

/// A text that is no document, or one that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentError {
    /// Where it shows, from 1.
    pub(super) line: usize,
    pub(super) why: String,
}

/// What a file holds.
#[derive(Debug, PartialEq)]
pub(super) struct Document {
    pub(super) value: Value,
    /// The line where a second document begins, which nobody reads.
    pub(super) second: Option<usize>,
}

/// Reads a document of at most [`Format::max_bytes`].
pub(super) fn read(bytes: &[u8], format: Format) -> Result<Document, DocumentError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        DocumentError { line, why: "not UTF-8".to_owned() }
    })?;
    // Some editors begin a text with this mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if format == Format::Yaml {
        return yaml::read(text);
    }
    let read = json::read(text);
    read.map(|value| Document { value, second: None }).map_err(|error| match is_yaml(text) {
        true => DocumentError { why: "this is YAML: name the file .yaml".to_owned(), ..error },
        false => error,
    })
}

/// Whether a text that is no JSON is a document in YAML.
fn is_yaml(text: &str) -> bool {
    let may_be = text.len() <= Format::Yaml.max_bytes() && !text.trim_start().starts_with('{');
    may_be && yaml::read(text).is_ok_and(|document| document.value.into_object().is_ok())
}

/// A text of the document as errors show it: its beginning, in quotes, with escapes.
pub(super) fn quoted(text: &str) -> String {
    let start: String = text.chars().take(64).collect();
    format!("{start:?}")
}

#[derive(Default)]
struct Budget {
    values: usize,
}

impl Budget {
    /// Counts a value that stands inside `depth` lists and objects.
    fn take(&mut self, depth: usize) -> Result<(), Refused> {
        self.values += 1;
        match (depth > MAX_DEPTH, self.values > MAX_VALUES) {
            (true, _) => Err(Refused::Depth),
            (_, true) => Err(Refused::Values),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Error)]
enum Refused {
    #[error("more than {MAX_DEPTH} lists and objects inside each other")]
    Depth,
    #[error("more than {MAX_VALUES} values")]
    Values,
    #[error("key {key} stands twice", key = quoted(.0))]
    Doubled(String),
}

#[cfg(test)]
mod tests;
