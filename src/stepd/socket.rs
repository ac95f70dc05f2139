//! The socket of a step daemon: whose it is, and who listens there.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use nix::sys::stat::{SFlag, fstatat};

use super::{Error, Result, SocketName};
use crate::trust::TrustedDir;

/// How long to wait before a daemon that has too many callers is called again: such a socket
/// cannot be polled for room (unix(7)).
pub const AGAIN: Duration = Duration::from_millis(2);

/// A connection to a daemon, which never blocks.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub socket: OwnedFd,
    /// Who listens there, as the kernel knows it from when it began to.
    pub pid: i32,
}

/// When a socket was made, in seconds since the epoch.
///
/// # Errors
/// [`Error::Gone`]; [`Error::NotRoots`] for what has a socket's name and is none, or is not
/// `owner`'s: it may be in the place of one.
pub fn made(spool: &TrustedDir, name: &SocketName, owner: u32) -> Result<i64> {
    let stat = fstatat(spool, name.to_string().as_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        .map_err(|errno| missing("stat", errno))?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    if kind == SFlag::S_IFSOCK && stat.st_uid == owner {
        Ok(stat.st_ctime)
    } else {
        Err(Error::NotRoots)
    }
}

/// Calls the daemon behind a socket; `None` while it has too many callers.
///
/// # Errors
/// [`Error::Gone`], [`Error::Peer`] for one that is not `owner`'s.
pub fn call(path: &Path, owner: u32) -> Result<Option<Connection>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .map_err(|errno| Error::System("socket", errno))?;
    let address = UnixAddr::new(path).map_err(|errno| Error::System("connect", errno))?;
    match connect(socket.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
        Err(errno) => return Err(missing("connect", errno)),
    }
    let peer = getsockopt(&socket, PeerCredentials)
        .map_err(|errno| Error::System("getsockopt SO_PEERCRED", errno))?;
    if peer.uid() != owner {
        return Err(Error::Peer(peer.uid()));
    }
    Ok(Some(Connection { socket, pid: peer.pid() }))
}

fn missing(call: &'static str, errno: Errno) -> Error {
    match errno {
        Errno::ENOENT | Errno::ECONNREFUSED => Error::Gone,
        errno => Error::System(call, errno),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;
    use crate::trust::tests::Scratch;

    pub(crate) fn own_uid() -> u32 {
        nix::unistd::Uid::effective().as_raw()
    }

    /// A socket whose owner takes no calls, and as many callers as it lets wait.
    pub(crate) fn crowded(path: &Path) -> (UnixListener, Vec<Connection>) {
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let mut callers = Vec::new();
        while let Some(connection) = call(path, own_uid()).unwrap() {
            callers.push(connection);
        }
        (listener.into(), callers)
    }

    #[test]
    fn who_listens_is_told_and_nobody_else_is_spoken_to() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        assert_eq!(call(&path, own_uid()).unwrap_err(), Error::Gone);
        let listener = UnixListener::bind(&path).unwrap();
        let connection = call(&path, own_uid()).unwrap().unwrap();
        assert_eq!(connection.pid, nix::unistd::getpid().as_raw());
        assert_eq!(call(&path, own_uid() + 1).unwrap_err(), Error::Peer(own_uid()));
        drop(listener);
        assert_eq!(call(&path, own_uid()).unwrap_err(), Error::Gone, "nobody listens");
    }

    #[test]
    fn one_that_has_too_many_callers_does_not_hold_up_another() {
        let scratch = Scratch::new();
        let (_listener, callers) = crowded(&scratch.path().join("socket"));
        assert!(!callers.is_empty());
    }

    #[test]
    fn only_a_socket_of_its_owner_is_one() {
        let scratch = Scratch::new();
        let spool = scratch.trust().dir(scratch.path()).unwrap();
        let name = SocketName::parse("n_1.4294967292").unwrap();
        let path = scratch.path().join(name.to_string());
        assert_eq!(made(&spool, &name, own_uid()), Err(Error::Gone));
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(made(&spool, &name, own_uid()).unwrap() > 0);
        assert_eq!(made(&spool, &name, own_uid() + 1), Err(Error::NotRoots));
        std::fs::rename(&path, scratch.path().join("real")).unwrap();
        symlink("real", &path).unwrap();
        assert_eq!(made(&spool, &name, own_uid()), Err(Error::NotRoots), "a link");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(made(&spool, &name, own_uid()), Err(Error::NotRoots), "a file");
    }
}
