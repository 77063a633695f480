//! Client connections: accepting them, telling HTTP/1.1 from HTTP/2, and ending those that are too slow, too
//! idle or too old.
//!
//! One watch per connection enforces every clock, so that a call costs no timer. Invariant: a connection is
//! counted from before its first byte is read until its socket is closed.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::config::{self, Limits};
use crate::proxy::Proxy;
use crate::socket::{self, Observed};
use crate::worker::Worker;

/// What every HTTP/2 connection starts with (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long to wait when the process has no more file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(250);
/// The clocks of a connection are looked at this often, or more often where a clock is shorter.
const WATCH_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// How many times more seldom they are looked at while a call is under way.
const PAUSE_PERIODS_MAX: u32 = 4;

/// Accepts until the drain closes the listener.
pub async fn serve(worker: Rc<Worker>, config: &config::Listener, socket: std::net::TcpListener) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, address = %config.address, "cannot listen"),
    };
    let proxy = Rc::new(Proxy::new(Rc::clone(&worker)));
    let on_loopback = config.address.ip().is_loopback();
    let mut closing = pin!(worker.state.drain.closing());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut closing => return,
        };
        match accepted {
            Ok((stream, client)) => accept(&worker, &proxy, stream, client, on_loopback),
            // Out of file descriptors or memory: others must end before we can go on.
            Err(error) if !is_of_one_connection(&error) => {
                tracing::warn!(%error, "cannot accept");
                sleep(ACCEPT_BACKOFF).await;
            }
            Err(_) => {}
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::Interrupted)
}

fn accept(worker: &Rc<Worker>, proxy: &Rc<Proxy>, stream: TcpStream, client: SocketAddr, on_loopback: bool) {
    let metrics = &worker.state.metrics;
    let slot = match worker.state.connections.admit(client.ip()) {
        Ok(slot) => slot,
        Err(refused) => {
            metrics.connections_refused.with_label_values(&[refused.label()]).inc();
            return;
        }
    };
    metrics.connections_accepted.inc();
    if socket::tune(&stream).is_err() {
        return;
    }
    let peer = Rc::new(Peer {
        address: client,
        on_loopback,
        is_http2: Cell::new(false),
        calls: Cell::new(0),
        head_since: Cell::new(None),
        idle_since: Cell::new(Instant::now()),
    });
    let worker_of_connection = Rc::clone(worker);
    let proxy = Rc::clone(proxy);
    worker.client.tasks.spawn(async move {
        let limits = worker_of_connection.view().snapshot.limits.clone();
        let ended = serve_connection(&worker_of_connection, proxy, stream, &peer, &limits).await;
        if let Ended::Clock(clock) = ended {
            worker_of_connection.state.metrics.connections_cut.with_label_values(&[clock]).inc();
            tracing::debug!(%client, clock, "connection cut");
        }
        // Counted to here, after the socket was dropped.
        drop(slot);
    });
}

/// What is known of the other end of a connection, and its clocks.
#[derive(Debug)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// True if the listener is bound to a loopback address.
    pub on_loopback: bool,
    is_http2: Cell<bool>,
    calls: Cell<usize>,
    /// When the first byte of an unfinished head arrived.
    head_since: Cell<Option<Instant>>,
    idle_since: Cell<Instant>,
}

impl Peer {
    fn enter(self: &Rc<Self>) -> InCall {
        self.calls.set(self.calls.get() + 1);
        self.head_since.set(None);
        InCall(Rc::clone(self))
    }

    /// Bytes came: between two calls they are the beginning of a head.
    fn received(&self) {
        if self.calls.get() == 0 && self.head_since.get().is_none() {
            self.head_since.set(Some(Instant::now()));
        }
    }

    /// Which clock ran out.
    fn overdue(&self, now: Instant, limits: &Limits) -> Option<&'static str> {
        if self.calls.get() > 0 {
            return None;
        }
        // Frames of an idle HTTP/2 connection are no beginning of a request.
        if self.is_http2.get() {
            self.head_since.set(None);
        }
        if self.head_since.get().is_some_and(|since| now.duration_since(since) >= limits.header_timeout) {
            return Some("header_timeout");
        }
        (now.duration_since(self.idle_since.get()) >= limits.idle_timeout).then_some("idle_timeout")
    }
}

/// Counts a call on its connection from its head to the end of its reply.
#[derive(Debug)]
pub struct InCall(pub Rc<Peer>);

impl InCall {
    /// Counts another call of the same request.
    #[must_use]
    pub fn another(&self) -> Self {
        self.0.enter()
    }

    /// The call has ended. Only its [`Call`](crate::call::Call) says so, once.
    pub fn leave(&self, now: Instant) {
        self.0.calls.set(self.0.calls.get().saturating_sub(1));
        self.0.idle_since.set(now);
    }
}

enum Ended {
    ByPeer,
    Clock(&'static str),
}

async fn serve_connection(
    worker: &Rc<Worker>,
    proxy: Rc<Proxy>,
    mut stream: TcpStream,
    peer: &Rc<Peer>,
    limits: &Limits,
) -> Ended {
    let start = tokio::select! {
        start = timeout(limits.header_timeout, read_start(&mut stream)) => match start {
            Ok(Ok(start)) if !start.is_empty() => start,
            Ok(_) => return Ended::ByPeer,
            Err(_) => return Ended::Clock("header_timeout"),
        },
        () = worker.state.drain.closing() => return Ended::ByPeer,
    };
    let is_http2 = start.starts_with(&HTTP2_PREFACE[..3]);
    peer.head_since.set(Some(Instant::now()));
    peer.is_http2.set(is_http2);
    let noted = Rc::clone(peer);
    let io = TokioIo::new(Observed::new(start, stream, move |_| noted.received()));
    let service = service_fn(|request| {
        let proxy = Rc::clone(&proxy);
        let connection = peer.enter();
        // Boxed for as long as the call: hyper keeps the place for it as long as the connection, most of them idle.
        async move { Ok::<_, Infallible>(Box::pin(proxy.handle(connection, request)).await) }
    });
    if is_http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(worker.client.tasks.clone());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams_per_connection_max)
            .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        let connection = pin!(builder.serve_connection(io, service));
        let age_max = Some(jitter(limits.connection_age_max, peer.address.port()));
        watch(
            worker,
            peer,
            limits,
            connection,
            hyper::server::conn::http2::Connection::graceful_shutdown,
            age_max,
        )
        .await
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .max_header_size(limits.header_bytes_max)
            .max_headers(limits.headers_max)
            .header_read_timeout(None)
            .timer(TokioTimer::new());
        let connection = pin!(builder.serve_connection(io, service));
        watch(
            worker,
            peer,
            limits,
            connection,
            hyper::server::conn::http1::Connection::graceful_shutdown,
            None,
        )
        .await
    }
}

/// Drives a connection to its end, watching its clocks and the drain.
async fn watch<C: Future<Output = hyper::Result<()>>>(
    worker: &Rc<Worker>,
    peer: &Peer,
    limits: &Limits,
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    age_max: Option<Duration>,
) -> Ended {
    let drain = &worker.state.drain;
    let is_http2 = age_max.is_some();
    let mut quiet = pin!(drain.quiet());
    let mut closing = pin!(drain.closing());
    let mut old = pin!(sleep(age_max.unwrap_or(Duration::MAX)));
    let period = limits.header_timeout.min(limits.idle_timeout).div_f32(4.0).min(WATCH_INTERVAL_MAX);
    let period = period.max(Duration::from_millis(5));
    let mut pause = period;
    let mut clocks = pin!(sleep(pause));
    let (mut is_quiet, mut is_closing, mut is_old) = (false, false, false);
    loop {
        tokio::select! {
            biased;
            result = &mut connection => {
                if let Err(error) = result {
                    tracing::debug!(client = %peer.address, %error, "connection ended");
                }
                return Ended::ByPeer;
            }
            () = &mut clocks => {
                // No clock runs while a call does, and most of those that take so long are idle streams.
                pause = if peer.calls.get() > 0 { (pause * 2).min(period * PAUSE_PERIODS_MAX) } else { period };
                clocks.as_mut().reset((Instant::now() + pause).into());
                match peer.overdue(Instant::now(), limits) {
                    None => {}
                    // A call may be on the wire: GOAWAY lets its client send it elsewhere.
                    Some(_) if is_http2 && !is_old => {
                        is_old = true;
                        shut_down(connection.as_mut());
                    }
                    Some(clock) => return Ended::Clock(clock),
                }
            }
            // HTTP/1.1 connections are asked to close by their next reply, HTTP/2 ones by GOAWAY.
            () = &mut quiet, if is_http2 && !is_quiet => {
                is_quiet = true;
                shut_down(connection.as_mut());
            }
            () = &mut closing, if !is_closing => {
                is_closing = true;
                shut_down(connection.as_mut());
            }
            () = &mut old, if is_http2 && !is_old => {
                is_old = true;
                shut_down(connection.as_mut());
            }
        }
    }
}

/// ±10 %, so that connections opened together do not all end together.
fn jitter(age_max: Duration, seed: u16) -> Duration {
    let tenths = f64::from(seed % 201) / 1000.0;
    age_max.mul_f64(0.9 + tenths)
}

/// The bytes that tell HTTP/2 from HTTP/1.1: as many as agree with the preface's first three, and one more.
async fn read_start(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(3);
    while start.len() < 3 && HTTP2_PREFACE.starts_with(&start) {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            break;
        }
        start.push(byte[0]);
    }
    Ok(start)
}
