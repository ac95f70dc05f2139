//! Reports which devices the filters at a cgroup allow, no matter which program attached them.

use super::Options;
use super::nodes::{cell, driver_names, driver_warning, list_nodes, type_name};
use super::probe::{Decision, Probe, ProbeSite};
use command::accounts::{require_root, with_login_rights};
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINE};
use command::output::Output;
use facts::device_numbers::{Difference, NumberState};
use facts::filters::{Filter, read_filters};
use facts::jobs::{find_cgroup, query_schedulers};
use facts::restricted_nodes::{NodeUser, RestrictedNodes};
use helper::jobs::records::{self, Record};
use helper::jobs::sources::{AskedDaemons, Sought};
use helper::node::{DeviceNode, Tree};
use helper::printable;
use kernel::OperationError;
use kernel::cgroup::{self, CgroupChain, Dir, Mount, MountInfo, v1};
use kernel::trust::Trust;
use naming::NameResolver;
use protocol::{Access, CgroupPath, JobId, Placement};
use serde::Serialize;
use std::collections::BTreeSet;

/// The operation that needs root.
const READ_FILTERS: &str = "read device filters";
/// The controller of cgroup v1 that decides about devices.
const DEVICES_CONTROLLER: &str = "devices";

/// A device, and the accesses that the kernel allows.
#[derive(Debug, Serialize)]
struct ShownDevice {
    /// The path as it is; `node` is the path as it is shown.
    #[serde(skip)]
    path: String,
    node: String,
    r#type: &'static str,
    major: u32,
    minor: u32,
    /// The allowed accesses; `None` if one of them is unknown.
    allowed: Option<Vec<String>>,
    driver: Option<String>,
}

/// The filters at a cgroup, and the kernel's decisions there about all devices of the node.
#[derive(Debug, Serialize)]
pub(super) struct FilterReport {
    schema: u32,
    cgroup: String,
    filters: Vec<Filter>,
    devices: Vec<ShownDevice>,
    warnings: Vec<String>,
    /// True if the kernel refuses no access to any device.
    #[serde(skip)]
    refuses_nothing: bool,
}

impl FilterReport {
    /// Reads the filters at a cgroup, and asks the kernel there for every device node of `tree`. Modes of nodes are
    /// judged for this user, or for everyone.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for filters that cannot be read, for nodes that cannot be listed, and for a cgroup in which
    /// no process can ask.
    pub(super) fn read(
        target: &Target,
        tree: &Tree,
        user: Option<&NodeUser>,
    ) -> Result<Self, Error> {
        let filters = read_filters(&target.levels)?;
        let nodes = list_nodes(tree)?;
        let site = ProbeSite {
            path: &target.path,
            levels: &target.levels,
            v1: target.devices.as_ref(),
        };
        let probe = Probe::ask(site, tree, &nodes)?;
        Ok(Self {
            cgroup: printable(&target.path),
            filters,
            ..Self::from_probe(&nodes, &probe, tree, user)
        })
    }

    /// Reports what the kernel has decided about each of the nodes, in their order, without cgroup and filters. A
    /// node that has gone is left out.
    fn from_probe(
        nodes: &[(String, DeviceNode)],
        probe: &Probe,
        tree: &Tree,
        user: Option<&NodeUser>,
    ) -> Self {
        let mut devices = Vec::new();
        let mut warnings = Vec::new();
        for ((path, node), decision) in nodes.iter().zip(&probe.decisions) {
            let allowed = match decision {
                Decision::Allowed(allowed) => Some(allowed.clone()),
                Decision::Gone => continue,
                Decision::Unknown(why) => {
                    let path = printable(path);
                    warnings.push(format!("{path}: cannot tell what is allowed: {why}"));
                    None
                }
            };
            devices.push(ShownDevice::new(path, *node, allowed, tree));
        }
        if !probe.has_mknod {
            warnings.push(
                "cannot tell whether nodes may be made (m): this process cannot make one".into(),
            );
        }
        warnings.extend(driver_warning(tree));
        warnings.extend(list_mode_warnings(&devices, tree, user));
        let refuses_nothing = devices.iter().all(|device| {
            device
                .allowed
                .as_ref()
                .is_some_and(|allowed| allowed.len() == probe.request_count())
        });
        Self {
            schema: 1,
            cgroup: String::new(),
            filters: Vec::new(),
            devices,
            warnings,
            refuses_nothing,
        }
    }

    /// Adds a warning with the list of the job's record, and the one that its names come to today, if they differ; and if
    /// the numbers of the record refuse logins. A job without a record of its own has neither.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if root cannot take the rights of a login.
    pub(super) fn add_number_warning(
        &mut self,
        id: &JobId,
        options: &Options,
    ) -> Result<(), Error> {
        let Ok(record) = find_record(id, options) else {
            return Ok(());
        };
        let config = options.conf.read()?;
        let state = with_login_rights(|| {
            let mut resolver = NameResolver::new(Tree::host(), config.devices.clone());
            NumberState::read(&record, &config, &mut resolver)
        })?;
        match state {
            NumberState::Current => {}
            NumberState::Unspecified => {
                self.warnings.push(format!(
                    "logins are refused (JA09): record of job {id} says nothing about devices"
                ));
            }
            NumberState::Refused(cause) => {
                self.warnings
                    .push(format!("logins are refused (JA09): {cause}"));
            }
            NumberState::Unresolved(cause) => {
                let cause = printable(&cause);
                self.warnings.push(format!(
                    "job {id} keeps its devices, but a name does not resolve today: {cause}"
                ));
            }
            NumberState::Outdated(Difference { recorded, today }) => {
                let join = |rules: BTreeSet<String>| Vec::from_iter(rules).join(" ");
                self.warnings.push(format!(
                    "job {id} has {}; its names come to {} today: run job-adopt register --again {id}",
                    join(recorded),
                    join(today)
                ));
            }
        }
        Ok(())
    }

    pub(super) fn exit_code(&self) -> u8 {
        let is_known = self.devices.iter().all(|device| device.allowed.is_some());
        if is_known { EXIT_FINE } else { EXIT_FAILED }
    }

    /// Writes the report as JSON or as tables, and its warnings as such. A cgroup without filters in which
    /// the kernel refuses nothing has one line in place of the tables.
    pub(super) fn write(&self, json: bool, output: &mut Output<'_>) -> Result<(), Error> {
        for warning in &self.warnings {
            output.warn(format_args!("warning: {warning}"));
        }
        if json {
            return output.json(self);
        }
        if self.filters.is_empty() && self.refuses_nothing {
            writeln!(
                output.out,
                "{}: no filter: everything is allowed",
                self.cgroup
            )?;
            return Ok(());
        }
        if !self.filters.is_empty() {
            let head = [
                "ID", "NAME", "TAG", "WHOSE", "ATTACHED", "IN FORCE", "CGROUP",
            ];
            output.table(head, self.filters.iter().map(filter_row))?;
            writeln!(output.out)?;
        }
        let head = ["NODE", "TYPE", "MAJOR:MINOR", "ALLOWED", "DRIVER"];
        output.table(head, self.devices.iter().map(ShownDevice::row))
    }
}

/// Lists warnings of nodes that the filters open for reading and writing and whose mode keeps the user out or, without
/// a user, not only its owner and group in; none if the filters open every node so, since then they confine no job.
fn list_mode_warnings(
    devices: &[ShownDevice],
    tree: &Tree,
    user: Option<&NodeUser>,
) -> Vec<String> {
    let is_open = |device: &ShownDevice| {
        device
            .allowed
            .as_ref()
            .is_some_and(|allowed| allowed.iter().any(|name| name == "rw"))
    };
    let mut restricted = RestrictedNodes::new(user);
    if !devices.iter().all(is_open) {
        for device in devices.iter().filter(|device| is_open(device)) {
            restricted.add_if_restricted(tree, &device.path, Access::RW);
        }
    }
    restricted.warnings().collect()
}

/// Builds the row of the table of filters.
fn filter_row(filter: &Filter) -> [String; 7] {
    let name = Some(filter.name.clone()).filter(|name| !name.is_empty());
    [
        filter.id.to_string(),
        cell(name),
        filter.tag.clone(),
        filter.owner.into(),
        filter.attached.into(),
        if filter.in_force { "yes" } else { "no" }.into(),
        filter
            .cgroup
            .clone()
            .unwrap_or_else(|| "(further up)".into()),
    ]
}

impl ShownDevice {
    /// Describes a device node for the report. `allowed` are the allowed accesses, `None` if they are
    /// unknown.
    fn new(path: &str, node: DeviceNode, allowed: Option<Vec<String>>, tree: &Tree) -> Self {
        let DeviceNode { kind, major, minor } = node;
        Self {
            path: path.to_owned(),
            node: printable(path),
            r#type: type_name(kind),
            major,
            minor,
            allowed,
            driver: driver_names(tree, kind, major),
        }
    }

    /// Builds the row of the table of devices.
    fn row(&self) -> [String; 5] {
        [
            self.node.clone(),
            self.r#type.into(),
            format!("{}:{}", self.major, self.minor),
            self.allowed
                .as_deref()
                .map_or_else(|| "cannot tell".into(), access_letters),
            cell(self.driver.clone()),
        ]
    }
}

/// Returns the allowed letters of `rwm`, or `-` for none. If reading and writing are allowed each but
/// not both at once, or the other way round, it lists the requests with commas between them, and
/// `r+w` for both at once.
fn access_letters(allowed: &[String]) -> String {
    let has = |name| allowed.iter().any(|access| access == name);
    if has("rw") == (has("r") && has("w")) {
        let letters: String = allowed
            .iter()
            .map(String::as_str)
            .filter(|name| *name != "rw")
            .collect();
        return if letters.is_empty() {
            "-".into()
        } else {
            letters
        };
    }
    let requests: Vec<&str> = allowed
        .iter()
        .map(|name| if name == "rw" { "r+w" } else { name.as_str() })
        .collect();
    requests.join(",")
}

/// The cgroup whose filters are shown.
pub(super) struct Target {
    /// The path that the report names.
    path: String,
    /// The cgroup v2 with its ancestors, the root last. Only the root, if cgroup v1 alone has the cgroup: a
    /// process there can be anywhere in cgroup v2. Empty without cgroup v2.
    levels: Vec<Dir>,
    /// The cgroup of the devices controller of cgroup v1, or its nearest ancestor, where systemd puts the
    /// processes of a unit; `None` if the node has no such hierarchy.
    devices: Option<Dir>,
    /// The owner of the job whose logins are there, if the job was given.
    pub(super) owner: Option<u32>,
}

impl Target {
    /// Makes a target of the cgroup v2 `place`, with the one that cgroup v1 has at `path`, which is that of the
    /// job if `place` is its leaf.
    fn from_place(
        place: &CgroupChain,
        path: &CgroupPath,
        owner: Option<u32>,
    ) -> Result<Self, Error> {
        let devices = v1::open_nearest(&MountInfo::read_all()?, DEVICES_CONTROLLER, path)?;
        let shown = place.dir()?.path().to_owned();
        Ok(Self {
            path: shown,
            levels: place.levels().to_vec(),
            devices,
            owner,
        })
    }
}

/// Opens the cgroup of `--cgroup`, or the cgroup in which the logins of the job of `--job` are; `None` if
/// neither is given.
///
/// # Errors
///
/// [`Error::Failed`] for a cgroup that cannot be opened, for a job that neither a scheduler nor the registry has, and
/// without root's rights for the job's cgroup.
pub(super) fn open_target(options: &Options) -> Result<Option<Target>, Error> {
    let id = match (&options.cgroup, &options.job) {
        (Some(path), _) => return open_cgroup(path).map(Some),
        (None, Some(id)) => id,
        (None, None) => return Ok(None),
    };
    if let Some((uid, path)) = find_scheduled(id, options)? {
        require_root(READ_FILTERS)?;
        let place = Mount::open()?.open_chain(&path).map_err(open_error)?;
        return Target::from_place(&place, &path, Some(uid)).map(Some);
    }
    let record = find_record(id, options)?;
    let path = match &record.target {
        records::LoginTarget::Cgroup(path) => path,
        records::LoginTarget::Via(via) => {
            let cause = format!(
                "{} has no such job here, or does not show its cgroup",
                via.as_str()
            );
            return Err(Error::failed("find cgroup of job", id, cause));
        }
    };
    require_root(READ_FILTERS)?;
    let place = Mount::open()?.open_chain(path).map_err(open_error)?;
    let child = cgroup::choose_leaf(place.dir()?, record.leaf.as_ref())?;
    // Before the first login there is no leaf, and the job's own filters apply to it.
    let place = place.into_leaf(child.as_ref())?.unwrap_or_else(|job| job);
    Target::from_place(&place, path, Some(record.uid)).map(Some)
}

/// Finds the job that a scheduler runs under this id: the uid of its user and its cgroup, and for Slurm that of its
/// logins once there is one; `None` if no scheduler has it, or more than one.
fn find_scheduled(id: &JobId, options: &Options) -> Result<Option<(u32, CgroupPath)>, Error> {
    let config = options.conf.read()?;
    let mut jobs = query_schedulers(&config, Sought::All, &mut AskedDaemons::default()).jobs;
    jobs.retain(|(_, job)| job.has_name(id));
    let [(uid, job)] = jobs.as_slice() else {
        return Ok(None);
    };
    let Some(path) = find_cgroup(&job.id, &job.placement) else {
        return Ok(None);
    };
    let logins = match job.placement {
        Placement::Extern { .. } => format!("{path}/step_extern/user/task_special").parse().ok(),
        Placement::Cgroup { .. } | Placement::Unit { .. } => None,
    };
    let mount = Mount::open()?;
    let existing = logins.filter(|leaf| mount.open_chain(leaf).is_ok());
    Ok(Some((*uid, existing.unwrap_or(path))))
}

/// Opens a cgroup of version 2 or, if there is none at `path`, one of the devices controller of version 1. If
/// neither has it, the error is that of version 2.
fn open_cgroup(path: &CgroupPath) -> Result<Target, Error> {
    require_root(READ_FILTERS)?;
    let root = match Mount::open() {
        Ok(mount) => Some(mount),
        Err(cgroup::Error::NotMounted) => None,
        Err(error) => return Err(error.into()),
    };
    // The root alone, or nothing, for a cgroup of version 1.
    let levels: Vec<Dir> = root.iter().map(|mount| mount.root().clone()).collect();
    let missing = match root
        .ok_or(cgroup::Error::NotMounted)
        .and_then(|root| root.open_chain(path))
    {
        Ok(place) => return Target::from_place(&place, path, None),
        Err(error @ cgroup::Error::NotMounted) => error,
        Err(error) if error.is_gone() => error,
        Err(error) => return Err(open_error(error)),
    };
    let devices = v1::open_nearest(&MountInfo::read_all()?, DEVICES_CONTROLLER, path)?;
    // An ancestor of the cgroup is not what was asked for.
    match devices.filter(|dir| dir.path().strip_prefix('/') == Some(path.relative())) {
        Some(dir) => Ok(Target {
            path: dir.path().to_owned(),
            levels,
            devices: Some(dir),
            owner: None,
        }),
        None => Err(open_error(missing)),
    }
}

/// Adds the word "cgroup" to an error, since the path of a cgroup looks like the path of any file.
fn open_error(error: cgroup::Error) -> Error {
    match error {
        cgroup::Error::System(OperationError {
            operation,
            object,
            source,
        }) => Error::failed(
            operation,
            format_args!("cgroup {}", printable(&object)),
            source,
        ),
        error => error.into(),
    }
}

/// Finds the only record of this id. It fails with [`Error::Failed`] if there is none, if several users have one,
/// or if it cannot be used.
pub(super) fn find_record(id: &JobId, options: &Options) -> Result<Record, Error> {
    let failed = |cause: String| Error::failed("read record of job", id, cause);
    let mut jobs = options
        .conf
        .read()?
        .registry
        .find_jobs(&Trust::root(), id)?;
    let count = jobs.len();
    match jobs.pop() {
        Some(only) if count == 1 => only.record.map_err(failed),
        None => Err(failed("the registry has none".into())),
        Some(_) => Err(failed(format!("the registry has {count} of them"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use nix::errno::Errno;

    fn allowed(names: &[&str]) -> Decision {
        Decision::Allowed(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// Reports these decisions about `/dev/null` and `/dev/nvidia0`.
    fn report(decisions: [Decision; 2], has_mknod: bool) -> FilterReport {
        let scratch = Scratch::new();
        scratch.file("dev/null", "c 1:3");
        scratch.file("dev/nvidia0", "c 195:0");
        scratch.file("proc/devices", "Character devices:\n1 mem\n");
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let probe = Probe {
            decisions: decisions.to_vec(),
            has_mknod,
        };
        FilterReport::from_probe(&list_nodes(&tree).unwrap(), &probe, &tree, None)
    }

    fn rows(report: &FilterReport) -> Vec<String> {
        report
            .devices
            .iter()
            .map(|device| device.row().join(" "))
            .collect()
    }

    fn write(report: &FilterReport) -> String {
        let mut out = Vec::new();
        let mut err = Vec::new();
        report
            .write(
                false,
                &mut Output {
                    out: &mut out,
                    err: &mut err,
                },
            )
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn allowed_accesses_are_listed() {
        let all = report([allowed(&["r", "w", "rw", "m"]), allowed(&["r"])], true);
        crate::devices::tests::assert_documented(&all);
        crate::devices::tests::assert_documented(&Filter {
            id: 1,
            name: String::new(),
            tag: String::new(),
            owner: "ours",
            attached: "allow-multi",
            in_force: true,
            cgroup: None,
        });
        assert_eq!(
            rows(&all),
            ["/dev/null char 1:3 rwm mem", "/dev/nvidia0 char 195:0 r -"]
        );
        assert_eq!(
            (all.exit_code(), all.warnings.as_slice()),
            (EXIT_FINE, &[][..])
        );
        // On cgroup v1 the list has no filter.
        assert!(write(&all).starts_with("NODE "), "{}", write(&all));
    }

    #[test]
    fn device_without_decision_is_reported() {
        let unknown = Decision::Unknown("Permission denied".into());
        let report = report([allowed(&[]), unknown], true);
        let expected = [
            "/dev/null char 1:3 - mem",
            "/dev/nvidia0 char 195:0 cannot tell -",
        ];
        assert_eq!(rows(&report), expected);
        assert_eq!(report.exit_code(), EXIT_FAILED);
        let warning = "/dev/nvidia0: cannot tell what is allowed: Permission denied";
        assert_eq!(report.warnings, [warning]);
    }

    #[test]
    fn device_that_is_gone_is_left_out() {
        let report = report([Decision::Gone, allowed(&["r"])], true);
        assert_eq!(rows(&report), ["/dev/nvidia0 char 195:0 r -"]);
        assert_eq!(report.exit_code(), EXIT_FINE);
    }

    #[test]
    fn cgroup_without_filter_is_reported_in_one_line() {
        for (names, has_mknod) in [
            (&["r", "w", "rw", "m"][..], true),
            (&["r", "w", "rw"], false),
        ] {
            let mut none = report([allowed(names), allowed(names)], has_mknod);
            none.cgroup = "/a".into();
            assert_eq!(write(&none), "/a: no filter: everything is allowed\n");
            assert_eq!(none.exit_code(), EXIT_FINE);
            let has_warning = none
                .warnings
                .iter()
                .any(|text| text.contains("cannot make one"));
            assert_eq!(has_warning, !has_mknod);
        }
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
            let names: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(access_letters(&names), shown, "{allowed:?}");
        }
    }

    #[test]
    fn error_of_missing_cgroup_has_the_word_cgroup() {
        let failed = OperationError::new("open", "/no\nexist", Errno::ENOENT);
        let text = open_error(cgroup::Error::System(failed)).to_string();
        assert!(
            text.starts_with("open cgroup /no?exist: No such file"),
            "{text}"
        );
    }
}
