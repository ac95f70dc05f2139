//! Messages as RFC 38 key-values ("Flux Security Key Value Encoding").
//!
//! An entry is `KEY NUL TYPE VALUE NUL`. [`schema`] names the keys of a message once, for both
//! directions. The reader demands each key in its turn, so that one that is missing, doubled, moved
//! or unknown is found without a table.

use std::fmt;
use std::str::FromStr;

use super::{Phase, Reason, Rule, SPEAKS_TO, Several, SourceName, Stack, VERSION};
use thiserror::Error;

/// The bytes of one message: the version, its own keys, and `end`.
pub(super) fn encode(message: &impl Field) -> Vec<u8> {
    let mut out = Writer::default();
    out.entry("version", b's', VERSION);
    message.write("", &mut out);
    out.entry("end", b'b', "true");
    out.0
}

/// The message that [`encode`] of this version writes as these bytes.
pub(super) fn decode<T: Field>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut input = Reader(bytes);
    let version = input.entry("version", b's')?;
    if version != VERSION {
        let printable = |c: char| if c.is_ascii_graphic() { c } else { '?' };
        return Err(DecodeError::Version(version.chars().take(32).map(printable).collect()));
    }
    let message = T::read("", &mut input)?;
    if input.entry("end", b'b')? != "true" {
        return Err(DecodeError::value("end"));
    }
    if input.0.is_empty() { Ok(message) } else { Err(DecodeError::Trailing) }
}

/// What stands under a key. Where it has keys of its own, the key is not used.
pub(super) trait Field: Sized {
    fn write(&self, key: &str, out: &mut Writer);
    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// What is written as a string. It has one spelling: another that `FromStr` takes is refused.
pub(super) trait Text: FromStr + fmt::Display {
    /// Most of them in one list.
    const MOST: usize = 256;
}

impl Text for String {}
impl Text for SourceName {}
impl Text for Rule {}
impl Text for Stack {}
impl Text for Reason {}
impl Text for Phase {}
impl Text for Several {}

impl<T: Text> Field for T {
    fn write(&self, key: &str, out: &mut Writer) {
        out.entry(key, b's', &self.to_string());
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        spelled(key, input.entry(key, b's')?)
    }
}

impl Field for u32 {
    fn write(&self, key: &str, out: &mut Writer) {
        out.entry(key, b'i', &self.to_string());
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        spelled(key, input.entry(key, b'i')?)
    }
}

/// Seconds since the epoch; 0 for "not known".
impl Field for Option<i64> {
    fn write(&self, key: &str, out: &mut Writer) {
        out.entry(key, b'i', &self.unwrap_or(0).to_string());
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match spelled(key, input.entry(key, b'i')?)? {
            0 => Ok(None),
            seconds if seconds > 0 => Ok(Some(seconds)),
            _ => Err(DecodeError::value(key)),
        }
    }
}

/// A list: `KEY.count`, then `KEY.0`, `KEY.1` and so on.
impl<T: Text> Field for Vec<T> {
    fn write(&self, key: &str, out: &mut Writer) {
        out.entry(&format!("{key}.count"), b'i', &self.len().to_string());
        for (index, item) in self.iter().enumerate() {
            item.write(&item_key(key, index), out);
        }
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = format!("{key}.count");
        let length: usize = spelled(&count, input.entry(&count, b'i')?)?;
        if length > T::MOST {
            return Err(DecodeError::value(&count));
        }
        (0..length).map(|index| T::read(&item_key(key, index), input)).collect()
    }
}

/// The key of an item of a list.
pub(super) fn item_key(key: &str, index: usize) -> String {
    format!("{key}.{index}")
}

/// The value of `text`, where this is how the value is written.
fn spelled<T: FromStr + fmt::Display>(key: &str, text: &str) -> Result<T, DecodeError> {
    let value = text.parse().ok().filter(|value: &T| value.to_string() == text);
    value.ok_or_else(|| DecodeError::value(key))
}

/// Names the keys of a type, in their order: those of a struct with its fields. Of an enum the first
/// key tells the variant.
macro_rules! schema {
    ($(#[$about:meta])* struct $type:ident {
        $($(#[$doc:meta])* $field:ident: $of:ty = $key:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $type { $($(#[$doc])* pub $field: $of,)* }

        impl Field for $type {
            fn write(&self, _: &str, out: &mut Writer) {
                $(self.$field.write($key, out);)*
            }

            fn read(_: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self { $($field: Field::read($key, input)?,)* })
            }
        }
    };
    (enum $type:ident by $tag:literal {
        $($word:literal => $variant:ident { $($field:tt as $name:ident: $key:literal),* },)*
    }) => {
        impl $type {
            /// The name in protocol and log.
            pub fn as_str(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $word,)*
                }
            }
        }

        impl Field for $type {
            fn write(&self, _: &str, out: &mut Writer) {
                out.entry($tag, b's', self.as_str());
                match self {
                    $(Self::$variant { $($field: $name),* } => { $($name.write($key, out);)* })*
                }
            }

            fn read(_: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
                match input.entry($tag, b's')? {
                    $($word => Ok(Self::$variant { $($field: Field::read($key, input)?),* }),)*
                    _ => Err(DecodeError::value($tag)),
                }
            }
        }
    };
}
pub(super) use schema;

/// Appends entries.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Adds an entry of this type. A NUL cannot be represented and becomes `?`.
    pub(super) fn entry(&mut self, key: &str, kind: u8, value: &str) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(&[0, kind]);
        self.0.extend(value.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
        self.0.push(0);
    }
}

/// Takes entries from the front.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The value of the next entry, which must have this key and this type.
    pub(super) fn entry(&mut self, key: &str, kind: u8) -> Result<&'a str, DecodeError> {
        let missing = || DecodeError::Key(key.to_owned());
        let (found, rest) = until_nul(self.0).ok_or_else(missing)?;
        if found != key.as_bytes() {
            return Err(missing());
        }
        let (typed, rest) = until_nul(rest).ok_or_else(missing)?;
        let value = typed.strip_prefix(&[kind]).ok_or_else(|| DecodeError::value(key))?;
        self.0 = rest;
        std::str::from_utf8(value).map_err(|_| DecodeError::value(key))
    }
}

fn until_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let nul = bytes.iter().position(|&byte| byte == 0)?;
    Some((bytes.get(..nul)?, bytes.get(nul + 1..)?))
}

/// Why bytes are not the message that was expected. Keys in it are ours, never the sender's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// This key was due and is not there.
    #[error("key {0} is missing or out of place")]
    Key(String),
    /// The value of this key has the wrong type or is out of range.
    #[error("key {0} has a value out of range")]
    Value(String),
    /// More entries follow than the schema has.
    #[error("entries follow the last key")]
    Trailing,
    /// The sender is of another version, which is given with its odd characters replaced.
    #[error("version {0}{SPEAKS_TO}")]
    Version(String),
}

impl DecodeError {
    pub(super) fn value(key: &str) -> Self {
        Self::Value(key.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Field>(bytes: &[u8]) -> Result<T, DecodeError> {
        T::read("a", &mut Reader(bytes))
    }

    #[test]
    fn vectors_of_the_rfc() {
        let mut out = Writer::default();
        "/bin:/usr/bin".to_owned().write("PATH", &mut out);
        String::new().write("EMPTY_STRING", &mut out);
        42.write("INT", &mut out);
        Some(i64::MAX).write("INT64_MAX", &mut out);
        out.entry("TRUE", b'b', "true");
        assert_eq!(
            out.0,
            b"PATH\0s/bin:/usr/bin\0EMPTY_STRING\0s\0INT\0i42\0\
              INT64_MAX\0i9223372036854775807\0TRUE\0btrue\0"
        );
        let mut input = Reader(&out.0);
        assert_eq!(String::read("PATH", &mut input).unwrap(), "/bin:/usr/bin");
        assert_eq!(String::read("EMPTY_STRING", &mut input).unwrap(), "");
        assert_eq!(u32::read("INT", &mut input), Ok(42));
        assert_eq!(Option::read("INT64_MAX", &mut input), Ok(Some(i64::MAX)));
        assert_eq!(input.entry("TRUE", b'b'), Ok("true"));
        assert!(input.0.is_empty());
    }

    #[test]
    fn what_is_out_of_place_is_refused() {
        let due = || Err(DecodeError::Key("a".into()));
        for bytes in [&b""[..], b"a", b"a\0", b"a\0s", b"a\0sx", b"b\0sx\0", b"\0s\0"] {
            assert_eq!(read::<String>(bytes), due(), "{bytes:?}");
        }
        for bytes in [&b"a\0\0"[..], b"a\0ix\0", b"a\0s\xff\0"] {
            assert!(read::<String>(bytes).is_err(), "{bytes:?}");
        }
        for value in ["", "+1", " 1", "1 ", "01", "-0", "-1", "9223372036854775808", "1x"] {
            let bytes = [b"a\0i", value.as_bytes(), b"\0"].concat();
            assert!(read::<Option<i64>>(&bytes).is_err(), "{value:?}");
            assert!(read::<u32>(&bytes).is_err(), "{value:?}");
            let bytes = [b"a.count\0i", value.as_bytes(), b"\0a.0\0s\0"].concat();
            assert!(read::<Vec<String>>(&bytes).is_err(), "{value:?}");
        }
        assert!(read::<u32>(b"a\0i4294967296\0").is_err());
        assert!(read::<u32>(b"a\0s1\0").is_err());
    }

    #[test]
    fn a_message_ends_where_it_says() {
        let bytes = encode(&7);
        assert_eq!(bytes, format!("version\0s{VERSION}\0\0i7\0end\0btrue\0").as_bytes());
        assert_eq!(decode::<u32>(&bytes), Ok(7));
        let more = [&bytes[..], b"end\0btrue\0"].concat();
        assert_eq!(decode::<u32>(&more), Err(DecodeError::Trailing));
        for end in ["end\0bTRUE", "end\0bfalse", "end\0strue", "end\0b", "End\0btrue"] {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let changed = text.replace("end\0btrue", end);
            assert!(decode::<u32>(changed.as_bytes()).is_err(), "{end:?}");
        }
        assert!(decode::<u32>(&bytes[..bytes.len() - 10]).is_err(), "no end");
    }
}
