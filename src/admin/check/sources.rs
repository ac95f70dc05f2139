//! The sources of jobs: whether they answer, asked as at a login, and what Slurm (slurm.conf(5),
//! cgroup.conf(5)) and Flux (flux-config(5)) must be set to for logins to find and join their jobs.

use super::finding::Severity;
use super::stack::MOVERS;
use super::{Account, Check, Finding, NOBODY, Site};
use helper::devices::slurm_conf::{ConfError, Lines, SlurmConfFiles, read_constrain_devices};
use helper::sources::SourceError;
use helper::stack::{self, Group};
use helper::{Config, Health, Node, SlurmDevices};
use module::node_name;
use protocol::{SourceName, decimal};
use std::time::Duration;
use toml::de::Error;
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

/// What a login gives them (`timeout`, of which a round may take half).
const EACH: Duration = Duration::from_millis(2500);
/// Flags of which each brings the extern step about, which logins join: X11 sets Contain.
const EXTERN: [&str; 2] = ["contain", "x11"];

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    // That the account is missing is a finding of its own.
    let slurm_conf =
        site.with_its_rights(|| SlurmConf::read(site)).unwrap_or(Err(ConfError::MissingSlurmConf));
    let has_slurm =
        site.config.slurm_spool.is_some() || slurm_conf != Err(ConfError::MissingSlurmConf);
    let mut found = if site.is_here() { answers(site, has_slurm) } else { Vec::new() };
    if site.config.sources.contains(&SourceName::Slurm) {
        found.extend(slurm(site, slurm_conf));
    }
    found.extend(flux(site));
    found
}

fn answers(site: &Site, has_slurm: bool) -> Vec<Finding> {
    let node = site.settings().node.unwrap_or_else(node_name);
    let ask = || Node::here().health(&node, &site.config, NOBODY, EACH);
    match site.with_its_rights(ask).and_then(|health| health) {
        Ok(health) => judge(&health, has_slurm),
        Err(why) => {
            let text = format!("cannot be asked: {why}");
            vec![Finding::unknown(SOURCES, "all", text, "correct what it names")]
        }
    }
}

fn judge(health: &[Health], has_slurm: bool) -> Vec<Finding> {
    let is_expected = |one: &Health| has_slurm && one.source == SourceName::Slurm;
    let mut found: Vec<_> = health.iter().flat_map(|one| of(one, is_expected(one))).collect();
    if health.iter().all(|one| matches!(one.answer, Err(SourceError::Absent(_)))) {
        let text = "no source of jobs is on this node: every login is refused (JA11)";
        let remedy = "start the scheduler's daemon, or register jobs; on a login node see enforce \
                      in job_adopt.conf(5)";
        found.push(Finding::error(SOURCES, "all", text, remedy));
    }
    found
}

/// Of one source, and whether what it belongs to is set up here.
fn of(health: &Health, is_expected: bool) -> Vec<Finding> {
    let source = health.source.as_str();
    let answer = match &health.answer {
        Ok(answer) => answer,
        Err(SourceError::Absent(what)) if is_expected => {
            let text = format!("is set up, but no login finds a job of it: {what}");
            let remedy = "start it, or leave it out of sources in the configuration";
            return vec![Finding::warning(SOURCES, source, text, remedy)];
        }
        Err(SourceError::Absent(what)) => {
            let text = format!("is not on this node: {what}");
            return vec![Finding::fine(SOURCES, source, text)];
        }
        Err(SourceError::Failed(what)) => {
            let text = format!("fails, so that who has no other job is refused (JA09): {what}");
            return vec![Finding::error(SOURCES, source, text, "correct what it names")];
        }
    };
    let broken = answer.broken.iter().map(|what| {
        let text = format!("cannot use what may stand for a job: {what}");
        Finding::warning(SOURCES, source, text, "correct or remove it")
    });
    let silent = answer.silent.iter().chain(&answer.foreign).map(|what| {
        let text = format!("had no answer from what may stand for a job: {what}");
        Finding::warning(SOURCES, source, text, "find out why it hangs")
    });
    let mut found: Vec<_> = broken.chain(silent).collect();
    if found.is_empty() {
        let text = format!("answers, in {} ms", health.took.as_millis());
        found.push(Finding::fine(SOURCES, source, text));
    }
    found
}

/// What Slurm's files say.
#[derive(PartialEq)]
struct SlurmConf {
    path: String,
    lines: Lines,
    constrains: bool,
}

impl SlurmConf {
    fn read(site: &Site) -> Result<Self, ConfError> {
        let files = SlurmConfFiles::find(&site.tree(), &site.config.devices)?;
        let lines = files.read_main_lines()?;
        let constrains = read_constrain_devices(&files)?;
        Ok(Self { path: files.path_of("slurm.conf").display().to_string(), lines, constrains })
    }

    /// The last value of a key, which counts.
    fn value(&self, key: &str) -> Option<&str> {
        self.lines.iter().rev().find_map(|line| line.value_of(key)?.ok())
    }

    /// Whether one of the words of a value, as they stand between commas, is one of these.
    fn has(&self, key: &str, words: &[&str]) -> bool {
        let value = self.value(key).unwrap_or_default();
        value.split(',').any(|own| words.iter().any(|word| word.eq_ignore_ascii_case(own.trim())))
    }
}

fn slurm(site: &Site, conf: Result<SlurmConf, ConfError>) -> Vec<Finding> {
    let conf = match conf {
        Ok(conf) => conf,
        Err(ConfError::MissingSlurmConf) => return Vec::new(),
        // Where the spool directory is told otherwise, jobs are found and only then refused.
        Err(error) if error.is_missing() && site.config.slurm_spool.is_none() => {
            let text = format!("logins to Slurm jobs find none: {error}");
            let remedy = "correct slurm_conf in the configuration";
            return vec![Finding::error(SLURM_CONF, "slurm.conf", text, remedy)];
        }
        Err(error) => {
            let text = format!("logins to Slurm jobs are refused (JA09): {error}");
            let remedy = "correct what it names; the user job-adopt has to be able to read it";
            return vec![Finding::error(SLURM_CONF, "slurm.conf", text, remedy)];
        }
    };
    // The default where the node has cgroups (slurm.conf(5)).
    let tracks = conf.value("ProctrackType").is_none()
        || conf.has("ProctrackType", &["proctrack/cgroup", "cgroup"]);
    let tasks = conf.has("TaskPlugin", &["task/cgroup", "cgroup"]);
    let confines = conf.constrains || site.config.slurm_devices == SlurmDevices::Closed;
    let (severity, consequence) = match site.settings().require_devices {
        true => (Severity::Error, "logins are refused (JA06, require_devices)"),
        false => (Severity::Warning, "logins open every device"),
    };
    let unconfined = format!(
        "ConstrainDevices is not set: {consequence}, unless the job's record names devices"
    );
    let judged = [
        (
            PROLOG,
            conf.has("PrologFlags", &EXTERN),
            "PrologFlags make an extern step",
            Severity::Error,
            "PrologFlags without Contain: jobs have no extern step, and no login finds one",
            "write PrologFlags=Contain and reconfigure",
        ),
        (
            CGROUPS,
            tracks && tasks,
            "jobs are in cgroups",
            Severity::Warning,
            "ProctrackType is not proctrack/cgroup, or TaskPlugin lacks task/cgroup: jobs are not \
             held in cgroups, and logins cannot join",
            "set both and restart slurmd",
        ),
        (
            DEVICES,
            confines,
            "devices of jobs are confined",
            severity,
            &unconfined,
            "write ConstrainDevices=yes into cgroup.conf, or slurm_devices = closed here",
        ),
    ];
    let judged =
        judged.into_iter().map(|(check, holds, fine, severity, text, remedy)| match holds {
            true => Finding::fine(check, &conf.path, fine),
            false => Finding::new(severity, check, &conf.path, text, remedy),
        });
    judged.collect()
}

/// Where the system instance has its configuration (flux-config(5)).
const FLUX_CONF: &str = "/etc/flux/system/conf.d";
const LINGERING: &str = "/var/lib/systemd/linger";

/// Flux's account, where Flux is a source and the helper knows the account: by its number, or from
/// `/etc/passwd`.
pub(super) fn flux_account(site: &Site) -> Option<Account> {
    let Config { sources, flux_user: name, .. } = &site.config;
    let known = || {
        let mut local = site.local_accounts().into_iter();
        decimal(name).is_some() || local.any(|account| account.name == *name)
    };
    let here = sources.contains(&SourceName::Flux) && known();
    site.account(name).filter(|_| here)
}

fn flux(site: &Site) -> Vec<Finding> {
    let Config { sources, flux_user, .. } = &site.config;
    let Some(Account { name: user, uid, .. }) = flux_account(site) else {
        // A name that the site has chosen is of an account; the usual one is of nodes that have Flux.
        let chosen = *flux_user != Config::default().flux_user;
        let text = "flux_user names no account of /etc/passwd: no Flux job is found";
        let remedy = "write the number of an account that is elsewhere, or correct the name";
        let missing = chosen && sources.contains(&SourceName::Flux);
        return missing
            .then(|| Finding::warning(ACCOUNT, flux_user, text, remedy))
            .into_iter()
            .collect();
    };
    if uid == 0 {
        let text = "is root, which Flux is not: who has no other job is refused (JA09)";
        let remedy = "name the account of Flux's system instance in flux_user";
        return vec![Finding::error(ACCOUNT, user, text, remedy)];
    }
    // An account that a package made, without a configured instance, runs no jobs.
    let Some(mut found) = exec(site) else { return Vec::new() };
    // Jobs run below this account's own service manager, which must be there without a login.
    found.push(match site.at(LINGERING).join(&user).try_exists() {
        Ok(true) => Finding::fine(LINGER, user, "lingers"),
        Ok(false) => {
            let text = "does not linger: it has no service manager that jobs could run below";
            Finding::warning(LINGER, &user, text, format!("loginctl enable-linger {user}"))
        }
        Err(error) => Finding::unknown(LINGER, user, error, "run this as root"),
    });
    found
}

/// What keeps logins from finding jobs, or ends a job for what a login does.
fn exec(site: &Site) -> Option<Vec<Finding>> {
    let dir = site.at(FLUX_CONF);
    let object = dir.display();
    let listed = std::fs::read_dir(&dir).ok()?.flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        listed.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    let mut conf = Table::new();
    for file in files {
        let read = std::fs::read_to_string(&file).map_err(|error| error.to_string());
        let parse = |text: String| text.parse().map_err(|error: Error| error.message().to_owned());
        match read.and_then(parse) {
            Ok(table) => merge(&mut conf, table),
            Err(why) => {
                let remedy = "correct it, or run this as root";
                return Some(vec![Finding::unknown(EXEC, file.display(), why, remedy)]);
            }
        }
    }
    let conf = Value::Table(conf);
    let get = |path: &str| path.split('.').try_fold(&conf, |value, key| value.get(key));
    let is = |path: &str, text: &str| get(path).and_then(Value::as_str) == Some(text);
    let slice = "exec.sdexec-properties.Slice";
    let wrong = [
        (
            EXEC,
            !is("exec.service", "sdexec"),
            "jobs run in no units of their own: [exec] service is not \"sdexec\", and no login finds \
             them",
            "write service = \"sdexec\" under [exec]",
        ),
        (
            EXEC,
            get("systemd.enable").and_then(Value::as_bool) != Some(true),
            "sdexec is not loaded: [systemd] enable is not true, and no job starts in a unit",
            "write enable = true under [systemd]",
        ),
        (
            EXEC,
            get("exec.imp").is_none(),
            "[exec] imp is not set: jobs have no IMP, which says whose they are, and no login finds \
             them",
            "write imp = \"/usr/libexec/flux/flux-imp\" under [exec]",
        ),
        (
            EXEC,
            is("exec.method", "bgexec"),
            "[exec] method is \"bgexec\": units are not named by their job, and no login finds them",
            "take method away",
        ),
        (
            EXEC,
            get(slice).is_some() && !is(slice, "app.slice"),
            "[exec.sdexec-properties] has a Slice: no login looks for jobs there",
            "take Slice away, or name app.slice",
        ),
        (
            OOM,
            !is("exec.sdexec-properties.OOMPolicy", "continue"),
            "the whole job ends when a process of a login is killed for memory: systemd stops its \
             unit",
            "write OOMPolicy = \"continue\" under [exec.sdexec-properties]",
        ),
    ];
    let wrong = wrong.into_iter().filter(|(_, is_wrong, ..)| *is_wrong);
    let mut found: Vec<_> = wrong
        .map(|(check, _, text, remedy)| Finding::warning(check, &object, text, remedy))
        .collect();
    for (check, fine) in
        [(EXEC, "jobs run in units (sdexec)"), (OOM, "a login that runs out of memory ends alone")]
    {
        if !found.iter().any(|one| one.check == check) {
            found.push(Finding::fine(check, &object, fine));
        }
    }
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
fn pam(site: &Site) -> Option<Finding> {
    if !site.at("/etc/pam.d/flux").exists() {
        return None;
    }
    let mover = match stack::read_entries(&site.root, "flux", Group::Session) {
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
    use helper::sources::SourceReport;

    fn severities(answer: Result<SourceReport, SourceError>, has_slurm: bool) -> Vec<Severity> {
        let took = Duration::ZERO;
        let slurm = Health { source: SourceName::Slurm, answer, took };
        let registry =
            Health { source: SourceName::Registry, answer: Ok(SourceReport::default()), took };
        let found = judge(&[slurm, registry], has_slurm);
        let slurms = found.into_iter().filter(|one| one.object == "slurm");
        slurms.map(|one| one.severity).collect()
    }

    #[test]
    fn answers_are_told_apart() {
        use Severity::{Error, Fine, Warning};
        let absent = || Err(SourceError::Absent("x".into()));
        assert_eq!(severities(Ok(SourceReport::default()), true), [Fine]);
        assert_eq!(severities(absent(), false), [Fine]);
        assert_eq!(severities(absent(), true), [Warning]);
        assert_eq!(severities(Err(SourceError::Failed("x".into())), false), [Error]);
        let one = || vec!["x".to_owned()];
        let broken = SourceReport { broken: one(), silent: one(), ..SourceReport::default() };
        assert_eq!(severities(Ok(broken), true), [Warning, Warning]);
    }

    #[test]
    fn a_node_without_any_source_refuses_everybody() {
        let answer = Err(SourceError::Absent("x".into()));
        let health = Health { source: SourceName::Slurm, answer, took: Duration::ZERO };
        let found = judge(&[health], false);
        assert!(found.iter().any(|one| one.severity == Severity::Error), "{found:?}");
    }
}
