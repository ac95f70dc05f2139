//! `make bench`: what a login, a device check and a look-up cost, as ratios measured side by side
//! in one run. Needs root; everything happens on a private node and in cgroups of its own. Names of
//! parts (`cargo bench --bench native -- slurm`) have it measure these alone. The last line says
//! which goals were missed.

#![allow(
    clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing,
    clippy::print_stdout, clippy::print_stderr
)]

use std::sync::Mutex;

#[path = "../tests/native/support/mod.rs"]
#[allow(dead_code, unused_imports)]
mod support;

#[path = "support/layouts.rs"]
mod layouts;

#[path = "support/check.rs"]
mod check;
#[path = "support/driver.rs"]
mod driver;
#[path = "support/fanout.rs"]
mod fanout;
#[path = "support/login.rs"]
mod login;
#[path = "support/lookup.rs"]
mod lookup;
#[path = "support/slurm.rs"]
mod slurm;
#[path = "support/specification.rs"]
mod specification;

fn main() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let parts: [(&str, fn()); 7] = [
        ("login", login::measure),
        ("fanout", fanout::measure),
        ("slurm", slurm::measure),
        ("busy", slurm::measure_busy),
        ("check", check::measure),
        ("lookup", lookup::measure),
        ("specification", specification::measure),
    ];
    let chosen: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    for (name, measure) in parts {
        if chosen.is_empty() || chosen.iter().any(|part| part == name) {
            measure();
        }
    }
    let goals = GOALS.lock().unwrap();
    match &goals.missed[..] {
        [] => println!("\ngoals: all {} reached", goals.count),
        missed => {
            let (of, missed) = (missed.len(), missed.join("; "));
            println!("\ngoals: {of} of {} missed: {missed}", goals.count);
        }
    }
}

/// What a row is to reach.
#[derive(Clone, Copy, Debug)]
enum Goal {
    None,
    /// Of what it is compared with.
    AtMost(f64),
    AtLeast(f64),
    /// Milliseconds.
    Below(f64),
}

/// The goals so far, and those missed.
#[derive(Debug)]
struct Goals {
    title: String,
    count: usize,
    missed: Vec<String>,
}

static GOALS: Mutex<Goals> =
    Mutex::new(Goals { title: String::new(), count: 0, missed: Vec::new() });

/// The middle one of some measurements.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One row of a table: what, how much, in that unit, how it compares, and what it is to reach.
fn row(what: &str, cost: f64, unit: &str, ratio: f64, goal: Goal) {
    // As much of the ratio counts as is printed.
    let (printed, rounded) = (format!("{ratio:.2}x"), (ratio * 100.0).round() / 100.0);
    let milliseconds = if unit == "us" { cost / 1e3 } else { cost };
    let (goal, seen, reached) = match goal {
        Goal::None => (String::new(), &printed, None),
        Goal::AtMost(most) => (format!("at most {most}"), &printed, Some(rounded <= most)),
        Goal::AtLeast(least) => (format!("at least {least}"), &printed, Some(rounded >= least)),
        Goal::Below(most) => (
            format!("below {most} ms"),
            &format!("{milliseconds:.1} ms"),
            Some(milliseconds < most),
        ),
    };
    let verdict = match reached {
        None => String::new(),
        Some(true) => format!("goal: {goal}"),
        Some(false) => format!("goal: {goal}  MISSED"),
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

fn heading(title: &str, against: &str) {
    title.clone_into(&mut GOALS.lock().unwrap().title);
    println!("\n{title}\n{:-<46} {:->12}  {:->7}  against {against}", "", "", "");
}
