//! The node itself: kernel, mounts, users.
//!
//! Nothing is changed but for one cgroup that is made, tried and removed again ([`kernel`]).

mod capabilities;
mod cgroups;
mod confinement;
mod kernel;
mod knobs;
mod mountinfo;
mod others;
mod procfs;
mod runtime;
mod scratch;
mod server;
mod slices;
mod strays;
mod systemctl;
mod users;

use super::{Check, Finding, Scene};
use crate::resolve::Enforce;
use mountinfo::Mounts;
pub(super) use server::Server;
use std::io::ErrorKind;
use std::path::PathBuf;

/// What the node has to be said of.
pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let mounts = Mounts::of(&scene.at("/proc/self")).unwrap_or_default();
    let servers = Server::all();
    let mut findings = cgroups::here(&mounts);
    findings.extend(server::findings(&servers, &mounts, scene));
    findings.extend(capabilities::findings(&servers));
    findings.extend(kernel::findings(scene));
    findings.extend(knobs::findings(scene));
    findings.extend(procfs::findings(&mounts));
    findings.extend(runtime::findings(&mounts, scene));
    findings.extend(confinement::findings(&servers, scene));
    findings.extend(slices::findings(scene));
    findings.extend(others::findings(scene));
    findings.extend(strays::findings(scene));
    findings
}

impl Scene {
    /// Whether logins are judged on this node (`enforce`); where they are not, nobody's slice is to be closed.
    fn is_enforced(&self) -> bool {
        match &self.config.enforce {
            Enforce::IfExists(path) => {
                let looked = path.symlink_metadata();
                !looked.is_err_and(|error| error.kind() == ErrorKind::NotFound)
            }
            Enforce::Always => true,
        }
    }

    /// Where an absolute path of the node is.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}
