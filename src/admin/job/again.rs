//! `register --again`: resolves the devices of a registered job anew.
//!
//! A login reads the numbers that `register` has written. They are resolved again after a change of what they came from,
//! such as a CDI file or `always_allowed`, and after an upgrade, from whose older build a record has none.

use super::device_numbers::settings_of;
use super::job_devices::{JobDevices, require_node_name};
use super::register::check_and_lock;
use crate::error::Error;
use crate::exit_status::{EXIT_FAILED, EXIT_FINE};
use crate::options::OPERATION_TIMEOUT;
use crate::output::Output;
use helper::Config;
use helper::jobs::records::{Record, RecordDevices, RegisteredJob, Registry};
use kernel::trust::Trust;
use protocol::{Containment, JobId, NodeName};
use std::time::Instant;

/// Resolves the devices of the jobs with this id anew, or of all jobs. Jobs that are ending, and those whose record asks
/// for no list, have none to resolve. A fault of one job stops no other: the result is [`EXIT_FAILED`] then.
///
/// # Errors
///
/// [`Error`] if the registry cannot be read, or if no job has the id.
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
    let mut code = EXIT_FINE;
    for job in jobs {
        match resolve_again(&job, node, config, &trust, output) {
            Ok(count) => writeln!(output.out, "job {}: {}", job.id, describe_count(count))?,
            Err(error) => {
                output.warn(describe_failure(&job, &error));
                code = EXIT_FAILED;
            }
        }
    }
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

fn describe_count(devices: Option<usize>) -> String {
    match devices {
        Some(1) => "1 device".to_owned(),
        Some(count) => format!("{count} devices"),
        None => "asks for no list of devices".to_owned(),
    }
}

/// Resolves the devices of one job, swaps its filter, and then writes its record. Stamp, start and namespace stay.
/// Returns the number of its devices; `None` for a job without a list.
///
/// # Errors
///
/// [`Error`] for a record that cannot be used, and for the step that failed. Before the last step filter and record are
/// as they were; the error of that one tells that they differ.
fn resolve_again(
    job: &RegisteredJob,
    node: Option<&NodeName>,
    config: &Config,
    trust: &Trust,
    output: &mut Output<'_>,
) -> Result<Option<usize>, Error> {
    let failed = |cause: &str| Error::failed("register job", &job.id, cause);
    let known = job.record.as_ref().map_err(|cause| failed(cause))?;
    if known.devices() == RecordDevices::Uncontained {
        return Ok(None);
    }
    let config = with_node_name(config, known, node);
    let mut record = known.clone();
    require_node_name(&record, &config)?;
    let (checked, _lock) = check_and_lock(&record)?;
    if !is_registered(known, &config.registry, trust)? {
        return Err(failed("it has changed meanwhile; run this again"));
    }
    let devices = JobDevices::resolve(&mut record, &config, output)?;
    let mut in_force = devices.containment.as_str();
    let checked = checked?;
    if let Some(cgroup) = checked {
        let cgroup = cgroup.require_stamped(&record)?.stamp(&record)?;
        in_force = cgroup.confine(
            &devices.containment,
            Instant::now() + OPERATION_TIMEOUT,
            output,
        )?;
    }
    config
        .registry
        .write_record(trust, &record)
        .map_err(|error| {
            failed(&format!(
                "{error}; its filter has the new list of devices, and its record the old one: run this again"
            ))
        })?;
    devices.log(&record, in_force);
    match devices.containment {
        Containment::Enforce(list) => Ok(Some(list.rules().len())),
        _ => Ok(None),
    }
}

/// The configuration with what Slurm calls this node: by the option, or as when the job was registered.
fn with_node_name(config: &Config, record: &Record, node: Option<&NodeName>) -> Config {
    let mut config = config.clone();
    config.devices = settings_of(record, &config.devices);
    if let Some(name) = node {
        config.devices.node_name = Some(name.to_string());
    }
    config
}

/// Tells whether the registry has exactly this record, of a job that is not ending.
fn is_registered(record: &Record, registry: &Registry, trust: &Trust) -> Result<bool, Error> {
    let jobs = registry.find_jobs(trust, &record.id)?;
    Ok(jobs
        .iter()
        .any(|job| !job.ending && job.record.as_ref() == Ok(record)))
}
