//! Checks the namespaces that Slurm's plugin `namespace/linux` makes for a job (namespace.yaml(5), from Slurm 25.11 on): no
//! login joins a user namespace of a job, since its user may change what is mounted there.

use super::finding::{Check, Finding, Severity};
use super::site::Site;
use helper::slurm_conf::{ConfError, Lines, SlurmConfFiles};

/// The plugin that reads [`FILE`].
const PLUGIN: &str = "namespace/linux";
const FILE: &str = "namespace.yaml";
/// The flag that makes a user namespace. slurmd finds it in any case, anywhere in the value of `clone_ns_flags`.
const USER_FLAG: &str = "clone_newuser";
/// The key of settings for some nodes alone.
const NODE_SETTINGS_KEY: &str = "node_confs";

/// The settings of the plugin.
#[derive(Debug)]
pub(super) struct JobNamespaces {
    /// The path of the file.
    path: String,
    lines: Result<Lines, ConfError>,
}

impl JobNamespaces {
    /// Reads the settings if `plugin`, the value of `NamespaceType`, is the one that has them. The file is read with the
    /// rights of this process: logins do not need it.
    pub(super) fn read(site: &Site, plugin: Option<&str>) -> Option<Self> {
        if !plugin.is_some_and(|plugin| plugin.eq_ignore_ascii_case(PLUGIN)) {
            return None;
        }
        let configured = site.config.devices.slurm_conf.as_deref();
        let files = SlurmConfFiles::find(&site.tree(), configured).ok()?;
        Some(Self {
            path: files.path_of(FILE).display().to_string(),
            lines: files.read_lines(FILE),
        })
    }

    /// Judges whether logins can join the jobs' namespaces. Settings for some nodes may be those of other nodes, so that
    /// a flag is then a warning alone. Without the file slurmd does not start.
    pub(super) fn finding(&self) -> Finding {
        let lines = match &self.lines {
            Ok(lines) => lines,
            Err(error) => {
                let remedy = format!(
                    "see that clone_ns_flags in {} lacks CLONE_NEWUSER",
                    self.path
                );
                return Finding::unknown(Check::SlurmNamespace, &self.path, error, remedy);
            }
        };
        let has = |text: &str, part: &str| text.to_ascii_lowercase().contains(part);
        let Some(flag) = lines.iter().find(|line| has(&line.text, USER_FLAG)) else {
            let text = "jobs have no user namespace of their own";
            return Finding::fine(Check::SlurmNamespace, &self.path, text);
        };
        let has_node_settings = lines.iter().any(|line| has(&line.text, NODE_SETTINGS_KEY));
        let (severity, jobs) = if has_node_settings {
            (Severity::Warning, "jobs of the nodes that it is for")
        } else {
            (Severity::Error, "jobs")
        };
        let text = format!(
            "has \"{}\": no login joins a user namespace, so those to {jobs} are refused (JA07)",
            flag.text.trim()
        );
        let remedy = "take CLONE_NEWUSER out while no job runs here, and restart slurmd; CLONE_NEWPID may stay";
        Finding::new(severity, Check::SlurmNamespace, &flag.at, text, remedy)
    }
}
