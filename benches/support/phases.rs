//! The counts of each phase of a login to a job of a real Slurm, beside `pam_slurm_adopt`, which does all
//! in `account`.

use super::driver::{Cost, run};
use super::median;
use super::slurm::{THEIRS, on_job};
use super::support::{self, trace_login};

const OUR_LINE: &str = "required pam_job_adopt.so log_level=quiet";
/// Number of logins of which the time and the page faults are a median.
const LOGINS: &str = "60";

pub(super) fn measure() {
    on_job(|slurm| {
        let node = slurm.node;
        let measure = |service: &str, phases: &str| {
            let costs = run(node, &[service, phases, LOGINS, "0"]);
            let median_of = |number: fn(&Cost) -> f64| median(costs.iter().map(number).collect());
            [median_of(|cost| cost.calls), median_of(|cost| cost.faults)]
        };
        let permit = measure("permit", "both");
        let subtract = |cost: [f64; 2], part: [f64; 2]| [cost[0] - part[0], cost[1] - part[1]];
        let theirs = subtract(measure("theirs", "account"), permit);
        let account = subtract(measure("sshd", "account"), permit);
        let session = subtract(subtract(measure("sshd", "both"), permit), account);
        println!(
            "\nSlurm, 1 job\n{:<28} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "", "us", "calls", "files", "bytes", "faults"
        );
        let their_line = THEIRS
            .lines()
            .next()
            .unwrap()
            .trim_start_matches("account ");
        let [traced] = trace_login(node, [("account", their_line)]);
        print_counts("pam_slurm_adopt, account", theirs, &traced);
        let lines = [("account", OUR_LINE), ("session", OUR_LINE)];
        // The first login of a job attaches filters.
        trace_login(node, lines);
        let [account_trace, session_trace] = trace_login(node, lines);
        print_counts("account", account, &account_trace);
        print_counts("session", session, &session_trace);
    });
}

/// Prints time and page faults of a phase, and what was traced.
fn print_counts(what: &str, [time, faults]: [f64; 2], traced: &support::Cost) {
    let calls = traced.module.len() + traced.start.len() + traced.helper.len();
    let bytes = traced.read_bytes;
    let opened: usize = traced.opened.values().sum();
    println!("{what:<28} {time:>8.0} {calls:>8} {opened:>8} {bytes:>8} {faults:>8.0}");
}
