//! Records of sign-in in Redis: a hash for each, changed by one script that judges all generations first.
//!
//! Redis has to persist and must not evict. Records end by themselves (`EXPIREAT`); the names of each kind stand in a sorted
//! set beside them, from which those that have ended are taken when they are listed.
//!
//! Invariants: nothing is told again later, as that would revive what was ended; a generation comes from one counter, so no two
//! states of any record have the same.

use std::sync::{Arc, LazyLock};

use redis::{Script, cmd};
use store::{Change, Changes, Expected, Name, Outcome, Record};

use super::kinds::{ACCOUNT, NEWS};
use super::records_answer::{NamesPage, RecordsError};
use crate::redis::Redis;

/// The latest end that Redis is told: what never ends gets none.
const END_S_MAX: u64 = 1 << 40;

/// Kinds whose names are listed.
const LISTED: [&str; 2] = [ACCOUNT, NEWS];

/// Judges and changes. Keys: the counter, then of each change the record and the names of its kind, if these are listed.
/// Arguments: of each change its name, the generation that it must have (`-`: none), what it becomes (`d`: nothing), its end and
/// the seconds until then. Returns nothing after a conflict.
static COMMIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local count = #ARGV / 6
        for at = 1, count do
            local expected = ARGV[at * 6 - 4]
            local now = redis.call('HGET', KEYS[at * 2], 'g')
            if (now or '-') ~= expected then
                return false
            end
        end
        local generations = {}
        for at = 1, count do
            local record, names = KEYS[at * 2], KEYS[at * 2 + 1]
            local name, what, value = ARGV[at * 6 - 5], ARGV[at * 6 - 3], ARGV[at * 6 - 2]
            local until_s, ends = ARGV[at * 6 - 1], ARGV[at * 6]
            if what == 'd' then
                redis.call('DEL', record)
                if names ~= '' then
                    redis.call('ZREM', names, name)
                end
                generations[at] = '-'
            else
                local generation = tostring(redis.call('INCR', KEYS[1]))
                redis.call('DEL', record)
                redis.call('HSET', record, 'g', generation, 'v', value, 'u', until_s)
                if ends ~= '-' then
                    redis.call('EXPIRE', record, math.max(1, tonumber(ends)))
                end
                if names ~= '' then
                    redis.call('ZADD', names, 0, name)
                end
                generations[at] = generation
            end
        end
        return generations
        ",
    )
});

/// Looks whether the record of a name is there; if not, its name goes.
static LOOK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        if redis.call('EXISTS', KEYS[2]) == 1 then
            return 1
        end
        redis.call('ZREM', KEYS[1], ARGV[1])
        return 0
        ",
    )
});

/// Records in Redis.
#[derive(Debug)]
pub(crate) struct RedisRecords(Arc<Redis>);

impl RedisRecords {
    pub(crate) fn new(redis: Arc<Redis>) -> Self {
        Self(redis)
    }

    pub(super) async fn read(&self, name: &Name) -> Result<Option<Record>, RecordsError> {
        let mut command = cmd("HMGET");
        command.arg(self.key(name)).arg(&["g", "v", "u"]);
        let fields: (Option<u64>, Option<Vec<u8>>, Option<String>) = self.0.command(&command).await?;
        let (generation, value, until) = match fields {
            (Some(generation), Some(value), Some(until)) => (generation, value, until),
            (None, None, None) => return Ok(None),
            _ => return Err(unreadable(name)),
        };
        let until_s =
            if until == "-" { store::NEVER_S } else { until.parse().map_err(|_| unreadable(name))? };
        Ok(Some(Record { generation, value, until_s }))
    }

    pub(super) async fn commit(&self, changes: Changes, now_s: u64) -> Result<Outcome, RecordsError> {
        // A record whose time is over is none, though Redis may take a moment to drop it.
        let mut expected = Vec::new();
        for change in changes.as_slice() {
            expected.push(self.expected(change, now_s).await?);
        }
        let (mut keys, mut arguments) = (vec![self.0.key("sign-in-counter", &[])], Vec::new());
        for (change, expected) in changes.as_slice().iter().zip(expected) {
            keys.push(self.key(&change.name));
            keys.push(self.names_key(change.name.kind()));
            arguments.push(change.name.as_str().as_bytes().to_vec());
            arguments.push(expected.into_bytes());
            match &change.to {
                Some(record) => {
                    let end = Some(record.until_s()).filter(|until_s| *until_s < END_S_MAX);
                    arguments.push(b"w".to_vec());
                    arguments.push(record.value().to_vec());
                    arguments
                        .push(end.map_or_else(|| "-".to_owned(), |end_s| end_s.to_string()).into_bytes());
                    // By the time that is left: the clock of Redis may be another.
                    let left = end.map(|end_s| end_s.saturating_sub(now_s).saturating_add(1));
                    arguments
                        .push(left.map_or_else(|| "-".to_owned(), |left_s| left_s.to_string()).into_bytes());
                }
                None => arguments.extend([b"d".to_vec(), Vec::new(), b"-".to_vec(), b"-".to_vec()]),
            }
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let generations: Option<Vec<String>> = self.0.script(&COMMIT, &keys, &arguments).await?;
        let Some(generations) = generations else { return Ok(Outcome::Conflict) };
        Ok(Outcome::Committed(generations.iter().map(|generation| generation.parse().ok()).collect()))
    }

    pub(super) async fn names(
        &self,
        kind: &str,
        after: Option<&Name>,
        count_max: usize,
    ) -> Result<NamesPage, RecordsError> {
        let mut page = NamesPage::default();
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let mut command = cmd("ZRANGEBYLEX");
        command.arg(self.names_key(kind)).arg(from).arg("+").arg("LIMIT").arg(0).arg(count_max);
        let found: Vec<String> = self.0.command(&command).await?;
        for name in found.iter().filter_map(|name| Name::new(name).ok()) {
            let (names, record) = (self.names_key(kind), self.key(&name));
            let is_there: bool =
                self.0.script(&LOOK, &[&names, &record], &[name.as_str().as_bytes()]).await?;
            page.next = Some(name.clone()).filter(|_| found.len() == count_max);
            if is_there {
                page.names.push(name);
            }
        }
        Ok(page)
    }

    /// The generation that the record has to have in Redis.
    async fn expected(&self, change: &Change, now_s: u64) -> Result<String, RecordsError> {
        match change.expected {
            Expected::Generation(generation) => Ok(generation.to_string()),
            Expected::Absent => {
                let over = self.read(&change.name).await?.filter(|record| !record.exists(now_s));
                Ok(over.map_or_else(|| "-".to_owned(), |over| over.generation.to_string()))
            }
        }
    }

    fn key(&self, name: &Name) -> String {
        self.0.key("sign-in", &[name.as_str().as_bytes()])
    }

    /// The key of the names of a kind; empty for those that are never listed.
    fn names_key(&self, kind: &str) -> String {
        if !LISTED.contains(&kind) {
            return String::new();
        }
        self.0.key("sign-in-names", &[kind.as_bytes()])
    }
}

fn unreadable(name: &Name) -> RecordsError {
    RecordsError::Unreadable(name.to_string())
}
