//! Checks Slurm's configuration (slurm.conf(5), cgroup.conf(5)): logins must find and join jobs, and open
//! only their devices.

use super::file_edit::FileEdit;
use super::finding::{Check, Finding, Severity};
use super::remedy::Remedy;
use super::site::Site;
use super::slurm_namespace::JobNamespaces;
use super::sources::{find_other_slurm_conf, name_slurm_conf};
use super::trusted_file::trust_remedy;
use command::accounts::RightsError;
use facts::root_processes::root_processes;
use helper::SlurmDevices;
use helper::slurm_conf::{
    ConfError, ConfLine, Lines, SlurmConfFiles, list_conf_paths, read_constrain_devices,
};
use helper::stack::FileLine;
use protocol::SourceName;
use std::path::{Path, PathBuf};

/// Flags each of which makes Slurm create the extern step, which logins join: RunInJob and X11 set
/// Contain.
const EXTERN_STEP_FLAGS: [&str; 3] = ["contain", "runinjob", "x11"];

/// The command by which slurmd reads its files.
const RESTART: &str = "systemctl restart slurmd";

/// What was found out about Slurm's configuration.
#[derive(Debug)]
pub(super) struct SlurmFacts {
    conf: Result<SlurmConf, ConfError>,
    /// `None` without the plugin that makes namespaces by a file of its own.
    namespaces: Option<JobNamespaces>,
    /// Slurm's files were looked for, with the rights of the helper.
    was_read: bool,
    /// Slurm is a source of jobs.
    is_source: bool,
    /// The configuration names the folder of step daemons: jobs are found without `slurm.conf`.
    has_spool: bool,
    /// The configuration closes jobs that Slurm leaves open.
    closes_devices: bool,
    /// Logins without devices of their own are refused.
    requires_devices: bool,
    /// The `slurm.conf` of a running slurmd that logins do not read.
    other_conf: Option<String>,
    /// slurmd runs here.
    runs: bool,
    /// The path of the configuration.
    own_conf: PathBuf,
}

/// The parts of Slurm's configuration that are checked.
#[derive(Debug)]
struct SlurmConf {
    /// The path of `slurm.conf`.
    path: PathBuf,
    /// The lines of `slurm.conf`.
    lines: Lines,
    /// The lines of `cgroup.conf`; `None` if it is missing.
    cgroup_lines: Option<Lines>,
    /// `ConstrainDevices=yes`
    constrains: bool,
}

impl SlurmFacts {
    /// Reads the facts. Slurm's files are read with the rights of the helper, as at a login.
    pub(super) fn read(site: &Site) -> Self {
        Self::from_conf(site, site.with_helper_rights(|| SlurmConf::read(site)))
    }

    /// Reads the other facts; `read_conf` is an error if the rights of the helper could not be had.
    fn from_conf(
        site: &Site,
        read_conf: Result<Result<SlurmConf, ConfError>, RightsError>,
    ) -> Self {
        // Without the helper's rights, which is a finding of its own, Slurm's files are not read.
        let was_read = read_conf.is_ok();
        let conf = read_conf.unwrap_or(Err(ConfError::MissingSlurmConf));
        let path = match &conf {
            Ok(conf) => Some(conf.path.as_path()),
            Err(_) => None,
        };
        // A file that cannot be used is a finding of its own too.
        let is_judged = site.is_here() && matches!(conf, Ok(_) | Err(ConfError::MissingSlurmConf));
        Self {
            other_conf: if is_judged {
                find_other_slurm_conf(site, path)
            } else {
                None
            },
            namespaces: conf.as_ref().ok().and_then(|conf| {
                let keys = ["NamespaceType", "JobContainerType"];
                JobNamespaces::read(site, keys.into_iter().find_map(|key| conf.value(key)))
            }),
            conf,
            was_read,
            is_source: site.config.sources.contains(&SourceName::Slurm),
            has_spool: site.config.slurm_spool.is_some(),
            closes_devices: site.config.slurm_devices == SlurmDevices::Closed,
            requires_devices: site.settings().require_devices,
            runs: site.is_here() && !root_processes(&["slurmd"]).is_empty(),
            own_conf: site.conf.clone(),
        }
    }

    /// Checks whether Slurm is configured here.
    pub(super) fn has_slurm(&self) -> bool {
        self.has_spool || !matches!(self.conf, Err(ConfError::MissingSlurmConf))
    }

    /// The path of the `slurm.conf` that logins read; `None` if it is missing or cannot be used.
    pub(super) fn conf_path(&self) -> Option<&Path> {
        self.conf.as_ref().ok().map(|conf| conf.path.as_path())
    }

    /// The lines of the `slurm.conf` that logins read, if Slurm is a source; else `None`.
    pub(super) fn source_lines(&self) -> Option<&Lines> {
        let conf = self.conf.as_ref().ok().filter(|_| self.is_source)?;
        Some(&conf.lines)
    }

    /// Judges Slurm's configuration. There are no findings if Slurm is no source, is not configured here, or was not
    /// looked for.
    pub(super) fn findings(&self) -> Vec<Finding> {
        if !self.is_source || !self.was_read {
            return Vec::new();
        }
        if let Some(other) = &self.other_conf {
            let text = "is what slurmd reads, and logins read another file or none: they may find no job (JA01, JA11)";
            let remedy = name_slurm_conf(&self.own_conf, other);
            return vec![Finding::error(Check::SlurmConf, other, text, remedy)];
        }
        match &self.conf {
            Ok(conf) => {
                let mut findings = vec![judge_prolog_flags(conf)];
                findings.extend(judge_cgroups(conf));
                findings.push(self.judge_devices(conf));
                findings.extend(self.namespaces.iter().map(JobNamespaces::finding));
                findings
            }
            Err(ConfError::MissingSlurmConf) if self.runs && !self.has_spool => {
                let text = format!(
                    "is not found in {}, and slurmd runs: no login finds a Slurm job (JA11)",
                    list_conf_paths()
                );
                // A copy may be old or another cluster's: no command can know.
                let remedy = "restore it where slurmd looks for it (find / -xdev -name 'slurm.conf*' lists copies), or \
                              name it as slurm_conf in job_adopt.conf";
                vec![Finding::error(Check::SlurmConf, "slurm.conf", text, remedy)]
            }
            Err(ConfError::MissingSlurmConf) => Vec::new(),
            // With `slurm_spool` logins find jobs without slurm.conf, and are then refused as in the next arm.
            Err(error) if error.is_missing() && !self.has_spool => {
                let text = format!("is missing, so no login finds a Slurm job: {error}");
                // Without the key a slurm.conf of another cluster may count, which does not confine devices.
                let remedy = format!(
                    "bring that file back (see whether its file system is mounted), or correct slurm_conf in {}",
                    self.own_conf.display()
                );
                vec![Finding::error(Check::SlurmConf, "slurm.conf", text, remedy)]
            }
            Err(error) => {
                let text =
                    format!("cannot be used, so logins to Slurm jobs are refused (JA09): {error}");
                let remedy = match error {
                    ConfError::UnreadableFile(error) => trust_remedy(error),
                    _ => "correct the file that is named".into(),
                };
                vec![Finding::error(Check::SlurmConf, "slurm.conf", text, remedy)]
            }
        }
    }

    /// Judges whether Slurm, or `slurm_devices = closed`, confines the logins of Slurm jobs to the jobs'
    /// devices. If neither does, `require_devices` makes it an error, since logins are then refused.
    fn judge_devices(&self, conf: &SlurmConf) -> Finding {
        let object = conf.path.display();
        if conf.constrains || self.closes_devices {
            return Finding::fine(Check::SlurmDevices, object, "devices of jobs are confined");
        }
        let (severity, consequence) = if self.requires_devices {
            (
                Severity::Error,
                "logins are refused (JA06, require_devices)",
            )
        } else {
            (Severity::Warning, "logins can open every device")
        };
        let text = format!(
            "ConstrainDevices is not set: {consequence}, unless the job's record names devices"
        );
        let lines = conf.cgroup_lines.as_deref().unwrap_or_default();
        let file = conf.path.with_file_name("cgroup.conf");
        let edit = set_key(lines, &file, "ConstrainDevices", "yes").then(RESTART);
        let remedy = Remedy::from(edit).and(
            "users of jobs that run now are refused (JA06) until these end: drain the node before, or write \
             slurm_devices = closed into job_adopt.conf instead",
        );
        Finding::new(severity, Check::SlurmDevices, object, text, remedy)
    }
}

/// Judges whether Slurm makes an extern step for each job, which logins join.
fn judge_prolog_flags(conf: &SlurmConf) -> Finding {
    let object = conf.path.display();
    if conf.has_word("PrologFlags", &EXTERN_STEP_FLAGS) {
        return Finding::fine(
            Check::SlurmPrologFlags,
            object,
            "PrologFlags make an extern step",
        );
    }
    let text = "PrologFlags lacks Contain: jobs have no extern step, and no login finds them";
    let flags = conf.list_with("PrologFlags", "Contain", "");
    let edit = conf.set("PrologFlags", &flags).then("scontrol reconfigure");
    let remedy = Remedy::from(edit)
        .and("on all nodes of the cluster; jobs that run now still have no such step");
    Finding::error(Check::SlurmPrologFlags, object, text, remedy)
}

/// Judges whether Slurm keeps its jobs in cgroups, which logins join, and whether new jobs start at all.
fn judge_cgroups(conf: &SlurmConf) -> Vec<Finding> {
    let object = conf.path.display();
    let mut findings = Vec::new();
    let mut warn = |text: &str, edit: FileEdit| {
        let remedy = Remedy::from(edit.then(RESTART))
            .and("on all nodes of the cluster; jobs that run now stay outside of cgroups");
        findings.push(Finding::warning(Check::SlurmCgroups, &object, text, remedy));
    };
    // Without the key a node with cgroups has proctrack/cgroup (slurm.conf(5)).
    let tracks = conf.value("ProctrackType").is_none()
        || conf.has_word("ProctrackType", &["proctrack/cgroup", "cgroup"]);
    if !tracks {
        let text = "ProctrackType is not proctrack/cgroup: jobs are not held in cgroups, and logins cannot join";
        warn(text, conf.set("ProctrackType", "proctrack/cgroup"));
    }
    if !conf.has_word("TaskPlugin", &["task/cgroup", "cgroup"]) {
        let text =
            "TaskPlugin lacks task/cgroup: jobs are not held in cgroups, and logins cannot join";
        let list = conf.list_with("TaskPlugin", "task/cgroup", "task/none");
        warn(text, conf.set("TaskPlugin", &list));
    }
    findings.extend(judge_doubled_plugin(conf));
    if findings.is_empty() {
        findings.push(Finding::fine(
            Check::SlurmCgroups,
            &object,
            "jobs are in cgroups",
        ));
    }
    findings
}

/// Reports a task plugin that is named twice: slurmstepd loads it twice, and each new job fails. `None` without one.
fn judge_doubled_plugin(conf: &SlurmConf) -> Option<Finding> {
    let list = conf.value("TaskPlugin")?;
    let mut plugins: Vec<&str> = Vec::new();
    let mut doubled = None;
    for word in list
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let is_same = |other: &&str| plugin_name(other) == plugin_name(word);
        if plugins.iter().any(is_same) {
            doubled = doubled.or(Some(word));
        } else {
            plugins.push(word);
        }
    }
    let text = format!(
        "TaskPlugin names {} twice, and each new job fails",
        doubled?
    );
    let edit = conf.set("TaskPlugin", &plugins.join(",")).then(RESTART);
    let remedy = Remedy::from(edit).and("on all nodes of the cluster");
    Some(Finding::error(
        Check::SlurmCgroups,
        conf.path.display(),
        text,
        remedy,
    ))
}

/// The name of a task plugin, which may be written with its type.
fn plugin_name(word: &str) -> &str {
    word.strip_prefix("task/").unwrap_or(word)
}

/// The change by which a key has a value: of several lines the last one counts, and a key without a line gets one at the
/// end of `file`.
fn set_key(lines: &[ConfLine], file: &Path, key: &str, value: &str) -> FileEdit {
    let new = format!("{key}={value}");
    match lines.iter().rev().find(|line| line.value_of(key).is_some()) {
        Some(line) => {
            let place = FileLine {
                file: line.at.file.to_path_buf(),
                line: line.at.line,
            };
            FileEdit::replace(&place, &line.text, new)
        }
        None => FileEdit::append(file, new),
    }
}

impl SlurmConf {
    /// Reads `slurm.conf` and `cgroup.conf`. It fails with [`ConfError`] if one of them cannot be found, read
    /// or understood.
    fn read(site: &Site) -> Result<Self, ConfError> {
        let files = SlurmConfFiles::find(&site.tree(), site.config.devices.slurm_conf.as_deref())?;
        let lines = files.read_main_lines()?;
        let constrains = read_constrain_devices(&files)?;
        Ok(Self {
            path: files.path_of("slurm.conf"),
            lines,
            cgroup_lines: files.read_lines("cgroup.conf").ok(),
            constrains,
        })
    }

    /// The list of a key with one more word. The word `nothing` stands for an empty list.
    fn list_with(&self, key: &str, word: &str, nothing: &str) -> String {
        match self.value(key) {
            Some(list) if !list.is_empty() && list != nothing => format!("{list},{word}"),
            _ => word.to_owned(),
        }
    }

    /// The change by which a key of `slurm.conf` has a value.
    fn set(&self, key: &str, value: &str) -> FileEdit {
        set_key(&self.lines, &self.path, key, value)
    }

    /// Finds the last value of a key, which Slurm uses; `None` if no line gives it a value.
    fn value(&self, key: &str) -> Option<&str> {
        self.lines
            .iter()
            .rev()
            .find_map(|line| line.value_of(key)?.ok())
    }

    /// Checks whether a key's list of words has one of `words`.
    fn has_word(&self, key: &str, words: &[&str]) -> bool {
        let value = self.value(key).unwrap_or_default();
        value.split(',').any(|item| {
            words
                .iter()
                .any(|word| word.eq_ignore_ascii_case(item.trim()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use helper::Config;

    /// The missing account is the finding; no look at Slurm's files has failed.
    #[test]
    fn conf_is_not_reported_missing_if_nobody_looked_for_it() {
        let scratch = Scratch::new();
        let root = scratch.path().to_owned();
        let site = Site::read(root, "sshd", "/none".into(), Config::default());
        let findings = |read_conf| {
            SlurmFacts {
                runs: true,
                ..SlurmFacts::from_conf(&site, read_conf)
            }
            .findings()
        };
        assert_eq!(findings(Err(RightsError::NoAccount(String::new()))), []);
        assert_eq!(findings(Ok(Err(ConfError::MissingSlurmConf))).len(), 1);
    }
}
