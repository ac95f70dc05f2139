//! `job-adopt`: the command for people, and for schedulers' prolog and epilog scripts.

fn main() -> std::process::ExitCode {
    admin::main(env!("BUILD"))
}
