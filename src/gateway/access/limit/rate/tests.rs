use std::net::{IpAddr, Ipv6Addr};

use super::shared::RateError;
use super::*;
use crate::identity::VerifiedIdentity;
use crate::telemetry::metrics::Metrics;
use config::{CountedBy, parse};
use protocol::arguments::{ArgumentPath, ArgumentValue, CallArgument, CallArguments};
use protocol::error::PolicyError;

/// The limits of a configuration whose `[[limit]]` tables are `text`.
fn limiters(text: &str, keys_max: usize) -> Vec<Limiter> {
    let base = r#"
        listener = { address = "127.0.0.1:0" }
        endpoint = [{ path = "/mcp", upstreams = ["u"] }]
        upstream.u.url = "http://127.0.0.1:1/"
    "#;
    let text = format!("{base}\n{text}");
    let config = parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("f.toml", &text)));
    let limiter = |limit| Limiter::new(limit, keys_max, Metrics::new(1).unwrap().rates.of("l")).unwrap();
    config.rate_limits.into_iter().map(limiter).collect()
}

fn at(principal: &Principal, address: IpAddr) -> LimitSubject<'_> {
    LimitSubject { principal, address, endpoint: "/mcp", target: None }
}

/// The argument `region` with this text.
fn region_is(text: &str) -> ([ArgumentPath; 1], Vec<CallArgument>) {
    ([ArgumentPath::read("region").unwrap()], vec![CallArgument::Value(ArgumentValue::Text(text.into()))])
}

fn network(number: u32) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number) << 64 | 1))
}

#[test]
fn a_million_addresses_harm_nobody_who_is_known() {
    let text = r#"limit = [{ name = "a", by = ["address"], calls = 10, period = "10s" }]"#;
    let limiter = &limiters(text, 100_000)[0];
    let started = clock::now();
    let passes = |number, at_ms| {
        let key = limiter.key(&at(&Principal::Anonymous, network(number)));
        limiter.check(limiter.gcra, &key, 1, started + Duration::from_millis(at_ms)).is_ok()
    };
    // Each of 100 clients calls every two seconds, half as often as it may, and so has recovered each time.
    let honest = |at_ms| (0..100).filter(|number| passes(*number, at_ms)).count();
    assert_eq!(honest(0), 100);
    let mut flooded = 0;
    for second in 0..10 {
        let flood =
            (0..100_000).filter(|number| passes(1000 + second * 100_000 + number, u64::from(second) * 1000));
        flooded += flood.count();
        if second % 2 == 1 {
            assert_eq!(honest(u64::from(second) * 1000), 100, "after {second} s");
        }
        assert!(limiter.keys() <= 100_000);
    }
    // Those without a key of their own got one limiter's worth together: a burst, and a call a second.
    assert!(flooded <= 100_000 + 10 + 10, "{flooded}");
    assert!(limiter.series.overflowed.get() >= 900_000);
    limiter.sweep(started + Duration::from_mins(2), 256);
    assert_eq!(limiter.keys(), 0);
}

#[test]
fn a_client_that_sprays_values_gets_no_more_and_takes_nobodys_room() {
    let text = r#"limit = [
        { name = "own", by = ["principal"], calls = 100000, period = "1s" },
        { name = "r", by = ["argument:region"], calls = 1, period = "1h" },
    ]"#;
    let limiter = &limiters(text, 2000)[1];
    let now = clock::now();
    let passes = |name: &str, region: &str| {
        let (paths, values) = region_is(region);
        let arguments = CallArguments::new(&paths, values);
        let principal = Principal::api_key(name);
        let target = Some(LimitTarget { upstream: "u", tool: Some("t"), arguments: Some(&arguments) });
        let subject = LimitSubject { target, ..at(&principal, network(1)) };
        assert!(limiter.is_about(&subject));
        limiter.check(limiter.gcra, &limiter.key(&subject), 1, now).is_ok()
    };
    let sprayed = (0..10_000).filter(|number| passes("evil", &number.to_string())).count();
    assert_eq!(sprayed, KEYS_PER_CLIENT_MAX + 1);
    assert!(passes("good", "0") && !passes("good", "0") && passes("good", "1"));
    assert!(limiter.keys() <= KEYS_PER_CLIENT_MAX + 3);
}

#[test]
fn a_full_table_gives_nobody_more_than_its_part() {
    let text = r#"limit = [
        { name = "own", by = ["principal"], calls = 100000, period = "1s" },
        { name = "r", by = ["argument:region"], calls = 1, period = "1h" },
    ]"#;
    let limiter = &limiters(text, KEYS_PER_CLIENT_MAX + 2)[1];
    let now = clock::now();
    let taken = |name: &str, region: usize| {
        let (paths, values) = region_is(&region.to_string());
        let arguments = CallArguments::new(&paths, values);
        let principal = Principal::api_key(name);
        let target = Some(LimitTarget { upstream: "u", tool: Some("t"), arguments: Some(&arguments) });
        let key = limiter.key(&LimitSubject { target, ..at(&principal, network(1)) });
        limiter.check(limiter.gcra, &key, 1, now).is_ok().then_some(key)
    };
    assert_eq!((0..=KEYS_PER_CLIENT_MAX).filter(|region| taken("evil", *region).is_some()).count(), 1001);
    assert!(taken("good", 0).is_some());
    assert_eq!(limiter.keys(), KEYS_PER_CLIENT_MAX + 2);
    // What it brings in beyond its part is counted together, not with those for whom there is no room.
    assert!(taken("evil", 5000).is_none());
    let shared = taken("late", 0).expect("there is one limiter for all who find no room");
    limiter.give_back_here(limiter.gcra, &shared, 1);
    assert!(taken("evil", 5000).is_none() && taken("late", 1).is_some() && taken("later", 0).is_none());
}

#[test]
fn what_a_later_limit_refuses_the_earlier_ones_get_back() {
    let text = r#"limit = [
        { name = "wide", by = ["upstream"], calls = 5, period = "1h" },
        { name = "narrow", by = ["tool"], calls = 2, period = "1h", tools = ["big*", "t"], weights = { "big" = 2 } },
    ]"#;
    let rates = RateLimits::of_calls(limiters(text, 100));
    let now = clock::now();
    let call = |tool| {
        let target = Some(LimitTarget { upstream: "u", tool, arguments: None });
        let principal = Principal::Anonymous;
        let subject = LimitSubject { target, ..at(&principal, network(1)) };
        rates.admit_call(&subject, now, None).map_err(|stop| match stop {
            RateError::Refused(PolicyError::Rate(limited)) => limited.limit.to_string(),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(call(Some("big")), Ok(()));
    for _ in 0..20 {
        assert_eq!(call(Some("big")), Err("narrow".into()));
    }
    for tool in ["t", "t", "other"] {
        assert_eq!(call(Some(tool)), Ok(()), "{tool}");
    }
    assert_eq!(call(None), Ok(()));
    assert_eq!(call(Some("t")), Err("wide".into()));
    assert_eq!(call(None), Err("wide".into()));
}

#[test]
fn limits_are_about_whom_they_name() {
    let text = r#"limit = [
        { name = "p", by = ["principal"], calls = 1, period = "1s", principals = ["ci"], groups = ["ops"] },
        { name = "e", by = ["principal"], calls = 1, period = "1s", endpoints = ["/mcp"], upstreams = ["u"] },
    ]"#;
    let limiters = limiters(text, 10);
    let identity = |name: &str, groups: &[&str]| {
        let groups = groups.iter().map(|group| (*group).into()).collect();
        Principal::Known(Arc::new(VerifiedIdentity {
            id: name.into(),
            name: name.into(),
            groups,
            ..VerifiedIdentity::default()
        }))
    };
    for (principal, expected) in [
        (identity("ci", &[]), true),
        (identity("dev", &["ops"]), true),
        (identity("dev", &["op"]), false),
        (identity("ops", &[]), false),
        (Principal::Anonymous, false),
    ] {
        assert_eq!(limiters[0].is_about(&at(&principal, network(1))), expected, "{principal:?}");
    }
    for (endpoint, upstream, expected) in [("/mcp", "u", true), ("/other", "u", false), ("/mcp", "v", false)]
    {
        let target = Some(LimitTarget { upstream, tool: None, arguments: None });
        let subject = LimitSubject { endpoint, target, ..at(&Principal::Anonymous, network(1)) };
        assert_eq!(limiters[1].is_about(&subject), expected, "{endpoint} {upstream}");
    }
    assert!(limiters[0].limit.is_of_requests() && !limiters[1].limit.is_of_requests());
    assert_eq!(limiters[0].limit.by, [CountedBy::Principal]);
}

#[test]
fn many_at_once_get_no_more_than_the_limit() {
    let text = r#"limit = [{ name = "p", by = ["address"], calls = 1000, period = "1h" }]"#;
    let limiter = &limiters(text, 10)[0];
    let now = clock::now();
    let passed: usize = std::thread::scope(|scope| {
        let one = || {
            let key = limiter.key(&at(&Principal::Anonymous, network(1)));
            (0..1000).filter(|_| limiter.check(limiter.gcra, &key, 1, now).is_ok()).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 1000);
}
