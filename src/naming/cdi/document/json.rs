//! Parses JSON (RFC 8259) into a tree of values.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::value::{DocumentError, LimitError, Value, ValueCounter, ValueMap};
use helper::printable;

/// Parses one JSON value that is the whole text.
///
/// # Errors
///
/// Text that is no JSON, follows the value, or breaks a limit of documents.
pub(super) fn parse(text: &str) -> Result<Value, DocumentError> {
    let mut input = serde_json::Deserializer::from_str(text);
    let mut counter = ValueCounter::default();
    let value = ValueSeed {
        counter: &mut counter,
        depth: 0,
    }
    .deserialize(&mut input);
    value
        .and_then(|value| input.end().map(|()| value))
        .map_err(|error| document_error(&error))
}

/// Converts the parser's error, which ends with the place, into ours, which begins with it.
fn document_error(error: &serde_json::Error) -> DocumentError {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    let why = text.strip_suffix(&place).unwrap_or(&text);
    DocumentError {
        line: error.line(),
        why: printable(why),
    }
}

/// The seed of the next value, which is inside `depth` lists and objects.
struct ValueSeed<'a> {
    counter: &'a mut ValueCounter,
    depth: usize,
}

impl ValueSeed<'_> {
    /// The seed of a value in the present list or object.
    fn inner(&mut self) -> ValueSeed<'_> {
        ValueSeed {
            counter: self.counter,
            depth: self.depth + 1,
        }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    /// Counts the value against the limits of documents, and reads it.
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        self.counter.count(self.depth).map_err(Error::custom)?;
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.try_into().ok()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(Some(number)))
    }

    fn visit_f64<E>(self, _number: f64) -> Result<Value, E> {
        Ok(Value::Number(None))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    /// Reads a list, whose values are one level deeper.
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self.inner())? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    /// Reads an object, whose values are one level deeper. A repeated key is an error.
    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut object = ValueMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(Error::custom(LimitError::RepeatedKey(key)));
            }
            object.insert(key, map.next_value_seed(self.inner())?);
        }
        Ok(Value::Object(object))
    }
}
