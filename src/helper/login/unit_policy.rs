//! The device policy in the text of a systemd unit.

use crate::devices::Policy;
use crate::text::printable;
use thiserror::Error;

/// Maximum characters of a line that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 64;

/// The device policy in the text of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitPolicy {
    /// The last `DevicePolicy`.
    pub(super) policy: Policy,
    /// The entries of `DeviceAllow`, each with its access.
    pub(super) allow: Vec<(String, String)>,
}

/// Why the text of a unit cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {number}: {text}: {why}")]
pub(super) struct UnitError {
    /// Number of the line, from 1.
    number: usize,
    /// The beginning of the line.
    text: String,
    why: &'static str,
}

impl UnitError {
    /// Describes the fault of a line, of which it keeps the beginning.
    fn new(number: usize, text: &str, why: &'static str) -> Self {
        let text = printable(text).chars().take(SHOWN_CHARACTERS_MAX).collect();
        Self { number, text, why }
    }
}

const INVALID_LINE: &str = "neither [SECTION] nor KEY=VALUE";

impl UnitPolicy {
    /// Parses the text of a unit. A later policy replaces an earlier one. A later entry is added, or
    /// replaces the entry with the same name; an empty `DeviceAllow` removes all entries.
    ///
    /// # Errors
    ///
    /// [`UnitError`] for a line of an unknown form, since it may contain a part that matters.
    pub(super) fn parse(text: &str) -> Result<Self, UnitError> {
        let mut unit = Self::default();
        let mut section = None;
        for (number, line) in join_continued_lines(text)? {
            let error = |why| UnitError::new(number, &line, why);
            if let Some(header) = line.strip_prefix('[') {
                let name = parse_section_name(header).ok_or_else(|| error(INVALID_LINE))?;
                section = Some(name.to_owned());
                continue;
            }
            let (key, value) = line.split_once('=').ok_or_else(|| error(INVALID_LINE))?;
            let section = section
                .as_deref()
                .ok_or_else(|| error("is in no section"))?;
            match (section, key.trim_end()) {
                (_, "") => return Err(error(INVALID_LINE)),
                ("Service", "DevicePolicy") => {
                    let policy = value.trim().parse();
                    unit.policy =
                        policy.map_err(|_| error("DevicePolicy is auto, closed or strict"))?;
                }
                ("Service", "DeviceAllow") => unit.add_allow(value.trim()),
                // Other properties do not concern devices.
                _ => {}
            }
        }
        Ok(unit)
    }

    /// Adds an entry of `DeviceAllow`, or removes all for an empty value. An entry without an access allows all three:
    /// as such systemd reports it to the IMP.
    fn add_allow(&mut self, value: &str) {
        if value.is_empty() {
            self.allow.clear();
            return;
        }
        let (name, access) = value
            .split_once(char::is_whitespace)
            .unwrap_or((value, "rwm"));
        self.allow.retain(|(known, _)| known != name);
        self.allow
            .push((name.to_owned(), access.trim_start().to_owned()));
    }
}

/// Parses the rest of `[NAME]` after its first bracket; `None` for a header of another form.
fn parse_section_name(rest: &str) -> Option<&str> {
    let name = rest.strip_suffix(']')?;
    (!name.is_empty() && !name.contains(['[', ']'])).then_some(name)
}

/// Joins continued lines by a blank, and leaves out empty ones and comments; each line has the number of its first
/// part. A backslash at the end of a line continues it with the next line that is no comment; an empty one ends it.
///
/// # Errors
///
/// [`UnitError`] for a text that ends after such a backslash.
fn join_continued_lines(text: &str) -> Result<Vec<(usize, String)>, UnitError> {
    let mut lines = Vec::new();
    let mut unfinished: Option<(usize, String)> = None;
    for (index, part) in text.lines().enumerate() {
        let part = part.trim();
        if part.starts_with(['#', ';']) || (part.is_empty() && unfinished.is_none()) {
            continue;
        }
        let (number, mut line) = unfinished.take().unwrap_or((index + 1, String::new()));
        // A backslash after a backslash is a character of the value, and continues nothing.
        let backslashes = part.bytes().rev().take_while(|byte| *byte == b'\\').count();
        let is_continued = backslashes % 2 == 1;
        match part.strip_suffix('\\') {
            Some(front) if is_continued => unfinished = Some((number, line + front + " ")),
            _ => {
                line.push_str(part);
                lines.push((number, line));
            }
        }
    }
    if let Some((number, line)) = unfinished {
        return Err(UnitError::new(
            number,
            &line,
            "the text ends in the middle of a line",
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (&'static str, Vec<String>) {
        let unit = UnitPolicy::parse(text).unwrap();
        let entries = unit
            .allow
            .into_iter()
            .map(|(name, access)| format!("{name} {access}"));
        (unit.policy.as_str(), entries.collect())
    }

    /// A unit as systemd 252 and 257 write it.
    const TRANSIENT: &str = "# This is a transient unit file, created programmatically via the \
        systemd API. Do not edit.\n[Unit]\nDescription=User workload for Flux job fxyzzy\n\n\
        [Service]\nType=notify\nRemainAfterExit=yes\nDevicePolicy=closed\nDeviceAllow=\n\
        DeviceAllow=/dev/nvidia0 rw\nDeviceAllow=/dev/nvidiactl rw\n\
        Environment=\"A=x\\\\y\" \"B=[Service]\"\nExecStart=\nExecStart=@/usr/libexec/imp \"imp\" \\\n\
        \"exec\"\n";

    #[test]
    fn transient_unit_of_systemd_is_parsed() {
        let (policy, allow) = parse(TRANSIENT);
        assert_eq!(
            (policy, allow.join(", ").as_str()),
            ("closed", "/dev/nvidia0 rw, /dev/nvidiactl rw")
        );
        assert_eq!(parse(""), ("auto", vec![]));
        assert_eq!(parse("[Service]\n"), ("auto", vec![]));
    }

    #[test]
    fn later_entries_are_added_and_an_empty_one_removes_all() {
        for (lines, allow) in [
            (
                "DeviceAllow=/dev/a r\nDeviceAllow=/dev/b w",
                "/dev/a r, /dev/b w",
            ),
            (
                "DeviceAllow=/dev/a r\nDeviceAllow=\nDeviceAllow=/dev/b",
                "/dev/b rwm",
            ),
            ("DeviceAllow=/dev/a rw\nDeviceAllow = \t", ""),
            ("DeviceAllow=/dev/a rw\nDeviceAllow=/dev/a r", "/dev/a r"),
            ("  DeviceAllow =  char-pts \t rw  ", "char-pts rw"),
            (
                "DeviceAllow=/dev/a \\\n# not this\n r\nDeviceAllow=/dev/b r",
                "/dev/a r, /dev/b r",
            ),
            ("# DeviceAllow=/dev/a rw\n;DeviceAllow=/dev/b rw", ""),
            ("deviceallow=/dev/a rw\nDeviceAllows=/dev/b rw", ""),
            (
                "[Unit]\nDeviceAllow=/dev/a rw\n[Service]\nDeviceAllow=/dev/b r",
                "/dev/b r",
            ),
            ("DeviceAllow=/dev/a r w", "/dev/a r w"),
            ("X=1\\\nDeviceAllow=/dev/a r", ""),
            ("X=1\\\\\nDeviceAllow=/dev/a r", "/dev/a r"),
        ] {
            assert_eq!(
                parse(&format!("[Service]\n{lines}\n")).1.join(", "),
                allow,
                "{lines:?}"
            );
        }
        let policy = |lines: &str| parse(&format!("[Service]\n{lines}\n")).0;
        assert_eq!(policy("DevicePolicy=strict\nDevicePolicy=closed"), "closed");
        assert_eq!(policy("[Unit]\nDevicePolicy=closed"), "auto");
        assert_eq!(policy("DevicePolicy = strict "), "strict");
    }

    #[test]
    fn malformed_text_is_refused_with_its_line() {
        for (text, line) in [
            ("DevicePolicy=closed\n", 1),
            ("[Service]\n\nrubbish\n", 3),
            ("[Service\n", 1),
            ("[]\n", 1),
            ("[Service]\n=x\n", 2),
            ("[Service]\nDevicePolicy=\n", 2),
            ("[Service]\nDevicePolicy=Closed\n", 2),
            ("[Service]\nDevicePolicy=closed \\\n strict\n", 2),
            ("[Service]\nDeviceAllow=/dev/a \\\n", 2),
        ] {
            let error = UnitPolicy::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("line {line}: ")),
                "{text:?} {error}"
            );
        }
    }
}
