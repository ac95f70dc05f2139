//! Jobs in the state that a scheduler's prolog leaves: a cgroup with a process, a record and a
//! stamp.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use helper::Config;
use helper::jobs::records::Record;
use helper::node::Tree;
use kernel::trust::Trust;
use naming::{NameResolver, resolve_record};
use serde_json::{Value, json};

use super::{Cgroup, Node, Outcome, User, eventually};

/// Properties of a job that has not started yet.
#[derive(Debug)]
pub(crate) struct JobBuilder<'a> {
    node: &'a Node,
    owner: User,
    record: Value,
    cgroup: Cgroup,
    stamped: bool,
    recorded: bool,
}

impl Node {
    /// Begins a job of `owner` with `DevicePolicy` `closed` and no device.
    pub(crate) fn job(&self, owner: User, id: &str) -> JobBuilder<'_> {
        let cgroup = self.cgroup().child("jobs").child(&format!("job-{id}"));
        let record = json!({
            "version": 1, "id": id, "uid": owner.uid, "cgroup": cgroup.path(),
            "started": 1_795_201_200, "options": { "DevicePolicy": "closed" },
        });
        JobBuilder {
            node: self,
            owner,
            record,
            cgroup,
            stamped: true,
            recorded: true,
        }
    }
}

impl Node {
    /// Runs `job-adopt register` with this record.
    pub(crate) fn register(&self, record: &str) -> Outcome {
        self.write("/tmp/record", record);
        self.sh("exec job-adopt register </tmp/record")
    }

    /// Adds to a record's text the numbers of its devices on this node, as `register` finds them. A text that is no
    /// record, or whose devices do not resolve, stays as it is.
    pub(crate) fn resolve_record(&self, text: &str) -> String {
        let Ok(mut record) = Record::parse(text.as_bytes()) else {
            return text.to_owned();
        };
        let resolved = self.look_as_login(|| {
            let conf = Path::new("/etc/security/job_adopt.conf");
            let config = Config::read(conf, &Trust::root()).unwrap_or_default();
            let resolver = NameResolver::new(Tree::host(), config.devices.clone());
            resolve_record(&record, &config, &resolver)
        });
        match resolved {
            Ok(registration) => {
                record.resolved = registration.list;
                record.to_json().unwrap()
            }
            Err(error) => {
                eprintln!("record without device numbers: {error}");
                text.to_owned()
            }
        }
    }
}

impl<'a> JobBuilder<'a> {
    /// Sets one key of the record.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.record[key] = value;
        self
    }

    /// Sets the policy and its entries, each `SPEC` or `SPEC ACCESS`.
    pub(crate) fn policy(self, policy: &str, devices: &[&str]) -> Self {
        let allow: Vec<Value> = devices
            .iter()
            .map(|device| {
                let (spec, access) = device.rsplit_once(' ').unwrap_or((device, "rw"));
                json!([spec, access])
            })
            .collect();
        self.with(
            "options",
            json!({ "DevicePolicy": policy, "DeviceAllow": allow }),
        )
    }

    /// Sets the policy `closed` with these devices.
    pub(crate) fn devices(self, devices: &[&str]) -> Self {
        self.policy("closed", devices)
    }

    /// Sets the start time, in seconds since the epoch.
    pub(crate) fn started(self, seconds: i64) -> Self {
        self.with("started", json!(seconds))
    }

    /// Leaves the cgroup without a stamp.
    pub(crate) fn unstamped(mut self) -> Self {
        self.stamped = false;
        self
    }

    /// Leaves the job without a record.
    pub(crate) fn unrecorded(mut self) -> Self {
        self.recorded = false;
        self
    }

    /// Puts the job into that cgroup, whose parent must exist.
    pub(crate) fn in_cgroup(mut self, cgroup: Cgroup) -> Self {
        self.record["cgroup"] = json!(cgroup.path());
        self.cgroup = cgroup;
        self
    }

    /// Creates the cgroup and the process, and registers the job with its record.
    pub(crate) fn register(self) -> Job<'a> {
        let (job, outcome) = self.try_register();
        outcome.ok();
        job
    }

    /// Creates the cgroup and the process, and tries to register the job with its record.
    pub(crate) fn try_register(self) -> (Job<'a>, Outcome) {
        let record = self.record.to_string();
        let job = self.unstamped().unrecorded().start();
        let outcome = job.node.register(&record);
        (job, outcome)
    }

    /// Creates the cgroup, the process, the stamp and the record.
    pub(crate) fn start(self) -> Job<'a> {
        if !self.cgroup.exists() {
            self.cgroup.create();
        }
        let id = self.record["id"].as_str().unwrap().to_owned();
        let job = Job {
            node: self.node,
            owner: self.owner,
            id,
            payload: start_payload(self.node, self.owner, &self.cgroup),
            cgroup: self.cgroup,
        };
        eventually("the job runs", || {
            job.cgroup
                .pids()
                .into_iter()
                .any(|pid| runs_payload(pid, job.owner))
        });
        if self.stamped {
            job.stamp(&format!("{}:{}", job.owner.uid, job.id));
        }
        if self.recorded {
            job.record(&self.record.to_string());
        }
        job
    }
}

/// Returns whether the process is already [`start_payload`] itself, and no longer the program that starts
/// it.
fn runs_payload(pid: i32, owner: User) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.starts_with("Name:\tsleep\n")
        && status.contains(&format!("\nUid:\t{0}\t{0}\t", owner.uid))
}

/// Starts an idle process of the owner.
fn start_payload(node: &Node, owner: User, cgroup: &Cgroup) -> Child {
    let id = owner.uid.to_string();
    let mut command = node.daemon(cgroup, "setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    command
        .args(["sleep", "infinity"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    node: &'a Node,
    pub(crate) owner: User,
    pub(crate) id: String,
    pub(crate) cgroup: Cgroup,
    payload: Child,
}

impl<'a> Job<'a> {
    /// Returns the node of the job.
    pub(crate) fn node(&self) -> &'a Node {
        self.node
    }

    /// Returns the path of the record on the node.
    pub(crate) fn record_path(&self) -> String {
        format!("/run/job-adopt/jobs/{}/{}.json", self.owner.uid, self.id)
    }

    /// Replaces the record with `text`, valid or not. A valid one gets the numbers of its devices, as from `register`.
    pub(crate) fn record(&self, text: &str) {
        self.node
            .create_dir(&format!("/run/job-adopt/jobs/{}", self.owner.uid), 0o755);
        self.node
            .write(&self.record_path(), &self.node.resolve_record(text));
        self.node.set_mode(&self.record_path(), 0o644);
    }

    /// Stamps the cgroup with this owner and id (`UID:ID`).
    pub(crate) fn stamp(&self, value: &str) {
        let mut setfattr = Command::new("setfattr");
        setfattr
            .args(["-n", "trusted.job_adopt", "-v", value])
            .arg(self.cgroup.dir());
        Outcome::run(&mut setfattr).ok();
    }

    /// Returns our extended attributes of the cgroup: its stamp, and what `register` notes besides.
    pub(crate) fn marks(&self) -> String {
        let mut getfattr = Command::new("getfattr");
        getfattr.args(["--absolute-names", "-d", "-m", "^trusted.job_adopt"]);
        Outcome::run(getfattr.arg(self.cgroup.dir())).ok().stdout
    }

    /// Removes the stamp.
    pub(crate) fn unstamp(&self) {
        let mut setfattr = Command::new("setfattr");
        Outcome::run(
            setfattr
                .args(["-x", "trusted.job_adopt"])
                .arg(self.cgroup.dir()),
        )
        .ok();
    }

    /// Ends the job in a scheduler's way: kills, then removes.
    pub(crate) fn finish(&self) {
        self.cgroup.kill();
        self.cgroup.remove();
    }

    /// Runs `job-adopt resolve` for the owner.
    pub(crate) fn resolved(&self) -> Outcome {
        self.node.job_adopt(&["resolve", "--user", self.owner.name])
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.cgroup.remove();
        let _ = self.payload.kill();
        let _ = self.payload.wait();
    }
}
