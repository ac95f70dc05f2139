//! libpam, as an application sees it: `pam_appl.h`. Only `job-adopt check --live` is one; nothing
//! of this is in the module.

use pam_sys::{PamConversation, PamHandle, PamMessage, PamResponse};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

const PAM_SUCCESS: c_int = 0;
const PAM_BUF_ERR: c_int = 5;
const PAM_SYSTEM_ERR: c_int = 4;
const PAM_CONV_ERR: c_int = 19;
const PAM_ESTABLISH_CRED: c_int = 2;
const PAM_DELETE_CRED: c_int = 4;
const PAM_ERROR_MSG: c_int = 3;
const PAM_TEXT_INFO: c_int = 4;
const PAM_TTY: c_int = 3;
const PAM_RHOST: c_int = 4;
/// `PAM_MAX_NUM_MSG`
const MESSAGES_MAX: c_int = 32;

/// What a function of libpam answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(c_int);

impl Code {
    /// Whether it is `PAM_SUCCESS`.
    #[must_use]
    pub(crate) fn is_success(self) -> bool {
        self.0 == PAM_SUCCESS
    }

    /// The number.
    #[must_use]
    pub(crate) fn number(self) -> i32 {
        self.0
    }
}

/// A text of a module for the user.
pub(crate) type Hear = Box<dyn FnMut(&str)>;

/// One transaction, from `pam_start` to `pam_end`, which dropping it calls.
pub(crate) struct Transaction {
    handle: *mut PamHandle,
    last: c_int,
    /// What `converse` is given; libpam has the address for as long as the handle lives.
    hear: *mut Hear,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Transaction {
    /// Begins one. What modules say goes to `hear`; what they ask is not answered.
    ///
    /// # Errors
    /// The code of `pam_start`; `PAM_SYSTEM_ERR` also for texts with a NUL in them.
    pub(crate) fn start(service: &str, user: &str, hear: Hear) -> Result<Self, Code> {
        let (Ok(service), Ok(user)) = (CString::new(service), CString::new(user)) else {
            return Err(Code(PAM_SYSTEM_ERR));
        };
        // Libpam keeps the address, and so the value must stay where it is.
        let hear = Box::into_raw(Box::new(hear));
        let conversation = PamConversation { conv: Some(converse), data_ptr: hear.cast() };
        let mut handle: *const PamHandle = std::ptr::null();
        // SAFETY: texts and structure are valid for the call, which copies them; the handle is
        // written on success.
        let code = unsafe {
            pam_sys::raw::pam_start(
                service.as_ptr(),
                user.as_ptr(),
                &raw const conversation,
                &raw mut handle,
            )
        };
        // From here on dropping it frees what was made.
        let transaction = Self { handle: handle.cast_mut(), last: code, hear };
        match code {
            PAM_SUCCESS => Ok(transaction),
            code => Err(Code(code)),
        }
    }

    /// Sets `PAM_TTY`.
    pub(crate) fn set_tty(&mut self, tty: &str) -> Code {
        self.set(PAM_TTY, tty)
    }

    /// Sets `PAM_RHOST`.
    pub(crate) fn set_rhost(&mut self, host: &str) -> Code {
        self.set(PAM_RHOST, host)
    }

    fn set(&mut self, item: c_int, text: &str) -> Code {
        let Ok(text) = CString::new(text) else { return Code(PAM_SYSTEM_ERR) };
        // SAFETY: the handle is of pam_start; libpam copies the text of these items.
        let code = unsafe { pam_sys::raw::pam_set_item(self.handle, item, text.as_ptr().cast()) };
        self.done(code)
    }

    /// `pam_acct_mgmt`.
    pub(crate) fn account(&mut self) -> Code {
        // SAFETY: the handle is of pam_start and used by nobody else.
        let code = unsafe { pam_sys::raw::pam_acct_mgmt(self.handle, 0) };
        self.done(code)
    }

    /// `pam_setcred`, to establish credentials or to delete them again.
    pub(crate) fn credentials(&mut self, establish: bool) -> Code {
        let flag = if establish { PAM_ESTABLISH_CRED } else { PAM_DELETE_CRED };
        // SAFETY: as for `account`.
        let code = unsafe { pam_sys::raw::pam_setcred(self.handle, flag) };
        self.done(code)
    }

    /// `pam_open_session`.
    pub(crate) fn open_session(&mut self) -> Code {
        // SAFETY: as for `account`.
        let code = unsafe { pam_sys::raw::pam_open_session(self.handle, 0) };
        self.done(code)
    }

    /// `pam_close_session`.
    pub(crate) fn close_session(&mut self) -> Code {
        // SAFETY: as for `account`.
        let code = unsafe { pam_sys::raw::pam_close_session(self.handle, 0) };
        self.done(code)
    }

    /// libpam's words for a code.
    #[must_use]
    pub(crate) fn words(&self, code: Code) -> String {
        // SAFETY: the handle is of pam_start; it is not looked at, says pam_strerror(3).
        let text = unsafe { pam_sys::raw::pam_strerror(self.handle, code.0) };
        if text.is_null() {
            return format!("code {}", code.0);
        }
        // SAFETY: not null, and a constant of libpam's or of its translations.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn done(&mut self, code: c_int) -> Code {
        self.last = code;
        Code(code)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is of pam_start and is not used any more.
            unsafe { pam_sys::raw::pam_end(self.handle, self.last) };
        }
        // SAFETY: made of a box by `start`; libpam, which had the address, is done with it.
        drop(unsafe { Box::from_raw(self.hear) });
    }
}

/// The conversation (pam_conv(3)): texts are passed on, questions fail.
extern "C" fn converse(
    count: c_int,
    messages: *mut *mut PamMessage,
    responses: *mut *mut PamResponse,
    data: *mut c_void,
) -> c_int {
    // A panic must not go through libpam.
    catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: what libpam calls us with, and the pointer that `start` gave it.
        unsafe { answer(count, messages, responses, data) }
    }))
    .unwrap_or(PAM_CONV_ERR)
}

/// # Safety
/// `messages` is null or `count` pointers to messages, `responses` null or a place for a pointer,
/// `data` what [`Transaction::start`] made and nobody else uses meanwhile.
unsafe fn answer(
    count: c_int,
    messages: *mut *mut PamMessage,
    responses: *mut *mut PamResponse,
    data: *mut c_void,
) -> c_int {
    let number = usize::try_from(count).unwrap_or(0);
    if number == 0 || count > MESSAGES_MAX || messages.is_null() || responses.is_null() {
        return PAM_CONV_ERR;
    }
    // SAFETY: the caller's promise.
    let Some(hear) = (unsafe { data.cast::<Hear>().as_mut() }) else { return PAM_CONV_ERR };
    // SAFETY: the caller's promise.
    for &message in unsafe { std::slice::from_raw_parts(messages, number) } {
        // SAFETY: null, or a message of libpam's for the time of this call.
        let Some(message) = (unsafe { message.as_ref() }) else { return PAM_CONV_ERR };
        if !matches!(message.msg_style, PAM_ERROR_MSG | PAM_TEXT_INFO) {
            return PAM_CONV_ERR;
        }
        if !message.msg.is_null() {
            let text: *const c_char = message.msg;
            // SAFETY: not null, and NUL-terminated by the contract of pam_conv(3).
            hear(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
        }
    }
    // SAFETY: plain numbers; memory of calloc(3) is what libpam frees (pam_conv(3)).
    let empty = unsafe { libc::calloc(number, size_of::<PamResponse>()) };
    if empty.is_null() {
        return PAM_BUF_ERR;
    }
    // SAFETY: not null, and libpam's place for it.
    unsafe { responses.write(empty.cast()) };
    PAM_SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn said(styles: &[(c_int, &CStr)]) -> (c_int, Vec<String>) {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let keep = Rc::clone(&heard);
        let mut hear: Hear = Box::new(move |text| keep.borrow_mut().push(text.to_owned()));
        let mut messages: Vec<PamMessage> = styles
            .iter()
            .map(|(style, text)| PamMessage { msg_style: *style, msg: text.as_ptr() })
            .collect();
        let mut pointers: Vec<*mut PamMessage> =
            messages.iter_mut().map(|message| &raw mut *message).collect();
        let mut responses: *mut PamResponse = std::ptr::null_mut();
        let code = converse(
            c_int::try_from(pointers.len()).unwrap(),
            pointers.as_mut_ptr(),
            &raw mut responses,
            (&raw mut hear).cast(),
        );
        assert_eq!(code == PAM_SUCCESS, !responses.is_null());
        // SAFETY: null, or memory of calloc(3) that is ours now.
        unsafe { libc::free(responses.cast()) };
        drop(hear);
        (code, heard.take())
    }

    #[test]
    fn texts_are_heard_and_questions_are_not_answered() {
        let (code, heard) = said(&[(PAM_ERROR_MSG, c"a\xff"), (PAM_TEXT_INFO, c"b")]);
        assert_eq!((code, heard), (PAM_SUCCESS, vec!["a\u{fffd}".to_owned(), "b".to_owned()]));
        for question in [1, 2, 5] {
            assert_eq!(said(&[(question, c"Password: ")]).0, PAM_CONV_ERR);
        }
        assert_eq!(said(&[]).0, PAM_CONV_ERR);
    }

    #[test]
    fn texts_that_are_none_begin_nothing() {
        assert!(Transaction::start("a\0b", "root", Box::new(|_| ())).is_err());
    }
}
