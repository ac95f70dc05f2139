//! Why a name means no device of this node.

use std::fmt;

/// Why a name resolves to no device. The text names the file or device at fault and the remedy, if
/// there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    text: String,
    absent: bool,
}

impl DeviceError {
    /// Describes a fault that has no file, directory or device node of its own.
    pub fn new(text: impl fmt::Display) -> Self {
        Self {
            text: text.to_string(),
            absent: false,
        }
    }

    /// Reports the fault of a file, a directory or a device node.
    pub fn at(object: impl fmt::Display, fault: impl fmt::Display) -> Self {
        Self::new(format_args!("{object}: {fault}"))
    }

    /// Reports that no such device node exists.
    pub fn absent(text: impl fmt::Display) -> Self {
        Self {
            absent: true,
            ..Self::new(text)
        }
    }

    /// Tells whether the only fault is that no such device node exists.
    pub fn is_absent(&self) -> bool {
        self.absent
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `DeviceError` is not an [`std::error::Error`] itself, so that this conversion can cover every
/// type that is one.
impl<E: std::error::Error> From<E> for DeviceError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
