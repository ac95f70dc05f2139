//! `job-adopt pam` adds both lines to real stacks of each shape, and removes them again.

use std::path::Path;

use crate::support::{ALICE, CAROL, Node, on_node};

/// Installs the stack of a shape, with the modules that this machine has.
fn install_shape(node: &Node, shape: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pam").join(shape);
    let modules = std::path::PathBuf::from(node.module());
    node.sh("rm -f /etc/pam.d/sshd").ok();
    for folder in ["etc/pam.d", "usr/lib/pam.d"] {
        let Ok(files) = std::fs::read_dir(fixtures.join(folder)) else { continue };
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
            node.write(&format!("/{folder}/{}", file.file_name().to_str().unwrap()), &text);
        }
    }
    node.sh("cat /etc/pam.d/sshd /usr/lib/pam.d/sshd 2>/dev/null").stdout
}

#[test]
fn every_shape_of_stack_is_switched_on_and_off() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for shape in ["debian", "el", "suse"] {
            let old = install_shape(node, shape);
            node.pam(CAROL).ok();
            let install = ["pam", "--install", "--arguments", "timeout=40"];
            node.job_adopt(&install).exits(0).says("changed");
            node.pam(CAROL).fails().says("[JA01]");
            node.sh("echo 'session optional pam_exec.so stdout /usr/bin/cat /proc/self/cgroup' \
                     >>/etc/pam.d/sshd")
                .ok();
            node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
            node.sh("sed -i '$d' /etc/pam.d/sshd").ok();
            let new = node.read("/etc/pam.d/sshd");
            node.job_adopt(&install).exits(0).says("unchanged");
            node.job_adopt(&["pam", "--print"]).exits(0).says(&new);
            node.job_adopt(&["pam", "--remove"]).exits(0);
            node.job_adopt(&["pam", "--remove"]).exits(0).says("unchanged");
            assert_eq!(node.sh("cat /etc/pam.d/sshd /usr/lib/pam.d/sshd 2>/dev/null").stdout, old);
            assert_eq!(node.exists("/etc/pam.d/sshd"), shape != "suse");
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
        let install = ["pam", "--install"];
        node.job_adopt(&install).exits(3).says("nobody could log in");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
        node.sh(&format!("mv {0}.away {0}", node.module())).ok();
        node.job_adopt(&["pam", "--install", "--arguments", "typo"]).exits(3).says("typo");
        node.job_adopt(&["pam"]).exits(2);
        node.job_adopt(&["pam", "--print", "--remove"]).exits(2);
        let mut alice = vec!["--reuid", "1001", "--regid", "1001", "--clear-groups", "job-adopt"];
        alice.extend(install);
        node.run("setpriv", &alice).exits(3).says("must be run as root");
        node.sh("mv /etc/pam.d/sshd /etc/pam.d/real && ln -s real /etc/pam.d/sshd").ok();
        node.job_adopt(&install).exits(3).says("authselect");
        assert_eq!(node.read("/etc/pam.d/real"), old);
        // Without systemd no timer would restore the stack.
        node.sh("mv /etc/pam.d/real /etc/pam.d/sshd").ok();
        node.job_adopt(&["enable", "--try", "15m", "alice"]).exits(3).says("systemd");
        node.job_adopt(&["enable", "--keep"]).exits(3).says("nothing is tried");
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
    });
}
