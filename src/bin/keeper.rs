//! `keeper`: ends the logins of a Flux job; started by the PAM module.

fn main() -> std::process::ExitCode {
    keeper::main()
}
