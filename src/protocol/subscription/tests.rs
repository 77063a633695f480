use bytes::Bytes;

use super::*;
use crate::json::Scratch;

fn read(notifications: &str) -> Result<Filter, &'static str> {
    let body = format!(r#"{{"params":{{{notifications}}}}}"#);
    let mut scratch = Scratch::default();
    let document = scratch.index(body.as_bytes(), 32).expect("JSON");
    Filter::read(document.root(), 3)
}

fn heard(message: &str) -> Heard {
    hear(&mut Scratch::default(), &Bytes::copy_from_slice(message.as_bytes()), "7", 32).expect("JSON")
}

#[test]
fn a_filter_is_read_as_it_is_meant() {
    let filter = read(
        r#""notifications":{"toolsListChanged":true,"prompts\u004cistChanged":false,"other":1,
            "resourceSubscriptions":["a:\/b","c:d","a:/b"],"taskIds":["t"]}"#,
    )
    .expect("a filter");
    assert_eq!(filter.lists, Lists::one(0));
    let uris: Vec<(&str, &str)> = filter.uris.iter().map(|uri| (&*uri.literal, &*uri.value)).collect();
    assert_eq!(uris, [(r#""a:\/b""#, "a:/b"), (r#""c:d""#, "c:d")]);
    assert_eq!(filter.task_ids[0].value, "t");
    assert_eq!(read(r#""notifications":{}"#), Ok(Filter::default()));
}

#[test]
fn a_filter_in_doubt_is_refused() {
    for notifications in [
        r#""other":{}"#,
        r#""notifications":[]"#,
        r#""notifications":null"#,
        r#""notifications":{"toolsListChanged":"true"}"#,
        r#""notifications":{"toolsListChanged":null}"#,
        r#""notifications":{"toolsListChanged":true,"toolsListChanged":true}"#,
        r#""notifications":{"taskIds":["a"],"task\u0049ds":["b"]}"#,
        r#""notifications":{"resourceSubscriptions":"a"}"#,
        r#""notifications":{"resourceSubscriptions":[1]}"#,
        r#""notifications":{"resourceSubscriptions":["\ud800"]}"#,
        r#""notifications":{"resourceSubscriptions":["a","b"],"taskIds":["a","b"]}"#,
        r#""notifications":{"taskIds":["a","b","c","d"]}"#,
    ] {
        assert!(read(notifications).is_err(), "{notifications}");
    }
    let long = format!(r#""notifications":{{"taskIds":["{}"]}}"#, "x".repeat(NAME_BYTES_MAX + 1));
    assert!(read(&long).is_err());
}

#[test]
fn what_is_written_can_be_read() {
    let lists = Lists::from_bits(0b101);
    let names = || ["\"a\"", "\"b\""].into_iter();
    let acknowledged =
        Acknowledged { lists, uris: vec!["a".into(), "b".into()], task_ids: vec!["a".into(), "b".into()] };
    assert_eq!(heard(&acknowledgement("7", lists, names(), names())), Heard::Acknowledged(acknowledged));
    assert_eq!(heard(&completion("7")), Heard::Ended);
    assert_eq!(heard(&list_changed("7", 1)), Heard::ListChanged(1));
    let Heard::Updated(notice) = heard(&updated("7", "\"a\"")) else { panic!("an update") };
    assert_eq!(&*notice.name, "a");
    let request = request("7", lists, ["a\""].into_iter(), ["t"].into_iter());
    let mut scratch = Scratch::default();
    let filter =
        Filter::read(scratch.index(request.as_bytes(), 32).expect("JSON").root(), 3).expect("a filter");
    assert_eq!((filter.lists, &*filter.uris[0].value, &*filter.task_ids[0].value), (lists, "a\"", "t"));
}

#[test]
fn what_is_for_nobody_is_left_out() {
    let id = r#""_meta":{"io.modelcontextprotocol/subscriptionId":8}"#;
    for message in [
        completion("8").as_str(),
        &completion("\"7\""),
        &list_changed("8", 1),
        &list_changed("\"7\"", 1),
        &format!(r#"{{"method":"notifications/resources/updated","params":{{{id},"uri":"a"}}}}"#),
        r#"{"method":"notifications/resources/updated","params":{}}"#,
        r#"{"method":"notifications/resources/updated","params":{"uri":1}}"#,
        r#"{"method":"notifications/resources/updated","params":{"uri":"a","uri":"b"}}"#,
        r#"{"method":"notifications/resources/updated","params":{"uri":"a","_meta":[]}}"#,
        r#"{"method":"notifications/resources/updated"}"#,
        r#"{"method":"notifications/tools/list_changed","id":7}"#,
        r#"{"method":"notifications/cancelled","params":{"requestId":8}}"#,
        r#"{"method":"notifications/message","params":{}}"#,
        r#"{"method":7}"#,
        r#"{"id":8,"error":{"code":1}}"#,
        "[]",
        "1",
    ] {
        assert_eq!(heard(message), Heard::Other, "{message}");
    }
    assert_eq!(heard(r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#), Heard::Ended);
    assert_eq!(heard(r#"{"id":7,"error":{"code":-32601}}"#), Heard::Refused(Some(-32601)));
    assert_eq!(heard(r#"{"id":null,"error":{}}"#), Heard::Refused(None));
    assert_eq!(heard(r#"{"method":"notifications/tools/list_changed"}"#), Heard::ListChanged(0));
}

#[test]
fn a_notice_crosses_with_all_its_fields() {
    let key = SUBSCRIPTION_ID;
    for (params, written) in [
        (r#"{ "uri":"a" }"#.to_owned(), format!(r#"{{"_meta":{{"{key}":"x"}}, "uri":"p+a" }}"#)),
        (r#"{"uri":"a","_meta":{}}"#.to_owned(), format!(r#"{{"uri":"p+a","_meta":{{"{key}":"x"}}}}"#)),
        (
            r#"{"n":1e400,"uri":"\u0061","_meta":{"o":1}}"#.to_owned(),
            format!(r#"{{"n":1e400,"uri":"p+a","_meta":{{"{key}":"x","o":1}}}}"#),
        ),
        (
            format!(r#"{{"_meta":{{"o":[],"{key}" : 7,"ui":{{"resourceUri":"ui://u"}}}},"uri":"a"}}"#),
            format!(r#"{{"_meta":{{"o":[],"{key}" : "x","ui":{{"resourceUri":"<ui://u>"}}}},"uri":"p+a"}}"#),
        ),
    ] {
        let message =
            |params: &str| format!(r#"{{"method":"notifications/resources/updated","params":{params}}}"#);
        let Heard::Updated(notice) = heard(&message(&params)) else { panic!("no update: {params}") };
        let crossed = notice.write("\"x\"", "\"p+a\"", |_, inner| Some(format!("\"<{inner}>\"")));
        assert_eq!(&crossed.to_bytes()[..], message(&written).as_bytes());
    }
}

#[test]
fn a_task_crosses_with_the_names_in_its_result() {
    let task = r#"{"method":"notifications/tasks","params":{"taskId":"t","status":"completed","result":{"content":[{"type":"resource_link","uri":"u"}]}}}"#;
    let Heard::Task(notice) = heard(task) else { panic!("no task") };
    assert_eq!(&*notice.name, "t");
    let crossed = notice.write("1", "\"p+t\"", |_, inner| Some(format!("\"p+{inner}\"")));
    let crossed = String::from_utf8(crossed.to_bytes().to_vec()).expect("UTF-8");
    assert!(crossed.contains(r#""taskId":"p+t""#) && crossed.contains(r#""uri":"p+u""#), "{crossed}");
}

#[test]
fn a_resource_is_within_one_that_contains_it() {
    let wholes: BTreeSet<Box<str>> =
        ["a:/x", "a:/x!", "a:/x/z/w", "b/", "b/c", "é", "ée", ""].map(Into::into).into();
    for (uri, expected) in [
        ("a:/x", true),
        ("a:/x/", true),
        ("a:/x/y", true),
        ("a:/x/z", true),
        ("a:/x/z/v", true),
        ("a:/xy", false),
        ("a:/", false),
        ("b", false),
        ("b/", true),
        ("b/cd", true),
        ("bc", false),
        ("é/ü", true),
        ("èé", false),
        ("éé/", false),
        ("/x", true),
        ("", true),
        ("zz", false),
    ] {
        assert_eq!(is_within(uri, &wholes), expected, "{uri}");
        let one_by_one = wholes.iter().any(|whole| {
            let rest = uri.strip_prefix(&**whole);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || whole.ends_with('/'))
        });
        assert_eq!(one_by_one, expected, "{uri}");
    }
    assert!(!is_within("", &BTreeSet::new()));
}
