//! The entry points that libpam looks up by name (pam_sm_acct_mgmt(3), pam_sm_open_session(3)).

#![allow(unsafe_code)]

use super::call::{answer, panicked};
use super::credentials::credentials;
use crate::plan::Phase;
use crate::sys::pam::{Handle, arguments};
use pam_sys::{PamHandle, PamReturnCode};
use std::ffi::{c_char, c_int};
use std::panic::{UnwindSafe, catch_unwind, set_hook};

/// `account`: has the user a job here? Moves nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_acct_mgmt(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    guarded(Phase::Account, handle, flags, argc, argv)
}

/// `session`: takes the login into the job.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_open_session(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    guarded(Phase::Session, handle, flags, argc, argv)
}

/// Nothing to undo: the login ends with its processes, and sshd does not always get here.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_close_session(
    _handle: *mut PamHandle,
    _flags: c_int,
    _argc: c_int,
    _argv: *const *const c_char,
) -> c_int {
    PamReturnCode::SUCCESS as c_int
}

/// Not ours to answer: an `auth` line of ours is there for [`pam_sm_setcred`] alone.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_authenticate(
    _handle: *mut PamHandle,
    _flags: c_int,
    _argc: c_int,
    _argv: *const *const c_char,
) -> c_int {
    PamReturnCode::IGNORE as c_int
}

/// `auth`: adds the groups that `session` has granted. Whatever comes of it, the other modules
/// decide: a login without these groups can do less.
#[unsafe(no_mangle)]
pub extern "C" fn pam_sm_setcred(
    handle: *mut PamHandle,
    flags: c_int,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    caught(None, PamReturnCode::IGNORE, handle, argc, argv, |handle, arguments| {
        credentials(handle, flags, arguments);
        PamReturnCode::IGNORE
    })
}

fn guarded(
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
    caught(Some(phase), refused, handle, argc, argv, |handle, arguments| {
        answer(phase, handle, flags, arguments)
    })
}

/// No panic crosses into C: it becomes `otherwise`, and what was begun has been undone on the way.
fn caught(
    phase: Option<Phase>,
    otherwise: PamReturnCode,
    handle: *mut PamHandle,
    argc: c_int,
    argv: *const *const c_char,
    body: impl Fn(&Handle, &[String]) -> PamReturnCode + UnwindSafe,
) -> c_int {
    // The default hook would write to sshd's standard error. This one belongs to this library's
    // own copy of the standard library and is nobody else's.
    set_hook(Box::new(|_| {}));
    let answered = catch_unwind(move || {
        // SAFETY: libpam passes the handle of this call, and lends it until we return.
        let Some(handle) = (unsafe { Handle::from_raw(handle) }) else { return otherwise };
        // SAFETY: libpam passes argc strings, or null when there are none.
        let arguments = unsafe { arguments(argc, argv) };
        body(&handle, &arguments)
    });
    let code = answered.unwrap_or_else(|payload| {
        let words = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
        let words = words.or_else(|| payload.downcast_ref::<String>().cloned());
        let _ = catch_unwind(|| panicked(phase, &words.unwrap_or_default()));
        otherwise
    });
    code as c_int
}
