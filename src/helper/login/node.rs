//! The node of a login: where its files and cgroups lie, whom it trusts, and which sources it has.

use crate::clock::{Clock, Deadline};
use crate::config::Config;
use crate::devices::DeviceSettings;
use crate::jobs::sources::{FluxSource, RegistrySource, SlurmSource, Source};
use crate::jobs::{CgroupSearch, Job};
use crate::node::Tree;
use crate::slurm_conf::SlurmConfSearch;
use kernel::cgroup::{self, Mount};
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
    /// The cgroup v2 mount, once it has been found.
    cgroup: OnceLock<PathBuf>,
    pub(super) clock: Clock,
}

impl Node {
    /// The node that this process runs on.
    pub fn host() -> Self {
        Self {
            root: PathBuf::from("/"),
            trust: Trust::root(),
            cgroup: OnceLock::new(),
            clock: Clock::System,
        }
    }

    /// A node for a test, with `dev`, `proc` and `etc/pam.d` below `root`, files that `trust`
    /// accepts, and cgroups in the directory `cgroup`.
    pub fn with_root(root: &Path, trust: Trust, cgroup: &Path) -> Self {
        Self {
            root: root.to_owned(),
            trust,
            cgroup: cgroup.to_owned().into(),
            clock: Clock::System,
        }
    }

    /// Replaces the clock.
    #[cfg(test)]
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// The site's settings of devices. `node` is the name in a request: if a PAM line gives it, it counts as Slurm's
    /// name of the node unless the configuration has one.
    pub(super) fn device_settings(node: &str, config: &Config) -> DeviceSettings {
        let configured = config.devices.node_name.clone();
        let node_name = configured.or_else(|| node_name_of_pam_line(node, &host_name()));
        DeviceSettings {
            node_name,
            ..config.devices.clone()
        }
    }

    /// Prepares the search for Slurm's configuration.
    pub(super) fn slurm_conf(&self, config: &Config) -> SlurmConfSearch {
        SlurmConfSearch::new(self.tree(), config.devices.slurm_conf.clone())
    }

    /// The files of the node.
    pub(super) fn tree(&self) -> Tree {
        // Only `/` has no parent.
        if self.root.parent().is_none() {
            return Tree::host();
        }
        Tree::with_root(&self.root, self.trust.clone())
    }

    /// The users' choices of their jobs on this node.
    pub(super) fn choices(&self) -> Choices {
        Choices::below(&self.root, self.trust.clone())
    }

    /// Opens the sources of the configuration, in the order of their queries.
    ///
    /// # Errors
    ///
    /// As [`Mount::open_below`], if the registry or Flux is a source.
    pub(super) fn sources(
        &self,
        slurm_conf: &SlurmConfSearch,
        node: &str,
        config: &Config,
    ) -> cgroup::Result<Vec<Box<dyn Source>>> {
        let mut names = config.sources.clone();
        // Query Slurm last: its daemons may take until the deadline, the other sources do not wait.
        names.sort_by_key(|name| *name == SourceName::Slurm);
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for name in names {
            sources.push(match name {
                SourceName::Registry => Box::new(self.registry_source(config)?),
                SourceName::Slurm => {
                    let node_name = Self::device_settings(node, config).node_name;
                    let spool = config.slurm_spool.clone();
                    let source = SlurmSource::new(slurm_conf.clone(), node_name, spool);
                    Box::new(source.with_records(config.registry.clone()))
                }
                SourceName::Flux => {
                    let mount = self.cgroup_mount()?;
                    Box::new(FluxSource::new(&config.flux_user, mount, &self.root))
                }
            });
        }
        Ok(sources)
    }

    /// Opens the registry as a source. Unless the site has chosen it, it counts as absent until the first job is
    /// registered.
    ///
    /// # Errors
    ///
    /// As [`Mount::open_below`].
    fn registry_source(&self, config: &Config) -> cgroup::Result<RegistrySource> {
        let registry = config.registry.clone();
        let source = RegistrySource::new(registry, self.trust.clone(), self.cgroup_mount()?);
        if config.has_chosen_registry() {
            return Ok(source);
        }
        let lock = self.root.join(LOCK_FILE.trim_start_matches('/'));
        Ok(source.unused_before_first_job(lock))
    }

    /// Finds the job whose cgroup, or one below it, has this id (`CgroupSearch::find_job`); `None` also on a node
    /// without cgroup v2.
    pub fn job_of_cgroup<'a>(
        &self,
        jobs: &'a [Job],
        cgroup: u64,
        deadline: Deadline,
    ) -> Option<&'a JobId> {
        let mount = self.cgroup_mount().ok()?;
        let search = CgroupSearch {
            mount: &mount,
            owner: self.trust.owner(),
            deadline,
        };
        search.find_job(jobs, cgroup)
    }

    /// Finds the cgroup v2 mount, once.
    fn cgroup_mount(&self) -> cgroup::Result<PathBuf> {
        if let Some(cgroup) = self.cgroup.get() {
            return Ok(cgroup.clone());
        }
        let mount = Mount::open_below(&self.root)?;
        let dir = self.root.join(mount.path().trim_start_matches('/'));
        Ok(self.cgroup.get_or_init(|| dir).clone())
    }
}

/// The host's name (gethostname(2)); empty if it cannot be read.
fn host_name() -> String {
    nix::unistd::gethostname()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Finds the name that a PAM line gives the node; `None` for the host's own name, of which a
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
            assert_eq!(
                node_name_of_pam_line(node, host).as_deref(),
                name,
                "{node} on {host}"
            );
        }
    }
}
