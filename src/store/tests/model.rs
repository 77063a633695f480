//! Random commits, times, sweeps and restarts, beside a map that does the same.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::setup::{Folder, LIMITS, name};
use crate::cases::NOW_S;
use crate::{Change, Changes, Expected, NEVER_S, NewRecord, Outcome, Record, Store};

const NAMES: [&str; 6] = ["grant/1", "grant/2", "grant/22", "account/1", "account/é", "x/0"];

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Planned>),
    Later { by_s: u64 },
    Sweep,
    List { prefix: &'static str, count_max: usize },
    Reopen,
}

#[derive(Clone, Debug)]
struct Planned {
    name: usize,
    is_right: bool,
    to: Option<(usize, u64)>,
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![0..40_usize, 3_000..5_000_usize, Just(crate::VALUE_BYTES_MAX)];
    let until_s = prop_oneof![Just(NEVER_S), (0..40_u64).prop_map(|more_s| NOW_S + more_s)];
    let planned =
        (0..NAMES.len(), proptest::bool::weighted(0.85), proptest::option::weighted(0.7, (size, until_s)))
            .prop_map(|(name, is_right, to)| Planned { name, is_right, to });
    prop_oneof![
        8 => proptest::collection::vec(planned, 1..5).prop_map(Step::Commit),
        1 => (1..15_u64).prop_map(|by_s| Step::Later { by_s }),
        1 => Just(Step::Sweep),
        2 => (prop_oneof![Just("grant/"), Just("grant/2"), Just("a"), Just("")], 1..4_usize)
            .prop_map(|(prefix, count_max)| Step::List { prefix, count_max }),
        1 => Just(Step::Reopen),
    ]
}

/// The map, and all generations that were ever given.
#[derive(Default)]
struct Model {
    records: BTreeMap<&'static str, Record>,
    generations: Vec<u64>,
    now_s: u64,
}

impl Model {
    fn get(&self, name: &str) -> Option<&Record> {
        self.records.get(name).filter(|record| record.exists(self.now_s))
    }

    fn changes(&self, planned: &[Planned]) -> Option<Changes> {
        let change = |planned: &Planned| {
            let at = NAMES[planned.name];
            let expected = match (self.get(at), planned.is_right) {
                (Some(record), true) => Expected::Generation(record.generation),
                (None, true) | (Some(_), false) => Expected::Absent,
                (None, false) => Expected::Generation(self.generations.last().copied().unwrap_or(7)),
            };
            let to = planned.to.map(|(size, until_s)| {
                NewRecord::new(vec![size.to_le_bytes()[0]; size], until_s).expect("short enough")
            });
            Change { name: name(at), expected, to }
        };
        Changes::new(planned.iter().map(change).collect()).ok()
    }

    fn commit(&mut self, planned: &[Planned], changes: &Changes, outcome: &Outcome) {
        let Outcome::Committed(generations) = outcome else {
            assert!(planned.iter().any(|planned| !planned.is_right), "all was as expected");
            return;
        };
        assert!(planned.iter().all(|planned| planned.is_right), "something was not as expected");
        for ((planned, change), generation) in planned.iter().zip(changes.as_slice()).zip(generations) {
            assert_eq!(change.to.is_some(), generation.is_some());
            match (change.to.clone(), generation) {
                (Some(to), Some(generation)) => {
                    assert!(
                        self.generations.iter().all(|earlier| earlier < generation),
                        "{generation} came again"
                    );
                    self.generations.push(*generation);
                    self.records.insert(NAMES[planned.name], to.with_generation(*generation));
                }
                _ => drop(self.records.remove(NAMES[planned.name])),
            }
        }
    }
}

fn run(steps: Vec<Step>) {
    let folder = Folder::new();
    let mut store = folder.open();
    let mut model = Model { now_s: NOW_S, ..Model::default() };
    for step in steps {
        match step {
            Step::Commit(planned) => {
                let Some(changes) = model.changes(&planned) else { continue };
                let outcome = store.commit(changes.clone(), model.now_s).wait().expect("judged");
                model.commit(&planned, &changes, &outcome);
            }
            Step::Later { by_s } => model.now_s += by_s,
            Step::Sweep => {
                assert!(!store.sweep(model.now_s).wait().expect("swept").has_more);
                let now_s = model.now_s;
                model.records.retain(|_, record| record.exists(now_s));
            }
            Step::List { prefix, count_max } => check_list(&store, &model, prefix, count_max),
            Step::Reopen => {
                store.close();
                store = Store::open(&folder.path(), model.now_s, LIMITS).expect("a store");
            }
        }
        for at in NAMES {
            let found = store.read(name(at), model.now_s).wait().expect("read");
            assert_eq!(found.as_ref(), model.get(at), "{at}");
        }
        assert_eq!(store.sizes().records(), model.records.len() as u64);
        let bytes = model.records.iter().map(|(name, record)| (name.len() + record.value.len()) as u64);
        assert_eq!(store.sizes().kinds.values().map(|kind| kind.bytes).sum::<u64>(), bytes.sum());
    }
}

fn check_list(store: &Store, model: &Model, prefix: &str, count_max: usize) {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(prefix, after, count_max, model.now_s).wait().expect("a page");
        assert!(page.records.len() <= count_max);
        found.extend(page.records.into_iter().map(|(name, record)| (name.to_string(), record)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected =
        model.records.iter().filter(|(name, record)| name.starts_with(prefix) && record.exists(model.now_s));
    let expected = expected.map(|(name, record)| ((*name).to_owned(), record.clone()));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_does_as_a_map_does(steps in proptest::collection::vec(step(), 1..60)) {
        run(steps);
    }
}
