//! What systemd says of its units, if it answers in time.

use super::Scene;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where it is.
const PLACES: [&str; 2] = ["/usr/bin/systemctl", "/bin/systemctl"];
/// Most bytes of its answer that count.
const ANSWER_MAX: usize = 256 * 1024;

/// Its answer to these arguments.
///
/// # Errors
/// A text, where it is not there, fails or takes too long.
pub(super) fn run(scene: &Scene, arguments: &[&str]) -> Result<String, String> {
    let program = PLACES.iter().map(|place| scene.at(place)).find(|path| path.exists());
    let program = program.ok_or("there is no systemctl")?;
    ask(&program, arguments).map_err(|error| format!("systemctl {}: {error}", arguments.join(" ")))
}

fn ask(program: &Path, arguments: &[&str]) -> std::io::Result<String> {
    let mut child = Command::new(program)
        .arg("--no-pager")
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let deadline = Instant::now() + PATIENCE;
    let text = match child.stdout.take() {
        Some(output) => hear(output, deadline),
        None => Vec::new(),
    };
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    match child.wait()? {
        status if status.success() => Ok(String::from_utf8_lossy(&text).into_owned()),
        status => Err(std::io::Error::other(status.to_string())),
    }
}

/// What comes until it is closed, or until the deadline.
fn hear(mut output: ChildStdout, deadline: Instant) -> Vec<u8> {
    let mut heard = Vec::new();
    let mut bytes = [0; 4096];
    while heard.len() < ANSWER_MAX {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut polled = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        if !poll(&mut polled, wait).is_ok_and(|ready| ready > 0) {
            break;
        }
        match output.read(&mut bytes) {
            Ok(length) if length > 0 => heard.extend(bytes.iter().take(length)),
            _ => break,
        }
    }
    heard
}
