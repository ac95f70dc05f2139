//! Encodes and decodes messages as RFC 38 key-values ("Flux Security Key Value Encoding"), and checks
//! the texts in them.
//!
//! An entry is `KEY NUL TYPE VALUE NUL`. [`schema`] names the keys of a message once, for both
//! directions. The reader requires each key in its turn. So it finds a missing, doubled, moved or unknown
//! key without a table. A text is checked once, when its value is constructed.

use super::{VERSION, VERSION_MISMATCH};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Encodes a message: the version, its own keys, and `end`.
pub(super) fn encode(message: &impl Field) -> Vec<u8> {
    let mut out = Writer::default();
    out.push_entry("version", b's', VERSION);
    message.write("", &mut out);
    out.push_entry("end", b'b', "true");
    out.0
}

/// Decodes what [`encode`] of this version has written.
///
/// # Errors
///
/// Each variant of [`DecodeError`].
pub(super) fn decode<T: Field>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut input = Reader(bytes);
    let version = input.take_entry("version", b's')?;
    if version != VERSION {
        let start = version.chars().take(32);
        let shown = start
            .map(|c| if c.is_ascii_graphic() { c } else { '?' })
            .collect();
        return Err(DecodeError::WrongVersion(shown));
    }
    let message = T::read("", &mut input)?;
    if input.take_entry("end", b'b')? != "true" {
        return Err(DecodeError::invalid_value("end"));
    }
    if input.0.is_empty() {
        Ok(message)
    } else {
        Err(DecodeError::TrailingEntries)
    }
}

/// A value that stands under a key of a message. A value with keys of its own ignores `key`.
pub(super) trait Field: Sized {
    /// Appends the value under this key. A list appends several entries, whose keys begin with `key`.
    fn write(&self, key: &str, out: &mut Writer);
    /// Takes the entries that [`Field::write`] has appended under this key.
    ///
    /// # Errors
    ///
    /// [`DecodeError::MissingKey`] and [`DecodeError::InvalidValue`].
    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// A value encoded as a string. Decoding rejects any spelling but the one that `Display` writes.
pub(super) trait Text: FromStr + fmt::Display {
    /// Maximum values of this type in one list.
    const ITEMS_MAX: usize = 256;
}

impl Text for String {}

impl<T: Text> Field for T {
    fn write(&self, key: &str, out: &mut Writer) {
        out.push_entry(key, b's', &self.to_string());
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        parse_canonical(key, input.take_entry(key, b's')?)
    }
}

impl Field for u32 {
    fn write(&self, key: &str, out: &mut Writer) {
        out.push_entry(key, b'i', &self.to_string());
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        parse_canonical(key, input.take_entry(key, b'i')?)
    }
}

/// Seconds since the epoch, at least 1; 0 stands for `None`.
impl Field for Option<i64> {
    fn write(&self, key: &str, out: &mut Writer) {
        out.push_entry(key, b'i', &self.unwrap_or(0).to_string());
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match parse_canonical(key, input.take_entry(key, b'i')?)? {
            0 => Ok(None),
            seconds if seconds > 0 => Ok(Some(seconds)),
            _ => Err(DecodeError::invalid_value(key)),
        }
    }
}

/// A list: `KEY.count`, then `KEY.0`, `KEY.1` and so on.
impl<T: Text> Field for Vec<T> {
    fn write(&self, key: &str, out: &mut Writer) {
        out.push_entry(&format!("{key}.count"), b'i', &self.len().to_string());
        for (index, item) in self.iter().enumerate() {
            item.write(&item_key(key, index), out);
        }
    }

    /// Reads the number of items and then each item. A number past [`Text::ITEMS_MAX`] is refused before any item is
    /// read.
    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count_key = format!("{key}.count");
        let length: usize = parse_canonical(&count_key, input.take_entry(&count_key, b'i')?)?;
        if length > T::ITEMS_MAX {
            return Err(DecodeError::invalid_value(&count_key));
        }
        (0..length)
            .map(|index| T::read(&item_key(key, index), input))
            .collect()
    }
}

/// The key of an item of a list.
pub(super) fn item_key(key: &str, index: usize) -> String {
    format!("{key}.{index}")
}

/// Parses a text that `Display` of the value writes in the same way.
fn parse_canonical<T: FromStr + fmt::Display>(key: &str, text: &str) -> Result<T, DecodeError> {
    let value = text
        .parse()
        .ok()
        .filter(|value: &T| value.to_string() == text);
    value.ok_or_else(|| DecodeError::invalid_value(key))
}

/// Defines the encoding of a type: its keys, in their order.
///
/// `struct NAME { field: TYPE = "key", ... }` expands to `pub struct NAME` with these public fields, the
/// derives `Clone`, `Debug`, `PartialEq` and `Eq`, and an `impl Field` that writes and reads each field
/// under its key. A field whose type has keys of its own ignores its key.
///
/// `enum NAME by "tag" { "word" => Variant { field as local: "key", ... }, ... }` belongs to an enum that is
/// written out elsewhere. It expands to `NAME::as_str`, which returns the word of the variant, and to an
/// `impl Field` that writes the word under the tag and then each field under its key. `local` names the
/// field in the expansion: a field of a tuple variant is a number.
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
            /// The word for it in protocol and log.
            pub fn as_str(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $word,)*
                }
            }
        }

        impl Field for $type {
            fn write(&self, _: &str, out: &mut Writer) {
                out.push_entry($tag, b's', self.as_str());
                match self {
                    $(Self::$variant { $($field: $name),* } => { $($name.write($key, out);)* })*
                }
            }

            fn read(_: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
                match input.take_entry($tag, b's')? {
                    $($word => Ok(Self::$variant { $($field: Field::read($key, input)?),* }),)*
                    _ => Err(DecodeError::invalid_value($tag)),
                }
            }
        }
    };
}
pub(super) use schema;

/// The bytes of a message while entries are appended.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Appends an entry of this type. A NUL in the value becomes `?`, since it ends a value.
    pub(super) fn push_entry(&mut self, key: &str, kind: u8, value: &str) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(&[0, kind]);
        self.0.extend(
            value
                .bytes()
                .map(|byte| if byte == 0 { b'?' } else { byte }),
        );
        self.0.push(0);
    }
}

/// The bytes of a message that are not read yet.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Takes the next entry and returns its value.
    ///
    /// # Errors
    ///
    /// [`DecodeError::MissingKey`] for another key or none, [`DecodeError::UnusedType`] for a type of RFC 38 that no
    /// message has, [`DecodeError::InvalidValue`] for any other type than `kind`, or for a value that is not UTF-8.
    pub(super) fn take_entry(&mut self, key: &str, kind: u8) -> Result<&'a str, DecodeError> {
        let missing = || DecodeError::MissingKey(key.to_owned());
        // An entry is `KEY NUL TYPE VALUE NUL`.
        let (next_key, after_key) = split_at_nul(self.0).ok_or_else(missing)?;
        if next_key != key.as_bytes() {
            return Err(missing());
        }
        let (typed_value, after_entry) = split_at_nul(after_key).ok_or_else(missing)?;
        let value = typed_value
            .strip_prefix(&[kind])
            .ok_or_else(|| DecodeError::wrong_type(key, typed_value))?;
        self.0 = after_entry;
        std::str::from_utf8(value).map_err(|_| DecodeError::invalid_value(key))
    }
}

/// Splits the bytes before the first NUL from those after it; `None` without a NUL.
fn split_at_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let nul = bytes.iter().position(|&byte| byte == 0)?;
    Some((bytes.get(..nul)?, bytes.get(nul + 1..)?))
}

/// The reason why bytes are not the expected message. Its keys come from the schema, never from the
/// sender.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The next entry does not have this key.
    #[error("key {0} is missing or out of place")]
    MissingKey(String),
    /// The value of this key has the wrong type or is out of range.
    #[error("key {0} has a value out of range")]
    InvalidValue(String),
    /// The value of this key has a type of RFC 38 that no message has.
    #[error("key {0} has the type {1}, which no message has")]
    UnusedType(String, &'static str),
    /// The message goes on after its last key.
    #[error("entries follow the last key")]
    TrailingEntries,
    /// The sender has this version, in which unprintable characters are replaced.
    #[error("version {0}{VERSION_MISMATCH}")]
    WrongVersion(String),
}

impl DecodeError {
    pub(super) fn invalid_value(key: &str) -> Self {
        Self::InvalidValue(key.to_owned())
    }

    /// The error for a key whose value, here with the byte of its type, has another type than the key.
    fn wrong_type(key: &str, typed_value: &[u8]) -> Self {
        let unused = match typed_value.first() {
            Some(b'd') => "d (double)",
            Some(b't') => "t (timestamp)",
            _ => return Self::invalid_value(key),
        };
        Self::UnusedType(key.to_owned(), unused)
    }
}

/// A text that is not of the required form. It describes the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidText(pub(super) &'static str);

impl InvalidText {
    /// The text is no value of an enum.
    pub const UNKNOWN_WORD: Self = Self("is none of the words for it");

    /// The text.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

/// Defines types for checked texts.
///
/// Each `NAME if CHECK, "form";` expands to `pub struct NAME(String)` with `as_str`, `Display`, the usual
/// derives, `impl Text`, and a `FromStr` that returns [`InvalidText`] with the form unless `CHECK`, a
/// `fn(&str) -> bool`, accepts the text. There is no other constructor.
macro_rules! checked_string {
    ($($(#[$doc:meta])* $name:ident if $check:expr, $form:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The checked text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidText;

            fn from_str(text: &str) -> Result<Self, InvalidText> {
                let is_valid: fn(&str) -> bool = $check;
                if is_valid(text) { Ok(Self(text.to_owned())) } else { Err(InvalidText($form)) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Text for $name {}
    )*};
}
pub(super) use checked_string;

/// Defines an enum whose values are words of protocol, log, configuration or record.
///
/// `NAME { Variant = "word", ... }` expands to `pub enum NAME` with these variants and the derives `Clone`,
/// `Copy`, `Debug`, `PartialEq` and `Eq`; to `NAME::ALL`, an array of all variants; to `as_str` and `Display`,
/// which give the word; and to a `FromStr` that returns [`InvalidText::UNKNOWN_WORD`] for any other text.
#[macro_export]
macro_rules! string_enum {
    ($(#[$doc:meta])* $type:ident { $($(#[$about:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(unreachable_pub, reason = "some are for one folder only")]
        pub enum $type { $($(#[$about])* $value,)* }

        #[allow(unreachable_pub, reason = "some are for one folder only")]
        impl $type {
            /// All values, in the order of their declaration.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// The word for this value.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::InvalidText;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let value = Self::ALL.into_iter().find(|value| value.as_str() == text);
                value.ok_or(Self::Err::UNKNOWN_WORD)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Field>(bytes: &[u8]) -> Result<T, DecodeError> {
        T::read("a", &mut Reader(bytes))
    }

    #[test]
    fn rfc_vectors_round_trip() {
        let mut out = Writer::default();
        "/bin:/usr/bin".to_owned().write("PATH", &mut out);
        String::new().write("EMPTY_STRING", &mut out);
        42.write("INT", &mut out);
        Some(i64::MAX).write("INT64_MAX", &mut out);
        out.push_entry("TRUE", b'b', "true");
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
        assert_eq!(input.take_entry("TRUE", b'b'), Ok("true"));
        assert!(input.0.is_empty());
    }

    #[test]
    fn missing_misplaced_or_malformed_entry_is_refused() {
        let missing = || Err(DecodeError::MissingKey("a".into()));
        for bytes in [
            &b""[..],
            b"a",
            b"a\0",
            b"a\0s",
            b"a\0sx",
            b"b\0sx\0",
            b"\0s\0",
        ] {
            assert_eq!(read::<String>(bytes), missing(), "{bytes:?}");
        }
        for bytes in [&b"a\0\0"[..], b"a\0ix\0", b"a\0s\xff\0"] {
            assert!(read::<String>(bytes).is_err(), "{bytes:?}");
        }
        for value in [
            "",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "-1",
            "9223372036854775808",
            "1x",
        ] {
            let bytes = [b"a\0i", value.as_bytes(), b"\0"].concat();
            assert!(read::<Option<i64>>(&bytes).is_err(), "{value:?}");
            assert!(read::<u32>(&bytes).is_err(), "{value:?}");
            let other_bytes = [b"a.count\0i", value.as_bytes(), b"\0a.0\0s\0"].concat();
            assert!(read::<Vec<String>>(&other_bytes).is_err(), "{value:?}");
        }
        assert!(read::<u32>(b"a\0i4294967296\0").is_err());
        assert!(read::<u32>(b"a\0s1\0").is_err());
    }

    #[test]
    fn message_without_its_exact_end_is_refused() {
        let bytes = encode(&7);
        assert_eq!(
            bytes,
            format!("version\0s{VERSION}\0\0i7\0end\0btrue\0").as_bytes()
        );
        assert_eq!(decode::<u32>(&bytes), Ok(7));
        let more = [&bytes[..], b"end\0btrue\0"].concat();
        assert_eq!(decode::<u32>(&more), Err(DecodeError::TrailingEntries));
        for end in [
            "end\0bTRUE",
            "end\0bfalse",
            "end\0strue",
            "end\0b",
            "End\0btrue",
        ] {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let changed = text.replace("end\0btrue", end);
            assert!(decode::<u32>(changed.as_bytes()).is_err(), "{end:?}");
        }
        assert!(decode::<u32>(&bytes[..bytes.len() - 10]).is_err(), "no end");
    }
}
