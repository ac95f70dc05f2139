//! What is on this node, each fact with one reader. A reader neither judges nor prints, and imports no command.

pub(crate) mod jobs;
