//! Decisions of the Makefile before it builds anything.
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

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Makes an empty folder.
fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn other_prefix_requires_securitydir() {
    for goal in ["install", "uninstall"] {
        let refused = make(&["-n", goal, "PREFIX=/usr/local"]).output().unwrap();
        assert!(!refused.status.success(), "{goal}");
        assert!(output_text(&refused).contains("SECURITYDIR"), "{}", output_text(&refused));
    }
    let given = ["-n", "install", "PREFIX=/opt/x", "SECURITYDIR=/lib/security", "DESTDIR=/stage"];
    let given = make(&given).output().unwrap();
    assert!(given.status.success(), "{}", output_text(&given));
    for text in [
        "/stage/lib/security/pam_job_adopt.so",
        "helper=/opt/x/libexec/job-adopt/resolve",
        "/stage/opt/x/lib/systemd/system/job-adopt-callerid.socket",
        "/stage/opt/x/lib/systemd/system/run-job\\x2dadopt-use.mount\"",
        "=/opt/x/bin/",
        "\"/stage/usr/share/dbus-1/system.d/job-adopt.conf\"",
        "\"/stage/opt/x/share/job-adopt/systemd/user-.slice.d/job-adopt.conf\"",
        "\"/stage/opt/x/share/job-adopt/systemd/cron.service.d/job-adopt.conf\"",
        "-m 0755 /dev/stdin \"/stage/opt/x/share/job-adopt/slurm/prolog.sh.new\"",
        "-m 0644 /dev/stdin \"/stage/opt/x/share/job-adopt/monitoring/nrpe.cfg.new\"",
    ] {
        assert!(output_text(&given).contains(text), "{text}: {}", output_text(&given));
    }
}

/// A release archive names its maintainer; this tree does not.
#[test]
fn release_without_maintainer_is_refused() {
    let control = Path::new(env!("CARGO_MANIFEST_DIR")).join("debian/control");
    if std::fs::read_to_string(control).unwrap().contains("\nMaintainer:") {
        return;
    }
    for maintainer in ["", "Nobody", "root <root@localhost>"] {
        let refused =
            make(&["dist", "DRAFT=", &format!("MAINTAINER={maintainer}")]).output().unwrap();
        assert!(!refused.status.success(), "{maintainer}");
        assert!(output_text(&refused).contains("MAINTAINER="), "{}", output_text(&refused));
    }
}

/// A recipe whose pkg-config does not know systemd passes an empty value.
#[test]
fn empty_unitdir_means_default() {
    for (given, at) in [("UNITDIR=", "/stage/usr/lib/systemd/system/"), ("UNITDIR=/x", "/stage/x/")]
    {
        for goal in ["install", "uninstall"] {
            let output = make(&["-n", goal, "DESTDIR=/stage", given]).output().unwrap();
            let unit = format!("\"{at}job-adopt-callerid.socket");
            assert!(
                output_text(&output).contains(&unit),
                "{goal} {given}: {}",
                output_text(&output)
            );
        }
    }
}

#[test]
fn architecture_of_compiler_selects_securitydir() {
    let folder = empty_folder("multiarch");
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
        assert!(output_text(&output).contains("/zz-linux-gnu/security/pam_job_adopt.so"), "{more}");
        assert!(!output_text(&output).contains("aa-linux-gnu"), "{}", output_text(&output));
    }
}

#[test]
fn missing_packages_are_named_together() {
    let programs = empty_folder("programs");
    for name in ["id", "sed", "find"] {
        let program = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        symlink(program.iter().find(|path| path.exists()).unwrap(), programs.join(name)).unwrap();
    }
    let needs = "no-such-program=first|second /no/such/file|find=third /no/such/*/file=fourth";
    let path = format!("PATH={}", programs.display());
    // Without apt-get nothing is installed, and `lint` never installs anything.
    for arguments in
        [["needs", &format!("NEEDS={needs}")], ["lint", &format!("LINT_NEEDS={needs}")]]
    {
        let output = make(&arguments).arg(&path).output().unwrap();
        assert!(!output.status.success());
        assert!(
            output_text(&output).contains("please install: first|second fourth\n"),
            "{}",
            output_text(&output)
        );
    }
}

/// Only the suites that emulate another machine need an emulator of it.
#[test]
fn suite_of_aarch64_has_needs_of_its_own() {
    let programs = empty_folder("suite");
    let id = ["/usr/bin/id", "/bin/id"].into_iter().find(|path| Path::new(path).exists());
    symlink(id.unwrap(), programs.join("id")).unwrap();
    let path = format!("PATH={}", programs.display());
    let needs = ["NEEDS=none=first", "FUZZ_NEEDS=none=second", "FRESH_NEEDS=none=third"];
    for (tier, suite, missing) in [
        ("kernel", "bookworm", "first"),
        ("kernel", "arm64", "first fourth"),
        ("kernel", "arm64-16k", "first fourth"),
        ("unit", "lib", "second"),
        ("unit", "arm64", "second third"),
    ] {
        let [tier, suite] = [format!("TIER={tier}"), format!("SUITE={suite}")];
        let mut make = make(&["test", &tier, &suite, "ARM64_NEEDS=none=fourth", &path]);
        let output = output_text(&make.args(needs).output().unwrap());
        assert!(output.contains(&format!("please install: {missing}\n")), "{suite}: {output}");
    }
}

/// A machine on which `make needs` runs as root, with an `apt-get` that runs `script`.
struct Debian {
    folder: PathBuf,
}

impl Debian {
    fn new(name: &str, script: &str) -> Self {
        let folder = empty_folder(name);
        for (name, text) in [("id", "echo 0"), ("apt-get", script), ("apt-cache", "true")] {
            write_program(&folder.join(name), text);
        }
        Self { folder }
    }

    /// Installs the package `first`, which has the program `installed`.
    fn install(&self) -> Output {
        let path = format!("PATH={}:/usr/bin:/bin", self.folder.display());
        let [policy, target] = [("POLICY", "policy"), ("CARGO_TARGET_DIR", "target")]
            .map(|(name, file)| format!("{name}={}", self.folder.join(file).display()));
        let arguments = ["needs", "NEEDS=installed=first", "PATIENCE=3", &path, &policy, &target];
        make(&arguments).env("FOLDER", &self.folder).output().unwrap()
    }

    fn printed(&self) -> String {
        std::fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }
}

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

const INSTALLS: &str =
    "[ $1 != install ] || { echo >$FOLDER/installed; chmod +x $FOLDER/installed; }";

/// The package asks, as Debian's packages do, whether its service may start.
#[test]
fn installed_package_starts_no_service() {
    let asks = "[ $1 != install ] || { sh $FOLDER/policy; echo $? >$FOLDER/said; }";
    let debian = Debian::new("packages", &format!("{asks}; {INSTALLS}"));
    let policy = debian.folder.join("policy");
    assert!(debian.install().status.success());
    assert_eq!(debian.printed(), "101\n");
    assert!(!policy.exists(), "the machine's own installations are kept from starting services");
    std::fs::write(&policy, "exit 7\n").unwrap();
    std::fs::remove_file(debian.folder.join("installed")).unwrap();
    assert!(debian.install().status.success());
    assert_eq!(debian.printed(), "7\n");
    assert!(policy.exists(), "the machine's own policy is gone");
}

/// apt itself waits only for dpkg's locks.
#[test]
fn installation_waits_for_the_lock_of_another_program() {
    for lock in ["/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"] {
        let locked = format!("E: Could not get lock {lock}. It is held by process 7 (apt-get)");
        let once =
            format!("[ -e $FOLDER/$1 ] || {{ >$FOLDER/$1; echo '{locked}' >&2; exit 100; }}");
        let waits = Debian::new("locked", &format!("{once}; {INSTALLS}")).install();
        assert!(waits.status.success(), "{}", output_text(&waits));
        let forever = Debian::new("locked", &format!("echo '{locked}' >&2; exit 100")).install();
        assert!(!forever.status.success());
        assert!(output_text(&forever).contains(&locked[3..]), "{}", output_text(&forever));
    }
    let options = Debian::new("options", &format!("echo \"$*\" >>$FOLDER/said; {INSTALLS}"));
    assert!(options.install().status.success());
    for line in options.printed().lines() {
        assert!(line.contains("-o DPkg::Lock::Timeout=3"), "{line}");
    }
    let print = make(&["-s", "--eval=wait: ; @echo $(PATIENCE)", "wait"]).output().unwrap();
    assert!(output_text(&print).trim().parse::<u32>().unwrap() >= 600);
}

#[test]
fn failing_installation_names_missing_package_in_one_line() {
    let fails = "echo reading; echo 'E: Failed to fetch http://archive/first.deb' >&2; exit 100";
    for (name, script, reason) in [
        ("unreachable", fails, "did not install first: Failed to fetch http://archive/first.deb"),
        ("incomplete", "true", "did not bring what is in first"),
    ] {
        let debian = Debian::new(name, script);
        let failed = debian.install();
        assert!(!failed.status.success());
        let output = String::from_utf8_lossy(&failed.stderr).into_owned();
        let lines: Vec<_> = output.lines().filter(|line| !line.starts_with("make: ***")).collect();
        assert!(
            matches!(lines[..], [line] if line.contains("first") && output.contains(reason)),
            "{output}"
        );
        write_program(&debian.folder.join("apt-get"), INSTALLS);
        assert!(debian.install().status.success(), "{name}: the next run");
    }
}

/// A stand-in leaves the incomplete tree: mmdebstrap itself needs root and an archive.
#[test]
fn failing_image_leaves_nothing_in_cache() {
    let folder = empty_folder("images");
    let [cache, packages] = ["cache", "packages"].map(|name| folder.join(name));
    std::fs::write(&packages, "attr\n").unwrap();
    write_program(&folder.join("apt-get"), "echo Debian bookworm http://archive main");
    write_program(&folder.join("apt-config"), "true");
    let build = |mmdebstrap: &str| {
        write_program(
            &folder.join("mmdebstrap"),
            &format!("for root; do [ $root = http://archive ] || made=$root; done; {mmdebstrap}"),
        );
        let mut build = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/image/build"));
        build.arg("bookworm").arg(&packages).env("JOB_ADOPT_IMAGES", &cache);
        build.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", folder.display()));
        build.output().unwrap()
    };
    for (reason, script) in [
        (
            "E: Failed to fetch http://archive/x.deb",
            "mkdir -p $made/usr; echo 'E: Failed to fetch http://archive/x.deb'; echo 'E: failed'; exit 25",
        ),
        (
            "No space left on device",
            "mkdir -p $made/usr; echo 'tar: x: No space left on device'; echo 'E: failed'; exit 25",
        ),
    ] {
        let failed = build(script);
        assert!(!failed.status.success());
        let output = output_text(&failed);
        assert!(output.lines().count() == 1 && output.contains(reason), "{output}");
        assert!(output.contains("no image of bookworm: http://archive: "), "{output}");
        let left = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| !name.to_string_lossy().ends_with(".lock")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let made = build("mkdir -p $made/etc/systemd/system");
    let image = PathBuf::from(output_text(&made).trim());
    assert!(
        made.status.success() && image.join("root/etc/hosts").exists(),
        "{}",
        output_text(&made)
    );
}

/// A stand-in leaves the incomplete folder: pip itself needs an index.
#[test]
fn failed_pip_reports_one_line_and_leaves_no_linker() {
    let folder = empty_folder("zig");
    let zig = folder.join("zig/ziglang/zig");
    let install = |end: &str| {
        let half =
            "while [ $1 != --target ]; do shift; done; mkdir -p $2/ziglang; echo >$2/ziglang/zig";
        write_program(&folder.join("pip3"), &format!("{half}; {end}"));
        let path = format!("PATH={}:/usr/bin:/bin", folder.display());
        let target = format!("CARGO_TARGET_DIR={}", folder.display());
        make(&["-s", &zig.display().to_string(), &path, &target]).output().unwrap()
    };
    let failed = install("echo 'ERROR: no route to the index'; exit 1");
    assert!(!failed.status.success());
    let output = output_text(&failed);
    assert!(output.contains("did not get zig"), "{output}");
    assert!(output.contains("no route to the index"), "{output}");
    assert!(!folder.join("zig").exists() && !folder.join("zig.new").exists());
    assert!(install("true").status.success() && zig.exists());
}

/// Lists all files below a folder of the repository without fixtures and inputs.
fn scripts() -> Vec<PathBuf> {
    let mut folders = ["tests", "fuzz", "packaging"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
        .to_vec();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            match path.is_dir() {
                true if ["fixtures", "corpus", "target"].contains(&name.as_str()) => {}
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files
}

/// Several calls at once would stop at each other's lock, and their packages would look like
/// leftovers of tests. A booted node has a package manager of its own.
#[test]
fn only_makefile_calls_package_manager() {
    let managers = ["apt", "apt-get", "aptitude", "dnf", "yum", "zypper", "pip", "pip3"];
    let mut callers = Vec::new();
    let is_searched = |path: &&PathBuf| {
        !path.ends_with("makefile.rs") && !path.display().to_string().contains("node/groups/")
    };
    for path in scripts().iter().filter(is_searched) {
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', '/']));
        for line in lines {
            let mut words = line.split(|char: char| !char.is_ascii_alphanumeric() && char != '-');
            let manager = words.any(|word| managers.contains(&word));
            if manager && words.any(|word| ["install", "update", "upgrade"].contains(&word)) {
                callers.push(format!("{}: {line}", path.display()));
            }
        }
    }
    assert!(callers.is_empty(), "{callers:#?}");
}

/// A script that is called alone names what it lacks, and `make test` must install it.
#[test]
fn every_requirement_of_scripts_is_in_package_list() {
    let print = "--eval=needed: ; @echo '$(NEEDS) $(ARM64_NEEDS)'";
    let needs = output_text(&make(&[print, "needed"]).output().unwrap());
    let is_pair = |word: &&str| {
        word.split_once('=').is_some_and(|(program, package)| {
            program.ends_with(char::is_alphanumeric) && !package.is_empty()
        })
    };
    let mut required = 0;
    for path in scripts().iter().filter(|path| path.extension().is_none()) {
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).replace("\\\n", " ");
        let calls = text.lines().filter(|line| !line.starts_with('#'));
        let is_call = |line: &&str| {
            ["packaging/require", "required=(", "required+=("]
                .iter()
                .any(|call| line.contains(call))
        };
        for call in calls.filter(is_call) {
            for pair in call.split([' ', '(', ')', '"']).filter(is_pair) {
                assert!(
                    needs.split_whitespace().any(|need| need == pair),
                    "{}: {pair}",
                    path.display()
                );
                required += 1;
            }
        }
    }
    assert!(required >= 10, "{required}");
}

/// A missing launcher would skip its tests.
#[test]
fn rank_launchers_are_installed_for_tests() {
    let print = "--eval=needed: ; @echo '$(NEEDS)'";
    let needs = output_text(&make(&[print, "needed"]).output().unwrap());
    for pair in ["mpirun=openmpi-bin", "mpiexec.hydra=mpich", "pdsh=pdsh"] {
        assert!(needs.split_whitespace().any(|need| need == pair), "{pair}: {needs}");
    }
}

/// A patched build has the same version, and may have another protocol.
#[test]
fn builds_of_different_source_have_different_names() {
    let folder = empty_folder("build-name");
    let script = folder.join("build");
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    let compiled = Command::new(rustc).args(["--edition=2024", source, "-o"]).arg(&script).output();
    assert!(
        compiled.as_ref().unwrap().status.success(),
        "{}",
        output_text(compiled.as_ref().unwrap())
    );
    let name = |case: &str, file: &str, text: &str| {
        let path = folder.join(case).join("src/below").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        let mut script = Command::new(&script);
        script
            .current_dir(folder.join(case))
            .env("CARGO_PKG_VERSION", "1.2.3")
            .env_remove("OUT_DIR");
        let output = output_text(&script.output().unwrap());
        let name = output.lines().find_map(|line| line.strip_prefix("cargo:rustc-env=BUILD="));
        name.unwrap_or_else(|| panic!("{output}")).to_owned()
    };
    let one = name("one", "a.rs", "fn a() {}");
    assert!(one.strip_prefix("1.2.3+").is_some_and(|sum| sum.len() == 8), "{one}");
    assert_eq!(name("another", "a.rs", "fn a() {}"), one);
    assert_ne!(name("text", "a.rs", "fn b() {}"), one);
    assert_ne!(name("file", "b.rs", "fn a() {}"), one);
}

#[test]
fn other_machine_has_own_compiler_folders_and_securitydir() {
    let arguments = ["-n", "install", "DESTDIR=/stage", "MACHINE=aarch64", "BUILD_NEEDS="];
    let output = output_text(&make(&arguments).output().unwrap());
    for text in [
        "--target=aarch64-unknown-linux-gnu --release --package pam",
        "packaging/floor/cc",
        "aarch64-linux-gnu-strip -o",
        "/glibc-2.28-aarch64/resolve",
        "qemu-aarch64-static",
        "/stage/usr/lib/aarch64-linux-gnu/security/pam_job_adopt.so",
    ] {
        assert!(output.contains(text), "{text}: {output}");
    }
    // A variable of this name in the environment belongs to another program.
    let own = output_text(
        &make(&["-n", "all", "BUILD_NEEDS="]).env("MACHINE", "aarch64").output().unwrap(),
    );
    assert!(!own.contains("aarch64-unknown"), "{own}");
}

/// The suite does not exist, so that a run which starts all the same fails.
#[test]
fn dry_run_of_test_starts_nothing() {
    let output = make(&["-n", "test", "TIER=unit", "SUITE=no-such-suite"]).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(output_text(&output).contains("tests/all"), "{}", output_text(&output));
}
