//! `register --again`: resolves the devices of a registered job anew.
//!
//! A login reads the numbers that `register` has written. They are resolved again after a change of what they came from,
//! such as a CDI file or `always_allowed`, and after an upgrade, from whose older build a record has none.

use super::checked_target::check_and_lock;
use super::job_devices::{JobDevices, needs_node_name, require_node_name};
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINE};
use command::options::OPERATION_TIMEOUT;
use command::output::Output;
use facts::device_numbers::settings_of;
use facts::jobs::query_scheduler_for;
use helper::Config;
use helper::jobs::records::{LoginTarget, Record, RecordDevices, RegisteredJob, Registry, Via};
use helper::jobs::sources::{AskedDaemons, Sought};
use kernel::cgroup::{Mount, ignore_gone};
use kernel::trust::Trust;
use protocol::{Containment, JobId, NodeName, Placement, SourceName};
use std::fmt;
use std::time::Instant;

/// What became of one job.
enum Renewal {
    /// It asks for no list of devices.
    NoList,
    /// It has ended, and its epilog has not run, or runs just now: no login can join it.
    Ended,
    /// It has so many devices now, and its open logins have them too.
    Exchanged(usize),
    /// So many are for its next login: a scheduler has the cgroup, in which only a login attaches a filter.
    Recorded(usize),
}

/// Resolves the devices of the jobs with this id anew, or of all jobs. Jobs that are ending, and those whose record asks
/// for no list, have none to resolve. A fault of one job stops no other: the result is [`EXIT_FAILED`] then.
///
/// # Errors
///
/// [`Error`] if the registry cannot be read, if no job has the id, or if standard output cannot be written.
pub(super) fn register_again(
    id: Option<&JobId>,
    node: Option<&NodeName>,
    config: &Config,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let trust = Trust::root();
    let mut jobs = match id {
        Some(id) => config.registry.find_jobs(&trust, id)?,
        None => config.registry.list_jobs(&trust)?,
    };
    let is_known = !jobs.is_empty();
    jobs.retain(|job| !job.ending);
    jobs.sort_by(|one, other| one.id.cmp(&other.id));
    if let (Some(id), true) = (id, jobs.is_empty()) {
        let cause = if is_known {
            "it is ending"
        } else {
            "it is not registered"
        };
        return Err(Error::failed("register job", id, cause));
    }
    let mut renewer = Renewer {
        config,
        node,
        trust,
        asked: AskedDaemons::default(),
    };
    let mut code = EXIT_FINE;
    let mut written = Ok(());
    for job in jobs {
        match renewer.renew_running(&job, output) {
            Ok(Renewal::Ended) if id.is_some() => {
                output.warn(Error::failed("register job", &job.id, "it has ended"));
                code = EXIT_FAILED;
            }
            // A reader that has gone stops no job.
            Ok(renewal) => {
                written = written.and_then(|()| writeln!(output.out, "job {}: {renewal}", job.id));
            }
            Err(error) => {
                output.warn(describe_failure(&job, &error));
                code = EXIT_FAILED;
            }
        }
    }
    written?;
    Ok(code)
}

/// Describes the failure of one job among several: some of the errors name only its cgroup.
fn describe_failure(job: &RegisteredJob, error: &Error) -> String {
    let text = error.to_string();
    let prefix = format!("register job {}: ", job.id);
    if text.starts_with(&prefix) {
        return text;
    }
    format!("{prefix}{text}")
}

impl fmt::Display for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, since) = match self {
            Self::NoList => return f.write_str("asks for no list of devices"),
            Self::Ended => return f.write_str("has ended"),
            Self::Exchanged(count) => (count, ""),
            Self::Recorded(count) => (count, ", from its next login on"),
        };
        let noun = if *count == 1 { "device" } else { "devices" };
        write!(f, "{count} {noun}{since}")
    }
}

/// Resolves the devices of registered jobs anew, one after the other.
struct Renewer<'a> {
    config: &'a Config,
    /// What Slurm calls this node, by the option.
    node: Option<&'a NodeName>,
    trust: Trust,
    /// What Slurm's daemons have told so far.
    asked: AskedDaemons,
}

impl Renewer<'_> {
    /// As [`Renewer::renew`]; but what fails for a job that its scheduler does not have any more is no failure.
    fn renew_running(
        &mut self,
        job: &RegisteredJob,
        output: &mut Output<'_>,
    ) -> Result<Renewal, Error> {
        let result = self.renew(job, output);
        match (&result, &job.record) {
            (Err(_), Ok(record)) if matches!(self.find_job(record), Presence::Gone) => {
                Ok(Renewal::Ended)
            }
            _ => result,
        }
    }

    /// Resolves the devices of one job, exchanges its filter, and then writes its record. Stamp, start and namespace
    /// stay.
    ///
    /// # Errors
    ///
    /// [`Error`] for a record that cannot be used, and for the step that failed. Until the filter is exchanged all is as
    /// it was. A filter that is attached and not in force stays; the error tells if the record alone is the old one.
    fn renew(&mut self, job: &RegisteredJob, output: &mut Output<'_>) -> Result<Renewal, Error> {
        let failed = |cause: &str| Error::failed("register job", &job.id, cause);
        let known = job.record.as_ref().map_err(|cause| failed(cause))?;
        if known.devices() == RecordDevices::Uncontained {
            return Ok(Renewal::NoList);
        }
        let config = self.configure(known)?;
        let (checked, _lock) = check_and_lock(known)?;
        if has_lost_cgroup(known)? {
            return Ok(Renewal::Ended);
        }
        match find_registered(known, &config.registry, &self.trust)? {
            Some(found) if is_same_request(&found, known) => {}
            Some(_) => return Err(failed("it has changed meanwhile; run this again")),
            None => return Ok(Renewal::Ended),
        }
        let checked = match checked? {
            Some(cgroup) if cgroup.is_of_another_job(known) => return Ok(Renewal::Ended),
            Some(cgroup) => Some(cgroup.require_stamped(known)?),
            None => None,
        };
        let mut record = known.clone();
        let devices = JobDevices::resolve(&mut record, &config, output)?;
        let in_force = match checked {
            Some(cgroup) => {
                let cgroup = cgroup.stamp(&record)?;
                let deadline = Instant::now() + OPERATION_TIMEOUT;
                cgroup.confine(&devices.containment, record.leaf.as_ref(), deadline, output)?
            }
            None => devices.containment.as_str(),
        };
        let write = self.config.registry.write_record(&self.trust, &record);
        write.map_err(|error| match record.target {
            LoginTarget::Cgroup(_) => failed(&format!(
                "{error}; its filter has the new list of devices, and its record the old one: run this again"
            )),
            LoginTarget::Via(_) => failed(&error.to_string()),
        })?;
        devices.log(&record, in_force);
        Ok(match (&devices.containment, &record.target) {
            (Containment::Enforce(list), LoginTarget::Cgroup(_)) => {
                Renewal::Exchanged(list.rules().len())
            }
            (Containment::Enforce(list), LoginTarget::Via(_)) => {
                Renewal::Recorded(list.rules().len())
            }
            _ => Renewal::NoList,
        })
    }

    /// The configuration with what Slurm calls this node: by the option, as when the job was registered, or as its daemon
    /// says, since older builds did not note it.
    ///
    /// # Errors
    ///
    /// As [`require_node_name`].
    fn configure(&mut self, record: &Record) -> Result<Config, Error> {
        let mut config = self.config.clone();
        config.devices = settings_of(record, &config.devices);
        if let Some(name) = self.node {
            config.devices.node_name = Some(name.to_string());
        }
        if needs_node_name(record) && config.devices.node_name.is_none() {
            if let Presence::Running(Placement::Extern { node, .. }) = self.find_job(record) {
                config.devices.node_name = Some(node.to_string());
            }
        }
        require_node_name(record, &config)?;
        Ok(config)
    }

    /// Asks the scheduler that places the job's logins whether it runs.
    fn find_job(&mut self, record: &Record) -> Presence {
        let source = match record.target {
            LoginTarget::Cgroup(_) => return Presence::Unknown,
            LoginTarget::Via(via) => match via {
                Via::Slurm => SourceName::Slurm,
                Via::Flux => SourceName::Flux,
            },
        };
        let uids = [record.uid].into();
        let sought = Sought::Users(&uids);
        let Ok(found) = query_scheduler_for(source, self.config, sought, &mut self.asked) else {
            return Presence::Unknown;
        };
        let mut jobs = found.jobs.into_iter().map(|(_, job)| job);
        match jobs.find(|job| job.id == record.id) {
            Some(job) => Presence::Running(job.placement),
            None if found.doubts.is_empty() && found.without_logins.is_empty() => Presence::Gone,
            None => Presence::Unknown,
        }
    }
}

/// What a scheduler says of a job.
enum Presence {
    Running(Placement),
    /// It has no such job.
    Gone,
    /// It cannot be asked, or a daemon did not answer.
    Unknown,
}

/// Tells whether the record's cgroup is gone, with all processes of the job.
fn has_lost_cgroup(record: &Record) -> Result<bool, Error> {
    match &record.target {
        LoginTarget::Cgroup(path) => Ok(ignore_gone(Mount::open()?.open_chain(path))?.is_none()),
        LoginTarget::Via(_) => Ok(false),
    }
}

/// Finds the record that the registry has now of this job; `None` if it is ending, or has ended.
fn find_registered(
    record: &Record,
    registry: &Registry,
    trust: &Trust,
) -> Result<Option<Record>, Error> {
    let jobs = registry.find_jobs(trust, &record.id)?;
    let mut running = jobs.into_iter().filter(|job| !job.ending);
    Ok(running.find_map(|job| job.record.ok().filter(|found| found.uid == record.uid)))
}

/// Tells whether two records ask for the same. Their numbers may differ, by another call of this.
fn is_same_request(one: &Record, other: &Record) -> bool {
    let without_numbers = |record: &Record| Record {
        resolved: None,
        ..record.clone()
    };
    without_numbers(one) == without_numbers(other)
}
