//! The text of a specification as a tree of values, the same for JSON and YAML.
//!
//! The rules for every document are checked while the tree is built: the number of values, unique
//! keys in each object, and a depth of at most [`DEPTH_MAX`], so that code that walks the tree may
//! recurse.

mod json;
mod scalar;
mod yaml;

use std::collections::BTreeMap;

use thiserror::Error;

use super::SpecError;

/// Maximum lists and objects inside each other. A specification needs seven.
const DEPTH_MAX: usize = 32;

/// Maximum values of a document, at any depth.
const VALUES_MAX: usize = 200_000;

/// The format of a file, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.json`
    Json,
    /// `.yaml`
    Yaml,
}

impl Format {
    /// Returns the maximum bytes of a file. Generated ones have some tens of KiB.
    ///
    /// The YAML parser takes up to 300 bytes of memory for each byte inside brackets, and visits every
    /// open bracket again for each word: at this length, at most 300 MiB and two seconds.
    pub fn bytes_max(self) -> usize {
        match self {
            Self::Json => 4 << 20,
            Self::Yaml => 1 << 20,
        }
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Value {
    /// `null`, and its other spellings in YAML.
    Null,
    /// `true` or `false` in JSON.
    Bool(bool),
    /// A number in JSON; `None` if it is not whole or has more than 64 bits.
    Number(Option<i64>),
    /// A word without quotes in YAML. Its meaning depends on the expected type.
    Plain(String),
    /// Text in quotes, or as a block.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// An object, each key once.
    Object(ValueMap),
}

pub(super) type ValueMap = BTreeMap<String, Value>;

impl Value {
    pub(super) fn into_text(self) -> Result<String, SpecError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Plain(text) if scalar::is_text(&text) => Ok(text),
            Self::Plain(_) => Err(SpecError::rule("not text: put it in quotes")),
            _ => Err(SpecError::rule("not text")),
        }
    }

    /// Checks that the value is a text, a word, a truth value or a number. Runtimes accept each of
    /// them as a text; this code does not use the text.
    pub(super) fn check_scalar(&self) -> Result<(), SpecError> {
        match self {
            Self::Null | Self::List(_) | Self::Object(_) => Err(SpecError::rule("not text")),
            Self::Bool(_) | Self::Number(_) | Self::Plain(_) | Self::Text(_) => Ok(()),
        }
    }

    pub(super) fn into_number(self) -> Result<i64, SpecError> {
        let number = match self {
            Self::Number(number) => number,
            Self::Plain(text) => scalar::parse_number(&text),
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

    pub(super) fn into_object(self) -> Result<ValueMap, SpecError> {
        match self {
            Self::Object(object) => Ok(object),
            _ => Err(SpecError::rule("not an object")),
        }
    }
}

/// Why a text is no document, or breaks a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentError {
    /// Number of the line, from 1.
    pub(super) line: usize,
    pub(super) why: String,
}

/// The first document of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Document {
    pub(super) value: Value,
    /// The line where a second document begins, which is not read.
    pub(super) second_document: Option<usize>,
}

/// Parses a document of at most [`Format::bytes_max`].
pub(super) fn parse_document(bytes: &[u8], format: Format) -> Result<Document, DocumentError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        DocumentError { line, why: "not UTF-8".to_owned() }
    })?;
    // Some editors begin a text with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if format == Format::Yaml {
        return yaml::parse(text);
    }
    let value = json::parse(text);
    value.map(|value| Document { value, second_document: None }).map_err(|error| {
        match is_yaml(text) {
            true => DocumentError { why: "this is YAML: name the file .yaml".to_owned(), ..error },
            false => error,
        }
    })
}

/// Returns whether a text that is no JSON is a document in YAML.
fn is_yaml(text: &str) -> bool {
    let can_be = text.len() <= Format::Yaml.bytes_max() && !text.trim_start().starts_with('{');
    can_be && yaml::parse(text).is_ok_and(|document| document.value.into_object().is_ok())
}

/// Quotes the beginning of a text of the document for an error, with escapes.
pub(super) fn quote(text: &str) -> String {
    let start: String = text.chars().take(64).collect();
    format!("{start:?}")
}

/// The number of values of a document so far.
#[derive(Default)]
struct ValueCounter {
    values: usize,
}

impl ValueCounter {
    /// Counts a value inside `depth` lists and objects.
    ///
    /// # Errors
    ///
    /// The value is too deep, or one too many.
    fn count(&mut self, depth: usize) -> Result<(), LimitError> {
        self.values += 1;
        match (depth > DEPTH_MAX, self.values > VALUES_MAX) {
            (true, _) => Err(LimitError::TooDeep),
            (_, true) => Err(LimitError::TooManyValues),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Error)]
enum LimitError {
    #[error("more than {DEPTH_MAX} lists and objects inside each other")]
    TooDeep,
    #[error("more than {VALUES_MAX} values")]
    TooManyValues,
    #[error("key {key} stands twice", key = quote(.0))]
    RepeatedKey(String),
}

#[cfg(test)]
mod tests;
