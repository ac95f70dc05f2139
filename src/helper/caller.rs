//! Which of a user's jobs an ssh client runs in, and which the user has chosen.

use std::net::IpAddr;
use std::time::Instant;

use super::{Config, Evidence, Node};
use crate::callerid::diag::{self, DiagError, SocketOwner};
use crate::callerid::{self, Answer, Flow, QueryError};
use crate::sources::Job;
use protocol::{JobId, Request};

/// Who can be asked about the ssh client of one login.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    node: &'a Node,
    config: &'a Config,
    /// PAM's `SSH_CONNECTION`.
    connection: &'a str,
    last: Instant,
    owner: fn(&Flow) -> Result<Option<SocketOwner>, DiagError>,
    ask: fn(Flow, Instant) -> Result<Answer, QueryError>,
}

/// The job, if any is told as this site expects it, and who says so; else what an administrator should
/// know.
type Found = Result<(Option<JobId>, String), String>;

impl<'a> Caller<'a> {
    pub(super) fn new(
        node: &'a Node,
        request: &'a Request,
        config: &'a Config,
        last: Instant,
    ) -> Self {
        let connection = request.ssh_connection.as_str();
        let owner = |flow: &Flow| diag::find_owner(flow.client, flow.server);
        Self { node, config, connection, last, owner, ask: callerid::query_origin }
    }

    /// The one of these jobs that the client runs in. Where it runs on this node, nobody else is
    /// asked.
    pub(super) fn job(
        &self,
        jobs: &[Job],
        evidence: &mut Evidence,
        warnings: &mut Vec<String>,
    ) -> Option<JobId> {
        let Some(flow) = Flow::parse_ssh_connection(self.connection) else {
            let why = match self.connection {
                "" => "the connection is not known (--connection gives it)",
                _ => "the connection is none of TCP",
            };
            evidence.add("caller", why);
            return None;
        };
        let found = match (self.owner)(&flow) {
            Ok(Some(owner)) => self.here(owner, flow, jobs),
            Ok(None) => self.elsewhere(flow, jobs),
            Err(error) => {
                warnings.push(format!("caller: {error}"));
                self.elsewhere(flow, jobs)
            }
        };
        let (job, text) = found.unwrap_or_else(|fault| {
            warnings.push(format!("caller: {fault}"));
            (None, fault)
        });
        evidence.add("caller", text);
        job
    }

    fn here(&self, owner: SocketOwner, flow: Flow, jobs: &[Job]) -> Found {
        let client = flow.client;
        match self.node.job_of_cgroup(jobs, owner.cgroup, self.until()) {
            Some(job) => {
                Ok((Some(job.clone()), format!("{client} is a process here, of job {job}")))
            }
            None => Ok((None, format!("{client} is a process here, of none of these jobs"))),
        }
    }

    fn elsewhere(&self, flow: Flow, jobs: &[Job]) -> Found {
        let host: IpAddr = flow.client.ip();
        if !self.config.callerid_networks.iter().any(|network| network.contains(host)) {
            return Ok((None, format!("{host} is not asked: callerid_networks lacks it")));
        }
        match (self.ask)(flow, self.until()) {
            Ok(Answer::Job(job)) if jobs.iter().any(|one| one.id == job) => {
                let text = format!("{host} says job {job}");
                Ok((Some(job), text))
            }
            Ok(Answer::Job(job)) => {
                Err(format!("{host} says job {job}, which the user has not running here"))
            }
            Ok(Answer::NoUser) => Ok((None, format!("{host} says that it is in no job"))),
            Ok(Answer::Hidden) => {
                Ok((None, format!("{host} does not tell: its callerid_networks lack this host")))
            }
            Ok(Answer::InvalidPort | Answer::Unknown) => {
                Err(format!("{host} cannot tell: see its log"))
            }
            Err(error @ QueryError::NoService(_)) => Ok((None, format!("{host} {error}"))),
            Err(error) => Err(format!("{host} {error}")),
        }
    }

    fn until(&self) -> Instant {
        self.last.min(Instant::now() + self.config.callerid_timeout)
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
    use crate::testing::Scratch;
    use protocol::{Phase, SeveralJobsPolicy};

    /// Jobs 1 and 2 of uid 5, job 3 of uid 6.
    struct Bench {
        scratch: Scratch,
        config: Config,
        connection: &'static str,
        owner: fn(&Flow) -> Result<Option<SocketOwner>, DiagError>,
        ask: fn(Flow, Instant) -> Result<Answer, QueryError>,
    }

    impl Bench {
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
                owner: |_| Ok(None),
                ask: |_, _| panic!("nobody is to be asked"),
            }
        }

        fn cgroups(&self) -> PathBuf {
            self.scratch.path().join("cg")
        }

        fn node(&self) -> Node {
            Node::laid_out(self.scratch.path(), self.scratch.trust(), &self.cgroups())
        }

        fn jobs(&self) -> Vec<Job> {
            let soon = Instant::now() + Duration::from_secs(5);
            self.node().running(&self.config, "n", 5, soon).unwrap().0
        }

        /// The job, what evidence says, and what the log.
        fn job(&self) -> (Option<String>, String, Vec<String>) {
            let (node, connection) = (self.node(), self.connection);
            let last = Instant::now() + Duration::from_secs(5);
            let (config, owner, ask) = (&self.config, self.owner, self.ask);
            let caller = Caller { node: &node, config, connection, last, owner, ask };
            let (mut evidence, mut warnings) = (Evidence::default(), Vec::new());
            let job = caller.job(&self.jobs(), &mut evidence, &mut warnings);
            (job.map(|id| id.to_string()), evidence.to_string(), warnings)
        }
    }

    #[test]
    fn a_users_running_jobs_and_the_one_with_a_cgroup() {
        let bench = Bench::new();
        let (node, jobs) = (bench.node(), bench.jobs());
        let soon = Instant::now() + Duration::from_secs(5);
        assert_eq!(jobs.len(), 2);
        let of = |path: &str| fs::metadata(bench.cgroups().join(path)).unwrap().ino();
        assert_eq!(node.job_of_cgroup(&jobs, of("2/x"), soon).map(JobId::as_str), Some("2"));
        assert_eq!(node.job_of_cgroup(&jobs, of("3/x"), soon), None);
        assert_eq!(node.running(&bench.config, "n", 7, soon).unwrap(), (Vec::new(), Vec::new()));
        bench.scratch.file("jobs/7/4.json", "{");
        let hidden = node.running(&bench.config, "n", 7, soon).unwrap().1;
        assert_eq!(hidden.len(), 1, "what may hide a job");
    }

    #[test]
    fn who_runs_here_is_looked_up_and_nobody_is_asked() {
        let mut bench = Bench::new();
        bench.owner = |flow| {
            assert_eq!((flow.client.port(), flow.server.port()), (5000, 22));
            Ok(Some(SocketOwner { uid: 5, cgroup: 0 }))
        };
        let (job, evidence, warnings) = bench.job();
        assert_eq!((job, warnings), (None, Vec::new()));
        assert!(evidence.contains("10.1.0.5:5000 is a process here, of none of these jobs"));
    }

    #[test]
    fn an_origin_of_the_site_is_asked_in_the_time_that_there_is() {
        let mut bench = Bench::new();
        bench.ask = |flow, deadline| {
            assert_eq!(flow.client.to_string(), "10.1.0.5:5000");
            let left = deadline - Instant::now();
            assert!(left <= Duration::from_millis(300), "{left:?}");
            Ok(Answer::Job("1".parse().unwrap()))
        };
        let (job, evidence, warnings) = bench.job();
        assert_eq!((job.as_deref(), warnings), (Some("1"), Vec::new()));
        assert_eq!(evidence, "caller: 10.1.0.5 says job 1\n");
        bench.connection = "::ffff:10.1.0.5 5000 ::ffff:10.1.0.6 22";
        assert_eq!(bench.job().0.as_deref(), Some("1"));
        let node = bench.node();
        let caller = Caller {
            node: &node,
            config: &bench.config,
            connection: "",
            last: Instant::now() + Duration::from_millis(10),
            owner: bench.owner,
            ask: bench.ask,
        };
        assert!(caller.until() - Instant::now() <= Duration::from_millis(10), "the budget's end");
    }

    #[test]
    fn nobody_else_is_asked() {
        let mut bench = Bench::new();
        for (connection, why) in [
            ("", "the connection is not known"),
            ("UNKNOWN 65535 UNKNOWN 65535", "the connection is none of TCP"),
            ("10.2.0.5 5000 10.2.0.6 22", "10.2.0.5 is not asked: callerid_networks lacks it"),
            ("fe80::1%1 5000 fe80::2%1 22", "fe80::1 is not asked: callerid_networks lacks it"),
        ] {
            bench.connection = connection;
            let (job, evidence, warnings) = bench.job();
            assert_eq!((job, warnings), (None, Vec::new()), "{connection}");
            assert!(evidence.contains(why), "{evidence}");
        }
    }

    #[test]
    fn only_what_is_out_of_order_is_warned_of() {
        type Ask = fn(Flow, Instant) -> Result<Answer, QueryError>;
        let mut bench = Bench::new();
        let quiet: [(Ask, &str); 3] = [
            (|_, _| Ok(Answer::NoUser), "10.1.0.5 says that it is in no job"),
            (|_, _| Ok(Answer::Hidden), "10.1.0.5 does not tell"),
            (
                |_, _| Err(QueryError::NoService(Errno::ECONNREFUSED)),
                "10.1.0.5 has no such service",
            ),
        ];
        for (ask, why) in quiet {
            bench.ask = ask;
            let (job, evidence, warnings) = bench.job();
            assert_eq!((job, warnings), (None, Vec::new()), "{why}");
            assert!(evidence.contains(why), "{evidence}");
        }
        let loud: [(Ask, &str); 6] = [
            (|_, _| Ok(Answer::Job("3".parse().unwrap())), "says job 3, which the user has not"),
            (|_, _| Ok(Answer::Unknown), "cannot tell"),
            (|_, _| Err(QueryError::Timeout), "did not answer in time"),
            (|_, _| Err(QueryError::ConnectionClosed), "hung up"),
            (|_, _| Err(QueryError::TooManyLines), "more than one line"),
            (|_, _| Err(QueryError::InvalidAnswer), "none to this question"),
        ];
        for (ask, why) in loud {
            bench.ask = ask;
            let (job, evidence, warnings) = bench.job();
            let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
            assert!(job.is_none() && warning.starts_with("caller: 10.1.0.5 "), "{warning}");
            assert!(warning.contains(why) && evidence.contains(why), "{warning}");
        }
        bench.owner = |_| Err(DiagError::malformed());
        bench.ask = |_, _| Ok(Answer::Job("2".parse().unwrap()));
        let (job, _, warnings) = bench.job();
        assert_eq!((job.as_deref(), warnings.len()), (Some("2"), 1), "the origin may still know");
    }

    #[test]
    fn the_request_says_which_connection() {
        let bench = Bench::new();
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
        let (node, last) = (bench.node(), Instant::now());
        let caller = Caller::new(&node, &request, &bench.config, last);
        let mut evidence = Evidence::default();
        assert_eq!(caller.job(&bench.jobs(), &mut evidence, &mut Vec::new()), None);
        assert!(evidence.to_string().contains("10.9.0.5 is not asked"), "{evidence}");
    }
}
