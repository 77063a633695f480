//! Room for one more child process where as many run as may: one that rests ends, by the rule of
//! [`fair`](crate::access::limit::fair). Whoever knows all that rests lies above ([`MakeRoom`](crate::upstream::mux::host::MakeRoom)).

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Children;
use crate::access::limit::fair::{Fair, Turn};
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::upstream::mux::host::Host;

/// How long a process rests before it makes room. It takes time to start, so one that is used now and then stays.
pub(crate) const PATIENCE: Fair =
    Fair { own_rest_min: Duration::from_secs(1), others_rest_min: Duration::from_secs(5) };
/// How often it is tried whether there is room.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// How many processes make room for one: others may take what they leave.
const OUSTED_MAX: usize = 4;
/// How long a call waits for room.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);

/// A search for room.
#[derive(Debug)]
pub(super) struct RoomSearch {
    until: Instant,
    ousted: usize,
    /// A process may take its time to end; no other is ended for that.
    not_before: Option<Instant>,
}

impl RoomSearch {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { until: deadline.min(clock::now() + WAIT_MAX), ousted: 0, not_before: None }
    }

    /// Waits until there may be room for a process of `payer`. False: there is none in time.
    pub(super) async fn wait(&mut self, children: &Arc<Children>, host: &Rc<Host>, payer: Payer) -> bool {
        let now = clock::now();
        if now >= self.until {
            return false;
        }
        if self.not_before.is_none_or(|at| now >= at) {
            let Some(room) = host.shared.room().filter(|_| self.ousted < OUSTED_MAX) else { return false };
            let asked = children.name.clone();
            // There may be very many sessions.
            match host.compute(move || room.make_room(&asked, payer, now)).await {
                Turn::Instead(stop_time_max) => {
                    self.ousted += 1;
                    self.not_before = Some(now + stop_time_max + RETRY_INTERVAL);
                }
                Turn::Wait(at) if at < self.until => self.not_before = Some(at),
                Turn::Wait(_) | Turn::Nothing => return false,
            }
        }
        sleep(RETRY_INTERVAL).await;
        true
    }
}
