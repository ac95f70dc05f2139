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

/// What a daemon does with its callers.
#[derive(Clone)]
pub(super) enum Manner {
    /// Says whose the job is and what it does.
    Says(u32, i32),
    /// The same a moment later, and counts how many are with it and its like.
    Counts(Arc<(AtomicUsize, AtomicUsize)>),
    /// Says after this time that it runs a job of uid 5.
    IsLate(Duration),
    /// Takes callers and says nothing.
    Hangs,
    /// Takes callers and hangs up.
    HangsUp,
    /// Hangs up in the midst of its answer, and gives a whole one to the next caller.
    HangsUpOnce(Arc<AtomicBool>),
    /// Says this many bytes that mean nothing.
    Babbles(usize),
}

/// Stand-ins for step daemons, each with a thread of its own, which end with it.
#[derive(Default)]
pub(crate) struct Daemons {
    over: Arc<AtomicBool>,
    threads: Vec<(PathBuf, JoinHandle<()>)>,
}

impl Daemons {
    pub(super) fn add(&mut self, path: &Path, manner: Manner) {
        let listener = UnixListener::bind(path).unwrap();
        let over = Arc::clone(&self.over);
        let thread = std::thread::spawn(move || {
            let mut held = Vec::new();
            for caller in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                serve(caller.unwrap(), &manner, &mut held);
            }
        });
        self.threads.push((path.to_owned(), thread));
    }

    /// A daemon of a job of `uid` that runs.
    pub(crate) fn running(&mut self, path: &Path, uid: u32) {
        self.add(path, Manner::Says(uid, RUNNING));
    }

    /// A daemon of a job of `uid` that starts.
    pub(crate) fn starting(&mut self, path: &Path, uid: u32) {
        self.add(path, Manner::Says(uid, STARTING));
    }

    /// A daemon of a job of `uid` that ends.
    pub(crate) fn ending(&mut self, path: &Path, uid: u32) {
        self.add(path, Manner::Says(uid, ENDING));
    }

    /// A daemon that does not answer.
    pub(crate) fn hung(&mut self, path: &Path) {
        self.add(path, Manner::Hangs);
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

pub(super) fn serve(mut caller: UnixStream, manner: &Manner, held: &mut Vec<UnixStream>) {
    let mut question = [0; schedulers::stepd::QUERY_LEN];
    let answer = |uid: u32, state: i32| {
        [(38_i32 << 8).to_ne_bytes(), uid.to_ne_bytes(), state.to_ne_bytes()].concat()
    };
    // A caller may have gone in the meantime.
    let _ = match manner {
        Manner::Hangs => {
            held.push(caller);
            Ok(())
        }
        Manner::HangsUp => Ok(()),
        Manner::IsLate(delay) => {
            std::thread::sleep(*delay);
            caller.write_all(&answer(5, RUNNING))
        }
        Manner::HangsUpOnce(done) => caller.read_exact(&mut question).and_then(|()| {
            let whole = answer(5, RUNNING);
            let length = if done.swap(true, Ordering::SeqCst) { whole.len() } else { 5 };
            caller.write_all(whole.get(..length).unwrap())
        }),
        Manner::Says(uid, state) => caller.read_exact(&mut question).and_then(|()| {
            assert_eq!(question, schedulers::stepd::query());
            caller.write_all(&answer(*uid, *state))
        }),
        Manner::Babbles(length) => {
            caller.read_exact(&mut question).and_then(|()| caller.write_all(&vec![0xff; *length]))
        }
        Manner::Counts(counts) => {
            let (now, most) = &**counts;
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(10));
            now.fetch_sub(1, Ordering::SeqCst);
            caller.write_all(&answer(5, RUNNING))
        }
    };
}
