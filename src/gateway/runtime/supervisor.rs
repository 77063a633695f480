//! The thread that watches the others, and ends the process in order where the control thread cannot.
//!
//! The control thread drains, answers `/readyz` and speaks to the service manager. Where it hangs nobody would, while the
//! workers go on: no reload, no reply to a health check, no end. Nobody can make a thread go on, so the process ends, as
//! after the death of a worker: clients are told to go elsewhere, what runs is finished within `drain.max`, and the exit
//! code says that it was a bug, so that whoever started the process starts it again.
//!
//! Time is counted in looks at the others rather than read from a clock: a process that was stopped as a whole, or a
//! machine that slept, has no thread that hangs.
//!
//! Deliberately not here: a worker that hangs under a service manager that watches the process. That it falls silent is
//! seen to in `watchdog.rs`, and how long that is borne is the operator's setting.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::control;
use super::notify::Notifier;
use crate::clock;
use crate::context::state::State;
use crate::telemetry::logs;
use crate::telemetry::pulse::BeatCounts;
use config::DrainConfig;

/// The exit code after a bug, as sysexits has it.
pub const EXIT_BUG: u8 = 70;

/// How often the others are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a thread may show no sign of life. At most a third of what a service manager allows, which would not
/// drain: it last heard of us up to half of that before the thread hung.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const SILENCE_MIN: Duration = Duration::from_secs(5);
/// How often it is looked at whether the drain has nothing left to wait for.
const DRAIN_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Time for threads to end after everything was cut.
pub(super) const LEAVE_MAX: Duration = Duration::from_secs(5);

/// The thread of the session journal, until somebody waits for it.
pub(super) type JournalThread = Arc<Mutex<Option<JoinHandle<()>>>>;

/// What it takes to end the process.
pub(super) struct Supervisor {
    pub(super) state: Arc<State>,
    pub(super) drain: DrainConfig,
    pub(super) journal: JournalThread,
    pub(super) watchdog: Option<Duration>,
}

/// How often in a row a thread had not moved when it was looked at.
#[derive(Debug, Default)]
struct Silence {
    beats: u64,
    looks: u32,
}

impl Silence {
    /// Looks at how often the thread has shown itself.
    fn look(&mut self, beats: u64) -> u32 {
        let has_moved = self.beats != beats;
        self.beats = beats;
        self.looks = if has_moved { 0 } else { self.looks + 1 };
        self.looks
    }
}

impl Supervisor {
    /// Watches until the sender of `stop` is gone. Ends the process where the control thread hangs.
    pub(super) fn run(self, stop: &Receiver<()>) {
        let looks_max = looks_max(self.watchdog);
        let (mut control, mut seen, mut workers_late) = (Silence::default(), BeatCounts::default(), 0);
        while stop.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            if control.look(self.state.pulses.control.beats()) >= looks_max {
                tracing::error!("the control thread hangs, which is a bug; stopping without it");
                exit_after(self.drain.max + 3 * LEAVE_MAX);
                self.end_in_order();
                logs::finish();
                std::process::exit(EXIT_BUG.into());
            }
            workers_late = if self.state.pulses.all_beat_since(&mut seen) { 0 } else { workers_late + 1 };
            if workers_late == looks_max && self.watchdog.is_none() {
                tracing::error!("a worker thread hangs, which is a bug");
                self.state.pulses.give_up();
            }
        }
    }

    /// Drains by the clocks of the control thread, in its place.
    pub(super) fn end_in_order(&self) {
        let Self { state, drain, .. } = self;
        let notifier = Notifier::from_environment();
        notifier.alive();
        notifier.stopping(drain.max + 2 * LEAVE_MAX, state);
        control::start_drain(state);
        self.wait(&notifier, drain.quiet_max());
        state.drain.start_closing();
        self.wait(&notifier, drain.max.saturating_sub(drain.quiet_max()));
        control::cut(state);
        self.wait(&notifier, LEAVE_MAX);
        state.sessions.stop_writer();
        let has_ended = || {
            let journal = self.journal.lock();
            journal.as_ref().is_none_or(JoinHandle::is_finished)
        };
        wait_until(&notifier, LEAVE_MAX, has_ended);
        tracing::info!("stopped");
    }

    /// Waits until all workers have ended, at most for `time`.
    fn wait(&self, notifier: &Notifier, time: Duration) {
        wait_until(notifier, time, || self.state.pulses.all_have_ended());
    }
}

/// Ends the process at the latest then: what hangs may hold a lock that an end in order waits for.
fn exit_after(limit: Duration) {
    let exit = move || {
        std::thread::sleep(limit);
        std::process::exit(EXIT_BUG.into());
    };
    // Where no thread can be had, the end in order is all there is.
    let _ = std::thread::Builder::new().name("end".into()).spawn(exit);
}

fn wait_until(notifier: &Notifier, time: Duration, is_so: impl Fn() -> bool) {
    let started = clock::now();
    let mut told = started;
    while !is_so() && clock::since(started) < time {
        if clock::since(told) >= LOOK_INTERVAL {
            notifier.alive();
            told = clock::now();
        }
        std::thread::sleep(DRAIN_LOOK_INTERVAL);
    }
}

/// Looks in a row at which a thread has not moved, and after which it hangs.
fn looks_max(watchdog: Option<Duration>) -> u32 {
    let silence = watchdog.map_or(SILENCE_MAX, |watchdog| (watchdog / 3).clamp(SILENCE_MIN, SILENCE_MAX));
    u32::try_from(silence.as_secs() / LOOK_INTERVAL.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_hangs_that_has_not_moved_for_several_looks() {
        let mut silence = Silence::default();
        let looks: Vec<u32> = [0, 1, 1, 1, 2, 2, 3].map(|beats| silence.look(beats)).to_vec();
        assert_eq!(looks, [1, 0, 1, 2, 0, 1, 0]);
    }

    #[test]
    fn it_is_borne_for_a_third_of_what_the_service_manager_bears() {
        for (watchdog_s, looks) in [(None, 30), (Some(30), 10), (Some(1), 5), (Some(3600), 30)] {
            assert_eq!(looks_max(watchdog_s.map(Duration::from_secs)), looks, "{watchdog_s:?}");
        }
    }
}
