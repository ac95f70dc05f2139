//! Programs that are asked, if they answer in time.

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::geteuid;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);
/// Most bytes of an answer that count.
const ANSWER_MAX: u64 = 256 * 1024;
/// The account of nobody in particular.
const NOBODY: u32 = 65_534;

/// Whether the program succeeded, and then what it said; else what it complained of.
/// Fails: a text, where it cannot be started or takes too long.
pub(super) fn ask(program: &Path, arguments: &[String]) -> Result<(bool, String), String> {
    told(Command::new(program).args(arguments))
}

/// The same with the rights of any user: nobody's where this is root, else one's own.
pub(super) fn ask_as_user(program: &Path, arguments: &[&str]) -> Result<(bool, String), String> {
    let mut command = Command::new(program);
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    told(command.args(arguments))
}

fn told(command: &mut Command) -> Result<(bool, String), String> {
    run(command).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => format!("no answer in {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    })
}

/// What it writes goes to memory, where no full pipe holds it up.
fn run(command: &mut Command) -> io::Result<(bool, String)> {
    let memory = || memfd_create(c"answer", MFdFlags::MFD_CLOEXEC).map(File::from);
    let (out, err) = (memory()?, memory()?);
    let mut child = command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(err.try_clone()?)
        .spawn()?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(PAUSE);
    };
    let mut said = if status.success() { out } else { err };
    said.rewind()?;
    let mut bytes = Vec::new();
    said.take(ANSWER_MAX).read_to_end(&mut bytes)?;
    Ok((status.success(), String::from_utf8_lossy(&bytes).into_owned()))
}
