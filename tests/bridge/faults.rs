//! What servers and clients of different eras do wrong to each other, what each sees of it, and that nobody else does.

use serde_json::{Value, json};

use crate::harness::{
    Act, Answer, Asked, Caller, Config, Connection, Daemon, Gate, Kind, Legacy, Offer, Outcome, Received,
    Reply, Script, Scripted, Turn, Upstream, answer, api_key, eventually, result_body,
};

const ADA: &str = "ada-key-0123456789abcdefghijklmnopqr";
const BOB: &str = "bob-key-0123456789abcdefghijklmnopqr";
const LEGACY: &str = "eras = [\"legacy\"]\n";
const MODERN: &str = "eras = [\"modern\"]\n";
const DONE: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

/// Who can be asked everything.
fn everything() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

/// A legacy server that answers every call of its tool as the test says, and takes what it is told.
fn old(call: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> (Legacy, Upstream) {
    let server = Legacy::new(Offer::tools(&["script"])).with_streams();
    let answering = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => call(request),
        "" => Reply::http("202 Accepted", "", ""),
        _ => answering.answer(request),
    });
    (server, upstream)
}

/// A modern server that answers every call of its tool with this.
fn new(call: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let offer = Offer::tools(&["script"]);
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => call(request),
        _ => offer.answer(request),
    })
}

fn config(upstream: &Upstream, lines: &str) -> Config {
    Config::new().upstream("up", upstream.address, lines).admin()
}

/// The same, for clients with names.
fn with_keys(upstream: &Upstream, lines: &str) -> Config {
    config(upstream, lines).section(&api_key("ada", ADA)).section(&api_key("bob", BOB))
}

/// The first question of a call, with this id.
fn question(request: &Received, id: usize, number: usize) -> String {
    let script = Script::of(&request.json()["params"]["arguments"]).expect("a script");
    let mut question = Kind::Elicitation.question(&script.tag, number);
    question["jsonrpc"] = "2.0".into();
    question["id"] = id.into();
    question.to_string()
}

fn done(request: &Received) -> String {
    result_body(request, DONE)
}

fn script(tag: &str) -> Script {
    Script::new(tag, &[])
}

fn parked(daemon: &Daemon) -> u64 {
    daemon.metric("trunkline_bridge_suspended_calls{upstream=\"up\"}")
}

fn parks(daemon: &Daemon, result: &str) -> u64 {
    let series = format!("trunkline_bridge_suspensions_total{{result=\"{result}\",upstream=\"up\"}}");
    daemon.metric(&series)
}

/// A call that no longer waits is refused, and the client told what to do.
#[track_caller]
fn assert_rejected(turn: Turn) {
    let outcome = turn.ended();
    assert_eq!(outcome.error(400), -32602, "{outcome:?}");
    let message = outcome.message["error"]["message"].as_str().expect("a message");
    assert!(message.contains("call again without requestState"), "{message}");
}

#[track_caller]
fn assert_done(outcome: &Outcome) {
    assert_eq!(outcome.text(), "done");
    assert_eq!(outcome.message["result"]["resultType"], "complete");
}

/// The messages without method that reached a server and are about this id.
fn answers_to(upstream: &Upstream, id: usize) -> Vec<Value> {
    let answers = upstream.received_of("").into_iter().map(|answer| answer.json());
    answers.filter(|answer| answer["id"] == id).collect()
}

#[test]
fn a_server_that_asks_after_its_answer_asks_nobody() {
    let (server, upstream) =
        old(|request| Reply::stream().event(&done(request)).event(&question(request, 1, 0)).end());
    let daemon = Daemon::start(&config(&upstream, LEGACY));
    let ada = Caller::modern(daemon.address(), &everything());
    assert_done(&ada.round("1", &script("a"), None).ended());
    let refused = upstream.wait_for("", 1).json();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32601)), "{refused}");
    // Beside any call, on the stream of the session.
    let late = question(&upstream.only_call(), 7, 0);
    server.stream(1).event(&late);
    let refused = upstream.wait_for("", 2).json();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32601)), "{refused}");
    assert_done(&ada.round("2", &script("b"), None).ended());
    assert_eq!(parked(&daemon), 0);
}

#[test]
fn a_server_that_asks_twice_with_one_id_gets_one_answer() {
    let gate = Gate::default();
    let opened = gate.clone();
    let (_, upstream) = old(move |request| {
        let twice = Reply::stream().event(&question(request, 1, 0)).event(&question(request, 1, 1));
        twice.wait(&opened).event(&done(request)).end()
    });
    let daemon = Daemon::start(&config(&upstream, LEGACY));
    let ada = Caller::modern(daemon.address(), &everything());
    let asked = ada.asked("1", &script("a"));
    assert_eq!(asked.questions.len(), 1, "{asked:?}");
    let answering = gate;
    let resumed = std::thread::scope(|scope| {
        let resumed = scope.spawn(|| ada.resume("2", &script("a"), &asked, "ada").ended());
        upstream.wait_for("", 1);
        answering.open();
        resumed.join().expect("the call ends")
    });
    assert_done(&resumed);
    assert_eq!(answers_to(&upstream, 1).len(), 1);
}

#[test]
fn a_server_that_never_reads_an_answer_keeps_nobody_else_waiting() {
    let gate = Gate::default();
    let opened = gate.clone();
    let server = Legacy::new(Offer::tools(&["script"])).with_streams();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" if request.json()["params"]["arguments"]["tag"] == "a" => {
            Reply::stream().event(&question(request, 1, 0)).wait(&opened).event(&done(request)).end()
        }
        "tools/call" => Reply::result(request, DONE),
        "" => Reply::silence(),
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&config(&upstream, LEGACY).top("workers = 1"));
    let ada = Caller::modern(daemon.address(), &everything());
    let asked = ada.asked("1", &script("a"));
    let resumed = std::thread::scope(|scope| {
        let resumed = scope.spawn(|| ada.resume("2", &script("a"), &asked, "ada").ended());
        upstream.wait_for("", 1);
        assert_done(&ada.round("1", &script("b"), None).ended());
        gate.open();
        resumed.join().expect("the call ends")
    });
    // The server went on without it.
    assert_done(&resumed);
    assert_done(&ada.round("3", &script("c"), None).ended());
}

#[test]
fn a_server_that_asks_and_asks_and_reads_no_answer_leaves_connections_for_others() {
    let server = Legacy::new(Offer::tools(&["script"])).with_streams();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" if request.json()["params"]["arguments"]["tag"] == "a" => {
            let asks = (1..=500).fold(Reply::stream(), |reply, id| reply.event(&question(request, id, id)));
            asks.wait(&Gate::default())
        }
        "tools/call" => Reply::result(request, DONE),
        "" => Reply::silence(),
        _ => server.answer(request),
    });
    let lines = format!("{LEGACY}connections_max = 64\n");
    let daemon = Daemon::start(&config(&upstream, &lines).top("workers = 1"));
    let ada = Caller::modern(daemon.address(), &everything());
    let asked = ada.asked("1", &script("a"));
    assert!(asked.questions.len() <= 16, "{asked:?}");
    upstream.wait_for("", 16);
    for id in ["2", "3", "4"] {
        assert_done(&ada.round(id, &script("b"), None).ended());
    }
    assert!(upstream.received_of("").len() < 48, "{}", upstream.received_of("").len());
}

#[test]
fn a_server_that_is_silent_after_an_answer_is_given_up() {
    let (_, upstream) = old(|request| Reply::stream().event(&question(request, 1, 0)).wait(&Gate::default()));
    let daemon = Daemon::start(&config(&upstream, &format!("{LEGACY}stream_idle_timeout = \"500ms\"\n")));
    let ada = Caller::modern(daemon.address(), &everything());
    let asked = ada.asked("1", &script("a"));
    let outcome = ada.resume("2", &script("a"), &asked, "ada").ended();
    assert_eq!((outcome.status, &outcome.message["error"]["code"]), (200, &json!(504)), "{outcome:?}");
    let cancelled = upstream.wait_for("notifications/cancelled", 1).json();
    assert_eq!(cancelled["params"]["requestId"].to_string(), upstream.only_call().id());
    upstream.wait_for("DELETE", 1);
}

#[test]
fn a_stream_that_ends_while_its_call_is_parked_ends_the_call() {
    for (how, ends) in [
        ("cut", Reply::default().reset()),
        ("ended", Reply::default().end()),
        ("nonsense", Reply::default().event("{nonsense").end()),
    ] {
        let gate = Gate::default();
        let opened = gate.clone();
        let (server, upstream) =
            old(move |request| match request.json()["params"]["arguments"]["tag"].as_str() {
                Some("a") => Reply::stream().event(&question(request, 1, 0)).wait(&opened).then(ends.clone()),
                _ => Reply::result(request, DONE),
            });
        let daemon = Daemon::start(&config(&upstream, LEGACY));
        let ada = Caller::modern(daemon.address(), &everything());
        let asked = ada.asked("1", &script("a"));
        assert_eq!(parked(&daemon), 1, "{how}");
        gate.open();
        eventually("the call waits no longer", || (parked(&daemon) == 0).then_some(()));
        assert_eq!(parks(&daemon, "lost"), 1, "{how}");
        assert_rejected(ada.resume("2", &script("a"), &asked, "ada"));
        let refused = upstream.wait_for("", 1).json();
        assert!(refused.get("error").is_some(), "{how}: {refused}");
        assert_done(&ada.round("3", &script("b"), None).ended());
        eventually("the session is closed", || (server.client_sessions().len() <= 1).then_some(()));
    }
}

#[test]
fn an_answer_that_comes_while_its_call_is_parked_waits_for_the_client() {
    let gate = Gate::default();
    let opened = gate.clone();
    let (_, upstream) = old(move |request| {
        Reply::stream().event(&question(request, 1, 0)).wait(&opened).event(&done(request)).end()
    });
    let daemon = Daemon::start(&config(&upstream, LEGACY));
    let ada = Caller::modern(daemon.address(), &everything());
    let asked = ada.asked("1", &script("a"));
    gate.open();
    // The server is told that nobody answers what it did not wait for.
    assert!(upstream.wait_for("", 1).json().get("error").is_some());
    assert_done(&ada.resume("2", &script("a"), &asked, "ada").ended());
    assert_eq!((answers_to(&upstream, 1).len(), parked(&daemon)), (1, 0));
}

#[test]
fn a_server_that_forgets_a_session_ends_what_is_parked_there_and_nothing_else() {
    let server = Legacy::new(Offer::tools(&["script"])).with_streams();
    let inner = server.clone();
    let upstream = Upstream::start(move |request| {
        let is_known = inner.open_sessions().iter().any(|id| request.headers("mcp-session-id") == [id]);
        match request.method().as_str() {
            "tools/call" if is_known && request.json()["params"]["arguments"]["tag"] == "a" => {
                Reply::stream().event(&question(request, 1, 0)).wait(&Gate::default())
            }
            "tools/call" if is_known => Reply::result(request, DONE),
            "" if is_known => Reply::http("202 Accepted", "", ""),
            "" => Reply::http("404 Not Found", "", ""),
            _ => inner.answer(request),
        }
    });
    let daemon = Daemon::start(&config(&upstream, LEGACY));
    let ada = Caller::modern(daemon.address(), &everything());
    assert_done(&ada.round("1", &script("b"), None).ended());
    let asked = ada.asked("2", &script("a"));
    server.forget_sessions();
    let outcome = ada.resume("3", &script("a"), &asked, "ada").ended();
    assert!(outcome.message.get("error").is_some(), "{outcome:?}");
    assert_done(&ada.round("4", &script("c"), None).ended());
    assert_eq!(parked(&daemon), 0);
}

#[test]
fn a_server_that_asks_for_ever_is_given_up() {
    let upstream = new(|request| {
        let script = Script::of(&request.json()["params"]["arguments"]).expect("a script");
        let result = match script.tag.as_str() {
            "asks" => json!({
                "resultType": "input_required",
                "inputRequests": {"q": Kind::Roots.question("asks", 0)},
                "requestState": "s",
            }),
            "again" => json!({"resultType": "input_required", "requestState": "s"}),
            _ => return Reply::result(request, DONE),
        };
        Reply::result(request, &result.to_string())
    });
    let lines = format!("{MODERN}bridge = {{ input_requests_max = 3 }}\n");
    let daemon = Daemon::start(&config(&upstream, &lines));
    let ada = Caller::legacy(daemon.address(), &everything());
    let outcome = ada.converse(1, &script("asks"), |question| Answer::Result(answer(question, "ada")));
    outcome.error(200);
    assert_eq!(outcome.questions.len(), 3, "{outcome:?}");
    ada.converse(2, &script("again"), |_| unreachable!("nobody is asked")).error(200);
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), 8, "{calls:?}");
    assert!(calls.windows(2).all(|pair| pair[0].id() != pair[1].id()));
    assert_eq!(ada.converse(3, &script("b"), |_| unreachable!("nobody is asked")).text(), "done");
}

#[test]
fn what_no_modern_server_may_say_reaches_no_client() {
    let state = "s".repeat(1 << 20);
    let cases = [
        json!({"resultType": "odd", "content": []}),
        json!({"resultType": 7}),
        json!({"resultType": "input_required"}),
        json!({"resultType": "input_required", "requestState": state}),
        json!({"resultType": "input_required", "requestState": state, "inputRequests": {"q": Kind::Roots.question("2", 0)}}),
        json!({"resultType": "input_required", "requestState": 7}),
        json!({"resultType": "input_required", "inputRequests": [], "requestState": "s"}),
        json!({"resultType": "input_required", "inputRequests": {"q": 1}, "requestState": "s"}),
        json!({"resultType": "input_required", "inputRequests": {"q": {"method": "tools/call", "params": {}}}}),
        json!({"resultType": "input_required", "inputRequests": {"q": {"params": {}}}}),
    ];
    let count = cases.len();
    let upstream = new(move |request| {
        let tag = request.json()["params"]["arguments"]["tag"].as_str().map(str::to_owned);
        match tag.and_then(|tag| cases.get(tag.parse::<usize>().ok()?).cloned()) {
            Some(result) => Reply::result(request, &result.to_string()),
            None => Reply::result(request, DONE),
        }
    });
    let daemon =
        Daemon::start(&config(&upstream, &format!("{MODERN}bridge = {{ input_requests_max = 3 }}\n")));
    let ada = Caller::legacy(daemon.address(), &everything());
    for case in 0..count {
        let outcome =
            ada.converse(case, &script(&case.to_string()), |_| panic!("nobody is asked in case {case}"));
        let code = outcome.error(200);
        assert!(!(0..400).contains(&code), "case {case}: {outcome:?}");
        assert!(!outcome.message.to_string().contains("odd"), "{outcome:?}");
    }
    assert_eq!(ada.converse(99, &script("b"), |_| unreachable!("nobody is asked")).text(), "done");
}

#[test]
fn a_client_that_cannot_be_asked_is_not() {
    for capabilities in [json!({}), json!({"roots": {}})] {
        // A legacy server is told so.
        let scripted = Scripted::legacy();
        let daemon = Daemon::start(&config(&scripted.upstream, LEGACY));
        let ada = Caller::modern(daemon.address(), &capabilities);
        let asking = Script::asking("ada-1", &[Kind::Elicitation, Kind::Sampling]);
        let outcome = ada.converse(1, &asking, |_| unreachable!("it cannot be asked"));
        assert_eq!(outcome.text(), asking.expected("ada", |_| false));
        let codes = scripted
            .upstream
            .received_of("")
            .into_iter()
            .map(|answer| answer.json()["error"]["code"].clone());
        assert_eq!(codes.collect::<Vec<_>>(), [json!(-32601), json!(-32601)]);

        // A modern one was told so before.
        let upstream = new(|request| {
            let asks = json!({"q": Kind::Elicitation.question("a", 0)});
            let result = json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s"});
            Reply::result(request, &result.to_string())
        });
        let daemon = Daemon::start(&config(&upstream, MODERN));
        let bob = Caller::legacy(daemon.address(), &capabilities);
        bob.converse(1, &script("a"), |_| unreachable!("it cannot be asked")).error(200);
        assert_eq!(upstream.received_of("tools/call").len(), 1);
    }
}

#[test]
fn a_suspended_call_is_its_own_clients_alone() {
    let scripted = Scripted::legacy();
    let daemon = Daemon::start(&with_keys(&scripted.upstream, LEGACY).top("workers = 3"));
    let ada = Caller::modern(daemon.address(), &everything()).with_key(ADA);
    let bob = Caller::modern(daemon.address(), &everything()).with_key(BOB);
    let (one, two) =
        (Script::asking("ada-1", &[Kind::Elicitation]), Script::asking("ada-2", &[Kind::Elicitation]));
    let (of_one, of_two) = (ada.asked("1", &one), ada.asked("2", &two));
    assert_eq!(parked(&daemon), 2);
    assert_rejected(ada.resume("3", &one, &of_two, "ada"));
    assert_rejected(ada.resume("4", &two, &of_one, "ada"));
    assert_rejected(bob.resume("5", &one, &of_one, "bob"));
    let tampered = Asked {
        state: of_one.state.as_ref().map(|state| state.replacen('A', "B", 1) + "A"),
        ..of_one.clone()
    };
    assert_rejected(ada.resume("6", &one, &tampered, "ada"));
    for state in ["", "x", "é", "%00"] {
        let forged = Asked { state: Some(state.into()), ..of_one.clone() };
        assert_rejected(ada.resume("7", &one, &forged, "ada"));
    }
    assert_eq!((parked(&daemon), parks(&daemon, "rejected")), (2, 8));
    for (script, asked) in [(&two, &of_two), (&one, &of_one)] {
        assert_eq!(ada.resume("8", script, asked, "ada").ended().text(), script.expected("ada", |_| true));
        assert_rejected(ada.resume("9", script, asked, "ada"));
    }
}

#[test]
fn a_call_that_is_continued_twice_at_once_goes_on_once() {
    let scripted = Scripted::legacy();
    let daemon = Daemon::start(&config(&scripted.upstream, LEGACY).top("workers = 4"));
    let ada = Caller::modern(daemon.address(), &everything());
    for number in 0..10 {
        let script = Script::asking(&format!("ada-{number}"), &[Kind::Sampling]);
        let asked = ada.asked("1", &script);
        let turns: Vec<Turn> = std::thread::scope(|scope| {
            let twins: Vec<_> = (2..6)
                .map(|id: usize| {
                    let (ada, script, asked) = (&ada, &script, &asked);
                    scope.spawn(move || ada.resume(&id.to_string(), script, asked, "ada"))
                })
                .collect();
            twins.into_iter().map(|twin| twin.join().expect("an answer")).collect()
        });
        let outcomes: Vec<Outcome> = turns.into_iter().map(Turn::ended).collect();
        let (taken, refused): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.status == 200);
        assert_eq!((taken.len(), refused.len()), (1, 3), "{outcomes:?}");
        assert_eq!(taken[0].text(), script.expected("ada", |_| true));
    }
}

#[test]
fn a_call_that_waited_too_long_is_over_for_the_server_too() {
    let scripted = Scripted::legacy();
    let lines = format!("{LEGACY}bridge = {{ suspended_call_timeout = \"300ms\" }}\n");
    let daemon = Daemon::start(&config(&scripted.upstream, &lines));
    let ada = Caller::modern(daemon.address(), &everything());
    let script = Script::asking("ada-1", &[Kind::Elicitation]);
    let asked = ada.asked("1", &script);
    let cancelled = scripted.upstream.wait_for("notifications/cancelled", 1).json();
    assert_eq!(cancelled["params"]["requestId"].to_string(), scripted.upstream.only_call().id());
    assert!(scripted.upstream.wait_for("", 1).json().get("error").is_some());
    scripted.upstream.wait_for("DELETE", 1);
    assert_rejected(ada.resume("2", &script, &asked, "ada"));
    scripted.wait_idle();
    assert_eq!((parks(&daemon, "expired"), parked(&daemon)), (1, 0));
}

#[test]
fn another_replica_knows_nothing_of_a_parked_call() {
    let scripted = Scripted::legacy();
    let [here, there] = [(); 2].map(|()| Daemon::start(&config(&scripted.upstream, LEGACY)));
    let ada = Caller::modern(here.address(), &everything());
    let script = Script::asking("ada-1", &[Kind::Roots]);
    let asked = ada.asked("1", &script);
    assert_rejected(ada.clone().at(there.address()).resume("2", &script, &asked, "ada"));
    assert_eq!(ada.resume("3", &script, &asked, "ada").ended().text(), script.expected("ada", |_| true));
}

#[test]
fn as_many_calls_are_parked_as_may_be() {
    let scripted = Scripted::legacy();
    let bridge = "bridge = { suspended_calls_max = 3, suspended_calls_per_principal_max = 2 }\n";
    let daemon = Daemon::start(&with_keys(&scripted.upstream, &format!("{LEGACY}{bridge}")));
    let [ada, bob] = [ADA, BOB].map(|key| Caller::modern(daemon.address(), &everything()).with_key(key));
    let script = |tag: &str| Script::asking(tag, &[Kind::Elicitation]);
    let of_ada: Vec<Asked> = (0..2).map(|n| ada.asked("1", &script(&format!("ada-{n}")))).collect();
    let too_many = ada.round("2", &script("ada-2"), None).ended();
    too_many.error(503);
    let of_bob = bob.asked("3", &script("bob-0"));
    bob.round("4", &script("bob-1"), None).ended().error(503);
    assert_eq!((parked(&daemon), parks(&daemon, "refused")), (3, 2));
    // The server is told of those that found no place.
    scripted.wait_cancelled(2);
    for (n, asked) in of_ada.iter().enumerate() {
        let script = script(&format!("ada-{n}"));
        assert_eq!(ada.resume("5", &script, asked, "ada").ended().text(), script.expected("ada", |_| true));
    }
    let script = script("bob-0");
    assert_eq!(bob.resume("6", &script, &of_bob, "bob").ended().text(), script.expected("bob", |_| true));
}

#[test]
fn as_many_sessions_are_open_as_may_be() {
    let scripted = Scripted::legacy();
    let lines = format!("{LEGACY}bridge = {{ sessions_max = 2 }}\n");
    let daemon = Daemon::start(&config(&scripted.upstream, &lines));
    let ada = Caller::modern(daemon.address(), &everything());
    let script = |n: usize| Script::asking(&format!("ada-{n}"), &[Kind::Elicitation]);
    let asked: Vec<Asked> = (0..2).map(|n| ada.asked("1", &script(n))).collect();
    ada.round("2", &script(2), None).ended().error(503);
    for (n, asked) in asked.iter().enumerate() {
        assert_eq!(
            ada.resume("3", &script(n), asked, "ada").ended().text(),
            script(n).expected("ada", |_| true)
        );
    }
    // One that rests makes room for a client that can do something else.
    for capabilities in [json!({"roots": {}}), json!({"sampling": {}}), json!({"elicitation": {}})] {
        let bob = Caller::modern(daemon.address(), &capabilities);
        let quiet = Script::new("ada-9", &[Act::Progress]);
        assert_eq!(bob.converse(4, &quiet, |_| unreachable!("nobody is asked")).text(), "ada-9");
    }
}

#[test]
fn a_client_that_leaves_ends_its_call_and_no_other() {
    let (_, upstream) = old(|request| match request.json()["params"]["arguments"]["tag"].as_str() {
        Some("a") => Reply::silence(),
        _ => Reply::result(request, DONE),
    });
    for capabilities in [json!({}), everything()] {
        let before = upstream.received_of("tools/call").len();
        let cancelled = upstream.received_of("notifications/cancelled").len();
        let daemon = Daemon::start(&config(&upstream, LEGACY));
        let ada = Caller::modern(daemon.address(), &capabilities);
        let mut leaving = Connection::open(daemon.address());
        leaving.write(&ada.request("1", &script("a"), None).bytes());
        let call = upstream.wait_for("tools/call", before + 1);
        drop(leaving);
        let notice = upstream.wait_for("notifications/cancelled", cancelled + 1);
        assert_eq!(notice.json()["params"]["requestId"].to_string(), call.id());
        assert_eq!(notice.headers("mcp-session-id"), call.headers("mcp-session-id"));
        assert_done(&ada.round("2", &script("b"), None).ended());
    }
}

#[test]
fn a_parked_call_survives_a_reload() {
    let scripted = Scripted::legacy();
    let daemon = Daemon::start(&config(&scripted.upstream, LEGACY));
    let ada = Caller::modern(daemon.address(), &everything());
    let script = Script::asking("ada-1", &[Kind::Elicitation, Kind::Roots]);
    let mut asked = ada.asked("1", &script);
    for (round, lines) in ["", "response_timeout = \"7s\"\n"].into_iter().enumerate() {
        let before = daemon.log().len();
        daemon.reload(&config(&scripted.upstream, &format!("{LEGACY}{lines}")));
        daemon.wait_for_log(before, "the reload", |line| line.contains("reloaded"));
        match ada.resume(&(round + 2).to_string(), &script, &asked, "ada") {
            Turn::Asked(next) => asked = next,
            Turn::Ended(outcome) => {
                assert_eq!((round, outcome.text()), (1, &*script.expected("ada", |_| true)));
            }
        }
    }
}

#[test]
fn a_parked_call_ends_with_its_upstream() {
    let (scripted, other) = (Scripted::legacy(), Upstream::with_tools(&["echo"]));
    let daemon = Daemon::start(&config(&scripted.upstream, LEGACY));
    let ada = Caller::modern(daemon.address(), &everything());
    let script = Script::asking("ada-1", &[Kind::Elicitation]);
    let _asked = ada.asked("1", &script);
    daemon.reload(&Config::new().upstream("other", other.address, "").admin());
    scripted.upstream.wait_for("notifications/cancelled", 1);
    scripted.upstream.wait_for("DELETE", 1);
    scripted.wait_idle();
}

#[test]
fn a_drain_waits_for_no_parked_call_and_tells_the_server() {
    let scripted = Scripted::legacy();
    let mut daemon = Daemon::start(&config(&scripted.upstream, LEGACY));
    let ada = Caller::modern(daemon.address(), &everything());
    let _asked = ada.asked("1", &Script::asking("ada-1", &[Kind::Elicitation]));
    daemon.terminate();
    scripted.upstream.wait_for("notifications/cancelled", 1);
    assert!(daemon.wait_exit().success());
    scripted.upstream.wait_for("DELETE", 1);
    scripted.wait_idle();
}

#[test]
fn a_legacy_client_that_goes_away_ends_its_questions() {
    let scripted = Scripted::modern();
    let daemon = Daemon::start(&config(&scripted.upstream, MODERN));
    let ada = Caller::legacy(daemon.address(), &everything());
    let script = Script::asking("ada-1", &[Kind::Elicitation]);
    let mut leaving = Connection::open(daemon.address());
    leaving.write(&ada.request("1", &script, None).bytes());
    leaving.head();
    leaving.event().expect("a question");
    drop(leaving);
    ada.leave();
    eventually("no session is left", || {
        let series = "trunkline_bridge_sessions{client_era=\"legacy\",upstream=\"up\"}";
        (daemon.metric(series) == 0).then_some(())
    });
    assert_eq!(scripted.upstream.received_of("tools/call").len(), 1);
}

#[test]
fn a_cancelled_call_of_a_legacy_client_is_answered_and_dropped_upstream() {
    let upstream = new(|request| match request.json()["params"]["arguments"]["tag"].as_str() {
        Some("a") => Reply::silence(),
        _ => Reply::result(request, DONE),
    });
    let daemon = Daemon::start(&config(&upstream, MODERN));
    let ada = Caller::legacy(daemon.address(), &everything());
    let mut waiting = Connection::open(daemon.address());
    waiting.write(&ada.request("7", &script("a"), None).bytes());
    let call = upstream.wait_for("tools/call", 1);
    ada.tell(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}));
    upstream.wait_closed(call.connection);
    assert_eq!(ada.converse(8, &script("b"), |_| unreachable!("nobody is asked")).text(), "done");
}

#[test]
fn what_clients_say_of_themselves_crosses_bounded() {
    let upstream = new(|request| Reply::result(request, DONE));
    let daemon = Daemon::start(&config(&upstream, MODERN));
    let (_, old) = old(|request| Reply::result(request, DONE));
    let other = Daemon::start(&config(&old, LEGACY));
    // Capabilities that no server knows, and that are no objects.
    for capabilities in [json!({"odd": {"x": [1, 2]}}), json!({"roots": {"listChanged": true}})] {
        let ada = Caller::legacy(daemon.address(), &capabilities);
        assert_eq!(ada.converse(1, &script("a"), |_| unreachable!("nobody is asked")).text(), "done");
        let bob = Caller::modern(other.address(), &capabilities);
        assert_eq!(bob.converse(1, &script("a"), |_| unreachable!("nobody is asked")).text(), "done");
    }
    for capabilities in ["[]", "7", "null"] {
        let ada = Caller::modern(other.address(), &json!({}));
        let request = ada.request("1", &script("a"), None);
        let spoiled = request.replacing(
            "\"io.modelcontextprotocol/clientCapabilities\":{}",
            &format!("\"io.modelcontextprotocol/clientCapabilities\":{capabilities}"),
        );
        other.send(&spoiled).assert_error(400, -32602, Some("1"));
    }
}
