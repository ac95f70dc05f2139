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
        let measured = |service: &str, phases: &str| {
            let costs = run(node, &[service, phases, LOGINS, "0"]);
            let of = |number: fn(&Cost) -> f64| median(costs.iter().map(number).collect());
            [of(|cost| cost.calls), of(|cost| cost.faults)]
        };
        let permit = measured("permit", "both");
        let above = |cost: [f64; 2], other: [f64; 2]| [cost[0] - other[0], cost[1] - other[1]];
        let theirs = above(measured("theirs", "account"), permit);
        let account = above(measured("sshd", "account"), permit);
        let session = above(above(measured("sshd", "both"), permit), account);
        println!(
            "\nSlurm, 1 job\n{:<28} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "", "us", "calls", "files", "bytes", "faults"
        );
        let their_line = THEIRS.lines().next().unwrap().trim_start_matches("account ");
        let [traced] = trace_login(node, [("account", their_line)]);
        print_counts("pam_slurm_adopt, account", theirs, &traced);
        let lines = [("account", OUR_LINE), ("session", OUR_LINE)];
        // The first login of a job attaches filters.
        trace_login(node, lines);
        let [of_account, of_session] = trace_login(node, lines);
        print_counts("account", account, &of_account);
        print_counts("session", session, &of_session);
    });
}

/// Prints time and page faults of a phase, and what was traced.
fn print_counts(what: &str, [time, faults]: [f64; 2], traced: &support::Cost) {
    let calls = traced.module.len() + traced.start.len() + traced.helper.len();
    let bytes = traced.read_bytes;
    let opened: usize = traced.opened.values().sum();
    println!("{what:<28} {time:>8.0} {calls:>8} {opened:>8} {bytes:>8} {faults:>8.0}");
}
