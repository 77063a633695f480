use std::time::Duration;

use prometheus::IntCounter;

use super::*;
use crate::upstream::health::breaker::{RequestFault, Rules};

fn rules(failures_max: usize, slow_start: Duration) -> Rules {
    let config = config::ReplicasConfig {
        resolve_interval: Duration::ZERO,
        slow_start,
        connections_max: 1,
        breaker: config::BreakerConfig {
            failures_max,
            open_time: Duration::from_secs(10),
            open_time_max: Duration::from_secs(100),
        },
        health: config::Health {
            interval: Duration::ZERO,
            timeout: Duration::ZERO,
            unhealthy_after: 1,
            healthy_after: 1,
        },
        retry: config::Retry { budget_percent: 0, tools: Vec::new(), annotated_tools: false },
    };
    Rules::of(&config, Duration::from_mins(1))
}

fn replicas(hosts: &[&str]) -> Replicas {
    let url = |host: &&str| Url {
        authority: format!("{host}:80"),
        host: (*host).into(),
        port: 80,
        path_and_query: "/mcp?secret".into(),
        is_tls: false,
    };
    let urls: Vec<Url> = hosts.iter().map(url).collect();
    let openings = IntCounter::new("openings", "openings").expect("a counter");
    let rules = rules(1, Duration::from_secs(10));
    Replicas::new(
        &urls,
        ReplicaCommon { upstream: "up".into(), rules, openings, tls: None, host: None, query: None },
    )
    .expect("URLs")
}

fn addresses(ips: &[&str]) -> Vec<SocketAddr> {
    ips.iter().map(|ip| SocketAddr::new(ip.parse().expect("an address"), 80)).collect()
}

fn labels(replicas: &Replicas) -> Vec<String> {
    replicas.load().iter().map(|replica| replica.label.to_string()).collect()
}

/// How often each is chosen of a thousand times.
fn shares(set: &[Arc<Replica>], now: Instant) -> Vec<usize> {
    let dice = Dice::default();
    let mut shares = vec![0; set.len()];
    for _ in 0..1000 {
        let (chosen, _) = choose(set, &[], dice.roll(), now).expect("one is fit");
        let at = set.iter().position(|replica| replica.key == chosen.key).expect("it is one of them");
        shares[at] += 1;
    }
    shares
}

#[test]
fn the_less_busy_of_two_gets_it() {
    let replicas = replicas(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let set = replicas.load();
    let now = crate::clock::now();
    assert!(shares(&set, now).iter().all(|share| *share > 200), "{:?}", shares(&set, now));
    set[0].load.begin();
    let shares = shares(&set, now);
    assert!(shares[0] == 0 && shares[1] > 300 && shares[2] > 300, "{shares:?}");
}

#[test]
fn the_unfit_and_the_tried_get_nothing() {
    let replicas = replicas(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let set = replicas.load();
    let now = crate::clock::now();
    set[1].note_failure(Pass::Free, RequestFault::Broken);
    let shares = shares(&set, now);
    assert!(shares[1] == 0 && shares[0] > 300 && shares[2] > 300, "{shares:?}");
    let (chosen, _) = choose(&set, &[set[0].key], 0, now).expect("the last one");
    assert_eq!(chosen.key, set[2].key);
    let tried = [set[0].key, set[2].key];
    assert!(matches!(choose(&set, &tried, 0, now), Err(NotChosen::Unfit { .. })));
    assert_eq!(choose(&set, &tried[..1], 0, now).map(|(chosen, _)| chosen.key), Ok(set[2].key));
    let all = [set[0].key, set[1].key, set[2].key];
    assert_eq!(choose(&set, &all, 0, now).err(), Some(NotChosen::AllTried));
    set[0].note_failure(Pass::Free, RequestFault::Broken);
    set[2].note_failure(Pass::Free, RequestFault::Broken);
    let Err(NotChosen::Unfit { retry_after_ms }) = choose(&set, &[], 0, now) else { panic!("none is fit") };
    assert!((9000..=11_000).contains(&retry_after_ms), "{retry_after_ms}");
    let later = now + Duration::from_secs(11);
    assert_eq!(choose(&set, &[], 0, later).map(|(_, pass)| pass), Ok(Pass::Trial));
}

#[test]
fn a_name_becomes_its_addresses() {
    let replicas = replicas(&["10.0.0.1", "tools.example"]);
    assert_eq!(replicas.names(), [(1, "tools.example", 80)]);
    assert_eq!(labels(&replicas), ["10.0.0.1:80/mcp", "tools.example:80/mcp"]);
    let now = crate::clock::now();
    assert!(replicas.resolve(1, addresses(&["10.0.1.2", "10.0.1.1", "10.0.1.2"]), now));
    assert_eq!(labels(&replicas), ["10.0.0.1:80/mcp", "10.0.1.1:80/mcp", "10.0.1.2:80/mcp"]);
    let before = replicas.load();
    assert!(!replicas.resolve(1, addresses(&["10.0.1.1", "10.0.1.2"]), now), "nothing has changed");
    assert!(!replicas.resolve(1, Vec::new(), now), "no answer changes nothing");
    assert!(replicas.resolve(1, addresses(&["10.0.1.2", "10.0.1.3"]), now));
    assert_eq!(labels(&replicas), ["10.0.0.1:80/mcp", "10.0.1.2:80/mcp", "10.0.1.3:80/mcp"]);
    let after = replicas.load();
    assert!(Arc::ptr_eq(&before[0], &after[0]) && Arc::ptr_eq(&before[2], &after[1]), "who stays, stays");
    assert!(before[1].is_gone() && !before[2].is_gone());
    assert!(replicas.get(before[1].key).is_none() && replicas.get(after[2].key).is_some());
    let weight = |replica: &Replica| replica.breaker.0.weight(&replica.rules, clock_ms(now));
    assert_eq!(weight(&after[1]), WEIGHT_MAX, "who was there first begins with all of it");
    assert!(weight(&after[2]) < WEIGHT_MAX / 2, "who joins begins slowly");
    after[0].load.begin();
    after[1].load.begin();
    assert_eq!(shares(&after, now)[2], 0, "less than busy ones");
}

#[test]
fn an_identity_lasts() {
    let one = replicas(&["tools.example", "other.example"]);
    let other = replicas(&["tools.example"]);
    for replicas in [&one, &other] {
        replicas.resolve(0, addresses(&["10.0.1.1"]), crate::clock::now());
    }
    assert_eq!(one.load()[0].key, other.load()[0].key);
    one.resolve(1, addresses(&["10.0.1.1"]), crate::clock::now());
    assert_ne!(one.load()[0].key, one.load()[1].key, "another name, another server");
}

#[test]
fn what_is_known_outlives_a_reload_under_the_same_rules() {
    let old = replicas(&["10.0.0.1", "tools.example"]);
    old.resolve(1, addresses(&["10.0.1.1", "10.0.1.2"]), crate::clock::now());
    let mut same = replicas(&["10.0.0.1", "tools.example"]);
    same.adopt(&old);
    same.take_up();
    assert!(old.load().iter().zip(same.load().iter()).all(|(old, same)| Arc::ptr_eq(old, same)));
    let before = old.load().clone();
    let mut stricter = replicas(&["10.0.0.1", "tools.example"]);
    stricter.common.rules = rules(9, Duration::ZERO);
    stricter.adopt(&old);
    assert!(old.load().iter().zip(before.iter()).all(|(old, before)| Arc::ptr_eq(old, before)), "not yet");
    stricter.take_up();
    assert_eq!(labels(&stricter), before.iter().map(|replica| replica.label.to_string()).collect::<Vec<_>>());
    assert_eq!(stricter.load()[1].rules, stricter.common.rules);
}

#[test]
fn who_has_an_upstream_from_before_a_reload_has_its_replicas_all_the_same() {
    let old = replicas(&["tools.example"]);
    old.resolve(0, addresses(&["10.0.1.1"]), crate::clock::now());
    let mut new = replicas(&["tools.example"]);
    new.common.rules = rules(9, Duration::ZERO);
    new.adopt(&old);
    new.take_up();
    // Once: the next reload, which leaves the upstream as it is, forgets nothing.
    let renewed = new.load().clone();
    new.take_up();
    assert!(Arc::ptr_eq(&renewed[0], &new.load()[0]));
    // Who looks up names for the upstream as it was adds replicas as they are now.
    old.resolve(0, addresses(&["10.0.1.1", "10.0.1.3"]), crate::clock::now());
    assert!(new.load().iter().all(|replica| replica.rules == new.common.rules), "{:?}", new.load());
    // What is found out about them now is found out for all.
    new.load()[0].note_failure(Pass::Free, RequestFault::Broken);
    new.resolve(0, addresses(&["10.0.1.1", "10.0.1.2"]), crate::clock::now());
    assert!(old.load().len() == 2 && Arc::ptr_eq(&old.load()[0], &new.load()[0]));
}
