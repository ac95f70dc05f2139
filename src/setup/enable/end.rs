//! `enable --keep` and `--undo`: the ends of a try, and of a change that was interrupted.

use crate::change::Pending;
use crate::slice_opening::{open_slices, report_opened};
use command::error::Error;
use command::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use command::output::Output;
use facts::systemd;
use std::path::Path;

/// Ends a trial and keeps its change. It fails with [`Error::Failed`] if nothing is pending, if the pending
/// change was interrupted before all of it was made, or if it has gone back meanwhile.
pub(super) fn keep(pending: Option<Pending>, output: &mut Output<'_>) -> Result<u8, Error> {
    let failed = |why: &str| Error::failed("keep", "the change", why);
    let Some(pending) = pending else {
        return Err(failed(
            "nothing is tried: it went back, or was kept, already",
        ));
    };
    if !pending.is_trial() {
        return Err(failed(
            "it was interrupted before all was in place; job-adopt enable --undo takes it back",
        ));
    }
    pending.stop_timer()?;
    pending.remove_journal().map_err(|error| {
        Error::Failed(format!(
            "{error}; it is not kept, and the next boot takes it back: job-adopt enable --keep tries again"
        ))
    })?;
    let cleared = pending.clear();
    // Not in the try: what a mistyped account opens stays open. systemd may open a slice when it reads the drop-in.
    pending.open_slices(output);
    cleared?;
    writeln!(output.out, "kept; job-adopt disable takes it back")?;
    Ok(EXIT_FINE)
}

/// Takes back a trial, or a change that was interrupted, and opens the slices that it or an earlier trial has left
/// closed. Returns [`EXIT_FINDINGS`] if something is not as it was before, or if nothing keeps users without a job
/// out now. It fails with [`Error::Failed`] if there is nothing to take back, or if a file cannot be brought back.
pub(super) fn undo(
    pending: Option<Pending>,
    root: &Path,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let Some(pending) = pending else {
        return open_left_slices(root, output);
    };
    let undone = pending.undo_files(output)?;
    if systemd::reads(root) {
        report_opened(&open_slices(output), output)?;
    }
    let is_open = pending.warn_if_profile_off(output) || undone.is_open;
    writeln!(output.out, "{}", undone.describe())?;
    Ok(if undone.is_changed || is_open {
        EXIT_FINDINGS
    } else {
        EXIT_FINE
    })
}

/// Opens the slices of users who are logged in that no unit file closes: a trial that goes back by itself leaves them
/// closed. It fails with [`Error::Failed`] if none opens.
fn open_left_slices(root: &Path, output: &mut Output<'_>) -> Result<u8, Error> {
    let opened = if systemd::reads(root) {
        open_slices(output)
    } else {
        Vec::new()
    };
    if opened.is_empty() {
        let why = "nothing is tried or was interrupted, and no slice opens; job-adopt disable takes back what was kept";
        return Err(Error::failed("undo", "the change", why));
    }
    report_opened(&opened, output)?;
    Ok(EXIT_FINE)
}
