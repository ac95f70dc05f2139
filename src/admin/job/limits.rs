//! Limits of a job's cgroup: cores, memory nodes and memory, for the job and so for its logins.
//!
//! `run` sets them on the cgroup that it makes. `register` only checks them: its cgroup belongs to a scheduler, or to
//! systemd, which would write its own values again. Both refuse a job whose limits are not in force: systemd takes
//! `AllowedCPUs=` also where the kernel does not hold a job to it.

use super::limits_in_force::NO_LIMIT_BYTES_MIN;
use crate::error::Error;
use crate::number_list::NumberList;
use crate::options::parse_value;
use crate::shell::shell_word;
use clap::Args;
use helper::node::Tree;
use kernel::cgroup::{CgroupChain, Dir, Membership};
use kernel::proc::{self, Proc, find_field};
use kernel::sys::attributes::{CpuMask, reset_memory_policy, set_cpus};
use nix::unistd::{Pid, SysconfVar, sysconf};
use protocol::LoginLimits;
use std::fmt;
use std::str::FromStr;

const CORES_DIR: &str = "/sys/devices/system/cpu";
const MEMORY_NODES_DIR: &str = "/sys/devices/system/node";
/// Least memory with which a login starts.
const BYTES_MIN: u64 = (LoginLimits::MEMORY_MIB_MIN as u64) << 20;

/// The options by which `run` and `register` limit a job.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(super) struct LimitOptions {
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
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares the options with the node, and completes them: memory nodes are those of the cores, and a percentage is
    /// that of the node's memory.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for sizes that limit nothing or let no login start, and [`Error::Failed`] for cores and memory
    /// nodes that the node does not have, and for files that cannot be read.
    fn resolve(&self, command: &str, tree: &Tree) -> Result<Vec<Limit>, Error> {
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

fn find_limit<'a>(limits: &'a [Limit], kind: &LimitKind) -> Option<&'a Limit> {
    limits.iter().find(|limit| limit.kind == kind)
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

/// A limit of cgroup v2 (cgroup-v2.rst) by its names.
#[derive(Debug, PartialEq, Eq)]
struct LimitKind {
    option: &'static str,
    controller: &'static str,
    /// The file that sets it.
    file: &'static str,
    /// The file that shows what is in force.
    effective: &'static str,
    /// The property of systemd (systemd.resource-control(5)).
    property: &'static str,
}

const CORES: LimitKind = LimitKind {
    option: "--cores",
    controller: "cpuset",
    file: "cpuset.cpus",
    effective: "cpuset.cpus.effective",
    property: "AllowedCPUs",
};

const MEMORY_NODES: LimitKind = LimitKind {
    option: "--memory-nodes",
    controller: "cpuset",
    file: "cpuset.mems",
    effective: "cpuset.mems.effective",
    property: "AllowedMemoryNodes",
};

const MEMORY: LimitKind = LimitKind {
    option: "--memory",
    controller: "memory",
    file: "memory.max",
    effective: "memory.max",
    property: "MemoryMax",
};

const MEMORY_HIGH: LimitKind = LimitKind {
    option: "--memory-high",
    controller: "memory",
    file: "memory.high",
    effective: "memory.high",
    property: "MemoryHigh",
};

const SWAP: LimitKind = LimitKind {
    option: "--swap",
    controller: "memory",
    file: "memory.swap.max",
    effective: "memory.swap.max",
    property: "MemorySwapMax",
};

/// How much a limit allows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Amount {
    Numbers(NumberList),
    /// `None` for no limit.
    Bytes(Option<u64>),
}

impl fmt::Display for Amount {
    /// Shows the amount as the kernel does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(list) => list.fmt(f),
            Self::Bytes(Some(bytes)) => bytes.fmt(f),
            Self::Bytes(None) => f.write_str("max"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    kind: &'static LimitKind,
    amount: Amount,
}

impl Limit {
    fn new(kind: &'static LimitKind, amount: Amount) -> Self {
        Self { kind, amount }
    }

    /// Explains why the cgroup has another value in the limit's file than was asked for: a cgroup `above` lacks some of
    /// the cores or memory nodes, or else nobody has set the limit.
    fn explain_difference(&self, above: &[Dir], mount: &str) -> String {
        let unset = format!(
            "set {} of its unit, or write it to {}",
            self.kind.property, self.kind.file
        );
        let Amount::Numbers(requested) = &self.amount else {
            return unset;
        };
        for dir in above {
            let list = dir.read(self.kind.effective).ok().flatten();
            let list = list.and_then(|text| text.trim_end().parse::<NumberList>().ok());
            if let Some(list) = list.filter(|list| !list.contains_all(requested)) {
                return format!("{mount}{} above has {list} only", dir.path());
            }
        }
        unset
    }
}

/// The limits of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobLimits(Vec<Limit>);

impl JobLimits {
    /// Completes the limits of the options by this node.
    ///
    /// # Errors
    ///
    /// As [`LimitOptions::resolve`].
    pub(super) fn resolve(command: &str, options: &LimitOptions) -> Result<Self, Error> {
        options.resolve(command, &Tree::host()).map(Self)
    }

    /// Gives up the cores and the memory policy to which this process was pinned by its caller, if the job is limited to
    /// others: a child keeps them in the job's cpuset, from Linux 6.2 on, and a login does not.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the kernel refuses it.
    pub(super) fn unpin_this_process(&self) -> Result<(), Error> {
        let failed = |what| move |error| Error::failed("reset", what, error);
        let has_cores = find_limit(&self.0, &CORES).is_some();
        if has_cores {
            set_cpus(&CpuMask::ALL).map_err(failed("cores of this process"))?;
        }
        if has_cores || find_limit(&self.0, &MEMORY_NODES).is_some() {
            reset_memory_policy().map_err(failed("memory policy of this process"))?;
        }
        Ok(())
    }

    /// Verifies that a process in the job's cgroup runs on all cores of the job.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a process that is left on other cores, or cannot be looked at.
    pub(super) fn verify_process(&self, pid: Pid) -> Result<(), Error> {
        let Some(Limit { amount, .. }) = find_limit(&self.0, &CORES) else {
            return Ok(());
        };
        let status = proc::read(Proc::host().at.join(format!("{pid}/status")))
            .map_err(|error| Error::failed("read cores of process", pid, error))?;
        let cores = find_field(&status, "Cpus_allowed_list:").unwrap_or_default();
        if cores == amount.to_string() {
            return Ok(());
        }
        let cause = format!("the kernel leaves it on {cores}, not {amount}");
        Err(Error::failed("hold job to --cores in process", pid, cause))
    }

    /// Builds the properties of a unit with these limits, each in the words of busctl(1).
    pub(super) fn unit_properties(&self) -> Vec<Vec<String>> {
        let property = |Limit { kind, amount }: &Limit| {
            let mut words = vec![kind.property.to_owned()];
            match amount {
                Amount::Numbers(list) => {
                    let mask = list.mask();
                    words.extend(["ay".to_owned(), mask.len().to_string()]);
                    words.extend(mask.iter().map(u8::to_string));
                }
                Amount::Bytes(bytes) => {
                    let bytes = bytes.unwrap_or(u64::MAX);
                    words.extend(["t".to_owned(), bytes.to_string()]);
                }
            }
            words
        };
        self.0.iter().map(property).collect()
    }

    /// Sets and verifies the limits of a cgroup. This command has made it and the one above it, so it may enable
    /// controllers in the one above. Further up they must be enabled already.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a controller that is not enabled further up, and as [`JobLimits::verify`].
    pub(super) fn set(&self, cgroup: &CgroupChain, mount: &str) -> Result<(), Error> {
        let [job, above, further @ ..] = cgroup.levels() else {
            // Does not occur: the cgroup that this command makes has two above it.
            return self.verify(cgroup, mount);
        };
        for Limit { kind, .. } in &self.0 {
            let controller = kind.controller;
            if above.enables_controller(controller)? {
                continue;
            }
            if let Some(cause) = find_missing_controller(controller, further, mount) {
                return Err(Error::failed("limit job in", job.path(), cause));
            }
            above.write("cgroup.subtree_control", &format!("+{controller}"))?;
        }
        for Limit { kind, amount } in &self.0 {
            // `verify` names the cause of a file that is not there.
            if job.read(kind.file)?.is_some() {
                job.write(kind.file, &amount.to_string())?;
            }
        }
        self.verify(cgroup, mount)
    }

    /// Verifies that the kernel holds the job to exactly these limits. `mount` is where the hierarchy is.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], which names the limit, what is in force, the cause and what to do.
    pub(super) fn verify(&self, cgroup: &CgroupChain, mount: &str) -> Result<(), Error> {
        let dir = cgroup.dir()?;
        let above = cgroup.levels().get(1..).unwrap_or_default();
        for limit in &self.0 {
            let Limit { kind, amount } = limit;
            let cause = match dir.read(kind.effective)? {
                Some(text) if text.trim_end() == amount.to_string() => continue,
                Some(text) => format!(
                    "{} is {}, not {amount}: {}",
                    kind.effective,
                    text.trim_end(),
                    limit.explain_difference(above, mount)
                ),
                None => find_missing_controller(kind.controller, above, mount)
                    .unwrap_or_else(|| format!("the kernel has no {}", kind.file)),
            };
            let step = format!("hold job to {} in", kind.option);
            return Err(Error::failed(&step, dir.path(), cause));
        }
        Ok(())
    }
}

/// Explains why the last of these cgroups, the nearest first, cannot give a controller to its children; `None` if it
/// can. The first cause from the top counts, and the remedy is a command.
fn find_missing_controller(controller: &str, above: &[Dir], mount: &str) -> Option<String> {
    let root = above.last()?;
    let known = root.read("cgroup.controllers").ok().flatten();
    let known = known.unwrap_or_default();
    if !known.split_whitespace().any(|name| name == controller) {
        let is_v1 =
            Membership::read_own().is_ok_and(|own| own.path_of_controller(controller).is_some());
        let cause = if is_v1 {
            "is on cgroup v1 here: boot with systemd.unified_cgroup_hierarchy=1"
        } else {
            "is not in the kernel, or is off (cgroup_disable= on its command line)"
        };
        return Some(format!("the controller {controller} {cause}"));
    }
    let mut from_top = above.iter().rev();
    let lacking = from_top.find(|dir| !dir.enables_controller(controller).unwrap_or(false))?;
    // The root's path is `/`.
    let path = lacking.path().trim_end_matches('/');
    let file = shell_word(format!("{mount}{path}/cgroup.subtree_control"));
    Some(format!(
        "the controller {controller} is not enabled: echo +{controller} >{file}"
    ))
}

#[cfg(test)]
mod tests {
    mod mapper;

    use super::*;
    use crate::testing::Scratch;
    use kernel::sys::attributes::get_cpus;
    use std::fs::File;
    use std::process::Command;

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

    /// Makes folders that look like cgroups, the lowest first.
    fn chain(scratch: &Scratch, levels: &[(&str, &[(&str, &str)])]) -> Vec<Dir> {
        let mut dirs = Vec::new();
        for (name, files) in levels {
            let folder = if name.is_empty() { "root" } else { name };
            for (file, text) in [("cgroup.procs", "")].iter().chain(*files) {
                scratch.file(&format!("{folder}/{file}"), &format!("{text}\n"));
            }
            let file = File::open(scratch.path().join(folder)).unwrap();
            let path = if name.is_empty() {
                String::new()
            } else {
                format!("/{name}")
            };
            dirs.push(Dir::new(file.into(), path));
        }
        dirs
    }

    #[test]
    fn controller_that_is_not_enabled_is_named_with_the_command() {
        let root = &[
            ("cgroup.controllers", "cpu memory"),
            ("cgroup.subtree_control", "memory"),
        ];
        let scratch = Scratch::new();
        let slice = &[("cgroup.subtree_control", "")];
        let above = chain(&scratch, &[("slice", slice), ("", root)]);
        let find = |controller| find_missing_controller(controller, &above, "/cgroup");
        for (controller, expected) in [
            (
                "memory",
                ": echo +memory >/cgroup/slice/cgroup.subtree_control",
            ),
            ("cpu", ": echo +cpu >/cgroup/cgroup.subtree_control"),
            ("misc", "misc is not in the kernel"),
        ] {
            let cause = find(controller).unwrap();
            assert!(cause.contains(expected), "{cause}");
        }
        scratch.file("slice/cgroup.subtree_control", "cpu memory\n");
        assert_eq!(find("memory"), None);
    }

    /// Below a delegated cgroup, users name theirs as they like.
    #[test]
    fn path_in_the_command_is_quoted() {
        let root = &[
            ("cgroup.controllers", "cpu"),
            ("cgroup.subtree_control", "cpu"),
        ];
        let scratch = Scratch::new();
        let slice = &[("cgroup.subtree_control", "")];
        let above = chain(&scratch, &[("a;$(b) c", slice), ("", root)]);
        let cause = find_missing_controller("cpu", &above, "/cgroup").unwrap();
        let command = "echo +cpu >'/cgroup/a;$(b) c/cgroup.subtree_control'";
        assert!(cause.ends_with(command), "{cause}");
    }

    #[test]
    fn cgroup_that_lacks_requested_cores_is_named() {
        let scratch = Scratch::new();
        let above = chain(
            &scratch,
            &[
                ("slice", &[("cpuset.cpus.effective", "0-1")]),
                ("", &[("cpuset.cpus.effective", "0-7")]),
            ],
        );
        let explain = |cores: &str| {
            let limit = Limit::new(&CORES, Amount::Numbers(cores.parse().unwrap()));
            limit.explain_difference(&above, "/cgroup")
        };
        assert_eq!(explain("1-2"), "/cgroup/slice above has 0-1 only");
        assert_eq!(
            explain("1"),
            "set AllowedCPUs of its unit, or write it to cpuset.cpus"
        );
    }

    #[test]
    fn pinned_caller_keeps_no_process_of_the_job_from_its_cores() {
        let all = get_cpus().unwrap().to_string();
        let first = all.split(['-', ',']).next().unwrap();
        let thread = nix::unistd::gettid();
        let pin = || {
            let mut taskset = Command::new("taskset");
            let status = taskset.args(["-cp", first, &thread.to_string()]).output();
            assert!(status.unwrap().status.success());
        };
        let limits = |kind, list: &str| {
            let amount = Amount::Numbers(list.parse().unwrap());
            JobLimits(vec![Limit::new(kind, amount)])
        };
        pin();
        limits(&CORES, &all).unpin_this_process().unwrap();
        assert_eq!(get_cpus().unwrap().to_string(), all);
        limits(&CORES, &all).verify_process(thread).unwrap();
        let error = limits(&CORES, "8000").verify_process(thread).unwrap_err();
        let text = error.to_string();
        assert!(
            text.ends_with(&format!("leaves it on {all}, not 8000")),
            "{text}"
        );
        // These promise no cores to the job.
        for without_cores in [limits(&MEMORY_NODES, "0"), JobLimits::default()] {
            pin();
            without_cores.unpin_this_process().unwrap();
            assert_eq!(get_cpus().unwrap().to_string(), first);
            without_cores.verify_process(thread).unwrap();
        }
    }

    #[test]
    fn properties_of_unit_are_those_that_systemd_takes() {
        let limits = JobLimits(vec![
            Limit::new(&CORES, Amount::Numbers("0-3,8".parse().unwrap())),
            Limit::new(&MEMORY, Amount::Bytes(Some(1 << 30))),
            Limit::new(&SWAP, Amount::Bytes(None)),
        ]);
        let lines: Vec<String> = limits
            .unit_properties()
            .iter()
            .map(|it| it.join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "AllowedCPUs ay 2 15 1",
                "MemoryMax t 1073741824",
                "MemorySwapMax t 18446744073709551615",
            ]
        );
    }
}
