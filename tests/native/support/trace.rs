//! Counts what a module and its helper do in a login, by strace(1).

use std::collections::{BTreeMap, BTreeSet};

use super::{ALICE, Node};

/// Empty files that the stack opens right before and right after each counted line.
const MARKS: [&str; 2] = ["/tmp/cost-begin", "/tmp/cost-end"];

/// The counts of one line of the stack.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    /// Processes that the module starts.
    pub(crate) processes: BTreeSet<String>,
    /// System calls of the module, and of the C library on its behalf.
    pub(crate) module: Vec<String>,
    /// System calls of the helper's process up to its exec.
    pub(crate) start: Vec<String>,
    /// System calls of the helper from its exec on.
    pub(crate) helper: Vec<String>,
    /// Files and directories that module and helper open, and how often.
    pub(crate) opened: BTreeMap<String, usize>,
    /// Bytes that module and helper read or receive.
    pub(crate) read_bytes: u64,
}

impl Cost {
    /// Adds a line of the trace, by the module or by the process that it has started.
    fn add(&mut self, pid: &str, call: &str, is_module: bool) {
        if let Some((_, path)) = call
            .split_once("open")
            .and_then(|(_, rest)| rest.rsplit_once(" = "))
        {
            if let Some((_, path)) = path.split_once('<') {
                *self
                    .opened
                    .entry(path.trim_end_matches('>').to_owned())
                    .or_default() += 1;
            }
        }
        if ["read(", "pread", "recv"]
            .iter()
            .any(|name| call.starts_with(name))
        {
            let result = call
                .rsplit_once(" = ")
                .and_then(|(_, result)| result.parse::<u64>().ok());
            self.read_bytes += result.unwrap_or_default();
        }
        // An exit or a signal.
        if call.starts_with(['+', '-']) {
            return;
        }
        let calls = if is_module {
            &mut self.module
        } else {
            self.processes.insert(pid.to_owned());
            let has_program = self
                .start
                .iter()
                .any(|earlier| earlier.starts_with("execve"));
            if has_program {
                &mut self.helper
            } else {
                &mut self.start
            }
        };
        calls.push(call.to_owned());
    }
}

/// Traces a login through a stack of these lines, each a group and what is behind it, and returns the cost
/// of each.
pub(crate) fn trace_login<const LINES: usize>(
    node: &Node,
    lines: [(&str, &str); LINES],
) -> [Cost; LINES] {
    MARKS.iter().for_each(|mark| node.write(mark, ""));
    let [begin, end] = MARKS;
    let mut stack = "session optional pam_permit.so\n".to_owned();
    for (group, line) in lines {
        stack += &format!(
            "{group} optional pam_echo.so file={begin}\n{group} {line}\n\
             {group} optional pam_echo.so file={end}\n"
        );
    }
    node.write_stack(&stack);
    node.pam_under_strace(&["-y"], ALICE).ok();
    let log = node.read("/tmp/strace");
    let hierarchies = machine_hierarchies();
    let mut costs = [(); LINES].map(|()| Cost::default());
    let mut at = 0;
    let mut module = None;
    for (pid, text) in join_interrupted_calls(&log) {
        let call = text.as_str();
        let opens = |mark: &str| call.starts_with("open") && call.ends_with(&format!("<{mark}>"));
        if opens(begin) {
            module = Some(pid.to_owned());
        } else if opens(end) {
            module = None;
            at += 1;
        } else if let Some(module) = &module {
            if !call.contains(begin) && !depends_on_machine(call, &hierarchies) {
                costs[at].add(pid, call, pid == module);
            }
        }
    }
    assert_eq!(at, LINES, "{log}");
    costs
}

/// Lists the calls of a trace, each with its process. Where strace printed another process's call in between, the two
/// halves of a call become one, at the place of the second.
fn join_interrupted_calls(log: &str) -> Vec<(&str, String)> {
    let mut begun = BTreeMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let (pid, text) = line.split_once(' ').unwrap();
        let call = text.trim_start();
        if let Some(first_half) = call.strip_suffix("<unfinished ...>") {
            begun.insert(pid, first_half);
        } else if let Some((_, second_half)) = call.split_once(" resumed>") {
            let first_half = begun.remove(pid).unwrap_or_default();
            calls.push((pid, format!("{first_half}{second_half}")));
        } else {
            calls.push((pid, call.to_owned()));
        }
    }
    let unfinished = begun.into_iter().map(|(pid, call)| (pid, call.to_owned()));
    calls.extend(unfinished);
    calls
}

/// Lists the directories of cgroup v1 hierarchies, of which each machine has others.
fn machine_hierarchies() -> Vec<String> {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let names = cgroups.lines().filter_map(|line| line.split(':').nth(1));
    let names = names
        .filter(|name| !name.is_empty())
        .map(|name| name.trim_start_matches("name="));
    names.map(|name| format!("/sys/fs/cgroup/{name}")).collect()
}

/// Returns whether the number of such calls depends on the machine: on its mounts, on its cgroup v1
/// hierarchies, and on how deep in these the tests run.
fn depends_on_machine(call: &str, hierarchies: &[String]) -> bool {
    let is_way_back = hierarchies.iter().any(|path| call.contains(path.as_str()));
    is_way_back && !call.contains("/slurm_")
        || call.starts_with("read(") && call.contains("/mountinfo>")
}
