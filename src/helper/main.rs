//! The program `resolve`: a request on standard input, a reply on standard output.

use std::io::{Read, Write};

use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;
use nix::unistd::Uid;

use super::answer::answer;
use super::{refusal, reply};
use crate::protocol::{DecodeError, Reason, Reply, Request, VERSION, Verdict};

const USAGE: &str = "\
usage: resolve < REQUEST > REPLY

Run by pam_job_adopt.so at each login, as the system user job-adopt; it refuses to run as root.
To see what a login would get, use: job-adopt resolve --user USER

  --help      show this text
  --version   show the version
";

const EXIT_FAILURE: i32 = 1;
const EXIT_USAGE: i32 = 2;

/// Runs the program; returns its exit status.
pub fn main() -> i32 {
    let mut arguments = std::env::args_os().skip(1);
    let argument = arguments.next();
    match argument.as_ref().and_then(|argument| argument.to_str()) {
        Some("--help") => return say(USAGE.as_bytes()),
        Some("--version") => return say(format!("resolve {VERSION}\n").as_bytes()),
        _ => {}
    }
    if argument.is_some() || Uid::effective().is_root() || Uid::current().is_root() {
        // Nobody is left to tell where this fails.
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return EXIT_USAGE;
    }
    serve().map_or(EXIT_FAILURE, |reply| say(&reply))
}

/// The encoded reply; `None` where there is no request that could be answered.
fn serve() -> Option<Vec<u8>> {
    harden().ok()?;
    let mut bytes = Vec::new();
    let limit = Request::MAX as u64;
    std::io::stdin().lock().take(limit + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() > Request::MAX {
        return None;
    }
    reply_to(&bytes).map(|reply| reply.encode())
}

fn reply_to(bytes: &[u8]) -> Option<Reply> {
    match Request::decode(bytes) {
        Ok(request) => Some(answer(&request)),
        Err(error @ DecodeError::Version(_)) => Some(other_version(&error)),
        Err(_) => None,
    }
}

/// A module of another version reads the version of this reply and no more: while an upgrade is
/// under way, that is what it has to say.
fn other_version(error: &DecodeError) -> Reply {
    reply(Verdict::Refuse(refusal(Reason::Timeout)), error.to_string())
}

fn say(bytes: &[u8]) -> i32 {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(_) => EXIT_FAILURE,
    }
}

/// No tracer of the same user: whoever could write this process's memory would write the plan. An
/// exec undoes this, so that it cannot be done before; limits come from the privileged half.
/// Fails: the system call's own error.
pub(super) fn harden() -> Result<(), Errno> {
    set_dumpable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_answered_and_rubbish_is_not() {
        let reply = reply_to(b"version\0s9.9.9\0anything\0ielse").unwrap();
        let bytes = reply.encode();
        assert!(bytes.starts_with(format!("version\0s{VERSION}\0").as_bytes()));
        assert!(reply.detail.contains("9.9.9"));
        for bytes in [&b""[..], b"version", b"GET / HTTP/1.0\r\n", b"\0\0\0"] {
            assert_eq!(reply_to(bytes), None, "{bytes:?}");
        }
    }
}
