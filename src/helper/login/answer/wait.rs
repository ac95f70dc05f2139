//! Queries the sources within the budget of a request, and again while the user has no job.

use crate::clock::{Clock, Deadline};
use crate::jobs::sources::Source;
use crate::login::survey::Survey;
use protocol::Request;
use std::time::Duration;

/// Interval between queries while the user has no job.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
/// Part of the budget that is left for the reply and its way back.
const REPLY_RESERVE: Duration = Duration::from_millis(250);
/// Divisor of the budget for one round of queries: the privileged half asks a second time for some
/// jobs.
const ROUNDS_MAX: u32 = 2;

/// When a request that has just come must be answered.
pub(super) fn reply_deadline(request: &Request, clock: Clock) -> Deadline {
    clock.deadline_after(available_budget(request))
}

/// Queries the sources at least once, and repeats that while the user has no job, a further query may find one, and
/// `wait_ms` of the request lasts (0 without `wait_job`).
pub(super) fn query_until_job(
    sources: &[Box<dyn Source>],
    request: &Request,
    clock: Clock,
) -> Survey {
    let budget = available_budget(request);
    let wait = Duration::from_millis(request.wait_ms.into()).min(budget);
    let wait_end = clock.deadline_after(wait);
    loop {
        let round_end = clock.deadline_after(budget / ROUNDS_MAX);
        let survey = Survey::query(sources, request.uid, round_end);
        let left = wait_end.remaining();
        if !survey.can_change() || left.is_zero() {
            return survey;
        }
        clock.sleep(QUERY_INTERVAL.min(left));
    }
}

/// The time for the answer: the request's budget without the part for the reply's way back.
fn available_budget(request: &Request) -> Duration {
    Duration::from_millis(request.budget_ms.into()).saturating_sub(REPLY_RESERVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::manual::ManualClock;

    #[test]
    fn deadline_leaves_time_for_the_reply() {
        let clock = ManualClock::new().clock();
        for (budget_ms, left_ms) in [(5000, 4750), (250, 0), (10, 0)] {
            let request = Request {
                budget_ms,
                ..Request::default()
            };
            let left = reply_deadline(&request, clock).remaining();
            assert_eq!(left, Duration::from_millis(left_ms));
        }
    }
}
