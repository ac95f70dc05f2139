//! The record as JSON has it: types only. What the values mean is in `record.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Gpu, Options, RecordError};

pub(super) const VERSION: u32 = 1;

/// A record's keys. serde refuses unknown and doubled ones of a structure.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireRecord {
    pub(super) version: u32,
    pub(super) id: String,
    pub(super) uid: u32,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) cgroup: Option<String>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) via: Option<String>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) started: Option<i64>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) ends: Option<i64>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) leaf: Option<String>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) options: Option<MapOnly<Options>>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) cdi: Option<Vec<String>>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<Vec<Gpu>>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) gres: Option<ByName<Vec<u32>>>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) device_dir: Option<String>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) namespaces: Option<String>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) env: Option<ByName<String>>,
}

/// An optional key that is there has a value: `null` is none, unlike to `Option`.
pub(super) fn stated<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// A structure that has to be written as an object: serde alone takes an array of its values too.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct MapOnly<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for MapOnly<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
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

/// An object of values of one kind, each name once.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct ByName<T>(pub(super) BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Names<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = ByName<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

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

/// A parser's error with its place, on one line.
pub(super) fn json_error(error: &serde_json::Error) -> RecordError {
    let text = error.to_string();
    RecordError(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}
