//! Helpers that misbehave.

use pam_job_adopt::protocol::Reply;

use super::node::LIBEXEC;
use super::{Node, Tool};

/// A fake helper, built up verb by verb; see `tools/fake.c`.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    verbs: String,
    reply: Vec<u8>,
    again: Vec<u8>,
}

impl Fake {
    /// Reads its request and ends well without a word.
    pub(crate) fn new() -> Self {
        Self::default().verb("read", 0)
    }

    /// Does one more thing.
    pub(crate) fn verb(mut self, verb: &str, number: u64) -> Self {
        self.verbs += &format!("{verb} {number}\n");
        self
    }

    /// Answers with these bytes.
    pub(crate) fn says(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.reply = bytes.into();
        self.verb("reply", 0)
    }

    /// As [`Fake::says`], with a pause of so many microseconds behind each byte.
    pub(crate) fn pauses(mut self, bytes: &[u8], pause: u64) -> Self {
        self.reply = bytes.into();
        self.verb("reply", pause)
    }

    /// Answers with this reply.
    pub(crate) fn answers(self, reply: &Reply) -> Self {
        self.says(reply.encode())
    }

    /// Answers a second question with this reply.
    pub(crate) fn then(mut self, reply: &Reply) -> Self {
        self.again = reply.encode();
        self
    }

    /// Puts it in the helper's place.
    pub(crate) fn install(self, node: &Node) {
        let path = format!("{LIBEXEC}/resolve");
        node.install(&Tool::Fake.path(), &path);
        node.write(&format!("{path}.play"), &self.verbs);
        std::fs::write(node.path(&format!("{path}.reply")), &self.reply).unwrap();
        std::fs::write(node.path(&format!("{path}.again")), &self.again).unwrap();
    }
}
