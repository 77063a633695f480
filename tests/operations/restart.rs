//! The end of a process and the beginning of the next, under load.
//!
//! The tests play systemd: they hold the socket that clients connect to, and start one process after the other with it.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::harness::{
    Broken, Child, Config, Connection, Daemon, Folder, Gate, Http2, LEGACY_VERSION, Legacy, Offer, Reply,
    Request, Response, Upstream, call, eventually, in_session, legacy, open_session,
};

/// What systemd holds for as long as the socket unit is active.
struct SocketUnit(TcpListener);

impl SocketUnit {
    fn open() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a socket"))
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("its address")
    }

    fn pass(&self) -> Vec<(&'static str, OwnedFd)> {
        vec![("listener", self.0.try_clone().expect("a duplicate").into())]
    }
}

/// A tool call as clients of the legacy era write it.
fn legacy_call(session: &str) -> Request {
    in_session(session, legacy("7", "tools/call", r#"{"name":"echo","arguments":{}}"#))
}

/// Clients that go on calling until they are told to stop. Any call that fails fails the test.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn new() -> Self {
        Self { stop: Arc::default(), done: Arc::default(), clients: Vec::new() }
    }

    /// A client in a thread of its own, which makes one call after the other by the function that `client` makes.
    fn add<F: FnMut()>(&mut self, client: impl FnOnce() -> F + Send + 'static) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::clone(&self.done));
        self.clients.push(std::thread::spawn(move || {
            let mut call_once = client();
            while !stop.load(Ordering::Relaxed) {
                call_once();
                done.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits until this many more calls were answered.
    fn wait_for(&self, more: usize) {
        let enough = self.done() + more;
        eventually("calls go on", || (self.done() >= enough).then_some(()));
    }

    #[track_caller]
    fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let lost = self.clients.into_iter().map(JoinHandle::join).filter(Result::is_err).count();
        assert_eq!(lost, 0, "that many clients lost a call");
        self.done.load(Ordering::Relaxed)
    }
}

/// Calls on one connection, and on a new one once an answer said that it was the last.
fn keeping_alive(address: SocketAddr, request: Request) -> impl FnMut() {
    let mut connection = None;
    move || {
        let mut open: Connection = connection.take().unwrap_or_else(|| Connection::open(address));
        open.write(&request.bytes());
        let response: Response = open.response();
        response.assert_ok();
        let is_last = response.header("connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
        connection = (!is_last).then_some(open);
    }
}

fn one_shot(address: SocketAddr, request: Request) -> impl FnMut() {
    move || {
        let mut connection = Connection::open(address);
        connection.write(&request.clone().with("Connection", "close").bytes());
        connection.response().assert_ok();
    }
}

/// Calls over HTTP/2; one that was refused unprocessed is made again on a new connection.
fn over_http2(address: SocketAddr, request: Request) -> impl FnMut() {
    let mut connection: Option<Http2> = None;
    move || {
        loop {
            let open = connection.get_or_insert_with(|| Http2::connect(address));
            match open.try_send(&request) {
                Some(response) => return response.assert_ok(),
                None => connection = None,
            }
        }
    }
}

#[test]
fn a_restart_under_load_loses_no_call_and_no_session() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).and_modern().start();
    let (unit, folder) = (SocketUnit::open(), Folder::new());
    let config = Config::new()
        .probed("up", upstream.address, "")
        .listener(&format!("address = \"{}\"", unit.address()))
        .top(&format!("workers = 3\n{}", folder.key()))
        .section("[drain]\nquiet = \"500ms\"\nmax = \"15s\"");
    let mut daemon = Daemon::start_passed(&config, &[], unit.pass());
    let address = unit.address();
    let sessions: Vec<String> = (0..3).map(|_| open_session(address, LEGACY_VERSION).0).collect();
    let mut load = Load::new();
    for session in &sessions {
        let request = legacy_call(session);
        load.add(move || keeping_alive(address, request));
    }
    for _ in 0..3 {
        load.add(move || keeping_alive(address, call("1", "echo")));
        load.add(move || one_shot(address, call("2", "echo")));
    }
    load.add(move || over_http2(address, call("3", "echo")));
    load.wait_for(100);
    for _ in 0..3 {
        daemon.terminate();
        assert_eq!(daemon.wait_exit().code(), Some(0));
        let log = daemon.log().join("\n");
        assert!(!log.contains("cutting what is left"), "{log}");
        daemon = Daemon::start_passed(&config, &[], unit.pass());
        load.wait_for(100);
    }
    assert!(load.finish() > 300);
    // The sessions are those of the first process, with the gateway and with the upstream.
    for session in &sessions {
        daemon.send(&legacy_call(session)).assert_ok();
    }
}

#[test]
fn connections_wait_while_nobody_accepts() {
    let upstream = Upstream::with_tools(&["echo"]);
    let unit = SocketUnit::open();
    let config = Config::transparent(&upstream)
        .listener(&format!("address = \"{}\"", unit.address()))
        .section("[drain]\nquiet = \"100ms\"\nmax = \"15s\"");
    // Before the first process, too: systemd starts it when the first client comes.
    let mut early = Connection::open(unit.address());
    early.write(&call("1", "echo").bytes());
    let mut daemon = Daemon::start_passed(&config, &[], unit.pass());
    early.response().assert_ok();
    daemon.terminate();
    daemon.wait_for_log(0, "the drain", |line| line.contains("draining"));
    // Whether it is still draining or gone already.
    let mut between = Connection::open(unit.address());
    between.write(&call("2", "echo").bytes());
    assert_eq!(daemon.wait_exit().code(), Some(0));
    let mut late = Connection::open(unit.address());
    late.write(&call("3", "echo").bytes());
    assert!(upstream.received_of("tools/call").len() < 3, "somebody accepts");
    let _next = Daemon::start_passed(&config, &[], unit.pass());
    between.response().assert_ok();
    late.response().assert_ok();
}

#[test]
fn a_drain_with_a_passed_socket_is_over_when_nobody_is_connected() {
    let upstream = Upstream::with_tools(&["echo"]);
    let unit = SocketUnit::open();
    let config = Config::transparent(&upstream)
        .listener(&format!("address = \"{}\"", unit.address()))
        .section("[drain]\nquiet = \"1h\"\nmax = \"1h\"");
    let mut daemon = Daemon::start_passed(&config, &[], unit.pass());
    let mut busy = daemon.connect();
    daemon.terminate();
    daemon.wait_for_log(0, "the drain", |line| line.contains("draining"));
    busy.write(&call("1", "echo").bytes());
    // Accepted before the drain, or never by this process.
    match busy.try_response() {
        Ok(response) => response.assert_ok(),
        Err(Broken::Silent) => {}
        Err(broken) => panic!("{broken:?}"),
    }
    drop(busy);
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

#[test]
fn calls_longer_than_the_drain_are_cut_and_counted() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| match request.client_id().as_str() {
        "1" => Reply::result(request, r#"{"resultType":"complete"}"#),
        "2" => {
            let reply = Reply::result(request, r#"{"resultType":"complete"}"#);
            Reply::default().wait(&held).then(reply)
        }
        _ => Reply::stream().event("1").wait(&Gate::default()),
    });
    let config = Config::transparent(&upstream).admin().section("[drain]\nquiet = \"100ms\"\nmax = \"1s\"");
    let mut daemon = Daemon::start(&config);
    daemon.send(&call("1", "echo")).assert_ok();
    let mut short = daemon.connect();
    short.write(&call("2", "echo").bytes());
    let mut long = [daemon.connect(), daemon.connect()];
    for connection in &mut long {
        connection.write(&call("3", "echo").bytes());
        connection.head();
    }
    upstream.wait_for("tools/call", 4);
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains("\ntrunkline_drain_aborted_calls_total 0\n"), "{metrics}");
    daemon.terminate();
    gate.open();
    short.response().assert_ok();
    for connection in &mut long {
        connection.wait_closed();
    }
    assert_eq!(daemon.wait_exit().code(), Some(0));
    let line = daemon.wait_for_log(0, "what was cut", |line| line.contains("cutting what is left"));
    assert!(line.contains("WARN") && line.contains("calls=2"), "{line}");
}

#[test]
fn cut_calls_can_be_scraped_while_children_end() {
    let child = Child::new(&["stubborn", "modern"]);
    let config = Config::new()
        .raw("kid", &child.keys("eras = [\"modern\"]\nstop_timeout = \"2s\""))
        .admin()
        .section("[drain]\nquiet = \"100ms\"\nmax = \"200ms\"");
    let mut daemon = Daemon::start(&config);
    let mut connection = daemon.connect();
    connection.write(&call("1", "hang").bytes());
    child.wait_received("tools/call", 1);
    daemon.terminate();
    daemon.wait_for_log(0, "the cut", |line| line.contains("cutting what is left"));
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains("\ntrunkline_drain_aborted_calls_total 1\n"), "{metrics}");
    assert_eq!(daemon.wait_exit().code(), Some(0));
    child.wait_gone();
}

#[test]
fn a_second_signal_ends_the_drain() {
    let upstream = Upstream::calling(|_| Reply::stream().event("1").wait(&Gate::default()));
    let config = Config::transparent(&upstream).section("[drain]\nquiet = \"1h\"\nmax = \"1h\"");
    let mut daemon = Daemon::start(&config);
    let mut busy = daemon.connect();
    busy.write(&call("1", "echo").bytes());
    busy.head();
    let started = Instant::now();
    daemon.terminate();
    daemon.wait_for_log(0, "the drain", |line| line.contains("draining"));
    daemon.terminate();
    busy.wait_closed();
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_call_on_a_child_outlives_the_signal() {
    let child = Child::new(&["modern"]);
    let config = Config::new()
        .raw("kid", &child.keys("eras = [\"modern\"]"))
        .section("[drain]\nquiet = \"100ms\"\nmax = \"15s\"");
    let mut daemon = Daemon::start(&config);
    let mut connection = daemon.connect();
    connection.write(&call("1", "nap").bytes());
    child.wait_received("tools/call", 1);
    daemon.terminate();
    connection.response().assert_ok();
    assert_eq!(daemon.wait_exit().code(), Some(0));
    child.wait_gone();
}
