//! The sources of jobs: whether they answer, asked as at a login, and what Slurm (slurm.conf(5),
//! cgroup.conf(5)) and Flux (flux-config(5)) must be set to for logins to find and join their jobs.

use super::stack::MOVERS;
use super::{Account, Check, Finding, Site};
use crate::helper::devices::slurm::{ConfError, Files, Texts, constrains_devices};
use crate::helper::sources::{Found, SourceError};
use crate::helper::stack::{self, Group};
use crate::helper::{Config, Health, Node, SlurmDevices};
use crate::module::node_name;
use crate::protocol::{SourceName, decimal};
use std::time::Duration;
use toml::{Table, Value};

const SOURCES: Check = "sources";
const SLURM_CONF: Check = "slurm-conf";
const PROLOG: Check = "slurm-prolog-flags";
const CGROUPS: Check = "slurm-cgroups";
const DEVICES: Check = "slurm-devices";
const ACCOUNT: Check = "flux-account";
const LINGER: Check = "flux-linger";
const EXEC: Check = "flux-exec";
const OOM: Check = "flux-oom-policy";
const PAM: Check = "flux-pam";

/// Of whom the sources are asked: nobody, who has no jobs.
const NOBODY: u32 = 65534;
/// What a login gives them (`timeout`, of which a round may take half).
const EACH: Duration = Duration::from_millis(2500);
/// From here on a source is slow.
const SLOW: Duration = Duration::from_secs(1);

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let mut found = if site.scene.is_here() { answers(site) } else { Vec::new() };
    found.extend(slurm(site));
    found.extend(flux(site));
    found
}

fn answers(site: &Site<'_>) -> Vec<Finding> {
    let config = &site.scene.config;
    let node = site.settings().node.unwrap_or_else(node_name);
    let asked = site.with_its_rights(|| Node::here().health(&node, config, NOBODY, EACH));
    let health = match asked.and_then(|health| health) {
        Ok(health) => health,
        Err(why) => {
            let text = format!("cannot be asked: {why}");
            return vec![Finding::unknown(SOURCES, "all", text, "correct what it names")];
        }
    };
    let is_slurms = expects_slurm(site);
    let expected = |source| match source {
        SourceName::Slurm if is_slurms => Expected::Here,
        _ if config.sources == SourceName::ALL => Expected::Perhaps,
        _ => Expected::Named,
    };
    judge(&health, expected)
}

/// Whether a source has to be on this node.
#[derive(Clone, Copy)]
enum Expected {
    /// Nobody said so.
    Perhaps,
    /// `sources` names it.
    Named,
    /// What it belongs to is set up here.
    Here,
}

fn judge(health: &[Health], expected: impl Fn(SourceName) -> Expected) -> Vec<Finding> {
    let mut found: Vec<_> = health.iter().flat_map(|one| of(one, expected(one.source))).collect();
    if health.iter().all(|one| matches!(one.answer, Err(SourceError::Absent(_)))) {
        let text = "no source of jobs is on this node: every login is refused (JA11)";
        let remedy = "start the scheduler's daemon, or register jobs; on a login node see enforce \
                      in job_adopt.conf(5)";
        found.push(Finding::error(SOURCES, "all", text, remedy));
    }
    found
}

fn of(health: &Health, expected: Expected) -> Vec<Finding> {
    let source = health.source.as_str();
    let took = health.took.as_millis();
    match &health.answer {
        Err(SourceError::Absent(what)) => {
            let text = format!("is not on this node: {what}");
            let remedy = "start it, or leave it out of sources in the configuration";
            vec![match expected {
                Expected::Perhaps => Finding::fine(SOURCES, source, text),
                Expected::Named => Finding::note(SOURCES, source, text, remedy),
                Expected::Here => {
                    let text = format!("is set up, but no login finds a job of it: {what}");
                    Finding::warning(SOURCES, source, text, remedy)
                }
            }]
        }
        Err(SourceError::Failed(what)) => {
            let text = format!("fails, so that who has no other job is refused (JA09): {what}");
            vec![Finding::error(SOURCES, source, text, "correct what it names")]
        }
        Ok(answer) => {
            let mut found = troubles(source, answer);
            if health.took >= SLOW {
                let text = format!("answers slowly, in {took} ms");
                let remedy = "find out what it waits for; logins wait as long";
                found.push(Finding::warning(SOURCES, source, text, remedy));
            }
            if found.is_empty() {
                found.push(Finding::fine(SOURCES, source, format!("answers, in {took} ms")));
            }
            found
        }
    }
}

fn troubles(source: &str, answer: &Found) -> Vec<Finding> {
    let broken = answer.broken.iter().map(|what| {
        let text = format!("cannot use what may stand for a job: {what}");
        Finding::warning(SOURCES, source, text, "correct or remove it")
    });
    let silent = answer.silent.iter().map(|what| {
        let text = format!("had no answer from what may stand for a job: {what}");
        Finding::warning(SOURCES, source, text, "find out why it hangs")
    });
    broken.chain(silent).collect()
}

/// Flags of which each brings the extern step about, which logins join: X11 sets Contain.
const EXTERN: [&str; 2] = ["contain", "x11"];

/// What was read.
struct Read {
    conf: String,
    texts: Texts,
    constrains: bool,
}

/// Whether this is a Slurm node, by its configuration or ours.
fn expects_slurm(site: &Site<'_>) -> bool {
    let read = site.with_its_rights(|| read(site));
    site.scene.config.slurm.spool.is_some() || !matches!(read, Ok(Err(ConfError::NoConf)) | Err(_))
}

fn slurm(site: &Site<'_>) -> Vec<Finding> {
    if !site.scene.config.sources.contains(&SourceName::Slurm) {
        return Vec::new();
    }
    let read = match site.with_its_rights(|| read(site)) {
        Ok(read) => read,
        // That the account is missing is a finding of its own.
        Err(_) => return Vec::new(),
    };
    match read {
        Err(ConfError::NoConf) => Vec::new(),
        // Where the spool directory is told otherwise, jobs are found and only then refused.
        Err(error) if error.is_missing() && site.scene.config.slurm.spool.is_none() => {
            let text = format!("logins to Slurm jobs find none: {error}");
            let remedy = "correct slurm_conf in the configuration";
            vec![Finding::error(SLURM_CONF, "slurm.conf", text, remedy)]
        }
        Err(error) => {
            let text = format!("logins to Slurm jobs are refused (JA09): {error}");
            let remedy = "correct what it names; the user job-adopt has to be able to read it";
            vec![Finding::error(SLURM_CONF, "slurm.conf", text, remedy)]
        }
        Ok(read) => vec![prolog(&read), cgroups(&read), devices(site, &read)],
    }
}

fn read(site: &Site<'_>) -> Result<Read, ConfError> {
    let files = Files::find(&site.tree(), &site.scene.config.devices)?;
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

/// Where the system instance has its configuration (flux-config(5)).
const FLUX_CONF: &str = "/etc/flux/system/conf.d";
const LINGERING: &str = "/var/lib/systemd/linger";

/// Flux's account, where Flux is a source and the helper knows the account: by its number, or from
/// `/etc/passwd`.
pub(super) fn flux_account(site: &Site<'_>) -> Option<Account> {
    let Config { sources, flux_user: name, .. } = &site.scene.config;
    let known = || {
        let mut local = site.scene.local_accounts().into_iter();
        decimal(name).is_some() || local.any(|account| account.name == *name)
    };
    let here = sources.contains(&SourceName::Flux) && known();
    site.scene.account(name).filter(|_| here)
}

fn flux(site: &Site<'_>) -> Vec<Finding> {
    let Some(Account { name: user, uid, .. }) = &flux_account(site) else {
        return missing(site).into_iter().collect();
    };
    if *uid == 0 {
        let text = "is root, which Flux is not: who has no other job is refused (JA09)";
        let remedy = "name the account of Flux's system instance in flux_user";
        return vec![Finding::error(ACCOUNT, user, text, remedy)];
    }
    // An account that a package made, without a configured instance, runs no jobs.
    let Some(exec) = exec(site) else { return Vec::new() };
    std::iter::once(linger(site, user)).chain(exec).collect()
}

/// A name that the site has chosen is of an account; the usual one is of nodes that have Flux only.
fn missing(site: &Site<'_>) -> Option<Finding> {
    let config = &site.scene.config;
    let chosen = config.flux_user != Config::default().flux_user;
    let text = "flux_user names no account of /etc/passwd: no Flux job is found";
    let remedy = "write the number of an account that is elsewhere, or correct the name";
    (chosen && config.sources.contains(&SourceName::Flux))
        .then(|| Finding::warning(ACCOUNT, &config.flux_user, text, remedy))
}

/// Jobs run below this account's own service manager, which must be there without a login.
fn linger(site: &Site<'_>, user: &str) -> Finding {
    match site.scene.at(LINGERING).join(user).try_exists() {
        Ok(true) => Finding::fine(LINGER, user, "lingers"),
        Ok(false) => {
            let text = "does not linger: it has no service manager that jobs could run below";
            Finding::warning(LINGER, user, text, format!("loginctl enable-linger {user}"))
        }
        Err(error) => Finding::unknown(LINGER, user, error, "run this as root"),
    }
}

/// What keeps logins from finding jobs, or ends a job for what a login does.
fn exec(site: &Site<'_>) -> Option<Vec<Finding>> {
    let dir = site.scene.at(FLUX_CONF);
    let object = dir.display();
    let listed = std::fs::read_dir(&dir).ok()?.flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        listed.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    let mut conf = Table::new();
    for file in files {
        let read = std::fs::read_to_string(&file).map_err(|error| error.to_string());
        let parsed =
            read.and_then(|text| text.parse::<Table>().map_err(|error| error.message().to_owned()));
        match parsed {
            Ok(table) => merge(&mut conf, table),
            Err(why) => {
                let remedy = "correct it, or run this as root";
                return Some(vec![Finding::unknown(EXEC, file.display(), why, remedy)]);
            }
        }
    }
    let get = |path: &[&str]| {
        let (last, tables) = path.split_last()?;
        let table = tables.iter().try_fold(&conf, |table, name| table.get(*name)?.as_table())?;
        table.get(*last)
    };
    let is = |path: &[&str], text: &str| get(path).and_then(Value::as_str) == Some(text);
    let slice = get(&["exec", "sdexec-properties", "Slice"]).and_then(Value::as_str);
    let mut found: Vec<_> = [
        (
            !is(&["exec", "service"], "sdexec"),
            "jobs run in no units of their own: [exec] service is not \"sdexec\", and no login finds \
             them",
            "write service = \"sdexec\" under [exec]",
        ),
        (
            get(&["systemd", "enable"]).and_then(Value::as_bool) != Some(true),
            "sdexec is not loaded: [systemd] enable is not true, and no job starts in a unit",
            "write enable = true under [systemd]",
        ),
        (
            get(&["exec", "imp"]).is_none(),
            "[exec] imp is not set: jobs have no IMP, which says whose they are, and no login finds \
             them",
            "write imp = \"/usr/libexec/flux/flux-imp\" under [exec]",
        ),
        (
            is(&["exec", "method"], "bgexec"),
            "[exec] method is \"bgexec\": units are not named by their job, and no login finds them",
            "take method away",
        ),
        (
            slice.is_some_and(|slice| slice != "app.slice"),
            "[exec.sdexec-properties] has a Slice: no login looks for jobs there",
            "take Slice away, or name app.slice",
        ),
    ]
    .into_iter()
    .filter(|(is_bad, ..)| *is_bad)
    .map(|(_, text, remedy)| Finding::warning(EXEC, &object, text, remedy))
    .collect();
    if found.is_empty() {
        found.push(Finding::fine(EXEC, &object, "jobs run in units (sdexec)"));
    }
    found.push(match is(&["exec", "sdexec-properties", "OOMPolicy"], "continue") {
        true => Finding::fine(OOM, &object, "a login that runs out of memory ends alone"),
        false => {
            let text = "the whole job ends when a process of a login is killed for memory: systemd \
                        stops its unit";
            let remedy = "write OOMPolicy = \"continue\" under [exec.sdexec-properties]";
            Finding::warning(OOM, &object, text, remedy)
        }
    });
    found.extend(pam(site));
    Some(found)
}

/// As Flux does: of a value that several files have, that of the last one counts.
fn merge(into: &mut Table, other: Table) {
    for (key, value) in other {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(own)), Value::Table(table)) => merge(own, table),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// The IMP opens a session of this service for each job.
fn pam(site: &Site<'_>) -> Option<Finding> {
    if !site.scene.at("/etc/pam.d/flux").exists() {
        return None;
    }
    let mover = match stack::entries(&site.scene.root, "flux", Group::Session) {
        Ok(lines) => {
            lines.into_iter().find(|line| MOVERS.iter().any(|(one, _)| line.file() == *one))
        }
        Err(why) => return Some(Finding::unknown(PAM, "service flux", why, "run this as root")),
    };
    Some(match mover {
        Some(line) => {
            let text = format!(
                "{} takes IMP and shell out of their unit: no login finds the job",
                line.file()
            );
            let remedy = "keep that module, and whatever includes it, such as common-session, out of \
                          the service flux";
            Finding::warning(PAM, line.place, text, remedy)
        }
        None => Finding::fine(PAM, "service flux", "leaves IMP and shell in their unit"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::check::finding::Severity;

    fn severities(
        answer: Result<Found, SourceError>,
        took: u64,
        expected: Expected,
    ) -> Vec<Severity> {
        let took = Duration::from_millis(took);
        let slurm = Health { source: SourceName::Slurm, answer, took };
        let answer = Ok(Found::default());
        let registry = Health { source: SourceName::Registry, answer, took: Duration::ZERO };
        let found = judge(&[slurm, registry], |_| expected);
        let slurms = found.into_iter().filter(|one| one.object == "slurm");
        slurms.map(|one| one.severity).collect()
    }

    #[test]
    fn answers_are_told_apart() {
        use Expected::{Here, Named, Perhaps};
        use Severity::{Error, Fine, Note, Warning};
        let absent = || Err(SourceError::Absent("x".into()));
        assert_eq!(severities(Ok(Found::default()), 1, Here), [Fine]);
        assert_eq!(severities(absent(), 1, Perhaps), [Fine]);
        assert_eq!(severities(absent(), 1, Named), [Note]);
        assert_eq!(severities(absent(), 1, Here), [Warning]);
        assert_eq!(severities(Err(SourceError::Failed("x".into())), 1, Perhaps), [Error]);
        let one = || vec!["x".to_owned()];
        let broken = Found { broken: one(), silent: one(), ..Found::default() };
        assert_eq!(severities(Ok(broken), 1, Here), [Warning, Warning]);
        assert_eq!(severities(Ok(Found::default()), 1000, Here), [Warning]);
    }

    #[test]
    fn a_node_without_any_source_refuses_everybody() {
        let answer = Err(SourceError::Absent("x".into()));
        let health = Health { source: SourceName::Slurm, answer, took: Duration::ZERO };
        let found = judge(&[health], |_| Expected::Perhaps);
        assert!(found.iter().any(|one| one.severity == Severity::Error), "{found:?}");
    }
}
