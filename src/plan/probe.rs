//! Device nodes that a login is tried on once it is in its job.

use std::fmt;
use std::str::FromStr;

use super::{AbsolutePath, Access, DeviceRule};

/// Most nodes that are tried.
pub const MAX_PROBES: usize = 64;
/// Most bytes of a path.
const PATH_MAX: usize = 32;

/// A device node of the scheduler's: its path in `/dev`, and the numbers that it has to have.
/// Written as `c:195:0:rw /dev/nvidia0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Type, major and minor; both numbers are given, and the access is `rw`.
    pub device: DeviceRule,
    /// Its path, below `/dev`.
    pub path: AbsolutePath,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.device, self.path)
    }
}

/// A text that is no probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeError;

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a probe is TYPE:MAJOR:MINOR:rw and a path of at most 32 bytes below /dev")
    }
}

impl std::error::Error for ProbeError {}

impl FromStr for Probe {
    type Err = ProbeError;

    fn from_str(text: &str) -> Result<Self, ProbeError> {
        let (device, path) = text.split_once(' ').ok_or(ProbeError)?;
        let device: DeviceRule = device.parse().map_err(|_| ProbeError)?;
        let path: AbsolutePath = path.parse().map_err(|_| ProbeError)?;
        let probe = Self { device, path };
        let single = probe.device.minor().is_some() && probe.device.access() == Access::RW;
        let path = probe.path.as_str();
        let in_dev = path.starts_with("/dev/") && path.len() <= PATH_MAX;
        if single && in_dev && probe.to_string() == text { Ok(probe) } else { Err(ProbeError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_read_back() {
        let longest = format!("b:259:3:rw /dev/{}", "d".repeat(27));
        for text in ["c:195:0:rw /dev/nvidia0", "c:226:128:rw /dev/dri/renderD128", &longest] {
            assert_eq!(text.parse::<Probe>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nothing_else_is_one() {
        let long = format!("c:195:0:rw /dev/{}", "d".repeat(28));
        for text in [
            "",
            "c:195:0:rw",
            "/dev/nvidia0",
            "c:195:-1:rw /dev/nvidia0",
            "c:195:0:r /dev/nvidia0",
            "c:195:0:rwm /dev/nvidia0",
            "c:0195:0:rw /dev/nvidia0",
            "c:195:0:wr /dev/nvidia0",
            "c:195:0:rw  /dev/nvidia0",
            "c:195:0:rw /etc/nvidia0",
            "c:195:0:rw /device/nvidia0",
            "c:195:0:rw /dev/",
            "c:195:0:rw /dev/../etc/x",
            "c:195:0:rw dev/nvidia0",
            &long,
        ] {
            assert_eq!(text.parse::<Probe>(), Err(ProbeError), "{text}");
        }
    }
}
