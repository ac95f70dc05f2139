//! Runs a command in a container, and stays outside of its process numbers to pass on signals, terminal and status.

use super::container::{Namespaces, open_directory};
use super::target::Target;
use super::terminal::{Relay, Terminals, open_pair};
use super::variables::{Variables, choose_variables};
use command::awaited_signals::select_not_ignored;
use command::caller_limits::CallerLimits;
use command::error::Error;
use command::exit_status::{EXIT_NOT_STARTED, signal_status};
use command::sys::process::{SingleThread, mark_descriptors_cloexec, reset_sigchld};
use kernel::proc::{self, Proc};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, setsid};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Shells of a container, the first of which is used that it has.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];
/// Signals that the command gets in place of this process.
const FORWARDED: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];
/// Maximum bytes shown after the command's end: more than a terminal holds of what the command wrote
/// (`pty_common_install` in drivers/tty/pty.c: 8 KiB, and 4 KiB of its line discipline). What the command left behind
/// may write without end.
const LAST_OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Signals that this process handles itself.
const HANDLED: [Signal; 3] = [Signal::SIGCHLD, Signal::SIGWINCH, Signal::SIGCONT];

/// Joins the container of a process and runs the command of these words there, or a shell without words; returns its
/// exit status.
///
/// # Errors
///
/// [`Error::Failed`] if that could not be done.
pub(super) fn run(
    target: &Target,
    login: &Namespaces,
    words: &[OsString],
    caller: CallerLimits,
) -> Result<u8, Error> {
    let failed = |error: io::Error| Error::failed("run", describe(words), error);
    // A process with several threads can neither join a user namespace nor fork safely.
    let thread = SingleThread::require().map_err(failed)?;
    mark_descriptors_cloexec().map_err(failed)?;
    reset_sigchld();
    let own_status = proc::read(Proc::host().at.join("self/status")).map_err(failed)?;
    let signals = select_not_ignored(&own_status, FORWARDED.into_iter().chain(HANDLED))
        .ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
    let terminals = Terminals::detect();
    // After the join, paths lead into the container.
    let node_dev = open_directory("/dev").map_err(|errno| failed(errno.into()))?;

    let joined = target.join(login)?;
    let mut relay = None;
    if terminals.has_any() {
        let pair = open_pair(&node_dev)
            .map_err(|error| Error::failed("make terminal for", describe(words), error))?;
        relay = Some(Relay::new(terminals, pair).map_err(failed)?);
    }
    let mask = SigSet::thread_get_mask().map_err(|errno| failed(errno.into()))?;
    let term = relay.as_ref().and_then(|_| std::env::var_os("TERM"));
    let command = ContainerCommand {
        words,
        variables: choose_variables(&joined.environ, term),
        target,
        is_privileged: joined.is_privileged,
        caller,
        mask,
    };
    // From here on signals wait for the loop below.
    signals
        .thread_block()
        .map_err(|errno| failed(errno.into()))?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&signals, flags).map_err(|errno| failed(errno.into()))?;
    let child = thread
        .fork_child(|| command.execute(relay.as_ref()))
        .map_err(failed)?;
    Supervisor {
        child,
        signals,
        relay,
    }
    .run()
    .map_err(failed)
}

fn describe(words: &[OsString]) -> String {
    let shell = || "shell".into();
    words
        .first()
        .map_or_else(shell, |word| word.to_string_lossy().into_owned())
}

/// A command, and what it gets in the container.
struct ContainerCommand<'a> {
    words: &'a [OsString],
    variables: Variables,
    target: &'a Target,
    is_privileged: bool,
    caller: CallerLimits,
    /// The signals that the caller has blocked.
    mask: SigSet,
}

impl ContainerCommand<'_> {
    /// Executes the command, in the child. Returns the exit status only if that fails.
    fn execute(&self, relay: Option<&Relay>) -> i32 {
        let error = match self.prepare(relay) {
            Ok(()) => self.exec(),
            Err(error) => error,
        };
        // Ignore the error: standard error is the last channel.
        let _ = writeln!(
            io::stderr(),
            "job-adopt: run {}: {error}",
            helper::printable(&describe(self.words))
        );
        EXIT_NOT_STARTED.into()
    }

    /// In the child, starts a session with the new terminal instead of the login's, restores what this program has
    /// changed, and gives up what the container's process has not.
    fn prepare(&self, relay: Option<&Relay>) -> io::Result<()> {
        setsid()?;
        let Self { target, .. } = self;
        if let Some(relay) = relay {
            relay.give_to(target.credentials.uid());
            relay.take()?;
        }
        self.caller.restore()?;
        self.mask.thread_set_mask()?;
        // Without a user namespace of the container's this process has no more than before.
        if self.is_privileged {
            target.credentials.apply()?;
        }
        Ok(())
    }

    /// Replaces this process by the command or, without words, by the first of [`SHELLS`] that there is. It
    /// returns only if that fails, with the last cause.
    fn exec(&self) -> io::Error {
        let execute = |word: &OsString, arguments: &[OsString]| {
            Command::new(word)
                .args(arguments)
                .env_clear()
                .envs(&self.variables)
                .exec()
        };
        if let [word, arguments @ ..] = self.words {
            return execute(word, arguments);
        }
        let mut error = io::ErrorKind::NotFound.into();
        for shell in SHELLS {
            error = execute(&shell.into(), &[]);
            if error.kind() != io::ErrorKind::NotFound {
                break;
            }
        }
        error
    }
}

/// The process outside, while the command runs.
struct Supervisor {
    child: Pid,
    signals: SignalFd,
    /// `None` without a terminal, and after the login's own has hung up.
    relay: Option<Relay>,
}

impl Supervisor {
    /// Passes on signals and what is typed and shown, until the command has ended; returns its exit status.
    ///
    /// # Errors
    ///
    /// As `poll(2)` and `waitpid(2)`.
    fn run(mut self) -> io::Result<u8> {
        if let Some(relay) = &self.relay {
            relay.set_raw()?;
        }
        loop {
            let ready = self.await_ready()?;
            if ready.signal {
                if let Some(status) = self.handle_signals()? {
                    self.show_last_output()?;
                    return Ok(status);
                }
            }
            let Some(relay) = &mut self.relay else {
                continue;
            };
            if ready.output {
                relay.show_output();
            }
            if ready.writable {
                relay.write_input();
            }
            if ready.input && !relay.read_input() {
                // The login's terminal has hung up. Closing the new one hangs that up too.
                self.relay = None;
            }
        }
    }

    /// Shows what the command wrote before its end, unless a signal asks this process to end first.
    fn show_last_output(&self) -> io::Result<()> {
        let Some(relay) = &self.relay else {
            return Ok(());
        };
        let mut shown = 0;
        while shown < LAST_OUTPUT_BYTES_MAX {
            while let Some(info) = self.signals.read_signal()? {
                if FORWARDED
                    .iter()
                    .any(|signal| *signal as u32 == info.ssi_signo)
                {
                    return Ok(());
                }
            }
            let count = relay.show_output();
            if count == 0 {
                break;
            }
            shown += count;
        }
        Ok(())
    }

    /// Waits until there is something to do; after an interruption it returns that there is nothing.
    fn await_ready(&self) -> io::Result<Ready> {
        // The signals, the new terminal, the login's terminal: the last two only while they are relayed.
        let mut poll_fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let stdin = io::stdin();
        if let Some(relay) = &self.relay {
            let (master, has_pending) = relay.master();
            let mut events = PollFlags::POLLIN;
            events.set(PollFlags::POLLOUT, has_pending);
            poll_fds.push(PollFd::new(master, events));
            if relay.takes_input() {
                poll_fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
        }
        match poll(&mut poll_fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(errno) => return Err(errno.into()),
        }
        let events = |index: usize| {
            let poll_fd: Option<&PollFd<'_>> = poll_fds.get(index);
            poll_fd
                .and_then(PollFd::revents)
                .unwrap_or(PollFlags::empty())
        };
        Ok(Ready {
            signal: !events(0).is_empty(),
            output: events(1).contains(PollFlags::POLLIN),
            writable: events(1).contains(PollFlags::POLLOUT),
            input: !events(2).is_empty(),
        })
    }

    /// Handles the signals that have arrived; returns the exit status if the command has ended.
    fn handle_signals(&mut self) -> io::Result<Option<u8>> {
        while let Some(info) = self.signals.read_signal()? {
            let number = i32::try_from(info.ssi_signo).unwrap_or_default();
            let signal = Signal::try_from(number)?;
            match signal {
                Signal::SIGCHLD => {
                    if let Some(status) = self.reap()? {
                        return Ok(Some(status));
                    }
                }
                Signal::SIGWINCH => {
                    if let Some(relay) = &self.relay {
                        relay.copy_window_size();
                    }
                }
                // The shell that continues this process has set its own mode.
                Signal::SIGCONT => {
                    if let Some(relay) = &self.relay {
                        relay.set_raw()?;
                    }
                }
                // One of `FORWARDED`. The child is not reaped yet, so no other process has its number.
                _ => _ = kill(self.child, signal),
            }
        }
        Ok(None)
    }

    fn reap(&self) -> io::Result<Option<u8>> {
        Ok(match waitpid(self.child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::Exited(_, status) => Some(u8::try_from(status).unwrap_or(u8::MAX)),
            WaitStatus::Signaled(_, signal, _) => Some(signal_status(signal)),
            _ => None,
        })
    }
}

/// What can be done without waiting.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    signal: bool,
    /// The command has written.
    output: bool,
    /// The new terminal takes input.
    writable: bool,
    /// The login's terminal has input, or has hung up.
    input: bool,
}
