//! libpam, as a module sees it: `pam_modules.h`, `pam_modutil.h`, `pam_ext.h`.

use module::Account;
use pam_sys::{PamConversation, PamHandle, PamItemType, PamMessage, PamMessageStyle, PamResponse};
use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn pam_modutil_getpwnam(pamh: *mut PamHandle, user: *const c_char) -> *mut libc::passwd;
    fn pam_modutil_user_in_group_nam_nam(
        pamh: *mut PamHandle,
        user: *const c_char,
        group: *const c_char,
    ) -> c_int;
}

/// What the module keeps from one call to a later one of the same transaction.
type Kept = Option<Box<dyn Any>>;
/// The name that it is kept under, which no other copy of this library has: one of another build that
/// is loaded as well keeps other things.
fn kept_name() -> CString {
    CString::new(format!("pam_job_adopt {:p}", release as *const ())).unwrap_or_default()
}

/// The handle of one PAM transaction, for the time of one call of the module.
#[derive(Debug)]
pub(crate) struct Handle(*mut PamHandle);

impl Handle {
    /// The handle that libpam gave to an entry point; `None` for a null one.
    ///
    /// # Safety
    /// `pointer` is null or the handle of the call in progress, and is used by nobody else until
    /// that call returns.
    pub(crate) unsafe fn from_raw(pointer: *mut PamHandle) -> Option<Self> {
        (!pointer.is_null()).then_some(Self(pointer))
    }

    /// A text item; `None` where it is not set.
    pub(crate) fn item(&self, item: PamItemType) -> Option<String> {
        text(self.get(item)?.cast())
    }

    fn get(&self, item: PamItemType) -> Option<*const c_void> {
        let mut value: *const c_void = std::ptr::null();
        // SAFETY: the handle is valid (see `from_raw`); libpam writes one pointer on success.
        let code = unsafe { pam_sys::raw::pam_get_item(self.0, item as c_int, &raw mut value) };
        (code == 0).then_some(value)
    }

    /// A variable of the PAM environment (not of the process).
    pub(crate) fn env(&self, name: &CStr) -> Option<String> {
        // SAFETY: handle and name are valid; the result is null or a string of libpam's.
        text(unsafe { pam_sys::raw::pam_getenv(self.0, name.as_ptr()) })
    }

    /// Whether the PAM environment has a variable of that name.
    pub(crate) fn has_env(&self, name: &str) -> bool {
        let Ok(name) = CString::new(name) else { return false };
        // SAFETY: handle and name are valid; the result is compared and not followed.
        !unsafe { pam_sys::raw::pam_getenv(self.0, name.as_ptr()) }.is_null()
    }

    /// Changes the PAM environment: `NAME=VALUE` sets a variable, `NAME` alone removes it, see
    /// pam_putenv(3). Whether libpam has done so.
    pub(crate) fn put_env(&self, text: &str) -> bool {
        let Ok(text) = CString::new(text) else { return false };
        // SAFETY: handle and text are valid; libpam copies the text.
        let code = unsafe { pam_sys::raw::pam_putenv(self.0, text.as_ptr()) };
        code == 0
    }

    /// Keeps this for a later call, in the place of what was kept; libpam lets go of it at the end of
    /// the transaction. Where it does not take it, nothing is kept.
    pub(crate) fn keep(&self, what: Box<dyn Any>) {
        let name = kept_name();
        let data = Box::into_raw(Box::new(Some(what))).cast();
        // SAFETY: handle and name are valid, and `release` is for what `data` is.
        let code =
            unsafe { pam_sys::raw::pam_set_data(self.0, name.as_ptr(), data, Some(release)) };
        if code != 0 {
            release(self.0, data, code);
        }
    }

    /// What was kept, once.
    pub(crate) fn take(&self) -> Option<Box<dyn Any>> {
        let name = kept_name();
        let mut data: *const c_void = std::ptr::null();
        // SAFETY: handle and name are valid; libpam writes one pointer on success.
        let code = unsafe { pam_sys::raw::pam_get_data(self.0, name.as_ptr(), &raw mut data) };
        let kept = data.cast_mut().cast::<Kept>();
        // SAFETY: null, or what `keep` has made, which nobody else uses during this call.
        if code == 0 { unsafe { kept.as_mut() }?.take() } else { None }
    }

    /// The account of that name; `None` when there is none, or the look-up failed.
    pub(crate) fn account(&self, name: &str) -> Option<Account> {
        let name = CString::new(name).ok()?;
        // SAFETY: handle and name are valid; libpam keeps the entry until the transaction ends.
        let entry = unsafe { pam_modutil_getpwnam(self.0, name.as_ptr()) };
        // SAFETY: null or the entry, which nobody changes while we read two numbers.
        let entry = unsafe { entry.as_ref() }?;
        Some(Account { uid: entry.pw_uid, gid: entry.pw_gid })
    }

    /// Whether the user is in the group, by primary or supplementary membership.
    pub(crate) fn in_group(&self, user: &str, group: &str) -> bool {
        let (Ok(user), Ok(group)) = (CString::new(user), CString::new(group)) else {
            return false;
        };
        // SAFETY: handle and names are valid.
        let found =
            unsafe { pam_modutil_user_in_group_nam_nam(self.0, user.as_ptr(), group.as_ptr()) };
        found == 1
    }

    /// Says one text to the user through the application's conversation. An application that has
    /// none, or refuses, leaves the user without the text; that is no failure of the login.
    pub(crate) fn say(&self, style: PamMessageStyle, words: &str) {
        let Ok(words) = CString::new(words) else { return };
        let Some((function, data)) = self.conversation() else { return };
        let message = PamMessage { msg_style: style as c_int, msg: words.as_ptr() };
        let mut messages = (&raw const message).cast_mut();
        let mut responses: *mut PamResponse = std::ptr::null_mut();
        // One message: array of pointers and pointer to array are the same bytes.
        function(1, &raw mut messages, &raw mut responses, data);
        // SAFETY: null, or an array of one response from malloc(3) that is ours to free.
        unsafe { free_response(responses) };
    }

    fn conversation(&self) -> Option<(pam_sys::ConvClosure, *mut c_void)> {
        let value = self.get(PamItemType::CONV)?.cast::<PamConversation>();
        // SAFETY: null, or the application's conversation, valid for the transaction.
        let conversation = unsafe { value.as_ref() }?;
        Some((conversation.conv?, conversation.data_ptr))
    }
}

/// Lets go of what `keep` has made.
extern "C" fn release(_handle: *mut PamHandle, data: *mut c_void, _status: c_int) {
    // SAFETY: what `keep` has made is passed here once.
    drop(unsafe { Box::from_raw(data.cast::<Kept>()) });
}

/// # Safety
/// `responses` is null or one response whose memory is ours.
unsafe fn free_response(responses: *mut PamResponse) {
    // SAFETY: the caller's promise.
    if let Some(response) = unsafe { responses.as_ref() } {
        // SAFETY: null or from malloc(3); see pam_conv(3).
        unsafe { libc::free(response.resp.cast()) };
        // SAFETY: likewise the array, and nothing refers to it any more.
        unsafe { libc::free(responses.cast()) };
    }
}

/// A copy of a C string; `None` for null and for bytes that are no UTF-8.
fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, and NUL-terminated by the contract of the call it came from.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_str().ok()?.to_owned())
}

/// The module's arguments as libpam passes them.
///
/// # Safety
/// `argv` is null or points to `argc` pointers to NUL-terminated strings.
pub(crate) unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let pointers = unsafe { std::slice::from_raw_parts(argv, count) };
    // What is no UTF-8 stays visible as an argument, so that it is refused and not dropped.
    pointers.iter().map(|&pointer| text(pointer).unwrap_or_else(|| "\u{fffd}".into())).collect()
}
