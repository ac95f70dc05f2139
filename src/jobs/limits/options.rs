//! The options for limits, and what they mean on this node.

use super::kind::{
    Amount, CORES, Limit, LimitKind, MEMORY, MEMORY_HIGH, MEMORY_NODES, SWAP, find_limit,
};
use clap::Args;
use command::error::Error;
use command::number_list::NumberList;
use command::options::parse_value;
use facts::limits_in_force::NO_LIMIT_BYTES_MIN;
use helper::node::Tree;
use nix::unistd::{SysconfVar, sysconf};
use protocol::LoginLimits;
use std::str::FromStr;

const CORES_DIR: &str = "/sys/devices/system/cpu";
const MEMORY_NODES_DIR: &str = "/sys/devices/system/node";
/// Least memory with which a login starts.
const BYTES_MIN: u64 = (LoginLimits::MEMORY_MIB_MIN as u64) << 20;

/// The options by which `run` and `register` limit a job.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct LimitOptions {
    /// The job's cores, by the kernel's numbers
    #[arg(long, value_name = "LIST", value_parser = parse_value::<NumberList>)]
    cores: Option<NumberList>,
    /// The job's memory nodes; those of --cores unless given
    #[arg(long, value_name = "LIST", value_parser = parse_value::<NumberList>)]
    memory_nodes: Option<NumberList>,
    /// The job's memory: bytes, or with K, M, G, T, or a percentage of the node's; or infinity
    #[arg(long, value_name = "SIZE", value_parser = parse_value::<Size>)]
    memory: Option<Size>,
    /// Memory above which the job is slowed down
    #[arg(long, value_name = "SIZE", value_parser = parse_value::<Size>)]
    memory_high: Option<Size>,
    /// The job's swap
    #[arg(long, value_name = "SIZE", value_parser = parse_value::<Size>)]
    swap: Option<Size>,
}

/// An amount of memory as an option has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Bytes(u64),
    /// Of the memory of the node.
    Percent(u32),
    Infinity,
}

/// A text that is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not bytes, a whole number with K, M, G or T, 1% to 100%, or infinity")]
struct MalformedSize;

impl FromStr for Size {
    type Err = MalformedSize;

    fn from_str(text: &str) -> Result<Self, MalformedSize> {
        if text == "infinity" {
            return Ok(Self::Infinity);
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent = parse_number(percent)?;
            let fits = u32::try_from(percent)
                .ok()
                .filter(|it| (1..=100).contains(it));
            return fits.map(Self::Percent).ok_or(MalformedSize);
        }
        for (unit, shift) in [('K', 10), ('M', 20), ('G', 30), ('T', 40)] {
            if let Some(number) = text.strip_suffix(unit) {
                let bytes = parse_number(number)?.checked_mul(1 << shift);
                return bytes.map(Self::Bytes).ok_or(MalformedSize);
            }
        }
        Ok(Self::Bytes(parse_number(text)?))
    }
}

/// Parses a number without sign or leading zeros.
fn parse_number(text: &str) -> Result<u64, MalformedSize> {
    let number: u64 = text.parse().map_err(|_| MalformedSize)?;
    if number.to_string() == text {
        Ok(number)
    } else {
        Err(MalformedSize)
    }
}

impl LimitOptions {
    /// Whether no limit is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares the options with the node, and completes them: memory nodes are those of the cores, and a percentage is
    /// that of the node's memory.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for sizes that limit nothing or let no login start, and [`Error::Failed`] for cores and memory
    /// nodes that the node does not have, and for files that cannot be read.
    pub(super) fn resolve(&self, command: &str, tree: &Tree) -> Result<Vec<Limit>, Error> {
        let mut limits = Vec::new();
        if let Some(cores) = &self.cores {
            require_online(cores, tree)?;
            limits.push(Limit::new(&CORES, Amount::Numbers(cores.clone())));
        }
        let nodes = match (&self.memory_nodes, &self.cores) {
            (Some(nodes), _) => {
                require_memory(nodes, tree)?;
                Some(nodes.clone())
            }
            (None, Some(cores)) => find_memory_nodes(cores, tree)?,
            (None, None) => None,
        };
        limits.extend(nodes.map(|nodes| Limit::new(&MEMORY_NODES, Amount::Numbers(nodes))));
        for (size, kind, min) in [
            (self.memory, &MEMORY, BYTES_MIN),
            (self.memory_high, &MEMORY_HIGH, BYTES_MIN),
            (self.swap, &SWAP, 0),
        ] {
            let Some(size) = size else {
                continue;
            };
            let bytes = count_bytes(size, tree)?;
            if let Some(cause) = bytes.and_then(|bytes| explain_impossible(bytes, min)) {
                let cause = format!("option {}: {cause}", kind.option);
                return Err(Error::usage(command, cause));
            }
            limits.push(Limit::new(kind, Amount::Bytes(bytes)));
        }
        let max = find_bytes(&limits, &MEMORY).unwrap_or(u64::MAX);
        if find_bytes(&limits, &MEMORY_HIGH).is_some_and(|high| high > max) {
            let cause = "option --memory-high: above --memory it slows nothing down";
            return Err(Error::usage(command, cause));
        }
        Ok(limits)
    }
}

/// Explains why a job cannot have this limit of bytes; `None` if it can.
fn explain_impossible(bytes: u64, min: u64) -> Option<&'static str> {
    if bytes < min {
        return Some("below 64M no login starts");
    }
    // The kernel shows its greatest number of pages as `max`.
    (bytes >= NO_LIMIT_BYTES_MIN).then_some("no node has so much; infinity is no limit")
}

/// Returns the bytes of a limit; `None` for no limit, and if it is not among these.
fn find_bytes(limits: &[Limit], kind: &LimitKind) -> Option<u64> {
    match find_limit(limits, kind)?.amount {
        Amount::Bytes(bytes) => bytes,
        Amount::Numbers(_) => None,
    }
}

/// Counts the bytes of a size, whole pages as the kernel does; `None` for no limit.
fn count_bytes(size: Size, tree: &Tree) -> Result<Option<u64>, Error> {
    let bytes = match size {
        Size::Infinity => return Ok(None),
        Size::Bytes(bytes) => bytes,
        Size::Percent(percent) => {
            let bytes = read_memory(tree)?;
            bytes / 100 * u64::from(percent) + bytes % 100 * u64::from(percent) / 100
        }
    };
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|page| u64::try_from(page).ok()).unwrap_or(1);
    Ok(Some(bytes - bytes % page.max(1)))
}

/// Reads the bytes of the node's memory that the kernel has for programs (proc_meminfo(5)).
fn read_memory(tree: &Tree) -> Result<u64, Error> {
    const FILE: &str = "/proc/meminfo";
    let text = read_file(tree, FILE)?;
    let total = text.lines().find_map(|line| {
        let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()?.checked_mul(1024)
    });
    total.ok_or_else(|| Error::failed("read", FILE, "no MemTotal"))
}

fn read_file(tree: &Tree, path: &str) -> Result<String, Error> {
    let text = tree.read_text(path);
    text.map_err(|error| Error::Failed(error.to_string()))
}

/// Reads a list of the kernel; `None` for an empty one, and for a file that is not there.
fn read_list(tree: &Tree, path: &str) -> Result<Option<NumberList>, Error> {
    let text = tree.read_text_if_exists(path);
    let text = text.map_err(|error| Error::Failed(error.to_string()))?;
    let text = text.as_deref().unwrap_or_default().trim_end();
    if text.is_empty() {
        return Ok(None);
    }
    let list = text.parse();
    list.map(Some)
        .map_err(|error| Error::failed("read", path, error))
}

/// Requires that the node has these cores, and that they run. The kernel takes also those that do not, and leaves the
/// job to the others.
fn require_online(cores: &NumberList, tree: &Tree) -> Result<(), Error> {
    let refuse = |cause: String| Err(Error::failed("limit job to cores", cores, cause));
    let read = |name: &str| read_list(tree, &format!("{CORES_DIR}/{name}"));
    let (Some(present), Some(online)) = (read("present")?, read("online")?) else {
        return refuse(format!("{CORES_DIR} has no list of the node's cores"));
    };
    if let Some(missing) = cores.without(&present) {
        return refuse(format!("the node has no core {missing}: it has {present}"));
    }
    if let Some(offline) = cores.without(&online) {
        let remedy = "take others, or write 1 to the file online of each in";
        return refuse(format!("{offline} is offline: {remedy} {CORES_DIR}"));
    }
    Ok(())
}

/// Requires that each of these nodes has memory: the kernel gives a job whose nodes have none the memory of others.
fn require_memory(nodes: &NumberList, tree: &Tree) -> Result<(), Error> {
    let refuse = |cause: String| Err(Error::failed("limit job to memory nodes", nodes, cause));
    let Some(usable) = read_list(tree, &format!("{MEMORY_NODES_DIR}/has_memory"))? else {
        return refuse("the kernel has no memory nodes (CONFIG_NUMA)".to_owned());
    };
    match nodes.without(&usable) {
        Some(missing) => refuse(format!("{missing} has no memory: {usable} have")),
        None => Ok(()),
    }
}

/// Finds the memory nodes of cores: those with any of the cores, and those without cores that the firmware counts to
/// one of these (`numaperf.rst`), such as memory on the package. `None` if none of them has memory, and without memory
/// nodes.
fn find_memory_nodes(cores: &NumberList, tree: &Tree) -> Result<Option<NumberList>, Error> {
    let usable = read_list(tree, &format!("{MEMORY_NODES_DIR}/has_memory"))?;
    let Some(usable) = usable else {
        return Ok(None);
    };
    let all = read_list(tree, &format!("{MEMORY_NODES_DIR}/online"))?.unwrap_or(usable.clone());
    let mut near = Vec::new();
    let mut without_cores = Vec::new();
    for node in all.numbers() {
        match read_list(tree, &format!("{MEMORY_NODES_DIR}/node{node}/cpulist"))? {
            Some(own) if own.has_any_of(cores) => near.push(node),
            Some(_) => {}
            None => without_cores.push(node),
        }
    }
    for node in without_cores {
        let dir = format!("{MEMORY_NODES_DIR}/node{node}/access0/initiators");
        // Without the folder the firmware counts the node to no other.
        let names = tree.list_names(&dir).unwrap_or_default();
        let is_initiator = |other: &u32| names.contains(&format!("node{other}"));
        if near.iter().any(is_initiator) {
            near.push(node);
        }
    }
    let near = near.into_iter().filter(|node| usable.contains(*node));
    Ok(NumberList::from_numbers(near))
}

#[cfg(test)]
mod tests {
    mod mapper;

    use super::*;
    use crate::testing::Scratch;

    /// A node with two sockets, of which each has cores, memory and memory on the package; core 7 is offline, and the
    /// last memory node is a GPU's.
    fn make_node() -> Scratch {
        let scratch = Scratch::new();
        scratch.file("sys/devices/system/cpu/present", "0-7\n");
        scratch.file("sys/devices/system/cpu/online", "0-6\n");
        let nodes = "sys/devices/system/node";
        scratch.file(&format!("{nodes}/online"), "0-5\n");
        scratch.file(&format!("{nodes}/has_memory"), "0-1,3-5\n");
        for (node, cores) in ["0-2", "4-6", "3", "", "", ""].iter().enumerate() {
            scratch.file(
                &format!("{nodes}/node{node}/cpulist"),
                &format!("{cores}\n"),
            );
        }
        scratch.dir(&format!("{nodes}/node3/access0/initiators/node0"));
        scratch.dir(&format!("{nodes}/node4/access0/initiators/node1"));
        scratch.file(
            "proc/meminfo",
            "MemTotal:        1000000 kB\nMemFree: 1 kB\n",
        );
        scratch
    }

    fn resolve(node: &Scratch, options: &[(&str, &str)]) -> Result<Vec<(String, String)>, Error> {
        let mut given = LimitOptions::default();
        for (name, value) in options {
            match *name {
                "cores" => given.cores = Some(value.parse().unwrap()),
                "memory_nodes" => given.memory_nodes = Some(value.parse().unwrap()),
                "memory" => given.memory = Some(value.parse().unwrap()),
                "memory_high" => given.memory_high = Some(value.parse().unwrap()),
                "swap" => given.swap = Some(value.parse().unwrap()),
                _ => panic!("{name}"),
            }
        }
        let tree = Tree::with_root(node.path(), node.trust());
        let limits = given.resolve("run", &tree)?;
        let row = |limit: &Limit| (limit.kind.file.to_owned(), limit.amount.to_string());
        Ok(limits.iter().map(row).collect())
    }

    #[test]
    fn memory_nodes_are_those_of_the_cores() {
        let node = make_node();
        for (cores, nodes) in [
            ("0-2", Some("0,3")),
            ("2,4", Some("0-1,3-4")),
            ("6", Some("1,4")),
            // Its node has no memory.
            ("3", None),
            ("1,3", Some("0,3")),
        ] {
            let mut expected = vec![("cpuset.cpus".to_owned(), cores.to_owned())];
            expected.extend(nodes.map(|nodes| ("cpuset.mems".to_owned(), nodes.to_owned())));
            assert_eq!(resolve(&node, &[("cores", cores)]).unwrap(), expected);
        }
        let chosen = resolve(&node, &[("cores", "0"), ("memory_nodes", "5")]).unwrap();
        assert_eq!(chosen[1], ("cpuset.mems".into(), "5".into()));
    }

    #[test]
    fn node_without_memory_nodes_limits_cores_alone() {
        let node = Scratch::new();
        node.file("sys/devices/system/cpu/present", "0-1\n");
        node.file("sys/devices/system/cpu/online", "0-1\n");
        assert_eq!(resolve(&node, &[("cores", "1")]).unwrap().len(), 1);
        let error = resolve(&node, &[("memory_nodes", "0")]).unwrap_err();
        assert!(error.to_string().contains("CONFIG_NUMA"), "{error}");
    }

    #[test]
    fn cores_and_memory_nodes_that_the_node_lacks_are_refused() {
        let node = make_node();
        for (name, value, cause) in [
            (
                "cores",
                "6-9",
                "cores 6-9: the node has no core 8-9: it has 0-7",
            ),
            ("cores", "6-7", "cores 6-7: 7 is offline: take others"),
            (
                "memory_nodes",
                "1-2",
                "nodes 1-2: 2 has no memory: 0-1,3-5 have",
            ),
            ("memory_nodes", "9", "nodes 9: 9 has no memory"),
        ] {
            let error = resolve(&node, &[(name, value)]).unwrap_err();
            assert!(error.to_string().contains(cause), "{error}");
            assert_eq!(error.exit_code(), 3);
        }
    }

    #[test]
    fn sizes_are_bytes_units_percentages_or_infinity() {
        let node = make_node();
        for (size, bytes) in [
            ("67108864", "67108864"),
            ("100001K", "102400000"),
            ("64M", "67108864"),
            ("3G", "3221225472"),
            ("2T", "2199023255552"),
            ("50%", "512000000"),
            ("infinity", "max"),
        ] {
            let limits = resolve(&node, &[("memory", size), ("swap", size)]).unwrap();
            let expected = ["memory.max", "memory.swap.max"].map(|it| (it.into(), bytes.into()));
            assert_eq!(limits, expected, "{size}");
        }
        for wrong in [
            "",
            "K",
            "-1",
            "+1",
            "1.5G",
            "01",
            "1g",
            "1P",
            "0%",
            "101%",
            "%",
            "max",
            "16777216T",
        ] {
            assert_eq!(wrong.parse::<Size>(), Err(MalformedSize), "{wrong}");
        }
        for name in ["memory", "memory_high"] {
            for small in ["63M", "0", "1%"] {
                let error = resolve(&node, &[(name, small)]).unwrap_err();
                assert_eq!(error.exit_code(), 2, "{error}");
                assert!(error.to_string().contains("64M"), "{error}");
            }
        }
        assert_eq!(resolve(&node, &[("swap", "0")]).unwrap()[0].1, "0");
    }

    #[test]
    fn sizes_that_limit_nothing_are_wrong_usage() {
        let node = make_node();
        for (options, cause) in [
            (
                &[("memory", "16777215T")][..],
                "--memory: no node has so much; infinity is no limit",
            ),
            (&[("swap", "4194304T")], "--swap: no node has so much"),
            (
                &[("memory_high", "9223372036854775807")],
                "--memory-high: no node has so much",
            ),
            (
                &[("memory", "1G"), ("memory_high", "1025M")],
                "--memory-high: above --memory it slows nothing down",
            ),
            (
                &[("memory", "500M"), ("memory_high", "90%")],
                "--memory-high: above --memory",
            ),
        ] {
            let error = resolve(&node, options).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(cause), "{error}");
        }
        for options in [
            &[("memory", "4194303T")][..],
            &[("memory", "1G"), ("memory_high", "1G")],
            &[("memory", "1G"), ("memory_high", "infinity")],
            &[("memory", "infinity"), ("memory_high", "1G")],
        ] {
            assert_eq!(resolve(&node, options).unwrap().len(), options.len());
        }
    }
}
