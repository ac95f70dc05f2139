//! The cost of one device check, as counted by the kernel (`kernel.bpf_stats_enabled`).

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use kernel::bpf::{Insn, allow_rules};
use kernel::sys::bpf::{BPF_F_ALLOW_MULTI, prog_attach, prog_load};
use protocol::{Access, DeviceRule, DeviceType};

use super::layouts::{allow_all, rule_by_rule};
use super::support::{Cgroup, on_node};
use super::{Goal, median, print_heading, print_row};

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const SIZES: [usize; 4] = [8, 64, 512, 4096];
const ROUNDS: usize = 9;
const OPENS: usize = 20_000;

pub(super) fn measure() {
    let before = fs::read_to_string(STATS).unwrap();
    on_node(|node| {
        fs::write(STATS, "1").unwrap();
        let place = node.cgroup().child("check");
        place.create();
        print_heading("one device check", "a program that only allows");
        for size in SIZES {
            compare(&place, size);
        }
        place.remove();
    });
    fs::write(STATS, before.trim()).unwrap();
}

fn compare(place: &Cgroup, size: usize) {
    let rules = rules_with_null_last(size);
    let layouts = [allow_all(), allow_rules(&rules), rule_by_rule(&rules)];
    let mut costs = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (layout, rounds) in layouts.iter().zip(&mut costs) {
            rounds.push(measure_program(place, layout));
        }
    }
    let [floor, tree, blocks] = costs.map(median);
    let goal = if size == 4096 {
        Goal::AtMost(
            1.05,
            "the call of a program costs more than twelve comparisons",
        )
    } else {
        Goal::None
    };
    print_row(
        &format!("{size} entries, tree"),
        tree,
        "ns",
        tree / floor,
        goal,
    );
    print_row(
        &format!("{size} entries, rule by rule"),
        blocks,
        "ns",
        blocks / floor,
        Goal::None,
    );
}

/// Returns a list with `/dev/null` as its last entry: the worst position in a list, and any
/// position in a tree. Every entry grants all accesses, since the rule-by-rule layout does not load
/// otherwise when it is long.
fn rules_with_null_last(size: usize) -> Vec<DeviceRule> {
    let entry =
        |minor| DeviceRule::from_numbers(DeviceType::Char, 195, Some(minor), Access::ALL).unwrap();
    let mut rules: Vec<DeviceRule> = (1..size as u32).map(|index| entry(index * 3)).collect();
    rules.push(DeviceRule::from_numbers(DeviceType::Char, 1, Some(3), Access::ALL).unwrap());
    rules
}

/// Returns the nanoseconds of one run of the program, over many opens of `/dev/null`.
fn measure_program(place: &Cgroup, insns: &[Insn]) -> f64 {
    let cgroup = place.child("one");
    cgroup.create();
    let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
    let program = prog_load(&bytes, "bench").unwrap();
    let directory = File::open(cgroup.dir()).unwrap();
    prog_attach(directory.as_fd(), program.as_fd(), BPF_F_ALLOW_MULTI, None).unwrap();
    open_many(&cgroup.dir().join("cgroup.procs"));
    let cost = read_program_stat(&program, "run_time_ns") / read_program_stat(&program, "run_cnt");
    cgroup.remove();
    cost
}

/// Opens `/dev/null` many times from inside the cgroup.
fn open_many(procs: &Path) {
    let script = format!("i=0; while [ $i -lt {OPENS} ]; do : </dev/null; i=$((i + 1)); done");
    let mut shell = Command::new("sh");
    let mut child = shell
        .args(["-c", &format!("read -r _; {script}")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    fs::write(procs, child.id().to_string()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
}

/// Reads a number from the program's `/proc/self/fdinfo`.
fn read_program_stat(program: &OwnedFd, key: &str) -> f64 {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let text = fs::read_to_string(path).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .unwrap();
    line.trim().parse().unwrap()
}
