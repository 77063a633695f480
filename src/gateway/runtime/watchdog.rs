//! Keeps the service manager informed for as long as the process lives: how it is, and that every worker runs.
//!
//! systemd restarts a service that falls silent. So one worker that hangs must be enough to fall silent, though the
//! control thread, which speaks for all, still runs.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::notify::Notifier;
use crate::context::state::State;
use crate::telemetry::pulse::BeatCounts;

/// How often the service manager hears what has changed, and how often while calls run out.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
const STATUS_INTERVAL_DRAINING: Duration = Duration::from_secs(1);
/// How many times workers show themselves within the time after which they count as hung.
const BEATS: u32 = 4;
const BEAT_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// How long the service manager waits for a sign of life, if it does.
pub(super) fn of_environment() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    // It may be meant for a process further up.
    let is_ours = std::env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(u64::from(std::process::id()));
    // Without this nobody hears us.
    let is_heard = std::env::var_os("NOTIFY_SOCKET").is_some();
    number("WATCHDOG_USEC").filter(|&usec| is_ours && is_heard && usec > 0).map(Duration::from_micros)
}

/// How often workers show that they run.
pub(super) fn beat_interval(watchdog: Option<Duration>) -> Duration {
    watchdog.map_or(BEAT_INTERVAL_MAX, |watchdog| (watchdog / (2 * BEATS)).min(BEAT_INTERVAL_MAX))
}

/// Gives signs of life at half of `watchdog`; later, but at once, where a worker was late, which may be busy for nearly
/// as long as `watchdog` says.
pub(super) async fn watch(state: Arc<State>, notifier: Rc<Notifier>, watchdog: Duration) {
    let mut seen = BeatCounts::default();
    let mut is_late = false;
    loop {
        if state.pulses.all_beat_since(&mut seen) {
            notifier.alive();
            is_late = false;
            sleep(watchdog / 2).await;
        } else {
            if !is_late {
                is_late = true;
                tracing::error!("a worker hangs; the service manager gets no sign of life until it goes on");
            }
            sleep(beat_interval(Some(watchdog))).await;
        }
    }
}

pub(super) async fn report(state: Arc<State>, notifier: Rc<Notifier>) {
    loop {
        tokio::select! {
            () = sleep(STATUS_INTERVAL) => {}
            () = state.drain.quiet() => sleep(STATUS_INTERVAL_DRAINING).await,
        }
        notifier.refresh(&state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_show_themselves_more_often_than_they_are_looked_at() {
        for (watchdog_ms, beat_ms) in [(None, 1000), (Some(30_000), 1000), (Some(4000), 500), (Some(80), 10)]
        {
            let beat = beat_interval(watchdog_ms.map(Duration::from_millis));
            assert_eq!(beat, Duration::from_millis(beat_ms), "{watchdog_ms:?}");
            assert!(watchdog_ms.is_none_or(|watchdog| beat * 2 < Duration::from_millis(watchdog)));
        }
    }
}
