//! Streams in all their spellings, and the HTML standard's algorithm to compare with.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Reads a whole stream, given in chunks. Also gives what was left at the end.
fn read(chunks: &[&[u8]]) -> (Vec<Event>, Bytes) {
    let mut events = Events::new(1000);
    let mut found = Vec::new();
    for chunk in chunks {
        events.push(Bytes::copy_from_slice(chunk));
        while let Some(event) = events.next() {
            found.push(event.unwrap());
        }
    }
    found.extend(events.finish());
    (found, events.rest())
}

type Fields = (Option<String>, Option<String>, Option<String>);

fn fields(event: &Event) -> Fields {
    let text = |field: &Option<Bytes>| field.as_ref().map(|field| String::from_utf8(field.to_vec()).unwrap());
    (text(&event.data), text(&event.event), text(&event.id))
}

/// The HTML standard's algorithm on a complete text: the fields of each event that has data.
fn reference(text: &str) -> Vec<Fields> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut fields: Fields = Default::default();
    let Some((lines, _unfinished)) = text.rsplit_once('\n') else { return events };
    for line in lines.split('\n') {
        if line.is_empty() {
            events.extend(Some(std::mem::take(&mut fields)).filter(|(data, ..)| data.is_some()));
            continue;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => fields.0 = Some(fields.0.map_or(value.to_owned(), |data| data + "\n" + value)),
            "event" => fields.1 = Some(value.to_owned()),
            "id" if !value.contains('\0') => fields.2 = Some(value.to_owned()),
            _ => {}
        }
    }
    events
}

#[test]
fn events_are_cut_and_read() {
    let stream = "\u{feff}data: a\n\n: ping\n\nevent: e\nid: 7\ndata:b\ndata\ndata:  c\nx: y\n\n\r\ndata: d\r\n\r\ndata:e\r\rid: 1\0\ndata:\n\nrest";
    let (events, rest) = read(&[stream.as_bytes()]);
    let some = |text: &str| Some(text.to_owned());
    let expected = [
        ("\u{feff}data: a\n\n", (some("a"), None, None)),
        (": ping\n\n", (None, None, None)),
        ("event: e\nid: 7\ndata:b\ndata\ndata:  c\nx: y\n\n", (some("b\n\n c"), some("e"), some("7"))),
        ("\r", (None, None, None)),
        ("\ndata: d\r\n\r\n", (some("d"), None, None)),
        ("data:e\r\r", (some("e"), None, None)),
        ("id: 1\0\ndata:\n\n", (some(""), None, None)),
    ];
    let found: Vec<_> =
        events.iter().map(|event| (std::str::from_utf8(&event.raw).unwrap(), fields(event))).collect();
    assert_eq!(found, expected);
    assert_eq!(rest, "rest");
}

#[test]
fn an_event_is_given_out_with_its_last_byte() {
    for (stream, early) in
        [("data: x\n\n", true), ("data: x\r\n\r\n", true), ("data: x\r\r", true), ("x\r\n\r", false)]
    {
        let mut events = Events::new(100);
        events.push(Bytes::from(stream));
        assert_eq!(events.next().is_some(), early, "{stream:?}");
        assert_eq!(events.finish().is_some(), !early);
        assert_eq!((events.finish(), events.rest()), (None, Bytes::new()));
    }
}

#[test]
fn comments_begin_no_message() {
    for (chunks, has_begun) in [
        (&[""][..], false),
        (&[":", " still here\n", ":\r", "\n"], false),
        (&[": a\n", "d"], true),
        (&["data: x\n\n", ":"], false),
        (&["\n", "da", "ta"], true),
        (&["id: 1\n", ":"], true),
    ] {
        let mut events = Events::new(100);
        for chunk in chunks {
            events.push(Bytes::from(*chunk));
            while events.next().is_some() {}
        }
        assert_eq!(events.has_begun(), has_begun, "{chunks:?}");
    }
}

#[test]
fn an_event_in_one_chunk_is_not_copied() {
    let chunk = Bytes::from(b"data: 1\n\ndata: 2\n\n".to_vec());
    let mut events = Events::new(100);
    events.push(chunk.clone());
    for start in [0, 9] {
        let event = events.next().unwrap().unwrap();
        assert_eq!(event.raw.as_ptr(), chunk[start..].as_ptr());
        assert_eq!(event.data.unwrap().as_ptr(), chunk[start + 6..].as_ptr());
    }
    assert_eq!(events.next(), None);
}

#[test]
fn plain_events_come_in_runs() {
    for (stream, run) in [
        ("data: a\n\nevent: message\ndata: aa\n\ndata: a\n\nid: 1\ndata: a\n\n", 3),
        ("data: a\n\ndata: b\n\ndata: a\n\n", 1),
        ("data: a\n\ndata: a\n", 1),
        ("data: a\n\ndata: a\ndata: a\n\n", 1),
        ("data: a\n\ndata: a\r\n\r\n", 1),
        ("data: a\n\ndata: a1234567890123456789\n\n", 1),
        (": ping\n\ndata: a\n\n", 0),
        ("event: e\ndata: a\n\n", 0),
        ("data:a\n\n", 0),
    ] {
        let mut events = Events::new(26);
        events.push(Bytes::copy_from_slice(stream.as_bytes()));
        let bytes = events.next_run(|data| data.starts_with(b"a")).unwrap_or_default();
        assert!(stream.as_bytes().starts_with(&bytes), "{stream:?}");
        assert_eq!(read(&[&bytes]).0.len(), run, "{stream:?}");
        assert_eq!(events.next_run(|_| false), None, "{stream:?}");
    }
    let mut events = Events::new(26);
    events.push(Bytes::from_static(b"data: a\nda"));
    assert!(events.next_run(|_| true).is_none() && events.next().is_none());
    events.push(Bytes::from_static(b"ta: b\n\ndata: c\n\n"));
    assert!(events.next_run(|_| true).is_none(), "it stands within an event");
    assert_eq!(events.next().and_then(Result::ok).and_then(|event| event.data), Some("a\nb".into()));
    assert_eq!(events.next_run(|_| true), Some("data: c\n\n".into()));
}

#[test]
fn the_size_of_an_event_is_limited() {
    for chunk_length in [1, 3, 100] {
        for (stream, good) in
            [("data: 12\n\ndata: 12\n\n", 2), ("data: 1\n\ndata: 123\n\n", 1), ("data: 12345678", 0)]
        {
            let mut events = Events::new(10);
            let mut results = Vec::new();
            for chunk in stream.as_bytes().chunks(chunk_length) {
                events.push(Bytes::copy_from_slice(chunk));
                results.extend(std::iter::from_fn(|| events.next()));
            }
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), good, "{stream:?}");
            assert_eq!(results.iter().filter(|result| result.is_err()).count(), usize::from(good < 2));
            assert_eq!(results.last().is_some_and(Result::is_err), good < 2);
        }
    }
}

#[test]
fn an_event_that_was_made_of_its_data_is_framed_when_it_is_written() {
    let made = Event::of(Bytes::from_static(b"{}"));
    assert_eq!(made.bytes(), "data: {}\n\n");
    assert_eq!(made.with_data(Bytes::from_static(b"[1]")), "data: [1]\n\n");
    assert_eq!(made.with(None, Some(b"7")), "data: {}\n\n", "there is no id to replace");
    assert_eq!(Event::comment().bytes(), ":\n\n");
    let (events, _) = read(&[b"event: x\ndata: {}\n\n"]);
    assert_eq!(events[0].bytes(), "event: x\ndata: {}\n\n");
}

#[test]
fn data_can_be_replaced() {
    for (stream, data, expected) in [
        ("data: a\n\n", "b", "data: b\n\n"),
        (
            "id: 1\r\ndata:a\r\n:c\r\ndata:b\r\nevent: e\r\n\r\n",
            "x",
            "id: 1\r\ndata: x\r\n:c\r\nevent: e\r\n\r\n",
        ),
        ("\u{feff}data\r\r", "x", "\u{feff}data: x\r\r"),
        ("data: a\rdata: b\n\n", "x", "data: x\r\r"),
        ("data: a\n\n", "1\r2\r\n3\n", "data: 1\ndata: 2\ndata: 3\ndata: \n\n"),
        (": comment\n\n", "x", ": comment\n\n"),
    ] {
        let (events, _) = read(&[stream.as_bytes()]);
        assert_eq!(events[0].with_data(Bytes::from(data)), expected);
    }
    assert_eq!(data_event(Bytes::from("{}")), "data: {}\n\n");
    assert_eq!(data_event(Bytes::from("{\n}")), "data: {\ndata: }\n\n");
}

#[test]
fn ids_can_be_replaced() {
    for (stream, id, expected) in [
        ("id: 1\ndata: a\n\n", "p.x.1", "id: p.x.1\ndata: a\n\n"),
        ("id:1\r\ndata: a\r\nid: 2\r\n\r\n", "9", "id: 9\r\ndata: a\r\n\r\n"),
        ("data: a\n\n", "9", "data: a\n\n"),
        ("id: 1\n\n", "", "id: \n\n"),
    ] {
        let (events, _) = read(&[stream.as_bytes()]);
        assert_eq!(events[0].with(None, Some(id.as_bytes())), expected);
    }
    let (events, _) = read(&[b"retry: 5\nid: 1\ndata: a\n\n"]);
    let both = events[0].with(Some(Bytes::from("b").into()), Some(b"2"));
    assert_eq!(both, "retry: 5\nid: 2\ndata: b\n\n");
}

fn stream() -> impl Strategy<Value = String> {
    let pieces: &'static [&str] = &[
        "data: ", "data", ":", "event: e", "id: 1", "\n", "\n\n", "\r", "\r\n", "\r\n\r\n", "x", " ", "\0",
        "é",
    ];
    let body = prop::collection::vec(select(pieces), 0..30).prop_map(|pieces| pieces.concat());
    (prop_oneof![4 => Just(""), 1 => Just("\u{feff}")], body).prop_map(|(bom, body)| bom.to_owned() + &body)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn chunks_do_not_matter(stream in stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let whole = read(&[stream.as_bytes()]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream.as_bytes()[cut[0]..cut[1]]).collect();
        prop_assert_eq!(&read(&chunks), &whole);
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        prop_assert_eq!(&read(&bytes), &whole);

        let (events, rest) = whole;
        let mut joined: Vec<u8> = events.iter().flat_map(|event| event.raw.to_vec()).collect();
        joined.extend_from_slice(&rest);
        prop_assert_eq!(joined, stream.as_bytes());
        let with_data: Vec<_> = events.iter().filter(|event| event.data.is_some()).map(fields).collect();
        prop_assert_eq!(with_data, reference(&stream));
    }

    /// What is passed on in runs are the same events, and what comes after them is read as ever.
    #[test]
    fn runs_change_nothing(stream in stream(), cut in any::<prop::sample::Index>()) {
        let (start, end) = stream.as_bytes().split_at(cut.index(stream.len() + 1));
        let mut events = Events::new(1000);
        let mut found = Vec::new();
        for chunk in [start, end] {
            events.push(Bytes::copy_from_slice(chunk));
            loop {
                if let Some(run) = events.next_run(|data| !data.is_empty()) {
                    let (of_run, rest) = read(&[&run]);
                    prop_assert!(rest.is_empty());
                    found.extend(of_run);
                } else if let Some(event) = events.next() {
                    found.push(event.unwrap());
                } else {
                    break;
                }
            }
        }
        found.extend(events.finish());
        let (expected, rest) = read(&[start, end]);
        prop_assert_eq!(found, expected);
        prop_assert_eq!(events.rest(), rest);
    }

    #[test]
    fn replaced_data_is_read_back(stream in stream(), data in "[a-z\n]{0,9}") {
        let mut replaced = Vec::new();
        let mut expected = reference(&stream);
        for event in read(&[stream.as_bytes()]).0 {
            replaced.extend_from_slice(&event.with_data(Bytes::from(data.clone())));
        }
        for (old, ..) in &mut expected {
            *old = Some(data.clone());
        }
        prop_assert_eq!(reference(std::str::from_utf8(&replaced).unwrap()), expected);
        let event = data_event(Bytes::from(data.clone()));
        prop_assert_eq!(reference(std::str::from_utf8(&event).unwrap()), [(Some(data), None, None)]);
    }

    #[test]
    fn an_event_put_in_at_a_boundary_disturbs_nothing(stream in stream()) {
        let stream = stream.trim_start_matches('\u{feff}');
        let mut boundary = Boundary::default();
        for (at, char) in stream.char_indices() {
            let (before, after) = stream.split_at(at);
            if boundary.at_boundary() {
                let count = reference(before).len();
                let mut with = reference(&format!("{before}data: mine\n\n{after}"));
                prop_assert_eq!(with.remove(count), (Some("mine".to_owned()), None, None));
                prop_assert_eq!(with, reference(stream));
            }
            prop_assert_eq!(boundary.at_boundary(), before.is_empty() || is_between(before), "{:?}", before);
            boundary.push(&stream.as_bytes()[at..at + char.len_utf8()]);
        }
    }
}

/// Whether a text ends with a blank line, or is nothing but blank lines.
fn is_between(text: &str) -> bool {
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    lines.ends_with("\n\n") || lines == "\n"
}

#[test]
fn an_event_that_is_too_large_passes_and_the_next_is_read() {
    let long = "x".repeat(40);
    for end in ["\n", "\r", "\r\n"] {
        let text = format!(
            "data: a{end}{end}event: message{end}data: {long}{end}data: y{end}{end}data: b{end}{end}data: c{end}{end}"
        );
        for size in [1, 7, text.len()] {
            let mut events = Events::new(30);
            let (mut kept, mut passed, mut data) = (Vec::new(), 0, DataScan::default());
            let mut said = Vec::new();
            let mut is_passing = false;
            for chunk in text.as_bytes().chunks(size) {
                events.push(Bytes::copy_from_slice(chunk));
                loop {
                    if is_passing {
                        let Some((piece, is_end)) = events.pass() else { break };
                        data.push(&piece, |text| said.extend_from_slice(text));
                        passed += usize::from(is_end);
                        is_passing = !is_end;
                        continue;
                    }
                    match events.next() {
                        Some(Ok(event)) => kept.extend(event.data),
                        Some(Err(SseError::TooLarge)) => is_passing = true,
                        None => break,
                    }
                }
            }
            kept.extend(events.finish().and_then(|event| event.data));
            assert_eq!((kept, passed), (["a", "b", "c"].map(Bytes::from).to_vec(), 1), "{end:?} {size}");
            assert_eq!(String::from_utf8_lossy(&said), format!(" {long} y"), "{end:?} {size}");
        }
    }
}

#[test]
fn an_event_may_be_given_up_before_it_is_too_large() {
    let mut events = Events::new(100);
    events.push(Bytes::from("data: begun"));
    assert!(events.next().is_none());
    events.give_up();
    assert!(events.next().is_none());
    assert_eq!(events.pass(), Some((Bytes::from("data: begun"), false)));
    assert_eq!(events.pass(), None);
    events.push(Bytes::from(" and ended\n\ndata: next\n\n"));
    assert_eq!(events.pass(), Some((Bytes::from(" and ended\n\n"), true)));
    assert_eq!(events.next().and_then(Result::ok).and_then(|event| event.data), Some(Bytes::from("next")));
}
