//! A specification's text as a tree of values, the same for JSON and YAML.
//!
//! Whatever rules hold for every document are kept while the tree is built: its size, that no key
//! stands twice in one object, and that it is nowhere deeper than [`MAX_DEPTH`], so that whoever
//! walks it may recurse.

mod json;
mod scalar;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;

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
    #[must_use]
    pub fn max_bytes(self) -> usize {
        match self {
            Self::Json => 4 << 20,
            Self::Yaml => 1 << 20,
        }
    }
}

/// A value of the document.
#[derive(Clone, Debug, PartialEq)]
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

/// An object's keys and values.
pub(super) type Object = BTreeMap<String, Value>;

impl Value {
    /// The value as text.
    pub(super) fn into_text(self) -> Result<String, WrongType> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Plain(text) if scalar::is_text(&text) => Ok(text),
            Self::Plain(_) => Err(WrongType("text: put it in quotes")),
            _ => Err(WrongType("text")),
        }
    }

    /// The value as a whole number.
    pub(super) fn into_number(self) -> Result<i64, WrongType> {
        let number = match self {
            Self::Number(number) => number,
            Self::Plain(text) => scalar::number(&text),
            _ => None,
        };
        number.ok_or(WrongType("a whole number"))
    }

    /// The value as a truth value.
    pub(super) fn into_bool(self) -> Result<bool, WrongType> {
        match self {
            Self::Bool(value) => Ok(value),
            Self::Plain(text) => scalar::boolean(&text).ok_or(WrongType("true or false")),
            _ => Err(WrongType("true or false")),
        }
    }

    /// The value as a list.
    pub(super) fn into_list(self) -> Result<Vec<Self>, WrongType> {
        match self {
            Self::List(values) => Ok(values),
            _ => Err(WrongType("a list")),
        }
    }

    /// The value as an object.
    pub(super) fn into_object(self) -> Result<Object, WrongType> {
        match self {
            Self::Object(object) => Ok(object),
            _ => Err(WrongType("an object")),
        }
    }
}

/// A value is not what is wanted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongType(&'static str);

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}", self.0)
    }
}

/// A text that is no document, or one that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentError {
    /// Where it shows, from 1.
    pub(super) line: usize,
    /// What is wrong.
    pub(super) why: String,
}

/// Reads a document of at most [`Format::max_bytes`].
pub(super) fn read(bytes: &[u8], format: Format) -> Result<Value, DocumentError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        DocumentError { line, why: "not UTF-8".to_owned() }
    })?;
    match format {
        Format::Json => json::read(text),
        Format::Yaml => yaml::read(text),
    }
}

/// A text of the document as errors show it: its beginning, in quotes, with escapes.
pub(super) fn quoted(text: &str) -> String {
    let start: String = text.chars().take(64).collect();
    format!("{start:?}")
}

/// What both readers count.
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

/// What neither reader takes.
enum Refused {
    Depth,
    Values,
    Doubled(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth => write!(f, "more than {MAX_DEPTH} lists and objects inside each other"),
            Self::Values => write!(f, "more than {MAX_VALUES} values"),
            Self::Doubled(key) => write!(f, "key {} stands twice", quoted(key)),
        }
    }
}

#[cfg(test)]
mod tests;
