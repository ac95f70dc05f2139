//! The one spelling of a device: `SPEC` or `SPEC SpecifierError::Access`.

mod path_pattern;

use crate::helper::devices::{
    Device, DeviceError, Found, Node, NodeError, ProcDevices, Tree, gpu_count,
};
use crate::protocol::{Access, Allowlist, DeviceRule, DeviceType, MAJOR_MAX, MINOR_MAX, decimal};
use nix::errno::Errno;
use path_pattern::PathPattern;
use std::collections::BTreeSet;
use std::fmt;
use std::str::{Chars, FromStr};
use thiserror::Error;

/// What parallel jobs need besides GPUs: file systems in user space; InfiniBand and RoCE; Slingshot;
/// memory shared between processes by XPMEM and KNEM; memory of GPUs mapped by GDRCopy. Of
/// InfiniBand neither `umad*` nor `issm*`: with these one manages the subnet, which is the fabric of
/// every other job too.
const HPC: [&str; 7] = [
    "/dev/fuse",
    "/dev/infiniband/uverbs*",
    "/dev/infiniband/rdma_cm",
    "/dev/cxi*",
    "/dev/xpmem",
    "/dev/knem",
    "/dev/gdrdrv",
];

/// A device or a class of devices, and what may be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specifier {
    name: Name,
    access: Access,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// The device node at this path, which begins with `/dev/`.
    Path(String),
    /// The device nodes whose paths are like this.
    Paths(PathPattern),
    /// The device of these numbers, whether a node of it is there or not.
    Numbers(DeviceType, u32, u32),
    /// Every device of the drivers with this name in `/proc/devices`, or with names like it.
    Class(DeviceType, String, Option<Glob>),
    /// Every device of a major that a driver has.
    Major(DeviceType, u32),
    /// `@hpc`: whatever of [`HPC`] a node has; what it has not is not missed.
    Hpc,
}

impl Specifier {
    /// A specifier whose access is written apart, as in `DeviceAllow`. The name is of one of these
    /// forms, the first four with the meaning of systemd.resource-control(5):
    ///
    /// - `/dev/PATH`: the device node there;
    /// - `/dev/char/MAJOR:MINOR`, `/dev/block/MAJOR:MINOR`: the device of these numbers;
    /// - `char-NAME`, `block-NAME`: every device of a driver, of which the name may be a [`Glob`];
    /// - `char-MAJOR`, `block-MAJOR`: every device of a major;
    /// - a path of which components are [`Glob`]s: the device nodes there, at most 1,024;
    /// - `@hpc`: what parallel jobs need besides GPUs.
    ///
    /// Fails: [`SpecifierError`], that of the access first.
    pub fn new(spec: &str, access: &str) -> Result<Self, SpecifierError> {
        let access = access.parse().map_err(|_| SpecifierError::Access)?;
        Ok(Self { name: Name::parse(spec)?, access })
    }

    /// What may be done with the device.
    pub fn access(&self) -> Access {
        self.access
    }
}

impl FromStr for Specifier {
    type Err = SpecifierError;

    /// `SPEC` alone means `rw`.
    fn from_str(text: &str) -> Result<Self, SpecifierError> {
        match text.split_once(' ') {
            Some((spec, access)) => Self::new(spec, access),
            None => Ok(Self { name: Name::parse(text)?, access: Access::RW }),
        }
    }
}

impl fmt::Display for Specifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.access)
    }
}

impl Name {
    fn parse(spec: &str) -> Result<Self, SpecifierError> {
        if spec.chars().any(char::is_control) {
            return Err(SpecifierError::Unknown);
        }
        if spec.starts_with('@') {
            return if spec == "@hpc" { Ok(Self::Hpc) } else { Err(SpecifierError::Preset) };
        }
        for kind in [DeviceType::Char, DeviceType::Block] {
            let (class, numbers) = prefixes(kind);
            if let Some(class) = spec.strip_prefix(class) {
                return Self::class(kind, class);
            }
            if let Some(numbers) = spec.strip_prefix(numbers) {
                return Self::numbers(kind, numbers);
            }
        }
        Self::path(spec)
    }

    fn path(spec: &str) -> Result<Self, SpecifierError> {
        let below = spec.strip_prefix("/dev/").ok_or(SpecifierError::Unknown)?;
        let mut parts = below.split('/').filter(|part| !matches!(*part, "" | "."));
        let first = parts.next().ok_or(SpecifierError::Unknown)?;
        // These name the descriptors of whoever looks, here the helper's own.
        if matches!(first, "fd" | "stdin" | "stdout" | "stderr") {
            return Err(SpecifierError::Unknown);
        }
        if matches!(first, "shm" | "mqueue") {
            return Err(SpecifierError::Users);
        }
        // Numbers have one spelling, which has been looked for already.
        if matches!(first, "char" | "block") && parts.clone().next().is_some() {
            return Err(SpecifierError::Numbers);
        }
        if first == ".." || parts.any(|part| part == "..") {
            return Err(SpecifierError::Unknown);
        }
        match Glob::is_wild(below) {
            true => Ok(Self::Paths(PathPattern::parse(spec)?)),
            false => Ok(Self::Path(spec.to_owned())),
        }
    }

    fn numbers(kind: DeviceType, numbers: &str) -> Result<Self, SpecifierError> {
        let (major, minor) = numbers.split_once(':').ok_or(SpecifierError::Numbers)?;
        let major = number(major, MAJOR_MAX)?;
        let minor = number(minor, MINOR_MAX)?;
        Ok(Self::Numbers(kind, major, minor))
    }

    fn class(kind: DeviceType, class: &str) -> Result<Self, SpecifierError> {
        if class.is_empty() {
            return Err(SpecifierError::Unknown);
        }
        if class.bytes().all(|byte| byte.is_ascii_digit()) {
            return number(class, MAJOR_MAX).map(|major| Self::Major(kind, major));
        }
        let glob = Glob::is_wild(class).then(|| Glob::parse(class)).transpose()?;
        Ok(Self::Class(kind, class.to_owned(), glob))
    }
}

fn number(text: &str, most: u32) -> Result<u32, SpecifierError> {
    decimal(text).filter(|number| *number <= most).ok_or(SpecifierError::Numbers)
}

/// What classes and numbers of a kind begin with.
fn prefixes(kind: DeviceType) -> (&'static str, &'static str) {
    match kind {
        DeviceType::Char => ("char-", "/dev/char/"),
        DeviceType::Block => ("block-", "/dev/block/"),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Paths(pattern) => pattern.fmt(f),
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
    /// It has none of the forms.
    #[error("not a path below /dev, char-NAME, block-NAME or @hpc")]
    Unknown,
    /// Users choose what is there: a link to another job's device, for one.
    #[error("in a directory of users, who decide nothing about devices")]
    Users,
    /// Numbers in another spelling than the one, or larger than the kernel's.
    #[error(
        "not MAJOR:MINOR, or char- or block- and MAJOR, with a major up to 4095 and a minor up to \
         1048575"
    )]
    Numbers,
    /// A pattern that is none.
    #[error("not a pattern of *, ? and [abc], [a-z] or [!a] with at most 255 bytes in a name")]
    Pattern,
    /// Another word after `@`.
    #[error("there is no such preset, only @hpc")]
    Preset,
    /// What may be done with it cannot be told.
    #[error("access is not one to three letters out of r, w, m")]
    Access,
}

/// Drivers of whose devices each belongs to one GPU or to a part of one: all minors of such a major
/// are the GPUs of all jobs. Of `kfd` and `nvidia-uvm` every job uses the same device.
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

/// The devices that a specifier stands for: at least one, but for a preset, which may find none.
///
/// A plain path is resolved as stat(2) does, links included; a pattern of paths follows none. A
/// class, and a major by its number, stand for every minor of majors that have a driver now: a
/// major that is free would be the next driver's to take. Two numbers stand for their device
/// whether or not a node of it is there.
/// Fails: this node has no such device.
pub(in crate::helper::devices) fn resolve(
    tree: &Tree,
    specifier: &Specifier,
) -> Result<Found, DeviceError> {
    let mut found = by_name(tree, &specifier.name, specifier.access)?;
    found.warnings.extend(too_wide(tree, specifier, &found));
    Ok(found)
}

fn by_name(tree: &Tree, name: &Name, access: Access) -> Result<Found, DeviceError> {
    match name {
        Name::Path(path) => {
            let node = tree.node_behind_links(path).map_err(|error| match error {
                NodeError::Open(Errno::ENOENT) => DeviceError::absent(error),
                error => error.into(),
            })?;
            one(path, node, access)
        }
        Name::Paths(pattern) => paths(tree, pattern, access),
        Name::Numbers(kind, major, minor) => {
            one(&name.to_string(), Node { kind: *kind, major: *major, minor: *minor }, access)
        }
        Name::Class(kind, class, glob) => majors(tree, name, *kind, access, |_, driver| {
            glob.as_ref().map_or(driver == class, |glob| glob.matches(driver))
        }),
        Name::Major(kind, wanted) => majors(tree, name, *kind, access, |major, _| major == *wanted),
        Name::Hpc => Ok(hpc(tree, access)),
    }
}

fn one(path: &str, node: Node, access: Access) -> Result<Found, DeviceError> {
    Ok(vec![Device::of(path, node, access)?].into())
}

fn paths(tree: &Tree, pattern: &PathPattern, access: Access) -> Result<Found, DeviceError> {
    let matches = pattern.matches(tree)?;
    let mut found = Found::default();
    for (path, node) in matches.nodes {
        found.devices.push(Device::of(&path, node, access)?);
    }
    let unseen = matches.unseen.into_iter().map(|error| format!("{pattern}: {error}"));
    found.warnings.extend(unseen);
    match found.devices.is_empty() {
        true => Err(DeviceError::absent("no device node matches")),
        false => Ok(found),
    }
}

/// All devices of the majors that `wanted` says yes to, by number and by a name of its driver.
fn majors(
    tree: &Tree,
    name: &Name,
    kind: DeviceType,
    access: Access,
    wanted: impl Fn(u32, &str) -> bool,
) -> Result<Found, DeviceError> {
    let drivers = tree.drivers()?;
    let mut found = Found::default();
    for (major, _) in drivers.of_kind(kind).filter(|(major, driver)| wanted(*major, driver)) {
        let rule = DeviceRule::new(kind, major, None, access)?;
        let device = Device { node: name.to_string(), rule };
        // Several drivers may share one major.
        if !found.devices.contains(&device) {
            found.devices.push(device);
        }
    }
    match found.devices.is_empty() {
        true => Err(DeviceError::new("not in /proc/devices")),
        false => Ok(found),
    }
}

/// What `@hpc` finds here. A member that is not there is not missed; one that cannot be told is.
fn hpc(tree: &Tree, access: Access) -> Found {
    let mut found = Found::default();
    for member in HPC {
        let Ok(name) = Name::parse(member) else { continue };
        match by_name(tree, &name, access) {
            Ok(devices) => found.extend(devices),
            Err(error) if error.is_absent() => {}
            Err(error) => found.warnings.push(format!("{member} is left out: {error}")),
        }
    }
    found
}

/// What an administrator should know of a specifier that opens GPUs without naming one.
fn too_wide(tree: &Tree, specifier: &Specifier, found: &Found) -> Option<String> {
    if matches!(specifier.name, Name::Paths(_)) {
        let mut list = Allowlist::new();
        for device in &found.devices {
            // A pattern stands for no more devices than a list can hold.
            list.push(device.rule).ok()?;
        }
        let gpus = gpu_count(&list);
        return (gpus > 1)
            .then(|| format!("{specifier} opens {gpus} GPUs, whichever job they belong to"));
    }
    let mut whole = found.devices.iter().filter(|device| device.rule.minor().is_none()).peekable();
    let drivers = whole.peek().and_then(|_| tree.drivers().ok())?;
    let gpus: BTreeSet<_> = whole.flat_map(|device| gpu_drivers(drivers, &device.rule)).collect();
    let gpus: Vec<_> = gpus.into_iter().collect();
    (!gpus.is_empty()).then(|| {
        let gpus = gpus.join(", ");
        format!("{specifier} opens the GPUs of every job on this node: all devices of {gpus}")
    })
}

fn gpu_drivers<'a>(drivers: &'a ProcDevices, rule: &DeviceRule) -> impl Iterator<Item = &'a str> {
    let names = drivers.names(rule.kind(), rule.major());
    names.filter(|driver| GPU_DRIVERS.contains(driver))
}

/// Most bytes of a pattern; no name of a file has more (`NAME_MAX` of `linux/limits.h`).
const PATTERN_MAX: usize = 255;
/// The characters that make a text a pattern.
const WILD: [char; 3] = ['*', '?', '['];

/// A pattern of one name: `*` stands for any characters, `?` for one, `[abc]` and `[a-z]` for one
/// of these, `[!a]` and `[^a]` for any other. What fnmatch(3) knows besides, a backslash and the
/// named classes of characters, is no pattern here.
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
    /// Whether a text is meant as a pattern.
    pub fn is_wild(text: &str) -> bool {
        text.contains(WILD)
    }

    /// The pattern of a text of at most 255 bytes.
    /// Fails: [`SpecifierError::Pattern`] where it is longer, has a backslash or a bracket that is not
    /// closed, is empty or holds a range that is reversed.
    pub fn parse(text: &str) -> Result<Self, SpecifierError> {
        if text.len() > PATTERN_MAX {
            return Err(SpecifierError::Pattern);
        }
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(next) = chars.next() {
            let token = match next {
                '*' => Token::Any,
                '?' => Token::One,
                '[' => set(&mut chars)?,
                '\\' => return Err(SpecifierError::Pattern),
                other => Token::Char(other),
            };
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// Whether the pattern stands for the whole of `name`. Takes time in proportion to the lengths
    /// of both multiplied: only the last `*` is ever gone back to, since what an earlier one could
    /// take in addition the last one can take as well.
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
                (Some((token, after)), Some(next)) if token.takes(next) => {
                    tokens = after;
                    rest = ahead;
                }
                _ => {
                    // The last star takes one character more, if there is a star and one is left.
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
    fn takes(&self, next: char) -> bool {
        match self {
            Self::Char(own) => *own == next,
            Self::One | Self::Any => true,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&next)) != *negated
            }
        }
    }
}

/// The rest of a set, after its opening bracket. A `]` that comes first stands for itself, and so
/// does a `-` that comes first or last.
fn set(chars: &mut Chars<'_>) -> Result<Token, SpecifierError> {
    let mut next = chars.next().ok_or(SpecifierError::Pattern)?;
    let negated = matches!(next, '!' | '^');
    if negated {
        next = chars.next().ok_or(SpecifierError::Pattern)?;
    }
    let mut ranges = Vec::new();
    loop {
        if next == ']' && !ranges.is_empty() {
            return Ok(Token::Set { negated, ranges });
        }
        if matches!(next, '[' | '\\') {
            return Err(SpecifierError::Pattern);
        }
        let high = range_end(chars)?.unwrap_or(next);
        if high < next {
            return Err(SpecifierError::Pattern);
        }
        ranges.push((next, high));
        next = chars.next().ok_or(SpecifierError::Pattern)?;
    }
}

/// The upper end of a range, where `-` and something else than the end of the set follows.
fn range_end(chars: &mut Chars<'_>) -> Result<Option<char>, SpecifierError> {
    let mut ahead = chars.clone();
    match (ahead.next(), ahead.next()) {
        (Some('-'), Some(high)) if high != ']' => {
            *chars = ahead;
            if matches!(high, '[' | '\\') { Err(SpecifierError::Pattern) } else { Ok(Some(high)) }
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
