//! The record in which all gateways that share a Redis keep what is pinned of an upstream.
//!
//! A hash there with two fields: the version in clear, and the text of [`record`], sealed with the
//! session keys and bound to its version and key. So who writes Redis can take a record away or put an older one in its
//! place, but cannot make one, nor give one of another upstream or prefix for it. It does not expire.
//!
//! Invariants: a record replaces the one that its writer has read, or nothing; none is longer than [`RECORD_BYTES_MAX`], and
//! a longer one is not read.

use std::sync::{Arc, LazyLock};

use redis::Script;

use crate::context::state::State;
use crate::redis::{Redis, Unavailable};
use crate::upstream::pins::agreement::{FoundRecord, KeyId, Unshared};
use crate::upstream::pins::record;
use crate::upstream::pins::version::Version;
use net::tasks::Tasks;

/// The longest text. It is read at the start and after each change, within the time of one operation.
const RECORD_BYTES_MAX: usize = 2 << 20;
/// Size that a seal adds, and more.
const SEAL_BYTES_MAX: usize = 64;
const CLEAR: &[u8] = b"trunkline pins\0";
/// The version of what is no record.
const STRANGE: &str = "?";

/// The version of each record; empty where there is none.
static LOOK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local versions = {}
        for at, key in ipairs(KEYS) do
            local kind = redis.call('TYPE', key).ok
            versions[at] = kind == 'none' and '' or '?'
            if kind == 'hash' then
                local length = redis.call('HSTRLEN', key, 'v')
                if length == 0 then versions[at] = '' end
                if length == 48 then versions[at] = redis.call('HGET', key, 'v') end
            end
        end
        return versions
        ",
    )
});

/// The sealed text of a version, unless it is too long.
static READ: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        if redis.call('HGET', KEYS[1], 'v') ~= ARGV[1] then return false end
        if redis.call('HSTRLEN', KEYS[1], 'r') > tonumber(ARGV[2]) then return '' end
        return redis.call('HGET', KEYS[1], 'r') or ''
        ",
    )
});

/// Replaces the version that was read, and says whether it still stood there.
static WRITE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        if (redis.call('HGET', KEYS[1], 'v') or '') ~= ARGV[1] then return 0 end
        redis.call('HSET', KEYS[1], 'v', ARGV[2], 'r', ARGV[3])
        return 1
        ",
    )
});

/// The reason for which the record is of no use now.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShareFault {
    #[error("Redis cannot be asked: {0}")]
    Away(#[from] Unavailable),
    #[error("there is none, but there may have been one")]
    Absent,
    /// Another gateway replaced it again and again.
    #[error("other gateways change it")]
    Contended,
    #[error(
        "the record is not one of this upstream that a gateway with this session key wrote; see the key {key} in Redis, and \
         remove it if all gateways have the same session key"
    )]
    Refused { key: String },
    #[error("it takes more than {RECORD_BYTES_MAX} bytes")]
    TooLong,
}

impl ShareFault {
    /// True if it goes on until somebody does something.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::TooLong)
    }
}

/// The records of all upstreams.
#[derive(Clone)]
pub(super) struct SharedPins {
    redis: Arc<Redis>,
    state: Arc<State>,
    tasks: Tasks,
}

impl SharedPins {
    /// `None`: nothing is shared.
    pub(super) fn new(state: &Arc<State>, tasks: &Tasks) -> Option<Self> {
        let redis = Arc::clone(state.shared.as_ref()?);
        Some(Self { redis, state: Arc::clone(state), tasks: tasks.clone() })
    }

    /// The version of the record of each of these upstreams; empty where there is none.
    pub(super) async fn versions(&self, upstreams: &[&str]) -> Result<Vec<String>, ShareFault> {
        // One that is away fails no operation each second.
        if !self.redis.is_connected() {
            return Err(Unavailable::Away.into());
        }
        let keys: Vec<String> = upstreams.iter().map(|upstream| self.name(upstream)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let versions: Vec<Vec<u8>> = self.redis.script(&LOOK, &keys, &[]).await?;
        Ok(versions.into_iter().map(version_there).collect())
    }

    /// True until the first attempt to connect has come to an end.
    pub(super) fn is_connecting_first(&self) -> bool {
        self.redis.is_connecting_first()
    }

    /// The key that seals what is written now.
    pub(super) fn key(&self) -> KeyId {
        self.state.sessions.keys().sealing_id()
    }

    /// The record of this version; `None`: there is none.
    pub(super) async fn read(&self, upstream: &str, there: &str) -> Result<Option<FoundRecord>, ShareFault> {
        if there.is_empty() {
            return Ok(None);
        }
        let key = self.name(upstream);
        let refused = || ShareFault::Refused { key: key.clone() };
        let version = Version::read(there).ok_or_else(refused)?;
        let bytes_max = (RECORD_BYTES_MAX + SEAL_BYTES_MAX).to_string();
        let arguments = [there.as_bytes(), bytes_max.as_bytes()];
        let sealed: Option<Vec<u8>> = self.redis.script(&READ, &[&key], &arguments).await?;
        let sealed = sealed.ok_or(ShareFault::Contended)?;
        let (keys, clear) = (self.state.sessions.keys(), clear_of(version, &key));
        let own_key = Some(keys.sealing_id()).filter(|own| sealed.starts_with(own));
        let open = move || {
            let text = String::from_utf8(keys.open_record(&clear, &sealed)?).ok()?;
            record::read(&text).ok()
        };
        let kept = self.tasks.compute(open).await.ok_or_else(refused)?;
        Ok(Some(FoundRecord { version, tools: kept.tools, own_key }))
    }

    /// Writes a record in the place of the version `there`. False if that is another one by now.
    pub(super) async fn write(
        &self,
        upstream: &str,
        there: &str,
        unshared: &Unshared,
    ) -> Result<bool, ShareFault> {
        if unshared.text.len() > RECORD_BYTES_MAX {
            return Err(ShareFault::TooLong);
        }
        let key = self.name(upstream);
        let clear = clear_of(unshared.version, &key);
        let sealed = self.state.sessions.keys().seal_record(&clear, unshared.text.as_bytes());
        let sealed = sealed.ok_or(ShareFault::TooLong)?;
        let version = unshared.version.text();
        let arguments = [there.as_bytes(), version.as_bytes(), &*sealed];
        Ok(self.redis.script(&WRITE, &[&key], &arguments).await?)
    }

    fn name(&self, upstream: &str) -> String {
        self.redis.key("pins", &[upstream.as_bytes()])
    }
}

/// The version of a record as Redis has it, of whatever bytes somebody else put there.
fn version_there(bytes: Vec<u8>) -> String {
    let version = String::from_utf8(bytes).ok();
    let version = version.filter(|text| text.is_empty() || Version::read(text).is_some());
    version.unwrap_or_else(|| STRANGE.to_owned())
}

/// A record belongs to its version and to its key in Redis alone, which has the prefix and the upstream.
fn clear_of(version: Version, key: &str) -> Vec<u8> {
    [CLEAR, version.text().as_bytes(), key.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_no_gateway_wrote_is_strange_whatever_its_bytes_are() {
        let version = "0123456789abcdef".repeat(3);
        for good in ["", &version] {
            assert_eq!(version_there(good.into()), good);
        }
        for strange in [
            &b"x"[..],
            b"\xff\xfe",
            &[0xff; 48],
            version.to_uppercase().as_bytes(),
            "0".repeat(1 << 20).as_bytes(),
        ] {
            assert_eq!(version_there(strange.to_vec()), STRANGE);
        }
    }
}
