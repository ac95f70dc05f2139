mod companions;
pub(in crate::helper::devices) mod layout;
mod refusals;
mod vendors;
mod whole_nodes;
