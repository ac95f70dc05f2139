//! Describes processes that outlive `SIGKILL`, so that an admin knows what holds them: a dead file server, a disk, a
//! driver.
//!
//! A thread that sleeps uninterruptibly (state D) dies only once the kernel's own wait ends. Most such waits are short, and
//! some a user can make: [`describe_unkillable`] names only those that last and are none of the user's. `/proc` shows in which
//! function it waits and, if its system call names a file by a descriptor, which file. A path in its memory is not read:
//! the user may have put it into a page of a file system that does not answer. The reader would then sleep as
//! uninterruptibly, and so would its process at its own end, whichever of its threads had read.
//!
//! What is read waits at most for locks at which a signal still ends the wait (`lock_trace` in `fs/proc/base.c`). So a
//! thread reads it: the caller waits for a while, and the end of this process ends the thread.

use crate::fuse;
use kernel::mounts::{MountLine, escape, parse_lines};
use kernel::proc::{find_field, read_at_most, read_record};
use protocol::is_within;
use std::collections::BTreeSet;
use std::fs::{self, read_link};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for what `/proc` shows of all processes together.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest search for users who serve a file system.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum processes that a text describes.
const DESCRIBED_MAX: usize = 4;
/// Maximum threads of a process that are looked at.
const THREADS_MAX: usize = 256;
/// Maximum bytes of a small file, and of the table of mounts.
const FILE_BYTES_MAX: u64 = 4096;
const MOUNTS_BYTES_MAX: u64 = 1024 * 1024;

/// Time between two looks at a thread: one that waits for a disk, or ends slowly, has run in between.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);

/// Describes those of these processes that no signal ends, as "7 (cp, in wait_on_bit, /mnt/a on nfs of
/// server:/a)"; `None` if there are none.
///
/// No signal ends a process if a thread of it has a `SIGKILL` before it, sleeps uninterruptibly, and has not run once for
/// three seconds. Processes whose user serves a file system do not count: they may wait for the user. So the caller ends
/// all processes of the user first that it may end. If there may be such a process, the call takes these three seconds.
#[must_use]
pub fn describe_unkillable(pids: &[i32]) -> Option<String> {
    let find_all = || -> Vec<(i32, StuckThread)> {
        pids.iter()
            .filter_map(|&pid| Some((pid, StuckThread::find(pid)?)))
            .collect()
    };
    let stuck = find_all();
    if stuck.is_empty() {
        return None;
    }
    thread::sleep(LOOK_INTERVAL);
    let still: BTreeSet<StuckThread> = find_all().into_iter().map(|(_, thread)| thread).collect();
    let stuck: Vec<(i32, StuckThread)> = stuck
        .into_iter()
        .filter(|(_, thread)| still.contains(thread))
        .collect();
    let waiting = find_waiting_for_users(stuck.iter().map(|&(pid, _)| pid).collect());
    let unkillable: Vec<(i32, PathBuf)> = stuck
        .into_iter()
        .filter(|(pid, _)| !waiting.contains(pid))
        .map(|(pid, thread)| (pid, thread.dir))
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
    let end = Instant::now() + READ_TIMEOUT;
    while all.len() < count {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(one) => all.push(one),
            // The time is over.
            Err(_) => break,
        }
    }
    all
}

/// A thread that sleeps uninterruptibly although it has to end. Equal ones were found in the same sleep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StuckThread {
    dir: PathBuf,
    /// How often it has run, by its own will or not.
    switches: [String; 2],
}

impl StuckThread {
    /// Finds one among the threads of a process; `None` if there is none, or the process is gone.
    fn find(pid: i32) -> Option<Self> {
        fs::read_dir(format!("/proc/{pid}/task"))
            .ok()?
            .flatten()
            .take(THREADS_MAX)
            .find_map(|entry| Self::read(entry.path()))
    }

    /// Reads a thread; `None` for one that is not stuck. One in a frozen cgroup v1 looks the same, and ends once that is
    /// thawed.
    fn read(dir: PathBuf) -> Option<Self> {
        let status = read_record(dir.join("status")).ok()?;
        let is_ending =
            has_pending_kill(find_field(&status, "SigPnd:")?) || is_exiting(&dir.join("stat"));
        let is_stuck = find_field(&status, "State:")?.starts_with('D')
            && is_ending
            && !read_word(&dir.join("wchan")).contains("refrigerator");
        let switches =
            |kind: &str| find_field(&status, &format!("{kind}_ctxt_switches:")).map(str::to_owned);
        is_stuck.then_some(())?;
        Some(Self {
            switches: [switches("voluntary")?, switches("nonvoluntary")?],
            dir,
        })
    }
}

/// Whether `SIGKILL` is among the pending signals of a thread, by the text of its status. The kernel adds it to those of
/// each thread (`complete_signal` in `kernel/signal.c`), and takes it away once the thread acts on it.
fn has_pending_kill(signals: &str) -> bool {
    u64::from_str_radix(signals, 16).is_ok_and(|signals| signals >> (libc::SIGKILL - 1) & 1 == 1)
}

/// Whether a thread exits, by its flags (`PF_EXITING` of linux/sched.h), for instance as it has acted on `SIGKILL` and
/// closes its files: proc_pid_stat(5).
fn is_exiting(stat: &Path) -> bool {
    const PF_EXITING: u64 = 4;
    let text = read_at_most(stat, FILE_BYTES_MAX).unwrap_or_default();
    // The name before may have any characters.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let flags = fields.split_ascii_whitespace().nth(6);
    flags.is_some_and(|flags| {
        flags
            .parse::<u64>()
            .is_ok_and(|flags| flags & PF_EXITING != 0)
    })
}

/// Finds those of these processes that may wait for a file system that their own user serves; all of them if that is not
/// known in time. A thread searches, as the descriptors of processes are looked at.
fn find_waiting_for_users(pids: Vec<i32>) -> BTreeSet<i32> {
    if pids.is_empty() {
        return BTreeSet::new();
    }
    let all: BTreeSet<i32> = pids.iter().copied().collect();
    let (sender, receiver) = mpsc::channel();
    let end = Instant::now() + SEARCH_TIMEOUT;
    thread::spawn(move || sender.send(fuse::find_waiting(&pids, end)));
    let found = receiver.recv_timeout(SEARCH_TIMEOUT + READ_TIMEOUT);
    found.unwrap_or(all)
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

/// Finds the kind and the source of the file system that has this path, by the longest mount point that contains it.
/// `None` if the table cannot be read or has no such mount.
fn find_mount(thread: &Path, path: &Path) -> Option<String> {
    let table = read_at_most(&thread.join("mountinfo"), MOUNTS_BYTES_MAX).ok()?;
    let path = escape(&path.to_string_lossy());
    let mut longest: Option<MountLine> = None;
    for mount in parse_lines(&table) {
        // A later mount hides an earlier one of the same path.
        if is_within(&path, mount.at) && longest.is_none_or(|best| is_within(mount.at, best.at)) {
            longest = Some(mount);
        }
    }
    longest.map(|mount| format!("{} of {}", mount.kind, mount.source))
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

    /// Writes the directory of a thread.
    fn write_thread(dir: &Path, state: char, pending: &str, switches: u32, function: &str) {
        let status = format!(
            "Name:\tx\nState:\t{state} (x)\nSigPnd:\t{pending}\nShdPnd:\t0000000000000000\n\
             voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t1\n"
        );
        fs::write(dir.join("status"), status).unwrap();
        fs::write(dir.join("wchan"), function).unwrap();
        fs::write(dir.join("stat"), "7 (a) D) D 1 7 7 0 -1 4194304 0").unwrap();
    }

    #[test]
    fn thread_is_stuck_that_sleeps_on_with_a_kill_before_it() {
        const KILL: &str = "0000000000000100";
        let dir = std::env::temp_dir().join(format!("keeper-thread-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let read = |state, pending, switches, function| {
            write_thread(&dir, state, pending, switches, function);
            StuckThread::read(dir.clone())
        };
        let stuck = read('D', KILL, 7, "wait_on_bit");
        // A shell that waits for a child of vfork(2), before it gets a signal.
        let unasked = read('D', "0000000000004000", 7, "do_vfork");
        let others = [
            read('S', KILL, 7, "wait_on_bit"),
            read('R', KILL, 7, "0"),
            read('D', KILL, 7, "__refrigerator"),
        ];
        let same = read('D', KILL, 7, "wait_on_bit");
        let ran = read('D', KILL, 8, "wait_on_bit");
        let stat = dir.join("stat");
        fs::write(&stat, "7 (a) D) D 1 7 7 0 -1 4194308 0").unwrap();
        let exits = is_exiting(&stat);
        fs::remove_dir_all(&dir).unwrap();
        assert!(stuck.is_some() && stuck == same && exits);
        assert_ne!(stuck, ran, "it has run in between");
        assert_eq!((unasked, others), (None, [None, None, None]));
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
    fn mount_with_blank_in_its_name_is_found() {
        let name = format!("keeper-mounts-{}", std::process::id());
        let thread = std::env::temp_dir().join(name);
        fs::create_dir(&thread).unwrap();
        let table = "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     2 1 0:9 / /mnt/a\\040b rw - nfs server:/a rw\n";
        fs::write(thread.join("mountinfo"), table).unwrap();
        let system = find_mount(&thread, Path::new("/mnt/a b/c d"));
        fs::remove_dir_all(&thread).unwrap();
        assert_eq!(system.as_deref(), Some("nfs of server:/a"));
    }

    #[test]
    fn hostile_name_cannot_forge_a_line() {
        assert_eq!(clean("a\nb\u{1b}[1m\u{e4} c"), "a?b?[1m? c");
    }
}
