//! Wraps the functions of libpam that a module may call: `pam_modules.h`, `pam_modutil.h`,
//! `pam_ext.h`.

use module::Account;
use pam_sys::{PamConversation, PamHandle, PamItemType, PamMessage, PamMessageStyle, PamResponse};
use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

unsafe extern "C" {
    /// Looks up an account, as getpwnam(3) does; null without one. libpam keeps the entry until the transaction ends.
    fn pam_modutil_getpwnam(pamh: *mut PamHandle, user: *const c_char) -> *mut libc::passwd;
    /// Returns 1 if the user is in the group, by primary or supplementary membership, else 0.
    fn pam_modutil_user_in_group_nam_nam(
        pamh: *mut PamHandle,
        user: *const c_char,
        group: *const c_char,
    ) -> c_int;
}

/// The value that one call stores for a later one of the same transaction; `None` once it was
/// taken.
type StoredValue = Option<Box<dyn Any>>;

/// Returns the name under which libpam stores the value. It contains an address of this copy of the
/// library: another build that is loaded as well stores other types.
fn stored_value_name() -> CString {
    CString::new(format!("pam_job_adopt {:p}", free_value as *const ())).unwrap_or_default()
}

/// The handle of one PAM transaction, valid during one call of the module.
#[derive(Debug)]
pub(crate) struct Handle(*mut PamHandle);

impl Handle {
    /// Wraps the handle that libpam passed to an entry point; `None` for a null one.
    ///
    /// # Safety
    ///
    /// `pointer` is null or the handle of the call in progress, and no other code uses it until
    /// that call returns.
    pub(crate) unsafe fn from_raw(pointer: *mut PamHandle) -> Option<Self> {
        (!pointer.is_null()).then_some(Self(pointer))
    }

    /// Returns a text item; `None` if it is not set or is no UTF-8.
    pub(crate) fn item(&self, item: PamItemType) -> Option<String> {
        copy_text(self.get(item)?.cast())
    }

    /// Returns a pointer to an item of this transaction, null if the item is not set; `None` if libpam refuses the
    /// call.
    fn get(&self, item: PamItemType) -> Option<*const c_void> {
        let mut value: *const c_void = std::ptr::null();
        // SAFETY: the handle is valid (see `from_raw`); libpam writes one pointer on success.
        let code = unsafe { pam_sys::raw::pam_get_item(self.0, item as c_int, &raw mut value) };
        (code == 0).then_some(value)
    }

    /// Returns a variable of the PAM environment, which is not the process's; `None` if it is not set or is no UTF-8.
    pub(crate) fn env(&self, name: &CStr) -> Option<String> {
        // SAFETY: handle and name are valid; the result is null or a string that libpam owns.
        copy_text(unsafe { pam_sys::raw::pam_getenv(self.0, name.as_ptr()) })
    }

    /// Returns whether the PAM environment has a variable of that name.
    pub(crate) fn has_env(&self, name: &str) -> bool {
        let Ok(name) = CString::new(name) else {
            return false;
        };
        // SAFETY: handle and name are valid; the result is compared and not followed.
        !unsafe { pam_sys::raw::pam_getenv(self.0, name.as_ptr()) }.is_null()
    }

    /// Changes the PAM environment: `NAME=VALUE` sets a variable, `NAME` alone removes it, see
    /// pam_putenv(3). Returns whether libpam did so.
    pub(crate) fn put_env(&self, text: &str) -> bool {
        let Ok(text) = CString::new(text) else {
            return false;
        };
        // SAFETY: handle and text are valid; libpam copies the text.
        let code = unsafe { pam_sys::raw::pam_putenv(self.0, text.as_ptr()) };
        code == 0
    }

    /// Stores `value` for a later call of this transaction and replaces an earlier one. libpam
    /// frees it at the end. Returns whether it is stored: libpam may lack the memory for a first one.
    pub(crate) fn store_value(&self, value: Box<dyn Any>) -> bool {
        let name = stored_value_name();
        let data = Box::into_raw(Box::new(Some(value))).cast();
        // SAFETY: handle and name are valid, and `free_value` frees the type of `data`.
        let code =
            unsafe { pam_sys::raw::pam_set_data(self.0, name.as_ptr(), data, Some(free_value)) };
        if code != 0 {
            free_value(self.0, data, code);
        }
        code == 0
    }

    /// Takes the stored value; `None` if there is none or an earlier call took it.
    pub(crate) fn take_stored_value(&self) -> Option<Box<dyn Any>> {
        let name = stored_value_name();
        let mut data: *const c_void = std::ptr::null();
        // SAFETY: handle and name are valid; libpam writes one pointer on success.
        let code = unsafe { pam_sys::raw::pam_get_data(self.0, name.as_ptr(), &raw mut data) };
        let stored = data.cast_mut().cast::<StoredValue>();
        if code != 0 {
            return None;
        }
        // SAFETY: null, or made by `store_value`; no other code uses it during this call.
        unsafe { stored.as_mut() }?.take()
    }

    /// Looks up the account of that name; `None` if there is none or the look-up failed.
    pub(crate) fn find_account(&self, name: &str) -> Option<Account> {
        let name = CString::new(name).ok()?;
        // SAFETY: handle and name are valid; libpam keeps the entry until the transaction ends.
        let entry = unsafe { pam_modutil_getpwnam(self.0, name.as_ptr()) };
        // SAFETY: null or the entry, which does not change while two numbers are read.
        let entry = unsafe { entry.as_ref() }?;
        Some(Account {
            uid: entry.pw_uid,
            gid: entry.pw_gid,
        })
    }

    /// Returns whether the user is in the group, by primary or supplementary membership.
    pub(crate) fn is_in_group(&self, user: &str, group: &str) -> bool {
        let (Ok(user), Ok(group)) = (CString::new(user), CString::new(group)) else {
            return false;
        };
        // SAFETY: handle and names are valid.
        let answer =
            unsafe { pam_modutil_user_in_group_nam_nam(self.0, user.as_ptr(), group.as_ptr()) };
        answer == 1
    }

    /// Sends one text to the user through the application's conversation. An application that has
    /// none, or refuses, leaves the user without the text; that does not fail the login.
    pub(crate) fn send_message(&self, style: PamMessageStyle, text: &str) {
        let Ok(text) = CString::new(text) else { return };
        let Some((function, data)) = self.conversation() else {
            return;
        };
        let message = PamMessage {
            msg_style: style as c_int,
            msg: text.as_ptr(),
        };
        let mut messages = (&raw const message).cast_mut();
        let mut responses: *mut PamResponse = std::ptr::null_mut();
        // For one message, an array of pointers and a pointer to an array are the same bytes.
        function(1, &raw mut messages, &raw mut responses, data);
        // SAFETY: null, or an array of one response from malloc(3) that is ours to free.
        unsafe { free_response(responses) };
    }

    /// Returns the application's conversation and the pointer that it wants back (pam_conv(3)); `None` if there is
    /// none.
    fn conversation(&self) -> Option<(pam_sys::ConvClosure, *mut c_void)> {
        let value = self.get(PamItemType::CONV)?.cast::<PamConversation>();
        // SAFETY: null, or the application's conversation, valid for the transaction.
        let conversation = unsafe { value.as_ref() }?;
        Some((conversation.conv?, conversation.data_ptr))
    }
}

/// Frees a value that `store_value` has made.
extern "C" fn free_value(_handle: *mut PamHandle, data: *mut c_void, _status: c_int) {
    // SAFETY: each pointer that `store_value` has made is passed here once.
    drop(unsafe { Box::from_raw(data.cast::<StoredValue>()) });
}

/// Frees the application's response.
///
/// # Safety
///
/// `responses` is null or one response whose memory is ours.
unsafe fn free_response(responses: *mut PamResponse) {
    // SAFETY: the caller's promise.
    if let Some(response) = unsafe { responses.as_ref() } {
        // SAFETY: null or from malloc(3); see pam_conv(3).
        unsafe { libc::free(response.resp.cast()) };
        // SAFETY: the array is from malloc(3) too, and no reference to it is left.
        unsafe { libc::free(responses.cast()) };
    }
}

/// Copies a C string; `None` for null and for bytes that are no UTF-8.
fn copy_text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, and NUL-terminated by the contract of the call it came from.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_str().ok()?.to_owned())
}

/// Copies the module's arguments.
///
/// # Safety
///
/// `argv` is null or points to `argc` pointers to NUL-terminated strings.
pub(crate) unsafe fn copy_arguments(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let pointers = unsafe { std::slice::from_raw_parts(argv, count) };
    // An argument that is null or no UTF-8 stays as an unknown one, so that it is refused and not dropped.
    pointers
        .iter()
        .map(|&pointer| copy_text(pointer).unwrap_or_else(|| "\u{fffd}".into()))
        .collect()
}
