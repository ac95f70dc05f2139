//! The text of a specification as a tree of values, the same for JSON and YAML.
//!
//! The rules for every document are checked while the tree is built: the number of values, unique
//! keys in each object, and a depth of at most 32, so that code that walks the tree may
//! recurse.

mod json;
mod scalar;
mod value;
mod yaml;

pub(super) use value::{Document, DocumentError, Value, ValueMap, quote};

/// The format of a file, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.json`
    Json,
    /// `.yaml`
    Yaml,
}

impl Format {
    /// The maximum bytes of a file. Generated ones have some tens of KiB.
    ///
    /// The YAML parser takes up to 300 bytes of memory for each byte inside brackets, and visits every
    /// open bracket again for each word: at this length, at most 300 MiB and two seconds.
    pub fn bytes_max(self) -> usize {
        match self {
            Self::Json => 4 << 20,
            Self::Yaml => 1 << 20,
        }
    }
}

/// Parses a document, which the caller has limited to [`Format::bytes_max`].
///
/// # Errors
///
/// The bytes are no UTF-8 or no document of this format, or break a limit of documents. If the text of a JSON file is
/// YAML instead, the error says so.
pub(super) fn parse_document(bytes: &[u8], format: Format) -> Result<Document, DocumentError> {
    let whole = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        DocumentError {
            line,
            why: "not UTF-8".to_owned(),
        }
    })?;
    // Some editors begin a text with a byte order mark.
    let text = whole.strip_prefix('\u{feff}').unwrap_or(whole);
    if format == Format::Yaml {
        return yaml::parse(text);
    }
    match json::parse(text) {
        Ok(value) => Ok(Document {
            value,
            second_document: None,
        }),
        Err(DocumentError { line, .. }) if is_yaml(text) => Err(DocumentError {
            line,
            why: "this is YAML: name the file .yaml".to_owned(),
        }),
        Err(error) => Err(error),
    }
}

/// Tells whether a text that is no JSON is a document in YAML.
fn is_yaml(text: &str) -> bool {
    let can_be = text.len() <= Format::Yaml.bytes_max() && !text.trim_start().starts_with('{');
    can_be && yaml::parse(text).is_ok_and(|document| document.value.into_object().is_ok())
}

#[cfg(test)]
mod tests;
