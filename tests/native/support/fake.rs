//! Helpers that misbehave.

use protocol::Reply;

use super::artifact::LIBEXEC;
use super::{Node, Tool};

/// A fake helper, built verb by verb (`tools/fake.c`).
#[derive(Debug, Default)]
pub(crate) struct Fake {
    verbs: String,
    reply: Vec<u8>,
    again: Vec<u8>,
}

impl Fake {
    /// Reads its request and exits with status 0 without a reply.
    pub(crate) fn new() -> Self {
        Self::default().verb("read", 0)
    }

    /// Adds one action.
    pub(crate) fn verb(mut self, verb: &str, number: u64) -> Self {
        self.verbs += &format!("{verb} {number}\n");
        self
    }

    /// Writes these bytes.
    pub(crate) fn says(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.reply = bytes.into();
        self.verb("reply", 0)
    }

    /// Writes these bytes with a pause of `pause` microseconds after each.
    pub(crate) fn pauses(mut self, bytes: &[u8], pause: u64) -> Self {
        self.reply = bytes.into();
        self.verb("reply", pause)
    }

    /// Writes this reply.
    pub(crate) fn answers(self, reply: &Reply) -> Self {
        self.says(reply.encode())
    }

    /// Writes this reply to a second request.
    pub(crate) fn then(mut self, reply: &Reply) -> Self {
        self.again = reply.encode();
        self
    }

    /// Installs the fake in place of the helper.
    pub(crate) fn install(self, node: &Node) {
        self.install_as(node, "helper");
    }

    /// Installs the fake in place of that program.
    pub(crate) fn install_as(self, node: &Node, program: &str) {
        let path = format!("{LIBEXEC}/{program}");
        node.install(&Tool::Fake.path(), &path);
        node.write(&format!("{path}.play"), &self.verbs);
        std::fs::write(node.path(&format!("{path}.reply")), &self.reply).unwrap();
        std::fs::write(node.path(&format!("{path}.again")), &self.again).unwrap();
    }
}
