//! Endpoints that share a path, each for hosts of its own.

use serde_json::Value;

use crate::harness::{
    Config, Connection, Daemon, Folder, Http2, Legacy, Offer, Request, Response, SigningKey, Upstream, call,
    in_session, initialize, jwks, jwt, legacy_call, list, tool_names, trunkline,
};

/// An endpoint at `/mcp` with these keys, over the upstream of this name.
fn endpoint(upstream: &str, lines: &str) -> String {
    format!("[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"{upstream}\"]\n{lines}\n")
}

/// At `/mcp`: one for two hosts, one for all hosts below `example.com`, and one for the rest, each over its own upstream.
fn config(exact: &Upstream, wildcard: &Upstream, rest: &Upstream) -> Config {
    let upstream = |name: &str, upstream: &Upstream| {
        format!("[upstream.{name}]\nurl = \"http://{}/mcp\"\neras = [\"modern\"]\n", upstream.address)
    };
    Config::new()
        .upstream("exact", exact.address, "")
        .endpoint("hosts = [\"Tools.example.com\", \"tools.test:8443\"]")
        .section(&endpoint("wildcard", "hosts = [\"*.example.com\"]"))
        .section(&endpoint("rest", ""))
        .section(&upstream("wildcard", wildcard))
        .section(&upstream("rest", rest))
        .admin()
}

fn three() -> (Upstream, Upstream, Upstream) {
    (Upstream::with_tools(&["exact"]), Upstream::with_tools(&["wildcard"]), Upstream::with_tools(&["rest"]))
}

fn tools_of(response: &Response) -> String {
    response.assert_ok();
    tool_names(response).concat()
}

fn tools_at(host: &str) -> Request {
    list("1", "tools/list").set("Host", host)
}

#[test]
fn a_request_is_for_the_endpoint_of_its_host() {
    let (exact, wildcard, rest) = three();
    let daemon = Daemon::start(&config(&exact, &wildcard, &rest));
    // One connection may name one host after another.
    let mut http1 = daemon.connect();
    let mut http2 = Http2::connect(daemon.address());
    for (host, expected) in [
        ("tools.example.com", "exact"),
        ("TOOLS.example.COM:1234", "exact"),
        ("tools.test:8443", "exact"),
        ("other.example.com", "wildcard"),
        ("Other.Example.com:80", "wildcard"),
        ("localhost", "rest"),
        ("127.0.0.1:8080", "rest"),
        ("tools.example.com", "exact"),
    ] {
        println!("{host}");
        http1.write(&tools_at(host).bytes());
        assert_eq!(tools_of(&http1.response()), expected);
        assert_eq!(tools_of(&http2.send(&tools_at(host))), expected);
        let absolute = tools_at(host).target(&format!("http://{host}/mcp"));
        assert_eq!(tools_of(&daemon.send(&absolute)), expected);
    }
    // What no endpoint is for goes to the one that takes the rest, whose own rule it is that a loopback listener is
    // called by names of localhost.
    for host in ["example.com", "a.b.example.com", "tools.test", "tools.test:8444", "evil.example"] {
        assert_eq!(daemon.send(&tools_at(host)).status, 403, "{host}");
        assert_eq!(http2.send(&tools_at(host)).status, 403, "{host}");
    }
    assert_eq!(daemon.send(&tools_at("localhost").without("Host")).status, 400);
    let other = tools_at("localhost").target("http://tools.example.com/mcp");
    assert_eq!(daemon.send(&other).status, 400, "it names two hosts");
}

#[test]
fn without_an_endpoint_for_the_rest_a_host_of_nobody_is_refused() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream)
        .endpoint("hosts = [\"a.test\"]")
        .section(&endpoint("up", "hosts = [\"b.test\"]"))
        .admin();
    let daemon = Daemon::start(&config);
    for host in ["a.test", "b.test"] {
        daemon.send(&call("1", "echo").set("Host", host)).assert_ok();
    }
    let forwarded = upstream.forwarded().len();
    assert_eq!(daemon.send(&call("1", "echo").set("Host", "c.test")).status, 403);
    assert_eq!(upstream.forwarded().len(), forwarded);
}

#[test]
fn a_host_with_a_port_goes_before_the_host_alone() {
    let (alone, port, public) = three();
    let upstream = |name: &str, upstream: &Upstream| {
        format!("[upstream.{name}]\nurl = \"http://{}/mcp\"\neras = [\"modern\"]\n", upstream.address)
    };
    // The one that must win stands last.
    let config = Config::new()
        .upstream("public", public.address, "")
        .endpoint("public_url = \"http://a.test:8443/mcp\"")
        .section(&endpoint("alone", "hosts = [\"a.test\"]"))
        .section(&endpoint("port", "hosts = [\"a.test:8443\"]"))
        .section(&upstream("alone", &alone))
        .section(&upstream("port", &port));
    let daemon = Daemon::start(&config);
    for (host, expected) in [("a.test:8443", "wildcard"), ("a.test:80", "exact"), ("localhost", "rest")] {
        assert_eq!(tools_of(&daemon.send(&tools_at(host))), expected, "{host}");
    }
}

#[test]
fn endpoints_of_a_path_are_told_apart_by_name() {
    let (exact, wildcard, rest) = three();
    let daemon = Daemon::start(&config(&exact, &wildcard, &rest));
    daemon.send(&call("1", "exact").set("Host", "tools.example.com")).assert_ok();
    daemon.send(&call("1", "rest")).assert_ok();
    let status = daemon.get_admin("/status?format=json").json();
    let endpoints = status["endpoints"].as_array().expect("endpoints");
    let names: Vec<&str> = endpoints.iter().filter_map(|endpoint| endpoint["path"].as_str()).collect();
    assert_eq!(names, ["*.example.com/mcp", "/mcp", "tools.example.com/mcp"]);
    let metrics = daemon.get_admin("/metrics").text();
    for name in ["tools.example.com/mcp", "/mcp"] {
        let counted = metrics.lines().any(|line| {
            line.starts_with("mcp_server_operation_duration_seconds_count")
                && line.contains(&format!("endpoint=\"{name}\""))
                && line.ends_with(" 1")
        });
        assert!(counted, "{name} is not in {metrics}");
    }
}

#[test]
fn a_session_of_one_host_is_none_of_another() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let config = Config::legacy(&upstream)
        .endpoint("hosts = [\"a.test\"]")
        .section(&endpoint("up", "hosts = [\"b.test\"]"));
    let daemon = Daemon::start(&config);
    let opened = daemon.send(&initialize("1", "2025-11-25").set("Host", "a.test"));
    opened.assert_ok();
    let session = opened.header("mcp-session-id").expect("a session id").to_owned();
    let call_at = |host: &str| daemon.send(&in_session(&session, legacy_call("2", "echo")).set("Host", host));
    assert_ne!(call_at("a.test").status, 404);
    assert_eq!(call_at("b.test").status, 404);
    // On one connection, too, which remembers the session that it named last.
    let mut connection = Connection::open(daemon.address());
    for (host, is_there) in [("a.test", true), ("b.test", false), ("a.test", true)] {
        connection.write(&in_session(&session, legacy_call("3", "echo")).set("Host", host).bytes());
        assert_eq!(connection.response().status != 404, is_there, "{host}");
    }
}

#[test]
fn rules_and_limits_are_about_a_path_or_one_of_its_hosts() {
    let upstream = Upstream::with_tools(&["echo", "other"]);
    let config = Config::transparent(&upstream)
        .endpoint("hosts = [\"a.test\"]")
        .section(&endpoint("up", "hosts = [\"b.test\"]"))
        .section(
            "[[rule]]\nname = \"one\"\neffect = \"deny\"\nendpoints = [\"b.test/mcp\"]\ntools = [\"other\"]",
        )
        .section("[[limit]]\nname = \"path\"\nby = [\"endpoint\"]\nrate = \"2/h\"\nendpoints = [\"/mcp\"]");
    let daemon = Daemon::start(&config);
    let at = |host: &str, tool: &str| daemon.send(&call("1", tool).set("Host", host));
    let status = |host: &str, tool: &str| at(host, tool).status;
    at("a.test", "other").assert_ok();
    assert_eq!(at("b.test", "other").json()["error"]["code"], -32602);
    // Each endpoint has a count of its own.
    assert_eq!((status("a.test", "echo"), status("a.test", "echo")), (200, 429));
    assert_eq!((status("b.test", "echo"), status("b.test", "echo")), (200, 429));
}

#[test]
fn a_rule_and_a_limit_hold_while_the_sibling_of_their_endpoint_is_off() {
    let upstream = Upstream::with_tools(&["echo", "other"]);
    let config = Config::transparent(&upstream)
        .endpoint("hosts = [\"a.test\"]")
        .section(&endpoint("up", "hosts = [\"b.test\"]\nenabled = false"))
        .section(
            "[[rule]]\nname = \"one\"\neffect = \"deny\"\nendpoints = [\"a.test/mcp\"]\ntools = [\"other\"]",
        )
        .section(
            "[[limit]]\nname = \"one\"\nby = [\"endpoint\"]\nrate = \"2/h\"\nendpoints = [\"a.test/mcp\"]",
        );
    let daemon = Daemon::start(&config);
    let at = |tool: &str| daemon.send(&call("1", tool).set("Host", "a.test"));
    assert_eq!(at("other").json()["error"]["code"], -32602);
    assert_eq!((at("echo").status, at("echo").status), (200, 429));
}

#[test]
fn a_reload_says_which_endpoint_is_new() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).endpoint("hosts = [\"a.test\"]");
    let daemon = Daemon::start(&config);
    let at_b = call("1", "echo").set("Host", "b.test");
    assert_eq!(daemon.send(&at_b).status, 403);
    let from = daemon.log().len();
    daemon.reload(&config.section(&endpoint("up", "hosts = [\"b.test\"]")));
    daemon.wait_for_log(from, "the new endpoint", |line| line.contains("endpoint b.test/mcp: added"));
    daemon.send(&at_b).assert_ok();
    daemon.send(&call("1", "echo").set("Host", "a.test")).assert_ok();
}

#[test]
fn each_host_has_its_own_metadata_of_its_resource() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let keys = folder.path().join("jwks.json");
    std::fs::write(&keys, jwks(&[&SigningKey::ec("e")])).expect("the keys can be written");
    let config = Config::transparent(&upstream)
        .endpoint("hosts = [\"a.test\"]\npublic_url = \"https://a.test/mcp\"")
        .section(&endpoint("up", "hosts = [\"b.test\"]\npublic_url = \"https://b.test/mcp\""))
        .section(&jwt(&format!("jwks_file = \"{}\"", keys.display())));
    let daemon = Daemon::start(&config);
    for host in ["a.test", "b.test"] {
        let get = call("1", "echo").method("GET").body("").without("content-type").set("Host", host);
        let metadata = daemon.send(&get.target("/.well-known/oauth-protected-resource/mcp"));
        assert_eq!(metadata.json()["resource"], Value::from(format!("https://{host}/mcp")));
        let refused = daemon.send(&call("1", "echo").set("Host", host));
        let challenge = refused.header("www-authenticate").unwrap_or_default();
        let expected = format!("https://{host}/.well-known/oauth-protected-resource/mcp");
        assert!(challenge.contains(&expected), "{challenge}");
    }
}

#[test]
fn commands_name_an_endpoint_of_several_by_host_and_path() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream)
        .listener("address = \"127.0.0.1:8080\"")
        .endpoint("hosts = [\"a.test\"]")
        .section(&endpoint("up", "hosts = [\"b.test\"]"))
        .section(&endpoint("up", "hosts = [\"*.w.test\"]"))
        .to_string();
    let run = |arguments: &[&str]| {
        let (output, _) = trunkline(arguments, Some(&config));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, shown, _) = run(&["check", "--as", "ci", "--endpoint", "b.test/mcp"]);
    assert!(code == Some(0) && shown.contains("b.test/mcp") && !shown.contains("a.test"), "{shown}");
    let (code, shown, _) = run(&["check", "--as", "ci", "--endpoint", "/mcp"]);
    assert!(code == Some(0) && shown.contains("b.test/mcp") && shown.contains("a.test/mcp"), "{shown}");
    let (code, shown, _) = run(&["export", "--client", "cursor", "--endpoint", "b.test/mcp"]);
    assert!(code == Some(0) && shown.contains("http://b.test:8080/mcp"), "{shown}");
    let (code, _, said) = run(&["export", "--client", "cursor", "--endpoint", "/mcp"]);
    assert!(code != Some(0) && said.contains("there is b.test/mcp, *.w.test/mcp, a.test/mcp"), "{said}");
    let (code, shown, said) = run(&["export", "--client", "cursor", "--endpoint", "*.w.test/mcp"]);
    assert!(code != Some(0) && shown.is_empty() && said.contains("give --url"), "{shown}{said}");
}
