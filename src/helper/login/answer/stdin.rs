//! The program `helper`: answers the request on its standard input.

use super::answer;
use super::plain_reply;
use crate::login::refusal::refusal;
use nix::sys::prctl::set_dumpable;
use nix::unistd::Uid;
use protocol::{DecodeError, Reason, Reply, Request, VERSION, Verdict};
use std::io::{Read, Write};

const USAGE: &str = "\
usage: helper < REQUEST > REPLY

Run by pam_job_adopt.so at each login, as the system user job-adopt; it refuses to run as root.
To see what a login would get, use: job-adopt resolve --user USER

  --help      show this text
  --version   show the version
";

const EXIT_FAILURE: i32 = 1;
const EXIT_USAGE: i32 = 2;

/// Runs the program; returns its exit status. It refuses to run as root, since it parses texts that users write.
pub fn main() -> i32 {
    let mut arguments = std::env::args_os().skip(1);
    let argument = arguments.next();
    match argument.as_ref().and_then(|argument| argument.to_str()) {
        Some("--help") => return write_stdout(USAGE.as_bytes()),
        Some("--version") => return write_stdout(format!("helper {VERSION}\n").as_bytes()),
        // Another argument is refused below.
        _ => {}
    }
    if argument.is_some() || Uid::effective().is_root() || Uid::current().is_root() {
        // Ignore the error: stderr is the last channel.
        let _ = std::io::stderr().write_all(USAGE.as_bytes());
        return EXIT_USAGE;
    }
    answer_stdin().map_or(EXIT_FAILURE, |reply| write_stdout(&reply))
}

/// Reads and answers the request on standard input. Returns the encoded reply; `None` if there is no
/// request that can be answered.
fn answer_stdin() -> Option<Vec<u8>> {
    // Allow no tracer of the same user: a process that can write this one's memory could write the
    // plan. The privileged half, which sets the limits of this process, cannot do this too: the exec makes a process
    // dumpable again.
    set_dumpable(false).ok()?;
    let mut bytes = Vec::new();
    let limit = Request::BYTES_MAX as u64;
    std::io::stdin()
        .lock()
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    if bytes.len() > Request::BYTES_MAX {
        return None;
    }
    answer_bytes(&bytes).map(|reply| reply.encode())
}

/// Decodes and answers a request. A request of another version gets a refusal; `None` for bytes that are no request.
fn answer_bytes(bytes: &[u8]) -> Option<Reply> {
    match Request::decode(bytes) {
        Ok(request) => Some(answer(&request)),
        // During an upgrade, a module of another version reads the version of this reply and no more, so that any
        // reason will do.
        Err(error @ DecodeError::WrongVersion(_)) => {
            let verdict = Verdict::Refuse(refusal(Reason::Timeout));
            Some(plain_reply(verdict, error.to_string()))
        }
        Err(_) => None,
    }
}

/// Writes to standard output; returns the exit status.
fn write_stdout(bytes: &[u8]) -> i32 {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(_) => EXIT_FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_of_another_version_is_answered_and_malformed_one_is_not() {
        let reply = answer_bytes(b"version\0s9.9.9\0anything\0ielse").unwrap();
        let bytes = reply.encode();
        assert!(bytes.starts_with(format!("version\0s{VERSION}\0").as_bytes()));
        assert!(reply.detail.contains("9.9.9"));
        for each_bytes in [&b""[..], b"version", b"GET / HTTP/1.0\r\n", b"\0\0\0"] {
            assert_eq!(answer_bytes(each_bytes), None, "{bytes:?}");
        }
    }
}
