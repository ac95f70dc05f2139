//! The files under test: those that `make` installs, else those that cargo has just built.

use std::path::{Path, PathBuf};

/// Folder of the helper, and of its fakes, on a node.
pub(crate) const LIBEXEC: &str = "/usr/libexec/job-adopt";

/// One file of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Artifact {
    /// The PAM module.
    Module,
    /// The unprivileged helper.
    Helper,
    /// The program that ends the logins of a Flux job.
    Keeper,
    /// The `job-adopt` command.
    Program,
}

/// Returns the folder with the finished files, if `make` runs the tests.
pub(crate) fn finished_dir() -> Option<PathBuf> {
    std::env::var_os("JOB_ADOPT_ARTIFACTS").map(PathBuf::from)
}

/// Returns the path of the file under test.
pub(crate) fn artifact_path(artifact: Artifact) -> PathBuf {
    finished_dir().map_or_else(
        || built_path(artifact),
        |folder| folder.join(names(artifact).0),
    )
}

/// Returns the path of the file that cargo built beside this test, with debug assertions.
pub(crate) fn built_path(artifact: Artifact) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_job-adopt")).parent().unwrap();
    folder.join(names(artifact).1)
}

/// Returns the path of the module on a node, in the folder of this machine's PAM modules.
pub(crate) fn module_path() -> String {
    let folder = [
        "/usr/lib/x86_64-linux-gnu/security",
        "/usr/lib/aarch64-linux-gnu/security",
        "/usr/lib64/security",
        "/usr/lib/security",
    ]
    .into_iter()
    .find(|folder| Path::new(folder).join("pam_permit.so").exists());
    format!(
        "{}/pam_job_adopt.so",
        folder.expect("no folder of PAM modules")
    )
}

/// Returns the names that `make` and cargo give the file.
fn names(artifact: Artifact) -> (&'static str, &'static str) {
    match artifact {
        Artifact::Module => ("pam_job_adopt.so", "libpam_job_adopt.so"),
        Artifact::Helper => ("helper", "helper"),
        Artifact::Keeper => ("keeper", "keeper"),
        Artifact::Program => ("job-adopt", "job-adopt"),
    }
}
