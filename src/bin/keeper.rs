//! `keeper`: ends the logins of a job whose scheduler would not; started by the PAM module.

fn main() -> std::process::ExitCode {
    keeper::main()
}
