//! What the filters at a cgroup let through, whoever attached them.

use super::super::{Error, Output, require_root};
use super::nodes::{cell, driver, no_drivers, nodes, type_name};
use super::{EXIT_FAILED, EXIT_FINE, Options};
use crate::filters::interpret::Request;
use crate::filters::{Filter, Inspection, Judge};
use helper::devices::{DeviceNode, Tree};
use helper::printable;
use helper::records::{self, Record};
use kernel::Failed;
use kernel::cgroup::{self, Dir, Mount, Place};
use kernel::trust::Trust;
use protocol::{Access, CgroupPath, JobId};
use serde::Serialize;
use std::collections::BTreeSet;

/// What the kernel asks a filter, each at once: opening for reading, for writing and for both, and
/// making a node (`devcgroup_inode_permission`, `devcgroup_inode_mknod`).
const ASKED: [(&str, Access); 4] =
    [("r", Access::READ), ("w", Access::WRITE), ("rw", Access::RW), ("m", Access::MKNOD)];

/// A device, and what may be done with it.
#[derive(Debug, Serialize)]
struct ShownDevice {
    node: String,
    r#type: &'static str,
    major: u32,
    minor: u32,
    /// Those of [`ASKED`] that are allowed; `None` where it cannot be told of one of them.
    allowed: Option<Vec<&'static str>>,
    driver: Option<String>,
    /// Ids of the filters that refuse any of [`ASKED`].
    refused_by: BTreeSet<u32>,
}

/// What holds at a cgroup.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    cgroup: String,
    filters: Vec<Filter>,
    devices: Vec<ShownDevice>,
    warnings: Vec<String>,
    /// Programs that were not understood or not shown.
    unclear: BTreeSet<u32>,
}

impl Report {
    /// Asks what runs at the cgroup about every device node of `tree`.
    pub(super) fn of(target: &Place, tree: &Tree) -> Result<Self, Error> {
        let levels = target.levels();
        let Inspection { filters, judge } = Inspection::of(levels)?;
        let mut report = Self::over(&nodes(tree)?, &judge, tree);
        report.cgroup = printable(levels.first().map_or("/", Dir::path));
        report.filters = filters;
        Ok(report)
    }

    fn over(nodes: &[(String, DeviceNode)], judge: &Judge, tree: &Tree) -> Self {
        let mut unclear: BTreeSet<u32> = judge.hidden().collect();
        let ask = |(path, node): &(String, DeviceNode)| {
            ShownDevice::of(path, *node, judge, tree, &mut unclear)
        };
        let devices = nodes.iter().map(ask).collect();
        let hidden: BTreeSet<u32> = judge.hidden().collect();
        let warn = |id: &u32| match hidden.contains(id) {
            true => format!(
                "program {id}: cannot tell what it allows: the kernel does not show its \
                 instructions; see kernel.kptr_restrict"
            ),
            false => format!("program {id}: cannot tell what it allows: it is not understood"),
        };
        let mut warnings: Vec<String> = unclear.iter().map(warn).collect();
        warnings.extend(no_drivers(tree));
        let (cgroup, filters) = (String::new(), Vec::new());
        Self { schema: 1, cgroup, filters, devices, warnings, unclear }
    }

    pub(super) fn code(&self) -> u8 {
        if self.unclear.is_empty() { EXIT_FINE } else { EXIT_FAILED }
    }

    pub(super) fn write(&self, json: bool, output: &mut Output<'_>) -> Result<(), Error> {
        self.warnings.iter().for_each(|warning| output.warn(format_args!("warning: {warning}")));
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
    fn of(
        path: &str,
        node: DeviceNode,
        judge: &Judge,
        tree: &Tree,
        unclear: &mut BTreeSet<u32>,
    ) -> Self {
        let DeviceNode { kind, major, minor } = node;
        let mut allowed = Some(Vec::new());
        let mut refused_by = BTreeSet::new();
        for (name, access) in ASKED {
            let answer = judge.answer(Request { kind, major, minor, access });
            match answer.allowed() {
                Some(true) => allowed.iter_mut().for_each(|allowed| allowed.push(name)),
                Some(false) => {}
                None => allowed = None,
            }
            refused_by.extend(answer.refused_by);
            unclear.extend(answer.unclear);
        }
        Self {
            node: printable(path),
            r#type: type_name(kind),
            major,
            minor,
            allowed,
            driver: driver(tree, kind, major),
            refused_by,
        }
    }

    fn row(&self) -> [String; 6] {
        let ids: Vec<String> = self.refused_by.iter().map(ToString::to_string).collect();
        [
            self.node.clone(),
            self.r#type.into(),
            format!("{}:{}", self.major, self.minor),
            self.allowed.as_deref().map_or_else(|| "cannot tell".into(), letters),
            cell(self.driver.clone()),
            ids.join(","),
        ]
    }
}

/// `rwm`, as far as allowed, and `-` for nothing. Where opening for both is not what opening for
/// each is, every request by itself with commas between them, that for both as `r+w`.
fn letters(allowed: &[&str]) -> String {
    let has = |name| allowed.contains(&name);
    if has("rw") == (has("r") && has("w")) {
        let letters: String = allowed.iter().copied().filter(|name| *name != "rw").collect();
        return if letters.is_empty() { "-".into() } else { letters };
    }
    let spelled: Vec<&str> =
        allowed.iter().map(|&name| if name == "rw" { "r+w" } else { name }).collect();
    spelled.join(",")
}

/// The cgroup that `--cgroup` names, or that of the logins of a job, as `--job` does.
/// Fails: [`Error::Failed`] for a cgroup that cannot be opened, and a job that the registry does not
/// have, or has no cgroup of.
pub(super) fn target(options: &Options) -> Result<Option<Place>, Error> {
    let id = match (&options.cgroup, &options.job) {
        (Some(path), _) => return open(path).map(Some),
        (None, Some(id)) => id,
        (None, None) => return Ok(None),
    };
    let record = record(id, options)?;
    let path = match &record.target {
        records::LoginTarget::Cgroup(path) => path,
        records::LoginTarget::Via(via) => {
            let cause = format!("{} knows its cgroup; give --cgroup", via.as_str());
            return Err(Error::failed("find cgroup of job", id, cause));
        }
    };
    let place = open(path)?;
    let child = cgroup::choose(place.dir()?, record.leaf.as_ref())?;
    // Where no login has made it yet: what holds at the job will hold in it.
    Ok(Some(place.leaf(child.as_ref())?.unwrap_or_else(|job| job)))
}

fn open(path: &CgroupPath) -> Result<Place, Error> {
    require_root("read device filters")?;
    Mount::open()?.place(path).map_err(not_opened)
}

/// The path of a cgroup looks like that of any file, so the error says what it is of.
fn not_opened(error: cgroup::Error) -> Error {
    match error {
        cgroup::Error::System(Failed { operation, object, source }) => {
            Error::failed(operation, format_args!("cgroup {}", printable(&object)), source)
        }
        error => error.into(),
    }
}

/// The one record of this id.
fn record(id: &JobId, options: &Options) -> Result<Record, Error> {
    let failed = |cause: String| Error::failed("read record of job", id, cause);
    let mut known = options.conf.read()?.registry.find_jobs(&Trust::root(), id)?;
    match (known.pop(), known.len()) {
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

    fn report(programs: Vec<(u32, Option<Vec<Insn>>)>) -> Report {
        let scratch = Scratch::new();
        scratch.file("dev/null", "c 1:3");
        scratch.file("dev/nvidia0", "c 195:0");
        scratch.file("proc/devices", "Character devices:\n1 mem\n");
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        Report::over(&nodes(&tree).unwrap(), &Judge::over(programs), &tree)
    }

    fn rows(report: &Report) -> Vec<String> {
        report.devices.iter().map(|device| device.row().join(" ")).collect()
    }

    #[test]
    fn every_node_is_judged_by_all_programs() {
        let one = allow_rules(list(&["c:1:3:rwm", "c:195:0:r"]).rules());
        let other = allow_rules(list(&["c:1:3:rw", "c:195:-1:rwm"]).rules());
        let all = report(vec![(4, Some(one)), (9, Some(other))]);
        super::super::tests::documented(&all);
        super::super::tests::documented(&Filter {
            id: 1,
            name: String::new(),
            tag: String::new(),
            owner: "ours",
            attached: "allow-multi",
            in_force: true,
            cgroup: None,
        });
        assert_eq!(rows(&all), ["/dev/null char 1:3 rw mem 9", "/dev/nvidia0 char 195:0 r - 4"]);
        assert_eq!(all.code(), EXIT_FINE);
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        let call = vec![Insn::new(0x85, 0, 0, 0, 1), Insn::exit()];
        for (program, why) in [(None, "does not show"), (Some(call), "not understood")] {
            let unclear =
                report(vec![(4, Some(allow_rules(list(&["c:1:3:rwm"]).rules()))), (5, program)]);
            let expected = ["/dev/null char 1:3 cannot tell mem ", "/dev/nvidia0 char 195:0 - - 4"];
            assert_eq!(rows(&unclear), expected);
            assert_eq!(unclear.code(), EXIT_FAILED);
            assert!(unclear.warnings[0].contains("program 5") && unclear.warnings[0].contains(why));
        }
    }

    #[test]
    fn no_filter_is_said_in_so_many_words() {
        let mut none = report(Vec::new());
        none.cgroup = "/a".into();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        none.write(false, &mut Output { out: &mut out, err: &mut err }).unwrap();
        assert_eq!(out, b"/a: no filter: everything is allowed\n");
        assert_eq!(none.code(), EXIT_FINE);
        assert_eq!(letters(none.devices[0].allowed.as_deref().unwrap()), "rwm");
    }

    #[test]
    fn letters_tell_both_from_each() {
        for (allowed, shown) in [
            (&["r", "w", "rw", "m"][..], "rwm"),
            (&["r", "m"], "rm"),
            (&[], "-"),
            (&["r", "w"], "r,w"),
            (&["r", "w", "m"], "r,w,m"),
            (&["rw"], "r+w"),
            (&["r", "rw", "m"], "r,r+w,m"),
        ] {
            assert_eq!(letters(allowed), shown, "{allowed:?}");
        }
    }

    #[test]
    fn a_cgroup_that_is_not_there_is_called_one() {
        let failed = Failed::new("open", "/no\nexist", Errno::ENOENT);
        let text = not_opened(cgroup::Error::System(failed)).to_string();
        assert!(text.starts_with("open cgroup /no?exist: No such file"), "{text}");
    }
}
