use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;

use super::queue::WaiterId;
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
    assert!(gate.would_refuse(Payer::principal("a"), crate::clock::now()) && enter(&gate, "a").is_err());
    assert!(!gate.would_refuse(Payer::principal("b"), crate::clock::now()));
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

/// A queue, and what waits in it; each step at a millisecond.
struct Scene {
    queue: WaitQueue,
    start: Instant,
    waiting: Vec<(usize, WaiterId, oneshot::Receiver<()>)>,
}

impl Scene {
    fn new(max: usize, waiting_max: usize) -> Self {
        let start = crate::clock::now();
        Self { queue: WaitQueue::new(max, waiting_max, start), start, waiting: Vec::new() }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    /// Whether it passed at once, or waits now; `None` if it was refused.
    fn enter(&mut self, who: usize, ms: u64) -> Option<bool> {
        let (payer, now) = (client(who), self.at(ms));
        if self.queue.pass(payer, now) {
            return Some(true);
        }
        let (place, granted) = self.queue.wait(payer, now)?;
        self.waiting.push((who, place, granted));
        Some(false)
    }

    fn release(&mut self, who: usize, ms: u64) {
        self.queue.release(client(who), self.at(ms));
    }

    /// Who came through, or was refused after all, since this was called last.
    fn looked(&mut self) -> (Vec<usize>, Vec<usize>) {
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        self.waiting.retain_mut(|(who, _, receiver)| match receiver.try_recv() {
            Ok(()) => {
                granted.push(*who);
                false
            }
            Err(oneshot::error::TryRecvError::Closed) => {
                refused.push(*who);
                false
            }
            Err(oneshot::error::TryRecvError::Empty) => true,
        });
        (granted, refused)
    }
}

fn client(number: usize) -> Payer {
    Payer::principal(&format!("client {number}"))
}

#[test]
fn a_hundred_with_long_calls_hardly_hold_up_one_with_short_ones() {
    const ATTACKERS: usize = 100;
    let mut scene = Scene::new(16, 64);
    let (mut is_idle, mut served) = ([true; ATTACKERS + 1], [0_u64; ATTACKERS + 1]);
    let mut under_way: Vec<(u64, usize)> = Vec::new();
    let (mut asked, mut waited, mut longest) = (0, 0, 0);
    for ms in 0..8000 {
        for (_, who) in under_way.extract_if(.., |(end, _)| *end <= ms) {
            scene.release(who, ms);
            is_idle[who] = true;
        }
        // Each time another attacker is first; the other one calls now and then.
        let first = usize::try_from(ms).unwrap();
        let attackers = (0..ATTACKERS).map(|who| (who + first) % ATTACKERS);
        let other = (ms >= 2000 && ms.is_multiple_of(40)).then_some(ATTACKERS);
        let mut begun = Vec::new();
        for who in attackers.chain(other) {
            let entered = if is_idle[who] { scene.enter(who, ms) } else { None };
            assert!(entered.is_some() || who < ATTACKERS || !is_idle[who], "refused at {ms}");
            is_idle[who] &= entered.is_none();
            begun.extend((entered == Some(true)).then_some(who));
            asked = if who == ATTACKERS { ms } else { asked };
        }
        let (granted, refused) = scene.looked();
        assert!(!refused.contains(&ATTACKERS), "at {ms}");
        for who in refused {
            is_idle[who] = true;
        }
        begun.extend(granted);
        for who in begun {
            served[who] += 1;
            let takes = if who < ATTACKERS { 150 + who as u64 } else { 1 };
            under_way.push((ms + takes, who));
            if who == ATTACKERS {
                (waited, longest) = (waited + ms - asked, longest.max(ms - asked));
            }
        }
    }
    let [attackers @ .., other] = served;
    // A place becomes free every 12 ms, and every other one goes ahead.
    assert!(other >= 140 && longest <= 80 && waited / other <= 20, "{other} calls: {longest} of {waited} ms");
    // There is no room for all of them to wait.
    let (least, most) = (attackers.iter().min().unwrap(), attackers.iter().max().unwrap());
    assert!(*least >= 2 && *most <= *least * 4, "{attackers:?}");
}

#[test]
fn who_used_little_goes_ahead_but_not_twice_in_succession() {
    let mut scene = Scene::new(2, 100);
    // The first two use both places for a second; both want more, and then two come who have used nothing.
    assert_eq!((scene.enter(0, 0), scene.enter(1, 0)), (Some(true), Some(true)));
    for who in [0, 1, 0, 1, 2, 3, 2, 3] {
        assert_eq!(scene.enter(who, 1000), Some(false));
    }
    let mut order: Vec<usize> = Vec::new();
    let mut under_way = vec![0, 1];
    while let Some(who) = (!under_way.is_empty()).then(|| under_way.remove(0)) {
        scene.release(who, 1000);
        scene.queue.check();
        let granted = scene.looked().0;
        order.extend(&granted);
        under_way.extend(granted);
    }
    // The second call of 2 comes when it is its turn.
    assert_eq!(order, [2, 0, 3, 1, 2, 3, 0, 1]);
}

#[test]
fn one_that_is_passed_over_keeps_nobody_from_going_ahead() {
    let mut scene = Scene::new(4, 100);
    // Half is held by one, which waits at the front for more; the others have used as much as each other.
    for who in [0, 0, 1, 2] {
        assert_eq!(scene.enter(who, 0), Some(true));
    }
    for who in [0, 1, 2, 1, 2, 3, 4] {
        assert_eq!(scene.enter(who, 1000), Some(false));
    }
    let mut order = Vec::new();
    for who in [1, 2, 3, 1] {
        scene.release(who, 1000);
        order.extend(scene.looked().0);
    }
    assert_eq!(order, [3, 1, 4, 2]);
    scene.queue.check();
}

#[test]
fn who_used_nothing_makes_nobody_seem_to_have_used_much() {
    let mut scene = Scene::new(4, 1000);
    for who in [0, 0, 0, 1] {
        assert_eq!(scene.enter(who, 0), Some(true));
    }
    scene.release(1, 300);
    // A crowd that has used nothing or little waits; 1 is still light beside 0.
    assert_eq!(scene.enter(2, 300), Some(true));
    for who in [0, 0].into_iter().chain(10..300).chain([1]) {
        assert_eq!(scene.enter(who, 900), Some(false));
    }
    scene.release(0, 900);
    let share = |who| &scene.queue.principals[&client(who)].used;
    assert!(share(1).is_light(&scene.queue.total) && !share(0).is_light(&scene.queue.total));
}

#[test]
fn a_full_waiting_room_has_room_for_who_used_little() {
    let mut scene = Scene::new(1, 2);
    assert_eq!((scene.enter(0, 0), scene.enter(1, 0)), (Some(true), Some(false)));
    assert_eq!((scene.enter(2, 0), scene.enter(3, 0)), (Some(false), None), "nobody has less than another");
    // One who waits comes to have used much, and another more than that.
    for (who, next, ms) in [(0, 1, 1000), (1, 2, 3000)] {
        scene.release(who, ms);
        assert_eq!(scene.looked().0, [next]);
        assert_eq!(scene.enter(who, ms), Some(false));
    }
    assert!(scene.queue.would_refuse(client(0), scene.at(3100)));
    assert!(!scene.queue.would_refuse(client(3), scene.at(3100)));
    assert_eq!(scene.enter(3, 3100), Some(false), "it has used nothing");
    assert_eq!(scene.looked().1, [1], "who has used more than the average");
    // Who has used no more than others makes no room.
    assert_eq!((scene.enter(4, 3100), scene.enter(5, 3100)), (None, None));
    scene.queue.check();
}

#[test]
fn who_is_gone_is_forgotten_and_who_used_much_is_not() {
    let mut scene = Scene::new(1 << 20, 0);
    for who in 0..10_000 {
        assert_eq!(scene.enter(who, 0), Some(true));
    }
    for who in 0..10_000 {
        scene.release(who, 5);
    }
    assert_eq!(scene.queue.principals.len(), 4096);
    assert_eq!(scene.enter(0, 2 * 60_000), Some(true));
    assert_eq!(scene.queue.principals.len(), 1);
    // As many as are remembered hold something: that does not count.
    for who in 0..5000 {
        assert_eq!(scene.enter(who, 2 * 60_000), Some(true));
    }
    scene.release(4999, 2 * 60_000 + 500);
    assert!(!scene.queue.principals[&client(4999)].used.is_little());
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
