//! Hostile messages: nothing panics, nothing that was not checked goes upstream, everyone else is served.

use crate::harness::{
    Config, Daemon, LEGACY_VERSION, Legacy, META, Offer, Received, Reply, Request, Upstream, body, call,
    eventually, in_session, legacy, legacy_call, list, modern, open_session, read_resource, result_body,
    tell,
};

/// Sends each request, expects 400 with one of the codes, then a healthy call; nothing else may go upstream.
#[track_caller]
fn assert_refused(cases: &[(String, Request)], codes: &[i64]) {
    let upstream = Upstream::with_tools(&["echo"]);
    let weather = Upstream::with_tools(&["forecast"]);
    let transparent = Daemon::start(&Config::transparent(&upstream));
    let prefixed = Daemon::start(&Config::prefixed(&upstream, &weather));
    // The prefixed endpoint is called by bare names, which it must have learned.
    eventually("the names are learned", || {
        let response = prefixed.send(&call("0", "echo"));
        (response.json().get("result").is_some()).then_some(())
    });
    for (what, request) in cases {
        for daemon in [&transparent, &prefixed] {
            println!("{what}");
            let response = daemon.send(request);
            assert_eq!(response.status, 400, "{what}: {}", String::from_utf8_lossy(&response.body));
            let code = response.json()["error"]["code"].as_i64().expect("a code");
            assert!(codes.contains(&code), "{what}: {}", String::from_utf8_lossy(&response.body));
        }
    }
    transparent.send(&call("\"healthy\"", "echo")).assert_ok();
    prefixed.send(&call("\"healthy\"", "files__echo")).assert_ok();
    let ids: Vec<String> = upstream.forwarded().iter().map(Received::client_id).collect();
    assert_eq!(ids, ["0", "\"healthy\"", "\"healthy\""]);
    assert_eq!(weather.forwarded().len(), 0);
}

fn named(cases: Vec<(&str, Request)>) -> Vec<(String, Request)> {
    cases.into_iter().map(|(what, request)| (what.to_owned(), request)).collect()
}

#[test]
fn what_is_not_json() {
    let good = call("7", "echo");
    let text = String::from_utf8(good.body.clone()).unwrap();
    let with = |from: &str, to: &[u8]| {
        let (before, after) = text.split_once(from).expect("the text is there");
        good.clone().body([before.as_bytes(), to, after.as_bytes()].concat())
    };
    let arguments = r#""arguments":{}"#;
    let argument = |value: &[u8]| with(arguments, &[br#""arguments":{"x":"#, value, b"}"].concat());
    let cases = vec![
        ("nothing", good.clone().body("")),
        ("white space", good.clone().body(" \n\t ")),
        ("a byte order mark", good.clone().body(format!("\u{feff}{text}"))),
        ("a NUL in front", good.clone().body(format!("\0{text}"))),
        ("a NUL behind", good.clone().body(format!("{text}\0"))),
        ("trailing bytes", good.clone().body(format!("{text}x"))),
        ("a second message", good.clone().body(format!("{text}{text}"))),
        ("a second message on a line of its own", good.clone().body(format!("{text}\n{text}"))),
        ("a brace too many", good.clone().body(format!("{text}}}"))),
        ("a brace too few", good.clone().body(&text[..text.len() - 1])),
        ("a trailing comma", with("}}}", b"}},}")),
        ("single quotes", with("\"method\"", b"'method'")),
        ("no quotes", with("\"method\"", b"method")),
        ("a comment", with("{", b"{/* */")),
        ("NaN", argument(b"NaN")),
        ("Infinity", argument(b"-Infinity")),
        ("a leading zero", argument(b"01")),
        ("a leading plus", argument(b"+1")),
        ("a bare dot", argument(b".5")),
        ("a hexadecimal number", argument(b"0x10")),
        ("half an exponent", argument(b"1e")),
        ("a capital literal", argument(b"True")),
        ("a raw newline in a string", argument(b"\"a\nb\"")),
        ("a raw NUL in a string", argument(b"\"a\0b\"")),
        ("an unknown escape", argument(br#""\x41""#)),
        ("half an escape", argument(br#""\u00""#)),
        ("invalid UTF-8", argument(b"\"\xff\"")),
        ("overlong UTF-8", argument(b"\"\xc0\xaf\"")),
        ("a surrogate in UTF-8", argument(b"\"\xed\xa0\x80\"")),
        ("cut UTF-8", argument(b"\"\xe4\xb8\"")),
        ("UTF-8 beyond Unicode", argument(b"\"\xf4\x90\x80\x80\"")),
        ("invalid UTF-8 in a key", with(arguments, b"\"arguments\":{\"\xff\":1}")),
        ("invalid UTF-8 in the name", with("\"echo\"", b"\"ech\xff\"")),
        ("UTF-16", good.clone().body(text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>())),
        ("a missing colon", with("\"method\":", b"\"method\" ")),
        ("a missing comma", with("\"2.0\",", b"\"2.0\" ")),
        ("a megabyte of 1,1,1", good.clone().body("1,".repeat(512 * 1024))),
        ("a megabyte of {},{}", good.clone().body("{},".repeat(350_000))),
        ("a megabyte of quotes", good.clone().body("\"".repeat(1024 * 1024))),
        ("a megabyte of backslashes", good.clone().body(format!("\"{}", "\\".repeat(1024 * 1024)))),
        ("a megabyte of spaces", good.clone().body(" ".repeat(1024 * 1024))),
    ];
    assert_refused(&named(cases), &[-32700]);
}

#[test]
fn depth_bombs() {
    let good = call("7", "echo");
    let argument = |value: String| {
        good.clone().replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"x":{value}}}"#))
    };
    let cases = vec![
        ("200 arrays", argument(format!("{}{}", "[".repeat(200), "]".repeat(200)))),
        ("200 objects", argument(format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200)))),
        ("100 000 arrays", argument(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)))),
        ("a million open arrays", good.clone().body("[".repeat(1024 * 1024))),
        ("a million open objects", good.clone().body("{\"a\":".repeat(200_000))),
        (
            "deep _meta",
            good.replacing(
                "\"version\":\"1\"",
                &format!("\"version\":{}{}", "[".repeat(200), "]".repeat(200)),
            ),
        ),
    ];
    assert_refused(&named(cases), &[-32700, -32600]);
}

#[test]
fn what_is_not_json_rpc() {
    let good = call("7", "echo");
    let text = String::from_utf8(good.body.clone()).unwrap();
    let cases = vec![
        ("an empty batch", good.clone().body("[]")),
        ("a batch of one", good.clone().body(format!("[{text}]"))),
        ("a batch of two", good.clone().body(format!("[{text},{text}]"))),
        ("a string", good.clone().body(format!("{text:?}"))),
        ("a number", good.clone().body("7")),
        ("null", good.clone().body("null")),
        ("true", good.clone().body("true")),
        ("an empty object", good.clone().body("{}")),
        ("no jsonrpc", good.clone().replacing(r#""jsonrpc":"2.0","#, "")),
        ("jsonrpc 1.0", good.clone().replacing("\"2.0\"", "\"1.0\"")),
        ("jsonrpc as a number", good.clone().replacing("\"2.0\"", "2.0")),
        ("jsonrpc null", good.clone().replacing("\"2.0\"", "null")),
        ("no method", good.clone().replacing(r#""method":"tools/call","#, "")),
        ("method null", good.clone().replacing("\"tools/call\"", "null")),
        ("method a number", good.clone().replacing("\"tools/call\"", "1")),
        ("method an array", good.clone().replacing("\"tools/call\"", "[\"tools/call\"]")),
        ("id null", call("null", "echo")),
        ("id a float", call("1.5", "echo")),
        ("id a whole float", call("1.0", "echo")),
        ("id an exponent", call("1e3", "echo")),
        ("id true", call("true", "echo")),
        ("id an object", call("{\"id\":7}", "echo")),
        ("id an array", call("[7]", "echo")),
        ("a result", good.clone().body(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)),
        ("an error", good.clone().body(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}"#)),
    ];
    assert_refused(&named(cases), &[-32600]);
}

/// It is no notification: accepting it would let the caller believe that it will run.
#[test]
fn a_call_without_an_id_is_refused() {
    let cases = vec![
        ("tools/call", call("7", "echo").replacing(r#""id":7,"#, "")),
        ("tools/list", list("7", "tools/list").replacing(r#""id":7,"#, "")),
    ];
    assert_refused(&named(cases), &[-32600]);
}

#[test]
fn params_of_the_wrong_shape() {
    let good = call("7", "echo");
    let params = |params: &str| good.clone().body(body("7", "tools/call", params));
    let meta = |meta: &str| params(&format!(r#"{{"name":"echo","arguments":{{}},"_meta":{meta}}}"#));
    let cases = vec![
        ("no params", good.clone().body(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#)),
        ("params null", params("null")),
        ("params an array", params("[]")),
        ("params a string", params("\"echo\"")),
        ("no _meta", params(r#"{"name":"echo"}"#)),
        ("_meta null", meta("null")),
        ("_meta an array", meta("[]")),
        ("an empty _meta", meta("{}")),
        ("no version", meta(r#"{"io.modelcontextprotocol/clientCapabilities":{}}"#)),
        ("no capabilities", meta(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#)),
        ("version null", meta(&META.replacen("\"2026-07-28\"", "null", 1))),
        ("version a number", meta(&META.replacen("\"2026-07-28\"", "20260728", 1))),
        (
            "capabilities null",
            meta(&META.replace(r#"clientCapabilities":{}"#, r#"clientCapabilities":null"#)),
        ),
        ("name null", good.clone().replacing("\"echo\"", "null")),
        ("name a number", good.clone().replacing("\"echo\"", "1")),
        ("name an object", good.clone().replacing("\"echo\"", "{\"name\":\"echo\"}")),
        ("name with a lone surrogate", good.clone().replacing("\"echo\"", r#""ech\ud800""#)),
        ("URI a number", read_resource("7", "file:///a").replacing("\"file:///a\"", "1")),
    ];
    assert_refused(&named(cases), &[-32600, -32602, -32020]);
}

#[test]
fn what_a_server_keeps_by_its_client_is_a_string() {
    let upstream = Upstream::with_tools(&["echo"]);
    let legacy = Legacy::new(Offer::tools(&["echo"])).start();
    let daemons = [Daemon::start(&Config::transparent(&upstream)), Daemon::start(&Config::legacy(&legacy))];
    for daemon in &daemons {
        for state in ["null", "7", "{}", "[\"s\"]", "true"] {
            let state = format!(r#""arguments":{{}},"requestState":{state}"#);
            let response = daemon.send(&call("7", "echo").replacing(r#""arguments":{}"#, &state));
            response.assert_error(400, -32602, Some("7"));
        }
    }
    assert!(upstream.received_of("tools/call").is_empty() && legacy.received_of("tools/call").is_empty());
}

/// `"params": null` is the same as no `params`, as many clients and servers write it.
#[test]
fn params_that_are_null_are_none() {
    let resources = vec![r#"{"uri":"file:///r","name":"r"}"#.into()];
    let upstream = Legacy::new(Offer { resources, ..Offer::tools(&["echo"]) }).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for method in ["tools/list", "ping", "resources/list"] {
        let listed = daemon.send(&in_session(&session, legacy("1", method, "null")));
        listed.assert_ok();
    }
    tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":null}"#);
    tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":null}"#);
    // A server writes it, too.
    let server = Legacy::new(Offer::tools(&["echo"]));
    let chatty = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream()
            .event(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":null}"#)
            .event(&result_body(request, r#"{"content":[]}"#))
            .end(),
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&chatty));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let text = daemon.send(&in_session(&session, legacy_call("7", "echo"))).text();
    assert!(text.contains("list_changed") && text.contains("\"id\":7"), "{text}");
}

/// Two readers of one message must agree: a key we read may not come twice, nor in a spelling that another reader
/// takes for it.
#[test]
fn keys_that_two_readers_read_differently() {
    let good = call("7", "echo");
    let meta_key = "io.modelcontextprotocol/protocolVersion";
    let mut cases = Vec::new();
    let levels: [(&str, &str, &[&str]); 3] = [
        ("{\"jsonrpc\"", "top", &["jsonrpc", "id", "method", "params"]),
        ("{\"name\"", "params", &["name", "_meta"]),
        ("{\"io.model", "_meta", &[meta_key, "io.modelcontextprotocol/clientCapabilities"]),
    ];
    for (anchor, level, keys) in levels {
        for key in keys {
            let mut spellings = vec![
                ("again", (*key).to_owned()),
                ("escaped", format!("\\u{:04x}{}", u32::from(key.as_bytes()[0]), &key[1..])),
                ("in capitals", key.to_uppercase()),
                ("capitalised", capitalised(key)),
                ("with a NUL", format!("{key}\\u0000")),
                ("with a NUL in front", format!("\\u0000{key}")),
            ];
            if key.contains('s') {
                spellings.push(("with a long s", key.replacen('s', "ſ", 1)));
                spellings.push(("with an escaped long s", key.replacen('s', "\\u017f", 1)));
            }
            for (how, spelling) in spellings {
                let first = format!("{{\"{spelling}\":\"x\",{}", &anchor[1..]);
                cases.push((format!("{level}: {key} {how}, first"), good.clone().replacing(anchor, &first)));
            }
        }
    }
    let last = |key: &str| {
        let text = String::from_utf8(good.body.clone()).unwrap();
        good.clone().body(format!("{},\"{key}\":\"tools/call\"}}", &text[..text.len() - 1]))
    };
    cases.push(("method again, last".into(), last("method")));
    cases.push(("Method, last".into(), last("Method")));
    cases.push(("method with a NUL, last".into(), last("method\\u0000")));
    let read = read_resource("7", "file:///a");
    cases.push(("uri again".into(), read.clone().replacing("{\"uri\"", "{\"uri\":\"file:///b\",\"uri\"")));
    cases.push(("URI in capitals".into(), read.replacing("{\"uri\"", "{\"URI\":\"file:///b\",\"uri\"")));
    assert_refused(&cases, &[-32700, -32600, -32602, -32020]);
}

fn capitalised(key: &str) -> String {
    let at = key.find(|c: char| c.is_ascii_lowercase()).unwrap();
    format!("{}{}{}", &key[..at], key[at..=at].to_uppercase(), &key[at + 1..])
}

#[test]
fn only_the_odd_spelling_is_refused_as_well() {
    let good = call("7", "echo");
    let cases = vec![
        ("Method", good.clone().replacing("\"method\"", "\"Method\"")),
        ("PARAMS", good.clone().replacing("\"params\"", "\"PARAMS\"")),
        ("Name", good.clone().replacing("\"name\":\"echo\"", "\"Name\":\"echo\"")),
        ("paramſ", good.clone().replacing("\"params\"", "\"paramſ\"")),
        ("id with a NUL", good.replacing("\"id\"", "\"id\\u0000\"")),
    ];
    assert_refused(&named(cases), &[-32700, -32600, -32602, -32020]);
}

#[test]
fn what_nobody_reads_may_be_repeated() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let request = call("7", "echo").replacing(
        r#""arguments":{}"#,
        r#""arguments":{"method":1,"Method":2,"method":3,"\u006dethod":4,"name":5,"NAME":6,"x\u0000":7,"x":8}"#,
    );
    daemon.send(&request).assert_ok();
    assert_eq!(upstream.only_call().body, request.body);
}

#[test]
fn huge_ids_and_names_are_refused_or_carried_whole() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let ids = [
        "123456789012345678901234567890".to_owned(),
        format!("\"{}\"", "x".repeat(1024 * 1024)),
        format!("1{}", "0".repeat(5000)),
    ];
    for id in ids {
        let request = call(&id, "echo");
        let response = daemon.send(&request);
        if response.status == 200 {
            assert_eq!(crate::harness::literal(&response.body, &["id"]), id);
            assert_eq!(upstream.received_of("tools/call").pop().unwrap().body, request.body);
        } else {
            assert_eq!(response.status, 400, "{id:.40}");
        }
    }
    let long = "x".repeat(20 * 1024);
    let response = daemon.send(&call("7", &long));
    assert!(matches!(response.status, 200 | 400), "{response:?}");
    daemon.send(&call("8", "echo")).assert_ok();
}

#[test]
fn objects_with_very_many_keys() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let many = (0..100_000).fold(String::new(), |many, n| many + &format!("\"k{n}\":{n},"));
    let request =
        call("7", "echo").replacing(r#""arguments":{}"#, &format!(r#""arguments":{{{many}"z":0}}"#));
    daemon.send(&request).assert_ok();
    assert!(upstream.only_call().body == request.body);
    // The same flood where every key is compared with ours.
    let flood = call("8", "echo").replacing("{\"name\"", &format!("{{{many}\"name\""));
    daemon.send(&flood).assert_ok();
}

#[test]
fn memory_stays_bounded_under_hostile_bodies() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let hostile = [
        call("7", "echo").body("1,".repeat(512 * 1024)),
        call("7", "echo").body("[".repeat(1024 * 1024)),
        call("7", "echo")
            .replacing(r#""arguments":{}"#, &format!(r#""arguments":[{}1]"#, "1,".repeat(512 * 1024))),
        list("7", "tools/list").body(format!("{{\"id\":\"{}", "x".repeat(2 * 1024 * 1024))),
        modern("tools/call", Some("echo"), format!("{{{}", "\"a\":1,".repeat(300_000))),
    ];
    for _ in 0..3 {
        for request in &hostile {
            daemon.send(request);
        }
    }
    let peak = daemon.peak_resident_bytes();
    assert!(peak < 256 * 1024 * 1024, "{peak} bytes were resident");
}
