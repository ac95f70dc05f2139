//! What crosses the boundary: texts that are checked once, when they are made, and messages of them as
//! RFC 38 key-values ("Flux Security Key Value Encoding").
//!
//! An entry is `KEY NUL TYPE VALUE NUL`. [`schema`] names the keys of a message once, for both
//! directions. The reader demands each key in its turn, so that one that is missing, doubled, moved
//! or unknown is found without a table.

use super::{Phase, Reason, Rule, SPEAKS_TO, Several, SourceName, Stack, VERSION};
use std::fmt;
use std::str::FromStr;
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

/// Why a text is none of its kind: what one of that kind looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Invalid(pub(super) &'static str);

impl Invalid {
    /// Said of what is no value of an enum.
    pub const NO_WORD: Self = Self("is none of the words for it");
}

/// Kinds of names: how each is checked, and what is said of one that is wrong.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident if $check:expr, $wrong:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(Invalid($wrong)) }
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

names! {
    /// A job's id, in its source's canonical form.
    JobId if is_plain,
    "a job id is 1 to 64 of A-Z a-z 0-9 . _ + - and begins with a letter or digit";

    /// Name of a child cgroup. It has no dot, unlike the kernel's own files (`cgroup.procs`).
    LeafName if |text| is_plain(text) && !text.contains('.'),
    "a leaf is 1 to 64 of A-Z a-z 0-9 _ + - and begins with a letter or digit";

    /// Path of a cgroup below the cgroup v2 mount, `/` in front, never the root itself.
    CgroupPath if is_straight,
    "a cgroup path begins with / and has no empty, . or .. component and no control character";

    /// Absolute path without detours.
    AbsolutePath if is_straight,
    "a path begins with / and has no empty, . or .. component and no control character";

    /// Name of a node, as in Slurm's `NodeName`.
    NodeName if |text| is_plain(text) && !text.contains('+'),
    "a node's name is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit";
}

impl LeafName {
    /// The leaf of a job that names none.
    pub const DEFAULT: &str = "job-adopt";
}

impl Default for LeafName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl CgroupPath {
    /// The path without its leading `/`, as `openat2(2)` below the mount wants it.
    pub fn relative(&self) -> &str {
        self.0.strip_prefix('/').unwrap_or(&self.0)
    }
}

fn is_plain(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 64
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
}

/// An absolute path without detours and control characters, never `/` itself.
fn is_straight(path: &str) -> bool {
    path.len() < 4096
        && !path.chars().any(char::is_control)
        && path.strip_prefix('/').is_some_and(|relative| {
            relative.split('/').all(|part| !matches!(part, "" | "." | ".."))
        })
}

/// Whether an absolute path, of a cgroup or a file, is `top` or below it. All is below `/`.
pub fn is_within(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Decimal digits only: no sign, no blank, no leading zero, so that one number has one spelling.
pub fn decimal(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

/// An enum whose values are words of protocol, log, configuration or record.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $type:ident { $($(#[$about:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(unreachable_pub, reason = "some are for one folder only")]
        pub enum $type { $($(#[$about])* $value,)* }

        #[allow(unreachable_pub, reason = "some are for one folder only")]
        impl $type {
            /// Every value.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// The word.
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
            type Err = $crate::Invalid;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|value| value.as_str() == text);
                found.ok_or(Self::Err::NO_WORD)
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

#[cfg(test)]
mod text_tests {
    use super::*;

    #[test]
    fn job_ids() {
        for good in ["4242", "f2bLbcUR", "12_3", "a.b+c-d", "0"] {
            assert!(good.parse::<JobId>().is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "a\0", "ä", &long] {
            assert!(bad.parse::<JobId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_is_within_itself_and_those_above() {
        for (path, top, within) in [
            ("/a/b", "/a/b", true),
            ("/a/b/c d", "/a/b", true),
            ("/a", "/", true),
            ("/", "/", true),
            ("/a/bc", "/a/b", false),
            ("/a", "/a/b", false),
            ("/", "/a", false),
            ("/x/a/b", "/a/b", false),
            ("", "/a", false),
        ] {
            assert_eq!(is_within(path, top), within, "{path} {top}");
        }
    }

    #[test]
    fn leaves_never_name_kernel_files() {
        assert!(LeafName::DEFAULT.parse::<LeafName>().is_ok());
        for bad in ["cgroup.procs", "memory.max", "..", "a/b", ""] {
            assert!(bad.parse::<LeafName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nodes_are_named_as_slurm_names_them() {
        for good in ["gpu017", "n.cluster-1", "a_b", "0"] {
            assert!(good.parse::<NodeName>().is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", ".a", "-a", "a/b", "a+b", "a b", "a\n", &long] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_number_has_one_spelling() {
        assert_eq!((decimal("0"), decimal("4294967295")), (Some(0), Some(u32::MAX)));
        for bad in ["", "00", "01", "+1", "-1", " 1", "1 ", "4294967296", "\u{661}", "x"] {
            assert_eq!(decimal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn cgroup_paths_stay_below_the_mount() {
        for good in ["/a", "/system.slice/site-job-4242.scope", "/a b", "/a\\x2db"] {
            assert!(good.parse::<CgroupPath>().is_ok(), "{good}");
        }
        for bad in
            ["", "/", "a", "/a/", "//a", "/a//b", "/../a", "/a/..", "/a/./b", "/a\nb", "/a\0"]
        {
            assert!(bad.parse::<CgroupPath>().is_err(), "{bad:?}");
        }
    }
}
