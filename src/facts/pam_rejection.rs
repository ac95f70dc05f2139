//! What to do about a line of a PAM stack that libpam rejects.

use helper::stack::Rejection;

/// Names what to do about a line that libpam rejects, or that its versions read differently.
pub fn rejection_remedy(why: &Rejection) -> &'static str {
    match why {
        Rejection::ContinuedOverGap => "remove the empty lines and comments within it",
        Rejection::TooLong(_) => {
            "write less than 1,024 bytes: a shorter comment, or one group with the members of many"
        }
        Rejection::Unfinished => "remove the backslash at its end",
        Rejection::FalseBlank('\r') => "give the file the line ends of Unix (dos2unix)",
        Rejection::FalseBlank(_) => "write an ordinary blank there, or nothing",
        Rejection::HugeJump(_) => "write the number of lines that it is to jump over",
        Rejection::MissingModule(path) if path.is_absolute() => {
            "write pam_job_adopt.so without a path"
        }
        Rejection::MissingModule(_) => {
            "install the module again; job-adopt disable takes our lines out instead: then everybody gets in"
        }
        Rejection::PamConf => "write the service's lines into a file of its own in /etc/pam.d",
        Rejection::UnknownGroup(_)
        | Rejection::NoControl
        | Rejection::NoModule
        | Rejection::NoFile
        | Rejection::UnusableModuleName(_)
        | Rejection::BadControl(_) => "correct this line, or remove it (man pam.conf)",
    }
}
