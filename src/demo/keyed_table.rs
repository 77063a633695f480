//! What is kept for clients under keys that nobody can guess: sessions, and questions that wait for an answer.
//!
//! Invariant: at most as many as the table is made for; the one that was used least recently gives way.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::rpc::RpcFault;

/// Values by their keys.
pub(super) struct KeyedTable<T> {
    /// The one that was used last is at the back.
    entries: Mutex<VecDeque<(String, T)>>,
    entries_max: usize,
}

impl<T: Copy> KeyedTable<T> {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: Mutex::new(VecDeque::new()), entries_max }
    }

    /// Keeps `value` and returns its key: 128 random bits in hexadecimal.
    pub(super) fn insert(&self, value: T) -> Result<String, RpcFault> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|_| RpcFault::internal("The system has no randomness to give"))?;
        let key = format!("{:032x}", u128::from_ne_bytes(bytes));
        let mut entries = self.entries.lock();
        if entries.len() >= self.entries_max {
            entries.pop_front();
        }
        entries.push_back((key.clone(), value));
        Ok(key)
    }

    /// The value of `key`, which was used now.
    pub(super) fn get(&self, key: &str) -> Option<T> {
        let mut entries = self.entries.lock();
        let entry = take(&mut entries, key)?;
        let value = entry.1;
        entries.push_back(entry);
        Some(value)
    }

    /// Forgets `key`; `None` if it is not there.
    pub(super) fn remove(&self, key: &str) -> Option<T> {
        take(&mut self.entries.lock(), key).map(|(_, value)| value)
    }
}

fn take<T>(entries: &mut VecDeque<(String, T)>, key: &str) -> Option<(String, T)> {
    let at = entries.iter().position(|(known, _)| known == key)?;
    entries.remove(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_used_least_recently_gives_way() {
        let sessions = KeyedTable::new(256);
        let ids: Vec<String> = (0..256).map(|_| sessions.insert("a").unwrap()).collect();
        assert_eq!(sessions.get(&ids[0]), Some("a"));
        sessions.insert("b").unwrap();
        assert_eq!(sessions.get(&ids[0]), Some("a"));
        assert_eq!(sessions.get(&ids[1]), None);
    }

    #[test]
    fn a_session_ends_once() {
        let sessions = KeyedTable::new(256);
        let (one, other) = (sessions.insert("a").unwrap(), sessions.insert("b").unwrap());
        assert_eq!(sessions.remove(&one), Some("a"));
        assert_eq!(sessions.remove(&one), None);
        assert_eq!((sessions.get(&one), sessions.get(&other)), (None, Some("b")));
    }
}
