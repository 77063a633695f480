//! Sign-in, as `/status` tells it. Counts are since the start.

use std::collections::BTreeMap;

objects! {
    /// Sign-in.
    struct SignInStatus {
        /// The place where sign-ins are kept: `file` or `redis`.
        place: String,
        /// Its file; null: they are in Redis.
        store: Option<SignInStoreStatus>,
        /// Sign-ins that were opened.
        opened: u64,
        /// Requests that were refused, by kind.
        refused: BTreeMap<String, u64>,
        /// Sign-ins that were ended before their time, by cause.
        ended: BTreeMap<String, u64>,
        /// Answers of the provider about accounts, by result.
        checks: BTreeMap<String, u64>,
        /// Failures of the store.
        store_failures: u64,
        /// Nothing can be kept or changed; null: all can.
        store_fault: Option<SignInFaultStatus>,
        /// There is no room for more; null: there is.
        room_fault: Option<SignInFaultStatus>,
        /// The provider could not be asked last; null: it answers, or was not asked.
        provider_fault: Option<SignInFaultStatus>,
        /// Settings of Redis by which sign-ins get lost, a sentence each.
        redis_faults: Vec<String>,
    }

    /// The file of sign-ins.
    struct SignInStoreStatus {
        /// People who are signed in.
        accounts: u64,
        /// Sign-ins that are open.
        grants: u64,
        /// All records, those of ends and codes among them.
        records: u64,
        records_max: u64,
        file_bytes: u64,
        file_bytes_max: u64,
        /// Times that the file had to be opened again after a failure.
        reopened: u64,
    }

    /// A part of sign-in fails.
    struct SignInFaultStatus {
        /// Since when, in seconds since 1970.
        since_s: u64,
        reason: String,
    }
}

impl SignInStatus {
    /// The numbers of people and of sign-ins as people say them; `None`: they are not counted.
    pub fn signed_in(&self) -> Option<String> {
        let store = self.store.as_ref()?;
        let people = crate::words::number_of(store.accounts, "person", "people");
        Some(format!("{people}, {}", crate::words::number_of(store.grants, "sign-in", "sign-ins")))
    }

    /// The number of requests that were refused.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}
