//! Many logins that start at once and stay open at the same time.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use super::{Sshd, User};

/// `bash -c START_CLIENTS CLIENTS COUNT COMMAND...` starts COUNT clients at once. They read the
/// shell's standard input. In the command, `@START@` becomes the time at which the client starts. The
/// script names each client that failed.
const START_CLIENTS: &str = r#"
count=$0
for ((i = 0; i < count; i++)); do
    "${@/@START@/$EPOCHREALTIME}" <&0 &
    clients+=("$!")
done
for client in "${clients[@]}"; do
    wait "$client" || echo "lost: status $?"
done
"#;
/// Command of a login: prints the start of its client and its cgroup, and stays until its input ends. One
/// call of `echo` writes the line, since all logins share the output.
const STAY_COMMAND: &str = r#"echo "@START@ $(grep ^0:: /proc/self/cgroup)"; read -r _ || true"#;

/// Result of logins that were started at once.
#[derive(Debug)]
pub(crate) struct Burst {
    /// The cgroup that each login printed.
    pub(crate) cgroups: Vec<String>,
    /// Time of each login from the start of its client until its command's first line arrived.
    pub(crate) waits: Vec<Duration>,
    /// All other output: empty if every login succeeded.
    pub(crate) complaints: Vec<String>,
    /// Time from the first start until every login was open.
    pub(crate) took: Duration,
    /// Processor time of the node until every login was open, server and clients together.
    pub(crate) cpu: Duration,
}

impl Sshd<'_> {
    /// Keeps `count` logins open at once, and calls `inside` while all of them are open.
    pub(crate) fn burst(
        &self,
        user: User,
        count: usize,
        options: &[&str],
        inside: impl FnOnce(),
    ) -> Burst {
        let target = format!("{}@127.0.0.1", user.name);
        let client = self.client("ssh", &[]);
        let node = self.node();
        let mut command = node.daemon(&node.outside(), "timeout");
        command.args([
            "--kill-after=1",
            "300",
            "bash",
            "-c",
            START_CLIENTS,
            &count.to_string(),
            "ssh",
        ]);
        // Everything that follows the program's name on the client's command line.
        let own = client
            .get_args()
            .skip_while(|argument| *argument != "ssh")
            .skip(1);
        command
            .args(own)
            .args(["-o", "BatchMode=yes"])
            .args(options)
            .args([&target, STAY_COMMAND]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let began = Instant::now();
        let cpu = self.cpu_time();
        let mut clients = command.spawn().unwrap();
        let gate = clients.stdin.take();
        let mut output = BufReader::new(clients.stdout.take().unwrap());
        let mut burst = Burst {
            cgroups: Vec::new(),
            waits: Vec::new(),
            complaints: Vec::new(),
            took: Duration::ZERO,
            cpu: Duration::ZERO,
        };
        let mut line = String::new();
        while burst.cgroups.len() + burst.complaints.len() < count {
            line.clear();
            if output.read_line(&mut line).unwrap() == 0 {
                break;
            }
            burst.add(&line);
        }
        (burst.took, burst.cpu) = (began.elapsed(), self.cpu_time() - cpu);
        inside();
        drop(gate);
        for late in output.lines() {
            burst.add(&late.unwrap());
        }
        let mut errors = String::new();
        clients
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        burst.complaints.extend(errors.lines().map(str::to_owned));
        let ended = clients.wait().unwrap();
        assert!(ended.success(), "{ended}: {burst:?}");
        burst
    }

    /// Returns the processor time that the whole node has used so far.
    fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(self.node().cgroup().dir().join("cpu.stat")).unwrap();
        let used = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))
            .unwrap();
        Duration::from_micros(used.parse().unwrap())
    }
}

impl Burst {
    fn add(&mut self, line: &str) {
        let parts = line.trim_end().split_once(" 0::");
        let parts = parts.and_then(|(start, cgroup)| Some((start.parse().ok()?, cgroup)));
        let Some((start, cgroup)) = parts else {
            return self.complaints.push(line.to_owned());
        };
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(start);
        self.waits.push(start.elapsed().unwrap_or_default());
        self.cgroups.push(cgroup.to_owned());
    }
}
