//! What is translated for clients of the era that an upstream does not speak, and how much of it.

use super::section::section;
use super::value::{Count, DAY_MS, HOUR_MS, MIB, Period, Size};

section! {
    /// Clients that speak the other kind of revisions than the server reach it all the same: what is translated for
    /// them.
    pub struct BridgeConfig {
        /// Whether such clients reach the server at all.
        is_on as "enabled": bool = true,
        /// Times that a client may be asked for input during one call.
        input_requests_max: Count<1, 1000> = 16,
        /// Bytes of a modern server's `requestState` that are kept while a legacy client is asked.
        state_bytes_max: Size<1, { 16 * MIB }> = "256KiB",
        /// Sessions with a legacy server for modern clients. More than calls may wait: those that nobody answers leave
        /// room for others.
        sessions_max: Count<1, 65_536> = 2048,
        /// Time for which such a session is kept without a call.
        session_idle_timeout: Period<0, HOUR_MS> = "30s",
        /// Calls of modern clients that may wait for answers to a legacy server's questions.
        suspended_calls_max: Count<0, 1_048_576> = 1000,
        /// Of these, calls of one principal, or of one address without authentication.
        suspended_calls_per_principal_max: Count<0, 1_048_576> = 100,
        /// Time for which such a call waits.
        suspended_call_timeout: Period<1, DAY_MS> = "5m",
    }
}
