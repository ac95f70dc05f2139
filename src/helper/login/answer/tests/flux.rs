//! Logins to Flux jobs. The tests use an account that every node has.

use super::*;
use nix::unistd::User;

/// Adds a Flux job of the user; returns the uid of the Flux account.
fn add_flux_job(bench: &NodeBench) -> u32 {
    let flux = User::from_name("nobody").unwrap().unwrap().uid.as_raw();
    let file = |name: &str, text: &str| {
        bench.scratch.file(name, text);
    };
    let status = |pid: u32, parent: u32, uids: String| {
        let text = format!("Name:\tx\nState:\tS\nPPid:\t{parent}\nUid:\t{uids}\n");
        file(&format!("proc/{pid}/status"), &text);
    };
    status(1, 0, "0 0 0 0".into());
    status(10, 1, format!("{flux} 0 0 0"));
    status(11, 10, "5 5 5 5".into());
    let slice = format!("cg/user.slice/user-{flux}.slice/user@{flux}.service");
    file(
        &format!("{slice}/imp-shell-0-fxyzzy.service/cgroup.procs"),
        "10\n11\n",
    );
    bench.configure("flux_user = nobody\n");
    flux
}

fn variables(plan: &Plan) -> Vec<String> {
    plan.env.iter().map(ToString::to_string).collect()
}

#[test]
fn flux_job_inherits_the_filter_of_the_imp() {
    let bench = NodeBench::new();
    let uid = add_flux_job(&bench);
    let plan = bench.plan();
    assert_eq!(
        (plan.job.as_str(), plan.rule),
        ("fxyzzy", ChoiceRule::OnlyJob)
    );
    let path =
        format!("/user.slice/user-{uid}.slice/user@{uid}.service/imp-shell-0-fxyzzy.service");
    assert_eq!(
        plan.placement,
        Placement::Unit {
            path: path.parse().unwrap(),
            flux: uid
        }
    );
    assert_eq!(plan.containment, Containment::Inherit);
    assert_eq!(variables(&plan), ["FLUX_JOB_ID=fxyzzy"]);
    assert_eq!(bench.ask().hint, "flux jobs");
    for (env, count) in [("none", 0), ("full", 1)] {
        bench.configure(&format!("flux_user = nobody\nenv = {env}\n"));
        assert_eq!(variables(&bench.plan()).len(), count, "{env}");
    }
    bench.configure("flux_user = nobody\nsources = registry\n");
    assert_eq!(bench.refusal().reason, Reason::NoJob);
}

#[test]
fn choice_among_jobs_has_the_command_for_the_oldest() {
    let mut bench = NodeBench::new();
    add_flux_job(&bench);
    bench.request.several = SeveralJobsPolicy::Deny;
    bench.job("7", &format!(r#"{STRICT},"started":9000000000"#));
    bench.configure("flux_user = nobody\nhint = qstat\n");
    assert_eq!(bench.refusal().reason, Reason::ChoiceNeeded);
    assert_eq!(
        bench.ask().hint,
        "flux exec --jobid=fxyzzy job-adopt use fxyzzy"
    );
}

#[test]
fn text_of_the_unit_replaces_the_filter() {
    let mut bench = NodeBench::new();
    add_flux_job(&bench);
    bench.request.unit = "[Service]\nDevicePolicy=strict\nDeviceAllow=char-misc rw\n".into();
    let Containment::Enforce(list) = bench.plan().containment else {
        panic!()
    };
    assert_eq!(list.rules(), ["c:10:-1:rw".parse().unwrap()]);
    bench.request.unit = "[Service]\n".into();
    assert_eq!(bench.plan().containment, Containment::None);
    bench.request.unit = "[Service]\nDevicePolicy\n".into();
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

#[test]
fn record_adds_devices_in_any_notation_of_the_id() {
    let bench = NodeBench::new();
    add_flux_job(&bench);
    for id in ["fxyzzy", "633528662"] {
        let text = format!(r#"{{"version":1,"id":"{id}","uid":5,"via":"flux"{STRICT}}}"#);
        let file = bench.register(id, &text);
        let plan = bench.plan();
        assert_eq!(plan.job.as_str(), "fxyzzy");
        let Containment::InheritAndEnforce(list) = plan.containment else {
            panic!("{id}")
        };
        assert_eq!(list.rules(), ["c:10:-1:rw".parse().unwrap()]);
        bench.scratch.file(&format!("jobs/5/{id}.json"), "{");
        assert_eq!(bench.refusal().reason, Reason::Configuration, "{id}");
        std::fs::remove_file(file).unwrap();
    }
    // A record for another scheduler is not about this job.
    let text = format!(r#"{{"version":1,"id":"633528662","uid":5,"via":"slurm"{STRICT}}}"#);
    bench.register("633528662", &text);
    assert_eq!(bench.plan().containment, Containment::Inherit);
}

/// In the log of a user without a job: what each source has seen, and why others could not look.
#[test]
fn absent_source_is_a_cause() {
    let bench = NodeBench::new();
    add_flux_job(&bench);
    let absent = "slurm: no slurm.conf in /etc/slurm, /etc/slurm-llnl, /usr/local/etc, /run/slurm/conf; slurm_conf in \
                  job_adopt.conf may name it";
    std::fs::remove_dir_all(bench.scratch.path().join("proc/11")).unwrap();
    let skipped = bench.ask().detail;
    assert!(
        skipped.contains("fxyzzy.service: its shell is not there yet; slurm: "),
        "{skipped}"
    );
    assert!(skipped.ends_with(absent), "{skipped}");
    std::fs::remove_dir_all(bench.scratch.path().join("proc/10")).unwrap();
    let seen = "flux: account nobody: 0 units run a job, 0 have no shell, 1 are left over";
    assert_eq!(bench.ask().detail, format!("{seen}; {absent}"));
    bench.configure("flux_user = nobody\nsources = slurm, flux\n");
    assert_eq!(bench.ask().detail, format!("{seen}; {absent}"));
    bench.configure("flux_user = nobody\nsources = flux\n");
    assert_eq!(bench.ask().detail, seen);
}

#[test]
fn starting_or_ending_job_has_its_own_code() {
    let bench = NodeBench::new();
    add_flux_job(&bench);
    bench.scratch.file(
        "proc/11/status",
        "Name:\tx\nState:\tS\nPPid:\t1\nUid:\t5 5 5 5\n",
    );
    let refusal = bench.refusal();
    assert_eq!((refusal.reason, refusal.ended), (Reason::Ended, None));
    assert_eq!(refusal.jobs, ["fxyzzy".parse().unwrap()]);
    bench
        .scratch
        .file("run/flux-prolog@f2.env", "FLUX_JOB_USERID=5\n");
    let other_refusal = bench.refusal();
    assert_eq!(other_refusal.reason, Reason::Starting);
    assert_eq!(other_refusal.jobs, ["f2".parse().unwrap()]);
}

#[test]
fn job_without_shell_is_awaited() {
    let mut bench = NodeBench::new();
    add_flux_job(&bench);
    let shell = bench.scratch.path().join("proc/11/status");
    let text = std::fs::read_to_string(&shell).unwrap();
    std::fs::remove_file(&shell).unwrap();
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    assert!(
        bench
            .ask()
            .detail
            .contains("imp-shell-0-fxyzzy.service: its shell is not there yet")
    );
    bench.request.wait_ms = 4000;
    let late = Duration::from_millis(300);
    bench
        .clock
        .run_at(late, move || std::fs::write(shell, text).unwrap());
    assert_eq!(bench.plan().job.as_str(), "fxyzzy");
    assert_eq!(bench.clock.elapsed(), late);
}
