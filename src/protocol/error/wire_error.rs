//! The one table that turns a failure into an HTTP status, a JSON-RPC error and a metric label.

use std::time::Duration;

use http::StatusCode;

use super::{ClientError, Error, GatewayError, PolicyError, UpstreamError};

/// An [`Error`] as the wire and the metrics see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError {
    /// The HTTP status in the modern era.
    pub status: StatusCode,
    /// The JSON-RPC error code.
    pub code: i32,
    /// Which row of the table it is.
    pub reason: Reason,
    /// For `Retry-After`.
    pub retry_after: Option<Duration>,
}

crate::words! {
    /// The rows of the table, as a bounded metric and log label.
    #[derive(Hash)]
    pub enum Reason reads of, says label {
        NoEndpoint = "no_endpoint",
        HttpMethod = "http_method",
        MediaType = "media_type",
        Host = "host",
        Origin = "origin",
        TooLarge = "too_large",
        TooSlow = "too_slow",
        Aborted = "aborted",
        NotJson = "not_json",
        NotJsonRpc = "not_json_rpc",
        HeaderMismatch = "header_mismatch",
        Version = "version",
        Params = "params",
        Method = "method",
        UnknownName = "unknown_name",
        Session = "session",
        Credentials = "credentials",
        UpstreamUnreachable = "upstream_unreachable",
        UpstreamReset = "upstream_reset",
        UpstreamTimeout = "upstream_timeout",
        UpstreamInvalid = "upstream_invalid",
        UpstreamCredentials = "upstream_credentials",
        UpstreamBusy = "upstream_busy",
        UpstreamConnections = "upstream_connections",
        UpstreamSession = "upstream_session",
        UpstreamEra = "upstream_era",
        InputRequests = "input_requests",
        BridgeSessions = "bridge_sessions",
        SuspendedCalls = "suspended_calls",
        Buffers = "buffers",
        Draining = "draining",
        Sessions = "sessions",
        NamesUnknown = "names_unknown",
        Capability = "capability",
        Subscriptions = "subscriptions",
        InitializeRate = "initialize_rate",
        SseRequests = "sse_requests",
        SessionMessages = "session_messages",
        Streams = "streams",
        Forbidden = "forbidden",
        Scope = "scope",
        Rate = "rate",
        Concurrency = "concurrency",
        Pinned = "pinned",
        UpstreamUnhealthy = "upstream_unhealthy",
        SharedLimits = "shared_limits",
        TokenKeys = "token_keys",
        /// The client went away before its reply was complete.
        Cancelled = "cancelled",
    }
}

impl Reason {
    /// How many reasons there are: the size of a table indexed by `reason as usize`.
    pub const COUNT: usize = Self::ALL.len();
}

impl Error {
    /// The row of the table for this error.
    pub fn outcome(&self) -> WireError {
        use Reason as R;
        let row = |status: u16, code: i32, reason: Reason| WireError {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code,
            reason,
            retry_after: None,
        };
        let soon = |mut outcome: WireError, seconds: u32| {
            outcome.retry_after = Some(Duration::from_secs(seconds.into()));
            outcome
        };
        match self {
            Self::Client(error) => match error {
                ClientError::NoEndpoint => row(404, 404, R::NoEndpoint),
                ClientError::HttpMethod { .. } => row(405, 405, R::HttpMethod),
                ClientError::SessionGone => row(404, 404, R::Session),
                ClientError::NoSession | ClientError::EventGone => row(400, -32600, R::Session),
                ClientError::ContentType => row(415, 415, R::MediaType),
                ClientError::NotAcceptable => row(406, 406, R::MediaType),
                ClientError::Host => row(400, 400, R::Host),
                ClientError::Misdirected => row(421, 421, R::Host),
                ClientError::TooLarge { .. } => row(413, 413, R::TooLarge),
                ClientError::TooManyHeaders => row(431, 431, R::TooLarge),
                ClientError::TooSlow => row(408, 408, R::TooSlow),
                ClientError::Aborted => row(400, 400, R::Aborted),
                ClientError::NotJson | ClientError::TooDeep => row(400, -32700, R::NotJson),
                ClientError::NotJsonRpc { .. } => row(400, -32600, R::NotJsonRpc),
                ClientError::HeaderMismatch { .. } => row(400, -32020, R::HeaderMismatch),
                ClientError::Version { .. } => row(400, -32022, R::Version),
                ClientError::Params { .. } => row(400, -32602, R::Params),
                ClientError::Capability { .. } => row(400, -32021, R::Capability),
                ClientError::Method => row(404, -32601, R::Method),
                ClientError::UnknownName { .. } => row(200, -32602, R::UnknownName),
                ClientError::Cursor => row(200, -32602, R::Params),
            },
            Self::Policy(error) => match error {
                PolicyError::Origin => row(403, 403, R::Origin),
                PolicyError::Host => row(403, 403, R::Host),
                PolicyError::NoCredentials | PolicyError::BadCredentials => row(401, 401, R::Credentials),
                PolicyError::Forbidden => row(403, 403, R::Forbidden),
                PolicyError::Scope { .. } => row(403, 403, R::Scope),
                PolicyError::Pinned => row(403, 403, R::Pinned),
                PolicyError::Rate(limited) => {
                    let mut outcome = row(429, 429, R::Rate);
                    outcome.retry_after = Some(limited.retry_after);
                    outcome
                }
                PolicyError::Concurrency => soon(row(429, 429, R::Concurrency), 1),
                PolicyError::InitializeRate => soon(row(429, 429, R::InitializeRate), 1),
                PolicyError::Sessions => soon(row(429, 429, R::Sessions), 30),
                PolicyError::Subscriptions => soon(row(429, 429, R::Subscriptions), 5),
            },
            Self::Upstream(error) => match error {
                UpstreamError::Unreachable | UpstreamError::NoneReachable => {
                    row(502, 502, R::UpstreamUnreachable)
                }
                UpstreamError::NotStarted { retry_after_s } => {
                    soon(row(503, 503, R::UpstreamUnreachable), *retry_after_s)
                }
                UpstreamError::OutOfOrder { retry_after_s } => {
                    soon(row(503, 503, R::UpstreamUnhealthy), *retry_after_s)
                }
                UpstreamError::TooManyListSessions => soon(row(503, 503, R::Sessions), 1),
                UpstreamError::ListSessionRate => soon(row(429, 429, R::InitializeRate), 1),
                UpstreamError::ListSessionsOfPrincipal => soon(row(429, 429, R::Sessions), 30),
                UpstreamError::TooManyChildren => soon(row(503, 503, R::UpstreamConnections), 10),
                UpstreamError::TooManyConnections => soon(row(503, 503, R::UpstreamConnections), 1),
                UpstreamError::Reset => row(502, 502, R::UpstreamReset),
                UpstreamError::OtherEra => row(502, 502, R::UpstreamEra),
                UpstreamError::TooManyRounds => row(502, 502, R::InputRequests),
                UpstreamError::TooManyBridged => soon(row(503, 503, R::BridgeSessions), 1),
                UpstreamError::TooManySuspended => soon(row(503, 503, R::SuspendedCalls), 30),
                UpstreamError::SessionLost => row(502, 502, R::UpstreamSession),
                UpstreamError::TimedOut => row(504, 504, R::UpstreamTimeout),
                UpstreamError::Nonsense | UpstreamError::TooLarge | UpstreamError::SessionDoubted => {
                    row(502, 502, R::UpstreamInvalid)
                }
                UpstreamError::Credentials => row(502, 502, R::UpstreamCredentials),
                UpstreamError::NoToken => soon(row(503, 503, R::UpstreamCredentials), 5),
                UpstreamError::Busy { status, retry_after_s } => {
                    let busy = row(status.as_u16(), i32::from(status.as_u16()), R::UpstreamBusy);
                    match retry_after_s {
                        Some(seconds) => soon(busy, *seconds),
                        None => busy,
                    }
                }
            },
            Self::Gateway(error) => match error {
                GatewayError::SharedLimits => soon(row(503, 503, R::SharedLimits), 1),
                GatewayError::TokenKeys => soon(row(503, 503, R::TokenKeys), 2),
                GatewayError::Buffers => soon(row(503, 503, R::Buffers), 1),
                GatewayError::Draining => soon(row(503, 503, R::Draining), 1),
                GatewayError::Sessions => soon(row(503, 503, R::Sessions), 30),
                GatewayError::NamesUnknown => soon(row(503, 503, R::NamesUnknown), 1),
                GatewayError::Subscriptions => soon(row(503, 503, R::Subscriptions), 5),
                GatewayError::LineCalls => soon(row(503, 503, R::SseRequests), 1),
                GatewayError::SessionMessages => soon(row(503, 503, R::SessionMessages), 1),
                GatewayError::Streams => soon(row(503, 503, R::Streams), 5),
            },
        }
    }
}
