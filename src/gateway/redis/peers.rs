//! The replicas that are there: each says so once in a while, and which keys it has. Where one seals session ids with a
//! key that another lacks, their clients cannot go from one to the other, and nothing else would say why.

use std::sync::LazyLock;

use redis::{RedisResult, Script};

use super::Redis;
use crate::telemetry::metrics::gauge;

/// Says that this replica is there, and returns whether it had not said so before, and what the others said lately. That
/// it writes shows that the server can.
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
            elseif all[at] ~= ARGV[1] then
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

impl Redis {
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
        let (name, replica) = (self.replicas_name(), self.replica_name());
        let arguments = [replica.as_bytes(), keys.as_bytes()];
        let (is_new, others): (bool, Vec<String>) = self.script(&BEAT, &[&name], &arguments).await.ok()?;
        if is_new && let Some(link) = self.link.load_full() {
            self.give_up(&link, "the server has lost its data");
        }
        Some(Peers::of(&others, keys))
    }

    /// Tells the operator where that is news.
    pub(super) fn meet(&self, before: Option<Peers>, peers: Peers) {
        let all = peers.count + 1;
        self.series.replicas.set(gauge(all));
        self.series.mismatched.set(gauge(peers.mismatched));
        if before == Some(peers) {
            return;
        }
        if peers.mismatched > 0 {
            tracing::warn!(
                replicas = peers.mismatched,
                "other replicas seal session ids with a key that this one does not have: sessions opened there are refused here; give all the same [session] key file"
            );
        }
        if all > self.replicas() {
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
