//! What make does without a compiler: it installs and removes finished files, and refuses what
//! cannot work.
#![allow(clippy::unwrap_used, reason = "a failing test must report at once")]
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn make(arguments: &[&str]) -> Output {
    let mut make = Command::new("make");
    make.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments);
    for name in ["MAKEFLAGS", "MAKELEVEL", "SECURITYDIR", "UNITDIR", "MACHINE"] {
        make.env_remove(name);
    }
    make.output().unwrap()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A folder of finished files, and a folder to install them into.
struct Stage {
    built: PathBuf,
    destination: PathBuf,
}

impl Stage {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("make").join(name);
        let _ = fs::remove_dir_all(&folder);
        let stage = Self { built: folder.join("built"), destination: folder.join("a stage") };
        fs::create_dir_all(stage.built.join("completions")).unwrap();
        fs::create_dir_all(&stage.destination).unwrap();
        for file in ["pam_job_adopt.so", "resolve", "keeper", "job-adopt"] {
            fs::write(stage.built.join(file), file).unwrap();
        }
        for shell in ["bash", "zsh", "fish"] {
            fs::write(stage.built.join("completions").join(shell), shell).unwrap();
        }
        stage
    }

    fn make(&self, goal: &str, arguments: &[&str]) -> Output {
        let built = format!("BUILT={}", self.built.display());
        let destination = format!("DESTDIR={}", self.destination.display());
        make(&[&[goal, &built, &destination], arguments].concat())
    }

    fn install(&self, arguments: &[&str]) -> BTreeSet<String> {
        let output = self.make("install", arguments);
        assert!(output.status.success(), "{}", output_text(&output));
        self.files()
    }

    /// Lists the installed files, as paths below the stage.
    fn files(&self) -> BTreeSet<String> {
        let mut folders = vec![self.destination.clone()];
        let mut files = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let path = path.strip_prefix(&self.destination).unwrap();
                    files.insert(format!("/{}", path.display()));
                }
            }
        }
        files
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(format!("{}{path}", self.destination.display())).unwrap()
    }
}

/// PAM looks for modules in one folder only.
#[test]
fn other_prefix_requires_securitydir() {
    let stage = Stage::new("prefix");
    for goal in ["install", "uninstall"] {
        let refused = stage.make(goal, &["PREFIX=/usr/local"]);
        assert!(!refused.status.success(), "{goal}");
        assert!(output_text(&refused).contains("SECURITYDIR"), "{}", output_text(&refused));
        assert!(stage.files().is_empty(), "{:?}", stage.files());
    }
}

#[test]
fn other_prefix_is_installed_completely_and_removed_again() {
    let stage = Stage::new("opt");
    let folders = ["PREFIX=/opt/x", "SECURITYDIR=/lib/security"];
    let output = stage.make("install", &folders);
    assert!(output.status.success(), "{}", output_text(&output));
    // The module finds its helper under the default prefix only.
    assert!(output_text(&output).contains("helper=/opt/x/libexec/job-adopt/resolve"));
    let files = stage.files();
    for path in [
        "/lib/security/pam_job_adopt.so",
        "/opt/x/libexec/job-adopt/resolve",
        "/opt/x/lib/systemd/system/job-adopt-callerid.socket",
        "/opt/x/lib/systemd/system/run-job\\x2dadopt-use.mount",
        "/usr/share/dbus-1/system.d/job-adopt.conf",
        "/opt/x/share/job-adopt/systemd/user-.slice.d/job-adopt.conf",
        "/opt/x/share/job-adopt/slurm/prolog.sh",
        "/opt/x/share/job-adopt/monitoring/nrpe.cfg",
        "/opt/x/share/man/man8/pam_job_adopt.8",
    ] {
        assert!(files.contains(path), "{path}: {files:?}");
    }
    assert!(!files.iter().any(|path| path.ends_with(".new")), "{files:?}");
    assert_eq!(stage.read("/lib/security/pam_job_adopt.so"), "pam_job_adopt.so");
    let units = files.iter().filter(|path| path.starts_with("/opt/x/lib/systemd/system/"));
    let mut started = 0;
    for unit in units.filter(|path| path.ends_with(".service")) {
        let text = stage.read(unit);
        assert!(!text.contains("=/usr/bin/job-adopt"), "{unit}");
        started += text.matches("=/opt/x/bin/job-adopt").count();
    }
    assert!(started > 0);
    let removed = stage.make("uninstall", &folders);
    assert!(removed.status.success(), "{}", output_text(&removed));
    assert!(stage.files().is_empty(), "{:?}", stage.files());
}

/// A recipe whose pkg-config does not know systemd passes an empty value.
#[test]
fn empty_unitdir_means_default() {
    for (argument, folder) in [("UNITDIR=", "/usr/lib/systemd/system"), ("UNITDIR=/x", "/x")] {
        let stage = Stage::new("unitdir");
        let files = stage.install(&[argument]);
        assert!(files.contains(&format!("{folder}/job-adopt-callerid.socket")), "{files:?}");
        assert!(stage.make("uninstall", &[argument]).status.success());
        assert!(stage.files().is_empty(), "{:?}", stage.files());
    }
}

#[test]
fn architecture_of_compiler_selects_securitydir() {
    let stage = Stage::new("multiarch");
    for name in ["aa-linux-gnu", "zz-linux-gnu"] {
        let security = stage.built.join(name).join("security");
        fs::create_dir_all(&security).unwrap();
        fs::write(security.join("pam_permit.so"), "").unwrap();
    }
    let compiler = stage.built.join("compiler");
    fs::write(&compiler, "#!/bin/sh\necho zz-linux-gnu\n").unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    let libraries = format!("LIB={}", stage.built.display());
    let compiler = format!("CC={}", compiler.display());
    for more in ["PREFIX=/usr", "SECURITYDIR="] {
        let files = stage.install(&[&libraries, &compiler, more]);
        let modules: Vec<_> =
            files.iter().filter(|path| path.ends_with("/pam_job_adopt.so")).collect();
        assert_eq!(modules.len(), 1, "{modules:?}");
        assert!(modules[0].ends_with("/zz-linux-gnu/security/pam_job_adopt.so"), "{modules:?}");
    }
}

/// A release archive names its maintainer; this tree does not.
#[test]
fn release_without_maintainer_is_refused() {
    let control = Path::new(env!("CARGO_MANIFEST_DIR")).join("debian/control");
    if fs::read_to_string(control).unwrap().contains("\nMaintainer:") {
        return;
    }
    for maintainer in ["", "Nobody", "root <root@localhost>"] {
        let refused = make(&["dist", "DRAFT=", &format!("MAINTAINER={maintainer}")]);
        assert!(!refused.status.success(), "{maintainer}");
        assert!(output_text(&refused).contains("MAINTAINER="), "{}", output_text(&refused));
    }
}

/// Lists the pages for people and the manual pages.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs", "docs/man"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                pages.push(path);
            }
        }
    }
    pages
}

/// A path on a page may end in a folder or in a pattern.
#[test]
fn every_path_of_ours_on_a_page_is_installed() {
    let stage = Stage::new("pages");
    let files = stage.install(&[]);
    let mut named = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap().replace("\\-", "-");
        for folder in ["/usr/share/job-adopt/", "/usr/libexec/job-adopt/"] {
            for (at, _) in text.match_indices(folder) {
                let ends = |c: char| c.is_whitespace() || "*`'\"()[],;|<>\\".contains(c);
                let path = text[at..].split(ends).next().unwrap().trim_end_matches(['.', ':', '/']);
                named += 1;
                assert!(
                    files.iter().any(|file| file.starts_with(path)),
                    "{}: {path} is not installed",
                    page.display()
                );
            }
        }
    }
    assert!(named > 10, "{named} paths");
}

/// The suite does not exist, so that a run which starts all the same fails.
#[test]
fn dry_run_of_test_starts_nothing() {
    let output = make(&["-n", "test", "SUITE=no-such-suite"]);
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(output_text(&output).contains("tests/all"), "{}", output_text(&output));
}
