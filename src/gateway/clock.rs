//! What time it is: the only place that asks, so that a test can hold time still and let it pass.
//!
//! Timers are tokio's, whose clock a test can pause; [`now`] is read from the same clock.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt as _;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep_until, timeout_at};

/// This moment, to measure durations from.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// How long ago that moment is.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// What this thread has computed so far: the time in which it waited for a processor is not in it.
pub(crate) fn thread_work() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// The time of the calendar, for what people and other processes read.
#[expect(clippy::disallowed_methods, reason = "it is read here only")]
pub(crate) fn calendar() -> SystemTime {
    SystemTime::now()
}

/// Seconds since 1970, for what outlives the process.
pub(crate) fn now_s() -> u64 {
    calendar().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The moment of this second since 1970, by the calendar as it is now: not before it, and less than a second after it. `None`:
/// it is too far away.
pub(crate) fn moment_of(second: u64) -> Option<Instant> {
    now().checked_add(Duration::from_secs(second.saturating_sub(now_s())))
}

/// What comes of `future` until `deadline`; `None`: nothing. One that is ready at once costs no timer.
pub(crate) async fn until<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match future.as_mut().now_or_never() {
        Some(output) => Some(output),
        None => timeout_at(deadline.into(), future).await.ok(),
    }
}

/// [`until`] so much later than now.
pub(crate) async fn within<F: Future>(patience: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match future.as_mut().now_or_never() {
        Some(output) => Some(output),
        None => until(now() + patience, future).await,
    }
}

/// A deadline of which there is a new one all the time, and which nearly never passes. Its timer stays set from one to the
/// next, and is set anew only when it rings too early.
#[derive(Debug, Default)]
pub(crate) struct RecurringDeadline {
    timer: Option<Pin<Box<Sleep>>>,
    /// Whom the timer wakes.
    waker: Option<Waker>,
}

impl RecurringDeadline {
    /// Ready once `deadline` has passed. To be polled whenever the task has nothing else to do.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let deadline = tokio::time::Instant::from_std(deadline);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        let is_set = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_set && timer.deadline() <= deadline && !timer.is_elapsed() {
            return Poll::Pending;
        }
        if !is_set {
            self.waker = Some(cx.waker().clone());
        }
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            // However much its task has done already: else it may not be set, and nobody looks again.
            ready!(pin!(unconstrained(timer.as_mut())).poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn each_deadline_passes_when_it_should() {
        let mut recurring = RecurringDeadline::default();
        let soon = |after_ms| now() + Duration::from_millis(after_ms);
        // Later ones, an earlier one, and one that has passed.
        for after_ms in [5, 10, 3, 0, 8] {
            let deadline = soon(after_ms);
            poll_fn(|cx| recurring.poll(cx, deadline)).await;
            assert!(now() >= deadline, "{after_ms}");
        }
        // One that is not waited for leaves its timer to the next, which it does not end.
        let near = soon(5);
        assert!(poll_fn(|cx| Poll::Ready(recurring.poll(cx, near))).await.is_pending());
        let later = soon(30);
        poll_fn(|cx| recurring.poll(cx, later)).await;
        assert!(now() >= later);
        // Nor does one that is far away keep a near one from passing.
        let far = soon(3_600_000);
        assert!(poll_fn(|cx| Poll::Ready(recurring.poll(cx, far))).await.is_pending());
        let near = soon(5);
        poll_fn(|cx| recurring.poll(cx, near)).await;
        assert!(now() >= near);
    }

    #[tokio::test]
    async fn a_deadline_that_is_set_late_in_the_turn_of_its_task_passes_all_the_same() {
        let mut recurring = RecurringDeadline::default();
        for _ in 0..2 {
            let (deadline, mut is_first) = (now() + Duration::from_millis(5), true);
            let passed = poll_fn(|cx| {
                while std::mem::take(&mut is_first) || tokio::task::coop::has_budget_remaining() {
                    let Poll::Ready(spent) = tokio::task::coop::poll_proceed(cx) else { break };
                    spent.made_progress();
                }
                recurring.poll(cx, deadline)
            });
            tokio::time::timeout(Duration::from_secs(10), passed).await.expect("it passes");
        }
    }

    #[test]
    fn who_waits_does_no_work() {
        let (start, work) = (now(), thread_work());
        std::thread::sleep(Duration::from_millis(100));
        assert!(thread_work().saturating_sub(work) < Duration::from_millis(50));
        while thread_work().saturating_sub(work) < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        assert!(now() - start >= Duration::from_millis(100));
    }

    #[tokio::test]
    async fn what_is_late_comes_to_nothing() {
        let start = now();
        assert_eq!(within(Duration::ZERO, async { 1 }).await, Some(1));
        assert_eq!(until(start, std::future::pending::<()>()).await, None);
        assert_eq!(within(Duration::from_millis(5), std::future::pending::<()>()).await, None);
        assert!(now() - start >= Duration::from_millis(5));
    }
}
