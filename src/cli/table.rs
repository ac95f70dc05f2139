//! A table for people: columns as wide as what is in them.

use std::io::{self, Write};

/// Writes rows of cells, two blanks between columns, no blanks at the end of a line.
///
/// # Errors
/// As `write(2)`.
pub(super) fn write(rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells.map(|(cell, &width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned() {
        let rows: Vec<Vec<String>> = [["ID", "STATE"], ["4242", "gone"], ["7", "running"]]
            .map(|row| row.map(str::to_owned).to_vec())
            .to_vec();
        let mut out = Vec::new();
        super::write(&rows, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "ID    STATE\n4242  gone\n7     running\n");
    }
}
