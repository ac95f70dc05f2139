//! Checks the sources of jobs: they must answer as at a login, and Slurm (slurm.conf(5),
//! cgroup.conf(5)) and Flux (flux-config(5)) must be configured so that logins find and join jobs.

use super::finding::{Check, Finding, Severity};
use super::site::{Account, NOBODY_UID, Site, root_processes};
use super::stack::{MOVERS, module_name};
use ::kernel::proc::Proc;
use helper::jobs::sources::SourceError;
use helper::slurm_conf::{ConfError, Lines, SlurmConfFiles, read_constrain_devices};
use helper::stack::{self, Group};
use helper::{Config, Node, SlurmDevices, SourceHealth};
use module::node_name;
use protocol::{SourceName, parse_decimal};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::Error;
use toml::{Table, Value};

/// Longest query of a source at a login: half of the default `timeout`.
const SOURCE_TIMEOUT: Duration = Duration::from_millis(2500);
const REPAIR_REMEDY: &str = "repair what the message names, then run job-adopt check again";
/// Flags each of which makes Slurm create the extern step, which logins join: RunInJob and X11 set
/// Contain.
const EXTERN_STEP_FLAGS: [&str; 3] = ["contain", "runinjob", "x11"];

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    // A missing account is a finding of its own.
    let slurm_conf = site
        .with_helper_rights(|| SlurmConf::read(site))
        .unwrap_or(Err(ConfError::MissingSlurmConf));
    let has_slurm =
        site.config.slurm_spool.is_some() || slurm_conf != Err(ConfError::MissingSlurmConf);
    let mut findings = Vec::new();
    if site.is_here() {
        let path = slurm_conf.as_ref().ok().map(|conf| conf.path.as_str());
        findings.extend(check_answers(site, has_slurm, find_other_slurm_conf(path).as_deref()));
    }
    if site.config.sources.contains(&SourceName::Slurm) {
        findings.extend(check_slurm(site, slurm_conf));
    }
    findings.extend(check_flux(site));
    findings
}

/// Returns the `slurm.conf` of a slurmd that runs here, if it is another one than `path`, which
/// logins read. The text can be trusted, because only root can have started the process.
fn find_other_slurm_conf(path: Option<&str>) -> Option<String> {
    let read =
        |pid: i32, name: &str| fs::read(Proc::host().dir(pid).join(name)).unwrap_or_default();
    let conf_of = |pid| slurm_conf_of(&read(pid, "cmdline"), &read(pid, "environ"));
    let daemons = root_processes(&["slurmd"]).into_iter();
    let mut confs = daemons.filter_map(|(_, pid)| conf_of(pid));
    let own_dir = path.map(|path| real_dir(Path::new(path)));
    confs.find(|conf| Some(real_dir(Path::new(conf))) != own_dir)
}

/// Returns the directory of a file, without symbolic links: the files beside `slurm.conf` lie in it.
fn real_dir(file: &Path) -> PathBuf {
    let dir = file.parent().unwrap_or(file);
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

/// Returns the path of `slurm.conf` that a slurmd was given, by `-f` or else by `SLURM_CONF`; `None`
/// if it looks for the file itself.
fn slurm_conf_of(command_line: &[u8], environment: &[u8]) -> Option<String> {
    let split = |bytes: &[u8]| -> Vec<String> {
        bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into()).collect()
    };
    let words = split(command_line);
    let mut options = words.iter().zip(words.iter().skip(1));
    let separate = options.find(|(option, _)| *option == "-f").map(|(_, path)| path.as_str());
    let attached = || words.iter().find_map(|word| word.strip_prefix("-f"));
    let variables = split(environment);
    let variable = || variables.iter().find_map(|variable| variable.strip_prefix("SLURM_CONF="));
    let path = separate.or_else(attached).or_else(variable)?;
    path.starts_with('/').then(|| path.to_owned())
}

fn check_answers(site: &Site, has_slurm: bool, other_conf: Option<&str>) -> Vec<Finding> {
    let node = site.settings().node.unwrap_or_else(node_name);
    let query =
        || Node::host().query_source_health(&node, &site.config, NOBODY_UID, SOURCE_TIMEOUT);
    match site
        .with_helper_rights(query)
        .and_then(|health| health.map_err(|error| error.to_string()))
    {
        Ok(health) => judge_sources(&health, has_slurm, other_conf),
        Err(why) => {
            let text = format!("could not be queried for jobs: {why}");
            vec![Finding::unknown(Check::Sources, "all", text, REPAIR_REMEDY)]
        }
    }
}

/// Judges the answers of all sources. `other_conf` is the `slurm.conf` of a running slurmd that
/// logins do not read.
fn judge_sources(
    health: &[SourceHealth],
    has_slurm: bool,
    other_conf: Option<&str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in health {
        let is_slurm = source.source == SourceName::Slurm;
        let is_expected = is_slurm && (has_slurm || other_conf.is_some());
        findings.extend(judge_source(source, is_expected, other_conf.filter(|_| is_slurm)));
    }
    let is_missing = |source: &SourceHealth| {
        matches!(source.answer, Err(SourceError::Absent(_) | SourceError::Unused(_)))
    };
    let is_unused = |source: &SourceHealth| matches!(source.answer, Err(SourceError::Unused(_)));
    if health.iter().all(is_missing) {
        // A monitor that takes nodes with errors away would keep the first job from a new node.
        let severity =
            if health.iter().any(is_unused) { Severity::Warning } else { Severity::Error };
        let text =
            "no scheduler runs here and no job is registered, so every login is refused (JA11)";
        let start = "start the scheduler's daemon; if a prolog registers jobs, set sources = \
                     registry; on a login node set enforce (man job_adopt.conf)";
        let remedy = other_conf.map_or_else(|| start.to_owned(), name_slurm_conf);
        findings.push(Finding::new(severity, Check::Sources, "all", text, remedy));
    }
    findings
}

/// Returns the remedy for a slurmd that reads another `slurm.conf` than logins.
fn name_slurm_conf(conf: &str) -> String {
    format!("set slurm_conf = {conf} in job_adopt.conf: the running slurmd reads that file")
}

/// Judges the answer of one source; `is_expected` if its scheduler is configured or runs here.
fn judge_source(
    health: &SourceHealth,
    is_expected: bool,
    other_conf: Option<&str>,
) -> Vec<Finding> {
    let source = health.source.as_str();
    let answer = match &health.answer {
        Ok(answer) => answer,
        Err(SourceError::Absent(what)) if is_expected => {
            let text = format!("is configured, but no login finds its jobs: {what}");
            let start = "systemctl start slurmd, or remove slurm from sources in job_adopt.conf";
            let remedy = other_conf.map_or_else(|| start.to_owned(), name_slurm_conf);
            return vec![Finding::warning(Check::Sources, source, text, remedy)];
        }
        Err(SourceError::Absent(what)) => {
            let text = format!("is not on this node: {what}");
            return vec![Finding::fine(Check::Sources, source, text)];
        }
        Err(SourceError::Unused(what)) => {
            return vec![Finding::fine(Check::Sources, source, what)];
        }
        Err(SourceError::Failed(what)) => {
            let text = format!("fails, so users without another job are refused (JA09): {what}");
            return vec![Finding::error(Check::Sources, source, text, REPAIR_REMEDY)];
        }
    };
    let broken = answer.broken.iter().map(|what| {
        let text = format!("leaves out what may be a job: {what}");
        Finding::warning(Check::Sources, source, text, "repair or remove what the message names")
    });
    let silent = answer.silent.iter().chain(&answer.foreign).map(|what| {
        let text = format!("got no answer about what may be a job: {what}");
        let remedy =
            "kill the process that hangs; for Slurm, scancel the job or kill its slurmstepd";
        Finding::warning(Check::Sources, source, text, remedy)
    });
    let mut findings: Vec<_> = broken.chain(silent).collect();
    if findings.is_empty() {
        let text = format!("answers, in {} ms", health.took.as_millis());
        findings.push(Finding::fine(Check::Sources, source, text));
    }
    findings
}

/// The parts of Slurm's configuration that are checked.
#[derive(PartialEq)]
struct SlurmConf {
    path: String,
    lines: Lines,
    constrains: bool,
}

impl SlurmConf {
    fn read(site: &Site) -> Result<Self, ConfError> {
        let files = SlurmConfFiles::find(&site.tree(), site.config.devices.slurm_conf.as_deref())?;
        let lines = files.read_main_lines()?;
        let constrains = read_constrain_devices(&files)?;
        Ok(Self { path: files.path_of("slurm.conf").display().to_string(), lines, constrains })
    }

    /// Returns the last value of a key, which Slurm uses.
    fn value(&self, key: &str) -> Option<&str> {
        self.lines.iter().rev().find_map(|line| line.value_of(key)?.ok())
    }

    /// Returns whether a key's list of words has one of `words`.
    fn has_word(&self, key: &str, words: &[&str]) -> bool {
        let value = self.value(key).unwrap_or_default();
        let is_one = |item: &str| words.iter().any(|word| word.eq_ignore_ascii_case(item.trim()));
        value.split(',').any(is_one)
    }
}

fn check_slurm(site: &Site, conf: Result<SlurmConf, ConfError>) -> Vec<Finding> {
    let conf = match conf {
        Ok(conf) => conf,
        Err(ConfError::MissingSlurmConf) => return Vec::new(),
        // With `slurm_spool` jobs are found without slurm.conf, and refused only after that.
        Err(error) if error.is_missing() && site.config.slurm_spool.is_none() => {
            let text = format!("is missing, so no login finds a Slurm job: {error}");
            let remedy = "correct slurm_conf in job_adopt.conf";
            return vec![Finding::error(Check::SlurmConf, "slurm.conf", text, remedy)];
        }
        Err(error) => {
            let text =
                format!("cannot be used, so logins to Slurm jobs are refused (JA09): {error}");
            let remedy = "correct the file that is named, and let the user job-adopt read it";
            return vec![Finding::error(Check::SlurmConf, "slurm.conf", text, remedy)];
        }
    };
    // The default of a node with cgroups (slurm.conf(5)).
    let tracks = conf.value("ProctrackType").is_none()
        || conf.has_word("ProctrackType", &["proctrack/cgroup", "cgroup"]);
    let tasks = conf.has_word("TaskPlugin", &["task/cgroup", "cgroup"]);
    let confines = conf.constrains || site.config.slurm_devices == SlurmDevices::Closed;
    let (severity, consequence) = if site.settings().require_devices {
        (Severity::Error, "logins are refused (JA06, require_devices)")
    } else {
        (Severity::Warning, "logins can open every device")
    };
    let unconfined = format!(
        "ConstrainDevices is not set: {consequence}, unless the job's record names devices"
    );
    let conditions = [
        (
            Check::SlurmPrologFlags,
            conf.has_word("PrologFlags", &EXTERN_STEP_FLAGS),
            "PrologFlags make an extern step",
            Severity::Error,
            "PrologFlags lacks Contain: jobs have no extern step, and no login finds them",
            "write PrologFlags=Contain into slurm.conf, and scontrol reconfigure",
        ),
        (
            Check::SlurmCgroups,
            tracks && tasks,
            "jobs are in cgroups",
            Severity::Warning,
            "ProctrackType is not proctrack/cgroup, or TaskPlugin lacks task/cgroup: jobs are not \
             held in cgroups, and logins cannot join",
            "write both into slurm.conf, and restart slurmd",
        ),
        (
            Check::SlurmDevices,
            confines,
            "devices of jobs are confined",
            severity,
            &unconfined,
            "write ConstrainDevices=yes into cgroup.conf and restart slurmd, or slurm_devices = closed into \
             job_adopt.conf",
        ),
    ];
    let findings = conditions.into_iter().map(|(check, holds, fine, severity, text, remedy)| {
        if holds {
            Finding::fine(check, &conf.path, fine)
        } else {
            Finding::new(severity, check, &conf.path, text, remedy)
        }
    });
    findings.collect()
}

/// The folder of the system instance's configuration (flux-config(5)).
const FLUX_CONF_DIR: &str = "/etc/flux/system/conf.d";
const LINGER_DIR: &str = "/var/lib/systemd/linger";

/// Finds Flux's account, if Flux is a source and the helper can find the account: by its number, or
/// in `/etc/passwd`.
pub(super) fn find_flux_account(site: &Site) -> Option<Account> {
    let Config { sources, flux_user: name, .. } = &site.config;
    let is_local = || {
        let mut local = site.local_accounts().into_iter();
        parse_decimal(name).is_some() || local.any(|account| account.name == *name)
    };
    let is_source = sources.contains(&SourceName::Flux) && is_local();
    site.find_account(name).filter(|_| is_source)
}

fn check_flux(site: &Site) -> Vec<Finding> {
    let Config { sources, flux_user, .. } = &site.config;
    let Some(Account { name: user, uid, .. }) = find_flux_account(site) else {
        // A name that the site chose must have an account. The default name has one only on nodes
        // with Flux.
        let is_chosen = *flux_user != Config::default().flux_user;
        let text = "is no account of /etc/passwd, so no login finds a Flux job";
        let remedy =
            "set flux_user in job_adopt.conf to Flux's account, or to its uid if it is elsewhere";
        let is_missing = is_chosen && sources.contains(&SourceName::Flux);
        return is_missing
            .then(|| Finding::warning(Check::FluxAccount, flux_user, text, remedy))
            .into_iter()
            .collect();
    };
    if uid == 0 {
        let text = "is root, which Flux never is: users without another job are refused (JA09)";
        let remedy = "set flux_user in job_adopt.conf to the account of Flux's system instance";
        return vec![Finding::error(Check::FluxAccount, user, text, remedy)];
    }
    // An account that a package made, without a configured instance, runs no jobs.
    let Some(mut findings) = check_flux_conf(site) else { return Vec::new() };
    // Jobs run below this account's own service manager, which must run without a login.
    findings.push(match site.at(LINGER_DIR).join(&user).try_exists() {
        Ok(true) => Finding::fine(Check::FluxLinger, user, "lingers"),
        Ok(false) => {
            let text = "does not linger, so it has no service manager in which jobs could run";
            Finding::warning(
                Check::FluxLinger,
                &user,
                text,
                format!("loginctl enable-linger {user}"),
            )
        }
        Err(error) => Finding::unknown(Check::FluxLinger, user, error, "run this as root"),
    });
    findings
}

/// Finds settings of Flux that keep logins from finding jobs, or that end a job because of a login;
/// `None` if no instance is configured.
fn check_flux_conf(site: &Site) -> Option<Vec<Finding>> {
    let dir = site.at(FLUX_CONF_DIR);
    let object = dir.display();
    let listed = std::fs::read_dir(&dir).ok()?.flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        listed.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    let mut conf = Table::new();
    for file in files {
        // Comments may be in any encoding, and no setting that matters here has such letters.
        let read = std::fs::read(&file).map_err(|error| error.to_string());
        let parse = |text: Vec<u8>| {
            let text = String::from_utf8_lossy(&text);
            text.parse().map_err(|error: Error| error.message().to_owned())
        };
        match read.and_then(parse) {
            Ok(table) => merge_tables(&mut conf, table),
            Err(why) => {
                let remedy = "correct the file, or run this as root";
                return Some(vec![Finding::unknown(Check::FluxExec, file.display(), why, remedy)]);
            }
        }
    }
    let conf = Value::Table(conf);
    let get = |path: &str| path.split('.').try_fold(&conf, |value, key| value.get(key));
    let is = |path: &str, text: &str| get(path).and_then(Value::as_str) == Some(text);
    let slice = "exec.sdexec-properties.Slice";
    let faults = [
        (
            Check::FluxExec,
            !is("exec.service", "sdexec"),
            "[exec] service is not \"sdexec\": jobs have no units of their own, and no login finds them",
            "write service = \"sdexec\" under [exec]",
        ),
        (
            Check::FluxExec,
            get("systemd.enable").and_then(Value::as_bool) != Some(true),
            "[systemd] enable is not true: sdexec is not loaded, and no job starts in a unit",
            "write enable = true under [systemd]",
        ),
        (
            Check::FluxExec,
            get("exec.imp").is_none(),
            "[exec] imp is not set: nothing shows whose a job is, and no login finds it",
            "write imp = \"/usr/libexec/flux/flux-imp\" under [exec]",
        ),
        (
            Check::FluxExec,
            is("exec.method", "bgexec"),
            "[exec] method is \"bgexec\": units are not named by their job, and no login finds them",
            "remove method under [exec]",
        ),
        (
            Check::FluxExec,
            get(slice).is_some() && !is(slice, "app.slice"),
            "[exec.sdexec-properties] sets a Slice, in which no login looks for jobs",
            "remove Slice, or set it to app.slice",
        ),
        (
            Check::FluxOomPolicy,
            !is("exec.sdexec-properties.OOMPolicy", "continue"),
            "OOMPolicy is not \"continue\": when a login runs out of memory, systemd ends the whole job",
            "write OOMPolicy = \"continue\" under [exec.sdexec-properties]",
        ),
    ];
    let faults = faults.into_iter().filter(|(_, is_present, ..)| *is_present);
    let mut findings: Vec<_> = faults
        .map(|(check, _, text, remedy)| Finding::warning(check, &object, text, remedy))
        .collect();
    for (check, fine) in [
        (Check::FluxExec, "jobs run in units (sdexec)"),
        (Check::FluxOomPolicy, "a login that runs out of memory ends alone"),
    ] {
        if !findings.iter().any(|finding| finding.check == check) {
            findings.push(Finding::fine(check, &object, fine));
        }
    }
    findings.extend(check_flux_pam(site));
    Some(findings)
}

/// Merges two configuration files as Flux does: the value of the later file wins.
fn merge_tables(into: &mut Table, other: Table) {
    for (key, value) in other {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(table)) => merge_tables(inner, table),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// Checks the stack of the service `flux`, of which the IMP opens a session for each job.
fn check_flux_pam(site: &Site) -> Option<Finding> {
    if !site.at("/etc/pam.d/flux").exists() {
        return None;
    }
    let mover = match stack::read_entries(&site.root, "flux", Group::Session) {
        Ok(lines) => lines
            .into_iter()
            .find(|line| MOVERS.iter().any(|(mover, _)| module_name(line) == *mover)),
        Err(why) => {
            return Some(Finding::unknown(Check::FluxPam, "service flux", why, "run this as root"));
        }
    };
    Some(match mover {
        Some(line) => {
            let text = format!(
                "{} moves processes of jobs out of their unit, so no login finds the job",
                module_name(&line)
            );
            let remedy = "remove that module from /etc/pam.d/flux, or the include that brings it, such \
                          as common-session";
            Finding::warning(Check::FluxPam, line.place, text, remedy)
        }
        None => {
            Finding::fine(Check::FluxPam, "service flux", "leaves processes of jobs in their unit")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use helper::jobs::sources::SourceReport;

    fn severities(answer: Result<SourceReport, SourceError>, has_slurm: bool) -> Vec<Severity> {
        let took = Duration::ZERO;
        let slurm = SourceHealth { source: SourceName::Slurm, answer, took };
        let registry = SourceHealth {
            source: SourceName::Registry,
            answer: Ok(SourceReport::default()),
            took,
        };
        let findings = judge_sources(&[slurm, registry], has_slurm, None);
        let of_slurm = findings.into_iter().filter(|finding| finding.object == "slurm");
        of_slurm.map(|finding| finding.severity).collect()
    }

    #[test]
    fn answer_of_source_decides_severity() {
        use Severity::{Error, Fine, Warning};
        let absent = || Err(SourceError::Absent("x".into()));
        assert_eq!(severities(Ok(SourceReport::default()), true), [Fine]);
        assert_eq!(severities(absent(), false), [Fine]);
        assert_eq!(severities(absent(), true), [Warning]);
        assert_eq!(severities(Err(SourceError::Failed("x".into())), false), [Error]);
        let names = || vec!["x".to_owned()];
        let broken = SourceReport { broken: names(), silent: names(), ..SourceReport::default() };
        assert_eq!(severities(Ok(broken), true), [Warning, Warning]);
    }

    #[test]
    fn node_without_any_source_is_an_error() {
        let answer = Err(SourceError::Absent("x".into()));
        let health = SourceHealth { source: SourceName::Slurm, answer, took: Duration::ZERO };
        let findings = judge_sources(std::slice::from_ref(&health), false, None);
        let has_error = findings.iter().any(|finding| finding.severity == Severity::Error);
        assert!(has_error, "{findings:?}");
    }
    /// Starting the daemon, which runs, would not help.
    #[test]
    fn remedy_names_the_configuration_of_a_running_slurmd() {
        let answer = Err(SourceError::Absent("x".into()));
        let health = SourceHealth { source: SourceName::Slurm, answer, took: Duration::ZERO };
        let conf = Some("/opt/slurm/etc/slurm.conf");
        let findings = judge_sources(&[health], false, conf);
        assert_eq!(findings.len(), 2);
        for finding in findings {
            let remedy = finding.remedy;
            assert!(remedy.contains("slurm_conf = /opt/slurm/etc/slurm.conf"), "{remedy}");
        }
    }

    #[test]
    fn configuration_of_slurmd_is_read_from_its_options_or_environment() {
        let environment = b"PATH=/bin\0SLURM_CONF=/e/slurm.conf\0".as_slice();
        for (command_line, environment, conf) in [
            ("slurmd\0-D\0", environment, Some("/e/slurm.conf")),
            ("slurmd\0-D\0-f\0/f/slurm.conf\0", environment, Some("/f/slurm.conf")),
            ("slurmd\0-f/f/slurm.conf\0", b"", Some("/f/slurm.conf")),
            ("slurmd\0-f\0slurm.conf\0", b"", None),
            ("slurmd\0--conf-server\0x\0", b"XSLURM_CONF=/x", None),
            ("", b"", None),
        ] {
            let found = slurm_conf_of(command_line.as_bytes(), environment);
            assert_eq!(found.as_deref(), conf, "{command_line}");
        }
    }
}
