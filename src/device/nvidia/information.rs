//! `/proc/driver/nvidia/gpus/ADDRESS/information`, as `kernel-open/nvidia/nv-procfs.c` of the
//! driver writes it: lines of a key, a colon, blanks and a value.

use super::NvidiaError;
use crate::device::gpu_name::{PciAddress, Uuid};
use crate::device::{Tree, major};
use crate::plan::decimal;

const GPUS: &str = "/proc/driver/nvidia/gpus";
/// Most GPUs of a node; there are not even as many minors.
const GPUS_MAX: usize = 256;
/// How drivers tell, the older ones by the second key, that a GPU is not to be used
/// (`NVreg_ExcludedGpus`).
const EXCLUDED: [&str; 2] = ["GPU Excluded", "Blacklisted"];

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its PCI address.
    pub address: PciAddress,
    /// Its UUID, where the driver knows it.
    pub uuid: Option<Uuid>,
    /// Minor of its device node, 0 to 247.
    pub minor: u32,
}

/// The GPUs that the driver has and does not exclude, by PCI address. None where there is no
/// driver.
///
/// # Errors
/// [`NvidiaError`] for files that cannot be read or that say nothing sensible, for two GPUs of one
/// UUID or minor, and past 256 GPUs.
pub fn gpus(tree: &Tree) -> Result<Vec<Gpu>, NvidiaError> {
    let names = match tree.names(GPUS) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        names => names?,
    };
    if names.len() > GPUS_MAX {
        return Err(NvidiaError::Crowded { path: GPUS, most: GPUS_MAX });
    }
    let mut gpus = Vec::new();
    for name in names {
        let path = format!("{GPUS}/{name}/information");
        let Ok(address) = name.parse() else {
            return Err(NvidiaError::Odd { path, what: "not below the PCI address of a GPU" });
        };
        gpus.extend(parse(address, &tree.text(&path)?, &path)?);
    }
    gpus.sort_unstable_by_key(|gpu| gpu.address);
    distinct(gpus)
}

/// `None` for a GPU that is excluded.
fn parse(address: PciAddress, text: &str, path: &str) -> Result<Option<Gpu>, NvidiaError> {
    if EXCLUDED.iter().any(|key| value(text, key) == Some("Yes")) {
        return Ok(None);
    }
    let minor = value(text, "Device Minor").and_then(decimal);
    let Some(minor) = minor.filter(|minor| major::NVIDIA_GPUS.contains(minor)) else {
        let (path, what) = (path.to_owned(), "no Device Minor from 0 to 247");
        return Err(NvidiaError::Odd { path, what });
    };
    // Until something has initialised the GPU, there is no such line, or it has question marks.
    let uuid = value(text, "GPU UUID").and_then(|uuid| uuid.strip_prefix("GPU-")?.parse().ok());
    Ok(Some(Gpu { address, uuid, minor }))
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (of, value) = line.split_once(':')?;
        (of.trim() == key).then(|| value.trim())
    })
}

/// The GPUs, if no two of them go by one name.
fn distinct(gpus: Vec<Gpu>) -> Result<Vec<Gpu>, NvidiaError> {
    let mut rest = gpus.as_slice();
    while let [gpu, others @ ..] = rest {
        let (first, minor) = (gpu.address, gpu.minor);
        if let Some(twin) = others.iter().find(|other| other.minor == minor) {
            let what = format!("minor {minor}");
            return Err(NvidiaError::Twins { first, second: twin.address, what });
        }
        if let Some(uuid) = &gpu.uuid {
            if let Some(twin) = others.iter().find(|other| other.uuid.as_ref() == Some(uuid)) {
                let what = format!("UUID GPU-{uuid}");
                return Err(NvidiaError::Twins { first, second: twin.address, what });
            }
        }
        rest = others;
    }
    Ok(gpus)
}
