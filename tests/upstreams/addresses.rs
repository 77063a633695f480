//! The address in every request to an upstream, and the message where it is the wrong one; and paths of
//! clients.

use crate::harness::{
    Config, Daemon, Folder, LEGACY_VERSION, Legacy, Offer, Received, Reply, Upstream, call, eventually,
    in_session, initialize, legacy, legacy_call, list, open_session, trunkline,
};

const LEGACY_ONLY: &str = "eras = [\"legacy\"]\n";

/// Everything that a legacy and a modern client have a server of each era asked: lists, calls, sessions, their streams and
/// their end.
fn used(lines: &str) -> Vec<Received> {
    let old = Legacy::new(Offer::tools(&["echo"])).with_streams();
    let (old_up, new_up) = (old.start(), Upstream::with_tools(&["echo"]));
    let config = Config::new().upstream("old", old_up.address, &format!("{LEGACY_ONLY}{lines}"));
    let daemon = Daemon::start(&config.upstream("new", new_up.address, lines));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for tool in ["old__echo", "new__echo"] {
        daemon.send(&in_session(&session, legacy_call("1", tool))).assert_ok();
        daemon.send(&call("2", tool)).assert_ok();
    }
    daemon.send(&in_session(&session, legacy("3", "tools/list", "{}"))).assert_ok();
    daemon.send(&list("4", "tools/list")).assert_ok();
    daemon.send(&in_session(&session, legacy("", "", "")).method("DELETE").body("").without("Content-Type"));
    old_up.wait_for("DELETE", 1);
    [old_up.received(), new_up.received()].concat()
}

#[test]
fn every_request_says_that_nothing_is_to_be_compressed() {
    let seen = used("");
    assert!(seen.len() > 8, "{seen:?}");
    for request in seen {
        assert_eq!(request.headers("accept-encoding"), ["identity"], "{request:?}");
    }
}

#[test]
fn every_request_names_the_host_that_the_operator_says() {
    for request in used("host = \"tools.example:8443\"\n") {
        assert_eq!(request.headers("host"), ["tools.example:8443"], "{request:?}");
    }
}

#[test]
fn every_request_has_the_query_that_the_operator_says_and_nobody_sees_it() {
    let folder = Folder::new();
    let file = folder.path().join("key");
    std::fs::write(&file, "s3cr&t +").expect("a file");
    let query = format!(
        "query = {{ \"apiKey\" = {{ file = {:?} }}, tenant = \"a b\" }}\n",
        file.display().to_string()
    );
    for request in used(&query) {
        let target = request.head.split(' ').nth(1).unwrap();
        assert_eq!(target, "/mcp?apiKey=s3cr%26t%20%2B&tenant=a%20b", "{request:?}");
    }
    let upstream = Upstream::calling(|_| Reply::http("500 Internal Server Error", "", ""));
    let config = Config::new().upstream("up", upstream.address, &query).admin();
    let daemon = Daemon::start(&config.section("[log]\nlevel = \"trace\""));
    daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
    let shown =
        [daemon.get_admin("/status").text(), daemon.get_admin("/metrics").text(), daemon.log().join("\n")];
    for text in shown {
        assert!(!text.contains("s3cr"), "{text}");
    }
}

#[test]
fn a_secret_in_a_query_is_warned_of_and_refused_where_it_can_stand_elsewhere() {
    let config = |keys: &str| {
        format!(
            "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]\n[upstream.up]\n{keys}\n"
        )
    };
    let check = |keys: &str| {
        let (output, _) = trunkline(&["check"], Some(&config(keys)));
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (code, said) = check("url = \"https://search.example/mcp?tavilyApiKey=hunter2\"");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("`tavilyApiKey` in the query of this URL looks like a secret"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let (code, said) = check("url = \"https://search.example/mcp?page=2\"");
    assert!(code == Some(0) && !said.contains("looks like a secret"), "{said}");
    let (code, said) = check("url = \"https://search.example/mcp\"\nquery = { apiKey = \"hunter2\" }");
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("the value of `apiKey` may be a secret") && !said.contains("hunter2"), "{said}");
    let (code, said) = check("command = [\"true\"]\nquery = { page = \"2\" }\nhost = \"a.example\"");
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("`query` is for upstreams with a URL"), "{said}");
    assert!(said.contains("`host` is for upstreams with a URL"), "{said}");
}

#[test]
fn where_a_redirect_leads_and_that_a_host_is_refused_is_told_everywhere() {
    for (status, headers, told, why) in [
        (
            "307 Temporary Redirect",
            "Location: https://tools.example/mcp/?key=hunter2\r\n",
            "HTTP 307, a redirect to https://tools.example/mcp/?…, which is not followed",
            "HTTP 307 to https://tools.example/mcp/?…",
        ),
        ("421 Misdirected Request", "", "does not accept the Host that it is sent (HTTP 421)", "HTTP 421"),
    ] {
        let upstream = Upstream::start(move |_| Reply::http(status, headers, ""));
        let daemon = Daemon::start(&Config::new().probed("up", upstream.address, "").admin());
        daemon.wait_for_log(0, "why", |line| line.contains(why) && line.contains("cannot learn whether"));
        let trouble = eventually("the status says why", || {
            let status = daemon.get_admin("/status").json();
            status["upstreams"][0]["why"].as_str().map(str::to_owned)
        });
        assert!(trouble.contains(why), "{trouble}");
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        for request in [in_session(&session, legacy_call("1", "echo")), call("2", "echo")] {
            let answer = daemon.send(&request).json();
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(told) && message.contains("not executed"), "{message}");
        }
        assert!(daemon.log().iter().any(|line| line.contains("call failed") && line.contains(told)));
        assert!(!daemon.log().join("\n").contains("hunter2"));
    }
}

#[test]
fn a_compressed_answer_is_refused_with_its_coding() {
    let gzip = |_: &Received| {
        Reply::http("200 OK", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "\u{1f}")
    };
    let server = Legacy::new(Offer::tools(&["echo"]));
    let old = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => gzip(request),
        _ => server.answer(request),
    });
    let new = Upstream::calling(gzip);
    let daemon = Daemon::start(&Config::new().upstream("old", old.address, LEGACY_ONLY).upstream(
        "new",
        new.address,
        "",
    ));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for tool in ["old__echo", "new__echo"] {
        for request in [in_session(&session, legacy_call("1", tool)), call("2", tool)] {
            let answer = daemon.send(&request).json();
            let message = answer["error"]["message"].as_str().unwrap();
            // The server has answered: what it did is not known.
            assert!(message.contains("content coding `gzip`") && message.contains("unknown"), "{message}");
        }
    }
}

#[test]
fn a_final_slash_of_a_clients_path_does_not_matter() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    daemon.send(&call("1", "echo").target("/mcp/")).assert_ok();
    daemon.send(&initialize("2", LEGACY_VERSION).target("/mcp/")).assert_ok();
    for path in ["/mcp//", "/mcp/x", "/", "/mcp/x/"] {
        daemon.send(&call("3", "echo").target(path)).assert_error(404, 404, Some("3"));
    }
}
