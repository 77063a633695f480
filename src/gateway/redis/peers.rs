//! The replicas that are there: each says so once in a while, and which keys it has. Where one seals session ids with a
//! key that another lacks, their clients cannot go from one to the other, and nothing else would say why.
//!
//! One that stops in order takes itself off; one that was killed counts for a few seconds more. Restarts change the number
//! for a moment, so that the operator is only told of what lasts.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::{RedisResult, Script, cmd};

use super::Redis;
use crate::telemetry::metrics::gauge;

/// For so long a fault must be there before the operator is told of it: longer than one that was killed counts.
const LASTS: Duration = Duration::from_secs(6);

/// Says that this replica is there, and returns whether it had not said so before, and what the others said in the last
/// seconds. As it writes, it shows that the server can.
static BEAT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local now = tonumber(redis.call('TIME')[1])
        local is_new = redis.call('HSET', KEYS[1], ARGV[1], now .. ' ' .. ARGV[2])
        redis.call('EXPIRE', KEYS[1], 60)
        local others, all = {}, redis.call('HGETALL', KEYS[1])
        for at = 1, #all, 2 do
            local heard, said = string.match(all[at + 1], '^(%d+) (.*)$')
            if not heard or now - tonumber(heard) > 10 then
                redis.call('HDEL', KEYS[1], all[at])
            elseif all[at] ~= ARGV[1] and now - tonumber(heard) <= 3 then
                others[#others + 1] = said
            end
        end
        return {is_new, others}
        ",
    )
});

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    pub(super) count: usize,
    /// How many of them seal with a key that is not known here.
    pub(super) mismatched: usize,
}

/// Since when something has been wrong with the others, and whether the operator was told.
#[derive(Debug, Default)]
pub(super) struct PeerFaults {
    too_many: LastingFault,
    mismatched: LastingFault,
}

#[derive(Debug, Default)]
struct LastingFault {
    since: Option<Instant>,
    is_told: bool,
}

impl LastingFault {
    /// True once it has lasted, and that is news.
    fn look(&mut self, is_there: bool, now: Instant) -> bool {
        if !is_there {
            *self = Self::default();
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_news = !self.is_told && now.saturating_duration_since(since) >= LASTS;
        self.is_told |= is_news;
        is_news
    }
}

impl Redis {
    /// Takes this replica off the list of those that are there. It does not come back.
    pub(crate) async fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
        if self.is_connected() {
            let mut remove = cmd("HDEL");
            remove.arg(self.replicas_name()).arg(self.replica_name());
            // One that cannot say so is forgotten after a few seconds.
            let _ = self.command::<i64>(&remove).await;
        }
    }

    /// Over a connection that nobody else uses yet.
    pub(super) async fn first_beat(
        &self,
        connection: &mut redis::aio::MultiplexedConnection,
        keys: &str,
    ) -> RedisResult<Peers> {
        let mut call = BEAT.key(self.replicas_name());
        call.arg(self.replica_name()).arg(keys);
        let (_, others): (bool, Vec<String>) = call.invoke_async(connection).await?;
        Ok(Peers::of(&others, keys))
    }

    /// Over the link, which is given up where the server has lost what it was told.
    pub(super) async fn beat(&self, keys: &str) -> Option<Peers> {
        if self.has_left.load(Ordering::Acquire) {
            return None;
        }
        let (name, replica) = (self.replicas_name(), self.replica_name());
        let arguments = [replica.as_bytes(), keys.as_bytes()];
        let (is_new, others): (bool, Vec<String>) = self.script(&BEAT, &[&name], &arguments).await.ok()?;
        if is_new && let Some(link) = self.link.load_full() {
            self.give_up(&link, "the server has lost its data");
        }
        Some(Peers::of(&others, keys))
    }

    /// Tells the operator of what is wrong for longer than a restart takes.
    pub(super) fn meet(&self, faults: &mut PeerFaults, peers: Peers, now: Instant) {
        let all = peers.count + 1;
        self.series.replicas.set(gauge(all));
        self.series.mismatched.set(gauge(peers.mismatched));
        if faults.mismatched.look(peers.mismatched > 0, now) {
            tracing::warn!(
                replicas = peers.mismatched,
                "other replicas seal session ids with a key that this one does not have: sessions opened there are refused here; give all the same [session] key file"
            );
        }
        if faults.too_many.look(all > self.replicas(), now) {
            tracing::warn!(
                replicas = all,
                configured = self.replicas(),
                "more replicas share than [shared] replicas says: set it, or shared limits are exceeded by more than a little"
            );
        }
    }

    /// The key under which the replicas say that they are there.
    pub(crate) fn replicas_name(&self) -> String {
        self.name("replicas")
    }

    /// This replica's field there. The server has lost its data where it is not there.
    pub(crate) fn replica_name(&self) -> String {
        format!("{:016x}", self.replica)
    }
}

impl Peers {
    /// Each says the names of its keys, the one that seals first.
    fn of(others: &[String], keys: &str) -> Self {
        let is_known = |key: &str| keys.split(',').any(|known| known == key);
        let is_mismatched = |other: &&String| !other.split(',').next().is_some_and(is_known);
        Self { count: others.len(), mismatched: others.iter().filter(is_mismatched).count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn what_lasts_is_told_once() {
        let (mut fault, start) = (LastingFault::default(), clock::now());
        let told: Vec<bool> =
            [(0, true), (5, true), (6, true), (9, true), (10, false), (11, true), (16, true), (17, true)]
                .map(|(second, is_there)| fault.look(is_there, start + Duration::from_secs(second)))
                .to_vec();
        assert_eq!(told, [false, false, true, false, false, false, false, true]);
    }

    #[test]
    fn a_stranger_seals_with_a_key_that_is_not_known() {
        for (others, strangers) in
            [(vec![], 0), (vec!["a"], 0), (vec!["b,a"], 0), (vec!["c,a"], 1), (vec!["c", "", "a"], 2)]
        {
            let others: Vec<String> = others.into_iter().map(str::to_owned).collect();
            assert_eq!(
                Peers::of(&others, "a,b"),
                Peers { count: others.len(), mismatched: strangers },
                "{others:?}"
            );
        }
    }
}
