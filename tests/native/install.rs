//! Files that `make install` installs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Outcome, finished_dir, skip};

fn run_make(arguments: &[&str]) -> Outcome {
    let mut make = Command::new("make");
    make.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments);
    Outcome::run(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL"))
}

fn list_files(folder: &Path) -> Vec<(String, u32)> {
    let mut find = Command::new("find");
    let listed = Outcome::run(find.arg(folder).args(["-type", "f"])).ok().stdout;
    let relative = |path: &str| path.strip_prefix(&*folder.to_string_lossy()).unwrap().to_owned();
    let mode = |path: &str| std::fs::metadata(path).unwrap().mode() & 0o7777;
    listed.lines().map(|path| (relative(path), mode(path))).collect()
}

#[test]
fn staged_installation_is_complete_and_creates_no_account() {
    if finished_dir().is_none() {
        return skip("needs the finished files: run make test");
    }
    let stage = Path::new(env!("CARGO_TARGET_TMPDIR")).join("a stage");
    let _ = std::fs::remove_dir_all(&stage);
    let destination = format!("DESTDIR={}", stage.display());
    let accounts = std::fs::read("/etc/passwd").unwrap();
    run_make(&["install", &destination, "PREFIX=/usr"]).ok();
    assert_eq!(std::fs::read("/etc/passwd").unwrap(), accounts);
    let installed = list_files(&stage);
    let has = |end: &str, mode: u32| {
        assert!(
            installed.iter().any(|(path, found)| path.ends_with(end) && *found == mode),
            "{end}: {installed:?}"
        );
    };
    has("/security/pam_job_adopt.so", 0o644);
    // The helper's account cannot read the file, so the process can be neither traced nor dumped.
    has("/usr/libexec/job-adopt/resolve", 0o711);
    has("/usr/libexec/job-adopt/keeper", 0o755);
    has("/usr/libexec/job-adopt/in-use", 0o755);
    has("/usr/bin/job-adopt", 0o755);
    has("/usr/share/bash-completion/completions/job-adopt", 0o644);
    has("/usr/share/zsh/site-functions/_job-adopt", 0o644);
    has("/usr/share/fish/vendor_completions.d/job-adopt.fish", 0o644);
    has("/usr/lib/sysusers.d/job-adopt.conf", 0o644);
    has("/usr/lib/tmpfiles.d/job-adopt.conf", 0o644);
    has("/usr/share/man/man8/pam_job_adopt.8", 0o644);
    has("/usr/share/man/man8/job-adopt-callerid.8", 0o644);
    has("/usr/lib/systemd/system/job-adopt-callerid.socket", 0o644);
    has("/usr/lib/systemd/system/job-adopt-callerid@.service", 0o644);
    has("/usr/lib/systemd/system/job-adopt-favordynmods.service", 0o644);
    has("/usr/lib/systemd/system/job-adopt-notify.service", 0o644);
    has("/usr/lib/systemd/system/job-adopt-notify.timer", 0o644);
    has("/usr/lib/systemd/system-preset/90-job-adopt.preset", 0o644);
    for of in ["user-.slice", "user-0.slice", "cron.service", "crond.service", "atd.service"] {
        has(&format!("/usr/share/job-adopt/systemd/{of}.d/job-adopt.conf"), 0o644);
    }
    has("/usr/share/job-adopt/containers/containers.conf.d/job-adopt.conf", 0o644);
    has("/usr/share/job-adopt/selinux/job-adopt.cil", 0o644);
    has("/usr/share/dbus-1/system.d/job-adopt.conf", 0o644);
    // A drop-in for the unit of another package counts wherever systemd looks for units.
    let added = |path: &str| path.contains("/lib/systemd/") && path.contains(".d/");
    let enabled = |path: &str| path.contains(".wants/") || path.contains("/etc/") || added(path);
    assert!(!installed.iter().any(|(path, _)| enabled(path)), "{installed:?}");
    run_make(&["uninstall", &destination, "PREFIX=/usr"]).ok();
    assert_eq!(list_files(&stage), []);
    assert!(
        !stage.join("usr/share/job-adopt").exists()
            && !stage.join("usr/libexec/job-adopt").exists()
    );
    std::fs::remove_dir_all(&stage).unwrap();
}

/// A stack that names a missing module refuses everybody, root included.
#[test]
fn module_in_use_is_not_removed() {
    if finished_dir().is_none() {
        return skip("needs the finished files: run make test");
    }
    let stage = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stage-in-use");
    let stacks = stage.join("etc/pam.d");
    std::fs::create_dir_all(&stacks).unwrap();
    std::fs::write(stacks.join("sshd"), "session required pam_job_adopt.so\n").unwrap();
    let destination = format!("DESTDIR={}", stage.display());
    run_make(&["uninstall", &destination]).fails().says("etc/pam.d/sshd");
    std::fs::write(stacks.join("sshd"), "#session required pam_job_adopt.so\n").unwrap();
    run_make(&["uninstall", &destination]).ok();
    let drop_in = "etc/systemd/system/user-.slice.d";
    std::fs::create_dir_all(stage.join(drop_in)).unwrap();
    std::fs::write(stage.join(drop_in).join("job-adopt.conf"), "").unwrap();
    run_make(&["uninstall", &destination]).fails().says(drop_in);
    std::fs::remove_dir_all(&stage).unwrap();
}
