//! `resolve`: the unprivileged half, run by the PAM module at each login.

use std::process::ExitCode;

fn main() -> ExitCode {
    pam_job_adopt::helper::main()
}
