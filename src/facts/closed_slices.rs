//! What systemd allows in users' slices that are closed.

use helper::Config;
use helper::devices::{DeviceRequest, Policy, Resolver, build_allowlist};
use helper::node::ResolvedDevices;
use protocol::DeviceRule;

/// The drop-in of all users, without the site's additions.
pub const CLOSED_DROP_IN: &str =
    include_str!("../../packaging/systemd/user-.slice.d/job-adopt.conf");

/// The name of systemd's device filters.
pub const SYSTEMD_FILTER: &str = "sd_devices";

/// A uid without an account.
pub const UNUSED_UID: u32 = u32::MAX - 2;

/// The slice of [`UNUSED_UID`], which has the settings of all users' slices and no others. After `daemon-reload` systemd
/// 257 may close a slice that exists only when it loads another unit, such as this one.
pub const UNUSED_SLICE: &str = "user-4294967293.slice";

/// What a unit's files say about its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevicePolicy {
    /// Nothing: the unit opens all devices.
    Open,
    /// The unit closes devices.
    Limited,
    /// systemd does not show it.
    Unknown,
}

/// Parses the properties `DevicePolicy` and `DeviceAllow` of a unit. Without entries systemd 252 leaves `DeviceAllow` out.
pub(crate) fn parse_device_policy(properties: &str) -> DevicePolicy {
    let mut policy = DevicePolicy::Unknown;
    for line in properties.lines() {
        match line.split_once('=') {
            Some(("DevicePolicy", "auto")) if policy == DevicePolicy::Unknown => {
                policy = DevicePolicy::Open;
            }
            Some(("DevicePolicy", _)) => policy = DevicePolicy::Limited,
            Some(("DeviceAllow", entry)) if !entry.is_empty() => policy = DevicePolicy::Limited,
            _ => {}
        }
    }
    policy
}

/// The devices that a closed slice allows: those that `DevicePolicy=closed` always has, those of the drop-in and those
/// of `always_allowed`, as far as they resolve here. Empty if they are too many for a list: `strays` then names every
/// open device.
pub fn closed_slice_rules(config: &Config, resolver: &Resolver) -> Vec<DeviceRule> {
    let allow: Vec<(String, String)> = CLOSED_DROP_IN
        .lines()
        .filter_map(|line| line.strip_prefix("DeviceAllow="))
        .filter_map(|device| device.split_once(' '))
        .map(|(spec, access)| (spec.to_owned(), access.to_owned()))
        .collect();
    let request = DeviceRequest {
        policy: Policy::Closed,
        allow: &allow,
    };
    // The policy adds the devices that systemd's has. Without names, only the length of the list can fail.
    build_allowlist(
        &request,
        ResolvedDevices::default(),
        &config.always_allowed,
        resolver,
    )
    .map(|resolved| resolved.list.rules().to_vec())
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_slice_is_that_of_the_unused_uid() {
        assert_eq!(UNUSED_SLICE, format!("user-{UNUSED_UID}.slice"));
    }

    #[test]
    fn device_policy_of_the_site_is_recognized() {
        for (properties, expected) in [
            ("DevicePolicy=auto\n", DevicePolicy::Open),
            ("DevicePolicy=auto\nDeviceAllow=\n", DevicePolicy::Open),
            ("DevicePolicy=closed\n", DevicePolicy::Limited),
            (
                "DeviceAllow=/dev/null rw\nDevicePolicy=auto\n",
                DevicePolicy::Limited,
            ),
            (
                "DevicePolicy=auto\nDeviceAllow=/dev/null rw\n",
                DevicePolicy::Limited,
            ),
            ("", DevicePolicy::Unknown),
        ] {
            assert_eq!(parse_device_policy(properties), expected, "{properties}");
        }
    }
}
