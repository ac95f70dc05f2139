//! Queries the sources within the budget of a request, and again while the user has no job.

use crate::sources::Source;
use crate::survey::Survey;
use protocol::Request;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval between queries while the user has no job.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
/// Part of the budget that is left for the reply and its way back.
const REPLY_RESERVE: Duration = Duration::from_millis(250);
/// Divisor of the budget for one round of queries: the privileged half asks a second time for some
/// jobs.
const ROUNDS_MAX: u32 = 2;

/// Returns when a request that came at `began` must be answered.
pub(super) fn reply_deadline(request: &Request, began: Instant) -> Instant {
    began + available_budget(request)
}

/// Queries the sources, and repeats that while the user has no job and the request's time for this
/// lasts.
pub(super) fn query_until_job(sources: &[Box<dyn Source>], request: &Request) -> Survey {
    let budget = available_budget(request);
    let wait = Duration::from_millis(request.wait_ms.into()).min(budget);
    let began = Instant::now();
    loop {
        let survey = Survey::query(sources, request.uid, Instant::now() + budget / ROUNDS_MAX);
        let left = wait.saturating_sub(began.elapsed());
        if !survey.can_change() || left.is_zero() {
            return survey;
        }
        sleep(QUERY_INTERVAL.min(left));
    }
}

fn available_budget(request: &Request) -> Duration {
    Duration::from_millis(request.budget_ms.into()).saturating_sub(REPLY_RESERVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_leaves_time_for_the_reply() {
        let began = Instant::now();
        for (budget_ms, left_ms) in [(5000, 4750), (250, 0), (10, 0)] {
            let request = Request { budget_ms, ..Request::default() };
            let deadline = began + Duration::from_millis(left_ms);
            assert_eq!(reply_deadline(&request, began), deadline);
        }
    }
}
