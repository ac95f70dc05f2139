//! Checks that the module can be loaded, as libpam does.

use super::finding::{Check, Finding};
use super::remedy::Remedy;
use command::child_process::run_in_child;
use command::sys::process::load_shared_object;
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The result of loading the module as libpam would.
#[derive(Debug)]
pub(super) enum Loading {
    Done,
    Failed(String),
    /// No child process could load it, or the cause of its failure was lost.
    Unknown,
}

impl Loading {
    /// Loads the module in a child, as libpam would.
    pub(super) fn run(module: &Path) -> Self {
        load_in_child(module).unwrap_or(Self::Unknown)
    }

    /// Judges whether the module can be loaded: one for another C library or architecture refuses every login.
    pub(super) fn finding(&self, module: &Path) -> Finding {
        let object = module.display();
        match self {
            Self::Done => Finding::fine(Check::ModuleLoaded, object, "can be loaded"),
            Self::Failed(why) => {
                let text =
                    format!("cannot be loaded, so every login is refused, root's too: {why}");
                let remedy = bring_back(
                    "install the module for this system's C library again (dpkg --verify or rpm --verify shows what \
                     has changed)",
                );
                Finding::error(Check::ModuleLoaded, object, text, remedy)
            }
            Self::Unknown => {
                let text = "could not be tried: no child process could load it";
                Finding::unknown(Check::ModuleLoaded, object, text, "run this again")
            }
        }
    }
}

/// The remedy for a module without which libpam refuses every login: `advice`. What opens the node instead is only for a
/// person.
pub(super) fn bring_back(advice: &str) -> Remedy {
    format!(
        "{advice}; if root must log in before, job-adopt disable takes our lines out: then everybody gets in"
    )
    .into()
}

/// Loads a shared object in a child, so that its code does not run in this process. The child writes the cause
/// of a failure into a socket. This function itself fails if there can be no child or no socket, and if the child takes
/// too long.
fn load_in_child(module: &Path) -> io::Result<Loading> {
    const LOADED: i32 = 0;
    const NOT_LOADED: i32 = 1;
    const CAUSE_LOST: i32 = 2;
    let path = CString::new(module.as_os_str().as_bytes())?;
    let (mut read, mut write) = UnixStream::pair()?;
    let result = run_in_child(|| match load_shared_object(&path) {
        Ok(()) => LOADED,
        Err(why) => match write.write_all(why.as_bytes()) {
            Ok(()) => NOT_LOADED,
            Err(_) => CAUSE_LOST,
        },
    });
    let status = match result {
        // A signal ended it: a file that is cut off crashes whoever loads it.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Ok(Loading::Failed("it crashes the process".to_owned()));
        }
        result => result?,
    };
    drop(write);
    let mut why = String::new();
    read.read_to_string(&mut why)?;
    Ok(match status {
        LOADED => Loading::Done,
        NOT_LOADED => Loading::Failed(why),
        _ => Loading::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn module_that_cannot_be_loaded_is_an_error() {
        let module = Path::new("/m.so");
        assert_eq!(Loading::Done.finding(module).severity, Severity::Fine);
        assert_eq!(Loading::Unknown.finding(module).severity, Severity::Unknown);
        let failed = Loading::Failed("GLIBC_9.1 not found".to_owned()).finding(module);
        assert_eq!(failed.severity, Severity::Error);
        assert!(failed.text.ends_with("GLIBC_9.1 not found"), "{failed:?}");
    }

    /// `disable` lets everybody in. Which packages there are, and from where, is for a person.
    #[test]
    fn module_that_cannot_be_loaded_has_no_command() {
        let finding = Loading::Failed(String::new()).finding(Path::new("/m.so"));
        let remedy = finding.remedy;
        assert_eq!(remedy.command(), "");
        for advice in ["rpm --verify", "job-adopt disable takes our lines out"] {
            assert!(remedy.advice().contains(advice), "{remedy:?}");
        }
    }
}
