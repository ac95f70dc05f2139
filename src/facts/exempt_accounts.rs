//! Finds whom the admin exempts on this node, by any line of ours or by the configuration: whose slices stay open, and
//! whose processes are no strays. Whom a login exempts, the arguments of its own line decide ([`module::Scope`]).

use command::accounts;
use command::error::Error;
use helper::Config;
use helper::stack::{Group as PamGroup, named_services, read_entries, service_dirs};
use module::{DEFAULT_SERVICE, Settings};
use nix::unistd::{Group, User};
use protocol::parse_decimal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The session lines of ours that judge logins, each by its service.
pub(crate) type ServiceLines = Vec<(String, Settings)>;

/// Reads the session lines of ours of every service below `root`: of those that have a file, of `sshd`, and of those that
/// a line of ours names, which may have none and take `other`. A line with a wrong argument refuses every login but
/// root's; whom it exempts stays exempt here, as root meant it.
///
/// # Errors
///
/// [`Error::Failed`] for a stack that may have a line of ours and cannot be read: it may exempt anybody.
pub fn read_service_lines(root: &Path) -> Result<ServiceLines, Error> {
    let mut unread = list_services(root);
    unread.insert(DEFAULT_SERVICE.to_owned());
    let mut read = BTreeSet::new();
    let mut lines = Vec::new();
    while let Some(service) = unread.pop_first() {
        if !read.insert(service.clone()) {
            continue;
        }
        let entries = match read_entries(root, &service, PamGroup::Session) {
            Ok(entries) => entries,
            Err(error) if may_have_our_line(root, &service) => {
                let object = format!("the session lines of {service}");
                return Err(Error::failed("read", object, error));
            }
            Err(_) => continue,
        };
        for entry in entries {
            if entry.is_our_module() {
                unread.extend(named_services(&entry.arguments));
            }
            if entry.is_for_service() {
                let settings = parse_exemptions(&entry.arguments);
                lines.extend(settings.map(|settings| (service.clone(), settings)));
            }
        }
    }
    Ok(lines)
}

/// Whether a stack that cannot be read may have a line of ours: that of a service with a file that names our module, or
/// sshd's, which may include one.
fn may_have_our_line(root: &Path, service: &str) -> bool {
    let files = service_dirs(root).into_iter().map(|dir| dir.join(service));
    let mut texts = files.filter_map(|file| fs::read(file).ok());
    texts.any(|text| {
        service == DEFAULT_SERVICE || String::from_utf8_lossy(&text).contains("pam_job_adopt")
    })
}

/// Parses the arguments of a line. Of one with a wrong argument the lists of exempt users count; `None` if these are wrong.
fn parse_exemptions(arguments: &[String]) -> Option<Settings> {
    Settings::parse(arguments).ok().or_else(|| {
        let is_list =
            |word: &&String| word.starts_with("exempt_uids=") || word.starts_with("exempt_groups=");
        let lists: Vec<String> = arguments.iter().filter(is_list).cloned().collect();
        Settings::parse(&lists).ok()
    })
}

/// Lists the services that have a file in a folder of libpam's below `root`.
fn list_services(root: &Path) -> BTreeSet<String> {
    service_dirs(root)
        .iter()
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// The accounts that a line of ours or the configuration exempts, and those whose slices stay open anyway.
#[derive(Debug, Default)]
pub struct ExemptAccounts {
    /// The accounts, each with the first reason.
    uids: BTreeMap<u32, String>,
    /// The groups that exist.
    groups: Vec<Group>,
}

impl ExemptAccounts {
    /// Collects the exemptions of the configuration and of these lines. Root and Flux's account are among them.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the name service cannot be asked, or if a group of the configuration does not exist. A group
    /// that only a line names may be made later, and a missing `flux_user` has no slice, as on nodes without Flux.
    pub fn read(config: &Config, lines: &[(String, Settings)]) -> Result<Self, Error> {
        let mut exempt = Self {
            uids: BTreeMap::from([(0, "root".to_owned())]),
            groups: Vec::new(),
        };
        for name in &config.exempt_groups {
            let group = accounts::find_group(name)?;
            let group =
                group.ok_or_else(|| Error::failed("look up group", name, "no such group"))?;
            exempt.groups.push(group);
        }
        exempt.add_uids(&config.exempt_uids, "job_adopt.conf(5)");
        let flux = &config.flux_user;
        let flux_uid = match parse_decimal(flux) {
            Some(uid) => Some(uid),
            None => accounts::find_user(flux)?.map(|user| user.uid.as_raw()),
        };
        if let Some(uid) = flux_uid {
            let why = format!("{flux}: Flux runs jobs in this slice");
            exempt.uids.entry(uid).or_insert(why);
        }
        for (service, settings) in lines {
            exempt.add_uids(&settings.exempt_uids, &format!("the service {service}"));
            for name in &settings.exempt_groups {
                exempt.groups.extend(accounts::find_group(name)?);
            }
        }
        for group in &exempt.groups {
            for (member, uid) in list_members(group)? {
                let why = format!("{member}: in the group {} of exempt_groups", group.name);
                exempt.uids.entry(uid).or_insert(why);
            }
        }
        Ok(exempt)
    }

    fn add_uids(&mut self, uids: &[u32], origin: &str) {
        for uid in uids {
            self.uids
                .entry(*uid)
                .or_insert_with(|| format!("uid {uid}: exempt_uids of {origin}"));
        }
    }

    /// Whether a uid is exempt, with an account or without: also one that it shares with a listed member of a group.
    pub(crate) fn has_uid(&self, uid: u32) -> bool {
        self.uids.contains_key(&uid)
    }

    /// Whether the user is exempt: by uid or, as at a login, by a primary or supplementary group.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the name service cannot be asked.
    pub(crate) fn has_user(&self, user: &User) -> Result<bool, Error> {
        if self.has_uid(user.uid.as_raw()) {
            return Ok(true);
        }
        for group in &self.groups {
            if accounts::is_member(user, group)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The exempt accounts, each with the first reason. Of a group these are the members that the name service lists, and
    /// the accounts of passwd(5) that have it as their primary group.
    pub fn into_uids(self) -> BTreeMap<u32, String> {
        self.uids
    }
}

/// Lists the members of a group that can be listed, with their uids. A listed one without an account cannot log in. It
/// fails with [`Error::Failed`] if the name service cannot be asked.
fn list_members(group: &Group) -> Result<Vec<(String, u32)>, Error> {
    let passwd = fs::read("/etc/passwd").unwrap_or_default();
    let mut members = parse_primary_members(&passwd, group.gid.as_raw());
    for name in &group.mem {
        if let Some(user) = accounts::find_user(name)? {
            members.push((user.name, user.uid.as_raw()));
        }
    }
    Ok(members)
}

/// Parses the names and uids of the accounts with this primary group from the text of passwd(5), whose field of real
/// names may be in any encoding. Lines without these fields are left out.
fn parse_primary_members(passwd: &[u8], gid: u32) -> Vec<(String, u32)> {
    let mut members = Vec::new();
    for line in String::from_utf8_lossy(passwd).lines() {
        let [name, _, uid, group, ..] = *line.split(':').collect::<Vec<_>>() else {
            continue;
        };
        if let (Some(uid), Some(primary)) = (parse_decimal(uid), parse_decimal(group)) {
            if primary == gid {
                members.push((name.to_owned(), uid));
            }
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn uids(config: &str, lines: &[(String, Settings)]) -> Vec<u32> {
        let config = Config::parse(config.as_bytes()).unwrap();
        let exempt = ExemptAccounts::read(&config, lines).unwrap();
        exempt.into_uids().into_keys().collect()
    }

    /// `daemon` has its group as primary one and is not listed there, on every node.
    #[test]
    fn primary_member_is_exempt_in_file_and_lines_alike() {
        let settings = Settings::parse(&["exempt_groups=daemon".to_owned()]).unwrap();
        let lines = [("sshd".to_owned(), settings)];
        let flux = "flux_user = no-such-user\n";
        let daemon = accounts::require_user("daemon").unwrap();
        let expected = [0, daemon.uid.as_raw()];
        let in_file = format!("{flux}exempt_groups = daemon");
        assert_eq!(uids(&in_file, &[]), expected);
        assert_eq!(uids(flux, &lines), expected);
        let config = Config::parse(flux.as_bytes()).unwrap();
        let exempt = ExemptAccounts::read(&config, &lines).unwrap();
        assert!(exempt.has_user(&daemon).unwrap());
    }

    #[test]
    fn missing_group_is_an_error_of_the_file_alone() {
        let settings = Settings::parse(&["exempt_groups=no-such-group".to_owned()]).unwrap();
        let flux = "flux_user = no-such-user\n";
        assert_eq!(uids(flux, &[("sshd".into(), settings)]), [0]);
        let config = Config::parse(b"exempt_groups = no-such-group").unwrap();
        let error = ExemptAccounts::read(&config, &[]).unwrap_err().to_string();
        assert!(error.contains("no such group"), "{error}");
    }

    #[test]
    fn lines_of_every_service_that_judge_its_logins_count() {
        let scratch = Scratch::new();
        for (service, line) in [
            ("sshd", "session required pam_job_adopt.so exempt_uids=1"),
            (
                "sshd-ops",
                "session required pam_job_adopt.so service=sshd-ops exempt_uids=2",
            ),
            (
                "su",
                "session required pam_job_adopt.so service=other exempt_uids=3",
            ),
            (
                "cron",
                "session required pam_job_adopt.so service=cron nonsense exempt_uids=4",
            ),
            (
                "login",
                "account required pam_job_adopt.so service=login exempt_uids=5",
            ),
            (
                "other",
                "session required pam_job_adopt.so Service=SSHD2 exempt_uids=6",
            ),
        ] {
            scratch.file(&format!("etc/pam.d/{service}"), &format!("{line}\n"));
        }
        let flux = "flux_user = no-such-user";
        let lines = read_service_lines(scratch.path()).unwrap();
        assert_eq!(uids(flux, &lines), [0, 1, 2, 4, 6]);
        // The stack of a service without our module may be as broken as it is.
        scratch.file("etc/pam.d/su", "session include no-such-file\n");
        let beside_broken = read_service_lines(scratch.path()).unwrap();
        assert_eq!(uids(flux, &beside_broken), [0, 1, 2, 4, 6]);
        scratch.file("etc/pam.d/sshd", "session include no-such-file\n");
        let error = read_service_lines(scratch.path()).unwrap_err().to_string();
        assert!(
            error.starts_with("read the session lines of sshd: "),
            "{error}"
        );
    }

    #[test]
    fn accounts_are_parsed_by_primary_group() {
        let passwd =
            b"root:x:0:0::/:\nann:x:7:50:M\xfcller:/:\nbroken\nbob:x:8:51::/:\ncy:x:y:50::/:\n";
        assert_eq!(parse_primary_members(passwd, 50), [("ann".to_owned(), 7)]);
    }
}
