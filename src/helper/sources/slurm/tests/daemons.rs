//! Stand-ins for Slurm's step daemons.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) const STARTING: i32 = 1;
pub(super) const RUNNING: i32 = 2;
pub(super) const ENDING: i32 = 3;

/// How a daemon treats its clients.
#[derive(Clone)]
pub(super) enum DaemonBehavior {
    /// Sends this owner and state.
    Answers(u32, i32),
    /// Answers a moment later, and counts its clients and those of all daemons like it.
    Counts(Arc<(AtomicUsize, AtomicUsize)>),
    /// Answers after this time that it runs a job of uid 5.
    IsLate(Duration),
    /// Accepts clients and does not answer.
    Hangs,
    /// Accepts clients and hangs up.
    HangsUp,
    /// Hangs up in the middle of its answer, and sends a complete one to the next client.
    HangsUpOnce(Arc<AtomicBool>),
    /// Sends this many meaningless bytes.
    Babbles(usize),
}

/// Stand-ins for step daemons, each with its own thread. Dropping them ends the threads.
#[derive(Default)]
pub(crate) struct Daemons {
    over: Arc<AtomicBool>,
    threads: Vec<(PathBuf, JoinHandle<()>)>,
}

impl Daemons {
    pub(super) fn add(&mut self, path: &Path, behavior: DaemonBehavior) {
        let listener = UnixListener::bind(path).unwrap();
        let over = Arc::clone(&self.over);
        let thread = std::thread::spawn(move || {
            let mut open_callers = Vec::new();
            for caller in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                serve_caller(caller.unwrap(), &behavior, &mut open_callers);
            }
        });
        self.threads.push((path.to_owned(), thread));
    }

    /// Adds a daemon whose job of `uid` runs.
    pub(crate) fn running(&mut self, path: &Path, uid: u32) {
        self.add(path, DaemonBehavior::Answers(uid, RUNNING));
    }

    /// Adds a daemon whose job of `uid` starts.
    pub(crate) fn starting(&mut self, path: &Path, uid: u32) {
        self.add(path, DaemonBehavior::Answers(uid, STARTING));
    }

    /// Adds a daemon whose job of `uid` ends.
    pub(crate) fn ending(&mut self, path: &Path, uid: u32) {
        self.add(path, DaemonBehavior::Answers(uid, ENDING));
    }

    /// Adds a daemon that does not answer.
    pub(crate) fn hung(&mut self, path: &Path) {
        self.add(path, DaemonBehavior::Hangs);
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for (path, thread) in self.threads.drain(..) {
            let _ = UnixStream::connect(&path);
            let _ = thread.join();
        }
    }
}

pub(super) fn serve_caller(
    mut caller: UnixStream,
    behavior: &DaemonBehavior,
    open_callers: &mut Vec<UnixStream>,
) {
    let mut question = [0; schedulers::stepd::QUERY_BYTES];
    let answer = |uid: u32, state: i32| {
        [(38_i32 << 8).to_ne_bytes(), uid.to_ne_bytes(), state.to_ne_bytes()].concat()
    };
    // Ignore the error: a client may have disconnected.
    let _ = match behavior {
        DaemonBehavior::Hangs => {
            open_callers.push(caller);
            Ok(())
        }
        DaemonBehavior::HangsUp => Ok(()),
        DaemonBehavior::IsLate(delay) => {
            std::thread::sleep(*delay);
            caller.write_all(&answer(5, RUNNING))
        }
        DaemonBehavior::HangsUpOnce(done) => caller.read_exact(&mut question).and_then(|()| {
            let whole = answer(5, RUNNING);
            let length = if done.swap(true, Ordering::SeqCst) { whole.len() } else { 5 };
            caller.write_all(whole.get(..length).unwrap())
        }),
        DaemonBehavior::Answers(uid, state) => caller.read_exact(&mut question).and_then(|()| {
            assert_eq!(question, schedulers::stepd::encode_query());
            caller.write_all(&answer(*uid, *state))
        }),
        DaemonBehavior::Babbles(length) => {
            caller.read_exact(&mut question).and_then(|()| caller.write_all(&vec![0xff; *length]))
        }
        DaemonBehavior::Counts(counts) => {
            let (now, max) = &**counts;
            max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(10));
            now.fetch_sub(1, Ordering::SeqCst);
            caller.write_all(&answer(5, RUNNING))
        }
    };
}
