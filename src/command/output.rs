//! What a command writes: its result, warnings, and lines of the system log.

use crate::error::Error;
use helper::printable;
use kernel::log::{self, Line, Severity};
use serde::Serialize;
use std::io::Write;

/// The output streams of a command.
pub struct Output<'a> {
    /// The stream of the result.
    pub out: &'a mut dyn Write,
    /// The stream of errors and warnings.
    pub err: &'a mut dyn Write,
}

impl Output<'_> {
    /// Writes an error or a warning as one line: it may have names that users chose, for example of their cgroups, and
    /// a line break in one must not begin a line of its own. A failure is ignored: standard error is the last channel.
    pub fn warn(&mut self, text: impl std::fmt::Display) {
        let _ = writeln!(self.err, "job-adopt: {}", printable(&text.to_string()));
    }

    /// Writes an error or a warning, and below it what helps, if that is not empty: each on one line, as
    /// [`Output::warn`] says.
    pub fn warn_with_hint(&mut self, text: impl std::fmt::Display, hint: &str) {
        self.warn(text);
        if !hint.is_empty() {
            let _ = writeln!(self.err, "{}", printable(hint));
        }
    }

    /// Writes the error that ends the command.
    pub fn fail(&mut self, error: &Error) {
        match error {
            Error::Usage { fault, hint } => self.warn_with_hint(fault, hint),
            // The user acts on the advice, so the cause stands below it.
            Error::Advised { advice, cause } => self.warn_with_hint(advice, cause),
            Error::Several { fault, choices } => {
                self.warn(fault);
                for choice in choices {
                    let _ = writeln!(self.err, "{}", printable(choice));
                }
            }
            Error::Input(_)
            | Error::Failed(_)
            | Error::Remaining { .. }
            | Error::Unkillable(_)
            | Error::Output(_) => self.warn(error),
        }
    }

    /// Writes a result as one line of JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if it cannot be written.
    pub fn json(&mut self, result: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(result).map_err(std::io::Error::from)?;
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Writes a table for people: each column is as wide as its widest cell, with two blanks between
    /// columns and none at the end of a line.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if it cannot be written.
    pub fn table<const N: usize>(
        &mut self,
        head: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Result<(), Error> {
        let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned))
            .chain(rows)
            .collect();
        let mut widths = [0; N];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &rows {
            let cells = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            let line: Vec<String> = cells.collect();
            writeln!(self.out, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Writes one line to syslog.
pub fn log(line: Line) {
    log_all(&[line]);
}

/// Writes lines to syslog, in order.
pub fn log_all(lines: &[Line]) {
    log::write(lines, Severity::Info, "job-adopt", "");
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::output::Output;

    /// Returns what `write` writes to standard error.
    fn errors(write: impl FnOnce(&mut Output<'_>)) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        write(&mut Output {
            out: &mut out,
            err: &mut err,
        });
        String::from_utf8(err).unwrap()
    }

    #[test]
    fn line_break_in_a_name_begins_no_line() {
        let name = "a\njob-adopt: all is fine\r\u{2028}b";
        let line = "job-adopt: list: a?job-adopt: all is fine??b\n";
        assert_eq!(
            errors(|output| output.warn(format_args!("list: {name}"))),
            line
        );
        let error = Error::Failed(format!("list: {name}"));
        assert_eq!(errors(|output| output.fail(&error)), line);
        let several = Error::Several {
            fault: format!("list: {name}"),
            choices: vec!["one".to_owned(), "two\nthree".to_owned()],
        };
        assert_eq!(
            errors(|output| output.fail(&several)),
            format!("{line}one\ntwo?three\n")
        );
        let usage = Error::usage("list", name);
        assert_eq!(
            errors(|output| output.fail(&usage)),
            format!("{line}try: job-adopt list --help\n")
        );
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["4242", "gone"], ["7", "running"]].map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        let mut err = Vec::new();
        let mut output = Output {
            out: &mut out,
            err: &mut err,
        };
        output.table(["ID", "STATE"], rows).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ID    STATE\n4242  gone\n7     running\n"
        );
    }
}
