//! Finds the job in which the ssh client of a login runs, on this node or on the client's.

use super::choice::RuleAnswer;
use super::evidence::Evidence;
use super::node::Node;
use crate::callerid::diag::{self, DiagError, SocketOwner};
use crate::callerid::{self, Answer, Flow, QueryError};
use crate::clock::Deadline;
use crate::config::Config;
use crate::jobs::Job;
use protocol::{JobId, Request};

/// A query for the job of the ssh client of one login.
#[derive(Debug)]
pub(super) struct CallerQuery<'a> {
    node: &'a Node,
    config: &'a Config,
    /// PAM's `SSH_CONNECTION`.
    connection: &'a str,
    reply_deadline: Deadline,
    /// Finds the client's socket on this node, and asks the client's host; tests replace both.
    find_owner: fn(&Flow) -> Result<Option<SocketOwner>, DiagError>,
    query_origin: fn(Flow, Deadline) -> Result<Answer, QueryError>,
}

/// What is known of the caller's job.
struct CallerJob {
    /// The job, if it is known.
    job: Option<JobId>,
    /// What was found out, for the evidence.
    text: String,
    /// Whether `text` is a fault, which the log names too.
    is_fault: bool,
}

impl CallerJob {
    /// The caller's job is known.
    fn known(job: JobId, text: String) -> Self {
        Self {
            job: Some(job),
            text,
            is_fault: false,
        }
    }

    /// The caller's job is not known, and that is no fault.
    fn unknown(text: String) -> Self {
        Self {
            job: None,
            text,
            is_fault: false,
        }
    }

    /// The caller's job is not known because of a fault, which the log names.
    fn fault(text: String) -> Self {
        Self {
            job: None,
            text,
            is_fault: true,
        }
    }
}

impl<'a> CallerQuery<'a> {
    /// Prepares the query of a login. It ends in time for the reply.
    pub(super) fn new(
        node: &'a Node,
        request: &'a Request,
        config: &'a Config,
        reply_deadline: Deadline,
    ) -> Self {
        Self {
            node,
            config,
            connection: request.ssh_connection.as_str(),
            reply_deadline,
            find_owner: |flow| diag::find_owner(flow.client, flow.server),
            query_origin: callerid::query_origin,
        }
    }

    /// Finds the one of these jobs in which the client runs. Queries the client's host unless the client is known to
    /// run on this node.
    pub(super) fn find_job(&self, jobs: &[Job]) -> RuleAnswer {
        let Some(flow) = Flow::parse_ssh_connection(self.connection) else {
            let why = match self.connection {
                "" => "the connection is not known (--connection gives it)",
                _ => "the connection is none of TCP",
            };
            return RuleAnswer {
                evidence: Evidence::of_line("caller", why),
                ..RuleAnswer::default()
            };
        };
        let mut warnings = Vec::new();
        let caller = match (self.find_owner)(&flow) {
            Ok(Some(owner)) => self.find_local_job(owner, flow, jobs),
            Ok(None) => self.query_host(flow, jobs),
            Err(error) => {
                warnings.push(format!("caller: {error}"));
                self.query_host(flow, jobs)
            }
        };
        if caller.is_fault {
            warnings.push(format!("caller: {}", caller.text));
        }
        RuleAnswer {
            job: caller.job,
            evidence: Evidence::of_line("caller", caller.text),
            warnings,
        }
    }

    /// Finds the job of a client on this node by the cgroup in which it made its socket.
    fn find_local_job(&self, owner: SocketOwner, flow: Flow, jobs: &[Job]) -> CallerJob {
        let client = flow.client;
        match self.node.job_of_cgroup(jobs, owner.cgroup, self.deadline()) {
            Some(job) => CallerJob::known(
                job.clone(),
                format!("{client} is a process here, of job {job}"),
            ),
            None => {
                CallerJob::unknown(format!("{client} is a process here, of none of these jobs"))
            }
        }
    }

    /// Asks the client's host for the job, if it is in a trusted network. An answer counts only if it names one of
    /// `jobs`.
    fn query_host(&self, flow: Flow, jobs: &[Job]) -> CallerJob {
        let host = flow.client.ip();
        if !self
            .config
            .callerid_networks
            .iter()
            .any(|network| network.contains(host))
        {
            return CallerJob::unknown(format!("{host} is not asked: callerid_networks lacks it"));
        }
        match (self.query_origin)(flow, self.deadline()) {
            Ok(Answer::Job(id)) if jobs.iter().any(|job| job.id == id) => {
                let text = format!("{host} says job {id}");
                CallerJob::known(id, text)
            }
            Ok(Answer::Job(id)) => CallerJob::fault(format!(
                "{host} says job {id}, which the user has not running here"
            )),
            Ok(Answer::NoUser) => CallerJob::unknown(format!("{host} says that it is in no job")),
            Ok(Answer::Hidden) => CallerJob::unknown(format!(
                "{host} does not tell: its callerid_networks lack this host"
            )),
            Ok(Answer::InvalidPort | Answer::Unknown) => {
                CallerJob::fault(format!("{host} cannot tell: see its log"))
            }
            Err(error @ QueryError::NoService(_)) => CallerJob::unknown(format!("{host} {error}")),
            Err(error) => CallerJob::fault(format!("{host} {error}")),
        }
    }

    /// The end of a query that begins now.
    fn deadline(&self) -> Deadline {
        self.reply_deadline.within(self.config.callerid_timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;
    use std::time::Duration;

    use nix::errno::Errno;

    use super::*;
    use crate::login::survey::RunningJobs;
    use crate::testing::Scratch;
    use protocol::{Phase, SeveralJobsPolicy};

    /// Jobs 1 and 2 of uid 5, job 3 of uid 6.
    struct CallerBench {
        scratch: Scratch,
        config: Config,
        connection: &'static str,
        find_owner: fn(&Flow) -> Result<Option<SocketOwner>, DiagError>,
        query_origin: fn(Flow, Deadline) -> Result<Answer, QueryError>,
    }

    impl CallerBench {
        fn new() -> Self {
            let scratch = Scratch::new();
            for (id, uid) in [("1", 5), ("2", 5), ("3", 6)] {
                scratch.dir(&format!("cg/{id}/x"));
                let record =
                    format!(r#"{{"version":1,"id":"{id}","uid":{uid},"cgroup":"/{id}","cdi":[]}}"#);
                scratch.file(&format!("jobs/{uid}/{id}.json"), &record);
            }
            let text = format!(
                "registry = {}\ncallerid_networks = 10.1.0.0/16, fd00::/8\n",
                scratch.path().join("jobs").display()
            );
            Self {
                config: Config::parse(text.as_bytes()).unwrap(),
                scratch,
                connection: "10.1.0.5 5000 10.1.0.6 22",
                find_owner: |_| Ok(None),
                query_origin: |_, _| panic!("a host is queried"),
            }
        }

        fn cgroups(&self) -> PathBuf {
            self.scratch.path().join("cg")
        }

        fn node(&self) -> Node {
            Node::with_root(self.scratch.path(), self.scratch.trust(), &self.cgroups())
        }

        fn jobs(&self) -> Vec<Job> {
            let soon = Deadline::after(Duration::from_secs(60));
            self.node()
                .find_running_jobs(&self.config, "n", 5, soon)
                .unwrap()
                .jobs
        }

        /// Finds the job, the evidence and the warnings.
        fn find_job(&self) -> (Option<String>, String, Vec<String>) {
            let node = self.node();
            let caller = CallerQuery {
                node: &node,
                config: &self.config,
                connection: self.connection,
                reply_deadline: Deadline::after(Duration::from_secs(60)),
                find_owner: self.find_owner,
                query_origin: self.query_origin,
            };
            let RuleAnswer {
                job,
                evidence,
                warnings,
            } = caller.find_job(&self.jobs());
            (job.map(|id| id.to_string()), evidence.to_string(), warnings)
        }
    }

    #[test]
    fn running_jobs_of_user_are_found_by_uid_and_by_cgroup() {
        let bench = CallerBench::new();
        let node = bench.node();
        let jobs = bench.jobs();
        let soon = Deadline::after(Duration::from_secs(60));
        assert_eq!(jobs.len(), 2);
        let inode = |path: &str| fs::metadata(bench.cgroups().join(path)).unwrap().ino();
        assert_eq!(
            node.job_of_cgroup(&jobs, inode("2/x"), soon)
                .map(JobId::as_str),
            Some("2")
        );
        assert_eq!(node.job_of_cgroup(&jobs, inode("3/x"), soon), None);
        let none = node.find_running_jobs(&bench.config, "n", 7, soon).unwrap();
        assert_eq!(none, RunningJobs::default());
        bench.scratch.file("jobs/7/4.json", "{");
        let warnings = node
            .find_running_jobs(&bench.config, "n", 7, soon)
            .unwrap()
            .warnings;
        assert_eq!(warnings.len(), 1, "a broken record may hide a job");
    }

    #[test]
    fn client_on_this_node_is_found_by_cgroup_without_a_query() {
        let mut bench = CallerBench::new();
        bench.find_owner = |flow| {
            assert_eq!((flow.client.port(), flow.server.port()), (5000, 22));
            Ok(Some(SocketOwner { uid: 5, cgroup: 0 }))
        };
        let (job, evidence, warnings) = bench.find_job();
        assert_eq!((job, warnings), (None, Vec::new()));
        assert!(evidence.contains("10.1.0.5:5000 is a process here, of none of these jobs"));
    }

    #[test]
    fn host_in_a_trusted_network_is_queried_within_the_timeouts() {
        let mut bench = CallerBench::new();
        bench.query_origin = |flow, deadline| {
            assert_eq!(flow.client.to_string(), "10.1.0.5:5000");
            let left = deadline.remaining();
            assert!(left <= Duration::from_millis(300), "{left:?}");
            Ok(Answer::Job("1".parse().unwrap()))
        };
        let (job, evidence, warnings) = bench.find_job();
        assert_eq!((job.as_deref(), warnings), (Some("1"), Vec::new()));
        assert_eq!(evidence, "caller: 10.1.0.5 says job 1\n");
        bench.connection = "::ffff:10.1.0.5 5000 ::ffff:10.1.0.6 22";
        assert_eq!(bench.find_job().0.as_deref(), Some("1"));
        let node = bench.node();
        let caller = CallerQuery {
            node: &node,
            config: &bench.config,
            connection: "",
            reply_deadline: Deadline::after(Duration::from_millis(10)),
            find_owner: bench.find_owner,
            query_origin: bench.query_origin,
        };
        let left = caller.deadline().remaining();
        assert!(left <= Duration::from_millis(10), "the reply's deadline");
    }

    #[test]
    fn host_outside_the_networks_is_not_queried() {
        let mut bench = CallerBench::new();
        for (connection, why) in [
            ("", "the connection is not known"),
            (
                "UNKNOWN 65535 UNKNOWN 65535",
                "the connection is none of TCP",
            ),
            (
                "10.2.0.5 5000 10.2.0.6 22",
                "10.2.0.5 is not asked: callerid_networks lacks it",
            ),
            (
                "fe80::1%1 5000 fe80::2%1 22",
                "fe80::1 is not asked: callerid_networks lacks it",
            ),
        ] {
            bench.connection = connection;
            let (job, evidence, warnings) = bench.find_job();
            assert_eq!((job, warnings), (None, Vec::new()), "{connection}");
            assert!(evidence.contains(why), "{evidence}");
        }
    }

    #[test]
    fn only_faults_are_warnings() {
        type QueryOrigin = fn(Flow, Deadline) -> Result<Answer, QueryError>;
        let mut bench = CallerBench::new();
        let quiet: [(QueryOrigin, &str); 3] = [
            (
                |_, _| Ok(Answer::NoUser),
                "10.1.0.5 says that it is in no job",
            ),
            (|_, _| Ok(Answer::Hidden), "10.1.0.5 does not tell"),
            (
                |_, _| Err(QueryError::NoService(Errno::ECONNREFUSED)),
                "10.1.0.5 has no such service",
            ),
        ];
        for (query, why) in quiet {
            bench.query_origin = query;
            let (job, evidence, warnings) = bench.find_job();
            assert_eq!((job, warnings), (None, Vec::new()), "{why}");
            assert!(evidence.contains(why), "{evidence}");
        }
        let loud: [(QueryOrigin, &str); 6] = [
            (
                |_, _| Ok(Answer::Job("3".parse().unwrap())),
                "says job 3, which the user has not",
            ),
            (|_, _| Ok(Answer::Unknown), "cannot tell"),
            (|_, _| Err(QueryError::Timeout), "did not answer in time"),
            (|_, _| Err(QueryError::ConnectionClosed), "hung up"),
            (|_, _| Err(QueryError::TooManyLines), "more than one line"),
            (
                |_, _| Err(QueryError::InvalidAnswer),
                "none to this question",
            ),
        ];
        for (query, why) in loud {
            bench.query_origin = query;
            let (job, evidence, warnings) = bench.find_job();
            let [warning] = warnings.as_slice() else {
                panic!("{warnings:?}")
            };
            assert!(
                job.is_none() && warning.starts_with("caller: 10.1.0.5 "),
                "{warning}"
            );
            assert!(warning.contains(why) && evidence.contains(why), "{warning}");
        }
        bench.find_owner = |_| Err(DiagError::malformed());
        bench.query_origin = |_, _| Ok(Answer::Job("2".parse().unwrap()));
        let (job, _, warnings) = bench.find_job();
        assert_eq!(
            (job.as_deref(), warnings.len()),
            (Some("2"), 1),
            "the host is queried"
        );
    }

    #[test]
    fn connection_of_the_request_counts_and_not_rhost() {
        let bench = CallerBench::new();
        let request = Request {
            phase: Phase::Session,
            user: "alice".into(),
            uid: 5,
            service: "sshd".into(),
            node: "n".into(),
            rhost: "10.1.0.9".into(),
            ssh_connection: "10.9.0.5 5000 10.1.0.6 22".into(),
            conf: String::new(),
            several: SeveralJobsPolicy::Newest,
            budget_ms: 5000,
            wait_ms: 0,
            unit: String::new(),
        };
        let node = bench.node();
        let deadline = Deadline::after(Duration::ZERO);
        let caller = CallerQuery::new(&node, &request, &bench.config, deadline);
        let RuleAnswer { job, evidence, .. } = caller.find_job(&bench.jobs());
        assert_eq!(job, None);
        assert!(
            evidence.to_string().contains("10.9.0.5 is not asked"),
            "{evidence}"
        );
    }
}
