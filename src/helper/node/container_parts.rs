//! What a device specification gives to containers beside device nodes, and no login gets.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::tree::Tree;

/// Maximum names that a text lists.
const LISTED_MAX: usize = 4;
/// Maximum files of mounts and hooks that are kept.
const FILES_MAX: usize = 1024;

/// What specifications give to containers beside device nodes. Nothing of it is executed, mounted or
/// moved; it is named to an administrator who would otherwise miss it in a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerParts {
    /// `additionalGids`, without 0, which the standard ignores.
    pub gids: BTreeSet<u32>,
    /// Absolute paths on the node that mounts and hooks use, at most 1,024.
    pub files: BTreeSet<String>,
    /// Whether there is `intelRdt`.
    pub has_intel_rdt: bool,
    /// The node's network devices that a container takes.
    pub net_devices: BTreeSet<String>,
    /// The names of the variables in `env`.
    pub variables: BTreeSet<String>,
    /// Whether a device node has `fileMode`, `uid` or `gid`: the node's own file keeps its mode and owner.
    pub sets_node_modes: bool,
}

impl ContainerParts {
    /// Adds the parts of another definition. Files above the 1,024th are dropped.
    pub fn extend(&mut self, other: Self) {
        self.gids.extend(other.gids);
        for file in other.files {
            if self.files.len() < FILES_MAX {
                self.files.insert(file);
            }
        }
        self.has_intel_rdt |= other.has_intel_rdt;
        self.net_devices.extend(other.net_devices);
        self.variables.extend(other.variables);
        self.sets_node_modes |= other.sets_node_modes;
    }

    /// Describes what nearly every generated specification has for containers alone. For who looks at a name, not for the
    /// log of each job.
    pub fn usual_parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if !self.variables.is_empty() {
            let names: Vec<&String> = self.variables.iter().collect();
            let names = list_first(LISTED_MAX, &names);
            parts.push(format!(
                "variables are for containers: a login does not get {names}"
            ));
        }
        if self.sets_node_modes {
            let text =
                "fileMode, uid and gid are for containers: the files of this node stay as they are";
            parts.push(text.to_owned());
        }
        parts
    }

    /// Lists the files of mounts and hooks that the node lacks. A login must not call this: a network
    /// file system that does not answer would hold it up. A file that cannot be looked up counts as there.
    pub fn missing_files(&self, tree: &Tree) -> Vec<&str> {
        let mut missing = Vec::new();
        for file in &self.files {
            let found = std::fs::metadata(tree.locate(file));
            if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                missing.push(file.as_str());
            }
        }
        missing
    }

    /// Describes what a login of `user` does not get: the groups `lacking_groups`, in which the user is
    /// not; the `missing_files`, which are empty if none were looked for; and all that only a container
    /// can have.
    pub fn warnings(
        &self,
        lacking_groups: &[String],
        user: &str,
        missing_files: &[&str],
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        if !lacking_groups.is_empty() {
            let groups = list_first(LISTED_MAX, lacking_groups);
            warnings.push(format!(
                "containers get the groups {groups}; {user} lacks them"
            ));
        }
        if !missing_files.is_empty() {
            let files = list_first(LISTED_MAX, missing_files);
            warnings.push(format!(
                "this node lacks {files}, which the specification gives to containers: generate it anew"
            ));
        }
        if self.has_intel_rdt {
            let text = "intelRdt is for containers: a login has the resource class of its job";
            warnings.push(text.to_owned());
        }
        if !self.net_devices.is_empty() {
            let devices: Vec<&String> = self.net_devices.iter().collect();
            let devices = list_first(LISTED_MAX, &devices);
            warnings.push(format!(
                "network devices are for containers: a login does not get {devices}"
            ));
        }
        warnings
    }
}

/// Joins the first items, at most `max`, and counts the others.
pub fn list_first(max: usize, items: &[impl ToString]) -> String {
    let shown: Vec<String> = items.iter().take(max).map(ToString::to_string).collect();
    match items.len().saturating_sub(max) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
