//! Finds whom the admin exempts on this node: whose slices stay open.

use crate::accounts;
use crate::error::Error;
use helper::Config;
use protocol::parse_decimal;
use std::collections::BTreeMap;

/// Finds the accounts whose slices stay open, each with the first reason. Of a group these are its listed members, not
/// those who have it as their primary group.
///
/// # Errors
///
/// [`Error::Failed`] if the name service cannot be asked, or if a group of `exempt_groups` or one of its members does
/// not exist. A missing `flux_user` has no slice, as on nodes without Flux.
pub(crate) fn exempt_accounts(config: &Config) -> Result<BTreeMap<u32, String>, Error> {
    let mut exempt = BTreeMap::from([(0, "root".to_owned())]);
    let mut add = |uid: u32, why: String| {
        exempt.entry(uid).or_insert(why);
    };
    for uid in &config.exempt_uids {
        add(*uid, format!("uid {uid}: exempt_uids of job_adopt.conf(5)"));
    }
    let flux = &config.flux_user;
    let flux_uid = match parse_decimal(flux) {
        Some(uid) => Some(uid),
        None => accounts::find_user(flux)?.map(|user| user.uid.as_raw()),
    };
    if let Some(uid) = flux_uid {
        add(uid, format!("{flux}: Flux runs jobs in this slice"));
    }
    for name in &config.exempt_groups {
        let group = accounts::find_group(name)?
            .ok_or_else(|| Error::failed("look up group", name, "no such group"))?;
        for member in group.mem {
            let uid = accounts::require_user(&member)?.uid.as_raw();
            add(
                uid,
                format!("{member}: in the group {name} of exempt_groups"),
            );
        }
    }
    Ok(exempt)
}
