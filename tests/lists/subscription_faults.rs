//! Upstreams that refuse a `subscriptions/listen` for what one client asked: nobody else is to notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::harness::{
    Config, Connection, Daemon, Gate, Listened, Listening, META, Offer, Received, Reply, Request, Stream,
    api_key, body, eventually, literal, modern,
};

/// A `subscriptions/listen` for these resources.
fn listen(uris: &[&str]) -> Request {
    let filter = filter(uris);
    let params = format!(r#"{{"notifications":{filter},"_meta":{META}}}"#);
    modern("subscriptions/listen", None, body("1", "subscriptions/listen", &params))
}

fn filter(uris: &[&str]) -> String {
    if uris.is_empty() {
        "{}".into()
    } else {
        serde_json::json!({ "resourceSubscriptions": uris }).to_string()
    }
}

/// A client's stream.
struct Client(Connection);

impl Client {
    /// Listens, and reads the head of the response.
    fn open(daemon: &Daemon, request: &Request) -> Self {
        let mut connection = daemon.connect();
        connection.write(&request.bytes());
        let head = connection.head();
        assert_eq!(head.status, 200, "{head:?}");
        Self(connection)
    }

    fn acknowledged(daemon: &Daemon, uris: &[&str], acknowledged: &[&str]) -> Self {
        let mut client = Self::open(daemon, &listen(uris));
        client.assert_acknowledged(acknowledged);
        client
    }

    /// The next message.
    #[track_caller]
    fn message(&mut self) -> Value {
        loop {
            let event = self.0.event().expect("the stream goes on");
            if let Some(data) = event.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    #[track_caller]
    fn assert_acknowledged(&mut self, uris: &[&str]) {
        let message = self.message();
        assert_eq!(message["method"], "notifications/subscriptions/acknowledged", "{message}");
        assert_eq!(message["params"]["notifications"].to_string(), filter(uris));
    }

    /// Is told, sooner or later, of a change with this title.
    #[track_caller]
    fn assert_told(&mut self, title: &str) {
        while self.message()["params"]["title"] != title {}
    }
}

/// Tells of a change of a resource, as soon as an open stream carries it: on every stream that does, because the gateway
/// may be about to leave one of them for another.
fn tell(upstream: &Listening, uri: &str, title: &str) {
    let carries = |stream: &Stream| names(&stream.request).iter().any(|name| name == uri);
    eventually("the resource is carried", || upstream.open_streams().iter().any(carries).then_some(()));
    let streams = upstream.streams(|_| true);
    for stream in streams.iter().filter(|stream| carries(stream)) {
        stream.notify("resources/updated", &format!(r#""uri":"{uri}","title":"{title}","#));
    }
}

/// The resources that a request asks for.
fn names(request: &Received) -> Vec<String> {
    let json = request.json();
    let names = json["params"]["notifications"]["resourceSubscriptions"].as_array().cloned();
    names.unwrap_or_default().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn refused(request: &Received) -> Listened {
    Listened::Answered(Reply::error(request, "400 Bad Request", -32602, "no such resource"))
}

/// As an upstream that runs into its own fault.
fn failed(request: &Received) -> Listened {
    Listened::Answered(Reply::error(request, "500 Internal Server Error", -32603, "no idea"))
}

/// A server that refuses to be asked for anything with `bad` in its name.
fn strict() -> Listening {
    Listening::taking(Offer::tools(&["a"]), |request| {
        if names(request).iter().any(|name| name.contains("bad")) {
            refused(request)
        } else {
            Listened::Honoured
        }
    })
}

/// A server that fails at whatever has `bad` in its name.
fn fragile() -> Listening {
    Listening::taking(Offer::tools(&["a"]), |request| {
        let is_bad = names(request).iter().any(|name| name.contains("bad"));
        if is_bad { failed(request) } else { Listened::Honoured }
    })
}

#[test]
fn a_bad_uri_costs_others_nothing() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Listening::taking(Offer::tools(&["a"]), move |request| {
        let asked = names(request);
        if asked.iter().any(|name| name.contains("bad")) {
            return refused(request);
        }
        let first = asked == ["x:first"];
        let filter = literal(&request.body, &["params", "notifications"]);
        if first { Listened::Partly(filter, held.clone()) } else { Listened::Honoured }
    });
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream).admin());
    let mut first = Client::open(&daemon, &listen(&["x:first"]));
    upstream.stream_with("resourceSubscriptions", "x:first");
    // All of these are asked for at once.
    let good: Vec<String> = (0..20).map(|number| format!("x:{number}")).collect();
    let mut others: Vec<Client> = good.iter().map(|uri| Client::open(&daemon, &listen(&[uri]))).collect();
    let mut bad = Client::open(&daemon, &listen(&["x:fine", "x:bad"]));
    gate.open();
    first.assert_acknowledged(&["x:first"]);
    for (uri, client) in good.iter().zip(&mut others) {
        client.assert_acknowledged(&[uri]);
        tell(&upstream, uri, "told");
        client.assert_told("told");
    }
    tell(&upstream, "x:first", "told");
    first.assert_told("told");
    assert_eq!(bad.message()["method"], "notifications/subscriptions/acknowledged");
    tell(&upstream, "x:fine", "told");
    bad.assert_told("told");
    // What was found out is remembered, even if nobody wants it meanwhile.
    drop(bad);
    let refused = r#"trunkline_upstream_subscription_names_refused_total{reason="name",upstream="up"}"#;
    eventually("the bad one is found", || (daemon.metric(refused) == 1).then_some(()));
    let asked = upstream.upstream.received_of("subscriptions/listen").len();
    assert!(asked < 40, "{asked}");
    let _again = Client::acknowledged(&daemon, &["x:bad"], &[]);
    let last = upstream.upstream.received_of("subscriptions/listen").split_off(asked);
    assert!(last.iter().all(|request| !names(request).iter().any(|name| name == "x:bad")), "{last:?}");
    let gaps = r#"trunkline_upstream_subscription_gaps_total{upstream="up"}"#;
    assert_eq!(daemon.metric(gaps), 0, "what stands goes on standing");
}

#[test]
fn newcomers_are_tried_after_one_was_refused() {
    let upstream = strict();
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let _bad = Client::acknowledged(&daemon, &["x:bad"], &[]);
    let mut good = Client::acknowledged(&daemon, &["x:good"], &["x:good"]);
    tell(&upstream, "x:good", "told");
    good.assert_told("told");
}

#[test]
fn what_stood_before_an_upstream_became_strict_stands_again() {
    let is_strict = Arc::new(AtomicBool::new(false));
    let strict = Arc::clone(&is_strict);
    let upstream = Listening::taking(Offer::tools(&["a"]), move |request| {
        let is_bad = strict.load(Ordering::Relaxed) && names(request).iter().any(|name| name == "x:bad");
        if is_bad { refused(request) } else { Listened::Honoured }
    });
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let uris: Vec<String> = (0..9).map(|number| format!("x:{number}")).chain(["x:bad".into()]).collect();
    let mut clients: Vec<Client> =
        uris.iter().map(|uri| Client::acknowledged(&daemon, &[uri], &[uri])).collect();
    is_strict.store(true, Ordering::Relaxed);
    upstream.cut();
    for (uri, client) in uris.iter().zip(&mut clients).take(9) {
        tell(&upstream, uri, "told");
        client.assert_told("told");
    }
}

#[test]
fn who_brings_many_bad_uris_is_cut_off() {
    let upstream = strict();
    let keys = format!("{}\n{}", api_key("eve", "key-eve"), api_key("ada", "key-ada"));
    let config = Config::transparent(&upstream.upstream).section(&keys).admin();
    let daemon = Daemon::start(&config);
    let as_key = |uris: &[&str], key: &str| listen(uris).with("Authorization", format!("Bearer {key}"));
    let mut first = Client::open(&daemon, &as_key(&["x:first"], "key-ada"));
    first.assert_acknowledged(&["x:first"]);
    let bad: Vec<String> = (0..500).map(|number| format!("x:bad{number}")).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    let _eve = Client::open(&daemon, &as_key(&bad, "key-eve"));
    let mut second = Client::open(&daemon, &as_key(&["x:second"], "key-ada"));
    second.assert_acknowledged(&["x:second"]);
    for (uri, client) in [("x:first", &mut first), ("x:second", &mut second)] {
        tell(&upstream, uri, "told");
        client.assert_told("told");
    }
    let cut_off = r#"trunkline_upstream_subscription_names_refused_total{reason="cut_off",upstream="up"}"#;
    eventually("eve is cut off", || (daemon.metric(cut_off) > 400).then_some(()));
    let asked = upstream.upstream.received_of("subscriptions/listen").len();
    assert!(asked < 120, "{asked}");
    let mut eve = Client::open(&daemon, &as_key(&["x:other", "x:second"], "key-eve"));
    eve.assert_acknowledged(&["x:second"]);
    let mut third = Client::open(&daemon, &as_key(&["x:other"], "key-ada"));
    third.assert_acknowledged(&["x:other"]);
}

#[test]
fn what_is_too_much_for_one_stream_goes_into_a_few() {
    let upstream = Listening::taking(Offer::tools(&["a"]), |request| {
        if names(request).len() <= 1 {
            return Listened::Honoured;
        }
        Listened::Answered(Reply::error(request, "413 Content Too Large", -32600, "too large"))
    });
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream).admin());
    let uris = ["x:1", "x:2", "x:3", "x:4"];
    let mut clients = uris.map(|uri| Client::acknowledged(&daemon, &[uri], &[uri]));
    let _late = Client::acknowledged(&daemon, &["x:5"], &[]);
    let asked = upstream.upstream.received_of("subscriptions/listen").len();
    let _later = Client::acknowledged(&daemon, &["x:6", "x:1"], &["x:1"]);
    assert_eq!(upstream.upstream.received_of("subscriptions/listen").len(), asked, "it is not asked in vain");
    for (uri, client) in uris.iter().zip(&mut clients) {
        tell(&upstream, uri, "told");
        client.assert_told("told");
    }
    let refused = |reason| {
        format!(r#"trunkline_upstream_subscription_names_refused_total{{reason="{reason}",upstream="up"}}"#)
    };
    assert_eq!(daemon.metric(&refused("full")), 1);
    assert_eq!(daemon.metric(&refused("name")), 0);
}

#[test]
fn a_uri_at_which_an_upstream_fails_keeps_nobody_waiting() {
    let upstream = fragile();
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let mut first = Client::acknowledged(&daemon, &["x:first"], &["x:first"]);
    let _bad = Client::acknowledged(&daemon, &["x:bad", "x:other"], &["x:bad", "x:other"]);
    let mut good = Client::acknowledged(&daemon, &["x:good"], &["x:good"]);
    for (uri, client) in [("x:first", &mut first), ("x:good", &mut good)] {
        tell(&upstream, uri, "told");
        client.assert_told("told");
    }
    tell(&upstream, "x:other", "told");
}

#[test]
fn a_uri_at_which_an_upstream_fails_keeps_nobody_out_when_a_stream_is_lost() {
    let upstream = fragile();
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let mut first = Client::acknowledged(&daemon, &["x:first"], &["x:first"]);
    let _bad = Client::acknowledged(&daemon, &["x:bad"], &["x:bad"]);
    tell(&upstream, "x:first", "before");
    first.assert_told("before");
    upstream.cut();
    tell(&upstream, "x:first", "after");
    first.assert_told("after");
    let mut good = Client::acknowledged(&daemon, &["x:good"], &["x:good"]);
    tell(&upstream, "x:good", "after");
    good.assert_told("after");
}

#[test]
fn a_uri_at_which_an_upstream_fails_keeps_nobody_out_that_comes_later() {
    let upstream = fragile();
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let _bad = Client::acknowledged(&daemon, &["x:bad"], &["x:bad"]);
    let mut good = Client::acknowledged(&daemon, &["x:good"], &["x:good"]);
    tell(&upstream, "x:good", "told");
    good.assert_told("told");
}

#[test]
fn what_stood_before_an_upstream_came_to_fail_at_some_of_it_stands_again() {
    let is_fragile = Arc::new(AtomicBool::new(false));
    let fragile = Arc::clone(&is_fragile);
    let upstream = Listening::taking(Offer::tools(&["a"]), move |request| {
        let is_bad = fragile.load(Ordering::Relaxed) && names(request).iter().any(|name| name == "x:bad");
        if is_bad { failed(request) } else { Listened::Honoured }
    });
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let uris = ["x:1", "x:2", "x:3", "x:bad"];
    let mut clients = uris.map(|uri| Client::acknowledged(&daemon, &[uri], &[uri]));
    is_fragile.store(true, Ordering::Relaxed);
    upstream.cut();
    for (uri, client) in uris.iter().zip(&mut clients).take(3) {
        tell(&upstream, uri, "told");
        client.assert_told("told");
    }
}

#[test]
fn many_bad_subscriptions_shut_out_no_newcomer() {
    let upstream = strict();
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let _bad: Vec<Client> =
        (0..70).map(|number| Client::acknowledged(&daemon, &[&format!("x:bad{number}")], &[])).collect();
    let mut good = Client::acknowledged(&daemon, &["x:good"], &["x:good"]);
    tell(&upstream, "x:good", "told");
    good.assert_told("told");
}

#[test]
fn a_newcomer_is_not_tried_with_what_failed() {
    let upstream = fragile();
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream));
    let _first = Client::acknowledged(&daemon, &["x:first"], &["x:first"]);
    let _bad = Client::acknowledged(&daemon, &["x:bad"], &["x:bad"]);
    let asked_for = |uri: &str| {
        let asked =
            upstream.upstream.received_of("subscriptions/listen").into_iter().map(|request| names(&request));
        asked.filter(|names| names.iter().any(|name| name == uri)).collect::<Vec<_>>()
    };
    eventually("the bad one failed again", || (asked_for("x:bad").len() >= 3).then_some(()));
    let mut good = Client::acknowledged(&daemon, &["x:good"], &["x:good"]);
    tell(&upstream, "x:good", "told");
    good.assert_told("told");
    let first = &asked_for("x:good")[0];
    assert!(!first.iter().any(|name| name == "x:bad"), "{first:?}");
}

/// So many names that one stream carries no more.
const MANY: usize = 8200;

/// `MANY` names that begin like this.
fn many(start: &str) -> Vec<String> {
    (0..MANY).map(|number| format!("{start}:{number}")).collect()
}

fn listening_to_many(upstream: &Listening) -> (Daemon, Vec<Client>) {
    let limits = "subscription_uris_max = 10000\nbuffered_bytes_max = \"256MiB\"";
    let daemon = Daemon::start(&Config::transparent(&upstream.upstream).limits(limits).admin());
    let uris = many("x");
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let first = Client::acknowledged(&daemon, &uris, &uris);
    (daemon, vec![first])
}

#[test]
fn what_is_wanted_beside_much_is_asked_for_alone() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let (daemon, mut clients) = listening_to_many(&upstream);
    for uri in ["y:1", "y:2", "y:3"] {
        clients.push(Client::acknowledged(&daemon, &[uri], &[uri]));
    }
    let asked = upstream.upstream.received_of("subscriptions/listen");
    let asked: Vec<usize> =
        asked.iter().map(|request| names(request).len()).filter(|names| *names > 0).collect();
    assert_eq!(asked, [MANY, 1, 2, 3], "what was asked for before stays where it is");
    for (uri, client) in ["x:7", "y:1", "y:2", "y:3"].iter().zip(&mut clients) {
        tell(&upstream, uri, uri);
        client.assert_told(uri);
    }
    // Nobody wants the many any more: their stream ends by itself, the other stays.
    clients.remove(0);
    eventually("the stream of the many is closed", || {
        let open = upstream.open_streams();
        let carried: Vec<usize> = open.iter().map(|stream| names(&stream.request).len()).collect();
        (carried.iter().all(|names| *names <= 3) && carried.contains(&3)).then_some(())
    });
    tell(&upstream, "y:2", "still");
    clients[1].assert_told("still");
}

#[test]
fn an_upstream_that_takes_one_stream_is_asked_for_everything_in_it() {
    let busy = Arc::new(AtomicBool::new(false));
    let taken = Arc::clone(&busy);
    let upstream = Listening::taking(Offer::tools(&["a"]), move |request| {
        let names = names(request);
        let is_beside = !names.is_empty() && names.len() < MANY && taken.load(Ordering::Relaxed);
        taken.fetch_or(names.len() >= MANY, Ordering::Relaxed);
        if is_beside { refused(request) } else { Listened::Honoured }
    });
    let (daemon, mut clients) = listening_to_many(&upstream);
    assert!(busy.load(Ordering::Relaxed));
    for uri in ["y:1", "y:2"] {
        clients.push(Client::acknowledged(&daemon, &[uri], &[uri]));
    }
    for (uri, client) in ["x:7", "y:1", "y:2"].iter().zip(&mut clients) {
        tell(&upstream, uri, uri);
        client.assert_told(uri);
    }
}

#[test]
fn a_stream_of_which_little_is_wanted_gives_way_and_its_rest_is_told() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let (daemon, mut clients) = listening_to_many(&upstream);
    clients.push(Client::acknowledged(&daemon, &["y:1"], &["y:1"]));
    clients.push(Client::acknowledged(&daemon, &["x:5"], &["x:5"]));
    clients.remove(0);
    eventually("what is left goes together", || {
        let open = upstream.open_streams();
        let carried: Vec<Vec<String>> = open.iter().map(|stream| names(&stream.request)).collect();
        (carried.len() == 1 && carried[0].len() == 2).then_some(())
    });
    for (uri, client) in ["y:1", "x:5"].iter().zip(&mut clients) {
        tell(&upstream, uri, uri);
        client.assert_told(uri);
    }
}
