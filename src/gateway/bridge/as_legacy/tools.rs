//! The list of a server's tools, as far as calls need it: which arguments are mirrored in headers. A legacy client mirrors
//! nothing, and nobody may have listed the tools before it calls one.
//!
//! Bounded as every list is, and asked for by one call at a time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

use super::call::LegacyCall;
use crate::clock;
use crate::upstream::ask::{AskRequest, Asker, modern_headers};
use crate::upstream::listing::Annotations;
use protocol::ambiguity;
use protocol::error::UpstreamError;
use protocol::json::{Document, JsonKind, Scratch, Value, quote};
use protocol::method::Method;
use protocol::param_headers::annotations;
use protocol::version::MODERN;

/// Lets one at a time ask for the list.
#[derive(Debug)]
pub(super) struct ListTurn {
    one: Semaphore,
    /// Somebody did, whatever came of it.
    was_taken: AtomicBool,
}

impl Default for ListTurn {
    fn default() -> Self {
        Self { one: Semaphore::new(1), was_taken: AtomicBool::new(false) }
    }
}

/// Asks for the list unless somebody did before. Where that came to nothing, calls do not wait for it again: a server that
/// misses headers says so.
pub(super) async fn list_once(call: &LegacyCall, deadline: Instant) {
    let turn = &call.upstream.bridge.as_legacy.turn;
    let was_asked = || call.upstream.annotated.was_listed() || turn.was_taken.load(Ordering::Relaxed);
    if was_asked() {
        return;
    }
    let deadline = deadline.min(clock::now() + call.upstream.config.list_timeout);
    let listed = timeout_at(deadline.into(), async {
        let Ok(_permit) = turn.one.acquire().await else { return };
        if !was_asked() {
            list_anew(call, deadline).await;
        }
    });
    // Out of time, the call goes by what is known.
    let _ = listed.await;
    turn.was_taken.store(true, Ordering::Relaxed);
}

/// Asks for the list, but not again and again.
pub(super) async fn list_anew(call: &LegacyCall, deadline: Instant) {
    if !call.upstream.listing.refetch.admits(clock::now()) {
        return;
    }
    if let Err(error) = list(call, deadline).await {
        tracing::debug!(
            upstream = call.upstream.config.name,
            error = error.fault(),
            "the tools cannot be listed"
        );
    }
}

/// What is read of one page.
struct ToolPage {
    names: Vec<String>,
    annotated: Annotations,
    next_cursor: Option<String>,
}

async fn list(call: &LegacyCall, deadline: Instant) -> Result<(), UpstreamError> {
    let limits = call.client.limits();
    let mut bytes_left = limits.all.list_bytes_max;
    let (mut names, mut annotated) = (Vec::new(), HashMap::new());
    let mut cursors: Vec<String> = Vec::new();
    loop {
        let body = ask(call, cursors.last(), bytes_left, deadline).await?;
        bytes_left = bytes_left.saturating_sub(body.len());
        let page = call.client.read_json(|memory| read(&body, memory));
        let page = page.ok_or(UpstreamError::Nonsense)?;
        names.extend(page.names);
        annotated.extend(page.annotated);
        let Some(next) = page.next_cursor else { break };
        cursors.push(next.clone());
        let is_repeated = cursors.iter().filter(|cursor| **cursor == next).count() > 1;
        let is_long =
            cursors.len() >= limits.all.list_pages_max || names.len() >= limits.all.list_entries_max;
        if is_repeated || is_long || bytes_left == 0 {
            break;
        }
    }
    call.upstream.annotated.publish(names.into_iter().map(Cow::Owned), &Arc::new(annotated));
    Ok(())
}

async fn ask(
    call: &LegacyCall,
    cursor: Option<&String>,
    bytes_max: usize,
    deadline: Instant,
) -> Result<Bytes, UpstreamError> {
    let session = &call.session;
    let cursor = cursor.map(|cursor| format!(",\"cursor\":{}", quote(cursor))).unwrap_or_default();
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"trunkline-list","method":"tools/list","params":{{"_meta":{{{}}}{cursor}}}}}"#,
        session.introduction
    );
    let limits = call.client.limits();
    let asker = Asker::of(&call.client, &limits);
    let headers = modern_headers(MODERN[0], Method::ToolsList);
    let question = AskRequest {
        headers,
        body: body.into(),
        is_safe_to_repeat: true,
        replica: None,
        bytes_max: bytes_max.min(limits.all.reply_bytes_max),
        deadline,
    };
    Ok(asker.ask_for(session.principal.clone(), &call.upstream, question).await?.body)
}

fn read(body: &Bytes, (scratch, depth_max): (&mut Scratch, usize)) -> Option<ToolPage> {
    let result = scratch.index(body, depth_max).map(Document::root).ok()?.get("result")?;
    if ambiguity::is_ambiguous(result, &["tools", "nextCursor"]) {
        return None;
    }
    let tools = result.get("tools").filter(|tools| tools.kind() == JsonKind::Array)?;
    let text = |value: Value<'_>| Some(value.as_literal()?.decode(body)?.into_owned());
    let (mut names, mut annotated) = (Vec::new(), Annotations::new());
    // Nobody is shown a tool that readers see differently.
    for tool in tools.items().filter(|tool| !ambiguity::repeats(*tool)) {
        let Some(name) = tool.get("name").and_then(text) else { continue };
        match annotations(tool) {
            // Such a tool is not listed, and what its headers would be nobody knows.
            Err(_) => continue,
            Ok(found) if !found.is_empty() => {
                annotated.insert(name.as_str().into(), found.into());
            }
            Ok(_) => {}
        }
        names.push(name);
    }
    Some(ToolPage { names, annotated, next_cursor: result.get("nextCursor").and_then(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mirrored_is_read_page_by_page() {
        let body = Bytes::from_static(
            br#"{"result":{"nextCursor":"2","tools":[{"name":"plain","inputSchema":{"type":"object"}},
            {"name":"map","inputSchema":{"properties":{"city":{"type":"string","x-mcp-header":"City"}}}},
            {"name":"odd","inputSchema":{"x-mcp-header":"Nowhere"}},{"no":"name"},
            {"name":"two","n\u0061me":"map","inputSchema":{"type":"object"}}]}}"#,
        );
        let page = read(&body, (&mut Scratch::default(), 16)).expect("a page");
        assert_eq!(
            (page.names, page.next_cursor.as_deref()),
            (vec!["plain".into(), "map".into()], Some("2"))
        );
        assert_eq!(page.annotated.keys().map(|name| &**name).collect::<Vec<_>>(), ["map"]);
        for body in ["{}", r#"{"result":{"tools":{}}}"#, r#"{"result":{"tools":[],"tools":[]}}"#, "["] {
            assert!(read(&Bytes::from(body), (&mut Scratch::default(), 16)).is_none(), "{body}");
        }
    }
}
