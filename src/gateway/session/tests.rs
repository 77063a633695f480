//! What a gateway may expect of its sessions.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::HeaderValue;
use prometheus::IntCounter;

use super::store::StoreError;
use super::streams::tests::series;
use super::*;
use config::{self, Config};
use protocol::version::LegacyVersion;

const NOW_S: u64 = 4_000_000_000;
const EXPIRES_S: u64 = NOW_S + 3600;

fn config(folder: Option<&Path>) -> Config {
    let text = r#"
        [listener]
        address = "127.0.0.1:0"
        [[endpoint]]
        path = "/mcp"
        upstreams = ["a"]
        [upstream.a]
        url = "http://127.0.0.1:1/"
        [session]
        expiry = "1h"
        idle_timeout = "10m"
        sessions_max = 4
        sessions_per_principal_max = 8
        upstream_sessions_max = 3
    "#;
    let mut config = config::parse(text).expect("a configuration");
    config.state_directory = folder.map(Path::to_owned);
    config
}

fn lost() -> IntCounter {
    IntCounter::new("lost", "lost").expect("a counter")
}

fn store(folder: Option<&Path>) -> Arc<Sessions> {
    let sessions = Sessions::open_store(&config(folder), lost(), series(), None).expect("a store");
    sessions.hear_time(NOW_S);
    sessions
}

fn opening() -> SessionRequest<'static> {
    SessionRequest {
        endpoint: "/mcp",
        principal: "key:ci",
        version: LegacyVersion::V2025_03_26,
        client_name: "client",
        client_title: "",
        client_version: "1",
        capabilities: "{}",
        address: None,
    }
}

fn issue(sessions: &Sessions) -> (SessionId, String) {
    let (session, token) = sessions.issue(&opening(), NOW_S).expect("a session");
    (session.grant.id, token)
}

fn owner(session: SessionId) -> SessionOwner<'static> {
    SessionOwner { session, issued_s: 0, expires_s: EXPIRES_S, principal: "key:ci", address: None }
}

fn upstream_session(id: &str) -> UpstreamSession {
    UpstreamSession::new(HeaderValue::from_str(id).ok(), LegacyVersion::NEWEST)
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(future)
}

/// The upstream session `id`, opened unless there is one.
fn open(
    sessions: &Sessions,
    session: SessionId,
    upstream: &str,
    id: &str,
) -> Result<Arc<UpstreamSession>, UpstreamSessionError<Infallible>> {
    block_on(sessions.upstream_session(owner(session), upstream, || ready(Ok(upstream_session(id)))))
}

/// `upstream:id` of each, sorted.
fn names(closed: &[ClosedSession]) -> Vec<String> {
    let id =
        |session: &UpstreamSession| format!("{:?}", session.id).replace(['"', ')'], "").replace("Some(", "");
    let mut names: Vec<_> =
        closed.iter().map(|(upstream, session)| format!("{upstream}:{}", id(session))).collect();
    names.sort_unstable();
    names
}

#[test]
fn an_id_opens_until_it_expires_or_is_ended() {
    let sessions = store(None);
    let (session, token) = issue(&sessions);
    let remembered = SessionCache::default();
    let open = |endpoint, principal, now_s| {
        let opened = sessions.open(&token, endpoint, principal, now_s);
        let again =
            [(); 2].map(|()| sessions.open_on(&remembered, &token, endpoint, (principal, None), now_s));
        assert_eq!(again, [opened.clone(), opened.clone()], "a connection remembers it");
        opened
    };
    let grant = open("/mcp", "key:ci", NOW_S).expect("opens").grant;
    assert_eq!(
        (grant.id, grant.version, &*grant.client.name),
        (session, LegacyVersion::V2025_03_26, "client")
    );
    assert_eq!((grant.issued_s, grant.expires_s), (NOW_S, EXPIRES_S));
    for (endpoint, principal, now_s, expected) in [
        ("/mcp", "key:ci", EXPIRES_S - 1, None),
        ("/mcp", "key:ci", EXPIRES_S, Some(NoSession::Expired)),
        ("/other", "key:ci", NOW_S, Some(NoSession::Foreign)),
        ("/mcp", "key:me", NOW_S, Some(NoSession::Foreign)),
    ] {
        assert_eq!(open(endpoint, principal, now_s).err(), expected, "{endpoint} {principal} {now_s}");
    }
    assert_eq!(sessions.end(session, EXPIRES_S), []);
    assert_eq!(open("/mcp", "key:ci", NOW_S), Err(NoSession::Revoked));
    assert_eq!(sessions.counts(), SessionCounts { revoked: 1, ..SessionCounts::default() });
    sessions.sweep(EXPIRES_S - 1);
    assert_eq!(open("/mcp", "key:ci", NOW_S), Err(NoSession::Revoked));
    sessions.sweep(EXPIRES_S);
    assert_eq!(sessions.counts(), SessionCounts::default());
}

#[test]
fn sessions_without_state_cost_nothing() {
    let sessions = store(None);
    let ids: std::collections::HashSet<_> = (0..1000).map(|_| issue(&sessions).0).collect();
    assert_eq!((ids.len(), sessions.counts()), (1000, SessionCounts::default()));
}

#[test]
fn the_gateways_own_sessions_have_no_id_that_opens() {
    let sessions = store(None);
    let mut grant = Grant::clone(&sessions.issue(&opening(), NOW_S).expect("a session").0.grant);
    for version in LegacyVersion::ALL {
        grant.id = SessionId::own(version);
        let token = session_token::seal(&sessions.keys.load(), [0; NONCE_BYTES], &grant).expect("sealed");
        assert_eq!(sessions.open(&token, "/mcp", "key:ci", NOW_S), Err(NoSession::Unknown));
        assert!(open(&sessions, grant.id, "a", "own").is_ok());
        sessions.end(grant.id, EXPIRES_S);
    }
}

#[test]
fn the_gateways_own_sessions_with_one_upstream_are_taken_away() {
    let sessions = store(None);
    let (of_client, _) = issue(&sessions);
    let own = SessionId::own(LegacyVersion::NEWEST);
    for (session, upstream, id) in [(of_client, "a", "client"), (own, "a", "own"), (own, "b", "other")] {
        open(&sessions, session, upstream, id).expect("opens");
    }
    assert_eq!(names(&sessions.take_own_of("a")), ["a:own"]);
    assert_eq!(sessions.take_own_of("a"), []);
    assert!(sessions.holds("client") && sessions.holds("other"));
    assert_eq!(names(&sessions.take_own_of("b")), ["b:other"]);
    assert_eq!(sessions.counts().sessions, 1, "nothing is kept of one that has no other");
}

#[test]
fn an_upstream_session_is_opened_once_and_again_after_its_loss() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    let first = open(&sessions, session, "a", "1").expect("opens");
    assert!(Arc::ptr_eq(&first, &open(&sessions, session, "a", "2").expect("is there")));
    sessions.lose(session, "a", &first);
    sessions.lose(session, "b", &first);
    let second = open(&sessions, session, "a", "2").expect("opens");
    assert_eq!(*second, upstream_session("2"));
    // Somebody else noticed the same loss late.
    sessions.lose(session, "a", &first);
    assert!(Arc::ptr_eq(&second, &open(&sessions, session, "a", "3").expect("is there")));
    assert_eq!(
        sessions.counts(),
        SessionCounts { sessions: 1, upstream_sessions: 1, revoked: 0, ..SessionCounts::default() }
    );
    let nameless = UpstreamSession::new(None, LegacyVersion::V2024_11_05);
    let opened = || ready(Ok::<_, Infallible>(nameless.clone()));
    let kept = block_on(sessions.upstream_session(owner(session), "b", opened)).expect("opens");
    assert!(Arc::ptr_eq(&kept, &open(&sessions, session, "b", "no").expect("is there")));
}

#[test]
fn many_threads_open_one_upstream_session() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    let (opened, barrier) = (AtomicUsize::new(0), Barrier::new(8));
    let open_slowly = || async {
        opened.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok::<_, Infallible>(upstream_session("1"))
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                block_on(sessions.upstream_session(owner(session), "a", open_slowly)).expect("opens");
            });
        }
    });
    assert_eq!(opened.into_inner(), 1);
    assert_eq!(sessions.counts().upstream_sessions, 1);
}

#[test]
fn whoever_waits_tries_when_the_opener_fails_or_is_dropped() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    let order = Cell::new("");
    block_on(async {
        let failing = sessions.upstream_session(owner(session), "a", || async {
            tokio::task::yield_now().await;
            Err::<UpstreamSession, _>("down")
        });
        let dropped = tokio::time::timeout(
            Duration::from_millis(5),
            sessions.upstream_session(owner(session), "a", || {
                order.set("dropped");
                pending::<Result<UpstreamSession, &str>>()
            }),
        );
        let waiting = sessions.upstream_session(owner(session), "a", || {
            assert_eq!(order.get(), "dropped");
            ready(Ok::<_, &str>(upstream_session("1")))
        });
        let (failed, dropped, opened) = tokio::join!(failing, dropped, waiting);
        assert_eq!(failed, Err(UpstreamSessionError::Failed("down")));
        assert!(dropped.is_err());
        assert_eq!(*opened.expect("opens"), upstream_session("1"));
    });
    assert_eq!(sessions.counts().upstream_sessions, 1);
}

#[test]
fn bounds_hold_and_what_ends_makes_room() {
    let sessions = store(None);
    let ids: Vec<SessionId> = (0..5).map(|_| issue(&sessions).0).collect();
    for upstream in ["a", "b", "c"] {
        open(&sessions, ids[0], upstream, "1").expect("room");
    }
    assert_eq!(open(&sessions, ids[0], "d", "1"), Err(UpstreamSessionError::NoState(NoState::TooMany)));
    assert_eq!(open(&sessions, ids[1], "a", "1"), Err(UpstreamSessionError::NoState(NoState::TooMany)));
    for session in &ids[1..4] {
        sessions.set_level(owner(*session), Level::Info).expect("room");
    }
    assert_eq!(sessions.set_level(owner(ids[4]), Level::Info), Err(NoState::TooMany));
    assert_eq!(open(&sessions, ids[4], "a", "1"), Err(UpstreamSessionError::NoState(NoState::TooMany)));
    let own = SessionId::own(LegacyVersion::NEWEST);
    assert!(open(&sessions, own, "a", "1").is_ok());
    sessions.end(own, 0);
    sessions.sweep(NOW_S);
    let closed = sessions.end(ids[0], EXPIRES_S);
    assert_eq!(names(&closed), ["a:1", "b:1", "c:1"]);
    assert_eq!(
        sessions.counts(),
        SessionCounts { sessions: 3, upstream_sessions: 0, revoked: 1, ..SessionCounts::default() }
    );
    sessions.set_level(owner(ids[4]), Level::Info).expect("room");
    assert!(open(&sessions, ids[1], "a", "1").is_ok());
}

#[test]
fn an_ended_session_gets_no_new_state() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    sessions.set_level(owner(session), Level::Error).expect("room");
    assert_eq!(sessions.level(session), Some(Level::Error));
    sessions.end(session, EXPIRES_S);
    assert_eq!(sessions.level(session), None);
    assert_eq!(sessions.set_level(owner(session), Level::Error), Err(NoState::Ended));
    assert_eq!(open(&sessions, session, "a", "1"), Err(UpstreamSessionError::NoState(NoState::Ended)));
    assert_eq!(sessions.counts(), SessionCounts { revoked: 1, ..SessionCounts::default() });
}

#[test]
fn what_was_opened_for_a_session_that_ended_meanwhile_is_closed() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    block_on(async {
        let opening = sessions.upstream_session(owner(session), "a", || async {
            sessions.end(session, EXPIRES_S);
            Ok::<_, Infallible>(upstream_session("1"))
        });
        let waiting = sessions
            .upstream_session(owner(session), "a", || ready(Ok::<_, Infallible>(upstream_session("no"))));
        let (opened, refused) = tokio::join!(opening, waiting);
        assert_eq!(
            (opened, refused),
            (
                Err(UpstreamSessionError::NoState(NoState::Ended)),
                Err(UpstreamSessionError::NoState(NoState::Ended))
            )
        );
    });
    assert_eq!(
        sessions.counts(),
        SessionCounts { sessions: 0, upstream_sessions: 1, revoked: 1, ..SessionCounts::default() }
    );
    let closed = sessions.sweep(NOW_S);
    assert_eq!(names(&closed), ["a:1"]);
    assert!(closed[0].1.ended.is_cancelled());
    assert_eq!(sessions.counts().upstream_sessions, 0);
}

#[test]
fn a_clock_that_jumps_makes_nobody_idle_and_keeps_nobody_for_longer() {
    let idle_s = 600;
    let sessions = store(None);
    let (session, token) = issue(&sessions);
    open(&sessions, session, "a", "kept").expect("opens");
    let start = crate::clock::now();
    let at = |passed_s: u64, now_s: u64| {
        sessions.note_clock(start + Duration::from_secs(passed_s), now_s);
        names(&sessions.sweep(now_s))
    };
    assert!(at(0, NOW_S).is_empty());
    // Forward, as when a machine learns the time, or wakes up.
    let ahead_s = NOW_S + 2 * idle_s;
    assert!(at(1, ahead_s).is_empty());
    assert!(at(idle_s, ahead_s + idle_s - 1).is_empty());
    // And back, by more than it was ever ahead.
    let behind_s = NOW_S - idle_s;
    assert!(at(idle_s + 1, behind_s).is_empty());
    sessions.open(&token, "/mcp", "key:ci", behind_s).expect("it has not expired");
    assert!(at(2 * idle_s, behind_s + idle_s - 1).is_empty());
    assert_eq!(at(2 * idle_s + 1, behind_s + idle_s), ["a:kept"]);
}

#[test]
fn idle_and_expired_sessions_are_swept() {
    let idle_s = 600;
    let sessions = store(None);
    let [(idle, idle_token), (used, used_token), (held, _)] = [(); 3].map(|()| issue(&sessions));
    open(&sessions, idle, "a", "idle").expect("opens");
    open(&sessions, used, "a", "used").expect("opens");
    let in_use = open(&sessions, held, "a", "held").expect("opens");
    assert_eq!(sessions.sweep(NOW_S + idle_s - 1), []);
    sessions.open(&used_token, "/mcp", "key:ci", NOW_S + idle_s).expect("opens");
    assert_eq!(names(&sessions.sweep(NOW_S + idle_s)), ["a:idle"]);
    assert_eq!(
        sessions.counts(),
        SessionCounts { sessions: 2, upstream_sessions: 2, revoked: 0, ..SessionCounts::default() }
    );
    sessions.open(&idle_token, "/mcp", "key:ci", NOW_S + idle_s).expect("goes on");
    assert_eq!(*open(&sessions, idle, "a", "anew").expect("opens"), upstream_session("anew"));
    drop(in_use);
    // A long call is use to its end.
    assert_eq!(sessions.sweep(NOW_S + idle_s + 1), []);
    let in_use = open(&sessions, used, "a", "no").expect("is there");
    assert_eq!(names(&sessions.sweep(NOW_S + 2 * idle_s)), ["a:anew", "a:held"]);
    assert_eq!(names(&sessions.sweep(EXPIRES_S)), ["a:used"]);
    drop(in_use);
    assert_eq!(sessions.counts(), SessionCounts::default());
}

#[test]
fn a_stream_keeps_its_session_until_that_expires() {
    let idle_s = 600;
    let sessions = store(None);
    let [(left, _), (held, _), (ended, _)] = [(); 3].map(|()| issue(&sessions));
    let attach = |session| {
        let outbox = sessions.outbox(owner(session)).expect("a outbox");
        outbox.attach(false, |streams| streams.admit(Payer::principal("key:ci"))).expect("a stream")
    };
    let [of_left, of_held, of_ended] = [left, held, ended].map(attach);
    let is_over = |ticket: &outbox::ReaderGuard| {
        matches!(ticket.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(None))
    };
    sessions.end(ended, EXPIRES_S);
    assert!(is_over(&of_ended));
    sessions.sweep(NOW_S + idle_s);
    assert_eq!((sessions.counts().sessions, sessions.open_streams()), (2, 2));
    // Its time begins when the stream ends.
    drop(of_left);
    sessions.sweep(NOW_S + 2 * idle_s - 1);
    assert_eq!(sessions.counts().sessions, 2);
    sessions.sweep(NOW_S + 2 * idle_s);
    assert_eq!((sessions.counts().sessions, sessions.open_streams()), (1, 1));
    assert!(!is_over(&of_held));
    sessions.sweep(EXPIRES_S);
    assert!(is_over(&of_held));
    assert_eq!((sessions.counts().sessions, sessions.open_streams()), (0, 0));
}

impl Sessions {
    fn sweep(&self, now_s: u64) -> Vec<ClosedSession> {
        self.sweep_with(now_s, |_| false)
    }
}

#[test]
fn what_an_idle_client_asked_for_is_kept_where_there_is_room() {
    let (idle_s, sessions) = (600, store(None));
    let (session, _) = issue(&sessions);
    open(&sessions, session, "a", "1").expect("opens");
    sessions.set_level(owner(session), Level::Error).expect("room");
    assert_eq!(sessions.subscribe(owner(session), ("a", "x"), 1), Ok(true));
    assert_eq!(names(&sessions.sweep(NOW_S + idle_s)), ["a:1"]);
    let counts = sessions.counts();
    assert_eq!((counts.sessions, counts.upstream_sessions, counts.revoked), (1, 0, 0));
    assert!(sessions.level(session) == Some(Level::Error) && sessions.is_subscribed(session, "a"));
    open(&sessions, session, "a", "2").expect("opens");
    let mut config = config(None).session;
    config.sessions_max = 2;
    sessions.reconfigure(&config, None);
    assert_eq!(names(&sessions.sweep(NOW_S + 2 * idle_s)), ["a:2"]);
    assert_eq!(sessions.counts(), SessionCounts::default());
    assert!(sessions.level(session).is_none() && !sessions.is_subscribed(session, "a"));
}

#[test]
fn an_idle_session_with_what_cannot_be_opened_again_is_ended() {
    let sessions = store(None);
    let [(kept, kept_token), (ended, ended_token)] = [(); 2].map(|()| issue(&sessions));
    open(&sessions, kept, "a", "1").expect("opens");
    open(&sessions, ended, "b", "2").expect("opens");
    open(&sessions, SessionId::own(LegacyVersion::NEWEST), "b", "3").expect("opens");
    let closed = sessions.sweep_with(NOW_S + 600, |upstream| upstream == "b");
    assert_eq!(closed.len(), 3);
    let open = |token: &str| sessions.open(token, "/mcp", "key:ci", NOW_S + 600).map(|_| ());
    assert_eq!((open(&kept_token), open(&ended_token)), (Ok(()), Err(NoSession::Revoked)));
    assert_eq!(sessions.counts().revoked, 1);
}

#[test]
fn subscriptions_are_bounded_and_go_with_the_state() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    let subscribe = |uri| sessions.subscribe(owner(session), ("a", uri), 1);
    assert_eq!(subscribe("x"), Ok(true));
    assert_eq!(subscribe("x"), Ok(false));
    assert_eq!(subscribe("y"), Err(NotSubscribed::TooMany));
    assert!(sessions.is_subscribed(session, "a") && !sessions.is_subscribed(session, "b"));
    sessions.unsubscribe(session, "a", "x");
    assert!(!sessions.is_subscribed(session, "a"));
    assert_eq!(subscribe("y"), Ok(true));
    sessions.end(session, EXPIRES_S);
    assert!(!sessions.is_subscribed(session, "a"));
    assert_eq!(subscribe("y"), Err(NotSubscribed::NoState(NoState::Ended)));
}

#[test]
fn a_principal_has_a_bound_of_its_own() {
    let sessions = store(None);
    let mut config = config(None).session;
    config.upstream_sessions_per_principal_max = 1;
    sessions.reconfigure(&config, None);
    let (session, _) = issue(&sessions);
    let open = |principal, upstream: &'static str| {
        let owner = SessionOwner { principal, ..owner(session) };
        block_on(
            sessions.upstream_session(owner, upstream, || ready(Ok::<_, Infallible>(upstream_session("1")))),
        )
    };
    let first = open("key:ci", "a").expect("opens");
    assert_eq!(open("key:ci", "b"), Err(UpstreamSessionError::NoState(NoState::TooManyOfPrincipal)));
    assert!(open("key:ci", "a").is_ok() && open("key:me", "b").is_ok() && open("", "c").is_ok());
    assert!(sessions.lose(session, "a", &first) && !sessions.lose(session, "a", &first));
    assert!(open("key:ci", "d").is_ok());
}

#[test]
fn a_principal_has_only_so_many_sessions_with_state() {
    let sessions = store(None);
    let mut config = config(None).session;
    config.sessions_per_principal_max = 1;
    sessions.reconfigure(&config, None);
    let ids = [(); 3].map(|()| issue(&sessions).0);
    let outbox = |id, principal| sessions.outbox(SessionOwner { principal, ..owner(id) }).map(drop);
    assert_eq!(outbox(ids[0], "key:ci"), Ok(()));
    assert_eq!(outbox(ids[1], "key:ci"), Err(NoState::TooManyOfPrincipal));
    assert_eq!(
        (outbox(ids[0], "key:ci"), outbox(ids[1], "key:me"), outbox(ids[2], "")),
        (Ok(()), Ok(()), Ok(()))
    );
    sessions.end(ids[0], EXPIRES_S);
    sessions.sweep(NOW_S);
    let (next, _) = issue(&sessions);
    assert_eq!(outbox(next, "key:ci"), Ok(()), "there is room again");
}

#[test]
fn what_is_open_for_an_upstream_session_ends_with_it() {
    let sessions = store(None);
    for end in [
        |sessions: &Sessions, session| drop(sessions.end(session, EXPIRES_S)),
        |sessions: &Sessions, _| drop(sessions.sweep(EXPIRES_S)),
        |sessions: &Sessions, session| {
            let opened = sessions.opened(session, "a").expect("is there");
            assert!(sessions.lose(session, "a", &opened));
        },
    ] {
        let (session, _) = issue(&sessions);
        let ended = open(&sessions, session, "a", "1").expect("opens").ended.clone();
        assert!(!ended.is_cancelled());
        end(&sessions, session);
        assert!(ended.is_cancelled());
    }
}

#[test]
fn a_sweep_leaves_a_session_alone_that_opens_something() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    let opened = block_on(sessions.upstream_session(owner(session), "a", || async {
        assert_eq!(sessions.sweep(EXPIRES_S - 1), []);
        Ok::<_, Infallible>(upstream_session("1"))
    }));
    assert!(Arc::ptr_eq(&opened.expect("opens"), &open(&sessions, session, "a", "2").expect("is there")));
}

/// As if the process were killed: what was told is written, nothing else happens.
fn stop(sessions: Arc<Sessions>, writer: std::thread::JoinHandle<()>) {
    assert!(sessions.stop_writer());
    writer.join().expect("the writer");
    drop(sessions);
}

#[test]
fn a_restart_goes_on_with_the_same_sessions() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = || {
        let sessions = store(Some(folder.path()));
        let writer = sessions.take_writer().expect("a writer");
        (sessions, std::thread::spawn(writer))
    };
    let (sessions, writer) = start();
    let [(session, token), (ended, ended_token), (idle, _)] = [(); 3].map(|()| issue(&sessions));
    open(&sessions, idle, "a", "idle").expect("opens");
    assert_eq!(sessions.sweep(NOW_S + 600).len(), 1);
    let first = open(&sessions, session, "a", "first").expect("opens");
    sessions.lose(session, "a", &first);
    open(&sessions, session, "a", "second").expect("opens");
    sessions.set_level(owner(session), Level::Warning).expect("room");
    for uri in ["x y", "z"] {
        assert_eq!(sessions.subscribe(owner(session), ("a", uri), 2), Ok(true));
    }
    sessions.unsubscribe(session, "a", "z");
    open(&sessions, ended, "a", "ended").expect("opens");
    sessions.end(ended, EXPIRES_S);
    let before = sessions.counts();
    stop(sessions, writer);

    let (sessions, writer) = start();
    assert_eq!(sessions.counts(), before);
    assert_eq!(
        before,
        SessionCounts { sessions: 1, upstream_sessions: 1, revoked: 1, ..SessionCounts::default() }
    );
    assert_eq!(sessions.open(&token, "/mcp", "key:ci", NOW_S).expect("goes on").grant.id, session);
    assert_eq!(sessions.open(&ended_token, "/mcp", "key:ci", NOW_S), Err(NoSession::Revoked));
    assert_eq!(*open(&sessions, session, "a", "third").expect("is there"), upstream_session("second"));
    assert_eq!(sessions.level(session), Some(Level::Warning));
    assert_eq!(sessions.subscribed(session, "a"), ["x y"].map(Box::<str>::from));
    stop(sessions, writer);
}

#[test]
fn a_state_directory_is_for_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("made");
    let first = store(Some(&path));
    let error = Sessions::open_store(&config(Some(&path)), lost(), series(), None).expect_err("in use");
    assert!(matches!(&error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(path.to_str().expect("text")));
    drop(first);
    store(Some(&path));
}

#[test]
fn what_cannot_be_kept_is_refused_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "text").expect("written");
    let missing = folder.path().join("missing");
    let refused = |state_directory: Option<&Path>, key_file: Option<&Path>| {
        let mut config = config(state_directory);
        config.session.key_file = key_file.map(Path::to_owned);
        Sessions::open_store(&config, lost(), series(), None).expect_err("refused").to_string()
    };
    for (error, says) in [
        (refused(Some(&file), None), "state directory"),
        (refused(Some(folder.path()), Some(&file)), "line 1: not a key"),
        (refused(Some(folder.path()), Some(&missing)), "missing"),
        (refused(None, Some(&missing)), "missing"),
    ] {
        assert!(error.contains(says), "{error}");
    }
    std::fs::create_dir(folder.path().join("sessions.journal")).expect("a folder in its place");
    assert!(refused(Some(folder.path()), None).contains("sessions.journal"));
}

#[test]
fn keys_change_while_sessions_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(Some(folder.path()));
    let sessions = store(Some(folder.path()));
    let (_, token) = issue(&sessions);
    let path = folder.path().join("session.key");
    let reload = || {
        let keys = sessions.read_keys(&config)?;
        sessions.reconfigure(&config.session, keys);
        Ok::<_, crate::key_file::KeyFileError>(())
    };
    let opens = |token: &str| sessions.open(token, "/mcp", "key:ci", NOW_S).is_ok();
    crate::key_file::rotate(&path, crate::key_file::OLD_KEYS_KEPT).expect("rotated");
    reload().expect("good keys");
    let (_, newer) = issue(&sessions);
    assert!(opens(&token) && opens(&newer));
    std::fs::write(&path, "garbage").expect("written");
    assert!(reload().is_err());
    assert!(opens(&token) && opens(&newer));
    std::fs::remove_file(&path).expect("removed");
    assert!(reload().is_err(), "a new key was made silently");
    std::fs::write(&path, "5".repeat(64)).expect("written");
    reload().expect("good keys");
    assert!(!opens(&token) && !opens(&newer));
    let ephemeral = store(None);
    assert!(ephemeral.read_keys(&self::config(None)).expect("no file").is_none());
}
