//! The cases that each place for records has to pass: this store, and what several gateways share.
//!
//! A place is given as [`Records`], and an empty one is made for each case. All use a clock of their own, [`NOW_S`], so a
//! place that keeps time by itself has to be told seconds that are far from over.

use std::future::Future;

use crate::batch::Swept;
use crate::change::{Change, Changes, Expected, Outcome};
use crate::error::StoreError;
use crate::name::Name;
use crate::reader::Page;
use crate::record::{NEVER_S, NewRecord, Record, VALUE_BYTES_MAX};
use crate::store::Store;

/// The present of all cases, a Unix second: 2100-01-01.
pub const NOW_S: u64 = 4_102_444_800;

/// A place for records.
pub trait Records {
    /// As [`Store::read`].
    fn read(&self, name: Name, now_s: u64) -> impl Future<Output = Result<Option<Record>, StoreError>>;
    /// As [`Store::commit`].
    fn commit(&self, changes: Changes, now_s: u64) -> impl Future<Output = Result<Outcome, StoreError>>;
    /// As [`Store::list`].
    fn list(
        &self,
        prefix: &str,
        after: Option<Name>,
        count_max: usize,
        now_s: u64,
    ) -> impl Future<Output = Result<Page, StoreError>>;
    /// As [`Store::sweep`].
    fn sweep(&self, now_s: u64) -> impl Future<Output = Result<Swept, StoreError>>;
}

impl Records for Store {
    fn read(&self, name: Name, now_s: u64) -> impl Future<Output = Result<Option<Record>, StoreError>> {
        Self::read(self, name, now_s)
    }

    fn commit(&self, changes: Changes, now_s: u64) -> impl Future<Output = Result<Outcome, StoreError>> {
        Self::commit(self, changes, now_s)
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<Name>,
        count_max: usize,
        now_s: u64,
    ) -> impl Future<Output = Result<Page, StoreError>> {
        Self::list(self, prefix, after, count_max, now_s)
    }

    fn sweep(&self, now_s: u64) -> impl Future<Output = Result<Swept, StoreError>> {
        Self::sweep(self, now_s)
    }
}

/// Runs each case with a place that `empty` makes. A case that fails panics, and names itself.
pub async fn run_all<R: Records>(mut empty: impl AsyncFnMut() -> R) {
    let a_record_is_kept = empty().await;
    kept(&a_record_is_kept).await;
    let generations_decide = empty().await;
    judged(&generations_decide).await;
    let generations_never_come_again = empty().await;
    numbered(&generations_never_come_again).await;
    let several_changes_are_one = empty().await;
    together(&several_changes_are_one).await;
    let records_end = empty().await;
    ending(&records_end).await;
    let records_are_listed = empty().await;
    listed(&records_are_listed).await;
    let one_of_many_wins = empty().await;
    raced(&one_of_many_wins).await;
}

async fn kept(place: &impl Records) {
    for value in [vec![], vec![0, 255, b'\r', b'\n', 0], vec![7; VALUE_BYTES_MAX]] {
        let name = name(&format!("kept/{}", value.len()));
        assert_eq!(place.read(name.clone(), NOW_S).await, Ok(None));
        let generation = create(place, &name, &value, NEVER_S).await;
        let expected = Record { generation, value: value.clone(), until_s: NEVER_S };
        assert_eq!(place.read(name, NOW_S).await, Ok(Some(expected)));
    }
    let odd = name("kept/ü:{x} *?[a]");
    create(place, &odd, b"odd", NOW_S).await;
    assert_eq!(value(place, &odd).await.as_deref(), Some(&b"odd"[..]));
}

async fn judged(place: &impl Records) {
    let one = name("judged/1");
    let generation = create(place, &one, b"a", NEVER_S).await;
    let again = Change::create(one.clone(), record(b"b", NEVER_S));
    assert_eq!(commit(place, vec![again]).await, Outcome::Conflict);
    for other in [generation - 1, generation + 1] {
        let replaced = Change::replace(one.clone(), other, record(b"b", NEVER_S));
        assert_eq!(commit(place, vec![replaced]).await, Outcome::Conflict);
        assert_eq!(commit(place, vec![Change::delete(one.clone(), other)]).await, Outcome::Conflict);
    }
    assert_eq!(value(place, &one).await.as_deref(), Some(&b"a"[..]));
    let replaced = Change::replace(one.clone(), generation, record(b"c", NEVER_S));
    let Outcome::Committed(generations) = commit(place, vec![replaced.clone()]).await else {
        panic!("nothing was in the way");
    };
    assert!(generations[0].is_some_and(|next| next > generation), "{generations:?}");
    assert_eq!(commit(place, vec![replaced]).await, Outcome::Conflict, "it is of an earlier generation");
    let absent = Change { name: name("judged/2"), expected: Expected::Absent, to: None };
    assert_eq!(commit(place, vec![absent]).await, Outcome::Committed(vec![None]));
    let missing = Change::delete(name("judged/2"), generation);
    assert_eq!(commit(place, vec![missing]).await, Outcome::Conflict);
}

async fn numbered(place: &impl Records) {
    let one = name("numbered/1");
    let mut last = 0;
    for _ in 0..3 {
        let generation = create(place, &one, b"a", NEVER_S).await;
        assert!(generation > last, "{generation} after {last}");
        last = generation;
        let deleted = commit(place, vec![Change::delete(one.clone(), generation)]).await;
        assert_eq!(deleted, Outcome::Committed(vec![None]));
        assert_eq!(value(place, &one).await, None);
    }
    let old = Change::replace(one, last, record(b"b", NEVER_S));
    assert_eq!(commit(place, vec![old]).await, Outcome::Conflict, "a deleted one has no generation");
}

async fn together(place: &impl Records) {
    let (one, two, three) = (name("together/1"), name("together/2"), name("other/3"));
    let of_one = create(place, &one, b"1", NEVER_S).await;
    let of_two = create(place, &two, b"2", NEVER_S).await;
    let changes = |generation: u64| {
        vec![
            Change::create(three.clone(), record(b"3", NEVER_S)),
            Change::delete(one.clone(), of_one),
            Change::replace(two.clone(), generation, record(b"22", NEVER_S)),
        ]
    };
    assert_eq!(commit(place, changes(of_two + 1)).await, Outcome::Conflict);
    assert_eq!(value(place, &three).await, None, "the first change was not done, either");
    assert_eq!(value(place, &one).await.as_deref(), Some(&b"1"[..]));
    let Outcome::Committed(generations) = commit(place, changes(of_two)).await else {
        panic!("nothing was in the way");
    };
    assert_eq!(generations.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    assert_ne!(generations[0], generations[2]);
    for (name, expected) in [(&one, None), (&two, Some(&b"22"[..])), (&three, Some(&b"3"[..]))] {
        assert_eq!(value(place, name).await.as_deref(), expected, "{name}");
    }
}

async fn ending(place: &impl Records) {
    let (short, long) = (name("ending/short"), name("ending/long"));
    let of_short = create(place, &short, b"s", NOW_S + 10).await;
    let of_long = create(place, &long, b"l", NOW_S + 1000).await;
    assert!(
        place.read(short.clone(), NOW_S + 10).await.is_ok_and(|found| found.is_some()),
        "its last second"
    );
    assert_eq!(place.read(short.clone(), NOW_S + 11).await, Ok(None));
    let page = place.list("ending/", None, 10, NOW_S + 11).await.expect("a page");
    assert_eq!(names(&page), ["ending/long"]);
    let late = Changes::one(Change::replace(short.clone(), of_short, record(b"t", NEVER_S)));
    assert_eq!(place.commit(late, NOW_S + 11).await, Ok(Outcome::Conflict), "it is over");
    let anew = Changes::one(Change::create(short.clone(), record(b"t", NOW_S + 20)));
    let Ok(Outcome::Committed(generations)) = place.commit(anew, NOW_S + 11).await else {
        panic!("an ended record is in nobody's way");
    };
    assert!(generations[0] > Some(of_long));
    // A change can move the end, either way.
    let earlier = Changes::one(Change::replace(long.clone(), of_long, record(b"m", NOW_S + 15)));
    assert!(matches!(place.commit(earlier, NOW_S + 11).await, Ok(Outcome::Committed(_))));
    while place.sweep(NOW_S + 16).await.expect("swept").has_more {}
    assert_eq!(place.read(long, NOW_S).await, Ok(None), "swept");
    assert!(place.read(short, NOW_S + 16).await.is_ok_and(|found| found.is_some()), "not over yet");
}

async fn listed(place: &impl Records) {
    for number in 0..25 {
        create(place, &name(&format!("listed/{number:02}")), b"x", NEVER_S).await;
    }
    create(place, &name("listec/0"), b"x", NEVER_S).await;
    create(place, &name("listed0/0"), b"x", NEVER_S).await;
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = place.list("listed/", after, 10, NOW_S).await.expect("a page");
        assert!(page.records.len() <= 10);
        all.extend(names(&page));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    all.sort();
    assert_eq!(all, (0..25).map(|number| format!("listed/{number:02}")).collect::<Vec<_>>());
    let some = place.list("listed/1", None, 100, NOW_S).await.expect("a page");
    assert_eq!((some.records.len(), some.next), (10, None));
    let none = place.list("none/", None, 100, NOW_S).await.expect("a page");
    assert_eq!((none.records.len(), none.next), (0, None));
}

async fn raced(place: &impl Records) {
    let one = name("raced/1");
    let generation = create(place, &one, b"0", NEVER_S).await;
    let race = |number: u8| {
        let change = Change::replace(one.clone(), generation, record(&[number], NEVER_S));
        place.commit(Changes::one(change), NOW_S)
    };
    let (a, b, c) = (race(1), race(2), race(3));
    let outcomes = [a.await, b.await, c.await];
    let won = |outcome: &Result<Outcome, StoreError>| matches!(outcome, Ok(Outcome::Committed(_)));
    assert_eq!(outcomes.iter().filter(|outcome| won(outcome)).count(), 1, "{outcomes:?}");
    assert_eq!(
        outcomes.iter().filter(|outcome| **outcome == Ok(Outcome::Conflict)).count(),
        2,
        "{outcomes:?}"
    );
    let winner = outcomes.iter().position(won).expect("one") + 1;
    assert_eq!(value(place, &one).await.map(|value| usize::from(value[0])), Some(winner));
}

fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

fn record(value: &[u8], until_s: u64) -> NewRecord {
    NewRecord::new(value.to_vec(), until_s).expect("short enough")
}

fn names(page: &Page) -> Vec<String> {
    page.records.iter().map(|(name, _)| name.to_string()).collect()
}

async fn commit(place: &impl Records, changes: Vec<Change>) -> Outcome {
    place.commit(Changes::new(changes).expect("few"), NOW_S).await.expect("judged")
}

async fn create(place: &impl Records, name: &Name, value: &[u8], until_s: u64) -> u64 {
    match commit(place, vec![Change::create(name.clone(), record(value, until_s))]).await {
        Outcome::Committed(generations) => generations[0].expect("a generation"),
        Outcome::Conflict => panic!("{name} is there already"),
    }
}

async fn value(place: &impl Records, name: &Name) -> Option<Vec<u8>> {
    place.read(name.clone(), NOW_S).await.expect("read").map(|record| record.value)
}
