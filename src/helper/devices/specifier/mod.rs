//! Device specifiers, parsed and resolved: `SPEC` or `SPEC ACCESS`.

mod path_pattern;

use crate::node::{
    Device, DeviceError, DeviceNode, NodeError, ProcDevices, ResolvedDevices, Tree, gpu_count,
};
use nix::errno::Errno;
use path_pattern::PathPattern;
use protocol::{Access, Allowlist, DeviceRule, DeviceType, MAJOR_MAX, MINOR_MAX, parse_decimal};
use std::collections::BTreeSet;
use std::fmt;
use std::str::{Chars, FromStr};
use thiserror::Error;

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
}

impl Specifier {
    /// Parses a specifier whose access is a separate text, as in `DeviceAllow`. `spec` has one of
    /// these forms, the first four with the meaning of systemd.resource-control(5):
    ///
    /// - `/dev/PATH`: the device node at the path;
    /// - `/dev/char/MAJOR:MINOR`, `/dev/block/MAJOR:MINOR`: the device with these numbers;
    /// - `char-NAME`, `block-NAME`: every device of a driver, whose name may be a [`Glob`];
    /// - `char-MAJOR`, `block-MAJOR`: every device of a major;
    /// - a path with [`Glob`]s as components: the device nodes that match, at most 1,024;
    /// - `@hpc`: devices that parallel jobs need besides GPUs.
    ///
    /// # Errors
    ///
    /// [`SpecifierError`]. The access is checked first.
    pub fn new(spec: &str, access: &str) -> Result<Self, SpecifierError> {
        let access = access.parse().map_err(|_| SpecifierError::InvalidAccess)?;
        Ok(Self { selector: Selector::parse(spec)?, access })
    }

    /// The allowed accesses.
    pub fn access(&self) -> Access {
        self.access
    }
}

impl FromStr for Specifier {
    type Err = SpecifierError;

    /// Parses `SPEC`, which means `rw`, or `SPEC ACCESS`.
    fn from_str(text: &str) -> Result<Self, SpecifierError> {
        match text.split_once(' ') {
            Some((spec, access)) => Self::new(spec, access),
            None => Ok(Self { selector: Selector::parse(text)?, access: Access::RW }),
        }
    }
}

impl fmt::Display for Specifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.selector, self.access)
    }
}

impl Selector {
    fn parse(spec: &str) -> Result<Self, SpecifierError> {
        if spec.chars().any(char::is_control) {
            return Err(SpecifierError::UnknownForm);
        }
        if spec.starts_with('@') {
            return if spec == "@hpc" { Ok(Self::Hpc) } else { Err(SpecifierError::UnknownPreset) };
        }
        for kind in [DeviceType::Char, DeviceType::Block] {
            let (class, numbers) = prefixes(kind);
            if let Some(class) = spec.strip_prefix(class) {
                return Self::parse_class(kind, class);
            }
            if let Some(numbers) = spec.strip_prefix(numbers) {
                return Self::parse_numbers(kind, numbers);
            }
        }
        Self::parse_path(spec)
    }

    fn parse_path(spec: &str) -> Result<Self, SpecifierError> {
        let below = spec.strip_prefix("/dev/").ok_or(SpecifierError::UnknownForm)?;
        let mut parts = below.split('/').filter(|part| !matches!(*part, "" | "."));
        let first = parts.next().ok_or(SpecifierError::UnknownForm)?;
        // These name the descriptors of the reading process, here those of the helper itself.
        if matches!(first, "fd" | "stdin" | "stdout" | "stderr") {
            return Err(SpecifierError::UnknownForm);
        }
        if matches!(first, "shm" | "mqueue") {
            return Err(SpecifierError::UserWritableDirectory);
        }
        // Numbers have one spelling, and the caller has already checked for it.
        if matches!(first, "char" | "block") && parts.clone().next().is_some() {
            return Err(SpecifierError::InvalidNumbers);
        }
        if first == ".." || parts.any(|part| part == "..") {
            return Err(SpecifierError::UnknownForm);
        }
        match Glob::is_wild(below) {
            true => Ok(Self::PathPattern(PathPattern::parse(spec)?)),
            false => Ok(Self::Path(spec.to_owned())),
        }
    }

    fn parse_numbers(kind: DeviceType, numbers: &str) -> Result<Self, SpecifierError> {
        let (major, minor) = numbers.split_once(':').ok_or(SpecifierError::InvalidNumbers)?;
        let major = parse_number(major, MAJOR_MAX)?;
        let minor = parse_number(minor, MINOR_MAX)?;
        Ok(Self::Numbers(kind, major, minor))
    }

    fn parse_class(kind: DeviceType, class: &str) -> Result<Self, SpecifierError> {
        if class.is_empty() {
            return Err(SpecifierError::UnknownForm);
        }
        if class.bytes().all(|byte| byte.is_ascii_digit()) {
            return parse_number(class, MAJOR_MAX).map(|major| Self::Major(kind, major));
        }
        let glob = Glob::is_wild(class).then(|| Glob::parse(class)).transpose()?;
        Ok(Self::Class(kind, class.to_owned(), glob))
    }
}

fn parse_number(text: &str, max: u32) -> Result<u32, SpecifierError> {
    parse_decimal(text).filter(|number| *number <= max).ok_or(SpecifierError::InvalidNumbers)
}

/// Returns the prefixes of classes and of numbers of a kind.
fn prefixes(kind: DeviceType) -> (&'static str, &'static str) {
    match kind {
        DeviceType::Char => ("char-", "/dev/char/"),
        DeviceType::Block => ("block-", "/dev/block/"),
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::PathPattern(pattern) => pattern.fmt(f),
            Self::Numbers(kind, major, minor) => write!(f, "{}{major}:{minor}", prefixes(*kind).1),
            Self::Class(kind, class, _) => write!(f, "{}{class}", prefixes(*kind).0),
            Self::Major(kind, major) => write!(f, "{}{major}", prefixes(*kind).0),
            Self::Hpc => f.write_str("@hpc"),
        }
    }
}

/// Why a text is no specifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SpecifierError {
    /// The text has none of the forms.
    #[error("not a path below /dev, char-NAME, block-NAME or @hpc")]
    UnknownForm,
    /// Users choose the content of the directory, for instance a link to another job's device.
    #[error("in a directory of users, who decide nothing about devices")]
    UserWritableDirectory,
    /// The numbers have another spelling, or are larger than the kernel's.
    #[error(
        "not MAJOR:MINOR, or char- or block- and MAJOR, with a major up to 4095 and a minor up to \
         1048575"
    )]
    InvalidNumbers,
    /// The text is no pattern, or a pattern with too many wild components.
    #[error("not a pattern of *, ? and [abc], [a-z] or [!a] with at most 255 bytes in a name")]
    InvalidPattern,
    /// The word after `@` is not `hpc`.
    #[error("there is no such preset, only @hpc")]
    UnknownPreset,
    /// The access is not made of the letters r, w and m.
    #[error("access is not one to three letters out of r, w, m")]
    InvalidAccess,
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

/// Returns the devices of a specifier: at least one, except for a preset, which may find none.
///
/// A plain path follows links as stat(2) does; a path pattern follows none. A class or a major
/// stands for every minor of majors that have a driver now: a driver that is loaded later could
/// take a free major. A pair of numbers stands for its device with or without a node.
///
/// # Errors
///
/// This node has no such device.
pub(in crate::devices) fn resolve(
    tree: &Tree,
    specifier: &Specifier,
) -> Result<ResolvedDevices, DeviceError> {
    let mut resolved = resolve_selector(tree, &specifier.selector, specifier.access)?;
    resolved.warnings.extend(gpu_warning(tree, specifier, &resolved));
    Ok(resolved)
}

fn resolve_selector(
    tree: &Tree,
    selector: &Selector,
    access: Access,
) -> Result<ResolvedDevices, DeviceError> {
    match selector {
        Selector::Path(path) => {
            let node = tree.read_node_behind_links(path).map_err(|error| match error {
                NodeError::Open(Errno::ENOENT) => DeviceError::absent(error),
                error => error.into(),
            })?;
            resolve_one(path, node, access)
        }
        Selector::PathPattern(pattern) => resolve_pattern(tree, pattern, access),
        Selector::Numbers(kind, major, minor) => {
            let node = DeviceNode { kind: *kind, major: *major, minor: *minor };
            resolve_one(&selector.to_string(), node, access)
        }
        Selector::Class(kind, class, glob) => {
            resolve_majors(tree, selector, *kind, access, |_, driver| {
                glob.as_ref().map_or(driver == class, |glob| glob.matches(driver))
            })
        }
        Selector::Major(kind, number) => {
            resolve_majors(tree, selector, *kind, access, |major, _| major == *number)
        }
        Selector::Hpc => Ok(resolve_hpc(tree, access)),
    }
}

fn resolve_one(
    path: &str,
    node: DeviceNode,
    access: Access,
) -> Result<ResolvedDevices, DeviceError> {
    Ok(vec![Device::from_node(path, node, access)?].into())
}

fn resolve_pattern(
    tree: &Tree,
    pattern: &PathPattern,
    access: Access,
) -> Result<ResolvedDevices, DeviceError> {
    let matches = pattern.find_matches(tree)?;
    let mut resolved = ResolvedDevices::default();
    for (path, node) in matches.nodes {
        resolved.devices.push(Device::from_node(&path, node, access)?);
    }
    let unlisted = matches.unlisted.into_iter().map(|error| format!("{pattern}: {error}"));
    resolved.warnings.extend(unlisted);
    match resolved.devices.is_empty() {
        true => Err(DeviceError::absent("no device node matches")),
        false => Ok(resolved),
    }
}

/// Returns rules for all minors of the majors that `is_wanted` accepts by number and driver name.
fn resolve_majors(
    tree: &Tree,
    selector: &Selector,
    kind: DeviceType,
    access: Access,
    is_wanted: impl Fn(u32, &str) -> bool,
) -> Result<ResolvedDevices, DeviceError> {
    let drivers = tree.read_drivers()?;
    let mut resolved = ResolvedDevices::default();
    let mut matching = drivers.drivers_of_kind(kind);
    while let Some((major, _)) = matching.find(|(major, driver)| is_wanted(*major, driver)) {
        let rule = DeviceRule::from_numbers(kind, major, None, access)?;
        let device = Device { node: selector.to_string(), rule };
        // Several drivers may share one major.
        if !resolved.devices.contains(&device) {
            resolved.devices.push(device);
        }
    }
    match resolved.devices.is_empty() {
        true => Err(DeviceError::new("not in /proc/devices")),
        false => Ok(resolved),
    }
}

/// Returns the devices of `@hpc`. A path without a node is skipped; any other failure is a warning.
fn resolve_hpc(tree: &Tree, access: Access) -> ResolvedDevices {
    let mut resolved = ResolvedDevices::default();
    for path in HPC_PATHS {
        let Ok(selector) = Selector::parse(path) else { continue };
        match resolve_selector(tree, &selector, access) {
            Ok(devices) => resolved.extend(devices),
            Err(error) if error.is_absent() => {}
            Err(error) => resolved.warnings.push(format!("{path} is left out: {error}")),
        }
    }
    resolved
}

/// Returns a warning for an administrator if a specifier opens GPUs without naming one.
fn gpu_warning(tree: &Tree, specifier: &Specifier, resolved: &ResolvedDevices) -> Option<String> {
    if matches!(specifier.selector, Selector::PathPattern(_)) {
        let mut list = Allowlist::new();
        for device in &resolved.devices {
            // A pattern stands for no more devices than a list can hold.
            list.push(device.rule).ok()?;
        }
        let gpus = gpu_count(&list);
        return (gpus > 1)
            .then(|| format!("{specifier} opens {gpus} GPUs, whichever job they belong to"));
    }
    let has_all_minors = |device: &&Device| device.rule.minor().is_none();
    let mut majors = resolved.devices.iter().filter(has_all_minors).peekable();
    let drivers = majors.peek().and_then(|_| tree.read_drivers().ok())?;
    let gpu_drivers: BTreeSet<_> =
        majors.flat_map(|device| gpu_drivers_of(drivers, &device.rule)).collect();
    let gpu_drivers: Vec<_> = gpu_drivers.into_iter().collect();
    (!gpu_drivers.is_empty()).then(|| {
        let names = gpu_drivers.join(", ");
        format!("{specifier} opens the GPUs of every job on this node: all devices of {names}")
    })
}

fn gpu_drivers_of<'a>(
    drivers: &'a ProcDevices,
    rule: &DeviceRule,
) -> impl Iterator<Item = &'a str> {
    let names = drivers.names_of(rule.kind(), rule.major());
    names.filter(|driver| GPU_DRIVERS.contains(driver))
}

/// Maximum bytes of a pattern. No file name has more (`NAME_MAX` of `linux/limits.h`).
const PATTERN_BYTES_MAX: usize = 255;
/// The characters that make a text a pattern.
const WILD_CHARACTERS: [char; 3] = ['*', '?', '['];

/// A pattern of one name: `*` stands for any characters, `?` for one, `[abc]` and `[a-z]` for one
/// of these, `[!a]` and `[^a]` for any other. Unlike in fnmatch(3), a text with a backslash or with
/// a named character class is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    One,
    Any,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// Returns whether a text has a character that makes it a pattern.
    pub fn is_wild(text: &str) -> bool {
        text.contains(WILD_CHARACTERS)
    }

    /// Parses a pattern of at most 255 bytes.
    ///
    /// # Errors
    ///
    /// [`SpecifierError::InvalidPattern`] if the text is longer, has a backslash, or has a bracket
    /// that is not closed, is empty or contains a reversed range.
    pub fn parse(text: &str) -> Result<Self, SpecifierError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(SpecifierError::InvalidPattern);
        }
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(next) = chars.next() {
            let token = match next {
                '*' => Token::Any,
                '?' => Token::One,
                '[' => parse_set(&mut chars)?,
                '\\' => return Err(SpecifierError::InvalidPattern),
                other => Token::Char(other),
            };
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// Returns whether the pattern matches the whole of `name`. The time is proportional to the
    /// product of both lengths: it only ever backtracks to the last `*`, since that one can match
    /// whatever an earlier `*` could match in addition.
    pub fn matches(&self, name: &str) -> bool {
        let mut tokens = self.0.as_slice();
        let mut rest = name.chars();
        let mut last: Option<(&[Token], Chars<'_>)> = None;
        loop {
            if let Some((Token::Any, after)) = tokens.split_first() {
                tokens = after;
                last = Some((after, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (tokens.split_first(), ahead.next()) {
                (None, None) => return true,
                (Some((token, after)), Some(next)) if token.matches_char(next) => {
                    tokens = after;
                    rest = ahead;
                }
                _ => {
                    // Let the last star match one more character, if both exist.
                    let Some((after, mut from)) = last else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    tokens = after;
                    rest = from.clone();
                    last = Some((after, from));
                }
            }
        }
    }
}

impl Token {
    fn matches_char(&self, next: char) -> bool {
        match self {
            Self::Char(own) => *own == next,
            Self::One | Self::Any => true,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&next)) != *negated
            }
        }
    }
}

/// Parses the rest of a set after its opening bracket. A `]` in the first place stands for itself,
/// and so does a `-` in the first or the last place.
fn parse_set(chars: &mut Chars<'_>) -> Result<Token, SpecifierError> {
    let mut next = chars.next().ok_or(SpecifierError::InvalidPattern)?;
    let negated = matches!(next, '!' | '^');
    if negated {
        next = chars.next().ok_or(SpecifierError::InvalidPattern)?;
    }
    let mut ranges = Vec::new();
    loop {
        if next == ']' && !ranges.is_empty() {
            return Ok(Token::Set { negated, ranges });
        }
        if matches!(next, '[' | '\\') {
            return Err(SpecifierError::InvalidPattern);
        }
        let high = parse_range_end(chars)?.unwrap_or(next);
        if high < next {
            return Err(SpecifierError::InvalidPattern);
        }
        ranges.push((next, high));
        next = chars.next().ok_or(SpecifierError::InvalidPattern)?;
    }
}

/// Parses the upper end of a range, if `-` follows and is not the last character of the set.
fn parse_range_end(chars: &mut Chars<'_>) -> Result<Option<char>, SpecifierError> {
    let mut ahead = chars.clone();
    match (ahead.next(), ahead.next()) {
        (Some('-'), Some(high)) if high != ']' => {
            *chars = ahead;
            if matches!(high, '[' | '\\') {
                Err(SpecifierError::InvalidPattern)
            } else {
                Ok(Some(high))
            }
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
