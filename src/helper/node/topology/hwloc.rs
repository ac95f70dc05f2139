//! The order in which hwloc lists the GPUs of a node, by which Flux numbers them.
//!
//! hwloc puts each PCI root bus below the smallest part of the machine that has all processors close
//! to the bus (`hwloc_pcicommon_tree_attach` in `hwloc/pci-common.c` of hwloc 2.x). Devices are listed
//! by a walk through this tree (`hwloc_list_special_objects` in `hwloc/topology.c`): parts of the
//! machine by their first processor, the buses of a part after those of the parts within it, buses of
//! one part by domain and number, and the functions of a bus by device and function, each bridge with
//! what is behind it.
//!
//! The parts that matter here are packages, dies and the sets of processors that are close to a bus.
//! Each is read from sysfs. hwloc's own rule for HPE's EX235A, by blocks of eight cores, gives the order
//! of the memory nodes there. A file in `HWLOC_PCI_LOCALITY` is not read.

use std::collections::BTreeSet;

use super::card::Vendor;
use super::{NumberedGpu, VendorKind};
use crate::node::pci::{FUNCTIONS_DIR, PciAddress};
use crate::node::{DeviceError, Tree};
use protocol::parse_decimal;

/// Maximum number of a processor.
const PROCESSOR_MAX: u32 = 65_535;
/// Maximum domain that hwloc has unless it was built for larger ones.
const DOMAIN_MAX: u32 = 0xffff;

/// Sorts the GPUs that hwloc's libraries report as hwloc lists them.
///
/// NVIDIA's and AMD's libraries report their own GPUs, AMD's only those that KFD knows. OpenCL reports
/// those of other vendors. No library reports a Habana card or a GPU without an address.
///
/// # Errors
///
/// The order is not certain: the node has GPUs of several vendors, and which of them hwloc was built
/// for is unknown; or a file of the node cannot be read, or gives sets of processors that overlap.
pub(super) fn sort_gpus(
    tree: &Tree,
    gpus: &[NumberedGpu],
) -> Result<Vec<NumberedGpu>, DeviceError> {
    let counted: Vec<&NumberedGpu> = gpus.iter().filter(|gpu| is_reported(gpu)).collect();
    let vendors: BTreeSet<VendorKind> = counted.iter().map(|gpu| gpu.vendor()).collect();
    if vendors.len() > 1 {
        return Err(DeviceError::new(
            "this node has GPUs of several makers, and Flux counts only those that its hwloc was built \
             for: name GPUs by address or UUID",
        ));
    }
    // One slot for each of the counted GPUs, in their order: all that are reported have an address.
    let mut slots = Vec::new();
    for gpu in &counted {
        slots.extend(gpu.address().map(|address| Slot::read(tree, address)));
    }
    let slots = slots.into_iter().collect::<Result<Vec<_>, _>>()?;
    let parts = MachineParts::read(tree, &slots)?;
    let mut sorted: Vec<_> = slots
        .iter()
        .zip(counted)
        .map(|(slot, gpu)| (parts.position(&slot.processors), &slot.bridges, gpu))
        .collect();
    // The partitions of a card share its place and keep their order.
    sorted.sort_by(
        |(position, bridges, _), (other_position, other_bridges, _)| {
            (position, bridges).cmp(&(other_position, other_bridges))
        },
    );
    Ok(sorted.into_iter().map(|(_, _, gpu)| gpu.clone()).collect())
}

/// Tells whether one of hwloc's libraries reports the GPU; [`sort_gpus`] says which do.
fn is_reported(gpu: &NumberedGpu) -> bool {
    match gpu {
        NumberedGpu::Card(card) => match &card.vendor {
            Vendor::Nvidia(_) | Vendor::Other => true,
            Vendor::Amd { parts } => !parts.is_empty(),
            Vendor::Habana => false,
        },
        NumberedGpu::Part { .. } => true,
        NumberedGpu::Integrated(_) => false,
    }
}

/// Where a GPU is plugged in.
#[derive(Debug)]
struct Slot {
    /// The functions from the root bus to the GPU.
    bridges: Vec<PciAddress>,
    /// The processors close to the root bus; none if they are unknown.
    processors: BTreeSet<u32>,
}

impl Slot {
    /// Reads where the GPU at an address is plugged in, from its link in sysfs.
    ///
    /// # Errors
    ///
    /// The domain is one that hwloc may hide, or a file of the function cannot be read.
    fn read(tree: &Tree, address: PciAddress) -> Result<Self, DeviceError> {
        if address.domain() > DOMAIN_MAX {
            return Err(DeviceError::new(format_args!(
                "hwloc hides {address} unless it was built for large domains, so that Flux may count \
                 without it: name GPUs by address or UUID"
            )));
        }
        let link = format!("{FUNCTIONS_DIR}/{address}");
        let target = tree.read_link_target(&link)?;
        // The target also has names that are no addresses, such as `pci0000:00`.
        let functions = target.split('/').filter_map(|name| name.parse().ok());
        // Functions of another domain are controllers that hide a whole tree behind them.
        let mut bridges: Vec<PciAddress> = functions
            .filter(|function: &PciAddress| function.domain() == address.domain())
            .collect();
        // Whatever the link leads over, it ends at the GPU.
        if bridges.last() != Some(&address) {
            bridges.push(address);
        }
        let first = bridges.first().copied().unwrap_or(address);
        let processors = read_processors(tree, &format!("{FUNCTIONS_DIR}/{first}/local_cpulist"))?;
        Ok(Self {
            bridges,
            processors: processors.unwrap_or_default(),
        })
    }
}

/// The parts of the machine that contain the processors close to GPUs, as sets of processors.
#[derive(Debug)]
struct MachineParts(Vec<BTreeSet<u32>>);

impl MachineParts {
    /// Reads for each of these slots the processors close to it, and the package and the die of the first one. A slot
    /// whose processors are unknown adds no part; a part for which sysfs has no file is left out.
    ///
    /// # Errors
    ///
    /// Two of these sets overlap without one containing the other, or a file cannot be read.
    fn read(tree: &Tree, slots: &[Slot]) -> Result<Self, DeviceError> {
        let mut parts: Vec<BTreeSet<u32>> = Vec::new();
        for slot in slots {
            let Some(first) = slot.processors.first() else {
                continue;
            };
            let dir = format!("/sys/devices/system/cpu/cpu{first}/topology");
            let package = match read_processors(tree, &format!("{dir}/package_cpus_list"))? {
                Some(package) => Some(package),
                // The name before Linux 5.3.
                None => read_processors(tree, &format!("{dir}/core_siblings_list"))?,
            };
            let die = read_processors(tree, &format!("{dir}/die_cpus_list"))?;
            let own = Some(slot.processors.clone());
            for part in [package, die, own].into_iter().flatten() {
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
        for (at, one) in parts.iter().enumerate() {
            for other in parts.iter().skip(at + 1) {
                let is_nested = one.is_subset(other) || other.is_subset(one);
                if !is_nested && !one.is_disjoint(other) {
                    return Err(DeviceError::new(
                        "the processors close to the GPUs of this node overlap, so that Flux's order is \
                         not certain: name GPUs by address or UUID",
                    ));
                }
            }
        }
        // The larger one of two nested sets comes first.
        parts.sort_by_key(|part| usize::MAX - part.len());
        Ok(Self(parts))
    }

    /// The place of a bus in hwloc's walk: the first processor of each part that contains these
    /// processors, from the largest part down, and then a number above all processors, since the buses
    /// of a part come after the parts within it. A bus without known processors comes after all others.
    fn position(&self, processors: &BTreeSet<u32>) -> Vec<u32> {
        let mut position = Vec::new();
        if !processors.is_empty() {
            let containing = self.0.iter().filter(|part| processors.is_subset(part));
            position.extend(containing.filter_map(|part| part.first().copied()));
        }
        position.push(u32::MAX);
        position
    }
}

/// Reads a list of processors, such as `0-13,112-125`; `None` if there is no such file.
fn read_processors(tree: &Tree, path: &str) -> Result<Option<BTreeSet<u32>>, DeviceError> {
    let Some(text) = tree.read_text_if_exists(path)? else {
        return Ok(None);
    };
    let processors = parse_processors(text.trim_end());
    processors
        .map(Some)
        .ok_or_else(|| DeviceError::at(path, "no list of processors"))
}

/// Parses a list of processors, which is empty for an empty text; `None` for a text of another form, a range that runs
/// backwards, or a number that is too large.
fn parse_processors(text: &str) -> Option<BTreeSet<u32>> {
    let mut processors = BTreeSet::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = parse_decimal(first)?;
        let last: u32 = parse_decimal(last)?;
        if last < first || last > PROCESSOR_MAX {
            return None;
        }
        processors.extend(first..=last);
    }
    Some(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_parsed() {
        let parse = |text| parse_processors(text).map(|set| set.into_iter().collect::<Vec<_>>());
        assert_eq!(parse(""), Some(vec![]));
        assert_eq!(parse("0-2,7"), Some(vec![0, 1, 2, 7]));
        for text in ["a", "0-", "-1", "0-65536", "0--1", "01"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// What a list is, the list, and its processors in ranges, `None` if it is no list.
    type List = (&'static str, &'static str, Option<&'static [[u32; 2]]>);

    /// What the tests of runc (`ToCPUSet`), opencontainers/cgroups (`RangeToBits`) and flux-core (`sdexec_parse_bitmap`)
    /// ask. They read what users write; this list is the kernel's, which has no blanks and one spelling.
    const LISTS: [List; 42] = [
        ("nothing", "", Some(&[])),
        ("the first", "0", Some(&[[0, 0]])),
        ("the second", "1", Some(&[[1, 1]])),
        ("two as a range", "0-1", Some(&[[0, 1]])),
        ("two by a comma", "0,1", Some(&[[0, 1]])),
        ("commas around", ",0,1,", Some(&[[0, 1]])),
        ("four as a range", "0-3", Some(&[[0, 3]])),
        ("two and a range", "0,1,2-3", Some(&[[0, 3]])),
        ("a range and one", "0-2,8", Some(&[[0, 2], [8, 8]])),
        ("a range of the second four", "4-7", Some(&[[4, 7]])),
        ("a byte", "0-7", Some(&[[0, 7]])),
        ("two bytes", "0-15", Some(&[[0, 15]])),
        (
            "two ranges beside each other",
            "8-15,16-23",
            Some(&[[8, 23]]),
        ),
        ("the first of the third byte", "16", Some(&[[16, 16]])),
        (
            "two ranges with a gap",
            "0-3,32-33",
            Some(&[[0, 3], [32, 33]]),
        ),
        (
            "ranges out of order",
            "127-129,1",
            Some(&[[1, 1], [127, 129]]),
        ),
        (
            "ranges out of order, behind a word",
            "128-130,1",
            Some(&[[1, 1], [128, 130]]),
        ),
        ("one that stands twice", "1,2,1-2", Some(&[[1, 2]])),
        ("ranges that overlap", "0-5,3-8", Some(&[[0, 8]])),
        ("a range of one", "5-5", Some(&[[5, 5]])),
        ("the last of a mask of 1,024", "1023", Some(&[[1023, 1023]])),
        ("the first behind that mask", "1024", Some(&[[1024, 1024]])),
        (
            "the last that the kernel can be built for",
            "8191",
            Some(&[[8191, 8191]]),
        ),
        ("a range far behind", "4096-4098", Some(&[[4096, 4098]])),
        ("the last that is taken", "65535", Some(&[[65535, 65535]])),
        // The others take none for a mistake of the user's; for the kernel it is a list of none.
        ("a comma alone", ",", Some(&[])),
        // The others' last one is 65,536.
        ("one behind the last", "65536", None),
        ("one behind the last, beside the first", "0,65536", None),
        ("two behind the last", "65537", None),
        ("a range that ends behind the last", "0-65537", None),
        // The others skip blanks between ranges. The kernel writes none.
        ("blanks behind commas", "1, 2, 1-2", None),
        ("blanks everywhere", "  , 1  , 3 , 5-7,  ", None),
        ("a blank alone", " ", None),
        ("blanks in a range", "1 - 2", None),
        ("a hyphen alone", "-", None),
        ("a range without an end", "1-", None),
        ("a range without a start", "-3", None),
        ("a range that runs backwards", "54-53", None),
        ("a range that runs backwards, beside one", "0-3,54-53", None),
        ("a letter", "x", None),
        ("a letter beside a number", "0,x", None),
        ("two lines", "0-1\n2", None),
    ];

    #[test]
    fn lists_have_the_processors_that_other_parsers_find() {
        let mut differences = Vec::new();
        for (name, text, ranges) in LISTS {
            let expected = ranges.map(|ranges| {
                let all = ranges.iter().flat_map(|[first, last]| *first..=*last);
                all.collect::<BTreeSet<u32>>()
            });
            let found = parse_processors(text);
            if found != expected {
                differences.push(format!("{name}: {text:?}: {found:?}"));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}
