//! Byte identity: what is not a prefixed name crosses as it came, both ways.

use crate::harness::{
    Config, Daemon, META, Offer, Reply, Request, Upstream, body, call, list, modern, read_resource,
};

/// Bodies of a `tools/call` of `echo` (id 7) that any re-serialisation would change. `NAME` stands for the name's
/// literal, quotes included.
fn spellings() -> Vec<(&'static str, String)> {
    let wrap = |arguments: &str| {
        body("7", "tools/call", &format!(r#"{{"name":NAME,"arguments":{arguments},"_meta":{META}}}"#))
    };
    vec![
        (
            "key order",
            format!(
                r#"{{"params":{{"_meta":{META},"z":1,"arguments":{{"b":1,"a":2}},"name":NAME}},"method":"tools/call","id":7,"jsonrpc":"2.0"}}"#
            ),
        ),
        (
            "arguments before the name",
            body(
                "7",
                "tools/call",
                &format!(r#"{{"arguments":{{"name":"other","_meta":{{}}}},"name":NAME,"_meta":{META}}}"#),
            ),
        ),
        ("escapes", wrap(r#"{"text":"\u0041\/\"\\\b\f\n\r\t\u00e9é\ud83d\ude00😀"}"#)),
        (
            "unknown fields",
            format!(
                r#"{{"jsonrpc":"2.0","extra":[null,true,{{}}],"id":7,"method":"tools/call","params":{{"name":NAME,"future":{{"x":[]}},"_meta":{META}}},"more":""}}"#
            ),
        ),
        (
            "30-digit numbers",
            wrap(
                r#"{"n":123456789012345678901234567890,"m":-0.1234567890123456789012345678901,"e":1e400,"z":-0,"f":1.0,"g":1E+2}"#,
            ),
        ),
        (
            "lone surrogates",
            wrap(r#"{"high":"\ud800","low":"\udfff","pair":"\ud83d\ude00","swapped":"\ude00\ud83d"}"#),
        ),
        ("64 KiB of arguments", wrap(&format!(r#"{{"text":"{}"}}"#, "0123456789abcdef".repeat(4096)))),
        (
            "white space",
            format!(
                "\r\n {{\n\t\"jsonrpc\" : \"2.0\",\n\t\"id\" :\t7 ,\n\t\"method\" : \"tools/call\",\n\t\"params\" : {{ \"name\" : NAME ,\n\t\t\"arguments\" : {{ }} , \"_meta\" : {META} }}\n}}\n\t \r\n"
            ),
        ),
        (
            "repeated keys where nobody reads",
            wrap(r#"{"a":1,"a":2,"name":"x","Name":"y","name":"z","id":1}"#),
        ),
        (
            "escaped keys",
            format!(
                r#"{{"jsonrp\u0063":"2.0","\u0069\u0064":7,"m\u0065thod":"tools/call","params":{{"n\u0061me":NAME,"_met\u0061":{META}}}}}"#
            ),
        ),
        (
            "the name inside an argument",
            wrap(
                r#"{"say":"call files__echo, not echo","names":["files__echo","echo"],"files__echo":"echo"}"#,
            ),
        ),
        ("brackets and quotes in text", wrap(r#"{"text":"}]{[\\\"}\",\"name\":\"files__other\",\""}"#)),
        (
            "every depth that is allowed",
            wrap(&format!("{{\"deep\":{}{}}}", "[".repeat(100), "]".repeat(100))),
        ),
        ("a megabyte of ones", wrap(&format!("[{}1]", "1,".repeat(512 * 1024)))),
    ]
}

#[test]
fn transparent_requests_cross_byte_for_byte() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    for (what, spelling) in spellings() {
        println!("{what}");
        let request = call("7", "echo").body(spelling.replace("NAME", "\"echo\""));
        daemon.send(&request).assert_ok();
        assert!(upstream.received_of("tools/call").pop().unwrap().body == request.body, "{what}");
    }
}

#[test]
fn chunked_requests_cross_with_their_length() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    for size in [1, 7, 100_000] {
        let request = call("7", "echo");
        daemon.send_bytes(&request.bytes_chunked(size)).assert_ok();
        assert_eq!(upstream.received_of("tools/call").pop().unwrap().body, request.body);
    }
}

#[test]
fn prefixed_requests_change_in_the_name_and_the_id_alone() {
    let files = Upstream::with_tools(&["echo"]);
    let weather = Upstream::with_tools(&["forecast"]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather));
    for (what, spelling) in spellings() {
        for name in ["\"files__echo\"", r#""\u0066iles_\u005fecho""#] {
            println!("{what}, {name}");
            let request = call("7", "files__echo").body(spelling.replace("NAME", name));
            daemon.send(&request).assert_ok();
            let received = files.received_of("tools/call").pop().unwrap();
            assert!(received.client_body() == spelling.replace("NAME", "\"echo\"").into_bytes(), "{what}");
            assert_eq!(received.headers("mcp-name"), ["echo"], "header and body change together");
        }
    }
    assert_eq!(weather.forwarded().len(), 0);
}

#[test]
fn other_methods_cross_byte_for_byte_through_a_transparent_endpoint() {
    let upstream = Upstream::start(|request| Reply::result(request, r#"{"resultType":"complete"}"#));
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let with = |params: &str| params.replace("META", META);
    let cases = [
        modern("prompts/get", Some("greet"), body("1", "prompts/get", &with(r#"{ "name":"greet","arguments":{"x":"1"},"_meta":META}"#))),
        read_resource("2", "file:///a%20b?c=d#e"),
        modern("resources/read", Some("up+file:///a"), body("3", "resources/read", &with(r#"{"uri":"up+file:///a","_meta":META}"#))),
        list("4", "custom/thing"),
        modern("tasks/get", Some("task-1"), body("5", "tasks/get", &with(r#"{"taskId":"task-1","_meta":META}"#))),
        modern("tasks/cancel", Some("task-1"), body("6", "tasks/cancel", &with(r#"{"taskId":"task-1","_meta":META}"#))),
        modern("completion/complete", None, body("7", "completion/complete", &with(r#"{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"x","value":"y"},"_meta":META}"#))),
        // A retry that carries what the user answered.
        call("8", "echo").replacing(r#""arguments":{}"#, r#""inputResponses":{"k":{"action":"accept","content":{"n":1.0}}},"requestState":"opaque\/state","arguments":{}"#),
    ];
    for (count, request) in cases.iter().enumerate() {
        let response = daemon.send(request);
        response.assert_ok();
        let received = upstream.forwarded();
        assert_eq!(received.len(), count + 1);
        assert_eq!(received[count].body, request.body, "{:?}", String::from_utf8_lossy(&request.body));
    }
}

#[test]
fn replies_of_a_transparent_endpoint_come_byte_for_byte() {
    let bodies = [
        r#"{"result":{"content":[{"type":"text","text":"\u0041\/\ud800"}],"n":123456789012345678901234567890},"id":7,"jsonrpc":"2.0"}"#.to_owned(),
        "\n{ \"jsonrpc\": \"2.0\",\t\"id\": 7, \"result\": { \"resultType\" : \"input_required\", \"requestState\":\"s\", \"inputRequests\": { } } }\r\n".to_owned(),
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#, "y".repeat(2_000_000)),
        r#"{"jsonrpc":"2.0","id":7,"result":{"contents":[{"uri":"file:///a","text":"up+file:///a"}],"up__echo":"echo"}}"#.to_owned(),
    ];
    for body in bodies {
        let json = body.clone();
        let upstream = Upstream::calling(move |_| Reply::json("200 OK", &json));
        let daemon = Daemon::start(&Config::transparent(&upstream));
        let response = daemon.send(&call("7", "echo"));
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert!(response.body == body.as_bytes(), "{:.200}", response.text());
    }
}

#[test]
fn events_of_a_transparent_endpoint_come_byte_for_byte() {
    let stream = ": a comment\n\nid: 1\nevent: message\nretry: 5\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/message\"}\n\n\r\n\
        data:{\"n\":123456789012345678901234567890}\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n";
    // Split everywhere: between lines, inside a line, inside CRLF.
    let upstream = Upstream::calling(move |_| {
        let reply = Reply::stream();
        let pieces: Vec<String> =
            stream.as_bytes().chunks(7).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect();
        pieces.iter().fold(reply, |reply, piece| reply.chunk(piece)).end()
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let response = daemon.send(&call("7", "echo"));
    assert_eq!((response.status, response.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(response.text(), stream);
}

#[test]
fn errors_of_an_upstream_with_our_id_keep_status_and_bytes() {
    let cases = [
        (
            "400 Bad Request",
            400,
            r#"{ "id":7,"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":["sampling"]}},"jsonrpc":"2.0"}"#,
        ),
        (
            "400 Bad Request",
            400,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"an \u0061nnotated parameter"}}"#,
        ),
        ("200 OK", 200, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool"}}"#),
        (
            "400 Bad Request",
            400,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool"}}"#,
        ),
        (
            "404 Not Found",
            404,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no such method"}}"#,
        ),
    ];
    let files = Upstream::calling(move |request| {
        let index: usize =
            request.json()["params"]["arguments"]["case"].as_u64().unwrap().try_into().unwrap();
        Reply::json(cases[index].0, cases[index].2).to(request)
    });
    let weather = Upstream::offering(Offer::tools(&["forecast"]));
    let daemons = [
        (Daemon::start(&Config::transparent(&files)), "echo"),
        (Daemon::start(&Config::prefixed(&files, &weather)), "files__echo"),
    ];
    for (daemon, tool) in &daemons {
        for (index, (_, status, body)) in cases.iter().enumerate() {
            let request: Request =
                call("7", tool).replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"case":{index}}}"#));
            let response = daemon.send(&request);
            assert_eq!((response.status, response.text().as_str()), (*status, *body), "{tool}");
        }
    }
}
