//! What is for containers only: held to the specification's rules, so that a broken file is
//! noticed, and dropped. Nothing of it is executed, mounted or moved, and nothing could be: no
//! function here gives a value back.

use std::collections::BTreeSet;

use super::Version;
use super::edits::variable;
use super::fields::{Fields, some_text};
use super::{SpecError, Within};
use crate::devices::cdi::document::{Value, quoted};

/// When a hook may run (OCI runtime specification, "POSIX-platform Hooks").
const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// Bytes of a class of service's name, with the NUL at its end (`PATH_MAX`, limits.h).
const CLOS_BYTES: usize = 4096;

/// Checks `hooks`, `mounts`, `intelRdt` and `netDevices`; whether there is any of them.
pub(super) fn edits(fields: &mut Fields, version: Version) -> Result<bool, SpecError> {
    let hooks = fields.list("hooks", hook)?;
    let mounts = fields.list("mounts", |value| mount(value, version))?;
    let rdt = fields.value("intelRdt", |value| intel_rdt(value, version))?;
    let net = net_devices(fields, version)?;
    Ok(!(hooks.is_empty() && mounts.is_empty() && rdt.is_none()) || net)
}

/// Checks `annotations` of a file or of a device: texts by name.
pub(super) fn annotations(fields: &mut Fields, version: Version) -> Result<(), SpecError> {
    let each = |value: Value| {
        let object = value.into_object()?;
        object.into_iter().try_for_each(|(key, value)| {
            version.has(Version::V0_6, "the key")?;
            let none = value == Value::Null;
            if none { Ok(()) } else { value.check_scalar().in_key(&quoted(&key)) }
        })
    };
    fields.value("annotations", each).map(drop)
}

fn hook(value: Value) -> Result<(), SpecError> {
    Fields::read(value, |fields| {
        let name = |value: Value| match value.into_text()?.as_str() {
            name if HOOKS.contains(&name) => Ok(()),
            odd => Err(SpecError::rule(format_args!("{} is no hook's name", quoted(odd)))),
        };
        let path = |value| match some_text(value)? {
            path if path.starts_with('/') => Ok(()),
            path => Err(SpecError::rule(format_args!("path {} not absolute", quoted(&path)))),
        };
        let timeout = |value: Value| match value.into_number()? {
            1.. => Ok(()),
            odd => Err(SpecError::rule(format_args!("{odd} is not over 0"))),
        };
        fields.required("hookName", name)?;
        fields.required("path", path)?;
        fields.list("args", |value| value.check_scalar())?;
        fields.list("env", variable)?;
        fields.value("timeout", timeout).map(drop)
    })
}

fn mount(value: Value, version: Version) -> Result<(), SpecError> {
    Fields::read(value, |fields| {
        fields.required("hostPath", some_text)?;
        fields.required("containerPath", some_text)?;
        fields.list("options", Value::into_text)?;
        let kind = |value: Value| match value.into_text()?.is_empty() {
            true => Ok(()),
            false => version.has(Version::V0_4, "the key"),
        };
        fields.value("type", kind).map(drop)
    })
}

fn intel_rdt(value: Value, version: Version) -> Result<(), SpecError> {
    version.has(Version::V0_7, "the key")?;
    Fields::read(value, |fields| {
        fields.value("closID", class_of_service)?;
        for schema in ["l3CacheSchema", "memBwSchema"] {
            fields.value(schema, Value::into_text)?;
        }
        let since_1_1 = |value: Value| version.has(Version::V1_1, "the key").and(value.into_text());
        fields.list("schemata", since_1_1)?;
        let monitoring = |value: Value| match value.into_bool()? {
            true => version.has(Version::V1_1, "the key"),
            false => Ok(()),
        };
        fields.value("enableMonitoring", monitoring)?;
        // Version 1.1.0 has these two no more.
        if version < Version::V1_1 {
            fields.value("enableCMT", Value::into_bool)?;
            fields.value("enableMBM", Value::into_bool)?;
        }
        Ok(())
    })
}

/// A name of one directory below `/sys/fs/resctrl`, or that directory itself.
fn class_of_service(value: Value) -> Result<(), SpecError> {
    let name = value.into_text()?;
    let odd = name.len() >= CLOS_BYTES || name == "." || name == ".." || name.contains(['/', '\n']);
    match odd && name != "/" {
        true => Err(SpecError::rule(format_args!("{} is no name of a class", quoted(&name)))),
        false => Ok(()),
    }
}

fn net_devices(fields: &mut Fields, version: Version) -> Result<bool, SpecError> {
    let (mut outside, mut inside) = (BTreeSet::new(), BTreeSet::new());
    let devices = fields.list("netDevices", |value| {
        version.has(Version::V1_1, "the key")?;
        Fields::read(value, |fields| {
            fields.required("hostInterfaceName", |value| once(value, &mut outside))?;
            fields.required("name", |value| once(value, &mut inside))
        })
    })?;
    Ok(!devices.is_empty())
}

fn once(value: Value, known: &mut BTreeSet<String>) -> Result<(), SpecError> {
    let name = some_text(value)?;
    let shown = quoted(&name);
    match known.insert(name) {
        true => Ok(()),
        false => Err(SpecError::rule(format_args!("{shown} stands twice"))),
    }
}
