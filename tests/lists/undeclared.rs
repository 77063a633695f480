//! Lists that a server does not declare.

use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Daemon, LEGACY_VERSION, Legacy, Offer, Received, Reply, Response, Upstream, call,
    eventually, in_session, legacy, legacy_call, list, open_session, post, side_by_side, tool_names,
};

/// The lists that are not those of tools, each with its field.
const OTHERS: [(&str, &str); 3] = [
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

/// A server with tools, which fails whoever asks for more.
fn with_tools_alone(server: Legacy, is_modern: bool) -> Upstream {
    Upstream::taking_anything(move |request| match request.method().as_str() {
        method if method != "tools/list" && method.ends_with("/list") => {
            Reply::error(request, "200 OK", -32603, "not implemented")
        }
        _ if is_modern => Offer::tools(&["echo"]).answer(request),
        _ => server.answer(request),
    })
}

/// The words of `/status` about an upstream.
fn told(daemon: &Daemon, name: &str) -> Value {
    let told = daemon.get_admin("/status").json();
    let all = told["upstreams"].as_array().expect("a list").clone();
    all.into_iter().find(|upstream| upstream["name"] == name).unwrap_or_default()
}

/// Nothing is wrong with it.
#[track_caller]
fn is_well(daemon: &Daemon, name: &str) {
    let found = told(daemon, name);
    assert_eq!((&found["state"], &found["list_fault"]), (&"up".into(), &Value::Null), "{found:#}");
}

/// Waits until it is known what the server is.
fn is_up(daemon: &Daemon, name: &str) {
    eventually("it is known", || {
        let found = told(daemon, name);
        (found["state"] == "up" && found["eras"].as_array().is_some_and(|eras| !eras.is_empty()))
            .then_some(())
    });
}

/// The list as clients of both eras have it.
fn listed(daemon: &Daemon, method: &str) -> [Response; 2] {
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    [daemon.send(&list("1", method)), daemon.send(&in_session(&session, legacy("1", method, "{}")))]
}

#[test]
fn a_server_is_not_asked_for_lists_that_it_does_not_declare() {
    side_by_side([true, false], |is_modern| {
        let server = with_tools_alone(Legacy::new(Offer::tools(&["echo"])), is_modern);
        let more = Offer::tools(&["look"]).with_prompts(&["greet"]).with_resources(&["test://a"]);
        let more = Upstream::offering(more);
        let config = Config::new().probed("few", server.address, "").upstream("more", more.address, "");
        // Names without a prefix are learned, too.
        let bare = "[[endpoint]]\npath = \"/bare\"\nauth = []\nnames = \"bare\"\nupstreams = [\"few\"]";
        let daemon = Daemon::start(&config.section(bare).admin());
        is_up(&daemon, "few");
        for response in listed(&daemon, "tools/list") {
            assert_eq!(tool_names(&response), ["few__echo", "more__look"]);
        }
        for (method, field) in OTHERS {
            let expected = usize::from(field != "resourceTemplates");
            for response in listed(&daemon, method) {
                response.assert_ok();
                let listed = &response.json()["result"][field];
                assert_eq!(listed.as_array().map(Vec::len), Some(expected), "{}", response.text());
            }
        }
        let asked: Vec<String> = server.received().iter().map(Received::method).collect();
        assert!(asked.contains(&"tools/list".into()), "{asked:?}");
        assert!(!asked.iter().any(|method| OTHERS.iter().any(|(other, _)| other == method)), "{asked:?}");
        is_well(&daemon, "few");
    });
}

#[test]
fn the_one_server_of_an_endpoint_has_no_such_method_then() {
    side_by_side([true, false], |is_modern| {
        let server = with_tools_alone(Legacy::new(Offer::tools(&["echo"])), is_modern);
        let daemon = Daemon::start(&Config::new().probed("up", server.address, "").admin());
        is_up(&daemon, "up");
        for (method, _) in OTHERS {
            for response in listed(&daemon, method) {
                assert_eq!(response.json()["error"]["code"], -32601, "{}", response.text());
            }
            assert!(server.received_of(method).is_empty(), "{method}");
        }
        is_well(&daemon, "up");
    });
}

#[test]
fn a_program_is_not_asked_for_lists_that_it_does_not_declare() {
    side_by_side([&[][..], &["modern-only"]], |words| {
        let child = Child::new(words);
        let other = Upstream::offering(Offer::tools(&["look"]).with_prompts(&["greet"]));
        let config = Config::new().raw("up", &child.keys("")).upstream("more", other.address, "");
        let daemon = Daemon::start(&config.admin());
        is_up(&daemon, "up");
        for response in listed(&daemon, "tools/list") {
            assert_eq!(tool_names(&response), ["up__echo", "more__look"], "{words:?}");
        }
        // Its answer to this is no list.
        for response in listed(&daemon, "prompts/list") {
            assert_eq!(response.json()["result"]["prompts"].as_array().map(Vec::len), Some(1), "{words:?}");
        }
        assert!(child.received("prompts/list").is_empty(), "{words:?}");
        is_well(&daemon, "up");
    });
}

#[test]
fn a_list_that_a_later_version_says_to_have_changed_is_asked_for() {
    let child = Child::new(&[]);
    let other = Upstream::offering(Offer::tools(&["look"]).with_prompts(&["greet"]));
    let config = Config::new().raw("up", &child.keys("")).upstream("more", other.address, "");
    let daemon = Daemon::start(&config.admin());
    is_up(&daemon, "up");
    let prompts = |response: &Response| response.json()["result"]["prompts"].as_array().map(Vec::len);
    assert_eq!(listed(&daemon, "prompts/list").map(|response| prompts(&response)), [Some(1); 2]);
    // It had none when it introduced itself.
    child.has_prompts();
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    stream.write(&in_session(&session, get).bytes());
    assert_eq!(stream.head().status, 200);
    daemon.send(&in_session(&session, legacy_call("2", "up__announce"))).assert_ok();
    while !stream.event().expect("a change").contains("prompts/list_changed") {}
    eventually("they are listed", || {
        (listed(&daemon, "prompts/list").map(|response| prompts(&response)) == [Some(2); 2]).then_some(())
    });
}

#[test]
fn a_list_that_a_newer_process_declares_is_asked_for() {
    let kinds =
        [("modern-only", "shared"), ("modern-only", "session"), ("strict", "shared"), ("strict", "session")];
    side_by_side(kinds, |(kind, isolation)| {
        let child = Child::new(&[kind]);
        let other = Upstream::offering(Offer::tools(&["look"]).with_prompts(&["greet"]));
        let keys = child.keys(&format!("isolation = {isolation:?}\nchild_idle_timeout = \"1s\""));
        let config = Config::new().raw("up", &keys).upstream("more", other.address, "").admin();
        let daemon = Daemon::start(&config);
        is_up(&daemon, "up");
        let prompts = || {
            let count = |response: &Response| response.json()["result"]["prompts"].as_array().map(Vec::len);
            listed(&daemon, "prompts/list").map(|response| count(&response))
        };
        assert_eq!(prompts(), [Some(1); 2]);
        child.wait_gone();
        // The next process is of another version, and announces nothing.
        child.has_prompts();
        eventually(&format!("{kind} {isolation}: they are listed"), || {
            daemon.send(&call("1", "up__echo")).assert_ok();
            listed(&daemon, "tools/list").iter().for_each(Response::assert_ok);
            (prompts() == [Some(2); 2]).then_some(())
        });
    });
}

/// An introduction that declares nothing.
fn declaring_nothing(request: &Received, capabilities: &str) -> Reply {
    let method = request.method();
    let result = match method.as_str() {
        "server/discover" => format!(
            r#"{{"supportedVersions":["2026-07-28"],{capabilities}"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#
        ),
        "tools/list" => {
            r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#
                .to_owned()
        }
        _ => return Reply::error(request, "200 OK", -32601, "Method not found"),
    };
    Reply::result(request, &result)
}

#[test]
fn a_server_that_declares_nothing_is_asked_for_its_tools() {
    side_by_side([r#""capabilities":{},"#, ""], |capabilities| {
        let modern = Upstream::taking_anything(move |request| declaring_nothing(request, capabilities));
        let sessions = Legacy::new(Offer::default());
        let old = Upstream::taking_anything(move |request| match request.method().as_str() {
            "tools/list" => {
                Reply::result(request, r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#)
            }
            method if method.ends_with("/list") => {
                Reply::error(request, "200 OK", -32601, "Method not found")
            }
            _ => sessions.answer(request),
        });
        let config = Config::new().probed("modern", modern.address, "").probed("old", old.address, "");
        let daemon = Daemon::start(&config.admin());
        is_up(&daemon, "modern");
        is_up(&daemon, "old");
        for response in listed(&daemon, "tools/list") {
            assert_eq!(tool_names(&response), ["modern__echo", "old__echo"]);
        }
        for (method, field) in OTHERS {
            for response in listed(&daemon, method) {
                assert_eq!(response.json()["result"][field], json!([]), "{}", response.text());
            }
        }
        // A list that it does not have, and was asked for as it says nothing at all, is no fault either.
        for name in ["modern", "old"] {
            is_well(&daemon, name);
        }
    });
}
