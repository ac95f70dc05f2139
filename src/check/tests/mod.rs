//! Tests of the checks of a site's files, on sites written into a temporary folder.

mod files;
mod stacks;

use super::*;
use crate::finding::{Finding, Severity};
use crate::testing::Scratch;
use helper::Config;
use protocol::VERSION_MISMATCH;

/// A good site in a temporary folder, with Debian's stack and our lines.
struct TestSite {
    scratch: Scratch,
    conf: String,
}

const SSHD: &str = "auth include login-auth\naccount required pam_nologin.so\n\
    account required pam_job_adopt.so\naccount include common\nsession required pam_loginuid.so\n\
    session include common\nsession required pam_limits.so\nsession required pam_job_adopt.so\n";
const LOGIN_AUTH: &str = "auth required pam_job_adopt.so\nauth required pam_unix.so\n\
    auth required pam_job_adopt.so\n";
const COMMON: &str = "account [success=1 new_authtok_reqd=done default=ignore] pam_unix.so\n\
    account requisite pam_deny.so\naccount required pam_permit.so\n\
    session [default=1] pam_permit.so\nsession requisite pam_deny.so\n\
    session required pam_permit.so\nsession required pam_unix.so\nsession optional pam_systemd.so\n";
const PASSWD: &str = "root:x:0:0::/root:/bin/bash\njob-adopt:x:990:990::/:/usr/sbin/nologin\n\
    slurm:x:64030:64030::/:/usr/sbin/nologin\n";

impl TestSite {
    fn new() -> Self {
        let scratch = Scratch::new();
        for (name, text) in [
            ("etc/pam.d/sshd", SSHD),
            ("etc/pam.d/common", COMMON),
            ("etc/pam.d/login-auth", LOGIN_AUTH),
            ("etc/passwd", PASSWD),
            ("etc/security/job_adopt.conf", ""),
            ("usr/lib/security/pam_permit.so", ""),
            ("usr/lib/security/pam_job_adopt.so", VERSION_MISMATCH),
            ("usr/libexec/job-adopt/helper", VERSION_MISMATCH),
        ] {
            scratch.file(name, text);
        }
        scratch.mode("usr/libexec/job-adopt/helper", 0o711);
        scratch.dir("run/job-adopt/jobs");
        Self {
            scratch,
            conf: String::new(),
        }
    }

    fn file(self, name: &str, text: &str) -> Self {
        self.scratch.file(name, text);
        self
    }

    fn mode(self, name: &str, mode: u32) -> Self {
        self.scratch.mode(name, mode);
        self
    }

    fn sshd(self, text: &str) -> Self {
        self.file("etc/pam.d/sshd", text)
    }

    fn conf(mut self, text: &str) -> Self {
        self.conf = text.to_owned();
        self.file("etc/security/job_adopt.conf", text)
    }

    fn findings(&self) -> Vec<Finding> {
        let root = self.scratch.path().to_owned();
        let registry = format!("registry = {}/run/job-adopt/jobs\n", root.display());
        let text = format!("{registry}{}", self.conf);
        let config = Config::parse(text.as_bytes()).unwrap_or_default();
        let conf = root.join("etc/security/job_adopt.conf");
        SharedFacts::read(&Site::read(root, "sshd", conf, config)).judge_setup()
    }

    /// Returns the severity, the check and the last part of the object of each finding that is not
    /// fine.
    fn bad_findings(&self) -> Vec<String> {
        let findings = self.findings().into_iter();
        let bad = findings.filter(|finding| finding.severity != Severity::Fine);
        let shown = |finding: Finding| {
            assert!(!finding.text.is_empty(), "{finding:?}");
            let end = finding
                .object
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            format!("{:?} {} {end}", finding.severity, finding.check)
        };
        bad.map(shown).collect()
    }

    #[track_caller]
    fn assert_bad(&self, expected: &[&str]) {
        assert_eq!(self.bad_findings(), expected, "{:#?}", self.findings());
    }

    /// Asserts that the text or the remedy of a finding contains `part`.
    #[track_caller]
    fn assert_mentions(&self, part: &str) {
        let findings = self.findings();
        let mentions = |finding: &Finding| {
            finding.text.contains(part) || finding.remedy.to_string().contains(part)
        };
        assert!(findings.iter().any(mentions), "{part}: {findings:#?}");
    }
}

#[test]
fn good_site_has_no_bad_findings() {
    TestSite::new().assert_bad(&[]);
}
