//! Grants of several gateways in a real Redis: the cases of each place for records, and what is left after each crash. Those of one
//! gateway are in `file.rs`.

mod file;
mod server;

use identity::presented::Presented;
use store::cases::NOW_S;
use store::{Page, Swept};
use tokio::task::LocalSet;

use self::server::{Cut, CuttingProxy, RedisServer, eventually};
use super::*;
use crate::redis::peer_message::PeerMessage;
use crate::redis::run::PeerEvent;

/// The key file of a gateway, a digit for each key.
const KEY: &str = "7";
const ISSUER: &str = "https://login.example.com";
/// The chapter of the book that says which user of Redis a gateway needs.
const BOOK: &str = include_str!("../../../../docs/deploy/replicas.md");

/// Records in a Redis that somebody else may have emptied.
struct Place {
    records: RedisRecords,
    _server: RedisServer,
}

impl Place {
    async fn empty() -> Self {
        const LISTED: &[&str] = &["ending", "listec", "listed", "listed0"];
        let server = RedisServer::start().await;
        let redis = server.connect(&server.socket(), |_| {}).await;
        Self { records: RedisRecords::new(redis, LISTED, "logged"), _server: server }
    }
}

fn told(error: &RecordsError) -> StoreError {
    StoreError::Io(error.to_string())
}

impl store::cases::Records for Place {
    async fn read(&self, name: Name, now_s: u64) -> Result<Option<Record>, StoreError> {
        let found = self.records.read(&name).await.map_err(|error| told(&error))?;
        Ok(found.filter(|record| record.exists(now_s)))
    }

    async fn commit(&self, changes: Changes, now_s: u64) -> Result<Outcome, StoreError> {
        self.records.commit(changes, now_s).await.map_err(|error| told(&error))
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<Name>,
        count_max: usize,
        now_s: u64,
    ) -> Result<Page, StoreError> {
        let (kind, _) = prefix.split_once('/').expect("a kind");
        let page = self.records.names(kind, after.as_ref(), count_max).await.map_err(|error| told(&error))?;
        let mut records = Vec::new();
        for name in page.names.into_iter().filter(|name| name.as_str().starts_with(prefix)) {
            records.extend(self.read(name.clone(), now_s).await?.map(|record| (name, record)));
        }
        Ok(Page { records, next: page.next })
    }

    /// Redis removes by itself what is over: this waits until that was done.
    async fn sweep(&self, now_s: u64) -> Result<Swept, StoreError> {
        for name in ["ending/short", "ending/long"].map(|name| Name::new(name).expect("a name")) {
            eventually("what is over is removed", async || {
                let found = self.records.read(&name).await.expect("Redis answers");
                found.is_none_or(|record| record.exists(now_s)).then_some(())
            })
            .await;
        }
        Ok(Swept { removed: 0, has_more: false })
    }
}

#[tokio::test]
async fn redis_passes_the_cases_of_each_place_for_records() {
    LocalSet::new().run_until(store::cases::run_all(Place::empty)).await;
}

#[tokio::test]
async fn generations_go_on_with_the_clock_also_after_redis_was_emptied() {
    LocalSet::new()
        .run_until(async {
            let mut server = RedisServer::start().await;
            let redis = server.connect(&server.socket(), |_| {}).await;
            let records = RedisRecords::new(Arc::clone(&redis), &[], "logged");
            let create = async |number: u64, now_s: u64| {
                let name = Name::new(&format!("a/{number}")).expect("a name");
                let record = NewRecord::new(Vec::new(), store::NEVER_S).expect("short");
                let changes = Changes::one(Change::create(name, record));
                match records.commit(changes, now_s).await.expect("Redis answers") {
                    Outcome::Committed(generations) => generations[0].expect("a generation"),
                    Outcome::Conflict => panic!("it is there already"),
                }
            };
            let (first, second) = (create(1, NOW_S).await, create(2, NOW_S).await);
            assert!(second > first);
            let earlier = create(3, NOW_S - 10).await;
            assert!(earlier > second, "a clock that is behind takes nothing back");
            let before = redis.epoch();
            server.kill_and_start_empty().await;
            eventually("it is connected again", async || {
                (redis.epoch() != before && redis.is_connected()).then_some(())
            })
            .await;
            assert!(create(1, NOW_S + 1).await > earlier, "none comes again");
        })
        .await;
}

/// A gateway with this key file, and what it is told of others if it listens.
async fn gateway(server: &RedisServer, socket: &std::path::Path, keys: &str, listens: bool) -> Arc<Grants> {
    let told = Arc::new(ArcSwapOption::<Grants>::empty());
    let heard = Arc::clone(&told);
    let redis = server
        .connect(socket, move |event| {
            let grants = heard.load_full();
            match (grants, event) {
                (Some(grants), PeerEvent::Joined) => grants.doubt_news(),
                (Some(grants), PeerEvent::Message(PeerMessage::GrantNews(id, news))) if listens => {
                    grants.hear_told(id, &news);
                }
                _ => {}
            }
        })
        .await;
    let grants = Arc::new(Grants {
        records: Records::Redis(RedisRecords::new(Arc::clone(&redis), &[ACCOUNT], NEWS)),
        folder: None,
        health: SignInHealth::default(),
        seals: ArcSwapOption::from_pointee(seals(keys)),
        opening: OpeningTurns::default(),
        turns: Mutex::default(),
        shared: Some(redis),
        news: Arc::default(),
        is_behind: true.into(),
        log_position: AtomicU64::new(0),
    });
    told.store(Some(Arc::clone(&grants)));
    grants
}

fn seals(keys: &str) -> Seals {
    let lines: Vec<String> = keys.chars().map(|digit| digit.to_string().repeat(64)).collect();
    Seals::from_text(&lines.join("\n")).expect("keys")
}

fn account() -> AccountRecord {
    AccountRecord {
        issuer: ISSUER.into(),
        subject: "ann".into(),
        principal: format!("jwt:{ISSUER} ann"),
        name: "Ann".into(),
        groups: vec!["staff".into()],
        claims: vec![],
        refresh_token: Some(Presented::new("of the provider")),
        checked_s: now_s(),
        unanswered_since_s: None,
        grants: vec![],
    }
}

fn grant(number: u8) -> GrantRecord {
    GrantRecord {
        id: GrantId([number; 16]),
        account: account().fingerprint(),
        principal: account().principal,
        client_id: "client".into(),
        client_name: "Client".into(),
        endpoint: "https://mcp.example.com/mcp".into(),
        scopes: vec![],
        opened_s: now_s(),
        used_s: now_s(),
        ends_s: now_s() + 3600,
        idle_max_s: 3600,
        generation: 1,
        rotated_s: now_s(),
    }
}

/// Everything that stands in the store is whole: an account names its grants, and each grant has its account.
async fn assert_whole(grants: &Grants) {
    let held = grants.account(account().fingerprint()).await.expect("Redis answers");
    let named = held.map(|held| held.value.grants).unwrap_or_default();
    for number in [1, 2] {
        let id = GrantId([number; 16]);
        let is_there = grants.grant(id).await.expect("Redis answers").is_some();
        assert_eq!(is_there, named.contains(&id), "grant {number}");
    }
}

#[tokio::test]
async fn a_reset_connection_at_any_commit_leaves_all_or_nothing() {
    LocalSet::new().run_until(cut_at_each_commit()).await;
}

async fn cut_at_each_commit() {
    let mut server = RedisServer::start().await;
    let proxy = CuttingProxy::start(&server);
    let two = gateway(&server, &server.socket(), KEY, false).await;
    for (number, cut) in [(1, Cut::Before), (2, Cut::After)] {
        // Redis has to know the script, which the first commit brings.
        let warmed = two.is_first_use(&["warm", &number.to_string()], now_s() + 60).await;
        assert_eq!(warmed, Ok(true));
        a_grant_in_cut_steps(&server, &proxy, &two, number, cut).await;
        server.kill_and_start().await;
        let anew = gateway(&server, &server.socket(), KEY, false).await;
        anew.learn_news().await.expect("read");
        let ended = anew.news.of(GrantId([number; 16]));
        assert_eq!(ended, Some(News::Ended), "neither a new gateway nor Redis has forgotten it");
        assert_whole(&anew).await;
        eventually("it is connected again", async || two.is_shared_now().then_some(())).await;
    }
}

/// A grant from its beginning to its end. The connection of each commit is reset, and the step is tried again at a gateway that
/// has just started.
async fn a_grant_in_cut_steps(
    server: &RedisServer,
    proxy: &CuttingProxy,
    two: &Grants,
    number: u8,
    cut: Cut,
) {
    let was_done = cut == Cut::After;
    let (id, opened) = (GrantId([number; 16]), grant(number));
    let fresh = async || {
        let one = gateway(server, proxy.socket(), KEY, false).await;
        proxy.cut(cut);
        one
    };
    let direct = async || gateway(server, &server.socket(), KEY, false).await;

    assert!(fresh().await.open_grant(&account(), &opened, 8).await.is_err() && proxy.has_cut());
    assert_whole(two).await;
    assert_eq!(two.grant(id).await.expect("read").is_some(), was_done, "{cut:?}");
    if !was_done {
        direct().await.open_grant(&account(), &opened, 8).await.expect("tried again");
    }

    let held = two.grant(id).await.expect("read").expect("it is there");
    let next = GrantRecord { generation: 2, ..held.value.clone() };
    assert!(fresh().await.replace_grant(&held, &next).await.is_err() && proxy.has_cut());
    let now = two.grant(id).await.expect("read").expect("it is there").value.generation;
    assert_eq!(now, if was_done { 2 } else { 1 });
    let again = direct().await.replace_grant(&held, &next).await.expect("tried again");
    assert_eq!(again, if was_done { Written::Late } else { Written::Done }, "nothing is done twice");

    let lost = fresh().await.take_turn(account().fingerprint(), 60).await;
    assert!(lost.is_err() && proxy.has_cut());
    let turn = two.take_turn(account().fingerprint(), 60).await.expect("asked");
    assert_eq!(turn.is_none(), was_done, "a turn whose answer was lost is nobody's until it ends");
    if let Some(turn) = turn {
        two.end_turn(turn).await;
    }

    let jti = number.to_string();
    let used = ["jti", &*jti];
    assert!(fresh().await.is_first_use(&used, now_s() + 60).await.is_err() && proxy.has_cut());
    assert_eq!(two.is_first_use(&used, now_s() + 60).await, Ok(!was_done));
    assert_eq!(two.is_first_use(&used, now_s() + 60).await, Ok(false));

    let held = two.account(account().fingerprint()).await.expect("read").expect("an account");
    let next = AccountRecord { name: "Anne".into(), ..held.value.clone() };
    assert!(fresh().await.replace_account(&held, &next).await.is_err() && proxy.has_cut());
    let again = direct().await.replace_account(&held, &next).await.expect("tried again");
    assert_eq!(again, if was_done { Written::Late } else { Written::Done });

    assert!(fresh().await.end(id).await.is_err() && proxy.has_cut());
    assert_whole(two).await;
    assert_eq!(two.grant(id).await.expect("read").is_none(), was_done);
    let one = direct().await;
    assert_eq!(one.end(id).await.expect("tried again").is_some(), !was_done);
    two.learn_news().await.expect("read");
    assert_eq!([one.news.of(id), two.news.of(id)], [Some(News::Ended); 2]);
}

#[tokio::test]
async fn news_that_was_told_in_vain_is_read_by_position() {
    LocalSet::new()
        .run_until(async {
            let server = RedisServer::start().await;
            let one = gateway(&server, &server.socket(), KEY, true).await;
            let deaf = gateway(&server, &server.socket(), KEY, false).await;
            deaf.learn_news().await.expect("read");
            for number in 1..=3 {
                one.open_grant(&account(), &grant(number), 8).await.expect("opened");
            }
            let held = one.account(account().fingerprint()).await.expect("read").expect("an account");
            one.note_change(&held.value).await.expect("noted");
            deaf.learn_news().await.expect("read");
            let is_changed = |news| matches!(news, Some(News::ChangedAt(_)));
            assert!((1..=3).all(|number| is_changed(deaf.news.of(GrantId([number; 16])))));
            let epoch = deaf.news.epoch();
            deaf.learn_news().await.expect("read");
            assert_eq!(deaf.news.epoch(), epoch, "nothing is read twice");
            one.end(GrantId([2; 16])).await.expect("ended");
            deaf.learn_news().await.expect("read");
            assert_eq!(deaf.news.of(GrantId([2; 16])), Some(News::Ended));
            one.note_change(&held.value).await.expect("noted");
            deaf.learn_news().await.expect("read");
            assert_eq!(deaf.news.of(GrantId([2; 16])), Some(News::Ended), "what ended stays ended");
            let listening = gateway(&server, &server.socket(), KEY, true).await;
            one.end(GrantId([3; 16])).await.expect("ended");
            eventually("it is told at once", async || listening.news.of(GrantId([3; 16]))).await;
        })
        .await;
}

#[tokio::test]
async fn nobody_who_writes_to_redis_makes_news_turns_or_marks() {
    LocalSet::new()
        .run_until(async {
            let server = RedisServer::start().await;
            let one = gateway(&server, &server.socket(), KEY, true).await;
            let two = gateway(&server, &server.socket(), KEY, true).await;
            let stranger = gateway(&server, &server.socket(), "9", false).await;
            for number in 1..=2 {
                one.open_grant(&account(), &grant(number), 8).await.expect("opened");
            }
            let (living, ended) = (GrantId([1; 16]), GrantId([2; 16]));
            one.end(ended).await.expect("ended");
            // It turns "ended" into "changed", and ends one that lives.
            for (id, news) in [(ended, News::ChangedAt(1)), (living, News::Ended)] {
                let name = Name::new(&id.record_name().replacen("grant", NEWS, 1)).expect("a name");
                let record = stranger.sealed(name.as_str(), &news, now_s() + 60).expect("sealed");
                let before = stranger.records.read(&name).await.expect("read");
                let change = match before {
                    Some(before) => Change::replace(name, before.generation, record),
                    None => Change::create(name, record),
                };
                assert_eq!(stranger.commit(vec![change]).await, Ok(Written::Done));
                stranger.tell(id, news);
            }
            let anew = gateway(&server, &server.socket(), KEY, true).await;
            for grants in [&anew, &two] {
                grants.learn_news().await.expect("read");
                assert_eq!(grants.news.of(ended), Some(News::Ended), "its record is gone");
                assert_eq!(grants.news.of(living), None);
            }
            assert!(stranger.take_turn(account().fingerprint(), 60).await.expect("asked").is_some());
            let turn = one.take_turn(account().fingerprint(), 60).await.expect("asked");
            assert!(turn.is_some(), "that one is nobody's");
            assert!(two.take_turn(account().fingerprint(), 60).await.expect("asked").is_none());
            assert_eq!(stranger.is_first_use(&["x"], now_s() + 60).await, Ok(true));
            assert_eq!(one.is_first_use(&["x"], now_s() + 60).await, Ok(true));
            assert_eq!(two.is_first_use(&["x"], now_s() + 60).await, Ok(false));
        })
        .await;
}

#[tokio::test]
async fn what_another_gateway_sealed_with_a_key_that_is_on_its_way_is_not_taken_for_nothing() {
    LocalSet::new()
        .run_until(async {
            let server = RedisServer::start().await;
            let new = gateway(&server, &server.socket(), "87", false).await;
            let old = gateway(&server, &server.socket(), "7", false).await;
            new.open_grant(&account(), &grant(1), 8).await.expect("opened");
            let id = GrantId([1; 16]);
            assert_eq!(
                old.grant(id).await.map(|held| held.is_some()),
                Ok(false),
                "nobody says that the key is used"
            );
            assert!(!new.tell_keys().await.expect("told"));
            assert!(old.tell_keys().await.expect("told"), "it hears that it lacks one");
            assert_eq!(old.grant(id).await.map(|_| ()), Err(GrantsError::KeyElsewhere));
            let refused = old.open_grant(&account(), &grant(2), 8).await;
            assert_eq!(refused.map(|_| ()), Err(GrantsError::KeyElsewhere), "it overwrites nothing");
            new.end(id).await.expect("ended");
            old.learn_news().await.expect("read");
            assert_eq!(old.news.of(id), Some(News::Ended), "its record is gone, which is news enough");
            old.take_up(Some(Arc::new(seals("78"))));
            new.open_grant(&account(), &grant(3), 8).await.expect("opened");
            assert!(old.grant(GrantId([3; 16])).await.expect("read").is_some());
        })
        .await;
}

#[tokio::test]
async fn the_user_that_the_book_makes_may_do_all_that_sign_ins_need() {
    LocalSet::new()
        .run_until(async {
            let mut server = RedisServer::start().await;
            let command = BOOK.lines().find_map(|line| line.strip_prefix("redis-cli "));
            server.restrict(command.expect("a command")).await;
            let one = gateway(&server, &server.socket(), "87", false).await;
            let two = gateway(&server, &server.socket(), "87", true).await;
            let old = gateway(&server, &server.socket(), "7", false).await;
            for number in 1..=2 {
                one.open_grant(&account(), &grant(number), 8).await.expect("opened");
            }
            let (id, other) = (GrantId([1; 16]), GrantId([2; 16]));
            let held = one.grant(id).await.expect("read").expect("a grant");
            let next = GrantRecord { generation: 2, ..held.value.clone() };
            assert_eq!(one.replace_grant(&held, &next).await, Ok(Written::Done));
            for _ in 0..2 {
                let turn = one.take_turn(account().fingerprint(), 60).await.expect("asked");
                one.end_turn(turn.expect("it is free")).await;
            }
            assert_eq!(one.is_first_use(&["x"], now_s() + 60).await, Ok(true));
            let page = one.accounts(None, 8).await.expect("listed");
            assert_eq!((page.accounts.len(), page.fault), (1, None));
            one.end(id).await.expect("ended").expect("it was there");
            eventually("it is told at once", async || two.news.of(id)).await;
            old.learn_news().await.expect("read");
            assert_eq!(old.news.of(id), Some(News::Ended));
            one.tell_keys().await.expect("told");
            assert_eq!(old.grant(other).await.map(|_| ()), Err(GrantsError::KeyElsewhere));
            assert!(one.redis_faults().await.is_some(), "Redis tells how it is set");
        })
        .await;
}

#[tokio::test]
async fn of_many_gateways_one_has_the_turn_and_no_loser_overwrites() {
    LocalSet::new()
        .run_until(async {
            let server = RedisServer::start().await;
            let mut all = Vec::new();
            for _ in 0..4 {
                all.push(gateway(&server, &server.socket(), KEY, false).await);
            }
            all[0].open_grant(&account(), &grant(1), 8).await.expect("opened");
            let turns = all.iter().map(|grants| grants.take_turn(account().fingerprint(), 60));
            let turns = futures_util::future::join_all(turns).await;
            let taken = turns.into_iter().filter_map(|turn| turn.expect("asked")).collect::<Vec<_>>();
            assert_eq!(taken.len(), 1);
            let held = all[0].grant(GrantId([1; 16])).await.expect("read").expect("a grant");
            let nexts: Vec<_> =
                (0..4).map(|at| GrantRecord { generation: 2 + at, ..held.value.clone() }).collect();
            let written = all.iter().zip(&nexts).map(|(grants, next)| grants.replace_grant(&held, next));
            let written = futures_util::future::join_all(written).await;
            let won = written.iter().position(|written| *written == Ok(Written::Done)).expect("one wins");
            let late = written.iter().filter(|written| **written == Ok(Written::Late)).count();
            let now = all[0].grant(GrantId([1; 16])).await.expect("read").expect("a grant");
            assert_eq!((late, now.value), (3, nexts[won].clone()));
        })
        .await;
}
