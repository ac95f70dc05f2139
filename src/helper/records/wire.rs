//! The record as JSON has it: types only. What the values mean is in `record.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Gpu, RecordError};

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
    pub(super) options: Option<MapOnly<WireOptions>>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) cdi: Option<Vec<String>>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<Vec<Gpu>>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) gres: Option<ByName<Vec<u32>>>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) device_dir: Option<String>,
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    pub(super) env: Option<ByName<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireOptions {
    #[serde(
        rename = "DevicePolicy",
        default,
        deserialize_with = "stated",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) policy: Option<String>,
    #[serde(
        rename = "DeviceAllow",
        default,
        deserialize_with = "stated",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) allow: Option<Vec<(String, String)>>,
}

/// An optional key that is there has a value: `null` is none, unlike to `Option`.
fn stated<'de, T: Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// A structure that has to be written as an object: serde alone takes an array of its values too.
#[derive(Debug)]
pub(super) struct MapOnly<T>(pub(super) T);

impl<T: Serialize> Serialize for MapOnly<T> {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(output)
    }
}

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

impl Serialize for Gpu {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Index(index) => output.serialize_u32(*index),
            Self::Name(name) => output.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Gpu {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct IndexOrName;

        impl Visitor<'_> for IndexOrName {
            type Value = Gpu;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the index, UUID or PCI address of a GPU")
            }

            fn visit_u64<E: de::Error>(self, index: u64) -> Result<Gpu, E> {
                u32::try_from(index).map(Gpu::Index).map_err(|_| E::custom("GPU index too large"))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Gpu, E> {
                Ok(Gpu::Name(name.to_owned()))
            }
        }

        input.deserialize_any(IndexOrName)
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
