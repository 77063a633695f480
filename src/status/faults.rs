//! The state of an upstream by a fault that its questions or lists met. Pure.

use crate::servers::{FaultStatus, UpstreamStatus};
use crate::standing::{Standing, UpstreamState};

/// The fault that says how it is, and belongs to no replica.
pub(crate) fn standing_fault(upstream: &UpstreamStatus) -> Option<&FaultStatus> {
    upstream.fault.as_ref().filter(|fault| fault.stands)
}

/// The state by this fault.
pub(crate) fn of_fault(fault: &FaultStatus, upstream: &UpstreamStatus) -> Standing {
    use UpstreamState as State;
    let state = match (&*fault.kind, fault.http_status) {
        ("connect" | "dns" | "tls" | "process", _) => State::Down,
        ("http", Some(401 | 403 | 407)) if upstream.forwards_credentials == Some(true) => {
            State::WantsCallersCredentials
        }
        ("http", Some(401 | 403 | 407)) => State::RefusesCredentials,
        ("http", Some(408 | 429 | 500..)) => State::Failing,
        ("http" | "redirect" | "encoding" | "not_mcp", _) => State::NotMcp,
        _ => State::Failing,
    };
    let is_usable = state == State::WantsCallersCredentials;
    let found = Standing::new(state, is_usable).because(&*fault.why, &fault.cause).since(Some(fault.since_s));
    found.shares(fault.cause.clone(), Some(fault))
}

/// The state by a list that cannot be had; `None`: all can.
pub(crate) fn of_lists(upstream: &UpstreamStatus) -> Option<Standing> {
    let fault = upstream.list_fault.as_ref().filter(|fault| fault.stands)?;
    // Without the list of its tools clients use none of it; calls get through all the same.
    let is_of_tools = fault.list.as_deref().is_none_or(|list| list == "tools/list");
    let found = Standing::new(UpstreamState::NotListed, !is_of_tools);
    // The server's own error has the method before it.
    let method = fault.list.as_deref().filter(|method| !fault.why.starts_with(method));
    let why = method.map_or_else(|| fault.why.clone(), |method| format!("{method}: {}", fault.why));
    let found = found.because(why, &fault.cause).since(Some(fault.since_s));
    let method = fault.list.as_deref().filter(|method| !fault.cause.starts_with(method));
    let cause = Some(&fault.cause).filter(|cause| !cause.is_empty());
    let words =
        cause.map(|cause| method.map_or_else(|| cause.clone(), |method| format!("{method}: {cause}")));
    Some(found.shares(words.unwrap_or_default(), Some(fault)))
}
