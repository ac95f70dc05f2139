//! `check --live USER`: the service's own stack, run for a user.
//!
//! It runs in a child, which ends with it: whoever calls this stays where they are.

mod child;
mod event;
mod look;
mod verdict;
mod watch;

use super::node::Server;
use super::{Check, Finding, Scene};
use crate::cgroup::{Mark, Mount};
use crate::cli::people;
use crate::cli::resolve::Expected;
use crate::plan::CgroupPath;
use child::Order;
use nix::unistd::Uid;
use std::fs;
use std::time::Duration;

const USER: Check = "live-user";
const RUN: Check = "live-run";

/// How long a phase takes that no argument of the module says otherwise of.
const PHASE: Duration = Duration::from_secs(5);
/// What the other modules may take.
const MARGIN: Duration = Duration::from_secs(10);

/// What a login of `user` would be, by running the stack in a child.
pub(super) fn live(user: &str, scene: &Scene) -> Vec<Finding> {
    let account = match people::account(user) {
        Ok(account) => account,
        Err(error) => {
            let text = error.text().unwrap_or_else(|| "no such user".into());
            return vec![Finding::unknown(USER, user, text, "name a user that this node knows")];
        }
    };
    if account.uid.is_root() {
        let text = "root is never judged, and stays where sshd is";
        let remedy = "name a user that has a job here, and one that has none";
        return vec![Finding::unknown(USER, user, text, remedy)];
    }
    if !Uid::effective().is_root() {
        let text = "only root can run the stack as sshd does";
        return vec![Finding::unknown(USER, user, text, "run this as root")];
    }
    let name = account.name.clone();
    let expected = Expected::of(account, &scene.service, &scene.conf.to_string_lossy());
    let before = Leaf::of(&expected);
    let order = Order {
        service: &scene.service,
        user: &name,
        sshd: Server::all().iter().find(|server| server.is_here()).map(|server| server.pid),
    };
    let limit = limit(scene);
    let run = match watch::run(order, limit) {
        Ok(run) => run,
        Err(error) => {
            let text = format!("the stack could not be run: {error}");
            return vec![Finding::unknown(RUN, user, text, "")];
        }
    };
    before.restore();
    verdict::findings(user, &run, &expected, limit)
}

/// Both phases, and what else there is in the stack.
fn limit(scene: &Scene) -> Duration {
    let path = scene.root.join("etc/pam.d").join(&scene.service);
    let text = fs::read_to_string(path).unwrap_or_default();
    2 * longest(&text) + MARGIN
}

/// The longest `timeout=` of the module's lines.
fn longest(stack: &str) -> Duration {
    let lines = stack.lines().filter(|line| line.contains("pam_job_adopt.so"));
    let words = lines.flat_map(str::split_ascii_whitespace);
    let seconds = words.filter_map(|word| word.strip_prefix("timeout=")?.parse().ok());
    seconds.map(Duration::from_secs).max().unwrap_or(PHASE).min(12 * PHASE)
}

/// The cgroup that a job has for logins, where it had none before.
#[derive(Debug)]
struct Leaf {
    /// Of the job's cgroup, and the leaf's name.
    missing: Option<(CgroupPath, &'static str)>,
}

impl Leaf {
    /// The name of one that no record names.
    const NAME: &'static str = "job-adopt";

    fn of(expected: &Expected) -> Self {
        let job = expected.job.as_ref().and_then(|(_, foreseen)| foreseen.cgroup.parse().ok());
        let missing = job.filter(|path: &CgroupPath| {
            let place = Mount::open().and_then(|mount| mount.place(path));
            place.is_ok_and(|place| place.dir().is_ok_and(|dir| dir.child(Self::NAME).is_err()))
        });
        Self { missing: missing.map(|path| (path, Self::NAME)) }
    }

    /// Removes it where it was made for this run and nobody else is in it.
    fn restore(self) {
        let Some((path, name)) = self.missing else { return };
        let Ok(place) = Mount::open().and_then(|mount| mount.place(&path)) else { return };
        let Ok(job) = place.dir() else { return };
        if job.child(name).is_ok_and(|leaf| Mark::Made.is_set(&leaf).unwrap_or(false)) {
            let _ = job.remove_child(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_deadline_of_the_module_counts() {
        let stack = "account required pam_job_adopt.so timeout=2\n\
                     session required pam_x.so timeout=40\n\
                     session required pam_job_adopt.so debug timeout=7\n";
        assert_eq!(longest(stack), Duration::from_secs(7));
        assert_eq!(longest("session required pam_job_adopt.so\n"), PHASE);
        assert_eq!(longest("session required pam_job_adopt.so timeout=99999\n"), 12 * PHASE);
    }
}
