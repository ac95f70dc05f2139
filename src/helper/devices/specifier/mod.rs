//! Device specifiers, parsed and resolved: `SPEC` or `SPEC ACCESS`.

mod error;
mod glob;
mod path_pattern;

use crate::node::{
    Device, DeviceError, DeviceNode, NodeError, ProcDevices, ResolvedDevices, Tree, gpu_count,
};
use crate::text::printable;
pub use error::SpecifierError;
pub use glob::Glob;
use nix::errno::Errno;
use path_pattern::PathPattern;
use protocol::{Access, Allowlist, DeviceRule, DeviceType, MAJOR_MAX, MINOR_MAX, parse_decimal};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Devices that parallel jobs need besides GPUs: file systems in user space; InfiniBand and RoCE;
/// Slingshot; memory shared between processes by XPMEM and KNEM; memory of GPUs mapped by GDRCopy.
///
/// InfiniBand's `umad*` and `issm*` are missing on purpose: they manage the subnet, which is the
/// fabric of every other job too.
const HPC_PATHS: [&str; 7] = [
    "/dev/fuse",
    "/dev/infiniband/uverbs*",
    "/dev/infiniband/rdma_cm",
    "/dev/cxi*",
    "/dev/xpmem",
    "/dev/knem",
    "/dev/gdrdrv",
];

/// A device or a class of devices, and the allowed accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specifier {
    selector: Selector,
    access: Access,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selector {
    /// The device node at this path, which begins with `/dev/`.
    Path(String),
    /// The device nodes whose paths match.
    PathPattern(PathPattern),
    /// The device with these numbers, with or without a node.
    Numbers(DeviceType, u32, u32),
    /// Every device of the drivers in `/proc/devices` whose name equals the text or matches the glob.
    Class(DeviceType, String, Option<Glob>),
    /// Every device of a major that a driver has.
    Major(DeviceType, u32),
    /// `@hpc`: those of [`HPC_PATHS`] that the node has. A missing one is no error.
    Hpc,
    /// `@NAME`: what the site's configuration lists for its name.
    Site(String),
    /// An entry of a site's list that stands for nothing.
    Skipped(String),
}

/// Maximum characters of a site's name.
const SITE_NAME_MAX: usize = 64;
/// What may stand between a specifier and its access.
const BLANKS: [char; 2] = [' ', '\t'];

impl Specifier {
    /// Parses a specifier whose access is a separate text, as in `DeviceAllow`. `spec` has one of
    /// these forms, the first four with the meaning of systemd.resource-control(5):
    ///
    /// - `/dev/PATH`: the device node at the path;
    /// - `/dev/char/MAJOR:MINOR`, `/dev/block/MAJOR:MINOR`: the device with these numbers;
    /// - `char-NAME`, `block-NAME`: every device of a driver, whose name may be a [`Glob`];
    /// - `char-MAJOR`, `block-MAJOR`: every device of a major;
    /// - a path with [`Glob`]s as components: the device nodes that match, at most 1,024;
    /// - `@hpc`: devices that parallel jobs need besides GPUs;
    /// - `@NAME`: what the site's configuration lists for this name.
    ///
    /// # Errors
    ///
    /// [`SpecifierError`]. The access is checked first.
    pub fn new(spec: &str, access: &str) -> Result<Self, SpecifierError> {
        let access = access.parse().map_err(|_| SpecifierError::InvalidAccess)?;
        Ok(Self {
            selector: Selector::parse(spec)?,
            access,
        })
    }

    /// Parses an entry of a site's list. Flux skips an empty entry and a path outside of `/dev` in its own
    /// list of this kind (`sdexec.allowed-devices`), and so that a site may copy that list, these are no
    /// errors here: they resolve to nothing, with a reason.
    ///
    /// # Errors
    ///
    /// [`SpecifierError`] for any other text that is no specifier, such as `/dev` itself.
    pub fn parse_site_entry(text: &str) -> Result<Self, SpecifierError> {
        let is_elsewhere = text.starts_with('/') && text != "/dev" && !text.starts_with("/dev/");
        if !text.is_empty() && !is_elsewhere {
            return text.parse();
        }
        Ok(Self {
            selector: Selector::Skipped(printable(text)),
            access: Access::RW,
        })
    }

    /// The name whose devices the site's configuration lists, if this is one.
    pub fn site_name(&self) -> Option<&str> {
        match &self.selector {
            Selector::Site(name) => Some(name),
            _ => None,
        }
    }

    /// Tells why an entry of a site's list is skipped; `None` if it stands for devices.
    pub fn skip_reason(&self) -> Option<&'static str> {
        match &self.selector {
            Selector::Skipped(text) if text.is_empty() => Some("names no device, and is skipped"),
            Selector::Skipped(_) => Some("is not below /dev, and is skipped"),
            _ => None,
        }
    }

    /// The allowed accesses.
    pub fn access(&self) -> Access {
        self.access
    }
}

impl FromStr for Specifier {
    type Err = SpecifierError;

    /// Parses `SPEC`, which means `rw`, or `SPEC ACCESS` with blanks or tabs between them.
    fn from_str(text: &str) -> Result<Self, SpecifierError> {
        match text.split_once(BLANKS) {
            Some((spec, access)) => Self::new(spec, access.trim_matches(BLANKS)),
            None => Ok(Self {
                selector: Selector::parse(text)?,
                access: Access::RW,
            }),
        }
    }
}

impl fmt::Display for Specifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.selector {
            Selector::Skipped(text) if text.is_empty() => f.write_str("an empty entry"),
            Selector::Skipped(text) => f.write_str(text),
            selector => write!(f, "{selector} {}", self.access),
        }
    }
}

impl Selector {
    /// Parses a specifier without its access, whose forms [`Specifier::new`] lists.
    fn parse(spec: &str) -> Result<Self, SpecifierError> {
        if spec.chars().any(char::is_control) {
            return Err(SpecifierError::UnknownForm);
        }
        if let Some(name) = spec.strip_prefix('@') {
            return match name {
                "hpc" => Ok(Self::Hpc),
                name if is_site_name(name) => Ok(Self::Site(name.to_owned())),
                _ => Err(SpecifierError::UnknownPreset),
            };
        }
        for kind in [DeviceType::Char, DeviceType::Block] {
            let (class_prefix, numbers_prefix) = prefixes(kind);
            if let Some(class) = spec.strip_prefix(class_prefix) {
                return Self::parse_class(kind, class);
            }
            if let Some(numbers) = spec.strip_prefix(numbers_prefix) {
                return Self::parse_numbers(kind, numbers);
            }
        }
        Self::parse_path(spec)
    }

    /// Parses a path below `/dev`, or a pattern of such paths. Directories that users write, descriptors of the
    /// reading process, and other spellings of numbers are refused.
    fn parse_path(spec: &str) -> Result<Self, SpecifierError> {
        let below = spec
            .strip_prefix("/dev/")
            .ok_or(SpecifierError::UnknownForm)?;
        let mut parts = below.split('/').filter(|part| !matches!(*part, "" | "."));
        let first = parts.next().ok_or(SpecifierError::UnknownForm)?;
        // These paths name the descriptors of the reading process, here those of the helper itself.
        if matches!(first, "fd" | "stdin" | "stdout" | "stderr") {
            return Err(SpecifierError::UnknownForm);
        }
        if matches!(first, "shm" | "mqueue") {
            return Err(SpecifierError::UserWritableDirectory);
        }
        // The caller has parsed `/dev/char/MAJOR:MINOR` already: this is another spelling of numbers.
        if matches!(first, "char" | "block") && parts.clone().next().is_some() {
            return Err(SpecifierError::InvalidNumbers);
        }
        if first == ".." || parts.any(|part| part == "..") {
            return Err(SpecifierError::UnknownForm);
        }
        if Glob::is_wild(below) {
            return PathPattern::parse(spec).map(Self::PathPattern);
        }
        Ok(Self::Path(spec.to_owned()))
    }

    /// Parses `MAJOR:MINOR`.
    fn parse_numbers(kind: DeviceType, numbers: &str) -> Result<Self, SpecifierError> {
        let (major, minor) = numbers
            .split_once(':')
            .ok_or(SpecifierError::InvalidNumbers)?;
        let major = parse_number(major, MAJOR_MAX)?;
        let minor = parse_number(minor, MINOR_MAX)?;
        Ok(Self::Numbers(kind, major, minor))
    }

    /// Parses the name of a driver, a pattern of names, or the number of a major.
    fn parse_class(kind: DeviceType, class: &str) -> Result<Self, SpecifierError> {
        if class.is_empty() {
            return Err(SpecifierError::UnknownForm);
        }
        if class.bytes().all(|byte| byte.is_ascii_digit()) {
            return parse_number(class, MAJOR_MAX).map(|major| Self::Major(kind, major));
        }
        let glob = Glob::is_wild(class)
            .then(|| Glob::parse(class))
            .transpose()?;
        Ok(Self::Class(kind, class.to_owned(), glob))
    }
}

/// Tells whether a text may be a site's name of devices: a lower-case letter, and lower-case letters, digits,
/// `_`, `-`, `.` and `:` behind it, at most 64 characters. `hpc` has a meaning already.
pub fn is_site_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.:".contains(c);
    text != "hpc"
        && text.len() <= SITE_NAME_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(is_inner)
}

/// Parses a decimal number of at most `max`.
fn parse_number(text: &str, max: u32) -> Result<u32, SpecifierError> {
    parse_decimal(text)
        .filter(|number| *number <= max)
        .ok_or(SpecifierError::InvalidNumbers)
}

/// The prefixes of classes and of numbers of a kind.
fn prefixes(kind: DeviceType) -> (&'static str, &'static str) {
    match kind {
        DeviceType::Char => ("char-", "/dev/char/"),
        DeviceType::Block => ("block-", "/dev/block/"),
    }
}

impl fmt::Display for Selector {
    /// Writes the specifier without its access.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) | Self::Skipped(path) => f.write_str(path),
            Self::PathPattern(pattern) => pattern.fmt(f),
            Self::Numbers(kind, major, minor) => write!(f, "{}{major}:{minor}", prefixes(*kind).1),
            Self::Class(kind, class, _) => write!(f, "{}{class}", prefixes(*kind).0),
            Self::Major(kind, major) => write!(f, "{}{major}", prefixes(*kind).0),
            Self::Hpc => f.write_str("@hpc"),
            Self::Site(name) => write!(f, "@{name}"),
        }
    }
}

/// Drivers whose devices each belong to one GPU or to a part of one: all minors of such a major are
/// the GPUs of all jobs. `kfd` and `nvidia-uvm` are missing, since all jobs share their devices.
const GPU_DRIVERS: [&str; 8] = [
    "nvidia",
    "nvidia-frontend",
    "nvidiactl",
    "nvidia-caps",
    "nvidia-caps-imex-channels",
    "drm",
    "accel",
    "habanalabs",
];

/// Resolves the devices of a specifier: at least one, except for `@hpc` and a site's name, which may find none.
///
/// A plain path follows links as stat(2) does; a path pattern follows none. A class or a major
/// stands for every minor of majors that have a driver now: a driver that is loaded later could
/// take a free major. A pair of numbers stands for its device with or without a node. `names` are
/// those of the site's configuration, with their entries.
///
/// # Errors
///
/// This node has no such device, or the specifier is an entry that is skipped.
pub(in crate::devices) fn resolve(
    tree: &Tree,
    specifier: &Specifier,
    names: &BTreeMap<String, Vec<Specifier>>,
) -> Result<ResolvedDevices, DeviceError> {
    if let Some(reason) = specifier.skip_reason() {
        return Err(DeviceError::new(reason));
    }
    if let Selector::Site(name) = &specifier.selector {
        return resolve_site_name(tree, name, specifier.access, names);
    }
    let mut resolved = resolve_selector(tree, &specifier.selector, specifier.access)?;
    resolved
        .warnings
        .extend(gpu_warning(tree, specifier, &resolved));
    Ok(resolved)
}

/// Resolves the devices of a selector without the warning about GPUs; none for those that [`resolve`] does not pass
/// on: a site's names and entries that are skipped. Its errors are those of [`resolve`].
fn resolve_selector(
    tree: &Tree,
    selector: &Selector,
    access: Access,
) -> Result<ResolvedDevices, DeviceError> {
    match selector {
        Selector::Path(path) => {
            let node = tree
                .read_node_behind_links(path)
                .map_err(|error| match error {
                    // `@hpc` skips a path that does not exist, and warns of any other failure.
                    NodeError::Open(Errno::ENOENT) => DeviceError::absent(error),
                    error => error.into(),
                })?;
            resolve_one(path, node, access)
        }
        Selector::PathPattern(pattern) => resolve_pattern(tree, pattern, access),
        Selector::Numbers(kind, major, minor) => {
            let node = DeviceNode {
                kind: *kind,
                major: *major,
                minor: *minor,
            };
            resolve_one(&selector.to_string(), node, access)
        }
        Selector::Class(kind, class, glob) => {
            resolve_majors(tree, selector, *kind, access, |_, driver| match glob {
                Some(glob) => glob.matches(driver),
                None => driver == class,
            })
        }
        Selector::Major(kind, number) => {
            resolve_majors(tree, selector, *kind, access, |major, _| major == *number)
        }
        Selector::Hpc => Ok(resolve_hpc(tree, access)),
        Selector::Site(_) | Selector::Skipped(_) => Ok(ResolvedDevices::default()),
    }
}

/// Resolves the devices of a site's name, each with what both its entry and `access` allow; an entry with
/// nothing in common with `access` is left out. Every other one must resolve: a part of an accelerator
/// would not compute.
///
/// # Errors
///
/// The site has no such name, or an entry does not resolve.
fn resolve_site_name(
    tree: &Tree,
    name: &str,
    access: Access,
    names: &BTreeMap<String, Vec<Specifier>>,
) -> Result<ResolvedDevices, DeviceError> {
    let Some(entries) = names.get(name) else {
        let known: Vec<String> = names.keys().map(|known| format!("@{known}")).collect();
        return Err(DeviceError::new(if known.is_empty() {
            "job_adopt.conf has no [devices]".to_owned()
        } else {
            format!("[devices] of job_adopt.conf has {}", known.join(", "))
        }));
    };
    let mut resolved = ResolvedDevices::default();
    for entry in entries {
        let common_bits = entry.access.bits() & access.bits();
        let common_access = Access::from_bits(common_bits).unwrap_or(Access::NONE);
        if common_access == Access::NONE {
            continue;
        }
        let narrowed = Specifier {
            access: common_access,
            selector: entry.selector.clone(),
        };
        // A site's name stands for no further names.
        let devices = resolve(tree, &narrowed, &BTreeMap::new());
        resolved.extend(devices.map_err(|why| DeviceError::at(&narrowed, why))?);
    }
    Ok(resolved)
}

/// The one device of a node or of a pair of numbers.
fn resolve_one(
    path: &str,
    node: DeviceNode,
    access: Access,
) -> Result<ResolvedDevices, DeviceError> {
    Ok(vec![Device::from_node(path, node, access)?].into())
}

/// Resolves the device nodes that match a pattern. A directory that cannot be listed gives a warning.
///
/// # Errors
///
/// No node matches, or more than the limit allows.
fn resolve_pattern(
    tree: &Tree,
    pattern: &PathPattern,
    access: Access,
) -> Result<ResolvedDevices, DeviceError> {
    let matches = pattern.find_matches(tree)?;
    let mut resolved = ResolvedDevices::default();
    for (path, node) in matches.nodes {
        resolved
            .devices
            .push(Device::from_node(&path, node, access)?);
    }
    for error in matches.unlisted {
        resolved.warnings.push(format!("{pattern}: {error}"));
    }
    if resolved.devices.is_empty() {
        return Err(DeviceError::absent("no device node matches"));
    }
    Ok(resolved)
}

/// Makes rules for all minors of the majors that `is_wanted` accepts by number and driver name.
///
/// # Errors
///
/// No driver of `/proc/devices` is accepted, or that file cannot be read.
fn resolve_majors(
    tree: &Tree,
    selector: &Selector,
    kind: DeviceType,
    access: Access,
    is_wanted: impl Fn(u32, &str) -> bool,
) -> Result<ResolvedDevices, DeviceError> {
    let drivers = tree.read_drivers()?;
    let mut resolved = ResolvedDevices::default();
    for (major, driver) in drivers.drivers_of_kind(kind) {
        if !is_wanted(major, driver) {
            continue;
        }
        let rule = DeviceRule::from_numbers(kind, major, None, access)?;
        let device = Device {
            node: selector.to_string(),
            rule,
        };
        // Several drivers may share one major.
        if !resolved.devices.contains(&device) {
            resolved.devices.push(device);
        }
    }
    if resolved.devices.is_empty() {
        return Err(DeviceError::new("not in /proc/devices"));
    }
    Ok(resolved)
}

/// Resolves the devices of `@hpc`. A path without a node is skipped; any other failure is a warning.
fn resolve_hpc(tree: &Tree, access: Access) -> ResolvedDevices {
    let mut resolved = ResolvedDevices::default();
    for path in HPC_PATHS {
        // Each of these paths parses, as a test shows.
        let Ok(selector) = Selector::parse(path) else {
            continue;
        };
        match resolve_selector(tree, &selector, access) {
            Ok(devices) => resolved.extend(devices),
            Err(error) if error.is_absent() => {}
            Err(error) => resolved
                .warnings
                .push(format!("{path} is left out: {error}")),
        }
    }
    resolved
}

/// A warning for an administrator if a specifier opens GPUs without naming one: a pattern of several GPUs' nodes, or
/// all devices of a GPU driver. `None` for any other specifier.
fn gpu_warning(tree: &Tree, specifier: &Specifier, resolved: &ResolvedDevices) -> Option<String> {
    if matches!(specifier.selector, Selector::PathPattern(_)) {
        let mut list = Allowlist::new();
        for device in &resolved.devices {
            // A pattern stands for no more devices than a list can hold.
            list.push(device.rule).ok()?;
        }
        let gpus = gpu_count(&list);
        if gpus < 2 {
            return None;
        }
        return Some(format!(
            "{specifier} opens {gpus} GPUs, whichever job they belong to"
        ));
    }
    let mut gpu_drivers = BTreeSet::new();
    for device in &resolved.devices {
        // A rule for all minors comes from `/proc/devices`, which therefore could be read.
        if device.rule.minor().is_none() {
            gpu_drivers.extend(gpu_drivers_of(tree.read_drivers().ok()?, &device.rule));
        }
    }
    if gpu_drivers.is_empty() {
        return None;
    }
    let names = gpu_drivers.into_iter().collect::<Vec<_>>().join(", ");
    Some(format!(
        "{specifier} opens the GPUs of every job on this node: all devices of {names}"
    ))
}

/// Iterates over the drivers of GPUs that have the major of a rule.
fn gpu_drivers_of<'a>(
    drivers: &'a ProcDevices,
    rule: &DeviceRule,
) -> impl Iterator<Item = &'a str> {
    let names = drivers.names_of(rule.kind(), rule.major());
    names.filter(|driver| GPU_DRIVERS.contains(driver))
}

#[cfg(test)]
mod tests;
