//! Checks the parts of a specification that are for containers only, so that a broken file is
//! noticed. Nothing of them is executed, mounted or moved: what is kept of them names them to an
//! administrator.

use super::fields::{Fields, nonempty_text};
use super::version::Version;
use crate::cdi::document::{Value, quote};
use crate::cdi::error::{AddPlace, SpecError};
use helper::node::ContainerParts;
use std::collections::BTreeSet;

/// When a hook may run (OCI runtime specification, "POSIX-platform Hooks").
const HOOKS: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// Maximum bytes of the name of a class of service, with its final NUL (`PATH_MAX`, limits.h).
const CLOS_BYTES_MAX: usize = 4096;

/// Checks `hooks`, `mounts`, `intelRdt` and `netDevices`; returns whether any of them exists, and what
/// to name of them.
pub(super) fn check_edits(
    fields: &mut Fields,
    version: Version,
) -> Result<(bool, ContainerParts), SpecError> {
    let hooks = fields.list("hooks", check_hook)?;
    let mounts = fields.list("mounts", |value| check_mount(value, version))?;
    let rdt = fields.value("intelRdt", |value| check_intel_rdt(value, version))?;
    let net_devices = check_net_devices(fields, version)?;
    let exists =
        !hooks.is_empty() || !mounts.is_empty() || rdt.is_some() || !net_devices.is_empty();
    // The path of a mount that is no file of the node, such as tmpfs, is not absolute.
    let files = hooks.into_iter().chain(mounts);
    let parts = ContainerParts {
        files: files.filter(|path| path.starts_with('/')).collect(),
        has_intel_rdt: rdt.is_some(),
        net_devices,
        ..ContainerParts::default()
    };
    Ok((exists, parts))
}

/// Checks `annotations` of a file or of a device, which are texts by name.
pub(super) fn check_annotations(fields: &mut Fields, version: Version) -> Result<(), SpecError> {
    fields.value("annotations", |value| check_texts(value, version))?;
    Ok(())
}

/// Checks an object whose values are texts or null. The key came with version 0.6.0; an empty object may stand in an
/// older file.
fn check_texts(value: Value, version: Version) -> Result<(), SpecError> {
    for (key, text) in value.into_object()? {
        version.require(Version::V0_6, "the key")?;
        if text != Value::Null {
            text.check_scalar().in_key(&quote(&key))?;
        }
    }
    Ok(())
}

/// Checks `NAME=VALUE`, and returns the name. A NUL would end the variable early; any other character may be in a value.
pub(super) fn check_variable(value: Value) -> Result<String, SpecError> {
    let text = value.into_text()?;
    if text.contains('\0') {
        return Err(SpecError::rule(format_args!("{} has a NUL", quote(&text))));
    }
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(SpecError::rule(format_args!(
            "{} is not NAME=VALUE",
            quote(&text)
        ))),
    }
}

/// Checks a hook: its name, path, arguments, variables and timeout. Returns the path.
fn check_hook(hook: Value) -> Result<String, SpecError> {
    Fields::parse(hook, |fields| {
        fields.required("hookName", check_hook_name)?;
        let path = fields.required("path", check_hook_path)?;
        fields.list("args", |argument| argument.check_scalar())?;
        fields.list("env", check_variable)?;
        fields.value("timeout", check_timeout)?;
        Ok(path)
    })
}

/// Checks the name of a hook, which says when it runs.
fn check_hook_name(value: Value) -> Result<(), SpecError> {
    let name = value.into_text()?;
    if !HOOKS.contains(&name.as_str()) {
        return Err(SpecError::rule(format_args!(
            "{} is no hook's name",
            quote(&name)
        )));
    }
    Ok(())
}

/// Checks the path of a hook's program, which must be absolute.
fn check_hook_path(value: Value) -> Result<String, SpecError> {
    let path = nonempty_text(value)?;
    if !path.starts_with('/') {
        return Err(SpecError::rule(format_args!(
            "path {} not absolute",
            quote(&path)
        )));
    }
    Ok(path)
}

/// Checks the seconds that a hook may run, at least 1.
fn check_timeout(value: Value) -> Result<(), SpecError> {
    let seconds = value.into_number()?;
    if seconds < 1 {
        return Err(SpecError::rule(format_args!("{seconds} is not over 0")));
    }
    Ok(())
}

/// Checks a mount: both paths, its options and its type, of which an empty one counts as missing. Returns the path on
/// the host.
fn check_mount(mount: Value, version: Version) -> Result<String, SpecError> {
    Fields::parse(mount, |fields| {
        let host_path = fields.required("hostPath", nonempty_text)?;
        fields.required("containerPath", nonempty_text)?;
        fields.list("options", Value::into_text)?;
        fields.value("type", |value| {
            if value.into_text()?.is_empty() {
                return Ok(());
            }
            version.require(Version::V0_4, "the key")
        })?;
        Ok(host_path)
    })
}

/// Checks `intelRdt`, whose keys differ between versions. An `enableMonitoring` that is false counts as missing, so
/// that it may stand in any version.
fn check_intel_rdt(rdt: Value, version: Version) -> Result<(), SpecError> {
    version.require(Version::V0_7, "the key")?;
    Fields::parse(rdt, |fields| {
        fields.value("closID", check_class_of_service)?;
        for schema in ["l3CacheSchema", "memBwSchema"] {
            fields.value(schema, Value::into_text)?;
        }
        fields.list("schemata", |value| {
            version.require(Version::V1_1, "the key")?;
            value.into_text()
        })?;
        fields.value("enableMonitoring", |value| {
            if !value.into_bool()? {
                return Ok(());
            }
            version.require(Version::V1_1, "the key")
        })?;
        // Version 1.1.0 removed these two keys.
        if version < Version::V1_1 {
            fields.value("enableCMT", Value::into_bool)?;
            fields.value("enableMBM", Value::into_bool)?;
        }
        Ok(())
    })
}

/// Checks the name of a class of service, which is that of a directory in `/sys/fs/resctrl`, or `/` for that directory
/// itself. An empty name passes.
fn check_class_of_service(value: Value) -> Result<(), SpecError> {
    let name = value.into_text()?;
    let is_long = name.len() >= CLOS_BYTES_MAX;
    let is_relative = matches!(name.as_str(), "." | "..");
    if name != "/" && (is_long || is_relative || name.contains(['/', '\n'])) {
        return Err(SpecError::rule(format_args!(
            "{} is no name of a class",
            quote(&name)
        )));
    }
    Ok(())
}

/// Checks `netDevices`: no two of them have one name on the host, or one in the container. Returns the names on the
/// host.
fn check_net_devices(fields: &mut Fields, version: Version) -> Result<BTreeSet<String>, SpecError> {
    let mut outside = BTreeSet::new();
    let mut inside = BTreeSet::new();
    fields.list("netDevices", |value| {
        version.require(Version::V1_1, "the key")?;
        Fields::parse(value, |device| {
            device.required("hostInterfaceName", |name| check_unique(name, &mut outside))?;
            device.required("name", |name| check_unique(name, &mut inside))
        })
    })?;
    Ok(outside)
}

/// Checks that a text is not empty and not among the `known` ones, and adds it to these.
fn check_unique(value: Value, known: &mut BTreeSet<String>) -> Result<(), SpecError> {
    let name = nonempty_text(value)?;
    if known.contains(&name) {
        return Err(SpecError::rule(format_args!(
            "{} stands twice",
            quote(&name)
        )));
    }
    known.insert(name);
    Ok(())
}
