//! What is translated for clients of the era that an upstream does not speak, and how much of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::file;
use super::value::{Count, DAY_MS, HOUR_MS, Key, MIB, Period, Size};

/// How clients reach an upstream that speaks only the other era.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Whether they do.
    pub is_on: bool,
    /// How often a server may ask for input during one call of a client of the other era.
    pub rounds_max: usize,
    /// Bytes of the `requestState` of a modern server that are kept while a legacy client is asked.
    pub state_bytes_max: usize,
    /// Sessions with a legacy server for modern clients.
    pub sessions_max: usize,
    /// How long such a session is kept without a call.
    pub session_idle_timeout: Duration,
    /// Calls of modern clients that wait for their answers to a legacy server's questions.
    pub parked_max: usize,
    /// Of these, calls of one principal; those without credentials are not counted one by one.
    pub parked_per_principal_max: usize,
    /// How long such a call waits.
    pub park_timeout: Duration,
}

/// `[upstream.NAME.bridge]`: what is translated for clients of the era that the server does not speak.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Bridge")]
pub(super) struct BridgeKeys {
    /// Whether such clients reach the server at all.
    #[schemars(extend("default" = true))]
    pub(super) enabled: Key<bool>,
    /// Times that a client may be asked for input during one call.
    #[schemars(extend("default" = 16))]
    pub(super) rounds_max: Key<Count<1, 1000>>,
    /// Bytes of a modern server's `requestState` that are kept while a legacy client is asked; up to 16 MiB.
    #[schemars(extend("default" = "256KiB"))]
    pub(super) state_bytes_max: Key<Size<1, { 16 * MIB }>>,
    /// Sessions with a legacy server for modern clients.
    #[schemars(extend("default" = 2048))]
    pub(super) sessions_max: Key<Count<1, 65_536>>,
    /// Time for which such a session is kept without a call; 0s to 1h.
    #[schemars(extend("default" = "30s"))]
    pub(super) session_idle_timeout: Key<Period<0, HOUR_MS>>,
    /// Calls of modern clients that may wait for answers to a legacy server's questions.
    #[schemars(extend("default" = 1000))]
    pub(super) parked_max: Key<Count<0, 1_048_576>>,
    /// Of these, calls of one principal.
    #[schemars(extend("default" = 100))]
    pub(super) parked_per_principal_max: Key<Count<0, 1_048_576>>,
    /// Time for which such a call waits; up to 24h.
    #[schemars(extend("default" = "5m"))]
    pub(super) park_timeout: Key<Period<1, DAY_MS>>,
}

/// What an upstream says of it.
pub(super) fn resolve(upstream: &file::Upstream) -> Bridge {
    let keys = upstream.bridge.value();
    keys.map_or_else(|| of(&BridgeKeys::default()), of)
}

/// What holds where nothing is said.
#[cfg(test)]
pub(super) fn defaults() -> Bridge {
    of(&BridgeKeys::default())
}

fn of(keys: &BridgeKeys) -> Bridge {
    Bridge {
        is_on: keys.enabled.value().copied().unwrap_or(true),
        rounds_max: keys.rounds_max.or(16),
        state_bytes_max: keys.state_bytes_max.or(256 * 1024),
        // More than may wait: calls that nobody answers leave room for others.
        sessions_max: keys.sessions_max.or(2048),
        session_idle_timeout: keys.session_idle_timeout.or(Duration::from_secs(30)),
        parked_max: keys.parked_max.or(1000),
        parked_per_principal_max: keys.parked_per_principal_max.or(100),
        park_timeout: keys.park_timeout.or(Duration::from_mins(5)),
    }
}
