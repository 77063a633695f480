//! Somebody takes all it can of what names take, of lists, or of the places of subscriptions: does everyone else still get
//! theirs?

use super::{As as _, keys};
use crate::harness::{
    Config, Connection, Daemon, Listening, Offer, Request, Upstream, eventually, list, listen,
};

const REFUSED: &str = r#"trunkline_upstream_subscription_names_refused_total{reason="full",upstream="up"}"#;

#[test]
fn subscriptions_of_one_leave_room_for_another() {
    let upstream = Upstream::with_tools(&["echo"]);
    let limits = "subscriptions_max = 16\nsubscriptions_per_principal_max = 16";
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits).section(&keys()));
    let open = |number: usize| {
        let mut connection = daemon.begin(&listen("1", r#"{"toolsListChanged":true}"#).by(number));
        (connection.any_head().status, connection)
    };
    let held: Vec<_> = (0..14).map(|_| open(0)).collect();
    assert!(held.iter().all(|(status, _)| *status == 200));
    assert_eq!(open(0).0, 429);
    let others = [open(1), open(2)];
    assert!(others.iter().all(|(status, _)| *status == 200));
}

/// A subscription to these.
fn listen_to(uris: impl Iterator<Item = String>) -> Request {
    let uris: Vec<String> = uris.map(|uri| format!("\"{uri}\"")).collect();
    listen("1", &format!(r#"{{"resourceSubscriptions":[{}]}}"#, uris.join(",")))
}

/// One principal gets a quarter of the 100,000 names of an upstream, and the last eighth is a reserve.
#[test]
fn names_of_four_leave_some_to_a_fifth() {
    let upstream = Listening::start(Offer::tools(&["a"]));
    let limits = "subscription_uris_max = 30000\nbuffered_bytes_max = \"1GiB\"";
    let daemon =
        Daemon::start(&Config::transparent(&upstream.upstream).limits(limits).section(&keys()).admin());
    let open = |number: usize, uris: usize| {
        let mut stream =
            daemon.begin(&listen_to((0..uris).map(|uri| format!("x:{number}/{uri}"))).by(number));
        assert_eq!(stream.any_head().status, 200);
        stream
    };
    let mut held: Vec<Connection> = (0..4).map(|number| open(number, 25_000)).collect();
    let refused = daemon.metric(REFUSED);
    assert_eq!(refused, 12_500, "the reserve is for those who want few");
    held.push(open(4, 1));
    assert_eq!(daemon.metric(REFUSED), refused);
    eventually("the upstream is asked for the name of the fifth", || {
        let asked = upstream.upstream.received_of("subscriptions/listen");
        asked.iter().any(|request| request.body.windows(7).any(|bytes| bytes == b"\"x:4/0\"")).then_some(())
    });
}

#[test]
fn lists_that_find_no_memory_are_fetched_again() {
    let tools: Vec<String> = (0..200).map(|number| format!("tool-{number}")).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let upstream = Upstream::with_tools(&tools);
    let daemon = Daemon::start(&Config::transparent(&upstream).limits("cache_bytes_max = \"4KiB\"").admin());
    eventually("it is fetched again and again", || {
        daemon.send(&list("1", "tools/list")).assert_ok();
        (upstream.received_of("tools/list").len() > 3).then_some(())
    });
    assert!(daemon.metric("trunkline_list_cache_bytes") <= 4096);
}
