//! Checks the sources of jobs: they must answer as at a login.

use super::file_edit::FileEdit;
use super::finding::{Check, Finding, Severity};
use super::remedy::Remedy;
use super::site::Site;
use ::kernel::log::is_disruptive;
use ::kernel::proc::Proc;
use command::accounts::NOBODY_UID;
use facts::configuration::require_configuration;
use facts::file_identity::is_same_file;
use facts::root_processes::root_processes;
use helper::jobs::sources::{SourceError, SourceReport};
use helper::stack::FileLine;
use helper::{Node, SourceHealth};
use module::node_name;
use protocol::SourceName;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest query of a source at a login: half of the default `timeout`.
const SOURCE_TIMEOUT: Duration = Duration::from_millis(2500);
const REPAIR_REMEDY: &str = "repair what the message names, then run job-adopt check again";

/// What was found out about the sources of this node.
#[derive(Debug)]
pub(super) struct SourceFacts {
    /// The answers of all sources, or why none could be queried.
    health: Result<Vec<SourceHealth>, String>,
    /// Slurm is configured here.
    has_slurm: bool,
    /// The `slurm.conf` of a running slurmd that logins do not read.
    other_slurm_conf: Option<String>,
    /// The path of the configuration.
    conf: PathBuf,
}

impl SourceFacts {
    /// Queries each source about the user `nobody`, who has no job: it matters only whether the source answers.
    /// `slurm_conf` is the path of the file that logins read, `None` if they read none.
    pub(super) fn read(site: &Site, has_slurm: bool, slurm_conf: Option<&Path>) -> Self {
        let node = site.settings().node.unwrap_or_else(node_name);
        let answer = site.with_helper_rights(|| {
            Node::host().query_source_health(&node, &site.config, NOBODY_UID, SOURCE_TIMEOUT)
        });
        Self {
            health: match answer {
                Ok(health) => health.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
            has_slurm,
            other_slurm_conf: find_other_slurm_conf(site, slurm_conf),
            conf: site.conf.clone(),
        }
    }

    /// Judges the answer of each source, and reports if no source is in use.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let health = match &self.health {
            Ok(health) => health,
            Err(why) => {
                let text = format!("could not be queried for jobs: {why}");
                return vec![Finding::unknown(Check::Sources, "all", text, REPAIR_REMEDY)];
            }
        };
        let mut findings: Vec<Finding> = health
            .iter()
            .flat_map(|source| self.judge_source(source))
            .collect();
        if health.iter().all(is_missing) {
            findings.push(self.judge_missing_sources(health));
        }
        findings
    }

    /// Reports that no source has jobs. It is only a warning while the registry waits for its first job:
    /// monitoring that takes nodes with errors out of service would keep a new node from getting that job.
    fn judge_missing_sources(&self, health: &[SourceHealth]) -> Finding {
        let registry_waits = health
            .iter()
            .any(|source| matches!(source.answer, Err(SourceError::Unused(_))));
        let severity = if registry_waits {
            Severity::Warning
        } else {
            Severity::Error
        };
        let text =
            "no scheduler runs here and no job is registered, so every login is refused (JA11)";
        let start = "start the scheduler's daemon; if a prolog registers jobs, set sources = \
                     registry; on a login node set enforce (man job_adopt.conf)";
        Finding::new(
            severity,
            Check::Sources,
            "all",
            text,
            self.start_remedy(start.into()),
        )
    }

    /// Names the remedy for a source without jobs: the `slurm.conf` that logins must read, if a running
    /// slurmd reads another one than they do, or else `start`, which is how to start the scheduler.
    fn start_remedy(&self, start: Remedy) -> Remedy {
        match &self.other_slurm_conf {
            Some(conf) => name_slurm_conf(&self.conf, conf),
            None => start,
        }
    }

    /// Judges the answer of one source. A source that is not on this node is fine, unless it is Slurm and is
    /// configured or runs here.
    fn judge_source(&self, health: &SourceHealth) -> Vec<Finding> {
        let source = health.source.as_str();
        let is_expected = health.source == SourceName::Slurm
            && (self.has_slurm || self.other_slurm_conf.is_some());
        let finding = match &health.answer {
            Ok(report) => return judge_report(source, report, health.took),
            Err(SourceError::Absent(what)) if is_expected => {
                let text = format!("is configured, but no login finds its jobs: {what}");
                let start = "start it (systemctl start slurmd), or remove slurm from sources in job_adopt.conf".into();
                // A daemon that runs and is not found is no maintenance.
                let severity = if self.other_slurm_conf.is_some() {
                    Severity::Error
                } else {
                    Severity::Warning
                };
                Finding::new(
                    severity,
                    Check::Sources,
                    source,
                    text,
                    self.start_remedy(start),
                )
            }
            Err(SourceError::Absent(what)) => Finding::fine(
                Check::Sources,
                source,
                format!("is not on this node: {what}"),
            ),
            Err(SourceError::Unused(what)) => Finding::fine(Check::Sources, source, what),
            Err(SourceError::Failed(what)) => {
                let text =
                    format!("fails, so users without another job are refused (JA09): {what}");
                Finding::error(Check::Sources, source, text, REPAIR_REMEDY)
            }
        };
        vec![finding]
    }
}

/// What to write so that the valid configuration at `conf` names the `slurm.conf` of the running slurmd. The key comes
/// first, since it may not stand in a section.
pub(super) fn name_slurm_conf(conf: &Path, slurm_conf: &str) -> Remedy {
    let key = format!("slurm_conf = {slurm_conf}");
    let bytes = fs::read(conf).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let place = |line| FileLine {
        file: conf.to_owned(),
        line,
    };
    let is_key = |line: &str| {
        line.trim_start()
            .strip_prefix("slurm_conf")
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let edit = match (1..).zip(text.lines()).find(|(_, line)| is_key(line)) {
        Some((number, line)) => FileEdit::replace(&place(number), line.trim(), key),
        None if text.is_empty() => FileEdit::append(conf, key),
        None => FileEdit::insert_above(&place(1), key),
    };
    Remedy::from(edit).and("since the running slurmd reads that file")
}

/// Checks whether a source has no jobs because it is not on this node, or was not used since the node started.
fn is_missing(source: &SourceHealth) -> bool {
    matches!(
        source.answer,
        Err(SourceError::Absent(_) | SourceError::Unused(_))
    )
}

/// Judges the report of a source that has answered. It was asked about the user `nobody`, so what it names belongs
/// to others, or may belong to anybody.
fn judge_report(source: &str, report: &SourceReport, took: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    for what in &report.broken {
        let text = format!(
            "leaves out what may be anybody's job, so users without another job are refused (JA09): {what}"
        );
        let remedy = "repair what the message names: it may be of a running job, whose logins end where it is removed";
        findings.push(Finding::error(Check::Sources, source, text, remedy));
    }
    // A user may cause these, so no health check may take the node out of service for them.
    for what in report.silent.iter().chain(&report.foreign) {
        let text = format!("got no answer about what may be a job: {what}");
        let remedy = "repair what the message names; where a process hangs, end it: for Slurm, scancel the job or kill \
                      its slurmstepd";
        findings.push(Finding::warning(Check::Sources, source, text, remedy));
    }
    if findings.is_empty() {
        let text = format!("answers, in {} ms", took.as_millis());
        findings.push(Finding::fine(Check::Sources, source, text));
    }
    findings
}

/// Finds the `slurm.conf` that a slurmd of this node was given, if it is in another folder than `path`, which
/// logins read; `path` is `None` if they read none. The text can be trusted, because root has started the process
/// ([`root_processes`]). `None` while the configuration has a fault, since what logins read is not known then.
pub(super) fn find_other_slurm_conf(site: &Site, path: Option<&Path>) -> Option<String> {
    if require_configuration(&site.conf, &site.trust, &site.root).is_err() {
        return None;
    }
    let own_dir = path.map(real_dir);
    root_processes(&["slurmd"])
        .into_iter()
        .filter_map(|(_, pid)| read_slurm_conf(&Proc::host().dir(pid)))
        .find(|conf| Some(real_dir(Path::new(conf))) != own_dir)
}

/// Reads the path of the `slurm.conf` that a slurmd was given, of which `/proc` has this directory; `None` if it looks for
/// the file itself, and if the path leads to another file here than with its mounts.
fn read_slurm_conf(proc_dir: &Path) -> Option<String> {
    let command_line = fs::read(proc_dir.join("cmdline")).unwrap_or_default();
    let environment = fs::read(proc_dir.join("environ")).unwrap_or_default();
    let path = slurm_conf_of(&command_line, &environment)?;
    let theirs = proc_dir.join("root").join(path.trim_start_matches('/'));
    is_same_file(&theirs, Path::new(&path)).then_some(path)
}

/// The directory of a file, without symbolic links: the files beside `slurm.conf` lie in it.
fn real_dir(file: &Path) -> PathBuf {
    let dir = file.parent().unwrap_or(file);
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

/// Finds the path of `slurm.conf` that a slurmd was given, by `-f` or else by `SLURM_CONF`; `None`
/// if it looks for the file itself, and for a path that is relative or would not stay in one line of a configuration.
fn slurm_conf_of(command_line: &[u8], environment: &[u8]) -> Option<String> {
    let options = split_words(command_line);
    let variables = split_words(environment);
    let path = conf_option(&options).or_else(|| {
        variables
            .iter()
            .find_map(|variable| variable.strip_prefix("SLURM_CONF="))
    })?;
    if !path.starts_with('/') || path.chars().any(is_disruptive) {
        return None;
    }
    Some(path.to_owned())
}

/// Finds the value of `-f`, which may be a word of its own; `None` without the option.
fn conf_option(options: &[String]) -> Option<&str> {
    if let Some(position) = options.iter().position(|option| option == "-f") {
        if let Some(path) = options.get(position + 1) {
            return Some(path);
        }
    }
    options.iter().find_map(|option| option.strip_prefix("-f"))
}

/// Splits the words of proc(5), each of which ends with a zero byte.
fn split_words(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    fn judge_sources(
        health: Vec<SourceHealth>,
        has_slurm: bool,
        other_slurm_conf: Option<&str>,
    ) -> Vec<Finding> {
        let other_slurm_conf = other_slurm_conf.map(str::to_owned);
        SourceFacts {
            health: Ok(health),
            has_slurm,
            other_slurm_conf,
            conf: "/etc/security/job_adopt.conf".into(),
        }
        .findings()
    }

    fn severities(answer: Result<SourceReport, SourceError>, has_slurm: bool) -> Vec<Severity> {
        let took = Duration::ZERO;
        let slurm = SourceHealth {
            source: SourceName::Slurm,
            answer,
            took,
        };
        let registry = SourceHealth {
            source: SourceName::Registry,
            answer: Ok(SourceReport::default()),
            took,
        };
        let findings = judge_sources(vec![slurm, registry], has_slurm, None);
        let of_slurm = findings
            .into_iter()
            .filter(|finding| finding.object == "slurm");
        of_slurm.map(|finding| finding.severity).collect()
    }

    #[test]
    fn answer_of_source_decides_severity() {
        use Severity::{Error, Fine, Warning};
        let absent = || Err(SourceError::Absent("x".into()));
        assert_eq!(severities(Ok(SourceReport::default()), true), [Fine]);
        assert_eq!(severities(absent(), false), [Fine]);
        assert_eq!(severities(absent(), true), [Warning]);
        assert_eq!(
            severities(Err(SourceError::Failed("x".into())), false),
            [Error]
        );
        let names = || vec!["x".to_owned()];
        let broken = SourceReport {
            broken: names(),
            silent: names(),
            ..SourceReport::default()
        };
        assert_eq!(severities(Ok(broken), true), [Error, Warning]);
        let foreign = SourceReport {
            foreign: names(),
            ..SourceReport::default()
        };
        assert_eq!(severities(Ok(foreign), true), [Warning]);
    }

    #[test]
    fn node_without_any_source_is_an_error() {
        let answer = Err(SourceError::Absent("x".into()));
        let health = SourceHealth {
            source: SourceName::Slurm,
            answer,
            took: Duration::ZERO,
        };
        let findings = judge_sources(vec![health], false, None);
        let has_error = findings
            .iter()
            .any(|finding| finding.severity == Severity::Error);
        assert!(has_error, "{findings:?}");
    }

    #[test]
    fn sources_that_could_not_be_queried_are_unknown() {
        let health = Err("no account".to_owned());
        let findings = SourceFacts {
            health,
            has_slurm: false,
            other_slurm_conf: None,
            conf: "/etc/security/job_adopt.conf".into(),
        }
        .findings();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Unknown);
    }

    /// Starting the daemon, which runs, would not help.
    #[test]
    fn remedy_names_the_configuration_of_a_running_slurmd() {
        let answer = Err(SourceError::Absent("x".into()));
        let health = SourceHealth {
            source: SourceName::Slurm,
            answer,
            took: Duration::ZERO,
        };
        let conf = Some("/opt/slurm/etc/slurm.conf");
        let findings = judge_sources(vec![health], false, conf);
        assert_eq!(findings.len(), 2);
        for finding in findings {
            let remedy = finding.remedy;
            assert!(
                remedy
                    .advice()
                    .contains("slurm_conf = /opt/slurm/etc/slurm.conf"),
                "{remedy}"
            );
        }
    }

    /// A key in a section refuses everybody.
    #[test]
    fn slurm_conf_is_named_above_sections_or_in_place_of_another() {
        let scratch = Scratch::new();
        let conf = scratch.path().join("job_adopt.conf");
        let name = conf.display();
        let key = "slurm_conf = /opt/slurm.conf";
        for (text, expected) in [
            (None, format!("{name}: at its end write \"{key}\"")),
            (Some(""), format!("{name}: at its end write \"{key}\"")),
            (
                Some("[devices]\nfpga = /dev/fpga0\n"),
                format!("{name}:1: above it write \"{key}\""),
            ),
            (
                Some("end_grace = 3\n\tslurm_conf\t= /old\n"),
                format!("{name}:2: in place of \"slurm_conf\t= /old\" write \"{key}\""),
            ),
        ] {
            if let Some(text) = text {
                scratch.file("job_adopt.conf", text);
            }
            let remedy = name_slurm_conf(&conf, "/opt/slurm.conf");
            assert_eq!(remedy.command(), "");
            assert_eq!(
                remedy.advice(),
                format!("{expected}; since the running slurmd reads that file")
            );
        }
    }

    /// With mounts of its own, slurmd reads another file of that name.
    #[test]
    fn configuration_of_slurmd_is_taken_only_if_it_is_this_nodes_file() {
        let scratch = Scratch::new();
        scratch.file("slurm.conf", "");
        let path = scratch.path().join("slurm.conf").display().to_string();
        scratch.file("proc/cmdline", &format!("slurmd\0-f\0{path}\0"));
        let proc_dir = scratch.path().join("proc");
        symlink("/", proc_dir.join("root")).unwrap();
        assert_eq!(read_slurm_conf(&proc_dir).as_ref(), Some(&path));
        fs::remove_file(proc_dir.join("root")).unwrap();
        symlink(scratch.path().join("container"), proc_dir.join("root")).unwrap();
        assert_eq!(read_slurm_conf(&proc_dir), None);
        scratch.file(&format!("container{path}"), "");
        assert_eq!(read_slurm_conf(&proc_dir), None);
    }

    #[test]
    fn configuration_of_slurmd_is_read_from_its_options_or_environment() {
        let site_environment = b"PATH=/bin\0SLURM_CONF=/e/slurm.conf\0".as_slice();
        for (command_line, environment, conf) in [
            ("slurmd\0-D\0", site_environment, Some("/e/slurm.conf")),
            (
                "slurmd\0-D\0-f\0/f/slurm.conf\0",
                site_environment,
                Some("/f/slurm.conf"),
            ),
            ("slurmd\0-f/f/slurm.conf\0", b"", Some("/f/slurm.conf")),
            ("slurmd\0-f\0slurm.conf\0", b"", None),
            ("slurmd\0--conf-server\0x\0", b"XSLURM_CONF=/x", None),
            (
                "slurmd\0",
                b"SLURM_CONF=/a\nenforce = if-exists:/none",
                None,
            ),
            ("", b"", None),
        ] {
            let found = slurm_conf_of(command_line.as_bytes(), environment);
            assert_eq!(found.as_deref(), conf, "{command_line}");
        }
    }
}
