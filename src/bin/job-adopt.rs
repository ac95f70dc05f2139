//! `job-adopt`: for people, and for schedulers' prolog and epilog scripts.

fn main() -> std::process::ExitCode {
    pam_job_adopt::admin::main()
}
