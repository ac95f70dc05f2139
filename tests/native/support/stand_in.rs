//! Stand-ins for step daemons (`tools/stepd.c`).

use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::sync::Mutex;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::slurm::Slurm;
use super::{Node, Tool, User, eventually};

/// A job that Slurm never started, with a higher number than any that it did.
pub(crate) const FORGED: &str = "99999";
/// Name of the stand-in's processes.
const NAME: &str = "stepd";

/// A process that plays a step daemon. Dropping it removes the process and its socket.
#[derive(Debug)]
pub(crate) struct StandIn<'a> {
    slurm: &'a Slurm<'a>,
    path: String,
    child: Mutex<Child>,
}

impl<'a> Slurm<'a> {
    /// Starts a stand-in as that uid, at that socket, for a job of `owner` in that state (a number
    /// of the protocol, or `mute`).
    pub(crate) fn start_stand_in(
        &'a self,
        uid: u32,
        path: &str,
        owner: User,
        state: &str,
    ) -> StandIn<'a> {
        let node: &Node = self.node;
        node.install(&Tool::Stepd.path(), "/usr/bin/stepd");
        let mut stepd = node.daemon(&node.outside(), "setpriv");
        let id = uid.to_string();
        stepd.args(["--reuid", &id, "--regid", &id, "--clear-groups", NAME, path]);
        let child = stepd.args([&owner.uid.to_string(), state]).spawn().unwrap();
        // The stand-in sets the socket's mode last.
        let open = |file: std::fs::Metadata| file.permissions().mode() & 0o777 == 0o777;
        let socket = node.path(path);
        eventually("the stand-in listens", || {
            socket.symlink_metadata().is_ok_and(open)
        });
        StandIn {
            slurm: self,
            path: path.to_owned(),
            child: Mutex::new(child),
        }
    }
}

impl StandIn<'_> {
    /// Kills the process and leaves its socket.
    pub(crate) fn kill(&self) {
        for pid in self.slurm.running(NAME) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.lock().unwrap().wait();
    }
}

impl Drop for StandIn<'_> {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.slurm.node.path(&self.path));
    }
}
