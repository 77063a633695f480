//! Records of sign-in in Redis: a hash for each, changed by one script that judges all generations first.
//!
//! Redis has to persist and must not evict. Records end by themselves (`EXPIRE`). The names of some kinds stand in a sorted set
//! beside them, from which those that have ended are taken when they are listed. The names of one kind stand there by the
//! generation of their record: a log, whose reader asks for what came after the last that it knows.
//!
//! Invariants: nothing is told again later, as that would revive what was ended; a generation comes from one counter that goes
//! on with the clock, so no two states of any record have the same, also after Redis was emptied or set back; by its
//! generation it shows when a record was written.

use std::sync::{Arc, LazyLock};

use redis::{Cmd, Pipeline, Script, cmd};
use store::{Change, Changes, Expected, Name, Outcome, Record};

use super::records_answer::{LogPage, NamesPage, RecordsError};
use crate::redis::Redis;

/// The latest end that Redis is told: what never ends gets none.
const END_S_MAX: u64 = 1 << 40;
/// More than anybody commits. A Lua number holds all generations of the next two centuries.
const GENERATIONS_BY_SECOND: u64 = 1 << 20;

/// Judges and changes. Keys: the counter, then of each change the record and the names of its kind; where these stand nowhere, the
/// record once more, as Redis lets its users name keys of theirs alone.
/// Arguments: the second, the least generation, then of each change its name, the generation that it must have (`-`: none), what
/// it becomes (`d`: nothing, `w`: a record, `l`: a record whose name stands in a log), its value, its end, and the seconds until
/// then. Returns nothing after a conflict.
///
/// With its memory full, Redis refuses the first write that takes some. The end of a grant begins with one that takes none.
static COMMIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local now, floor = tonumber(ARGV[1]), tonumber(ARGV[2])
        local count = (#ARGV - 2) / 6
        for at = 1, count do
            local found = redis.call('HMGET', KEYS[at * 2], 'g', 'u')
            local is_over = (tonumber(found[2] or '-') or now) < now
            local generation = not is_over and found[1] or '-'
            if generation ~= ARGV[at * 6 - 2] then
                return false
            end
        end
        local generations = {}
        for at = 1, count do
            local record, names = KEYS[at * 2], KEYS[at * 2 + 1]
            local name, what, value = ARGV[at * 6 - 3], ARGV[at * 6 - 1], ARGV[at * 6]
            local until_s, left_s = ARGV[at * 6 + 1], ARGV[at * 6 + 2]
            if what == 'd' then
                redis.call('DEL', record)
                if names ~= record then
                    redis.call('ZREM', names, name)
                end
                generations[at] = '-'
            else
                local last = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') or 0, floor)
                local generation = string.format('%.0f', last + 1)
                redis.call('SET', KEYS[1], generation)
                redis.call('DEL', record)
                redis.call('HSET', record, 'g', generation, 'v', value, 'u', until_s)
                if left_s ~= '-' then
                    redis.call('EXPIRE', record, math.max(1, tonumber(left_s)))
                end
                if names ~= record then
                    redis.call('ZADD', names, what == 'l' and generation or '0', name)
                end
                generations[at] = generation
            end
        end
        return generations
        ",
    )
});

/// Of names, those whose record is there; the others go. Keys: the names of the kind, then the record of each name.
static LOOK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local there = {}
        for at, name in ipairs(ARGV) do
            if redis.call('EXISTS', KEYS[at + 1]) == 1 then
                there[#there + 1] = name
            else
                redis.call('ZREM', KEYS[1], name)
            end
        end
        return there
        ",
    )
});

/// Names with their generations, behind a generation. Those before another one are over, and go.
static LOG: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[3])
        return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
        ",
    )
});

/// Says which keys seal and open here, and forgets those that nobody has had for a while. Arguments: the seconds for which they
/// are remembered, and for which they count as in use, then their names. Returns the names of those in use.
static TELL_KEYS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local now = tonumber(redis.call('TIME')[1])
        redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]))
        for at = 3, #ARGV do
            redis.call('ZADD', KEYS[1], now, ARGV[at])
        end
        redis.call('EXPIRE', KEYS[1], ARGV[1])
        return redis.call('ZRANGEBYSCORE', KEYS[1], now - tonumber(ARGV[2]), '+inf')
        ",
    )
});

/// Generation, value and end of a record.
type Fields = (Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>);

/// Records in Redis.
#[derive(Debug)]
pub(crate) struct RedisRecords {
    redis: Arc<Redis>,
    listed: &'static [&'static str],
    logged: &'static str,
}

impl RedisRecords {
    /// Names of the kinds `listed` can be listed; those of the kind `logged` stand in a log.
    pub(crate) fn new(redis: Arc<Redis>, listed: &'static [&'static str], logged: &'static str) -> Self {
        Self { redis, listed, logged }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.redis.is_connected()
    }

    pub(super) async fn read(&self, name: &Name) -> Result<Option<Record>, RecordsError> {
        record_of(name, self.redis.command(&self.read_command(name)).await?)
    }

    /// The records of these names. One that cannot be read is none.
    pub(super) async fn read_each(&self, names: &[Name]) -> Result<Vec<Option<Record>>, RecordsError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        for name in names {
            pipeline.add_command(self.read_command(name));
        }
        let all: Vec<Fields> = self.redis.pipeline(&pipeline).await?;
        Ok(names.iter().zip(all).map(|(name, fields)| record_of(name, fields).ok().flatten()).collect())
    }

    pub(super) async fn commit(&self, changes: Changes, now_s: u64) -> Result<Outcome, RecordsError> {
        let mut keys = vec![self.redis.key("sign-in-counter", &[])];
        let mut arguments = vec![text(now_s), text(first_generation_of(now_s))];
        for change in changes.as_slice() {
            let record = self.key(&change.name);
            keys.push(record.clone());
            keys.push(self.names_key(change.name.kind()).unwrap_or(record));
            self.write_change(change, now_s, &mut arguments);
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let generations: Option<Vec<String>> = self.redis.script(&COMMIT, &keys, &arguments).await?;
        let Some(generations) = generations else { return Ok(Outcome::Conflict) };
        Ok(Outcome::Committed(generations.iter().map(|generation| generation.parse().ok()).collect()))
    }

    fn write_change(&self, change: &Change, now_s: u64, arguments: &mut Vec<Vec<u8>>) {
        let none = || b"-".to_vec();
        arguments.push(change.name.as_str().as_bytes().to_vec());
        arguments.push(match change.expected {
            Expected::Absent => none(),
            Expected::Generation(generation) => text(generation),
        });
        let Some(record) = &change.to else {
            arguments.extend([b"d".to_vec(), Vec::new(), none(), none()]);
            return;
        };
        let is_logged = change.name.kind() == self.logged;
        arguments.push(if is_logged { b"l".to_vec() } else { b"w".to_vec() });
        arguments.push(record.value().to_vec());
        match Some(record.until_s()).filter(|until_s| *until_s < END_S_MAX) {
            // By the time that is left: the clock of Redis may be another.
            Some(end_s) => {
                arguments.extend([text(end_s), text(end_s.saturating_sub(now_s).saturating_add(1))]);
            }
            None => arguments.extend([none(), none()]),
        }
    }

    pub(super) async fn names(
        &self,
        kind: &str,
        after: Option<&Name>,
        count_max: usize,
    ) -> Result<NamesPage, RecordsError> {
        let Some(names_key) = self.names_key(kind) else { return Ok(NamesPage::default()) };
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let mut command = cmd("ZRANGEBYLEX");
        command.arg(&names_key).arg(from).arg("+").arg("LIMIT").arg(0).arg(count_max);
        let found: Vec<String> = self.redis.command(&command).await?;
        let names: Vec<Name> = found.iter().filter_map(|name| Name::new(name).ok()).collect();
        let Some(last) = names.last() else { return Ok(NamesPage::default()) };
        let next = Some(last.clone()).filter(|_| found.len() == count_max);
        let mut keys = vec![names_key];
        keys.extend(names.iter().map(|name| self.key(name)));
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let arguments: Vec<&[u8]> = names.iter().map(|name| name.as_str().as_bytes()).collect();
        let there: Vec<String> = self.redis.script(&LOOK, &keys, &arguments).await?;
        Ok(NamesPage { names: there.iter().filter_map(|name| Name::new(name).ok()).collect(), next })
    }

    /// The log behind `position`, as it is now. What was written before `oldest_s` is over.
    pub(super) async fn log(
        &self,
        position: u64,
        count_max: usize,
        oldest_s: u64,
    ) -> Result<LogPage, RecordsError> {
        let Some(names_key) = self.names_key(self.logged) else { return Ok(LogPage::default()) };
        let arguments = [text(position), text(count_max as u64), text(first_generation_of(oldest_s))];
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let found: Vec<String> = self.redis.script(&LOG, &[&names_key], &arguments).await?;
        let mut page = LogPage { has_more: found.len() / 2 == count_max, ..LogPage::default() };
        for [name, generation] in found.as_chunks::<2>().0 {
            page.position = generation.parse().ok();
            page.names.extend(Name::new(name).ok());
        }
        Ok(page)
    }

    /// Says that the keys of these names are in use, and returns those that any gateway has said so of in the last seconds.
    pub(super) async fn tell_keys(
        &self,
        names: &str,
        remembered_s: u64,
        used_s: u64,
    ) -> Result<Vec<String>, RecordsError> {
        let mut arguments = vec![text(remembered_s), text(used_s)];
        arguments.extend(names.split(',').map(|name| name.as_bytes().to_vec()));
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        Ok(self.redis.script(&TELL_KEYS, &[&self.keys_key()], &arguments).await?)
    }

    /// True for a key that a gateway has, or had a short while ago.
    pub(super) async fn is_key_told(&self, name: &str) -> Result<bool, RecordsError> {
        let mut command = cmd("ZSCORE");
        command.arg(self.keys_key()).arg(name);
        let told: Option<String> = self.redis.command(&command).await?;
        Ok(told.is_some())
    }

    /// Sections of what Redis says of itself.
    pub(super) async fn info(&self, section: &str) -> Result<String, RecordsError> {
        let mut command = cmd("INFO");
        command.arg(section);
        Ok(self.redis.command(&command).await?)
    }

    fn read_command(&self, name: &Name) -> Cmd {
        let mut command = cmd("HMGET");
        command.arg(self.key(name)).arg(&["g", "v", "u"]);
        command
    }

    fn key(&self, name: &Name) -> String {
        self.redis.key("sign-in", &[name.as_str().as_bytes()])
    }

    /// The key of the names of a kind. `None`: they stand nowhere.
    fn names_key(&self, kind: &str) -> Option<String> {
        let is_kept = self.listed.contains(&kind) || kind == self.logged;
        is_kept.then(|| self.redis.key("sign-in-names", &[kind.as_bytes()]))
    }

    fn keys_key(&self) -> String {
        self.redis.key("sign-in-keys", &[])
    }
}

/// The least generation of a record that is written in this second or later.
fn first_generation_of(second: u64) -> u64 {
    second.saturating_mul(GENERATIONS_BY_SECOND)
}

fn record_of(name: &Name, (generation, value, until): Fields) -> Result<Option<Record>, RecordsError> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    let (generation, value, until) = match (generation, value, until) {
        (Some(generation), Some(value), Some(until)) => (generation, value, until),
        (None, None, None) => return Ok(None),
        _ => return Err(unreadable(name)),
    };
    let until_s = if until == b"-" { Some(store::NEVER_S) } else { number(&until) };
    match (number(&generation), until_s) {
        (Some(generation), Some(until_s)) => Ok(Some(Record { generation, value, until_s })),
        _ => Err(unreadable(name)),
    }
}

fn text(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn unreadable(name: &Name) -> RecordsError {
    RecordsError::Unreadable(name.to_string())
}
