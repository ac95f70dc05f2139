//! What a command writes: its result, warnings, and lines of the system log.

use crate::error::Error;
use helper::printable;
use kernel::log::{self, Line, Severity};
use serde::Serialize;
use std::io::Write;

/// The output streams of a command.
pub(crate) struct Output<'a> {
    /// The stream of the result.
    pub(crate) out: &'a mut dyn Write,
    /// The stream of errors and warnings.
    pub(crate) err: &'a mut dyn Write,
}

impl Output<'_> {
    /// Writes an error or a warning. A failure is ignored: standard error is the last channel.
    pub(crate) fn warn(&mut self, text: impl std::fmt::Display) {
        // The text may have names that users chose, for example of their cgroups.
        let text = text.to_string();
        let lines: Vec<String> = text.split('\n').map(printable).collect();
        let _ = writeln!(self.err, "job-adopt: {}", lines.join("\n"));
    }

    /// Writes a result as one line of JSON.
    pub(crate) fn json(&mut self, result: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(result).map_err(std::io::Error::from)?;
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Writes a table for people: each column is as wide as its widest cell, with two blanks between
    /// columns and none at the end of a line.
    pub(crate) fn table<const N: usize>(
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
pub(crate) fn log(line: Line) {
    log::write(&[line], Severity::Info, "job-adopt", "");
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned() {
        let rows = [["4242", "gone"], ["7", "running"]].map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        let mut err = Vec::new();
        let mut output = crate::output::Output {
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
