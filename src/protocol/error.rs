//! Every way a call can fail, by whose fault it is, and the one table that turns a failure into an HTTP
//! status, a JSON-RPC error and a metric label.
//!
//! Nothing else in the crate writes an error body. Messages tell the caller what to do next; they never
//! hold a secret, an upstream's address or anything an upstream said.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::json::quote;
use super::version::{self, Era, Eras};

/// The code of a header mismatch in the draft that brought mirrored headers to sessions.
const LEGACY_HEADER_MISMATCH: i32 = -32001;

/// Why a call was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client sent something it must not send.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The operator does not allow it.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A server behind the gateway failed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The gateway itself cannot serve the call now.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

/// Faults of the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No endpoint has this path.
    #[error("there is no MCP endpoint at this path")]
    NoEndpoint,
    /// The endpoint does not take this HTTP method.
    #[error("this HTTP method is not served here; use one of those in Allow")]
    HttpMethod {
        /// What it takes.
        allow: &'static str,
    },
    /// A legacy request that needs a session came without one.
    #[error("start a session with initialize and send its Mcp-Session-Id with every request")]
    NoSession,
    /// The session is unknown, over, or another's.
    #[error("this session does not exist or is over; start a new one with initialize")]
    SessionGone,
    /// What came after an event of a reply cannot be had, and the client holds a stream already.
    #[error("what came after this event cannot be had any more; go on without it")]
    EventGone,
    /// `Content-Type` is not JSON.
    #[error("send the message as Content-Type: application/json")]
    ContentType,
    /// `Accept` admits neither JSON nor SSE.
    #[error("accept application/json and text/event-stream")]
    NotAcceptable,
    /// `Host` is missing, doubled or malformed.
    #[error("send exactly one valid Host")]
    Host,
    /// The host is that of another certificate than the connection was shown.
    #[error("this connection was made for another host name; make one for this")]
    Misdirected,
    /// The body is larger than `body_bytes_max`.
    #[error("the message is larger than the {bytes_max} bytes this gateway accepts")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// More header fields than `headers_max`.
    #[error("the request has too many header fields")]
    TooManyHeaders,
    /// The body did not arrive in `body_timeout`.
    #[error("the message took too long to arrive")]
    TooSlow,
    /// The connection broke while the body was read; nobody is left to read the reply.
    #[error("the message did not arrive whole")]
    Aborted,
    /// The body is not JSON.
    #[error("the message is not valid JSON")]
    NotJson,
    /// The body is JSON nested deeper than `json_depth_max`.
    #[error("the message is nested too deeply")]
    TooDeep,
    /// The body is JSON but not one JSON-RPC message of this revision.
    #[error("not a valid JSON-RPC 2.0 message: {why}")]
    NotJsonRpc {
        /// What is wrong.
        why: &'static str,
    },
    /// Headers and body disagree, or a required header is missing or malformed.
    #[error("header mismatch: {why}")]
    HeaderMismatch {
        /// What is wrong.
        why: Cow<'static, str>,
    },
    /// The protocol version is unknown, or not served here.
    #[error("unsupported protocol version")]
    Version {
        /// The version the client asked for.
        requested: String,
        /// What it may ask for.
        served: Eras,
    },
    /// A field of `params` is missing or of the wrong type.
    #[error("{why}")]
    Params {
        /// What is wrong.
        why: &'static str,
    },
    /// The client did not declare a capability that the request needs.
    #[error("this request needs a client capability that was not declared")]
    Capability {
        /// The missing capabilities, as a JSON object.
        required: &'static str,
    },
    /// The method does not exist here.
    #[error("method not found")]
    Method,
    /// No tool, prompt, resource or task of that name is offered here.
    #[error("unknown {kind}: {name}")]
    UnknownName {
        /// `tool`, `prompt`, `resource` or `task`.
        kind: &'static str,
        /// The name as the client wrote it.
        name: String,
    },
    /// A cursor that this endpoint did not give out.
    #[error("unknown cursor; list again from the start")]
    Cursor,
}

/// Decisions of the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The `Origin` is not among the allowed ones.
    #[error("requests from this origin are not allowed")]
    Origin,
    /// The `Host` is not one this endpoint answers to.
    #[error("this host name is not served here")]
    Host,
    /// No credentials were presented.
    #[error("present an API key or an access token: Authorization: Bearer <key or token>")]
    NoCredentials,
    /// The credentials are not valid.
    #[error("the credentials are not valid")]
    BadCredentials,
    /// A rule does not let this caller do it, and the caller may know of it.
    #[error("these credentials do not allow this call")]
    Forbidden,
    /// More scopes would let this caller do it.
    #[error("this call needs more scopes: {required}")]
    Scope {
        /// All scopes of the operation, with spaces between.
        required: Arc<str>,
    },
    /// A limit of rate is met.
    #[error("more calls than the limit `{}` allows, try again later", .0.limit)]
    Rate(Box<Limited>),
    /// The upstream has as many calls as it may, and as many wait.
    #[error("as many calls are under way as the server behind this name may have, try again in a moment")]
    Concurrency,
    /// The definition of the tool changed, and nobody approved it.
    #[error("the definition of this tool changed; the operator has to approve it first")]
    Pinned,
    /// `initialize_rate_max` is met.
    #[error("too many sessions are opened at once, try again in a moment")]
    InitializeRate,
    /// `sessions_per_principal_max` or `upstream_sessions_per_principal_max` is met.
    #[error("too many sessions are open with these credentials; end some with DELETE, or try again later")]
    Sessions,
    /// `subscriptions_per_principal_max` is met.
    #[error("too many subscriptions are open with these credentials; end some, or try again later")]
    Subscriptions,
}

/// A limit of rate that is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The limit's name.
    pub limit: Arc<str>,
    /// Requests in a period.
    pub quota: u32,
    /// The period.
    pub period: Duration,
    /// When a request of this weight will pass.
    pub retry_after: Duration,
}

/// Faults of a server behind the gateway. Each says whether the call may have been executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// No connection could be made; nothing was sent.
    #[error("the server behind this name cannot be reached; the call was not executed, try again later")]
    Unreachable,
    /// The connection broke after the request may have been sent.
    #[error("the server behind this name closed the connection; the outcome of the call is unknown")]
    Reset,
    /// No reply in time.
    #[error("the server behind this name did not answer in time; the outcome of the call is unknown")]
    TimedOut,
    /// The reply is not one MCP allows.
    #[error(
        "the server behind this name gave an answer that is not valid MCP; the outcome of the call is unknown"
    )]
    Nonsense,
    /// The reply is larger than `reply_bytes_max`.
    #[error("the answer of the server behind this name is larger than this gateway accepts")]
    TooLarge,
    /// The upstream answered 401 or 403 to the gateway's own credentials.
    #[error("the gateway's credentials for this upstream were refused")]
    Credentials,
    /// There is no token to show the upstream.
    #[error(
        "the gateway has no credentials for this upstream now; the call was not executed, try again later"
    )]
    NoToken,
    /// The upstream answered 429 or 503.
    #[error("the server behind this name is busy, try again later")]
    Busy {
        /// 429 or 503.
        status: StatusCode,
        /// Its `Retry-After`, where it gave one in seconds.
        retry_after_s: Option<u32>,
    },
    /// The upstream speaks only the other era.
    #[error(
        "the server behind this name speaks another revision of MCP than this client, and this gateway is told not to translate"
    )]
    OtherEra,
    /// A modern server asked for input more often than it may during one call.
    #[error("the server behind this name asks again and again; the call was given up")]
    TooManyRounds,
    /// As many sessions with a legacy server as there may be for modern clients are in use.
    #[error(
        "the gateway has as many sessions with the server behind this name as it may, try again in a moment"
    )]
    TooManyBridged,
    /// As many calls as may wait for answers to a legacy server's questions.
    #[error("the gateway keeps as many unanswered calls as it may, try again later")]
    TooManyParked,
    /// The upstream forgot a session twice in a row.
    #[error("the server behind this name does not keep its sessions; the call was not executed")]
    SessionLost,
    /// The upstream answered 400 within a session, which may mean that it forgot the session.
    #[error("the server behind this name refused the call as malformed")]
    SessionDoubted,
    /// Every connection to upstreams that this process may have is in use.
    #[error("the gateway has as many calls under way as it may, try again in a moment")]
    TooManyConnections,
    /// Its process cannot be started, or ends again and again before it answers anything.
    #[error("the server behind this name does not start; the call was not executed, try again later")]
    NotStarted {
        /// When it is started next.
        retry_after_s: u32,
    },
    /// There is no session in which to ask for a list.
    #[error(transparent)]
    NoListSession(#[from] NoListSession),
    /// `children_max` processes run.
    #[error("the gateway runs as many processes for the server behind this name as it may, try again later")]
    TooManyChildren,
    /// No replica is fit for a request, or the breaker of every one is open.
    #[error("the server behind this name is out of order; the call was not executed, try again later")]
    OutOfOrder {
        /// When one is tried next.
        retry_after_s: u32,
    },
    /// No upstream of the endpoint gave a list.
    #[error("none of the servers behind this endpoint can be reached, try again later")]
    NoneReachable,
}

/// Why a legacy upstream cannot be asked for a list now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoListSession {
    /// `list_sessions_max` are in use, or were opened just now.
    #[error(
        "the gateway has as many sessions for lists of the server behind this name as it may, try again in a moment"
    )]
    Busy,
    /// `initialize_rate_max` of the client is met.
    #[error(
        "this list takes a session of its own, and this client opens sessions too fast, try again in a moment"
    )]
    Rate,
    /// `upstream_sessions_per_principal_max` is met.
    #[error("this list takes a session of its own, and this client has as many as it may, try again later")]
    OfPrincipal,
}

impl NoListSession {
    /// Its status, its row, and when to try again.
    fn row(self) -> (u16, Reason, u32) {
        match self {
            Self::Busy => (503, Reason::Sessions, 1),
            Self::Rate => (429, Reason::InitializeRate, 1),
            Self::OfPrincipal => (429, Reason::Sessions, 30),
        }
    }
}

/// States of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// `buffered_bytes_max` is used up.
    #[error("the gateway holds as many messages as it may, try again in a moment")]
    Buffers,
    /// The process is about to end.
    #[error("the gateway is about to stop; connect again in a moment")]
    Draining,
    /// What replicas share cannot be reached, and the limit allows nothing without it.
    #[error("the gateway cannot count this call against its limit now, try again in a moment")]
    SharedLimits,
    /// The keys of the issuer of a token cannot be had.
    #[error("the gateway cannot check this token now, try again in a moment")]
    TokenKeys,
    /// `upstream_sessions_max` or `sessions_max` is used up.
    #[error("the gateway keeps as many sessions as it may, try again later")]
    Sessions,
    /// A bare name cannot be routed before every upstream was listed once.
    #[error("the gateway has not yet learned the names behind this endpoint, try again in a moment")]
    NamesUnknown,
    /// `subscriptions_max` clients listen.
    #[error("the gateway has as many subscriptions open as it may, try again later")]
    Subscriptions,
    /// A stream of HTTP+SSE has as many requests under way as one may.
    #[error("this stream has as many requests under way as it may, try again in a moment")]
    LineCalls,
    /// As many messages of one session wait for an upstream as `session_messages_max`.
    #[error(
        "as many messages of this session wait for the server behind it as may, send this one again in a moment"
    )]
    SessionMessages,
    /// `streams_max` or `streams_per_principal_max` is used up.
    #[error("the gateway has as many streams open as it may, try again later")]
    Streams,
}

/// An [`Error`] as the wire and the metrics see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The HTTP status in the modern era.
    pub status: StatusCode,
    /// The JSON-RPC error code.
    pub code: i32,
    /// Which row of the table it is.
    pub reason: Reason,
    /// For `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// The rows of the table, as a bounded metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the labels below say it
pub enum Reason {
    NoEndpoint,
    HttpMethod,
    MediaType,
    Host,
    Origin,
    TooLarge,
    TooSlow,
    Aborted,
    NotJson,
    NotJsonRpc,
    HeaderMismatch,
    Version,
    Params,
    Method,
    UnknownName,
    Session,
    Credentials,
    UpstreamUnreachable,
    UpstreamReset,
    UpstreamTimeout,
    UpstreamInvalid,
    UpstreamCredentials,
    UpstreamBusy,
    UpstreamConnections,
    UpstreamSession,
    UpstreamEra,
    Rounds,
    BridgeSessions,
    Parked,
    Buffers,
    Draining,
    Sessions,
    NamesUnknown,
    Capability,
    Subscriptions,
    InitializeRate,
    LineCalls,
    SessionMessages,
    Streams,
    Forbidden,
    Scope,
    Rate,
    Concurrency,
    Pinned,
    UpstreamOutOfOrder,
    SharedLimits,
    TokenKeys,
    /// The client went away before its reply was complete.
    Cancelled,
}

impl Reason {
    /// How many reasons there are: the size of a table indexed by `reason as usize`.
    pub const COUNT: usize = Reason::Cancelled as usize + 1;

    /// The metric and log label.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoEndpoint => "no_endpoint",
            Self::HttpMethod => "http_method",
            Self::MediaType => "media_type",
            Self::Host => "host",
            Self::Origin => "origin",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::Aborted => "aborted",
            Self::NotJson => "not_json",
            Self::NotJsonRpc => "not_json_rpc",
            Self::HeaderMismatch => "header_mismatch",
            Self::Version => "version",
            Self::Params => "params",
            Self::Method => "method",
            Self::UnknownName => "unknown_name",
            Self::Session => "session",
            Self::Credentials => "credentials",
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamReset => "upstream_reset",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::UpstreamInvalid => "upstream_invalid",
            Self::UpstreamCredentials => "upstream_credentials",
            Self::UpstreamBusy => "upstream_busy",
            Self::UpstreamConnections => "upstream_connections",
            Self::UpstreamSession => "upstream_session",
            Self::UpstreamEra => "upstream_era",
            Self::Rounds => "rounds",
            Self::BridgeSessions => "bridge_sessions",
            Self::Parked => "parked",
            Self::Buffers => "buffers",
            Self::Draining => "draining",
            Self::Sessions => "sessions",
            Self::NamesUnknown => "names_unknown",
            Self::Capability => "capability",
            Self::Subscriptions => "subscriptions",
            Self::InitializeRate => "initialize_rate",
            Self::LineCalls => "line_calls",
            Self::SessionMessages => "session_messages",
            Self::Streams => "streams",
            Self::Forbidden => "forbidden",
            Self::Scope => "scope",
            Self::Rate => "rate",
            Self::Concurrency => "concurrency",
            Self::Pinned => "pinned",
            Self::UpstreamOutOfOrder => "upstream_out_of_order",
            Self::SharedLimits => "shared_limits",
            Self::TokenKeys => "token_keys",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Error {
    /// The row of the table for this error.
    #[expect(clippy::too_many_lines, reason = "one row for each error")]
    pub fn outcome(&self) -> Outcome {
        use Reason as R;
        let row = |status: u16, code: i32, reason: Reason| Outcome {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code,
            reason,
            retry_after: None,
        };
        let soon = |mut outcome: Outcome, seconds: u32| {
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
                    soon(row(503, 503, R::UpstreamOutOfOrder), *retry_after_s)
                }
                UpstreamError::NoListSession(why) => {
                    let (status, reason, retry_after_s) = why.row();
                    soon(row(status, status.into(), reason), retry_after_s)
                }
                UpstreamError::TooManyChildren => soon(row(503, 503, R::UpstreamConnections), 10),
                UpstreamError::TooManyConnections => soon(row(503, 503, R::UpstreamConnections), 1),
                UpstreamError::Reset => row(502, 502, R::UpstreamReset),
                UpstreamError::OtherEra => row(502, 502, R::UpstreamEra),
                UpstreamError::TooManyRounds => row(502, 502, R::Rounds),
                UpstreamError::TooManyBridged => soon(row(503, 503, R::BridgeSessions), 1),
                UpstreamError::TooManyParked => soon(row(503, 503, R::Parked), 30),
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
                GatewayError::LineCalls => soon(row(503, 503, R::LineCalls), 1),
                GatewayError::SessionMessages => soon(row(503, 503, R::SessionMessages), 1),
                GatewayError::Streams => soon(row(503, 503, R::Streams), 5),
            },
        }
    }

    /// The row as a client of `era` is shown it.
    pub fn outcome_in(&self, era: Era) -> Outcome {
        let mut outcome = self.outcome();
        if era == Era::Legacy && matches!(self, Self::Client(ClientError::HeaderMismatch { .. })) {
            outcome.code = LEGACY_HEADER_MISMATCH;
        }
        outcome
    }

    /// True for faults that come before there is a request whose outcome could be told. To legacy clients all others
    /// are told in an HTTP 200: some give up the whole session at any other status.
    pub fn is_of_transport(&self) -> bool {
        match self {
            Self::Client(error) => !matches!(
                error,
                ClientError::Params { .. }
                    | ClientError::Method
                    | ClientError::UnknownName { .. }
                    | ClientError::Cursor
            ),
            Self::Policy(error) => matches!(
                error,
                PolicyError::Origin
                    | PolicyError::Host
                    | PolicyError::NoCredentials
                    | PolicyError::BadCredentials
                    | PolicyError::Scope { .. }
            ),
            Self::Upstream(_) => false,
            Self::Gateway(error) => {
                matches!(
                    error,
                    GatewayError::Buffers
                        | GatewayError::TokenKeys
                        | GatewayError::Draining
                        | GatewayError::Streams
                        | GatewayError::LineCalls
                        | GatewayError::SessionMessages
                )
            }
        }
    }

    /// The JSON-RPC error response to a client of `era`. `id` is the literal of the request's id, left out when it
    /// could not be read.
    pub fn body(&self, id: Option<&str>, era: Era) -> String {
        let Outcome { code, retry_after, .. } = self.outcome_in(era);
        let data = match self {
            Self::Client(ClientError::Version { requested, served }) => {
                let supported: Vec<String> =
                    version::supported_versions(*served).into_iter().map(quote).collect();
                format!(
                    ",\"data\":{{\"supported\":[{}],\"requested\":{}}}",
                    supported.join(","),
                    quote(requested)
                )
            }
            Self::Client(ClientError::Capability { required }) => {
                format!(",\"data\":{{\"requiredCapabilities\":{required}}}")
            }
            _ => match retry_after.filter(|_| era == Era::Legacy) {
                Some(after) => format!(",\"data\":{{\"retryAfterMs\":{}}}", after.as_millis()),
                None => String::new(),
            },
        };
        let message = quote(&self.to_string());
        error_body(id, &format!("{{\"code\":{code},\"message\":{message}{data}}}"))
    }

    /// True where the fault is the client's or the operator's decision, false where something behind or in
    /// the gateway failed. Decides the log level.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Policy(_))
    }
}

/// The JSON-RPC response that carries `error`, a JSON object; `id` is its literal.
pub fn error_body(id: Option<&str>, error: &str) -> String {
    let id = id.map(|id| format!("\"id\":{id},")).unwrap_or_default();
    format!("{{\"jsonrpc\":\"2.0\",{id}\"error\":{error}}}")
}

impl ClientError {
    /// A header mismatch with a fixed explanation.
    pub fn mismatch(why: &'static str) -> Self {
        Self::HeaderMismatch { why: Cow::Borrowed(why) }
    }
}
