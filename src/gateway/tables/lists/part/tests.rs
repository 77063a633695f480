use super::excluded::{EXCLUDED_MAX, NAMES_MAX};
use super::*;

fn tools(result: &str) -> Result<PartRead, UpstreamError> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
    read(
        body.as_bytes(),
        &reading(CatalogQuery::List(List::Tools), Era::Modern),
        &mut Scratch::default(),
        128,
    )
}

fn reading(kind: CatalogQuery, era: Era) -> Reading {
    let server_info = (era == Era::Legacy).then(|| r#"{"name":"s"}"#.to_owned());
    Reading { kind, era, counts_annotations: true, entries_max: usize::MAX, server_info }
}

fn page(result: &str) -> ReadPage {
    match tools(result) {
        Ok(PartRead::Page(page)) => page,
        other => panic!("{result}: {other:?}"),
    }
}

#[test]
fn what_is_no_answer_is_refused() {
    let tools = reading(CatalogQuery::List(List::Tools), Era::Modern);
    for body in [
        "",
        "[]",
        r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#,
        r#"{"jsonrpc":"2.0","id":"1","result":{"tools":[]}}"#,
        r#"{"jsonrpc":"2.0","result":{"tools":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"prompts":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"Tools":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"a","nextCurs\u006fr":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"CacheScope":"public"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]},"result":{"tools":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]},"Error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"resultType":"input_required"}}"#,
    ] {
        let read = read(body.as_bytes(), &tools, &mut Scratch::default(), 128);
        assert_eq!(read.err(), Some(UpstreamError::Nonsense), "{body}");
    }
    let refused = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no database"}}"#;
    match read(refused, &tools, &mut Scratch::default(), 128) {
        Err(UpstreamError::Refused(refusal)) => {
            assert_eq!((refusal.code, &*refusal.message), (-32603, "no database"));
        }
        other => panic!("{other:?}"),
    }
    let absent = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""}}"#;
    assert!(matches!(read(absent, &tools, &mut Scratch::default(), 128), Ok(PartRead::Absent)));
    let discover = reading(CatalogQuery::Discover, Era::Modern);
    assert!(read(absent, &discover, &mut Scratch::default(), 128).is_err());
}

#[test]
fn a_page_is_read() {
    let page = page(
        r#"{ "x" : [1e400], "tools":[{"name":"a","inputSchema":{"type":"object"}}, {"name":"b","inputSchema":{"type":"object"}}],"nextCursor":"","ttlMs":5,"cacheScope":"public","_meta":{ "y":1 }}"#,
    );
    assert_eq!((page.items.len(), page.next_cursor.as_deref()), (2, Some("")));
    assert_eq!((page.ttl_ms, page.is_public), (5, true));
    assert_eq!(page.rest.of(Era::Modern), br#""x" : [1e400],"_meta":{ "y":1 }"#);
}

#[test]
fn what_stands_beside_a_list_is_written_for_each_era() {
    const INFO: &str = "\"io.modelcontextprotocol/serverInfo\"";
    let own = r#"{"name":"s"}"#;
    for (era, result, native, crossing) in [
        (Era::Modern, r#""x":1"#.to_owned(), r#""x":1"#.to_owned(), r#""x":1"#.to_owned()),
        (Era::Modern, format!(r#""_meta":{{{INFO}:7}}"#), format!(r#""_meta":{{{INFO}:7}}"#), String::new()),
        (
            Era::Modern,
            format!(r#""_meta":{{"a":1, {INFO}:7,"b":2}},"x":1"#),
            format!(r#""_meta":{{"a":1, {INFO}:7,"b":2}},"x":1"#),
            r#""x":1,"_meta":{"a":1,"b":2}"#.to_owned(),
        ),
        (
            Era::Legacy,
            r#""x":1"#.to_owned(),
            r#""x":1"#.to_owned(),
            format!(r#""x":1,"_meta":{{{INFO}:{own}}}"#),
        ),
        (
            Era::Legacy,
            r#""ttlMs":1,"_meta":{"a":1}"#.to_owned(),
            r#""_meta":{"a":1}"#.to_owned(),
            format!(r#""_meta":{{{INFO}:{own},"a":1}}"#),
        ),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[],{result}}}}}"#);
        let reading = reading(CatalogQuery::List(List::Tools), era);
        let Ok(PartRead::Page(page)) = read(body.as_bytes(), &reading, &mut Scratch::default(), 16) else {
            panic!("{body}")
        };
        let found = [era, era.other()].map(|era| String::from_utf8_lossy(page.rest.of(era)).into_owned());
        assert_eq!(found, [native, crossing], "{body}");
    }
}

#[test]
fn freshness_is_never_guessed() {
    for (ttl, expected) in [
        ("0", 0),
        ("-1", 0),
        ("1.5", 0),
        ("\"60\"", 0),
        ("1e3", 0),
        ("60000", 60_000),
        ("99999999999999999999", 0),
    ] {
        assert_eq!(page(&format!(r#"{{"tools":[],"ttlMs":{ttl}}}"#)).ttl_ms, expected, "{ttl}");
    }
}

/// The first entry that was left out.
fn first(read: &ReadPage) -> &Excluded {
    read.excluded.iter().next().expect("one that was left out")
}

#[test]
fn of_many_malformed_entries_some_are_remembered_and_all_counted() {
    let page = || page(&format!(r#"{{"tools":[{}{{}}]}}"#, "null,".repeat(EXCLUDED_MAX + 1)));
    let mut all = page().excluded;
    assert_eq!((all.iter().count(), all.others()), (EXCLUDED_MAX, 2));
    all.append(page().excluded);
    assert_eq!((all.iter().count() as u64, all.others()), (EXCLUDED_MAX as u64, EXCLUDED_MAX as u64 + 4));
}

#[test]
fn tools_with_invalid_annotations_are_left_out() {
    let tool = |name: &str, header: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"p":{{"type":"string","x-mcp-header":"{header}"}}}}}}}}"#
        )
    };
    let result = format!(
        r#"{{"tools":[{},{},{{"name":"plain","inputSchema":{{"type":"object"}}}}]}}"#,
        tool("good", "Region"),
        tool("bad", "no token")
    );
    let read = page(&result);
    assert_eq!((read.items.len(), read.excluded.iter().count(), read.annotated.len()), (2, 1, 1));
    assert_eq!((&*first(&read).names, &*read.annotated[0].0), (&["bad".to_owned()][..], "good"));
}

#[test]
fn an_entry_that_readers_see_differently_is_left_out_with_all_its_names() {
    let two = r#"{"name":"b","n\u0061me":"a","NAME":"c","title":"name","name":7}"#;
    let read = page(&format!(r#"{{"tools":[{two},{{"name":"plain","inputSchema":{{"type":"object"}}}}]}}"#));
    assert_eq!((read.items.len(), read.excluded.iter().count(), read.annotated.len()), (1, 1, 0));
    assert_eq!(
        (&first(&read).why, first(&read).names.join(" ")),
        (&ExcludeReason::Ambiguous, "a b c".into())
    );
    assert_eq!(&*first(&read).definition, two.as_bytes());
    let many: Vec<String> = (0..1000).map(|index| format!(r#""name":"{index}""#)).collect();
    let read = page(&format!(r#"{{"tools":[{{{}}}]}}"#, many.join(",")));
    assert_eq!(first(&read).names.len(), NAMES_MAX);
}

#[test]
fn what_is_written_otherwise_counts() {
    let content = |properties: &str| {
        let read = page(&format!(
            r#"{{"tools":[{{"name":"a","inputSchema":{{"type":"object","properties":{{{properties}}}}}}}]}}"#
        ));
        let edits = read.items.iter().map(|item| item.for_legacy.len()).sum::<usize>();
        let pages = vec![PartPage { body: Bytes::new(), items: read.items }];
        (edits, Content { pages, ..Content::default() }.bytes())
    };
    let booleans: Vec<String> = (0..1000).map(|index| format!("\"{index}\":true")).collect();
    let (plain, translated) = (content(r#""a":{}"#), content(&booleans.join(",")));
    assert_eq!((plain.0, translated.0), (0, 1000));
    assert_eq!(translated.1 - plain.1, 1000 * size_of::<Edit>());
}

#[test]
fn contents_are_compared_by_their_entries() {
    let content = |pages: &[&'static str]| Content {
        pages: pages
            .iter()
            .map(|text| {
                let body = Bytes::from_static(text.as_bytes());
                let items = text
                    .match_indices('x')
                    .map(|(at, _)| Item {
                        span: at..at + 2,
                        sites: Vec::new(),
                        hints: Hints::default(),
                        is_task_only: false,
                        for_legacy: Vec::new(),
                    })
                    .collect();
                PartPage { body, items }
            })
            .collect(),
        ..Content::default()
    };
    for (one, other, same) in [
        (&["x1 x2"][..], &["x1", "x2"][..], true),
        (&["x1 x2"], &["x1 , x2, ttl 5"], true),
        (&["x1 x2"], &["x2 x1"], false),
        (&["x1"], &["x1 x1"], false),
    ] {
        assert_eq!(content(one).is_same(&content(other)), same, "{one:?} {other:?}");
    }
    assert!(!content(&["x1"]).is_same(&Content { is_public: true, ..content(&["x1"]) }));
}
