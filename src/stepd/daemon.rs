//! A conversation with one step daemon, each wait bounded.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use super::socket::{AGAIN, Connection, call, made};
use super::wire::{ANSWER_LEN, Answer, add, answer_again, query, query_again};
use super::{Error, Result, SocketName};
use crate::trust::TrustedDir;

/// Whose daemons are believed.
const ROOT: u32 = 0;

/// A step daemon that has answered, and that is root's.
#[derive(Debug)]
pub struct Daemon {
    socket: OwnedFd,
    pid: i32,
    answer: Answer,
}

impl Daemon {
    /// Calls the daemon behind a socket in `spool`, by the directory's descriptor, and asks who owns
    /// its job and what it does.
    ///
    /// # Errors
    /// [`Error`]; none waits past `deadline`.
    pub fn call(spool: &TrustedDir, name: &SocketName, deadline: Instant) -> Result<Self> {
        made(spool, name, ROOT)?;
        let path = format!("/proc/self/fd/{}/{name}", spool.as_fd().as_raw_fd());
        let Connection { socket, pid } = connected(Path::new(&path), ROOT, deadline)?;
        let mut bytes = [0; ANSWER_LEN];
        exchange(&socket, &query(), &mut bytes, deadline)?;
        Ok(Self { socket, pid, answer: Answer::read(&bytes)? })
    }

    /// Its process, as the kernel knows it from when it began to listen. While it answers, the
    /// number is still its own.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What it said last.
    #[must_use]
    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// Asks again who owns the job and what it does.
    ///
    /// # Errors
    /// [`Error`]; none waits past `deadline`.
    pub fn ask_again(&mut self, deadline: Instant) -> Result<Answer> {
        let mut bytes = [0; 8];
        exchange(&self.socket, &query_again(), &mut bytes, deadline)?;
        self.answer = answer_again(self.answer.version, bytes)?;
        Ok(self.answer)
    }

    /// Has it take a process into its step. It answers that it did even where its own move failed,
    /// so where the process is afterwards has to be looked at.
    ///
    /// # Errors
    /// [`Error`]; past `deadline` it may still do so.
    pub fn add(&mut self, pid: i32, deadline: Instant) -> Result<()> {
        let mut bytes = [0; 4];
        exchange(&self.socket, &add(pid), &mut bytes, deadline)?;
        match i32::from_ne_bytes(bytes) {
            0 => Ok(()),
            code => Err(Error::NotAdded(code)),
        }
    }
}

/// Who listens at a step daemon's socket, as the kernel knows it. It is asked nothing.
///
/// # Errors
/// [`Error`]; none waits past `deadline`.
pub fn pid_of(path: &Path, owner: u32, deadline: Instant) -> Result<i32> {
    connected(path, owner, deadline).map(|connection| connection.pid)
}

fn connected(path: &Path, owner: u32, deadline: Instant) -> Result<Connection> {
    loop {
        if let Some(connection) = call(path, owner)? {
            return Ok(connection);
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout);
        }
        std::thread::sleep(AGAIN);
    }
}

/// Writes the question and reads the answer in full.
fn exchange(socket: &OwnedFd, question: &[u8], answer: &mut [u8], deadline: Instant) -> Result<()> {
    let mut rest = question;
    while !rest.is_empty() {
        wait(socket, PollFlags::POLLOUT, deadline)?;
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match send(socket.as_raw_fd(), rest, flags) {
            Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(Error::Closed),
            Err(errno) => return Err(Error::System("send", errno)),
        }
    }
    let mut room = answer;
    while !room.is_empty() {
        wait(socket, PollFlags::POLLIN, deadline)?;
        match recv(socket.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
            Ok(0) | Err(Errno::ECONNRESET) => return Err(Error::Closed),
            Ok(length) => room = room.get_mut(length..).unwrap_or_default(),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(Error::System("recv", errno)),
        }
    }
    Ok(())
}

fn wait(socket: &OwnedFd, events: PollFlags, deadline: Instant) -> Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Timeout);
        }
        // Rounded up: with less than a millisecond left poll(2) would not wait at all.
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
        match poll(&mut [PollFd::new(socket.as_fd(), events)], timeout.unwrap_or(PollTimeout::MAX))
        {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Error::System("poll", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stepd::socket::tests::{crowded, own_uid};
    use crate::trust::tests::Scratch;

    #[test]
    fn a_daemon_with_too_many_callers_is_called_until_it_has_room_or_time_is_up() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        let (listener, callers) = crowded(&path);
        let connect = |millis| {
            let deadline = Instant::now() + Duration::from_millis(millis);
            connected(&path, own_uid(), deadline).map(drop)
        };
        assert_eq!(connect(50), Err(Error::Timeout));
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| connect(5000));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!caller.is_finished());
            callers.iter().for_each(|_| drop(listener.accept().unwrap()));
            assert_eq!(caller.join().unwrap(), Ok(()));
        });
    }
}
