//! Whose tasks are whose: a table of who made which task, of clients of both eras.
//!
//! An entry says that a task of this id at this upstream was made by this principal at this endpoint, with which tool,
//! and in which session. What is asked is only ever whether the caller is an owner, so an entry is found by a digest of
//! all four, and nobody's tasks can be told from the table. Servers whose ids repeat (one process for each session)
//! get along: a task of one owner does not hide that of another.
//!
//! Written to the journal as state of sessions is, and told to the other replicas, who ask Redis for a task that they
//! do not know. Both forget it when its time is over, which is the task's own, and bounded.
//!
//! Invariants: there are at most `tasks_max` entries, and at most `tasks_per_principal_max` of one principal. Who has more
//! loses his own oldest; where there is no room at all, it is the oldest of whoever has most. So nobody makes the tasks of
//! others nobody's. That a task is forgotten is safe, as one without a known owner is nobody's. Clients without credentials
//! count as one principal that is bounded by `tasks_max` alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use redis::{cmd, pipe};
use sha2::{Digest as _, Sha256};

use super::journal::{read_task, task_line};
use super::{SessionId, Sessions};
use crate::clock::now_s;
use crate::redis::{Redis, Urgency};
use protocol::task::ID_BYTES_MAX;
pub(crate) use tokens::task_id::TaskOf;
use tokens::task_id::{self, TaskTarget};

pub(super) const KEY_BYTES: usize = 16;
const KEY_DOMAIN: &[u8] = b"trunkline task\0";
const OWNER_DOMAIN: &[u8] = b"trunkline task owner\0";
const SEALED_CLEAR: &[u8] = b"trunkline task ";
/// A task may be asked for some time after it should be gone.
const GRACE_S: u64 = 60;
/// A longer name is not remembered: no rule about tools would find it.
const TOOL_BYTES_MAX: usize = 1024;
/// So many tasks are asked for at once.
const ASKED_MAX: usize = 256;

pub(super) type TaskKey = [u8; KEY_BYTES];

/// Who a task counts for: a digest of the principal, so that a file does not name anybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TaskOwner(pub(super) u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskRecord {
    pub(super) owner: TaskOwner,
    pub(super) expires_s: u64,
    pub(super) origin: Origin,
}

#[derive(Clone, Copy, Debug)]
struct TaskBounds {
    tasks_max: usize,
    per_principal_max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The session in which it was made, in the legacy era.
    pub session: Option<SessionId>,
    /// The tool that made it, as the upstream spells it; empty where that is not known.
    pub tool: Box<str>,
}

/// How many tasks there are, and how many were forgotten before their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskCounts {
    /// Tasks whose owner is known.
    pub known: usize,
    /// Forgotten for want of room, ever.
    pub forgotten: u64,
}

/// The entries, and the order in which each owner's came.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    entries: HashMap<TaskKey, TaskEntry>,
    owners: HashMap<TaskOwner, BTreeMap<u64, TaskKey>>,
    /// Owners by how many tasks they have; of those who have as many, he who has the oldest comes last.
    ranks: BTreeMap<(usize, Reverse<u64>), TaskOwner>,
    next: u64,
    forgotten: u64,
}

#[derive(Debug)]
struct TaskEntry {
    number: u64,
    record: TaskRecord,
}

impl TaskOwner {
    /// Those whose principal is not known: they have no credentials, or an older version wrote the task down.
    const UNKNOWN: Self = Self(0);

    fn of(principal: &str) -> Self {
        if principal.is_empty() {
            return Self::UNKNOWN;
        }
        let digest = Sha256::new().chain_update(OWNER_DOMAIN).chain_update(principal).finalize();
        Self(digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }
}

fn key_of(task: TaskOf<'_>) -> TaskKey {
    let mut digest = Sha256::new().chain_update(KEY_DOMAIN);
    for piece in [task.endpoint, task.principal, task.upstream, task.id] {
        digest.update((piece.len() as u64).to_be_bytes());
        digest.update(piece);
    }
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&digest.finalize()[..KEY_BYTES]);
    key
}

impl TaskTable {
    fn put(&mut self, key: TaskKey, record: TaskRecord, bounds: TaskBounds) {
        let number = self.next;
        self.next += 1;
        self.remove(&key);
        let owner = record.owner;
        self.entries.insert(key, TaskEntry { number, record });
        self.change(owner, |tasks| tasks.insert(number, key));
        while owner != TaskOwner::UNKNOWN && self.count_of(owner) > bounds.per_principal_max {
            self.forget_oldest_of(owner);
        }
        while self.entries.len() > bounds.tasks_max {
            let Some((_, owner)) = self.ranks.last_key_value() else { break };
            self.forget_oldest_of(*owner);
        }
    }

    fn get(&self, key: &TaskKey, now_s: u64) -> Option<&Origin> {
        let record = self.entries.get(key).map(|entry| &entry.record);
        record.filter(|record| record.expires_s > now_s).map(|record| &record.origin)
    }

    pub(super) fn sweep(&mut self, now_s: u64) {
        let is_over = |entry: &TaskEntry| entry.record.expires_s <= now_s;
        let over = self.entries.iter().filter(|(_, entry)| is_over(entry)).map(|(key, _)| *key);
        for key in over.collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &TaskKey) {
        if let Some(TaskEntry { number, record }) = self.entries.remove(key) {
            self.change(record.owner, |tasks| tasks.remove(&number));
        }
    }

    fn forget_oldest_of(&mut self, owner: TaskOwner) {
        if let Some((_, oldest)) = self.change(owner, BTreeMap::pop_first) {
            self.entries.remove(&oldest);
            self.forgotten += 1;
        }
    }

    fn count_of(&self, owner: TaskOwner) -> usize {
        self.owners.get(&owner).map_or(0, BTreeMap::len)
    }

    /// Changes what an owner has, and with it his rank.
    fn change<T>(&mut self, owner: TaskOwner, change: impl FnOnce(&mut BTreeMap<u64, TaskKey>) -> T) -> T {
        let rank = |tasks: &BTreeMap<u64, TaskKey>| {
            tasks.first_key_value().map(|(oldest, _)| (tasks.len(), Reverse(*oldest)))
        };
        let tasks = self.owners.entry(owner).or_default();
        if let Some(before) = rank(tasks) {
            self.ranks.remove(&before);
        }
        let changed = change(tasks);
        if let Some(after) = rank(tasks) {
            self.ranks.insert(after, owner);
        } else {
            self.owners.remove(&owner);
        }
        changed
    }
}

impl Sessions {
    /// Remembers who made a task. It is forgotten after `ttl_ms`, or as long as any task is remembered.
    /// Who does not know its tool leaves what is known of that.
    pub(crate) fn note_task(&self, task: TaskOf<'_>, mut origin: Origin, ttl_ms: Option<u64>) {
        if task.id.len() > ID_BYTES_MAX || origin.tool.len() > TOOL_BYTES_MAX {
            return;
        }
        let max_s = self.task_expiry_s.load(Ordering::Relaxed);
        let lives_s = ttl_ms.map_or(max_s, |ttl_ms| (ttl_ms / 1000).saturating_add(GRACE_S).min(max_s));
        let expires_s = now_s().saturating_add(lives_s);
        let is_tool_known = !origin.tool.is_empty();
        if let Some(known) = self.task(task).filter(|_| !is_tool_known) {
            origin.tool = known.tool;
        }
        let key = key_of(task);
        let record = TaskRecord { owner: TaskOwner::of(task.principal), expires_s, origin };
        let line = task_line(&key, &record);
        // A journal that is written anew says what is remembered, and loses what was only told.
        self.put_task(key, record);
        self.share_task(&key, &line, (lives_s, is_tool_known));
        self.journal.write_line(line);
    }

    /// The id of a task that clients are given. `None` if it is too long for one.
    pub(crate) fn seal_task(&self, task: TaskOf<'_>, tool: &str) -> Option<String> {
        task_id::seal(&self.keys.load(), task, tool)
    }

    /// What such an id says, if it was given to who presents it; the id in `owner` means nothing.
    pub(crate) fn open_task(&self, owner: TaskOf<'_>, sealed: &str) -> Option<TaskTarget> {
        task_id::open(&self.keys.load(), owner, sealed)
    }

    /// How the task was made, if by who asks for it.
    pub(crate) fn task(&self, task: TaskOf<'_>) -> Option<Origin> {
        self.task_table().get(&key_of(task), now_s()).cloned()
    }

    /// Asks the other replicas for tasks that are not known here, for so many at most. Returns for how many.
    pub(crate) async fn learn_tasks<'a>(
        &self,
        tasks: impl Iterator<Item = TaskOf<'a>>,
        asked_max: usize,
    ) -> usize {
        let Some(shared) = self.shared.as_ref().filter(|shared| shared.is_connected()) else { return 0 };
        let now_s = now_s();
        let keys = tasks.map(key_of);
        let unknown = keys.filter(|key| self.task_table().get(key, now_s).is_none());
        let unknown: Vec<TaskKey> = unknown.take(asked_max).collect();
        for keys in unknown.chunks(ASKED_MAX) {
            let mut pipeline = pipe();
            for key in keys {
                pipeline.get(name(shared, key));
            }
            let Ok(answers) = shared.pipeline::<Vec<Option<Vec<u8>>>>(&pipeline).await else { break };
            for (key, sealed) in keys.iter().zip(answers) {
                let line = sealed.and_then(|sealed| self.keys.load().open_record(&clear_of(key), &sealed));
                if let Some(record) = line.and_then(|line| read_task(&line, key)) {
                    self.put_task(*key, record);
                }
            }
        }
        unknown.len()
    }

    /// Waits until the other replicas can know of the tasks that were noted.
    pub(crate) async fn tasks_told(&self) {
        if let Some(shared) = &self.shared {
            shared.said().await;
        }
    }

    /// All that are known, as the journal has them.
    pub(super) fn remembered_tasks(&self) -> HashMap<TaskKey, TaskRecord> {
        self.task_table().entries.iter().map(|(key, entry)| (*key, entry.record.clone())).collect()
    }

    pub(crate) fn task_counts(&self) -> TaskCounts {
        let table = self.task_table();
        TaskCounts { known: table.entries.len(), forgotten: table.forgotten }
    }

    /// Puts in what the journal says, in the order in which it expires: in which it came nobody knows.
    pub(super) fn restore_tasks(&self, tasks: HashMap<TaskKey, TaskRecord>) {
        let mut tasks: Vec<_> = tasks.into_iter().collect();
        tasks.sort_unstable_by_key(|(_, record)| record.expires_s);
        for (key, record) in tasks {
            self.put_task(key, record);
        }
    }

    pub(super) fn task_table(&self) -> MutexGuard<'_, TaskTable> {
        self.tasks.lock()
    }

    fn put_task(&self, key: TaskKey, record: TaskRecord) {
        let bounds = TaskBounds {
            tasks_max: self.tasks_max.load(Ordering::Relaxed),
            per_principal_max: self.tasks_per_principal_max.load(Ordering::Relaxed),
        };
        self.task_table().put(key, record, bounds);
    }

    fn share_task(&self, key: &TaskKey, line: &str, (lives_s, is_tool_known): (u64, bool)) {
        let Some(shared) = &self.shared else { return };
        let Some(sealed) = self.keys.load().seal_record(&clear_of(key), line.as_bytes()) else { return };
        let mut command = cmd("SET");
        command.arg(name(shared, key)).arg(sealed).arg("EX").arg(lives_s.max(1));
        if !is_tool_known {
            // Another replica may know it.
            command.arg("NX");
        }
        shared.tell(vec![command], Urgency::Dropped);
    }
}

fn name(shared: &Redis, key: &TaskKey) -> String {
    shared.key("task", &[key])
}

/// A record belongs to its task alone.
fn clear_of(key: &TaskKey) -> Vec<u8> {
    [SEALED_CLEAR, key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(tool: &str) -> Origin {
        Origin { session: None, tool: tool.into() }
    }

    fn key(byte: u8) -> TaskKey {
        [byte; KEY_BYTES]
    }

    fn put(table: &mut TaskTable, byte: u8, (owner, expires_s, tool): (u64, u64, &str), bounds: [usize; 2]) {
        let [tasks_max, per_principal_max] = bounds;
        let record = TaskRecord { owner: TaskOwner(owner), expires_s, origin: origin(tool) };
        table.put(key(byte), record, TaskBounds { tasks_max, per_principal_max });
        let ranked: usize = table.ranks.keys().map(|(count, _)| count).sum();
        let numbered: usize = table.owners.values().map(BTreeMap::len).sum();
        assert_eq!((ranked, numbered), (table.entries.len(), table.entries.len()));
        assert_eq!(table.ranks.len(), table.owners.len());
    }

    fn has(table: &TaskTable) -> Vec<u8> {
        let mut has: Vec<u8> = table.entries.keys().map(|key| key[0]).collect();
        has.sort_unstable();
        has
    }

    #[test]
    fn the_oldest_goes_and_what_expired_is_gone() {
        let mut table = TaskTable::default();
        for byte in 0..4 {
            put(&mut table, byte, (1, 10 + u64::from(byte), "a"), [3, 3]);
        }
        assert_eq!((table.entries.len(), table.forgotten), (3, 1));
        assert_eq!(table.get(&key(0), 0), None);
        assert_eq!(table.get(&key(1), 0), Some(&origin("a")));
        assert_eq!(table.get(&key(1), 11), None, "its time is over");
        put(&mut table, 1, (1, 20, "b"), [3, 3]);
        put(&mut table, 4, (1, 20, "a"), [3, 3]);
        assert_eq!(table.get(&key(1), 0), Some(&origin("b")), "it is no longer the oldest");
        assert_eq!(table.get(&key(2), 0), None);
        table.sweep(13);
        assert_eq!((table.entries.len(), table.owners[&TaskOwner(1)].len()), (2, 2));
        table.sweep(20);
        assert_eq!((table.entries.len(), table.owners.len(), table.ranks.len()), (0, 0, 0));
    }

    #[test]
    fn who_has_more_than_his_share_loses_his_own() {
        let mut table = TaskTable::default();
        put(&mut table, 0, (1, 10, ""), [9, 2]);
        for byte in 1..5 {
            put(&mut table, byte, (2, 99, ""), [9, 2]);
        }
        assert_eq!((has(&table), table.forgotten), (vec![0, 3, 4], 2));
    }

    #[test]
    fn where_there_is_no_room_who_has_most_loses_his_oldest() {
        let mut table = TaskTable::default();
        for byte in 0..4 {
            put(&mut table, byte, (0, 99, ""), [4, 1]);
        }
        assert_eq!(has(&table), [0, 1, 2, 3], "those of whom nothing is known have no share of their own");
        for byte in 4..8 {
            put(&mut table, byte, (byte.into(), 10, ""), [4, 1]);
        }
        assert_eq!(has(&table), [4, 5, 6, 7]);
        put(&mut table, 8, (8, 10, ""), [4, 1]);
        assert_eq!(has(&table), [5, 6, 7, 8], "where all have as many it is the oldest of all");
    }

    #[test]
    fn every_part_tells_tasks_apart() {
        let task = TaskOf { endpoint: "/a", principal: "key:b", upstream: "c", id: "d" };
        let others = [
            TaskOf { endpoint: "/ak", principal: "ey:b", ..task },
            TaskOf { principal: "key:", upstream: "bc", ..task },
            TaskOf { upstream: "cd", id: "", ..task },
            TaskOf { id: "D", ..task },
            TaskOf { principal: "", ..task },
        ];
        for other in others {
            assert_ne!(key_of(other), key_of(task), "{other:?}");
        }
    }
}
