mod amd;
mod companions;
pub(crate) mod layout;
mod numbering;
mod refusals;
mod vendors;
