//! Connections by chance, and by their kinds.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::messages::{replies, requests};
use super::*;

/// How many connections are tried for each case that a property usually has: they are small.
const CONNECTIONS_PER_CASE: u32 = 16;

/// As many connections as are wanted of a property.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: CONNECTIONS_PER_CASE * usual.cases, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn hyper_reads_the_same_requests(
        bytes in requests(), sizes in prop::collection::vec(1..90_usize, 1..8),
    ) {
        check_requests(&bytes, &sizes);
    }

    #[test]
    fn hyper_reads_the_same_replies(
        bytes in replies(), sizes in prop::collection::vec(1..90_usize, 1..8),
    ) {
        check_replies(&bytes, &sizes);
    }
}

/// What can be refused of a short message.
const FAULTS: [HttpFault; 6] = [
    HttpFault::Head,
    HttpFault::LineEnd,
    HttpFault::Length,
    HttpFault::TwoFramings,
    HttpFault::Coding,
    HttpFault::Chunk,
];

/// A property that is never tried on what it is about holds, too.
#[test]
fn all_kinds_of_connections_are_tried() {
    let mut runner = TestRunner::deterministic();
    let (mut kinds, mut faults, mut reasons) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
    let mut note = |bytes: &[u8], fault, at: usize| {
        let met = STRICTNESSES.iter().filter(|met| met.fault == fault && (met.applies)(&bytes[at..]));
        reasons.extend(met.map(|met| met.reason));
    };
    for _ in 0..2000 {
        let bytes = requests().new_tree(&mut runner).expect("bytes").current();
        let (messages, rest) = ours::requests(&[&bytes]);
        let rest = match rest {
            Rest::Over => "Over",
            Rest::Closed => "Closed",
            Rest::Head => "Head",
            Rest::Body => "Body",
            Rest::Refused(fault, at) => {
                note(&bytes, fault, at);
                faults.push(fault);
                "refused"
            }
        };
        kinds.insert((messages.len().min(1), rest));
        let bytes = replies().new_tree(&mut runner).expect("bytes").current();
        if let Err((fault, at)) = ours::reply(&[&bytes]) {
            note(&bytes, fault, at);
        }
    }
    for fault in FAULTS {
        assert!(faults.contains(&fault), "{fault:?}");
    }
    for count in 0..=1 {
        for rest in ["Over", "Closed", "Head", "Body", "refused"] {
            assert!(
                count == 0 && matches!(rest, "Over" | "Closed") || kinds.contains(&(count, rest)),
                "{count} messages, then {rest}"
            );
        }
    }
    for Strictness { reason, .. } in STRICTNESSES {
        assert!(reasons.contains(reason), "{reason}");
    }
}
