//! JSON objects that are read more strictly than serde does by itself: no arrays in place of objects, no repeated names,
//! no `null`.

use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Deserializes an optional key that is present. It refuses `null`, which `Option` accepts.
pub(super) fn require_value<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// A structure that must be an object: serde alone accepts an array of its values too.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct MapOnly<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for MapOnly<T> {
    /// Reads an object; any other value is an error.
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        // A visitor that visits maps alone, so that serde refuses every other value.
        struct Object<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = MapOnly<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(MapOnly)
            }
        }

        input.deserialize_map(Object(PhantomData))
    }
}

/// An object with values of one type; each name occurs once.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct ByName<T>(pub(super) BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    /// Reads an object; another value, and a name that occurs twice, are errors.
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Names<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = ByName<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            /// Reads the names and their values; a repeated name is an error.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByName<T>, A::Error> {
                let mut names = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    if names.insert(name, value).is_some() {
                        return Err(de::Error::custom("a name is there twice"));
                    }
                }
                Ok(ByName(names))
            }
        }

        input.deserialize_map(Names(PhantomData))
    }
}
