//! The processes of the node with their cgroups, and what these show: a scheduler's job, a service, an
//! origin.

use crate::process::{has_ended, is_sshd_process, read_login_uid, read_start_ticks};
use command::error::Error;
use helper::jobs::sources::processes::{self, Stat};
use kernel::cgroup::Membership;
use kernel::proc::{Proc, Process, read_audit_number};
use schedulers::flux::{is_imp, unit_at};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Maximum ancestors of a process that are searched for an sshd.
const ANCESTORS_MAX: usize = 64;
/// Maximum lists of processes that are read for one table: on a busy node each has new ones.
const LISTS_MAX: usize = 16;

/// The processes of the node at one moment.
///
/// Reading them takes time in proportion to their number, which limits of the system bound, and not to the
/// number of cgroups, which users decide.
pub(super) struct ProcessTable {
    pub(super) all: BTreeMap<i32, ProcessInfo>,
    /// The directories of schedulers' jobs with a daemon of the scheduler in them.
    live_jobs: BTreeSet<String>,
    /// The services of the system with a process of root.
    root_services: BTreeSet<String>,
}

impl ProcessTable {
    /// Reads all processes. `flux` is the uid of Flux's account, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if `/proc` cannot be listed.
    pub(super) fn read(flux: Option<u32>) -> Result<Self, Error> {
        let mut table = Self {
            all: BTreeMap::new(),
            live_jobs: BTreeSet::new(),
            root_services: BTreeSet::new(),
        };
        // A process may start another and end before it is read, so /proc is listed until it has no new process.
        let mut listed = BTreeSet::new();
        for _ in 0..LISTS_MAX {
            let pids = processes::list_numbers::<i32>(Path::new("/proc"))
                .map_err(|error| Error::failed("list", "/proc", error))?;
            let new: Vec<i32> = pids.flatten().filter(|pid| listed.insert(*pid)).collect();
            if new.is_empty() {
                break;
            }
            for info in new
                .into_iter()
                .filter_map(|pid| ProcessInfo::read(pid, flux))
            {
                table.add(info, flux);
            }
        }
        Ok(table)
    }

    /// Adds a process. If it is the daemon of a scheduler's job, that job still runs; if it is root's, its
    /// service counts as root's.
    fn add(&mut self, info: ProcessInfo, flux: Option<u32>) {
        if info.is_job_daemon(flux) {
            self.live_jobs.extend(info.job.clone());
        }
        if info.is_root() {
            self.root_services.extend(info.service().map(str::to_owned));
        }
        self.all.insert(info.process.pid, info);
    }

    /// Whether a process is in the directory of a scheduler's job that still runs.
    pub(super) fn is_in_live_job(&self, info: &ProcessInfo) -> bool {
        info.job
            .as_ref()
            .is_some_and(|job| self.live_jobs.contains(job))
    }

    /// Whether a process belongs to a service of the system that has no process of root: it runs
    /// as an account by the admin's will.
    pub(super) fn is_in_service(&self, info: &ProcessInfo) -> bool {
        info.service()
            .is_some_and(|service| !self.root_services.contains(service))
    }

    /// Whether a process comes from a login of `user`.
    pub(super) fn is_of_login(&self, info: &ProcessInfo, user: u32) -> bool {
        read_login_uid(info.process.pid) == Some(user) || self.has_sshd_ancestor(info)
    }

    /// Whether root's sshd has started a process, or is that process.
    fn has_sshd_ancestor(&self, info: &ProcessInfo) -> bool {
        std::iter::successors(Some(info), |info| self.all.get(&info.stat.parent))
            .take(ANCESTORS_MAX)
            .any(|info| info.is_root() && is_sshd_process(info.process.pid))
    }

    /// Describes where a stray comes from, or `unknown`. The first of these that holds counts: the directory of a
    /// job, which has ended since its user has none, a container, a user's service manager or session, cron or at, an
    /// sshd above it, and another unit of systemd. A login may have left a process that is in no unit.
    pub(super) fn describe_origin(&self, info: &ProcessInfo) -> String {
        let path = info.path();
        if let Some(job) = &info.job {
            return format!("ended job {}", last_name(job));
        }
        // A process below our pid namespace has a number in one more.
        if info.process.namespaces > Proc::host().read_current().map_or(0, |own| own.namespaces) {
            return "container".into();
        }
        // The innermost unit; empty in no unit.
        let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
        let unit = path.rsplit('/').find(is_unit).unwrap_or_default();
        if path.contains("/user@") {
            return format!("service manager {unit}");
        }
        if path.starts_with("/user.slice/") {
            return format!("session {unit}");
        }
        match unit {
            "cron.service" | "crond.service" | "fcron.service" => "cron".into(),
            "atd.service" => "at".into(),
            _ if self.has_sshd_ancestor(info) => "ssh".into(),
            "" if read_audit_number(info.process.pid, "loginuid").is_some() => {
                "left by a login".into()
            }
            "" => "unknown".into(),
            unit => format!("unit {unit}"),
        }
    }
}

/// A process with its cgroups.
#[derive(Debug)]
pub(super) struct ProcessInfo {
    pub(super) process: Process,
    pub(super) stat: Stat,
    /// Empty if the path is too long for the kernel to show.
    membership: Membership,
    /// The directory of a scheduler's job that it is in, in any hierarchy.
    job: Option<String>,
}

impl ProcessInfo {
    /// Reads a process; `None` if it is gone, or a zombie that its parent has not reaped.
    fn read(pid: i32, flux: Option<u32>) -> Option<Self> {
        let proc = Proc::host();
        let stat = processes::read_stat(&proc, pid).ok()?;
        let process = proc.read_process(pid).ok()?;
        // A path that cannot be read may be too long for the kernel to show.
        let membership = Membership::read(pid)
            .ok()
            .or_else(|| Membership::parse(""))?;
        // Another start time means that the number has passed to another process meanwhile.
        if read_start_ticks(pid) != Some(stat.start) || has_ended(&process) {
            return None;
        }
        let job = find_job_dir(&membership, flux);
        Some(Self {
            process,
            stat,
            membership,
            job,
        })
    }

    /// The path of its cgroup; the root's if the kernel does not show it.
    pub(super) fn path(&self) -> &str {
        self.membership.unified().unwrap_or("/")
    }

    /// The real uid.
    pub(super) fn uid(&self) -> u32 {
        let [uid, ..] = self.process.uids;
        uid
    }

    fn is_root(&self) -> bool {
        self.uid() == 0
    }

    /// Whether it is a process that a scheduler runs in a job's directory while the job exists:
    /// a step daemon, or an IMP.
    fn is_job_daemon(&self, flux: Option<u32>) -> bool {
        if flux.is_some_and(|flux| is_imp(&self.process, flux)) {
            return true;
        }
        self.is_root()
            && self.job.is_some()
            && fs::read_link(Proc::host().dir(self.process.pid).join("exe"))
                .is_ok_and(|exe| exe.to_string_lossy().contains("/slurmstepd"))
    }

    fn service(&self) -> Option<&str> {
        system_service(self.path())
    }

    /// Whether it is the service manager of `user`, or the process that holds its PAM session (`(sd-pam)`): systemd
    /// starts both at the first login and ends them after the last one.
    pub(super) fn is_user_manager(&self, user: u32) -> bool {
        let is_at_place =
            self.path() == format!("/user.slice/user-{user}.slice/user@{user}.service/init.scope");
        let link = |pid: i32| fs::read_link(Proc::host().dir(pid).join("exe")).ok();
        is_at_place
            && link(self.process.pid)
                .zip(link(1))
                .is_some_and(|(program, init)| is_program_of_systemd(&program, &init))
    }
}

/// Whether a program is systemd's own, by where process 1 has its program. Users can move any process to the cgroup of
/// their service manager. From systemd 255 on, `(sd-pam)` runs `systemd-executor`.
fn is_program_of_systemd(program: &Path, init: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    // An upgrade has replaced the file.
    let name = name.trim_end_matches(" (deleted)");
    program.parent() == init.parent() && ["systemd", "systemd-executor"].contains(&name)
}

/// A path and its parents, the longest last.
fn levels(path: &str) -> impl Iterator<Item = &str> {
    let ends = path
        .match_indices('/')
        .map(|(end, _)| end)
        .chain([path.len()])
        .skip(1);
    ends.filter_map(|end| path.get(..end))
}

fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Finds the directory of the job that a process is in, in any hierarchy; `None` if it is in none.
fn find_job_dir(membership: &Membership, flux: Option<u32>) -> Option<String> {
    let v1_paths = membership.v1_hierarchies().map(|(_, path)| path);
    let mut paths = membership.unified().into_iter().chain(v1_paths);
    paths
        .find_map(|path| job_dir(path, flux))
        .map(str::to_owned)
}

/// Finds the directory of the job that a path is in, by the names that Slurm and Flux give to cgroups; `None`
/// for another path. In a user's slice it accepts only units of the account that Flux runs as: users can
/// create cgroups with any name there.
fn job_dir(path: &str, flux: Option<u32>) -> Option<&str> {
    let mut levels = levels(path);
    if path.starts_with("/user.slice/") {
        return levels.find(|level| flux.is_some_and(|flux| unit_at(level, flux).is_some()));
    }
    // Slurm's jobs are below a cgroup with its name, so the second search goes on below the first.
    levels.find(|level| last_name(level).contains("slurm"))?;
    levels.find(|level| is_slurm_job(last_name(level)))
}

/// Whether a name is that of a Slurm job's directory: `job_7`, or its SLUID (26.05), which is
/// `s` and 13 digits of base 32.
fn is_slurm_job(name: &str) -> bool {
    let digit =
        |byte: u8| byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte));
    let sluid = name
        .strip_prefix('s')
        .is_some_and(|id| id.len() == 13 && id.bytes().all(digit));
    sluid
        || name
            .strip_prefix("job_")
            .is_some_and(|id| id.parse::<u32>().is_ok())
}

/// The service of the system that a path is in.
fn system_service(path: &str) -> Option<&str> {
    levels(path).find(|level| level.starts_with("/system.slice/") && level.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_job_is_recognized_by_name() {
        let scope = "/system.slice/node_slurmstepd.scope";
        for (path, dir) in [
            (
                format!("{scope}/job_7/step_0/user/task_0"),
                format!("{scope}/job_7"),
            ),
            (
                format!("{scope}/sEKNKTV3WPV500/step_batch"),
                format!("{scope}/sEKNKTV3WPV500"),
            ),
            (
                "/slurm_node/uid_1001/job_7/step_extern".into(),
                "/slurm_node/uid_1001/job_7".into(),
            ),
            (
                "/user.slice/user-5.slice/user@5.service/app.slice/imp-shell-0-f2.service/x".into(),
                "/user.slice/user-5.slice/user@5.service/app.slice/imp-shell-0-f2.service".into(),
            ),
        ] {
            assert_eq!(job_dir(&path, Some(5)), Some(&*dir), "{path}");
        }
        for path in [
            "/",
            "/user.slice/user-5.slice/session-1.scope",
            "/job_7",
            "/slurm/job_x",
            "/slurmd",
            "/a_slurmstepd.scope/system",
            "/a_slurmstepd.scope/sEKNKTV3WPV50",
            "/sEKNKTV3WPV500",
            "/a_slurmstepd.scope/sEKNKTV3WPVL00",
        ] {
            assert_eq!(job_dir(path, Some(5)), None, "{path}");
        }
    }

    /// Users name their own units, and the cgroups inside of them.
    #[test]
    fn slice_of_user_has_no_jobs() {
        for path in [
            "/user.slice/user-6.slice/user@6.service/imp-shell-0-f2.service",
            "/user.slice/user-6.slice/user@6.service/app.slice/x.service/slurm/job_7",
        ] {
            assert_eq!(
                (job_dir(path, Some(5)), job_dir(path, None)),
                (None, None),
                "{path}"
            );
        }
    }

    #[test]
    fn program_of_systemd_is_recognized_by_its_folder() {
        let init = Path::new("/usr/lib/systemd/systemd");
        for (program, expected) in [
            ("/usr/lib/systemd/systemd", true),
            ("/usr/lib/systemd/systemd (deleted)", true),
            ("/usr/lib/systemd/systemd-executor", true),
            ("/usr/lib/systemd/systemd-run", false),
            ("/home/alice/systemd", false),
        ] {
            assert_eq!(
                is_program_of_systemd(Path::new(program), init),
                expected,
                "{program}"
            );
        }
    }

    #[test]
    fn service_of_system_is_recognized_by_unit() {
        let service = system_service("/system.slice/a.service/x");
        assert_eq!(service, Some("/system.slice/a.service"));
        assert!(system_service("/system.slice/system-a.slice/a@1.service").is_some());
        for path in [
            "/system.slice/a.services",
            "/system.slice/a.scope",
            "/a.service",
            "/",
        ] {
            assert_eq!(system_service(path), None, "{path}");
        }
    }
}
