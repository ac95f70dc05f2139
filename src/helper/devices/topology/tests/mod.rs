mod companions;
pub(in crate::helper) mod layout;
mod refusals;
mod vendors;
mod whole_nodes;
