//! Limits of a job's cgroup: cores, memory nodes and memory, for the job and so for its logins.
//!
//! `run` sets them on the cgroup that it makes. `register` only checks them: its cgroup belongs to a scheduler, or to
//! systemd, which would write its own values again. Both refuse a job whose limits are not in force: systemd takes
//! `AllowedCPUs=` also where the kernel does not hold a job to it.

mod kind;
mod options;

pub(super) use options::LimitOptions;

use command::error::Error;
use command::shell::shell_word;
use helper::node::Tree;
use kernel::cgroup::{CgroupChain, Dir, Membership};
use kernel::proc::{self, Proc, find_field};
use kernel::sys::attributes::{CpuMask, reset_memory_policy, set_cpus};
use kind::{Amount, CORES, Limit, MEMORY_NODES, find_limit};
use nix::unistd::Pid;

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
    use super::kind::{MEMORY, SWAP};
    use super::*;
    use crate::testing::Scratch;
    use kernel::sys::attributes::get_cpus;
    use std::fs::File;
    use std::process::Command;

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
