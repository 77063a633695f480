use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::positions::GIVEN_OUT_MAX;
use super::queue::PARCELS_MAX;
use super::*;
use crate::access::limit::payer::Payer;
use crate::session::streams::tests::series;
use protocol::version::LegacyVersion;

const BYTES_MAX: usize = 64 * 1024;

struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn payer() -> Payer {
    Payer::principal("key:a")
}

fn outbox() -> Arc<SessionOutbox> {
    let streams = StreamBounds::new(series());
    streams.set_max(10, 10, BYTES_MAX);
    Arc::new(SessionOutbox::new(streams, payer()))
}

fn attach(outbox: &Arc<SessionOutbox>, has_several: bool) -> ReaderGuard {
    outbox.attach(has_several, |streams| streams.admit(Payer::principal("key:a"))).expect("a stream")
}

fn parcel(upstream: &str, id: &str, data: &str) -> OutboundMessage {
    OutboundMessage {
        upstream: upstream.into(),
        event_id: (!id.is_empty()).then(|| Bytes::copy_from_slice(id.as_bytes())),
        data: Bytes::copy_from_slice(data.as_bytes()),
        question: None,
    }
}

fn request(id: &str) -> OutboundMessage {
    OutboundMessage { question: Some(id.into()), ..parcel("a", "", id) }
}

fn question(outbox: &SessionOutbox, id: &str) {
    let session = Arc::new(UpstreamSession::new(None, LegacyVersion::NEWEST));
    let from = Addressee { upstream: "a".into(), session };
    assert!(outbox.put_question(id, UpstreamQuestion { from, inner_id: "1".into() }));
}

fn next(ticket: &ReaderGuard) -> Poll<Option<SentEvent>> {
    ticket.poll(&mut Context::from_waker(Waker::noop()))
}

/// Everything that can be had, each as `id:data`; an end is `end`.
fn read(ticket: &ReaderGuard) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        match next(ticket) {
            Poll::Pending => return all,
            Poll::Ready(None) => {
                all.push("end".to_owned());
                return all;
            }
            Poll::Ready(Some(handed)) => {
                let [id, data] = [handed.id.unwrap_or_default(), handed.data]
                    .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                all.push(format!("{id}:{data}"));
            }
        }
    }
}

fn counted(outbox: &SessionOutbox) -> [u64; 3] {
    let series = &outbox.streams.series;
    [&series.ended.taken_over, &series.ended.unread, &series.messages_dropped]
        .map(prometheus::IntCounter::get)
}

#[test]
fn what_comes_before_the_stream_waits_for_it() {
    let outbox = outbox();
    for number in ["1", "2", "3"] {
        outbox.deliver(parcel("a", number, number)).expect("room");
    }
    assert!(!outbox.has_client());
    let ticket = attach(&outbox, false);
    assert!(outbox.has_client());
    assert_eq!(read(&ticket), ["1:1", "2:2", "3:3"]);
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    assert!(ticket.poll(&mut Context::from_waker(&waker)).is_pending());
    outbox.deliver(parcel("a", "", "4")).expect("room");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    // What was not handed over stays.
    drop(ticket);
    assert!(!outbox.has_client());
    assert_eq!(read(&attach(&outbox, false)), [":4"]);
}

#[test]
fn a_newer_stream_takes_over() {
    let outbox = outbox();
    let old = attach(&outbox, false);
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    assert!(old.poll(&mut Context::from_waker(&Waker::from(Arc::clone(&woken)))).is_pending());
    let new = attach(&outbox, false);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    outbox.deliver(parcel("a", "", "1")).expect("room");
    assert_eq!(read(&old), ["end"]);
    drop(old);
    assert!(outbox.has_client());
    assert_eq!(read(&new), [":1"]);
    assert_eq!((counted(&outbox), outbox.streams.open()), ([1, 0, 0], 1));
}

#[test]
fn a_stream_may_take_over_the_last_place() {
    let outbox = outbox();
    outbox.streams.set_max(1, 1, BYTES_MAX);
    let _old = attach(&outbox, false);
    let _new = attach(&outbox, false);
    let other = Arc::new(SessionOutbox::new(Arc::clone(&outbox.streams), payer()));
    let refused = other.attach(false, |streams| streams.admit(Payer::principal("key:b")));
    assert_eq!(refused.err(), Some(NotAttached::TooMany));
    assert!(outbox.has_client() && !other.has_client());
}

#[test]
fn without_a_stream_notifications_go_first() {
    let outbox = outbox();
    outbox.deliver(request("q1")).expect("room");
    for number in 0..PARCELS_MAX + 9 {
        outbox.deliver(parcel("a", "", &number.to_string())).expect("room");
    }
    outbox.deliver(request("q2")).expect("room");
    assert_eq!(counted(&outbox), [0, 0, 11]);
    let all = read(&attach(&outbox, false));
    assert_eq!(all.len(), PARCELS_MAX);
    assert_eq!((&*all[0], &*all[1], all.last().map(String::as_str)), (":q1", ":11", Some(":q2")));
}

#[test]
fn requests_that_wait_are_bounded() {
    let outbox = outbox();
    for number in 0..QUESTIONS_MAX {
        outbox.deliver(request(&number.to_string())).expect("room");
    }
    assert_eq!(outbox.deliver(request("more")), Err(Undelivered::Full));
    outbox.deliver(parcel("a", "", "n")).expect("room");
    // Nor by their size, but for the only one.
    let outbox = self::outbox();
    let long = "x".repeat(BYTES_MAX);
    outbox.deliver(request(&long)).expect("the only one");
    assert_eq!(outbox.deliver(request("more")), Err(Undelivered::Full));
    assert_eq!(outbox.deliver(parcel("a", "", "n")), Err(Undelivered::Full));
    assert_eq!(read(&attach(&outbox, false)), [format!(":{long}")]);
}

#[test]
fn who_says_much_displaces_itself_first() {
    let outbox = outbox();
    outbox.deliver(parcel("b", "", "of b")).expect("room");
    for number in 0..2 * PARCELS_MAX {
        outbox.deliver(parcel("a", "", &number.to_string())).expect("room");
    }
    let all = read(&attach(&outbox, false));
    assert_eq!((all.len(), &*all[0]), (PARCELS_MAX, ":of b"));
}

#[test]
fn one_upstream_does_not_ask_everything() {
    let outbox = outbox();
    for number in 0..QUESTIONS_OF_ONE_MAX {
        question(&outbox, &number.to_string());
    }
    let expect = |upstream: &str| {
        let session = Arc::new(UpstreamSession::new(None, LegacyVersion::NEWEST));
        let from = Addressee { upstream: upstream.into(), session };
        outbox.put_question("more", UpstreamQuestion { from, inner_id: "1".into() })
    };
    assert!(!expect("a") && expect("b"));
}

#[test]
fn what_waits_for_all_is_bounded_and_keeps_nothing_from_who_reads() {
    let streams = StreamBounds::new(series());
    streams.set_max(10, 10, BYTES_MAX);
    let number = Cell::new(0);
    let outbox = || {
        number.set(number.get() + 1);
        let payer = Payer::principal(&format!("key:{}", number.get()));
        Arc::new(SessionOutbox::new(Arc::clone(&streams), payer))
    };
    let long = "x".repeat(BYTES_MAX);
    let full: Vec<_> = std::iter::repeat_with(&outbox)
        .take_while(|outbox| outbox.deliver(parcel("a", "", &long)).is_ok())
        .take(1000)
        .collect();
    assert!((200..257).contains(&full.len()), "{}", full.len());
    let reading = outbox();
    let ticket = attach(&reading, false);
    assert!(next(&ticket).is_pending());
    reading.deliver(parcel("a", "", &long)).expect("it is waited for");
    assert_eq!(read(&ticket), [format!(":{long}")]);
    drop(full);
    outbox().deliver(parcel("a", "", &long)).expect("room again");
    assert_eq!(streams.queued.taken(), 0);
}

#[test]
fn a_client_that_does_not_read_loses_its_stream() {
    let outbox = outbox();
    let ticket = attach(&outbox, false);
    outbox.deliver(request("q")).expect("room");
    let long = "x".repeat(BYTES_MAX / 4);
    for _ in 0..8 {
        outbox.deliver(parcel("a", "1", &long)).expect("room");
    }
    assert!(!outbox.has_client());
    assert_eq!(read(&ticket), ["end"]);
    assert_eq!((counted(&outbox)[1], outbox.streams.open()), (1, 0));
    // The request still waits, and the latest of the others.
    let all = read(&attach(&outbox, false));
    assert_eq!((all.len(), &*all[0]), (5, ":q"));
    assert_eq!(counted(&outbox), [0, 1, 4]);
}

#[test]
fn a_long_message_behind_another_is_no_flood() {
    let outbox = outbox();
    let ticket = attach(&outbox, false);
    let long = "x".repeat(2 * BYTES_MAX);
    outbox.deliver(parcel("a", "", "1")).expect("room");
    outbox.deliver(parcel("a", "", &long)).expect("room");
    assert!(outbox.has_client());
    assert_eq!(read(&ticket), [":1", &format!(":{long}")]);
}

#[test]
fn a_withdrawn_request_is_not_sent() {
    let outbox = outbox();
    for id in ["q1", "q2"] {
        question(&outbox, id);
        outbox.deliver(request(id)).expect("room");
    }
    assert!(outbox.take_question("q1").is_some());
    assert!(outbox.take_question("q1").is_none());
    assert_eq!(read(&attach(&outbox, false)), [":q2"]);
    assert_eq!(outbox.inner.lock().queue.requests, 0);
}

#[test]
fn an_ended_session_takes_nothing() {
    let outbox = outbox();
    let ticket = attach(&outbox, false);
    question(&outbox, "q");
    outbox.deliver(request("q")).expect("room");
    outbox.close();
    assert_eq!(read(&ticket), ["end"]);
    assert_eq!(outbox.deliver(request("q")), Err(Undelivered::Closed));
    assert!(outbox.take_question("q").is_none() && !outbox.has_client());
    let refused = outbox.attach(false, |streams| streams.admit(Payer::principal("key:a")));
    assert_eq!(refused.err(), Some(NotAttached::NoState(NoState::Ended)));
    assert_eq!(outbox.streams.open(), 0);
}

#[test]
fn one_upstream_s_ids_are_its_own() {
    let outbox = outbox();
    for number in 0..=GIVEN_OUT_MAX {
        outbox.deliver(parcel("a", &number.to_string(), "n")).expect("room");
    }
    let ticket = attach(&outbox, false);
    assert!(!outbox.has_given_out(b"5"));
    assert_eq!(read(&ticket)[5], "5:n");
    assert!(outbox.has_given_out(b"5") && outbox.has_given_out(b"1"));
    assert!(!outbox.has_given_out(b"0") && !outbox.has_given_out(b"p"));
}

#[test]
fn ids_of_several_upstreams_are_cursors() {
    let outbox = outbox();
    let long = "x".repeat(event_id::ID_BYTES_MAX + 1);
    for (upstream, id) in [("a", "1"), ("b", "x"), ("a", ""), ("", ""), ("a", "2"), ("b", &long)] {
        outbox.deliver(parcel(upstream, id, "n")).expect("room");
    }
    let ticket = attach(&outbox, true);
    let mut ids = Vec::new();
    while let Poll::Ready(Some(handed)) = next(&ticket) {
        ids.push(handed.id.map(|id| event_id::read(&id)));
    }
    let cursor = |last_ids: &[(&str, &'static str)]| {
        let last_ids = last_ids.iter().map(|(name, id)| ((*name).into(), Bytes::from_static(id.as_bytes())));
        Some(event_id::EventId::Get(last_ids.collect()))
    };
    let both = cursor(&[("a", "1"), ("b", "x")]);
    assert_eq!(ids, [cursor(&[("a", "1")]), both, None, None, cursor(&[("a", "2"), ("b", "x")]), None]);
}

#[test]
fn what_a_client_missed_is_repeated() {
    let outbox = outbox();
    let ids = |pairs: &[(&str, &'static str)]| {
        pairs.iter().map(|(name, id)| ((*name).into(), Bytes::from_static(id.as_bytes()))).collect::<Vec<_>>()
    };
    // Of another process: nothing is known of what came after.
    assert_eq!(outbox.resume(ids(&[("c", "7")])), ids(&[("c", "7")]));
    assert_eq!(outbox.resume(ids(&[("c", "7")])), []);
    for (upstream, id) in [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2")] {
        outbox.deliver(parcel(upstream, id, "n")).expect("room");
    }
    let ticket = attach(&outbox, true);
    for _ in 0..3 {
        assert!(next(&ticket).is_ready());
    }
    for (upstream, id) in [("a", "3"), ("b", "3"), ("a", "")] {
        outbox.deliver(parcel(upstream, id, "n")).expect("room");
    }
    // a's second event was handed over, but did not arrive; b's first was the last of b's.
    let last_ids = ids(&[("a", "1"), ("b", "1"), ("c", "7")]);
    assert_eq!(outbox.resume(last_ids), ids(&[("a", "1")]));
    let ticket = attach(&outbox, true);
    let mut handed = Vec::new();
    while let Poll::Ready(Some(next)) = next(&ticket) {
        handed.push(next.id.map(|id| event_id::read(&id)));
    }
    let cursor = |b| Some(event_id::EventId::Get(ids(&[("c", "7"), ("a", "1"), ("b", b)])));
    assert_eq!(handed, [cursor("2"), cursor("3"), None]);
}

#[test]
fn what_was_dropped_is_repeated() {
    let outbox = outbox();
    outbox.deliver(parcel("a", "1", "n")).expect("room");
    assert_eq!(read(&attach(&outbox, false)), ["1:n"]);
    for number in 0..=PARCELS_MAX {
        outbox.deliver(parcel("a", &format!("2.{number}"), "n")).expect("room");
    }
    let last = vec![("a".into(), Bytes::from_static(b"1"))];
    assert_eq!(outbox.resume(last.clone()), last);
    assert_eq!(read(&attach(&outbox, false)), [""; 0]);
    assert_eq!(outbox.resume(last), []);
}

#[test]
fn of_ids_alone_the_last_counts() {
    let outbox = outbox();
    for (upstream, id) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")] {
        outbox.deliver(parcel(upstream, id, "")).expect("room");
    }
    assert_eq!(read(&attach(&outbox, false)), ["2:", "2:"]);
}

/// What becomes of a client's stream.
type Ending = fn(&SessionOutbox, ReaderGuard);

#[test]
fn who_waits_for_room_goes_on_once_there_is_some_or_nobody_reads() {
    let endings: [(&str, Ending); 3] = [
        ("a message is taken", |_, ticket| assert!(next(&ticket).is_ready())),
        ("the client leaves", |_, ticket| drop(ticket)),
        ("the session ends", |outbox, ticket| {
            outbox.close();
            drop(ticket);
        }),
    ];
    for (why, end) in endings {
        let outbox = outbox();
        let ticket = attach(&outbox, false);
        for number in 0..PARCELS_MAX {
            let room = std::pin::pin!(outbox.room());
            assert!(room.poll(&mut Context::from_waker(Waker::noop())).is_ready(), "{number}");
            outbox.deliver(parcel("a", "", "x")).expect("room");
        }
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut room = std::pin::pin!(outbox.room());
        assert!(room.as_mut().poll(&mut cx).is_pending(), "{why}");
        end(&outbox, ticket);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "{why}");
        assert!(room.as_mut().poll(&mut cx).is_ready(), "{why}");
    }
}
