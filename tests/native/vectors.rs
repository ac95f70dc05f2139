//! Questions that the tests of other projects ask of their device filters, put to the filters of this one: a file for
//! each project. Each row names what it asks; where the answer differs on purpose, the row says why.

mod cgroup_dev;
mod device_policy;
mod device_rules;

use crate::support::{ALICE, Cgroup, DENIED, Job, Node, Outcome, Tool};

/// What a row asks for, the argument of `access`, and whether the filter allows it. An open that is allowed may
/// still fail for want of a driver.
type Question = (&'static str, &'static str, bool);

/// Makes `access` a command of the node.
fn install_access(node: &Node) {
    node.install(&Tool::Access.path(), "/usr/bin/access");
}

/// Starts a job under this policy, whose first login attaches our filter.
fn start_job<'a>(node: &'a Node, policy: &str, allow: &[&str]) -> Job<'a> {
    let job = node.job(ALICE, "4242").policy(policy, allow).start();
    node.pam(ALICE).ok();
    job
}

/// Asks the kernel in a process of root's, whom no mode of a file stops. Lists the rows with another answer.
fn find_differences(
    node: &Node,
    cgroup: &Cgroup,
    table: &str,
    questions: &[Question],
) -> Vec<String> {
    let requests = questions.iter().map(|(_, request, _)| *request);
    let outcome = Outcome::run(node.daemon(cgroup, "access").args(requests)).ok();
    let answers: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(answers.len(), questions.len(), "{table}: {outcome}");
    let mut differences = Vec::new();
    for ((name, request, is_allowed), line) in questions.iter().zip(answers) {
        let answer = line.strip_prefix(request).unwrap().trim_start();
        if (answer != DENIED) != *is_allowed {
            differences.push(format!("{table}: {name}: {request} is {answer}"));
        }
    }
    differences
}

/// Fails with all rows that have another answer.
#[track_caller]
fn assert_no_differences(differences: &[String]) {
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
