//! What a program of a person's or a scheduler's does to itself: fork, close, forget.

use helper::sources::processes;
use nix::unistd::{ForkResult, Pid, fork};
use std::ffi::CStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Exit status of a child whose code panicked, as the Rust runtime has it.
const PANICKED: i32 = 101;

/// Forks; the child runs `body` and exits with its result. In the child `SIGPIPE` has its default
/// disposition, which the Rust runtime takes away and a program that is executed would inherit.
/// Fails: `EBUSY` in a process of several threads; else as `fork(2)`.
pub(crate) fn fork_and(body: impl FnOnce() -> i32) -> io::Result<Pid> {
    if !is_single_threaded()? {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: there is no other thread that could hold a lock which the child would wait for.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // SAFETY: sets a disposition, no handler.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            // A panic must not carry the child back into what the parent is doing.
            let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANICKED);
            // SAFETY: ends the child alone; nothing that the parent registered to run at exit is
            // run a second time.
            unsafe { libc::_exit(status) }
        }
    }
}

fn is_single_threaded() -> io::Result<bool> {
    Ok(processes::list_numbers::<i32>(Path::new("/proc/self/task"))?.count() == 1)
}

/// Has every descriptor above standard error close when a program is executed, whoever opened it
/// and left it open to programs. Until then all of them stay usable.
/// Fails: as `readdir(3)` of `/proc/self/fd`.
pub(crate) fn keep_standard_descriptors_only() -> io::Result<()> {
    for number in processes::list_numbers::<libc::c_int>(Path::new("/proc/self/fd"))? {
        let number = number?;
        if number > 2 {
            // SAFETY: sets a flag by which nobody's memory is affected; that of the listing, which
            // stands in it as well, is set already.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Loads a shared object as libpam does, and runs its constructors: in a child that does nothing else.
/// Fails: with what dlerror(3) says.
pub(crate) fn load(path: &CStr) -> Result<(), String> {
    // SAFETY: the path is NUL-terminated; what is loaded stays.
    if !unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) }.is_null() {
        return Ok(());
    }
    // SAFETY: takes nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err("unknown".to_owned());
    }
    // SAFETY: a NUL-terminated text, which stays until this thread's next call.
    Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Gives `SIGCHLD` its default disposition: where a caller left it ignored, the kernel would reap
/// children itself and their status would be lost.
pub(crate) fn heed_children() {
    // SAFETY: sets a disposition, no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn closes(file: &std::fs::File) -> bool {
        // SAFETY: reads a flag of a descriptor that is open.
        (unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) }) & libc::FD_CLOEXEC != 0
    }

    fn open() -> std::fs::File {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: clears a flag of a descriptor that is open.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        assert!(!closes(&file));
        file
    }

    #[test]
    fn every_descriptor_is_marked() {
        let file = open();
        keep_standard_descriptors_only().unwrap();
        assert!(closes(&file));
    }
}
