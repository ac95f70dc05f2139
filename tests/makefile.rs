//! What the Makefile decides before it builds anything.
#![allow(clippy::unwrap_used, reason = "a test that fails has to say so at once")]
#![forbid(unsafe_code)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn make(arguments: &[&str]) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments);
    for name in ["MAKEFLAGS", "MAKELEVEL", "SECURITYDIR", "UNITDIR"] {
        make.env_remove(name);
    }
    make
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// An empty folder.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn another_prefix_needs_a_place_for_the_module() {
    for goal in ["install", "uninstall"] {
        let refused = make(&["-n", goal, "PREFIX=/usr/local"]).output().unwrap();
        assert!(!refused.status.success(), "{goal}");
        assert!(words(&refused).contains("SECURITYDIR"), "{}", words(&refused));
    }
    let given = ["-n", "install", "PREFIX=/opt/x", "SECURITYDIR=/lib/security", "DESTDIR=/stage"];
    let given = make(&given).output().unwrap();
    assert!(given.status.success(), "{}", words(&given));
    for text in [
        "/stage/lib/security/pam_job_adopt.so",
        "helper=/opt/x/libexec/job-adopt/resolve",
        "/stage/opt/x/lib/systemd/system/job-adopt-callerid.socket",
        "/stage/opt/x/lib/systemd/system/run-job\\x2dadopt-use.mount\"",
        "=/opt/x/bin/",
        "\"/stage/usr/share/dbus-1/system.d/job-adopt.conf\"",
        "\"/stage/opt/x/share/job-adopt/systemd/user-.slice.d/job-adopt.conf\"",
        "\"/stage/opt/x/share/job-adopt/systemd/cron.service.d/job-adopt.conf\"",
    ] {
        assert!(words(&given).contains(text), "{text}: {}", words(&given));
    }
}

/// As from a recipe whose pkg-config does not know systemd.
#[test]
fn an_empty_place_for_units_is_the_usual_one() {
    for (given, at) in [("UNITDIR=", "/stage/usr/lib/systemd/system/"), ("UNITDIR=/x", "/stage/x/")]
    {
        for goal in ["install", "uninstall"] {
            let output = make(&["-n", goal, "DESTDIR=/stage", given]).output().unwrap();
            let unit = format!("\"{at}job-adopt-callerid.socket");
            assert!(words(&output).contains(&unit), "{goal} {given}: {}", words(&output));
        }
    }
}

#[test]
fn the_compilers_architecture_decides_where_the_module_goes() {
    let folder = scratch("multiarch");
    for name in ["aa-linux-gnu", "zz-linux-gnu"] {
        let security = folder.join(name).join("security");
        std::fs::create_dir_all(&security).unwrap();
        std::fs::write(security.join("pam_permit.so"), "").unwrap();
    }
    let compiler = folder.join("compiler");
    std::fs::write(&compiler, "#!/bin/sh\necho zz-linux-gnu\n").unwrap();
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).unwrap();
    let [lib, compiler] = [("LIB", &folder), ("CC", &compiler)]
        .map(|(name, path)| format!("{name}={}", path.display()));
    for more in ["PREFIX=/usr", "SECURITYDIR="] {
        let arguments = ["-n", "install", "DESTDIR=/stage", &lib, &compiler, more];
        let output = make(&arguments).output().unwrap();
        assert!(words(&output).contains("/zz-linux-gnu/security/pam_job_adopt.so"), "{more}");
        assert!(!words(&output).contains("aa-linux-gnu"), "{}", words(&output));
    }
}

#[test]
fn a_missing_package_is_named_once() {
    let programs = scratch("programs");
    for name in ["id", "sed", "find"] {
        let program = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        symlink(program.iter().find(|path| path.exists()).unwrap(), programs.join(name)).unwrap();
    }
    let needs = "LINT_NEEDS=no-such-program=first|second /no/such/file=third";
    // Without apt-get nothing is installed.
    let mut make = make(&["lint", "BUILD_NEEDS=", needs, &format!("PATH={}", programs.display())]);
    let output = make.output().unwrap();
    assert!(!output.status.success());
    assert!(words(&output).contains("please install: first third\n"), "{}", words(&output));
}

/// Installs a package by an `apt-get` that asks, as Debian's packages do, whether a service may
/// start, and returns what it was told.
fn installing(folder: &Path, policy: &Path) -> String {
    let asked = format!("[ $1 != install ] || sh {}; echo told $?", policy.display());
    for (name, text) in [("id", "echo 0"), ("apt-get", &asked), ("apt-cache", "true")] {
        let program = folder.join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("PATH={}:/usr/bin:/bin", folder.display());
    let policy = format!("POLICY={}", policy.display());
    let needs = "LINT_NEEDS=no-such-program=first";
    words(&make(&["lint", "CARGO=true", "BUILD_NEEDS=", needs, &path, &policy]).output().unwrap())
}

#[test]
fn a_package_that_is_installed_starts_no_service() {
    let folder = scratch("packages");
    let policy = folder.join("policy");
    assert!(installing(&folder, &policy).contains("told 101"));
    assert!(!policy.exists(), "the machine's own installations are kept from starting services");
    std::fs::write(&policy, "exit 7\n").unwrap();
    assert!(installing(&folder, &policy).contains("told 7"));
    assert!(policy.exists(), "the machine's own policy is gone");
}

/// A launcher that is missing would skip its tests.
#[test]
fn launchers_of_ranks_are_installed_for_the_tests() {
    let print = "--eval=needed: ; @echo $(TEST_NEEDS)";
    let needs = words(&make(&[print, "needed"]).output().unwrap());
    for pair in ["mpirun=openmpi-bin", "mpiexec.hydra=mpich", "pdsh=pdsh"] {
        assert!(needs.split_whitespace().any(|need| need == pair), "{pair}: {needs}");
    }
}

/// A build with a patch has the same version, and may speak another protocol.
#[test]
fn builds_of_other_source_have_other_names() {
    let folder = scratch("build-name");
    let script = folder.join("build");
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    let compiled = Command::new(rustc).args(["--edition=2024", source, "-o"]).arg(&script).output();
    assert!(compiled.as_ref().unwrap().status.success(), "{}", words(compiled.as_ref().unwrap()));
    let name = |case: &str, file: &str, text: &str| {
        let path = folder.join(case).join("src/below").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        let mut script = Command::new(&script);
        script
            .current_dir(folder.join(case))
            .env("CARGO_PKG_VERSION", "1.2.3")
            .env_remove("OUT_DIR");
        let said = words(&script.output().unwrap());
        let name = said.lines().find_map(|line| line.strip_prefix("cargo:rustc-env=BUILD="));
        name.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let one = name("one", "a.rs", "fn a() {}");
    assert!(one.strip_prefix("1.2.3+").is_some_and(|sum| sum.len() == 8), "{one}");
    assert_eq!(name("another", "a.rs", "fn a() {}"), one);
    assert_ne!(name("text", "a.rs", "fn b() {}"), one);
    assert_ne!(name("file", "b.rs", "fn a() {}"), one);
}

#[test]
fn another_machine_has_its_own_compiler_folders_and_module_path() {
    let arguments = ["-n", "install", "DESTDIR=/stage", "MACHINE=aarch64", "BUILD_NEEDS="];
    let said = words(&make(&arguments).output().unwrap());
    for text in [
        "--target=aarch64-unknown-linux-gnu --profile module",
        "packaging/floor/cc",
        "aarch64-linux-gnu-strip -o",
        "/glibc-2.28-aarch64/resolve",
        "qemu-aarch64-static",
        "/stage/usr/lib/aarch64-linux-gnu/security/pam_job_adopt.so",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
    // A variable of this name in the environment is somebody else's.
    let own =
        words(&make(&["-n", "all", "BUILD_NEEDS="]).env("MACHINE", "aarch64").output().unwrap());
    assert!(!own.contains("aarch64-unknown"), "{own}");
}
