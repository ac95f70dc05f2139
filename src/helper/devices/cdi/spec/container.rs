//! Checks the parts of a specification that are for containers only, so that a broken file is
//! noticed, and drops them. Nothing of them can be executed, mounted or moved: no function here
//! returns a value of the file.

use std::collections::BTreeSet;

use super::Version;
use super::edits::check_variable;
use super::fields::{Fields, nonempty_text};
use super::{AddPlace, SpecError};
use crate::devices::cdi::document::{Value, quote};

/// When a hook may run (OCI runtime specification, "POSIX-platform Hooks").
const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// Maximum bytes of the name of a class of service, with its final NUL (`PATH_MAX`, limits.h).
const CLOS_BYTES_MAX: usize = 4096;

/// Checks `hooks`, `mounts`, `intelRdt` and `netDevices`. Returns whether any of them exists.
pub(super) fn check_edits(fields: &mut Fields, version: Version) -> Result<bool, SpecError> {
    let hooks = fields.list("hooks", check_hook)?;
    let mounts = fields.list("mounts", |value| check_mount(value, version))?;
    let rdt = fields.value("intelRdt", |value| check_intel_rdt(value, version))?;
    let net = check_net_devices(fields, version)?;
    Ok(!(hooks.is_empty() && mounts.is_empty() && rdt.is_none()) || net)
}

/// Checks `annotations` of a file or of a device, which are texts by name.
pub(super) fn check_annotations(fields: &mut Fields, version: Version) -> Result<(), SpecError> {
    let each = |value: Value| {
        let object = value.into_object()?;
        object.into_iter().try_for_each(|(key, value)| {
            version.require(Version::V0_6, "the key")?;
            let is_null = value == Value::Null;
            if is_null { Ok(()) } else { value.check_scalar().add_key(&quote(&key)) }
        })
    };
    fields.value("annotations", each).map(drop)
}

fn check_hook(value: Value) -> Result<(), SpecError> {
    Fields::parse(value, |fields| {
        let name = |value: Value| match value.into_text()?.as_str() {
            name if HOOKS.contains(&name) => Ok(()),
            odd => Err(SpecError::rule(format_args!("{} is no hook's name", quote(odd)))),
        };
        let path = |value| match nonempty_text(value)? {
            path if path.starts_with('/') => Ok(()),
            path => Err(SpecError::rule(format_args!("path {} not absolute", quote(&path)))),
        };
        let timeout = |value: Value| match value.into_number()? {
            1.. => Ok(()),
            odd => Err(SpecError::rule(format_args!("{odd} is not over 0"))),
        };
        fields.required("hookName", name)?;
        fields.required("path", path)?;
        fields.list("args", |value| value.check_scalar())?;
        fields.list("env", check_variable)?;
        fields.value("timeout", timeout).map(drop)
    })
}

fn check_mount(value: Value, version: Version) -> Result<(), SpecError> {
    Fields::parse(value, |fields| {
        fields.required("hostPath", nonempty_text)?;
        fields.required("containerPath", nonempty_text)?;
        fields.list("options", Value::into_text)?;
        let kind = |value: Value| match value.into_text()?.is_empty() {
            true => Ok(()),
            false => version.require(Version::V0_4, "the key"),
        };
        fields.value("type", kind).map(drop)
    })
}

fn check_intel_rdt(value: Value, version: Version) -> Result<(), SpecError> {
    version.require(Version::V0_7, "the key")?;
    Fields::parse(value, |fields| {
        fields.value("closID", check_class_of_service)?;
        for schema in ["l3CacheSchema", "memBwSchema"] {
            fields.value(schema, Value::into_text)?;
        }
        let since_1_1 =
            |value: Value| version.require(Version::V1_1, "the key").and(value.into_text());
        fields.list("schemata", since_1_1)?;
        let monitoring = |value: Value| match value.into_bool()? {
            true => version.require(Version::V1_1, "the key"),
            false => Ok(()),
        };
        fields.value("enableMonitoring", monitoring)?;
        // Version 1.1.0 removed these two keys.
        if version < Version::V1_1 {
            fields.value("enableCMT", Value::into_bool)?;
            fields.value("enableMBM", Value::into_bool)?;
        }
        Ok(())
    })
}

/// Checks the name of a directory in `/sys/fs/resctrl`, or `/` for that directory itself.
fn check_class_of_service(value: Value) -> Result<(), SpecError> {
    let name = value.into_text()?;
    let odd =
        name.len() >= CLOS_BYTES_MAX || name == "." || name == ".." || name.contains(['/', '\n']);
    match odd && name != "/" {
        true => Err(SpecError::rule(format_args!("{} is no name of a class", quote(&name)))),
        false => Ok(()),
    }
}

fn check_net_devices(fields: &mut Fields, version: Version) -> Result<bool, SpecError> {
    let (mut outside, mut inside) = (BTreeSet::new(), BTreeSet::new());
    let devices = fields.list("netDevices", |value| {
        version.require(Version::V1_1, "the key")?;
        Fields::parse(value, |fields| {
            fields.required("hostInterfaceName", |value| check_unique(value, &mut outside))?;
            fields.required("name", |value| check_unique(value, &mut inside))
        })
    })?;
    Ok(!devices.is_empty())
}

fn check_unique(value: Value, known: &mut BTreeSet<String>) -> Result<(), SpecError> {
    let name = nonempty_text(value)?;
    let shown = quote(&name);
    match known.insert(name) {
        true => Ok(()),
        false => Err(SpecError::rule(format_args!("{shown} stands twice"))),
    }
}
