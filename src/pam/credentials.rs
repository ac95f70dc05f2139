//! `auth`: the groups that `session` has granted. An application makes the login's groups anew
//! after it has opened the session, and asks for the credentials again then (`pam_setcred(3)`;
//! OpenSSH's `platform_setusercontext_post_groups`): only there can groups be added.

use super::{arguments, call};
use crate::log::{Line, Severity};
use crate::plan::GroupId;
use crate::session::add_groups;
use crate::switch;
use crate::sys::pam::{Handle, Item, Kept};

/// `PAM_ESTABLISH_CRED` and `PAM_REINITIALIZE_CRED` of `_pam_types.h`; OpenSSH uses one or the
/// other, depending on its version.
const ESTABLISHING: i32 = 0x2 | 0x8;

/// Answers `pam_sm_setcred`. Of root, exempt users, refused logins and whatever else `session` has
/// granted nothing to, nothing is kept, and nothing happens.
pub(super) fn credentials(handle: &Handle, flags: i32, arguments: &[String]) {
    if flags & ESTABLISHING == 0 {
        return;
    }
    let Some(Kept { uid, groups }) = handle.kept() else { return };
    let user = handle.item(Item::User).unwrap_or_default();
    let is_for_this_user = handle.account(&user).is_some_and(|account| account.uid == uid);
    if !is_for_this_user || switch::is_off() {
        return;
    }
    let line = |severity| Line::new(severity).with("user", &user).with("uid", uid);
    let settings = match arguments::parse(arguments) {
        Ok(settings) => settings,
        Err(error) => {
            let line = line(Severity::Error).with("error", error);
            return call::write_log(&[line], Severity::Info, &service(handle), "setcred");
        }
    };
    if settings.observe {
        return;
    }
    let groups: Vec<GroupId> = groups.into_iter().flat_map(GroupId::new).collect();
    let names = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let line = match add_groups(&groups) {
        Ok(()) => line(Severity::Info).with("groups", names),
        Err(errno) => {
            let error = std::io::Error::from(errno);
            line(Severity::Error).with("error", format_args!("add groups {names}: {error}"))
        }
    };
    call::write_log(&[line], settings.log_level, &service(handle), "setcred");
}

fn service(handle: &Handle) -> String {
    handle.item(Item::Service).unwrap_or_default()
}
