//! The node of a login: where its files and cgroups lie, whom it trusts, and which sources it has.

use crate::clock::{Clock, Deadline};
use crate::config::Config;
use crate::devices::DeviceSettings;
use crate::jobs::sources::{FluxSource, RegistrySource, SlurmSource, Source};
use crate::jobs::{CgroupSearch, Job};
use crate::node::Tree;
use kernel::cgroup::Mount;
use kernel::choice::Choices;
use kernel::lock::LOCK_FILE;
use kernel::trust::Trust;
use protocol::{JobId, SourceName};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A node as the unprivileged half sees it.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) root: PathBuf,
    pub(super) trust: Trust,
    cgroup: OnceLock<PathBuf>,
    pub(super) clock: Clock,
}

impl Node {
    /// Returns this node.
    pub fn host() -> Self {
        Self {
            root: PathBuf::from("/"),
            trust: Trust::root(),
            cgroup: OnceLock::new(),
            clock: Clock::System,
        }
    }

    /// Returns a node for a test, with `dev`, `proc` and `etc/pam.d` below `root`, files that `trust`
    /// accepts, and cgroups in the directory `cgroup`.
    pub fn with_root(root: &Path, trust: Trust, cgroup: &Path) -> Self {
        Self {
            root: root.to_owned(),
            trust,
            cgroup: cgroup.to_owned().into(),
            clock: Clock::System,
        }
    }

    /// Returns the node with that clock.
    #[cfg(test)]
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the site's settings of devices. A name of the node in the PAM line counts unless the
    /// configuration has one.
    pub(super) fn device_settings(node: &str, config: &Config) -> DeviceSettings {
        let configured = config.devices.node_name.clone();
        let node_name = configured.or_else(|| node_name_of_pam_line(node, &host_name()));
        DeviceSettings { node_name, ..config.devices.clone() }
    }

    pub(super) fn tree(&self) -> Tree {
        match self.root.parent() {
            Some(_) => Tree::with_root(&self.root, self.trust.clone()),
            None => Tree::host(),
        }
    }

    pub(super) fn choices(&self) -> Choices {
        Choices::below(&self.root, self.trust.clone())
    }

    /// Opens the sources of the configuration, in the order of their queries.
    pub(super) fn sources(
        &self,
        tree: &Tree,
        node: &str,
        config: &Config,
    ) -> Result<Vec<Box<dyn Source>>, String> {
        let source = |name: &SourceName| -> Result<Box<dyn Source>, String> {
            match name {
                SourceName::Registry => {
                    let (registry, cgroup) = (config.registry.clone(), self.cgroup_mount()?);
                    let source = RegistrySource::new(registry, self.trust.clone(), cgroup);
                    Ok(Box::new(match config.has_chosen_registry() {
                        true => source,
                        false => {
                            let lock = LOCK_FILE.trim_start_matches('/');
                            source.unused_before_first_job(self.root.join(lock))
                        }
                    }))
                }
                SourceName::Slurm => {
                    let settings = Self::device_settings(node, config);
                    let spool = config.slurm_spool.clone();
                    Ok(Box::new(SlurmSource::new(tree.clone(), settings, spool)))
                }
                SourceName::Flux => {
                    let mount = self.cgroup_mount()?;
                    Ok(Box::new(FluxSource::new(&config.flux_user, mount, &self.root)))
                }
            }
        };
        // Query Slurm last: its daemons may take until the deadline, the other sources do not wait.
        let (slow, fast): (Vec<_>, Vec<_>) =
            config.sources.iter().partition(|name| **name == SourceName::Slurm);
        fast.into_iter().chain(slow).map(source).collect()
    }

    /// Finds the job whose cgroup, or one below it, has this id ([`CgroupSearch::find_job`]).
    pub fn job_of_cgroup<'a>(
        &self,
        jobs: &'a [Job],
        cgroup: u64,
        deadline: Deadline,
    ) -> Option<&'a JobId> {
        let mount = self.cgroup_mount().ok()?;
        let search = CgroupSearch { mount: &mount, owner: self.trust.owner(), deadline };
        search.find_job(jobs, cgroup)
    }

    pub(super) fn cgroup_mount(&self) -> Result<PathBuf, String> {
        if let Some(cgroup) = self.cgroup.get() {
            return Ok(cgroup.clone());
        }
        let mount = Mount::open_below(&self.root).map_err(|error| error.to_string())?;
        let mount = self.root.join(mount.path().trim_start_matches('/'));
        Ok(self.cgroup.get_or_init(|| mount).clone())
    }
}

pub(super) fn host_name() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the name that a PAM line gives the node; `None` for the host's own name, of which a
/// request has only the part before the first dot.
fn node_name_of_pam_line(node: &str, host: &str) -> Option<String> {
    let short_host = host.split('.').next().unwrap_or_default();
    (node != short_host && node != host).then(|| node.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a shortened name, a login would use other lines of `gres.conf` than `register`.
    #[test]
    fn name_of_the_host_is_not_shortened_for_slurm() {
        for (node, host, name) in [
            ("n1", "n1.cluster", None),
            ("n1.cluster", "n1.cluster", None),
            ("n1", "n1", None),
            ("rack7", "n1.cluster", Some("rack7")),
            ("n1.other", "n1.cluster", Some("n1.other")),
        ] {
            assert_eq!(node_name_of_pam_line(node, host).as_deref(), name, "{node} on {host}");
        }
    }
}
