//! What servers ask of clients with sessions and what clients answer, cancel and report, in both directions.

use serde_json::{Value, json};

use crate::harness::{
    Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Upstream, body,
    event_data, eventually, in_session, legacy, legacy_call, open_session_with, result_body, tell,
};

const EVERYTHING: &str =
    r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"tasks":{}}"#;
const ANSWER: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

/// A server that answers every call of a tool as the test says, and takes what it is told.
fn server(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let server = Legacy::new(Offer::tools(&["echo"]));
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" | "tasks/get" | "tasks/result" | "tasks/list" | "tasks/cancel" => answer(request),
        "" => Reply::http("202 Accepted", "", ""),
        _ => server.answer(request),
    })
}

/// A server that asks this in the middle of a call, and answers the call once the gate is open.
fn asking(question: &str, gate: &Gate) -> Upstream {
    let (question, gate) = (question.to_owned(), gate.clone());
    server(move |request| {
        Reply::stream().event(&question).wait(&gate).event(&result_body(request, ANSWER)).end()
    })
}

fn question(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// Opens a session as a client that can do everything.
fn session(daemon: &Daemon) -> String {
    open_session_with(daemon.address(), LEGACY_VERSION, EVERYTHING)
}

/// Calls a tool and reads the head of the reply.
fn call(daemon: &Daemon, session: &str, id: &str, tool: &str) -> Connection {
    let mut connection = daemon.connect();
    connection.write(&in_session(session, legacy_call(id, tool)).bytes());
    assert_eq!(connection.head().status, 200);
    connection
}

/// The next message of the stream, which must come.
#[track_caller]
fn next(connection: &mut Connection) -> Value {
    event_data(&connection.event().expect("an event"))
}

fn answer(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The `count`th answer that reached a server.
#[track_caller]
fn answered(upstream: &Upstream, count: usize) -> Value {
    upstream.wait_for("", count).json()
}

#[track_caller]
fn ends_with_the_answer(mut connection: Connection, id: i64) {
    let last = next(&mut connection);
    assert_eq!((&last["id"], &last["result"]["content"][0]["text"]), (&json!(id), &json!("done")));
    assert_eq!(connection.event(), None);
}

#[test]
fn a_question_reaches_the_client_and_its_answer_the_server() {
    for (inner, public) in [("7", "n7"), ("\"7\"", "s7"), (r#""a.\"\u00e9""#, "sa.\"é"), ("-1", "n-1")] {
        let gate = Gate::default();
        let params = r#"{"message":"Who?","x":1e3,"_meta":{"progressToken":"t"}}"#;
        let upstream = asking(&question(inner, "elicitation/create", params), &gate);
        let daemon = Daemon::start(&Config::legacy(&upstream));
        let session = session(&daemon);
        let mut stream = call(&daemon, &session, "1", "echo");
        let event = stream.event().expect("an event");
        assert!(event.contains(r#""message":"Who?","x":1e3"#), "{event}");
        let asked = event_data(&event);
        let id = asked["id"].as_str().expect("a string").to_owned();
        let generation = id.strip_prefix("up.").and_then(|rest| rest.strip_suffix(public)).expect(&id);
        let generation: u64 = generation.trim_end_matches('.').parse().expect("a number");
        assert_eq!(asked["params"]["_meta"]["progressToken"], format!("up.{generation}.st"));
        tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept","content":{"n":1e3}}"#));
        let told = upstream.wait_for("", 1);
        assert_eq!(told.id(), inner);
        assert!(String::from_utf8_lossy(&told.body).contains(r#""content":{"n":1e3}"#));
        let of_call = upstream.received_of("tools/call").remove(0);
        assert_eq!(told.headers("mcp-session-id"), of_call.headers("mcp-session-id"));
        gate.open();
        ends_with_the_answer(stream, 1);
    }
}

#[test]
fn two_servers_may_use_the_same_ids_at_once() {
    let gate = Gate::default();
    let asks = |message: &str| {
        let params = format!(r#"{{"message":"{message}","requestedSchema":{{"type":"object"}}}}"#);
        asking(&question("1", "elicitation/create", &params), &gate)
    };
    let (files, weather) = (asks("which file?"), asks("which city?"));
    let daemon = Daemon::start(&Config::legacy_pair(&files, &weather).endpoint("prefix_elicitations = true"));
    let session = session(&daemon);
    let mut of_files = call(&daemon, &session, "1", "files__echo");
    let mut of_weather = call(&daemon, &session, "2", "weather__echo");
    let (file, city) = (next(&mut of_files), next(&mut of_weather));
    assert_ne!(file["id"], city["id"]);
    for (asked, name, message) in
        [(&file, "files", "files: which file?"), (&city, "weather", "weather: which city?")]
    {
        assert_eq!(asked["params"]["_meta"]["trunkline/upstream"], name);
        assert_eq!(asked["params"]["message"], message);
    }
    tell(&daemon, &session, &answer(&city["id"], r#"{"action":"accept","content":{"city":"Ulm"}}"#));
    let error = json!({"jsonrpc": "2.0", "id": file["id"], "error": {"code": -1, "message": "no"}});
    tell(&daemon, &session, &error.to_string());
    assert_eq!(answered(&weather, 1)["result"]["content"], json!({"city": "Ulm"}));
    assert_eq!(
        answered(&files, 1),
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}})
    );
    gate.open();
    ends_with_the_answer(of_files, 1);
    ends_with_the_answer(of_weather, 2);
    assert_eq!((files.received_of("").len(), weather.received_of("").len()), (1, 1));
}

#[test]
fn what_one_server_asks_tells_nothing_of_the_others() {
    let gate = Gate::default();
    let params = r#"{"includeContext":"allServers","messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"test://a","text":"t"}}}],"maxTokens":9}"#;
    let files = asking(&question("1", "sampling/createMessage", params), &gate);
    let weather = asking(r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#, &gate);
    let daemon = Daemon::start(&Config::legacy_pair(&files, &weather));
    let session = session(&daemon);
    let mut stream = call(&daemon, &session, "1", "files__echo");
    let asked = next(&mut stream);
    assert_eq!(asked["params"]["includeContext"], "none");
    assert_eq!(asked["params"]["messages"][0]["content"]["resource"]["uri"], "files+test://a");
    let sampled = r#"{"role":"assistant","model":"m","content":[{"type":"resource_link","uri":"files+test://a","name":"a"}]}"#;
    tell(&daemon, &session, &answer(&asked["id"], sampled));
    assert_eq!(answered(&files, 1)["result"]["content"][0]["uri"], "test://a");
    let mut stream = call(&daemon, &session, "2", "weather__echo");
    assert_eq!(next(&mut stream)["params"], json!({"_meta": {"trunkline/upstream": "weather"}}));
    gate.open();
}

#[test]
fn what_a_client_cannot_do_it_is_not_asked() {
    for (capabilities, method, params, code) in [
        ("{}", "sampling/createMessage", "{}", -32601),
        (r#"{"roots":{}}"#, "elicitation/create", "{}", -32601),
        (r#"{"elicitation":{}}"#, "elicitation/create", r#"{"mode":"url"}"#, -32602),
        (r#"{"sampling":{}}"#, "sampling/createMessage", r#"{"tools":[]}"#, -32602),
        (r#"{"sampling":{}}"#, "roots/list", "{}", -32601),
        (r#"{"sampling":{}}"#, "tasks/get", r#"{"taskId":"t"}"#, -32601),
    ] {
        let gate = Gate::default();
        let upstream = asking(&question("5", method, params), &gate);
        let daemon = Daemon::start(&Config::legacy(&upstream));
        let session = open_session_with(daemon.address(), LEGACY_VERSION, capabilities);
        let stream = call(&daemon, &session, "1", "echo");
        let refused = answered(&upstream, 1);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(5), &json!(code)), "{method}");
        gate.open();
        ends_with_the_answer(stream, 1);
    }
}

#[test]
fn ids_no_client_could_keep_are_refused() {
    let gate = Gate::default();
    let long = format!("\"{}\"", "x".repeat(257));
    let upstream = asking(&question(&long, "roots/list", "{}"), &gate);
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let stream = call(&daemon, &session(&daemon), "1", "echo");
    assert_eq!(answered(&upstream, 1)["error"]["code"], -32600);
    gate.open();
    ends_with_the_answer(stream, 1);
}

#[test]
fn a_question_is_given_up_in_time() {
    let gate = Gate::default();
    let upstream = asking(&question("5", "roots/list", "{}"), &gate);
    let lines = "eras = [\"legacy\"]\nclient_response_timeout = \"10ms\"";
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, lines));
    let session = session(&daemon);
    let mut stream = call(&daemon, &session, "1", "echo");
    let asked = next(&mut stream);
    let error = answered(&upstream, 1);
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(5), &json!(-32001)));
    tell(&daemon, &session, &answer(&asked["id"], r#"{"roots":[]}"#));
    gate.open();
    ends_with_the_answer(stream, 1);
    assert_eq!(upstream.received_of("").len(), 1);
}

#[test]
fn an_answer_is_taken_once_and_only_from_its_session() {
    let gate = Gate::default();
    let upstream = asking(&question("5", "roots/list", "{}"), &gate);
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (one, other) = (session(&daemon), session(&daemon));
    let mut stream = call(&daemon, &one, "1", "echo");
    let id = next(&mut stream)["id"].take();
    for stray in [json!("up.1.n6"), json!("x"), json!(5), json!("up.99.n5"), json!("")] {
        tell(&daemon, &one, &answer(&stray, "{}"));
    }
    tell(&daemon, &other, &answer(&id, "{}"));
    tell(&daemon, &one, &answer(&id, r#"{"roots":[]}"#));
    tell(&daemon, &one, &answer(&id, r#"{"roots":["again"]}"#));
    assert_eq!(answered(&upstream, 1), json!({"jsonrpc": "2.0", "id": 5, "result": {"roots": []}}));
    gate.open();
    ends_with_the_answer(stream, 1);
    assert_eq!(upstream.received_of("").len(), 1);
}

#[test]
fn a_client_gets_one_answer_and_its_own() {
    let upstream = server(|request| {
        let own = result_body(request, ANSWER);
        let stray = |id: &str| own.replacen(&format!("\"id\":{}", request.id()), &format!("\"id\":{id}"), 1);
        match request.client_id().parse().ok() {
            Some(1) => Reply::stream()
                .event(&stray("99"))
                .event(&stray("\"1\""))
                .event(&stray("null"))
                .event("no JSON")
                .event(&own)
                .event(&own)
                .event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"late"}}"#)
                .end(),
            // It never ends its stream.
            Some(2) => Reply::stream().event(&own).event(&own),
            Some(3) => Reply::json("200 OK", &stray("99")),
            Some(4) => Reply::json("200 OK", &own.replace(&format!("\"id\":{},", request.id()), "")),
            Some(5) => Reply::stream().event(&stray("99")).end(),
            _ => Reply::json("200 OK", &own),
        }
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = session(&daemon);
    for id in [1, 2] {
        ends_with_the_answer(call(&daemon, &session, &id.to_string(), "echo"), id);
    }
    for id in ["3", "4"] {
        daemon.send(&in_session(&session, legacy_call(id, "echo"))).assert_error(200, 502, Some(id));
    }
    let mut stream = call(&daemon, &session, "5", "echo");
    let error = next(&mut stream);
    assert_eq!((&error["id"], error["error"].is_object()), (&json!(5), true), "{error}");
    assert_eq!(stream.event(), None);
    daemon.send(&in_session(&session, legacy_call("6", "echo"))).assert_ok();
}

#[test]
fn a_long_reply_with_another_id_is_cut() {
    let text = "x".repeat(300_000);
    let reply =
        format!(r#"{{"result":{{"content":[{{"type":"text","text":"{text}"}}]}},"jsonrpc":"2.0","id":99}}"#);
    let upstream = server(move |_| Reply::json("200 OK", &reply));
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let mut connection = daemon.connect();
    connection.write(&in_session(&session(&daemon), legacy_call("1", "echo")).bytes());
    // As much as has passed before the id came may be with the client, but never the whole.
    match connection.try_response() {
        Ok(response) => drop(response.assert_error(200, 502, Some("1"))),
        Err(_) => connection.wait_closed().clear(),
    }
}

#[test]
fn a_server_may_withdraw_its_question() {
    let gate = Gate::default();
    let (asks, opened) = (question("5", "roots/list", "{}"), gate.clone());
    let upstream = server(move |request| {
        let cancelled = |id: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"enough"}}}}"#
            )
        };
        let stream = Reply::stream().event(&asks).event(&cancelled("6")).event(&cancelled("1"));
        stream
            .event(&cancelled("5"))
            .event(&cancelled("5"))
            .wait(&opened)
            .event(&result_body(request, ANSWER))
            .end()
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = session(&daemon);
    let mut stream = call(&daemon, &session, "1", "echo");
    let asked = next(&mut stream);
    let cancelled = next(&mut stream);
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"], json!({"requestId": asked["id"], "reason": "enough"}));
    tell(&daemon, &session, &answer(&asked["id"], "{}"));
    gate.open();
    ends_with_the_answer(stream, 1);
    assert_eq!(upstream.received_of("").len(), 0);
}

#[test]
fn a_cancelled_call_is_cancelled_where_it_runs() {
    let gate = Gate::default();
    let waits = || {
        let gate = gate.clone();
        server(move |request| Reply::default().wait(&gate).then(Reply::result(request, ANSWER)))
    };
    let (files, weather) = (waits(), waits());
    let daemon = Daemon::start(&Config::legacy_pair(&files, &weather));
    let session = session(&daemon);
    let calls: Vec<Connection> = [("1", "files__echo"), ("\"b\"", "weather__echo")]
        .into_iter()
        .map(|(id, tool)| {
            let mut connection = daemon.connect();
            connection.write(&in_session(&session, legacy_call(id, tool)).bytes());
            connection
        })
        .collect();
    files.wait_for("tools/call", 1);
    let called = weather.wait_for("tools/call", 1);
    let cancel = |params: &str| {
        tell(
            &daemon,
            &session,
            &format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#),
        );
    };
    cancel(r#"{"requestId":"b","reason":"too \u00e9 late"}"#);
    let note = weather.wait_for("notifications/cancelled", 1);
    assert_eq!(
        crate::harness::literal(&note.body, &["params"]),
        format!(r#"{{"requestId":{},"reason":"too \u00e9 late"}}"#, called.id())
    );
    assert_eq!(files.received_of("notifications/cancelled").len(), 0);
    // Where nobody knows who has it, all are told.
    cancel(r#"{"requestId":77}"#);
    files.wait_for("notifications/cancelled", 1);
    weather.wait_for("notifications/cancelled", 2);
    gate.open();
    for mut connection in calls {
        connection.response().assert_ok();
    }
}

#[test]
fn progress_goes_to_whom_it_is_about() {
    let gate = Gate::default();
    let params = r#"{"_meta":{"progressToken":4},"messages":[],"maxTokens":1}"#;
    let files = asking(&question("5", "sampling/createMessage", params), &gate);
    let weather = asking(&question("5", "sampling/createMessage", params), &gate);
    let daemon = Daemon::start(&Config::legacy_pair(&files, &weather));
    let session = session(&daemon);
    let mut of_files = call(&daemon, &session, "1", "files__echo");
    let mut of_weather = call(&daemon, &session, "2", "weather__echo");
    let (asked, _) = (next(&mut of_files), next(&mut of_weather));
    let token = asked["params"]["_meta"]["progressToken"].as_str().expect("a string").to_owned();
    let progress = |token: &str| {
        let note = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":TOKEN,"progress":0.50}}"#;
        tell(&daemon, &session, &note.replace("TOKEN", token));
    };
    let generation: u64 = token.split('.').nth(1).and_then(|part| part.parse().ok()).expect("a number");
    progress("4");
    progress("\"x\"");
    progress(&format!("\"files.{}.n4\"", generation + 100));
    progress(&format!("\"{token}\""));
    let heard = files.wait_for("notifications/progress", 1);
    assert_eq!(crate::harness::literal(&heard.body, &["params"]), r#"{"progressToken":4,"progress":0.50}"#);
    gate.open();
    ends_with_the_answer(of_files, 1);
    assert_eq!(files.received_of("notifications/progress").len(), 1);
    assert_eq!(weather.received_of("notifications/progress").len(), 0);
}

#[test]
fn progress_and_logs_of_a_server_pass_as_they_are() {
    let notes = [
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mine","progress":1e-1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"a":1.0}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}"#,
    ];
    let upstream = server(move |request| {
        let stream = notes.iter().fold(Reply::stream(), |stream, note| stream.event(note));
        stream.event(&result_body(request, ANSWER)).end()
    });
    for config in [Config::legacy(&upstream), Config::legacy_pair(&upstream, &upstream)] {
        let daemon = Daemon::start(&config);
        let tool = if config.to_string().contains("files") { "files__echo" } else { "echo" };
        let mut stream = call(&daemon, &session(&daemon), "1", tool);
        for note in notes {
            assert_eq!(stream.event().expect("an event"), format!("data: {note}\n\n"));
        }
        ends_with_the_answer(stream, 1);
    }
}

#[test]
fn pings_are_answered_where_they_arrive() {
    let gate = Gate::default();
    let upstream = asking(&question("\"p\"", "ping", "{}"), &gate);
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, "{}");
    let stream = call(&daemon, &session, "1", "echo");
    assert_eq!(answered(&upstream, 1), json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    let pong = daemon.send(&in_session(&session, legacy("9", "ping", "{}")));
    assert_eq!(pong.json(), json!({"jsonrpc": "2.0", "id": 9, "result": {}}));
    assert_eq!(upstream.received_of("ping").len(), 0);
    gate.open();
    ends_with_the_answer(stream, 1);
}

#[test]
fn changed_roots_are_told_to_every_server_in_use() {
    let plain = || server(|request| Reply::result(request, ANSWER));
    let (files, weather, idle) = (plain(), plain(), plain());
    let config = Config::legacy_pair(&files, &weather).upstream("idle", idle.address, "eras = [\"legacy\"]");
    let daemon = Daemon::start(&config);
    let session = session(&daemon);
    for tool in ["files__echo", "weather__echo"] {
        daemon.send(&in_session(&session, legacy_call("1", tool))).assert_ok();
    }
    tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"notifications/own","params":{}}"#);
    tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    files.wait_for("notifications/roots/list_changed", 1);
    weather.wait_for("notifications/roots/list_changed", 1);
    assert_eq!(idle.received_of("notifications/roots/list_changed").len(), 0);
    assert_eq!(files.received_of("notifications/own").len(), 0);

    let daemon = Daemon::start(&Config::legacy(&files));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, EVERYTHING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"notifications/own","params":{"x":1e3}}"#);
    let heard = files.wait_for("notifications/own", 1);
    assert!(String::from_utf8_lossy(&heard.body).contains("1e3"));
}

#[test]
fn a_client_that_owes_too_many_answers_is_asked_no_more() {
    let gate = Gate::default();
    let opened = gate.clone();
    let upstream = server(move |request| {
        let ask = |stream: Reply, id: usize| stream.event(&question(&id.to_string(), "roots/list", "{}"));
        let stream = (0..70).fold(Reply::stream(), ask);
        stream.wait(&opened).event(&result_body(request, ANSWER)).end()
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = session(&daemon);
    let mut stream = call(&daemon, &session, "1", "echo");
    let asked: Vec<Value> = (0..64).map(|_| next(&mut stream)["id"].take()).collect();
    let refused = answered(&upstream, 6);
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    for id in &asked {
        tell(&daemon, &session, &answer(id, "{}"));
    }
    answered(&upstream, 70);
    gate.open();
    ends_with_the_answer(stream, 1);
}

#[test]
fn tasks_of_several_servers_keep_apart() {
    let tasks = |inner: &'static str| {
        server(move |request| {
            let task = format!(r#"{{"taskId":"{inner}","status":"working","createdAt":"x","ttl":null}}"#);
            let related = format!(r#"{{"io.modelcontextprotocol/related-task":{{"taskId":"{inner}"}}}}"#);
            match request.method().as_str() {
                "tools/call" => {
                    let status = format!(
                        r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{task}}}"#
                    );
                    let result = format!(r#"{{"task":{task},"_meta":{related}}}"#);
                    Reply::stream().event(&status).event(&result_body(request, &result)).end()
                }
                "tasks/list" if request.json()["params"].get("cursor").is_none() => {
                    Reply::result(request, &format!(r#"{{"tasks":[{task}],"nextCursor":"c"}}"#))
                }
                "tasks/list" => Reply::result(
                    request,
                    &format!(r#"{{"tasks":[{}]}}"#, task.replace(&format!("\"{inner}\""), "\"more\"")),
                ),
                "tasks/result" => Reply::result(request, &format!(r#"{{"content":[],"_meta":{related}}}"#)),
                _ => Reply::result(request, &task),
            }
        })
    };
    let (files, weather) = (tasks("t"), tasks("t"));
    let daemon = Daemon::start(&Config::legacy_pair(&files, &weather));
    let session = session(&daemon);
    let send = |method: &str, params: &str| {
        let response = daemon.send(&in_session(&session, legacy("1", method, params)));
        response.assert_ok();
        response.json()["result"].take()
    };
    let params = r#"{"name":"weather__echo","arguments":{},"task":{"ttl":60000}}"#;
    let mut stream = daemon.connect();
    stream.write(&in_session(&session, legacy("1", "tools/call", params)).bytes());
    stream.head();
    assert_eq!(next(&mut stream)["params"]["taskId"], "weather+t");
    let created = next(&mut stream)["result"].take();
    assert_eq!(created["task"]["taskId"], "weather+t");
    let related = "io.modelcontextprotocol/related-task";
    assert_eq!(created["_meta"][related]["taskId"], "weather+t");
    for method in ["tasks/get", "tasks/cancel"] {
        assert_eq!(send(method, r#"{"taskId":"weather+t"}"#)["taskId"], "weather+t");
        assert_eq!(weather.wait_for(method, 1).json()["params"]["taskId"], "t");
    }
    let result = send("tasks/result", r#"{"taskId":"weather+t"}"#);
    assert_eq!(result["_meta"][related]["taskId"], "weather+t");
    // Only what the session has made are tasks of it.
    let ids = |listed: &Value| -> Vec<String> {
        let tasks = listed["tasks"].as_array().expect("tasks");
        tasks.iter().map(|task| task["taskId"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&send("tasks/list", "{}")), ["weather+t"]);
    daemon.send(&in_session(&session, legacy("1", "tools/call", &params.replace("weather", "files"))));
    assert_eq!(ids(&send("tasks/list", "{}")), ["files+t", "weather+t"]);
    let unknown = legacy("2", "tasks/get", r#"{"taskId":"t"}"#);
    daemon.send(&in_session(&session, unknown)).assert_error(200, -32602, Some("2"));
}

#[test]
fn a_task_of_the_only_server_passes_as_it_is_but_for_its_id() {
    let upstream = server(|request| Reply::result(request, r#"{"taskId":"t","status":"working"}"#));
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = session(&daemon);
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let request = legacy("1", method, r#"{"taskId":"t","x":1e3}"#);
        daemon.send(&in_session(&session, request)).assert_ok();
        let sent = upstream.wait_for(method, 1);
        assert_eq!(sent.client_body(), body("1", method, r#"{"taskId":"t","x":1e3}"#).into_bytes());
    }
}

/// Answers a call, part of it once a gate opens.
type Answer = fn(&Received, &Gate) -> Reply;

#[test]
fn a_flood_that_nobody_hears_is_cut_off() {
    let gate = Gate::default();
    let opened = gate.clone();
    // Answers to nobody are for no client in any case.
    let flood = r#"{"jsonrpc":"2.0","id":"nobody's","result":{}}"#.to_owned() + &" ".repeat(1000);
    let upstream = server(move |_| {
        let flooding = Reply::stream().chunk(": hello\n\n").wait(&opened);
        (0..200).fold(flooding, |reply, _| reply.event(&flood)).wait(&Gate::default())
    });
    let config = Config::legacy(&upstream).limits("reply_bytes_max = \"64KiB\"");
    let daemon = Daemon::start(&config);
    let session = session(&daemon);
    let mut leaving = daemon.connect();
    leaving.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    leaving.head();
    let connection = upstream.wait_for("tools/call", 1).connection;
    drop(leaving);
    gate.open();
    upstream.wait_closed(connection);
}

#[test]
fn a_client_that_leaves_cancels_nothing() {
    let answers: [(&str, Answer); 4] = [
        ("before the head", |request, gate| Reply::default().wait(gate).then(Reply::result(request, ANSWER))),
        ("in the middle of JSON", |request, gate| {
            let body = result_body(request, ANSWER);
            // Nothing is handed on before the id.
            let (one, other) = body.split_at(body.len() - 10);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            Reply::raw(format!("{head}{one}")).wait(gate).then(Reply::raw(other))
        }),
        ("in a stream", |request, gate| {
            Reply::stream().chunk(": hello\n\n").wait(gate).event(&result_body(request, ANSWER)).end()
        }),
        ("while it is asked", |request, gate| {
            let asked = question("5", "roots/list", "{}");
            Reply::stream()
                .chunk(": hello\n\n")
                .wait(gate)
                .event(&asked)
                .event(&result_body(request, ANSWER))
                .end()
        }),
    ];
    for (when, answer) in answers {
        for several in [false, true] {
            let gate = Gate::default();
            let opened = gate.clone();
            let upstream = server(move |request| match request.client_id().parse().ok() {
                Some(1) => answer(request, &opened),
                _ => Reply::result(request, ANSWER),
            });
            let config =
                if several { Config::legacy_pair(&upstream, &upstream) } else { Config::legacy(&upstream) };
            let tool = if several { "files__echo" } else { "echo" };
            let daemon = Daemon::start(&config.top("workers = 1").admin());
            let session = session(&daemon);
            let mut leaving = daemon.connect();
            leaving.write(&in_session(&session, legacy_call("1", tool)).bytes());
            let connection = upstream.wait_for("tools/call", 1).connection;
            if when != "before the head" && !(several && when.contains("JSON")) {
                leaving.head();
            }
            drop(leaving);
            let counted = |result: &str| {
                let line = format!("trunkline_exchanges_detached_total{{result=\"{result}\"}} 1");
                eventually(&line, || daemon.get_admin("/metrics").text().contains(&line).then_some(()));
            };
            counted("kept");
            gate.open();
            if when.contains("asked") {
                assert_eq!(answered(&upstream, 1)["error"]["code"], -32000);
            }
            counted("ended");
            daemon.send(&in_session(&session, legacy_call("2", tool))).assert_ok();
            let again = upstream.received_of("tools/call").remove(1);
            // What is told beside the calls takes connections, too.
            assert!(again.connection == connection || when.contains("asked"), "{when}, several: {several}");
            assert!(!upstream.is_closed(connection), "{when}, several: {several}");
            assert_eq!(upstream.received_of("notifications/cancelled").len(), 0);
        }
    }
}

#[test]
fn a_server_that_takes_no_answers_keeps_none_from_the_others() {
    let pings = (0..400).map(|id| format!("data: {}\n\n", question(&id.to_string(), "ping", "{}")));
    let flood = pings.collect::<Vec<_>>().concat();
    let silent = Legacy::new(Offer::tools(&["echo"]));
    let hanging = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream().chunk(&flood).event(&result_body(request, ANSWER)).end(),
        "" => Reply::silence(),
        _ => silent.answer(request),
    });
    let gate = Gate::default();
    gate.open();
    let asking = asking(&question("\"p\"", "ping", "{}"), &gate);
    let daemon = Daemon::start(&Config::legacy_pair(&hanging, &asking).top("workers = 1"));
    let session = session(&daemon);
    ends_with_the_answer(call(&daemon, &session, "1", "files__echo"), 1);
    hanging.wait_for("", 1);
    ends_with_the_answer(call(&daemon, &session, "2", "weather__echo"), 2);
    assert_eq!(answered(&asking, 1)["id"], "p");
}

#[test]
fn a_client_that_leaves_the_first_call_of_a_server_without_sessions_cancels_nothing() {
    let gate = Gate::default();
    let (answering, opened) = (Legacy::new(Offer::tools(&["echo"])).without_sessions(), gate.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" if request.client_id() == "1" => {
            Reply::default().wait(&opened).then(Reply::result(request, ANSWER))
        }
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream).top("workers = 1").admin());
    let session = session(&daemon);
    let mut leaving = daemon.connect();
    leaving.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    let connection = upstream.wait_for("tools/call", 1).connection;
    drop(leaving);
    let counted = |result: &str| {
        let line = format!("trunkline_exchanges_detached_total{{result=\"{result}\"}} 1");
        eventually(&line, || daemon.get_admin("/metrics").text().contains(&line).then_some(()));
    };
    counted("kept");
    gate.open();
    counted("ended");
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
    upstream.wait_for("tools/call", 2);
    let on_it = upstream.received().iter().filter(|request| request.connection == connection).count();
    assert!(on_it > 1, "its connection is used again");
}
