//! Which job the ssh client of a login runs in (caller identity).
//!
//! The node that the client runs on, the *origin*, says which of its jobs owns a TCP connection; the
//! node that is logged in to asks it, by the Identification Protocol (RFC 1413), or itself where the
//! client runs on the same node. An answer is a job's id and nothing else, and whoever gave it: it
//! can only choose among the user's own jobs.
//!
//! ```text
//! asking node                                  origin
//! resolve -> Flow -> ask  -- port 113 -->  job-adopt callerid -> diag -> holder -> job
//! ```

mod ask;
pub mod diag;
mod flow;
mod holder;
mod ident;
mod networks;
mod serve;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub use ask::{AskError, ask};
pub use flow::{Flow, plain};
pub use holder::{Ground, holder};
pub use ident::{Answer, LINE_MAX, Query, Unreadable};
pub use networks::{Network, NetworkError, Networks};
pub use serve::{Connection, NoConnection, Patience};

/// The service's port (RFC 1413 section 1; `auth` in services(5)). Only root may listen there.
pub const PORT: u16 = 113;

/// Waits until `fd` can be read from or written to, as `flags` say, or has failed, which is told
/// where that is done.
/// Fails: `ETIMEDOUT`, else as `poll(2)`.
fn wait(fd: impl AsFd, flags: PollFlags, deadline: Instant) -> Result<(), Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::ETIMEDOUT);
        }
        // Rounded up: with less than a millisecond left poll(2) would not wait at all.
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
        match poll(&mut [PollFd::new(fd.as_fd(), flags)], timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}
