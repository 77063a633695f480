//! The users, who are made up.

use serde_json::{Map, Value, json};

use super::faults::Faults;

/// A user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct User {
    /// The name to sign in by, and the subject of tokens.
    pub(super) name: &'static str,
    pub(super) full_name: &'static str,
    groups: &'static [&'static str],
}

pub(super) const USERS: [User; 2] = [
    User { name: "alice", full_name: "Alice Adams", groups: &["staff", "ops"] },
    User { name: "bob", full_name: "Bob Brown", groups: &["staff"] },
];

impl User {
    /// The user of this name, unless a fault removed it.
    pub(super) fn find(name: &str, faults: &Faults) -> Option<&'static Self> {
        USERS.iter().find(|user| user.name == name && !faults.removed.iter().any(|removed| removed == name))
    }

    /// Its groups, as they are now.
    pub(super) fn groups(&self, faults: &Faults) -> Vec<String> {
        match faults.groups.get(self.name) {
            Some(changed) => changed.clone(),
            None => self.groups.iter().map(ToString::to_string).collect(),
        }
    }

    /// Its claims, in ID tokens and in userinfo.
    pub(super) fn claims(&self, faults: &Faults) -> Map<String, Value> {
        Map::from_iter([
            ("sub".to_owned(), json!(self.name)),
            ("name".to_owned(), json!(self.full_name)),
            ("preferred_username".to_owned(), json!(self.name)),
            ("email".to_owned(), json!(format!("{}@example.com", self.name))),
            ("groups".to_owned(), json!(self.groups(faults))),
        ])
    }
}
