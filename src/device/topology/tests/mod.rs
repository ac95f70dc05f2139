mod companions;
mod layout;
mod refusals;
mod vendors;
mod whole_nodes;
