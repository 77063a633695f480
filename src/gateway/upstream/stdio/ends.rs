//! The end of a process: whether its start came to nothing, for whom, and what it tells of the program.

use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::latest_lines::Lines;
use super::process::ChildEnd;
use super::starts::VainStart;
use super::{Children, SETTLING_TIME};
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::upstream::fault::Fault;
use crate::upstream::mux::{CallsServed, MuxConnection};
use crate::upstream::start_state::Start;
use net::jitter;
use protocol::method::Method;

/// One that says nothing for so long since it has read its first question does not speak that era, or for half of
/// `start_timeout`, if that is less.
const SILENCE_MIN: Duration = Duration::from_secs(30);

impl Children {
    /// The kind of vain start that one was which ended unasked; `None`: it was none.
    fn vain_start(&self, connection: &MuxConnection, since: Instant, now: Instant) -> Option<VainStart> {
        if !connection.has_answered() {
            return Some(VainStart::Unanswered);
        }
        let is_early = connection.was_asked_at_end() || now.duration_since(since) < SETTLING_TIME;
        // One client alone keeps no process from others.
        let was_of_use = connection.has_client() || self.starts.lock().was_used_since(since);
        (is_early && !was_of_use).then_some(VainStart::Introduced)
    }

    /// A process comes to its end without an answer. The pause begins before anybody hears of the end and asks for another
    /// process: it may take `stop_timeout` until this one is gone.
    pub(super) fn note_unanswered(
        &self,
        connection: &MuxConnection,
        start: &Start,
        end: ChildEnd,
        since: Instant,
    ) {
        if end == ChildEnd::Asked || connection.has_answered() {
            return;
        }
        let now = clock::now();
        self.note_vain_start(VainStart::Unanswered, since, now);
        if self.is_silent(start, end, now)
            && let Some(era) = connection.begun_in()
        {
            self.starts.lock().note_silence(era);
        }
    }

    /// True if the end of this one tells of the era in which it was asked: it has read the question, and ended of it or was
    /// silent, and nothing else of the program serves. One that has yet to read may end, or be slow, in any era.
    fn is_silent(&self, start: &Start, end: ChildEnd, now: Instant) -> bool {
        let Some(read_since) = start.read_since() else { return false };
        let silence_min = SILENCE_MIN.min(self.start_timeout() / 2);
        let was_told = match end {
            ChildEnd::Closed => true,
            ChildEnd::NeverUp => now.duration_since(read_since) >= silence_min,
            ChildEnd::Asked | ChildEnd::TooLong | ChildEnd::Deaf => false,
        };
        was_told && self.serving.load(Ordering::Relaxed) == 0
    }

    /// The question of the gateway's own at which one ended that had introduced itself. One that does not even initialize is of no
    /// use to clients.
    fn own_end(connection: &MuxConnection) -> Option<Method> {
        let question = connection.ended_at().filter(|question| *question != Method::Initialize);
        question.filter(|_| connection.has_answered())
    }

    /// A process ended that was started for a client, which may be the only one there is: its own ends are counted for it,
    /// whatever others see.
    fn note_end_of_asker(
        &self,
        connection: &MuxConnection,
        start: &Start,
        end: ChildEnd,
        since: Instant,
        now: Instant,
    ) {
        let asker = start.asker();
        // While none answers, all wait. One that ended at a question of the gateway's own is counted as such.
        let is_of_all = !connection.has_answered() && self.serving.load(Ordering::Relaxed) == 0;
        if asker == Payer::GATEWAY || is_of_all || Self::own_end(connection).is_some() {
            return;
        }
        let calls = connection.calls_served();
        let was_of_use = calls == CallsServed::Answered || now.duration_since(since) >= SETTLING_TIME;
        let mut starts = self.starts.lock();
        match end {
            _ if was_of_use => starts.settle(asker),
            ChildEnd::Asked => {}
            _ => starts.fail_for(asker, calls == CallsServed::Unanswered, now, jitter::random()),
        }
    }

    pub(super) fn note_end(
        &self,
        connection: &MuxConnection,
        start: &Start,
        end: ChildEnd,
        status: Option<ExitStatus>,
        since: Instant,
        last_lines: Lines,
    ) {
        let now = clock::now();
        self.note_end_of_asker(connection, start, end, since, now);
        let cause = end.cause(status);
        let (why, status) = (end.as_str(), status.map(|status| status.to_string()).unwrap_or_default());
        if end == ChildEnd::Asked {
            tracing::debug!(upstream = self.name, why, status, "a child process ended");
            return;
        }
        self.series.crashes.inc();
        *self.last_lines.lock() = last_lines;
        let said = self.last_lines().pop().unwrap_or_default().into();
        let told = if end == ChildEnd::Closed { &*status } else { why };
        let vain = self.vain_start(connection, since, now);
        if vain.is_none() {
            self.recent_ends.lock().add(now);
        }
        // One that answered nothing is counted already.
        if vain == Some(VainStart::Introduced) {
            self.note_vain_start(VainStart::Introduced, since, now);
        }
        if let Some(question) = Self::own_end(connection) {
            self.note_own_end(question, now);
        }
        // One that was of use is started again when somebody needs it.
        let is_standing = match vain {
            None => false,
            Some(VainStart::Introduced) => connection.was_asked_at_end() || self.starts.lock().is_repeated(),
            Some(VainStart::Unanswered | VainStart::NoProcess) => true,
        };
        self.fault.note(Fault::Ended { cause, status: told.into(), said }, 0, is_standing);
        let lived_ms = now.duration_since(since).as_millis();
        if let Some(left_out) = self.paces.lock().ends.next(now) {
            let upstream = &self.name;
            tracing::warn!(
                upstream,
                why,
                status,
                lived_ms,
                left_out = (left_out > 0).then_some(left_out),
                "{}",
                if end == ChildEnd::Closed {
                    "a child process ended unasked"
                } else {
                    "a child process had to be ended"
                }
            );
        }
        if vain == Some(VainStart::Unanswered) {
            start.fail([why, &status].join(": "));
        }
    }
}
