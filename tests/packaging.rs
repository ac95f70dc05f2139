//! What the scripts of `packaging` install, require and refuse. None of these tests needs root or a network.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns a command of this repository with none of the variables that would change its result.
fn script(path: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    for name in [
        "DESTDIR",
        "PREFIX",
        "SECURITYDIR",
        "UNITDIR",
        "MACHINE",
        "EXPIRED",
        "CC",
        "DRAFT",
        "MAINTAINER",
    ] {
        command.env_remove(name);
    }
    command
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Makes an empty folder. Its path has a blank, as that of a checkout may.
fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("with blank")
        .join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Makes a folder with the files that `make` builds, as far as an installation is concerned. Its path has a blank.
fn built_files() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("built files");
    std::fs::create_dir_all(folder.join("completions")).unwrap();
    for name in ["pam_job_adopt.so", "helper", "keeper", "job-adopt"] {
        std::fs::write(folder.join(name), name).unwrap();
    }
    for shell in ["bash", "zsh", "fish"] {
        std::fs::write(folder.join("completions").join(shell), shell).unwrap();
    }
    folder
}

/// Installs into `stage` with these variables.
fn install(stage: &Path, variables: &[(&str, &str)]) -> Output {
    let mut install = script("packaging/install");
    install
        .arg(built_files())
        .env("DESTDIR", stage)
        .envs(variables.iter().copied());
    install.output().unwrap()
}

fn uninstall(stage: &Path, variables: &[(&str, &str)]) -> Output {
    let mut uninstall = script("packaging/install");
    uninstall
        .arg("--remove")
        .env("DESTDIR", stage)
        .envs(variables.iter().copied());
    uninstall.output().unwrap()
}

/// Lists the files below a folder with their permissions.
fn list_files(folder: &Path) -> Vec<(String, u32)> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            let path = path.strip_prefix(folder).unwrap().to_string_lossy();
            files.push((format!("/{path}"), mode));
        }
    }
    files
}

#[test]
fn missing_programs_are_named_and_nothing_is_installed() {
    let [built, stage] = ["half built", "half stage"].map(empty_folder);
    std::fs::create_dir(built.join("completions")).unwrap();
    for name in ["keeper", "job-adopt", "completions/bash", "completions/zsh"] {
        std::fs::write(built.join(name), name).unwrap();
    }
    let refused = script("packaging/install")
        .arg(&built)
        .env("DESTDIR", &stage)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let output = output_text(&refused);
    let missing = "lacks helper completions/fish pam_job_adopt.so;";
    assert!(output.contains(missing), "{output}");
    assert_eq!(list_files(&stage), []);
}

/// Installs `$2` into a small file system at `$1`, fills this, and installs `$3` over it. Prints what is left of each.
const INSTALL_ON_FULL_DISK: &str = r#"
mount -t tmpfs -o size=16m tmpfs "$1" || { echo 'no mounts here'; exit 0; }
export DESTDIR="$1" SECURITYDIR=/lib/security
packaging/install "$2"
free=$(df --output=avail -k "$1" | tail -n 1)
head -c "$((free - 100))K" /dev/zero >"$1/fill"
status=0
packaging/install "$3" || status=$?
echo "status $status"
find "$1" -name '*.new'
for file in lib/security/pam_job_adopt.so usr/libexec/job-adopt/helper usr/libexec/job-adopt/keeper; do
    cmp "$1/$file" "$2/${file##*/}"
done
"#;

/// A module beside a newer helper refuses every login.
#[test]
fn full_disk_leaves_old_installation_whole() {
    let [stage, newer] = ["full stage", "newer build"].map(empty_folder);
    let built = built_files();
    std::fs::create_dir(newer.join("completions")).unwrap();
    for name in ["helper", "keeper", "job-adopt", "completions/bash"] {
        std::fs::write(newer.join(name), "newer").unwrap();
    }
    for name in ["completions/zsh", "completions/fish"] {
        std::fs::write(newer.join(name), "newer").unwrap();
    }
    std::fs::write(newer.join("pam_job_adopt.so"), vec![1; 200 * 1024]).unwrap();
    let mut unshare = script("/usr/bin/unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-euc"]);
    unshare.args([INSTALL_ON_FULL_DISK, "sh"]);
    let output = output_text(&unshare.args([stage, built, newer]).output().unwrap());
    if output.contains("no mounts here") || output.contains("unshare:") {
        println!("no file system can be mounted here: skipped");
        return;
    }
    assert!(output.contains("No space left"), "{output}");
    assert!(output.starts_with("status 1\ninstall: "), "{output}");
    assert!(
        output.ends_with("stopped; nothing was changed\n"),
        "{output}"
    );
}

/// Creates the accounts where `usermod` fails, with `$2` as /etc/passwd. Stand-ins are in `$1`.
const ACCOUNT_WITHOUT_USERMOD: &str = r#"
mount --bind "$2" /etc/passwd || { echo 'no mounts here'; exit 0; }
for program in getent systemctl systemd-tmpfiles; do ln -s /bin/true "$1/$program"; done
ln -s /bin/false "$1/usermod"
PATH=$1:$PATH packaging/account
"#;

#[test]
fn only_account_of_other_source_is_said_to_be_in_no_file() {
    let stand_ins = empty_folder("account");
    let accounts = stand_ins.join("passwd");
    std::fs::write(&accounts, "job-adopt:x:999:999::/:/usr/sbin/nologin\n").unwrap();
    let mut unshare = script("/usr/bin/unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-euc"]);
    unshare.args([ACCOUNT_WITHOUT_USERMOD, "sh"]);
    let output = output_text(&unshare.args([stand_ins, accounts]).output().unwrap());
    if output.contains("no mounts here") || output.contains("unshare:") {
        println!("no file can be mounted here: skipped");
        return;
    }
    let expected = "Please lock and expire the account job-adopt.\n\
                    Please lock and expire the account job-adopt-callerid, which is in no file here.\n";
    assert_eq!(output, expected);
}

/// Without an account that programs find, every login is refused.
#[test]
fn account_that_no_program_finds_is_an_error() {
    let stand_ins = empty_folder("account not found");
    for program in ["systemd-sysusers", "useradd", "usermod", "systemctl"] {
        symlink("/bin/true", stand_ins.join(program)).unwrap();
    }
    symlink("/bin/false", stand_ins.join("getent")).unwrap();
    let mut account = script("packaging/account");
    account.env("PATH", format!("{}:/usr/bin:/bin", stand_ins.display()));
    let output = account.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = "job-adopt is in /etc/passwd, and no program finds it: please see the line passwd of /etc/nsswitch.conf.\n";
    assert_eq!(output_text(&output), expected);
}

/// Plays cargo: it stores the compiler's options, one a line, and makes a copy of `true` of each program.
const CARGO_STAND_IN: &str = r#"#!/bin/sh
set -eu
printf '%s' "$CARGO_ENCODED_RUSTFLAGS" | tr '\037' '\n' >"$CARGO_TARGET_DIR.options"
mkdir -p "$CARGO_TARGET_DIR/release"
for program in libpam_job_adopt.so helper keeper job-adopt; do
    cp /bin/true "$CARGO_TARGET_DIR/release/$program"
done
"#;

/// A checkout lies where its user puts it.
#[test]
fn checkout_below_path_with_blank_is_built_and_installed() {
    let folder = empty_folder("around a checkout");
    let checkout = folder.join("a checkout");
    std::fs::create_dir(&checkout).unwrap();
    let copied = Command::new("cp")
        .args(["-r", "Makefile", "Cargo.toml", "Cargo.lock", "build.rs"])
        .args(["packaging", "docs", "src"])
        .arg(&checkout)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(copied.unwrap().success());
    write_program(&folder.join("cargo"), CARGO_STAND_IN);
    let make = |goal: &str, target: &str| {
        let mut make = Command::new("make");
        make.arg(goal)
            .current_dir(&checkout)
            .env("CARGO", folder.join("cargo"))
            .env("CARGO_TARGET_DIR", target)
            .env("DESTDIR", folder.join("stage"))
            .env("SECURITYDIR", "/lib/security");
        for name in [
            "MAKEFLAGS",
            "MAKELEVEL",
            "GLIBC",
            "BUILT",
            "RUSTFLAGS",
            "PREFIX",
        ] {
            make.env_remove(name);
        }
        make.output()
    };
    for target in ["target", "a target"] {
        let installed = match make("install", target) {
            // `cargo test` needs no make.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            output => output.unwrap(),
        };
        assert!(installed.status.success(), "{}", output_text(&installed));
        let options = checkout.join(target).with_extension("options");
        let options = std::fs::read_to_string(options).unwrap();
        let whole = |option: &str| option.starts_with("--remap-path-prefix=");
        assert!(options.lines().all(whole), "{options}");
        for path in [
            "lib/security/pam_job_adopt.so",
            "usr/libexec/job-adopt/helper",
        ] {
            let length = std::fs::metadata(folder.join("stage").join(path))
                .unwrap()
                .len();
            assert_ne!(length, 0, "{path}");
        }
        let removed = make("uninstall", target).unwrap();
        assert!(removed.status.success(), "{}", output_text(&removed));
    }
    assert_eq!(list_files(&folder.join("stage")), []);
}

#[test]
fn other_prefix_requires_securitydir() {
    let stage = empty_folder("prefix");
    for refused in [
        install(&stage, &[("PREFIX", "/opt/x")]),
        uninstall(&stage, &[("PREFIX", "/opt/x")]),
    ] {
        assert!(!refused.status.success());
        assert!(
            output_text(&refused).contains("SECURITYDIR"),
            "{}",
            output_text(&refused)
        );
    }
    assert_eq!(list_files(&stage), []);
}

#[test]
fn installation_below_other_prefix_names_its_own_paths() {
    let stage = empty_folder("other prefix");
    let variables = [("PREFIX", "/opt/x"), ("SECURITYDIR", "/lib/security")];
    let installed = install(&stage, &variables);
    assert!(installed.status.success(), "{}", output_text(&installed));
    assert!(output_text(&installed).contains("helper=/opt/x/libexec/job-adopt/helper"));
    let files = list_files(&stage);
    for (path, mode) in [
        ("/lib/security/pam_job_adopt.so", 0o644),
        ("/opt/x/libexec/job-adopt/helper", 0o711),
        ("/opt/x/bin/job-adopt", 0o755),
        ("/opt/x/lib/systemd/system/job-adopt-callerid.socket", 0o644),
        (
            "/opt/x/lib/systemd/system/run-job\\x2dadopt-use.mount",
            0o644,
        ),
        ("/usr/share/dbus-1/system.d/job-adopt.conf", 0o644),
        (
            "/opt/x/share/job-adopt/systemd/user-.slice.d/job-adopt.conf",
            0o644,
        ),
        (
            "/opt/x/share/job-adopt/systemd/cron.service.d/job-adopt.conf",
            0o644,
        ),
        ("/opt/x/share/job-adopt/slurm/prolog.sh", 0o755),
        ("/opt/x/share/job-adopt/monitoring/nrpe.cfg", 0o644),
    ] {
        assert!(
            files.contains(&(path.to_owned(), mode)),
            "{path}: {files:?}"
        );
    }
    let unit = stage.join("opt/x/lib/systemd/system/job-adopt-callerid@.service");
    assert!(
        std::fs::read_to_string(unit)
            .unwrap()
            .contains("=/opt/x/bin/")
    );
    let removed = uninstall(&stage, &variables);
    assert!(removed.status.success(), "{}", output_text(&removed));
    assert_eq!(list_files(&stage), []);
}

#[test]
fn staged_installation_is_complete_and_creates_no_account() {
    let stage = empty_folder("a stage");
    let accounts = std::fs::read("/etc/passwd").unwrap();
    let variables = [("SECURITYDIR", "/lib/security")];
    let installed = install(&stage, &variables);
    assert!(installed.status.success(), "{}", output_text(&installed));
    assert_eq!(std::fs::read("/etc/passwd").unwrap(), accounts);
    let files = list_files(&stage);
    for (path, mode) in [
        ("/lib/security/pam_job_adopt.so", 0o644),
        // The helper's account cannot read the file, so the process can be neither traced nor dumped.
        ("/usr/libexec/job-adopt/helper", 0o711),
        ("/usr/libexec/job-adopt/keeper", 0o755),
        ("/usr/libexec/job-adopt/in-use", 0o755),
        ("/usr/bin/job-adopt", 0o755),
        ("/usr/share/bash-completion/completions/job-adopt", 0o644),
        ("/usr/share/zsh/site-functions/_job-adopt", 0o644),
        ("/usr/share/fish/vendor_completions.d/job-adopt.fish", 0o644),
        ("/usr/lib/sysusers.d/job-adopt.conf", 0o644),
        ("/usr/lib/tmpfiles.d/job-adopt.conf", 0o644),
        ("/usr/share/man/man8/pam_job_adopt.8", 0o644),
        ("/usr/share/man/man8/job-adopt-callerid.8", 0o644),
        ("/usr/lib/systemd/system/job-adopt-callerid.socket", 0o644),
        ("/usr/lib/systemd/system/job-adopt-callerid@.service", 0o644),
        (
            "/usr/lib/systemd/system/job-adopt-favordynmods.service",
            0o644,
        ),
        ("/usr/lib/systemd/system/job-adopt-notify.service", 0o644),
        ("/usr/lib/systemd/system/job-adopt-notify.timer", 0o644),
        ("/usr/lib/systemd/system-preset/90-job-adopt.preset", 0o644),
        (
            "/usr/share/job-adopt/systemd/user-.slice.d/job-adopt.conf",
            0o644,
        ),
        (
            "/usr/share/job-adopt/systemd/user-0.slice.d/job-adopt.conf",
            0o644,
        ),
        (
            "/usr/share/job-adopt/systemd/cron.service.d/job-adopt.conf",
            0o644,
        ),
        (
            "/usr/share/job-adopt/systemd/crond.service.d/job-adopt.conf",
            0o644,
        ),
        (
            "/usr/share/job-adopt/systemd/atd.service.d/job-adopt.conf",
            0o644,
        ),
        (
            "/usr/share/job-adopt/containers/containers.conf.d/job-adopt.conf",
            0o644,
        ),
        ("/usr/share/job-adopt/selinux/job-adopt.cil", 0o644),
        ("/usr/share/dbus-1/system.d/job-adopt.conf", 0o644),
    ] {
        assert!(
            files.contains(&(path.to_owned(), mode)),
            "{path}: {files:?}"
        );
    }
    // A drop-in for the unit of another package counts wherever systemd looks for units.
    for (path, _) in &files {
        let is_drop_in = path.contains("/lib/systemd/") && path.contains(".d/");
        assert!(
            !path.contains(".wants/") && !path.contains("/etc/") && !is_drop_in,
            "{path}"
        );
    }
    assert!(uninstall(&stage, &variables).status.success());
    assert_eq!(list_files(&stage), []);
    assert!(!stage.join("usr/share/job-adopt").exists());
    assert!(!stage.join("usr/libexec/job-adopt").exists());
}

/// A recipe whose pkg-config does not know systemd passes an empty value.
#[test]
fn empty_unitdir_means_default() {
    for (given, folder) in [("", "/usr/lib/systemd/system"), ("/x", "/x")] {
        let stage = empty_folder("units");
        let variables = [("UNITDIR", given), ("SECURITYDIR", "/lib/security")];
        let installed = install(&stage, &variables);
        assert!(installed.status.success(), "{}", output_text(&installed));
        let unit = (format!("{folder}/job-adopt-callerid.socket"), 0o644);
        assert!(list_files(&stage).contains(&unit), "UNITDIR={given}");
        assert!(uninstall(&stage, &variables).status.success());
        assert_eq!(list_files(&stage), []);
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
    write_program(&compiler, "echo zz-linux-gnu");
    let stage = empty_folder("multiarch stage");
    let folder = folder.to_string_lossy();
    let path = format!("{folder}:/usr/bin:/bin");
    let variables = [
        ("JOB_ADOPT_LIB", &*folder),
        ("PATH", &*path),
        // CC can have options, and so no blank in its path.
        ("CC", "compiler"),
        ("SECURITYDIR", ""),
    ];
    let installed = install(&stage, &variables);
    assert!(installed.status.success(), "{}", output_text(&installed));
    let module = (
        format!("{folder}/zz-linux-gnu/security/pam_job_adopt.so"),
        0o644,
    );
    assert!(list_files(&stage).contains(&module));
    let other = install(
        &stage,
        &[("JOB_ADOPT_LIB", &folder), ("MACHINE", "aarch64")],
    );
    assert!(other.status.success(), "{}", output_text(&other));
    let other_module = (
        format!("{folder}/aarch64-linux-gnu/security/pam_job_adopt.so"),
        0o644,
    );
    assert!(list_files(&stage).contains(&other_module));
}

/// A stack that names a missing module refuses everybody, root included.
#[test]
fn module_in_use_is_not_removed() {
    let stage = empty_folder("in use");
    let stacks = stage.join("etc/pam.d");
    std::fs::create_dir_all(&stacks).unwrap();
    let variables = [("SECURITYDIR", "/lib/security")];
    assert!(install(&stage, &variables).status.success());
    std::fs::write(stacks.join("sshd"), "session required pam_job_adopt.so\n").unwrap();
    let refused = uninstall(&stage, &variables);
    assert!(!refused.status.success() && output_text(&refused).contains("etc/pam.d/sshd"));
    assert!(stage.join("lib/security/pam_job_adopt.so").exists());
    std::fs::write(stacks.join("sshd"), "#session required pam_job_adopt.so\n").unwrap();
    for vendor in ["usr/etc/pam.d", "usr/lib/pam.d"] {
        let service = stage.join(vendor).join("sshd");
        std::fs::create_dir_all(service.parent().unwrap()).unwrap();
        std::fs::write(&service, "session required pam_job_adopt.so\n").unwrap();
        let vendor_refused = uninstall(&stage, &variables);
        let is_named = output_text(&vendor_refused).contains(&format!("{vendor}/sshd"));
        assert!(!vendor_refused.status.success() && is_named, "{vendor}");
        assert!(stage.join("lib/security/pam_job_adopt.so").exists());
        std::fs::remove_file(service).unwrap();
    }
    let drop_in = "etc/systemd/system/user-.slice.d";
    std::fs::create_dir_all(stage.join(drop_in)).unwrap();
    std::fs::write(stage.join(drop_in).join("job-adopt.conf"), "").unwrap();
    let drop_in_refused = uninstall(&stage, &variables);
    assert!(!drop_in_refused.status.success() && output_text(&drop_in_refused).contains(drop_in));
    std::fs::remove_file(stage.join(drop_in).join("job-adopt.conf")).unwrap();
    assert!(uninstall(&stage, &variables).status.success());
    assert!(!stage.join("lib/security/pam_job_adopt.so").exists());
}

/// A release archive names its maintainer; this tree does not.
#[test]
fn release_without_maintainer_is_refused() {
    let control = Path::new(env!("CARGO_MANIFEST_DIR")).join("debian/control");
    if std::fs::read_to_string(control)
        .unwrap()
        .contains("\nMaintainer:")
    {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no release");
    for maintainer in ["", "Nobody", "root <root@localhost>"] {
        let mut release = script("packaging/release");
        let refused = release
            .arg(&folder)
            .env("MAINTAINER", maintainer)
            .output()
            .unwrap();
        assert!(!refused.status.success(), "{maintainer}");
        assert!(
            output_text(&refused).contains("MAINTAINER="),
            "{}",
            output_text(&refused)
        );
    }
}

/// Copies packaging/needs with another list of goals.
fn needs_with(folder: &Path, goals: &str) -> Command {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/needs"))
            .unwrap();
    let (before, rest) = text.split_once("cat <<GOALS\n").unwrap();
    let (_, after) = rest.split_once("\nGOALS\n").unwrap();
    let copy = folder.join("needs");
    std::fs::write(
        &copy,
        format!("{before}cat <<GOALS\n{goals}\nGOALS\n{after}"),
    )
    .unwrap();
    let mut needs = Command::new("sh");
    needs
        .arg(copy)
        .env("CARGO_TARGET_DIR", folder.join("target"));
    needs
}

#[test]
fn missing_packages_are_named_together() {
    let folder = empty_folder("needs");
    let goals = "all some no-such-program=first|second sh|no-such=never\nsome /no/such/file|find=third /no/such/*/file=fourth";
    let output = needs_with(&folder, goals)
        .args(["--check", "all"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert_eq!(
        output_text(&output),
        "please install: first|second fourth\n"
    );
    let unknown = needs_with(&folder, goals)
        .args(["--check", "unknown"])
        .output()
        .unwrap();
    assert!(!unknown.status.success() && output_text(&unknown).contains("unknown"));
}

/// A machine on which packaging/needs runs as root, with an `apt-get` that runs `script`.
struct Debian {
    folder: PathBuf,
}

impl Debian {
    fn new(name: &str, script: &str) -> Self {
        let folder = empty_folder(name);
        for (program, text) in [("id", "echo 0"), ("apt-get", script), ("apt-cache", "true")] {
            write_program(&folder.join(program), text);
        }
        Self { folder }
    }

    /// Installs the package `first`, which has the program `installed`.
    fn install_within(&self, lock_seconds: &str) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.folder.display());
        let mut needs = needs_with(&self.folder, "all installed=first");
        needs
            .arg("all")
            .env("PATH", path)
            .env("FOLDER", &self.folder);
        needs.env("JOB_ADOPT_POLICY", self.folder.join("policy"));
        needs
            .env("JOB_ADOPT_LOCK_SECONDS", lock_seconds)
            .env("JOB_ADOPT_POLL_SECONDS", "0.01");
        needs.output().unwrap()
    }

    fn install(&self) -> Output {
        self.install_within("60")
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
    "[ $1 != install ] || { echo >\"$FOLDER/installed\"; chmod +x \"$FOLDER/installed\"; }";

/// The package asks, as Debian's packages do, whether its service may start.
#[test]
fn installed_package_starts_no_service() {
    let asks = r#"[ $1 != install ] || { sh "$FOLDER/policy"; echo $? >"$FOLDER/said"; }"#;
    let debian = Debian::new("packages", &format!("{asks}; {INSTALLS}"));
    let policy = debian.folder.join("policy");
    assert!(debian.install().status.success());
    assert_eq!(debian.printed(), "101\n");
    assert!(
        !policy.exists(),
        "the machine's own installations are kept from starting services"
    );
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
        let once = format!(
            "[ -e \"$FOLDER/$1\" ] || {{ >\"$FOLDER/$1\"; echo '{locked}' >&2; exit 100; }}"
        );
        let waits = Debian::new("locked", &format!("{once}; {INSTALLS}")).install();
        assert!(waits.status.success(), "{}", output_text(&waits));
        let forever = Debian::new("locked", &format!("echo '{locked}' >&2; exit 100"));
        let forever = forever.install_within("0");
        assert!(!forever.status.success());
        assert!(
            output_text(&forever).contains(&locked[3..]),
            "{}",
            output_text(&forever)
        );
    }
    let options = Debian::new(
        "options",
        &format!("echo \"$*\" >>\"$FOLDER/said\"; {INSTALLS}"),
    );
    assert!(options.install().status.success());
    for line in options.printed().lines() {
        assert!(line.contains("-o DPkg::Lock::Timeout=60"), "{line}");
    }
}

#[test]
fn failing_installation_names_missing_package_in_one_line() {
    let fails = "echo reading; echo 'E: Failed to fetch http://archive/first.deb' >&2; exit 100";
    for (name, script, reason) in [
        (
            "unreachable",
            fails,
            "did not install first: Failed to fetch http://archive/first.deb",
        ),
        ("incomplete", "true", "did not bring what is in first"),
    ] {
        let debian = Debian::new(name, script);
        let failed = debian.install();
        assert!(!failed.status.success());
        let output = String::from_utf8_lossy(&failed.stderr).into_owned();
        let lines: Vec<_> = output.lines().collect();
        assert!(
            matches!(lines[..], [line] if line.contains("first") && output.contains(reason)),
            "{output}"
        );
        write_program(&debian.folder.join("apt-get"), INSTALLS);
        assert!(debian.install().status.success(), "{name}: the next run");
    }
}

/// A stand-in leaves the incomplete folder: pip itself needs an index.
#[test]
fn failed_pip_reports_one_line_and_leaves_no_linker() {
    let folder = empty_folder("zig");
    let zig = folder.join("zig/ziglang/zig");
    let install = |end: &str| {
        let half = r#"while [ $1 != --target ]; do shift; done
            mkdir -p "$2/ziglang"; echo >"$2/ziglang/zig""#;
        write_program(&folder.join("pip3"), &format!("{half}; {end}"));
        let path = format!("{}:/usr/bin:/bin", folder.display());
        script("packaging/zig")
            .env("PATH", path)
            .env("CARGO_TARGET_DIR", &folder)
            .output()
            .unwrap()
    };
    let failed = install("echo 'ERROR: no route to the index'; exit 1");
    assert!(!failed.status.success());
    let output = output_text(&failed);
    assert!(output.contains("did not get zig"), "{output}");
    assert!(output.contains("no route to the index"), "{output}");
    assert!(!folder.join("zig").exists() && !folder.join("zig.new").exists());
    assert!(install("true").status.success() && zig.exists());
}

/// The suite does not exist, so that a run which starts all the same fails.
#[test]
fn dry_run_of_test_starts_nothing() {
    let mut make = Command::new("make");
    make.args(["-n", "test", "SUITE=no-such-suite"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = match make
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
    {
        // `cargo test` needs no make.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(
        output_text(&output).contains("tests/all"),
        "{}",
        output_text(&output)
    );
}
