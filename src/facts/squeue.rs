//! Asks Slurm's controller by squeue(1), where the node itself does not tell.

use command::accounts::run_as_helper;
use command::child_process::query_program;
use helper::Config;
use std::process::Command;
use std::time::Duration;

/// Runs `squeue` for jobs with these ids, which commas separate; returns its lines in this format. It runs as the
/// helper's account. The format has numbers alone: users choose the names that other formats have.
///
/// # Errors
///
/// A text for the log: squeue's own message, or why it was not asked.
pub fn query_jobs(
    ids: &str,
    format: &str,
    config: &Config,
    timeout: Duration,
) -> Result<String, String> {
    let mut command = Command::new("squeue");
    let format = format!("--format={format}");
    command.args(["--noheader", &format, "--jobs", ids]);
    command.env("SLURM_TIME_FORMAT", "%s");
    if let Some(path) = &config.devices.slurm_conf {
        command.env("SLURM_CONF", path);
    }
    run_as_helper(&mut command, None)?;
    query_program(&mut command, timeout).map_err(|error| {
        // What squeue prints last is its error.
        let message = error.to_string();
        message.lines().next_back().unwrap_or_default().to_owned()
    })
}
