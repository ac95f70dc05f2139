//! Which devices that processes have open an allowlist would refuse.

use super::super::{EXIT_FINDINGS, Error, Output, table};
use super::asked::{Asked, What};
use super::descriptors::of_process;
use super::nodes::{Nodes, cell, type_name};
use super::target::Target;
use super::{EXIT_FAILED, EXIT_FINE};
use crate::bpf::interpret::{self, Request};
use crate::bpf::{self, Insn};
use crate::cgroup::{State, subtree};
use crate::device::{Node, Policy, Resolved, Resolver, Tree, Wanted, allowlist};
use crate::legible::legible;
use crate::plan::Allowlist;
use crate::resolve::{Config, Contained, contained};
use serde::Serialize;
use std::collections::HashMap;

/// Most descriptors of all processes together that are looked at: processes can have a table of
/// them in common, so that there may be far more than memory holds.
const MOST: usize = 1024 * 1024;

/// An allowlist to be tried, and what is to be said about it.
#[derive(Debug)]
pub(super) struct Tried {
    /// `None` where the job is not to be contained.
    list: Option<Allowlist>,
    warnings: Vec<String>,
}

/// The allowlist of these names, put together as for a record.
///
/// # Errors
/// [`Error::Failed`] for a name that has to resolve and does not, and for too many devices.
pub(super) fn wanted(
    asked: &[Asked],
    policy: Policy,
    config: &Config,
    resolver: &Resolver,
) -> Result<Tried, Error> {
    let (mut allow, mut named) = (Vec::new(), Vec::new());
    for one in asked {
        match &one.what {
            What::Specifier(_) => {
                let (spec, access) = one.text.split_once(' ').unwrap_or((&one.text, "rw"));
                allow.push((spec.to_owned(), access.to_owned()));
            }
            What::Named(name) => named.push(name.clone()),
        }
    }
    let wanted = Wanted { policy, allow: &allow, named };
    let Resolved { list, dropped, warnings, .. } =
        allowlist(&wanted, &config.always_allowed, resolver)
            .map_err(|error| Error::Failed(legible(&format!("resolve {error}"))))?;
    Ok(Tried::new(Some(list), dropped, warnings))
}

/// The allowlist of the job's record.
///
/// # Errors
/// [`Error::Failed`] where the record has none, as for a login.
pub(super) fn recorded(
    target: &Target,
    config: &Config,
    resolver: &Resolver,
) -> Result<Tried, Error> {
    let Some(record) = &target.record else {
        return Err(Error::failed("read record of", target.path(), "no job was named"));
    };
    let Contained { containment, dropped, warnings, .. } = contained(record, config, resolver)
        .map_err(|(_, cause)| Error::Failed(legible(&format!("resolve {cause}"))))?;
    Ok(Tried::new(containment.list().cloned(), dropped, warnings))
}

impl Tried {
    fn new(list: Option<Allowlist>, dropped: Vec<String>, warnings: Vec<String>) -> Self {
        let mut all = Vec::new();
        if list.is_none() {
            all.push("the job's record asks for no filter".to_owned());
        }
        all.extend(dropped.iter().map(|device| legible(&format!("left out: {device}"))));
        all.extend(warnings.iter().map(|warning| legible(warning)));
        Self { list, warnings: all }
    }
}

/// An open device that would be refused.
#[derive(Debug, Serialize)]
struct Denied {
    pid: i32,
    /// What the process calls itself.
    command: String,
    /// `None` where no node of this machine has the number.
    node: Option<String>,
    r#type: &'static str,
    major: u32,
    minor: u32,
    access: String,
}

/// All of them.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    cgroup: String,
    denied: Vec<Denied>,
    warnings: Vec<String>,
    /// Whether every process could be seen.
    complete: bool,
}

impl Report {
    /// Looks at every process of the target. The list is tried as the program that would enforce
    /// it.
    ///
    /// # Errors
    /// [`Error::Failed`] where the processes or the nodes cannot be listed.
    pub(super) fn of(target: &Target, tried: &Tried, tree: &Tree) -> Result<Self, Error> {
        let top = target.top()?;
        let mut report = Self {
            schema: 1,
            cgroup: legible(top.path()),
            denied: Vec::new(),
            warnings: tried.warnings.clone(),
            complete: true,
        };
        let Some(list) = &tried.list else { return Ok(report) };
        // A threaded cgroup lists no process, whatever its threads have open.
        State::read(top)?;
        let program = bpf::allow(list);
        let nodes = Nodes::of(tree)?;
        let paths = nodes.paths();
        let mut rest = MOST;
        for pid in subtree::processes(top).complete()? {
            report.look(pid, &program, &paths, &mut rest);
            if rest == 0 {
                let cause = "there are more in all than are looked at";
                report.miss(&Error::failed("list", "descriptors", cause));
                break;
            }
        }
        Ok(report)
    }

    fn look(&mut self, pid: i32, program: &[Insn], paths: &HashMap<Node, &str>, rest: &mut usize) {
        let looked = match pid {
            // How a process of another PID namespace is listed (cgroups(7)).
            0 => Err(Error::failed("look at", "process", "it is outside this PID namespace")),
            pid => of_process(pid, rest),
        };
        let holder = match looked {
            Ok(holder) => holder,
            Err(error) => return self.miss(&error),
        };
        for request in holder.open {
            if interpret::run(program, request) != Ok(true) {
                self.denied.push(Denied::of(pid, &holder.command, request, paths));
            }
        }
    }

    /// Not all could be seen.
    fn miss(&mut self, error: &Error) {
        self.warnings.extend(error.text().map(|text| legible(&text)));
        self.complete = false;
    }

    pub(super) fn code(&self) -> u8 {
        match (self.complete, self.denied.is_empty()) {
            (false, _) => EXIT_FAILED,
            (true, false) => EXIT_FINDINGS,
            (true, true) => EXIT_FINE,
        }
    }

    pub(super) fn write(&self, json: bool, output: &mut Output<'_>) -> Result<(), Error> {
        self.warnings.iter().for_each(|warning| output.warn(format_args!("warning: {warning}")));
        if json {
            return super::write_json(self, output);
        }
        if self.denied.is_empty() {
            let text = match self.complete {
                true => "no open device would be refused",
                false => "no open device that would be refused was found, but not all were seen",
            };
            writeln!(output.out, "{}: {text}", self.cgroup)?;
            return Ok(());
        }
        let head = ["PID", "COMMAND", "NODE", "TYPE", "MAJOR:MINOR", "ACCESS"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.denied.iter().map(Denied::row));
        Ok(table::write(&rows, output.out)?)
    }
}

impl Denied {
    fn of(pid: i32, command: &str, request: Request, paths: &HashMap<Node, &str>) -> Self {
        let Request { kind, major, minor, access } = request;
        Self {
            pid,
            command: command.to_owned(),
            node: paths.get(&Node { kind, major, minor }).map(|path| legible(path)),
            r#type: type_name(kind),
            major,
            minor,
            access: access.to_string(),
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.pid.to_string(),
            self.command.clone(),
            cell(self.node.clone()),
            self.r#type.into(),
            format!("{}:{}", self.major, self.minor),
            self.access.clone(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Settings;
    use crate::plan::DeviceType;
    use crate::trust::tests::Scratch;

    /// What would be refused of this process under a list of these entries.
    fn look(rules: &[&str]) -> Report {
        let mut list = Allowlist::new();
        for rule in rules {
            list.push(rule.parse().unwrap()).unwrap();
        }
        let node = Node { kind: DeviceType::Char, major: 1, minor: 5 };
        let mut report = Report {
            schema: 1,
            cgroup: "/a".into(),
            denied: Vec::new(),
            warnings: Vec::new(),
            complete: true,
        };
        let pid = nix::unistd::getpid().as_raw();
        report.look(
            pid,
            &bpf::allow(&list),
            &HashMap::from([(node, "/dev/zero")]),
            &mut MOST.clone(),
        );
        report.denied.retain(|denied| (denied.major, denied.minor) == (1, 5));
        report
    }

    #[test]
    fn an_open_device_that_is_not_listed_with_its_access_is_named() {
        let _open = std::fs::OpenOptions::new().read(true).write(true).open("/dev/zero").unwrap();
        for rules in [&["c:1:3:rwm"][..], &["c:1:5:r"], &["c:1:5:wm"], &["b:1:5:rw"]] {
            let report = look(rules);
            assert_eq!(report.code(), EXIT_FINDINGS, "{rules:?}");
            super::super::tests::documented(&report);
            let [_, _, node, kind, number, access] = report.denied[0].row().try_into().unwrap();
            assert_eq!([node, kind, number, access], ["/dev/zero", "char", "1:5", "rw"]);
        }
        for rules in [&["c:1:5:rw"][..], &["c:1:-1:r", "c:1:5:w"]] {
            assert_eq!(look(rules).code(), EXIT_FINE, "{rules:?}");
        }
    }

    #[test]
    fn a_list_is_tried_with_what_the_site_allows_unless_it_is_strict() {
        let scratch = Scratch::new();
        scratch.file("dev/fuse", "c 10:229");
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        let resolver = Resolver::new(tree, Settings::default());
        let always_allowed = vec!["/dev/fuse".parse().unwrap()];
        let config = Config { always_allowed, ..Config::default() };
        let rules = |policy| -> Vec<String> {
            let list = wanted(&[], policy, &config, &resolver).unwrap().list.unwrap();
            list.rules().iter().map(ToString::to_string).collect()
        };
        assert_eq!(rules(Policy::Closed), ["c:10:229:rw"]);
        assert_eq!(rules(Policy::Strict), [""; 0]);
    }

    #[test]
    fn a_process_that_cannot_be_seen_is_not_passed_over() {
        let mut report = look(&[]);
        report.denied.clear();
        report.look(0, &[], &HashMap::new(), &mut MOST.clone());
        assert_eq!(report.code(), EXIT_FAILED);
        assert!(report.warnings[0].contains("PID namespace"), "{:?}", report.warnings);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        report.write(false, &mut Output { out: &mut out, err: &mut err }).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with(" but not all were seen\n"));
    }
}
