//! The modules of a PAM stack that take logins into jobs as ours does.

use helper::stack::Entry;

/// Modules that, like ours, decide who may log in, or into which job.
pub const RIVAL_MODULES: [&str; 10] = [
    "libcsmpam.so",
    "pam_bright.so",
    "pam_crane.so",
    "pam_csession.so",
    "pam_flux.so",
    "pam_oar_adopt",
    "pam_pbssimpleauth.so",
    "pam_sge_authorize.so",
    "pam_slurm.so",
    "pam_slurm_adopt.so",
];

/// Programs that do the work of such a module, run by `pam_exec`.
const MODULE_PROGRAMS: [&str; 1] = ["pam_oar_adopt"];

/// The file name of a line's module, or of the program of `MODULE_PROGRAMS` that it runs.
pub fn module_name(entry: &Entry) -> &str {
    if entry.file() != "pam_exec.so" {
        return entry.file();
    }
    let mut words = entry
        .arguments
        .iter()
        .filter_map(|word| word.rsplit('/').next());
    words
        .find(|name| MODULE_PROGRAMS.contains(name))
        .unwrap_or("pam_exec.so")
}
