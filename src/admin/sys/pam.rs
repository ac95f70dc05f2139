//! libpam as an application has it: one transaction, as sshd's but without a login behind it.

use pam_sys::{PamConversation, PamHandle, PamMessage, PamResponse, raw};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;

/// `PAM_SILENT` is not among them: users are to be told.
const FLAGS: c_int = 0;
const PAM_TTY: c_int = 3;
const PAM_RHOST: c_int = 4;
const PAM_ERROR_MSG: c_int = 3;
const PAM_TEXT_INFO: c_int = 4;
const PAM_BUF_ERR: c_int = 5;
const PAM_CONV_ERR: c_int = 19;
/// `PAM_MAX_NUM_MSG`
const MESSAGES_MAX: usize = 32;

/// A phase of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    Account,
    Open,
    Close,
}

/// One transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    handle: *mut PamHandle,
    /// The conversation's, which libpam knows by its address.
    said: *mut Vec<String>,
}

impl Transaction {
    /// Begins one for a user of a service, who comes from this host as by ssh.
    /// Fails: as `pam_start(3)`.
    pub(crate) fn start(service: &str, user: &str) -> io::Result<Self> {
        let [service, user] = [CString::new(service)?, CString::new(user)?];
        let said = Box::into_raw(Box::<Vec<String>>::default());
        let conversation = PamConversation { conv: Some(converse), data_ptr: said.cast() };
        let mut handle: *const PamHandle = std::ptr::null();
        // SAFETY: the strings and the conversation are valid and copied; the handle is written.
        let code = unsafe {
            raw::pam_start(
                service.as_ptr(),
                user.as_ptr(),
                &raw const conversation,
                &raw mut handle,
            )
        };
        let transaction = Self { handle: handle.cast_mut(), said };
        transaction.checked(code)?;
        for (item, value) in [(PAM_TTY, c"ssh"), (PAM_RHOST, c"localhost")] {
            // SAFETY: the handle is valid; the value is a string, which is copied.
            let code =
                unsafe { raw::pam_set_item(transaction.handle, item, value.as_ptr().cast()) };
            transaction.checked(code)?;
        }
        Ok(transaction)
    }

    /// Runs a phase, and returns what its modules told the user.
    pub(crate) fn run(&mut self, phase: Phase) -> (io::Result<()>, Vec<String>) {
        let call = match phase {
            Phase::Account => raw::pam_acct_mgmt,
            Phase::Open => raw::pam_open_session,
            Phase::Close => raw::pam_close_session,
        };
        // SAFETY: the handle is valid, and nobody else uses it or what was said.
        let code = unsafe { call(self.handle, FLAGS) };
        // SAFETY: made by `start`; libpam calls back during calls only.
        let said = unsafe { self.said.as_mut() }.map(std::mem::take).unwrap_or_default();
        (self.checked(code), said)
    }

    fn checked(&self, code: c_int) -> io::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: libpam's texts are constants, and none needs the handle.
        let text = unsafe { raw::pam_strerror(self.handle, code) };
        Err(io::Error::other(self::text(text)))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is valid and not used again.
            unsafe { raw::pam_end(self.handle, 0) };
        }
        // SAFETY: made by `start`, and libpam has let go of it.
        drop(unsafe { Box::from_raw(self.said) });
    }
}

/// Takes texts; whatever asks for an answer is refused.
extern "C" fn converse(
    count: c_int,
    messages: *mut *mut PamMessage,
    responses: *mut *mut PamResponse,
    data: *mut c_void,
) -> c_int {
    let count = usize::try_from(count).unwrap_or_default();
    if count == 0 || count > MESSAGES_MAX {
        return PAM_CONV_ERR;
    }
    // SAFETY: libpam hands over so many pointers to messages.
    for message in unsafe { std::slice::from_raw_parts(messages, count) } {
        // SAFETY: each is a message for the time of this call.
        let Some(message) = (unsafe { message.as_ref() }) else { return PAM_CONV_ERR };
        if ![PAM_ERROR_MSG, PAM_TEXT_INFO].contains(&message.msg_style) {
            return PAM_CONV_ERR;
        }
        // SAFETY: what `start` has made, which nobody else uses during a call.
        let Some(said) = (unsafe { data.cast::<Vec<String>>().as_mut() }) else {
            return PAM_CONV_ERR;
        };
        said.push(text(message.msg));
    }
    // SAFETY: zeroed memory, each an empty answer; the module that asked frees it.
    let answers = unsafe { libc::calloc(count, size_of::<PamResponse>()) };
    if answers.is_null() {
        return PAM_BUF_ERR;
    }
    // SAFETY: libpam gives a place for one pointer.
    unsafe { responses.write(answers.cast()) };
    0
}

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, and NUL-terminated by the contract of libpam.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
