//! Every way a call can fail, by whose fault it is; `wire_error.rs` says what comes of each, `causes.rs` when it happens.
//!
//! Nothing else in the crate writes an error body. Messages tell the caller what to do next; they never hold a secret. Of
//! what an upstream said they hold only how it refused to open a session, and where it redirects to.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::arguments::AmbiguousArgument;
use super::json::quote;
use super::version::{self, Era, Eras};

mod causes;
mod open_text;
mod upstream_reply;
mod wire_error;

pub use causes::causes;
pub use open_text::{MASK, without_secrets};
pub use upstream_reply::{NotOpened, Redirect, Refusal};
pub use wire_error::{Reason, WireError};

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
#[expect(missing_docs, reason = "the messages say it")]
pub enum ClientError {
    #[error("there is no MCP endpoint at this path")]
    NoEndpoint,
    #[error("this HTTP method is not served here; use one of those in Allow")]
    HttpMethod { allow: &'static str },
    #[error("start a session with initialize and send its Mcp-Session-Id with every request")]
    NoSession,
    /// The session is unknown, over, or another's.
    #[error("this session does not exist or is over; start a new one with initialize")]
    SessionGone,
    /// What came after an event of a reply cannot be had, and the client holds a stream already.
    #[error("what came after this event cannot be had any more; go on without it")]
    EventGone,
    /// A client comes back with the id of an event that its session was not given.
    #[error("this session was given no event of this id; leave out Last-Event-ID")]
    EventUnknown,
    #[error("send the message as Content-Type: application/json")]
    ContentType,
    #[error("send the message as it is, without Content-Encoding")]
    Encoded,
    #[error("accept application/json and text/event-stream")]
    NotAcceptable,
    #[error("send exactly one valid Host")]
    Host,
    /// The host is that of another certificate than the connection was shown.
    #[error("this connection was made for another host name; make one for this")]
    Misdirected,
    /// The body is larger than `body_bytes_max`.
    #[error("the message is larger than the {bytes_max} bytes this gateway accepts")]
    TooLarge { bytes_max: usize },
    /// More header fields than `headers_max`.
    #[error("the request has too many header fields")]
    TooManyHeaders,
    /// The body did not arrive in `body_timeout`.
    #[error("the message took too long to arrive")]
    TooSlow,
    /// The connection broke while the body was read; nobody is left to read the reply.
    #[error("the message did not arrive whole")]
    Aborted,
    #[error("the message is not valid JSON")]
    NotJson,
    /// The body is JSON nested deeper than `json_depth_max`.
    #[error("the message is nested too deeply")]
    TooDeep,
    #[error("not a valid JSON-RPC 2.0 message: {why}")]
    NotJsonRpc { why: &'static str },
    #[error("header mismatch: {why}")]
    HeaderMismatch { why: Cow<'static, str> },
    #[error("unsupported protocol version")]
    Version { requested: String, served: Eras },
    #[error("{why}")]
    Params { why: &'static str },
    /// The client did not declare a capability that the request needs.
    #[error("this request needs a client capability that was not declared")]
    Capability {
        /// The missing capabilities, as a JSON object.
        required: &'static str,
    },
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
    /// Its client has cancelled the call, and the server does not answer it any more.
    #[error("the call was cancelled")]
    Cancelled,
    /// A cursor that this endpoint did not give out.
    #[error("unknown cursor; list again from the start")]
    Cursor,
}

/// Decisions of the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PolicyError {
    #[error("requests from this origin are not allowed")]
    Origin,
    #[error("this host name is not served here")]
    Host,
    #[error("present an API key or an access token: Authorization: Bearer <key or token>")]
    NoCredentials,
    #[error("the credentials are not valid")]
    BadCredentials,
    /// It has the form of a key of the gateway: no visit to a browser would mend it.
    #[error("the API key is not valid")]
    BadKey,
    /// A rule does not let this caller do it, and the caller may know of it.
    #[error("these credentials do not allow this call")]
    Forbidden,
    /// A rule decides by arguments, and these are not what it lets pass.
    #[error("these credentials do not allow this call with these arguments{}", by_rule(.rule.as_deref()))]
    Arguments {
        /// The rule that denies it. `None`: no rule allows it.
        rule: Option<Arc<str>>,
    },
    /// A limit counts by an argument that a call lacks, or has in a type that nothing is counted by.
    #[error(
        "the limit `{limit}` counts by the argument {argument}: send a string, a number or a boolean there"
    )]
    MissingArgument {
        /// The limit's name.
        limit: Arc<str>,
        /// The argument's path.
        argument: Box<str>,
    },
    /// An argument that a rule or a limit goes by could be read in two ways.
    #[error("{0}")]
    AmbiguousArgument(AmbiguousArgument),
    #[error("this call needs more scopes: {required}")]
    Scope {
        /// All scopes of the operation, with spaces between.
        required: Arc<str>,
    },
    #[error("more calls than the limit `{}` allows, try again later", .0.limit)]
    Rate(Box<Limited>),
    /// The upstream has as many calls as it may, and as many wait.
    #[error("as many calls are under way as the server behind this name may have, try again in a moment")]
    Concurrency,
    #[error("the definition of this tool changed; the operator has to approve it first")]
    Pinned,
    /// Likewise, where two processes of one server define it differently.
    #[error(
        "the definition of this tool differs from process to process of its server, first in {member}, so that no approval lasts; the operator has to mend the server"
    )]
    PinnedVaries { member: Arc<str> },
    /// `initialize_rate_max` is met.
    #[error("too many sessions are opened at once, try again in a moment")]
    InitializeRate,
    /// `sessions_per_principal_max` or `upstream_sessions_per_principal_max` is met.
    #[error("this client has too many sessions open; end some with DELETE, or try again later")]
    Sessions,
    /// Of `buffered_bytes_max` this caller holds more than its share, and little is left.
    #[error("the gateway holds as many messages of this client as it may, try again in a moment")]
    Buffers,
    /// `subscriptions_per_principal_max` is met.
    #[error("this client has too many subscriptions open; end some, or try again later")]
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
#[expect(missing_docs, reason = "the messages say it")]
pub enum UpstreamError {
    #[error("the server behind this name cannot be reached; the call was not executed, try again later")]
    Unreachable,
    #[error("the server behind this name closed the connection; the outcome of the call is unknown")]
    Reset,
    /// What waits for its client is as much as may, and others would wait with it.
    #[error(
        "this client reads more slowly than the server behind this name writes; the outcome of the call is unknown"
    )]
    SlowClient,
    #[error("the server behind this name did not answer in time; the outcome of the call is unknown")]
    TimedOut,
    #[error(
        "the server behind this name gave an answer that is not valid MCP; the outcome of the call is unknown"
    )]
    Nonsense,
    /// The upstream answered the gateway's own question, such as for a list, with an error of JSON-RPC.
    #[error("the server behind this name answered {0}")]
    Refused(Arc<Refusal>),
    /// The upstream answered with a status that is no success, and without a message.
    #[error(
        "the server behind this name answered HTTP {} without a message of MCP; the outcome of the call is unknown", .status.as_u16()
    )]
    Status {
        status: StatusCode,
        /// What the answer says it is made of, for operators.
        media: Option<Box<str>>,
    },
    #[error("the server behind this name answered {0}")]
    Redirected(Arc<Redirect>),
    /// The upstream answered 421.
    #[error(
        "the server behind this name does not accept the Host that it is sent (HTTP 421); the call was not executed"
    )]
    UpstreamHost,
    /// The answer is compressed, which nobody asked for.
    #[error(
        "the server behind this name answered in the content coding `{coding}`, which it was not asked for; the outcome of the call is unknown"
    )]
    Encoded { coding: Box<str> },
    /// The answer is made of something else than messages.
    #[error(
        "the server behind this name answered with `{media}`, which holds no message of MCP; the outcome of the call is unknown"
    )]
    OtherMedia { media: Box<str> },
    /// Nothing of the call was sent.
    #[error("no session could be opened with the server behind this name: {0}; the call was not executed")]
    NotOpened(Arc<NotOpened>),
    /// The reply is larger than `reply_bytes_max`.
    #[error("the answer of the server behind this name is larger than reply_bytes_max of this gateway")]
    TooLarge,
    /// Likewise, of a process or a stream of HTTP+SSE, which was read on to the end of it.
    #[error(
        "the answer of the server behind this name has {bytes} bytes, more than reply_bytes_max ({bytes_max}) of this gateway"
    )]
    LineTooLarge { bytes: u64, bytes_max: usize },
    /// The upstream answered 401 or 403 to the gateway's own credentials.
    #[error("the gateway's credentials for this upstream were refused")]
    Credentials,
    /// Likewise, where some of what it is shown is the client's own.
    #[error(
        "the server behind this name refused what it was shown, of which the client's own headers are a part: {headers}"
    )]
    ClientCredentials { headers: Arc<str> },
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
    /// Nearly as many as there may be are in use, and this caller uses more than its share.
    #[error(
        "this client uses as many sessions with the server behind this name as it may, try again in a moment"
    )]
    BridgedOfPrincipal,
    /// As many calls as may wait for answers to a legacy server's questions.
    #[error("the gateway keeps as many unanswered calls as it may, try again later")]
    TooManySuspended,
    /// There is no memory for what the upstream asks, or says, during a call.
    #[error("the gateway has no memory for what the server behind this name says, try again in a moment")]
    NoBuffers,
    /// Likewise, and this caller uses more than its share.
    #[error("this client uses as much of the gateway's memory as it may, try again in a moment")]
    BuffersOfPrincipal,
    /// The upstream forgot a session twice in a row.
    #[error("the server behind this name does not keep its sessions; the call was not executed")]
    SessionLost,
    /// The upstream answered 400 within a session, which may mean that it forgot the session.
    #[error("the server behind this name refused the call as malformed")]
    SessionDoubted,
    #[error("the gateway has as many calls under way as it may, try again in a moment")]
    TooManyConnections,
    /// Its process cannot be started, or ends again and again before it answers anything.
    #[error("the server behind this name does not start; the call was not executed, try again later")]
    NotStarted {
        /// When it is started next.
        retry_after_s: u32,
    },
    /// Its process was started, and has not answered anything yet.
    #[error(
        "the server behind this name is still starting; the call was not executed, try again in a moment"
    )]
    Starting {
        /// When to ask again.
        retry_after_s: u32,
    },
    /// A reload has replaced or removed the upstream while its program was waited for.
    #[error("the configuration has changed meanwhile; the call was not executed, try again in a moment")]
    Reconfigured,
    /// `list_sessions_max` are in use, or were opened just now.
    #[error(
        "the gateway has as many sessions for lists of the server behind this name as it may, try again in a moment"
    )]
    TooManyListSessions,
    /// `initialize_rate_max` of the client is met.
    #[error(
        "this list takes a session of its own, and this client opens sessions too fast, try again in a moment"
    )]
    ListSessionRate,
    /// `upstream_sessions_per_principal_max` is met.
    #[error("this list takes a session of its own, and this client has as many as it may, try again later")]
    ListSessionsOfPrincipal,
    /// Nearly all connections to it are in use, and this caller uses more than its share.
    #[error(
        "this client uses as many connections to the server behind this name as it may, try again in a moment"
    )]
    ConnectionsOfPrincipal,
    /// As many processes run as may.
    #[error("{bound}; the call was not executed, try again later")]
    TooManyChildren {
        /// The bound that is met.
        bound: ProcessBound,
    },
    /// No replica is fit for a request, or the breaker of every one is open.
    #[error("the server behind this name is unhealthy; the call was not executed, try again later")]
    OutOfOrder {
        /// When one is tried next.
        retry_after_s: u32,
    },
    #[error("none of the servers behind this endpoint gives this list now, try again later")]
    NoneListed,
    /// There is no list yet.
    #[error("still starting: {} ({} of {} are up)", .0.names, .0.up, .0.of)]
    StillStarting(Box<StillStarting>),
}

/// The keys that bound how many processes run, by whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessBound {
    /// `children_max` of one upstream.
    OfUpstream,
    /// `children_max` of `[limits]`.
    OfAll,
}

impl std::fmt::Display for ProcessBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OfUpstream => "as many processes of this server run as its children_max allows",
            Self::OfAll => "as many processes of all servers run as limits.children_max allows",
        })
    }
}

/// Programs that are still starting, so that there is no list yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StillStarting {
    /// The first of them by name, and how many more there are.
    pub names: Box<str>,
    /// The number of servers of the endpoint that are up.
    pub up: usize,
    /// The number of its servers.
    pub of: usize,
    /// When it is worth asking again.
    pub retry_after_s: u32,
}

impl From<StillStarting> for UpstreamError {
    fn from(starting: StillStarting) -> Self {
        Self::StillStarting(starting.into())
    }
}

/// States of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum GatewayError {
    /// `buffered_bytes_max` is used up.
    #[error("the gateway holds as many messages as it may, try again in a moment")]
    Buffers,
    #[error("the gateway is about to stop; connect again in a moment")]
    Draining,
    /// What replicas share cannot be reached, and the limit allows nothing without it.
    #[error("the gateway cannot count this call against its limit now, try again in a moment")]
    SharedLimits,
    /// The pins of the upstream, here or those that replicas share, cannot be had.
    #[error(
        "it is not known yet which definition of this tool is approved; the call was not executed, try again in a moment"
    )]
    PinsUnknown,
    #[error("the gateway cannot check this token now, try again in a moment")]
    TokenKeys,
    /// The store of sign-ins cannot be reached, and rules have changed since the token was made.
    #[error("the gateway cannot bring this sign-in up to date now, try again in a moment")]
    SignIns,
    /// `upstream_sessions_max` or `sessions_max` is used up.
    #[error("the gateway keeps as many sessions as it may, try again later")]
    Sessions,
    /// A bare name cannot be routed before every upstream was listed once.
    #[error("the gateway has not yet learned the names behind this endpoint, try again in a moment")]
    NamesUnknown,
    /// `subscriptions_max` clients listen.
    #[error("the gateway has as many subscriptions open as it may, try again later")]
    Subscriptions,
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

impl Error {
    /// The row as a client of `era` is shown it.
    pub fn outcome_in(&self, era: Era) -> WireError {
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
                    | ClientError::Cancelled
            ),
            Self::Policy(error) => matches!(
                error,
                PolicyError::Origin
                    | PolicyError::Host
                    | PolicyError::NoCredentials
                    | PolicyError::BadCredentials
                    | PolicyError::BadKey
                    | PolicyError::Scope { .. }
                    | PolicyError::Buffers
            ),
            Self::Upstream(_) => false,
            Self::Gateway(error) => {
                matches!(
                    error,
                    GatewayError::Buffers
                        | GatewayError::TokenKeys
                        | GatewayError::SignIns
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
        self.body_saying(&self.to_string(), id, era)
    }

    /// As [`body`](Self::body), where what is told of the error is `said`.
    pub fn body_saying(&self, said: &str, id: Option<&str>, era: Era) -> String {
        let outcome = self.outcome_in(era);
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
            _ => outcome.data(),
        };
        let message = quote(said);
        error_body(id, &format!("{{\"code\":{},\"message\":{message}{data}}}", outcome.code))
    }

    /// The error as it is told to whoever asked for no call, such as a list: without a word on what became of one.
    pub fn without_outcome(&self) -> String {
        match self {
            Self::Upstream(error) => error.fault(),
            _ => self.to_string(),
        }
    }

    /// True where the fault is the client's or the operator's decision, false where something behind or in
    /// the gateway failed. Decides the log level.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Policy(_))
    }
}

fn by_rule(rule: Option<&str>) -> String {
    rule.map(|rule| format!(": rule `{rule}`")).unwrap_or_default()
}

/// The JSON-RPC response that carries `error`, a JSON object; `id` is its literal.
pub fn error_body(id: Option<&str>, error: &str) -> String {
    let id = id.map(|id| format!("\"id\":{id},")).unwrap_or_default();
    format!("{{\"jsonrpc\":\"2.0\",{id}\"error\":{error}}}")
}

impl UpstreamError {
    /// True if there was an answer, of a size that the gateway does not take.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLarge | Self::LineTooLarge { .. })
    }
}

impl ClientError {
    /// A header mismatch with a fixed explanation.
    pub fn mismatch(why: &'static str) -> Self {
        Self::HeaderMismatch { why: Cow::Borrowed(why) }
    }
}
