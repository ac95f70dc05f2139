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
    finished().map_or_else(|| built(artifact), |folder| folder.join(names(artifact).0))
}

/// Path of the file as cargo has built it, with debug assertions, beside this test.
pub(crate) fn built(artifact: Artifact) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_job-adopt")).parent().unwrap();
    folder.join(names(artifact).1)
}

/// What `make` calls it, and cargo.
fn names(artifact: Artifact) -> (&'static str, &'static str) {
    match artifact {
        Artifact::Module => ("pam_job_adopt.so", "deps/libpam_job_adopt.so"),
        Artifact::Helper => ("resolve", "resolve"),
        Artifact::Keeper => ("keeper", "keeper"),
        Artifact::Program => ("job-adopt", "job-adopt"),
    }
}
