//! libpam for an application: one transaction like sshd's, but without a login.

use pam_sys::{PamConversation, PamHandle, PamMessage, PamResponse, raw};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;

const PAM_ESTABLISH_CRED: c_int = 2;
const PAM_DELETE_CRED: c_int = 4;
const PAM_TTY: c_int = 3;
const PAM_RHOST: c_int = 4;
const PAM_ERROR_MSG: c_int = 3;
const PAM_TEXT_INFO: c_int = 4;
const PAM_BUF_ERR: c_int = 5;
const PAM_NEW_AUTHTOK_REQD: c_int = 12;
const PAM_CONV_ERR: c_int = 19;
/// `PAM_MAX_NUM_MSG`
const MESSAGES_MAX: usize = 32;

/// A phase of a transaction, in the order of a login.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    Account,
    /// Establishes the credentials.
    Establish,
    /// Opens the session.
    Open,
    /// Closes the session.
    Close,
    /// Deletes the credentials.
    Delete,
}

/// One transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    handle: *mut PamHandle,
    /// Messages to the user. libpam passes this address to the conversation function.
    messages: *mut Vec<String>,
}

impl Transaction {
    /// Starts a transaction for a user of a service, like an ssh login from this host.
    ///
    /// # Errors
    ///
    /// The errors of `pam_start(3)` and `pam_set_item(3)`.
    pub(crate) fn start(service: &str, user: &str) -> io::Result<Self> {
        let service = CString::new(service)?;
        let user = CString::new(user)?;
        let messages = Box::into_raw(Box::<Vec<String>>::default());
        let conversation = PamConversation {
            conv: Some(converse),
            data_ptr: messages.cast(),
        };
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
        let transaction = Self {
            handle: handle.cast_mut(),
            messages,
        };
        transaction.check_code(code)?;
        transaction.set_item(PAM_TTY, c"ssh")?;
        transaction.set_item(PAM_RHOST, c"localhost")?;
        transaction.put_env(c"SSH_CONNECTION=UNKNOWN 65535 UNKNOWN 65535")?;
        Ok(transaction)
    }

    fn set_item(&self, item: c_int, value: &CStr) -> io::Result<()> {
        // SAFETY: the handle is valid; the value is a string, which is copied.
        let code = unsafe { raw::pam_set_item(self.handle, item, value.as_ptr().cast()) };
        self.check_code(code)
    }

    /// Sets a variable of the transaction. sshd gives each one the login's connection, by which the module knows that
    /// sshd calls it; for a socket without addresses sshd writes the same text.
    fn put_env(&self, text: &CStr) -> io::Result<()> {
        // SAFETY: the handle is valid; the text is a string, which is copied.
        let code = unsafe { raw::pam_putenv(self.handle, text.as_ptr()) };
        self.check_code(code)
    }

    /// Runs a phase, without `PAM_SILENT`; returns its result, and the messages of its modules to the user.
    /// A user whose password has expired passes the account phase: sshd lets such a user in to set a new one.
    pub(crate) fn run(&mut self, phase: Phase) -> (io::Result<()>, Vec<String>) {
        let call = match phase {
            Phase::Account => raw::pam_acct_mgmt,
            Phase::Establish | Phase::Delete => raw::pam_setcred,
            Phase::Open => raw::pam_open_session,
            Phase::Close => raw::pam_close_session,
        };
        let flags = match phase {
            Phase::Establish => PAM_ESTABLISH_CRED,
            Phase::Delete => PAM_DELETE_CRED,
            Phase::Account | Phase::Open | Phase::Close => 0,
        };
        // SAFETY: the handle is valid, and no other code uses it or the messages.
        let code = unsafe { call(self.handle, flags) };
        // SAFETY: `start` made the pointer; libpam calls back only during calls.
        let messages = unsafe { self.messages.as_mut() }
            .map(std::mem::take)
            .unwrap_or_default();
        if matches!(phase, Phase::Account) && code == PAM_NEW_AUTHTOK_REQD {
            return (Ok(()), messages);
        }
        (self.check_code(code), messages)
    }

    /// Converts a result of libpam: the error has libpam's text.
    fn check_code(&self, code: c_int) -> io::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: libpam's texts are constants, and none needs the handle.
        let text = unsafe { raw::pam_strerror(self.handle, code) };
        Err(io::Error::other(to_text(text)))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is valid and not used again.
            unsafe { raw::pam_end(self.handle, 0) };
        }
        // SAFETY: `start` made the pointer, and libpam no longer uses it.
        drop(unsafe { Box::from_raw(self.messages) });
    }
}

/// The conversation function: collects messages, and refuses prompts.
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
    // SAFETY: libpam passes `count` pointers to messages.
    for message in unsafe { std::slice::from_raw_parts(messages, count) } {
        // SAFETY: each pointer is valid during this call.
        let Some(message) = (unsafe { message.as_ref() }) else {
            return PAM_CONV_ERR;
        };
        if ![PAM_ERROR_MSG, PAM_TEXT_INFO].contains(&message.msg_style) {
            return PAM_CONV_ERR;
        }
        // SAFETY: `start` made the vector, and no other code uses it during a call.
        let Some(texts) = (unsafe { data.cast::<Vec<String>>().as_mut() }) else {
            return PAM_CONV_ERR;
        };
        texts.push(to_text(message.msg));
    }
    // SAFETY: the memory is zeroed, so each answer is empty; the module that asked frees it.
    let answers = unsafe { libc::calloc(count, size_of::<PamResponse>()) };
    if answers.is_null() {
        return PAM_BUF_ERR;
    }
    // SAFETY: libpam passes a valid place for one pointer.
    unsafe { responses.write(answers.cast()) };
    0
}

/// Copies a text of libpam; it is empty for a null pointer.
fn to_text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, and NUL-terminated by the contract of libpam.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}
