//! Describes processes that outlive `SIGKILL`, so that an admin knows what holds them: a dead file server, a disk, a
//! driver.
//!
//! A thread that sleeps uninterruptibly (state D) dies only once the kernel's own wait ends. `/proc` shows in which
//! function it waits and, if its system call names a file by a descriptor, which file. A path in its memory is not read:
//! the user may have put it into a page of a file system that does not answer. The reader would then sleep as
//! uninterruptibly, and so would its process at its own end, whichever of its threads had read.
//!
//! What is read waits at most for locks at which a signal still ends the wait (`lock_trace` in `fs/proc/base.c`). So a
//! thread reads it: the caller waits for a while, and the end of this process ends the thread.

use kernel::proc::{find_field, read_at_most, read_record};
use std::fs::{self, read_link};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Longest wait for what `/proc` shows of all processes together.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum processes that a text describes.
const DESCRIBED_MAX: usize = 4;
/// Maximum threads of a process that are looked at.
const THREADS_MAX: usize = 256;
/// Maximum bytes of a small file, and of the table of mounts.
const FILE_BYTES_MAX: u64 = 4096;
const MOUNTS_BYTES_MAX: u64 = 1024 * 1024;

/// Describes those of these processes that no signal ends at present, as "7 (cp, in wait_on_bit, /mnt/a on nfs of
/// server:/a)"; `None` if there are none.
#[must_use]
pub fn describe_unkillable(pids: &[i32]) -> Option<String> {
    let unkillable: Vec<(i32, PathBuf)> = pids
        .iter()
        .filter_map(|&pid| Some((pid, find_uninterruptible_thread(pid)?)))
        .collect();
    if unkillable.is_empty() {
        return None;
    }
    let (sender, receiver) = mpsc::channel();
    let described: Vec<(i32, PathBuf)> = unkillable.iter().take(DESCRIBED_MAX).cloned().collect();
    // A read may hang, so this thread only waits for the texts.
    thread::spawn(move || {
        for (pid, thread) in described {
            let _ = sender.send((pid, describe_wait(&thread)));
        }
    });
    let waits = wait_for_all(&receiver, unkillable.len().min(DESCRIBED_MAX));
    let mut texts: Vec<String> = unkillable
        .iter()
        .take(DESCRIBED_MAX)
        .map(|(pid, thread)| {
            let wait = waits
                .iter()
                .find(|(read, _)| read == pid)
                .map_or("", |(_, wait)| wait);
            format!("{pid} ({}{wait})", read_word(&thread.join("comm")))
        })
        .collect();
    if unkillable.len() > DESCRIBED_MAX {
        texts.push(format!("{} more", unkillable.len() - DESCRIBED_MAX));
    }
    Some(texts.join(", "))
}

/// Receives the descriptions of `count` processes, or those of them that come within [`READ_TIMEOUT`].
fn wait_for_all(receiver: &mpsc::Receiver<(i32, String)>, count: usize) -> Vec<(i32, String)> {
    let mut all = Vec::new();
    let end = std::time::Instant::now() + READ_TIMEOUT;
    while all.len() < count {
        match receiver.recv_timeout(end.saturating_duration_since(std::time::Instant::now())) {
            Ok(one) => all.push(one),
            // The time is over.
            Err(_) => break,
        }
    }
    all
}

/// Finds a thread of a process that sleeps uninterruptibly, as its directory; `None` if there is none, or the process
/// is gone.
fn find_uninterruptible_thread(pid: i32) -> Option<PathBuf> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .ok()?
        .flatten()
        .take(THREADS_MAX)
        .map(|entry| entry.path())
        .find(|thread| {
            let status = read_record(thread.join("status")).unwrap_or_default();
            find_field(&status, "State:").is_some_and(|state| state.starts_with('D'))
        })
}

/// Describes where a thread waits, and for which file; empty if the kernel does not show it.
fn describe_wait(thread: &Path) -> String {
    let mut text = String::new();
    // `0` stands for no function.
    let function = read_word(&thread.join("wchan"));
    if !matches!(function.as_str(), "" | "0") {
        text = format!(", in {function}");
    }
    if let Some(path) = find_file(thread) {
        text.push_str(&format!(", {}", clean(&path.to_string_lossy())));
        if let Some(mount) = find_mount(thread, &path) {
            text.push_str(&format!(" on {}", clean(&mount)));
        }
    }
    text
}

/// Whether the first argument of this system call is the descriptor of its file, or of the directory of its file.
fn has_descriptor(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_read
            | libc::SYS_write
            | libc::SYS_pread64
            | libc::SYS_pwrite64
            | libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_close
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_fstat
            | libc::SYS_flock
            | libc::SYS_fchmod
            | libc::SYS_ioctl
            | libc::SYS_getdents64
            | libc::SYS_copy_file_range
            | libc::SYS_openat
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_faccessat
            | libc::SYS_mkdirat
            | libc::SYS_unlinkat
            | libc::SYS_fchmodat
            | libc::SYS_fchownat
            | libc::SYS_utimensat
            | libc::SYS_readlinkat
    )
}

/// Finds the file, or the directory of the file, of a thread's system call (proc_pid_syscall(5)); `None` if the call
/// names none by a descriptor, as with `AT_FDCWD`.
fn find_file(thread: &Path) -> Option<PathBuf> {
    let call = read_at_most(&thread.join("syscall"), FILE_BYTES_MAX).ok()?;
    let mut words = call.split_ascii_whitespace();
    if !has_descriptor(words.next()?.parse().ok()?) {
        return None;
    }
    let register = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    // A descriptor has 32 bits of a register.
    let descriptor = u32::try_from(register & 0xffff_ffff).ok()?;
    read_link(thread.join("fd").join(descriptor.to_string())).ok()
}

/// Finds the kind and the source of the file system that has this path (proc_pid_mountinfo(5)), by the longest mount
/// point that contains it. `None` if the table cannot be read or is not as documented.
fn find_mount(thread: &Path, path: &Path) -> Option<String> {
    let table = read_at_most(&thread.join("mountinfo"), MOUNTS_BYTES_MAX).ok()?;
    let mut longest: Option<(&Path, String)> = None;
    for line in table.lines() {
        let Some((mount, system)) = line.split_once(" - ") else {
            continue;
        };
        let at = Path::new(mount.split(' ').nth(4)?);
        let mut words = system.split(' ');
        // A later mount hides an earlier one of the same path.
        if path.starts_with(at)
            && longest
                .as_ref()
                .is_none_or(|(best, _)| at.starts_with(best))
        {
            longest = Some((at, format!("{} of {}", words.next()?, words.next()?)));
        }
    }
    longest.map(|(_, system)| system)
}

fn read_word(path: &Path) -> String {
    clean(
        read_at_most(path, FILE_BYTES_MAX)
            .unwrap_or_default()
            .trim_end(),
    )
}

/// Replaces what users may have put into a name to break or forge a line.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_ascii_graphic() || c == ' ' {
                c
            } else {
                '?'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn killable_process_is_not_described() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(describe_unkillable(&[own, -1]), None);
    }

    /// A process that waits for its standard input is in a system call with a descriptor.
    #[test]
    fn file_of_system_call_is_found() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let thread = PathBuf::from(format!("/proc/{}", child.id()));
        let file = (0..1000).find_map(|_| {
            thread::sleep(Duration::from_millis(1));
            find_file(&thread).filter(|path| path.to_string_lossy().starts_with("pipe:"))
        });
        let _ = child.kill();
        let _ = child.wait();
        assert!(file.is_some());
    }

    /// A process that opens a FIFO without a writer is in a system call with a path.
    #[test]
    fn path_in_memory_is_not_read() {
        let name = format!("keeper-fifo-{}", std::process::id());
        let fifo = std::env::temp_dir().join(name);
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut child = Command::new("cat").arg(&fifo).spawn().unwrap();
        let thread = PathBuf::from(format!("/proc/{}", child.id()));
        let waits = (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            read_word(&thread.join("wchan")).contains("wait_for_partner")
        });
        let file = find_file(&thread);
        let _ = child.kill();
        let _ = child.wait();
        fs::remove_file(&fifo).unwrap();
        assert!(waits, "it does not open the FIFO");
        assert_eq!(file, None);
    }

    #[test]
    fn mount_of_path_is_found() {
        let thread = PathBuf::from("/proc/thread-self");
        let system = find_mount(&thread, Path::new("/proc/self/status")).unwrap();
        assert_eq!(system, "proc of proc");
        assert!(find_mount(&thread, Path::new("/")).is_some());
    }

    #[test]
    fn hostile_name_cannot_forge_a_line() {
        assert_eq!(clean("a\nb\u{1b}[1m\u{e4} c"), "a?b?[1m? c");
    }
}
