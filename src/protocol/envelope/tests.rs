//! Tables of good and hostile messages.

use super::random::spell;
use super::*;

fn parse(body: &str) -> Result<Envelope, EnvelopeError> {
    Envelope::parse(&mut Scratch::default(), body.as_bytes(), 128)
}

#[test]
fn a_call_is_found_to_the_byte() {
    let body = r#" {"params" : { "_meta":{"progressToken":7, "io.modelcontextprotocol/clientInfo" : {"name":"x"},
        "io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{ }},
        "name":"we\u0061ther" ,"uri":"file:///a","taskId":"t","cursor":"","arguments":{"name":1,"name":2},
        "ref":{"uri":"u","type":"ref/resource"}}, "jsonrpc":"2\u002e0","id" : "a\"b" ,"m\u0065thod":"tools/call"} "#;
    let envelope = parse(body).unwrap();
    let at = |span: &Span| &body[span.clone()];
    let literal = |literal: &Option<Literal>| body[literal.clone().unwrap().span].to_owned();
    assert_eq!(envelope.kind, MessageKind::Request);
    assert_eq!(at(&envelope.id.unwrap()), r#""a\"b""#);
    assert_eq!(literal(&envelope.method), r#""tools/call""#);
    assert!(at(&envelope.params.clone().unwrap()).starts_with(r#"{ "_meta""#));
    assert!(at(&envelope.params.unwrap()).ends_with(r#""type":"ref/resource"}}"#));
    assert_eq!(literal(&envelope.name), r#""we\u0061ther""#);
    assert!(envelope.name.unwrap().equals(body.as_bytes(), "weather"));
    assert_eq!(literal(&envelope.uri), r#""file:///a""#);
    assert_eq!(literal(&envelope.task_id), r#""t""#);
    assert_eq!(literal(&envelope.cursor), r#""""#);
    let Some(Reference::Resource(uri)) = envelope.reference else { panic!("no reference") };
    assert!(uri.equals(body.as_bytes(), "u"));
    let meta = envelope.meta.unwrap();
    assert_eq!(at(&meta.span)[..17], *r#"{"progressToken":"#);
    assert_eq!(literal(&meta.protocol_version), r#""2026-07-28""#);
    assert_eq!(at(&meta.client_capabilities.unwrap()), "{ }");
    assert_eq!(at(&meta.client_info.unwrap()), r#"{"name":"x"}"#);
    assert_eq!(at(&meta.progress_token.unwrap()), "7");
}

#[test]
fn kinds_follow_from_the_keys() {
    for (body, kind) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, MessageKind::Request),
        (r#"{"jsonrpc":"2.0","id":-0,"method":"\ud800","params":{}}"#, MessageKind::Request),
        (r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m"}"#, MessageKind::Request),
        (r#"{"jsonrpc":"2.0","method":"m","x":1e999,"x":"\ud800"}"#, MessageKind::Notification),
        (r#"{"jsonrpc":"2.0","id":"","result":{}}"#, MessageKind::Response),
        (r#"{"jsonrpc":"2.0","error":{}}"#, MessageKind::Response),
    ] {
        assert_eq!(parse(body).unwrap().kind, kind, "{body}");
    }
}

#[test]
fn values_of_another_type_are_absent() {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":1,"uri":null,"taskId":[],"cursor":{},
        "ref":{"type":"ref/prompt","uri":"u"},"_meta":{"progressToken":[1],
        "io.modelcontextprotocol/protocolVersion":2,"io.modelcontextprotocol/clientCapabilities":[],
        "io.modelcontextprotocol/clientInfo":"x"}}}"#;
    let envelope = parse(body).unwrap();
    assert_eq!((envelope.name, envelope.uri, envelope.task_id, envelope.cursor), (None, None, None, None));
    assert_eq!(envelope.reference, None);
    let meta = envelope.meta.unwrap();
    assert_eq!((meta.protocol_version, meta.client_info, meta.progress_token), (None, None, None));
    assert_eq!(meta.client_capabilities, None);
    for (token, is_one) in
        [("7.0", true), ("1e3", true), ("-0", true), ("null", false), ("true", false), ("{}", false)]
    {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{"progressToken":{token}}}}}}}"#
        );
        let found = parse(&body).unwrap().meta.unwrap().progress_token;
        assert_eq!(found.and_then(|span| body.get(span)), is_one.then_some(token));
    }
    for reference in [r#""x""#, "[]", "{}", r#"{"type":"ref/tool","name":"x"}"#, r#"{"name":"x","uri":"y"}"#]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"ref":{reference},"_meta":[]}}}}"#);
        let envelope = parse(&body).unwrap();
        assert_eq!((envelope.reference, envelope.meta), (None, None), "{body}");
    }
}

/// Bodies that are refused, and the id that the refusal can carry.
#[test]
fn hostile_messages_are_refused() {
    for (body, id) in [
        ("1", None),
        ("null", None),
        (r#""{}""#, None),
        ("{}", None),
        (r#"{"id":1}"#, Some("1")),
        (r#"{"id":1,"method":"m"}"#, Some("1")),
        (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, Some("1")),
        (r#"{"jsonrpc":2.0,"id":"a","method":"m"}"#, Some(r#""a""#)),
        (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":null,"result":1}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","error":1}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, Some("1")),
        // ids that are none
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1.0,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1e2,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":"\udc00","method":"m"}"#, None),
        // keys that stand twice
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"i\u0064":2,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}"#, Some("1")),
        (r#"{"method":"m","jsonrpc":"2.0","params":{},"params":{},"id":1}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"result":1}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","name":"b"}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","n\u0061me":"b"}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{},"arguments":{}}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"requestState":1,"requestState":1}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{},"_meta":{}}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"ref":{"name":1,"name":1}}}"#, Some("1")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1,"progressToken":1}}}"#,
            Some("1"),
        ),
        // keys that some readers take for ours
        (r#"{"jsonrpc":"2.0","ID":1,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"Id":1,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","i\u0000d":1}"#, None),
        (r#"{"JSONRPC":"2.0","jsonrpc":"2.0","id":1,"method":"m"}"#, Some("1")),
        (r#"{"j\u017fonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","Params":{"name":"x"}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","\u0000method":"n"}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"NAME":"a"}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"taſKId":"a"}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"tas\u212aId":"a"}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"argumentſ":{}}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_META":{}}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"Progresstoken":1}}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"ref":{"Type":1}}}"#, Some("1")),
        // keys that are not Unicode
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","\ud800":1}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"\udc00x":1}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"\udc00x":1}}}"#, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"ref":{"\udc00x":1}}}"#, Some("1")),
    ] {
        let Err(EnvelopeError::NotJsonRpc { id: found, .. }) = parse(body) else { panic!("accepted {body}") };
        assert_eq!(found.as_ref().map(|span| &body[span.clone()]), id, "{body}");
        assert_eq!(find_id(&mut Scratch::default(), body.as_bytes(), 128), found, "{body}");
    }
}

#[test]
fn other_keys_may_stand_twice_and_anywhere() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"m","x":1,"x":2,"":0,"ids":1,"name":1,"Name":2,"_meta":3,"_META":4}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"ID":1,"x":1,"x":2,"arguments":{"\ud800":1,"a":1,"A":1}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","result\u0001":1,"résult":1,"ſ":1}"#,
    ] {
        assert_eq!(parse(body).unwrap().kind, MessageKind::Request, "{body}");
    }
}

#[test]
fn what_is_not_json_or_a_batch_is_told_apart() {
    let json = |error| Err(EnvelopeError::Json(error));
    let deep = format!(r#"{{"jsonrpc":"2.0","method":"m","x":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    for (body, expected) in [
        ("", json(JsonError::NotJson)),
        ("{", json(JsonError::NotJson)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}x"#, json(JsonError::NotJson)),
        ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}", json(JsonError::NotJson)),
        (&deep, json(JsonError::TooDeep)),
        ("[]", Err(EnvelopeError::Batch)),
        (r#" [{"jsonrpc":"2.0","id":1,"method":"m"}]"#, Err(EnvelopeError::Batch)),
    ] {
        assert_eq!(parse(body), expected, "{body}");
        assert_eq!(find_id(&mut Scratch::default(), body.as_bytes(), 128), None, "{body}");
    }
}

#[test]
fn the_length_of_an_id_is_limited() {
    for (id, accepted) in [
        ("1".repeat(1024), true),
        ("1".repeat(1025), false),
        (spell(&"x".repeat(1022), 0), true),
        (spell(&"x".repeat(1023), 0), false),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        assert_eq!(parse(&body).is_ok(), accepted, "{}", id.len());
        assert_eq!(find_id(&mut Scratch::default(), body.as_bytes(), 8).is_some(), accepted);
    }
}

#[test]
fn another_id_moves_what_comes_after_it() {
    let meta = r#"{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"v","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let params = format!(
        r#""params":{{"name":"n","uri":"u","taskId":"t","cursor":"c","ref":{{"type":"ref/prompt","name":"p"}},"_meta":{meta}}}"#
    );
    let uri = r#""params":{"ref":{"type":"ref/resource","uri":"u"}}"#;
    for params in [&params, uri, r#""params":{}"#, r#""x":1"#] {
        for order in [
            format!(r#"{{"jsonrpc":"2.0","id":ID,"method":"m",{params}}}"#),
            format!(r#"{{"jsonrpc":"2.0",{params},"id":ID,"method":"m"}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"m",{params},"id":ID}}"#),
        ] {
            for (id, other) in [("1", r#""trunkline-7""#), (r#""longer-than-that""#, "22")] {
                let (before, after) = (parse(&order.replace("ID", id)), parse(&order.replace("ID", other)));
                let moved = before.expect("a message").with_id(other.len());
                assert_eq!(moved, after.expect("a message"), "{order}");
            }
        }
    }
}

#[test]
fn large_messages_end_in_time() {
    let million = 1 << 20;
    let filler = [
        "1,".repeat(million / 2) + "1",
        "{},".repeat(million / 3) + "{}",
        r#"{"":0},"#.repeat(million / 7) + "1e999",
        format!(r#"{{{}"":0}}"#, r#""\u0061":0,"#.repeat(million / 11)),
    ];
    for filler in filler {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"arguments":[{filler}]}}}}"#);
        assert!(parse(&body).is_ok());
    }
    let keys = r#""\u0061":0,"#.repeat(million / 11);
    assert!(
        parse(&format!(r#"{{{keys}"jsonrpc":"2.0","method":"m","params":{{{keys}"name":"x"}}}}"#)).is_ok()
    );
}
