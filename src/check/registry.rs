//! Checks the registry, and the records in it that refuse their owners' logins.

use super::finding::{Check, Finding};
use super::own_command::{OwnCommand, Subcommand};
use super::remedy::{Remedy, run, shell_path};
use super::site::Site;
use super::trusted_file::trust_remedy;
use command::accounts::{RightsError, UserNames};
use facts::device_numbers::NumberState;
use facts::jobs::{Records, query_scheduler, query_schedulers};
use facts::root_processes::runs_slurm;
use facts::trusted_file::is_exposed;
use helper::Config;
use helper::jobs::Job;
use helper::jobs::records::{LoginTarget, Record};
use helper::jobs::sources::{AskedDaemons, Doubt, JobsOfUsers, Sought};
use kernel::OperationError;
use kernel::cgroup::{Mount, Stamp, ignore_gone};
use kernel::trust::{Distrust, TrustError};
use naming::NameResolver;
use nix::errno::Errno;
use protocol::{JobId, Request, SourceName};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Pause before records whose cgroup is gone are checked again: the epilog of such a job may just be removing
/// its record.
const EPILOG_GRACE: Duration = Duration::from_secs(1);

/// What is left to do after [`set_aside`].
const REGISTER_ADVICE: &str =
    "then register the jobs again; what a user could write there must not become root's";

/// What was found out about the registry.
#[derive(Debug)]
pub(super) struct RegistryFacts {
    dir: PathBuf,
    /// Schedulers are sources too. Their jobs are not joined while their records cannot be used, and would be without
    /// records: logins would get all that the scheduler gives.
    has_schedulers: bool,
    /// The configuration, if that is another than the default.
    conf: Option<PathBuf>,
    state: RegistryState,
}

#[derive(Debug)]
enum RegistryState {
    /// It is no source, or it does not exist: `register` makes it.
    Unused,
    Distrusted(TrustError),
    /// A directory above is not trusted, which [`Check::RunDirectory`] reports.
    BelowDistrusted,
    Unlisted(OperationError),
    Listed {
        faults: Vec<RecordFault>,
        stale: Vec<StaleRecord>,
        unstamped: Vec<UnstampedJob>,
        numbers: Vec<NumberFault>,
    },
    /// Its records could not be read with a login's rights.
    Unread(RightsError),
}

/// What makes logins of a user fail.
#[derive(Debug)]
struct RecordFault {
    kind: FaultKind,
    path: PathBuf,
    user: String,
    cause: String,
}

#[derive(Debug)]
enum FaultKind {
    /// The record of this job. `unregister` ends what runs in its cgroup, unless that is gone.
    Record { job: JobId, is_gone: bool },
    /// The directory of the user's records, which others than root could write.
    Exposed,
    /// The directory of the user's records, which a login cannot read.
    Closed(Remedy),
    /// The directory of the user's records, for another cause.
    Directory,
}

/// The record of a job whose cgroup lacks the stamp of `register`, so that no login may join it.
#[derive(Debug)]
struct UnstampedJob {
    path: PathBuf,
    user: String,
    job: JobId,
    cause: String,
}

/// A record whose device numbers refuse logins, or are not those of its names any more.
#[derive(Debug)]
struct NumberFault {
    path: PathBuf,
    user: String,
    job: JobId,
    state: NumberState,
}

/// The record of a job whose cgroup is gone.
#[derive(Debug)]
struct StaleRecord {
    path: PathBuf,
    user: String,
    job: JobId,
    /// Each scheduler was asked, and has no such job.
    has_ended: bool,
}

impl RegistryFacts {
    /// Reads the registry if it is one of the sources.
    pub(super) fn read(site: &Site) -> Self {
        let Config {
            registry, sources, ..
        } = &site.config;
        let state = if sources.contains(&SourceName::Registry) {
            RegistryState::read(site)
        } else {
            RegistryState::Unused
        };
        // Another configuration may have another registry.
        let is_default = site.conf == Path::new(Request::DEFAULT_CONF);
        let conf = (!is_default).then(|| site.conf.clone());
        Self {
            dir: registry.dir().to_owned(),
            has_schedulers: sources.iter().any(|name| *name != SourceName::Registry),
            conf,
            state,
        }
    }

    /// Judges the registry and its records. There are no findings if the registry is not in use.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let object = self.dir.display();
        match &self.state {
            RegistryState::Unused | RegistryState::BelowDistrusted => Vec::new(),
            RegistryState::Distrusted(error) => {
                let text = format!("cannot be used, so every login is refused (JA09): {error}");
                let remedy = self.replace_remedy(error);
                vec![Finding::error(Check::Registry, object, text, remedy)]
            }
            RegistryState::Unlisted(error) => {
                vec![Finding::unknown(
                    Check::Registry,
                    object,
                    error,
                    "run this as root",
                )]
            }
            RegistryState::Unread(error) => {
                let text = format!("could not be read as a login reads it: {error}");
                let remedy = "run this as root of the node";
                vec![Finding::unknown(Check::Registry, object, text, remedy)]
            }
            RegistryState::Listed {
                faults,
                stale,
                unstamped,
                numbers,
            } => {
                let text = "only root can write it";
                let mut findings = vec![Finding::fine(Check::Registry, object, text)];
                findings.extend(faults.iter().map(|fault| self.judge_fault(fault)));
                findings.extend(stale.iter().map(|record| self.judge_stale(record)));
                findings.extend(unstamped.iter().map(UnstampedJob::finding));
                findings.extend(numbers.iter().filter_map(|fault| self.judge_numbers(fault)));
                findings
            }
        }
    }
}

impl RegistryFacts {
    /// Checks whether no login can use the registry, since others can write it. So the source fails too.
    pub(super) fn is_distrusted(&self) -> bool {
        matches!(
            self.state,
            RegistryState::Distrusted(_) | RegistryState::BelowDistrusted
        )
    }

    /// Names the remedy for a registry that cannot be trusted. One that others could write is replaced by an empty one.
    fn replace_remedy(&self, error: &TrustError) -> Remedy {
        if error.path() != self.dir || !is_exposed(error) {
            return trust_remedy(error);
        }
        let aside = set_aside(&self.dir);
        let dir = shell_path(&self.dir);
        let command = format!("{aside} && install -d -m 0755 -o root -g root {dir}");
        self.aside_remedy(&command, "no job runs here (drain the node)")
    }

    /// The remedy that moves records out of use. Beside a scheduler it waits until these `jobs` have ended.
    fn aside_remedy(&self, command: &str, jobs: &str) -> Remedy {
        if self.has_schedulers {
            return format!(
                "once {jobs}: {command}; before, their logins would get all that the scheduler gives, until you have \
                 registered the jobs again"
            )
            .into();
        }
        format!("move them out of use, by {command}; {REGISTER_ADVICE}").into()
    }

    /// The command that takes a job out of the registry. It ends the logins too, which `rm` would leave.
    fn unregister(&self, job: &JobId) -> OwnCommand {
        self.own_command(Subcommand::Unregister, &[job.to_string()])
    }

    /// A command that reads the registry of the configuration.
    fn own_command(&self, subcommand: Subcommand, arguments: &[String]) -> OwnCommand {
        let conf = self.conf.iter().map(|conf| conf.display().to_string());
        let options = conf.flat_map(|conf| ["--conf".to_owned(), conf]);
        OwnCommand::job_adopt(subcommand, options.chain(arguments.iter().cloned()))
    }

    /// Reports a record or directory as an error: its user's logins are refused.
    fn judge_fault(&self, fault: &RecordFault) -> Finding {
        let RecordFault {
            kind,
            path,
            user,
            cause,
        } = fault;
        let exception = match kind {
            FaultKind::Record { .. } => ", unless another job takes them",
            FaultKind::Exposed | FaultKind::Closed(_) | FaultKind::Directory => "",
        };
        let text = format!("makes logins of {user} fail (JA09){exception}: {cause}");
        let remedy = match kind {
            FaultKind::Record { job, is_gone } if *is_gone && !self.has_schedulers => {
                run(self.unregister(job)).and("and see why its epilog did not")
            }
            FaultKind::Record { job, .. } => format!(
                "register job {job} again, which replaces the record; if it has ended: {}",
                self.unregister(job)
            )
            .into(),
            FaultKind::Exposed => {
                self.aside_remedy(&set_aside(path), &format!("no job of {user} runs here"))
            }
            FaultKind::Closed(remedy) => remedy.clone(),
            FaultKind::Directory => {
                "see what is in it: other records than those of jobs that run may go".into()
            }
        };
        Finding::error(Check::Records, path.display(), text, remedy)
    }

    /// Reports a record whose numbers refuse logins, and warns of one whose names mean other devices today. What does
    /// not resolve today concerns no job that runs.
    fn judge_numbers(&self, fault: &NumberFault) -> Option<Finding> {
        let NumberFault {
            path,
            user,
            job,
            state,
        } = fault;
        let command = self.own_command(
            Subcommand::Register,
            &["--again".to_owned(), job.to_string()],
        );
        match state {
            NumberState::Current | NumberState::Unresolved(_) => None,
            NumberState::Unspecified => {
                let text = format!(
                    "makes logins of {user} fail (JA09), unless another job takes them: it says nothing about the devices \
                     of job {job}"
                );
                let remedy = format!(
                    "register job {job} again, with its devices or --policy auto; if it has ended: {}",
                    self.unregister(job)
                );
                Some(Finding::error(Check::Records, path.display(), text, remedy))
            }
            NumberState::Refused(cause) => {
                let text = format!("makes logins of {user} to job {job} fail (JA09): {cause}");
                Some(Finding::error(
                    Check::Records,
                    path.display(),
                    text,
                    run(command),
                ))
            }
            NumberState::Outdated(difference) => {
                let text = format!(
                    "job {job} of {user} keeps the devices of its start: {}",
                    difference.describe()
                );
                Some(Finding::warning(
                    Check::Records,
                    path.display(),
                    text,
                    run(command),
                ))
            }
        }
    }

    /// Warns of a record that is left of a job.
    fn judge_stale(&self, record: &StaleRecord) -> Finding {
        let StaleRecord {
            path,
            user,
            job,
            has_ended,
        } = record;
        let text =
            format!("is of a job whose cgroup is gone, so it admits no login of {user} (JA01)");
        let command = self.unregister(job);
        let remedy = if *has_ended {
            run(command).and("and see why its epilog did not")
        } else {
            format!("if the scheduler, which gave no full answer, has no job {job}: {command}")
                .into()
        };
        Finding::warning(Check::Records, path.display(), text, remedy)
    }
}

impl UnstampedJob {
    /// Reports the job as an error: the module itself refuses whom the helper admits.
    fn finding(&self) -> Finding {
        let Self {
            path,
            user,
            job,
            cause,
        } = self;
        let text = format!("makes logins of {user} to job {job} fail (JA07): {cause}");
        let remedy = format!("register job {job} again, which stamps its cgroup");
        Finding::error(Check::Records, path.display(), text, remedy)
    }
}

impl RegistryState {
    /// Reads the records of all users, with a login's rights. A record or directory that cannot be used becomes a fault of
    /// its user; the others are read all the same. A missing registry is unused: `register` makes it.
    fn read(site: &Site) -> Self {
        let registry = &site.config.registry;
        let trusted = || site.trust.dir(registry.dir()).map(drop);
        let trusted = match site.with_helper_rights_if_any(trusted) {
            Ok(trusted) => trusted,
            Err(error) => return Self::Unread(error),
        };
        if let Err(error) = trusted {
            return if error.is_missing() {
                Self::Unused
            } else if site.at("/run/job-adopt").starts_with(error.path()) {
                Self::BelowDistrusted
            } else {
                Self::Distrusted(error)
            };
        }
        let users = match registry.list_users() {
            Ok(users) => users,
            Err(error) => return Self::Unlisted(error),
        };
        let read = || Records::read_of(&users, registry, &site.trust);
        let Records {
            usable: records,
            broken,
            unreadable,
        } = match site.with_helper_rights_if_any(read) {
            Ok(records) => records,
            Err(error) => return Self::Unread(error),
        };
        let mut names = UserNames::default();
        let mut faults = Vec::new();
        for (uid, file) in broken {
            // Files that stand for no job, such as notes, refuse no login.
            let Some(job) = file.job else { continue };
            faults.push(RecordFault {
                kind: FaultKind::Record {
                    is_gone: is_job_gone(site, &job),
                    job,
                },
                path: file.path,
                user: names.name(uid),
                cause: file.cause,
            });
        }
        for (uid, error) in unreadable {
            faults.push(RecordFault {
                kind: FaultKind::of_directory(&error),
                path: registry.user_dir(uid),
                user: names.name(uid),
                cause: error.to_string(),
            });
        }
        let numbers = match find_number_faults(site, &records, &mut names) {
            Ok(numbers) => numbers,
            Err(error) => return Self::Unread(error),
        };
        Self::Listed {
            faults,
            numbers,
            unstamped: find_unstamped(site, &records, &mut names),
            stale: find_stale(site, records, &mut names),
        }
    }
}

impl FaultKind {
    fn of_directory(error: &TrustError) -> Self {
        match error.cause() {
            _ if is_exposed(error) => Self::Exposed,
            Distrust::Open(Errno::EACCES) => Self::Closed(trust_remedy(error)),
            _ => Self::Directory,
        }
    }
}

/// Finds the jobs whose cgroup does not have the stamp that `register` sets, and lacks it still after [`EPILOG_GRACE`]:
/// `unregister` takes the stamp away first, and then the record. Only root can read stamps.
fn find_unstamped(site: &Site, records: &[Record], names: &mut UserNames) -> Vec<UnstampedJob> {
    if !site.is_root() {
        return Vec::new();
    }
    let find = |record: &&Record| find_stamp_fault(site, record).is_some();
    let found: Vec<&Record> = records.iter().filter(find).collect();
    if found.is_empty() {
        return Vec::new();
    }
    sleep(EPILOG_GRACE);
    let registry = &site.config.registry;
    let mut unstamped = Vec::new();
    for record in found {
        let path = registry.record_path(record.uid, &record.id);
        let Some(cause) = find_stamp_fault(site, record).filter(|_| path.exists()) else {
            continue;
        };
        unstamped.push(UnstampedJob {
            path,
            user: names.name(record.uid),
            job: record.id.clone(),
            cause,
        });
    }
    unstamped
}

/// Finds the records of running jobs whose numbers refuse logins or are not those of their names any more. It looks with a
/// login's rights, as `register` does.
fn find_number_faults(
    site: &Site,
    records: &[Record],
    names: &mut UserNames,
) -> Result<Vec<NumberFault>, RightsError> {
    let read = || {
        let mut resolver = NameResolver::new(site.tree(), site.config.devices.clone());
        let mut states = Vec::new();
        for record in records
            .iter()
            .filter(|record| !is_cgroup_gone(site, record))
        {
            let state = NumberState::read(record, &site.config, &mut resolver);
            states.push((record, state));
        }
        states
    };
    let found = site.with_helper_rights_if_any(read)?;
    // The schedulers are asked once, and only about a fault that concerns a job of theirs.
    let mut scheduled: Option<JobsOfUsers> = None;
    let mut faults = Vec::new();
    for (record, state) in found {
        if state == NumberState::Current {
            continue;
        }
        if site.is_here() && is_read_beside_job_alone(record, &state) {
            let jobs = scheduled.get_or_insert_with(|| query_jobs(&site.config));
            if !may_run(record, jobs) {
                continue;
            }
        }
        faults.push(NumberFault {
            path: site.config.registry.record_path(record.uid, &record.id),
            user: names.name(record.uid),
            job: record.id.clone(),
            state,
        });
    }
    Ok(faults)
}

/// Tells whether logins read the record only if its scheduler has the job. One that says nothing about devices refuses its
/// user's logins whether or not the job runs.
fn is_read_beside_job_alone(record: &Record, state: &NumberState) -> bool {
    matches!(record.target, LoginTarget::Via(_)) && *state != NumberState::Unspecified
}

/// Tells whether the job of a record runs, or may because a scheduler gave no full answer.
fn may_run(record: &Record, scheduled: &JobsOfUsers) -> bool {
    let is_job = |(uid, job): &(u32, Job)| *uid == record.uid && job.has_name(&record.id);
    let mut doubts = scheduled.doubts.iter();
    scheduled.jobs.iter().any(is_job) || doubts.any(|doubt| doubt.owners.include(record.uid))
}

/// Tells why the module would not take the cgroup that a record names for its job's; `None` if it would, if the cgroup is
/// gone, and for a record that names none.
fn find_stamp_fault(site: &Site, record: &Record) -> Option<String> {
    let LoginTarget::Cgroup(path) = &record.target else {
        return None;
    };
    let open = Mount::open_below(&site.root).and_then(|mount| mount.open_chain(path));
    let chain = ignore_gone(open).ok()??;
    let stamp = Stamp {
        uid: record.uid,
        job: record.id.clone(),
    };
    let required = chain.dir().and_then(|dir| stamp.require(dir));
    ignore_gone(required).err().map(|error| error.to_string())
}

/// Finds the records of jobs whose cgroup is gone, and that are still there after [`EPILOG_GRACE`]. That of a job which a
/// scheduler has is none of them: it still restricts the devices of its logins.
fn find_stale(site: &Site, mut records: Vec<Record>, names: &mut UserNames) -> Vec<StaleRecord> {
    records.retain(|record| is_cgroup_gone(site, record));
    if records.is_empty() {
        return Vec::new();
    }
    sleep(EPILOG_GRACE);
    let registry = &site.config.registry;
    records.retain(|record| {
        registry.record_path(record.uid, &record.id).exists() && is_cgroup_gone(site, record)
    });
    let JobsOfUsers { jobs, doubts, .. } = query_jobs(&site.config);
    records.retain(|record| !jobs.iter().any(|(_, job)| job.has_name(&record.id)));
    records
        .iter()
        .map(|record| StaleRecord {
            path: registry.record_path(record.uid, &record.id),
            user: names.name(record.uid),
            job: record.id.clone(),
            has_ended: doubts.is_empty(),
        })
        .collect()
}

/// Queries the jobs of the schedulers. It is a doubt too if logins do not find Slurm while its daemons run, for example
/// while slurm.conf is not mounted: for [`query_schedulers`] Slurm is then not on this node.
fn query_jobs(config: &Config) -> JobsOfUsers {
    let mut known = query_schedulers(config, Sought::All, &mut AskedDaemons::default());
    if config.sources.contains(&SourceName::Slurm) && runs_slurm() {
        let error = query_scheduler(SourceName::Slurm, config).err();
        known
            .doubts
            .extend(error.map(|error| Doubt::about_anybody(error.to_string())));
    }
    known
}

/// The command that moves a directory with records out of use, for a person to look at. Its files stay whose they are:
/// giving them to root would admit logins by records, and open devices, that a user may have written. It is renamed
/// within its file system: a copy would follow what its owner does meanwhile.
fn set_aside(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let folder = dir.with_file_name(".aside");
    let target = shell_path(&folder.join(&*name));
    let folder = shell_path(&folder);
    format!(
        "install -d -m 0700 -o root -g root {folder} && mv -T {} {target}.$(date +%s)",
        shell_path(dir)
    )
}

/// Checks whether `unregister` would find no cgroup of this job: that of each record of the id, as far as a broken one
/// still names it, is gone. A record that a newer version wrote is broken too, and its job runs.
fn is_job_gone(site: &Site, id: &JobId) -> bool {
    let jobs = site.config.registry.find_jobs(&site.trust, id);
    jobs.is_ok_and(|jobs| {
        jobs.iter().all(|job| {
            let record = job.record.as_ref().ok().or(job.salvage.as_ref());
            record.is_some_and(|record| is_cgroup_gone(site, record))
        })
    })
}

/// Checks whether the cgroup that a record names is gone. A record that leaves the cgroup to a scheduler names
/// none.
fn is_cgroup_gone(site: &Site, record: &Record) -> bool {
    let LoginTarget::Cgroup(path) = &record.target else {
        return false;
    };
    let open = Mount::open_below(&site.root).and_then(|mount| mount.open_chain(path));
    ignore_gone(open).is_ok_and(|chain| chain.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn facts(state: RegistryState, has_schedulers: bool) -> RegistryFacts {
        RegistryFacts {
            dir: "/r".into(),
            has_schedulers,
            conf: None,
            state,
        }
    }

    /// Judges a registry with one fault, and returns the remedy of that.
    fn fault_remedy(kind: FaultKind, path: &str, has_schedulers: bool) -> Remedy {
        let faults = vec![RecordFault {
            kind,
            path: path.into(),
            user: "bob".to_owned(),
            cause: "owned by uid 1002".to_owned(),
        }];
        let state = RegistryState::Listed {
            faults,
            stale: Vec::new(),
            unstamped: Vec::new(),
            numbers: Vec::new(),
        };
        facts(state, has_schedulers).findings().remove(1).remedy
    }

    #[test]
    fn registry_without_records_is_fine_and_unused_one_is_not_mentioned() {
        assert_eq!(facts(RegistryState::Unused, true).findings(), []);
        let listed = RegistryState::Listed {
            faults: Vec::new(),
            stale: Vec::new(),
            unstamped: Vec::new(),
            numbers: Vec::new(),
        };
        let findings = facts(listed, true).findings();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Fine);
    }

    /// Other records are none of its causes, and it has no secret.
    #[test]
    fn directory_that_no_login_can_read_is_opened() {
        let path = "/no-such/1002";
        let advice = |cause| {
            let error = TrustError::new(Path::new(path), cause);
            let remedy = fault_remedy(FaultKind::of_directory(&error), path, true);
            remedy.advice().to_owned()
        };
        let closed = advice(Distrust::Open(Errno::EACCES));
        assert!(closed.ends_with("chmod a+rX /no-such/1002"), "{closed}");
        let full = advice(Distrust::TooManyNames(9));
        assert!(full.starts_with("see what is in it"), "{full}");
    }

    /// A user who owned the directory may have added devices to a record of root's.
    #[test]
    fn directory_that_user_could_write_is_moved_aside() {
        let remedy = fault_remedy(FaultKind::Exposed, "/r/1002", false);
        let of_user = "move them out of use, by install -d -m 0700 -o root -g root /r/.aside && mv -T /r/1002 \
                     /r/.aside/1002.$(date +%s); then register the jobs again";
        assert!(remedy.advice().starts_with(of_user), "{remedy}");
        for cause in [Distrust::WrongOwner(7), Distrust::Writable(0o777)] {
            let error = TrustError::new(Path::new("/r"), cause);
            let found = facts(RegistryState::Distrusted(error), false).findings();
            let aside = "install -d -m 0700 -o root -g root /.aside && mv -T /r /.aside/r.$(date +%s) && install -d -m \
                         0755 -o root -g root /r; then";
            assert!(found[0].remedy.advice().contains(aside), "{found:?}");
        }
    }

    /// `unregister` ends what runs in a job's cgroup. Beside a scheduler, that alone places the job's logins then, without
    /// the record's list of devices.
    #[test]
    fn no_command_takes_the_record_of_a_job_that_may_run() {
        let fault = |is_gone| FaultKind::Record {
            job: "7".parse().unwrap(),
            is_gone,
        };
        for (is_gone, has_schedulers) in [(false, false), (false, true), (true, true)] {
            let remedy = fault_remedy(fault(is_gone), "/r/1002/7.json", has_schedulers);
            assert_eq!(remedy.command(), "");
            assert_eq!(
                remedy.advice(),
                "register job 7 again, which replaces the record; if it has ended: job-adopt unregister 7"
            );
        }
        let gone = fault_remedy(fault(true), "/r/1002/7.json", false);
        assert_eq!(gone.command(), "job-adopt unregister 7");
        let exposed = fault_remedy(FaultKind::Exposed, "/r/1002", true);
        assert_eq!(exposed.command(), "");
        assert!(
            exposed
                .advice()
                .starts_with("once no job of bob runs here: ")
        );
        let error = TrustError::new(Path::new("/r"), Distrust::Writable(0o777));
        let distrusted = facts(RegistryState::Distrusted(error), true).findings();
        assert_eq!(distrusted[0].remedy.command(), "");
    }

    #[test]
    fn stale_record_is_a_warning_and_goes_by_command_if_no_scheduler_has_the_job() {
        for (has_ended, command) in [(true, "job-adopt unregister 7"), (false, "")] {
            let stale = vec![StaleRecord {
                path: "/r/5/7.json".into(),
                user: "alice".to_owned(),
                job: "7".parse().unwrap(),
                has_ended,
            }];
            let state = RegistryState::Listed {
                faults: Vec::new(),
                stale,
                unstamped: Vec::new(),
                numbers: Vec::new(),
            };
            let finding = facts(state, true).findings().remove(1);
            assert_eq!(finding.severity, Severity::Warning);
            let text = &finding.text;
            assert!(text.ends_with("no login of alice (JA01)"), "{text}");
            assert_eq!(finding.remedy.command(), command);
            assert_ne!(finding.remedy.advice(), "");
        }
    }
}
