//! Many logins at once, all of them open at the same time.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Sshd, User};

/// `bash -c START CLIENTS COUNT COMMAND...`: starts that many clients at once, which read our own
/// standard input, and names those that did not end well.
const START: &str = r#"
count=$0
for ((i = 0; i < count; i++)); do
    "$@" <&0 &
    clients+=("$!")
done
for client in "${clients[@]}"; do
    wait "$client" || echo "lost: status $?"
done
"#;
/// A login's own part: says where it is, and stays until its input ends.
const STAY: &str = "grep ^0:: /proc/self/cgroup; read -r _ || true";

/// What came of logins that were started at once.
#[derive(Debug)]
pub(crate) struct Burst {
    /// What each printed: its cgroup.
    pub(crate) cgroups: Vec<String>,
    /// What else was printed: none, if all of them went well.
    pub(crate) complaints: Vec<String>,
    /// From the first start until all were in.
    pub(crate) took: Duration,
    /// Processor time of the node meanwhile, server and clients, until all were in.
    pub(crate) cpu: Duration,
}

impl Sshd<'_> {
    /// Has `count` logins open at once; `inside` runs while all of them are in.
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
        command.args(["--kill-after=1", "300", "bash", "-c", START, &count.to_string(), "ssh"]);
        // What the client's command line has behind the program's name.
        let own = client.get_args().skip_while(|argument| *argument != "ssh").skip(1);
        command.args(own).args(["-o", "BatchMode=yes"]).args(options).args([&target, STAY]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (began, cpu) = (Instant::now(), self.cpu());
        let mut clients = command.spawn().unwrap();
        let gate = clients.stdin.take();
        let mut output = BufReader::new(clients.stdout.take().unwrap());
        let mut burst = Burst {
            cgroups: Vec::new(),
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
        (burst.took, burst.cpu) = (began.elapsed(), self.cpu() - cpu);
        inside();
        drop(gate);
        output.lines().for_each(|line| burst.add(&line.unwrap()));
        let mut errors = String::new();
        clients.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        burst.complaints.extend(errors.lines().map(str::to_owned));
        let ended = clients.wait().unwrap();
        assert!(ended.success(), "{ended}: {burst:?}");
        burst
    }

    /// Processor time that everything of the node has used so far.
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(self.node().cgroup().dir().join("cpu.stat")).unwrap();
        let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
        Duration::from_micros(used.parse().unwrap())
    }
}

impl Burst {
    fn add(&mut self, line: &str) {
        match line.trim_end().strip_prefix("0::") {
            Some(cgroup) => self.cgroups.push(cgroup.to_owned()),
            None => self.complaints.push(line.to_owned()),
        }
    }
}
