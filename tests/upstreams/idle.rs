//! As many connections to an upstream are kept as were in use at once within `idle_timeout`, whoever calls whom: a crowd that
//! comes back opens none anew, and a crowd that has left keeps none.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::{
    Authority, Config, Connection, Daemon, Folder, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply,
    TlsEar, Upstream, call, eventually, in_session, legacy_call, open_session, side_by_side,
};

/// Clients that call at once.
const CROWD: usize = 256;
/// Clients that have a session in common.
const SESSION_SHARED_BY: usize = 8;
/// Long enough for two rounds on a busy machine.
const PATIENT: &str = "idle_timeout = \"2m\"\n";
const MODERN: &str = "eras = [\"modern\"]\n";
const LEGACY: &str = "eras = [\"legacy\"]\n";

/// Servers of either era whose calls are answered when all of a round have come.
#[derive(Clone, Default)]
struct Rounds {
    arrived: Arc<AtomicUsize>,
    gate: Arc<Mutex<Gate>>,
}

impl Rounds {
    fn server(&self, answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
        let rounds = self.clone();
        Upstream::start(move |request| {
            let reply = answer(request);
            if request.method() != "tools/call" {
                return reply;
            }
            rounds.arrived.fetch_add(1, Ordering::Relaxed);
            let gate = rounds.gate.lock().unwrap().clone();
            Reply::default().wait(&gate).then(reply)
        })
    }

    fn modern(&self) -> Upstream {
        let offer = Offer::tools(&["echo"]);
        self.server(move |request| offer.answer(request))
    }

    fn legacy(&self) -> Upstream {
        let server = Legacy::new(Offer::tools(&["echo"]));
        self.server(move |request| server.answer(request))
    }

    /// Every client calls, and gets its answer when all others have called.
    fn play(&self, clients: &mut [(Connection, Vec<u8>)]) {
        let gate = Gate::default();
        *self.gate.lock().unwrap() = gate.clone();
        self.arrived.store(0, Ordering::Relaxed);
        for (client, call) in &mut *clients {
            assert!(client.write(call), "the connection is open");
        }
        eventually("all have called", || {
            (self.arrived.load(Ordering::Relaxed) == clients.len()).then_some(())
        });
        gate.open();
        for (client, _) in clients {
            client.response().assert_ok();
        }
    }
}

fn modern_clients(daemon: &Daemon, tool: &str) -> Vec<(Connection, Vec<u8>)> {
    (0..CROWD).map(|id| (daemon.connect(), call(&id.to_string(), tool).bytes())).collect()
}

fn legacy_clients(daemon: &Daemon) -> Vec<(Connection, Vec<u8>)> {
    let sessions = std::iter::repeat_with(|| open_session(daemon.address(), LEGACY_VERSION).0);
    let sessions = sessions.take(CROWD / SESSION_SHARED_BY);
    let each = sessions.flat_map(|session| {
        (0..SESSION_SHARED_BY).map(move |id| in_session(&session, legacy_call(&id.to_string(), "echo")))
    });
    each.map(|call| (daemon.connect(), call.bytes())).collect()
}

/// Plays two rounds, and expects no connection more in the second.
fn expect_kept(rounds: &Rounds, upstream: &Upstream, mut clients: Vec<(Connection, Vec<u8>)>) {
    rounds.play(&mut clients);
    let opened = upstream.connections();
    assert!(opened >= CROWD, "{opened}");
    rounds.play(&mut clients);
    assert_eq!(upstream.connections(), opened);
}

fn up(upstream: &Upstream, lines: &str) -> Daemon {
    Daemon::start(&Config::new().upstream("up", upstream.address, &format!("{PATIENT}{lines}")))
}

#[test]
fn a_crowd_of_modern_clients_that_comes_back_opens_no_connection() {
    let rounds = Rounds::default();
    let upstream = rounds.modern();
    let daemon = up(&upstream, MODERN);
    expect_kept(&rounds, &upstream, modern_clients(&daemon, "echo"));
}

#[test]
fn nor_where_names_have_prefixes() {
    let rounds = Rounds::default();
    let (upstream, other) = (rounds.modern(), Upstream::with_tools(&["other"]));
    let config = Config::new().upstream("files", upstream.address, PATIENT);
    let daemon = Daemon::start(&config.upstream("weather", other.address, PATIENT));
    expect_kept(&rounds, &upstream, modern_clients(&daemon, "files__echo"));
}

#[test]
fn nor_in_sessions() {
    let rounds = Rounds::default();
    let upstream = rounds.legacy();
    let daemon = up(&upstream, LEGACY);
    expect_kept(&rounds, &upstream, legacy_clients(&daemon));
}

#[test]
fn nor_where_a_client_of_one_era_calls_a_server_of_the_other() {
    side_by_side([true, false], |is_modern| {
        let rounds = Rounds::default();
        let upstream = if is_modern { rounds.legacy() } else { rounds.modern() };
        let daemon = up(&upstream, if is_modern { LEGACY } else { MODERN });
        let clients = if is_modern { modern_clients(&daemon, "echo") } else { legacy_clients(&daemon) };
        expect_kept(&rounds, &upstream, clients);
    });
}

#[test]
fn nor_over_tls() {
    let rounds = Rounds::default();
    let (folder, authority) = (Folder::new(), Authority::new());
    let upstream = rounds.modern();
    let ear = TlsEar::before(upstream.address, &authority.issue(&["localhost"]), None);
    let ca = authority.file(&folder, "ca.pem");
    let url = format!("url = \"https://localhost:{}/mcp\"\n", ear.address.port());
    let tls = format!("tls = {{ ca = \"{}\" }}\n", ca.display());
    let daemon = Daemon::start(&Config::new().raw("up", &format!("{url}{MODERN}{PATIENT}{tls}")));
    expect_kept(&rounds, &upstream, modern_clients(&daemon, "echo"));
    assert_eq!(ear.seen().len(), upstream.connections());
}

#[test]
fn a_crowd_that_has_left_keeps_no_connection() {
    let rounds = Rounds::default();
    let upstream = rounds.modern();
    let config = Config::new().upstream("up", upstream.address, "idle_timeout = \"500ms\"\n");
    let daemon = Daemon::start(&config);
    let mut clients = modern_clients(&daemon, "echo");
    rounds.play(&mut clients);
    let opened = upstream.connections();
    eventually("all are closed", || {
        (0..opened).all(|connection| upstream.is_closed(connection)).then_some(())
    });
}
