//! `job-adopt enable` and `disable` change real stacks of each shape, with the old module's lines and without,
//! and all else that makes a node right, and take it back.

use std::path::Path;

use crate::support::{ALICE, CAROL, Node, OPS, ROOT, User, on_node};

/// The shapes below `tests/fixtures/pam`, with the modules that this machine has.
const SHAPES: [&str; 10] = [
    "debian",
    "ubuntu",
    "el",
    "el7",
    "el-sssd",
    "el-sssd-features",
    "el-winbind",
    "el-winbind-features",
    "suse",
    "suse-sss",
];

/// Installs the stack of a shape, with the modules that this machine has.
fn install_shape(node: &Node, shape: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/pam")
        .join(shape);
    let modules = std::path::PathBuf::from(node.module());
    node.sh("rm -f /etc/pam.d/sshd").ok();
    for folder in ["etc/pam.d", "usr/lib/pam.d"] {
        let Ok(files) = std::fs::read_dir(fixtures.join(folder)) else {
            continue;
        };
        node.create_dir(&format!("/{folder}"), 0o755);
        for file in files.map(Result::unwrap) {
            let text = std::fs::read_to_string(file.path()).unwrap();
            let line = |line: &str| {
                let module = line.split_whitespace().find(|word| word.ends_with(".so"));
                let there = |name: &str| node.path(&modules.with_file_name(name).to_string_lossy());
                match module {
                    // Modules that the machine under the test, its audit or SELinux would decide.
                    Some(name)
                        if !there(name).exists()
                            || ["pam_loginuid.so", "pam_selinux.so", "pam_systemd.so"]
                                .contains(&name) =>
                    {
                        format!("{}\n", line.replace(name, "pam_permit.so"))
                    }
                    _ => format!("{line}\n"),
                }
            };
            let text: String = text.lines().map(line).collect();
            node.write(
                &format!("/{folder}/{}", file.file_name().to_str().unwrap()),
                &text,
            );
        }
    }
    node.sh("cat /etc/pam.d/sshd /usr/lib/pam.d/sshd 2>/dev/null")
        .stdout
}

#[test]
fn every_shape_of_stack_is_switched_on_and_off() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for shape in SHAPES {
            let old = install_shape(node, shape);
            node.pam(CAROL).ok();
            let install = ["enable", "--only", "pam", "--arguments", "timeout=40"];
            node.job_adopt(&install).exits(0).says("enabled");
            node.pam(CAROL).fails().says("[JA01]");
            node.sh(
                "echo 'session optional pam_exec.so stdout /usr/bin/cat /proc/self/cgroup' \
                     >>/etc/pam.d/sshd",
            )
            .ok();
            node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
            node.sh("sed -i '$d' /etc/pam.d/sshd").ok();
            let new = node.read("/etc/pam.d/sshd");
            node.job_adopt(&install).exits(0).says("unchanged");
            assert_eq!(node.read("/etc/pam.d/sshd"), new);
            node.job_adopt(&["disable", "--only", "pam"]).exits(0);
            node.job_adopt(&["disable", "--only", "pam"])
                .exits(0)
                .says("unchanged");
            assert_eq!(
                node.sh("cat /etc/pam.d/sshd /usr/lib/pam.d/sshd 2>/dev/null")
                    .stdout,
                old
            );
            assert_eq!(node.exists("/etc/pam.d/sshd"), !shape.starts_with("suse"));
            assert_eq!(node.read("/var/lib/job-adopt/pam/sshd"), old);
            node.pam(CAROL).ok();
        }
    });
}

/// A refused command leaves the file as it was.
#[test]
fn unsupported_stack_is_refused_and_unchanged() {
    on_node(|node| {
        let old = install_shape(node, "debian");
        node.sh(&format!("mv {0} {0}.away", node.module())).ok();
        let install = ["enable", "--only", "pam"];
        node.job_adopt(&install)
            .exits(3)
            .says("nobody could log in");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
        node.sh(&format!("mv {0}.away {0}", node.module())).ok();
        node.job_adopt(&["enable", "--only", "pam", "--arguments", "typo"])
            .exits(3)
            .says("typo");
        node.job_adopt(&["enable", "alice"]).exits(2);
        node.job_adopt(&["enable", "--only", "sshd"]).exits(2);
        node.job_adopt(&["enable", "--keep", "--dry-run"]).exits(2);
        let mut alice = vec![
            "--reuid",
            "1001",
            "--regid",
            "1001",
            "--clear-groups",
            "job-adopt",
        ];
        alice.extend(install);
        node.run("setpriv", &alice)
            .exits(3)
            .says("must be run as root");
        node.sh("mv /etc/pam.d/sshd /etc/pam.d/real && ln -s real /etc/pam.d/sshd")
            .ok();
        node.job_adopt(&install).exits(3).says("authselect");
        assert_eq!(node.read("/etc/pam.d/real"), old);
        // Without systemd no timer would restore the stack.
        node.sh("mv /etc/pam.d/real /etc/pam.d/sshd").ok();
        node.job_adopt(&["enable", "--try", "15m", "alice"])
            .exits(3)
            .says("systemd");
        node.job_adopt(&["enable", "--keep"])
            .exits(3)
            .says("nothing is tried");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
    });
}

/// Nothing refuses a misspelt name, since a group may be made later: it locks operators out.
#[test]
fn exempt_group_that_does_not_exist_is_named_before_a_change_and_last() {
    on_node(|node| {
        install_shape(node, "debian");
        let enable = [
            "enable",
            "--only",
            "pam",
            "--arguments",
            "exempt_groups=ops,opz",
        ];
        let warning =
            "job-adopt: warning: exempt_groups=opz: no such group, so it exempts nobody\n";
        let shown = node
            .job_adopt(&[&enable[..], &["--dry-run"]].concat())
            .exits(0);
        assert!(shown.stderr.ends_with(warning), "{shown}");
        let made = node.job_adopt(&enable).exits(0);
        assert_eq!(made.stderr.matches(warning).count(), 2, "{made}");
        let check = node.job_adopt(&["check"]).exits(1);
        check
            .says("warning pam-arguments /etc/pam.d/sshd:")
            .says("exempt_groups=opz: no such group");
        node.sh("groupadd opz").ok();
        node.job_adopt(&["check"]).omits("no such group");
        node.job_adopt(&enable).exits(0).omits("no such group");
    });
}

/// Else nobody but root would get in.
#[test]
fn file_that_logins_cannot_use_is_refused_before_a_change() {
    on_node(|node| {
        install_shape(node, "debian");
        let before = node.read("/etc/pam.d/sshd");
        // What root can read, and the helper cannot.
        node.sh("install -m 0600 /dev/null /etc/shut.conf; ln -s /dev/null /etc/link.conf")
            .ok();
        node.sh("echo ' speaks to version 0.0.1 of pam_job_adopt' >/run/old; chmod 0711 /run/old")
            .ok();
        for (argument, why) in [
            (
                "conf=/etc/none",
                "cannot be used, so every login is refused (JA09): /etc/none",
            ),
            ("conf=/etc/link.conf", "a symbolic link"),
            ("conf=/etc/shut.conf", "Permission denied"),
            ("conf=/etc/security", "cannot be used"),
            (
                "helper=/usr/bin",
                "cannot be run, so every login is refused (JA09): /usr/bin",
            ),
            (
                "helper=/usr/libexec/job-adopt/keeper",
                "is no program of pam_job_adopt",
            ),
            ("helper=/usr/bin/true", "is no program of pam_job_adopt"),
            ("helper=/run/old", "is of another version than job-adopt"),
        ] {
            let file = argument
                .replace("conf=", "configuration ")
                .replace('=', " ");
            node.job_adopt(&["enable", "--only", "pam", "--arguments", argument])
                .exits(3)
                .says(&format!("enable {file}: "))
                .says(why);
        }
        let helper = "/usr/libexec/job-adopt/helper";
        node.sh(&format!("mv {helper} {helper}.away")).ok();
        node.job_adopt(&["enable", "--only", "pam"])
            .exits(3)
            .says(&format!("enable helper {helper}: cannot be run"));
        assert_eq!(node.read("/etc/pam.d/sshd"), before);
    });
}

/// Lines of sites above and below pam_slurm_adopt.so, with real modules. Each lets in alice, who has
/// a job, and some let in the staff.
const RECIPES: [&str; 11] = [
    "account sufficient pam_slurm_adopt.so\naccount required ACCESS\n",
    "account sufficient ACCESS\naccount required pam_slurm_adopt.so\n",
    "account sufficient pam_slurm_adopt.so\naccount requisite LISTFILE\n",
    "account sufficient LISTFILE\naccount required pam_slurm_adopt.so\n",
    "account sufficient pam_slurm_adopt.so\naccount required pam_time.so\n",
    "account sufficient pam_time.so\naccount requisite pam_slurm_adopt.so\n",
    "account [success=1 default=ignore] SUCCEED_IF\naccount required pam_slurm_adopt.so\n",
    "account [success=1 default=ignore] pam_slurm_adopt.so\naccount required SUCCEED_IF\n",
    "account [success=2 default=ignore] SUCCEED_IF\naccount sufficient pam_slurm_adopt.so\n\
     account required ACCESS\n",
    "account required pam_faillock.so\naccount sufficient pam_slurm_adopt.so\n\
     account required ACCESS\naccount required pam_faillock.so\n",
    "account sufficient pam_slurm_adopt.so\naccount required pam_deny.so\n",
];

/// Lays out files of the modules in the recipes: they let in the staff alone. A copy of pam_access
/// stands in for the old module, with the owners of jobs and root in its list.
pub(crate) fn lay_out_recipes(node: &Node) {
    let folder = Path::new(&node.module()).parent().unwrap().to_owned();
    // Debian's package has the module where libpam looks, too.
    node.sh("rm -f /usr/lib/security/pam_slurm_adopt.so /usr/lib64/security/pam_slurm_adopt.so")
        .ok();
    node.sh(&format!(
        "cp {0}/pam_access.so {0}/pam_slurm_adopt.so",
        folder.display()
    ))
    .ok();
    node.write("/etc/security/access.conf", "+:alice root:ALL\n-:ALL:ALL\n");
    node.write("/etc/security/staff.conf", "+:(ops) root:ALL\n-:ALL:ALL\n");
    node.write(
        "/etc/security/time.conf",
        "*;*;!opsuser & !root;!Al0000-2400\n",
    );
    node.write("/etc/staff", "ops\nroot\n");
}

fn write_recipe(node: &Node, recipe: &str) {
    let recipe = recipe
        .replace(
            "ACCESS",
            "pam_access.so accessfile=/etc/security/staff.conf",
        )
        .replace(
            "LISTFILE",
            "pam_listfile.so item=group sense=allow file=/etc/staff onerr=fail",
        )
        .replace("SUCCEED_IF", "pam_succeed_if.so quiet user ingroup ops");
    let text = format!(
        "auth required pam_unix.so\naccount required pam_nologin.so\n{recipe}\
         account required pam_unix.so\nsession required pam_permit.so\n"
    );
    node.write("/etc/pam.d/sshd", &text);
}

/// Returns who gets in.
pub(crate) fn admitted(node: &Node, users: &[User]) -> Vec<&'static str> {
    let is_admitted = |user: &&User| node.account(**user).code == 0;
    users
        .iter()
        .filter(is_admitted)
        .map(|user| user.name)
        .collect()
}

/// Owners of jobs, users without a job and staff get in or stay out as before, and root gets in.
#[test]
fn recipes_of_sites_keep_their_verdicts() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        let install = [
            "enable",
            "--only",
            "pam",
            "--arguments",
            "exempt_groups=ops timeout=40",
        ];
        for recipe in RECIPES {
            write_recipe(node, recipe);
            let old = node.read("/etc/pam.d/sshd");
            let before = admitted(node, &[ALICE, CAROL, OPS]);
            let staff = !recipe.contains("pam_deny");
            assert_eq!(
                before,
                if staff {
                    vec!["alice", "opsuser"]
                } else {
                    vec!["alice"]
                },
                "{old}"
            );
            let refused = node.job_adopt(&["enable", "--only", "pam", "--dry-run"]);
            assert_eq!(refused.code, if staff { 3 } else { 0 }, "{old}{refused}");
            if !staff {
                node.job_adopt(&["enable", "--only", "pam", "--arguments", "timeout=40"])
                    .exits(0);
            } else {
                node.job_adopt(&install).exits(0);
            }
            let new = node.read("/etc/pam.d/sshd");
            assert_eq!(
                admitted(node, &[ALICE, CAROL, OPS]),
                before,
                "{old} became {new}"
            );
            assert_eq!(admitted(node, &[ROOT]), ["root"], "{old} became {new}");
            node.job_adopt(&["disable", "--only", "pam"]).exits(0);
            assert_eq!(node.read("/etc/pam.d/sshd"), old);
            assert_eq!(admitted(node, &[ALICE, CAROL, OPS]), before, "{old}");
        }
    });
}

/// The line that a refusal proposes spares users with a job the lines below it, and staff pass these.
#[test]
fn proposed_line_keeps_verdicts() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        let unknown = "account sufficient pam_slurm_adopt.so\naccount required pam_site.so\n";
        write_recipe(node, unknown);
        let print = [
            "enable",
            "--only",
            "pam",
            "--dry-run",
            "--arguments",
            "exempt_groups=ops timeout=40",
        ];
        let proposed = "account [success=done ignore=ignore default=die] pam_job_adopt.so \
                        exempt_groups=ops timeout=40";
        node.job_adopt(&print).exits(3).says(proposed);
        let new = node
            .read("/etc/pam.d/sshd")
            .replace("account sufficient pam_slurm_adopt.so", proposed)
            .replace(
                "pam_site.so",
                "pam_access.so accessfile=/etc/security/staff.conf",
            )
            + "session required pam_job_adopt.so exempt_groups=ops timeout=40\n";
        node.write("/etc/pam.d/sshd", &new);
        assert_eq!(
            admitted(node, &[ALICE, CAROL, OPS, ROOT]),
            ["alice", "opsuser", "root"]
        );
    });
}

/// The page has one block with the file before the change and after it.
#[test]
fn enable_writes_the_stack_of_the_migration_page() {
    on_node(|node| {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pam/el-sssd");
        for file in ["etc/pam.d/password-auth", "etc/pam.d/postlogin"] {
            let text = std::fs::read_to_string(fixtures.join(file)).unwrap();
            node.write(&format!("/{file}"), &text);
        }
        let page = include_str!("../../docs/migrate.md");
        let block = page
            .split("```diff\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        let side = |mark: char| -> String {
            let lines = block.lines().filter(|line| line.starts_with([' ', mark]));
            lines.map(|line| format!("{}\n", &line[1..])).collect()
        };
        node.write("/etc/pam.d/sshd", &side('-'));
        let install = [
            "enable",
            "--only",
            "pam",
            "--arguments",
            "exempt_groups=ops",
        ];
        node.job_adopt(&install).exits(0);
        assert_eq!(node.read("/etc/pam.d/sshd"), side('+'));
    });
}

/// Stands in for systemd: runs what a transient unit would, and the commands of the undo. `/run/called` lists the
/// calls of systemctl, in each of which the commands of `/run/fails` run first.
pub(crate) fn fake_systemd(node: &Node) {
    node.create_dir("/run/systemd/system", 0o755);
    let run = "#!/bin/sh\ncase \"$*\" in *--on-active=*) exit 0 ;; esac\n\
               while [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n";
    let control = "#!/bin/sh\necho \"$*\" >>/run/called\n[ ! -e /run/fails ] || . /run/fails\n\
                   unit=/etc/systemd/system/$2\n[ \"$1\" = start ] || exit 0\n\
                   case $2 in job-adopt-undo*) ;; *) exit 0 ;; esac\n\
                   [ -e \"$unit\" ] || exit 5\n\
                   [ ! -e \"$(sed -n 's/^ConditionPathExists=//p' \"$unit\")\" ] ||\n\
                   sed -n 's/^ExecStart=-\\(.*\\)/\\1 || :/p; s/^ExecStart=//p' \"$unit\" | sh -e\n";
    for (name, text) in [("systemd-run", run), ("systemctl", control)] {
        node.write(&format!("/run/{name}"), text);
        node.sh(&format!("install -m 0755 /run/{name} /usr/bin/{name}"))
            .ok();
    }
}

pub(crate) fn try_for(node: &Node, arguments: &str) -> crate::support::Outcome {
    let words = [
        "enable",
        "--try",
        "15m",
        "--without-job",
        "carol",
        "--arguments",
        arguments,
        "alice",
    ];
    node.job_adopt(&words)
}

/// libpam is asked, since a module may decide otherwise than its arguments and name let expect.
#[test]
fn try_asks_both_stacks_about_users_with_and_without_a_job() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        fake_systemd(node);
        let slurm = "account required pam_slurm_adopt.so\n";
        write_recipe(node, slurm);
        let old = node.read("/etc/pam.d/sshd");
        let mut tried = try_for(node, "timeout=40").exits(0);
        for line in [
            "account of alice: admitted before, admitted now",
            "account of carol: refused before, refused now",
            "account of root: admitted before, admitted now",
        ] {
            tried = tried.says(line);
        }
        assert_eq!(node.read("/etc/pam.d/.sshd.before-job-adopt"), old);
        node.job_adopt(&["enable", "--undo"]).exits(0);
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
        // The stand-in refuses carol all the same.
        write_recipe(node, &slurm.replace(".so", ".so action_no_jobs=ignore"));
        let opening = node.read("/etc/pam.d/sshd");
        let refused = try_for(node, "timeout=40").exits(1);
        refused
            .says("account of carol: refused before, admitted now")
            .says("user carol has no job here, and would get in now");
        assert_eq!(node.read("/etc/pam.d/sshd"), opening);
        assert!(!node.exists("/etc/pam.d/.sshd.before-job-adopt"));
        assert!(!node.exists("/etc/systemd/system/user-.slice.d"));
        assert_eq!(admitted(node, &[ALICE, CAROL, ROOT]), ["alice", "root"]);
    });
}

/// What cannot be tried is said before anything changes, and the last line says who gets in.
#[test]
fn try_ends_with_a_verdict() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        fake_systemd(node);
        let old = node.read("/etc/pam.d/sshd");
        node.job_adopt(&["enable", "--try", "15m", "alcie"])
            .exits(3)
            .says("no such user")
            .omits("pam: change");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
        node.sh("echo greeting >/etc/motd").ok();
        let text = "account required pam_permit.so\nsession required pam_motd.so\n";
        node.write("/etc/pam.d/sshd", text);
        let tried = try_for(node, "timeout=40").exits(0).omits("greeting");
        assert!(
            tried
                .stdout
                .contains("\nalice in (job 4242), carol out (no job), root in\n"),
            "{tried}"
        );
        let kept = node.job_adopt(&["enable", "--keep"]).exits(0);
        drop(kept);
        let again = node
            .job_adopt(&["enable", "--try", "15m", "alice"])
            .exits(0);
        let again = again
            .says("nothing is tried, and no timer runs")
            .says("alice in (job 4242)");
        assert!(!again.stdout.contains("goes back"), "{again}");
        node.job_adopt(&["disable"]).exits(0);
        let refused = node
            .job_adopt(&["enable", "--try", "15m", "carol"])
            .exits(1);
        let fault =
            "user carol would not get in: choose a user with a running job: job-adopt list\n";
        assert!(refused.stdout.contains(fault), "{refused}");
        assert_eq!(node.read("/etc/pam.d/sshd"), text);
        drop(job);
    });
}

/// A module such as pam_faillock takes each question for a login.
#[test]
fn try_asks_each_stack_once_about_each_person() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        fake_systemd(node);
        node.write(
            "/run/count",
            "#!/bin/sh\necho $PAM_USER $(grep -c pam_job_adopt /etc/pam.d/sshd) >>/run/asked\n",
        );
        node.set_mode("/run/count", 0o755);
        write_recipe(
            node,
            "account optional pam_exec.so /run/count\naccount required pam_faillock.so\n",
        );
        let asked = || {
            let lines = node.sh("sort /run/asked; : >/run/asked").stdout;
            lines.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let words = ["enable", "--try", "15m", "--without-job", "carol"];
        let twice = ["alice", "root", "alice"];
        let line = "warning: pam_faillock.so at /etc/pam.d/sshd:4: takes the question about alice, carol, root \
                    for a login, and forgets failed attempts of those it lets in\n";
        let tried = node.job_adopt(&[&words[..], &["--arguments", "timeout=40", "alice"]].concat());
        assert!(tried.stderr.contains(line), "{tried}");
        tried
            .exits(0)
            .says("account of alice: admitted before, admitted now");
        let both = [
            "alice 0", "alice 4", "carol 0", "carol 4", "root 0", "root 4",
        ];
        assert_eq!(asked(), both);
        node.job_adopt(&["enable", "--undo"]).exits(0);
        node.job_adopt(&[&words[..], &["--arguments", "timeout=40"], &twice].concat())
            .exits(0)
            .says("\nalice in (job 4242), root in");
        assert_eq!(asked(), both);
        node.job_adopt(&["enable", "--keep"]).exits(0);
        // There is one stack.
        node.job_adopt(&[&words[..], &["alice"]].concat())
            .exits(0)
            .says("account of carol: refused (as it should be: has no job here)")
            .says("alice in (job 4242), carol out (no job), root in");
        assert_eq!(asked(), ["alice 4", "carol 4", "root 4"]);
        node.job_adopt(&[&words[..], &["carol"]].concat())
            .exits(3)
            .says("try carol: is to get in, and is named by --without-job too");
        assert!(asked().is_empty());
    });
}

#[test]
fn try_finds_a_user_without_a_job_by_itself() {
    on_node(|node| {
        let _jobs = [
            node.job(ALICE, "4242").start(),
            node.job(OPS, "4243").start(),
        ];
        lay_out_recipes(node);
        fake_systemd(node);
        write_recipe(node, "account required pam_slurm_adopt.so\n");
        let asked = [
            "enable",
            "--try",
            "15m",
            "--arguments",
            "timeout=40",
            "alice",
        ];
        let tried = node.job_adopt(&asked).exits(0);
        tried
            .says("refused before, refused now")
            .omits("account of opsuser");
        node.job_adopt(&["enable", "--undo"]).exits(0);
        let named = [
            "enable",
            "--try",
            "15m",
            "--without-job",
            "opsuser",
            "alice",
        ];
        node.job_adopt(&named)
            .exits(3)
            .says("opsuser: has a job here");
    });
}

/// Returns the path of the old module, which [`lay_out_recipes`] installs.
fn old_module(node: &Node) -> String {
    let module = Path::new(&node.module()).with_file_name("pam_slurm_adopt.so");
    module.to_str().unwrap().to_owned()
}

/// Asserts that the command takes our lines out and leaves that of the old module out, which is gone: nobody
/// is locked out.
#[track_caller]
fn assert_way_back_admits_all(node: &Node, command: &[&str], old: &str) {
    node.job_adopt(command)
        .exits(1)
        .says("stays commented out: pam_slurm_adopt.so is not there")
        .says("nothing keeps users without a job out now");
    assert_eq!(
        node.read("/etc/pam.d/sshd").replace("#job-adopt: ", ""),
        old
    );
    assert_eq!(
        admitted(node, &[ALICE, CAROL, ROOT]),
        ["alice", "carol", "root"]
    );
}

/// The module is removed from the node, as at the end of a migration, and the way back is taken later.
#[test]
fn way_back_after_removal_of_the_old_module_locks_no_user_out() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        // The module of Debian's package is there, where libpam looks second.
        node.sh("test ! -d /lib/security || mount -t tmpfs none /lib/security")
            .ok();
        write_recipe(node, "account required pam_slurm_adopt.so\n");
        let old = node.read("/etc/pam.d/sshd");
        node.job_adopt(&["enable", "--only", "pam", "--arguments", "timeout=40"])
            .exits(0);
        let slurm = old_module(node);
        node.sh(&format!("mv {slurm} {slurm}.gone")).ok();
        assert_way_back_admits_all(node, &["disable", "--only", "pam"], &old);
        node.sh(&format!("mv {slurm}.gone {slurm}")).ok();
        node.job_adopt(&["disable", "--only", "pam"]).exits(0);
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
    });
}

/// Without the old module's line the jump would skip pam_unix, which refuses an expired account.
#[test]
fn way_back_restores_no_jump_without_the_line_that_it_skips() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        write_recipe(
            node,
            "account [success=1 default=ignore] SUCCEED_IF\naccount required pam_slurm_adopt.so\n",
        );
        node.sh(
            "awk -F: -v OFS=: '$1 == \"opsuser\" { $8 = 1 } 1' /etc/shadow >/run/shadow && \
                 cat /run/shadow >/etc/shadow",
        )
        .ok();
        assert_eq!(
            admitted(node, &[ALICE, CAROL, OPS, ROOT]),
            ["alice", "root"]
        );
        let install = [
            "enable",
            "--only",
            "pam",
            "--arguments",
            "exempt_groups=ops timeout=40",
        ];
        node.job_adopt(&install).exits(0);
        assert_eq!(
            admitted(node, &[ALICE, CAROL, OPS, ROOT]),
            ["alice", "root"]
        );
        node.sh(&format!("rm {}", old_module(node))).ok();
        let removed = node.job_adopt(&["disable", "--only", "pam"]).exits(1);
        removed
            .says("sshd:3 stays commented out")
            .says("sshd:4 stays commented out");
        assert_eq!(
            admitted(node, &[ALICE, CAROL, OPS, ROOT]),
            ["alice", "carol", "root"]
        );
    });
}

/// Neither the timer nor the boot asks this program.
#[test]
fn undo_by_timer_restores_no_line_whose_module_is_gone() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        fake_systemd(node);
        write_recipe(node, "account required pam_slurm_adopt.so\n");
        let old = node.read("/etc/pam.d/sshd");
        let slurm = old_module(node);
        let undo = ["start", "job-adopt-undo.service"];
        try_for(node, "timeout=40").exits(0);
        let new = node.read("/etc/pam.d/sshd");
        node.sh(&format!("mv {slurm} {slurm}.gone")).ok();
        node.run("systemctl", &undo)
            .fails()
            .says("pam_slurm_adopt.so");
        assert_eq!(node.read("/etc/pam.d/sshd"), new);
        assert_eq!(admitted(node, &[ALICE, CAROL, ROOT]), ["alice", "root"]);
        // By hand the others come back.
        assert_way_back_admits_all(node, &["enable", "--undo"], &old);
        node.job_adopt(&["enable", "--undo"])
            .exits(3)
            .says("nothing is tried");
        // With the module all come back.
        node.sh(&format!("mv {slurm}.gone {slurm}")).ok();
        node.job_adopt(&["disable", "--only", "pam"]).exits(0);
        try_for(node, "timeout=40").exits(0);
        node.run("systemctl", &undo).ok();
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
        // So they do if it has moved to another of libpam's folders.
        try_for(node, "timeout=40").exits(0);
        node.create_dir("/usr/lib/security", 0o755);
        node.sh(&format!("mv {slurm} /usr/lib/security")).ok();
        node.job_adopt(&["enable", "--undo"])
            .exits(0)
            .says("as it was");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
    });
}

/// The module is removed while the new stack is asked, and the answer then takes the new stack back.
#[test]
fn refused_try_restores_no_line_whose_module_is_gone() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        fake_systemd(node);
        node.sh("test ! -d /lib/security || mount -t tmpfs none /lib/security")
            .ok();
        write_recipe(node, "account required pam_slurm_adopt.so\n");
        let slurm = old_module(node);
        node.sh(&format!(
            "sed -i '2i ! grep -q pam_job_adopt /etc/pam.d/sshd || rm -f {slurm}' /usr/bin/systemd-run"
        ))
        .ok();
        let words = [
            "enable",
            "--try",
            "15m",
            "--without-job",
            "carol",
            "--arguments",
            "timeout=40",
            "opsuser",
        ];
        node.job_adopt(&words)
            .exits(1)
            .says("stays commented out: pam_slurm_adopt.so is not there")
            .says("taken back, but for what is named above");
        assert_eq!(admitted(node, &[ALICE, ROOT]), ["alice", "root"]);
    });
}

/// systemd-run exits with 1 for a timeout, a core dump or a lost bus.
#[test]
fn try_without_an_answer_changes_nothing() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        fake_systemd(node);
        write_recipe(node, "account required pam_slurm_adopt.so\n");
        let old = node.read("/etc/pam.d/sshd");
        node.sh("sed -i '2i case \"$*\" in *--account*root) exit 1 ;; esac' /usr/bin/systemd-run")
            .ok();
        try_for(node, "timeout=40")
            .exits(3)
            .says("ask the stack about root");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
        assert!(!node.exists("/etc/pam.d/.sshd.before-job-adopt"));
        // Only the new stack gives no answer.
        node.sh("sed -i '2s@root)@root) ! grep -q pam_job_adopt /etc/pam.d/sshd ||@' /usr/bin/systemd-run").ok();
        try_for(node, "timeout=40")
            .exits(1)
            .says("ask the stack about root");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
    });
}

/// sshd lets in a user whose password has expired, who then sets a new one.
#[test]
fn try_admits_a_user_whose_password_has_expired() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_recipes(node);
        fake_systemd(node);
        write_recipe(node, "account required pam_slurm_adopt.so\n");
        node.sh(
            "awk -F: -v OFS=: '$1 == \"alice\" { $3 = 0 } 1' /etc/shadow >/run/shadow && \
                 cat /run/shadow >/etc/shadow",
        )
        .ok();
        try_for(node, "timeout=40")
            .exits(0)
            .says("account of alice: admitted before, admitted now");
    });
}

/// A comment of the file is Latin-1, and a group has a blank in its name.
#[test]
fn bytes_and_blanks_survive_the_switch() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        install_shape(node, "debian");
        node.sh("printf '# f\\374r alle\\n' >>/etc/pam.d/sshd; cp /etc/pam.d/sshd /run/old")
            .ok();
        node.sh("echo 'hpc admins:x:1500:opsuser' >>/etc/group; mkdir '/etc/site hpc'")
            .ok();
        node.sh(": >'/etc/site hpc/x.conf'").ok();
        let arguments = "timeout=40 [conf=/etc/site hpc/x.conf] [exempt_groups=hpc admins]";
        node.job_adopt(&["enable", "--only", "pam", "--arguments", arguments])
            .exits(0);
        assert_eq!(
            admitted(node, &[ALICE, CAROL, OPS, ROOT]),
            ["alice", "opsuser", "root"]
        );
        node.sh("grep -a -c '\\[conf=/etc/site hpc/x.conf\\]' /etc/pam.d/sshd")
            .says("2");
        node.job_adopt(&["disable", "--only", "pam"]).exits(0);
        node.sh("cmp /etc/pam.d/sshd /run/old").ok();
        drop(job);
    });
}

/// The files that `enable` and `disable` change, and what they keep meanwhile.
const STATE: &str = "cd /etc && find pam.d dbus-1/system.d systemd/system ! -name .wh* \\( ! -type d -o -name '*.d' \\) \
                     -printf '%M %u %g %p %l\\n' | sort -k4; \
                     find pam.d dbus-1/system.d systemd/system -type f -exec cksum {} + | sort -k3";

/// Lays out a node that `enable` changes in all its parts, with a stand-in for systemd.
pub(crate) fn lay_out_node(node: &Node) {
    fake_systemd(node);
    node.create_dir("/etc/dbus-1/system.d", 0o755);
    node.create_dir("/etc/systemd/system/local-fs.target.wants", 0o755);
    node.create_dir("/etc/systemd/system/sysinit.target.wants", 0o755);
    node.create_dir("/usr/lib/systemd/system", 0o755);
    node.sh("touch '/usr/lib/systemd/system/run-job\\x2dadopt-use.mount'")
        .ok();
    write_recipe(node, "");
}

pub(crate) fn state(node: &Node) -> String {
    node.sh(STATE).ok().stdout
}

/// Asserts that the node has all of `enable`, and nothing that would take it back.
#[track_caller]
pub(crate) fn assert_enabled(node: &Node) {
    node.sh("[ $(grep -c pam_job_adopt /etc/pam.d/sshd) = 4 ] && cd /etc/systemd/system &&
             ls user-.slice.d/job-adopt.conf user-0.slice.d/job-adopt.conf local-fs.target.wants/*use.mount &&
             ls /etc/dbus-1/system.d/job-adopt.conf &&
             ! ls job-adopt-undo* sysinit.target.wants/job-adopt-undo* /etc/pam.d/.*.before-job-adopt")
        .ok();
}

pub(crate) const ENABLE: [&str; 3] = ["enable", "--arguments", "timeout=40"];

#[test]
fn all_parts_are_shown_enabled_once_and_disabled() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        // systemctl says that the mount is not active.
        node.write(
            "/run/fails",
            "[ \"$1 $3\" != 'is-active run-job\\x2dadopt-use.mount' ] || exit 3\n",
        );
        let before = state(node);
        let shown = node
            .job_adopt(&[&ENABLE[..], &["--dry-run"]].concat())
            .exits(0);
        let steps = [
            "pam: change /etc/pam.d/sshd\n",
            "  + account    required     pam_job_adopt.so timeout=40\n",
            "slices: create /etc/systemd/system/user-.slice.d/job-adopt.conf\n",
            "bus: create /etc/dbus-1/system.d/job-adopt.conf\n",
            "mount: create /etc/systemd/system/local-fs.target.wants/run-job",
            "slices: systemctl daemon-reload\n",
            "bus: systemctl reload dbus\n",
            "mount: systemctl start 'run-job\\x2dadopt-use.mount'\n",
        ];
        let mut said = shown.stdout.as_str();
        for step in steps {
            said = said
                .split_once(step)
                .unwrap_or_else(|| panic!("{step}: {shown}"))
                .1;
        }
        assert_eq!(state(node), before);
        node.sh("rm -f /run/called").ok();
        let made = node.job_adopt(&ENABLE).exits(0);
        for step in steps {
            assert!(made.stdout.contains(step), "{step}: {made}");
        }
        assert_enabled(node);
        assert_eq!(admitted(node, &[ALICE, CAROL, ROOT]), ["alice", "root"]);
        let called = node.read("/run/called");
        let tail = called.split("reload dbus.service\n").nth(1).unwrap();
        assert!(
            tail.starts_with("start run-job\\x2dadopt-use.mount\n"),
            "{called}"
        );
        node.write("/run/fails", "");
        for again in [&ENABLE[..], &["enable"]] {
            let unchanged = node.job_adopt(again).exits(0);
            assert_eq!(unchanged.stdout, "unchanged: the node is as asked\n");
        }
        node.sh("mkdir /etc/systemd/system/cron.service.d; touch /etc/systemd/system/cron.service.d/job-adopt.conf")
            .ok();
        let enabled = state(node);
        node.job_adopt(&["disable", "--dry-run"])
            .exits(0)
            .says("slices: detach systemd's filter from those of users who are logged in");
        assert_eq!(state(node), enabled);
        node.job_adopt(&["disable"])
            .exits(0)
            .says("cron.service.d/job-adopt.conf: stays");
        assert!(
            node.read("/run/called")
                .contains("stop run-job\\x2dadopt-use.mount\n")
        );
        node.sh("rm -r /etc/systemd/system/cron.service.d").ok();
        assert_eq!(state(node), before);
        assert_eq!(
            admitted(node, &[ALICE, CAROL, ROOT]),
            ["alice", "carol", "root"]
        );
        node.write("/run/fails", "[ $1 != is-active ] || exit 3\n");
        node.job_adopt(&["disable"]).exits(0).says("unchanged");
    });
}

/// Each call of systemctl fails once, and each folder is full once.
#[test]
fn failed_step_leaves_the_node_as_it_was() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        let before = state(node);
        let full = "mount -t tmpfs -o size=512k,mode=755 none FOLDER && cp -a /run/copy/. FOLDER && \
                    dd if=/dev/zero of=FOLDER/ballast bs=4k 2>/run/dd || :";
        let faults = [
            "[ -e /etc/systemd/system/user-.slice.d/job-adopt.conf ] && [ \"$1\" = daemon-reload ] && exit 1\n",
            "[ \"$1\" = reload ] && exit 1\n",
            "[ \"$1\" = daemon-reload ] && exit 1\n",
        ];
        for fault in faults {
            node.write("/run/fails", fault);
            node.job_adopt(&ENABLE).exits(3).says("run systemctl");
            node.write("/run/fails", "");
            assert_eq!(state(node), before, "{fault}");
        }
        for folder in ["/etc/dbus-1/system.d", "/etc/systemd/system", "/etc/pam.d"] {
            node.sh(&format!("rm -rf /run/copy; cp -a {folder} /run/copy"))
                .ok();
            node.sh(&full.replace("FOLDER", folder)).ok();
            node.job_adopt(&ENABLE).exits(3).says("No space left");
            node.sh(&format!("rm {folder}/ballast")).ok();
            assert_eq!(state(node), before, "{folder}");
            node.sh(&format!("umount {folder}")).ok();
        }
        node.job_adopt(&ENABLE).exits(0);
        assert_enabled(node);
        let enabled = state(node);
        node.write("/run/fails", faults[1]);
        node.job_adopt(&["disable"])
            .exits(3)
            .says("run systemctl reload dbus.service")
            .says("taken back, but for what is named above");
        node.write("/run/fails", "");
        assert_eq!(state(node), enabled);
        assert_eq!(admitted(node, &[ALICE, CAROL, ROOT]), ["alice", "root"]);
        node.job_adopt(&["disable"]).exits(0);
        assert_eq!(state(node), before);
    });
}

/// A user has a file open there, and systemd cannot unmount it.
#[test]
fn busy_mount_does_not_keep_the_node_enabled() {
    on_node(|node| {
        lay_out_node(node);
        node.job_adopt(&ENABLE).exits(0);
        node.write(
            "/run/fails",
            "[ \"$1\" != stop ] || case $2 in *use.mount) exit 1 ;; esac\n",
        );
        node.job_adopt(&["disable"])
            .exits(0)
            .says("/run/job-adopt/use: stays mounted")
            .says("disabled");
        assert!(!node.read("/etc/pam.d/sshd").contains("pam_job_adopt"));
        assert!(!node.exists("/etc/systemd/system/user-.slice.d"));
    });
}

/// The command is killed while it reloads the bus, when all files are changed.
#[test]
fn interrupted_change_goes_back_by_unit_or_next_call() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        let before = state(node);
        let interrupt = |command: &[&str]| {
            node.write(
                "/run/fails",
                "[ \"$1\" != reload ] || { rm /run/fails; kill -KILL $PPID; }\n",
            );
            assert_ne!(node.job_adopt(command).code, 0);
        };
        interrupt(&ENABLE);
        node.job_adopt(&["enable", "--keep"])
            .exits(3)
            .says("was interrupted");
        node.run("systemctl", &["start", "job-adopt-undo.service"])
            .ok();
        assert_eq!(state(node), before);
        interrupt(&ENABLE);
        node.job_adopt(&["enable", "--undo"])
            .exits(0)
            .says("as it was");
        assert_eq!(state(node), before);
        interrupt(&ENABLE);
        node.job_adopt(&ENABLE)
            .exits(0)
            .says("an earlier job-adopt enable was interrupted");
        assert_enabled(node);
        let enabled = state(node);
        interrupt(&["disable"]);
        node.run("systemctl", &["start", "job-adopt-undo.service"])
            .ok();
        assert_eq!(state(node), enabled);
        interrupt(&["disable"]);
        node.job_adopt(&["disable"])
            .exits(0)
            .says("an earlier job-adopt disable was interrupted");
        assert_eq!(state(node), before);
    });
}

/// An edit during a try survives its end, and nothing of the try does.
#[test]
fn edits_during_a_try_stay() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        let before = node.read("/etc/pam.d/sshd");
        try_for(node, "timeout=40").exits(0);
        node.job_adopt(&ENABLE).exits(3).says("a try is under way");
        node.sh("echo '# edited' >>/etc/pam.d/sshd; echo '# edited' >>/etc/systemd/system/user-0.slice.d/job-adopt.conf")
            .ok();
        node.job_adopt(&["enable", "--undo"])
            .exits(1)
            .says("sshd: was edited meanwhile: our lines are taken out")
            .says("user-0.slice.d/job-adopt.conf: was edited meanwhile, and stays");
        assert_eq!(node.read("/etc/pam.d/sshd"), format!("{before}# edited\n"));
        assert!(!node.exists("/etc/systemd/system/user-.slice.d"));
        assert_eq!(
            admitted(node, &[ALICE, CAROL, ROOT]),
            ["alice", "carol", "root"]
        );
        // What is kept keeps its edits.
        try_for(node, "timeout=40").exits(0);
        node.sh("echo '# again' >>/etc/pam.d/sshd").ok();
        node.job_adopt(&["enable", "--keep"]).exits(0);
        assert_enabled(node);
        let kept = node.read("/etc/pam.d/sshd");
        assert!(
            kept.contains("# edited\n") && kept.ends_with("# again\n"),
            "{kept}"
        );
    });
}

/// The undo's unit restores the stack first, and stops at a later file that it cannot restore.
#[test]
fn try_that_went_back_in_part_is_not_kept() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        let before = state(node);
        // A stale copy does not become the policy.
        node.write(
            "/etc/dbus-1/system.d/.job-adopt.conf.before-job-adopt",
            "stale\n",
        );
        try_for(node, "timeout=40").exits(0);
        node.sh("cd /etc/pam.d && mv .sshd.before-job-adopt sshd")
            .ok();
        node.job_adopt(&["enable", "--keep"])
            .exits(3)
            .says("/etc/pam.d/sshd: it went back already");
        node.job_adopt(&["enable", "--undo"]).exits(0);
        assert_eq!(state(node), before);
    });
}

#[test]
fn try_asks_about_each_user_and_goes_back_for_one() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        let before = state(node);
        let words = [
            "enable",
            "--try",
            "15m",
            "--arguments",
            "timeout=40",
            "alice",
            "carol",
        ];
        node.job_adopt(&words)
            .exits(1)
            .says("account of alice: admitted before, admitted now")
            .says("user carol would not get in")
            .says("taken back");
        assert_eq!(state(node), before);
    });
}

/// Two calls at once would each take the other's files for the old ones.
#[test]
fn second_change_at_the_same_time_is_refused() {
    on_node(|node| {
        lay_out_node(node);
        node.write(
            "/run/fails",
            "[ \"$1\" != reload ] || { rm /run/fails; job-adopt disable >/run/second 2>&1; echo $? >>/run/second; }\n",
        );
        node.job_adopt(&ENABLE).exits(0);
        let second = node.read("/run/second");
        assert!(
            second.contains("another enable or disable is running") && second.ends_with("\n3\n"),
            "{second}"
        );
        assert_enabled(node);
    });
}

/// Logins stay in users' slices while the lines observe.
#[test]
fn observing_lines_leave_slices_open() {
    on_node(|node| {
        lay_out_node(node);
        node.job_adopt(&["enable", "--arguments", "observe"])
            .exits(0)
            .says("slices, bus: left out");
        assert!(!node.exists("/etc/systemd/system/user-.slice.d"));
        assert!(!node.exists("/etc/dbus-1/system.d/job-adopt.conf"));
        node.job_adopt(&["enable"])
            .exits(0)
            .says("slices, bus: left out");
        node.job_adopt(&ENABLE).exits(0);
        assert_enabled(node);
        node.job_adopt(&["enable", "--arguments", "observe"])
            .exits(3)
            .says("job-adopt disable --only slices,bus first");
        assert_enabled(node);
    });
}

/// Lines of pam-auth-update and of other services are not this command's to take.
#[test]
fn lines_elsewhere_are_kept_and_named() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        install_shape(node, "debian");
        node.sh("cd /etc/pam.d && sed -i '1i account required pam_job_adopt.so timeout=40' common-account &&
                 echo 'session required pam_job_adopt.so timeout=40' >>common-session && cp common-account other-service")
            .ok();
        let old = node.read("/etc/pam.d/sshd");
        node.job_adopt(&["enable"])
            .exits(0)
            .says("pam-auth-update")
            .says("slices: create");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
        node.job_adopt(&["disable"])
            .exits(1)
            .says("common-account:1: a line of pam_job_adopt.so is left")
            .says("slices, bus, mount: left out, since other-service still has")
            .says("job-adopt disable --service other-service");
        // The logins of the other service still join jobs, and need all else.
        assert!(node.exists("/etc/systemd/system/user-.slice.d"));
        assert!(node.exists("/etc/dbus-1/system.d/job-adopt.conf"));
        node.job_adopt(&["disable", "--only", "slices,bus"])
            .exits(0);
        assert!(!node.exists("/etc/systemd/system/user-.slice.d"));
    });
}
