//! Job records: where they lie, what they say, and how they are read.
//!
//! `REGISTRY/UID/ID.json` is a running job, `REGISTRY/UID/ID.ended` the note that one ended a
//! moment ago. Everything is root's and readable by all. Only the directory of the user who logs
//! in is ever looked at, so that a login costs the same however many jobs others have.

#![forbid(unsafe_code)]

mod environment;
mod error;
mod layout;
mod note;
mod read;
mod record;
mod salvage;
mod wire;
mod write;

pub use environment::Environment;
pub use error::{RecordError, WriteError};
pub use layout::Registry;
pub use note::{NOTE_VALID, Note};
pub use read::{Broken, ReadError, UserRecords};
pub use record::{Devices, Gpu, Options, Place, Record, Via};
pub use write::Known;
