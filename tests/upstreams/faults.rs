//! Faults of an upstream, and what the client sees of each.

use std::time::{Duration, Instant};

use crate::harness::{
    Broken, Config, Daemon, Reply, Response, Upstream, call, read_resource, refusing_address,
    unresponsive_address,
};

const HTML: &str = "Content-Type: text/html\r\n";
const JSON: &str = "Content-Type: application/json\r\n";
const RESULT: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[]}}"#;

/// The timeouts that matter here, short.
const QUICK: &str =
    "connect_timeout = \"300ms\"\nresponse_timeout = \"500ms\"\nstream_idle_timeout = \"500ms\"";

/// Gateways before this upstream, and the name of its tool there: transparent and prefixed.
fn gateways(address: std::net::SocketAddr, weather: &Upstream) -> [(Daemon, &'static str); 2] {
    let transparent = Config::new().upstream("files", address, QUICK);
    let prefixed = transparent.clone().upstream("weather", weather.address, "");
    [(Daemon::start(&transparent), "echo"), (Daemon::start(&prefixed), "files__echo")]
}

const MOVED: &str = "Location: http://secret@127.0.0.1:1/moved?secret\r\n";

#[test]
fn what_cannot_be_an_answer_becomes_an_error() {
    // Read either way, this is an answer.
    let length = RESULT.len();
    let ambiguous = |lines: &str| {
        let body = if lines.contains("chunked") {
            format!("{length:x}\r\n{RESULT}\r\n0\r\n\r\n")
        } else {
            RESULT.into()
        };
        Reply::raw(format!("HTTP/1.1 200 OK\r\n{JSON}{lines}\r\n{body}"))
    };
    let huge_head = format!("X-Filler: {}\r\n", "x".repeat(1024 * 1024));
    let cases: Vec<(&str, Reply, i64)> = vec![
        ("a reset before the head", Reply::default().reset(), 502),
        ("the end before the head", Reply::default().finish(), 502),
        ("half a head", Reply::raw("HTTP/1.1 200 OK\r\nContent-Ty").finish(), 502),
        ("half a head, then a reset", Reply::raw("HTTP/1.1 200 OK\r\nContent-Ty").reset(), 502),
        ("garbage", Reply::raw("SSH-2.0-OpenSSH_9.9\r\n\r\n"), 502),
        ("bytes of TLS", Reply::raw(vec![0x15, 3, 1, 0, 2, 2, 70]).finish(), 502),
        ("no type", Reply::http("200 OK", "", RESULT), 502),
        ("another type", Reply::http("200 OK", HTML, "<html>secret</html>"), 502),
        ("text", Reply::http("200 OK", "Content-Type: text/plain\r\n", RESULT), 502),
        ("no content", Reply::raw("HTTP/1.1 204 No Content\r\n\r\n"), 502),
        ("accepted as if a notification", Reply::http("202 Accepted", "", ""), 502),
        ("a redirect", Reply::http("302 Found", MOVED, ""), 502),
        ("a permanent redirect", Reply::http("308 Permanent Redirect", MOVED, ""), 502),
        ("400 without JSON-RPC", Reply::http("400 Bad Request", HTML, "<html>secret</html>"), 502),
        ("400 with JSON that is no JSON-RPC", Reply::json("400 Bad Request", r#"{"detail":"secret"}"#), 502),
        (
            "an error for another id",
            Reply::json(
                "400 Bad Request",
                r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32602,"message":"secret"}}"#,
            ),
            502,
        ),
        ("404 without JSON-RPC", Reply::http("404 Not Found", HTML, "<html>secret</html>"), 502),
        ("500", Reply::http("500 Internal Server Error", HTML, "<html>secret</html>"), 502),
        ("501", Reply::http("501 Not Implemented", HTML, ""), 502),
        (
            "switching protocols",
            Reply::raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: secret\r\nConnection: upgrade\r\n\r\n"),
            502,
        ),
        ("never a byte", Reply::silence(), 504),
        (
            "one byte after another",
            Reply::drip("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", Duration::from_millis(50)),
            504,
        ),
        (
            "a bad Content-Length",
            Reply::raw(format!("HTTP/1.1 200 OK\r\n{JSON}Content-Length: x\r\n\r\n{RESULT}")),
            502,
        ),
        (
            "two Content-Lengths",
            Reply::raw(format!(
                "HTTP/1.1 200 OK\r\n{JSON}Content-Length: 5\r\nContent-Length: 72\r\n\r\n{RESULT}"
            )),
            502,
        ),
        (
            "the same Content-Length twice",
            ambiguous(&format!("Content-Length: {length}\r\nContent-Length: {length}\r\n")),
            502,
        ),
        (
            "a length before chunks",
            ambiguous(&format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n")),
            502,
        ),
        ("a length after chunks", ambiguous("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), 502),
        ("another coding", ambiguous("Transfer-Encoding: chunked, identity\r\n"), 502),
        ("a bare line feed in the head", ambiguous(&format!("X-A: b\nContent-Length: {length}\r\n")), 502),
        ("a head without end", Reply::http("200 OK", &format!("{JSON}{huge_head}"), RESULT), 502),
    ];
    let scripts: Vec<Reply> = cases.iter().map(|(_, reply, _)| reply.clone()).collect();
    let upstream =
        Upstream::calling(move |request| match request.json()["params"]["arguments"]["case"].as_u64() {
            Some(index) => scripts[usize::try_from(index).unwrap()].clone(),
            None => Reply::json("200 OK", RESULT).to(request),
        });
    let weather = Upstream::with_tools(&["forecast"]);
    for (daemon, tool) in &gateways(upstream.address, &weather) {
        for (index, (what, _, code)) in cases.iter().enumerate() {
            println!("{what}, {tool}");
            let started = Instant::now();
            let request =
                call("7", tool).replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"case":{index}}}"#));
            let response = daemon.send(&request);
            response.assert_error(u16::try_from(*code).unwrap(), *code, Some("7"));
            assert!(started.elapsed() < Duration::from_secs(5), "{what} took {:?}", started.elapsed());
            assert!(
                !response.text().contains("secret") && response.header("location").is_none(),
                "{response:?}"
            );
            daemon.send(&call("7", tool)).assert_ok();
        }
    }
}

/// Replies that break after a head that promised one: the client gets an error, or a transfer that is visibly cut;
/// never something that looks whole.
#[test]
fn a_reply_that_breaks_off_never_looks_whole() {
    let head = |length: usize| format!("HTTP/1.1 200 OK\r\n{JSON}Content-Length: {length}\r\n\r\n");
    let chunked = format!("HTTP/1.1 200 OK\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n");
    let cases: Vec<(&str, Reply)> = vec![
        ("half a body, then the end", Reply::raw(head(RESULT.len()) + &RESULT[..30]).finish()),
        ("half a body, then a reset", Reply::raw(head(RESULT.len()) + &RESULT[..30]).reset()),
        ("half a body, then nothing", Reply::raw(head(RESULT.len()) + &RESULT[..30])),
        ("less than was promised", Reply::raw(head(RESULT.len() + 1) + RESULT).finish()),
        (
            "a body byte by byte",
            Reply::raw(head(RESULT.len())).then(Reply::drip(RESULT, Duration::from_millis(50))),
        ),
        ("chunks without end", Reply::raw(format!("{chunked}4\r\n{}\r\n", &RESULT[..4])).finish()),
        ("a bad chunk", Reply::raw(format!("{chunked}4\r\n{}\r\nzz\r\n", &RESULT[..4]))),
        ("events, then the end", Reply::stream().event("1").finish()),
        ("events, then a reset", Reply::stream().event("1").reset()),
        ("events, then nothing", Reply::stream().event("1")),
    ];
    let scripts: Vec<Reply> = cases.iter().map(|(_, reply)| reply.clone()).collect();
    let upstream =
        Upstream::calling(move |request| match request.json()["params"]["arguments"]["case"].as_u64() {
            Some(index) => scripts[usize::try_from(index).unwrap()].clone(),
            None => Reply::json("200 OK", RESULT).to(request),
        });
    let weather = Upstream::with_tools(&["forecast"]);
    for (daemon, tool) in &gateways(upstream.address, &weather) {
        for (index, (what, _)) in cases.iter().enumerate() {
            println!("{what}, {tool}");
            let started = Instant::now();
            let mut connection = daemon.connect();
            let arguments = format!(r#""arguments":{{"case":{index}}}"#);
            connection.write(&call("7", tool).replacing(r#""arguments":{}"#, &arguments).bytes());
            match connection.try_response() {
                Ok(response) if response.status == 200 => assert_stream_error(&response),
                Ok(response) => assert!(matches!(response.status, 502 | 504), "{response:?}"),
                Err(Broken::Truncated(_) | Broken::Closed) => {}
                Err(broken) => panic!("{broken:?}"),
            }
            assert!(started.elapsed() < Duration::from_secs(5), "{what} took {:?}", started.elapsed());
            daemon.send(&call("7", tool)).assert_ok();
        }
    }
}

/// A stream that had begun may end with an error event instead of being cut.
#[track_caller]
fn assert_stream_error(response: &Response) {
    assert_eq!(response.header("content-type"), Some("text/event-stream"), "{response:?}");
    assert!(response.text().contains(r#""error""#), "{}", response.text());
}

#[test]
fn an_upstream_that_is_not_there() {
    let weather = Upstream::with_tools(&["forecast"]);
    let (refusing, _socket) = refusing_address();
    let (unresponsive, _sockets) = unresponsive_address();
    for (address, codes) in [(refusing, [502, 502]), (unresponsive, [502, 504])] {
        for (daemon, tool) in &gateways(address, &weather) {
            let started = Instant::now();
            let response = daemon.send(&call("7", tool));
            assert!(codes.contains(&i64::from(response.status)), "{response:?}");
            response.assert_error(response.status, i64::from(response.status), Some("7"));
            assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
        }
    }
}

#[test]
fn refused_credentials_are_the_gateways_own_affair() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let challenge = format!("{HTML}WWW-Authenticate: Bearer realm=\"upstream\"\r\n");
        let upstream = Upstream::calling(move |_| Reply::http(status, &challenge, "no"));
        let daemon = Daemon::start(&Config::transparent(&upstream));
        let response = daemon.send(&call("7", "echo"));
        let error = response.assert_error(502, 502, Some("7"));
        let message = error["error"]["message"].as_str().unwrap().to_lowercase();
        assert!(message.contains("credentials"), "{message}");
        assert_eq!(response.header("www-authenticate"), None);
    }
}

#[test]
fn an_upstream_that_is_busy_says_for_how_long() {
    for (line, status) in [("429 Too Many Requests", 429), ("503 Service Unavailable", 503)] {
        let upstream =
            Upstream::calling(move |_| Reply::http(line, &format!("{HTML}Retry-After: 7\r\n"), "busy"));
        let daemon = Daemon::start(&Config::transparent(&upstream));
        let response = daemon.send(&call("7", "echo"));
        response.assert_error(status, i64::from(status), Some("7"));
        assert_eq!(response.header("retry-after"), Some("7"));
    }
}

#[test]
fn a_redirect_is_never_followed() {
    let trap = Upstream::with_tools(&["echo"]);
    let location = format!("Location: http://{}/mcp\r\n", trap.address);
    let upstream = Upstream::calling(move |_| Reply::http("307 Temporary Redirect", &location, ""));
    let daemon = Daemon::start(&Config::transparent(&upstream));
    daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
    assert_eq!(trap.connections(), 0);
}

#[test]
fn replies_that_must_be_collected_are_bounded() {
    let text = "x".repeat(200 * 1024);
    let result = format!(
        r#"{{"content":[{{"type":"resource_link","uri":"file:///a","name":"{text}"}}],"resultType":"complete"}}"#
    );
    let files = Upstream::calling(move |request| match request.client_id().as_str() {
        "1" => Reply::result(request, &result),
        "2" => Reply::stream()
            .chunk(&format!("data: {{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{result}}}\n\n"))
            .end(),
        _ => Reply::result(request, "{}"),
    });
    let weather = Upstream::with_tools(&["forecast"]);
    let config = Config::prefixed(&files, &weather).limits("reply_bytes_max = \"64KiB\"");
    let daemon = Daemon::start(&config);
    daemon.send(&call("1", "files__echo")).assert_error(502, 502, Some("1"));
    let mut connection = daemon.connect();
    connection.write(&call("2", "files__echo").bytes());
    match connection.try_response() {
        Ok(response) if response.status == 200 => assert_stream_error(&response),
        Ok(response) => assert_eq!(response.status, 502, "{response:?}"),
        Err(Broken::Truncated(_) | Broken::Closed) => {}
        Err(broken) => panic!("{broken:?}"),
    }
    daemon.send(&call("3", "files__echo")).assert_ok();
}

#[test]
fn a_stream_may_be_longer_than_one_event_may_be() {
    let filler = "x".repeat(10 * 1024);
    let event =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{filler}"}}}}"#);
    let files = Upstream::calling(move |request| {
        (0..20).fold(Reply::stream(), |reply, _| reply.event(&event)).event(RESULT).end().to(request)
    });
    let weather = Upstream::with_tools(&["forecast"]);
    let config = Config::prefixed(&files, &weather).limits("reply_bytes_max = \"64KiB\"");
    let daemon = Daemon::start(&config);
    let response = daemon.send(&call("7", "files__echo"));
    assert_eq!((response.status, response.text().matches("data: ").count()), (200, 21));
}

/// Names can only be mapped in what can be read.
#[test]
fn a_reply_in_which_names_must_be_mapped_must_be_json() {
    let whole = r#"{"jsonrpc":"2.0","id":7,"result":{"contents":[{"uri":"file:///a","text":"t"}]}}"#;
    let bodies = [
        whole[..60].to_owned(),
        whole[..whole.len() - 1].to_owned(),
        format!("{whole}{whole}"),
        format!("{whole} trailing"),
        whole.replace("\"text\":", "\"text\" "),
        whole.replace("\"t\"", &format!("{}{}", "[".repeat(200), "]".repeat(200))),
    ];
    for body in bodies {
        println!("{body}");
        let files = Upstream::start(move |_| Reply::json("200 OK", &body));
        let weather = Upstream::with_tools(&["forecast"]);
        let daemon = Daemon::start(&Config::prefixed(&files, &weather));
        daemon.send(&read_resource("7", "files+file:///a")).assert_error(502, 502, Some("7"));
    }
}

/// What follows a reply on its connection answers nobody.
#[test]
fn bytes_after_a_reply_answer_nobody() {
    let forged = RESULT.replace("complete", "forged");
    let head = format!("HTTP/1.1 200 OK\r\n{JSON}Content-Length: ");
    let script = format!("{head}{}\r\n\r\n{RESULT}{head}{}\r\n\r\n{forged}", RESULT.len(), forged.len());
    let upstream = Upstream::calling(move |_| Reply::raw(script.clone()));
    let daemon = Daemon::start(&Config::transparent(&upstream).top("workers = 1"));
    for _ in 0..5 {
        let mut connection = daemon.connect();
        connection.write(&call("7", "echo").bytes());
        let response = connection.response();
        assert!(!response.text().contains("forged"), "{}", response.text());
    }
}

#[test]
fn an_interim_response_is_not_the_answer() {
    let upstream = Upstream::calling(|_| {
        Reply::raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
            .then(Reply::json("200 OK", RESULT))
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let response = daemon.send(&call("7", "echo"));
    response.assert_ok();
    assert_eq!(response.text(), RESULT);
}

#[test]
fn a_type_with_parameters_is_still_that_type() {
    for kind in ["application/json; charset=utf-8", "Application/JSON"] {
        let upstream =
            Upstream::calling(move |_| Reply::http("200 OK", &format!("Content-Type: {kind}\r\n"), RESULT));
        let daemon = Daemon::start(&Config::transparent(&upstream));
        assert_eq!(daemon.send(&call("7", "echo")).text(), RESULT);
    }
}

#[test]
fn a_body_that_ends_with_its_connection_is_an_answer() {
    let upstream =
        Upstream::calling(|_| Reply::raw(format!("HTTP/1.0 200 OK\r\n{JSON}\r\n{RESULT}")).finish());
    let daemon = Daemon::start(&Config::transparent(&upstream));
    for _ in 0..2 {
        assert_eq!(daemon.send(&call("7", "echo")).text(), RESULT);
    }
}

#[test]
fn a_sick_upstream_does_not_infect_its_neighbour() {
    let files = Upstream::calling(|_| Reply::silence());
    let weather = Upstream::with_tools(&["forecast"]);
    let config = Config::new().upstream("files", files.address, "response_timeout = \"15s\"").upstream(
        "weather",
        weather.address,
        "",
    );
    let daemon = Daemon::start(&config.top("workers = 1"));
    let mut waiting: Vec<_> = (0..20).map(|_| daemon.connect()).collect();
    for connection in &mut waiting {
        connection.write(&call("1", "files__echo").bytes());
    }
    files.wait_for("tools/call", 20);
    let started = Instant::now();
    daemon.send(&call("2", "weather__forecast")).assert_ok();
    assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
}
