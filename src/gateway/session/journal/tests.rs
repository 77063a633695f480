use super::*;

const A: SessionId = SessionId(0xa << 100);
const B: SessionId = SessionId(0xb << 100);

fn opened(id: Option<&'static str>) -> UpstreamSession {
    UpstreamSession::new(id.map(HeaderValue::from_static), LegacyVersion::V2025_06_18)
}

fn text(records: &[JournalRecord<'_>]) -> String {
    records.iter().map(|record| record.line().expect("a line")).collect()
}

fn read(text: impl AsRef<[u8]>, now_s: u64) -> Replay {
    Replay::read(text.as_ref(), now_s).expect("memory")
}

fn session(expires_s: u64, level: Option<Level>, upstreams: &[(&str, UpstreamSession)]) -> ReplayedSession {
    let upstreams = upstreams.iter().map(|(name, opened)| ((*name).into(), opened.clone())).collect();
    ReplayedSession { expires_s, level, upstreams, subscribed: SubscribedUris::default(), given: None }
}

#[test]
fn the_replica_that_knows_it_is_kept() {
    for (id, replica, kept) in [
        (Some("one"), Some(ReplicaKey(u64::MAX)), Some(ReplicaKey(u64::MAX))),
        (Some("one"), Some(ReplicaKey(0)), Some(ReplicaKey(0))),
        (Some("one"), None, None),
        (None, Some(ReplicaKey(7)), None),
    ] {
        let opened = opened(id).at(replica);
        let record = JournalRecord::Opened { session: A, expires_s: 100, upstream: "x", opened: &opened };
        let replay = read(text(&[record]), 1);
        assert_eq!(replay.sessions[&A].upstreams["x"].replica, kept, "{id:?} {replica:?}");
    }
}

#[test]
fn the_last_word_counts() {
    let (one, two, none) = (opened(Some("one =?")), opened(Some("two")), opened(None));
    let open =
        |session, upstream, opened| JournalRecord::Opened { session, expires_s: 100, upstream, opened };
    let lost = |session, upstream| JournalRecord::Lost { session, upstream };
    let ended = |session| JournalRecord::Ended { session, expires_s: 100 };
    let level = |session, level| JournalRecord::Level { session, expires_s: 100, level };
    let subscribed = |upstream, uri| JournalRecord::Subscribed { session: A, expires_s: 100, upstream, uri };
    let unsubscribed = |upstream, uri| JournalRecord::Unsubscribed { session: A, upstream, uri };
    let own = SessionId::own(LegacyVersion::NEWEST);
    for (name, records, sessions, revoked) in [
        ("opened", vec![open(A, "x", &one)], vec![(A, session(100, None, &[("x", one.clone())]))], vec![]),
        (
            "opened again",
            vec![open(A, "x", &one), lost(A, "x"), open(A, "x", &two), open(A, "y", &none)],
            vec![(A, session(100, None, &[("x", two.clone()), ("y", none.clone())]))],
            vec![],
        ),
        ("lost", vec![open(A, "x", &one), lost(A, "x")], vec![], vec![]),
        (
            "level",
            vec![level(A, Level::Info), level(A, Level::Error), lost(A, "x")],
            vec![(A, session(100, Some(Level::Error), &[]))],
            vec![],
        ),
        (
            "subscribed",
            vec![
                subscribed("x", "u v"),
                subscribed("x", "w"),
                unsubscribed("x", "w"),
                unsubscribed("y", "u v"),
            ],
            vec![(A, {
                let mut replayed = session(100, None, &[]);
                replayed.subscribed.add("x", "u v", 1).expect("room");
                replayed
            })],
            vec![],
        ),
        ("unsubscribed", vec![subscribed("x", "u v"), unsubscribed("x", "u v")], vec![], vec![]),
        (
            "ended",
            vec![open(A, "x", &one), ended(A), open(A, "y", &two), level(A, Level::Info)],
            vec![],
            vec![A],
        ),
        (
            "dropped and used again",
            vec![open(A, "x", &one), JournalRecord::Dropped { session: A }, open(A, "y", &two)],
            vec![(A, session(100, None, &[("y", two.clone())]))],
            vec![],
        ),
        (
            "several",
            vec![open(A, "x", &one), ended(B), open(own, "x", &none)],
            vec![
                (A, session(100, None, &[("x", one.clone())])),
                (own, session(100, None, &[("x", none.clone())])),
            ],
            vec![B],
        ),
    ] {
        let replay = read(text(&records), 50);
        let expected = Replay {
            tasks: HashMap::new(),
            sessions: sessions.into_iter().collect(),
            revoked: revoked.into_iter().map(|session| (session, 100)).collect(),
            lines_skipped: 0,
        };
        assert_eq!(replay, expected, "{name}");
        assert_eq!(read(replay.lines().collect::<String>(), 50), expected, "{name}, written anew");
        assert_eq!(read(text(&records), 100), Replay::default(), "{name}, expired");
    }
}

#[test]
fn damage_costs_the_damaged_lines_only() {
    let one = opened(Some("one"));
    let first = JournalRecord::Opened { session: A, expires_s: 100, upstream: "x", opened: &one };
    let last = JournalRecord::Ended { session: B, expires_s: 100 };
    let (first, last) = (text(&[first]).into_bytes(), text(&[last]).into_bytes());
    let whole = read([&*first, &last].concat(), 0);
    assert_eq!((whole.sessions.len(), whole.revoked.len()), (1, 1));
    for garbage in [&b"\xff\xfe\0"[..], b"00000000 ended 1 2", b"no such thing", b" ", &vec![b'x'; 1 << 20]] {
        let replay = read([&*first, garbage, b"\n\n", &last].concat(), 0);
        assert_eq!(replay, Replay { lines_skipped: 1, ..read([&*first, &last].concat(), 0) });
    }
    for end in 1..last.len() {
        let replay = read([&*first, &last[..end]].concat(), 0);
        assert_eq!((replay.sessions.len(), replay.revoked.len(), replay.lines_skipped), (1, 0, 1), "{end}");
    }
    for byte in 0..first.len() - 1 {
        let mut damaged = first.clone();
        damaged[byte] ^= 1;
        assert!(read(&damaged, 0).sessions.is_empty(), "byte {byte}");
    }
}

fn task(owner: u64, expires_s: u64, session: Option<SessionId>) -> tasks::TaskRecord {
    let origin = Origin { session, tool: "a tool".into() };
    tasks::TaskRecord { owner: TaskOwner(owner), expires_s, origin }
}

#[test]
fn tasks_are_kept_until_they_expire() {
    let (one, two) = ([1; 16], [0xff; 16]);
    let (first, second) = (task(0, 10, None), task(u64::MAX, 20, Some(A)));
    let lines = task_line(&one, &first) + &task_line(&two, &second);
    let replay = read(&lines, 5);
    assert_eq!(replay.lines_skipped, 0);
    assert_eq!(replay.tasks, [(one, first.clone()), (two, second.clone())].into());
    let again: String = replay.lines().collect();
    assert_eq!(read(again, 10).tasks, [(two, second)].into());
    assert_eq!(read_task(lines.as_bytes(), &one), Some(first));
    assert_eq!(read_task(lines.as_bytes(), &[7; 16]), None);
    let mut replay = read(&lines, 5);
    replay.drop_tasks_beyond(1);
    assert_eq!(replay.tasks.keys().collect::<Vec<_>>(), [&two]);
}

#[test]
fn a_task_that_an_older_version_wrote_is_known() {
    let line = with_checksum(format!("00000000 task {:032x} 10 - =", 7)).expect("a line");
    let replay = read(line, 5);
    let kept = replay.tasks.values().map(|task| (task.owner, task.expires_s));
    assert_eq!((kept.collect::<Vec<_>>(), replay.lines_skipped), (vec![(TaskOwner(0), 10)], 0));
}

#[test]
fn as_many_tasks_are_read_as_may_be() {
    let of = |bytes: std::ops::Range<u8>, owner, expires_s| {
        bytes.map(|byte| task_line(&[byte; 16], &task(owner, expires_s, None))).collect::<String>()
    };
    let mut replay = read(of(0..5, 1, 10), 5);
    replay.drop_tasks_beyond(3);
    assert_eq!(replay.tasks.len(), 3, "though all end in the same second");
    let mut replay = read(of(0..5, 1, 99) + &of(5..7, 2, 10), 5);
    replay.drop_tasks_beyond(4);
    let of_other = replay.tasks.values().filter(|task| task.owner == TaskOwner(2)).count();
    assert_eq!((replay.tasks.len(), of_other), (4, 2), "who has most loses first, however long they live");
}

#[test]
fn what_no_line_can_hold_is_not_written() {
    let id = HeaderValue::from_str(&"x".repeat(UPSTREAM_ID_BYTES_MAX + 1)).expect("a value");
    let opened = UpstreamSession::new(Some(id), LegacyVersion::NEWEST);
    assert!(
        JournalRecord::Opened { session: A, expires_s: 1, upstream: "x", opened: &opened }.line().is_none()
    );
}
