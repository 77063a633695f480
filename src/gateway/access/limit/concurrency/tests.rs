use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;

use super::*;
use crate::telemetry::metrics::Metrics;

fn gate(calls_max: usize, calls_waiting_max: usize) -> Arc<Gate> {
    Gate::new(
        &Concurrency { calls_max, calls_waiting_max, calls_wait_max: Duration::from_mins(1) },
        Metrics::new(1).unwrap().gates.of("u"),
    )
}

fn enter(gate: &Arc<Gate>, who: &str) -> Result<Admission, QueueFull> {
    gate.enter(Payer::principal(who), crate::clock::now())
}

fn pass(gate: &Arc<Gate>, who: &str) -> Permit {
    match enter(gate, who) {
        Ok(Admission::Passed(permit)) => permit,
        other => panic!("{who}: {other:?}"),
    }
}

fn wait(gate: &Arc<Gate>, who: &'static str) -> (&'static str, QueuedCall) {
    match enter(gate, who) {
        Ok(Admission::Waits(waiting)) => (who, waiting),
        other => panic!("{who}: {other:?}"),
    }
}

/// Takes those whose turn has come out of `waiting`.
fn granted(waiting: &mut Vec<(&'static str, QueuedCall)>) -> Vec<(&'static str, Permit)> {
    let is_granted = |(_, waiting): &mut (_, QueuedCall)| !waiting.granted.is_empty();
    let turns: Vec<_> = waiting.extract_if(.., is_granted).collect();
    let now = |waiting: QueuedCall| futures_util::FutureExt::now_or_never(waiting.turn());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    turns.into_iter().map(|(who, waiting)| (who, now(waiting).unwrap().unwrap())).collect()
}

#[test]
fn principals_take_turns_and_none_has_more_than_half() {
    let gate = gate(4, 100);
    let mut held: Vec<_> = (0..4).map(|_| ("a", pass(&gate, "a"))).collect();
    let mut waiting: Vec<_> = (0..6).map(|_| wait(&gate, "a")).collect();
    waiting.extend((0..3).map(|_| wait(&gate, "b")));
    waiting.push(wait(&gate, "c"));
    let mut order = String::new();
    while !held.is_empty() {
        drop(held.remove(0));
        let passed = granted(&mut waiting);
        order.extend(passed.iter().map(|(who, _)| *who));
        held.extend(passed);
        let count = |name| held.iter().filter(|(who, _)| *who == name).count();
        let others_wait = waiting.iter().any(|(who, _)| *who != "b");
        assert!(count("b") <= 2 || !others_wait, "{order}");
        gate.queue.lock().check();
    }
    // Those of "a" are passed over until it has one of its first four left.
    assert_eq!(order, "bcababaaaa");
    assert_eq!(gate.counts(), GateCounts::default());
}

#[test]
fn a_full_waiting_room_has_room_for_who_waits_less() {
    let gate = gate(1, 4);
    let held = pass(&gate, "a");
    let mut waiting: Vec<_> = (0..4).map(|_| wait(&gate, "a")).collect();
    assert!(gate.would_refuse(Payer::principal("a")) && enter(&gate, "a").is_err());
    assert!(!gate.would_refuse(Payer::principal("b")));
    waiting.push(wait(&gate, "b"));
    waiting.push(wait(&gate, "b"));
    assert!(enter(&gate, "b").is_err() && enter(&gate, "a").is_err());
    gate.queue.lock().check();
    let is_out =
        |waiting: &mut QueuedCall| waiting.granted.try_recv() == Err(oneshot::error::TryRecvError::Closed);
    let out: Vec<usize> = waiting
        .iter_mut()
        .enumerate()
        .filter_map(|(at, (_, waiting))| is_out(waiting).then_some(at))
        .collect();
    assert_eq!(out, [2, 3], "the newest of the longest queue");
    drop(waiting);
    gate.queue.lock().check();
    drop(held);
    assert_eq!(gate.counts(), GateCounts::default());
}

#[test]
fn who_leaves_is_out_of_the_queue_even_when_its_turn_has_come() {
    let gate = gate(1, 10);
    let held = pass(&gate, "a");
    let (_, first) = wait(&gate, "b");
    let mut rest = vec![wait(&gate, "c"), wait(&gate, "b")];
    drop(held);
    assert_eq!(gate.counts(), GateCounts { in_use: 1, waiting: 2 });
    drop(first);
    let passed = granted(&mut rest);
    assert_eq!(passed.len(), 1);
    assert_eq!((passed[0].0, gate.counts()), ("c", GateCounts { in_use: 1, waiting: 1 }));
    rest.clear();
    drop(passed);
    assert_eq!(gate.counts(), GateCounts::default());
    gate.queue.lock().check();
}

#[test]
fn nobody_waits_for_ever() {
    let gate = Gate::new(
        &Concurrency { calls_max: 1, calls_waiting_max: 10, calls_wait_max: Duration::from_millis(5) },
        Metrics::new(1).unwrap().gates.of("u"),
    );
    let held = pass(&gate, "a");
    let (_, waiting) = wait(&gate, "b");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(waiting.turn()).err(), Some(QueueFull));
    assert_eq!(gate.counts(), GateCounts { in_use: 1, waiting: 0 });
    drop(held);
}

#[test]
fn a_raised_maximum_lets_those_in_who_wait() {
    let gate = gate(1, 10);
    let _held = pass(&gate, "a");
    let mut waiting: Vec<_> = (0..3).map(|_| wait(&gate, "a")).collect();
    let wider = |calls_max| Concurrency { calls_max, calls_waiting_max: 10, calls_wait_max: Duration::ZERO };
    gate.reconfigure(&wider(3));
    let mut passed = granted(&mut waiting);
    assert_eq!((passed.len(), gate.counts()), (2, GateCounts { in_use: 3, waiting: 1 }));
    gate.reconfigure(&wider(1));
    passed.clear();
    assert!(granted(&mut waiting).is_empty());
    gate.queue.lock().check();
}

#[test]
fn threads_never_have_more_than_the_maximum_and_all_get_their_turn() {
    let gate = gate(3, 1000);
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let (gate, now, most) = (&gate, &now, &most);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let call = |turn: u64| async move {
                    let who = Payer::principal(&((number + turn) % 3).to_string());
                    let permit = match gate.enter(who, crate::clock::now()).unwrap() {
                        Admission::Passed(permit) => permit,
                        // Every few, one leaves without looking.
                        Admission::Waits(waiting) if turn.is_multiple_of(5) => return drop(waiting),
                        Admission::Waits(waiting) => waiting.turn().await.unwrap(),
                    };
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                };
                runtime.block_on(async {
                    for round in 0..200 {
                        futures_util::future::join_all((0..8).map(|turn| call(round + turn))).await;
                    }
                });
            });
        }
    });
    assert_eq!(most.into_inner(), 3);
    assert_eq!(gate.counts(), GateCounts::default());
    gate.queue.lock().check();
}

proptest! {
    #[test]
    fn whatever_happens_nobody_is_forgotten(
        // With a reserve, and without.
        max in prop_oneof![1_usize..5, 8_usize..20],
        waiting_max in 0_usize..6,
        steps in prop::collection::vec((0_u8..4, 0_usize..4, any::<prop::sample::Index>()), 1..200),
    ) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let gate = gate(max, waiting_max);
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for (step, who, which) in steps {
            match step {
                0 | 1 => match enter(&gate, NAMES[who]) {
                    Ok(Admission::Passed(permit)) => held.push((NAMES[who], permit)),
                    Ok(Admission::Waits(place)) => waiting.push((NAMES[who], place)),
                    Err(QueueFull) => prop_assert!(gate.counts().waiting >= waiting_max),
                },
                2 if !held.is_empty() => drop(held.swap_remove(which.index(held.len()))),
                3 if !waiting.is_empty() => drop(waiting.swap_remove(which.index(waiting.len()))),
                _ => {}
            }
            gate.queue.lock().check();
            prop_assert!(gate.counts().in_use <= max);
            held.extend(granted(&mut waiting));
        }
        held.clear();
        drop(waiting);
        prop_assert_eq!(gate.counts(), GateCounts::default());
    }
}
