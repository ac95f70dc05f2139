//! Describes processes that outlive `SIGKILL`, so that an admin knows what holds them: a dead file server, a disk, a
//! driver.
//!
//! A thread that sleeps uninterruptibly (state D) dies only once the kernel's own wait ends. `/proc` shows in which
//! function it waits and, with the arguments of its system call, for which file. Some of these files take locks that
//! such a thread may hold, so they are read by a thread of this process that nobody waits for.

use kernel::proc::{find_field, read_at_most, read_record};
use std::fs::{self, File, read_link};
use std::os::unix::fs::FileExt;
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
/// Maximum bytes of a path in a thread's memory.
const PATH_BYTES_MAX: usize = 256;
/// Maximum bytes of a small file, and of the table of mounts.
const FILE_BYTES_MAX: u64 = 4096;
const MOUNTS_BYTES_MAX: u64 = 1024 * 1024;
/// What a path is relative to if a system call names no directory.
const AT_FDCWD: i32 = libc::AT_FDCWD;

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

fn wait_for_all(receiver: &mpsc::Receiver<(i32, String)>, count: usize) -> Vec<(i32, String)> {
    let mut all = Vec::new();
    let end = std::time::Instant::now() + READ_TIMEOUT;
    while all.len() < count {
        match receiver.recv_timeout(end.saturating_duration_since(std::time::Instant::now())) {
            Ok(one) => all.push(one),
            Err(_) => break,
        }
    }
    all
}

/// Finds a thread that sleeps uninterruptibly, as its directory.
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

/// Where a system call names its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    /// The first argument is a descriptor.
    Descriptor,
    /// The first argument is a path.
    Path,
    /// The first argument is the descriptor of a directory, the second a path in it.
    PathInDirectory,
}

fn find_argument(number: i64) -> Option<Argument> {
    match number {
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
        | libc::SYS_getdents64 => Some(Argument::Descriptor),
        libc::SYS_execve | libc::SYS_chdir | libc::SYS_truncate | libc::SYS_statfs => {
            Some(Argument::Path)
        }
        libc::SYS_openat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_mkdirat
        | libc::SYS_unlinkat
        | libc::SYS_fchmodat
        | libc::SYS_fchownat
        | libc::SYS_utimensat
        | libc::SYS_readlinkat => Some(Argument::PathInDirectory),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_access
        | libc::SYS_mkdir
        | libc::SYS_rmdir
        | libc::SYS_unlink
        | libc::SYS_chmod
        | libc::SYS_readlink => Some(Argument::Path),
        _ => None,
    }
}

/// Finds the file of a thread's system call (proc_pid_syscall(5)); `None` if it names none that is known here.
fn find_file(thread: &Path) -> Option<PathBuf> {
    let call = read_at_most(&thread.join("syscall"), FILE_BYTES_MAX).ok()?;
    let mut words = call.split_ascii_whitespace();
    let argument = find_argument(words.next()?.parse().ok()?)?;
    let first = parse_hex(words.next()?)?;
    match argument {
        Argument::Descriptor => read_descriptor(thread, first),
        Argument::Path => join_path(thread.join("cwd"), &read_path(thread, first)?),
        Argument::PathInDirectory => {
            let path = read_path(thread, parse_hex(words.next()?)?)?;
            let directory = descriptor(first)?;
            let directory = if directory == AT_FDCWD {
                thread.join("cwd")
            } else {
                thread.join("fd").join(directory.to_string())
            };
            join_path(directory, &path)
        }
    }
}

fn parse_hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// The number of a descriptor, which has 32 bits of a register.
fn descriptor(register: u64) -> Option<i32> {
    Some(u32::try_from(register & 0xffff_ffff).ok()? as i32)
}

fn read_descriptor(thread: &Path, register: u64) -> Option<PathBuf> {
    read_link(thread.join("fd").join(descriptor(register)?.to_string())).ok()
}

/// Makes a path absolute that is relative to the directory behind this link. It follows no other link.
fn join_path(directory: PathBuf, path: &Path) -> Option<PathBuf> {
    if path.is_absolute() {
        return Some(path.to_owned());
    }
    Some(read_link(directory).ok()?.join(path))
}

/// Reads a path in a thread's memory.
fn read_path(thread: &Path, address: u64) -> Option<PathBuf> {
    let mut bytes = [0; PATH_BYTES_MAX];
    let memory = File::open(thread.join("mem")).ok()?;
    // The next page may be missing.
    let length = [PATH_BYTES_MAX, 64, 8]
        .into_iter()
        .find_map(|length| memory.read_at(bytes.get_mut(..length)?, address).ok())?;
    let text = bytes.get(..length)?.split(|&byte| byte == 0).next()?;
    (!text.is_empty()).then(|| PathBuf::from(String::from_utf8_lossy(text).into_owned()))
}

/// Finds the kind and the source of the file system that has this path (proc_pid_mountinfo(5)), by the longest mount
/// point that contains it.
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
