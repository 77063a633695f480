//! Endpoints and upstreams.

use crate::calls::Figures;

objects! {
    /// Where clients call.
    struct EndpointStatus {
        path: String,
        eras: Vec<String>,
        upstreams: Vec<String>,
        /// How names are made: `prefixed`, `bare` or `transparent`.
        names: Option<String>,
        /// How callers show who they are; empty: they need not.
        auth: Option<Vec<String>>,
        /// Whether one of its upstreams is healthy.
        healthy: Option<bool>,
        /// Since when none of its upstreams is healthy, in seconds since 1970; null: one is.
        down_since_s: Option<u64>,
        tools: Option<u64>,
        /// The longest list of tools that is kept.
        list_bytes: Option<u64>,
        ..figures: Figures,
    }

    /// A server.
    struct UpstreamStatus {
        name: String,
        transport: String,
        eras: Vec<String>,
        healthy: Option<bool>,
        /// Since when it is not healthy, in seconds since 1970; null: it is.
        down_since_s: Option<u64>,
        /// Why it did not say what it speaks when it was asked last; null: it did.
        trouble: Option<String>,
        tools: Option<u64>,
        list_bytes: Option<u64>,
        connections: u64,
        connects_failed: u64,
        retries: u64,
        breaker_openings: u64,
        sessions_opened: u64,
        /// Sessions it forgot.
        sessions_lost: u64,
        subscription_streams: u64,
        replicas: Vec<ReplicaStatus>,
        #[serde(skip_serializing_if = "Option::is_none")]
        children: Option<ChildrenStatus>,
        #[serde(skip_serializing_if = "Option::is_none")]
        concurrency: Option<CallSlots>,
        #[serde(skip_serializing_if = "Option::is_none")]
        bridge: Option<BridgeStatus>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pins: Option<PinStatus>,
        ..figures: Figures,
    }

    /// One of several equal servers.
    struct ReplicaStatus {
        address: String,
        /// Its URL, without a query.
        url: String,
        breaker: String,
        /// Since when it has no address, or its breaker is not closed, in seconds since 1970; null: calls go there.
        down_since_s: Option<u64>,
        in_flight: u64,
        answered: u64,
        /// Whether its name leads to an address.
        resolved: Option<bool>,
    }

    /// Processes of the gateway's own.
    struct ChildrenStatus {
        running: u64,
        starts: u64,
        crashes: u64,
        /// Whether they end again and again.
        crash_loop: bool,
    }

    /// A bound on calls at once.
    struct CallSlots {
        max: u64,
        in_use: u64,
        waiting: u64,
        refused: u64,
    }

    /// Calls of clients of the other era.
    struct BridgeStatus {
        requests: u64,
        /// Requests for input that crossed it.
        input_requests: u64,
        sessions: u64,
        /// Calls that wait until their client answers one.
        suspended: u64,
    }

    /// What is pinned of an upstream.
    struct PinStatus {
        pinned: u64,
        changed: u64,
        new: u64,
        /// Whether what was kept cannot be read.
        unreadable: bool,
        /// Whether what is pinned cannot be written down.
        unwritable: bool,
        /// Names of some that wait for approval.
        waiting: Vec<String>,
    }
}

impl UpstreamStatus {
    /// How many replicas are down, and how many there are.
    pub fn replicas_down(&self) -> (usize, usize) {
        (self.replicas.iter().filter(|replica| replica.is_down()).count(), self.replicas.len())
    }

    /// Whether its processes end again and again.
    pub fn is_crashing(&self) -> bool {
        self.children.as_ref().is_some_and(|children| children.crash_loop)
    }

    /// Calls under way.
    pub fn in_flight(&self) -> u64 {
        self.replicas.iter().fold(0, |sum, replica| sum.saturating_add(replica.in_flight))
    }
}

impl ReplicaStatus {
    /// Whether no call goes there.
    pub fn is_down(&self) -> bool {
        self.breaker == "open" || self.resolved == Some(false)
    }
}
