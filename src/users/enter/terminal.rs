//! The terminal of a command in a container.
//!
//! It is a new one, also for job control: whoever can write to a login's own terminal and has it as controlling one
//! can put input there that the login's shell would execute (`TIOCSTI` of ioctl_tty(2)). If the container has
//! pseudo-terminals of its own, it is one of those, and has a name in there (ttyname(3)); else one of the node's.

use crate::sys::terminal::{
    open_terminal_of_master, set_window_size, take_controlling_terminal, window_size,
};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, makedev};
use nix::sys::termios::{OutputFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{Uid, dup2_stderr, dup2_stdin, dup2_stdout, fchown, read, write};
use std::io::{self, IsTerminal, stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Device number of the file that makes pseudo-terminals (Documentation/admin-guide/devices.txt).
const PTMX: (u64, u64) = (5, 2);
const BUFFER_BYTES: usize = 16 * 1024;

/// Which of the three standard streams are terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terminals {
    input: bool,
    output: bool,
    error: bool,
}

impl Terminals {
    pub(super) fn detect() -> Self {
        Self {
            input: stdin().is_terminal(),
            output: stdout().is_terminal(),
            error: stderr().is_terminal(),
        }
    }

    pub(super) fn has_any(self) -> bool {
        self.input || self.output || self.error
    }
}

/// Opens a new pseudo-terminal of the container, in whose root directory this process is, or else one of the
/// node, whose `/dev` is `node_dev`; returns its master and the terminal itself. A file that is not the
/// kernel's own is not used, whatever the container has there.
///
/// # Errors
///
/// The error for the node's, if neither can be opened.
pub(super) fn open_pair(node_dev: &OwnedFd) -> io::Result<(OwnedFd, OwnedFd)> {
    open_pair_at(AT_FDCWD, "/dev/ptmx").or_else(|_| open_pair_at(node_dev.as_fd(), "ptmx"))
}

/// Opens a new pseudo-terminal at `path` in `dir`; returns its master and the terminal itself. It fails as
/// `open(2)`, and with `ENOTTY` for a file that is not the kernel's own device.
fn open_pair_at(dir: BorrowedFd<'_>, path: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let master = openat(dir, path, flags, Mode::empty())?;
    let status = fstat(&master)?;
    let is_device = status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits();
    if !is_device || status.st_rdev != makedev(PTMX.0, PTMX.1) {
        return Err(Errno::ENOTTY.into());
    }
    let terminal = open_terminal_of_master(master.as_fd())?;
    Ok((master, terminal))
}

/// The terminal of a login, and the new one to which it is connected.
#[derive(Debug)]
pub(super) struct Relay {
    terminals: Terminals,
    /// The end that this process reads and writes, without waiting.
    master: OwnedFd,
    /// The end of the command. It stays open here as well: it has no end of file while the command runs.
    terminal: OwnedFd,
    /// The settings of the login's terminal.
    settings: Termios,
    /// Input that the new terminal has not taken yet.
    pending: Vec<u8>,
}

impl Relay {
    /// Connects the login's terminal to a new one, a `pair` of its master and itself ([`open_pair`]), which gets the
    /// settings and the window size of the login's.
    ///
    /// # Errors
    ///
    /// As `tcgetattr(3)` and `tcsetattr(3)`.
    pub(super) fn new(terminals: Terminals, pair: (OwnedFd, OwnedFd)) -> io::Result<Self> {
        let (master, terminal) = pair;
        let relay = Self {
            terminals,
            master,
            settings: login_terminal(terminals, |fd| tcgetattr(fd))?,
            terminal,
            pending: Vec::new(),
        };
        let mut settings = relay.settings.clone();
        if !terminals.input {
            // Then the login's terminal does not get into raw mode (`set_raw`), and translates line ends itself.
            settings.output_flags.remove(OutputFlags::OPOST);
        }
        tcsetattr(&relay.terminal, SetArg::TCSANOW, &settings)?;
        relay.copy_window_size();
        Ok(relay)
    }

    /// Copies the window size. Ignores a failure: a terminal may have none.
    pub(super) fn copy_window_size(&self) {
        let size = login_terminal(self.terminals, window_size);
        let _ = size.and_then(|size| set_window_size(self.master.as_fd(), size));
    }

    /// Gives the terminal to the user who runs the command, as login(1) does. Ignores a failure: a terminal of the
    /// node stays the login's.
    pub(super) fn give_to(&self, uid: Uid) {
        let _ = fchown(&self.terminal, Some(uid), None);
    }

    /// In the child, which leads a new session: takes the new terminal as controlling one and for each stream that
    /// is a terminal.
    ///
    /// # Errors
    ///
    /// As `ioctl_tty(2)` and `dup2(2)`.
    pub(super) fn take(&self) -> io::Result<()> {
        take_controlling_terminal(self.terminal.as_fd())?;
        if self.terminals.input {
            dup2_stdin(&self.terminal)?;
        }
        if self.terminals.output {
            dup2_stdout(&self.terminal)?;
        }
        if self.terminals.error {
            dup2_stderr(&self.terminal)?;
        }
        Ok(())
    }

    /// Sets the login's terminal to raw mode, so that the new one interprets what is typed. Nothing
    /// happens if the login's input is no terminal.
    ///
    /// # Errors
    ///
    /// As `tcsetattr(3)`.
    pub(super) fn set_raw(&self) -> io::Result<()> {
        if self.terminals.input {
            let mut raw = self.settings.clone();
            cfmakeraw(&mut raw);
            tcsetattr(stdin(), SetArg::TCSADRAIN, &raw)?;
        }
        Ok(())
    }

    /// The descriptor of the new terminal, to poll, and whether input waits for it.
    pub(super) fn master(&self) -> (BorrowedFd<'_>, bool) {
        (self.master.as_fd(), !self.pending.is_empty())
    }

    /// Tells whether the login's terminal is to be read now.
    pub(super) fn takes_input(&self) -> bool {
        self.terminals.input && self.pending.is_empty()
    }

    /// Reads what was typed; returns false if the login's terminal has hung up, or cannot be read any more.
    pub(super) fn read_input(&mut self) -> bool {
        let mut buffer = [0; BUFFER_BYTES];
        match read(stdin(), &mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.pending.extend(buffer.iter().take(count));
                true
            }
            Err(Errno::EINTR | Errno::EAGAIN) => true,
            Err(_) => false,
        }
    }

    /// Writes input to the new terminal, as much as it takes now. Input that it refuses for good is dropped.
    pub(super) fn write_input(&mut self) {
        match write(&self.master, &self.pending) {
            Ok(count) => drop(self.pending.drain(..count)),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => self.pending.clear(),
        }
    }

    /// Shows what the command has written since; returns the number of bytes, 0 also if they cannot be shown.
    pub(super) fn show_output(&self) -> usize {
        let mut buffer = [0; BUFFER_BYTES];
        let Ok(count) = read(&self.master, &mut buffer) else {
            return 0;
        };
        let output = buffer.get(..count).unwrap_or_default();
        login_terminal(self.terminals, |fd| write_all(fd, output)).map_or(0, |()| count)
    }

    /// Restores the login's terminal.
    fn restore(&self) {
        if self.terminals.input {
            let _ = tcsetattr(stdin(), SetArg::TCSADRAIN, &self.settings);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Calls a function with the stream that shows the login's terminal: output or error, or else input.
fn login_terminal<T, E: Into<io::Error>>(
    terminals: Terminals,
    call: impl FnOnce(BorrowedFd<'_>) -> Result<T, E>,
) -> io::Result<T> {
    let result = if terminals.output {
        call(stdout().as_fd())
    } else if terminals.error {
        call(stderr().as_fd())
    } else {
        call(stdin().as_fd())
    };
    result.map_err(Into::into)
}

/// Writes all bytes, also if signals interrupt it. It fails as `write(2)`.
fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::isatty;

    fn node_dev() -> OwnedFd {
        super::super::container::open_directory("/dev").unwrap()
    }

    #[test]
    fn new_pair_is_connected() {
        let (master, terminal) = open_pair_at(node_dev().as_fd(), "ptmx").unwrap();
        assert!(isatty(&terminal).unwrap());
        write(&terminal, b"x").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(read(&master, &mut buffer), Ok(1));
    }

    #[test]
    fn file_that_makes_no_terminals_is_refused() {
        for name in ["null", "tty", "zero"] {
            assert!(open_pair_at(node_dev().as_fd(), name).is_err(), "{name}");
        }
    }
}
