//! The harness against itself: the client and the scripted upstream must understand each other, or no failure of a
//! test means anything.

use super::{Broken, Connection, Gate, Offer, Reply, Upstream, call, list, literal};

#[test]
fn client_and_upstream_agree_on_bytes() {
    let upstream = Upstream::offering(Offer::tools(&["echo"]));
    let mut connection = Connection::open(upstream.address);
    for id in ["7", "\"seven\""] {
        let request = call(id, "echo").with("X-Spelling", "as it is");
        connection.write(&request.bytes());
        let response = connection.response();
        response.assert_ok();
        assert_eq!(literal(&response.body, &["id"]), id);
        assert_eq!(literal(&response.body, &["result", "content", "0", "text"]), "\"done\"");
        let received = upstream.received().pop().unwrap();
        assert_eq!(received.head.into_bytes(), request.head());
        assert_eq!(received.body, request.body);
        assert_eq!(received.connection, 0);
    }
    connection.write(&list("1", "tools/list").bytes());
    assert_eq!(connection.response().json()["result"]["tools"][0]["name"], "echo");
    assert_eq!((upstream.received().len(), upstream.forwarded().len()), (3, 2));
    drop(connection);
    upstream.wait_closed(0);
}

#[test]
fn events_arrive_one_by_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |_| {
        Reply::stream().event("1").wait(&held).chunk("data: ").chunk("2\n\n").end()
    });
    let mut connection = Connection::open(upstream.address);
    connection.write(&call("1", "echo").bytes());
    assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
    assert_eq!(connection.event().as_deref(), Some("data: 1\n\n"));
    gate.open();
    assert_eq!(connection.event().as_deref(), Some("data: 2\n\n"));
    assert_eq!(connection.event(), None);
}

#[test]
fn broken_replies_are_seen_as_such() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let cases = [
        (Reply::raw(half).finish(), "Truncated"),
        (Reply::default().finish(), "Closed"),
        (Reply::default().reset(), "Closed"),
        (Reply::raw("SSH-2.0-x\r\n\r\n"), "Nonsense"),
    ];
    for (reply, expected) in cases {
        let upstream = Upstream::calling(move |_| reply.clone());
        let mut connection = Connection::open(upstream.address);
        connection.write(&call("1", "echo").bytes());
        let broken = connection.try_response().unwrap_err();
        let name = match broken {
            Broken::Closed => "Closed",
            Broken::Truncated(_) => "Truncated",
            Broken::Silent => "Silent",
            Broken::Nonsense(_) => "Nonsense",
        };
        assert_eq!(name, expected);
    }
}
