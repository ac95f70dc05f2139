//! The keys of an object, taken one by one, so that a key that is left is unknown.

use crate::cdi::document::{Value, ValueMap, quote};
use crate::cdi::error::{AddPlace, SpecError};

/// The keys of an object that have not been taken yet.
pub(super) struct Fields(ValueMap);

impl Fields {
    /// Parses an object: `parse` takes every key that it knows, in exactly its spelling.
    ///
    /// # Errors
    ///
    /// The value is no object, `parse` fails, or a key is left.
    pub(super) fn parse<T>(
        value: Value,
        parse: impl FnOnce(&mut Self) -> Result<T, SpecError>,
    ) -> Result<T, SpecError> {
        let mut fields = Self(value.into_object()?);
        let result = parse(&mut fields)?;
        if let Some(key) = fields.0.keys().next() {
            return Err(SpecError::rule(format_args!("unknown key {}", quote(key))));
        }
        Ok(result)
    }

    /// Takes the value of a key; `None` if it is missing. `null` counts as missing, as in the library of the
    /// generators.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key).filter(|value| *value != Value::Null)
    }

    /// Takes a key and parses its value; `None` if the key is missing. An error names the key.
    pub(super) fn value<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(Value) -> Result<T, SpecError>,
    ) -> Result<Option<T>, SpecError> {
        self.take(key)
            .map(|value| parse(value).in_key(key))
            .transpose()
    }

    /// Takes a key that must be there, and parses its value.
    pub(super) fn required<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(Value) -> Result<T, SpecError>,
    ) -> Result<T, SpecError> {
        self.value(key, parse)?
            .ok_or_else(|| SpecError::rule(format_args!("no {key}")))
    }

    /// Takes a list and parses each value. A missing list is empty.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        mut parse: impl FnMut(Value) -> Result<T, SpecError>,
    ) -> Result<Vec<T>, SpecError> {
        let items = self.value(key, |value| {
            let mut items = Vec::new();
            for (index, item) in value.into_list()?.into_iter().enumerate() {
                items.push(parse(item).in_item(index)?);
            }
            Ok(items)
        })?;
        Ok(items.unwrap_or_default())
    }
}

/// Parses a text that is not empty.
pub(super) fn nonempty_text(value: Value) -> Result<String, SpecError> {
    let text = value.into_text()?;
    if text.is_empty() {
        return Err(SpecError::rule("empty"));
    }
    Ok(text)
}

/// Parses a value that is a whole number from 0 to `max`.
pub(super) fn number_up_to(value: Value, max: u32) -> Result<u32, SpecError> {
    let number = value.into_number()?;
    match u32::try_from(number) {
        Ok(fitting) if fitting <= max => Ok(fitting),
        _ => Err(SpecError::rule(format_args!(
            "{number} is not from 0 to {max}"
        ))),
    }
}
