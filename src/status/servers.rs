//! Endpoints and upstreams.

use crate::calls::Figures;
use crate::words::span;

/// The interfaces of models take no longer names.
const NAME_CHARS_MAX: usize = 64;
/// The prefix that a host puts before names, where it knows the gateway by its usual name.
pub const HOST_PREFIX: &str = "mcp__trunkline__";
/// Long names that are named.
const LONG_NAMES_MAX: usize = 3;

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
        /// Its names of tools that are too long for the interfaces of models; null: none is.
        long_names: Option<LongNames>,
        /// The longest list of tools that is kept.
        list_bytes: Option<u64>,
        ..figures: Figures,
    }

    /// Names of tools that are too long for the interfaces of models: these refuse a whole request for one of them.
    struct LongNames {
        /// How many have over 64 characters.
        alone: u64,
        /// How many have as soon as a host puts its own name for the gateway before them, as in `mcp__trunkline__`.
        with_host: u64,
        /// Some of the longest.
        some: Vec<String>,
    }

    /// A server.
    struct UpstreamStatus {
        name: String,
        transport: String,
        eras: Vec<String>,
        /// How it is: `up`, `starting`, `failing`, `refuses our credentials`, `wants the caller's own credentials`,
        /// `is no MCP server`, `cannot be listed`, `down` or `off`.
        state: Option<String>,
        /// The reason for which it is not up, or that it starts with its first call; null: it is up.
        why: Option<String>,
        /// Since when it is in this state, in seconds since 1970, as far as that is known.
        state_since_s: Option<u64>,
        /// Whether calls get through, at least some, and its tools can be listed.
        usable: Option<bool>,
        /// Whether `enabled` is true; what is not is told nothing.
        enabled: Option<bool>,
        /// Whether calls may get through, or soon will: it is usable, starts, or lacks a list alone.
        healthy: Option<bool>,
        /// Since when it is not healthy, in seconds since 1970; null: it is.
        down_since_s: Option<u64>,
        /// Whether it was asked what it speaks, whatever came of it.
        asked: Option<bool>,
        /// Whether the credentials of callers are handed on to it.
        forwards_credentials: Option<bool>,
        /// The start of its program, if one is under way or is to come; null: it is up, or there is none.
        start: Option<StartStatus>,
        /// The last fault that belongs to no replica; null: there was none.
        fault: Option<FaultStatus>,
        /// Why one of its lists cannot be had; null: all can.
        list_fault: Option<FaultStatus>,
        /// When its lists were written that clients get as they were before the start, until they can be fetched, in seconds
        /// since 1970; null: there is none.
        lists_kept_s: Option<u64>,
        /// The last lines of its program's standard error, where that ended unasked.
        last_lines: Vec<String>,
        tools: Option<u64>,
        list_bytes: Option<u64>,
        /// Its lists that were cut off at a limit.
        lists_cut: Vec<ListCut>,
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

    /// A list of which clients are shown a part.
    struct ListCut {
        /// Its method.
        list: String,
        /// The end at which it was cut off: the limit `pages`, `entries` or `bytes`, or a `cursor` that came again.
        reason: String,
        /// The entries that were read.
        shown: u64,
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
        /// The last fault of a question or a call, even if it is over; null: there was none.
        fault: Option<FaultStatus>,
    }

    /// What went wrong.
    struct FaultStatus {
        /// In one line, for operators: `connect: refused`, `HTTP 421 text/plain`.
        why: String,
        /// In a word: `connect`, `dns`, `tls`, `http`, `redirect`, `encoding`, `timeout`, `closed`, `not_mcp`, `too_large`, `error`,
        /// `process` or `other`.
        kind: String,
        /// The same as `why` without any text of the server's, as metrics have it.
        cause: String,
        /// The status that the server answered with, where that is what is wrong.
        http_status: Option<u64>,
        /// When it was met last, in seconds since 1970.
        at_s: u64,
        /// When it was met first, with nothing else between.
        since_s: u64,
        /// Whether nothing was answered as it should be since.
        stands: bool,
        /// The method of the list that it is of; null: it is of none.
        list: Option<String>,
    }

    /// The start of a program.
    struct StartStatus {
        /// `queued`, `running`, or `first_call`: it starts with its first call.
        phase: String,
        /// Since when, in seconds since 1970.
        since_s: Option<u64>,
        /// How long it may take.
        timeout_s: Option<u64>,
    }

    /// Processes of the gateway's own.
    struct ChildrenStatus {
        running: u64,
        /// Those that have answered.
        serving: u64,
        starts: u64,
        crashes: u64,
        /// Those that ended unasked within the last hour, though they had been of use.
        ended_last_hour: u64,
        /// True if they end again and again before they are of use.
        crash_loop: bool,
        /// The question of the gateway's own at which they do, such as `subscriptions/listen`; null: they end otherwise, or
        /// do not. Calls get through.
        ends_at: Option<String>,
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
        /// True if nothing is trusted, as the pins of the other gateways are not known.
        unasked: bool,
        /// True if the record that gateways share is refused, or too long.
        unshared: bool,
        /// Names of some that wait for approval.
        waiting: Vec<String>,
        /// Some whose definitions differ from process to process, so that no approval lasts.
        varying: Vec<VaryingTool>,
    }

    /// A tool that two processes of one server define differently.
    struct VaryingTool {
        name: String,
        /// The first member that differs: its keys, with dots between them.
        member: String,
    }
}

impl LongNames {
    /// Counts a name, should it be long.
    pub fn add(&mut self, name: &str) {
        let length = name.chars().count();
        if length + HOST_PREFIX.len() <= NAME_CHARS_MAX {
            return;
        }
        self.with_host += 1;
        if length > NAME_CHARS_MAX {
            self.alone += 1;
        }
        self.some.push(name.to_owned());
        self.some.sort_by_key(|name| std::cmp::Reverse(name.len()));
        self.some.truncate(LONG_NAMES_MAX);
    }
}

impl UpstreamStatus {
    /// How many replicas are down, and how many there are.
    pub fn replicas_down(&self) -> (usize, usize) {
        (self.replicas.iter().filter(|replica| replica.is_down()).count(), self.replicas.len())
    }

    /// In words, that clients get its lists as they were before the start; `None`: they do not.
    pub fn kept_lists(&self, now_s: u64) -> Option<String> {
        let age = span(now_s.saturating_sub(self.lists_kept_s?));
        Some(format!("lists of {age} ago, kept over a restart"))
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
