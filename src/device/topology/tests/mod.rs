mod companions;
pub(in crate::device) mod layout;
mod refusals;
mod vendors;
mod whole_nodes;
