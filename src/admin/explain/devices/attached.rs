//! Reports which devices the filters at a cgroup allow, no matter which program attached them.

use super::Options;
use super::modes::{NodeUser, RestrictedNodes};
use super::nodes::{cell, driver_names, driver_warning, list_nodes, type_name};
use crate::accounts::require_root;
use crate::error::Error;
use crate::exit_status::{EXIT_FAILED, EXIT_FINE};
use crate::explain::filters::interpret::Request;
use crate::explain::filters::{Filter, Inspection, ProgramSet};
use crate::output::Output;
use helper::jobs::records::{self, Record};
use helper::node::{DeviceNode, Tree};
use helper::printable;
use kernel::OperationError;
use kernel::cgroup::{self, CgroupChain, Dir, Mount};
use kernel::trust::Trust;
use protocol::{Access, CgroupPath, JobId};
use serde::Serialize;
use std::collections::BTreeSet;

/// The requests that the kernel makes to a filter: opening for reading, for writing and for both, and
/// making a node (`devcgroup_inode_permission`, `devcgroup_inode_mknod`).
const REQUESTS: [(&str, Access); 4] =
    [("r", Access::READ), ("w", Access::WRITE), ("rw", Access::RW), ("m", Access::MKNOD)];

/// A device, and the accesses that the filters allow.
#[derive(Debug, Serialize)]
struct ShownDevice {
    node: String,
    r#type: &'static str,
    major: u32,
    minor: u32,
    /// The allowed [`REQUESTS`]; `None` if the decision about one of them is unknown.
    allowed: Option<Vec<&'static str>>,
    driver: Option<String>,
    /// Ids of the filters that refuse any of [`REQUESTS`].
    refused_by: BTreeSet<u32>,
}

/// The filters at a cgroup, and their decisions about all devices of the node.
#[derive(Debug, Serialize)]
pub(super) struct FilterReport {
    schema: u32,
    cgroup: String,
    filters: Vec<Filter>,
    devices: Vec<ShownDevice>,
    warnings: Vec<String>,
    /// Programs that were not understood or not shown.
    unclear: BTreeSet<u32>,
}

impl FilterReport {
    /// Reads the filters at a cgroup, and runs them for every device node of `tree`. Modes of nodes are judged
    /// for this user, or for everyone.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for filters that cannot be read, and for nodes that cannot be listed.
    pub(super) fn read(
        target: &CgroupChain,
        tree: &Tree,
        user: Option<&NodeUser>,
    ) -> Result<Self, Error> {
        let levels = target.levels();
        let Inspection { filters, programs } = Inspection::read(levels)?;
        let mut report = Self::from_programs(&list_nodes(tree)?, &programs, tree, user);
        report.cgroup = printable(levels.first().map_or("/", Dir::path));
        report.filters = filters;
        Ok(report)
    }

    fn from_programs(
        nodes: &[(String, DeviceNode)],
        programs: &ProgramSet,
        tree: &Tree,
        user: Option<&NodeUser>,
    ) -> Self {
        let mut unclear: BTreeSet<u32> = programs.hidden().collect();
        let run = |(path, node): &(String, DeviceNode)| {
            ShownDevice::from_programs(path, *node, programs, tree, &mut unclear)
        };
        let devices: Vec<ShownDevice> = nodes.iter().map(run).collect();
        let hidden: BTreeSet<u32> = programs.hidden().collect();
        let warn = |id: &u32| {
            if hidden.contains(id) {
                format!(
                    "program {id}: cannot tell what it allows: the kernel does not show its \
                 instructions; see kernel.kptr_restrict"
                )
            } else {
                format!("program {id}: cannot tell what it allows: it is not understood")
            }
        };
        let mut warnings: Vec<String> = unclear.iter().map(warn).collect();
        warnings.extend(driver_warning(tree));
        warnings.extend(mode_warnings(nodes, &devices, tree, user));
        let cgroup = String::new();
        let filters = Vec::new();
        Self { schema: 1, cgroup, filters, devices, warnings, unclear }
    }

    pub(super) fn exit_code(&self) -> u8 {
        if self.unclear.is_empty() { EXIT_FINE } else { EXIT_FAILED }
    }

    pub(super) fn write(&self, json: bool, output: &mut Output<'_>) -> Result<(), Error> {
        for warning in &self.warnings {
            output.warn(format_args!("warning: {warning}"));
        }
        if json {
            return output.json(self);
        }
        if self.filters.is_empty() {
            writeln!(output.out, "{}: no filter: everything is allowed", self.cgroup)?;
            return Ok(());
        }
        let head = ["ID", "NAME", "TAG", "WHOSE", "ATTACHED", "IN FORCE", "CGROUP"];
        output.table(head, self.filters.iter().map(Filter::row))?;
        writeln!(output.out)?;
        let head = ["NODE", "TYPE", "MAJOR:MINOR", "ALLOWED", "DRIVER", "REFUSED BY"];
        output.table(head, self.devices.iter().map(ShownDevice::row))
    }
}

/// Returns warnings of nodes that the filters open and their mode keeps from users; none if the
/// filters refuse nothing, so that they confine no job.
fn mode_warnings(
    nodes: &[(String, DeviceNode)],
    devices: &[ShownDevice],
    tree: &Tree,
    user: Option<&NodeUser>,
) -> Vec<String> {
    let is_open = |device: &ShownDevice| {
        device.allowed.as_ref().is_some_and(|allowed| allowed.contains(&"rw"))
    };
    let mut restricted = RestrictedNodes::new(user);
    if !devices.iter().all(is_open) {
        for ((path, _), device) in nodes.iter().zip(devices) {
            if is_open(device) {
                restricted.add(tree, path, Access::RW);
            }
        }
    }
    restricted.warnings().collect()
}

impl Filter {
    fn row(&self) -> [String; 7] {
        let name = Some(self.name.clone()).filter(|name| !name.is_empty());
        [
            self.id.to_string(),
            cell(name),
            self.tag.clone(),
            self.owner.into(),
            self.attached.into(),
            if self.in_force { "yes" } else { "no" }.into(),
            self.cgroup.clone().unwrap_or_else(|| "(further up)".into()),
        ]
    }
}

impl ShownDevice {
    fn from_programs(
        path: &str,
        node: DeviceNode,
        programs: &ProgramSet,
        tree: &Tree,
        unclear: &mut BTreeSet<u32>,
    ) -> Self {
        let DeviceNode { kind, major, minor } = node;
        let mut allowed = Some(Vec::new());
        let mut refused_by = BTreeSet::new();
        for (name, access) in REQUESTS {
            let decision = programs.decide(Request { kind, major, minor, access });
            match decision.is_allowed() {
                Some(true) => allowed.iter_mut().for_each(|allowed| allowed.push(name)),
                Some(false) => {}
                None => allowed = None,
            }
            refused_by.extend(decision.refused_by);
            unclear.extend(decision.unclear);
        }
        Self {
            node: printable(path),
            r#type: type_name(kind),
            major,
            minor,
            allowed,
            driver: driver_names(tree, kind, major),
            refused_by,
        }
    }

    fn row(&self) -> [String; 6] {
        let ids: Vec<String> = self.refused_by.iter().map(ToString::to_string).collect();
        [
            self.node.clone(),
            self.r#type.into(),
            format!("{}:{}", self.major, self.minor),
            self.allowed.as_deref().map_or_else(|| "cannot tell".into(), access_letters),
            cell(self.driver.clone()),
            ids.join(","),
        ]
    }
}

/// Returns the allowed letters of `rwm`, or `-` for none. If reading and writing are allowed each but
/// not both at once, or the other way round, it lists the requests with commas between them, and
/// `r+w` for both at once.
fn access_letters(allowed: &[&str]) -> String {
    let has = |name| allowed.contains(&name);
    if has("rw") == (has("r") && has("w")) {
        let letters: String = allowed.iter().copied().filter(|name| *name != "rw").collect();
        return if letters.is_empty() { "-".into() } else { letters };
    }
    let requests: Vec<&str> =
        allowed.iter().map(|&name| if name == "rw" { "r+w" } else { name }).collect();
    requests.join(",")
}

/// The cgroup whose filters are shown.
pub(super) struct Target {
    pub(super) place: CgroupChain,
    /// The owner of the job whose logins are there, if the job was given.
    pub(super) owner: Option<u32>,
}

/// Opens the cgroup of `--cgroup`, or the cgroup in which the logins of the job of `--job` are.
///
/// # Errors
///
/// [`Error::Failed`] for a cgroup that cannot be opened, for a job that the registry lacks, and for a
/// job whose cgroup only its scheduler knows.
pub(super) fn open_target(options: &Options) -> Result<Option<Target>, Error> {
    let id = match (&options.cgroup, &options.job) {
        (Some(path), _) => return Ok(Some(Target { place: open_cgroup(path)?, owner: None })),
        (None, Some(id)) => id,
        (None, None) => return Ok(None),
    };
    let record = find_record(id, options)?;
    let path = match &record.target {
        records::LoginTarget::Cgroup(path) => path,
        records::LoginTarget::Via(via) => {
            let cause = format!("{} knows its cgroup; give --cgroup", via.as_str());
            return Err(Error::failed("find cgroup of job", id, cause));
        }
    };
    let place = open_cgroup(path)?;
    let child = cgroup::choose_leaf(place.dir()?, record.leaf.as_ref())?;
    // Before the first login there is no leaf, and the job's own filters apply to it.
    let place = place.into_leaf(child.as_ref())?.unwrap_or_else(|job| job);
    Ok(Some(Target { place, owner: Some(record.uid) }))
}

fn open_cgroup(path: &CgroupPath) -> Result<CgroupChain, Error> {
    require_root("read device filters")?;
    Mount::open()?.open_chain(path).map_err(open_error)
}

/// Adds the word "cgroup" to an error, since the path of a cgroup looks like the path of any file.
fn open_error(error: cgroup::Error) -> Error {
    match error {
        cgroup::Error::System(OperationError { operation, object, source }) => {
            Error::failed(operation, format_args!("cgroup {}", printable(&object)), source)
        }
        error => error.into(),
    }
}

/// Finds the only record of this id.
fn find_record(id: &JobId, options: &Options) -> Result<Record, Error> {
    let failed = |cause: String| Error::failed("read record of job", id, cause);
    let mut jobs = options.conf.read()?.registry.find_jobs(&Trust::root(), id)?;
    match (jobs.pop(), jobs.len()) {
        (None, _) => Err(failed("the registry has none".into())),
        (Some(only), 0) => only.record.map_err(failed),
        (Some(_), others) => Err(failed(format!("the registry has {} of them", others + 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use kernel::bpf::{Insn, allow_rules};
    use nix::errno::Errno;
    use protocol::Allowlist;

    fn list(rules: &[&str]) -> Allowlist {
        let mut list = Allowlist::new();
        for rule in rules {
            list.push(rule.parse().unwrap()).unwrap();
        }
        list
    }

    fn report(programs: Vec<(u32, Option<Vec<Insn>>)>) -> FilterReport {
        let scratch = Scratch::new();
        scratch.file("dev/null", "c 1:3");
        scratch.file("dev/nvidia0", "c 195:0");
        scratch.file("proc/devices", "Character devices:\n1 mem\n");
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let programs = ProgramSet::from_programs(programs);
        FilterReport::from_programs(&list_nodes(&tree).unwrap(), &programs, &tree, None)
    }

    fn rows(report: &FilterReport) -> Vec<String> {
        report.devices.iter().map(|device| device.row().join(" ")).collect()
    }

    #[test]
    fn node_needs_permission_of_all_programs() {
        let first = allow_rules(list(&["c:1:3:rwm", "c:195:0:r"]).rules());
        let second = allow_rules(list(&["c:1:3:rw", "c:195:-1:rwm"]).rules());
        let all = report(vec![(4, Some(first)), (9, Some(second))]);
        crate::explain::devices::tests::assert_documented(&all);
        crate::explain::devices::tests::assert_documented(&Filter {
            id: 1,
            name: String::new(),
            tag: String::new(),
            owner: "ours",
            attached: "allow-multi",
            in_force: true,
            cgroup: None,
        });
        assert_eq!(rows(&all), ["/dev/null char 1:3 rw mem 9", "/dev/nvidia0 char 195:0 r - 4"]);
        assert_eq!(all.exit_code(), EXIT_FINE);
    }

    #[test]
    fn hidden_or_unknown_program_is_reported() {
        let call = vec![Insn::new(0x85, 0, 0, 0, 1), Insn::exit()];
        for (program, why) in [(None, "does not show"), (Some(call), "not understood")] {
            let unclear =
                report(vec![(4, Some(allow_rules(list(&["c:1:3:rwm"]).rules()))), (5, program)]);
            let expected = ["/dev/null char 1:3 cannot tell mem ", "/dev/nvidia0 char 195:0 - - 4"];
            assert_eq!(rows(&unclear), expected);
            assert_eq!(unclear.exit_code(), EXIT_FAILED);
            assert!(unclear.warnings[0].contains("program 5") && unclear.warnings[0].contains(why));
        }
    }

    #[test]
    fn cgroup_without_filter_is_reported_in_one_line() {
        let mut none = report(Vec::new());
        none.cgroup = "/a".into();
        let mut out = Vec::new();
        let mut err = Vec::new();
        none.write(false, &mut Output { out: &mut out, err: &mut err }).unwrap();
        assert_eq!(out, b"/a: no filter: everything is allowed\n");
        assert_eq!(none.exit_code(), EXIT_FINE);
        assert_eq!(access_letters(none.devices[0].allowed.as_deref().unwrap()), "rwm");
    }

    #[test]
    fn letters_distinguish_both_at_once_from_each() {
        for (allowed, shown) in [
            (&["r", "w", "rw", "m"][..], "rwm"),
            (&["r", "m"], "rm"),
            (&[], "-"),
            (&["r", "w"], "r,w"),
            (&["r", "w", "m"], "r,w,m"),
            (&["rw"], "r+w"),
            (&["r", "rw", "m"], "r,r+w,m"),
        ] {
            assert_eq!(access_letters(allowed), shown, "{allowed:?}");
        }
    }

    #[test]
    fn error_of_missing_cgroup_has_the_word_cgroup() {
        let failed = OperationError::new("open", "/no\nexist", Errno::ENOENT);
        let text = open_error(cgroup::Error::System(failed)).to_string();
        assert!(text.starts_with("open cgroup /no?exist: No such file"), "{text}");
    }
}
