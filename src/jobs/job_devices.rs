//! The devices of a job that is registered: its names, resolved with a login's rights, and what the log has of them.

use command::accounts;
use command::error::Error;
use command::output::{Output, log_all};
use facts::restricted_nodes::{NodeUser, container_warnings};
use helper::Config;
use helper::jobs::records::{LoginTarget, Record, Registry, Via};
use helper::node::{ContainerParts, Tree};
use helper::printable;
use kernel::log::{Line, Severity};
use naming::{AllowlistError, NameResolver, Registration, RegistrationError, resolve_record};
use protocol::{Containment, JobId};

/// Maximum log lines of one registration about entries that were left out, and of warnings.
const DETAIL_LINES_MAX: usize = 16;

/// What the names of a record mean on this node now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobDevices {
    /// The containment that the job must have.
    pub(super) containment: Containment,
    /// Entries that this node does not have, each with the reason.
    dropped: Vec<String>,
    warnings: Vec<String>,
}

impl JobDevices {
    /// Resolves the job's devices, and writes their numbers into the record.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for a record that says nothing about devices, since the job would have all of them, for a preset
    /// of which a part would be left out, and for more numbers than a record may have; [`Error::Failed`] if root cannot
    /// take the rights of a login, and if a name does not resolve here.
    pub(super) fn resolve(
        record: &mut Record,
        config: &Config,
        output: &mut Output<'_>,
    ) -> Result<Self, Error> {
        // Logins cannot use files that only root can read.
        let resolved = accounts::with_login_rights(|| {
            let resolver = NameResolver::new(Tree::host(), config.devices.clone());
            resolve_record(record, config, &resolver)
        })?;
        let Registration {
            list,
            dropped,
            warnings,
            container,
        } = resolved.map_err(|error| refuse_devices(&record.id, &error))?;
        require_whole_presets(record, &dropped)?;
        for device in &dropped {
            output.warn(format_args!("warning: left out: {device}"));
        }
        for warning in &warnings {
            output.warn(format_args!("warning: {warning}"));
        }
        if container != ContainerParts::default() {
            let user = NodeUser::find(record.uid).ok();
            // Files are not looked for: one of a network that does not answer would hold up the job.
            for warning in container_warnings(&container, user.as_ref(), &[]) {
                output.warn(format_args!("warning: cdi: {}", printable(&warning)));
            }
        }
        let containment = match &list {
            Some(list) => Containment::Enforce(list.rules.clone()),
            None => Containment::None,
        };
        record.resolved = list;
        require_fit(record)?;
        Ok(Self {
            containment,
            dropped,
            warnings,
        })
    }

    /// Writes to the log that the job is registered: a line about the job, and one for each warning and each entry that
    /// was left out, at most [`DETAIL_LINES_MAX`]. `in_force` names the containment, which is a filter of the scheduler
    /// if the record asks for none.
    pub(super) fn log(&self, record: &Record, in_force: &str) {
        log_all(&self.log_lines(record, in_force));
    }

    fn log_lines(&self, record: &Record, in_force: &str) -> Vec<Line> {
        let cgroup = match &record.target {
            LoginTarget::Cgroup(path) => path.to_string(),
            LoginTarget::Via(via) => format!("via {}", via.as_str()),
        };
        let mut line = new_line(Severity::Info, record)
            .with("uid", record.uid)
            .with("cgroup", cgroup)
            .with("containment", in_force);
        if let Containment::Enforce(list) = &self.containment {
            line = line
                .with("devices", list.rules().len())
                .with("dropped", self.dropped.len());
        }
        let mut lines = vec![line];
        let warnings = self.warnings.iter().map(|text| ("warning", text));
        let dropped = self.dropped.iter().map(|text| ("dropped", text));
        for (key, text) in warnings.chain(dropped).take(DETAIL_LINES_MAX) {
            lines.push(new_line(Severity::Warning, record).with(key, text));
        }
        let left_out = (self.warnings.len() + self.dropped.len()).saturating_sub(DETAIL_LINES_MAX);
        if left_out > 0 {
            let text = format!("and {left_out} more");
            lines.push(new_line(Severity::Warning, record).with("warning", text));
        }
        lines
    }
}

fn new_line(severity: Severity, record: &Record) -> Line {
    Line::new(severity)
        .with("action", "register")
        .with("job", &record.id)
}

/// Requires that no preset that a record requests was left out: it means a whole accelerator, not what is left of it.
/// `dropped` are the entries that were left out, each of which begins with the name that was requested.
fn require_whole_presets(record: &Record, dropped: &[String]) -> Result<(), Error> {
    for device in dropped {
        if requested_presets(record).any(|preset| device.starts_with(&format!("{preset} "))) {
            return Err(Error::Input(format!(
                "register job {}: {}",
                record.id,
                printable(device)
            )));
        }
    }
    Ok(())
}

/// Requires the name by which Slurm counts the resources of a Slurm job: where it is not the host's, the lines of another
/// node would count, with other devices. It fails with [`Error::Input`] if neither the options nor the configuration have
/// the name.
pub(super) fn require_node_name(record: &Record, config: &Config) -> Result<(), Error> {
    if !needs_node_name(record) || config.devices.node_name.is_some() {
        return Ok(());
    }
    Err(Error::Input(format!(
        "register job {}: gres of a Slurm job needs what Slurm calls this node: give --node, in a prolog \
         \"$SLURMD_NODENAME\", or set nodename in job_adopt.conf",
        record.id
    )))
}

/// Tells whether a record has resources of a Slurm job, which Slurm counts by the name of its node.
pub(super) fn needs_node_name(record: &Record) -> bool {
    record.gres.is_some() && record.target == LoginTarget::Via(Via::Slurm)
}

/// Requires that the registry takes a record of this size.
fn require_fit(record: &Record) -> Result<(), Error> {
    let limit = Registry::FILE_BYTES_MAX;
    let size = record.to_json()?.len() as u64;
    if size <= limit {
        return Ok(());
    }
    let cause = format!("its record would have {size} bytes with its devices, and {limit} fit");
    Err(Error::Input(format!("register job {}: {cause}", record.id)))
}

/// The presets among the devices that a record requests.
fn requested_presets(record: &Record) -> impl Iterator<Item = &str> {
    let options = record.options.iter();
    options
        .filter_map(|options| options.device_allow.as_ref())
        .flatten()
        .map(|(spec, _)| spec.as_str())
        .filter(|spec| spec.starts_with('@'))
}

/// Converts the error of a record's devices: [`Error::Input`] for a fault of the record itself, and [`Error::Failed`]
/// for what this node lacks.
fn refuse_devices(job: &JobId, error: &RegistrationError) -> Error {
    let text = format!("register job {job}: {}", printable(&error.to_string()));
    match error {
        RegistrationError::Unspecified => Error::Input(format!(
            "{text}; give --device, or --policy closed, or, to leave the job unconfined, --policy auto"
        )),
        RegistrationError::Devices(AllowlistError::TooManyEntries(_)) => Error::Input(text),
        RegistrationError::Devices(AllowlistError::UnresolvedName(_))
        | RegistrationError::LateDevices(_)
        | RegistrationError::Node(_) => Error::Failed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rest: &str) -> Record {
        let text = format!(r#"{{"version":1,"id":"7","uid":5,{rest}}}"#);
        Record::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn gres_of_slurm_job_needs_name_of_node() {
        let config = |node: Option<&str>| {
            let mut config = Config::default();
            config.devices.node_name = node.map(str::to_owned);
            config
        };
        let gres = |target: &str| record(&format!(r#"{target},"gres":{{"gpu":[0]}}"#));
        let slurm = r#""via":"slurm""#;
        let error = require_node_name(&gres(slurm), &config(None)).unwrap_err();
        assert!(error.to_string().contains("give --node"), "{error}");
        require_node_name(&gres(slurm), &config(Some("n1"))).unwrap();
        require_node_name(&gres(r#""cgroup":"/a""#), &config(None)).unwrap();
        let other = record(r#""via":"slurm","options":{"DevicePolicy":"closed"}"#);
        require_node_name(&other, &config(None)).unwrap();
    }

    #[test]
    fn log_names_entries_that_were_left_out_behind_the_job() {
        let record = record(r#""cgroup":"/a","options":{"DevicePolicy":"closed"}"#);
        let lines = |dropped: usize| {
            let devices = JobDevices {
                containment: Containment::Enforce(protocol::Allowlist::new()),
                dropped: (0..dropped)
                    .map(|number| format!("/dev/x{number} rw: gone"))
                    .collect(),
                warnings: vec!["w".to_owned()],
            };
            let lines = devices.log_lines(&record, "enforce");
            lines
                .iter()
                .map(|line| line.text().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            lines(1),
            [
                r#"action=register job=7 uid=5 cgroup="/a" containment=enforce devices=0 dropped=1"#,
                "action=register job=7 warning=w",
                r#"action=register job=7 dropped="/dev/x0 rw: gone""#,
            ]
        );
        let many = lines(40);
        assert_eq!(many.len(), 1 + DETAIL_LINES_MAX + 1);
        assert_eq!(
            many.last().unwrap(),
            r#"action=register job=7 warning="and 25 more""#
        );
    }
}
