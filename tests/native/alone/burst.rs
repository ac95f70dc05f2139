//! Many logins at once to one job of a real Slurm, whose daemon lets in one after the other.

use crate::support::{ALICE, on_slurm_alone};

/// `BURST=512` sets another number.
const LOGINS: &str = "256";

/// `bash -c SCRIPT COUNT` runs account and session in COUNT processes at once, and prints what failed.
const SCRIPT: &str = r#"
for ((i = 0; i < $0; i++)); do
    pamtester sshd alice acct_mgmt open_session close_session </dev/null >/tmp/burst-$i 2>&1 &
    logins+=("$!")
done
for i in "${!logins[@]}"; do
    wait "${logins[i]}" || cat "/tmp/burst-$i"
done
"#;

/// On cgroup v1 an add takes tens of milliseconds, so that the last login waits long. With `BURST` the default `timeout=`
/// counts, which needs a machine without other load: before a login is in the daemon's queue, all of them compete for
/// the processors. That the wait there does not count is what the bursts of `stepd` show.
#[test]
fn burst_of_logins_to_slurm_job_is_admitted() {
    on_slurm_alone(|slurm| {
        let node = slurm.node;
        let burst = std::env::var("BURST").ok();
        let arguments = if burst.is_some() { "" } else { "timeout=60" };
        node.arguments(arguments);
        let job = slurm.batch(ALICE, 1);
        let count = burst.unwrap_or_else(|| LOGINS.to_owned());
        let outcome = node.run("bash", &["-c", SCRIPT, &count]).ok();
        assert_eq!(outcome.stdout, "", "{count} logins");
        eprintln!("{count} logins at once: {:?}", outcome.took);
        job.cancel();
    });
}
