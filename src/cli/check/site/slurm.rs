//! What Slurm's configuration has to say for logins to join its jobs (slurm.conf(5),
//! cgroup.conf(5)).

use super::config::with_its_rights;
use super::{Check, Finding, Site};
use crate::device::Tree;
use crate::device::slurm::{ConfError, Files, Texts, constrains_devices};
use crate::plan::SourceName;
use crate::resolve::SlurmDevices;

const CONF: Check = "slurm-conf";
const PROLOG: Check = "slurm-prolog-flags";
const CGROUPS: Check = "slurm-cgroups";
const DEVICES: Check = "slurm-devices";

/// Flags of which each brings the extern step about, which logins join: X11 sets Contain.
const EXTERN: [&str; 2] = ["contain", "x11"];

/// What was read.
struct Read {
    conf: String,
    texts: Texts,
    constrains: bool,
}

/// Whether this is a node of Slurm's, by its configuration or ours.
pub(super) fn is_expected(site: &Site<'_>) -> bool {
    let read = with_its_rights(site, || read(site));
    site.scene.config.slurm.spool.is_some() || !matches!(read, Ok(Err(ConfError::NoConf)) | Err(_))
}

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    if !site.scene.config.sources.contains(&SourceName::Slurm) {
        return Vec::new();
    }
    let read = match with_its_rights(site, || read(site)) {
        Ok(read) => read,
        // That the account is missing is a finding of its own.
        Err(_) => return Vec::new(),
    };
    match read {
        Err(ConfError::NoConf) => Vec::new(),
        // Where the spool directory is told otherwise, jobs are found and only then refused.
        Err(error) if error.is_missing() && site.scene.config.slurm.spool.is_none() => {
            let text = format!("logins to Slurm's jobs find none: {error}");
            let remedy = "mend slurm_conf in the configuration";
            vec![Finding::error(CONF, "slurm.conf", text, remedy)]
        }
        Err(error) => {
            let text = format!("logins to Slurm's jobs are refused (JA09): {error}");
            let remedy = "mend what it names; the user job-adopt has to be able to read it";
            vec![Finding::error(CONF, "slurm.conf", text, remedy)]
        }
        Ok(read) => vec![prolog(&read), cgroups(&read), devices(site, &read)],
    }
}

fn read(site: &Site<'_>) -> Result<Read, ConfError> {
    let tree = match site.is_here() {
        true => Tree::here(),
        false => Tree::laid_out(&site.scene.root, site.trust.clone()),
    };
    let files = Files::find(&tree, &site.scene.config.devices)?;
    let texts = files.slurm_conf()?;
    let constrains = constrains_devices(&files)?;
    Ok(Read { conf: files.path("slurm.conf").display().to_string(), texts, constrains })
}

impl Read {
    /// The last value of a key, which counts.
    fn value(&self, key: &str) -> Option<&str> {
        self.texts.iter().rev().find_map(|text| text.setting(key)?.ok())
    }

    /// Whether one of the words of a value, as they stand between commas, is one of these.
    fn has(&self, key: &str, words: &[&str]) -> bool {
        let value = self.value(key).unwrap_or_default();
        value.split(',').any(|own| words.iter().any(|word| word.eq_ignore_ascii_case(own.trim())))
    }
}

fn prolog(read: &Read) -> Finding {
    if read.has("PrologFlags", &EXTERN) {
        return Finding::fine(PROLOG, &read.conf, "PrologFlags make an extern step");
    }
    let text = "PrologFlags without Contain: jobs have no extern step, and no login finds one";
    Finding::error(PROLOG, &read.conf, text, "write PrologFlags=Contain and reconfigure")
}

fn cgroups(read: &Read) -> Finding {
    let tracks = read.has("ProctrackType", &["proctrack/cgroup", "cgroup"]);
    let tasks = read.has("TaskPlugin", &["task/cgroup", "cgroup"]);
    // The default where the node has cgroups (slurm.conf(5)).
    let tracks = tracks || read.value("ProctrackType").is_none();
    if tracks && tasks {
        return Finding::fine(CGROUPS, &read.conf, "jobs are in cgroups");
    }
    let text = "ProctrackType is not proctrack/cgroup, or TaskPlugin lacks task/cgroup: jobs are not \
                held in cgroups, and logins cannot join";
    Finding::warning(CGROUPS, &read.conf, text, "set both and restart slurmd")
}

fn devices(site: &Site<'_>, read: &Read) -> Finding {
    let closed = site.scene.config.slurm.devices == SlurmDevices::Closed;
    if read.constrains || closed {
        let text = if read.constrains { "ConstrainDevices=yes" } else { "slurm_devices = closed" };
        return Finding::fine(DEVICES, &read.conf, format!("{text}: devices of jobs are confined"));
    }
    let remedy = "write ConstrainDevices=yes into cgroup.conf, or slurm_devices = closed here";
    if site.settings().require_devices {
        let text = "ConstrainDevices is not set, and require_devices is: logins are refused (JA06) \
                    unless the job's record names devices";
        return Finding::error(DEVICES, &read.conf, text, remedy);
    }
    let text = "ConstrainDevices is not set: logins open every device, unless the job's record \
                names devices";
    Finding::warning(DEVICES, &read.conf, text, remedy)
}
