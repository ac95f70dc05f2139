//! What is guarded on this node, and whose slice is not.

use std::fmt;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use super::{Config, Guarded, NoPlan, Node};
use crate::device::{Resolver, accelerators};
use crate::guard;
use crate::plan::{
    Access, Allowlist, CgroupPath, DeviceRule, MAX_GUARDED, Phase, Plan, Reason, Refusal, Request,
};
use crate::source::Job;

/// What the site guards, resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarding {
    /// What is refused; empty where nothing is guarded.
    pub list: Allowlist,
    /// What is left out of it, and why.
    pub warnings: Vec<String>,
}

/// What the site guards on this node. Of a specifier that names no device of the node nothing can
/// be opened either: it is left out and named. Its access does not matter, all is refused.
///
/// # Errors
/// A text, where it cannot be told, or is more than [`MAX_GUARDED`] entries.
pub fn guarding(config: &Config, resolver: &Resolver) -> Result<Guarding, String> {
    let mut guarding = Guarding::default();
    match &config.guarded {
        Guarded::Nothing => {}
        Guarded::Accelerators => {
            let rules = accelerators(resolver.tree());
            for rule in rules.map_err(|error| format!("guarded: {error}"))? {
                guarding.push(rule)?;
            }
        }
        Guarded::These(specifiers) => {
            for specifier in specifiers {
                match resolver.devices(specifier) {
                    Ok(found) => {
                        for device in found.devices {
                            guarding.push(device.rule)?;
                        }
                        let unseen = found.warnings.into_iter();
                        guarding.warnings.extend(unseen.map(|text| format!("guarded: {text}")));
                    }
                    Err(error) => {
                        guarding.warnings.push(format!("guarded: {specifier} is left out: {error}"))
                    }
                }
            }
        }
    }
    Ok(guarding)
}

impl Guarding {
    fn push(&mut self, rule: DeviceRule) -> Result<(), String> {
        let too_many = || format!("guarded: stands for more than {MAX_GUARDED} entries");
        let rule = DeviceRule::new(rule.kind(), rule.major(), rule.minor(), Access::ALL);
        let rule = rule.map_err(|error| format!("guarded: {error}"))?;
        self.list.push(rule).map_err(|_| too_many())?;
        if self.list.len() > MAX_GUARDED { Err(too_many()) } else { Ok(()) }
    }
}

/// Why a user's slice is not guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spared {
    /// It is root's.
    Root,
    /// `exempt_uids` has the user.
    Listed,
    /// The user is in this group of `exempt_groups`.
    Group(String),
    /// The user is `flux_user`, below whose slice jobs run.
    Flux,
}

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("it is root's"),
            Self::Listed => f.write_str("exempt_uids names the user"),
            Self::Group(name) => write!(f, "the user is in the group {name} of exempt_groups"),
            Self::Flux => f.write_str("the user is flux_user, whose jobs run there"),
        }
    }
}

/// Why the slice of `uid` is not to be guarded; `None` where it is. `name` is the user's, where it
/// is known. Whoever cannot be looked up is not exempt, which is told in `warnings`. Accounts are
/// looked up only where the answer depends on it: that may take a while.
pub fn spared(
    uid: u32,
    name: Option<&str>,
    config: &Config,
    warnings: &mut Vec<String>,
) -> Option<Spared> {
    if uid == 0 {
        return Some(Spared::Root);
    }
    if config.exempt_uids.contains(&uid) {
        return Some(Spared::Listed);
    }
    if is_flux(uid, name, &config.flux_user, warnings) {
        return Some(Spared::Flux);
    }
    if config.exempt_groups.is_empty() {
        return None;
    }
    let groups = groups(uid).unwrap_or_else(|why| {
        warnings.push(format!("exempt_groups: groups of uid {uid}: {why}"));
        Vec::new()
    });
    let is_in = |group: &&String| match Group::from_name(group) {
        Ok(found) => found.is_some_and(|found| groups.contains(&found.gid)),
        Err(errno) => {
            warnings.push(format!("exempt_groups: look up group {group}: {}", errno.desc()));
            false
        }
    };
    config.exempt_groups.iter().find(is_in).cloned().map(Spared::Group)
}

fn is_flux(uid: u32, name: Option<&str>, flux: &str, warnings: &mut Vec<String>) -> bool {
    if let Some(name) = name {
        return name == flux;
    }
    match User::from_name(flux) {
        Ok(user) => user.is_some_and(|user| user.uid.as_raw() == uid),
        Err(errno) => {
            warnings.push(format!("flux_user: look up user {flux}: {}", errno.desc()));
            false
        }
    }
}

/// A user's groups, the primary one among them.
fn groups(uid: u32) -> Result<Vec<Gid>, String> {
    let user = User::from_uid(Uid::from_raw(uid)).map_err(|errno| errno.desc().to_owned())?;
    let user = user.ok_or("there is no such user")?;
    let name = std::ffi::CString::new(user.name).map_err(|error| error.to_string())?;
    getgrouplist(&name, user.gid).map_err(|errno| errno.desc().to_owned())
}

/// Whether a cgroup is `slice` or below it.
fn is_within(path: &str, slice: &CgroupPath) -> bool {
    path.strip_prefix(slice.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Node {
    /// A plan, and its warnings, with what the slice of the user that logs in is to be guarded
    /// against: nothing where the slice is not there, is spared, or has a job of theirs in it.
    ///
    /// # Errors
    /// [`NoPlan`], as [`guarding`].
    pub(super) fn guard(
        &self,
        (mut plan, mut warnings): (Plan, Vec<String>),
        request: &Request,
        config: &Config,
        resolver: &Resolver,
        in_slice: bool,
    ) -> Result<(Plan, Vec<String>), NoPlan> {
        if request.phase == Phase::Session && !in_slice && self.has_slice(request.uid) {
            let name = Some(request.user.as_str());
            if spared(request.uid, name, config, &mut warnings).is_none() {
                let guarding = guarding(config, resolver).map_err(|cause| refused(&plan, cause))?;
                plan.guard = guarding.list;
                warnings.extend(guarding.warnings);
            }
        }
        Ok((plan, warnings))
    }

    fn has_slice(&self, uid: u32) -> bool {
        let (mount, slice) = (self.cgroup_mount(), guard::slice(uid));
        let path = |slice: CgroupPath| slice.as_str().trim_start_matches('/').to_owned();
        mount.is_ok_and(|mount| slice.is_ok_and(|slice| mount.join(path(slice)).is_dir()))
    }
}

fn refused(plan: &Plan, cause: String) -> NoPlan {
    let (reason, jobs) = (Reason::Configuration, vec![plan.job.clone()]);
    (Refusal { reason, jobs, ended: None, device: String::new() }, cause)
}

/// Whether any of a user's jobs is in their own slice.
pub(super) fn in_own_slice(uid: u32, jobs: &[Job]) -> bool {
    guard::slice(uid)
        .is_ok_and(|slice| jobs.iter().any(|job| is_within(job.placement.cgroup(), &slice)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Settings, Tree};
    use crate::trust::tests::Scratch;

    fn config(text: &str) -> Config {
        Config::parse(text.as_bytes()).unwrap()
    }

    fn guarded(text: &str) -> Result<Guarding, String> {
        let scratch = Scratch::new();
        let drivers = "Character devices:\n10 misc\n195 nvidia\n238 kfd\nBlock devices:\n7 loop\n";
        scratch.file("proc/devices", drivers);
        scratch.file("dev/x", "c 240:7");
        for minor in 0..200 {
            scratch.file(&format!("dev/many/d{minor}"), &format!("c 241:{minor}"));
        }
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        guarding(&config(text), &Resolver::new(tree, Settings::default()))
    }

    fn list(guarding: &Guarding) -> Vec<String> {
        guarding.list.rules().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn accelerators_are_guarded_unless_the_site_says_otherwise() {
        let usual = list(&guarded("").unwrap());
        assert!(usual.contains(&"c:195:-1:rwm".into()) && usual.contains(&"c:238:-1:rwm".into()));
        assert_eq!(guarded("guarded = none").unwrap(), Guarding::default());
        let these = guarded("guarded = /dev/x r, char-nvidia, block-loop").unwrap();
        assert_eq!(list(&these), ["c:240:7:rwm", "c:195:-1:rwm", "b:7:-1:rwm"]);
        assert_eq!(these.warnings, [""; 0]);
    }

    #[test]
    fn what_does_not_resolve_is_left_out_and_named() {
        let these = guarded("guarded = /dev/none, /dev/x, char-habanalabs").unwrap();
        assert_eq!(list(&these), ["c:240:7:rwm"]);
        assert_eq!(these.warnings.len(), 2);
        assert!(these.warnings[0].starts_with("guarded: /dev/none rw is left out: "));
    }

    #[test]
    fn a_list_that_is_too_long_is_an_error() {
        assert!(guarded("guarded = /dev/many/d*").unwrap_err().contains("more than 128 entries"));
    }

    #[test]
    fn who_is_spared() {
        let mut none = Vec::new();
        let mut why = |uid, name, text| spared(uid, name, &config(text), &mut none);
        assert_eq!(why(0, None, ""), Some(Spared::Root));
        assert_eq!(why(1234, Some("x"), ""), None);
        assert_eq!(why(1234, Some("x"), "exempt_uids = 7, 1234"), Some(Spared::Listed));
        assert_eq!(why(1234, Some("flux"), ""), Some(Spared::Flux));
        assert_eq!(why(1234, Some("flux"), "flux_user = other"), None);
        assert_eq!(none, [""; 0]);
    }

    /// uid 1 (`daemon`) is in the group of its own.
    #[test]
    fn groups_are_looked_up_and_whoever_cannot_be_is_not_exempt() {
        let mut warnings = Vec::new();
        let mut why = |uid, text| spared(uid, Some("x"), &config(text), &mut warnings);
        let groups = "exempt_groups = no-such-group, daemon";
        assert_eq!(why(1, groups), Some(Spared::Group("daemon".into())));
        assert_eq!(why(1, "exempt_groups = bin"), None);
        assert_eq!(why(4_000_000_001, groups), None);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn below_is_not_beside() {
        let slice = guard::slice(5).unwrap();
        for (path, within) in [
            ("/user.slice/user-5.slice", true),
            ("/user.slice/user-5.slice/a/b", true),
            ("/user.slice/user-5.slice2", false),
            ("/user.slice/user-55.slice", false),
            ("/user.slice", false),
            ("", false),
        ] {
            assert_eq!(is_within(path, &slice), within, "{path}");
        }
    }
}
