//! Who calls.

objects! {
    /// Principals by how often they call. The counts are since the start.
    struct CallersStatus {
        /// How many principals are told apart.
        known: u64,
        /// Requests that failed before it was known who calls.
        unidentified: u64,
        busiest: Vec<CallerStatus>,
        most_refused: Vec<CallerStatus>,
    }

    /// A principal.
    struct CallerStatus {
        /// Its name; null: nobody asks who calls; `_other`: all that are not told apart.
        principal: Option<String>,
        calls: u64,
        /// Those of them that did not succeed.
        errors: u64,
        /// Those of the errors that the gateway refused.
        refused: u64,
    }
}
