//! Other owners of filters, and other logins, that act while a login is confining.

use std::thread::scope;
use std::time::Duration;

use crate::support::{
    ALICE, Cgroup, DENIED, Flags, Job, LOOK, Node, OPENS, Outcome, on_node, run_while_delayed,
};

/// Logins that are held up beside each other, each on a node of its own.
const AT_ONCE: usize = 4;

/// The kernel's calls about filters in the order a login made them, and how it ended.
struct Held {
    calls: Vec<String>,
    outcome: Outcome,
    touched: bool,
}

impl Held {
    /// Whether the call of that number was made no later than the last one that contains `text`.
    fn no_later_than_last(&self, number: usize, text: &str) -> bool {
        let last = self.calls.iter().rposition(|call| call.contains(text));
        self.touched && last.is_some_and(|last| number <= last + 1)
    }
}

/// A session that is held up at the entry of its `number`th bpf(2), while `rival` acts.
fn held_at(node: &Node, number: usize, rival: impl FnOnce()) -> Held {
    let inject = format!("inject=bpf:delay_enter=1200000:when={number}");
    let options = ["-e", "trace=bpf", "-e", &inject];
    let login = || node.session_under_strace("/tmp/strace", &options, ALICE);
    let outcome = run_while_delayed(node, login, rival);
    let log = node.read("/tmp/strace");
    let calls = log.lines().filter(|line| line.contains(" bpf(")).map(str::to_owned).collect();
    Held { calls, outcome, touched: log.contains("DELAYED") }
}

fn nvidia2_stays_closed(outcome: Outcome) {
    outcome.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED), ("/dev/nvidia2", DENIED)]);
}

/// Holds a login up at each bpf(2) up to its last that contains `until`. Admitted or not, from
/// the next login on everybody's filters hold.
fn hold_up_to(
    until: &str,
    prepare: impl Fn(&Node) + Sync,
    rival: impl Fn(&Node, &Job<'_>) + Sync,
    repaired: bool,
) {
    let at = &|number: usize| {
        let mut covered = false;
        on_node(|node| {
            node.session_alone("");
            let devices = ["/dev/nvidia0", "/dev/nvidia2"];
            let job = node.job(ALICE, "4242").devices(&devices).start();
            prepare(node);
            let held = held_at(node, number, || rival(node, &job));
            covered = held.no_later_than_last(number, until);
            if !covered {
                return;
            }
            if held.outcome.code == 0 {
                nvidia2_stays_closed(node.probe_in(&job.cgroup));
            } else if repaired {
                node.session(ALICE).ok();
                nvidia2_stays_closed(node.probe_in(&job.cgroup));
            }
        });
        covered
    };
    // Each is held up for more than a second, whatever else there is to do.
    let several = |first: usize| -> Vec<bool> {
        scope(|scope| {
            let numbers = (first..first + AT_ONCE).map(|number| scope.spawn(move || at(number)));
            let held: Vec<_> = numbers.collect();
            held.into_iter().map(|held| held.join().unwrap()).collect()
        })
    };
    let covered = (1..60).step_by(AT_ONCE).flat_map(several).take_while(|covered| *covered).count();
    assert!(covered >= 3, "only {covered} calls");
}

fn parent(node: &Node) -> Cgroup {
    node.cgroup().child("jobs")
}

/// Ours at the job would switch off what a scheduler has just attached above.
#[test]
fn a_filter_attached_above_meanwhile_holds() {
    let attach = |node: &Node, _: &Job<'_>| {
        parent(node).attach(Flags::Override, "foreign", &["195:2"]);
    };
    hold_up_to("BPF_PROG_ATTACH", |_| {}, attach, true);
}

/// A pin that goes again before the proof: without it nothing is proved.
#[test]
fn a_pin_that_is_lost_meanwhile_admits_nobody() {
    let prepare = |node: &Node| {
        parent(node).attach(Flags::Override, "foreign", &["195:2"]);
    };
    let lose = |_: &Node, job: &Job<'_>| {
        for filter in job.cgroup.filters().iter().filter(|filter| !filter.is_ours()) {
            job.cgroup.detach(filter);
        }
    };
    hold_up_to("BPF_F_QUERY_EFFECTIVE", prepare, lose, true);
}

/// A scheduler that puts a new program in the place of its last one at every step.
#[test]
fn a_pin_is_replaced_by_its_successor() {
    on_node(|node| {
        node.session_alone("");
        let devices = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"];
        let job = node.job(ALICE, "4242").devices(&devices).start();
        for turn in 0..70 {
            let closed = turn % 3 + 1;
            let denied = [format!("195:{closed}"), format!("195:{}", 10 + turn)];
            parent(node).attach(Flags::Override, "foreign", &[&denied[0], &denied[1]]);
            let outcome = node.session(ALICE);
            assert!(outcome.code == 0, "login {turn}: {outcome}");
            let filters = job.cgroup.filters();
            assert!(filters.len() == 2, "login {turn}: {filters:?}");
            assert_eq!(job.cgroup.our_filters().len(), 1, "login {turn}: {filters:?}");
        }
        // The last turn's program closes nvidia1, and only that.
        let look = node.probe_in(&job.cgroup);
        look.devices(&[("/dev/nvidia1", DENIED), ("/dev/nvidia2", OPENS), ("/dev/nvidia3", OPENS)]);
    });
}

/// Puts the record in its place whole, as `register` does.
fn swap_record(node: &Node, job: &Job<'_>, text: &str) {
    let new = "/run/job-adopt/jobs/1001/.new";
    node.write(new, text);
    node.mode(new, 0o644);
    std::fs::rename(node.path(new), node.path(&job.record_path())).unwrap();
}

/// Admitted to the job, or refused with a code.
fn inside_or_refused(outcome: Outcome, job: &Job<'_>) {
    if outcome.code == 0 {
        outcome.stands_in(&job.cgroup);
    } else {
        outcome.says("[JA0");
    }
}

#[test]
fn logins_with_different_lists_leave_one_filter() {
    on_node(|node| {
        node.session_alone("timeout=20");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let one = node.read(&job.record_path());
        let other = one.replace("/dev/nvidia0", "/dev/nvidia1");
        std::thread::scope(|scope| {
            let logins: Vec<_> = (0..16)
                .map(|number| {
                    swap_record(node, &job, if number % 2 == 0 { &one } else { &other });
                    std::thread::sleep(Duration::from_millis(20));
                    scope.spawn(|| node.phases("sshd", ALICE, &["open_session"]))
                })
                .collect();
            for login in logins {
                inside_or_refused(login.join().unwrap(), &job);
            }
        });
        assert_eq!(job.cgroup.filters().len(), 1);
        swap_record(node, &job, &one);
        node.arguments("");
        let login = node.sshd().ssh(ALICE, LOOK).ok();
        login.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
    });
}

/// Slow enough that without a lock each would find nothing and attach its own.
#[test]
fn slow_logins_take_turns() {
    on_node(|node| {
        node.session_alone("timeout=30");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let slowly = ["-e", "trace=bpf", "-e", "inject=bpf:delay_enter=40000"];
        std::thread::scope(|scope| {
            let logins: Vec<_> = (0..3)
                .map(|number| {
                    let log = format!("/tmp/strace-{number}");
                    scope.spawn(move || node.session_under_strace(&log, &slowly, ALICE))
                })
                .collect();
            for login in logins {
                login.join().unwrap().ok().stands_in(&job.cgroup);
            }
        });
        assert_eq!(job.cgroup.filters().len(), 1);
    });
}
