//! Whether a child is stopped or stuck: it neither reads what it was sent nor says anything.
//!
//! A child that works on a call and reads nothing meanwhile looks the same, until it has answered: it has as long as any
//! call may take.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::process::ChildStdin;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use crate::clock;
use crate::upstream::mux::MuxConnection;

/// So often within its time it is looked.
const LOOKS: u32 = 4;
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(20);
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The progress of one child.
#[derive(Debug)]
pub(super) struct DeafWatch<'a> {
    connection: &'a MuxConnection,
    /// How often anything was read of it.
    heard: &'a Cell<u64>,
    patience: Duration,
    looks: Interval,
    written_bytes: u64,
    /// The bytes that it had read, and how often it was heard, at the last look.
    seen: (u64, u64),
    /// Since when that is the same while there is something to read.
    since: Instant,
}

impl<'a> DeafWatch<'a> {
    pub(super) fn new(connection: &'a MuxConnection, heard: &'a Cell<u64>, patience: Duration) -> Self {
        let now = clock::now();
        let interval = (patience / LOOKS).clamp(LOOK_INTERVAL_MIN, LOOK_INTERVAL_MAX);
        let mut looks = interval_at((now + interval).into(), interval);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { connection, heard, patience, looks, written_bytes: 0, seen: (0, 0), since: now }
    }

    pub(super) fn connection(&self) -> &MuxConnection {
        self.connection
    }

    /// The time within which it reads.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    pub(super) fn note_written(&mut self, bytes: usize) {
        self.written_bytes += bytes as u64;
    }

    /// Waits until it is to be looked again.
    pub(super) async fn due(&mut self) {
        self.looks.tick().await;
    }

    /// True if it has read and said nothing for too long. Where the system does not say what is unread, nothing is.
    #[cold]
    pub(super) fn is_deaf(&mut self, stdin: &ChildStdin) -> bool {
        let now = clock::now();
        let unread_bytes = rustix::io::ioctl_fionread(stdin).unwrap_or(0);
        let seen = (self.written_bytes.saturating_sub(unread_bytes), self.heard.get());
        // While it is not read itself, it may wait for that.
        let is_excused = unread_bytes == 0
            || !self.connection.has_answered()
            || !self.connection.stalls().is_multiple_of(2);
        if is_excused || seen != self.seen {
            (self.seen, self.since) = (seen, now);
        }
        now >= self.since + self.patience
    }
}
