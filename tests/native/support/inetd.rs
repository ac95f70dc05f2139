//! Services of a node that are started per connection.

use std::process::{Child, Stdio};

use super::{Node, Tool, eventually};

/// A listener, until it is dropped.
#[derive(Debug)]
pub(crate) struct Inetd {
    listener: Child,
}

impl Node {
    /// Runs a program on each connection to `port` at `address`, where `::` is IPv4's too.
    pub(crate) fn inetd(&self, address: &str, port: u16, program: &[&str]) -> Inetd {
        self.install(&Tool::Inetd.path(), "/usr/bin/inetd");
        let ready = format!("/run/inetd-{port}");
        let _ = std::fs::remove_file(self.path(&ready));
        let mut command = self.daemon(&self.outside(), "inetd");
        command.args([address, &port.to_string()]).args(program);
        let listener = command.stdout(Stdio::null()).spawn().unwrap();
        eventually("the service listens", || self.exists(&ready));
        Inetd { listener }
    }
}

impl Drop for Inetd {
    fn drop(&mut self) {
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}
