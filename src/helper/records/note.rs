//! The note that a job ended.

use serde::{Deserialize, Serialize};

use super::RecordError;
use super::wire::{MapOnly, VERSION, json_error};

/// Seconds for which a note of the end is told to users.
pub const NOTE_VALID: i64 = 600;

/// When a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    version: u32,
    ended: i64,
}

impl Note {
    /// A note for a job that ended at `ended`, in seconds since the epoch.
    pub fn new(ended: i64) -> Self {
        Self { version: VERSION, ended }
    }

    /// Reads a note.
    /// Fails: [`RecordError`] for anything but a JSON object of its two keys.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let MapOnly(note): MapOnly<Self> =
            serde_json::from_slice(bytes).map_err(|error| json_error(&error))?;
        if note.version != VERSION {
            return Err(RecordError::version(note.version));
        }
        if note.ended <= 0 {
            return Err(RecordError::key("ended"));
        }
        Ok(note)
    }

    /// The note as one line of JSON.
    pub fn to_json(&self) -> String {
        format!("{{\"version\":{},\"ended\":{}}}\n", self.version, self.ended)
    }

    /// When the job ended, in seconds since the epoch.
    pub fn ended(&self) -> i64 {
        self.ended
    }

    /// Whether the end is at most [`NOTE_VALID`] seconds before `now`.
    pub fn is_valid(&self, now: i64) -> bool {
        (0..=NOTE_VALID).contains(&now.saturating_sub(self.ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let note = Note::new(1_795_201_200);
        assert_eq!(Note::parse(note.to_json().as_bytes()), Ok(note));
    }

    #[test]
    fn ten_minutes() {
        let note = Note::new(1000);
        for (now, valid) in [(999, false), (1000, true), (1600, true), (1601, false)] {
            assert_eq!(note.is_valid(now), valid, "{now}");
        }
        assert!(!Note::new(i64::MAX).is_valid(i64::MIN));
    }

    #[test]
    fn nothing_else_is_a_note() {
        for text in [
            "",
            "{}",
            "[1,5]",
            r#"{"version":2,"ended":5}"#,
            r#"{"version":1,"ended":0}"#,
            r#"{"version":1,"ended":5,"x":1}"#,
            r#"{"version":1,"ended":"5"}"#,
            r#"{"version":1,"ended":5,"ended":6}"#,
            r#"{"version":1,"ended":5} x"#,
        ] {
            assert!(Note::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
