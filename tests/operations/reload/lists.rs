//! Lists that are others after a reload: clients with sessions are told, once, whether they listen meanwhile or later.

use crate::harness::{
    Config, Connection, Daemon, LEGACY_VERSION, Legacy, Offer, Upstream, in_session, open_session, post,
};

use super::assert_reloads;

const KINDS: [&str; 3] = ["prompts", "resources", "tools"];

/// A stream of the session.
fn listen(daemon: &Daemon, session: &str) -> Connection {
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    stream.write(&in_session(session, get).bytes());
    assert_eq!(stream.head().status, 200);
    stream
}

/// The lists that a stream calls changed before it ends or has nothing to say.
#[track_caller]
fn changed(stream: &mut Connection) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = stream.event() {
        if event.starts_with(':') {
            break;
        }
        let kind = event.split("notifications/").nth(1).and_then(|rest| rest.split("/list_changed").next());
        told.extend(kind.map(str::to_owned));
    }
    told.sort();
    told
}

#[test]
fn what_a_reload_does_to_lists_is_told_once() {
    let servers = [(); 3].map(|()| Legacy::new(Offer::tools(&["echo"])).with_streams().start());
    let config = |members: &[(&str, &Upstream)], endpoint: &str| {
        let config = Config::new()
            .endpoint("names = \"prefixed\"")
            .endpoint(endpoint)
            .section("[session]\nkeep_alive_interval = \"1s\"");
        members
            .iter()
            .fold(config, |config, (name, it)| config.upstream(name, it.address, "eras = [\"legacy\"]"))
    };
    let [one, two, three] = &servers;
    let before = config(&[("one", one), ("two", two)], "");
    for (change, after) in [
        ("removed", config(&[("one", one)], "")),
        ("changed", config(&[("one", one), ("two", three)], "")),
        ("added", config(&[("one", one), ("two", two), ("three", three)], "")),
        ("put before the others", config(&[("three", three), ("one", one), ("two", two)], "")),
        ("hidden", config(&[("one", one), ("two", two)], "deny = [\"two__*\"]")),
    ] {
        let daemon = Daemon::start(&before);
        let [listening, silent] = [(); 2].map(|()| open_session(daemon.address(), LEGACY_VERSION).0);
        let mut stream = listen(&daemon, &listening);
        assert_reloads(&daemon, &after);
        assert_eq!(changed(&mut stream), KINDS, "{change}: on the stream that was open");
        assert_eq!(changed(&mut listen(&daemon, &listening)), [""; 0], "{change}: told already");
        assert_eq!(changed(&mut listen(&daemon, &silent)), KINDS, "{change}: first on the next stream");
        assert_eq!(changed(&mut listen(&daemon, &silent)), [""; 0], "{change}: told already, too");
        // A reload that changes no list is not announced.
        let mut stream = listen(&daemon, &listening);
        let same = after.to_string().replace("keep_alive", "# As before.\nkeep_alive");
        assert_reloads(&daemon, &same);
        assert_eq!(changed(&mut stream), [""; 0], "{change}: nothing more");
    }
}
