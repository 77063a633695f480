//! What counts as an annotation, what makes one invalid, and every way in which headers and arguments can
//! disagree.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fields::Fields;
use crate::header::encode_value;
use crate::json::Scratch;

fn annotations_of(tool: &str) -> Result<Vec<Annotation>, InvalidAnnotation> {
    let mut scratch = Scratch::default();
    annotations(scratch.index(tool.as_bytes(), 128).expect("JSON").root())
}

/// Of a tool whose input schema this is.
fn annotations_in(schema: &str) -> Result<Vec<Annotation>, InvalidAnnotation> {
    annotations_of(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#))
}

fn annotation(header: &str, path: &[&str], kind: ParamKind) -> Annotation {
    Annotation { header: header.into(), path: path.iter().map(|key| Box::from(*key)).collect(), kind }
}

#[test]
fn annotations_are_found_where_properties_lead() {
    let a = || vec![annotation("mcp-param-a", &["x"], ParamKind::String)];
    for (schema, expected) in [
        (r#"{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"A"}}}"#, a()),
        (r#"{"properties":{"x":{"x-mcp-header":"A","type":"string"}}}"#, a()),
        (r#"{"properties":{"x":{"type":"string","x\u002dmcp-header":"\u0041"}}}"#, a()),
        (r#"{"properties":{"x":{"type":"string","\u0078-mcp-header":"a"}}}"#, a()),
        (r#"{"pr\u006fperties":{"x":{"t\u0079pe":"string","x-mcp-header":"a"}}}"#, a()),
        (
            r#"{"properties":{"x":{"type":"integer","x-mcp-header":"X-1"},"y":{"type":"object","properties":
                {"z":{"type":"boolean","x-mcp-header":"Tenant_Id"},
                "":{"type":"string","x-mcp-header":"!#$%&'*+-.^_`|~"}}}}}"#,
            vec![
                annotation("mcp-param-x-1", &["x"], ParamKind::Integer),
                annotation("mcp-param-tenant_id", &["y", "z"], ParamKind::Boolean),
                annotation("mcp-param-!#$%&'*+-.^_`|~", &["y", ""], ParamKind::String),
            ],
        ),
        // Names of properties are not keywords.
        (
            r#"{"properties":{"x-mcp-header":{"type":"string"},"items":{"type":"string","x-mcp-header":"I"},
                "properties":{"properties":{"type":{"type":"string","x-mcp-header":"T"}}}}}"#,
            vec![
                annotation("mcp-param-i", &["items"], ParamKind::String),
                annotation("mcp-param-t", &["properties", "type"], ParamKind::String),
            ],
        ),
        // Data is not a schema, and neither is what stands under a keyword that means nothing.
        (
            r#"{"default":{"x-mcp-header":"A"},"examples":[{"x-mcp-header":"A"}],
                "const":{"x-mcp-header":"A"}}"#,
            vec![],
        ),
        (r#"{"enum":[{"x-mcp-header":"A"}],"x-other":{"x-mcp-header":"A"},"title":"x-mcp-header"}"#, vec![]),
        (r#"{"properties":[{"x-mcp-header":"A"}],"items":true,"allOf":[true],"$defs":7}"#, vec![]),
        (r#"{"properties":{"x":{"type":"string"},"x":{"type":"string"}},"title":"x-mcp-header"}"#, vec![]),
        (r#"{"properties":{"x":"x-mcp-header","y":["x-mcp-header"]}}"#, vec![]),
        (r#"{"type":"object"}"#, vec![]),
        ("[1]", vec![]),
        (r#""x-mcp-header""#, vec![]),
    ] {
        assert_eq!(annotations_in(schema), Ok(expected), "{schema}");
    }
    for tool in [
        r#"{"name":"t","outputSchema":{"items":{"x-mcp-header":""}},"_meta":{"x-mcp-header":1}}"#,
        r#"{"name":"x-mcp-header","x-mcp-header":"A"}"#,
        r#"["x-mcp-header"]"#,
        "7",
    ] {
        assert_eq!(annotations_of(tool), Ok(vec![]), "{tool}");
    }
}

/// An input schema with one annotated property `x`.
fn with_property(property: &str) -> String {
    format!(r#"{{"properties":{{"x":{property}}}}}"#)
}

#[test]
fn names_and_types_are_checked() {
    use InvalidAnnotation as I;
    let not_token = || I::NotToken { property: "x".into() };
    for name in [
        r#""""#,
        r#"" ""#,
        r#""My Region""#,
        r#""a:b""#,
        r#""Région""#,
        r#""a\t1""#,
        r#""a\r\nb""#,
        r#""a\u0000""#,
        r#""a/b""#,
        r#""(a)""#,
        r#""a,b""#,
        r#""\"a\"""#,
        r#""\ud800""#,
        "null",
        "1",
        "true",
        "{}",
        r#"["A"]"#,
    ] {
        let schema = with_property(&format!(r#"{{"type":"string","x-mcp-header":{name}}}"#));
        assert_eq!(annotations_in(&schema), Err(not_token()), "{schema}");
    }
    for kind in [
        r#","type":"number""#,
        r#","type":"object""#,
        r#","type":"array""#,
        r#","type":"null""#,
        r#","type":"String""#,
        r#","type":["string","null"]"#,
        r#","type":["string"]"#,
        r#","type":7"#,
        r##","$ref":"#/$defs/a""##,
        "",
    ] {
        let schema = with_property(&format!(r#"{{"x-mcp-header":"A"{kind}}}"#));
        assert_eq!(annotations_in(&schema), Err(I::NotPrimitive { property: "x".into() }), "{schema}");
    }
}

#[test]
fn annotations_anywhere_else_are_invalid() {
    let annotated = r#"{"type":"string","x-mcp-header":"A"}"#;
    let one = SCHEMAS.iter().map(|keyword| format!(r#"{{"{keyword}":{annotated}}}"#));
    let many = SCHEMAS.iter().map(|keyword| format!(r#"{{"{keyword}":[true,{{}},{annotated}]}}"#));
    let named =
        NAMED_SCHEMAS.iter().map(|keyword| format!(r#"{{"{keyword}":{{"n":["a"],"m":{annotated}}}}}"#));
    for schema in one.chain(many).chain(named) {
        for schema in [
            schema.clone(),
            with_property(&schema),
            format!(r#"{{"not":{schema}}}"#),
            format!(r#"{{"properties":{{"a":{{"properties":{{"b":{schema}}}}}}}}}"#),
            schema.replace(annotated, &with_property(annotated)),
            schema.replace(annotated, &format!(r#"{{"items":[{annotated}]}}"#)),
            // A valid one beside it changes nothing.
            format!(r#"{{"properties":{{"v":{{"type":"string","x-mcp-header":"V"}}}},{}"#, &schema[1..]),
        ] {
            let refused = annotations_in(&schema);
            assert!(matches!(refused, Err(InvalidAnnotation::Unreachable { .. })), "{schema}: {refused:?}");
        }
    }
    let root = annotations_in(r#"{"type":"string","x-mcp-header":"A"}"#);
    assert_eq!(root, Err(InvalidAnnotation::Unreachable { near: "".into() }));
}

#[test]
fn annotations_are_unique_unambiguous_and_not_too_many() {
    use InvalidAnnotation as I;
    let property = |name: &str| format!(r#"{{"type":"string","x-mcp-header":"{name}"}}"#);
    let (a, b, upper_a) = (property("a"), property("b"), property("A"));
    for (schema, expected) in [
        (format!(r#"{{"properties":{{"x":{a},"y":{a}}}}}"#), I::NotUnique { property: "y".into() }),
        (format!(r#"{{"properties":{{"x":{a},"y":{upper_a}}}}}"#), I::NotUnique { property: "y".into() }),
        (
            format!(r#"{{"properties":{{"x":{a},"y":{{"properties":{{"z":{upper_a}}}}}}}}}"#),
            I::NotUnique { property: "y.z".into() },
        ),
        (format!(r#"{{"properties":{{"x":{a},"x":{{}}}}}}"#), I::Ambiguous),
        (format!(r#"{{"properties":{{"x":{a},"x":{b}}}}}"#), I::Ambiguous),
        (format!(r#"{{"properties":{{"x":{a}}},"properties":{{}}}}"#), I::Ambiguous),
        (format!(r#"{{"properties":{{"x":{a},"y":{{"type":"string","type":"string"}}}}}}"#), I::Ambiguous),
        (format!(r#"{{"properties":{{"x":{a},"\ud800":{{}}}}}}"#), I::Ambiguous),
        (with_property(r#"{"type":"string","x-mcp-header":"a","x-mcp-header":"b"}"#), I::Ambiguous),
        (with_property(r#"{"type":"string","x-mcp-header":"a","x-mcp\u002dheader":"a"}"#), I::Ambiguous),
        (with_property(r#"{"type":"string","x-mcp-header":"a","type":"integer"}"#), I::Ambiguous),
        (format!(r#"{{"properties":{{"x":{a}}}}},"inputSchema":{{}}"#), I::Ambiguous),
    ] {
        assert_eq!(annotations_in(&schema), Err(expected), "{schema}");
    }
    let many = |count: usize| {
        let properties: Vec<String> =
            (0..count).map(|index| format!(r#""p{index}":{}"#, property(&format!("h{index}")))).collect();
        annotations_in(&format!(r#"{{"properties":{{{}}}}}"#, properties.join(",")))
    };
    assert_eq!(many(ANNOTATIONS_MAX).map(|found| found.len()), Ok(ANNOTATIONS_MAX));
    assert_eq!(many(ANNOTATIONS_MAX + 1), Err(I::TooMany));
}

#[test]
fn what_is_wrong_fits_a_log_line() {
    let long = "ä\n".repeat(1000);
    let schema = json!({ "properties": { long: { "type": "number", "x-mcp-header": "A" } } });
    let message = annotations_in(&schema.to_string()).expect_err("a number").to_string();
    assert!(message.starts_with("x-mcp-header of \"ä\\nä"), "{message}");
    assert!(message.len() < 400 && !message.contains('\n'), "{message}");
}

fn map(pairs: &[(&str, &[u8])]) -> Fields {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("name");
        headers.append(name, HeaderValue::from_bytes(value).expect("value"));
    }
    Fields::from(&headers)
}

fn check_text(
    annotations: &[Annotation],
    arguments: Option<&str>,
    headers: &Fields,
) -> Result<(), ParamMismatch> {
    let mut scratch = Scratch::default();
    match arguments {
        // Not at the start of the text: spans refer to the whole of it.
        Some(arguments) => {
            let text = format!(r#"{{"params":{{"arguments":{arguments}}}}}"#);
            let root = scratch.index(text.as_bytes(), 128).expect("JSON").root();
            check(annotations, root.get("params").and_then(|params| params.get("arguments")), headers)
        }
        None => check(annotations, None, headers),
    }
}

#[test]
fn a_header_says_what_its_argument_says() {
    use ParamFault as F;
    let x: &[Annotation] = &[annotation("mcp-param-x", &["x"], ParamKind::String)];
    let sent = |value: &'static [u8]| vec![("Mcp-Param-X", value)];
    for (arguments, headers, expected) in [
        // Strings: exactly, after decoding
        (Some(r#"{"x":"us-west1"}"#), sent(b"us-west1"), Ok(())),
        (Some(r#"{"x":"us\u002dwest1"}"#), sent(b"us-west1"), Ok(())),
        (Some(r#"{"\u0078":"us-west1"}"#), sent(b"us-west1"), Ok(())),
        (Some(r#"{"x":"us-west1"}"#), sent(b"=?base64?dXMtd2VzdDE=?="), Ok(())),
        (Some(r#"{"x":"Zürich"}"#), sent(b"=?base64?WsO8cmljaA==?="), Ok(())),
        (Some(r#"{"x":""}"#), sent(b""), Ok(())),
        (Some(r#"{"x":""}"#), sent(b"=?base64??="), Ok(())),
        (Some(r#"{"x":"=?base64?SGVsbG8="}"#), sent(b"=?base64?SGVsbG8="), Ok(())),
        (Some(r#"{"x":"us-west1"}"#), sent(b"us-west2"), Err(F::Different)),
        (Some(r#"{"x":"us-west1"}"#), sent(b"US-WEST1"), Err(F::Different)),
        (Some(r#"{"x":"us-west1"}"#), sent(b"us-west"), Err(F::Different)),
        (Some(r#"{"x":"us-west1"}"#), sent(b""), Err(F::Different)),
        (Some(r#"{"x":"us-west1"}"#), sent(b"\"us-west1\""), Err(F::Different)),
        (Some(r#"{"x":"42"}"#), sent(b"42.0"), Err(F::Different)),
        (Some(r#"{"x":"\ud800"}"#), sent(b"=?base64?77+9?="), Err(F::Different)),
        (Some(r#"{"x":"null"}"#), sent(b"null"), Ok(())),
        (Some(r#"{"x":"Hello"}"#), sent(b"=?base64?SGVsbG8?="), Err(F::Malformed)),
        (Some(r#"{"x":"Hello"}"#), sent(b"=?base64?SGVs!!!bG8=?="), Err(F::Malformed)),
        (Some("{\"x\":\"ä\"}"), sent(b"\xc3\xa4"), Err(F::Malformed)),
        // Numbers: by value
        (Some(r#"{"x":1}"#), sent(b"1"), Ok(())),
        (Some(r#"{"x":1}"#), sent(b"1.0"), Ok(())),
        (Some(r#"{"x":1}"#), sent(b"1e0"), Ok(())),
        (Some(r#"{"x":1e0}"#), sent(b"1"), Ok(())),
        (Some(r#"{"x":-7.0}"#), sent(b"-7"), Ok(())),
        (Some(r#"{"x":9007199254740993}"#), sent(b"9007199254740993"), Ok(())),
        (Some(r#"{"x":9007199254740993}"#), sent(b"9007199254740992"), Err(F::Different)),
        (Some(r#"{"x":1}"#), sent(b"2"), Err(F::Different)),
        (Some(r#"{"x":1}"#), sent(b"1.1"), Err(F::Different)),
        (Some(r#"{"x":1}"#), sent(b"01"), Err(F::Different)),
        (Some(r#"{"x":1}"#), sent(b"+1"), Err(F::Different)),
        (Some(r#"{"x":1}"#), sent(b"true"), Err(F::Different)),
        (Some(r#"{"x":1}"#), sent(b"=?base64?MQ==?="), Ok(())),
        // Booleans
        (Some(r#"{"x":true}"#), sent(b"true"), Ok(())),
        (Some(r#"{"x":false}"#), sent(b"false"), Ok(())),
        (Some(r#"{"x":false}"#), sent(b"true"), Err(F::Different)),
        (Some(r#"{"x":true}"#), sent(b"True"), Err(F::Different)),
        (Some(r#"{"x":true}"#), sent(b"1"), Err(F::Different)),
        // Nothing, on either side
        (Some(r#"{"x":null}"#), vec![], Ok(())),
        (Some(r#"{"y":1}"#), vec![], Ok(())),
        (Some("{}"), vec![], Ok(())),
        (Some("[]"), vec![], Ok(())),
        (None, vec![], Ok(())),
        (Some(r#"{"x":null}"#), sent(b"null"), Err(F::Unexpected)),
        (Some(r#"{"y":"a"}"#), sent(b"a"), Err(F::Unexpected)),
        (Some("{}"), sent(b""), Err(F::Unexpected)),
        (Some(r#"["x"]"#), sent(b"x"), Err(F::Unexpected)),
        (None, sent(b"a"), Err(F::Unexpected)),
        (Some(r#"{"x":"a"}"#), vec![], Err(F::Missing)),
        (Some(r#"{"x":""}"#), vec![], Err(F::Missing)),
        (Some(r#"{"x":false}"#), vec![], Err(F::Missing)),
        (Some(r#"{"x":0}"#), vec![], Err(F::Missing)),
        // Twice, even if both are right
        (Some(r#"{"x":"a"}"#), vec![("mcp-param-x", b"a"), ("MCP-PARAM-X", b"a")], Err(F::SentTwice)),
        // What no header can stand for
        (Some(r#"{"x":{}}"#), vec![], Err(F::NotPrimitive)),
        (Some(r#"{"x":["a"]}"#), sent(b"a"), Err(F::NotPrimitive)),
        // Headers that are not annotated
        (
            Some(r#"{"x":"a"}"#),
            vec![("mcp-param-x", b"a"), ("mcp-param-y", b"\xff"), ("mcp-param-y", b"")],
            Ok(()),
        ),
        // Keys that stand twice, or that some readers take for the same
        (Some(r#"{"x":"a","x":"a"}"#), sent(b"a"), Err(F::Ambiguous)),
        (Some(r#"{"x":"a","\u0078":"b"}"#), sent(b"a"), Err(F::Ambiguous)),
        (Some(r#"{"x":"a","X":"b"}"#), sent(b"a"), Err(F::Ambiguous)),
        (Some(r#"{"X":"b"}"#), vec![], Err(F::Ambiguous)),
        (Some(r#"{"x":"a","x\u0000":"b"}"#), sent(b"a"), Err(F::Ambiguous)),
        (Some(r#"{"x":"a","\ud800":"b"}"#), sent(b"a"), Err(F::Ambiguous)),
        (Some(r#"{"x":"a","y":{"x":"b","X":"c"},"y":1,"xx":{"X":1}}"#), sent(b"a"), Ok(())),
    ] {
        let checked = check_text(x, arguments, &map(&headers));
        assert_eq!(checked.map_err(|mismatch| mismatch.fault), expected, "{arguments:?} {headers:?}");
    }
}

#[test]
fn paths_lead_through_objects_only() {
    use ParamFault as F;
    let annotated: &[Annotation] = &[
        annotation("mcp-param-deep", &["a", "b", "c"], ParamKind::String),
        annotation("mcp-param-side", &["a", "b", "Straße"], ParamKind::Integer),
        annotation("mcp-param-upper", &["A"], ParamKind::Boolean),
        annotation("mcp-param-sigma", &["ΣΑΣ", "k"], ParamKind::String),
    ];
    let faults = |header: &'static str, fault| Err(ParamMismatch { header: header.into(), fault });
    for (arguments, headers, expected) in [
        (
            r#"{"A":true,"a":{"x":[],"b":{"Straße":7,"c":"v"}},"b":{"c":"no"},"ΣΑΣ":{"k":"s"}}"#,
            vec![("deep", "v"), ("side", "7"), ("upper", "true"), ("sigma", "s")],
            Ok(()),
        ),
        (r#"{"a":{"b":{"c":"v"}}}"#, vec![], faults("mcp-param-deep", F::Missing)),
        (r#"{"a":{"b":{"Straße":7}}}"#, vec![("side", "8")], faults("mcp-param-side", F::Different)),
        (r#"{"a":{"b":null}}"#, vec![], Ok(())),
        (r#"{"a":{"b":["c"]}}"#, vec![("deep", "c")], faults("mcp-param-deep", F::Unexpected)),
        (r#"{"a":"b"}"#, vec![], Ok(())),
        (r#"{"b":{"c":"v"},"c":"v"}"#, vec![], Ok(())),
        (r#"{"a.b.c":"v"}"#, vec![], Ok(())),
        (r#"{"a":{},"a":{}}"#, vec![], faults("mcp-param-deep", F::Ambiguous)),
        (r#"{"a":{"b":{},"B":{}}}"#, vec![], faults("mcp-param-deep", F::Ambiguous)),
        (r#"{"a":{"b":{"STRASSE":1}}}"#, vec![], faults("mcp-param-side", F::Ambiguous)),
        (r#"{"a":{"b":{"ſtraße":1}}}"#, vec![], faults("mcp-param-side", F::Ambiguous)),
        (r#"{"σας":{}}"#, vec![], faults("mcp-param-sigma", F::Ambiguous)),
        ("{\"ΣΑΣ\":{\"\u{212a}\":1}}", vec![], faults("mcp-param-sigma", F::Ambiguous)),
        (r#"{"ΣΑΣ":{"\u004b":1}}"#, vec![], faults("mcp-param-sigma", F::Ambiguous)),
        (r#"{"ΣΑ":{"k":1},"a":{"b":{"Strase":1}}}"#, vec![], Ok(())),
    ] {
        let names: Vec<String> = headers.iter().map(|(name, _)| format!("mcp-param-{name}")).collect();
        let pairs: Vec<(&str, &[u8])> =
            names.iter().zip(&headers).map(|(name, (_, value))| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(check_text(annotated, Some(arguments), &map(&pairs)), expected, "{arguments}");
    }
    let message = check_text(annotated, Some(r#"{"A":true}"#), &map(&[])).expect_err("no header").to_string();
    assert_eq!(message, "mcp-param-upper is missing");
}

/// A tool with a parameter of every kind, on several levels.
const TOOL: &str = r#"{"name":"t","inputSchema":{"type":"object","properties":{
    "region":{"type":"string","x-mcp-header":"Region"},
    "count":{"type":"integer","x-mcp-header":"Count"},
    "größe":{"type":"object","properties":{
        "exact":{"type":"boolean","x-mcp-header":"Exact"},
        "unit":{"type":"object","properties":{"name":{"type":"string","x-mcp-header":"unit-name"}}}}},
    "query":{"type":"string"}}}}"#;

/// What a client sends in the header of a value; the reverse of what is tested.
fn encoded(value: &serde_json::Value) -> Option<HeaderValue> {
    let text = match value {
        serde_json::Value::Null => return None,
        serde_json::Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    Some(HeaderValue::from_str(&encode_value(&text)).expect("a header value"))
}

fn arguments_and_headers(values: &[serde_json::Value; 4]) -> (String, Fields) {
    let [region, count, exact, unit] = values;
    let arguments = json!({
        "query": "a\"b", "region": region, "größe": { "unit": { "name": unit, "_": [{}] }, "exact": exact },
        "count": count,
    });
    let mut headers = HeaderMap::new();
    for (name, value) in ["region", "count", "exact", "unit-name"].into_iter().zip(values) {
        let name = HeaderName::try_from(format!("Mcp-Param-{name}")).expect("name");
        headers.extend(encoded(value).map(|value| (name, value)));
    }
    (arguments.to_string(), Fields::from(&headers))
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|value| json!(value)),
        (-(1_i64 << 53) + 1..1_i64 << 53).prop_map(|value| json!(value)),
        any::<String>().prop_map(|value| json!(value)),
        "[ -~]{0,12}".prop_map(|value| json!(value)),
    ]
}

proptest! {
    #[test]
    fn headers_made_from_arguments_agree_and_those_of_others_do_not(
        values in [value(), value(), value(), value()],
        others in [value(), value(), value(), value()],
    ) {
        let annotated = annotations_of(TOOL).expect("valid");
        prop_assert_eq!(annotated.len(), 4);
        let (arguments, headers) = arguments_and_headers(&values);
        let (_, other_headers) = arguments_and_headers(&others);
        prop_assert_eq!(check_text(&annotated, Some(&arguments), &headers), Ok(()));
        // The header of a string can be that of a number or a boolean too.
        let agrees = values.iter().zip(&others).all(|(value, other)| encoded(value) == encoded(other));
        prop_assert_eq!(check_text(&annotated, Some(&arguments), &other_headers).is_ok(), agrees);
    }

    #[test]
    fn what_is_found_in_any_schema_stands_where_its_path_leads(schema in schema(), arguments in schema()) {
        let Ok(annotated) = annotations_in(&schema.to_string()) else { return Ok(()) };
        for annotation in &annotated {
            let mut path = annotation.path.iter();
            let property = path.try_fold(&schema, |schema, key| schema["properties"].get(&**key));
            let name = property.and_then(|property| property[KEY].as_str());
            let header = name.map(|name| format!("mcp-param-{}", name.to_lowercase()));
            prop_assert_eq!(header.as_deref(), Some(&*annotation.header));
        }
        // Only that it ends well: these arguments have nothing to do with the schema.
        let _ = check_text(&annotated, Some(&arguments.to_string()), &map(&[("mcp-param-a", b"a")]));
    }
}

/// A schema, more or less.
fn schema() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        "[abc]".prop_map(|name| json!({ "type": "string", "x-mcp-header": name })),
        Just(json!({ "type": "integer", "x-mcp-header": "D" })),
        Just(json!({ "type": "string" })),
        Just(json!("string")),
        Just(json!([])),
    ];
    let key = || {
        prop::sample::select(vec!["properties", "properties", "properties", "a", "A", "ß", "default", "not"])
    };
    leaf.prop_recursive(8, 64, 4, move |inner| {
        prop::collection::vec((key(), inner), 0..4).prop_map(|members| {
            members
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
                .into()
        })
    })
}
