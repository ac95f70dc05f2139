//! Lists of devices that the program knows by a name of their own.

use std::fmt;

/// A list of devices. Whatever of it a node has is meant, and what it has not is not missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preset {
    /// What parallel jobs need besides GPUs.
    Hpc,
}

/// [`Preset::Hpc`]: file systems in user space; InfiniBand and RoCE; Slingshot; memory shared
/// between processes by XPMEM and KNEM; memory of GPUs mapped by GDRCopy. Of InfiniBand neither
/// `umad*` nor `issm*`: with these one manages the subnet, which is the fabric of every other job
/// too.
const HPC: [&str; 7] = [
    "/dev/fuse",
    "/dev/infiniband/uverbs*",
    "/dev/infiniband/rdma_cm",
    "/dev/cxi*",
    "/dev/xpmem",
    "/dev/knem",
    "/dev/gdrdrv",
];

impl Preset {
    /// The preset of a name, which is written without its `@`.
    pub(super) fn of(name: &str) -> Option<Self> {
        [Self::Hpc].into_iter().find(|preset| preset.name() == name)
    }

    /// The specifiers of its devices, without an access.
    pub(super) fn members(self) -> &'static [&'static str] {
        match self {
            Self::Hpc => &HPC,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hpc => "hpc",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.name())
    }
}
