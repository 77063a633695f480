//! Trace context in `params._meta` (SEP-414): one trace from the client through the gateway to the server, over every wire.

use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Daemon, LEGACY_VERSION, Legacy, Offer, Receiver, Reply, Request, Span, Upstream, api_key,
    body, call, in_session, initialize, legacy, list, open_session, post, result_body, side_by_side, tell,
};
use crate::upstreams::http_sse;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT_ID: &str = "b7ad6b7169203331";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const OTHER: &str = "00-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-cccccccccccccccc-01";
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "20");
const LEGACY_ONLY: &str = "eras = [\"legacy\"]";

/// The trace context that a server was sent with a call.
struct Sent {
    meta: Value,
    /// `traceparent`, `tracestate` and `baggage` as headers; `None` where there are no headers.
    headers: Option<[Vec<String>; 3]>,
}

/// A server, whatever it is reached by.
enum Server {
    Http(Upstream, Config),
    Child(Child, Config),
    Events(Upstream, Config),
}

impl Server {
    fn modern() -> Self {
        let upstream = Upstream::with_tools(&["echo"]);
        let config = Config::transparent(&upstream);
        Self::Http(upstream, config)
    }

    fn legacy() -> Self {
        let server = Legacy::new(Offer::tools(&["echo"]));
        let upstream = server.start();
        let config = Config::legacy(&upstream);
        Self::Http(upstream, config)
    }

    fn child(word: &str) -> Self {
        let child = Child::new(&[word]);
        let config = Config::new().raw("up", &child.keys(&format!("eras = [{word:?}]")));
        Self::Child(child, config)
    }

    fn events() -> Self {
        let upstream = http_sse::Server::new().start();
        let config =
            Config::new().upstream("up", upstream.address, &format!("transport = \"sse\"\n{LEGACY_ONLY}"));
        Self::Events(upstream, config)
    }

    fn config(&self) -> Config {
        let (Self::Http(_, config) | Self::Child(_, config) | Self::Events(_, config)) = self;
        config.clone()
    }

    /// The last call that it was sent.
    fn sent(&self) -> Sent {
        match self {
            Self::Http(upstream, _) => {
                let call = upstream.received_of("tools/call").pop().expect("a call");
                let values = |name| call.headers(name).into_iter().map(str::to_owned).collect();
                let headers = ["traceparent", "tracestate", "baggage"].map(values);
                Sent { meta: call.json()["params"]["_meta"].clone(), headers: Some(headers) }
            }
            Self::Child(child, _) => {
                let call = child.received("tools/call").pop().expect("a call");
                Sent { meta: call["params"]["_meta"].clone(), headers: None }
            }
            Self::Events(upstream, _) => {
                let call = upstream.received_of("tools/call").pop().expect("a call");
                Sent { meta: call.json()["params"]["_meta"].clone(), headers: None }
            }
        }
    }
}

fn start(config: Config, receiver: &Receiver, lines: &str) -> Daemon {
    Daemon::start_with(&config.section(&receiver.table(lines)), &[SOON])
}

/// A modern call with these members in its `_meta`.
fn modern_call(members: &Value) -> Request {
    call("1", "echo").replacing(r#""_meta":{"#, &format!(r#""_meta":{{{},"#, inner(members)))
}

/// The same of the legacy era.
fn legacy_call(members: &Value) -> Request {
    legacy("1", "tools/call", &legacy_params(members))
}

fn legacy_params(members: &Value) -> String {
    format!(r#"{{"name":"echo","arguments":{{}},"_meta":{members}}}"#)
}

fn inner(members: &Value) -> String {
    let object = members.to_string();
    object[1..object.len() - 1].to_owned()
}

fn context(parent: &str) -> Value {
    json!({"traceparent": parent, "tracestate": "a=1,b=2", "baggage": "user=7"})
}

fn named(span: &Span) -> String {
    format!("00-{}-{}-01", span.trace_id, span.id)
}

/// Ends the process, which sends what it still has.
fn end(mut daemon: Daemon, receiver: &Receiver) -> Vec<Span> {
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    receiver.spans()
}

#[test]
fn it_is_one_trace_over_every_wire() {
    let cases = [
        ("modern over HTTP", Server::modern(), false),
        ("legacy over HTTP", Server::legacy(), true),
        ("modern, bridged over HTTP", Server::legacy(), false),
        ("legacy, bridged over HTTP", Server::modern(), true),
        ("modern child", Server::child("modern"), false),
        ("legacy child", Server::child("legacy"), true),
        ("modern, bridged to a child", Server::child("legacy"), false),
        ("legacy, bridged to a child", Server::child("modern"), true),
        ("legacy over HTTP+SSE", Server::events(), true),
        ("modern, bridged over HTTP+SSE", Server::events(), false),
    ];
    side_by_side(cases, |(name, server, in_a_session)| {
        let receiver = Receiver::start();
        // Nothing but the parent's flag has the call traced.
        let daemon = start(server.config(), &receiver, "ratio = 0.0");
        let request = if in_a_session {
            let session = open_session(daemon.address(), LEGACY_VERSION).0;
            in_session(&session, legacy_call(&context(PARENT)))
        } else {
            modern_call(&context(PARENT))
        };
        daemon.send(&request).assert_ok();
        let (of_call, of_exchange) = receiver.wait_pair();
        assert_eq!([&*of_call.trace_id, &of_exchange.trace_id], [TRACE; 2], "{name}");
        assert_eq!([&*of_call.parent_id, &of_exchange.parent_id], [PARENT_ID, &of_call.id], "{name}");
        assert_eq!([&*of_call.state, &of_exchange.state], ["a=1,b=2"; 2], "{name}");
        assert!(of_exchange.nanoseconds <= of_call.nanoseconds, "{name}: {of_call:?} {of_exchange:?}");
        let Sent { meta, headers } = server.sent();
        let expected = context(&named(&of_exchange));
        for key in ["traceparent", "tracestate", "baggage"] {
            assert_eq!(meta[key], expected[key], "{name}: {meta}");
        }
        if let Some(headers) = headers {
            assert_eq!(headers, [vec![named(&of_exchange)], vec!["a=1,b=2".into()], vec!["user=7".into()]]);
        }
    });
}

#[test]
fn a_header_wins() {
    for (server, in_a_session) in
        [(Server::modern(), false), (Server::child("modern"), false), (Server::legacy(), true)]
    {
        let receiver = Receiver::start();
        let daemon = start(server.config(), &receiver, "ratio = 0.0");
        let request = if in_a_session {
            let session = open_session(daemon.address(), LEGACY_VERSION).0;
            in_session(&session, legacy_call(&context(OTHER)))
        } else {
            modern_call(&context(OTHER))
        };
        let request = request.with("traceparent", PARENT).with("tracestate", "c=3").with("baggage", "user=8");
        daemon.send(&request).assert_ok();
        let (of_call, of_exchange) = receiver.wait_pair();
        assert_eq!([&*of_call.trace_id, &of_exchange.trace_id], [TRACE; 2]);
        let Sent { meta, headers } = server.sent();
        assert_eq!([&meta["traceparent"], &meta["tracestate"]], [&*named(&of_exchange), "c=3"]);
        assert_eq!(meta["baggage"], "user=7", "what is no name of a trace stays");
        if let Some(headers) = headers {
            assert_eq!(headers, [vec![named(&of_exchange)], vec!["c=3".into()], vec!["user=8".into()]]);
        }
    }
}

#[test]
fn a_header_decides_for_both_that_nothing_is_traced() {
    let receiver = Receiver::start();
    let server = Server::modern();
    let daemon = start(server.config(), &receiver, "ratio = 1.0");
    daemon.send(&modern_call(&context(OTHER)).with("traceparent", UNSAMPLED)).assert_ok();
    let Sent { meta, headers } = server.sent();
    assert_eq!(meta["traceparent"], OTHER);
    assert_eq!(headers, Some([vec![UNSAMPLED.into()], vec![], vec![]]));
    assert_eq!(end(daemon, &receiver).len(), 0);
}

#[test]
fn what_is_not_traced_is_not_touched() {
    let unsampled = context(UNSAMPLED);
    for (lines, members) in
        [(Some("ratio = 1.0"), &unsampled), (Some("ratio = 0.0"), &json!({"x": 1})), (None, &context(PARENT))]
    {
        let receiver = Receiver::start();
        let upstream = Upstream::with_tools(&["echo"]);
        let config = Config::transparent(&upstream);
        let daemon = match lines {
            Some(lines) => start(config, &receiver, lines),
            None => Daemon::start(&config),
        };
        let request = modern_call(members);
        daemon.send(&request).assert_ok();
        let sent = upstream.only_call();
        assert_eq!(sent.client_body(), request.body, "{members}");
        for name in ["traceparent", "tracestate", "baggage"] {
            assert!(sent.headers(name).is_empty(), "{name}: {}", sent.head);
        }
        assert_eq!(end(daemon, &receiver).len(), 0, "{members}");
    }
}

#[test]
fn the_ratio_judges_its_trace_where_flags_do_not_count() {
    let low = "00-bbbbbbbbbbbbbbbb0000000000000001-cccccccccccccccc-00";
    for (parent, count) in [(low, 2), (OTHER, 0)] {
        let receiver = Receiver::start();
        let server = Server::modern();
        let daemon = start(server.config(), &receiver, "ratio = 0.5\nfollow_parent = false");
        daemon.send(&modern_call(&json!({"traceparent": parent}))).assert_ok();
        let spans = end(daemon, &receiver);
        assert_eq!(spans.len(), count, "{parent}");
        assert!(spans.iter().all(|span| parent.contains(&span.trace_id)), "{spans:?}");
    }
}

#[test]
fn what_is_malformed_names_nothing() {
    let upper = "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let cases = [
        json!({"traceparent": upper, "tracestate": "a=1"}),
        json!({"traceparent": 7}),
        json!({"traceparent": {"traceparent": PARENT}}),
        json!({"traceparent": format!("{PARENT}\r\nx-injected: 1")}),
        json!({"tracestate": "a=1"}),
    ];
    side_by_side(cases, |members| {
        for server in [Server::modern(), Server::child("modern")] {
            let receiver = Receiver::start();
            let daemon = start(server.config(), &receiver, "ratio = 1.0");
            daemon.send(&modern_call(&members)).assert_ok();
            let (of_call, of_exchange) = receiver.wait_pair();
            assert_eq!(of_call.parent_id, "", "{members}");
            assert_ne!(of_call.trace_id, TRACE, "{members}");
            let Sent { meta, headers } = server.sent();
            assert_eq!(meta["traceparent"], named(&of_exchange), "{members}");
            assert_eq!(meta.get("tracestate"), None, "{members}");
            if let Some(headers) = headers {
                assert_eq!(headers, [vec![named(&of_exchange)], vec![], vec![]], "{members}");
            }
        }
    });
    // Readers disagree about which of two counts.
    let receiver = Receiver::start();
    let server = Server::modern();
    let daemon = start(server.config(), &receiver, "ratio = 1.0");
    let twice = format!(r#""_meta":{{"traceparent":"{PARENT}","trace\u0070arent":"{OTHER}","#);
    daemon.send(&call("1", "echo").replacing(r#""_meta":{"#, &twice)).assert_ok();
    let (of_call, of_exchange) = receiver.wait_pair();
    assert_eq!(of_call.parent_id, "");
    assert_eq!(server.sent().meta["traceparent"], named(&of_exchange));
}

#[test]
fn a_state_that_no_header_may_hold_goes_and_so_does_such_baggage() {
    let too_long = "v".repeat(9000);
    for (state, baggage) in [("a=\u{e4}", "k=\u{e4}"), ("a=1\r\nx: 1", "k=1\r\nx: 1"), (&too_long, &too_long)]
    {
        let receiver = Receiver::start();
        let server = Server::modern();
        let daemon = start(server.config(), &receiver, "");
        let members = json!({"traceparent": PARENT, "tracestate": state, "baggage": baggage});
        daemon.send(&modern_call(&members)).assert_ok();
        let (_, of_exchange) = receiver.wait_pair();
        let Sent { meta, headers } = server.sent();
        assert_eq!(headers, Some([vec![named(&of_exchange)], vec![], vec![]]));
        assert_eq!((&meta["tracestate"], &meta["baggage"]), (&Value::Null, &json!(baggage)));
    }
}

#[test]
fn baggage_goes_on_as_a_header_and_to_children_in_meta() {
    for server in [Server::modern(), Server::child("modern"), Server::child("legacy")] {
        let daemon = Daemon::start(&server.config());
        daemon.send(&call("1", "echo").with("baggage", "user=7")).assert_ok();
        let Sent { meta, headers } = server.sent();
        match headers {
            Some([_, _, baggage]) => {
                assert_eq!(baggage, ["user=7"]);
                assert_eq!(meta.get("baggage"), None);
            }
            None => assert_eq!(meta["baggage"], "user=7"),
        }
    }
}

#[test]
fn refused_calls_belong_to_it() {
    let receiver = Receiver::start();
    let server = Server::modern();
    let config = server.config().section(&api_key("ada", "k1"));
    let daemon = start(config, &receiver, "ratio = 0.0");
    // Before its body is looked at, and by it.
    let open = modern_call(&context(PARENT));
    assert_eq!(daemon.send(&open).status, 401);
    let mismatch = modern_call(&context(PARENT)).set("Mcp-Name", "other");
    daemon.send(&mismatch.set("Authorization", "Bearer k1")).assert_error(400, -32020, Some("1"));
    for span in receiver.wait(2) {
        assert_eq!((&*span.trace_id, &*span.parent_id, span.is_error), (TRACE, PARENT_ID, true), "{span:?}");
    }
}

#[test]
fn what_the_gateway_answers_itself_belongs_to_it() {
    let receiver = Receiver::start();
    let server = Server::modern();
    let daemon = start(server.config(), &receiver, "ratio = 0.0");
    let members = inner(&context(PARENT));
    let request = list("1", "server/discover").replacing(r#""_meta":{"#, &format!(r#""_meta":{{{members},"#));
    daemon.send(&request).assert_ok();
    let offer = initialize("1", LEGACY_VERSION)
        .replacing(r#""params":{"#, &format!(r#""params":{{"_meta":{{{members}}},"#));
    daemon.send(&offer).assert_ok();
    let names: Vec<String> =
        receiver.wait(2).into_iter().filter(|span| span.trace_id == TRACE).map(|span| span.name).collect();
    assert_eq!(names, ["server/discover", "initialize"]);
}

#[test]
fn each_call_of_a_batch_has_its_own() {
    let receiver = Receiver::start();
    let server = Server::legacy();
    let daemon = start(server.config(), &receiver, "ratio = 0.0");
    let session = open_session(daemon.address(), "2025-03-26").0;
    let call = |id, members: &Value| body(id, "tools/call", &legacy_params(members));
    let messages = [call("1", &context(PARENT)), call("2", &json!({})), call("3", &context(OTHER))].join(",");
    let batch = in_session(&session, post(format!("[{messages}]"))).without("MCP-Protocol-Version");
    assert_eq!(daemon.send(&batch).status, 200);
    let spans = receiver.wait(4);
    let of = |trace: &str| spans.iter().filter(|span| trace.contains(&span.trace_id)).count();
    assert_eq!((spans.len(), of(PARENT), of(OTHER)), (4, 2, 2), "{spans:?}");
}

#[test]
fn a_call_that_is_sent_again_names_the_exchange_that_it_is_sent_by() {
    let receiver = Receiver::start();
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = server.start();
    let daemon = start(Config::legacy(&upstream), &receiver, "ratio = 0.0");
    let session = open_session(daemon.address(), LEGACY_VERSION).0;
    daemon.send(&in_session(&session, legacy_call(&json!({})))).assert_ok();
    server.forget_sessions();
    daemon.send(&in_session(&session, legacy_call(&context(PARENT)))).assert_ok();
    let spans = receiver.wait(3);
    let sent: Vec<(String, String)> = upstream.received_of("tools/call")[1..]
        .iter()
        .map(|sent| {
            let in_meta =
                sent.json()["params"]["_meta"]["traceparent"].as_str().expect("a parent").to_owned();
            (sent.headers("traceparent").concat(), in_meta)
        })
        .collect();
    let exchanges: Vec<(String, String)> = spans[..2].iter().map(|span| (named(span), named(span))).collect();
    assert_eq!(sent, exchanges);
    assert!(spans.iter().all(|span| span.trace_id == TRACE), "{spans:?}");
}

#[test]
fn a_notification_keeps_what_its_client_wrote() {
    let receiver = Receiver::start();
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let daemon = start(Config::legacy(&upstream), &receiver, "ratio = 0.0");
    let session = open_session(daemon.address(), LEGACY_VERSION).0;
    daemon.send(&in_session(&session, legacy_call(&json!({})))).assert_ok();
    let notification =
        json!({"jsonrpc": "2.0", "method": "notifications/own", "params": {"_meta": context(PARENT)}});
    tell(&daemon, &session, &notification.to_string());
    assert_eq!(upstream.wait_for("notifications/own", 1).json(), notification);
    let spans = receiver.wait(1);
    assert_eq!((&*spans[0].trace_id, &*spans[0].parent_id, spans.len()), (TRACE, PARENT_ID, 1));
}

#[test]
fn a_stream_belongs_to_it_too() {
    let receiver = Receiver::start();
    let upstream =
        Upstream::calling(|request| Reply::stream().event(&result_body(request, r#"{"content":[]}"#)).end());
    let daemon = start(Config::transparent(&upstream), &receiver, "ratio = 0.0");
    let arguments = format!(r#""arguments":{{"traceparent":"{OTHER}"}}"#);
    let request = modern_call(&context(PARENT)).replacing(r#""arguments":{}"#, &arguments);
    assert_eq!(daemon.send(&request).status, 200);
    let (of_call, of_exchange) = receiver.wait_pair();
    assert_eq!((&*of_call.trace_id, &*of_call.parent_id), (TRACE, PARENT_ID));
    let sent = upstream.only_call().json();
    assert_eq!(sent["params"]["_meta"]["traceparent"], named(&of_exchange));
    assert_eq!(sent["params"]["arguments"]["traceparent"], OTHER, "an argument is no context");
}
