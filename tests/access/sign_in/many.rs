//! Many sign-ins: what they cost a gateway, and what a reload means for all of them.
//!
//! Their client is one of the configuration for which the operator has consented, so that no page stands in between.

use std::io::{Seek as _, Write as _};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::browser::assert_page;
use super::place::{HIDDEN, Place, Settings, VERIFIER, asking, authorize, optimised};
use super::{AskedTokens, Browser, REDIRECT, Tokens, URL, form, get, post_form};
use crate::harness::{Connection, eventually};

const CLIENT: &str = "many";
const WEB_REDIRECT: &str = "https://client.example/cb";
const THREADS: usize = 8;
/// Sign-ins of one person: fewer than one person may have.
const OF_ONE: usize = 48;
/// Says how many sign-ins there are where memory is measured; `tests/run --all` does.
const GRANTS_VARIABLE: &str = "SIGN_IN_TEST_GRANTS";
const GRANTS: usize = 384;
/// Memory for pages of the store, which is full after some hundred sign-ins, and what each sign-in may take beside it: together
/// 20 MiB for 10,000.
const STORE_CACHE_BYTES: u64 = 4 << 20;
const GRANT_BYTES_MAX: u64 = 1677;
/// Clients that refresh at once, and how often each does.
const REFRESHING: usize = 64;
const REFRESHES: usize = 20;

/// The client, and keys of `[sign_in]` before it.
fn consented(keys: &str) -> String {
    format!(
        "redirects = [\"https://client.example\"]\n{keys}\n[[sign_in.client]]\nid = \"{CLIENT}\"\nname = \"Many\"\n\
         redirects = [\"{WEB_REDIRECT}\"]\nconsent = \"none\""
    )
}

/// The request of the client.
fn asked() -> String {
    let parameters = asking(CLIENT).map(|(name, value)| match name {
        "redirect_uri" => (name, WEB_REDIRECT),
        _ => (name, value),
    });
    authorize(&parameters)
}

/// Signs in by a browser that is asked nothing.
fn sign_in(place: &Place) -> Tokens {
    let mut browser = Browser::default();
    let sent = browser.open(&place.daemon, &asked());
    let back = place.provider.sign_in(sent.header("location").expect("the provider's address"), "alice");
    let done = browser.open(&place.daemon, back.strip_prefix(URL).expect("the gateway"));
    let address = done.header("location").expect("the client's address");
    let code = address.split_once("code=").and_then(|(_, rest)| rest.split('&').next()).expect("a code");
    let shown = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", WEB_REDIRECT),
        ("code_verifier", VERIFIER),
        ("client_id", CLIENT),
    ];
    AskedTokens(place.token(&shown)).tokens()
}

/// Sign-ins of a person with these groups.
fn sign_ins_of(place: &Place, person: usize, groups: &[&str]) -> Vec<Tokens> {
    let claims = serde_json::json!({ "sub": format!("person-{person}"), "groups": groups });
    place.provider.faults(&serde_json::json!({ "id_token": claims }));
    in_parallel(OF_ONE, |_| sign_in(place))
}

fn in_parallel<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let part = |thread: usize| (thread..count).step_by(THREADS).map(work).collect::<Vec<_>>();
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || part(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread fails")).collect()
    })
}

#[test]
fn a_reload_that_denies_a_new_group_sends_none_of_a_thousand_to_the_browser() {
    const PEOPLE: usize = 21;
    let keys = consented("");
    let before = Settings { sign_in: &keys, ..Settings::default() };
    let place = Place::with(before);
    let mut clients = Vec::new();
    for person in 0..PEOPLE {
        let (groups, expected): (&[&str], u16) =
            if person % 2 == 0 { (&["staff", "ops"], HIDDEN) } else { (&["staff"], 200) };
        let tokens = sign_ins_of(&place, person, groups);
        clients.extend(tokens.into_iter().map(|tokens| (tokens.access, expected)));
    }
    assert!(clients.len() >= 1000);
    let call = |client: usize| place.call(&clients[client].0);
    assert_eq!(in_parallel(clients.len(), call), vec![200; clients.len()]);
    place.reload(Settings { sections: super::reloads::NEW_GROUP, ..before });
    let began = Instant::now();
    in_parallel(clients.len(), |client| {
        let (token, expected) = &clients[client];
        assert_eq!(place.call(token), *expected, "the first call of client {client}");
    });
    println!("{} first calls after the reload took {:?}", clients.len(), began.elapsed());
}

#[test]
fn a_thousand_visits_that_nobody_answers_store_nothing() {
    const VISITS: usize = 500;
    let keys = consented("");
    let place = Place::with(Settings { sign_in: &keys, ..Settings::default() });
    // One sign-in, so that there is something to be compared.
    sign_in(&place);
    let before = place.store();
    let client = place.register(REDIRECT);
    let mut connection = place.daemon.connect();
    let mut open = |target: &str| {
        connection.write(&get(target).bytes());
        connection.response()
    };
    for _ in 0..VISITS {
        assert_eq!(open(&authorize(&asking(&client))).status, 200, "a page asks for consent");
        assert_eq!(open(&asked()).status, 303, "a browser goes on to the provider");
    }
    assert!(place.store() == before, "the file of sign-ins has changed");
    assert_eq!(place.daemon.metric("trunkline_sign_ins_total"), 1);
}

#[test]
fn requests_of_one_address_leave_room_for_another() {
    const OF_ONE_ADDRESS: usize = 64;
    let keys = consented("");
    let place = Place::with(Settings { sign_in: &keys, ..Settings::default() });
    place
        .provider
        .faults(&serde_json::json!({ "at": ["/.well-known/openid-configuration"], "slow_ms": 60_000 }));
    // More than that: one may find all places taken while `token` has one.
    let visits: Vec<Connection> =
        (0..2 * OF_ONE_ADDRESS).map(|_| place.daemon.begin(&get(&asked()))).collect();
    let token = post_form("/token", "grant_type=refresh_token");
    let refused = eventually("as many are under way as may be", || {
        let answer = place.daemon.send(&token);
        (answer.status != 400).then_some(answer)
    });
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json()["error"], "temporarily_unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("access-control-allow-origin"), Some("*"), "clients in browsers read it");
    assert_page(&place.daemon.send(&get(&asked())), 429, "Too many sign-ins at once");
    assert!(place.daemon.metric("trunkline_sign_in_refused_total{kind=\"busy\"}") >= 2);
    let mut neighbour = Connection::open_from(Ipv4Addr::new(127, 0, 0, 2).into(), place.daemon.address());
    neighbour.write(&token.bytes());
    assert_eq!(neighbour.response().status, 400, "another address is served");
    drop(visits);
}

#[test]
fn sign_ins_take_little_memory() {
    let grants = std::env::var(GRANTS_VARIABLE);
    let grants = grants.map_or(GRANTS, |number| number.parse().expect("a number of sign-ins"));
    let keys = consented("");
    let place = Place::with(Settings { sign_in: &keys, ..Settings::default() });
    // Memory that the first ones take is kept for those that follow.
    let one = &sign_ins_of(&place, 0, &["staff"])[0];
    assert_eq!(place.call(&one.access), 200);
    let before = place.daemon.anonymous_bytes();
    let people = grants.div_ceil(OF_ONE);
    for person in 1..=people {
        for tokens in sign_ins_of(&place, person, &["staff", "ops"]) {
            assert_eq!(place.call(&tokens.access), 200);
        }
    }
    let count = (people * OF_ONE) as u64;
    let bound = STORE_CACHE_BYTES + count * GRANT_BYTES_MAX;
    let taken = eventually("what they took beside the sign-ins is given back", || {
        let taken = place.daemon.anonymous_bytes().saturating_sub(before);
        (taken <= bound).then_some(taken)
    });
    println!("{count} sign-ins: {taken} bytes, of at most {bound}");
}

/// Each client gets a successor that works, however many ask at once. Of the optimised build, they share confirmations of the
/// disk: measured beside.
#[test]
fn sixty_four_clients_refresh_at_once() {
    let keys = consented("refresh_reuse = \"0s\"\ngrants_per_principal_max = 100");
    let place = Place::with(Settings { sign_in: &keys, ..Settings::default() });
    let first = in_parallel(REFRESHING, |_| sign_in(&place));
    let alone =
        Refreshing { place: &place, connection: place.daemon.connect(), tokens: first[0].clone() }.times(50);
    let began = Instant::now();
    let all: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let threads: Vec<_> = first[1..]
            .iter()
            .chain([&alone.1])
            .map(|tokens| {
                let mut client =
                    Refreshing { place: &place, connection: place.daemon.connect(), tokens: tokens.clone() };
                scope.spawn(move || client.times(REFRESHES).0)
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("each goes on")).collect()
    });
    let elapsed = began.elapsed();
    let mut times: Vec<Duration> = all.into_iter().flatten().collect();
    times.sort_unstable();
    let count = times.len();
    let given = place.daemon.metric("trunkline_sign_in_tokens_total{kind=\"next\"}");
    assert_eq!(given, (REFRESHING + 50 + count) as u64, "each is a new generation");
    let (one, p99, disk) = (median(alone.0), times[count * 99 / 100], fsync(&place));
    let by_fsync = f64::from(u32::try_from(count).expect("few")) * disk.as_secs_f64() / elapsed.as_secs_f64();
    println!(
        "{count} refreshes of {REFRESHING} clients in {elapsed:?}: {by_fsync:.1} in the time of an fsync, p99 {p99:?}; \
         one alone takes {one:?}, an fsync {disk:?}"
    );
    if optimised().is_some() {
        assert!(p99 <= 3 * one.max(disk), "p99 {p99:?}");
    }
}

/// A client that refreshes.
struct Refreshing<'p> {
    place: &'p Place,
    connection: Connection,
    tokens: Tokens,
}

impl Refreshing<'_> {
    /// Refreshes so often. Returns how long each took, and the last tokens, which work.
    fn times(&mut self, times: usize) -> (Vec<Duration>, Tokens) {
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let shown = [
                ("grant_type", "refresh_token"),
                ("refresh_token", &*self.tokens.refresh),
                ("client_id", CLIENT),
            ];
            let request = post_form("/token", &form(&shown)).bytes();
            let began = Instant::now();
            self.connection.write(&request);
            let response = self.connection.response();
            took.push(began.elapsed());
            self.tokens = AskedTokens(response).tokens();
        }
        assert_eq!(self.place.call(&self.tokens.access), 200);
        (took, self.tokens.clone())
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The time that the disk takes to confirm a page beside the file of sign-ins.
fn fsync(place: &Place) -> Duration {
    let path = place.state().join("beside");
    let mut file = std::fs::File::create(path).expect("a file");
    let mut once = || {
        file.rewind().and_then(|()| file.write_all(&[7; 4096])).expect("it is written");
        let began = Instant::now();
        file.sync_data().expect("it is confirmed");
        began.elapsed()
    };
    median((0..50).map(|_| once()).collect())
}
