//! Several gateways with one provider, one key file and one Redis that keeps a log: a sign-in belongs to none of them.

use std::time::{Duration, Instant};

use super::browser::moves_on;
use super::operators::grants;
use super::place::{asking, authorize, code_of, code_parameters};
use super::{AskedTokens, Browser, Place, REDIRECT, Settings, Tokens, URL, form, post_form};
use crate::harness::{Folder, Redis, Response, eventually, now_s, write_secret};

/// The keys of sign-in of gateways, newest first.
const KEY: &str = "7";
const ROTATED: &str = "87";

/// For so long a refresh token gets the same successor again, where a test waits for new ones.
const REUSE_S: u64 = 2;
const REUSE: &str = "refresh_reuse = \"2s\"";

/// The settings that all gateways have in common.
struct Fleet {
    redis: Redis,
    folder: Folder,
    /// Lines of `[sign_in]`.
    lines: &'static str,
}

impl Fleet {
    fn new() -> Self {
        Self::with("", &["--appendonly", "yes"])
    }

    fn with(lines: &'static str, redis: &[&str]) -> Self {
        let folder = Folder::new();
        write_secret(&folder.path().join("session.key"), &"7".repeat(64));
        Self { redis: Redis::start_with(redis), folder, lines }
    }

    /// Runs with the settings of a gateway that has these keys.
    fn settings<T>(&self, keys: &str, more: &str, run: impl FnOnce(Settings<'_>) -> T) -> T {
        let lines: Vec<String> = keys.chars().map(|digit| digit.to_string().repeat(64)).collect();
        let (key, session) = (self.folder.path().join(keys), self.folder.path().join("session.key"));
        write_secret(&key, &lines.join("\n"));
        let sign_in = format!("key = {{ file = \"{}\" }}\n{}\n{more}", key.display(), self.lines);
        let shared = self.redis.section("timeout = \"10s\"");
        let sections = format!("[session]\nkey = {{ file = \"{}\" }}\n{shared}", session.display());
        run(Settings { sign_in: &sign_in, sections: &sections, ..Settings::default() })
    }

    fn gateway(&self) -> Place {
        connected(self.settings(KEY, "", Place::with))
    }

    fn beside(&self, place: &Place, keys: &str) -> Place {
        connected(self.settings(keys, "", |settings| place.beside(settings)))
    }

    fn two(&self) -> [Place; 2] {
        let one = self.gateway();
        let two = self.beside(&one, KEY);
        [one, two]
    }

    fn start_again(&self, place: &mut Place) {
        self.settings(KEY, "", |settings| place.start_again(settings));
        is_connected(place, true);
    }

    /// Redis is gone, and all gateways know it.
    fn stop_redis(&mut self, all: &[Place]) {
        self.redis.kill();
        for place in all {
            is_connected(place, false);
        }
    }

    fn start_redis(&mut self, all: &[Place]) {
        self.redis.go_on();
        for place in all {
            is_connected(place, true);
        }
    }
}

fn connected(place: Place) -> Place {
    is_connected(&place, true);
    place
}

fn is_connected(place: &Place, expected: bool) {
    eventually("the connection is noticed", || {
        let found = place.daemon.find_metric("trunkline_shared_connected");
        (found == Some(u64::from(expected))).then_some(())
    });
}

fn assert_later(response: &Response) {
    let error = response.json()["error"].as_str().map(str::to_owned);
    assert_eq!((response.status, error.as_deref()), (503, Some("temporarily_unavailable")), "{response:?}");
    assert!(response.header("retry-after").is_some(), "{response:?}");
}

fn revoke(place: &Place, client: &str, token: &str) -> Response {
    place.daemon.send(&post_form("/revoke", &form(&[("token", token), ("client_id", client)])))
}

/// The keys of all records in Redis.
fn records(fleet: &Fleet) -> Vec<String> {
    fleet.redis.command(&["KEYS", "trunkline:sign-in:*"]).lines().map(str::to_owned).collect()
}

/// Waits until the tokens that were got then have to be renewed.
fn await_renewal(got_s: u64) {
    eventually("the tokens may be renewed", || (now_s() > got_s + REUSE_S).then_some(()));
}

/// A sign-in at this gateway, and its client.
fn signed_in(place: &Place) -> (String, Tokens) {
    let client = place.register(REDIRECT);
    let code = place.code(&client, "alice");
    let tokens = place.exchange(&client, &code).tokens();
    (client, tokens)
}

#[test]
fn each_step_may_be_at_another_gateway_and_the_one_before_is_gone() {
    let fleet = Fleet::new();
    let [mut one, mut two] = fleet.two();
    let mut browser = Browser::default();
    let client = one.register(REDIRECT);
    one.daemon.kill();
    let page = browser.open(&two.daemon, &authorize(&asking(&client)));
    fleet.start_again(&mut one);
    two.daemon.kill();
    let moving = browser.answer(&one.daemon, &page, "allow");
    fleet.start_again(&mut two);
    one.daemon.kill();
    let back = two.provider.sign_in(&moves_on(&moving), "alice");
    let back = back.strip_prefix(URL).expect("an address of the gateway");
    let code = code_of(&browser.open(&two.daemon, back));
    fleet.start_again(&mut one);
    two.daemon.kill();
    let first = one.exchange(&client, &code).tokens();
    fleet.start_again(&mut two);
    one.daemon.kill();
    assert_eq!(two.call(&first.access), 200);
    let second = two.refresh(&client, &first.refresh).tokens();
    fleet.start_again(&mut one);
    two.daemon.kill();
    assert_eq!(one.call(&second.access), 200);
    let third = one.refresh(&client, &second.refresh).tokens();
    assert_eq!(revoke(&one, &client, &third.refresh).status, 200);
    one.daemon.kill();
    fleet.start_again(&mut two);
    for access in [&first.access, &second.access, &third.access] {
        assert_eq!(two.call(access), 401, "a gateway that starts knows what was ended before its first call");
    }
    two.refresh(&client, &third.refresh).assert_refused("invalid_grant");
}

#[test]
fn a_gateway_that_is_killed_amid_a_refresh_costs_no_sign_in() {
    let fleet = Fleet::with(REUSE, &["--appendonly", "yes"]);
    let [mut one, two] = fleet.two();
    let (client, mut tokens) = signed_in(&two);
    for after in [500_u64, 1500, 3000] {
        await_renewal(now_s());
        let shown =
            [("grant_type", "refresh_token"), ("refresh_token", &*tokens.refresh), ("client_id", &*client)];
        let asked = one.daemon.begin(&post_form("/token", &form(&shown)));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(after) {
            std::thread::yield_now();
        }
        one.daemon.kill();
        drop(asked);
        tokens = two.refresh(&client, &tokens.refresh).tokens();
        assert_eq!(two.call(&tokens.access), 200);
        fleet.start_again(&mut one);
    }
    await_renewal(now_s());
    let next = one.refresh(&client, &tokens.refresh).tokens();
    assert_eq!(two.call(&next.access), 200);
    assert!(one.daemon.metric("trunkline_sign_in_tokens_total{kind=\"next\"}") > 0, "they were renewed");
}

#[test]
fn an_end_that_was_told_in_vain_is_known_within_a_second() {
    let fleet = Fleet::with("", &["--appendonly", "yes", "--rename-command", "PUBLISH", ""]);
    let [one, two] = fleet.two();
    // A machine that others keep busy may stand still for a moment: one of a few is in time.
    let is_in_time = (0..5).any(|_| {
        let (client, tokens) = signed_in(&one);
        assert_eq!(two.call(&tokens.access), 200);
        assert_eq!(revoke(&one, &client, &tokens.refresh).status, 200);
        let ended = Instant::now();
        eventually("the other knows it", || (two.call(&tokens.access) == 401).then_some(()));
        ended.elapsed() < Duration::from_secs(1)
    });
    assert!(is_in_time);
}

#[test]
fn without_redis_tokens_go_on_and_with_it_all_does() {
    let mut fleet = Fleet::new();
    let all = fleet.two();
    let [one, two] = &all;
    let (client, tokens) = signed_in(one);
    let (_, over) = signed_in(one);
    assert_eq!(revoke(one, &client, &over.refresh).status, 400, "it is of another client");
    let mut browser = Browser::default();
    let back = one.visit(&mut browser, &client, "bob");
    let code = two.code(&client, "bob");
    fleet.stop_redis(&all);
    for place in &all {
        assert_eq!(place.call(&tokens.access), 200);
        assert_later(&place.refresh(&client, &tokens.refresh).0);
        assert_later(&place.token(&code_parameters(&client, &code)));
        assert_later(&revoke(place, &client, &tokens.refresh));
    }
    let page = browser.clone().open(&one.daemon, &back);
    assert_eq!(page.status, 503, "{}", page.text());
    fleet.start_redis(&all);
    let next = two.refresh(&client, &tokens.refresh).tokens();
    assert_eq!(one.call(&next.access), 200, "nothing was lost");
    one.exchange(&client, &code).tokens();
    // The provider's code was used up, so that person begins again.
    two.exchange(&client, &one.code(&client, "bob")).tokens();
}

#[test]
fn a_redis_that_comes_back_empty_costs_sign_ins_and_revives_none() {
    let mut fleet = Fleet::new();
    let all = fleet.two();
    let [one, two] = &all;
    let (client, tokens) = signed_in(one);
    let (gone, ended) = signed_in(one);
    assert_eq!(revoke(one, &gone, &ended.refresh).status, 200);
    eventually("both know it", || (two.call(&ended.access) == 401).then_some(()));
    fleet.redis.command(&["FLUSHALL"]);
    fleet.stop_redis(&all);
    fleet.start_redis(&all);
    for place in &all {
        place.refresh(&gone, &ended.refresh).assert_refused("invalid_grant");
        place.refresh(&client, &tokens.refresh).assert_refused("invalid_grant");
        assert_eq!(place.call(&ended.access), 401);
    }
    let anew = two.exchange(&client, &one.code(&client, "alice")).tokens();
    assert_eq!(one.call(&anew.access), 200);
    assert!(!fleet.redis.everything().contains("grant/"), "names of keys are digests");
}

#[test]
fn a_gateway_without_the_new_key_sends_nobody_to_the_browser() {
    let fleet = Fleet::new();
    let one = fleet.gateway();
    fleet.settings(ROTATED, "", |settings| one.reload(settings));
    let two = fleet.beside(&one, KEY);
    let (client, tokens) = signed_in(&one);
    // As soon as the new key is known to be in use.
    eventually("it may be tried again", || {
        (two.refresh(&client, &tokens.refresh).0.status == 503).then_some(())
    });
    assert_later(&two.refresh(&client, &tokens.refresh).0);
    assert_later(&revoke(&two, &client, &tokens.refresh));
    assert_later(&two.token(&code_parameters(&client, &one.code(&client, "bob"))));
    assert_eq!(two.call(&tokens.access), 401, "nobody can tell what it says");
    let page = Browser::default().open(&two.daemon, &authorize(&asking(&client)));
    assert_eq!(page.status, 503, "{}", page.text());
    two.daemon.wait_for_log(0, "the operator is told", |line| line.contains("that this one lacks"));
    fleet.settings(ROTATED, "", |settings| two.reload(settings));
    let next = two.refresh(&client, &tokens.refresh).tokens();
    assert_eq!((one.call(&next.access), two.call(&next.access)), (200, 200));
    // Of a key that nobody has, or had, it is nothing.
    let stranger = Fleet::new();
    let elsewhere = connected(stranger.settings("9", "", |settings| one.beside(settings)));
    let (other, unknown) = signed_in(&elsewhere);
    two.refresh(&other, &unknown.refresh).assert_refused("invalid_client");
}

#[test]
fn the_provider_is_asked_once_and_no_loser_is_sent_to_the_browser() {
    let fleet = Fleet::new();
    let [one, two] = fleet.two();
    let (first, second) = (signed_in(&one), signed_in(&two));
    one.provider.faults(
        &serde_json::json!({ "groups": { "alice": ["board", "staff"] }, "slow_ms": 300, "at": ["/token"] }),
    );
    for place in [&one, &two] {
        fleet.settings(KEY, "require = { groups = [\"board\"] }", |settings| place.reload(settings));
    }
    let before = one.provider.requests("/token");
    let ask = |place: &Place, (client, tokens): &(String, Tokens)| {
        eventually("it is answered", || {
            let AskedTokens(response) = place.refresh(client, &tokens.refresh);
            if response.status == 503 {
                assert_later(&response);
                return None;
            }
            Some(AskedTokens(response).tokens())
        })
    };
    let both = std::thread::scope(|scope| {
        let asked = [scope.spawn(|| ask(&one, &first)), scope.spawn(|| ask(&two, &second))];
        asked.map(|asked| asked.join().expect("it is answered"))
    });
    assert_eq!(one.provider.requests("/token"), before + 1);
    for tokens in &both {
        assert_eq!((one.call(&tokens.access), two.call(&tokens.access)), (200, 200));
    }
}

#[test]
fn one_token_at_two_gateways_at_once_has_one_successor() {
    let fleet = Fleet::with(REUSE, &["--appendonly", "yes"]);
    let [one, two] = fleet.two();
    let (client, mut tokens) = signed_in(&one);
    let next = |place: &Place| place.daemon.find_metric("trunkline_sign_in_tokens_total{kind=\"next\"}");
    for _ in 0..3 {
        await_renewal(now_s());
        let before = [&one, &two].map(next);
        let ask = |place: &Place| place.refresh(&client, &tokens.refresh).tokens();
        let both = std::thread::scope(|scope| {
            [scope.spawn(|| ask(&one)), scope.spawn(|| ask(&two))].map(|asked| asked.join().expect("tokens"))
        });
        let after = [&one, &two].map(next);
        let renewed: u64 = after.iter().flatten().sum::<u64>() - before.iter().flatten().sum::<u64>();
        assert_eq!(renewed, 1, "the other got what the first one had made");
        let [first, second] = both;
        assert_eq!((one.call(&second.access), two.call(&first.access)), (200, 200));
        two.refresh(&client, &second.refresh).tokens();
        tokens = first;
    }
}

#[test]
fn the_operator_is_told_of_a_redis_that_loses_sign_ins() {
    let faults = |place: &Place| {
        ["not_persistent", "evicts"].map(|fault| {
            let name = format!("trunkline_sign_in_redis_faults{{fault=\"{fault}\"}}");
            eventually("Redis was asked", || place.daemon.find_metric(&name))
        })
    };
    let evicting = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];
    let fleet = Fleet::with("", &evicting);
    let place = fleet.gateway();
    assert_eq!(faults(&place), [1, 1]);
    for advice in ["set `appendonly yes`", "set `maxmemory-policy noeviction`"] {
        place.daemon.wait_for_log(0, "what to do", |line| line.contains(advice) && line.contains("WARN"));
    }
    let keeping = ["--appendonly", "yes", "--maxmemory", "64mb", "--maxmemory-policy", "noeviction"];
    let fleet = Fleet::with("", &keeping);
    let place = fleet.gateway();
    assert_eq!(faults(&place), [0, 0]);
    assert!(!place.daemon.log().iter().any(|line| line.contains("appendonly")), "{:?}", place.daemon.log());
    // With its memory full it refuses what takes some, and says so; what is there goes on, and ends.
    let (client, tokens) = signed_in(&place);
    let code = place.code(&client, "bob");
    fleet.redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_later(&place.exchange(&client, &code).0);
    assert_eq!(place.call(&tokens.access), 200);
    assert_eq!(revoke(&place, &client, &tokens.refresh).status, 200);
    assert_eq!(place.call(&tokens.access), 401);
    fleet.redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    place.exchange(&client, &code).tokens();
}

#[test]
fn groups_that_have_changed_are_told_as_soon_as_that_can_be_kept() {
    let scopes =
        "scopes = { \"mcp:read\" = [\"*\"], \"mcp:write\" = [\"board\"], \"mcp:audit\" = [\"audit\"] }";
    let fleet = Fleet::with(scopes, &["--appendonly", "yes"]);
    let place = fleet.gateway();
    let (client, tokens) = signed_in(&place);
    let before = records(&fleet);
    // A requirement that the last answer does not meet has the provider asked at once.
    let require = |group: &str| {
        place.provider.faults(&serde_json::json!({ "groups": { "alice": [group] } }));
        let more = format!("require = {{ groups = [\"{group}\"] }}");
        fleet.settings(KEY, &more, |settings| place.reload(settings));
    };
    require("board");
    let tokens = place.refresh(&client, &tokens.refresh).tokens();
    let made: Vec<String> = records(&fleet).into_iter().filter(|key| !before.contains(key)).collect();
    let [news] = &made[..] else { panic!("one piece of news: {made:?}") };
    let field = |name: &str| fleet.redis.command(&["HGET", news, name]).trim().to_owned();
    let (generation, end_s) = (field("g"), field("u"));
    // Without its end the record cannot be read, and so not be replaced.
    fleet.redis.command(&["HDEL", news, "u"]);
    require("audit");
    let from = place.daemon.log().len();
    let next = std::thread::scope(|scope| {
        let asked = scope.spawn(|| place.refresh(&client, &tokens.refresh).tokens());
        place.daemon.wait_for_log(from, "it waits", |line| line.contains("is not stored yet"));
        fleet.redis.command(&["HSET", news, "u", &end_s]);
        asked.join().expect("it is answered")
    });
    assert_eq!(place.call(&next.access), 200);
    assert_ne!(field("g"), generation, "there is news again");
}

#[test]
fn an_operator_ends_all_others_where_the_record_of_one_cannot_be_read() {
    let fleet = Fleet::new();
    let place = fleet.settings(KEY, "", |settings| Place::with(Settings { has_operators: true, ..settings }));
    place.daemon.wait_for_log(0, "the connection", |line| line.contains("connected to what replicas share"));
    let alice = place.signed_in("alice");
    let of_alice = records(&fleet);
    let bob = place.signed_in("bob");
    for key in &of_alice {
        fleet.redis.command(&["HDEL", key, "u"]);
    }
    let (code, _, told) = grants(&place, &["revoke", "--all"]);
    assert!(code == Some(1) && told.contains("1 ended, and there may be more"), "{code:?}: {told}");
    assert_eq!((place.call(&alice.access), place.call(&bob.access)), (200, 401));
    let (code, listed, told) = grants(&place, &["list"]);
    assert!(code == Some(1) && listed.is_empty() && told.contains("cannot be read"), "{code:?}: {told}");
}
