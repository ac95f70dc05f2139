//! Jobs of Flux's as its system instance leaves them: a unit's cgroup below the service manager of
//! the account `flux`, with a stand-in for the IMP (`tools/imp.c`).

use std::os::unix::fs::chown;
use std::process::{Child, Stdio};

use pam_job_adopt::protocol::{
    Containment, Placement, Plan, Reply, Rule, Stack, Variables, Verdict,
};

use super::{Cgroup, FLUX, Mount, Node, Tool, User, eventually, on_node_with};

/// Runs `body` on a node on which cgroups have the names that Flux's have.
pub(crate) fn on_flux(body: impl FnOnce(&Node)) {
    on_node_with(Mount::Namespace, |node| {
        node.install(&Tool::Imp.path(), "/usr/bin/imp");
        node.reporting("");
        body(node);
    });
}

/// A reply that places the login below that unit.
pub(crate) fn unit_reply(job: &str, path: &str, flux: u32, containment: Containment) -> Reply {
    Reply {
        stack: Stack::Effective,
        detail: String::new(),
        warnings: Vec::new(),
        hint: String::new(),
        message: String::new(),
        verdict: Verdict::Admit(Plan {
            job: job.parse().unwrap(),
            rule: Rule::OnlyJob,
            placement: Placement::Unit { path: path.parse().unwrap(), flux },
            ends: None,
            gpus: 0,
            containment,
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
    /// The cgroup of a unit of the account `uid`, made with all above it.
    pub(crate) fn unit(&self, uid: u32, name: &str) -> Cgroup {
        let slices = ["user.slice".into(), format!("user-{uid}.slice")];
        let names = slices.into_iter().chain([format!("user@{uid}.service"), name.into()]);
        let mut cgroup = self.cgroup().clone();
        for (depth, name) in names.enumerate() {
            cgroup = cgroup.child(&name);
            if !cgroup.exists() {
                cgroup.create();
            }
            if depth > 1 {
                for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
                    chown(cgroup.dir().join(file), Some(uid), Some(uid)).unwrap();
                }
            }
        }
        cgroup
    }

    /// A job of `owner`'s with a shell, and with these options of the stand-in's.
    pub(crate) fn flux_job(&self, owner: User, id: &str, options: &[&str]) -> FluxJob {
        let job = self.flux_job_without_shell(owner, id, options);
        eventually("the job's shell runs", || !job.shells().is_empty());
        job
    }

    /// The same, without waiting for the shell.
    pub(crate) fn flux_job_without_shell(
        &self,
        owner: User,
        id: &str,
        options: &[&str],
    ) -> FluxJob {
        self.flux_job_that_runs(owner, id, options, &["sleep", "infinity"])
    }

    /// A job of this command, which it does not wait for.
    pub(crate) fn flux_job_that_runs(
        &self,
        owner: User,
        id: &str,
        options: &[&str],
        command: &[&str],
    ) -> FluxJob {
        let unit = self.unit(FLUX.uid, &format!("imp-shell-0-{id}.service"));
        let mut imp = self.daemon(&unit, "imp");
        imp.args(["--flux", "992"]).args(options).arg(owner.uid.to_string());
        let imp = imp.args(command).stdout(Stdio::null()).spawn().unwrap();
        let job = FluxJob { owner, id: id.into(), unit, imp };
        eventually("the IMP runs", || !job.with_uids("992\t0\t0\t0").is_empty());
        job
    }

    /// The keepers, as this process numbers them.
    pub(crate) fn keepers(&self) -> Vec<i32> {
        // By how it was started: to name itself may fail.
        let is_one = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"job-adopt keeper")
        };
        self.processes().into_iter().filter(is_one).collect()
    }

    /// Makes the directory that the account's service manager keeps units in.
    pub(crate) fn transient(&self) -> String {
        let folder = format!("/run/user/{}/systemd/transient", FLUX.uid);
        self.folder(&folder, 0o755);
        let user = FLUX.uid.to_string();
        self.sh(&format!("chown -R {user} /run/user/{user}; chmod -R go-w /run/user/{user}")).ok();
        folder
    }
}

impl FluxJob {
    /// The unit's path as the node sees it.
    pub(crate) fn path(&self) -> String {
        self.unit.path().to_owned()
    }

    /// Where its logins are.
    pub(crate) fn leaf(&self) -> Cgroup {
        self.unit.child("job-adopt")
    }

    /// What the real helper would answer.
    pub(crate) fn reply(&self, containment: Containment) -> Reply {
        unit_reply(&self.id, &self.path(), FLUX.uid, containment)
    }

    fn with_uids(&self, uids: &str) -> Vec<i32> {
        let has = |pid: &i32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.is_ok_and(|status| status.contains(&format!("Uid:\t{uids}\n")))
        };
        self.unit.pids_or_none().into_iter().filter(has).collect()
    }

    /// The shell, as this process numbers it.
    pub(crate) fn shells(&self) -> Vec<i32> {
        let uid = self.owner.uid;
        self.with_uids(&format!("{uid}\t{uid}\t{uid}\t{uid}"))
    }

    /// Ends the shell, after which the IMP ends the job as Flux has it.
    pub(crate) fn end_shell(&self) {
        for pid in self.shells() {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// The same, and waits for the IMP's end.
    pub(crate) fn finish(&mut self) {
        self.end_shell();
        self.imp.wait().unwrap();
    }

    /// Ends the IMP alone, as no job ends.
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
