//! The one table that turns a failure into an HTTP status, a JSON-RPC error and a metric label.

use std::time::Duration;

use http::StatusCode;

use self::Reason as R;
use super::{ClientError, Error, GatewayError, NotOpened, PolicyError, UpstreamError};

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
        SlowClient = "slow_client",
        UpstreamTimeout = "upstream_timeout",
        UpstreamStarting = "upstream_starting",
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
        Arguments = "arguments",
        Scope = "scope",
        Rate = "rate",
        Concurrency = "concurrency",
        Pinned = "pinned",
        UpstreamUnhealthy = "upstream_unhealthy",
        SharedLimits = "shared_limits",
        PinsUnknown = "pins_unknown",
        TokenKeys = "token_keys",
        SignIns = "sign_ins",
        /// The client went away before its reply was complete, or cancelled the call.
        Cancelled = "cancelled",
    }
}

impl Reason {
    /// How many reasons there are: the size of a table indexed by `reason as usize`.
    pub const COUNT: usize = Self::ALL.len();
}

impl WireError {
    /// The `data` of a JSON-RPC error, with a comma before it: `Retry-After` for clients that see no headers. Empty where
    /// there is none.
    pub(super) fn data(&self) -> String {
        let retry_after =
            self.retry_after.map(|after| format!(",\"data\":{{\"retryAfterMs\":{}}}", after.as_millis()));
        retry_after.unwrap_or_default()
    }
}

impl Error {
    /// The row of the table for this error.
    pub fn outcome(&self) -> WireError {
        match self {
            Self::Client(error) => error.row(),
            Self::Policy(error) => error.row(),
            Self::Upstream(error) => error.row(),
            Self::Gateway(error) => error.row(),
        }
    }
}

impl ClientError {
    fn row(&self) -> WireError {
        match self {
            Self::NoEndpoint => row(404, 404, R::NoEndpoint),
            Self::HttpMethod { .. } => row(405, 405, R::HttpMethod),
            Self::SessionGone => row(404, 404, R::Session),
            Self::NoSession | Self::EventGone | Self::EventUnknown => row(400, -32600, R::Session),
            Self::ContentType | Self::Encoded => row(415, 415, R::MediaType),
            Self::NotAcceptable => row(406, 406, R::MediaType),
            Self::Host => row(400, 400, R::Host),
            Self::Misdirected => row(421, 421, R::Host),
            Self::TooLarge { .. } => row(413, 413, R::TooLarge),
            Self::TooManyHeaders => row(431, 431, R::TooLarge),
            Self::TooSlow => row(408, 408, R::TooSlow),
            Self::Aborted => row(400, 400, R::Aborted),
            Self::NotJson | Self::TooDeep => row(400, -32700, R::NotJson),
            Self::NotJsonRpc { .. } => row(400, -32600, R::NotJsonRpc),
            Self::HeaderMismatch { .. } => row(400, -32020, R::HeaderMismatch),
            Self::Version { .. } => row(400, -32022, R::Version),
            Self::Params { .. } => row(400, -32602, R::Params),
            Self::Capability { .. } => row(400, -32021, R::Capability),
            Self::Method => row(404, -32601, R::Method),
            Self::UnknownName { .. } => row(200, -32602, R::UnknownName),
            Self::Cancelled => row(200, -32800, R::Cancelled),
            Self::Cursor => row(200, -32602, R::Params),
        }
    }
}

impl PolicyError {
    fn row(&self) -> WireError {
        match self {
            Self::Origin => row(403, 403, R::Origin),
            Self::Host => row(403, 403, R::Host),
            Self::NoCredentials | Self::BadCredentials | Self::BadKey => row(401, 401, R::Credentials),
            Self::Forbidden => row(403, 403, R::Forbidden),
            // No other credential would help: clients take a 403 for a reason to sign in again.
            Self::Arguments { .. } => row(200, 403, R::Arguments),
            Self::MissingArgument { .. } | Self::AmbiguousArgument(_) => row(400, -32602, R::Params),
            Self::Scope { .. } => row(403, 403, R::Scope),
            Self::Pinned | Self::PinnedVaries { .. } => row(200, 403, R::Pinned),
            Self::Rate(limited) => {
                WireError { retry_after: Some(limited.retry_after), ..row(429, 429, R::Rate) }
            }
            Self::Concurrency => soon(429, R::Concurrency, 1),
            Self::InitializeRate => soon(429, R::InitializeRate, 1),
            Self::Sessions => soon(429, R::Sessions, 30),
            Self::Buffers => soon(429, R::Buffers, 1),
            Self::Subscriptions => soon(429, R::Subscriptions, 5),
        }
    }
}

impl UpstreamError {
    fn row(&self) -> WireError {
        match self {
            Self::Unreachable | Self::NoneListed => row(502, 502, R::UpstreamUnreachable),
            Self::NotStarted { retry_after_s } | Self::Starting { retry_after_s } => {
                soon(503, R::UpstreamUnreachable, *retry_after_s)
            }
            Self::Reconfigured => soon(503, R::UpstreamUnreachable, 1),
            Self::StillStarting(starting) => soon(503, R::UpstreamStarting, starting.retry_after_s),
            Self::OutOfOrder { retry_after_s } => soon(503, R::UpstreamUnhealthy, *retry_after_s),
            Self::TooManyListSessions => soon(503, R::Sessions, 1),
            Self::ListSessionRate => soon(429, R::InitializeRate, 1),
            Self::ListSessionsOfPrincipal => soon(429, R::Sessions, 30),
            Self::TooManyChildren { .. } => soon(503, R::UpstreamConnections, 10),
            Self::TooManyConnections => soon(503, R::UpstreamConnections, 1),
            Self::ConnectionsOfPrincipal => soon(429, R::UpstreamConnections, 1),
            Self::Reset => row(502, 502, R::UpstreamReset),
            Self::SlowClient => row(502, 502, R::SlowClient),
            Self::OtherEra => row(502, 502, R::UpstreamEra),
            Self::TooManyRounds => row(502, 502, R::InputRequests),
            Self::TooManyBridged => soon(503, R::BridgeSessions, 1),
            Self::BridgedOfPrincipal => soon(429, R::BridgeSessions, 1),
            Self::TooManySuspended => soon(503, R::SuspendedCalls, 30),
            Self::NoBuffers => soon(503, R::Buffers, 1),
            Self::BuffersOfPrincipal => soon(429, R::Buffers, 1),
            Self::SessionLost => row(502, 502, R::UpstreamSession),
            Self::TimedOut => row(504, 504, R::UpstreamTimeout),
            Self::NotOpened(why) => match &**why {
                NotOpened::Failed(error) => error.row(),
                NotOpened::Refused { .. } | NotOpened::Revision(_) => row(502, 502, R::UpstreamInvalid),
            },
            Self::Nonsense
            | Self::Refused(_)
            | Self::TooLarge
            | Self::LineTooLarge { .. }
            | Self::SessionDoubted
            | Self::Status { .. }
            | Self::Redirected(_)
            | Self::UpstreamHost
            | Self::OtherMedia { .. }
            | Self::Encoded { .. } => row(502, 502, R::UpstreamInvalid),
            Self::Credentials | Self::ClientCredentials { .. } => row(502, 502, R::UpstreamCredentials),
            Self::NoToken => soon(503, R::UpstreamCredentials, 5),
            Self::Busy { status, retry_after_s: Some(seconds) } => {
                soon(status.as_u16(), R::UpstreamBusy, *seconds)
            }
            Self::Busy { status, .. } => row(status.as_u16(), status.as_u16().into(), R::UpstreamBusy),
        }
    }
}

impl GatewayError {
    fn row(&self) -> WireError {
        match self {
            Self::SharedLimits => soon(503, R::SharedLimits, 1),
            Self::PinsUnknown => soon(503, R::PinsUnknown, 1),
            Self::TokenKeys => soon(503, R::TokenKeys, 2),
            Self::SignIns => soon(503, R::SignIns, 2),
            Self::Buffers => soon(503, R::Buffers, 1),
            Self::Draining => soon(503, R::Draining, 1),
            Self::Sessions => soon(503, R::Sessions, 30),
            Self::NamesUnknown => soon(503, R::NamesUnknown, 1),
            Self::Subscriptions => soon(503, R::Subscriptions, 5),
            Self::LineCalls => soon(503, R::SseRequests, 1),
            Self::SessionMessages => soon(503, R::SessionMessages, 1),
            Self::Streams => soon(503, R::Streams, 5),
        }
    }
}

fn row(status: u16, code: i32, reason: Reason) -> WireError {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    WireError { status, code, reason, retry_after: None }
}

/// A call to be made again after some seconds; the code is that of the status.
fn soon(status: u16, reason: Reason, seconds: u32) -> WireError {
    WireError { retry_after: Some(Duration::from_secs(seconds.into())), ..row(status, status.into(), reason) }
}
