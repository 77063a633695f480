//! `/status`: the gateway itself.

use crate::callers::CallersStatus;
use crate::calls::{FailedCalls, Figures, share};
use crate::problem::Problem;
use crate::servers::{EndpointStatus, UpstreamStatus};
use crate::sign_in::SignInStatus;
use crate::tools::Rankings;

/// Upstreams that start and are named.
const STARTING_MAX: usize = 8;

objects! {
    /// The state of a gateway.
    struct Status {
        version: String,
        /// When it started, in seconds since 1970.
        started_s: u64,
        uptime_s: u64,
        workers: u64,
        /// How far it is with stopping: `none`, `quiet`, `closing` or `cut`.
        drain: String,
        /// Bugs that ended a connection.
        panics: u64,
        /// The unit of systemd that it runs in; null: none, or one of a user's own.
        service: Option<String>,
        log: LogStatus,
        config: ConfigStatus,
        listeners: Vec<ListenerStatus>,
        connections: ConnectionsStatus,
        /// What is wrong, worst first; null: an older gateway does not say.
        problems: Option<Vec<Problem>>,
        sample: Sample,
        #[serde(skip_serializing_if = "Figures::is_unmeasured")]
        calls: Figures,
        endpoints: Vec<EndpointStatus>,
        upstreams: Vec<UpstreamStatus>,
        /// Tools that stand out.
        #[serde(skip_serializing_if = "Rankings::is_unmeasured")]
        tools: Rankings,
        /// The latest calls that did not succeed, the latest first.
        recent_errors: Vec<FailedCalls>,
        /// Who calls.
        callers: CallersStatus,
        limits: Vec<LimitStatus>,
        cache: Cache,
        sessions: SessionsStatus,
        /// The fault of what is kept of upstreams; null: all is written, or there is no state directory.
        state_directory_fault: Option<StateFileFaultStatus>,
        certificates: Vec<Certificate>,
        shared: Option<SharedStatus>,
        sign_in: Option<SignInStatus>,
        traces: Option<TracesStatus>,
    }

    /// The configuration in force.
    struct ConfigStatus {
        /// Where it was read from; `None`: it is built in.
        file: Option<String>,
        sha256: String,
        /// The last time it was to be read again.
        last_reload: Option<ReloadStatus>,
    }

    /// The place to which the log goes.
    struct LogStatus {
        /// `journal`, `file`, `terminal`, or `other`, such as a pipe to a container's log.
        place: String,
        /// The file; null: it goes elsewhere.
        file: Option<String>,
    }

    /// What came of a reload.
    struct ReloadStatus {
        /// When, in seconds since 1970.
        at_s: u64,
        ok: bool,
        /// What is different now, a line each.
        changes: Vec<String>,
        /// What takes effect at the next start only.
        needs_restart: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }

    /// Where a gateway listens for clients.
    struct ListenerStatus {
        address: String,
        tls: bool,
        /// The socket unit that is enabled for it, though the gateway opened its socket; null: none.
        unused_socket_unit: Option<String>,
    }

    /// Connections of clients.
    struct ConnectionsStatus {
        open: u64,
        max: Option<u64>,
        accepted: u64,
        refused: u64,
        buffered_bytes: u64,
    }

    /// A sample of the counts. A new number means that `/status/history` has more.
    struct Sample {
        number: Option<u64>,
        /// When it was taken, in seconds since 1970.
        at_s: u64,
        /// Seconds since the one before.
        interval_s: Option<f64>,
    }

    /// A `[[limit]]`.
    struct LimitStatus {
        name: String,
        calls: u64,
        period_s: Option<f64>,
        shared: bool,
        refused: u64,
        /// Calls of callers that found no room to be counted by themselves.
        overflowed: u64,
        keys: u64,
    }

    /// The cache of lists. The counts are since the start.
    struct Cache {
        bytes: u64,
        hits: u64,
        /// Answered from it while it was asked for anew.
        stale: u64,
        misses: u64,
        /// Asked for in vain.
        errors: u64,
    }

    /// Sessions and streams.
    struct SessionsStatus {
        live: u64,
        /// Ended ones whose ids are still refused by name.
        revoked: u64,
        upstream_sessions: u64,
        streams: u64,
        upstream_streams: u64,
        subscriptions: u64,
        sse_streams: u64,
        /// The fault of the journal; null: it has everything, or there is none.
        journal_fault: Option<StateFileFaultStatus>,
    }

    /// A file of the state directory lacks changes, which a restart would forget.
    struct StateFileFaultStatus {
        /// Since when, in seconds since 1970.
        since_s: u64,
        /// The reason for which it cannot be written.
        reason: String,
    }

    /// A certificate.
    struct Certificate {
        file: String,
        /// When it ends, in seconds since 1970.
        expires_s: Option<u64>,
        /// It is that of authorities of clients, which count after their end, too.
        authority: bool,
    }

    /// What several gateways share.
    struct SharedStatus {
        connected: bool,
        /// Since when the store cannot be reached, in seconds since 1970; null: it can.
        disconnected_since_s: Option<u64>,
        replicas: u64,
        /// Gateways with another session key.
        mismatched: u64,
    }

    /// Spans since the start.
    struct TracesStatus {
        exported: u64,
        rejected: u64,
        failed: u64,
        /// Given up, as too many waited.
        dropped: u64,
    }
}

impl Status {
    /// A sentence on upstreams that are about to start, and how many are up; `None`: none is.
    pub fn starting(&self) -> Option<String> {
        let on: Vec<&UpstreamStatus> =
            self.upstreams.iter().filter(|upstream| upstream.enabled != Some(false)).collect();
        let is_starting = |upstream: &&&UpstreamStatus| upstream.state.as_deref() == Some("starting");
        let names: Vec<&str> = on.iter().filter(is_starting).map(|upstream| &*upstream.name).collect();
        let up = on.iter().filter(|upstream| upstream.usable == Some(true)).count();
        let more = if names.len() > STARTING_MAX { " …" } else { "" };
        let some = names.iter().take(STARTING_MAX).copied().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| format!("starting: {some}{more} ({up} of {} are up)", on.len()))
    }

    /// A sentence on upstreams whose lists are given out as they were before the start; `None`: there is none.
    pub fn kept_lists(&self, now_s: u64) -> Option<String> {
        let kept: Vec<&UpstreamStatus> =
            self.upstreams.iter().filter(|upstream| upstream.lists_kept_s.is_some()).collect();
        let words = kept.iter().min_by_key(|upstream| upstream.lists_kept_s)?.kept_lists(now_s)?;
        let names = kept.iter().take(STARTING_MAX).map(|upstream| &*upstream.name).collect::<Vec<_>>();
        let more = if kept.len() > STARTING_MAX { " …" } else { "" };
        Some(format!("{words}: {}{more}", names.join(", ")))
    }

    /// The upstream of this name.
    pub fn upstream(&self, name: &str) -> Option<&UpstreamStatus> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }

    /// How far it is with stopping, if it is about to.
    pub fn draining(&self) -> Option<&str> {
        Some(self.drain.as_str()).filter(|phase| !matches!(*phase, "" | "none"))
    }

    /// Calls and connections that were refused since the start, in this order.
    pub fn refused(&self) -> (u64, u64) {
        let calls = self.limits.iter().fold(0, |sum: u64, limit| sum.saturating_add(limit.refused));
        (calls, self.connections.refused)
    }
}

impl SessionsStatus {
    /// Streams to clients, of whatever transport.
    pub fn client_streams(&self) -> u64 {
        self.streams.saturating_add(self.sse_streams)
    }
}

impl Cache {
    /// The share that did not have to be asked for.
    pub fn hit_share(&self) -> Option<f64> {
        let kept = self.hits.saturating_add(self.stale);
        share(kept, kept.saturating_add(self.misses).saturating_add(self.errors))
    }
}

impl TracesStatus {
    /// Spans that nobody got.
    pub fn lost(&self) -> u64 {
        self.rejected.saturating_add(self.failed).saturating_add(self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::{Object, parse};

    #[test]
    fn any_object_is_a_status() {
        assert_eq!(Status::read(&json!({})), Some(Status::default()));
        assert_eq!(Status::read(&json!({"shared": null, "calls": 7, "drain": []})), Some(Status::default()));
        let odd =
            json!({"endpoints": [null, 7, {"healthy": "yes"}], "upstreams": {"a": 1}, "connections": []});
        let status = Status::read(&odd).unwrap_or_default();
        assert_eq!((status.endpoints.len(), status.upstreams.len()), (1, 0), "what is no object is none");
        assert_eq!(status.endpoints[0].healthy, None);
        for text in ["", "[]", "7", "{"] {
            assert_eq!(parse::<Status>(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let figures = Figures { calls: Some(7), errors: Some(1), p50_s: Some(0.5), ..Figures::default() };
        let upstream =
            UpstreamStatus { name: "a".into(), figures: figures.clone(), ..UpstreamStatus::default() };
        let idle = EndpointStatus { path: "/mcp".into(), ..EndpointStatus::default() };
        let status =
            Status { calls: figures, upstreams: vec![upstream], endpoints: vec![idle], ..Status::default() };
        let text = serde_json::to_vec(&status).unwrap_or_default();
        assert_eq!(parse::<Status>(&text), Some(status));
        let written = serde_json::from_slice::<serde_json::Value>(&text).unwrap_or_default();
        assert_eq!(
            (&written["upstreams"][0]["calls"], written["endpoints"][0].get("calls")),
            (&json!(7), None)
        );
    }

    #[test]
    fn a_gateway_that_does_not_drain_says_so() {
        for (drain, expected) in [("", None), ("none", None), ("quiet", Some("quiet"))] {
            assert_eq!(Status { drain: drain.into(), ..Status::default() }.draining(), expected);
        }
    }

    #[test]
    fn shares_are_of_what_was_looked_for() {
        let cache = |hits, stale, misses, errors| Cache { hits, stale, misses, errors, bytes: 0 }.hit_share();
        assert_eq!(cache(0, 0, 0, 0), None);
        assert_eq!(cache(2, 1, 1, 0), Some(0.75));
        assert_eq!(cache(u64::MAX, u64::MAX, 1, 1).map(f64::round), Some(1.0));
    }
}
