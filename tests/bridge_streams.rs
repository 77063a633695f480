//! Bridged calls whose server only says that it is there, ends its streams, forgets a session, or fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Config, Daemon, Legacy, Offer, Received, Reply, Request, Upstream, call};

const LEGACY: &str = "eras = [\"legacy\"]\n";
const NOBODY: &str = "{}";
const EVERYTHING: &str = r#"{"sampling":{},"elicitation":{},"roots":{}}"#;

/// A legacy server that answers this method so, as often as it answers it at all, and all else without mistakes.
fn over(
    server: &Legacy,
    method: &'static str,
    answer: impl Fn(&Received) -> Option<Reply> + Send + Sync + 'static,
) -> Upstream {
    let well = server.clone();
    Upstream::start(move |request| match request.method() {
        found if found == method => answer(request).unwrap_or_else(|| well.answer(request)),
        _ => well.answer(request),
    })
}

fn tools() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]))
}

fn daemon(upstream: &Upstream, lines: &str) -> Daemon {
    Daemon::start(&Config::new().admin().upstream("up", upstream.address, &format!("{LEGACY}{lines}")))
}

/// A call of a client that can do this.
fn call_as(id: &str, capabilities: &str) -> Request {
    let declared = format!(r#""io.modelcontextprotocol/clientCapabilities":{capabilities}"#);
    call(id, "echo").replacing(r#""io.modelcontextprotocol/clientCapabilities":{}"#, &declared)
}

#[test]
fn a_session_is_lost_whatever_id_the_refusal_has() {
    for capabilities in [NOBODY, EVERYTHING] {
        let count = AtomicUsize::new(0);
        let upstream = over(&tools(), "tools/call", move |request| {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            is_first.then(|| Reply::error(request, "404 Not Found", -32001, "Session not found"))
        });
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_ok();
        assert_eq!(upstream.received_of("tools/call").len(), 2, "{capabilities}");
    }
}

#[test]
fn a_request_that_its_server_cannot_stand_is_sent_once() {
    for capabilities in [NOBODY, EVERYTHING] {
        let server = tools();
        let upstream = over(&server, "tools/call", |_| Some(Reply::http("400 Bad Request", "", "")));
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_error(502, 502, Some("1"));
        assert_eq!(upstream.received_of("tools/call").len(), 1, "{capabilities}");
    }
}

#[test]
fn a_session_that_is_refused_as_a_bad_request_is_opened_again() {
    for capabilities in [NOBODY, EVERYTHING] {
        let server = tools();
        let well = server.clone();
        let upstream = Upstream::start(move |request| {
            let is_known = well.open_sessions().iter().any(|id| request.headers("mcp-session-id") == [id]);
            if is_known || request.headers("mcp-session-id").is_empty() {
                return well.answer(request);
            }
            Reply::http("400 Bad Request", "", "")
        });
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_ok();
        server.forget_sessions();
        daemon.send(&call_as("2", capabilities)).assert_ok();
        assert_eq!(upstream.received_of("tools/call").len(), 3, "{capabilities}");
    }
}
