//! Public names: which call goes to which upstream, and under which name it arrives there.

use crate::harness::{
    Config, Daemon, Gate, META, Offer, Reply, Request, Upstream, body, call, eventually, get_prompt, list,
    literal, modern, read_resource,
};

fn complete(id: &str, reference: &str) -> Request {
    let params =
        format!(r#"{{"ref":{reference},"argument":{{"name":"x","value":"files__greet"}},"_meta":{META}}}"#);
    modern("completion/complete", None, body(id, "completion/complete", &params))
}

/// Two servers that share a tool called `echo`.
fn pair() -> (Upstream, Upstream) {
    let files = Offer::tools(&["echo", "write", "secret"]).with_prompts(&["greet"]).with_resources(&[
        "file:///a",
        "https://docs.example/a",
        "ui://panel",
        "urn:x",
        "x:both",
    ]);
    let weather = Offer::tools(&["echo", "forecast"])
        .with_prompts(&["ask"])
        .with_resources(&["weather:today", "x:both"]);
    (Upstream::offering(files), Upstream::offering(weather))
}

/// What must have arrived after this request, and nothing at the other upstream.
#[track_caller]
fn assert_routed(
    daemon: &Daemon,
    request: &Request,
    to: &Upstream,
    other: &Upstream,
    field: &[&str],
    inner: &str,
) {
    let (before, aside) = (to.forwarded().len(), other.forwarded().len());
    daemon.send(request).assert_ok();
    let received = to.forwarded();
    assert_eq!((received.len(), other.forwarded().len()), (before + 1, aside), "routed to {inner}");
    let received = received.last().unwrap();
    assert_eq!(literal(&received.body, field), format!("\"{inner}\""));
    let named = received.method() != "completion/complete";
    assert_eq!(received.headers("mcp-name"), if named { vec![inner] } else { vec![] });
}

#[test]
fn prefixed_names_and_uris_reach_their_upstream_as_its_own() {
    let (files, weather) = pair();
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let (name, uri) = (["params", "name"], ["params", "uri"]);
    let to_files = |request: Request, field: &[&str], inner| {
        assert_routed(&daemon, &request, &files, &weather, field, inner);
    };
    let to_weather = |request: Request, field: &[&str], inner| {
        assert_routed(&daemon, &request, &weather, &files, field, inner);
    };
    until_learned(&daemon, &read_resource("0", "https://docs.example/a"));
    to_files(call("1", "files__echo"), &name, "echo");
    to_weather(call("2", "weather__echo"), &name, "echo");
    to_files(call("3", "files__a__b"), &name, "a__b");
    to_files(call("4", "files____x"), &name, "__x");
    to_files(call("5", "files__weather__echo"), &name, "weather__echo");
    to_files(get_prompt("6", "files__greet"), &name, "greet");
    to_weather(get_prompt("7", "weather__ask"), &name, "ask");
    to_files(read_resource("8", "files+file:///a"), &uri, "file:///a");
    to_weather(read_resource("9", "weather+weather:today"), &uri, "weather:today");
    to_files(read_resource("10", "files+urn:x"), &uri, "urn:x");
    to_files(read_resource("11", "files+weather+file:///a"), &uri, "weather+file:///a");
    to_files(read_resource("12", "ui://files+panel"), &uri, "ui://panel");
    to_files(read_resource("13", "https://docs.example/a"), &uri, "https://docs.example/a");
    to_files(
        complete("14", r#"{"type":"ref/prompt","name":"files__greet"}"#),
        &["params", "ref", "name"],
        "greet",
    );
    to_weather(
        complete("15", r#"{"type":"ref/resource","uri":"weather+w:{day}"}"#),
        &["params", "ref", "uri"],
        "w:{day}",
    );
}

#[test]
fn completion_changes_in_the_reference_and_the_id_alone() {
    let (files, weather) = pair();
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let request = complete("1", r#"{"name":"files__greet","type":"ref/prompt"}"#);
    daemon.send(&request).assert_ok();
    let expected = request.clone().replacing(r#"{"name":"files__greet""#, r#"{"name":"greet""#).body;
    assert_eq!(files.forwarded()[0].client_body(), expected);
    let unknown = complete("2", r#"{"type":"ref/prompt","name":"nosuch__greet"}"#);
    daemon.send(&unknown).assert_error(200, -32602, Some("2"));
    for key in ["name", "\\u006eame", "Name", "name\\u0000", "type"] {
        let twice = complete(
            "3",
            &format!(r#"{{"type":"ref/prompt","{key}":"weather__ask","name":"files__greet"}}"#),
        );
        assert_eq!(daemon.send(&twice).status, 400, "{key}");
    }
    assert_eq!((files.forwarded().len(), weather.forwarded().len()), (1, 0));
}

/// Names without a prefix are known once every upstream has been listed.
fn until_learned(daemon: &Daemon, request: &Request) {
    eventually("the names behind the endpoint are learned", || {
        let response = daemon.send(request);
        (response.status == 200 && response.json().get("result").is_some()).then_some(())
    });
}

#[test]
fn unprefixed_names_go_to_the_only_upstream_that_offers_them() {
    let (files, weather) = pair();
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    let (name, uri) = (["params", "name"], ["params", "uri"]);
    for request in [call("0", "write"), get_prompt("0", "greet"), read_resource("0", "file:///a")] {
        until_learned(&daemon, &request);
    }
    assert_routed(&daemon, &call("1", "write"), &files, &weather, &name, "write");
    assert_routed(&daemon, &call("2", "forecast"), &weather, &files, &name, "forecast");
    assert_routed(&daemon, &get_prompt("3", "greet"), &files, &weather, &name, "greet");
    assert_routed(&daemon, &read_resource("4", "file:///a"), &files, &weather, &uri, "file:///a");
    assert_routed(&daemon, &read_resource("5", "ui://panel"), &files, &weather, &uri, "ui://panel");
    let (files_before, weather_before) = (files.forwarded().len(), weather.forwarded().len());
    daemon.send(&call("6", "echo")).assert_error(200, -32602, Some("6"));
    daemon.send(&call("7", "nosuch")).assert_error(200, -32602, Some("7"));
    daemon.send(&call("8", "Write")).assert_error(200, -32602, Some("8"));
    daemon.send(&read_resource("9", "file:///nowhere")).assert_error(200, -32602, Some("9"));
    daemon.send(&read_resource("10", "x:both")).assert_error(200, -32602, Some("10"));
    assert_eq!((files.forwarded().len(), weather.forwarded().len()), (files_before, weather_before));
}

/// Nobody knows yet whether the name exists, so the answer must not be that it does not.
fn assert_not_unknown_before_the_lists(names: &str) {
    let gate = Gate::default();
    let held = gate.clone();
    let offer = Offer::tools(&["write"]);
    let files = Upstream::start(move |request| {
        let reply = offer.answer(request);
        if request.method() == "tools/list" { Reply::default().wait(&held).then(reply) } else { reply }
    });
    let weather = Upstream::with_tools(&["forecast"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather).endpoint(&format!("names = {names:?}")));
    let mut early = daemon.connect();
    early.write(&call("7", "write").bytes());
    files.wait_for("tools/list", 1);
    gate.open();
    let response = early.response();
    match response.status {
        200 => response.assert_ok(),
        _ => drop(response.assert_error(503, 503, Some("7"))),
    }
    until_learned(&daemon, &call("8", "write"));
}

#[test]
fn a_bare_name_is_not_unknown_before_the_lists_have_come() {
    assert_not_unknown_before_the_lists("bare");
}

#[test]
fn an_unprefixed_name_is_not_unknown_before_the_lists_have_come() {
    assert_not_unknown_before_the_lists("prefixed");
}

#[test]
fn one_upstream_may_have_its_prefix_too() {
    let (files, weather) = pair();
    let daemon =
        Daemon::start(&Config::new().upstream("files", files.address, "").endpoint("names = \"prefixed\""));
    assert_routed(&daemon, &call("1", "files__echo"), &files, &weather, &["params", "name"], "echo");
    let tools = daemon.send(&list("2", "tools/list")).json();
    assert_eq!(tools["result"]["tools"][0]["name"], "files__echo");
}

#[test]
fn unprefixed_names_are_unknown_where_they_are_not_accepted() {
    let (files, weather) = pair();
    let daemon = Daemon::start(&Config::prefixed(&files, &weather).endpoint("accept_unprefixed = false"));
    for request in [call("7", "write"), get_prompt("7", "greet"), read_resource("7", "file:///a")] {
        daemon.send(&request).assert_error(200, -32602, Some("7"));
    }
    daemon.send(&call("8", "files__write")).assert_ok();
    assert_eq!(files.forwarded().len(), 1);
}

#[test]
fn a_short_prefix_replaces_the_name() {
    let (files, weather) = pair();
    let config = Config::new().upstream("files", files.address, "prefix = \"fs\"").upstream(
        "weather",
        weather.address,
        "",
    );
    let daemon = Daemon::start(&config);
    assert_routed(&daemon, &call("1", "fs__echo"), &files, &weather, &["params", "name"], "echo");
    assert_routed(
        &daemon,
        &read_resource("2", "fs+file:///a"),
        &files,
        &weather,
        &["params", "uri"],
        "file:///a",
    );
    daemon.send(&call("3", "files__echo")).assert_error(200, -32602, Some("3"));
    let tools = daemon.send(&list("4", "tools/list")).json();
    assert_eq!(tools["result"]["tools"][0]["name"], "fs__echo");
}

#[test]
fn an_alias_is_a_public_name_of_its_own() {
    let (files, weather) = pair();
    let config = Config::prefixed(&files, &weather).endpoint("aliases = { today = \"weather__forecast\" }");
    let daemon = Daemon::start(&config);
    assert_routed(&daemon, &call("1", "today"), &weather, &files, &["params", "name"], "forecast");
    let text = daemon.send(&list("2", "tools/list")).text();
    assert!(text.contains(r#""name":"today""#), "{text}");
}

#[test]
fn bare_names_go_to_the_first_upstream_that_offers_them() {
    let (files, weather) = pair();
    let config = Config::prefixed(&files, &weather)
        .endpoint("names = \"bare\"\naliases = { echo-of-weather = \"weather__echo\" }");
    let daemon = Daemon::start(&config);
    let (name, uri) = (["params", "name"], ["params", "uri"]);
    until_learned(&daemon, &call("0", "echo"));
    assert_routed(&daemon, &call("1", "echo"), &files, &weather, &name, "echo");
    assert_routed(&daemon, &call("2", "forecast"), &weather, &files, &name, "forecast");
    assert_routed(&daemon, &call("3", "echo-of-weather"), &weather, &files, &name, "echo");
    assert_routed(&daemon, &get_prompt("4", "ask"), &weather, &files, &name, "ask");
    // URIs are prefixed on every endpoint with several upstreams.
    assert_routed(
        &daemon,
        &read_resource("5", "weather+weather:today"),
        &weather,
        &files,
        &uri,
        "weather:today",
    );
    daemon.send(&call("6", "nosuch")).assert_error(200, -32602, Some("6"));
    let tools = daemon.send(&list("7", "tools/list")).json();
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.iter().filter(|name| **name == "echo").count(), 1, "{names:?}");
    assert!(names.contains(&"write") && names.contains(&"forecast"), "{names:?}");
}

#[test]
fn bare_names_wait_until_every_upstream_has_been_listed_that_comes_before() {
    let files = Upstream::with_tools(&["echo"]);
    let (dead, _socket) = crate::harness::refusing_address();
    let config = Config::new()
        .upstream("weather", dead, "")
        .upstream("files", files.address, "")
        .endpoint("names = \"bare\"")
        .section("[[endpoint]]\npath = \"/first\"\nauth = []\nnames = \"bare\"\nupstreams = [\"files\", \"weather\"]");
    let daemon = Daemon::start(&config);
    let response = daemon.send(&call("7", "echo"));
    response.assert_error(503, 503, Some("7"));
    assert!(response.header("retry-after").is_some_and(|value| value.parse::<u32>().is_ok()), "{response:?}");
    assert_eq!(files.forwarded().len(), 0);
    daemon.send(&call("7", "echo").target("/first")).assert_ok();
}

#[test]
fn a_name_that_no_upstream_can_have_is_unknown_while_one_is_down() {
    let files = Upstream::with_tools(&["echo"]);
    let (dead, _socket) = crate::harness::refusing_address();
    let daemon =
        Daemon::start(&Config::new().upstream("files", files.address, "").upstream("weather", dead, ""));
    for request in [
        call("7", "nosuch__echo"),
        call("7", "nosuch"),
        get_prompt("7", "nosuch"),
        read_resource("7", "nosuch:x"),
        read_resource("7", "https://nosuch.example/x"),
    ] {
        daemon.send(&request).assert_error(200, -32602, Some("7"));
    }
    // These the one that is down may have.
    daemon.send(&call("7", "weather__echo")).assert_error(502, 502, Some("7"));
    daemon.send(&call("7", "echo")).assert_error(503, 503, Some("7"));
    daemon.send(&call("7", "files__echo")).assert_ok();
}

#[test]
fn globs_decide_what_is_public() {
    let (files, weather) = pair();
    let config = Config::prefixed(&files, &weather)
        .endpoint("allow = [\"files__*\", \"files+file:*\", \"weather__forecast\"]\ndeny = [\"*secret*\"]");
    let daemon = Daemon::start(&config);
    let tools = daemon.send(&list("1", "tools/list")).json();
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["files__echo", "files__write", "weather__forecast"]);
    let resources = daemon.send(&list("2", "resources/list")).json();
    assert_eq!(resources["result"]["resources"].as_array().unwrap().len(), 1, "{resources}");
    assert_eq!(resources["result"]["resources"][0]["uri"], "files+file:///a");
    daemon.send(&call("3", "files__echo")).assert_ok();
    daemon.send(&read_resource("4", "files+file:///a")).assert_ok();
    let (files_before, weather_before) = (files.forwarded().len(), weather.forwarded().len());
    let refused = [
        call("7", "files__secret"),
        call("7", "weather__echo"),
        get_prompt("7", "weather__ask"),
        read_resource("7", "weather+weather:today"),
        read_resource("7", "files+urn:x"),
        read_resource("7", "files+file:///secret"),
        // The policy sees the resolved route, not the spelling.
        call("7", "secret"),
        read_resource("7", "weather:today"),
    ];
    for request in refused {
        println!("{}", String::from_utf8_lossy(&request.body));
        daemon.send(&request).assert_error(200, -32602, Some("7"));
    }
    assert_eq!((files.forwarded().len(), weather.forwarded().len()), (files_before, weather_before));
}

#[test]
fn a_denied_tool_answers_as_an_unknown_one() {
    let (files, weather) = pair();
    let daemon = Daemon::start(&Config::prefixed(&files, &weather).endpoint("deny = [\"files__secret\"]"));
    let denied = daemon.send(&call("7", "files__secret"));
    let unknown = daemon.send(&call("7", "nosuch__secret"));
    denied.assert_error(200, -32602, Some("7"));
    assert_eq!(
        denied.text().replace("files__secret", "NAME"),
        unknown.text().replace("nosuch__secret", "NAME")
    );
}

#[test]
fn deny_holds_on_a_transparent_endpoint_too() {
    let (files, _weather) = pair();
    let daemon = Daemon::start(&Config::transparent(&files).endpoint("deny = [\"secret\", \"file:*\"]"));
    daemon.send(&call("7", "secret")).assert_error(200, -32602, Some("7"));
    daemon.send(&read_resource("7", "file:///a")).assert_error(200, -32602, Some("7"));
    daemon.send(&call("8", "echo")).assert_ok();
    assert_eq!(files.forwarded().len(), 1);
    let tools = daemon.send(&list("9", "tools/list")).text();
    assert!(!tools.contains("secret") && tools.contains("write"), "{tools}");
}

#[test]
fn deny_holds_for_every_spelling_that_a_server_may_take_for_it() {
    let offer =
        || {
            Offer::tools(&["Delete_All", "delete_one", "keep"]).with_prompts(&["HUSH", "ask"]).with_resources(
                &["file:///Secret", "file:///secret?x=1", "file:///secret/", "file:///public"],
            )
        };
    let deny = r#"deny = ["delete_*", "up__delete_*", "hush", "up__Hush", "*file:///secret"]"#;
    let (up, other) = (Upstream::offering(offer()), Upstream::with_tools(&[]));
    for (config, name_prefix, uri_prefix) in [
        (Config::new().upstream("up", up.address, ""), "", ""),
        (Config::new().upstream("up", up.address, "").upstream("other", other.address, ""), "up__", "up+"),
    ] {
        let daemon = Daemon::start(&config.endpoint(deny));
        for (method, key, field, expected) in [
            ("tools/list", "tools", "name", format!("{name_prefix}keep")),
            ("prompts/list", "prompts", "name", format!("{name_prefix}ask")),
            ("resources/list", "resources", "uri", format!("{uri_prefix}file:///public")),
        ] {
            let json = daemon.send(&list("1", method)).json();
            let listed = json["result"][key].as_array().expect("an array");
            let names: Vec<&str> =
                listed.iter().map(|entry| entry[field].as_str().expect("a name")).collect();
            assert_eq!(names, [expected.as_str()], "{method}");
        }
        let before = up.forwarded().len();
        for request in [
            call("7", &format!("{name_prefix}Delete_All")),
            call("7", &format!("{name_prefix}DELETE_one")),
            get_prompt("7", &format!("{name_prefix}Hush")),
            read_resource("7", &format!("{uri_prefix}file:///Secret")),
            read_resource("7", &format!("{uri_prefix}file:///secret?")),
            read_resource("7", &format!("{uri_prefix}file:///secret#a")),
            read_resource("7", &format!("{uri_prefix}file:///secret/")),
        ] {
            daemon.send(&request).assert_error(200, -32602, Some("7"));
        }
        assert_eq!(up.forwarded().len(), before);
        until_learned(&daemon, &call("8", &format!("{name_prefix}keep")));
        daemon.send(&read_resource("9", &format!("{uri_prefix}file:///public"))).assert_ok();
    }
}

#[test]
fn deny_by_an_alias_holds_for_every_spelling_of_what_it_stands_for() {
    let (up, other) = (Upstream::with_tools(&["drop_db", "keep"]), Upstream::with_tools(&[]));
    let rule = "[[rule]]\nname = \"no-danger\"\neffect = \"deny\"\ntools = [\"danger\"]";
    for (is_denied_by, deny, rules) in [("deny", "deny = [\"danger\"]", ""), ("a rule", "", rule)] {
        for prefix in ["", "up__"] {
            let config = Config::new().upstream("up", up.address, "");
            let config = if prefix.is_empty() { config } else { config.upstream("other", other.address, "") };
            let endpoint = format!("aliases = {{ danger = \"up__drop_db\", safe = \"up__keep\" }}\n{deny}");
            let daemon = Daemon::start(&config.endpoint(&endpoint).section(rules));
            until_learned(&daemon, &call("1", "safe"));
            let before = up.forwarded().len();
            for name in ["drop_db", "DROP_DB", "Drop_db"] {
                let response = daemon.send(&call("7", &format!("{prefix}{name}")));
                let json = response.json();
                assert_eq!(json["error"]["code"], -32602, "{is_denied_by}, {prefix}{name}: {json}");
            }
            for name in ["danger", "DANGER"] {
                daemon.send(&call("7", name)).assert_error(200, -32602, Some("7"));
            }
            assert_eq!(up.forwarded().len(), before, "{is_denied_by}, {prefix:?}");
            daemon.send(&call("8", &format!("{prefix}KEEP"))).assert_ok();
        }
    }
}
