//! Reads and writes job records.
//!
//! `REGISTRY/UID/ID.json` is a running job, `REGISTRY/UID/ID.ended` notes that a job ended recently.
//! Root owns all files, and everybody can read them. A login reads only its own user's directory,
//! so that it costs the same however many jobs others have.

mod error;
mod prolog_environment;
mod read;
mod record;
mod resolved;
mod strict_json;
mod write;

pub use error::RecordError;
pub use prolog_environment::PrologEnvironment;
pub(crate) use prolog_environment::{UnusableVariable, id_variable};
pub use read::{Note, ReadError, Registry, UnusableFile, UserRecords};
pub use record::{Gpu, LoginTarget, Options, Record, RecordDevices, Via};
pub use resolved::{Major, NamedGpu, ResolvedList};
pub use write::RegisteredJob;
