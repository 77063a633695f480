//! Sign-ins, a page at a time, as the admin listener tells them.

objects! {
    /// A page of sign-ins.
    struct GrantsPage {
        grants: Vec<GrantStatus>,
        /// The place behind which the next page begins.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    }

    /// One client's sign-in at one endpoint.
    struct GrantStatus {
        /// Its name.
        id: String,
        /// The principal's id, as in logs.
        principal: String,
        /// The subject at the provider, as rules name it.
        user: String,
        /// The person's name.
        name: String,
        client_id: String,
        client_name: String,
        endpoint: String,
        scopes: Vec<String>,
        opened_s: u64,
        used_s: u64,
        ends_s: u64,
        /// The time of the provider's last answer about the person.
        checked_s: u64,
        /// The provider has not answered since then.
        #[serde(skip_serializing_if = "Option::is_none")]
        unanswered_since_s: Option<u64>,
    }

    /// A copy of the store of sign-ins.
    struct GrantsBackUp {
        /// The file that it is in.
        file: String,
        bytes: u64,
    }

    /// Sign-ins that were ended.
    struct EndedGrants {
        ended: u64,
    }
}
