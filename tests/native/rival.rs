//! Other owners of filters, and other logins, that act while a login confines a job.

use std::thread::scope;
use std::time::{Duration, SystemTime};

use crate::support::{
    ALICE, Cgroup, DENIED, Flags, Job, LOOK, Node, OPENS, Outcome, missing_requirement, on_node,
    run_while_delayed, skip,
};

/// Number of logins that are delayed at once, each on a node of its own.
const AT_ONCE: usize = 4;
/// How long a call of the first login is delayed. Each further try takes twice as long: strace cannot end a delay when
/// the rival has ended.
const DELAY_MIN: Duration = Duration::from_millis(200);
/// Number of logins of which one must be delayed until its rival has ended.
const TRIES: u32 = 6;

/// The bpf(2) calls of a login in their order, and its outcome.
struct Held {
    calls: Vec<String>,
    outcome: Outcome,
    touched: bool,
    /// True if the rival ended while the login still was delayed.
    in_time: bool,
}

impl Held {
    /// Returns whether the call with that number comes no later than the last one that contains
    /// `text`.
    fn no_later_than_last(&self, number: usize, text: &str) -> bool {
        let last = self.calls.iter().rposition(|call| call.contains(text));
        self.touched && last.is_some_and(|last| number <= last + 1)
    }
}

/// Runs a session that is delayed at the entry of its `number`th bpf(2), while `rival` acts.
fn delay_at_bpf_call(node: &Node, number: usize, delay: Duration, rival: impl FnOnce()) -> Held {
    let inject = format!("inject=bpf:delay_enter={}:when={number}", delay.as_micros());
    let options = ["-ttt", "-e", "trace=bpf", "-e", &inject];
    let login = || node.session_delayed_by_strace("/tmp/strace", &options, ALICE);
    let mut ended = None;
    let outcome = run_while_delayed(node, login, || {
        rival();
        ended = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok();
    });
    let log = node.read("/tmp/strace");
    let calls = log
        .lines()
        .filter(|line| line.contains(" bpf("))
        .map(str::to_owned)
        .collect();
    // Each line begins with process and time.
    let delayed = log.lines().find(|line| line.contains("DELAYED"));
    let began = delayed.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    let left = began.map(|began| Duration::from_secs_f64(began) + delay);
    let in_time = left.is_none_or(|end| ended.is_some_and(|ended| ended < end));
    Held {
        calls,
        outcome,
        touched: delayed.is_some(),
        in_time,
    }
}

fn assert_nvidia2_denied(outcome: Outcome) {
    outcome.devices(&[
        ("/dev/nvidia0", OPENS),
        ("/dev/nvidia1", DENIED),
        ("/dev/nvidia2", DENIED),
    ]);
}

/// Delays a login at each bpf(2) up to its last one that contains `until`. After an admission or a
/// refusal, the filters of every owner hold from the next login on.
fn delay_at_each_bpf_call(
    until: &str,
    prepare: impl Fn(&Node) + Sync,
    rival: impl Fn(&Node, &Job<'_>) + Sync,
    repaired: bool,
) {
    if let Some(obstacle) = missing_requirement() {
        return skip(obstacle);
    }
    let try_at = |number: usize, delay: Duration| {
        let mut covered = None;
        on_node(|node| {
            node.session_alone("");
            let devices = ["/dev/nvidia0", "/dev/nvidia2"];
            let job = node.job(ALICE, "4242").devices(&devices).start();
            prepare(node);
            let held = delay_at_bpf_call(node, number, delay, || rival(node, &job));
            if !held.in_time {
                return;
            }
            let is_covered = held.no_later_than_last(number, until);
            covered = Some(is_covered);
            if !is_covered {
                return;
            }
            if held.outcome.code == 0 {
                assert_nvidia2_denied(node.probe_in(&job.cgroup));
            } else if repaired {
                node.session(ALICE).ok();
                assert_nvidia2_denied(node.probe_in(&job.cgroup));
            }
        });
        covered
    };
    // On a busy machine a rival can be too late.
    let at = &|number: usize| {
        let covered = (0..TRIES).find_map(|attempt| try_at(number, DELAY_MIN * 2_u32.pow(attempt)));
        covered.unwrap_or_else(|| panic!("the rival was late at call {number} in each try"))
    };
    // Each delay takes its time, whatever else the machine does.
    let several = |first: usize| -> Vec<bool> {
        scope(|scope| {
            let numbers = (first..first + AT_ONCE).map(|number| scope.spawn(move || at(number)));
            let held: Vec<_> = numbers.collect();
            held.into_iter().map(|held| held.join().unwrap()).collect()
        })
    };
    let covered = (1..60)
        .step_by(AT_ONCE)
        .flat_map(several)
        .take_while(|covered| *covered)
        .count();
    assert!(covered >= 3, "only {covered} calls");
}

fn job_parent(node: &Node) -> Cgroup {
    node.cgroup().child("jobs")
}

/// Our filter at the job would disable the one that a scheduler has just attached above.
#[test]
fn filter_attached_above_during_login_holds() {
    let attach = |node: &Node, _: &Job<'_>| {
        job_parent(node).attach(Flags::Override, "foreign", &["195:2"]);
    };
    delay_at_each_bpf_call("BPF_PROG_ATTACH", |_| {}, attach, true);
}

/// The pin is detached before the proof, so the login has no proof.
#[test]
fn pin_lost_during_login_refuses() {
    let prepare = |node: &Node| {
        job_parent(node).attach(Flags::Override, "foreign", &["195:2"]);
    };
    let lose = |_: &Node, job: &Job<'_>| {
        for filter in job
            .cgroup
            .filters()
            .iter()
            .filter(|filter| !filter.is_ours())
        {
            job.cgroup.detach(filter);
        }
    };
    delay_at_each_bpf_call("BPF_F_QUERY_EFFECTIVE", prepare, lose, true);
}

/// A scheduler that replaces its program at every step.
#[test]
fn pin_is_replaced_by_successor() {
    on_node(|node| {
        node.session_alone("");
        let devices = [
            "/dev/nvidia0",
            "/dev/nvidia1",
            "/dev/nvidia2",
            "/dev/nvidia3",
        ];
        let job = node.job(ALICE, "4242").devices(&devices).start();
        for turn in 0..70 {
            let closed = turn % 3 + 1;
            let denied = [format!("195:{closed}"), format!("195:{}", 10 + turn)];
            job_parent(node).attach(Flags::Override, "foreign", &[&denied[0], &denied[1]]);
            let outcome = node.session(ALICE);
            assert!(outcome.code == 0, "login {turn}: {outcome}");
            let filters = job.cgroup.filters();
            assert!(filters.len() == 2, "login {turn}: {filters:?}");
            assert_eq!(
                job.cgroup.our_filters().len(),
                1,
                "login {turn}: {filters:?}"
            );
        }
        // The program of the last round denies nvidia1, and only that.
        let look = node.probe_in(&job.cgroup);
        look.devices(&[
            ("/dev/nvidia1", DENIED),
            ("/dev/nvidia2", OPENS),
            ("/dev/nvidia3", OPENS),
        ]);
    });
}

/// Replaces the record atomically, as `register` does.
fn swap_record(node: &Node, job: &Job<'_>, text: &str) {
    let new = "/run/job-adopt/jobs/1001/.new";
    node.write(new, text);
    node.set_mode(new, 0o644);
    std::fs::rename(node.path(new), node.path(&job.record_path())).unwrap();
}

/// Asserts that the login is in the job, or refused with a code.
fn assert_inside_or_refused(outcome: Outcome, job: &Job<'_>) {
    if outcome.code == 0 {
        outcome.joins_cgroup(&job.cgroup);
    } else {
        outcome.says("[JA0");
    }
}

#[test]
fn concurrent_logins_with_different_lists_leave_one_filter() {
    on_node(|node| {
        node.session_alone("timeout=20");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let one = node.read(&job.record_path());
        let other = one.replace("/dev/nvidia0", "/dev/nvidia1");
        std::thread::scope(|scope| {
            let logins: Vec<_> = (0..16)
                .map(|number| {
                    swap_record(node, &job, if number % 2 == 0 { &one } else { &other });
                    // Logins that start apart from each other meet in other states than those of one moment.
                    std::thread::sleep(Duration::from_millis(20));
                    scope.spawn(|| node.phases("sshd", ALICE, &["open_session"]))
                })
                .collect();
            for login in logins {
                assert_inside_or_refused(login.join().unwrap(), &job);
            }
        });
        assert_eq!(job.cgroup.filters().len(), 1);
        swap_record(node, &job, &one);
        node.arguments("");
        let login = node.sshd().ssh(ALICE, LOOK).ok();
        login.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
    });
}

/// The logins are slow enough that without a lock each would find no filter and attach its own.
#[test]
fn slow_logins_take_turns_under_lock() {
    on_node(|node| {
        node.session_alone("timeout=30");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let slowly = ["-e", "trace=bpf", "-e", "inject=bpf:delay_enter=40000"];
        std::thread::scope(|scope| {
            let logins: Vec<_> = (0..3)
                .map(|number| {
                    let log = format!("/tmp/strace-{number}");
                    scope.spawn(move || node.session_delayed_by_strace(&log, &slowly, ALICE))
                })
                .collect();
            for login in logins {
                login.join().unwrap().ok().joins_cgroup(&job.cgroup);
            }
        });
        assert_eq!(job.cgroup.filters().len(), 1);
    });
}
