//! What a login and the commands cost as everything around them grows: each thing is measured once small and once
//! large, on the same node. `JOB_ADOPT_GROWTH=mounts,users` limits the part to these.
//!
//! Each row shows system calls and bytes read, which no other load changes, and then the time.

mod crowd;
mod devices;
mod figures;
mod files;
mod journal;

use super::driver::{compile, install};
use super::support::{ALICE, BOB, Job, Mount, Node, on_node_with};
use super::{GOALS, Goals};
use figures::Figures;

const GROW: &str = include_str!("grow.c");
const LOGIN_ROW: &str = "login";
/// The maximum ratio for whatever a call does not need.
const FLAT_MAX: f64 = 1.2;

/// What may happen to a cost as something grows, and why not less.
#[derive(Clone, Copy, Debug)]
enum Growth {
    /// It stays: calls and bytes at most [`FLAT_MAX`] times as much, and the time of a login. A command's time is shown and
    /// not judged, since few runs of it can be waited for.
    Flat(&'static str),
    /// It grows by at most so many system calls for each one more.
    Each(f64, &'static str),
}

/// A measured call, with what may happen to its cost.
#[derive(Clone, Copy, Debug)]
struct Probe {
    call: Call,
    growth: Growth,
}

/// A call that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Account and session of alice.
    Login,
    /// `register` and `unregister` of bob's job. Both are rows.
    Registration,
    /// `job-adopt` with these arguments.
    Command(&'static str),
}

const LOGIN: Call = Call::Login;
const LIST: Call = Call::Command("list");
const STRAYS: Call = Call::Command("strays");
const CHECK: Call = Call::Command("check");

const fn probe(call: Call, growth: Growth) -> Probe {
    Probe { call, growth }
}

/// A node with a job of alice and one of bob, on which something grows.
struct Field<'a> {
    node: &'a Node,
    job: Job<'a>,
    other: Job<'a>,
}

impl Field<'_> {
    /// Measures all probes.
    fn measure(&self, probes: &[Probe]) -> Vec<(String, Figures)> {
        let mut rows = Vec::new();
        for probe in probes {
            match probe.call {
                Call::Login => rows.push((LOGIN_ROW.to_owned(), Figures::of_login(self.node))),
                Call::Command(arguments) => {
                    let figures = Figures::of_command(self.node, &format!("job-adopt {arguments}"));
                    rows.push((arguments.to_owned(), figures));
                }
                Call::Registration => {
                    let register = format!(
                        "job-adopt register --id 7 --uid {} --policy closed --cgroup {}",
                        BOB.uid,
                        self.other.cgroup.path()
                    );
                    let pair = Figures::of_pair(self.node, [&register, "job-adopt unregister 7"]);
                    let names = ["register", "unregister"].map(str::to_owned);
                    rows.extend(names.into_iter().zip(pair));
                }
            }
        }
        rows
    }

    /// Measures the probes, lets something grow from `few` to `many`, measures again, and prints a row for each.
    fn compare(&self, what: &str, [few, many]: [usize; 2], probes: &[Probe], grow: impl FnOnce()) {
        let small = self.measure(probes);
        grow();
        let large = self.measure(probes);
        let title = format!("{what}, {} to {}", group(few), group(many));
        print_heading(&title);
        let growths = probes.iter().flat_map(|probe| {
            let rows = if probe.call == Call::Registration {
                2
            } else {
                1
            };
            std::iter::repeat_n(probe.growth, rows)
        });
        for (((name, before), (_, after)), growth) in small.into_iter().zip(large).zip(growths) {
            print_row(&title, &name, [before, after], many - few, growth);
        }
    }
}

const TWO_DEVICES: [&str; 2] = ["/dev/nvidia0", "/dev/nvidia1"];

/// Runs `body` on a node of its own, with a job of alice that has two devices.
fn on_field(body: impl FnOnce(&Field<'_>)) {
    on_field_with(Mount::Unified, &TWO_DEVICES, body);
}

/// Runs `body` on a node of its own with this mount, and with a job of alice that has these devices.
fn on_field_with(mount: Mount, devices: &[&str], body: impl FnOnce(&Field<'_>)) {
    on_node_with(mount, |node| {
        install(node);
        compile(node, "grow", GROW, "-lc");
        node.arguments("log_level=quiet");
        let job = node.job(ALICE, "4242").devices(devices).start();
        let other = node.job(BOB, "7").unstamped().unrecorded().start();
        let field = Field { node, job, other };
        body(&field);
        field.job.finish();
        field.other.finish();
    });
}

pub(super) fn measure() {
    let parts: [(&str, fn()); 17] = [
        ("jobs", files::jobs),
        ("users", files::users),
        ("records", files::records),
        ("own-records", files::own_records),
        ("cgroups", crowd::cgroups),
        ("mounts", crowd::mounts),
        ("mounts-slurm", crowd::mounts_beside_slurm),
        ("cdi", devices::specifications),
        ("cdi-job", devices::specifications_of_job),
        ("gpus", devices::gpus),
        ("mig", devices::slices),
        ("rules", devices::rules),
        ("pam", files::pam_lines),
        ("slurm-conf", files::slurm_conf),
        ("sessions", crowd::sessions),
        ("journal", journal::lines),
        ("processes", crowd::processes),
    ];
    let chosen = std::env::var("JOB_ADOPT_GROWTH").unwrap_or_default();
    for (name, part) in parts {
        if chosen.is_empty() || chosen.split(',').any(|choice| choice == name) {
            part();
        }
    }
}

/// Writes a number with a comma at each thousand.
fn group(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn print_heading(title: &str) {
    println!(
        "\n{title}\n{:-<22} {:->27} {:->31} {:->27}  verdict by calls and bytes, then time",
        "", " system calls", " bytes read", " us, fastest run"
    );
}

/// Prints what grew from `before` to `after`, and checks it.
fn print_row(title: &str, name: &str, [before, after]: [Figures; 2], more: usize, growth: Growth) {
    let ratio = |part: fn(&Figures) -> f64| round(part(&after) / part(&before).max(1.0));
    let each = |part: fn(&Figures) -> f64| (part(&after) - part(&before)) / more as f64;
    let calls = ratio(|figures| figures.calls);
    let bytes = ratio(|figures| figures.bytes);
    let time = ratio(|figures| figures.us);
    let slope = format!(
        "{:.2} calls, {:.0} bytes, {:.2} us each",
        each(|figures| figures.calls),
        each(|figures| figures.bytes),
        each(|figures| figures.us)
    );
    let (goal, floor, reached) = match growth {
        Growth::Flat(floor) => {
            let is_fast = time <= FLAT_MAX || name != LOGIN_ROW;
            let reached = calls <= FLAT_MAX && bytes <= FLAT_MAX && is_fast;
            (format!("at most {FLAT_MAX}"), floor, reached)
        }
        Growth::Each(max, floor) => {
            let goal = format!("{slope}; at most {max} calls");
            (goal, floor, each(|figures| figures.calls) <= max)
        }
    };
    let mark = if reached { "" } else { "  MISSED" };
    println!(
        "{name:<22} {:>8.0} {:>9.0} {calls:>7.2}x {:>10.0} {:>11.0} {bytes:>7.2}x {:>8.0} {:>9.0} {time:>7.2}x  \
         goal: {goal}{mark}; {floor}",
        before.calls, after.calls, before.bytes, after.bytes, before.us, after.us
    );
    let mut goals = GOALS.lock().unwrap();
    let Goals { count, missed, .. } = &mut *goals;
    *count += 1;
    if !reached {
        missed.push(format!(
            "{title}: {name} {calls:.2}x calls, {bytes:.2}x bytes, {time:.2}x time ({goal})"
        ));
    }
}

/// Rounds a ratio to what is printed.
fn round(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}
