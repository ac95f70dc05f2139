//! Flux jobs of a system instance: the cgroup of a unit below the service manager of the account
//! `flux`, with a stand-in for the IMP (`tools/imp.c`).

use std::os::unix::fs::chown;
use std::process::{Child, Stdio};

use protocol::{
    ChoiceRule, Containment, LoginLimits, Placement, Plan, Reply, SessionLine, Variables, Verdict,
};

use super::{Cgroup, FLUX, Mount, Node, Tool, User, eventually, on_node_with};

/// Runs `body` on a node whose cgroups can have the same names as those of Flux.
pub(crate) fn on_flux(body: impl FnOnce(&Node)) {
    on_node_with(Mount::Namespace, |node| {
        node.install(&Tool::Imp.path(), "/usr/bin/imp");
        node.reporting("");
        body(node);
    });
}

/// Returns a reply that places the login below that unit.
pub(crate) fn unit_reply(job: &str, path: &str, flux: u32, containment: Containment) -> Reply {
    Reply {
        stack: SessionLine::Effective,
        auth_fault: String::new(),
        detail: String::new(),
        warnings: Vec::new(),
        hint: String::new(),
        message: String::new(),
        verdict: Verdict::Admit(Plan {
            job: job.parse().unwrap(),
            rule: ChoiceRule::OnlyJob,
            placement: Placement::Unit {
                path: path.parse().unwrap(),
                flux,
            },
            ends: None,
            gpus: 0,
            containment,
            limits: LoginLimits::default(),
            end_grace: 0,
            namespaces: None,
            probes: Vec::new(),
            dropped: Vec::new(),
            env: Variables::default(),
        }),
    }
}

/// A running job.
#[derive(Debug)]
pub(crate) struct FluxJob {
    pub(crate) owner: User,
    pub(crate) id: String,
    pub(crate) unit: Cgroup,
    imp: Child,
}

impl Node {
    /// Creates the cgroup of a unit of the account `uid`, with its ancestors.
    pub(crate) fn unit(&self, uid: u32, name: &str) -> Cgroup {
        let slices = ["user.slice".into(), format!("user-{uid}.slice")];
        let names = slices
            .into_iter()
            .chain([format!("user@{uid}.service"), name.into()]);
        let mut cgroup = self.cgroup().clone();
        for (depth, child) in names.enumerate() {
            cgroup = cgroup.child(&child);
            if !cgroup.exists() {
                cgroup.create();
            }
            if depth > 1 {
                for file in [
                    "",
                    "cgroup.procs",
                    "cgroup.subtree_control",
                    "cgroup.threads",
                ] {
                    chown(cgroup.dir().join(file), Some(uid), Some(uid)).unwrap();
                }
            }
        }
        cgroup
    }

    /// Starts a job of `owner` with these options of the stand-in, and waits for its shell.
    pub(crate) fn start_flux_job(&self, owner: User, id: &str, options: &[&str]) -> FluxJob {
        let job = self.start_flux_job_without_shell(owner, id, options);
        eventually("the job's shell runs", || !job.shells().is_empty());
        job
    }

    /// Starts a job of `owner` with these options of the stand-in, without waiting for its shell.
    pub(crate) fn start_flux_job_without_shell(
        &self,
        owner: User,
        id: &str,
        options: &[&str],
    ) -> FluxJob {
        self.start_flux_job_with_command(owner, id, options, &["sleep", "infinity"])
    }

    /// Starts a job with this command, without waiting for it.
    pub(crate) fn start_flux_job_with_command(
        &self,
        owner: User,
        id: &str,
        options: &[&str],
        command: &[&str],
    ) -> FluxJob {
        let unit = self.unit(FLUX.uid, &format!("imp-shell-0-{id}.service"));
        let mut imp = self.daemon(&unit, "imp");
        imp.args(["--flux", "992"])
            .args(options)
            .arg(owner.uid.to_string());
        let imp = imp.args(command).stdout(Stdio::null()).spawn().unwrap();
        let job = FluxJob {
            owner,
            id: id.into(),
            unit,
            imp,
        };
        eventually("the IMP runs", || !job.with_uids("992\t0\t0\t0").is_empty());
        job
    }

    /// Returns the keepers, in this process's PID namespace.
    pub(crate) fn keepers(&self) -> Vec<i32> {
        // By its command line: a keeper that cannot set its name goes on without one.
        let is_one = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"job-adopt keeper")
        };
        self.processes().into_iter().filter(is_one).collect()
    }

    /// Creates the directory in which the account's service manager keeps units.
    pub(crate) fn transient(&self) -> String {
        let folder = format!("/run/user/{}/systemd/transient", FLUX.uid);
        self.create_dir(&folder, 0o755);
        let user = FLUX.uid.to_string();
        self.sh(&format!(
            "chown -R {user} /run/user/{user}; chmod -R go-w /run/user/{user}"
        ))
        .ok();
        folder
    }
}

impl FluxJob {
    /// Returns the path of the unit on the node.
    pub(crate) fn path(&self) -> String {
        self.unit.path().to_owned()
    }

    /// Returns the cgroup of its logins.
    pub(crate) fn leaf(&self) -> Cgroup {
        self.unit.child("job-adopt")
    }

    /// Returns the reply of the real helper.
    pub(crate) fn reply(&self, containment: Containment) -> Reply {
        unit_reply(&self.id, &self.path(), FLUX.uid, containment)
    }

    fn with_uids(&self, uids: &str) -> Vec<i32> {
        let has = |pid: &i32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.is_ok_and(|status| status.contains(&format!("Uid:\t{uids}\n")))
        };
        self.unit.pids_or_empty().into_iter().filter(has).collect()
    }

    /// Returns the processes of the shell, in this process's PID namespace.
    pub(crate) fn shells(&self) -> Vec<i32> {
        let uid = self.owner.uid;
        self.with_uids(&format!("{uid}\t{uid}\t{uid}\t{uid}"))
    }

    /// Ends the shell. The IMP then ends the job, as in Flux.
    pub(crate) fn end_shell(&self) {
        for pid in self.shells() {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// Ends the shell, and waits for the end of the IMP.
    pub(crate) fn finish(&mut self) {
        self.end_shell();
        self.imp.wait().unwrap();
    }

    /// Kills the IMP alone. No job ends this way.
    pub(crate) fn kill_imp(&mut self) {
        for pid in self.with_uids("992\t0\t0\t0") {
            let pid = nix::unistd::Pid::from_raw(pid);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        self.imp.wait().unwrap();
    }
}

impl Drop for FluxJob {
    fn drop(&mut self) {
        self.unit.remove();
        let _ = self.imp.kill();
        let _ = self.imp.wait();
    }
}
