//! Programs that say that their lists have changed, and how often clients are told.

use std::time::{Duration, Instant};

use crate::harness::{
    Child, Config, Connection, Daemon, LEGACY_VERSION, in_session, legacy_call, listen, open_session_with,
    post, side_by_side,
};

/// Clients are told no oftener; a little less, as what is told is heard a little later now and then.
const INTERVAL: Duration = Duration::from_millis(1900);
const CHANGED: &str = "notifications/tools/list_changed";

/// Hears of changes so many times on a stream that was opened then.
#[track_caller]
fn hear(stream: &mut Connection, opened: Instant, times: u32, who: &str) {
    let mut heard = 0;
    while heard < times {
        let event = stream.event().expect("the stream goes on");
        heard += u32::try_from(event.matches(CHANGED).count()).expect("a few");
    }
    let (took, least) = (opened.elapsed(), INTERVAL * (heard - 1));
    assert!(took >= least, "{who} was told {heard} times in {took:?}");
}

/// Opens a stream of a client.
type Open = fn(&Daemon) -> Connection;

fn subscription(daemon: &Daemon) -> Connection {
    let mut stream = daemon.begin(&listen("1", r#"{"toolsListChanged":true}"#));
    assert_eq!(stream.head().status, 200);
    stream
}

fn stream_of_session(daemon: &Daemon) -> Connection {
    let session = open_session_with(daemon.address(), LEGACY_VERSION, "{}");
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    stream.write(&in_session(&session, get).bytes());
    assert_eq!(stream.head().status, 200);
    // From now on it may have processes of its own, which speak to it alone.
    for name in ["a", "b", "c"] {
        let reply = daemon.send(&in_session(&session, legacy_call("1", &format!("{name}__echo"))));
        assert!(reply.text().matches(CHANGED).count() <= 1, "{}", reply.text());
    }
    stream
}

#[test]
fn bursts_of_programs_are_told_once_in_two_seconds() {
    let programs = [("shared", &[][..]), ("session", &[]), ("shared", &["modern"])];
    side_by_side(programs, |(isolation, words)| {
        let words = [words, &["storms"]].concat();
        let children = ["a", "b", "c"].map(|name| (name, Child::new(&words)));
        let config = children.iter().fold(Config::new(), |config, (name, child)| {
            config.raw(name, &child.keys(&format!("isolation = \"{isolation}\"")))
        });
        let daemon = Daemon::start(&config);
        let open: [(&str, Open); 2] = [("a subscription", subscription), ("a session", stream_of_session)];
        side_by_side(open, |(who, open)| {
            let opened = Instant::now();
            hear(&mut open(&daemon), opened, 4, who);
        });
    });
}
