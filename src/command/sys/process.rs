//! Changes of this process itself: children, descriptors, shared objects, signal dispositions.

use helper::jobs::sources::processes;
use kernel::sys::checked;
use nix::unistd::{ForkResult, Pid, fork};
use std::ffi::CStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Exit status of a child whose code panicked, as in the Rust runtime.
const PANIC_STATUS: i32 = 101;

/// Forks; the child runs `body` and exits with its result. The child gets back the default
/// disposition of `SIGPIPE`: the Rust runtime ignores the signal, and executed programs would
/// inherit that.
///
/// # Errors
///
/// `EBUSY` in a process with several threads, and the errors of `fork(2)`.
pub fn fork_child(body: impl FnOnce() -> i32) -> io::Result<Pid> {
    SingleThread::require()?.fork_child(body)
}

/// Proof that this process has one thread. This command starts none.
#[derive(Debug)]
pub struct SingleThread(());

impl SingleThread {
    /// Checks that this process has one thread.
    ///
    /// # Errors
    ///
    /// `EBUSY` in a process with several threads; as `opendir(3)` for `/proc/self/task`.
    pub fn require() -> io::Result<Self> {
        if processes::list_numbers::<i32>(Path::new("/proc/self/task"))?.count() != 1 {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        Ok(Self(()))
    }

    /// Forks as [`fork_child`] does, also where this process has no `/proc` of its own.
    ///
    /// # Errors
    ///
    /// As `fork(2)`.
    pub fn fork_child(&self, body: impl FnOnce() -> i32) -> io::Result<Pid> {
        // SAFETY: there is no other thread that could hold a lock which the child would wait for.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(child),
            ForkResult::Child => {
                // SAFETY: it sets a disposition, no handler.
                unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
                // A panic must not unwind into the parent's code.
                let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANIC_STATUS);
                // SAFETY: it ends the child alone; functions that the parent registered to run at exit
                // do not run a second time.
                unsafe { libc::_exit(status) }
            }
        }
    }
}

/// Marks every descriptor above standard error to close when a program is executed, also those that
/// this process inherited. Until then all of them stay usable.
///
/// # Errors
///
/// The errors of `readdir(3)` for `/proc/self/fd`.
pub fn mark_descriptors_cloexec() -> io::Result<()> {
    for number in processes::list_numbers::<libc::c_int>(Path::new("/proc/self/fd"))? {
        let number = number?;
        if number > 2 {
            // SAFETY: it sets a flag, which affects no memory. The listing's own descriptor, which is
            // among these, has the flag already.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Takes a capability from this process and the programs that it executes, by its number.
///
/// # Errors
///
/// `EINVAL` for a number that the kernel does not know; `EPERM` without `CAP_SETPCAP`.
pub fn drop_bounding_capability(capability: u32) -> io::Result<()> {
    let number = libc::c_ulong::from(capability);
    // SAFETY: the option takes numbers.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    checked(result.into()).map(drop)
}

/// Loads a shared object as libpam does, and runs its constructors. Call this only in a child that
/// does nothing else.
///
/// # Errors
///
/// The text of dlerror(3).
pub fn load_shared_object(path: &CStr) -> Result<(), String> {
    // SAFETY: the path is NUL-terminated; the loaded object stays.
    if !unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) }.is_null() {
        return Ok(());
    }
    // SAFETY: the function takes no arguments.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err("unknown".to_owned());
    }
    // SAFETY: the text is NUL-terminated, and stays until this thread's next call.
    Err(unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned())
}

/// Gives `SIGCHLD` its default disposition. If a caller left it ignored, the kernel would reap
/// children itself, and their exit status would be lost.
pub fn reset_sigchld() {
    // SAFETY: it sets a disposition, no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn is_cloexec(file: &std::fs::File) -> bool {
        // SAFETY: it reads a flag of an open descriptor.
        (unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) }) & libc::FD_CLOEXEC != 0
    }

    fn open_inheritable() -> std::fs::File {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: it clears a flag of an open descriptor.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        assert!(!is_cloexec(&file));
        file
    }

    #[test]
    fn inherited_descriptor_is_marked_cloexec() {
        let file = open_inheritable();
        mark_descriptors_cloexec().unwrap();
        assert!(is_cloexec(&file));
    }
}
