//! Values that are kept for clients under keys that cannot be guessed: sessions, questions that wait for an answer, codes, tokens.
//!
//! Invariant: at most as many as the table is made for; the one that was used least recently gives way.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Values by their keys.
pub(super) struct KeyedTable<T> {
    /// The one that was used last is at the back.
    entries: Mutex<VecDeque<(String, T)>>,
    entries_max: usize,
}

impl<T> KeyedTable<T> {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: Mutex::new(VecDeque::new()), entries_max }
    }

    /// Keeps `value` and returns its key.
    pub(super) fn insert(&self, value: T) -> Result<String, getrandom::Error> {
        let key = random_key()?;
        let mut entries = self.entries.lock();
        if entries.len() >= self.entries_max {
            entries.pop_front();
        }
        entries.push_back((key.clone(), value));
        Ok(key)
    }

    /// The value of `key`, which was used now.
    pub(super) fn get(&self, key: &str) -> Option<T>
    where
        T: Clone,
    {
        self.change(key, |value| value.clone())
    }

    /// Has `change` look at the value of `key`, which was used now, and returns its result; `None` if it is not there.
    pub(super) fn change<R>(&self, key: &str, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut entries = self.entries.lock();
        let mut entry = take(&mut entries, key)?;
        let result = change(&mut entry.1);
        entries.push_back(entry);
        Some(result)
    }

    /// Forgets `key`; `None` if it is not there.
    pub(super) fn remove(&self, key: &str) -> Option<T> {
        take(&mut self.entries.lock(), key).map(|(_, value)| value)
    }
}

/// 128 random bits in hexadecimal.
pub(super) fn random_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
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
