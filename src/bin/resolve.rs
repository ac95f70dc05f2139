//! `resolve`: the unprivileged half, run by the PAM module at each login.

fn main() {}
