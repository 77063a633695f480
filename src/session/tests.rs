//! What a gateway may expect of its sessions.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::HeaderValue;
use prometheus::IntCounter;

use super::store::StoreError;
use super::test_folder::Folder;
use super::*;
use crate::config::{self, Config};
use crate::protocol::version::LegacyVersion;

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
    let sessions = Sessions::open_store(&config(folder), lost()).expect("a store");
    sessions.hear_time(NOW_S);
    sessions
}

fn opening() -> Opening<'static> {
    Opening {
        endpoint: "/mcp",
        principal: "key:ci",
        version: LegacyVersion::V2025_03_26,
        client_name: "client",
        client_title: "",
        client_version: "1",
        capabilities: "{}",
    }
}

fn issue(sessions: &Sessions) -> (SessionId, String) {
    let (session, token) = sessions.issue(&opening(), NOW_S).expect("a session");
    (session.grant.id, token)
}

fn upstream_session(id: &str) -> UpstreamSession {
    UpstreamSession { id: HeaderValue::from_str(id).ok(), version: LegacyVersion::NEWEST }
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
) -> Result<Arc<UpstreamSession>, OpenError<Infallible>> {
    block_on(sessions.upstream_session(session, EXPIRES_S, upstream, || ready(Ok(upstream_session(id)))))
}

/// `upstream:id` of each, sorted.
fn names(closed: &[Closed]) -> Vec<String> {
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
    let open = |endpoint, principal, now_s| sessions.open(&token, endpoint, principal, now_s);
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
    assert_eq!(sessions.counts(), Counts { revoked: 1, ..Counts::default() });
    sessions.sweep(EXPIRES_S - 1);
    assert_eq!(open("/mcp", "key:ci", NOW_S), Err(NoSession::Revoked));
    sessions.sweep(EXPIRES_S);
    assert_eq!(sessions.counts(), Counts::default());
}

#[test]
fn sessions_without_state_cost_nothing() {
    let sessions = store(None);
    let ids: std::collections::HashSet<_> = (0..1000).map(|_| issue(&sessions).0).collect();
    assert_eq!((ids.len(), sessions.counts()), (1000, Counts::default()));
}

#[test]
fn the_gateways_own_sessions_have_no_id_that_opens() {
    let sessions = store(None);
    let mut grant = sessions.issue(&opening(), NOW_S).expect("a session").0.grant;
    for version in LegacyVersion::ALL {
        grant.id = SessionId::own(version);
        let token = token::seal(&sessions.keys.load(), [0; NONCE_BYTES], &grant).expect("sealed");
        assert_eq!(sessions.open(&token, "/mcp", "key:ci", NOW_S), Err(NoSession::Unknown));
        assert!(open(&sessions, grant.id, "a", "own").is_ok());
        sessions.end(grant.id, EXPIRES_S);
    }
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
    assert_eq!(sessions.counts(), Counts { sessions: 1, upstream_sessions: 1, revoked: 0 });
    let nameless = UpstreamSession { id: None, version: LegacyVersion::V2024_11_05 };
    let opened = || ready(Ok::<_, Infallible>(nameless.clone()));
    let kept = block_on(sessions.upstream_session(session, EXPIRES_S, "b", opened)).expect("opens");
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
                block_on(sessions.upstream_session(session, EXPIRES_S, "a", open_slowly)).expect("opens");
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
        let failing = sessions.upstream_session(session, EXPIRES_S, "a", || async {
            tokio::task::yield_now().await;
            Err::<UpstreamSession, _>("down")
        });
        let dropped = tokio::time::timeout(
            Duration::from_millis(5),
            sessions.upstream_session(session, EXPIRES_S, "a", || {
                order.set("dropped");
                pending::<Result<UpstreamSession, &str>>()
            }),
        );
        let waiting = sessions.upstream_session(session, EXPIRES_S, "a", || {
            assert_eq!(order.get(), "dropped");
            ready(Ok::<_, &str>(upstream_session("1")))
        });
        let (failed, dropped, opened) = tokio::join!(failing, dropped, waiting);
        assert_eq!(failed, Err(OpenError::Failed("down")));
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
    assert_eq!(open(&sessions, ids[0], "d", "1"), Err(OpenError::TooMany));
    assert_eq!(open(&sessions, ids[1], "a", "1"), Err(OpenError::TooMany));
    for session in &ids[1..4] {
        sessions.set_level(*session, EXPIRES_S, Level::Info).expect("room");
    }
    assert_eq!(sessions.set_level(ids[4], EXPIRES_S, Level::Info), Err(NoState::TooMany));
    assert_eq!(open(&sessions, ids[4], "a", "1"), Err(OpenError::TooMany));
    let own = SessionId::own(LegacyVersion::NEWEST);
    assert!(open(&sessions, own, "a", "1").is_ok());
    sessions.end(own, 0);
    sessions.sweep(NOW_S);
    let closed = sessions.end(ids[0], EXPIRES_S);
    assert_eq!(names(&closed), ["a:1", "b:1", "c:1"]);
    assert_eq!(sessions.counts(), Counts { sessions: 3, upstream_sessions: 0, revoked: 1 });
    sessions.set_level(ids[4], EXPIRES_S, Level::Info).expect("room");
    assert!(open(&sessions, ids[1], "a", "1").is_ok());
}

#[test]
fn an_ended_session_gets_no_new_state() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    sessions.set_level(session, EXPIRES_S, Level::Error).expect("room");
    assert_eq!(sessions.level(session), Some(Level::Error));
    sessions.end(session, EXPIRES_S);
    assert_eq!(sessions.level(session), None);
    assert_eq!(sessions.set_level(session, EXPIRES_S, Level::Error), Err(NoState::Ended));
    assert_eq!(open(&sessions, session, "a", "1"), Err(OpenError::Ended));
    assert_eq!(sessions.counts(), Counts { revoked: 1, ..Counts::default() });
}

#[test]
fn what_was_opened_for_a_session_that_ended_meanwhile_is_closed() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    block_on(async {
        let opening = sessions.upstream_session(session, EXPIRES_S, "a", || async {
            sessions.end(session, EXPIRES_S);
            Ok::<_, Infallible>(upstream_session("1"))
        });
        let waiting = sessions
            .upstream_session(session, EXPIRES_S, "a", || ready(Ok::<_, Infallible>(upstream_session("no"))));
        let (opened, refused) = tokio::join!(opening, waiting);
        assert!(opened.is_ok());
        assert_eq!(refused, Err(OpenError::Ended));
    });
    assert_eq!(sessions.counts(), Counts { sessions: 0, upstream_sessions: 1, revoked: 1 });
    assert_eq!(names(&sessions.sweep(NOW_S)), ["a:1"]);
    assert_eq!(sessions.counts().upstream_sessions, 0);
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
    assert_eq!(sessions.counts(), Counts { sessions: 2, upstream_sessions: 2, revoked: 0 });
    sessions.open(&idle_token, "/mcp", "key:ci", NOW_S + idle_s).expect("goes on");
    assert_eq!(*open(&sessions, idle, "a", "anew").expect("opens"), upstream_session("anew"));
    drop(in_use);
    // A long call is use to its end.
    assert_eq!(sessions.sweep(NOW_S + idle_s + 1), []);
    let in_use = open(&sessions, used, "a", "no").expect("is there");
    assert_eq!(names(&sessions.sweep(NOW_S + 2 * idle_s)), ["a:anew", "a:held"]);
    assert_eq!(names(&sessions.sweep(EXPIRES_S)), ["a:used"]);
    drop(in_use);
    assert_eq!(sessions.counts(), Counts::default());
}

#[test]
fn a_sweep_leaves_a_session_alone_that_opens_something() {
    let sessions = store(None);
    let (session, _) = issue(&sessions);
    let opened = block_on(sessions.upstream_session(session, EXPIRES_S, "a", || async {
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
    let folder = Folder::new();
    let start = || {
        let sessions = store(Some(folder.path()));
        let writer = sessions.take_writer().expect("a writer");
        (sessions, std::thread::spawn(|| writer.run()))
    };
    let (sessions, writer) = start();
    let [(session, token), (ended, ended_token), (idle, _)] = [(); 3].map(|()| issue(&sessions));
    open(&sessions, idle, "a", "idle").expect("opens");
    assert_eq!(sessions.sweep(NOW_S + 600).len(), 1);
    let first = open(&sessions, session, "a", "first").expect("opens");
    sessions.lose(session, "a", &first);
    open(&sessions, session, "a", "second").expect("opens");
    sessions.set_level(session, EXPIRES_S, Level::Warning).expect("room");
    open(&sessions, ended, "a", "ended").expect("opens");
    sessions.end(ended, EXPIRES_S);
    let before = sessions.counts();
    stop(sessions, writer);

    let (sessions, writer) = start();
    assert_eq!(sessions.counts(), before);
    assert_eq!(before, Counts { sessions: 1, upstream_sessions: 1, revoked: 1 });
    assert_eq!(sessions.open(&token, "/mcp", "key:ci", NOW_S).expect("goes on").grant.id, session);
    assert_eq!(sessions.open(&ended_token, "/mcp", "key:ci", NOW_S), Err(NoSession::Revoked));
    assert_eq!(*open(&sessions, session, "a", "third").expect("is there"), upstream_session("second"));
    assert_eq!(sessions.level(session), Some(Level::Warning));
    stop(sessions, writer);
}

#[test]
fn a_state_directory_is_for_one_process() {
    let folder = Folder::new();
    let path = folder.path().join("made");
    let first = store(Some(&path));
    let error = Sessions::open_store(&config(Some(&path)), lost()).expect_err("in use");
    assert!(matches!(&error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(path.to_str().expect("text")));
    drop(first);
    store(Some(&path));
}

#[test]
fn what_cannot_be_kept_is_refused_at_start() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").expect("written");
    let missing = folder.path().join("missing");
    let refused = |state_directory: Option<&Path>, key_file: Option<&Path>| {
        let mut config = config(state_directory);
        config.session.key_file = key_file.map(Path::to_owned);
        Sessions::open_store(&config, lost()).expect_err("refused").to_string()
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
    let folder = Folder::new();
    let config = config(Some(folder.path()));
    let sessions = store(Some(folder.path()));
    let (_, token) = issue(&sessions);
    let path = folder.path().join("session.key");
    let reload = || {
        let keys = sessions.read_keys(&config)?;
        sessions.reconfigure(&config.session, keys);
        Ok::<_, key_file::KeyFileError>(())
    };
    let opens = |token: &str| sessions.open(token, "/mcp", "key:ci", NOW_S).is_ok();
    key_file::rotate(&path).expect("rotated");
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
