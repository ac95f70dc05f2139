//! `check`: everything that an admin should know before going live.
//!
//! Each check looks at one thing and changes nothing; a finding says what is the matter and what to
//! do about it.

mod finding;
mod node;
mod scene;
mod site;
