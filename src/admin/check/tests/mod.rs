//! What a site has set up, over sites laid out in a folder.

mod files;
mod stacks;

use super::*;
use crate::check::finding::Severity;
use crate::testing::Scratch;
use helper::Config;
use protocol::SPEAKS_TO;

/// A good site, with the stack of the fragment for Debian.
struct Laid {
    scratch: Scratch,
    conf: String,
}

const SSHD: &str = "auth required pam_unix.so\naccount required pam_nologin.so\n\
    account required pam_job_adopt.so\naccount include common\nsession required pam_loginuid.so\n\
    session include common\nsession required pam_limits.so\nsession required pam_job_adopt.so\n";
const COMMON: &str = "account [success=1 new_authtok_reqd=done default=ignore] pam_unix.so\n\
    account requisite pam_deny.so\naccount required pam_permit.so\n\
    session [default=1] pam_permit.so\nsession requisite pam_deny.so\n\
    session required pam_permit.so\nsession required pam_unix.so\nsession optional pam_systemd.so\n";
const PASSWD: &str = "root:x:0:0::/root:/bin/bash\njob-adopt:x:990:990::/:/usr/sbin/nologin\n\
    slurm:x:64030:64030::/:/usr/sbin/nologin\n";

impl Laid {
    fn new() -> Self {
        let scratch = Scratch::new();
        for (name, text) in [
            ("etc/pam.d/sshd", SSHD),
            ("etc/pam.d/common", COMMON),
            ("etc/passwd", PASSWD),
            ("etc/security/job_adopt.conf", ""),
            ("usr/lib/security/pam_permit.so", ""),
            ("usr/lib/security/pam_job_adopt.so", SPEAKS_TO),
            ("usr/libexec/job-adopt/resolve", SPEAKS_TO),
        ] {
            scratch.file(name, text);
        }
        scratch.mode("usr/libexec/job-adopt/resolve", 0o711);
        scratch.dir("run/job-adopt/jobs");
        Self { scratch, conf: String::new() }
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

    fn found(&self) -> Vec<Finding> {
        let root = self.scratch.path().to_owned();
        let registry = format!("registry = {}/run/job-adopt/jobs\n", root.display());
        let text = format!("{registry}{}", self.conf);
        let config = Config::parse(text.as_bytes()).unwrap_or_default();
        let conf = root.join("etc/security/job_adopt.conf");
        set_up(&Site::of(root, "sshd", conf, config))
    }

    /// Every finding that is not fine: severity, check and where, the last part of its object.
    fn amiss(&self) -> Vec<String> {
        let bad = self.found().into_iter().filter(|one| one.severity != Severity::Fine);
        let shown = |one: Finding| {
            assert!(!one.text.is_empty(), "{one:?}");
            let end = one.object.rsplit('/').next().unwrap_or_default().to_owned();
            format!("{:?} {} {end}", one.severity, one.check)
        };
        bad.map(shown).collect()
    }

    #[track_caller]
    fn is(&self, expected: &[&str]) {
        assert_eq!(self.amiss(), expected, "{:#?}", self.found());
    }

    /// Whether a text or remedy of a finding that is not fine says this.
    #[track_caller]
    fn says(&self, part: &str) {
        let found = self.found();
        let says = |one: &Finding| one.text.contains(part) || one.remedy.contains(part);
        assert!(found.iter().any(says), "{part}: {found:#?}");
    }
}

#[test]
fn a_good_site_has_nothing_amiss() {
    Laid::new().is(&[]);
}
