//! The keys of an object, taken one by one, so that a key that is left is unknown.

use super::{AddPlace, SpecError};
use crate::devices::cdi::document::{Value, ValueMap, quote};

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
        match fields.0.keys().next() {
            None => Ok(result),
            Some(key) => Err(SpecError::rule(format_args!("unknown key {}", quote(key)))),
        }
    }

    /// Takes the value of a key. `null` counts as missing, as in the library of the generators.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key).filter(|value| *value != Value::Null)
    }

    pub(super) fn value<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(Value) -> Result<T, SpecError>,
    ) -> Result<Option<T>, SpecError> {
        self.take(key).map(|value| parse(value).add_key(key)).transpose()
    }

    pub(super) fn required<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(Value) -> Result<T, SpecError>,
    ) -> Result<T, SpecError> {
        self.value(key, parse)?.ok_or_else(|| SpecError::rule(format_args!("no {key}")))
    }

    /// Takes a list and parses each value. A missing list is empty.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        mut parse: impl FnMut(Value) -> Result<T, SpecError>,
    ) -> Result<Vec<T>, SpecError> {
        let items = |value: Value| {
            let values = value.into_list()?.into_iter().enumerate();
            values.map(|(at, value)| parse(value).add_place(&format!("[{at}]"), ".")).collect()
        };
        Ok(self.value(key, items)?.unwrap_or_default())
    }
}

pub(super) fn nonempty_text(value: Value) -> Result<String, SpecError> {
    match value.into_text()? {
        text if text.is_empty() => Err(SpecError::rule("empty")),
        text => Ok(text),
    }
}

/// Returns a value that is a whole number from 0 to `max`.
pub(super) fn number_up_to(value: Value, max: u32) -> Result<u32, SpecError> {
    let number = value.into_number()?;
    let fitting = u32::try_from(number).ok().filter(|number| *number <= max);
    fitting.ok_or_else(|| SpecError::rule(format_args!("{number} is not from 0 to {max}")))
}
