//! `pam_slurm_adopt` and ours side by side: the same logins through both, on the same node.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{
    ALICE, BOB, CAROL, FORGED, LOOK, OPS, Outcome, Slurm, SlurmJob, Sshd, User, on_slurm,
};

/// Arguments that the rival's documentation gives to sites that want it to fail closed.
const DENY: &str = "action_adopt_failure=deny action_generic_failure=deny";

/// A module with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Module {
    /// `pam_slurm_adopt` with its defaults.
    Theirs,
    /// `pam_slurm_adopt` with [`DENY`].
    TheirsDenying,
    Ours,
}

impl Module {
    const ALL: [Self; 3] = [Self::Theirs, Self::TheirsDenying, Self::Ours];

    fn name(self) -> &'static str {
        match self {
            Self::Theirs => "pam_slurm_adopt",
            Self::TheirsDenying => "  with =deny",
            Self::Ours => "pam_job_adopt",
        }
    }

    /// Returns the stack that the documentation of each module recommends.
    fn stack(self) -> String {
        let theirs = |arguments: &str| {
            format!(
                "auth required pam_unix.so\naccount required pam_unix.so\n\
                 -account required pam_slurm_adopt.so {arguments}\nsession required pam_permit.so\n"
            )
        };
        match self {
            Self::Theirs => theirs(""),
            Self::TheirsDenying => theirs(DENY),
            Self::Ours => "auth required pam_unix.so\naccount required pam_unix.so\n\
                 account required pam_job_adopt.so timeout=4\nsession required pam_permit.so\n\
                 session required pam_job_adopt.so timeout=4\n"
                .into(),
        }
    }
}

/// A login through one module.
#[derive(Debug)]
struct Row {
    what: &'static str,
    module: Module,
    login: Outcome,
}

impl Row {
    fn admitted(&self) -> bool {
        self.login.stdout.contains("/dev/nvidia0 ")
    }

    /// Returns whether timeout(1) ended the login.
    fn hung(&self) -> bool {
        !self.admitted() && self.login.code == GIVEN_UP
    }

    fn gpus(&self) -> usize {
        if self.admitted() {
            self.login.gpus().len()
        } else {
            0
        }
    }

    /// Returns the path below the node's jobs, in the freezer hierarchy, by which Slurm finds a
    /// job's processes.
    fn cgroup(&self) -> &str {
        if !self.admitted() {
            return "-";
        }
        let path = self.login.path_in("freezer");
        path.find("/uid_").map_or(path, |at| &path[at..])
    }

    fn outside(&self) -> bool {
        self.admitted() && !self.cgroup().contains("/job_")
    }

    fn verdict(&self) -> &'static str {
        match (self.admitted(), self.hung()) {
            (true, _) if self.outside() => "outside",
            (true, _) => "admitted",
            (false, true) => "hangs",
            (false, false) => "refused",
        }
    }

    /// Returns the first line that the user reads.
    fn printed(&self) -> &str {
        let is_text_for_user = |line: &&str| {
            line.contains("refused") || line.contains("denied by") || line.contains("job")
        };
        self.login
            .stderr
            .lines()
            .find(is_text_for_user)
            .unwrap_or("")
    }
}

/// Time of a login that hangs: no event shows that. A busy machine may need more for any other.
const HANG_SECONDS: u32 = 3;
const LOGIN_SECONDS: u32 = 60;
/// Exit status of timeout(1) if it has killed the command. SIGTERM would give another status, but only if the client
/// ends soon after it.
const GIVEN_UP: i32 = 128 + 9;

/// The results of all scenarios, and their shared state.
struct Table<'a> {
    slurm: &'a Slurm<'a>,
    sshd: Sshd<'a>,
    rows: Vec<Row>,
}

impl Table<'_> {
    /// Runs the same login through each module.
    fn login_through_each(
        &mut self,
        what: &'static str,
        login: impl Fn(&Sshd<'_>, Module) -> Outcome,
    ) -> [usize; 3] {
        Module::ALL.map(|module| {
            self.slurm.node.write_stack(&module.stack());
            let login = login(&self.sshd, module);
            self.rows.push(Row {
                what,
                module,
                login,
            });
            self.rows.len() - 1
        })
    }

    /// Runs a login with a key through each module, and asserts these verdicts.
    #[track_caller]
    fn key_login_through_each(
        &mut self,
        what: &'static str,
        user: User,
        verdicts: [&str; 3],
    ) -> [usize; 3] {
        let slurm = self.slurm;
        let rows = self.login_through_each(what, |sshd, module| {
            let hangs = verdicts[module as usize] == "hangs";
            let seconds = if hangs { HANG_SECONDS } else { LOGIN_SECONDS };
            login_with_limit(slurm, sshd, user, seconds)
        });
        self.assert_verdicts(rows, verdicts);
        rows
    }

    #[track_caller]
    fn assert_verdicts(&self, rows: [usize; 3], verdicts: [&str; 3]) {
        let got = rows.map(|row| self.rows[row].verdict());
        assert_eq!(
            got,
            verdicts,
            "{}\n{}",
            self.rows[rows[0]].what,
            self.format()
        );
    }

    fn format(&self) -> String {
        let mut text = String::from("native: the same logins through both\n");
        let _ = writeln!(
            text,
            "{:36} {:16} {:9} {:30} {:6} {:>6}    printed",
            "login", "module", "verdict", "cgroup", "opens", "took",
        );
        let mut last = "";
        for row in &self.rows {
            let what = if row.what == last { "" } else { row.what };
            last = row.what;
            let _ = writeln!(
                text,
                "{what:36} {:16} {:9} {:30} {} GPUs {:6.2} s  {}",
                row.module.name(),
                row.verdict(),
                row.cgroup(),
                row.gpus(),
                row.login.took.as_secs_f64(),
                row.printed(),
            );
        }
        text
    }
}

/// Runs a login that is ended after that time.
fn login_with_limit(slurm: &Slurm<'_>, sshd: &Sshd<'_>, user: User, seconds: u32) -> Outcome {
    let target = format!("{}@127.0.0.1", user.name);
    let client = sshd.client("ssh", &["-o", "BatchMode=yes", &target, LOOK]);
    let ssh = client.get_args().skip_while(|argument| *argument != "ssh");
    let limit = ["--signal=KILL", &seconds.to_string()];
    Outcome::run(slurm.node.command("timeout").args(limit).args(ssh))
}

#[test]
fn same_logins_get_documented_verdicts_from_both() {
    on_slurm(|slurm| {
        let mut table = Table {
            slurm,
            sshd: slurm.node.sshd(),
            rows: Vec::new(),
        };
        run_equal_scenarios(slurm, &mut table);
        run_different_scenarios(slurm, &mut table);
        let _ = writeln!(std::io::stderr(), "{}", table.format());
    });
}

/// The rival decides, and ours logs for each login whether it would have decided the same.
#[test]
fn observe_logs_where_rival_has_put_login() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.write_stack(
            "auth required pam_unix.so\naccount required pam_job_adopt.so observe\n\
             account required pam_unix.so\naccount required pam_slurm_adopt.so\n\
             session required pam_permit.so\nsession required pam_job_adopt.so observe\n",
        );
        let sshd = node.sshd();
        let compared = |agree: &str| {
            let what = format!("agree={agree}");
            let entry = node
                .log
                .find(&what, |entry| entry.text.contains(&format!(" {what}")));
            node.log.clear();
            let field = |key| entry.field(key).unwrap_or_default().to_owned();
            (field("theirs"), field("cgroup"), field("would"))
        };
        let job = slurm.alloc(ALICE, 1);
        let login = sshd.ssh(ALICE, LOOK).ok();
        let (theirs, ours, would) = compared("yes");
        assert_eq!(theirs, login.path_in("devices"));
        assert!(
            theirs.starts_with(&job.path()) && ours.starts_with(&job.path()),
            "{theirs} {ours}"
        );
        assert_eq!(would, "adopt");
        // sshd runs account in another process than the session, and that process is adopted: the
        // login is outside.
        let outside = sshd.ssh_password(ALICE, LOOK).ok();
        let (their_path, our_path, decision) = compared("no");
        assert!(!outside.path_in("devices").contains("/job_"), "{outside}");
        assert!(
            !their_path.contains("/job_") && our_path.starts_with(&job.path()),
            "{their_path} {our_path}"
        );
        assert_eq!(decision, "adopt");
        // The rival refuses, and no session follows.
        sshd.ssh(CAROL, LOOK).fails();
        assert_eq!(node.log.decision("JA01").field("would"), Some("refuse"));
        job.cancel();
    });
}

/// The recipe of Slurm's own page: owners of jobs end the stack, and access.conf lets in the staff.
#[test]
fn recipe_of_slurm_keeps_its_verdicts() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let old = "auth required pam_unix.so\naccount required pam_unix.so\n\
                   account sufficient pam_slurm_adopt.so action_adopt_failure=deny\n\
                   account required pam_access.so\nsession required pam_permit.so\n";
        node.write("/etc/security/access.conf", "+:(ops) root:ALL\n-:ALL:ALL\n");
        node.write("/etc/pam.d/sshd", old);
        let job = slurm.alloc(ALICE, 1);
        let sshd = node.sshd();
        let admitted = || {
            let users = [ALICE, CAROL, OPS].into_iter();
            let admitted = users.filter(|user| sshd.ssh(*user, "true").code == 0);
            admitted.map(|user| user.name).collect::<Vec<_>>()
        };
        assert_eq!(admitted(), ["alice", "opsuser"]);
        node.job_adopt(&["enable", "--only", "pam", "--dry-run"])
            .exits(3)
            .says("pam_access.so")
            .says("exempt_groups");
        let install = [
            "enable",
            "--only",
            "pam",
            "--arguments",
            "exempt_groups=ops timeout=40",
        ];
        node.job_adopt(&install).exits(0).says("pam_access.so");
        assert_eq!(
            admitted(),
            ["alice", "opsuser"],
            "{}",
            node.read("/etc/pam.d/sshd")
        );
        let login = sshd.ssh(ALICE, LOOK).ok();
        assert!(login.path_in("devices").starts_with(&job.path()), "{login}");
        node.job_adopt(&["disable", "--only", "pam"]).exits(0);
        assert_eq!(node.read("/etc/pam.d/sshd"), old);
        job.cancel();
    });
}

/// Scenarios in which both modules do the same but for their messages.
fn run_equal_scenarios(slurm: &Slurm<'_>, table: &mut Table<'_>) {
    let admitted = ["admitted"; 3];
    let no_job = table.key_login_through_each("no job", CAROL, ["refused"; 3]);
    assert!(table.rows[no_job[2]].login.stderr.contains("[JA01]"));
    let batch = slurm.batch(ALICE, 1);
    assert_same_job(table, "a batch job with a GPU", &batch, admitted);
    batch.cancel();
    let older = slurm.alloc(ALICE, 1);
    assert_same_job(table, "an allocation without a step", &older, admitted);
    let newer = slurm.alloc(ALICE, 2);
    let rows = table.key_login_through_each("two jobs: the newer one has 2 GPUs", ALICE, admitted);
    // The rival chooses the job whose cgroup changed last, here by a login.
    assert_eq!(table.rows[rows[2]].gpus(), 2, "{}", table.format());
    older.cancel();
    newer.cancel();
    slurm.assert_nothing_left();
}

/// Asserts that each login is in that job, with its GPUs.
fn assert_same_job(
    table: &mut Table<'_>,
    what: &'static str,
    job: &SlurmJob<'_>,
    verdicts: [&str; 3],
) {
    let gpus = job.gpus();
    for row in table.key_login_through_each(what, job.owner, verdicts) {
        let Row { login, module, .. } = &table.rows[row];
        assert_eq!(login.gpus(), gpus, "{what} {module:?}: {login}");
        assert!(
            login.path_in("devices").starts_with(&job.path()),
            "{what} {module:?}: {login}"
        );
    }
}

/// Scenarios in which they differ, as `docs/migrate.md` describes.
fn run_different_scenarios(slurm: &Slurm<'_>, table: &mut Table<'_>) {
    let job = slurm.alloc(ALICE, 1);
    // sshd asks for a password in another process than the session's, and the rival adopts that
    // one.
    let rows = table.login_through_each("a login with a password", |sshd, _| {
        sshd.ssh_password(ALICE, LOOK)
    });
    table.assert_verdicts(rows, ["outside", "outside", "admitted"]);
    assert_eq!(
        rows.map(|row| table.rows[row].gpus()),
        [4, 4, 1],
        "{}",
        table.format()
    );
    let his = slurm.alloc(BOB, 1);
    job.signal_daemon(Signal::SIGSTOP);
    table.key_login_through_each(
        "the step's daemon has stopped",
        ALICE,
        ["hangs", "hangs", "refused"],
    );
    table.key_login_through_each(
        "somebody else's daemon has stopped",
        BOB,
        ["hangs", "hangs", "admitted"],
    );
    job.signal_daemon(Signal::SIGCONT);
    // It first works off the requests of the rival, whose logins have gone: a job that ends at the same moment can keep
    // its cgroup for ever.
    slurm.node.job_adopt(&["list"]).ok();
    job.cancel();
    his.cancel();
    let planted = slurm.start_stand_in(0, &slurm.extern_socket(FORGED), CAROL, "2");
    // The stand-in speaks the protocol of 22.05.
    let theirs = if slurm.is_release_22() {
        "outside"
    } else {
        "refused"
    };
    table.key_login_through_each(
        "a daemon that moves nothing",
        CAROL,
        [theirs, theirs, "refused"],
    );
    drop(planted);
    run_unconstrained_scenario(slurm, table);
}

/// Slurm was configured to constrain devices, and did not.
fn run_unconstrained_scenario(slurm: &Slurm<'_>, table: &mut Table<'_>) {
    slurm.constrain("ConstrainCores=yes\n");
    slurm.restart_slurmd();
    let job = slurm.alloc(ALICE, 1);
    slurm.constrain("ConstrainCores=yes\nConstrainDevices=yes\n");
    let verdicts = ["admitted", "admitted", "refused"];
    let rows = table.key_login_through_each("devices are not constrained", ALICE, verdicts);
    assert_eq!(
        rows.map(|row| table.rows[row].gpus()),
        [4, 4, 0],
        "{}",
        table.format()
    );
    assert!(table.rows[rows[2]].login.took < Duration::from_secs(9));
    job.cancel();
}
