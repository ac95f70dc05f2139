//! The one spelling of a device: `SPEC` or `SPEC SpecifierError::Access`.

mod glob;
mod path_pattern;
mod resolve;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::protocol::{Access, DeviceType, MAJOR_MAX, MINOR_MAX, decimal};

pub use glob::{Glob, GlobError};
use path_pattern::PathPattern;
pub(super) use resolve::resolve;

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
    /// Every device of the drivers with this name in `/proc/devices`.
    Class(DeviceType, String),
    /// Every device of the drivers with names like this.
    Classes(DeviceType, String, Glob),
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
            if let Some(class) = spec.strip_prefix(class_prefix(kind)) {
                return Self::class(kind, class);
            }
            if let Some(numbers) = spec.strip_prefix(numbers_prefix(kind)) {
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
        if Glob::is_wild(class) {
            return Ok(Self::Classes(kind, class.to_owned(), Glob::parse(class)?));
        }
        Ok(Self::Class(kind, class.to_owned()))
    }
}

fn number(text: &str, most: u32) -> Result<u32, SpecifierError> {
    decimal(text).filter(|number| *number <= most).ok_or(SpecifierError::Numbers)
}

fn class_prefix(kind: DeviceType) -> &'static str {
    match kind {
        DeviceType::Char => "char-",
        DeviceType::Block => "block-",
    }
}

fn numbers_prefix(kind: DeviceType) -> &'static str {
    match kind {
        DeviceType::Char => "/dev/char/",
        DeviceType::Block => "/dev/block/",
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Paths(pattern) => pattern.fmt(f),
            Self::Numbers(kind, major, minor) => {
                write!(f, "{}{major}:{minor}", numbers_prefix(*kind))
            }
            Self::Class(kind, class) | Self::Classes(kind, class, _) => {
                write!(f, "{}{class}", class_prefix(*kind))
            }
            Self::Major(kind, major) => write!(f, "{}{major}", class_prefix(*kind)),
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
    #[error("{0}")]
    Pattern(#[from] GlobError),
    /// Another word after `@`.
    #[error("there is no such preset, only @hpc")]
    Preset,
    /// What may be done with it cannot be told.
    #[error("access is not one to three letters out of r, w, m")]
    Access,
}

#[cfg(test)]
mod tests;
