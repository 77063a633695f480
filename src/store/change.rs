//! Changes: each says of one name in which state it must be, and in which it will be.
//!
//! Invariants: a commit has 1 to [`CHANGES_MAX`] changes of different names, and does all of them or none.

use crate::name::Name;
use crate::record::NewRecord;

/// The most changes of one commit.
pub const CHANGES_MAX: usize = 8;

/// The state that a change was judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// There is no such record, or its time is over.
    Absent,
    /// There is one of this generation.
    Generation(u64),
}

/// One change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The record that changes.
    pub name: Name,
    /// The state without which nothing of the commit is done.
    pub expected: Expected,
    /// The record from then on; `None`: there is none.
    pub to: Option<NewRecord>,
}

impl Change {
    /// A record where there is none.
    pub fn create(name: Name, record: NewRecord) -> Self {
        Self { name, expected: Expected::Absent, to: Some(record) }
    }

    /// Another record in the place of that of `generation`.
    pub fn replace(name: Name, generation: u64, record: NewRecord) -> Self {
        Self { name, expected: Expected::Generation(generation), to: Some(record) }
    }

    /// The end of the record of `generation`.
    pub fn delete(name: Name, generation: u64) -> Self {
        Self { name, expected: Expected::Generation(generation), to: None }
    }
}

/// The changes of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes(Vec<Change>);

/// The reason that changes are no commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangesError {
    /// There are none, or more than [`CHANGES_MAX`].
    #[error("a commit has {0} changes; it has 1 to {CHANGES_MAX}")]
    Count(usize),
    /// Two of them are of one name.
    #[error("a commit changes one record twice")]
    Twice,
}

impl Changes {
    /// Takes the changes of one commit.
    pub fn new(changes: Vec<Change>) -> Result<Self, ChangesError> {
        if changes.is_empty() || changes.len() > CHANGES_MAX {
            return Err(ChangesError::Count(changes.len()));
        }
        let is_twice = |(at, change): (usize, &Change)| {
            changes.iter().skip(at + 1).any(|other| other.name == change.name)
        };
        if changes.iter().enumerate().any(is_twice) {
            return Err(ChangesError::Twice);
        }
        Ok(Self(changes))
    }

    /// A commit of one change.
    pub fn one(change: Change) -> Self {
        Self(vec![change])
    }

    /// The changes, in the order in which they were given.
    pub fn as_slice(&self) -> &[Change] {
        &self.0
    }

    /// The changes, in the order in which they were given.
    pub fn into_inner(self) -> Vec<Change> {
        self.0
    }

    /// The bytes of all names and values.
    pub(crate) fn bytes(&self) -> usize {
        let of_change = |change: &Change| {
            change.name.as_str().len() + change.to.as_ref().map_or(0, |record| record.value().len())
        };
        self.0.iter().map(of_change).sum()
    }
}

/// The end of a commit that was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All was done, and lasts. A generation for each change, in their order; `None` for a record that ended.
    Committed(Vec<Option<u64>>),
    /// Nothing was done: at least one record was not as expected. Read again, and judge anew.
    Conflict,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_changes_each_of_few_records_once() {
        let change = |name: &str| Change::delete(Name::new(name).expect("a name"), 1);
        let many = |count: usize| (0..count).map(|number| change(&format!("a/{number}"))).collect::<Vec<_>>();
        assert_eq!(Changes::new(vec![]), Err(ChangesError::Count(0)));
        assert_eq!(Changes::new(many(CHANGES_MAX + 1)), Err(ChangesError::Count(CHANGES_MAX + 1)));
        assert_eq!(Changes::new(vec![change("a/1"), change("a/2"), change("a/1")]), Err(ChangesError::Twice));
        let changes = Changes::new(many(CHANGES_MAX)).expect("so many");
        assert_eq!(changes.as_slice().len(), CHANGES_MAX);
        assert_eq!(changes.bytes(), 3 * CHANGES_MAX);
    }
}
