//! `make bench`: what a login, a device check and a look-up cost, as ratios measured side by side
//! in one run. Needs root; everything happens on a private node and in cgroups of its own. Names of
//! parts (`cargo bench --bench native -- slurm`) have it measure these alone.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr
)]

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
    let parts: [(&str, fn()); 6] = [
        ("login", login::measure),
        ("fanout", fanout::measure),
        ("slurm", slurm::measure),
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
}

/// The middle one of some measurements.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One row of a table: what, how much, and how it compares.
fn row(what: &str, cost: &str, ratio: f64, goal: &str) {
    println!("{what:<46} {cost:>12}  {ratio:>6.2}x  {goal}");
}

fn heading(title: &str, against: &str) {
    println!("\n{title}\n{:-<46} {:->12}  {:->7}  against {against}", "", "", "");
}
