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
//! Invariants: there are at most `tasks_max` entries; where there is no room, the oldest goes. That is safe, as a task
//! without a known owner is nobody's.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use redis::{cmd, pipe};
use sha2::{Digest as _, Sha256};

use super::journal::{read_task, task_line};
use super::shared::{open, seal};
use super::{SessionId, Sessions, now_s};
use crate::protocol::task::ID_BYTES_MAX;
use crate::shared::{Shared, Urgency};

/// Bytes of the digest that an entry is found by.
pub(super) const KEY_BYTES: usize = 16;
const KEY_DOMAIN: &[u8] = b"trunkline task\0";
const SEALED_CLEAR: &[u8] = b"trunkline task ";
/// A task may be asked for some time after it should be gone.
const GRACE_S: u64 = 60;
/// A longer name is not remembered: no rule about tools would find it.
const TOOL_BYTES_MAX: usize = 1024;
/// So many tasks are asked for at once.
const ASKED_MAX: usize = 256;

/// What an entry is found by.
pub(super) type TaskKey = [u8; KEY_BYTES];

/// A task, and who asks for it.
#[derive(Clone, Copy, Debug)]
pub struct TaskOf<'a> {
    /// The path of the endpoint.
    pub endpoint: &'a str,
    /// The principal; empty for nobody.
    pub principal: &'a str,
    /// The name of the upstream.
    pub upstream: &'a str,
    /// The id, as the upstream spells it.
    pub id: &'a str,
}

/// How a task was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The session in which it was made, in the legacy era.
    pub session: Option<SessionId>,
    /// The tool that made it, as the upstream spells it; empty where that is not known.
    pub tool: Box<str>,
}

/// How many tasks there are, and how many were forgotten before their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Tasks whose owner is known.
    pub known: usize,
    /// Forgotten for want of room, ever.
    pub forgotten: u64,
}

/// The entries, and the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<TaskKey, Entry>,
    order: BTreeMap<u64, TaskKey>,
    next: u64,
    forgotten: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    expires_s: u64,
    origin: Origin,
}

impl TaskOf<'_> {
    fn key(&self) -> TaskKey {
        let mut digest = Sha256::new().chain_update(KEY_DOMAIN);
        for piece in [self.endpoint, self.principal, self.upstream, self.id] {
            digest.update((piece.len() as u64).to_be_bytes());
            digest.update(piece);
        }
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(&digest.finalize()[..KEY_BYTES]);
        key
    }
}

impl Table {
    fn put(&mut self, key: TaskKey, expires_s: u64, origin: Origin, tasks_max: usize) {
        let number = self.next;
        self.next += 1;
        if let Some(before) = self.entries.insert(key, Entry { number, expires_s, origin }) {
            self.order.remove(&before.number);
        }
        self.order.insert(number, key);
        while self.entries.len() > tasks_max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.entries.remove(&oldest);
            self.forgotten += 1;
        }
    }

    fn get(&self, key: &TaskKey, now_s: u64) -> Option<&Origin> {
        self.entries.get(key).filter(|entry| entry.expires_s > now_s).map(|entry| &entry.origin)
    }

    /// Forgets tasks whose time is over.
    pub(super) fn sweep(&mut self, now_s: u64) {
        let order = &mut self.order;
        self.entries.retain(|_, entry| {
            let is_kept = entry.expires_s > now_s;
            if !is_kept {
                order.remove(&entry.number);
            }
            is_kept
        });
    }
}

impl Sessions {
    /// Remembers who made a task. It is forgotten after `ttl_ms`, or as long as any task is remembered.
    pub fn note_task(&self, task: TaskOf<'_>, origin: Origin, ttl_ms: Option<u64>) {
        if task.id.len() > ID_BYTES_MAX || origin.tool.len() > TOOL_BYTES_MAX {
            return;
        }
        let max_s = self.task_expiry_s.load(Ordering::Relaxed);
        let lives_s = ttl_ms.map_or(max_s, |ttl_ms| (ttl_ms / 1000).saturating_add(GRACE_S).min(max_s));
        let expires_s = now_s().saturating_add(lives_s);
        let key = task.key();
        let line = task_line(&key, expires_s, &origin);
        self.share_task(&key, &line, lives_s);
        self.journal.write_line(line);
        self.put_task(key, expires_s, origin);
    }

    /// How the task was made, if by who asks for it.
    pub fn task(&self, task: TaskOf<'_>) -> Option<Origin> {
        self.task_table().get(&task.key(), now_s()).cloned()
    }

    /// Asks the other replicas for tasks that are not known here.
    pub async fn learn_tasks<'a>(&self, tasks: impl Iterator<Item = TaskOf<'a>>) {
        let Some(shared) = self.shared.as_ref().filter(|shared| shared.is_connected()) else { return };
        let now_s = now_s();
        let mut unknown: Vec<TaskKey> = tasks.map(|task| task.key()).collect();
        unknown.retain(|key| self.task_table().get(key, now_s).is_none());
        for keys in unknown.chunks(ASKED_MAX) {
            let mut pipeline = pipe();
            for key in keys {
                pipeline.get(name(shared, key));
            }
            let Ok(answers) = shared.pipeline::<Vec<Option<Vec<u8>>>>(&pipeline).await else { return };
            for (key, sealed) in keys.iter().zip(answers) {
                let line = sealed.and_then(|sealed| open(&self.keys.load(), &clear_of(key), &sealed));
                let read = line.and_then(|line| read_task(&line, key));
                if let Some((expires_s, origin)) = read {
                    self.put_task(*key, expires_s, origin);
                }
            }
        }
    }

    /// Waits until the other replicas can know of the tasks that were noted.
    pub async fn tasks_told(&self) {
        if let Some(shared) = &self.shared {
            shared.said().await;
        }
    }

    /// How many tasks are known.
    pub fn task_counts(&self) -> TaskCounts {
        let table = self.task_table();
        TaskCounts { known: table.entries.len(), forgotten: table.forgotten }
    }

    /// Puts in what the journal says, in the order in which it expires: in which it came nobody knows.
    pub(super) fn restore_tasks(&self, tasks: HashMap<TaskKey, (u64, Origin)>) {
        let mut tasks: Vec<_> = tasks.into_iter().collect();
        tasks.sort_unstable_by_key(|(_, (expires_s, _))| *expires_s);
        for (key, (expires_s, origin)) in tasks {
            self.put_task(key, expires_s, origin);
        }
    }

    pub(super) fn task_table(&self) -> MutexGuard<'_, Table> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_task(&self, key: TaskKey, expires_s: u64, origin: Origin) {
        self.task_table().put(key, expires_s, origin, self.tasks_max.load(Ordering::Relaxed));
    }

    fn share_task(&self, key: &TaskKey, line: &str, lives_s: u64) {
        let Some(shared) = &self.shared else { return };
        let Some(sealed) = seal(&self.keys.load(), &clear_of(key), line.as_bytes()) else { return };
        let mut command = cmd("SET");
        command.arg(name(shared, key)).arg(sealed).arg("EX").arg(lives_s.max(1));
        shared.tell(vec![command], Urgency::Dropped);
    }
}

fn name(shared: &Shared, key: &TaskKey) -> String {
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

    #[test]
    fn the_oldest_goes_and_what_expired_is_gone() {
        let mut table = Table::default();
        let key = |byte| [byte; KEY_BYTES];
        for byte in 0..4 {
            table.put(key(byte), 10 + u64::from(byte), origin("a"), 3);
        }
        assert_eq!((table.entries.len(), table.order.len(), table.forgotten), (3, 3, 1));
        assert_eq!(table.get(&key(0), 0), None);
        assert_eq!(table.get(&key(1), 0), Some(&origin("a")));
        assert_eq!(table.get(&key(1), 11), None, "its time is over");
        table.put(key(1), 20, origin("b"), 3);
        table.put(key(4), 20, origin("a"), 3);
        assert_eq!(table.get(&key(1), 0), Some(&origin("b")), "it is no longer the oldest");
        assert_eq!(table.get(&key(2), 0), None);
        table.sweep(13);
        assert_eq!((table.entries.len(), table.order.len()), (2, 2));
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
            assert_ne!(other.key(), task.key(), "{other:?}");
        }
    }
}
