//! Services of a node that are started per connection.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::{Node, ROOT, Tool, User};

/// A listener, until it is dropped.
#[derive(Debug)]
pub(crate) struct Inetd {
    listener: Child,
}

impl Node {
    /// Runs a program on each connection to `port` at `address`, where `::` is IPv4's too.
    pub(crate) fn inetd(&self, address: &str, port: u16, program: &[&str]) -> Inetd {
        self.inetd_of(ROOT, address, port, program)
    }

    /// The same as that user.
    pub(crate) fn inetd_of(&self, user: User, address: &str, port: u16, program: &[&str]) -> Inetd {
        self.install(&Tool::Inetd.path(), "/usr/bin/inetd");
        let id = user.uid.to_string();
        let mut command = self.daemon(&self.outside(), "setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        command.args(["inetd", address, &port.to_string()]).args(program);
        let listener = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut inetd = Inetd { listener };
        let mut said = String::new();
        let mut output = BufReader::new(inetd.listener.stdout.take().unwrap());
        output.read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "nothing listens at {address} {port}");
        inetd
    }
}

impl Drop for Inetd {
    fn drop(&mut self) {
        // It ends with its input, and what was started waits for it.
        drop(self.listener.stdin.take());
        let _ = self.listener.wait();
    }
}
