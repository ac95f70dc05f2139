//! RFC 38 "Flux Security Key Value Encoding": `KEY NUL TYPE VALUE NUL`, entries in order.
//!
//! The reader takes entries one by one in the order that the caller asks for, so that a doubled,
//! missing, reordered or unknown key is found without a table.

use std::fmt;

/// Writes entries; every entry is complete when its call returns.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// An empty object.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a string entry (type `s`). A NUL cannot be represented and becomes `?`.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        self.entry(key, b's', value)
    }

    /// Adds a signed integer entry (type `i`).
    pub fn int(&mut self, key: &str, value: i64) -> &mut Self {
        self.entry(key, b'i', &value.to_string())
    }

    /// Adds a boolean entry (type `b`).
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.entry(key, b'b', if value { "true" } else { "false" })
    }

    /// The encoded bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn entry(&mut self, key: &str, kind: u8, value: &str) -> &mut Self {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(&[0, kind]);
        self.0.extend(value.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
        self.0.push(0);
        self
    }
}

/// Reads entries in a fixed order.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader at the first entry of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next entry, which has to be a string named `key`.
    ///
    /// # Errors
    /// Another key, another type, no UTF-8, or a truncated object.
    pub fn string(&mut self, key: &str) -> Result<&'a str, DecodeError> {
        self.entry(key, b's')
    }

    /// The next entry, which has to be an integer named `key`.
    ///
    /// # Errors
    /// As [`Reader::string`], and a value that is not a canonical 64-bit decimal.
    pub fn int(&mut self, key: &str) -> Result<i64, DecodeError> {
        let text = self.entry(key, b'i')?;
        match text.parse::<i64>() {
            Ok(value) if value.to_string() == text => Ok(value),
            _ => Err(DecodeError::value(key)),
        }
    }

    /// The next entry, an integer named `key` from 0 to `most`.
    ///
    /// # Errors
    /// As [`Reader::int`], and a value out of range.
    pub fn count(&mut self, key: &str, most: usize) -> Result<usize, DecodeError> {
        match usize::try_from(self.int(key)?) {
            Ok(value) if value <= most => Ok(value),
            _ => Err(DecodeError::value(key)),
        }
    }

    /// The next entry, which has to be a boolean named `key`.
    ///
    /// # Errors
    /// As [`Reader::string`], and a value other than `true` and `false`.
    pub fn bool(&mut self, key: &str) -> Result<bool, DecodeError> {
        match self.entry(key, b'b')? {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(DecodeError::value(key)),
        }
    }

    /// Asserts that nothing follows.
    ///
    /// # Errors
    /// [`DecodeError`] where an entry is left.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }

    fn entry(&mut self, key: &str, kind: u8) -> Result<&'a str, DecodeError> {
        let missing = || DecodeError::Key(key.to_owned());
        let (found, rest) = until_nul(self.0).ok_or_else(missing)?;
        if found != key.as_bytes() {
            return Err(missing());
        }
        let (typed, rest) = until_nul(rest).ok_or_else(missing)?;
        let (&found, value) = typed.split_first().ok_or_else(|| DecodeError::value(key))?;
        if found != kind {
            return Err(DecodeError::value(key));
        }
        self.0 = rest;
        std::str::from_utf8(value).map_err(|_| DecodeError::value(key))
    }
}

fn until_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let nul = bytes.iter().position(|&byte| byte == 0)?;
    Some((bytes.get(..nul)?, bytes.get(nul + 1..)?))
}

/// Why bytes are not the object that was expected. Keys in it are ours, never the sender's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// This key was due and is not there.
    Key(String),
    /// The value of this key has the wrong type or is out of range.
    Value(String),
    /// More entries follow than the schema has.
    Trailing,
    /// The sender is of another version, which is given with its odd characters replaced.
    Version(String),
}

impl DecodeError {
    pub(super) fn value(key: &str) -> Self {
        Self::Value(key.to_owned())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key {key} is missing or out of place"),
            Self::Value(key) => write!(f, "key {key} has a value out of range"),
            Self::Trailing => f.write_str("entries follow the last key"),
            // One text, so that a file tells of which version it is: `job-adopt check` looks for it.
            Self::Version(found) => {
                write!(f, "version {found}{}", super::SPEAKS_TO)
            }
        }
    }
}

impl std::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_the_rfc() {
        let mut writer = Writer::new();
        writer.string("PATH", "/bin:/usr/bin").string("EMPTY_STRING", "");
        writer.int("INT_MINUS", -42).int("INT64_MIN", i64::MIN);
        writer.bool("FALSE", false).bool("TRUE", true);
        let bytes = writer.finish();
        assert_eq!(
            bytes,
            b"PATH\0s/bin:/usr/bin\0EMPTY_STRING\0s\0INT_MINUS\0i-42\0\
              INT64_MIN\0i-9223372036854775808\0FALSE\0bfalse\0TRUE\0btrue\0"
        );
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.string("PATH"), Ok("/bin:/usr/bin"));
        assert_eq!(reader.string("EMPTY_STRING"), Ok(""));
        assert_eq!(reader.int("INT_MINUS"), Ok(-42));
        assert_eq!(reader.int("INT64_MIN"), Ok(i64::MIN));
        assert_eq!(reader.bool("FALSE"), Ok(false));
        assert_eq!(reader.bool("TRUE"), Ok(true));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn what_is_out_of_place_is_refused() {
        let due = || Err(DecodeError::Key("a".into()));
        for bytes in [&b""[..], b"a", b"a\0", b"a\0s", b"a\0sx", b"b\0sx\0", b"\0s\0"] {
            assert_eq!(Reader::new(bytes).string("a"), due(), "{bytes:?}");
        }
        for bytes in [&b"a\0\0"[..], b"a\0ix\0", b"a\0s\xff\0"] {
            assert!(Reader::new(bytes).string("a").is_err(), "{bytes:?}");
        }
        for value in ["", "+1", " 1", "1 ", "01", "-0", "9223372036854775808", "1x"] {
            let bytes = [b"a\0i", value.as_bytes(), b"\0"].concat();
            assert!(Reader::new(&bytes).int("a").is_err(), "{value:?}");
        }
        assert_eq!(Reader::new(b"a\0s\0").end(), Err(DecodeError::Trailing));
        assert!(Reader::new(b"a\0bTRUE\0").bool("a").is_err());
        assert!(Reader::new(b"a\0i-1\0").count("a", 5).is_err());
        assert!(Reader::new(b"a\0i6\0").count("a", 5).is_err());
    }
}
