//! YAML to a tree of values: one document of lists, objects with plain keys, and scalars.
//!
//! What no specification needs is refused: anchors and aliases, tags, merge keys, and keys that are
//! lists or objects. Only the first document is read, as runtimes do. The parser recurses nowhere,
//! and neither does this reader: what is still open lies on a stack of at most as many as may be
//! inside each other.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use super::{Budget, Document, DocumentError, Object, Refused, Value, scalar};
use crate::printable;

pub(super) fn read(text: &str) -> Result<Document, DocumentError> {
    let mut reader = Reader::default();
    let (mut line, mut second) = (1, None);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        line = span.start.line();
        if reader.root.is_some() && matches!(event, Event::DocumentStart(_)) {
            second = Some(line);
            break;
        }
        reader.event(event).map_err(|why| DocumentError { line, why })?;
    }
    let value = reader.root.ok_or(DocumentError { line, why: "no document".to_owned() })?;
    Ok(Document { value, second })
}

fn syntax(error: &ScanError) -> DocumentError {
    DocumentError { line: error.marker().line(), why: printable(error.info()) }
}

enum Open {
    List(Vec<Value>),
    /// The key is there when its value is what comes next.
    Object(Object, Option<String>),
}

#[derive(Default)]
struct Reader {
    budget: Budget,
    open: Vec<Open>,
    root: Option<Value>,
}

impl Reader {
    fn event(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Alias(_) => Err("an alias (*) is not taken".to_owned()),
            Event::Scalar(_, _, 1.., _)
            | Event::SequenceStart(1.., _)
            | Event::MappingStart(1.., _) => Err("an anchor (&) is not taken".to_owned()),
            Event::Scalar(.., Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => Err("a tag (!) is not taken".to_owned()),
            Event::Scalar(text, style, ..) => self.scalar(text.into_owned(), style),
            Event::SequenceStart(..) => self.start(Open::List(Vec::new())),
            Event::MappingStart(..) => self.start(Open::Object(Object::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn scalar(&mut self, text: String, style: ScalarStyle) -> Result<(), String> {
        let plain = style == ScalarStyle::Plain;
        if let Some(Open::Object(object, key @ None)) = self.open.last_mut() {
            if plain && text == "<<" {
                return Err("a merge key (<<) is not taken".to_owned());
            }
            if object.contains_key(&text) {
                return Err(Refused::Doubled(text).to_string());
            }
            *key = Some(text);
            return Ok(());
        }
        self.count()?;
        let value = match plain {
            true if scalar::is_null(&text) => Value::Null,
            true => Value::Plain(text),
            false => Value::Text(text),
        };
        self.put(value)
    }

    fn start(&mut self, open: Open) -> Result<(), String> {
        if let Some(Open::Object(_, None)) = self.open.last() {
            return Err("a key that is a list or an object is not taken".to_owned());
        }
        self.count()?;
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        match self.open.pop() {
            Some(Open::List(values)) => self.put(Value::List(values)),
            Some(Open::Object(object, None)) => self.put(Value::Object(object)),
            Some(Open::Object(_, Some(_))) | None => Err(OUT_OF_STEP.to_owned()),
        }
    }

    fn count(&mut self) -> Result<(), String> {
        self.budget.take(self.open.len()).map_err(|refused| refused.to_string())
    }

    fn put(&mut self, value: Value) -> Result<(), String> {
        match self.open.last_mut() {
            Some(Open::List(values)) => values.push(value),
            Some(Open::Object(object, key)) => {
                object.insert(key.take().ok_or(OUT_OF_STEP)?, value);
            }
            None if self.root.is_none() => self.root = Some(value),
            None => return Err(OUT_OF_STEP.to_owned()),
        }
        Ok(())
    }
}

/// The parser never says such a thing; were it to, the file is not read.
const OUT_OF_STEP: &str = "the parser lost track";
