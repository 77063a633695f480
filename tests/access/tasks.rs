//! A task belongs to who made it: nobody else reads, lists, cancels, feeds or hears of it, whichever way he asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::harness::{
    Config, Daemon, Folder, Gate, LEGACY_VERSION, Legacy, Listened, Listening, Offer, Received, Redis, Reply,
    Request, Response, Upstream, api_key, body, eventually, in_session, initialize, legacy, modern, post,
    result_body, with_key,
};

const ANN: &str = "ann-key-0123456789abcdefghijklmnopq";
const BOB: &str = "bob-key-0123456789abcdefghijklmnopq";
const BOTH: &str = "eras = [\"legacy\", \"modern\"]";
/// What a modern client that knows tasks says in every request.
const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"blackbox","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// How a server gives its answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Events,
}

/// A server of both eras that makes a task of every call: its id is what the call's argument `as` says.
fn server(form: Form) -> Upstream {
    let server = Legacy::new(Offer::tools(&["work", "secret"])).and_modern();
    Upstream::start(move |request| match result_of(request) {
        Some(result) if form == Form::Json => Reply::result(request, &result),
        Some(result) => Reply::stream().event(&result_body(request, &result)).end(),
        None => server.answer(request),
    })
}

/// What becomes of a request about tasks.
fn result_of(request: &Received) -> Option<String> {
    if request.http_method() != "POST" {
        return None;
    }
    let message = request.json();
    let is_modern = !message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null();
    let id = message["params"]["taskId"].as_str().unwrap_or_default().to_owned();
    let task = |id: &str| {
        format!(
            r#""taskId":"{id}","status":"working","createdAt":"x","lastUpdatedAt":"x","ttl":60000,"ttlMs":60000"#
        )
    };
    Some(match request.method().as_str() {
        "tools/call" => {
            let id = message["params"]["arguments"]["as"].as_str().unwrap_or("t").to_owned();
            if is_modern {
                format!(r#"{{"resultType":"task",{}}}"#, task(&id))
            } else {
                format!(r#"{{"task":{{{}}}}}"#, task(&id))
            }
        }
        "tasks/list" if message["params"]["cursor"].is_null() => {
            format!(r#"{{"tasks":[{{{}}}, {{{}}}],"nextCursor":"c"}}"#, task("ann-1"), task("bob-1"))
        }
        "tasks/list" => format!(r#"{{"tasks":[{{"x":1e3,{}}}]}}"#, task("ann-2")),
        "tasks/result" => format!(r#"{{"content":[],"_meta":{{"{RELATED}":{{"taskId":"{id}"}}}}}}"#),
        "tasks/get" | "tasks/cancel" => format!(r#"{{"resultType":"complete",{}}}"#, task(&id)),
        "tasks/update" => r#"{"resultType":"complete"}"#.to_owned(),
        _ => return None,
    })
}

fn keys(config: Config) -> Config {
    config.section(&api_key("ann", ANN)).section(&api_key("bob", BOB))
}

fn transparent(upstream: &Upstream) -> Config {
    keys(Config::new().upstream("up", upstream.address, BOTH))
}

/// The server behind names that are mapped, beside another.
fn mapped(upstream: &Upstream, other: &Upstream) -> Config {
    keys(Config::new().upstream("up", upstream.address, BOTH).upstream("other", other.address, BOTH))
}

/// Somebody who speaks one of the eras.
struct Client<'d> {
    daemon: &'d Daemon,
    key: &'static str,
    /// In the legacy era.
    session: Option<String>,
}

impl<'d> Client<'d> {
    fn modern(daemon: &'d Daemon, key: &'static str) -> Self {
        Self { daemon, key, session: None }
    }

    fn legacy(daemon: &'d Daemon, key: &'static str) -> Self {
        let response = daemon.send(&with_key(initialize("0", LEGACY_VERSION), key));
        let session = response.header("mcp-session-id").expect("a session id").to_owned();
        Self { daemon, key, session: Some(session) }
    }

    fn request(&self, method: &str, name: Option<&str>, members: &str) -> Request {
        let request = if let Some(session) = &self.session {
            in_session(session, legacy("7", method, &format!("{{{members}}}")))
        } else {
            let comma = if members.is_empty() { "" } else { "," };
            modern(method, name, body("7", method, &format!(r#"{{{members}{comma}"_meta":{META}}}"#)))
        };
        with_key(request, self.key)
    }

    fn send(&self, method: &str, name: Option<&str>, members: &str) -> Response {
        self.daemon.send(&self.request(method, name, members))
    }

    /// Calls a tool, which makes a task with this id. Returns the id that the client is given.
    #[track_caller]
    fn make(&self, tool: &str, id: &str) -> String {
        let task = if self.session.is_some() { r#","task":{"ttl":60000}"# } else { "" };
        let members = format!(r#""name":"{tool}","arguments":{{"as":"{id}"}}{task}"#);
        let made = answer(&self.send("tools/call", Some(tool), &members));
        let result = &made["result"];
        let id = result["taskId"].as_str().or_else(|| result["task"]["taskId"].as_str());
        id.unwrap_or_else(|| panic!("no task: {made}")).to_owned()
    }

    fn ask(&self, method: &str, task: &str) -> Response {
        self.send(method, Some(task), &format!(r#""taskId":"{task}""#))
    }

    /// The methods that name a task.
    fn methods(&self) -> [&'static str; 3] {
        match self.session {
            Some(_) => ["tasks/get", "tasks/cancel", "tasks/result"],
            None => ["tasks/get", "tasks/cancel", "tasks/update"],
        }
    }

    #[track_caller]
    fn has(&self, task: &str) {
        for method in self.methods() {
            let response = self.ask(method, task);
            let answered = answer(&response);
            assert!(answered["error"].is_null(), "{method} {task}: {answered}");
            let result = &answered["result"];
            let named = [&result["taskId"], &result["_meta"][RELATED]["taskId"]];
            let named = named.into_iter().find_map(Value::as_str);
            assert!(named.is_none_or(|named| named == task), "{method} {task}: {answered}");
        }
    }

    /// What the task is answered with is what a task that never was is answered with, and the server hears of neither.
    #[track_caller]
    fn has_not(&self, task: &str, upstream: &Upstream) {
        for method in self.methods() {
            let before = upstream.received_of(method).len();
            let (refused, unknown) = (self.ask(method, task), self.ask(method, "nobodys"));
            let refusal = answer(&refused);
            assert_eq!(refusal["error"]["code"], -32602, "{method} {task}: {refusal}");
            assert_eq!(refused.status, unknown.status);
            assert_eq!(refused.text().replace(task, "TASK"), unknown.text().replace("nobodys", "TASK"));
            assert_eq!(upstream.received_of(method).len(), before, "{method} {task}");
        }
    }

    /// The ids of the tasks that it is told of.
    #[track_caller]
    fn list(&self) -> Vec<String> {
        let listed = answer(&self.send("tasks/list", None, ""));
        let tasks = listed["result"]["tasks"].as_array().unwrap_or_else(|| panic!("no list: {listed}"));
        tasks.iter().map(|task| task["taskId"].as_str().expect("an id").to_owned()).collect()
    }
}

/// The answer, in JSON or as the last event.
fn answer(response: &Response) -> Value {
    if response.header("content-type") == Some("text/event-stream") {
        let text = response.text();
        let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        return serde_json::from_str(last.expect("an event")).expect("JSON");
    }
    response.json()
}

#[test]
fn nobody_reads_the_task_of_another_behind_names_of_its_own() {
    for form in [Form::Json, Form::Events] {
        let upstream = server(form);
        let daemon = Daemon::start(&transparent(&upstream));
        for make in [Client::modern, Client::legacy] {
            let (ann, bob) = (make(&daemon, ANN), make(&daemon, BOB));
            let id = ann.make("work", "ann-1");
            assert_eq!(id, "ann-1", "nothing is rewritten");
            ann.has(&id);
            bob.has_not(&id, &upstream);
            bob.has_not("never-made", &upstream);
            ann.has(&id);
        }
    }
}

#[test]
fn a_list_shows_everybody_his_own() {
    for form in [Form::Json, Form::Events] {
        let upstream = server(form);
        let daemon = Daemon::start(&transparent(&upstream));
        let (ann, bob) = (Client::legacy(&daemon, ANN), Client::legacy(&daemon, BOB));
        assert_eq!(ann.list(), [""; 0]);
        ann.make("work", "ann-1");
        ann.make("work", "ann-2");
        bob.make("work", "bob-1");
        assert_eq!(ann.list(), ["ann-1", "ann-2"]);
        assert_eq!(bob.list(), ["bob-1"]);
        assert_eq!(Client::legacy(&daemon, ANN).list(), ["ann-1", "ann-2"], "in another session, too");
        let listed = ann.send("tasks/list", None, "").text();
        assert!(listed.contains(r#"{"x":1e3,"taskId":"ann-2""#), "as its server wrote it: {listed}");
    }
}

#[test]
fn a_task_is_its_owners_behind_mapped_names_too() {
    for form in [Form::Json, Form::Events] {
        let (upstream, other) = (server(form), server(form));
        let daemon = Daemon::start(&mapped(&upstream, &other));
        for make in [Client::modern, Client::legacy] {
            let (ann, bob) = (make(&daemon, ANN), make(&daemon, BOB));
            let id = ann.make("up__work", "ann-1");
            ann.has(&id);
            bob.has_not(&id, &upstream);
            bob.has_not("up+ann-1", &upstream);
            bob.has_not("up+never-made", &upstream);
            let his = bob.make("up__work", "ann-1");
            bob.has(&his);
            ann.has(&id);
            assert!(other.received_of("tasks/get").is_empty());
        }
    }
}

#[test]
fn lists_of_several_servers_show_everybody_his_own() {
    let (upstream, other) = (server(Form::Json), server(Form::Json));
    let daemon = Daemon::start(&mapped(&upstream, &other));
    let (ann, bob) = (Client::legacy(&daemon, ANN), Client::legacy(&daemon, BOB));
    let made = [ann.make("up__work", "ann-1"), ann.make("other__work", "ann-2")];
    let his = bob.make("up__work", "bob-1");
    bob.make("other__work", "bob-2");
    assert_eq!(ann.list(), made);
    assert_eq!(bob.list(), [his]);
}

/// Rules that let everybody use everything but what `deny` says.
fn denied(tool: &str, who: &str) -> String {
    format!("[[rule]]\nname = \"no\"\neffect = \"deny\"\nprincipals = [\"{who}\"]\ntools = [\"{tool}\"]")
}

#[test]
fn a_task_goes_with_the_tool_that_made_it() {
    let (upstream, other) = (server(Form::Json), server(Form::Json));
    for (config, tool) in [(transparent(&upstream), "secret"), (mapped(&upstream, &other), "up__secret")] {
        let daemon = Daemon::start(&config);
        let modern = Client::modern(&daemon, ANN);
        let legacy = Client::legacy(&daemon, ANN);
        let ids = [modern.make(tool, "ann-1"), legacy.make(tool, "ann-2")];
        assert_eq!(legacy.list(), ids);
        daemon.reload(&config.clone().section(&denied("secret", "ann")));
        daemon.wait_for_log(0, "the rule is in force", |line| line.contains("reloaded"));
        for id in &ids {
            modern.has_not(id, &upstream);
            legacy.has_not(id, &upstream);
        }
        assert_eq!(legacy.list(), [""; 0]);
    }
}

#[test]
fn a_task_of_a_batch_is_its_owners() {
    let upstream = server(Form::Json);
    let daemon = Daemon::start(&transparent(&upstream));
    let session = |key| {
        let response = daemon.send(&with_key(initialize("0", "2025-03-26"), key));
        response.header("mcp-session-id").expect("a session id").to_owned()
    };
    let send = |session: &str, key: &str, messages: &[String]| {
        let batch = post(format!("[{}]", messages.join(",")));
        daemon.send(&with_key(in_session(session, batch).without("MCP-Protocol-Version"), key)).text()
    };
    let (ann, bob) = (session(ANN), session(BOB));
    let call = body("1", "tools/call", r#"{"name":"work","arguments":{"as":"ann-1"},"task":{}}"#);
    let made = send(&ann, ANN, &[call]);
    assert!(made.contains(r#""taskId":"ann-1""#), "{made}");
    let asked = ["tasks/get", "tasks/result", "tasks/cancel"]
        .map(|method| body("2", method, r#"{"taskId":"ann-1"}"#));
    let list = [body("3", "tasks/list", "{}")];
    let read = send(&bob, BOB, &asked);
    assert_eq!(read.matches("-32602").count(), 3, "{read}");
    assert!(!send(&bob, BOB, &list).contains("ann-1"));
    let read = send(&ann, ANN, &asked);
    assert_eq!((read.matches("-32602").count(), read.matches("\"result\"").count()), (0, 3), "{read}");
    assert!(send(&ann, ANN, &list).contains("ann-1"));
}

#[test]
fn who_cannot_be_told_apart_has_what_he_knows_and_lists_what_his_session_made() {
    let upstream = server(Form::Json);
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, BOTH));
    let (one, other) = (Client::legacy(&daemon, ANN), Client::legacy(&daemon, BOB));
    let id = one.make("work", "ann-1");
    other.has(&id);
    Client::modern(&daemon, ANN).has(&id);
    assert_eq!(one.list(), ["ann-1"]);
    assert_eq!(other.list(), [""; 0]);
}

#[test]
fn a_door_without_a_lock_does_not_lead_to_the_tasks_behind_another() {
    let upstream = server(Form::Json);
    let config = transparent(&upstream).section(
        "[[endpoint]]\npath = \"/open\"\nupstreams = [\"up\"]\nauth = []\nallow_unauthenticated = true",
    );
    let daemon = Daemon::start(&config);
    Client::modern(&daemon, ANN).make("work", "ann-1");
    let params = format!(r#"{{"taskId":"ann-1","_meta":{META}}}"#);
    let stolen = modern("tasks/get", Some("ann-1"), body("1", "tasks/get", &params)).target("/open");
    daemon.send(&stolen).assert_error(200, -32602, Some("1"));
}

#[test]
fn methods_of_tasks_that_nobody_knows_reach_no_task() {
    const METHODS: [&str; 2] = ["tasks/delete", "Tasks/get"];
    let upstream = server(Form::Json);
    let daemon = Daemon::start(&transparent(&upstream));
    for client in [Client::modern(&daemon, ANN), Client::legacy(&daemon, ANN)] {
        let id = client.make("work", "ann-1");
        for method in METHODS {
            let refused = client.send(method, None, &format!(r#""taskId":"{id}""#));
            assert_eq!(answer(&refused)["error"]["code"], -32601, "{}", refused.text());
        }
    }
    for method in METHODS {
        assert!(upstream.received_of(method).is_empty(), "{method}");
    }
}

#[test]
fn a_restart_and_a_new_key_leave_tasks_to_their_owners() {
    let (upstream, other) = (server(Form::Json), server(Form::Json));
    for (config, tool) in [(transparent(&upstream), "work"), (mapped(&upstream, &other), "up__work")] {
        let folder = Folder::new();
        let config = config.top(&folder.key());
        let mut daemon = Daemon::start(&config);
        let id = Client::modern(&daemon, ANN).make(tool, "ann-1");
        let made = Client::legacy(&daemon, ANN).make(tool, "ann-2");
        daemon.terminate();
        assert!(daemon.wait_exit().success());
        let key = folder.path().join("session.key");
        let old = std::fs::read_to_string(&key).expect("a key");
        std::fs::write(&key, format!("{}\n{old}", "7".repeat(64))).expect("a newer key");
        let daemon = Daemon::start(&config);
        Client::modern(&daemon, ANN).has(&id);
        Client::modern(&daemon, BOB).has_not(&id, &upstream);
        let ann = Client::legacy(&daemon, ANN);
        ann.has(&made);
        ann.make(tool, "bob-1");
        assert_eq!(ann.list().len(), 3, "those from before, too");
        assert_eq!(Client::legacy(&daemon, BOB).list(), [""; 0]);
    }
}

#[test]
fn where_there_is_no_room_the_oldest_task_is_nobodys() {
    let (upstream, other) = (server(Form::Json), server(Form::Json));
    let room = "[session]\ntasks_max = 2\ntasks_per_principal_max = 2";
    let daemon = Daemon::start(&transparent(&upstream).section(room).admin());
    let ann = Client::modern(&daemon, ANN);
    for id in ["task-1", "task-2", "task-3"] {
        ann.make("work", id);
    }
    ann.has_not("task-1", &upstream);
    ann.has("task-2");
    ann.has("task-3");
    assert_eq!(daemon.find_metric("trunkline_tasks"), Some(2));
    assert_eq!(daemon.find_metric("trunkline_tasks_forgotten_total"), Some(1));
    let daemon = Daemon::start(&mapped(&upstream, &other).section(room));
    let ann = Client::modern(&daemon, ANN);
    let ids = ["task-1", "task-2", "task-3"].map(|id| ann.make("up__work", id));
    for id in &ids {
        ann.has(id);
    }
}

#[test]
fn who_makes_many_tasks_forgets_its_own() {
    let upstream = server(Form::Json);
    let room = "[session]\ntasks_max = 4\ntasks_per_principal_max = 4";
    let daemon = Daemon::start(&transparent(&upstream).section(room).admin());
    let (ann, bob) = (Client::modern(&daemon, ANN), Client::modern(&daemon, BOB));
    // Bob's is the oldest of all.
    bob.make("work", "bob-1");
    for id in ["task-1", "task-2", "task-3", "task-4", "task-5"] {
        ann.make("work", id);
    }
    bob.has("bob-1");
    ann.has_not("task-2", &upstream);
    ann.has("task-3");
    ann.has("task-5");
    assert_eq!(daemon.find_metric("trunkline_tasks"), Some(4));
}

#[test]
fn gateways_that_share_know_whose_a_task_is() {
    let (upstream, other) = (server(Form::Json), server(Form::Json));
    let (redis, keys) = (Redis::start(), Folder::new());
    let key = keys.path().join("session.key");
    std::fs::write(&key, "7".repeat(64)).expect("a key file");
    let session = format!("[session]\nkey = {{ file = \"{}\" }}", key.display());
    for (config, tool) in [(transparent(&upstream), "work"), (mapped(&upstream, &other), "up__work")] {
        let config = config.section(&session).section(&redis.section("")).admin();
        let [one, two] = [(); 2].map(|()| {
            let daemon = Daemon::start(&config);
            daemon.wait_metric("trunkline_shared_connected", 1);
            daemon
        });
        let id = Client::modern(&one, ANN).make(tool, "ann-1");
        Client::modern(&two, ANN).has(&id);
        Client::modern(&two, BOB).has_not(&id, &upstream);
        let made = Client::legacy(&one, ANN).make(tool, "ann-2");
        let ann = Client::legacy(&two, ANN);
        // With several upstreams those are asked that the session knows.
        ann.make(tool, "ann-1");
        let mut listed = ann.list();
        listed.sort();
        let mut expected = vec![id, made];
        expected.sort();
        assert_eq!(listed, expected);
    }
    let stored = redis.everything();
    assert!(!stored.contains("ann-1") && !stored.contains("key:ann"), "{stored}");
}

#[test]
fn only_the_owner_hears_of_a_task() {
    let server = Legacy::new(Offer::tools(&["work"])).with_streams();
    let serving = server.clone();
    let upstream = Upstream::start(move |request| match result_of(request) {
        Some(result) => Reply::result(request, &result),
        None => serving.answer(request),
    });
    let other = Legacy::new(Offer::default()).start();
    for (is_mapped, tool) in [(false, "work"), (true, "up__work")] {
        let config = if is_mapped { mapped(&upstream, &other) } else { transparent(&upstream) };
        let daemon = Daemon::start(&config);
        let before = server.streams().len();
        let clients = [ANN, BOB].map(|key| Client::legacy(&daemon, key));
        let ids = [clients[0].make(tool, "ann-1"), clients[1].make(tool, "bob-1")];
        let mut streams = clients.each_ref().map(|client| {
            let get =
                client.request("ping", None, "").method("GET").body("").set("Accept", "text/event-stream");
            let mut stream = daemon.connect();
            stream.write(&get.bytes());
            assert_eq!(stream.head().status, 200);
            stream
        });
        eventually("both sessions are listened to", || (server.streams().len() >= before + 2).then_some(()));
        for stream in server.streams() {
            for (id, last) in [("ann-1", "one"), ("bob-1", "one"), ("nobodys", "one")] {
                let task = format!(r#""taskId":"{id}","status":"working","statusMessage":"{last}""#);
                stream.event(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{{task}}}}}"#
                ));
                stream.event(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":1,"_meta":{{"{RELATED}":{{"taskId":"{id}"}}}}}}}}"#
                ));
            }
            stream.event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"end"}}"#);
        }
        for (stream, own) in streams.iter_mut().zip(&ids) {
            let mut heard = Vec::new();
            loop {
                let event = stream.event().expect("an event");
                let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) else { continue };
                let message: Value = serde_json::from_str(data).expect("JSON");
                if message["params"]["data"] == "end" {
                    break;
                }
                let params = &message["params"];
                let id = params["taskId"].as_str().or_else(|| params["_meta"][RELATED]["taskId"].as_str());
                heard.push(id.unwrap_or_else(|| panic!("{message}")).to_owned());
            }
            assert_eq!(&heard, &[own.as_str(), own.as_str()]);
        }
    }
}

#[test]
fn only_the_owner_listens_to_a_task() {
    let listening = || {
        let offer = Offer::tools(&["work"]);
        let answer = move |request: &Received| match result_of(request) {
            Some(result) => Reply::result(request, &result),
            None => offer.answer(request),
        };
        Listening::beside(answer, |_| Listened::Honoured)
    };
    let (server, other) = (listening(), listening());
    let lines = "eras = [\"modern\"]";
    let one = keys(Config::new().upstream("up", server.upstream.address, lines));
    let two = one.clone().upstream("other", other.upstream.address, lines);
    for (config, tool) in [(one, "work"), (two, "up__work")] {
        let daemon = Daemon::start(&config);
        let (ann, bob) = (Client::modern(&daemon, ANN), Client::modern(&daemon, BOB));
        let ids = [ann.make(tool, "ann-1"), bob.make(tool, "bob-1")];
        let mut streams = [ann, bob].map(|client| {
            let tasks = ids.each_ref().map(|id| format!("\"{id}\"")).join(",");
            let members = format!(r#""notifications":{{"taskIds":[{tasks}]}}"#);
            let mut stream = daemon.connect();
            stream.write(&client.request("subscriptions/listen", None, &members).bytes());
            assert_eq!(stream.head().status, 200);
            stream
        });
        for (stream, own) in streams.iter_mut().zip(&ids) {
            let event = stream.event().expect("an acknowledgement");
            let message: Value =
                serde_json::from_str(event.trim().strip_prefix("data: ").expect("data")).unwrap();
            assert_eq!(message["params"]["notifications"]["taskIds"], serde_json::json!([own]), "{message}");
        }
        for (id, stream, own) in [("ann-1", 0, &ids[0]), ("bob-1", 1, &ids[1])] {
            let related = format!(r#""taskId":"{id}","status":"working","#);
            server.stream_with("taskIds", &format!("\"{id}\"")).notify("tasks", &related);
            let event = streams[stream].event().expect("a notification");
            let message: Value =
                serde_json::from_str(event.trim().strip_prefix("data: ").expect("data")).unwrap();
            assert_eq!(message["params"]["taskId"], own.as_str(), "{message}");
        }
    }
}

#[test]
fn a_task_made_over_the_older_transport_is_its_owners() {
    let upstream = server(Form::Json);
    let daemon = Daemon::start(&transparent(&upstream).endpoint("sse = true"));
    let line = |key: &str| {
        let get = post("").method("GET").body("").without("content-type").set("Accept", "text/event-stream");
        let mut stream = daemon.connect();
        stream.write(&with_key(get, key).bytes());
        assert_eq!(stream.head().status, 200);
        let event = stream.event().expect("the address");
        let target = event.trim().strip_prefix("event: endpoint\ndata: ").expect("an address").to_owned();
        (stream, target)
    };
    let send = |(stream, target): &mut (crate::harness::Connection, String), key: &str, request: Request| {
        let response = daemon.send(&with_key(request.target(target).without("accept"), key));
        assert_eq!(response.status, 202, "{}", response.text());
        stream.event().expect("an answer")
    };
    let (mut ann, mut bob) = (line(ANN), line(BOB));
    send(&mut ann, ANN, initialize("0", "2024-11-05"));
    send(&mut bob, BOB, initialize("0", "2024-11-05"));
    let call = legacy("1", "tools/call", r#"{"name":"work","arguments":{"as":"ann-1"},"task":{}}"#);
    let made = send(&mut ann, ANN, call);
    assert!(made.contains(r#""taskId":"ann-1""#), "{made}");
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let request = legacy("2", method, r#"{"taskId":"ann-1"}"#);
        let (own, stolen) = (send(&mut ann, ANN, request.clone()), send(&mut bob, BOB, request));
        assert!(own.contains("\"result\"") && stolen.contains("-32602"), "{method}: {own} {stolen}");
    }
    let list = legacy("3", "tasks/list", "{}");
    assert!(!send(&mut bob, BOB, list.clone()).contains("ann-1"));
    assert!(send(&mut ann, ANN, list).contains("ann-1"));
}

#[test]
fn a_task_in_a_reply_that_was_taken_up_again_is_its_owners() {
    let serving = Legacy::new(Offer::tools(&["work"]));
    let called = Mutex::new(String::new());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            *called.lock().expect("a lock") = request.id();
            Reply::stream().chunk("retry: 10\nid: 1\ndata: \n\n").end()
        }
        _ if !request.headers("last-event-id").is_empty() => {
            let id = called.lock().expect("a lock");
            let answer = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"task":{{"taskId":"ann-1","status":"working"}}}}}}"#
            );
            Reply::stream().chunk(&format!("id: 2\ndata: {answer}\n\n")).end()
        }
        _ => match result_of(request) {
            Some(result) => Reply::result(request, &result),
            None => serving.answer(request),
        },
    });
    let daemon = Daemon::start(&keys(Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]")));
    let (ann, bob) = (Client::legacy(&daemon, ANN), Client::legacy(&daemon, BOB));
    let begun = ann.send("tools/call", Some("work"), r#""name":"work","arguments":{},"task":{}"#);
    assert!(begun.text().contains("id: 1"), "{}", begun.text());
    let get = ann.request("ping", None, "").method("GET").body("").set("Accept", "text/event-stream");
    let rest = daemon.send(&get.set("Last-Event-ID", "1"));
    assert!(rest.text().contains("ann-1"), "{}", rest.text());
    ann.has("ann-1");
    bob.has_not("ann-1", &upstream);
}

#[test]
fn many_tasks_of_one_principal_cost_another_none() {
    let upstream = server(Form::Json);
    let folder = Folder::new();
    let config = transparent(&upstream).section("[session]\ntasks_max = 8").top(&folder.key());
    let mut daemon = Daemon::start(&config);
    let (ann, bob) = (Client::modern(&daemon, ANN), Client::modern(&daemon, BOB));
    ann.make("work", "ann-1");
    for number in 0..20 {
        bob.make("work", &format!("bob-{number}"));
    }
    ann.has("ann-1");
    bob.has_not("bob-17", &upstream);
    for id in ["bob-18", "bob-19"] {
        bob.has(id);
    }
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    let daemon = Daemon::start(&config);
    Client::modern(&daemon, ANN).has("ann-1");
}

#[test]
fn tasks_of_clients_without_credentials_cost_nobody_his() {
    let (upstream, open) = (server(Form::Json), server(Form::Json));
    let config = transparent(&upstream).section("[session]\ntasks_max = 8").section(&format!(
        "[[endpoint]]\npath = \"/open\"\nupstreams = [\"open\"]\nauth = []\nallow_unauthenticated = true\n\
         [upstream.open]\nurl = \"http://{}/\"\neras = [\"legacy\"]",
        open.address
    ));
    let daemon = Daemon::start(&config);
    let ann = Client::modern(&daemon, ANN);
    ann.make("work", "ann-1");
    let opened = daemon.send(&initialize("0", LEGACY_VERSION).target("/open"));
    let session = opened.header("mcp-session-id").expect("a session id").to_owned();
    for number in 0..20 {
        let params = format!(r#"{{"name":"work","arguments":{{"as":"t-{number}"}},"task":{{"ttl":60000}}}}"#);
        let call = in_session(&session, legacy("7", "tools/call", &params)).target("/open");
        assert!(daemon.send(&call).text().contains(&format!("\"t-{number}\"")));
    }
    ann.has("ann-1");
}

/// A server that makes a task of every call, and says so again to who takes the reply up again.
fn repeating() -> Upstream {
    let serving = Legacy::new(Offer::tools(&["work", "secret"]));
    let called = Mutex::new(String::new());
    Upstream::start(move |request| {
        let answer = |id: &str| {
            let task = r#"{"task":{"taskId":"ann-1","status":"working","ttl":60000}}"#;
            format!("id: 2\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{task}}}\n\n")
        };
        match request.method().as_str() {
            "tools/call" => {
                *called.lock().expect("a lock") = request.id();
                let begun = Reply::stream().chunk("retry: 10\nid: 1\ndata: \n\n");
                begun.chunk(&answer(&request.id())).end()
            }
            _ if !request.headers("last-event-id").is_empty() => {
                Reply::stream().chunk(&answer(&called.lock().expect("a lock"))).end()
            }
            _ => match result_of(request) {
                Some(result) => Reply::result(request, &result),
                None => serving.answer(request),
            },
        }
    })
}

/// Takes the reply up again that made the task.
fn resume(client: &Client<'_>) {
    let get = client.request("ping", None, "").method("GET").body("").set("Accept", "text/event-stream");
    let rest = client.daemon.send(&get.set("Last-Event-ID", "1"));
    assert!(rest.text().contains("ann-1"), "{}", rest.text());
}

#[test]
fn a_task_that_is_told_of_again_goes_with_its_tool() {
    let (upstream, folder) = (repeating(), Folder::new());
    let config = keys(Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]"));
    let config = config.top(&folder.key());
    let mut daemon = Daemon::start(&config);
    let ann = Client::legacy(&daemon, ANN);
    assert_eq!(ann.make("secret", "ann-1"), "ann-1");
    resume(&ann);
    ann.has("ann-1");
    let denied = config.section(&denied("secret", "ann"));
    daemon.reload(&denied);
    daemon.wait_for_log(0, "the rule is in force", |line| line.contains("reloaded"));
    ann.has_not("ann-1", &upstream);
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    let daemon = Daemon::start(&denied);
    Client::legacy(&daemon, ANN).has_not("ann-1", &upstream);
}

#[test]
fn a_task_that_another_gateway_is_told_of_again_goes_with_its_tool() {
    let (upstream, redis, folder) = (repeating(), Redis::start(), Folder::new());
    let key = folder.path().join("session.key");
    std::fs::write(&key, "7".repeat(64)).expect("a key file");
    let session = format!("[session]\nkey = {{ file = \"{}\" }}", key.display());
    let config = keys(Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]"));
    let config = config.section(&session).section(&redis.section("")).admin();
    let start = |config: &Config| {
        let daemon = Daemon::start(config);
        daemon.wait_metric("trunkline_shared_connected", 1);
        daemon
    };
    let (one, two) = (start(&config), start(&config));
    let ann = Client::legacy(&one, ANN);
    assert_eq!(ann.make("secret", "ann-1"), "ann-1");
    resume(&Client { daemon: &two, key: ANN, session: ann.session.clone() });
    let three = start(&config.section(&denied("secret", "ann")));
    Client::legacy(&three, ANN).has_not("ann-1", &upstream);
}

#[test]
fn lists_of_tasks_count_as_calls_behind_mapped_names_too() {
    let (upstream, other) = (server(Form::Json), server(Form::Json));
    let limit = "[[limit]]\nname = \"own\"\nby = [\"principal\", \"upstream\"]\ncalls = 10\nperiod = \"1h\"\nburst = 5";
    for (config, tool) in [(transparent(&upstream), "work"), (mapped(&upstream, &other), "up__work")] {
        let daemon = Daemon::start(&config.section(limit));
        let ann = Client::legacy(&daemon, ANN);
        ann.make(tool, "ann-1");
        let before = upstream.received_of("tasks/list").len();
        let answers = [(); 10].map(|()| answer(&ann.send("tasks/list", None, "")));
        assert_eq!(answers[0]["error"], Value::Null, "{}", answers[0]);
        assert_eq!(answers[9]["error"]["code"], 429, "{}", answers[9]);
        // Each takes two pages.
        assert!(upstream.received_of("tasks/list").len() - before <= 2 * 5);
    }
}

#[test]
fn a_list_of_tasks_is_one_of_the_calls_that_an_upstream_may_have_at_once() {
    let other = server(Form::Json);
    for is_mapped in [false, true] {
        let gate = Gate::default();
        let (door, server) = (gate.clone(), Legacy::new(Offer::tools(&["work"])));
        let upstream =
            Upstream::start(move |request| match (request.method().as_str(), result_of(request)) {
                ("tasks/list", Some(result)) => {
                    Reply::silence().wait(&door).then(Reply::result(request, &result))
                }
                (_, Some(result)) => Reply::result(request, &result),
                (_, None) => server.answer(request),
            });
        let lines = "eras = [\"legacy\"]\ncalls_max = 1\ncalls_waiting_max = 0";
        let one = keys(Config::new().upstream("up", upstream.address, lines));
        let config = if is_mapped { one.upstream("other", other.address, BOTH) } else { one };
        let tool = if is_mapped { "up__work" } else { "work" };
        let daemon = Daemon::start(&config);
        let ann = Client::legacy(&daemon, ANN);
        ann.make(tool, "ann-1");
        let mut listing = daemon.connect();
        listing.write(&ann.request("tasks/list", None, "").bytes());
        eventually("it is asked", || (!upstream.received_of("tasks/list").is_empty()).then_some(()));
        let call = format!(r#""name":"{tool}","arguments":{{"as":"ann-2"}},"task":{{}}"#);
        let refused = answer(&ann.send("tools/call", Some(tool), &call));
        assert!(refused["error"]["message"].is_string(), "{refused}");
        gate.open();
        let listed = listing.response().json();
        assert_eq!(listed["result"]["tasks"].as_array().map(Vec::len), Some(1), "{listed}");
        ann.make(tool, "ann-2");
    }
}

#[test]
fn the_pages_of_a_list_of_tasks_count_until_it_is_answered() {
    let gate = Gate::default();
    let (door, server) = (gate.clone(), Legacy::new(Offer::tools(&["work"])));
    let upstream = Upstream::start(move |request| match (request.method().as_str(), result_of(request)) {
        ("tasks/list", Some(result)) if request.json()["params"]["cursor"].is_null() => {
            Reply::result(request, &result.replacen('x', &"x".repeat(100_000), 1))
        }
        ("tasks/list", Some(result)) => Reply::silence().wait(&door).then(Reply::result(request, &result)),
        (_, Some(result)) => Reply::result(request, &result),
        (_, None) => server.answer(request),
    });
    let daemon = Daemon::start(&transparent(&upstream).admin());
    let held_bytes = || daemon.find_metric("trunkline_buffered_bytes").expect("a count");
    let ann = Client::legacy(&daemon, ANN);
    ann.make("work", "ann-2");
    let mut listing = daemon.connect();
    listing.write(&ann.request("tasks/list", None, "").bytes());
    eventually("the second page is asked for", || {
        (upstream.received_of("tasks/list").len() == 2).then_some(())
    });
    assert!(held_bytes() >= 100_000, "{}", held_bytes());
    gate.open();
    assert!(listing.response().text().contains("ann-2"));
    eventually("it is given back", || (held_bytes() < 100_000).then_some(()));
}

#[test]
fn a_list_of_tasks_ends_the_session_that_cannot_be_opened_again() {
    let (serving, is_lost) = (Legacy::new(Offer::tools(&["work"])), Arc::new(AtomicBool::new(false)));
    let (server, lost) = (serving.clone(), Arc::clone(&is_lost));
    let upstream = Upstream::start(move |request| match (request.method().as_str(), result_of(request)) {
        _ if lost.load(Ordering::SeqCst) => Reply::json("404 Not Found", ""),
        (_, Some(result)) => Reply::result(request, &result),
        (_, None) => server.answer(request),
    });
    let lines = "eras = [\"legacy\"]\nsession_loss = \"end\"";
    let daemon = Daemon::start(&keys(Config::new().upstream("up", upstream.address, lines)));
    let ann = Client::legacy(&daemon, ANN);
    ann.make("work", "ann-1");
    assert_eq!(ann.list(), ["ann-1"]);
    let opened = serving.sessions_opened();
    is_lost.store(true, Ordering::SeqCst);
    ann.send("tasks/list", None, "").assert_error(404, 404, Some("7"));
    ann.send("tasks/get", None, r#""taskId":"ann-1""#).assert_error(404, 404, Some("7"));
    assert_eq!(serving.sessions_opened(), opened, "another is opened without a word");
}

#[test]
fn a_server_without_lists_of_tasks_costs_no_session() {
    let serving = Legacy::new(Offer::tools(&["work"]));
    let server = serving.clone();
    let upstream = Upstream::start(move |request| match (request.method().as_str(), result_of(request)) {
        ("tasks/list", _) => Reply::json(
            "404 Not Found",
            &format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"Method not found"}}}}"#,
                request.id()
            ),
        ),
        (_, Some(result)) => Reply::result(request, &result),
        (_, None) => server.answer(request),
    });
    for lines in ["eras = [\"legacy\"]", "eras = [\"legacy\"]\nsession_loss = \"end\""] {
        let daemon = Daemon::start(&keys(Config::new().upstream("up", upstream.address, lines)));
        let ann = Client::legacy(&daemon, ANN);
        ann.make("work", "ann-1");
        let opened = serving.sessions_opened();
        for _ in 0..2 {
            let refused = answer(&ann.send("tasks/list", None, ""));
            assert_eq!(refused["error"]["code"], -32601, "{refused}");
        }
        ann.has("ann-1");
        assert_eq!(serving.sessions_opened(), opened);
    }
}

#[test]
fn a_list_asks_the_other_gateways_for_so_many_tasks_only() {
    let serving = Legacy::new(Offer::tools(&["work"]));
    let upstream = Upstream::start(move |request| match (request.method().as_str(), result_of(request)) {
        ("tasks/list", _) => {
            let task = |number| format!(r#"{{"taskId":"t-{number}","status":"working"}}"#);
            let tasks = (0..3000).map(task).collect::<Vec<_>>().join(",");
            Reply::result(request, &format!(r#"{{"tasks":[{tasks}]}}"#))
        }
        (_, Some(result)) => Reply::result(request, &result),
        (_, None) => serving.answer(request),
    });
    let (redis, keys) = (Redis::start(), Folder::new());
    let key = keys.path().join("session.key");
    std::fs::write(&key, "7".repeat(64)).expect("a key file");
    let session = format!("[session]\nkey = {{ file = \"{}\" }}", key.display());
    let daemon = Daemon::start(&transparent(&upstream).section(&session).section(&redis.section("")).admin());
    daemon.wait_metric("trunkline_shared_connected", 1);
    let ann = Client::legacy(&daemon, ANN);
    ann.make("work", "t-2999");
    let asked = || {
        let stats = redis.command(&["INFO", "commandstats"]);
        let of_get = stats.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
        of_get.map_or(0, |line| line.split(',').next().and_then(|calls| calls.parse().ok()).expect("a count"))
    };
    let before: usize = asked();
    assert_eq!(ann.list(), ["t-2999"]);
    let asked = asked() - before;
    assert!((1000..1100).contains(&asked), "{asked}");
}
