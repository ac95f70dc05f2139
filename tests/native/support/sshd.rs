//! A real `sshd` on a node, and logins to it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::user::PEOPLE;
use super::{Node, Outcome, ROOT, User, eventually, tool};

/// The server's configuration. Only the client's command limits the time of a login: that limit grows on an emulated
/// processor.
const CONFIG: &str = "\
HostKey /etc/ssh/test-host-key
PidFile /run/sshd.pid
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication yes
PermitRootLogin yes
AuthorizedKeysFile .ssh/authorized_keys
LogLevel VERBOSE
UseDNS no
PrintMotd no
LoginGraceTime 0
MaxStartups 400:30:500
MaxSessions 100
Subsystem sftp internal-sftp
";

/// Options of all clients. The default key exchange costs three times as much as the rest of a
/// login.
const CLIENT_CONFIG: &str = "\
IdentityFile /root/key
StrictHostKeyChecking yes
UserKnownHostsFile /root/known_hosts
KexAlgorithms curve25519-sha256
";

/// Answers a password prompt.
const ASKPASS: &str = "#!/bin/sh\necho \"$TEST_PASSWORD\"\n";

/// A running server.
#[derive(Debug)]
pub(crate) struct Sshd<'a> {
    node: &'a Node,
    server: Child,
}

/// Returns the line that keeps sshd from punishing the address of refused logins, which all tests share. OpenSSH
/// has it from 9.8 on.
fn penalties() -> &'static str {
    static LINE: OnceLock<&str> = OnceLock::new();
    LINE.get_or_init(|| {
        let output = Command::new("/usr/sbin/sshd").arg("-V").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let version = text.split("OpenSSH_").nth(1).unwrap();
        let mut numbers = version
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|digits| digits.parse().ok());
        let numbers: [u32; 2] = [numbers.next().unwrap(), numbers.next().unwrap()];
        if numbers >= [9, 8] {
            "PerSourcePenalties no\n"
        } else {
            ""
        }
    })
}

impl Node {
    /// Starts `sshd`, which accepts the test's key for every user.
    pub(crate) fn sshd(&self) -> Sshd<'_> {
        self.sshd_with("")
    }

    /// Starts `sshd` with these lines in front of its configuration.
    pub(crate) fn sshd_with(&self, lines: &str) -> Sshd<'_> {
        self.sshd_after(":", lines)
    }

    /// Starts `sshd` like [`Node::sshd_with`] in a shell that has run this script: it inherits what the script sets.
    pub(crate) fn sshd_after(&self, script: &str, lines: &str) -> Sshd<'_> {
        self.create_dir("/etc/ssh", 0o755);
        self.write(
            "/etc/ssh/sshd_config",
            &(lines.to_owned() + CONFIG + penalties()),
        );
        self.install_secret(&tool::key("host-key"), "/etc/ssh/test-host-key");
        self.install_secret(&tool::key("user-key"), "/root/key");
        let host = fs::read_to_string(tool::key("host-key.pub")).unwrap();
        self.write("/root/known_hosts", &format!("127.0.0.1 {host}"));
        self.write("/root/ssh_config", CLIENT_CONFIG);
        self.write("/root/askpass", ASKPASS);
        self.set_mode("/root/askpass", 0o700);
        for user in PEOPLE.into_iter().chain([ROOT]) {
            self.authorise(user);
        }
        let server = self.server(script);
        eventually("sshd listens", || self.exists("/run/sshd.pid"));
        Sshd { node: self, server }
    }

    fn server(&self, script: &str) -> Child {
        let mut command = self.daemon(&self.outside(), "sh");
        let server = format!("set -e; {script}; exec /usr/sbin/sshd -D -f /etc/ssh/sshd_config");
        command.args(["-c", &server]);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn install_secret(&self, from: &std::path::Path, to: &str) {
        self.install(from, to);
        self.set_mode(to, 0o600);
    }

    fn authorise(&self, user: User) {
        let folder = format!("{}/.ssh", user.home());
        self.create_dir(&folder, 0o700);
        let public = fs::read_to_string(tool::key("user-key.pub")).unwrap();
        self.write(&format!("{folder}/authorized_keys"), &public);
        for path in [folder.clone(), format!("{folder}/authorized_keys")] {
            chown(self.path(&path), Some(user.uid), Some(user.uid)).unwrap();
        }
        fs::set_permissions(self.path(&user.home()), fs::Permissions::from_mode(0o700)).unwrap();
    }
}

impl Sshd<'_> {
    /// Returns the node of this server.
    pub(crate) fn node(&self) -> &Node {
        self.node
    }

    /// Returns the listener's process, in this process's PID namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    /// Prepares an OpenSSH client program with the options of all clients.
    pub(crate) fn client(&self, program: &str, options: &[&str]) -> Command {
        let mut command = self.node.command(program);
        command.args(["-F", "/root/ssh_config"]).args(options);
        command
    }

    /// Runs `ssh USER@node COMMAND` with a key.
    pub(crate) fn ssh(&self, user: User, script: &str) -> Outcome {
        self.ssh_with(&["-o", "BatchMode=yes"], user, script)
    }

    /// Runs `ssh USER@node COMMAND` with a key and a pseudo-terminal.
    pub(crate) fn ssh_tty(&self, user: User, script: &str) -> Outcome {
        self.ssh_with(&["-o", "BatchMode=yes", "-tt"], user, script)
    }

    /// Runs `ssh USER@node COMMAND` with a key and further options.
    pub(crate) fn ssh_with(&self, options: &[&str], user: User, script: &str) -> Outcome {
        let target = format!("{}@127.0.0.1", user.name);
        Outcome::run(self.client("ssh", options).args([&target, script]))
    }

    /// Runs an interactive shell that reads `input`.
    pub(crate) fn shell(&self, user: User, input: &str) -> Outcome {
        self.node.write("/root/input", input);
        let target = format!("{}@127.0.0.1", user.name);
        let mut command = self.client("ssh", &["-o", "BatchMode=yes", "-tt", &target]);
        command.stdin(fs::File::open(self.node.path("/root/input")).unwrap());
        Outcome::run(&mut command)
    }

    /// Starts a login that stays until its input ends.
    pub(crate) fn stay(&self, user: User, script: &str) -> Child {
        let target = format!("{}@127.0.0.1", user.name);
        let mut command = self.client("ssh", &["-o", "BatchMode=yes", &target, script]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Logs in by keyboard-interactive authentication with the user's password.
    pub(crate) fn ssh_password(&self, user: User, script: &str) -> Outcome {
        self.ssh_by("keyboard-interactive", &user.password(), user, script)
    }

    /// Logs in by these methods, in this order, with this password.
    pub(crate) fn ssh_by(
        &self,
        methods: &str,
        password: &str,
        user: User,
        script: &str,
    ) -> Outcome {
        let methods = format!("PreferredAuthentications={methods}");
        let target = format!("{}@127.0.0.1", user.name);
        let mut command = self.client("ssh", &["-o", &methods, "-o", "NumberOfPasswordPrompts=1"]);
        command.env("TEST_PASSWORD", password);
        command
            .env("SSH_ASKPASS", "/root/askpass")
            .env("SSH_ASKPASS_REQUIRE", "force");
        Outcome::run(command.args([&target, script]))
    }

    /// Runs `sftp` with a batch of commands.
    pub(crate) fn sftp(&self, user: User, batch: &str) -> Outcome {
        self.node.write("/root/batch", batch);
        let target = format!("{}@127.0.0.1", user.name);
        Outcome::run(&mut self.client("sftp", &["-b", "/root/batch", &target]))
    }

    /// Runs `scp`.
    pub(crate) fn scp(&self, options: &[&str], from: &str, to: &str) -> Outcome {
        Outcome::run(self.client("scp", options).args([from, to]))
    }
}

impl Drop for Sshd<'_> {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
