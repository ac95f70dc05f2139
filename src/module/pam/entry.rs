//! The entry points that libpam looks up by name (pam_sm_acct_mgmt(3), pam_sm_open_session(3)).

#![allow(unsafe_code)]

use super::call::{answer, panicked};
use crate::kernel::sys::pam::{Handle, arguments};
use crate::protocol::Phase;
use pam_sys::{PamHandle, PamReturnCode};
use std::ffi::{c_char, c_int};
use std::panic::{catch_unwind, set_hook};

/// `account`: has the user a job here? Moves nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_acct_mgmt(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    caught(Phase::Account, handle, flags, argc, argv)
}

/// `session`: takes the login into the job.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_open_session(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    caught(Phase::Session, handle, flags, argc, argv)
}

/// Entry points that answer the same to whatever they are asked.
macro_rules! always {
    ($($(#[$doc:meta])* $name:ident $answer:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            _handle: *mut PamHandle,
            _flags: c_int,
            _argc: c_int,
            _argv: *const *const c_char,
        ) -> c_int {
            PamReturnCode::$answer as c_int
        }
    )*};
}

always! {
    /// Nothing to undo: the login ends with its processes, and sshd does not always get here.
    pam_sm_close_session SUCCESS;
    /// Nothing is ours to answer in `auth`. A line of ours there is left to the other modules, where
    /// a missing function would refuse root as well.
    pam_sm_authenticate IGNORE;
    /// As [`pam_sm_authenticate`].
    pam_sm_setcred IGNORE;
}

/// No panic crosses into C: it becomes a refusal, and what was begun has been undone on the way.
fn caught(
    phase: Phase,
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let refused = match phase {
        Phase::Account => PamReturnCode::PERM_DENIED,
        Phase::Session => PamReturnCode::SESSION_ERR,
    };
    // The default hook would write to sshd's standard error. This one belongs to this library's
    // own copy of the standard library and is nobody else's.
    set_hook(Box::new(|_| {}));
    let answered = catch_unwind(move || {
        // SAFETY: libpam passes the handle of this call, and lends it until we return.
        let Some(handle) = (unsafe { Handle::from_raw(handle) }) else { return refused };
        // SAFETY: libpam passes argc strings, or null when there are none.
        let arguments = unsafe { arguments(argc, argv) };
        answer(phase, &handle, flags, &arguments)
    });
    let code = answered.unwrap_or_else(|payload| {
        let words = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
        let words = words.or_else(|| payload.downcast_ref::<String>().cloned());
        let _ = catch_unwind(|| panicked(phase, &words.unwrap_or_default()));
        refused
    });
    code as c_int
}
