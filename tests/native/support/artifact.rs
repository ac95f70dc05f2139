//! What is under test: the files that `make` installs, else what cargo has just built.

use std::path::{Path, PathBuf};

/// One file of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Artifact {
    /// The PAM module.
    Module,
    /// The unprivileged helper.
    Helper,
    /// What ends the logins of a job of Flux's.
    Keeper,
    /// The admin's program.
    Program,
}

/// Where `make` has put the finished files, if it runs the tests.
pub(crate) fn finished() -> Option<PathBuf> {
    std::env::var_os("JOB_ADOPT_ARTIFACTS").map(PathBuf::from)
}

/// Path of the file.
pub(crate) fn artifact(artifact: Artifact) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_job-adopt")).parent().unwrap();
    let (finished_name, built_name) = match artifact {
        Artifact::Module => ("pam_job_adopt.so", "deps/libpam_job_adopt.so"),
        Artifact::Helper => ("resolve", "resolve"),
        Artifact::Keeper => ("keeper", "keeper"),
        Artifact::Program => ("job-adopt", "job-adopt"),
    };
    finished().map_or_else(|| built.join(built_name), |folder| folder.join(finished_name))
}
