//! Checks the blocks of `Match` in sshd's configuration that choose another PAM service for some connections. `sshd -T`
//! shows none of them, since it is not told of a connection.

use super::finding::{Check, Finding};
use command::shell::shell_word;
use facts::sshd::config_files::ConfigFiles;
use helper::stack::{Group, StackFinding, judge_stack};
use std::path::Path;

/// The key that chooses the service, in lower case. In a block it counts from OpenSSH 9.8 on. `UsePAM` cannot stand in
/// one: sshd then refuses its configuration.
const SERVICE_KEY: &str = "pamservicename";
/// The criterion that holds for all connections: `sshd -T` shows its values.
const ALL: &str = "all";

/// Reports each line that gives some connections another PAM service than the one that is checked, by the stack of that
/// service below `root`. It is a warning if the stack does not take every login into a job, and else a note: only a check
/// of that service looks at the rest of it.
pub(super) fn judge_match_blocks(
    files: &ConfigFiles,
    root: &Path,
    checked_service: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (criteria, line) in files.list_in_match(SERVICE_KEY) {
        let service = line.value.as_str();
        if service == checked_service || criteria.eq_ignore_ascii_case(ALL) {
            continue;
        }
        let text =
            format!("gives the connections of \"Match {criteria}\" the PAM service {service}");
        let call = format!("job-adopt check --service {}", shell_word(service));
        findings.push(match judge_stack(root, service, Group::Session) {
            StackFinding::Effective(_) => {
                let text = format!("{text}, which was not checked");
                let remedy = format!("check that one: {call}");
                Finding::note(Check::SshdService, &line.place, text, remedy)
            }
            gap => {
                let text = format!("{text}, which takes not all of them into jobs: {gap}");
                let remedy = format!(
                    "remove the line, or see what its stack lacks: {call}; for operators alone this may be meant"
                );
                Finding::warning(Check::SshdService, &line.place, text, remedy)
            }
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    /// Names the severity, line and service of each finding about the service sshd.
    fn judge(config: &str) -> Vec<String> {
        let scratch = Scratch::new();
        let ours = "session required pam_job_adopt.so service=sshd-jobs\n";
        scratch.file("etc/pam.d/sshd-jobs", ours);
        scratch.file("etc/pam.d/sshd-open", "session required pam_permit.so\n");
        scratch.file("included", "Match Group staff\nPAMServiceName sshd-open\n");
        let root = scratch.path().display().to_string();
        let file = scratch.file("conf", &config.replace("ROOT", &root));
        let findings = judge_match_blocks(&ConfigFiles::read(&file), scratch.path(), "sshd");
        let show = |finding: &Finding| {
            let place = finding.object.rsplit('/').next().unwrap_or_default();
            let (_, service) = finding.remedy.advice().split_once("--service ").unwrap();
            let service = service.split(';').next().unwrap_or_default();
            format!("{:?} {place} {service}", finding.severity)
        };
        findings.iter().map(show).collect()
    }

    #[test]
    fn service_of_some_connections_is_named() {
        for (config, expected) in [
            ("UsePAM yes\n", &[][..]),
            ("PAMServiceName sshd-open\n", &[]),
            ("Match all\nPAMServiceName sshd-open\n", &[]),
            ("Match User bob\nPAMServiceName sshd\n", &[]),
            ("Match User bob\nPAMServiceName sshd # x\n", &[]),
            ("Match all # x\nPAMServiceName sshd-open\n", &[]),
            (
                "Match User bob\n PAMServiceName sshd-open\n",
                &["Warning conf:2 sshd-open"],
            ),
            (
                "Match User bob\n PAMServiceName \"sshd-jobs\"\n",
                &["Note conf:2 sshd-jobs"],
            ),
            (
                "Match user=bob\nBanner none\nMatch Address 10.0.0.0/8\npamservicename=sshd-none\n",
                &["Warning conf:4 sshd-none"],
            ),
            (
                "Match User bob\nInclude ROOT/included\nPAMServiceName sshd-jobs\n",
                &["Warning included:2 sshd-open", "Note conf:3 sshd-jobs"],
            ),
            (
                "Include ROOT/included\nPAMServiceName sshd-open\n",
                &["Warning included:2 sshd-open"],
            ),
        ] {
            assert_eq!(judge(config), expected, "{config}");
        }
    }

    #[test]
    fn criteria_of_all_blocks_around_a_line_are_named() {
        let scratch = Scratch::new();
        let inner = scratch.file("inner", "Match Group staff\nPAMServiceName x\n");
        let text = format!(
            "Match User bob,!eve Host *.site\nInclude {}\n",
            inner.display()
        );
        let files = ConfigFiles::read(&scratch.file("outer", &text));
        let findings = judge_match_blocks(&files, scratch.path(), "sshd");
        let [finding] = findings.as_slice() else {
            panic!("{findings:?}")
        };
        let criteria = "\"Match User bob,!eve Host *.site and Group staff\"";
        assert!(finding.text.contains(criteria), "{finding:?}");
    }
}
