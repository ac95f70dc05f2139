//! What the site sets up: PAM stacks, sshd, files, sources.

mod account;
mod arguments;
mod config;
mod flux;
mod module;
mod order;
mod program;
mod records;
mod services;
mod slurm;
mod sources;
mod sshd;
mod stack;
mod switched;
#[cfg(test)]
mod tests;

use super::{Check, Finding, Scene};
use crate::resolve::stack::{Entry, Group, entries};
use crate::session::Settings;
use crate::trust::Trust;
use nix::unistd::{Uid, geteuid};
use std::path::{Path, PathBuf};

/// What the site's own set-up has to be said of.
pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let site = Site::of(scene);
    let mut found = stack::findings(&site);
    found.extend(arguments::findings(&site));
    found.extend(order::findings(&site));
    found.extend(services::findings(&site));
    found.extend(module::findings(&site));
    found.extend(program::findings(&site));
    found.extend(account::findings(&site));
    if site.is_here() {
        found.extend(sshd::findings(&scene.service));
    }
    found.extend(switched::findings(&site));
    found.extend(config::findings(&site));
    found.extend(records::findings(&site));
    if site.is_here() {
        found.extend(sources::findings(&site));
    }
    found.extend(slurm::findings(&site));
    found.extend(flux::findings(&site));
    found
}

/// A line of ours in the service's stack, whose arguments are such.
#[derive(Debug)]
struct Line {
    group: Group,
    entry: Entry,
    settings: Settings,
}

/// The scene, with what several checks want of it.
#[derive(Debug)]
struct Site<'a> {
    scene: &'a Scene,
    trust: Trust,
    /// Of groups whose stack can be read.
    account: Vec<Entry>,
    session: Vec<Entry>,
    auth: Vec<Entry>,
    /// Lines of ours whose arguments can be read.
    lines: Vec<Line>,
}

impl<'a> Site<'a> {
    fn of(scene: &'a Scene) -> Self {
        let read = |group| entries(&scene.root, &scene.service, group).unwrap_or_default();
        let (account, session, auth) =
            (read(Group::Account), read(Group::Session), read(Group::Auth));
        let trust = match scene.root == Path::new("/") {
            true => Trust::root(),
            false => Trust::below(&scene.root, Uid::effective().as_raw()),
        };
        let mut site = Self { scene, trust, account, session, auth, lines: Vec::new() };
        site.lines = site.ours().filter_map(|(group, entry)| Line::of(group, entry)).collect();
        site
    }

    /// Whether it is this node, not one laid out for a test.
    fn is_here(&self) -> bool {
        self.scene.root == Path::new("/")
    }

    /// Whether what only root can read can be read.
    fn is_root(&self) -> bool {
        !self.is_here() || geteuid().is_root()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.scene.root.join(path.trim_start_matches('/'))
    }

    fn group(&self, group: Group) -> &[Entry] {
        match group {
            Group::Account => &self.account,
            Group::Session => &self.session,
            Group::Auth => &self.auth,
        }
    }

    /// Lines of ours, those of other services aside, to which they do not apply.
    fn ours(&self) -> impl Iterator<Item = (Group, &Entry)> {
        let groups = [Group::Account, Group::Session, Group::Auth].into_iter();
        let all = groups.flat_map(|group| self.group(group).iter().map(move |one| (group, one)));
        all.filter(|(_, entry)| stack::is_for_service(entry))
    }

    /// What the session line says, else the account line, else the defaults.
    fn settings(&self) -> Settings {
        let of = |group| self.lines.iter().find(|line| line.group == group);
        let line = of(Group::Session).or_else(|| of(Group::Account));
        line.map(|line| line.settings.clone()).unwrap_or_default()
    }
}

impl Line {
    fn of(group: Group, entry: &Entry) -> Option<Self> {
        let settings = crate::pam::parse(&entry.arguments).ok()?;
        Some(Self { group, entry: entry.clone(), settings })
    }
}
