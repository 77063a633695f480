//! The two readers against each other and against `serde_json`, limits, and hostile texts.

use proptest::prelude::*;

use serde_json::value::RawValue;

use super::*;

/// What is accepted is defined by this, and by the depth limit.
fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok())
}

fn verdict(scratch: &mut Scratch, text: &[u8], depth_max: usize) -> Result<(), JsonError> {
    scratch.index(text, depth_max).map(|_| ())
}

/// Checks one text against `serde_json`, and the marks of both readers against each other.
fn check_against_serde(scratch: &mut Scratch, text: &[u8]) {
    let mut slow = Vec::new();
    let expected = if is_json(text) { slow::mark(text, 128, &mut slow) } else { Err(JsonError::NotJson) };
    match (scratch.index(text, 128), expected) {
        (Ok(document), Ok(())) => assert_eq!(document.marks, slow, "{}", text.escape_ascii()),
        (Err(JsonError::TooDeep), Err(_)) => {}
        (got, expected) => assert_eq!(got.map(|_| ()), expected, "{}", text.escape_ascii()),
    }
}

const TOKENS: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\"a\"",
    b"\"\\ud800\"",
    b"\"\\u006\"",
    b"\\",
    b"1",
    b"-",
    b"0",
    b".5",
    b"e9",
    b"1e400",
    b"123456789012345678901234567890",
    b"true",
    b"nul",
    b"\0",
    b"\x0c",
    b" \r\n\t",
    b"\xef\xbb\xbf",
];

#[test]
fn takes_what_serde_json_takes_of_all_short_texts() {
    let mut scratch = Scratch::default();
    let mut text = Vec::new();
    for length in 0..=4_u32 {
        for number in 0..TOKENS.len().pow(length) {
            text.clear();
            let mut rest = number;
            for _ in 0..length {
                text.extend_from_slice(TOKENS[rest % TOKENS.len()]);
                rest /= TOKENS.len();
            }
            check_against_serde(&mut scratch, &text);
        }
    }
}

#[test]
fn takes_what_serde_json_takes_in_every_position_of_a_block() {
    let mut scratch = Scratch::default();
    let odd: [&[u8]; 12] = [
        b"\"\\\\\"",
        b"\"\\\"\"",
        b"\"\\\\\\\"",
        b"\"\x1f\"",
        b"\"\xc3\xa9\"",
        b"\"\xc3\"",
        b"\"\\ud83d\\ude00\"",
        b"\"\\ud83d\\u0041\"",
        b"\"\\udc00\"",
        b"-1.5E+7",
        b"18446744073709551616",
        b"nulll",
    ];
    for item in odd {
        for before in 0..70 {
            for after in [0, 1, 63] {
                let text = [&b" ".repeat(before), item, &b"\n".repeat(after)].concat();
                check_against_serde(&mut scratch, &text);
                let text = [b"[\"", &*b"x".repeat(before), b"\",", item, b"]", &b" ".repeat(after)].concat();
                check_against_serde(&mut scratch, &text);
            }
        }
    }
}

proptest! {
    #[test]
    fn takes_what_serde_json_takes_of_random_tokens(picks in prop::collection::vec(0..TOKENS.len(), 0..40)) {
        let text: Vec<u8> = picks.iter().flat_map(|&pick| TOKENS[pick].iter().copied()).collect();
        check_against_serde(&mut Scratch::default(), &text);
    }

    #[test]
    fn takes_what_serde_json_takes_of_random_bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
        check_against_serde(&mut Scratch::default(), &text);
        let text = [b"\"", &*text, b"\""].concat();
        check_against_serde(&mut Scratch::default(), &text);
    }

    #[test]
    fn strings_survive_quoting(value in ".*") {
        let quoted = quote(&value);
        let mut scratch = Scratch::default();
        let literal = scratch.index(quoted.as_bytes(), 0).unwrap().root().as_literal().unwrap();
        prop_assert_eq!(literal.decode(quoted.as_bytes()).unwrap(), value.as_str());
        prop_assert!(literal.equals(quoted.as_bytes(), &value));
    }
}

#[test]
fn values_are_where_they_stand() {
    // The second text takes the slow reader, because of its last element.
    for last in ["-0", "1e999"] {
        let text = format!(" {{ \"a\" : [ 1 ,\"\\u0062\", {{ }},[] ] , \"c\"\t:\n{last} }} ");
        let mut scratch = Scratch::default();
        let root = scratch.index(text.as_bytes(), 3).unwrap().root();
        assert_eq!(root.raw(), text.trim().as_bytes());
        assert_eq!(root.kind(), JsonKind::Object);
        let entries: Vec<_> = root.entries().collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].0.decode(text.as_bytes()).unwrap(), "a");
        assert_eq!(entries[0].1.raw(), b"[ 1 ,\"\\u0062\", { },[] ]");
        assert_eq!(entries[1].0, Literal { span: 35..38, escaped: false });
        assert_eq!(entries[1].1.raw(), last.as_bytes());
        let items: Vec<_> = entries[0].1.items().collect();
        let kinds: Vec<_> = items.iter().map(|item| item.kind()).collect();
        assert_eq!(kinds, [JsonKind::Number, JsonKind::String, JsonKind::Object, JsonKind::Array]);
        assert!(items[1].as_literal().unwrap().equals(text.as_bytes(), "b"));
        assert!(!items[1].as_literal().unwrap().equals(text.as_bytes(), "\\u0062"));
        assert_eq!(items[0].as_integer(), Some(1));
        for item in items {
            assert_eq!(item.entries().count() + item.items().count(), 0);
        }
    }
}

/// Reads `value` with a cursor and with iterators, and expects the same keys and spans.
fn check_cursor(cursor: &mut Cursor<'_>, value: Value<'_>) {
    assert_eq!(cursor.kind(), value.kind());
    let mut skipping = *cursor;
    assert_eq!(skipping.skip(), value.span());
    assert_eq!(value.cursor().skip(), value.span());
    let start = *cursor;
    if value.kind() == JsonKind::Array {
        for item in value.items() {
            assert!(cursor.next_item());
            check_cursor(cursor, item);
        }
        assert!(!cursor.next_item());
        assert_eq!(cursor.span_since(start), value.span());
        return;
    }
    if value.kind() != JsonKind::Object {
        *cursor = skipping;
        return;
    }
    for (key, value) in value.entries() {
        assert_eq!(cursor.next_key(), Some(key.span));
        check_cursor(cursor, value);
    }
    assert_eq!(cursor.next_key(), None);
    assert_eq!(cursor.span_since(start), value.span());
}

#[test]
fn a_cursor_finds_what_the_iterators_find() {
    // The number takes the text to the slow reader.
    for number in ["0", "1e999"] {
        for text in [
            "{}",
            " { } ",
            r#"{"a":{}}"#,
            r#"{"a":{},"b":{},"c":"{"}"#,
            r#"{"a":{"a":{"a":[{},[]]}},"":[{"x":"}"}] , "b" : NUMBER }"#,
            "\n{ \"a\\\"\" :\t\"b\\\\\"\r, \"c\" : [ { } , NUMBER ] ,\"d\":{ \"e\" : null } } ",
            "[{}]",
            "[]",
            "[[],[[ ] , NUMBER],{\"a\":[[]]}]",
            " NUMBER\n",
            r#" "x" "#,
        ] {
            let text = text.replace("NUMBER", number);
            let mut scratch = Scratch::default();
            let document = scratch.index(text.as_bytes(), 8).unwrap();
            check_cursor(&mut document.cursor(), document.root());
        }
    }
}

#[test]
fn integers_are_told_from_other_numbers() {
    for (text, integer, value) in [
        ("0", true, Some(0)),
        ("-0", true, Some(0)),
        ("-9223372036854775808", true, Some(i64::MIN)),
        ("9223372036854775808", true, None),
        ("123456789012345678901234567890", true, None),
        ("1.0", false, None),
        ("1e3", false, None),
        ("1E3", false, None),
        ("\"1\"", false, None),
        ("true", false, None),
        ("[1]", false, None),
    ] {
        let mut scratch = Scratch::default();
        let root = scratch.index(text.as_bytes(), 9).unwrap().root();
        assert_eq!((is_integer(root.raw()), root.as_integer()), (integer, value), "{text}");
    }
}

#[test]
fn half_a_surrogate_pair_has_no_value() {
    let text = br#""\ud800""#;
    let mut scratch = Scratch::default();
    let literal = scratch.index(text, 0).unwrap().root().as_literal().unwrap();
    assert_eq!(literal.decode(text), None);
    assert!(!literal.equals(text, "\u{fffd}"));
}

#[test]
fn the_depth_limit_is_exact_for_both_readers() {
    let mut scratch = Scratch::default();
    for (inner, close) in [("1", ""), ("1e999", ""), ("\"\\udc00\"", ",[]")] {
        for depth_max in [0_usize, 1, 2, 128, 1024, 2000] {
            for depth in [depth_max.saturating_sub(1), depth_max, depth_max + 1] {
                let text = format!("{}{inner}{close}{}", "[".repeat(depth), "]".repeat(depth));
                if depth == 0 && !close.is_empty() {
                    continue;
                }
                let allowed = depth + usize::from(!close.is_empty()) <= depth_max;
                let expected = if allowed { Ok(()) } else { Err(JsonError::TooDeep) };
                assert_eq!(verdict(&mut scratch, text.as_bytes(), depth_max), expected, "{text}");
            }
        }
    }
}

#[test]
fn large_and_deep_texts_end_in_time_and_leave_no_memory_behind() {
    let mut scratch = Scratch::default();
    for bytes in [FAST_BYTES_MAX - 16, 1 << 20] {
        for (text, expected) in [
            (format!("[{}1]", "1,".repeat(bytes / 2)), Ok(())),
            (format!("[{}1e999]", "1,".repeat(bytes / 2)), Ok(())),
            (format!("[{}{{}}]", "{},".repeat(bytes / 3)), Ok(())),
            (format!("{{{}\"\":0}}", "\"\":0,".repeat(bytes / 5)), Ok(())),
            (format!("0.{}", "3".repeat(bytes)), Ok(())),
            ("3".repeat(bytes), Ok(())),
            (format!("\"{}\"", "\\\\".repeat(bytes / 2)), Ok(())),
            (format!("{}1", " ".repeat(bytes)), Ok(())),
            (format!("[1e999,{}", "[".repeat(bytes)), Err(JsonError::NotJson)),
            (format!("[1e999,{}{}]", "[".repeat(bytes), "]".repeat(bytes)), Err(JsonError::TooDeep)),
            (format!("{}{}", "[".repeat(bytes / 2), "]".repeat(bytes / 2)), Err(JsonError::TooDeep)),
        ] {
            assert_eq!(verdict(&mut scratch, text.as_bytes(), 128), expected);
            assert!(scratch.kept_bytes() <= 40 * FAST_BYTES_MAX, "{}", scratch.kept_bytes());
            scratch.release();
            assert!(scratch.kept_bytes() <= KEPT_BYTES_MAX, "{}", scratch.kept_bytes());
        }
    }
    // The fast reader stops at the limit, whatever follows.
    for text in ["[".repeat(1000), "{\"\":".repeat(1000)] {
        assert_eq!(verdict(&mut scratch, text.as_bytes(), 128), Err(JsonError::TooDeep));
    }
}
