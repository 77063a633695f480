//! Lists that one client alone is shown: where headers of clients are handed on, and where a server changes the list of one
//! session.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::harness::{
    Config, Connection, Daemon, LEGACY_VERSION, Legacy, Offer, Received, Reply, Request, Upstream, call,
    call_as, event_data, eventually, in_session, initialize, legacy, legacy_call, list, open_session, post,
    tell, tool_names,
};

const KEY: &str = "x-user-key";
const FORWARDED: &str = "forward_headers = [\"x-user-key\"]\n";
const LEGACY_ONLY: &str = "eras = [\"legacy\"]\n";
const TOOLS_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// A server that lets in only users, by a header, and shows each of them tools of their own.
fn by_user(answer: impl Fn(&str, &Received) -> Reply + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |request| match request.headers(KEY).as_slice() {
        [user @ ("ada" | "bob")] => answer(user, request),
        _ => Reply::http("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", ""),
    })
}

fn old(has_sessions: bool) -> Upstream {
    let server = |tool: &str| {
        let server = Legacy::new(Offer::tools(&["echo", tool])).with_streams();
        if has_sessions { server } else { server.without_sessions() }
    };
    let (ada, bob) = (server("of-ada"), server("of-bob"));
    by_user(move |user, request| if user == "ada" { ada.answer(request) } else { bob.answer(request) })
}

fn new() -> Upstream {
    let (ada, bob) = (Offer::tools(&["echo", "of-ada"]), Offer::tools(&["echo", "of-bob"]));
    by_user(move |user, request| if user == "ada" { ada.answer(request) } else { bob.answer(request) })
}

fn of(user: &str, request: Request) -> Request {
    request.with(KEY, user)
}

/// The tools that this user is shown with a session and without one.
fn shown(daemon: &Daemon, user: &str) -> [Vec<String>; 2] {
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let in_session = of(user, in_session(&session, legacy("1", "tools/list", "{}")));
    [in_session, of(user, list("2", "tools/list"))].map(|request| tool_names(&daemon.send(&request)))
}

#[test]
fn each_user_is_shown_the_tools_that_are_theirs_whatever_era_is_spoken() {
    for (server, eras) in
        [(old(true), LEGACY_ONLY), (old(false), LEGACY_ONLY), (new(), "eras = [\"modern\"]\n")]
    {
        let daemon =
            Daemon::start(&Config::new().upstream("up", server.address, &format!("{eras}{FORWARDED}")));
        for user in ["ada", "bob", "ada"] {
            let tools = vec!["echo".to_owned(), format!("of-{user}")];
            assert_eq!(shown(&daemon, user), [tools.clone(), tools], "{eras} {user}");
            let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
            let own = format!("of-{user}");
            for request in [
                in_session(&session, legacy_call("3", &own)),
                call("4", &own),
                call_as("5", r#"{"elicitation":{}}"#),
            ] {
                let answer = daemon.send(&of(user, request));
                assert!(answer.text().contains("\"result\""), "{eras} {user}: {}", answer.text());
            }
        }
    }
}

#[test]
fn all_that_is_sent_in_a_clients_own_session_carries_its_headers() {
    let server = old(true);
    let daemon =
        Daemon::start(&Config::new().upstream("up", server.address, &format!("{LEGACY_ONLY}{FORWARDED}")));
    let opening = initialize("0", LEGACY_VERSION)
        .replacing(r#""capabilities":{}"#, r#""capabilities":{"elicitation":{}}"#);
    let session = daemon.send(&of("ada", opening)).header("mcp-session-id").expect("a session").to_owned();
    let send = |request: Request| daemon.send(&of("ada", in_session(&session, request)));
    send(legacy_call("1", "echo")).assert_ok();
    send(legacy("2", "logging/setLevel", r#"{"level":"info"}"#)).assert_ok();
    send(legacy("3", "resources/subscribe", r#"{"uri":"file:///a"}"#));
    tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    server.wait_for("notifications/roots/list_changed", 1);
    server.wait_for("GET", 1);
    send(post("").method("DELETE"));
    server.wait_for("DELETE", 1);
    let of_client = |request: &&Received| {
        request.method() != "initialize" || request.json()["params"]["clientInfo"]["name"] == "blackbox"
    };
    let received = server.received();
    let session_id = received
        .iter()
        .find(|request| request.method() == "tools/call")
        .map(Received::session)
        .expect("a call");
    let in_it = received
        .iter()
        .filter(of_client)
        .filter(|request| request.session() == session_id || request.method() == "initialize");
    let mut methods = BTreeSet::new();
    for request in in_it.filter(|request| request.headers(KEY) == ["ada"]) {
        methods.insert(request.method());
    }
    for method in [
        "initialize",
        "notifications/initialized",
        "GET",
        "tools/call",
        "logging/setLevel",
        "DELETE",
        "notifications/roots/list_changed",
    ] {
        assert!(methods.contains(method), "{method} lacks the header: {methods:?}");
    }
}

#[test]
fn a_refusal_names_the_headers_of_the_client() {
    for (server, eras) in [(old(true), LEGACY_ONLY), (new(), "eras = [\"modern\"]\n")] {
        let daemon =
            Daemon::start(&Config::new().upstream("up", server.address, &format!("{eras}{FORWARDED}")));
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        for request in [
            in_session(&session, legacy_call("1", "echo")),
            call("2", "echo"),
            in_session(&session, legacy("3", "tools/list", "{}")),
            list("4", "tools/list"),
        ] {
            let answer = daemon.send(&of("eve", request)).json();
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("the client's own headers are a part: x-user-key"), "{message}");
        }
    }
}

#[test]
fn a_bare_name_that_only_one_user_is_shown_can_be_called() {
    let (old, new, other) = (old(true), new(), Upstream::with_tools(&["forecast"]));
    for (server, eras) in [(&old, LEGACY_ONLY), (&new, "eras = [\"modern\"]\n")] {
        let config = Config::new()
            .upstream("up", server.address, &format!("{eras}{FORWARDED}"))
            .upstream("other", other.address, "")
            .endpoint("names = \"bare\"");
        let daemon = Daemon::start(&config);
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        for request in [in_session(&session, legacy_call("1", "of-ada")), call("2", "of-ada")] {
            let answer = daemon.send(&of("ada", request));
            assert!(answer.text().contains("\"result\""), "{eras}: {}", answer.text());
        }
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        for request in [in_session(&session, legacy_call("3", "of-ada")), call("4", "of-ada")] {
            let answer = daemon.send(&of("bob", request)).json();
            assert_eq!(answer["error"]["code"], -32602, "{eras}: {answer}");
        }
    }
}

/// A server whose tool `reveal` shows the session that calls it one more tool, and tells it so.
fn revealing() -> (Legacy, Upstream) {
    let server = Legacy::new(Offer::tools(&["echo", "reveal"])).with_streams();
    let all = Legacy::new(Offer::tools(&["echo", "reveal", "hidden"]));
    let revealed = Arc::<Mutex<BTreeSet<String>>>::default();
    let answering = server.clone();
    let upstream = Upstream::start(move |request| {
        let (method, session) = (request.method(), request.session());
        if method == "tools/call" && request.json()["params"]["name"] == "reveal" {
            revealed.lock().unwrap().insert(session.clone());
            if let Some(stream) =
                answering.streams().iter().find(|stream| stream.request.session() == session)
            {
                stream.event(TOOLS_CHANGED);
            }
        }
        let is_revealed = revealed.lock().unwrap().contains(&session);
        match all.result(request, &method) {
            Some(result) if method == "tools/list" && is_revealed => Reply::result(request, &result),
            _ => answering.answer(request),
        }
    });
    (server, upstream)
}

/// The stream of a session.
fn stream(daemon: &Daemon, session: &str) -> Connection {
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut connection = daemon.begin(&in_session(session, get));
    assert_eq!(connection.head().status, 200);
    connection
}

#[test]
fn a_session_that_is_told_of_a_change_is_shown_its_own_list_and_told_once() {
    for endpoint in ["", "names = \"bare\"\n"] {
        let (server, upstream) = revealing();
        let config = Config::new().upstream("up", upstream.address, LEGACY_ONLY);
        let daemon = Daemon::start(&if endpoint.is_empty() { config } else { config.endpoint(endpoint) });
        let tools =
            |session: &str| tool_names(&daemon.send(&in_session(session, legacy("1", "tools/list", "{}"))));
        let [one, other] = [(); 2].map(|()| open_session(daemon.address(), LEGACY_VERSION).0);
        let mut heard = stream(&daemon, &one);
        assert_eq!([tools(&one), tools(&other)], [["echo", "reveal"]; 2]);
        // The first call opens the session with the server, and its stream.
        daemon.send(&in_session(&one, legacy_call("3", "echo"))).assert_ok();
        let session = upstream.received_of("tools/call")[0].session();
        let its_stream = || server.streams().into_iter().find(|stream| stream.request.session() == session);
        let of_one = eventually("the client's stream stands", its_stream);
        daemon.send(&in_session(&one, legacy_call("4", "reveal"))).assert_ok();
        let told = event_data(&heard.event().expect("an event"));
        assert_eq!(told["method"], "notifications/tools/list_changed");
        assert_eq!(tools(&one), ["echo", "reveal", "hidden"], "{endpoint}");
        assert_eq!(tools(&other), ["echo", "reveal"], "{endpoint}");
        daemon.send(&in_session(&one, legacy_call("5", "hidden"))).assert_ok();
        // The next event is not the same once more.
        of_one.event(
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"last"}}"#,
        );
        let next = event_data(&heard.event().expect("an event"));
        assert_eq!(next["params"]["data"], "last", "{next}");
    }
}

/// A server whose tool `reveal` tells the session that calls it of another list, which it then does not give.
fn withholding(answer: fn(&Received) -> Reply) -> (Legacy, Upstream) {
    let server = Legacy::new(Offer::tools(&["echo", "reveal"])).with_streams();
    let told = Arc::<Mutex<BTreeSet<String>>>::default();
    let answering = server.clone();
    let upstream = Upstream::start(move |request| {
        let (method, session) = (request.method(), request.session());
        if method == "tools/call" && request.json()["params"]["name"] == "reveal" {
            told.lock().unwrap().insert(session.clone());
            let streams = answering.streams();
            let its_stream = streams.iter().find(|stream| stream.request.session() == session);
            its_stream.expect("the client's stream stands").event(TOOLS_CHANGED);
        }
        let withholds = method == "tools/list" && told.lock().unwrap().contains(&session);
        if withholds { answer(request) } else { answering.answer(request) }
    });
    (server, upstream)
}

#[test]
fn a_session_whose_own_list_cannot_be_had_is_shown_the_one_of_all() {
    let answers: [fn(&Received) -> Reply; 3] = [
        |_| Reply::http("404 Not Found", "", "no such session"),
        |_| Reply::http("500 Internal Server Error", "", "it is broken"),
        |request| Reply::error(request, "200 OK", -32603, "the list cannot be had in this session"),
    ];
    for (which, answer) in answers.into_iter().enumerate() {
        let ((server, upstream), other) = (withholding(answer), Upstream::with_tools(&["forecast"]));
        let settings = format!("{LEGACY_ONLY}session_loss = \"reopen\"\n");
        let config = Config::new().upstream("up", upstream.address, &settings);
        let daemon = Daemon::start(&config.upstream("other", other.address, ""));
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let mut heard = stream(&daemon, &session);
        let call = |tool: &str| daemon.send(&in_session(&session, legacy_call("1", tool))).assert_ok();
        call("up__echo");
        server.stream(1);
        call("up__reveal");
        let told = event_data(&heard.event().expect("an event"));
        assert_eq!(told["method"], "notifications/tools/list_changed");
        for _ in 0..2 {
            let list = daemon.send(&in_session(&session, legacy("2", "tools/list", "{}")));
            assert_eq!(tool_names(&list), ["up__echo", "up__reveal", "other__forecast"], "answer {which}");
        }
    }
}
