//! Against sockets of this process.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::kernel::cgroup::{Membership, Mount};

/// A listener, and a client and a server that are connected.
struct Connected {
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl Connected {
    fn new(listen: &str, call: &str) -> Self {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((call, port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        Self { listener, client, server }
    }

    fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.client.local_addr().unwrap(), self.client.peer_addr().unwrap())
    }
}

/// What the kernel has to say of sockets that this process makes.
fn own() -> Option<Owner> {
    let membership = Membership::own().unwrap();
    let path = membership.unified().unwrap().trim_start_matches('/').to_owned();
    let mount = Mount::open().unwrap().path();
    let cgroup = std::fs::metadata(std::path::Path::new(mount).join(path)).unwrap().ino();
    Some(Owner { uid: nix::unistd::geteuid().as_raw(), cgroup })
}

#[test]
fn both_ends_are_found_in_each_family() {
    for (listen, call) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")] {
        let connected = Connected::new(listen, call);
        let (client, server) = connected.ends();
        assert_eq!(owner(client, server), Ok(own()), "{listen}");
        assert_eq!(owner(server, client), Ok(own()), "{listen}: the accepted end");
        let (local, peer) =
            (connected.server.local_addr().unwrap(), connected.server.peer_addr().unwrap());
        assert_eq!(owner(local, peer), Ok(own()), "{listen}: as the server names them");
    }
}

#[test]
fn a_client_of_ipv6_with_mapped_addresses_is_found() {
    let connected = Connected::new("127.0.0.1", "::ffff:127.0.0.1");
    let (client, server) = connected.ends();
    assert_eq!(owner(client, server), Ok(own()));
    assert_eq!(owner(plain(client), plain(server)), Ok(own()));
}

#[test]
fn what_is_no_connection_is_nobodys() {
    let connected = Connected::new("127.0.0.1", "127.0.0.1");
    let (client, server) = connected.ends();
    let at = |end: SocketAddr, port| SocketAddr::new(end.ip(), port);
    let other: SocketAddr = "127.0.0.2:9".parse().unwrap();
    for (what, local, remote) in [
        ("only who listens there", server, at(client, 1)),
        ("a listener and another host", server, other),
        ("another port", client, at(server, server.port() ^ 1)),
        ("another own port", at(client, 1), server),
        ("another host", client, at(other, server.port())),
        ("two families", client, "[::1]:22".parse().unwrap()),
        ("itself", client, client),
    ] {
        assert_eq!(owner(local, remote), Ok(None), "{what}");
    }
}

#[test]
fn a_connection_that_is_over_is_nobodys() {
    let connected = Connected::new("127.0.0.1", "127.0.0.1");
    let (client, server) = connected.ends();
    let Connected { listener, client: first, server: mut second } = connected;
    // The end that closes first is the one that waits (TIME_WAIT).
    drop(first);
    assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(owner(server, client), Ok(None), "half closed");
    drop(second);
    assert_eq!(owner(client, server), Ok(None), "TIME_WAIT");
    assert_eq!(owner(server, client), Ok(None), "who still listens");
    drop(listener);
    assert_eq!(owner(server, client), Ok(None), "nobody");
}
