//! The limit itself, as Redis keeps it, and asking for leases of it on the control thread.
//!
//! It is the generic cell rate algorithm: the time, in microseconds of Redis' own clock, at which all that was taken is
//! paid off. The key is gone once that is past.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::poll_fn;
use parking_lot::Mutex;
use redis::Script;
use tokio::sync::mpsc;

use super::{LeaseTerms, RateLease};
use crate::clock;
use crate::redis::{Redis, Unavailable};

/// Questions that may wait to be asked, and that are asked at once.
const WAITING_MAX: usize = 16 << 10;
const ASKING_MAX: usize = 256;

/// Takes what is owed in any case, and of what is wanted as much as there is. Returns that, when there will be as much as
/// is needed, and how far ahead all that was taken is paid off.
static GRANT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local time = redis.call('TIME')
        local now = time[1] * 1000000 + time[2]
        local cost, tolerance = tonumber(ARGV[1]), tonumber(ARGV[2])
        local debt, want, least = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
        local paid = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
        if paid < now then paid = now end
        -- The clock was set back.
        if paid > now + 2 * tolerance + cost then paid = now + tolerance end
        paid = paid + cost * debt
        local free = math.floor((now + tolerance - paid) / cost + 0.001)
        local granted = math.max(0, math.min(free, want))
        paid = paid + cost * granted
        if paid > now then
            redis.call('SET', KEYS[1], string.format('%.2f', paid), 'PX', math.ceil((paid - now) / 1000) + 1000)
        else
            redis.call('DEL', KEYS[1])
        end
        local wait = 0
        if granted < least then wait = math.max(0, paid + cost * (least - granted) - now - tolerance) end
        return {granted, math.ceil(wait), math.floor(paid - now)}
        ",
    )
});

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseDemand {
    /// What was given out already.
    pub debt: u32,
    /// What would be good to have.
    pub want: u32,
    pub least: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseGrant {
    pub granted: u32,
    /// The time after which as many are free as are needed; zero if they were granted.
    pub wait: Duration,
    /// Time until all that was taken is paid off.
    pub ahead: Duration,
}

/// A lease that is to be asked for, and when its clock was started.
type LeaseRequest = (Arc<RateLease>, Instant);

#[derive(Debug)]
pub(crate) struct LeaseServer {
    sender: mpsc::Sender<LeaseRequest>,
    receiver: Mutex<Option<mpsc::Receiver<LeaseRequest>>>,
}

impl LeaseServer {
    pub(in crate::redis) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }

    /// Asks for what [`RateLease::take`] said must be asked for. Its clock began at `started`. Never waits.
    pub(crate) fn ask(&self, lease: &Arc<RateLease>, started: Instant) {
        if self.sender.try_send((Arc::clone(lease), started)).is_err() {
            lease.settle(lease.ask(), None, ns_since(started));
        }
    }
}

impl Redis {
    /// Asks for leases, for as long as the process runs.
    pub(in crate::redis) async fn lease(&self) {
        let receiver = self.leases.receiver.lock().take();
        let Some(mut receiver) = receiver else { return };
        let asking =
            poll_fn(|cx| receiver.poll_recv(cx)).for_each_concurrent(ASKING_MAX, async |(lease, started)| {
                let ask = lease.ask();
                let granted = self.grant(&lease.key, lease.terms, ask).await;
                lease.settle(ask, granted.ok(), ns_since(started));
            });
        asking.await;
    }

    async fn grant(&self, key: &str, terms: LeaseTerms, ask: LeaseDemand) -> Result<LeaseGrant, Unavailable> {
        let cost_us = terms.period.as_secs_f64() * 1e6 / f64::from(terms.calls.max(1));
        let tolerance_us = cost_us * f64::from(terms.burst.max(1));
        let arguments = [
            format!("{cost_us:.6}"),
            format!("{tolerance_us:.6}"),
            ask.debt.to_string(),
            ask.want.to_string(),
            ask.least.to_string(),
        ];
        let arguments: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
        let (granted, wait_us, ahead_us): (u32, u64, u64) = self.script(&GRANT, &[key], &arguments).await?;
        // Whatever is answered, it is asked again.
        let [wait, ahead] = [wait_us, ahead_us].map(|us| Duration::from_micros(us).min(terms.recovery()));
        Ok(LeaseGrant { granted, wait, ahead })
    }
}

fn ns_since(started: Instant) -> u64 {
    u64::try_from(clock::since(started).as_nanos()).unwrap_or(u64::MAX)
}
