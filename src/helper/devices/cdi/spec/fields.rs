//! An object's keys, taken one by one; what nobody took is unknown.

use super::{SpecError, Within};
use crate::devices::cdi::document::{Object, Value, quoted};

/// The keys of an object that nobody has asked for yet.
pub(super) struct Fields(Object);

impl Fields {
    /// Reads an object: `read` takes every key that it knows, in their spelling, and any other is
    /// an error.
    pub(super) fn read<T>(
        value: Value,
        read: impl FnOnce(&mut Self) -> Result<T, SpecError>,
    ) -> Result<T, SpecError> {
        let mut fields = Self(value.into_object()?);
        let result = read(&mut fields)?;
        match fields.0.keys().next() {
            None => Ok(result),
            Some(key) => Err(SpecError::rule(format_args!("unknown key {}", quoted(key)))),
        }
    }

    /// The value of a key. `null` is none, as it is to the generators' library.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key).filter(|value| *value != Value::Null)
    }

    pub(super) fn value<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(Value) -> Result<T, SpecError>,
    ) -> Result<Option<T>, SpecError> {
        self.take(key).map(|value| read(value).in_key(key)).transpose()
    }

    pub(super) fn required<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(Value) -> Result<T, SpecError>,
    ) -> Result<T, SpecError> {
        self.value(key, read)?.ok_or_else(|| SpecError::rule(format_args!("no {key}")))
    }

    /// What `read` makes of each value of a list; an absent list is empty.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        mut read: impl FnMut(Value) -> Result<T, SpecError>,
    ) -> Result<Vec<T>, SpecError> {
        let items = |value: Value| {
            let values = value.into_list()?.into_iter().enumerate();
            values.map(|(at, value)| read(value).within(&format!("[{at}]"), ".")).collect()
        };
        Ok(self.value(key, items)?.unwrap_or_default())
    }
}

pub(super) fn some_text(value: Value) -> Result<String, SpecError> {
    match value.into_text()? {
        text if text.is_empty() => Err(SpecError::rule("empty")),
        text => Ok(text),
    }
}

/// A value that is a whole number from 0 to `most`.
pub(super) fn number(value: Value, most: u32) -> Result<u32, SpecError> {
    let number = value.into_number()?;
    let fit = u32::try_from(number).ok().filter(|number| *number <= most);
    fit.ok_or_else(|| SpecError::rule(format_args!("{number} is not from 0 to {most}")))
}
