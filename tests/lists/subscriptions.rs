//! `subscriptions/listen`: one stream for each client, two for each upstream, and nothing lost between them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    Config, Connection, Daemon, Gate, Http2, Listened, Listening, META, Offer, Reply, Request, Upstream,
    api_key, body, call, eventually, list, listen, literal, modern, refusing_address, side_by_side,
};

const ID: &str = "io.modelcontextprotocol/subscriptionId";
const TOOLS: &str = r#"{"toolsListChanged":true}"#;

/// A client's stream.
struct Client(Connection);

impl Client {
    /// Listens, and reads the head of the response.
    fn open(daemon: &Daemon, request: &Request) -> Self {
        let mut connection = daemon.connect();
        connection.write(&request.bytes());
        let head = connection.head();
        assert_eq!(head.status, 200, "{head:?}");
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("cache-control"), Some("no-cache"));
        assert_eq!(head.header("x-accel-buffering"), Some("no"));
        Self(connection)
    }

    /// Listens, and checks what is acknowledged.
    fn acknowledged(daemon: &Daemon, id: &str, filter: &str, acknowledged: &str) -> Self {
        let mut client = Self::open(daemon, &listen(id, filter));
        client.assert_acknowledged(id, acknowledged);
        client
    }

    #[track_caller]
    fn assert_acknowledged(&mut self, id: &str, filter: &str) {
        let message = self.text();
        let json: Value = serde_json::from_str(&message).unwrap();
        assert_eq!(json["method"], "notifications/subscriptions/acknowledged", "{message}");
        assert_eq!(literal(message.as_bytes(), &["params", "_meta", ID]), id);
        assert_eq!(json["params"]["notifications"], serde_json::from_str::<Value>(filter).unwrap());
    }

    /// The next message as it is spelled.
    #[track_caller]
    fn text(&mut self) -> String {
        loop {
            let event = self.0.event().expect("the stream goes on");
            if let Some(data) = event.strip_prefix("data: ") {
                return data.trim_end().to_owned();
            }
        }
    }

    /// The next message, which must be for this subscription.
    #[track_caller]
    fn message(&mut self, id: &str) -> Value {
        let text = self.text();
        assert_eq!(literal(text.as_bytes(), &["params", "_meta", ID]), id, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    #[track_caller]
    fn assert_changed(&mut self, id: &str, list: &str) {
        assert_eq!(self.message(id)["method"], format!("notifications/{list}/list_changed"));
    }

    #[track_caller]
    fn assert_updated(&mut self, id: &str, uri: &str) {
        let message = self.message(id);
        assert_eq!(message["method"], "notifications/resources/updated");
        assert_eq!(message["params"]["uri"], uri);
    }

    /// The stream ends with its result.
    #[track_caller]
    fn assert_ended(&mut self, id: &str) {
        let text = self.text();
        assert_eq!(literal(text.as_bytes(), &["id"]), id);
        assert_eq!(literal(text.as_bytes(), &["result", "_meta", ID]), id);
        assert_eq!(literal(text.as_bytes(), &["result", "resultType"]), "\"complete\"");
        assert_eq!(self.0.event(), None);
    }
}

#[test]
fn ids_keep_their_type_and_spelling() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let ids = ["7", "-3", "12345678901234567890123", "\"7\"", r#""\u00e9\"x""#];
    let mut clients: Vec<_> = ids.iter().map(|id| Client::acknowledged(&daemon, id, TOOLS, TOOLS)).collect();
    upstream.tools_stream().notify("tools/list_changed", "");
    for (id, client) in ids.iter().zip(&mut clients) {
        client.assert_changed(id, "tools");
    }
    assert_eq!(upstream.streams(|_| true).len(), 1, "clients share a stream");
    let sent = &upstream.tools_stream().request;
    assert_eq!(sent.headers("mcp-method"), ["subscriptions/listen"]);
    assert_eq!(sent.headers("mcp-protocol-version"), ["2026-07-28"]);
}

#[test]
fn an_empty_filter_stays_open() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let mut daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let filter = r#"{"toolsListChanged":false,"com.example/other":true,"resourceSubscriptions":[]}"#;
    let mut client = Client::acknowledged(&daemon, "1", filter, "{}");
    daemon.send(&call("2", "a")).assert_ok();
    assert!(upstream.streams(|_| true).is_empty());
    // A comment after 15 s of silence.
    let since = Instant::now();
    assert_eq!(client.0.event().as_deref(), Some(":\n\n"));
    assert!(since.elapsed() > Duration::from_secs(10), "{:?}", since.elapsed());
    daemon.terminate();
    client.assert_ended("1");
    assert!(daemon.wait_exit().success());
}

#[test]
fn filters_in_doubt_are_refused() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let config = Config::transparent(&upstream.upstream).limits("subscription_uris_max = 2");
    let daemon = Daemon::start(&config);
    for filter in [
        "null",
        "[]",
        r#"{"toolsListChanged":1}"#,
        r#"{"toolsListChanged":true,"tools\u004cistChanged":true}"#,
        r#"{"resourceSubscriptions":"a:b"}"#,
        r#"{"resourceSubscriptions":[{}]}"#,
        r#"{"resourceSubscriptions":["a:b","a:c","a:d"]}"#,
    ] {
        daemon.send(&listen("7", filter)).assert_error(400, -32602, Some("7"));
    }
    let without = modern(
        "subscriptions/listen",
        None,
        body("7", "subscriptions/listen", &format!(r#"{{"_meta":{META}}}"#)),
    );
    daemon.send(&without).assert_error(400, -32602, Some("7"));
    let refused = daemon.send(&listen("7", r#"{"taskIds":["t"]}"#)).assert_error(400, -32021, Some("7"));
    let required = &refused["error"]["data"]["requiredCapabilities"]["extensions"];
    assert_eq!(required, &json!({"io.modelcontextprotocol/tasks": {}}));
    assert!(upstream.streams(|_| true).is_empty());
}

#[test]
fn notices_of_two_upstreams_are_joined() {
    let files = Listening::start(Offer::tools(&["a"]));
    let weather = Listening::taking(Offer::tools(&["b"]), |request| {
        let filter = literal(&request.body, &["params", "notifications"]);
        let without = filter.replace(r#""promptsListChanged":true"#, r#""promptsListChanged":false"#);
        let gate = Gate::default();
        gate.open();
        Listened::Partly(without, gate)
    });
    let daemon = Daemon::start(&Config::prefixed(&files.upstream, &weather.upstream).admin());
    let filter = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["weather+x:1","files+x:2","nosuch+x:3","x:4"]}"#;
    let honoured = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["weather+x:1","files+x:2"]}"#;
    let mut client = Client::acknowledged(&daemon, "\"s\"", filter, honoured);
    files.tools_stream().notify("prompts/list_changed", "");
    client.assert_changed("\"s\"", "prompts");
    weather.tools_stream().notify("tools/list_changed", "");
    client.assert_changed("\"s\"", "tools");
    weather.stream_with("resourceSubscriptions", "x:1").update("x:1");
    client.assert_updated("\"s\"", "weather+x:1");
    files.stream_with("resourceSubscriptions", "x:2").update("x:2");
    client.assert_updated("\"s\"", "files+x:2");
    for (name, value) in [
        ("trunkline_subscriptions", 1),
        (r#"trunkline_upstream_subscription_streams{upstream="files"}"#, 2),
        (r#"trunkline_notifications_total{kind="resource"}"#, 2),
        (r#"trunkline_notifications_total{kind="tools_list"}"#, 1),
    ] {
        assert_eq!(daemon.metric(name), value, "{name}");
    }
    drop(client);
    eventually("the client is forgotten", || (daemon.metric("trunkline_subscriptions") == 0).then_some(()));
    eventually("the upstreams are let go", || {
        (files.open_streams().len() + weather.open_streams().len() == 0).then_some(())
    });
}

#[test]
fn uris_keep_the_spelling_of_their_client_and_notices_their_fields() {
    let files = Listening::start(Offer::default().with_resources(&["file:///a"]));
    let weather = Listening::start(Offer::default());
    let daemon = Daemon::start(&Config::prefixed(&files.upstream, &weather.upstream));
    daemon.send(&list("1", "resources/list")).assert_ok();
    let filter = r#"{"resourceSubscriptions":["files+file:\/\/\/a","file:///a","ui://files+p"]}"#;
    let mut prefixed = Client::open(&daemon, &listen("1", filter));
    let acknowledged = prefixed.text();
    assert_eq!(
        literal(acknowledged.as_bytes(), &["params", "notifications", "resourceSubscriptions"]),
        r#"["files+file:\/\/\/a","file:///a","ui://files+p"]"#
    );
    let stream = files.stream_with("resourceSubscriptions", "ui://p");
    let asked = stream.request.json();
    let mut uris: Vec<&str> = asked["params"]["notifications"]["resourceSubscriptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|uri| uri.as_str().unwrap())
        .collect();
    uris.sort_unstable();
    assert_eq!(uris, ["file:///a", "ui://p"]);
    let id = stream.request.id();
    stream.event(&format!(
        r#"{{"method":"notifications/resources/updated","params":{{ "size":1e400,"uri":"file:\u002f//a","_meta":{{"{ID}":{id},"x":[ ]}}}},"jsonrpc":"2.0"}}"#
    ));
    for spelled in [r"files+file:\/\/\/a", "file:///a"] {
        let told = format!(
            r#"{{"method":"notifications/resources/updated","params":{{ "size":1e400,"uri":"{spelled}","_meta":{{"{ID}":1,"x":[ ]}}}},"jsonrpc":"2.0"}}"#
        );
        assert_eq!(prefixed.text(), told);
    }
    stream.update("ui://p");
    prefixed.assert_updated("1", "ui://files+p");
}

#[test]
fn a_resource_is_told_to_those_who_listen_to_what_it_is_part_of() {
    let files = Listening::start(Offer::default());
    let weather = Listening::start(Offer::default());
    let config = Config::prefixed(&files.upstream, &weather.upstream).endpoint("deny = [\"*secret*\"]");
    let daemon = Daemon::start(&config);
    let of = |uris: &str| format!(r#"{{"resourceSubscriptions":[{uris}]}}"#);
    let open = |id: &str, uris: &str| Client::acknowledged(&daemon, id, &of(uris), &of(uris));
    let mut one = open("1", r#""files+f:/a""#);
    let mut two = open("2", r#""files+f:/a/b/""#);
    let mut other = open("3", r#""files+f:/ab""#);
    let mut elsewhere = open("4", r#""weather+f:/a""#);
    let stream = files.stream_with("resourceSubscriptions", "f:/ab");
    stream.update("f:/a/b/c");
    one.assert_updated("1", "files+f:/a/b/c");
    two.assert_updated("2", "files+f:/a/b/c");
    // Nobody asked for these: everybody who listens to resources of this upstream is told, but not what is hidden.
    stream.update("f:/secret");
    stream.update("f:/a/secret");
    stream.update("f:/else");
    for (id, client) in [("1", &mut one), ("2", &mut two), ("3", &mut other)] {
        client.assert_updated(id, "files+f:/else");
    }
    weather.stream_with("resourceSubscriptions", "f:/a").update("f:/a");
    elsewhere.assert_updated("4", "weather+f:/a");
    let mut hidden = Client::acknowledged(&daemon, "5", &of(r#""files+f:/secret""#), "{}");
    stream.notify("tools/list_changed", "");
    stream.update("f:/a");
    one.assert_updated("1", "files+f:/a");
    let mut daemon = daemon;
    daemon.terminate();
    hidden.assert_ended("5");
    assert!(daemon.wait_exit().success());
}

#[test]
fn tasks_are_told_like_resources() {
    let files = Listening::start(Offer::default());
    let weather = Listening::start(Offer::default());
    let daemon = Daemon::start(&Config::prefixed(&files.upstream, &weather.upstream));
    let filter = r#"{"taskIds":["files+t","weather+u"]}"#;
    let capable = r#"clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    let request = listen("1", filter).replacing(r#"clientCapabilities":{}"#, capable);
    let mut client = Client::open(&daemon, &request);
    client.assert_acknowledged("1", filter);
    let task = r#""taskId":"t","status":"completed","result":{"content":[{"type":"resource_link","uri":"x:1","name":"n"}]},"#;
    let stream = files.stream_with("taskIds", "\"t\"");
    stream.notify("tasks", &task.replace("\"t\"", "\"other\""));
    stream.notify("tasks", task);
    let params = &client.message("1")["params"];
    assert_eq!(params["taskId"], "files+t");
    assert_eq!(params["result"]["content"][0]["uri"], "files+x:1");
}

#[test]
fn a_storm_is_told_a_few_times_and_its_end_is_not_lost() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream).admin());
    let filter = r#"{"toolsListChanged":true,"promptsListChanged":true}"#;
    let mut client = Client::acknowledged(&daemon, "1", filter, filter);
    let stream = upstream.tools_stream();
    let started = Instant::now();
    stream.notify("tools/list_changed", "");
    client.assert_changed("1", "tools");
    for _ in 0..5000 {
        stream.notify("tools/list_changed", "");
    }
    // What comes after the storm on the same stream shows that all of it was read.
    stream.notify("prompts/list_changed", "");
    loop {
        let message = client.message("1");
        if message["method"] == "notifications/prompts/list_changed" {
            break;
        }
    }
    let told_by_then = daemon.metric(r#"trunkline_notifications_total{kind="tools_list"}"#);
    stream.notify("tools/list_changed", "");
    let total = eventually("the last change is told", || {
        let told = daemon.metric(r#"trunkline_notifications_total{kind="tools_list"}"#);
        (told > told_by_then).then_some(told)
    });
    client.assert_changed("1", "tools");
    let most = started.elapsed().as_millis() / 100 + 2;
    assert!(u128::from(total) <= most, "{total} in {:?}", started.elapsed());
}

#[test]
fn after_a_gap_everybody_is_told_of_everything() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream).admin());
    let filter = r#"{"toolsListChanged":true,"resourcesListChanged":true}"#;
    let uris = r#"{"resourceSubscriptions":["x:1","x:2"]}"#;
    let mut lists = Client::acknowledged(&daemon, "1", filter, filter);
    let mut resources = Client::acknowledged(&daemon, "2", uris, uris);
    upstream.cut();
    lists.assert_changed("1", "tools");
    lists.assert_changed("1", "resources");
    let mut told =
        [resources.message("2"), resources.message("2")].map(|told| told["params"]["uri"].to_string());
    told.sort();
    assert_eq!(told, ["\"x:1\"", "\"x:2\""]);
    assert_eq!(daemon.metric(r#"trunkline_upstream_subscription_gaps_total{upstream="up"}"#), 2);
    // An upstream that ends a stream gracefully leaves a gap, too.
    let stream = upstream.tools_stream();
    let id = stream.request.id();
    stream.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete"}}}}"#));
    stream.end();
    lists.assert_changed("1", "tools");
    lists.assert_changed("1", "resources");
    upstream.tools_stream().notify("tools/list_changed", "");
    lists.assert_changed("1", "tools");
}

#[test]
fn a_stream_is_replaced_only_by_one_that_is_acknowledged() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Listening::taking(Offer::tools(&["a"]), move |request| {
        let filter = literal(&request.body, &["params", "notifications"]);
        if filter.contains("prompts") { Listened::Partly(filter, held.clone()) } else { Listened::Honoured }
    });
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream).admin());
    let mut one = Client::acknowledged(&daemon, "1", TOOLS, TOOLS);
    let first = upstream.tools_stream();
    let prompts = r#"{"promptsListChanged":true}"#;
    let mut two = Client::open(&daemon, &listen("2", prompts));
    let second = upstream.stream_with("promptsListChanged", "true");
    assert_eq!(second.request.json()["params"]["notifications"]["toolsListChanged"], true, "the union");
    first.notify("tools/list_changed", "");
    one.assert_changed("1", "tools");
    assert!(!upstream.upstream.is_closed(first.request.connection));
    // What the old stream still says while it is being replaced counts.
    gate.open();
    first.notify("tools/list_changed", "");
    two.assert_acknowledged("2", prompts);
    one.assert_changed("1", "tools");
    upstream.upstream.wait_closed(first.request.connection);
    assert!(!upstream.upstream.is_closed(second.request.connection));
    second.notify("prompts/list_changed", "");
    two.assert_changed("2", "prompts");
    second.notify("tools/list_changed", "");
    one.assert_changed("1", "tools");
    assert_eq!(daemon.metric(r#"trunkline_upstream_subscription_gaps_total{upstream="up"}"#), 0);
}

#[test]
fn growth_that_is_refused_costs_nothing_that_is_there() {
    let upstream = Listening::taking(Offer::tools(&["a"]), |request| {
        let filter = literal(&request.body, &["params", "notifications"]);
        if filter.contains("x:bad") {
            return Listened::Answered(Reply::error(request, "400 Bad Request", -32602, "no such resource"));
        }
        Listened::Honoured
    });
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let uris = r#"{"resourceSubscriptions":["x:1"]}"#;
    let mut one = Client::acknowledged(&daemon, "1", uris, uris);
    let bad = r#"{"resourceSubscriptions":["x:bad"]}"#;
    let _two = Client::acknowledged(&daemon, "2", bad, "{}");
    upstream.stream_with("resourceSubscriptions", "x:1").update("x:1");
    one.assert_updated("1", "x:1");
    let more = r#"{"resourceSubscriptions":["x:3"]}"#;
    let mut three = Client::acknowledged(&daemon, "3", more, more);
    upstream.stream_with("resourceSubscriptions", "x:3").update("x:3");
    three.assert_updated("3", "x:3");
}

#[test]
fn long_names_of_one_client_keep_nobody_from_listening() {
    let listening = Listening::start(Offer::tools(&["echo"]));
    let daemon = Daemon::start(&Config::transparent(&listening.upstream));
    let uris: Vec<String> =
        (0..200).map(|index| format!("\"test://{index}/{}\"", "x".repeat(8000))).collect();
    let long = format!(r#"{{"resourceSubscriptions":[{}]}}"#, uris.join(","));
    let _greedy = Client::acknowledged(&daemon, "1", &long, &long);
    let short = r#"{"resourceSubscriptions":["test://short"]}"#;
    let mut modest = Client::acknowledged(&daemon, "2", short, short);
    listening.stream_with("resourceSubscriptions", "test://short").update("test://short");
    assert_eq!(modest.message("2")["params"]["uri"], "test://short");
}

#[test]
fn a_slow_upstream_is_counted_on_and_made_good() {
    let gate = Gate::default();
    let held = gate.clone();
    let slow = Listening::taking(Offer::tools(&["a"]), move |request| {
        Listened::Partly(literal(&request.body, &["params", "notifications"]), held.clone())
    });
    let quick = Listening::start(Offer::tools(&["b"]));
    let daemon = Daemon::start(&Config::prefixed(&slow.upstream, &quick.upstream));
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["files+x:1","weather+x:1"]}"#;
    let started = Instant::now();
    let mut client = Client::open(&daemon, &listen("1", filter));
    // It is there before the acknowledgement, and told after it.
    quick.tools_stream().notify("tools/list_changed", "");
    client.assert_acknowledged("1", filter);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(5), "{waited:?}");
    client.assert_changed("1", "tools");
    gate.open();
    let mut told = [client.message("1"), client.message("1")].map(|message| message["method"].to_string());
    told.sort();
    assert_eq!(told, ["\"notifications/resources/updated\"", "\"notifications/tools/list_changed\""]);
}

#[test]
fn an_unreachable_upstream_is_counted_on() {
    let (dead, _socket) = refusing_address();
    let weather = Listening::start(Offer::tools(&["b"]));
    let config = Config::new().upstream("files", dead, "").upstream("weather", weather.upstream.address, "");
    let daemon = Daemon::start(&config);
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["files+x:1"]}"#;
    let started = Instant::now();
    let mut client = Client::acknowledged(&daemon, "1", filter, filter);
    assert!(started.elapsed() >= Duration::from_secs(1));
    weather.tools_stream().notify("tools/list_changed", "");
    client.assert_changed("1", "tools");
}

#[test]
fn what_no_upstream_offers_is_left_out() {
    let refusals = [("404 Not Found", -32601), ("200 OK", -32601), ("400 Bad Request", -32602)];
    for (status, code) in refusals {
        let upstream = Listening::taking(Offer::tools(&["a"]), move |request| {
            Listened::Answered(Reply::error(request, status, code, "no"))
        });
        let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
        let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}"#;
        let _client = Client::acknowledged(&daemon, "1", filter, "{}");
        let _other = Client::acknowledged(&daemon, "2", r#"{"resourceSubscriptions":["x:2"]}"#, "{}");
        // What is said of a request is not said of others.
        let asked = if code == -32601 { 2 } else { 3 };
        assert_eq!(upstream.upstream.received_of("subscriptions/listen").len(), asked, "and is remembered");
    }
    let upstream = Listening::taking(Offer::tools(&["a"]), |_| {
        let gate = Gate::default();
        gate.open();
        Listened::Partly(r#"{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}"#.into(), gate)
    });
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let filter =
        r#"{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["x:1","x:2"]}"#;
    let honoured = r#"{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}"#;
    let mut client = Client::acknowledged(&daemon, "1", filter, honoured);
    upstream.tools_stream().notify("prompts/list_changed", "");
    upstream.tools_stream().notify("tools/list_changed", "");
    client.assert_changed("1", "tools");
    // Merged lists are the gateway's own: their changes are told whatever the upstreams offer.
    let refusing = |name: &'static str| {
        Listening::taking(Offer::tools(&[name]), |request| {
            Listened::Answered(Reply::error(request, "404 Not Found", -32601, "no"))
        })
    };
    let (files, weather) = (refusing("a"), refusing("b"));
    let daemon = Daemon::start(&Config::prefixed(&files.upstream, &weather.upstream));
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["files+x:1"]}"#;
    let _client = Client::acknowledged(&daemon, "1", filter, TOOLS);
}

#[test]
fn a_stream_that_makes_no_sense_is_opened_again() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream).admin());
    let mut client = Client::acknowledged(&daemon, "1", TOOLS, TOOLS);
    let stream = upstream.tools_stream();
    // Not for us, and nothing we know: no fault.
    for strange in [
        format!(r#"{{"method":"notifications/tools/list_changed","params":{{"_meta":{{"{ID}":"other"}}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":99999,"result":{{"_meta":{{"{ID}":99999}}}}}}"#),
        r#"{"method":"notifications/message","params":{"level":"info","data":"x"}}"#.to_owned(),
        r#"{"id":1,"method":"ping"}"#.to_owned(),
        "[]".to_owned(),
    ] {
        stream.event(&strange);
    }
    stream.chunk(":\n\n\n\nevent: x\n\n");
    stream.notify("tools/list_changed", "");
    client.assert_changed("1", "tools");
    assert_eq!(daemon.metric(r#"trunkline_notifications_total{kind="tools_list"}"#), 1);
    stream.event("{not json");
    client.assert_changed("1", "tools");
    let endless = upstream.tools_stream();
    assert_ne!(endless.request.connection, stream.request.connection);
    for _ in 0..40 {
        endless.chunk(&format!("data: {}\n", "x".repeat(64 * 1024)));
    }
    client.assert_changed("1", "tools");
    upstream.upstream.wait_closed(endless.request.connection);
    assert_eq!(daemon.metric(r#"trunkline_upstream_subscription_gaps_total{upstream="up"}"#), 2);
}

#[test]
fn nonsense_in_the_place_of_an_acknowledgement_is_no_stream() {
    let replies = [
        Reply::raw("SSH-2.0-OpenSSH\r\n\r\n"),
        Reply::json("200 OK", "{}"),
        Reply::json("500 Internal Server Error", "{}"),
        Reply::http("200 OK", "Content-Type: text/html\r\n", "<html>"),
        Reply::stream().chunk("data: {\n\n"),
        Reply::stream().end(),
        Reply::default().reset(),
    ];
    side_by_side(replies, |reply| {
        let upstream = Listening::taking(Offer::tools(&["a"]), move |_| Listened::Answered(reply.clone()));
        let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
        let _client = Client::acknowledged(&daemon, "1", TOOLS, TOOLS);
        daemon.send(&call("2", "a")).assert_ok();
        let asked = upstream.upstream.received_of("subscriptions/listen").len();
        assert!((1..=4).contains(&asked), "{asked} times within a second or two");
    });
}

#[test]
fn a_client_that_reads_nothing_costs_little_and_harms_nobody() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream).admin());
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["x:"]}"#;
    let mut reader = Client::acknowledged(&daemon, "1", TOOLS, TOOLS);
    let idle: Vec<_> = (0..20).map(|_| Client::acknowledged(&daemon, "2", filter, filter)).collect();
    let before = daemon.peak_resident_bytes();
    let stream = upstream.stream_with("resourceSubscriptions", "x:");
    let long = "y".repeat(4000);
    for number in 0..2000 {
        stream.update(&format!("x:/{number}/{long}"));
    }
    upstream.tools_stream().notify("tools/list_changed", "");
    reader.assert_changed("1", "tools");
    daemon.send(&call("3", "a")).assert_ok();
    let grown = daemon.peak_resident_bytes() - before;
    assert!(grown < 40 << 20, "{grown} bytes for {} clients", idle.len());
}

#[test]
fn a_drain_ends_subscriptions_with_their_result() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let mut daemon = Daemon::start(&Config::transparent(&upstream.upstream).admin());
    let mut one = Client::acknowledged(&daemon, "1", TOOLS, TOOLS);
    let mut two = Client::acknowledged(&daemon, "\"2\"", "{}", "{}");
    daemon.terminate();
    one.assert_ended("1");
    two.assert_ended("\"2\"");
    let mut late = Client::open(&daemon, &listen("3", "{}"));
    late.assert_acknowledged("3", "{}");
    late.assert_ended("3");
    assert!(daemon.wait_exit().success());
}

#[test]
fn a_reload_ends_what_it_changes_and_nothing_else() {
    let (files, weather) = (Listening::start(Offer::tools(&["a"])), Listening::start(Offer::tools(&["b"])));
    let (entry, other_entry) = (api_key("ci", "one"), api_key("ci", "two"));
    let config = Config::prefixed(&files.upstream, &weather.upstream);
    let keyed = config.clone().section(&entry);
    let daemon = Daemon::start(&keyed);
    let request = |id: &str| listen(id, TOOLS).with("Authorization", "Bearer one");
    let open = |id: &str| {
        let mut client = Client::open(&daemon, &request(id));
        client.assert_acknowledged(id, TOOLS);
        client
    };
    let reload = |config: &Config| {
        let from = daemon.log().len();
        daemon.reload(config);
        daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
    };
    let mut client = open("1");
    reload(&keyed.clone().limits("headers_max = 99"));
    files.tools_stream().notify("tools/list_changed", "");
    client.assert_changed("1", "tools");
    reload(&config.clone().section(&other_entry));
    client.assert_ended("1");
    daemon.send(&request("2")).assert_error(401, 401, Some("2"));
    reload(&keyed);
    let mut client = open("3");
    reload(&keyed.clone().endpoint("deny = [\"x\"]"));
    client.assert_ended("3");
    let mut client = open("4");
    reload(&keyed.path("/other"));
    client.assert_ended("4");
}

#[test]
fn one_connection_carries_several_subscriptions() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let mut connection = Http2::connect(daemon.address());
    let prompts = r#"{"promptsListChanged":true}"#;
    let (response, mut one) = connection.open(&listen("1", TOOLS));
    assert_eq!((response.status, response.header("content-type")), (200, Some("text/event-stream")));
    let (_, mut two) = connection.open(&listen("2", prompts));
    let mut next = |which: usize| {
        let piece = connection.next(if which == 1 { &mut one } else { &mut two }).expect("an event");
        String::from_utf8(piece.to_vec()).unwrap()
    };
    assert!(next(1).contains("subscriptions/acknowledged"));
    assert!(next(2).contains("subscriptions/acknowledged"));
    let stream = upstream.stream_with("promptsListChanged", "true");
    stream.notify("prompts/list_changed", "");
    let told = next(2);
    assert!(told.contains(&format!("\"{ID}\":2")) && told.contains("prompts/list_changed"), "{told}");
    stream.notify("tools/list_changed", "");
    let told = next(1);
    assert!(told.contains(&format!("\"{ID}\":1")) && told.contains("tools/list_changed"), "{told}");
}

#[test]
fn a_principal_has_only_so_many_subscriptions() {
    let upstream = Upstream::with_tools(&["a"]);
    let keys = format!("{}\n{}", api_key("one", "key-of-one"), api_key("two", "key-of-two"));
    let config = Config::transparent(&upstream).section(&keys).limits("subscriptions_max = 8").admin();
    let daemon = Daemon::start(&config);
    let as_key = |key: &str| listen("1", "{}").with("Authorization", format!("Bearer {key}"));
    let [one, _other] = [(); 2].map(|()| Client::open(&daemon, &as_key("key-of-one")));
    let refused = daemon.send(&as_key("key-of-one"));
    refused.assert_error(429, 429, Some("1"));
    assert!(refused.header("retry-after").is_some());
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains(r#"error_type="subscriptions""#), "{metrics}");
    let _of_two = Client::open(&daemon, &as_key("key-of-two"));
    drop(one);
    eventually("there is room again", || {
        let mut connection = daemon.connect();
        connection.write(&as_key("key-of-one").bytes());
        (connection.head().status == 200).then_some(())
    });
}

#[test]
fn subscriptions_are_limited() {
    let upstream = Upstream::with_tools(&["a"]);
    let limits = "subscriptions_max = 2\nsubscriptions_per_principal_max = 2";
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits).admin());
    let one = Client::acknowledged(&daemon, "1", "{}", "{}");
    let _two = Client::acknowledged(&daemon, "2", "{}", "{}");
    let refused = daemon.send(&listen("3", "{}"));
    refused.assert_error(503, 503, Some("3"));
    assert!(refused.header("retry-after").is_some());
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains(r#"error_type="subscriptions""#), "{metrics}");
    drop(one);
    eventually("there is room again", || {
        let mut connection = daemon.connect();
        connection.write(&listen("4", "{}").bytes());
        (connection.head().status == 200).then_some(())
    });
}
