//! When each error is the answer, for the reference: its example, and what brings it about, with the keys of the
//! configuration that bound it. The match in `causes_of` does not compile while a variant is missing.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::{
    ClientError, Error, GatewayError, Limited, NotOpened, PolicyError, ProcessBound, Redirect, Refusal,
    StillStarting, UpstreamError,
};
use crate::arguments::AmbiguousArgument;
use crate::version::Eras;

macro_rules! causes_of {
    ($enum:ident {
        $( $variant:ident $({ $($field:ident: $value:expr),+ })? $(( $inner:expr ))? => $when:literal, )+
    }) => {{
        let _every_variant_is_listed = |error: &$enum| match error {
            $( $enum::$variant { .. } => (), )+
        };
        vec![$( (Error::from($enum::$variant $({ $($field: $value),+ })? $(($inner))?), $when), )+]
    }};
}

/// An example of each error, and when it is the answer.
pub fn causes() -> Vec<(Error, &'static str)> {
    [of_client(), of_policy(), of_upstream(), of_gateway()].concat()
}

fn of_client() -> Vec<(Error, &'static str)> {
    causes_of!(ClientError {
        NoEndpoint => "No endpoint has this path.",
        HttpMethod { allow: "POST" } => "The method is not POST. Where sessions are served, GET and DELETE are allowed as well.",
        NoSession => "The request needs a session and came without one.",
        SessionGone => "The session is unknown, over, or belongs to another principal.",
        EventGone => "`Last-Event-ID` names an event that is no longer kept.",
        EventUnknown => "`Last-Event-ID` names an event that the session was not given.",
        ContentType => "The body is not `application/json`.",
        Encoded => "The body has a `Content-Encoding`.",
        NotAcceptable => "`Accept` takes neither JSON nor SSE.",
        Host => "`Host` is missing, doubled or malformed.",
        Misdirected => "The connection was shown the certificate of another host. The client has to connect again.",
        TooLarge { bytes_max: 4_194_304 } => "The body is larger than `body_bytes_max`.",
        TooManyHeaders => "The request has more header fields than `headers_max`, over HTTP/2.",
        TooSlow => "The body took longer than `body_timeout`, or came more slowly than `body_rate_min`.",
        Aborted => "The client broke off; in logs only.",
        NotJson => "The body is not JSON.",
        TooDeep => "The body is nested deeper than `json_depth_max`.",
        NotJsonRpc { why: "batch arrays are not supported" } => "The body is not one JSON-RPC 2.0 message.",
        HeaderMismatch { why: Cow::Borrowed("Mcp-Name is not the name in the message") } => "Headers and body disagree, or a header is missing. Within sessions the code is -32001.",
        Version { requested: "2099-01-01".to_owned(), served: Eras::BOTH } => "The endpoint does not serve this revision; `data.supported` lists those it does.",
        Params { why: "params.name is not a string" } => "A member of `params` is missing or has the wrong type.",
        Capability { required: "{}" } => "The client did not declare what the request needs; `data.requiredCapabilities` says what.",
        Method => "There is no such method here.",
        UnknownName { kind: "tool", name: "forecst".to_owned() } => "There is no such tool, prompt, resource or task here, or the caller may not know of it.",
        Cancelled => "The client has sent `notifications/cancelled`, and the server did not answer within a second.",
        Cursor => "The cursor is not one that this endpoint gave out.",
    })
}

fn of_policy() -> Vec<(Error, &'static str)> {
    causes_of!(PolicyError {
        Origin => "`origins` does not allow this origin.",
        Host => "`hosts` does not name this host.",
        NoCredentials => "There is no key, token or certificate; with `WWW-Authenticate`.",
        BadKey => "The API key is not valid; `WWW-Authenticate` leads to no sign-in, which would not help.",
        BadCredentials => "The key, token or certificate is not valid; with `WWW-Authenticate`.",
        Forbidden => "A rule does not let this caller do it, and asking for scopes would not help.",
        Arguments { rule: Some("staging".into()) } => "Rules do not let this caller call the tool with these arguments.",
        MissingArgument { limit: "customer".into(), argument: "customer.id".into() } => "A limit counts by an argument that the call lacks, or has in another type.",
        AmbiguousArgument(AmbiguousArgument("region".to_owned())) => "An argument that a rule or a limit goes by can be read in two ways.",
        Scope { required: "mcp:read mcp:write".into() } => "The token lacks scopes; `WWW-Authenticate` names them all.",
        Rate(Box::new(Limited { limit: "per-caller".into(), quota: 600, period: Duration::from_mins(1), retry_after: Duration::ZERO })) => "A `[[limit]]` is met; with `RateLimit` and `RateLimit-Policy`.",
        Concurrency => "`calls_max` of the upstream is met, and as many calls wait as may.",
        Pinned => "The definition of the tool changed and is not approved.",
        PinnedVaries { member: "inputSchema.properties.limit.default".into() } => "The definition of the tool is another one in another process of the same server.",
        InitializeRate => "`initialize_rate_max` is met.",
        Sessions => "`sessions_per_principal_max` or `upstream_sessions_per_principal_max` is met.",
        Buffers => "The caller holds more than its share of `buffered_bytes_max`.",
        Subscriptions => "`subscriptions_per_principal_max` is met.",
    })
}

fn of_upstream() -> Vec<(Error, &'static str)> {
    causes_of!(UpstreamError {
        Unreachable => "There is no connection; not executed.",
        Reset => "The connection broke; the outcome is unknown.",
        SlowClient => "The client did not read what a process or an HTTP+SSE stream said that others use as well; the outcome is unknown.",
        TimedOut => "`response_timeout` or `stream_idle_timeout` is over; the outcome is unknown.",
        Nonsense => "The reply is not MCP, or answers another request.",
        Refused(Arc::new(Refusal { method: "tools/list", code: -32603, message: "fetch failed".into() })) => "The upstream answered a list with an error of JSON-RPC. Its text is in the log, and in `/status`.",
        Status { status: StatusCode::INTERNAL_SERVER_ERROR, media: None } => "The upstream answered with a status that is no success, and no message came with it. The call is not sent again.",
        Redirected(Arc::new(Redirect::new(StatusCode::TEMPORARY_REDIRECT, Some("https://tools.example/mcp/")))) => "The upstream answered with a redirect, which is never followed. `url` has to be where it leads.",
        UpstreamHost => "The upstream answered 421: it serves other hosts than that of `url`. `host` of the upstream says which one it is sent.",
        Encoded { coding: "gzip".into() } => "The reply is compressed, although `Accept-Encoding: identity` was sent.",
        OtherMedia { media: "text/html".into() } => "The reply is neither JSON nor a stream of events: often a page, where `url` is not that of the server, or somebody in between wants a person to sign in.",
        NotOpened(Arc::new(NotOpened::refused(-32603, "database is down"))) => "The upstream opened no session; not executed. The status and the reason are those of what failed.",
        TooLarge => "The reply is larger than `reply_bytes_max`.",
        LineTooLarge { bytes: 24_000_000, bytes_max: 16_777_216 } => "The line of a process that answers, or the event of an HTTP+SSE stream, is larger than `reply_bytes_max`. It was read to its end, and all other calls go on.",
        Credentials => "The upstream answered 401 or 403.",
        ClientCredentials { headers: "x-user-key".into() } => "The upstream answered 401 or 403, and `forward_headers` names headers of the client.",
        NoToken => "No token can be had for the upstream; not executed.",
        Busy { status: StatusCode::TOO_MANY_REQUESTS, retry_after_s: Some(0) } => "The upstream answered 429 or 503; its status and its `Retry-After` are kept.",
        OtherEra => "The upstream speaks only revisions that this client does not, and `bridge.enabled` is false.",
        TooManyRounds => "The upstream asked for input more often than `input_requests_max` of its bridge.",
        TooManyBridged => "All of `sessions_max` of the upstream's bridge are in use.",
        BridgedOfPrincipal => "The caller uses more than its share of `sessions_max` of the upstream's bridge.",
        TooManySuspended => "`suspended_calls_max` or `suspended_calls_per_principal_max` of the upstream's bridge is met.",
        NoBuffers => "`buffered_bytes_max` is used up when the upstream asks or says something during a call.",
        BuffersOfPrincipal => "Then the caller holds more than its share of `buffered_bytes_max`.",
        SessionLost => "The upstream does not know the session that it has just opened; not executed.",
        SessionDoubted => "The upstream answered 400 within a session.",
        TooManyConnections => "`connections_max` of the upstream, or of `[limits]`, is used up.",
        NotStarted { retry_after_s: 0 } => "The process does not start, or ends before it answers anything. `Retry-After` is the next start.",
        Starting { retry_after_s: 5 } => "The process was started, or waits for its turn, and has not answered within `response_timeout` less 5 s. It goes on starting.",
        Reconfigured => "A reload replaced or removed the upstream while the call waited for its program. The next call is of the new configuration.",
        TooManyListSessions => "A list found no room among `list_sessions_max` in time.",
        ListSessionRate => "`initialize_rate_max` is met by a list that takes a session of its own.",
        ListSessionsOfPrincipal => "`upstream_sessions_per_principal_max` is met by a list that takes a session of its own.",
        ConnectionsOfPrincipal => "The caller uses more than its share of `connections_max` of the upstream.",
        TooManyChildren { bound: ProcessBound::OfUpstream } => "As many processes run as `children_max`, of the upstream or of `[limits]`. The message names the key.",
        OutOfOrder { retry_after_s: 0 } => "The circuit breaker of every replica is open, or that of the one that holds the session. Nothing was sent; `Retry-After` is the next probe.",
        NoneListed => "No upstream of the endpoint has an answer to the list, or can be asked for it.",
        StillStarting(Box::new(StillStarting { names: "memory, git".into(), up: 12, of: 35, retry_after_s: 2 })) => "A list would be empty after 8 s, as programs are still starting.",
    })
}

fn of_gateway() -> Vec<(Error, &'static str)> {
    causes_of!(GatewayError {
        Buffers => "`buffered_bytes_max` is used up.",
        Draining => "No session is opened while the gateway stops.",
        SharedLimits => "The count of a `[[limit]]` with `shared = true` and `fallback = \"deny\"` cannot be had.",
        PinsUnknown => "The pins of the upstream cannot be read, or the gateway has none and cannot ask for those of the others.",
        TokenKeys => "The keys of the token's issuer could never be fetched, or not for long.",
        SignIns => "After a reload a token has to be brought up to date, and the store of sign-ins cannot be reached.",
        Sessions => "`sessions_max` or `upstream_sessions_max` is used up.",
        NamesUnknown => "An upstream that could have the name was not listed yet.",
        Subscriptions => "`subscriptions_max` is used up; within a session also `subscription_uris_max`.",
        LineCalls => "A stream of HTTP+SSE has `streams_per_connection_max` requests in flight.",
        SessionMessages => "`session_messages_max`: a notification or an answer was not taken, and may be sent again.",
        Streams => "`streams_max` or `streams_per_principal_max` is met.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    #[test]
    fn every_reason_has_a_cause() {
        let causes = causes();
        for reason in Reason::ALL {
            let is_caused = causes.iter().any(|(error, _)| error.outcome().reason == reason);
            assert!(is_caused, "{reason:?}");
        }
    }
}
