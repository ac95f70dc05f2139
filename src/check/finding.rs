//! The findings of `check`, their report, and its forms for people, programs and monitoring.

use super::remedy::Remedy;
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE};
use command::output::Output;
use helper::printable;
use protocol::string_enum;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::Display;

string_enum! {
    /// How grave a finding is, the gravest first.
    #[derive(PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    Severity {
        /// Logins will be refused, or admitted outside of their jobs.
        Error = "error",
        /// A way past the confinement stays open, or something is weaker than it looks.
        Warning = "warning",
        /// It could not be told.
        Unknown = "unknown",
        /// Worth knowing; nothing is open and no user is locked out.
        Note = "note",
        /// As it should be.
        Fine = "fine",
    }
}

string_enum! {
    /// The name of a check, which scripts and monitoring rely on. Each one has an entry in job-adopt(1).
    Check {
        // What everything else needs.
        RootDirectory = "root-directory",
        // The service's stack.
        PamSession = "pam-session",
        PamAccount = "pam-account",
        PamAuth = "pam-auth",
        PamArguments = "pam-arguments",
        PamOpen = "pam-open",
        PamOrder = "pam-order",
        PamRival = "pam-rival",
        PamAlias = "pam-alias",
        // The programs of a login, and their packages.
        ModuleFile = "module-file",
        ModuleVersion = "module-version",
        ModuleLoaded = "module-loaded",
        Helper = "helper",
        HelperRun = "helper-run",
        Keeper = "keeper",
        Selinux = "selinux",
        Account = "account",
        // The configuration and the registry.
        SwitchedOff = "switched-off",
        Configuration = "configuration",
        Enforced = "enforced",
        AlwaysAllowed = "always-allowed",
        DeviceModes = "device-modes",
        LoginLimits = "login-limits",
        Registry = "registry",
        Records = "records",
        // The sources of jobs.
        Sources = "sources",
        SlurmConf = "slurm-conf",
        SlurmPrologFlags = "slurm-prolog-flags",
        SlurmCgroups = "slurm-cgroups",
        SlurmDevices = "slurm-devices",
        SlurmNamespace = "slurm-namespace",
        SlurmGres = "slurm-gres",
        SlurmSpool = "slurm-spool",
        FluxAccount = "flux-account",
        FluxLinger = "flux-linger",
        FluxExec = "flux-exec",
        FluxOomPolicy = "flux-oom-policy",
        FluxPam = "flux-pam",
        FluxFilter = "flux-filter",
        // The servers that take logins.
        SshdConfig = "sshd-config",
        SshdPam = "sshd-pam",
        SshdService = "sshd-service",
        SshdPenalties = "sshd-penalties",
        SshdStartups = "sshd-startups",
        SshdServer = "sshd-server",
        SshdNamespaces = "sshd-namespaces",
        SshdCgroupMount = "sshd-cgroup-mount",
        SshdFiles = "sshd-files",
        SshdLogins = "sshd-logins",
        SshdSystemCalls = "sshd-system-calls",
        SshdCapabilities = "sshd-capabilities",
        SshdMemlock = "sshd-memlock",
        SshOthers = "ssh-others",
        // The log.
        Refusals = "refusals",
        Nologin = "nologin",
        // The mounts.
        CgroupMount = "cgroup-mount",
        CgroupFavordynmods = "cgroup-favordynmods",
        ProcHidepid = "proc-hidepid",
        RunDirectory = "run-directory",
        UseMount = "use-mount",
        // The kernel.
        KernelPidfd = "kernel-pidfd",
        KernelCgroup = "kernel-cgroup",
        KernelFreezer = "kernel-freezer",
        KernelTrustedXattr = "kernel-trusted-xattr",
        KernelDeviceFilter = "kernel-device-filter",
        KernelFilterQuery = "kernel-filter-query",
        KernelFilterHolds = "kernel-filter-holds",
        // Users' slices, and what else runs outside of jobs.
        SlicesDropIn = "slices-drop-in",
        SlicesObserve = "slices-observe",
        SlicesExempt = "slices-exempt",
        SlicesClosed = "slices-closed",
        SlicesOthers = "slices-others",
        BusClosed = "bus-closed",
        CronClosed = "cron-closed",
        UsersOutsideJobs = "users-outside-jobs",
        SeveralJobs = "several-jobs",
        HelperLeft = "helper-left",
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The state of one object of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) check: Check,
    /// The object that was checked: a file and line, a unit, a user.
    pub(super) object: String,
    /// Its state, in one sentence.
    pub(super) text: String,
    /// What an admin should do; empty if there is nothing to do.
    #[serde(flatten)]
    pub(super) remedy: Remedy,
}

/// Declares a constructor for each severity: `fn error(check, object, text, remedy) -> Finding`.
macro_rules! severity_constructors {
    ($($name:ident: $severity:ident),*) => {
        $(pub(super) fn $name(
            check: Check,
            object: impl Display,
            text: impl Display,
            remedy: impl Into<Remedy>,
        ) -> Self {
            Self::new(Severity::$severity, check, object, text, remedy)
        })*
    };
}

impl Finding {
    severity_constructors!(error: Error, warning: Warning, unknown: Unknown, note: Note);

    pub(super) fn fine(check: Check, object: impl Display, text: impl Display) -> Self {
        Self::new(Severity::Fine, check, object, text, "")
    }

    /// Builds a finding about `object`; see the fields. An empty `remedy` means that there is nothing to do.
    pub(super) fn new(
        severity: Severity,
        check: Check,
        object: impl Display,
        text: impl Display,
        remedy: impl Into<Remedy>,
    ) -> Self {
        let object = object.to_string();
        let text = text.to_string();
        let remedy = remedy.into();
        #[cfg(test)]
        super::remedy::assert_pasteable(&remedy);
        Self {
            severity,
            check,
            object,
            text,
            remedy,
        }
    }
}

/// The state of the node for monitoring, and the exit statuses that show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    /// The state in Nagios' words.
    word: &'static str,
    /// The exit status of this command.
    pub(super) exit: u8,
    /// The exit status of a Nagios plugin.
    pub(super) nagios: u8,
    /// The exit status for NHC, which takes a node out of service for any but 0.
    pub(super) nhc: u8,
}

/// Every finding, the gravest first.
#[derive(Debug, Serialize)]
pub(super) struct CheckReport {
    schema: u32,
    findings: Vec<Finding>,
    /// The number of findings of each severity.
    counts: BTreeMap<Severity, usize>,
}

impl CheckReport {
    /// Sorts the findings, the gravest first, and counts them by severity.
    pub(super) fn new(mut findings: Vec<Finding>) -> Self {
        // The sort is stable: within a severity the findings keep the order of the checks, which
        // go from the login inwards. The off switch is last: it may be all that lets users in.
        findings.sort_by_key(|finding| (finding.severity, finding.check == Check::SwitchedOff));
        respect_off_switch(&mut findings);
        let mut counts = BTreeMap::from(Severity::ALL.map(|severity| (severity, 0)));
        for finding in &findings {
            *counts.entry(finding.severity).or_default() += 1;
        }
        Self {
            schema: 1,
            findings,
            counts,
        }
    }

    /// The gravest finding, if it is worse than a note.
    fn gravest(&self) -> Option<&Finding> {
        self.findings
            .first()
            .filter(|finding| finding.severity <= Severity::Unknown)
    }

    /// The state of the node. An error or a warning counts more than a check that could not be made.
    pub(super) fn status(&self) -> Status {
        match self.gravest().map(|finding| finding.severity) {
            Some(Severity::Error) => Status {
                word: "CRITICAL",
                exit: EXIT_FINDINGS,
                nagios: 2,
                nhc: 1,
            },
            Some(Severity::Warning) => Status {
                word: "WARNING",
                exit: EXIT_FINDINGS,
                nagios: 1,
                nhc: 0,
            },
            Some(_) => Status {
                word: "UNKNOWN",
                exit: EXIT_FAILED,
                nagios: 3,
                nhc: 0,
            },
            None => Status {
                word: "OK",
                exit: EXIT_FINE,
                nagios: 0,
                nhc: 0,
            },
        }
    }

    fn count(&self, severity: Severity) -> usize {
        self.counts.get(&severity).copied().unwrap_or_default()
    }

    /// The gravest finding and the counts in one line, as monitoring shows it.
    pub(super) fn monitoring_line(&self) -> String {
        let word = self.status().word;
        let errors = self.count(Severity::Error);
        let warnings = self.count(Severity::Warning);
        let unknown = self.count(Severity::Unknown);
        let gravest = match self.gravest() {
            Some(finding) => format!("{} {}: {}", finding.check, finding.object, finding.text),
            None => "no problem found".to_owned(),
        };
        // Nagios takes all text after a bar for performance data.
        let shown = printable(&gravest).replace('|', "/");
        format!(
            "JOB_ADOPT {word} - {shown} ({errors} errors, {warnings} warnings, {unknown} unknown) | \
             errors={errors} warnings={warnings} unknown={unknown}"
        )
    }

    /// Writes one line for each finding, with its remedy indented below it: a command that can be pasted behind
    /// `run:`, words for a person behind `do:`. Fine findings appear only
    /// if `verbose`. With `json` it writes all findings as one object instead.
    pub(super) fn write(
        &self,
        json: bool,
        verbose: bool,
        output: &mut Output<'_>,
    ) -> Result<(), Error> {
        if json {
            return output.json(self);
        }
        for finding in &self.findings {
            if finding.severity == Severity::Fine && !verbose {
                continue;
            }
            let severity = finding.severity.as_str();
            let check = finding.check;
            let object = printable(&finding.object);
            let text = printable(&finding.text);
            writeln!(output.out, "{severity} {check} {object}: {text}")?;
            for line in finding.remedy.lines() {
                writeln!(output.out, "{line}")?;
            }
        }
        // In the order of `Severity`, which is that of `counts` too.
        let names = ["errors", "warnings", "unknown", "notes", "fine"];
        let counts: Vec<String> = names
            .iter()
            .zip(self.counts.values())
            .map(|(name, count)| format!("{name}: {count}"))
            .collect();
        Ok(writeln!(output.out, "{}", counts.join(", "))?)
    }
}

/// While the module is switched off, says that switching it on comes last, unless it is the only error left, and corrects texts that say that logins are refused.
fn respect_off_switch(findings: &mut [Finding]) {
    let is_error = |finding: &&mut Finding| finding.severity == Severity::Error;
    let mut errors: Vec<&mut Finding> = findings.iter_mut().filter(is_error).collect();
    let Some((switch, others)) = errors.split_last_mut() else {
        return;
    };
    if switch.check != Check::SwitchedOff || others.is_empty() {
        return;
    }
    switch.remedy = format!(
        "last, when nothing else is an error: {}",
        switch.remedy.advice()
    )
    .into();
    for finding in others {
        if is_libpams_refusal(finding) {
            continue;
        }
        for refused in ["every login is refused", "logins are refused"] {
            let later = refused
                .replace(" is ", " will be ")
                .replace(" are ", " will be ");
            finding.text = finding
                .text
                .replace(refused, &format!("{later} when the module is on"));
        }
    }
}

/// Checks whether libpam refuses logins for this error, which it does without the module, and so without a code.
fn is_libpams_refusal(finding: &Finding) -> bool {
    let is_libpams = matches!(
        finding.check,
        Check::ModuleLoaded | Check::PamSession | Check::PamAccount | Check::PamAuth
    );
    is_libpams && !finding.text.contains("(JA")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../docs/man/job-adopt.1");

    #[test]
    fn every_check_has_entry_in_manual_and_every_entry_is_a_check() {
        let page = PAGE.replace("\\-", "-");
        let section = page.split(".SH CHECKS\n").nth(1).unwrap();
        let table = section
            .split("\n.nf\n")
            .nth(1)
            .unwrap()
            .split("\n.fi")
            .next()
            .unwrap();
        let mut described: Vec<&str> = Vec::new();
        for line in table.lines() {
            let (names, _) = line.split_once("  ").unwrap();
            described.extend(names.split(", "));
        }
        let mut checks: Vec<&str> = Check::ALL.iter().map(|check| check.as_str()).collect();
        described.sort_unstable();
        checks.sort_unstable();
        assert_eq!(described, checks);
    }

    fn report(severities: &[Severity]) -> CheckReport {
        let finding = |&severity: &Severity| {
            let mut finding = Finding::note(Check::PamOpen, "/a", "it is\nso", "change it");
            finding.severity = severity;
            if severity == Severity::Fine {
                finding.remedy = Remedy::default();
            }
            finding
        };
        CheckReport::new(severities.iter().map(finding).collect())
    }

    #[test]
    fn gravest_finding_decides_exit_status() {
        use Severity::{Error, Fine, Note, Unknown, Warning};
        for (severities, code) in [
            (&[][..], 0),
            (&[Fine, Note], 0),
            (&[Fine, Unknown], 3),
            (&[Unknown, Warning], 1),
            (&[Error], 1),
        ] {
            assert_eq!(report(severities).status().exit, code, "{severities:?}");
        }
    }

    #[test]
    fn monitoring_gets_one_line_and_own_exit_statuses() {
        use Severity::{Error, Note, Unknown, Warning};
        for (severities, word, nagios, nhc) in [
            (&[Note][..], "OK - no problem found (0 errors", 0, 0),
            (
                &[Unknown],
                "UNKNOWN - pam-open /a: it is?so (0 errors",
                3,
                0,
            ),
            (
                &[Unknown, Warning, Warning],
                "WARNING - pam-open /a: it is?so (0 errors, 2 warn",
                1,
                0,
            ),
            (
                &[Warning, Error],
                "CRITICAL - pam-open /a: it is?so (1 errors, 1 warnings, ",
                2,
                1,
            ),
        ] {
            let report = report(severities);
            let line = report.monitoring_line();
            assert!(line.starts_with(&format!("JOB_ADOPT {word}")), "{line}");
            let status = report.status();
            assert_eq!((status.nagios, status.nhc), (nagios, nhc), "{severities:?}");
            assert!(
                line.matches('|').count() == 1 && !line.contains('\n'),
                "{line}"
            );
        }
        let line = report(&[Error, Warning]).monitoring_line();
        assert!(line.ends_with("| errors=1 warnings=1 unknown=0"), "{line}");
    }

    #[test]
    fn text_has_gravest_first_and_fine_findings_only_if_verbose() {
        let report = report(&[Severity::Note, Severity::Fine, Severity::Error]);
        let text = |verbose| {
            let mut out = Vec::new();
            let mut err = Vec::new();
            let mut output = Output {
                out: &mut out,
                err: &mut err,
            };
            report.write(false, verbose, &mut output).unwrap();
            String::from_utf8(out).unwrap()
        };
        let first = "error pam-open /a: it is?so\n  do: change it\nnote pam-open /a: it is?so\n  do: change it\n";
        let last = "errors: 1, warnings: 0, unknown: 0, notes: 1, fine: 1\n";
        assert_eq!(text(false), format!("{first}{last}"));
        assert_eq!(
            text(true),
            format!("{first}fine pam-open /a: it is?so\n{last}")
        );
    }

    /// Removing the switch first would lock all users out.
    #[test]
    fn off_switch_comes_last_while_another_error_is_left() {
        let switch = || {
            let remedy = "then rm /run/job-adopt/off";
            Finding::error(Check::SwitchedOff, "/off", "is there", remedy)
        };
        let helper = |severity| {
            let text = "cannot be run, so every login is refused (JA09): x";
            Finding::new(severity, Check::Helper, "/h", text, "mend it")
        };
        let report = CheckReport::new(vec![switch(), helper(Severity::Error)]);
        let [first, last] = report.findings.as_slice() else {
            panic!("{report:?}");
        };
        assert_eq!(first.check, Check::Helper);
        assert_eq!(
            first.text,
            "cannot be run, so every login will be refused when the module is on (JA09): x"
        );
        assert_eq!(last.remedy.command(), "");
        assert_eq!(
            last.remedy.advice(),
            "last, when nothing else is an error: then rm /run/job-adopt/off"
        );
        // libpam refuses without the module, which the switch is for.
        let text = "cannot be loaded, so every login is refused, root's too";
        let unloaded = Finding::error(Check::ModuleLoaded, "/m", text, "mend it");
        for (found, gravest) in [
            (vec![switch(), unloaded.clone()], unloaded),
            (vec![helper(Severity::Warning), switch()], switch()),
            (vec![helper(Severity::Error)], helper(Severity::Error)),
        ] {
            assert_eq!(CheckReport::new(found).findings[0], gravest);
        }
    }

    #[test]
    fn json_has_every_finding() {
        let mut out = Vec::new();
        let mut err = Vec::new();
        let mut output = Output {
            out: &mut out,
            err: &mut err,
        };
        report(&[Severity::Unknown])
            .write(true, false, &mut output)
            .unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "schema": 1,
                "findings": [{ "severity": "unknown", "check": "pam-open", "object": "/a",
                    "text": "it is\nso", "remedy": "change it", "command": "" }],
                "counts": { "error": 0, "warning": 0, "unknown": 1, "note": 0, "fine": 0 },
            })
        );
    }
}
