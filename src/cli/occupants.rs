//! Who may be in a cgroup that is about to become a job's.
//!
//! A path with a mistake in it may name a cgroup that the node itself lives in: to confine it, and
//! later to end it, would take the node down.

use super::Error;
use super::ending::{Process, read_process, real_uid, runs_sshd};

use crate::cgroup::Dir;
use crate::keeper::subtree;

/// Refuses a cgroup with anything in it, or below it, that cannot belong to a job of `owner`
/// before its first login.
///
/// # Errors
/// [`Error::Failed`] naming the process and why it cannot; also where not all could be seen.
pub(super) fn check(dir: &Dir, owner: u32) -> Result<(), Error> {
    let ours = lineage();
    for pid in subtree::processes(dir).complete()? {
        if let Some(why) = objection(pid, owner, &ours) {
            let cause = format!("process {pid} in it {why}");
            return Err(Error::failed("stamp", dir.path(), cause));
        }
    }
    Ok(())
}

/// A process that is gone by now is no objection.
fn objection(pid: i32, owner: u32, ours: &[i32]) -> Option<String> {
    if pid == 1 {
        return Some("is the first one of the system".into());
    }
    if ours.contains(&pid) {
        return Some("is this one, or started it".into());
    }
    if runs_sshd(pid) {
        return Some("is an sshd of root, and no login can be there yet".into());
    }
    match real_uid(pid)?.as_raw() {
        0 => None,
        uid if uid == owner => None,
        uid => Some(format!("belongs to uid {uid}, who does not own the job")),
    }
}

/// This process and those that started it, as far as they are still there.
fn lineage() -> Vec<i32> {
    let mut found = Vec::new();
    let mut next = Some(nix::unistd::getpid().as_raw());
    while let Some(pid) = next.filter(|pid| *pid > 0 && !found.contains(pid)) {
        found.push(pid);
        next = read_process(pid).map(|Process { parent, .. }| parent);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getpid, getppid, getuid};

    #[test]
    fn the_system_and_ourselves_are_no_job() {
        let ours = lineage();
        assert!(ours.starts_with(&[getpid().as_raw(), getppid().as_raw()]));
        assert!(objection(1, 5, &ours).unwrap().contains("first"));
        assert!(objection(getpid().as_raw(), 5, &ours).unwrap().contains("this one"));
    }

    #[test]
    fn somebody_else_is_no_job_and_the_gone_are_nobody() {
        let (own, uid) = (getpid().as_raw(), getuid().as_raw());
        assert_eq!(objection(own, uid, &[]), None);
        assert_eq!(objection(i32::MAX, 5, &[]), None);
        assert_eq!(objection(own, uid + 1, &[]).is_some(), uid != 0);
    }
}
