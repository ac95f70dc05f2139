//! Stand-ins for Slurm's step daemons.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::clock::manual::ManualClock;
use schedulers::stepd::{QUERY_BYTES, encode_query};

pub(super) const STARTING: i32 = 1;
pub(super) const RUNNING: i32 = 2;
pub(super) const ENDING: i32 = 3;

/// How long a daemon that counts its clients takes to answer.
const COUNTING_TIME: Duration = Duration::from_millis(10);

/// How a daemon treats its clients.
pub(super) enum DaemonBehavior {
    /// Sends this owner and state.
    Answers(u32, i32),
    /// Answers a moment later, and counts the clients of all daemons like it.
    Counts(Rc<ClientCount>),
    /// Answers after this time that it runs a job of uid 5.
    IsLate(Duration),
    /// Accepts clients and does not answer.
    Hangs,
    /// Accepts clients and hangs up.
    HangsUp,
    /// Hangs up in the middle of its answer, and sends a complete one to the next client.
    HangsUpOnce,
    /// Sends this many meaningless bytes.
    Babbles(usize),
}

/// The number of clients that wait at the same moment.
#[derive(Default)]
pub(super) struct ClientCount {
    current: Cell<usize>,
    pub(super) max: Cell<usize>,
}

/// Stand-ins for step daemons, which act while the query waits.
#[derive(Clone)]
pub(crate) struct Daemons(Rc<RefCell<Vec<Daemon>>>);

struct Daemon {
    listener: UnixListener,
    behavior: DaemonBehavior,
    /// Clients without an answer, and when each came.
    clients: Vec<(UnixStream, Duration)>,
}

impl Daemons {
    /// Makes daemons that live by that clock, until the last clone of this value is dropped.
    pub(crate) fn new(clock: &ManualClock) -> Self {
        let daemons = Self(Rc::default());
        let all = Rc::downgrade(&daemons.0);
        clock.add_actor(move |now| {
            let all = all.upgrade()?;
            all.borrow_mut()
                .iter_mut()
                .filter_map(|daemon| daemon.act(now))
                .min()
        });
        daemons
    }

    pub(super) fn add(&self, path: &Path, behavior: DaemonBehavior) {
        self.add_listener(UnixListener::bind(path).unwrap(), behavior);
    }

    pub(super) fn add_listener(&self, listener: UnixListener, behavior: DaemonBehavior) {
        listener.set_nonblocking(true).unwrap();
        self.0.borrow_mut().push(Daemon {
            listener,
            behavior,
            clients: Vec::new(),
        });
    }

    /// Adds a daemon whose job of `uid` runs.
    pub(crate) fn running(&self, path: &Path, uid: u32) {
        self.add(path, DaemonBehavior::Answers(uid, RUNNING));
    }

    /// Adds a daemon whose job of `uid` starts.
    pub(crate) fn starting(&self, path: &Path, uid: u32) {
        self.add(path, DaemonBehavior::Answers(uid, STARTING));
    }

    /// Adds a daemon whose job of `uid` ends.
    pub(crate) fn ending(&self, path: &Path, uid: u32) {
        self.add(path, DaemonBehavior::Answers(uid, ENDING));
    }

    /// Adds a daemon that does not answer.
    pub(crate) fn hung(&self, path: &Path) {
        self.add(path, DaemonBehavior::Hangs);
    }
}

impl Daemon {
    /// Does what is due; returns when it acts next without a new client.
    fn act(&mut self, now: Duration) -> Option<Duration> {
        while let Ok((client, _)) = self.listener.accept() {
            if let DaemonBehavior::Counts(count) = &self.behavior {
                count.current.set(count.current.get() + 1);
                count.max.set(count.max.get().max(count.current.get()));
            }
            self.clients.push((client, now));
        }
        let answer_time = match &self.behavior {
            DaemonBehavior::IsLate(time) => *time,
            DaemonBehavior::Counts(_) => COUNTING_TIME,
            DaemonBehavior::Hangs => return None,
            _ => Duration::ZERO,
        };
        let is_due = |(_, came): &(UnixStream, Duration)| *came + answer_time <= now;
        let (due, later) = self.clients.drain(..).partition::<Vec<_>, _>(is_due);
        self.clients = later;
        due.into_iter()
            .for_each(|(client, _)| self.behavior.answer(client));
        self.clients
            .iter()
            .map(|(_, came)| *came + answer_time)
            .min()
    }
}

impl DaemonBehavior {
    fn answer(&mut self, mut client: UnixStream) {
        if matches!(self, Self::HangsUp) {
            return;
        }
        let mut question = [0; QUERY_BYTES];
        client.read_exact(&mut question).unwrap();
        assert_eq!(question, encode_query());
        let encode = |uid: u32, state: i32| {
            [
                (38_i32 << 8).to_ne_bytes(),
                uid.to_ne_bytes(),
                state.to_ne_bytes(),
            ]
            .concat()
        };
        let answer = match self {
            Self::Answers(uid, state) => encode(*uid, *state),
            Self::IsLate(_) => encode(5, RUNNING),
            Self::Counts(count) => {
                count.current.set(count.current.get() - 1);
                encode(5, RUNNING)
            }
            Self::HangsUpOnce => {
                *self = Self::Answers(5, RUNNING);
                encode(5, RUNNING).into_iter().take(5).collect()
            }
            Self::Babbles(length) => vec![0xff; *length],
            Self::Hangs | Self::HangsUp => Vec::new(),
        };
        // Ignore the error: a client may have disconnected.
        let _ = client.write_all(&answer);
    }
}
