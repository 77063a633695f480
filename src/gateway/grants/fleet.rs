//! Agreement of several gateways, so that sign-ins hold at all of them: the keys that seal, and a Redis that keeps its
//! data.
//!
//! A key file reaches one gateway after the other. Until it is there, what another gateway has sealed with the new key does not
//! open here, and is not to be taken for something that nobody has made: so each says in Redis which keys it has.

use identity::sealed::KeyId;
use tokens::sealing::hex;

use super::records::Records;
use super::{Grants, GrantsError};

/// A key counts for so long after the last gateway that had it was there: longer than a restart takes.
const KEY_REMEMBERED_S: u64 = 10 * 60;
/// A gateway that is there has said so within these seconds.
const KEY_USED_S: u64 = 3 * KEYS_INTERVAL_S;
/// Each gateway says so often which keys it has.
pub(crate) const KEYS_INTERVAL_S: u64 = 5;

/// A setting of Redis by which sign-ins get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisFault {
    /// It writes no log of what it is told.
    NotPersistent,
    /// It throws away what it has not enough memory for.
    Evicts,
}

impl RedisFault {
    pub(crate) const ALL: [Self; 2] = [Self::NotPersistent, Self::Evicts];

    /// Its label in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::NotPersistent => "not_persistent",
            Self::Evicts => "evicts",
        }
    }

    /// The fault, and its remedy.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::NotPersistent => {
                "Redis does not persist: people sign in again once it restarts, and sign-ins that were ended may be back; set `appendonly yes`"
            }
            Self::Evicts => {
                "Redis throws away what it has not enough memory for, sign-ins among it; set `maxmemory-policy noeviction`"
            }
        }
    }

    /// The faults that sections of `INFO` show.
    fn in_info(info: &str) -> Vec<Self> {
        let said =
            |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
        let mut faults = Vec::new();
        if said("aof_enabled") == Some("0") {
            faults.push(Self::NotPersistent);
        }
        let is_limited = said("maxmemory").is_some_and(|bytes| bytes != "0");
        if is_limited && said("maxmemory_policy").is_some_and(|policy| policy != "noeviction") {
            faults.push(Self::Evicts);
        }
        faults
    }
}

impl Grants {
    /// True where gateways share sign-ins, and can reach the place now.
    pub(crate) fn is_shared_now(&self) -> bool {
        matches!(&self.records, Records::Redis(redis) if redis.is_connected())
    }

    /// Says which keys this gateway has. True where another one has a key that this one lacks.
    pub(crate) async fn tell_keys(&self) -> Result<bool, GrantsError> {
        let (Records::Redis(redis), Some(seals)) = (&self.records, self.seals.load_full()) else {
            return Ok(false);
        };
        let own = seals.key_names();
        let used = redis.tell_keys(&own, KEY_REMEMBERED_S, KEY_USED_S).await?;
        Ok(used.iter().any(|name| !own.split(',').any(|known| known == name)))
    }

    /// The names of the keys of this gateway.
    pub(crate) fn key_names(&self) -> String {
        self.seals.load().as_ref().map(|seals| seals.key_names()).unwrap_or_default()
    }

    /// Fails for a key that another gateway has and this one lacks: it cannot say whether somebody made up what does not open.
    pub(crate) async fn unless_elsewhere(&self, key: Option<KeyId>) -> Result<(), GrantsError> {
        let (Records::Redis(redis), Some(key)) = (&self.records, key) else { return Ok(()) };
        if redis.is_key_told(&hex(&key)).await? { Err(GrantsError::KeyElsewhere) } else { Ok(()) }
    }

    /// The faults of the Redis that sign-ins are kept in. `None`: they are not, or it does not tell.
    pub(crate) async fn redis_faults(&self) -> Option<Vec<RedisFault>> {
        let Records::Redis(redis) = &self.records else { return None };
        let persistence = redis.info("persistence").await.ok()?;
        Some(RedisFault::in_info(&(persistence + "\n" + &redis.info("memory").await.ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_by_which_sign_ins_get_lost_are_found() {
        for (info, expected) in [
            ("# Persistence\r\naof_enabled:1\r\nmaxmemory:100\r\nmaxmemory_policy:noeviction\r\n", vec![]),
            ("aof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", vec![]),
            ("aof_enabled:0\r\nmaxmemory:0\r\n", vec![RedisFault::NotPersistent]),
            ("aof_enabled:1\r\nmaxmemory:1\r\nmaxmemory_policy:volatile-ttl\r\n", vec![RedisFault::Evicts]),
            ("aof_enabled:0\nmaxmemory:9\nmaxmemory_policy:allkeys-lfu", RedisFault::ALL.to_vec()),
            ("", vec![]),
        ] {
            assert_eq!(RedisFault::in_info(info), expected, "{info}");
        }
    }
}
