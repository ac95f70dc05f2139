//! The command's own process, from its start to its `execve`.

use super::super::{Caller, Error};
use super::EXIT_NOT_STARTED;
use crate::cli::sys::process::keep_standard_descriptors_only;
use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::{User, chdir, execve, initgroups, read, setgid, setsid, setuid};
use std::ffi::{CString, OsString};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Where a command without a slash is looked for, and the `PATH` that it gets.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command, and the user to run it as; laid out before the fork.
#[derive(Debug)]
pub(super) struct Command {
    user: User,
    name: CString,
    words: Vec<CString>,
    environment: Vec<CString>,
    caller: Caller,
}

impl Command {
    /// # Errors
    /// [`Error::Failed`] for a text that holds a NUL byte.
    pub(super) fn new(user: &User, words: &[OsString], caller: Caller) -> Result<Self, Error> {
        let words: Vec<CString> =
            words.iter().map(|word| c_string(word.clone())).collect::<Result<_, _>>()?;
        Ok(Self {
            name: c_string(user.name.clone().into())?,
            environment: environment(user)?,
            user: user.clone(),
            words,
            caller,
        })
    }

    /// Waits at the gate, becomes the user and the command. Returns only where that fails: the
    /// status to exit with.
    pub(super) fn run(&self, gate: &OwnedFd, signals: &SigSet) -> i32 {
        if !matches!(read(gate, &mut [0]), Ok(1)) {
            return EXIT_NOT_STARTED.into();
        }
        let (step, errno) = match self.leave(signals).and_then(|()| self.become_user()) {
            Ok(()) => ("run", self.execute()),
            Err(failure) => failure,
        };
        let word = self.words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        // Nobody is left to tell where this fails.
        let _ = writeln!(std::io::stderr(), "job-adopt: {step} {word}: {}", errno.desc());
        EXIT_NOT_STARTED.into()
    }

    /// Leaves behind what is root's and gives back what was the caller's. In a session of its own
    /// the command has no controlling terminal, so that it can push no input into root's
    /// (`TIOCSTI` of ioctl_tty(2)) for root's shell to run.
    fn leave(&self, signals: &SigSet) -> Result<(), (&'static str, Errno)> {
        let step = |step: &'static str| move |errno: Errno| (step, errno);
        setsid().map_err(step("start session of"))?;
        keep_standard_descriptors_only().map_err(|error| {
            ("close descriptors of", Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
        })?;
        self.caller.restore().map_err(step("restore limits of"))?;
        signals.thread_set_mask().map_err(step("restore signals of"))
    }

    fn become_user(&self) -> Result<(), (&'static str, Errno)> {
        let step = |step: &'static str| move |errno: Errno| (step, errno);
        initgroups(&self.name, self.user.gid).map_err(step("set groups of"))?;
        setgid(self.user.gid).map_err(step("set group of"))?;
        setuid(self.user.uid).map_err(step("set user of"))?;
        chdir(&self.user.dir).or_else(|_| chdir("/")).map_err(step("change directory of"))
    }

    /// The first of the candidates that can be executed; else why the last could not.
    fn execute(&self) -> Errno {
        let Some(word) = self.words.first() else { return Errno::ENOENT };
        let mut failure = Errno::ENOENT;
        for path in candidates(word) {
            match execve(&path, &self.words, &self.environment) {
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(errno) => failure = errno,
            }
        }
        failure
    }
}

fn candidates(word: &CString) -> Vec<CString> {
    if word.as_bytes().contains(&b'/') {
        return vec![word.clone()];
    }
    let below = |dir: &str| CString::new([dir.as_bytes(), b"/", word.as_bytes()].concat()).ok();
    PATH.split(':').filter_map(below).collect()
}

/// What login(1) sets, and the kind of terminal, which the command shares with us.
fn environment(user: &User) -> Result<Vec<CString>, Error> {
    let mut pairs = vec![
        pair("HOME", user.dir.as_os_str().as_bytes()),
        pair("USER", user.name.as_bytes()),
        pair("LOGNAME", user.name.as_bytes()),
        pair("SHELL", user.shell.as_os_str().as_bytes()),
        pair("PATH", PATH.as_bytes()),
    ];
    if let Some(term) = std::env::var_os("TERM") {
        pairs.push(pair("TERM", term.as_bytes()));
    }
    pairs.into_iter().map(c_string).collect()
}

fn pair(name: &str, value: &[u8]) -> OsString {
    OsString::from_vec([name.as_bytes(), b"=", value].concat())
}

fn c_string(text: OsString) -> Result<CString, Error> {
    let shown = text.to_string_lossy().into_owned();
    CString::new(text.into_vec()).map_err(|_| Error::failed("run", shown, "it holds a NUL byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_and_a_path_is_not() {
        let names = |word: &str| {
            let paths = candidates(&CString::new(word).unwrap());
            paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("ls"), ["/usr/local/bin/ls", "/usr/bin/ls", "/bin/ls"]);
        assert_eq!(names("./ls"), ["./ls"]);
    }

    #[test]
    fn the_environment_is_the_users() {
        let root = User::from_name("root").unwrap().unwrap();
        let environment = environment(&root).unwrap();
        for pair in [c"USER=root", c"LOGNAME=root", c"PATH=/usr/local/bin:/usr/bin:/bin"] {
            assert!(environment.iter().any(|found| found.as_c_str() == pair), "{pair:?}");
        }
        assert!(environment.len() <= 6);
    }
}
