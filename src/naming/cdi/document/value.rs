//! The values of a document, and the limits of a document.

use super::scalar;
use crate::cdi::error::SpecError;
use std::collections::BTreeMap;
use thiserror::Error;

/// Maximum lists and objects inside each other. A specification needs seven.
const DEPTH_MAX: usize = 32;

/// Maximum values of a document, at any depth.
pub(super) const VALUES_MAX: usize = 200_000;

#[derive(Debug, PartialEq)]
pub(in crate::cdi) enum Value {
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

pub(in crate::cdi) type ValueMap = BTreeMap<String, Value>;

impl Value {
    /// Converts to a text. A word without quotes is one only if no runtime reads it as another value.
    pub(in crate::cdi) fn into_text(self) -> Result<String, SpecError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Plain(text) if scalar::is_text(&text) => Ok(text),
            Self::Plain(_) => Err(SpecError::rule("not text: put it in quotes")),
            _ => Err(SpecError::rule("not text")),
        }
    }

    /// Checks that the value is a text, a word, a truth value or a number. Runtimes accept each of
    /// them as a text; this code does not use the text.
    pub(in crate::cdi) fn check_scalar(&self) -> Result<(), SpecError> {
        match self {
            Self::Null | Self::List(_) | Self::Object(_) => Err(SpecError::rule("not text")),
            Self::Bool(_) | Self::Number(_) | Self::Plain(_) | Self::Text(_) => Ok(()),
        }
    }

    /// Converts to a whole number of 64 bits.
    pub(in crate::cdi) fn into_number(self) -> Result<i64, SpecError> {
        let number = match self {
            Self::Number(number) => number,
            Self::Plain(text) => scalar::parse_number(&text),
            _ => None,
        };
        number.ok_or_else(|| SpecError::rule("not a whole number"))
    }

    /// Converts to a truth value: `true` or `false` without quotes.
    pub(in crate::cdi) fn into_bool(self) -> Result<bool, SpecError> {
        match self {
            Self::Bool(value) => Ok(value),
            Self::Plain(text) => text
                .parse()
                .map_err(|_| SpecError::rule("not true or false")),
            _ => Err(SpecError::rule("not true or false")),
        }
    }

    /// Converts to a list.
    pub(in crate::cdi) fn into_list(self) -> Result<Vec<Self>, SpecError> {
        match self {
            Self::List(values) => Ok(values),
            _ => Err(SpecError::rule("not a list")),
        }
    }

    /// Converts to an object.
    pub(in crate::cdi) fn into_object(self) -> Result<ValueMap, SpecError> {
        match self {
            Self::Object(object) => Ok(object),
            _ => Err(SpecError::rule("not an object")),
        }
    }
}

/// Why a text is no document, or breaks a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cdi) struct DocumentError {
    /// Number of the line, from 1.
    pub(in crate::cdi) line: usize,
    pub(in crate::cdi) why: String,
}

/// The first document of a file.
#[derive(Debug, PartialEq)]
pub(in crate::cdi) struct Document {
    pub(in crate::cdi) value: Value,
    /// The line where a second document begins, which is not read.
    pub(in crate::cdi) second_document: Option<usize>,
}

/// Quotes the beginning of a text of the document for an error, with escapes.
pub(in crate::cdi) fn quote(text: &str) -> String {
    let start: String = text.chars().take(64).collect();
    format!("{start:?}")
}

/// The number of values of a document so far.
#[derive(Default)]
pub(in crate::cdi) struct ValueCounter {
    values: usize,
}

impl ValueCounter {
    /// Counts a value inside `depth` lists and objects.
    ///
    /// # Errors
    ///
    /// The value is too deep, or one too many.
    pub(in crate::cdi) fn count(&mut self, depth: usize) -> Result<(), LimitError> {
        self.values += 1;
        if depth > DEPTH_MAX {
            return Err(LimitError::TooDeep);
        }
        if self.values > VALUES_MAX {
            return Err(LimitError::TooManyValues);
        }
        Ok(())
    }
}

#[derive(Debug, Error)]
pub(in crate::cdi) enum LimitError {
    #[error("more than {DEPTH_MAX} lists and objects inside each other")]
    TooDeep,
    #[error("more than {VALUES_MAX} values")]
    TooManyValues,
    #[error("key {key} stands twice", key = quote(.0))]
    RepeatedKey(String),
}
