use std::time::Duration;

use super::notices::{LIST_INTERVAL, prefixes};
use super::*;
use crate::access::caller::Caller;
use crate::identity::Principal;
use crate::snapshot::Snapshot;
use crate::telemetry::callers::CallerRegistry;
use crate::telemetry::metrics::Metrics;
use protocol::subscription::Acknowledged;

const CONFIG: &str = r#"
    [listener]
    address = "127.0.0.1:0"
    [[endpoint]]
    path = "/mcp"
    upstreams = ["up"]
    [upstream.up]
    url = "http://127.0.0.1:1/"
"#;

fn feed() -> (Arc<Feed>, impl Fn() -> Arc<Inbox>) {
    let (feed, inbox_of) = feed_and_payers();
    (feed, move || inbox_of("one"))
}

/// A feed, and inboxes for which these principals pay.
fn feed_and_payers() -> (Arc<Feed>, impl Fn(&str) -> Arc<Inbox>) {
    let metrics = Metrics::new(10).expect("metrics");
    let config = config::parse(CONFIG).expect("a configuration");
    let snapshot = Snapshot::build(&config, &metrics, None).expect("a snapshot");
    let endpoint = Arc::clone(&snapshot.endpoints[0]);
    let counts = CallerRegistry::default().of(&Principal::Anonymous);
    let class = endpoint.policy.class_of(&Principal::Anonymous);
    let caller = Caller::new(Principal::Anonymous, class, None, counts);
    let inbox_of = move |who: &str| Inbox::new(&endpoint, &caller, Payer::principal(who), None);
    (Feed::new(Arc::clone(&snapshot.upstreams[0]), None), inbox_of)
}

fn uri(inner: &str) -> WantedName<'_> {
    WantedName { index: 0, is_task: false, inner }
}

fn honouring(uris: &[&str]) -> Acknowledged {
    Acknowledged { uris: uris.iter().map(|uri| (*uri).into()).collect(), ..Acknowledged::default() }
}

fn asked(feed: &Feed) -> Vec<String> {
    let mut uris: Vec<String> = feed.ask(Lane::Names).uris.iter().map(ToString::to_string).collect();
    uris.sort();
    uris
}

fn offer(feed: &Feed, name: &str) -> OfferState {
    let mut found = None;
    feed.offers([uri(name)].into_iter(), |_, offer| found = Some(offer));
    found.expect("an offer")
}

#[test]
fn what_nobody_wants_any_more_is_carried_until_the_next_stream() {
    let (feed, inbox) = feed();
    let now = clock::now();
    let key = feed.join(inbox(), 0, Lists::default(), &[uri("a")]);
    feed.join(inbox(), 0, Lists::default(), &[uri("b")]);
    assert!(feed.need(Lane::Names).has_pending && !feed.need(Lane::Lists).is_wanted);
    feed.settle(&feed.ask(Lane::Names), &honouring(&["a", "b"]), false, now);
    feed.leave(key, [uri("a")].into_iter());
    let need = feed.need(Lane::Names);
    assert!(need.has_unwanted && need.is_wanted && !need.has_pending, "{need:?}");
    let key = feed.join(inbox(), 0, Lists::default(), &[uri("a")]);
    assert_eq!(offer(&feed, "a"), OfferState::Honoured);
    feed.leave(key, [uri("a")].into_iter());
    assert_eq!(asked(&feed), ["b"]);
    assert!(!feed.need(Lane::Names).has_unwanted);
}

#[test]
fn what_is_refused_is_not_asked_again_at_once() {
    let (feed, inbox) = feed();
    let now = clock::now();
    feed.join(inbox(), 0, Lists::default(), &[uri("a"), uri("b")]);
    feed.settle(&feed.ask(Lane::Names), &honouring(&["b"]), false, now);
    feed.join(inbox(), 0, Lists::default(), &[uri("a")]);
    assert_eq!(asked(&feed), ["b"]);
    // A union that is refused for what is new in it.
    let later = now + Duration::from_mins(1);
    feed.join(inbox(), 0, Lists::default(), &[uri("c")]);
    assert!(feed.refuse(Lane::Names, later));
    assert_eq!((offer(&feed, "b"), offer(&feed, "c")), (OfferState::Honoured, OfferState::Refused(later)));
    // An upstream that takes none at all.
    assert!(!feed.refuse(Lane::Names, later));
    feed.join(inbox(), 0, Lists::default(), &[uri("d")]);
    assert_eq!(offer(&feed, "d"), OfferState::Refused(later));
    assert!(!feed.need(Lane::Names).has_pending);
    feed.ask_everything(Lane::Names);
    assert_eq!(asked(&feed), ["a", "b", "c", "d"]);
}

#[test]
fn only_what_was_promised_is_made_good() {
    let (feed, inbox) = feed();
    let now = clock::now();
    let (promised, waiting) = (inbox(), inbox());
    promised.set_acknowledged();
    for inbox in [&promised, &waiting] {
        feed.join(Arc::clone(inbox), 0, Lists::one(1), &[uri("a")]);
    }
    let told = |inbox: &Inbox| inbox.take().1.has_changed(0);
    let ask = feed.ask(Lane::Names);
    feed.settle(&ask, &honouring(&["a"]), false, now);
    assert_eq!([told(&promised), told(&waiting)], [true, false]);
    feed.settle(&ask, &honouring(&["a"]), false, now);
    assert_eq!([told(&promised), told(&waiting)], [false, false]);
    feed.settle(&ask, &honouring(&[]), true, now);
    assert_eq!([told(&promised), told(&waiting)], [true, true]);
    let lists = Acknowledged { lists: Lists::one(1), ..Acknowledged::default() };
    assert_eq!(feed.settle(&feed.ask(Lane::Lists), &lists, false, now), Lists::one(1));
    assert!(feed.settle(&feed.ask(Lane::Lists), &lists, false, now).is_empty());
    assert_eq!(feed.settle(&feed.ask(Lane::Lists), &lists, true, now), Lists::one(1));
}

#[test]
fn a_list_is_told_at_intervals_and_its_last_change_is_not_lost() {
    let (feed, inbox) = feed();
    let inbox = inbox();
    feed.join(Arc::clone(&inbox), 0, Lists::one(0), &[]);
    let start = clock::now();
    let told = || inbox.take().0.has(0);
    feed.list_changed(0, &[], start);
    assert!(told());
    feed.list_changed(0, &[], start + LIST_INTERVAL / 2);
    feed.list_changed(0, &[], start + LIST_INTERVAL / 2);
    assert!(!told());
    assert_eq!(feed.release(start + LIST_INTERVAL / 2), Some(start + LIST_INTERVAL));
    assert_eq!(feed.release(start + LIST_INTERVAL), None);
    assert!(told());
    assert_eq!(feed.release(start + LIST_INTERVAL * 3), None);
    assert!(!told());
}

#[test]
fn a_resource_is_part_of_what_stands_before_a_slash() {
    for (uri, expected) in [("f:/a/b", &["f:/a/", "f:/a", "f:/", "f:"][..]), ("a/", &["a"]), ("urn:x", &[])] {
        assert_eq!(prefixes(uri).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn nobody_takes_every_name_of_an_upstream() {
    let (feed, inbox_of) = feed_and_payers();
    let names: Vec<String> = (0..NAMES_MAX).map(|number| number.to_string()).collect();
    let greedy: Vec<WantedName<'_>> = names.iter().map(|name| uri(name)).collect();
    for _ in 0..2 {
        let key = feed.join(inbox_of("greedy"), 0, Lists::default(), &greedy);
        let again = feed.join(inbox_of("greedy"), 0, Lists::default(), &[uri("x:one-more")]);
        assert_eq!(asked(&feed).len(), NAMES_MAX / 4, "in one subscription or in another");
        feed.leave(again, [uri("x:one-more")].into_iter());
        let other = feed.join(inbox_of("other"), 0, Lists::default(), &[uri("x:other")]);
        assert_eq!(offer(&feed, "x:other"), OfferState::Pending);
        feed.leave(key, greedy.iter().copied());
        assert_eq!(asked(&feed), ["x:other"]);
        feed.leave(other, [uri("x:other")].into_iter());
        assert!(asked(&feed).is_empty());
    }
}

#[test]
fn many_who_take_all_the_names_they_can_leave_some_for_one_more() {
    let (feed, inbox_of) = feed_and_payers();
    for number in 0..40 {
        let names: Vec<String> = (0..NAMES_MAX / 4).map(|name| format!("{number}/{name}")).collect();
        let names: Vec<WantedName<'_>> = names.iter().map(|name| uri(name)).collect();
        feed.join(inbox_of(&number.to_string()), 0, Lists::default(), &names);
    }
    let taken = asked(&feed).len();
    assert!((NAMES_MAX - NAMES_MAX / 8..NAMES_MAX).contains(&taken), "{taken}");
    feed.join(inbox_of("one more"), 0, Lists::default(), &[uri("x:other")]);
    assert_eq!(offer(&feed, "x:other"), OfferState::Pending);
    // What others want already is had by all.
    feed.join(inbox_of("0"), 0, Lists::default(), &[uri("x:other")]);
    assert_eq!(asked(&feed).len(), taken + 1);
}

#[test]
fn a_stream_that_is_parted_with_leaves_no_gap_while_it_is_read() {
    let (feed, inbox) = feed();
    let now = clock::now();
    let promised = inbox();
    promised.set_acknowledged();
    let told = || promised.take().1.has_changed(0);
    feed.join(Arc::clone(&promised), 0, Lists::default(), &[uri("a")]);
    let settle = || feed.settle(&feed.ask_for(&mut feed.take_suspects()), &honouring(&["a"]), false, now);
    settle();
    assert!(told(), "it was promised before the upstream agreed");
    for is_still_read in [true, false] {
        let stream = feed.begin_stream();
        assert!(feed.part_with_stream(stream));
        if !is_still_read {
            feed.end_parted_stream(stream);
        }
        assert_eq!(offer(&feed, "a"), OfferState::Pending);
        settle();
        assert_eq!(offer(&feed, "a"), OfferState::Honoured);
        assert_eq!(told(), !is_still_read);
    }
    let stream = feed.begin_stream();
    feed.lose_stream(stream);
    settle();
    assert!(told());
}
