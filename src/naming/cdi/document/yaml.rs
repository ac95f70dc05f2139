//! Parses YAML into a tree of values: one document of lists, objects with plain keys, and scalars.
//!
//! Features that no specification needs are refused: anchors and aliases, tags, merge keys, and keys
//! that are lists or objects. Only the first document is read, as in container runtimes. Neither the
//! parser nor this code recurses: open collections lie on a stack whose height is the depth limit.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use thiserror::Error;

use super::scalar;
use super::value::{Document, DocumentError, LimitError, Value, ValueCounter, ValueMap};
use helper::printable;

/// Parses the first document of a YAML text.
///
/// # Errors
///
/// Text that is no YAML, has no document, uses a feature that is refused, or breaks a limit of documents.
pub(super) fn parse(text: &str) -> Result<Document, DocumentError> {
    let mut builder = TreeBuilder::default();
    let mut line = 1;
    let mut second_document = None;
    for event in Parser::new_from_str(&replace_tabs_behind_keys(text)) {
        let (event, span) = event.map_err(|error| syntax_error(&error))?;
        line = span.start.line();
        if builder.root.is_some() && matches!(event, Event::DocumentStart(_)) {
            second_document = Some(line);
            break;
        }
        if let Err(error) = builder.handle_event(event) {
            return Err(DocumentError {
                line,
                why: error.to_string(),
            });
        }
    }
    let value = builder.root.ok_or(DocumentError {
        line,
        why: "no document".to_owned(),
    })?;
    Ok(Document {
        value,
        second_document,
    })
}

/// Replaces a tab between a key and its value at the beginning of a line, which is YAML (YAML 1.2.2, section 6.2) and
/// which the parser, `saphyr-parser` 0.3, refuses before a letter (`fetch_value` in its `scanner.rs`).
fn replace_tabs_behind_keys(text: &str) -> Cow<'_, str> {
    if !text.contains(":\t") {
        return Cow::Borrowed(text);
    }
    let mut replaced = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.split_once(":\t") {
            Some((key, value)) if is_plain_key(key) => {
                replaced.extend([key, ": ", value]);
            }
            _ => replaced.push_str(line),
        }
    }
    Cow::Owned(replaced)
}

/// Tells whether the beginning of a line is a key without quotes, perhaps the first one of an item of a list.
fn is_plain_key(text: &str) -> bool {
    let key = text.trim_start_matches([' ', '-']);
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Converts the parser's error into ours.
fn syntax_error(error: &ScanError) -> DocumentError {
    DocumentError {
        line: error.marker().line(),
        why: printable(error.info()),
    }
}

/// Why the parser's events make no tree of values.
#[derive(Debug, Error)]
enum YamlError {
    /// A feature that no specification needs.
    #[error("{0} is not taken")]
    NotTaken(&'static str),
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The parser never emits this sequence of events.
    #[error("the parser lost track")]
    OutOfStep,
}

enum OpenCollection {
    List(Vec<Value>),
    /// The entries so far, and the key whose value comes next; `None` if a key comes next.
    Object(ValueMap, Option<String>),
}

#[derive(Default)]
struct TreeBuilder {
    counter: ValueCounter,
    /// The lists and objects around the next value, the innermost last.
    open: Vec<OpenCollection>,
    /// The document, once it is complete.
    root: Option<Value>,
}

impl TreeBuilder {
    /// Adds what an event of the parser stands for to the tree. Anchors, aliases and tags are refused.
    fn handle_event(&mut self, event: Event<'_>) -> Result<(), YamlError> {
        match event {
            Event::Alias(_) => Err(YamlError::NotTaken("an alias (*)")),
            // The parser numbers anchors from 1; 0 stands for none.
            Event::Scalar(_, _, 1.., _)
            | Event::SequenceStart(1.., _)
            | Event::MappingStart(1.., _) => Err(YamlError::NotTaken("an anchor (&)")),
            Event::Scalar(.., Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => Err(YamlError::NotTaken("a tag (!)")),
            Event::Scalar(text, style, ..) => self.add_scalar(text.into_owned(), style),
            Event::SequenceStart(..) => self.start_collection(OpenCollection::List(Vec::new())),
            Event::MappingStart(..) => {
                self.start_collection(OpenCollection::Object(ValueMap::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.end_collection(),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    /// Adds a scalar: as the key, if one is due in the innermost object, else as a value.
    fn add_scalar(&mut self, text: String, style: ScalarStyle) -> Result<(), YamlError> {
        let is_plain = style == ScalarStyle::Plain;
        if let Some(OpenCollection::Object(object, key @ None)) = self.open.last_mut() {
            if is_plain && text == "<<" {
                return Err(YamlError::NotTaken("a merge key (<<)"));
            }
            if object.contains_key(&text) {
                return Err(LimitError::RepeatedKey(text).into());
            }
            *key = Some(text);
            return Ok(());
        }
        self.count_value()?;
        self.add_value(if !is_plain {
            Value::Text(text)
        } else if scalar::is_null(&text) {
            Value::Null
        } else {
            Value::Plain(text)
        })
    }

    /// Opens a list or an object, which cannot be a key.
    fn start_collection(&mut self, open: OpenCollection) -> Result<(), YamlError> {
        if let Some(OpenCollection::Object(_, None)) = self.open.last() {
            return Err(YamlError::NotTaken("a key that is a list or an object"));
        }
        self.count_value()?;
        self.open.push(open);
        Ok(())
    }

    /// Closes the innermost list or object, and adds it as a value.
    fn end_collection(&mut self) -> Result<(), YamlError> {
        match self.open.pop() {
            Some(OpenCollection::List(values)) => self.add_value(Value::List(values)),
            Some(OpenCollection::Object(object, None)) => self.add_value(Value::Object(object)),
            Some(OpenCollection::Object(_, Some(_))) | None => Err(YamlError::OutOfStep),
        }
    }

    /// Counts a value of the innermost collection against the limits of documents.
    fn count_value(&mut self) -> Result<(), YamlError> {
        Ok(self.counter.count(self.open.len())?)
    }

    /// Adds a value: to the innermost list, under the key of the innermost object, or as the document itself.
    fn add_value(&mut self, value: Value) -> Result<(), YamlError> {
        match self.open.last_mut() {
            Some(OpenCollection::List(values)) => values.push(value),
            Some(OpenCollection::Object(object, key)) => {
                object.insert(key.take().ok_or(YamlError::OutOfStep)?, value);
            }
            None if self.root.is_none() => self.root = Some(value),
            None => return Err(YamlError::OutOfStep),
        }
        Ok(())
    }
}
