//! `make bench`: the costs of a login, a device check and a lookup, as ratios measured side by side
//! in one run. It needs root; everything runs on a private node and in its own cgroups. Names of
//! parts (`cargo bench --bench native -- slurm`) limit the run to these. The last line names the
//! goals that were missed. Each goal stands with its floor: what of the cost cannot be avoided.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr
)]

use std::sync::Mutex;

#[path = "../tests/native/support/mod.rs"]
#[allow(dead_code, unused_imports)]
mod support;

#[path = "support/layouts.rs"]
mod layouts;

#[path = "support/check.rs"]
mod check;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/crowd.rs"]
mod crowd;
#[path = "support/driver.rs"]
mod driver;
#[path = "support/fanout.rs"]
mod fanout;
#[path = "support/growth/mod.rs"]
mod growth;
#[path = "support/login.rs"]
mod login;
#[path = "support/lookup.rs"]
mod lookup;
#[path = "support/memory.rs"]
mod memory;
#[path = "support/peer.rs"]
mod peer;
#[path = "support/phases.rs"]
mod phases;
#[path = "support/slurm.rs"]
mod slurm;
#[path = "support/specification.rs"]
mod specification;

fn main() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let parts: [(&str, fn()); 13] = [
        ("login", login::measure),
        ("crowd", crowd::measure),
        ("fanout", fanout::measure),
        ("cluster", cluster::measure),
        ("slurm", slurm::measure),
        ("busy", slurm::measure_busy),
        ("peer", peer::measure),
        ("phases", phases::measure),
        ("memory", memory::measure),
        ("check", check::measure),
        ("lookup", lookup::measure),
        ("specification", specification::measure),
        ("growth", growth::measure),
    ];
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    for (name, measure) in parts {
        if chosen.is_empty() || chosen.iter().any(|part| part == name) {
            measure();
        }
    }
    let goals = GOALS.lock().unwrap();
    match &goals.missed[..] {
        [] => println!("\ngoals: all {} reached", goals.count),
        missed => {
            let of = missed.len();
            let missed = missed.join("; ");
            println!("\ngoals: {of} of {} missed: {missed}", goals.count);
        }
    }
}

/// The goal of a row, with its floor: the reason why it cannot be much better.
#[derive(Clone, Copy, Debug)]
enum Goal {
    None,
    /// The maximum ratio to the compared cost.
    AtMost(f64, &'static str),
    /// The minimum ratio to the compared cost.
    AtLeast(f64, &'static str),
    /// The maximum in milliseconds.
    Below(f64, &'static str),
}

/// The number of goals so far, and those that were missed.
#[derive(Debug)]
struct Goals {
    title: String,
    count: usize,
    missed: Vec<String>,
}

static GOALS: Mutex<Goals> = Mutex::new(Goals {
    title: String::new(),
    count: 0,
    missed: Vec::new(),
});

/// Returns the median of some measurements.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints one row of a table: name, cost with its unit, ratio and goal.
fn print_row(what: &str, cost: f64, unit: &str, ratio: f64, goal: Goal) {
    // The ratio counts as printed.
    let printed = format!("{ratio:.2}x");
    let rounded = (ratio * 100.0).round() / 100.0;
    let milliseconds = if unit == "us" { cost / 1e3 } else { cost };
    let (goal, floor, seen, reached) = match goal {
        Goal::None => (String::new(), "", &printed, None),
        Goal::AtMost(max, floor) => (
            format!("at most {max}"),
            floor,
            &printed,
            Some(rounded <= max),
        ),
        Goal::AtLeast(min, floor) => (
            format!("at least {min}"),
            floor,
            &printed,
            Some(rounded >= min),
        ),
        Goal::Below(max, floor) => (
            format!("below {max} ms"),
            floor,
            &format!("{milliseconds:.1} ms"),
            Some(milliseconds < max),
        ),
    };
    let verdict = match reached {
        None => String::new(),
        Some(true) => format!("goal: {goal}; {floor}"),
        Some(false) => format!("goal: {goal}  MISSED; {floor}"),
    };
    let cost = format!("{cost:.0} {unit}");
    println!("{what:<46} {cost:>12}  {printed:>7}  {verdict}");
    let mut goals = GOALS.lock().unwrap();
    goals.count += usize::from(reached.is_some());
    if reached == Some(false) {
        let missed = format!("{}: {what} {seen} ({goal})", goals.title);
        goals.missed.push(missed);
    }
}

fn print_heading(title: &str, against: &str) {
    title.clone_into(&mut GOALS.lock().unwrap().title);
    println!(
        "\n{title}\n{:-<46} {:->12}  {:->7}  against {against}",
        "", "", ""
    );
}
