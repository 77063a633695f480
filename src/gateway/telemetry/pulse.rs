//! Whether the threads live, and what the workers have under way.
//!
//! Each thread writes its own [`Pulse`], which fills a cache line; the control thread and the supervisor read all of them.
//! Nothing here ends a thread that hangs: whoever watches does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Pulse {
    calls: AtomicUsize,
    beats: AtomicU64,
    has_ended: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Pulses {
    /// That of the control thread, which has no calls.
    pub control: Pulse,
    all: Mutex<Vec<Arc<Pulse>>>,
    death: Notify,
}

/// How far every worker had come when it was last looked at.
#[derive(Debug, Default)]
pub(crate) struct BeatCounts(Vec<u64>);

/// Lives as long as a worker's thread. Dropped by a panic, it says that the worker died.
#[derive(Debug)]
pub(crate) struct Life {
    pulse: Arc<Pulse>,
    pulses: Arc<Pulses>,
    is_over: bool,
}

impl Pulse {
    /// A call has begun. Only the worker itself may say so.
    pub(crate) fn enter(&self) {
        // No other thread writes, so nothing is lost between the two.
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A call has ended. Only the worker itself may say so.
    pub(crate) fn leave(&self) {
        self.calls.store(self.calls.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }

    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Shows every `period`, for as long as it is polled, that the thread runs.
    pub(crate) async fn beat(&self, period: Duration) {
        let mut interval = tokio::time::interval(period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.beats.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Pulses {
    /// That of a new worker, and what its thread holds until it ends.
    pub(crate) fn add(self: &Arc<Self>) -> (Arc<Pulse>, Life) {
        let pulse = Arc::new(Pulse::default());
        self.all.lock().push(Arc::clone(&pulse));
        (Arc::clone(&pulse), Life { pulse, pulses: Arc::clone(self), is_over: false })
    }

    pub(crate) fn calls(&self) -> usize {
        let all = self.all.lock();
        all.iter().map(|pulse| pulse.calls.load(Ordering::Relaxed)).sum()
    }

    /// Something else than a worker is so broken that the process must end as if one had died.
    pub(crate) fn give_up(&self) {
        self.death.notify_one();
    }

    /// Completes when a worker has ended that should not have.
    pub(crate) async fn death(&self) {
        self.death.notified().await;
    }

    pub(crate) fn all_have_ended(&self) -> bool {
        let all = self.all.lock();
        all.iter().all(|pulse| pulse.has_ended.load(Ordering::Relaxed))
    }

    /// Whether every worker that has not ended has shown itself since `seen` was last taken.
    pub(crate) fn all_beat_since(&self, seen: &mut BeatCounts) -> bool {
        let all = self.all.lock();
        let beats: Vec<u64> = all.iter().map(|pulse| pulse.beats.load(Ordering::Relaxed)).collect();
        let is_late = |place: usize| {
            !all[place].has_ended.load(Ordering::Relaxed) && seen.0.get(place) == Some(&beats[place])
        };
        let all_beat = !(0..beats.len()).any(is_late);
        // Those of one that is late stay as they are: it has to move before the others count again.
        if all_beat {
            seen.0 = beats;
        }
        all_beat
    }
}

impl Life {
    pub(crate) fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.pulse.has_ended.store(true, Ordering::Relaxed);
        self.pulse.calls.store(0, Ordering::Relaxed);
        if !self.is_over {
            self.pulses.death.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn calls_are_counted_over_all_workers() {
        let pulses = Arc::new(Pulses::default());
        let ((one, _one), (two, life)) = (pulses.add(), pulses.add());
        one.enter();
        two.enter();
        two.enter();
        one.leave();
        assert_eq!(pulses.calls(), 2);
        life.end();
        assert_eq!(pulses.calls(), 0, "the calls of a thread end with it");
    }

    #[test]
    fn a_worker_that_hangs_is_noticed_and_one_that_ended_is_not_missed() {
        let pulses = Arc::new(Pulses::default());
        let ((one, _one), (two, life)) = (pulses.add(), pulses.add());
        let mut seen = BeatCounts::default();
        assert!(pulses.all_beat_since(&mut seen), "nobody was looked at before");
        assert!(!pulses.all_beat_since(&mut seen));
        one.beats.fetch_add(1, Ordering::Relaxed);
        assert!(!pulses.all_beat_since(&mut seen), "one of two");
        two.beats.fetch_add(1, Ordering::Relaxed);
        assert!(pulses.all_beat_since(&mut seen));
        life.end();
        one.beats.fetch_add(1, Ordering::Relaxed);
        assert!(pulses.all_beat_since(&mut seen));
    }

    #[test]
    fn a_panic_is_a_death_and_an_end_is_none() {
        let pulses = Arc::new(Pulses::default());
        let (_, life) = pulses.add();
        thread::spawn(move || life.end()).join().expect("it ends");
        assert!(pulses.death().now_or_never().is_none());
        let (_, life) = pulses.add();
        let died = thread::spawn(move || {
            let _life = life;
            panic!("a bug");
        });
        assert!(died.join().is_err());
        assert!(pulses.death().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_thread_that_runs_beats() {
        let (pulse, _life) = Arc::new(Pulses::default()).add();
        let beating = pulse.beat(Duration::from_millis(1));
        assert!(tokio::time::timeout(Duration::from_millis(50), beating).await.is_err());
        assert!(pulse.beats.load(Ordering::Relaxed) > 1);
    }
}
