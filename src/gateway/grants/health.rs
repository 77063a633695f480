//! The health of what sign-in needs: of its store, of the room there, and of the provider.
//!
//! A fault lasts from the first failure to what shows that it is over. A full store goes on with all that needs no more room, so
//! only a new record shows that there is some again.

use store::{Change, Expected, Outcome, StoreError};

use super::records_answer::RecordsError;
use crate::clock::now_s;
use crate::state_files::StateFileHealth;

/// The health of what sign-in needs.
#[derive(Debug, Default)]
pub(super) struct SignInHealth {
    pub(super) store: StateFileHealth,
    pub(super) room: StateFileHealth,
    pub(super) provider: StateFileHealth,
}

impl SignInHealth {
    /// A commit has ended so. `grows`: it would have left more records than before.
    pub(super) fn note_commit(&self, done: &Result<Outcome, RecordsError>, grows: bool) {
        match done {
            Ok(Outcome::Committed(_)) => {
                self.store.note_written();
                if grows {
                    self.room.note_written();
                }
            }
            // Somebody else was faster, or the disk has much to do: neither says anything of the store.
            Ok(Outcome::Conflict) | Err(RecordsError::File(StoreError::Busy)) => {}
            Err(RecordsError::File(full @ StoreError::Full(_))) => {
                self.room.note_behind(full.to_string(), now_s());
            }
            Err(error) => {
                self.store.note_behind(error.to_string(), now_s());
            }
        }
    }
}

/// True if a commit of these leaves more records than there were.
pub(super) fn grows(changes: &[Change]) -> bool {
    let created = changes.iter().filter(|change| change.expected == Expected::Absent);
    created.count() > changes.iter().filter(|change| change.to.is_none()).count()
}

#[cfg(test)]
mod tests {
    use store::{Changes, Name, NewRecord};

    use super::*;

    fn full() -> RecordsError {
        StoreError::Full("the disk".to_owned()).into()
    }

    #[test]
    fn a_full_store_has_room_again_once_a_new_record_fits() {
        let health = SignInHealth::default();
        health.note_commit(&Err(full()), true);
        assert!(health.room.fault().is_some() && health.store.fault().is_none());
        health.note_commit(&Ok(Outcome::Committed(vec![None])), false);
        assert!(health.room.fault().is_some(), "an end needs no room");
        health.note_commit(&Ok(Outcome::Conflict), true);
        assert!(health.room.fault().is_some(), "a conflict says nothing");
        health.note_commit(&Ok(Outcome::Committed(vec![Some(1)])), true);
        assert_eq!(health.room.fault(), None);
    }

    #[test]
    fn a_store_that_fails_is_well_again_after_any_commit() {
        let health = SignInHealth::default();
        health.note_commit(&Err(StoreError::Busy.into()), true);
        assert_eq!(health.store.fault(), None, "it has much to do");
        health.note_commit(&Err(StoreError::ReadOnly("the disk".to_owned()).into()), false);
        assert!(health.store.fault().is_some_and(|fault| fault.reason.contains("cannot be written")));
        health.note_commit(&Ok(Outcome::Committed(vec![None])), false);
        assert_eq!(health.store.fault(), None);
    }

    #[test]
    fn a_commit_grows_by_what_it_creates() {
        let name = |name: &str| Name::new(name).expect("a name");
        let record = || NewRecord::new(Vec::new(), 9).expect("short");
        let create = Change::create(name("grant/a"), record());
        let end = Change::delete(name("grant/b"), 1);
        assert!(grows(Changes::one(create.clone()).as_slice()));
        assert!(!grows(&[create, end]), "as many end");
        assert!(!grows(&[Change::replace(name("grant/c"), 1, record())]));
    }
}
