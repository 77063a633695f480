//! Client connections: accepting them, finding out who is at the other end, serving them.
//!
//! | file | what it is |
//! |---|---|
//! | `proxy_protocol.rs` | the header of a proxy before the first byte |
//! | `handshake.rs` | TLS, for those who wait their turn |
//! | `connection.rs` | which HTTP it is, and HTTP/2 with its clocks |
//! | `read_ahead.rs` | replies on their way to clients of HTTP/2 |
//! | `http1/` | HTTP/1.1 |
//!
//! One watch per connection enforces every clock, so that a call costs no timer. Invariant: a connection is
//! counted from before its first byte is read until its socket is closed.

mod connection;
mod handshake;
mod http1;
mod proxy_protocol;
mod read_ahead;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::socket::{self, ClientAcceptor, ListeningSocket, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout_at};

use crate::access::limit::connections::{ConnectionLimit, ConnectionPermit};
use crate::access::tls::{ListenerProtocols, TlsServer};
use crate::clock;
use crate::context::peer::Peer;
use crate::context::worker::Worker;
use crate::line::proxy::Proxy;
use config::{self, LimitsConfig, UNIX_CLIENT};
use net::drain::{Drain, PhaseWatch};
use net::stream::MaybeTls;

use self::connection::CloseReason;
use self::handshake::SecuredStream;
use self::http1::ClientExchanges;
use self::proxy_protocol::ProxyProtocolError;

/// The clock of clients that read too slowly, by its key.
const REPLY_CLOCK: &str = "reply_rate_min";
/// How long to wait when the process has no more file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(250);
/// Memory that calls do not need any more is given back so often.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);

/// One listening socket of one worker.
struct WorkerListener {
    worker: Rc<Worker>,
    proxy: Rc<Proxy>,
    /// Its number.
    place: usize,
    drain: Rc<Drain>,
    on_loopback: bool,
    exchanges: ClientExchanges,
}

/// Accepts until `drain` closes the listener. `place` is its number.
///
/// A socket that outlives us is closed as soon as the drain begins: its connections lose nothing by waiting for the next
/// process, and one that is accepted late could be closed before its first call has come.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    place: usize,
    config: &config::Listener,
    listening: ListeningSocket,
    drain: Rc<Drain>,
) {
    let ListeningSocket { socket, outlives_us } = listening;
    let accepting = match ClientAcceptor::new(socket) {
        Ok(accepting) => accepting,
        Err(error) => return tracing::error!(%error, address = %config.address, "cannot listen"),
    };
    let _accepting = outlives_us.then(|| worker.state.connections.accepting());
    let listener = Rc::new(WorkerListener {
        proxy: Rc::new(Proxy::new(Rc::clone(&worker), Rc::clone(&drain))),
        place,
        drain: Rc::clone(&drain),
        on_loopback: config.address.is_loopback(),
        exchanges: ClientExchanges::default(),
        worker,
    });
    let mut closing = pin!(async {
        tokio::select! {
            () = drain.left() => {}
            () = drain.quiet(), if outlives_us => {}
            () = drain.closing() => {}
        }
    });
    let mut trims = tokio::time::interval(TRIM_INTERVAL);
    trims.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            // Whoever has connected before the end is served.
            biased;
            accepted = accepting.accept() => accepted,
            () = &mut closing => return,
            _ = trims.tick() => {
                listener.exchanges.trim();
                continue;
            }
        };
        match accepted {
            Ok((stream, client)) => accept(&listener, stream, client),
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

/// `address`: that of the client, if it comes from a network.
fn accept(listener: &Rc<WorkerListener>, stream: TcpStream, address: Option<SocketAddr>) {
    let client = address.unwrap_or(UNIX_CLIENT);
    let worker = &listener.worker;
    let metrics = &worker.state.metrics;
    let is_proxy = listener.is_proxy(client.ip());
    let Some(spoken) = worker.state.tls.get(listener.place) else { return };
    if spoken.proxy_protocol && !is_proxy {
        return listener.refuse_proxied(client, &ProxyProtocolError::Untrusted);
    }
    let connections = &worker.state.connections;
    let permit = match if is_proxy { connections.admit_proxy() } else { connections.admit(client.ip()) } {
        Ok(permit) => permit,
        Err(refused) => return listener.refuse(refused),
    };
    metrics.connections.accepted.inc();
    if address.is_some() && socket::tune(&stream).is_err() {
        return;
    }
    let accepted = AcceptedConnection {
        listener: Rc::clone(listener),
        limits: worker.limits(),
        peer: Peer::new(client, listener.on_loopback),
        permit,
    };
    worker.client.tasks.spawn(accepted.begin(stream, spoken));
}

/// What a connection has from its beginning to its end, beside its socket.
struct AcceptedConnection {
    listener: Rc<WorkerListener>,
    /// Those that were in force when it began.
    limits: Arc<LimitsConfig>,
    peer: Rc<Peer>,
    /// It is counted until this is dropped, after the socket was.
    permit: ConnectionPermit,
}

impl AcceptedConnection {
    /// Everything from the first byte of a connection to its first request. Most connections are idle from then on: one of
    /// HTTP/1.1 goes on in a task of its own, which is as small as it can be.
    async fn begin(mut self, stream: TcpStream, spoken: ListenerProtocols) {
        let listener = Rc::clone(&self.listener);
        let ended = pin!(listener.drain.ended());
        let mut phases = PhaseWatch::new(&listener.drain, ended);
        let established = phases.until_cut(pin!(self.establish(stream, spoken))).await;
        let reason = match established.unwrap_or(Err(CloseReason::ByPeer)) {
            Err(reason) => reason,
            Ok(EstablishedConnection { stream, start, is_http2: false }) => {
                return http1::spawn(self, stream, start);
            }
            Ok(EstablishedConnection { stream, start, is_http2: true }) => {
                let served = pin!(connection::serve_http2(&self, stream, start));
                phases.until_cut(served).await.unwrap_or(CloseReason::ByPeer)
            }
        };
        self.note_end(&reason);
    }

    /// The header of a proxy, TLS, and which HTTP it is.
    async fn establish(
        &mut self,
        mut stream: TcpStream,
        spoken: ListenerProtocols,
    ) -> Result<EstablishedConnection, CloseReason> {
        let listener = Rc::clone(&self.listener);
        let deadline = Instant::now() + self.limits.handshake_timeout;
        let accepted_from = self.peer.address;
        let mut client = accepted_from;
        if spoken.proxy_protocol {
            let header = tokio::select! {
                header = timeout_at(deadline, proxy_protocol::read(&mut stream)) => header,
                () = listener.drain.closing() => return Err(CloseReason::ByPeer),
            };
            match header.unwrap_or(Err(ProxyProtocolError::TimedOut)) {
                Ok(handed_on) => client = handed_on.unwrap_or(accepted_from),
                Err(error) => {
                    listener.refuse_proxied(accepted_from, &error);
                    return Err(CloseReason::ByPeer);
                }
            }
            if !listener.is_proxy(client.ip())
                && let Err(refused) = self.permit.charge(client.ip())
            {
                listener.refuse(refused);
                return Err(CloseReason::ByPeer);
            }
        }
        let SecuredStream { mut stream, protocol, proof, shown } = match spoken.tls {
            None => SecuredStream::in_clear(stream),
            Some(server) => {
                let secured = listener.secure(stream, client, server, &self.limits, deadline).await;
                secured.ok_or(CloseReason::ByPeer)?
            }
        };
        self.peer = Peer::with_tls(client, listener.on_loopback, proof, shown);
        let (start, is_http2) =
            connection::detect(&mut stream, protocol, &listener.drain, &self.limits).await?;
        self.peer.begin(is_http2);
        Ok(EstablishedConnection { stream, start, is_http2 })
    }

    fn note_end(&self, reason: &CloseReason) {
        let CloseReason::Clock(clock) = *reason else { return };
        let (worker, client) = (&self.listener.worker, self.peer.address);
        worker.state.metrics.connections.timed_out.with_label_values(&[clock]).inc();
        if clock == REPLY_CLOCK {
            worker.observers.failures.write_slow_reader(client, "connection", clock::now());
        } else {
            tracing::debug!(%client, clock, "connection cut");
        }
    }
}

/// A connection on which a request may come.
struct EstablishedConnection {
    stream: MaybeTls,
    /// What it began with.
    start: Vec<u8>,
    is_http2: bool,
}

impl WorkerListener {
    /// The handshake, unless it fails or the process ends before.
    async fn secure(
        &self,
        stream: TcpStream,
        client: SocketAddr,
        server: Arc<TlsServer>,
        limits: &LimitsConfig,
        deadline: Instant,
    ) -> Option<SecuredStream> {
        let worker = &self.worker;
        let (from, server) = ((client.ip(), self.is_proxy(client.ip())), (self.place, server));
        let secured = tokio::select! {
            secured = handshake::secure(worker, stream, from, server, limits, deadline) => secured,
            () = self.drain.closing() => return None,
        };
        let result = match &secured {
            Ok(secured) if handshake::is_resumed(&secured.stream) => "resumed",
            Ok(_) => "full",
            Err(error) => {
                tracing::debug!(%client, %error, "no TLS");
                error.label()
            }
        };
        worker.state.metrics.connections.handshakes.with_label_values(&[result]).inc();
        secured.ok()
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.worker.view().snapshot.trusted_proxies.contain(address)
    }

    fn refuse(&self, refused: ConnectionLimit) {
        self.worker.state.metrics.connections.refused.with_label_values(&[refused.label()]).inc();
    }

    fn refuse_proxied(&self, peer: SocketAddr, error: &ProxyProtocolError) {
        tracing::debug!(%peer, %error, "not a proxy's connection");
        self.worker.state.metrics.connections.proxied_refused.with_label_values(&[error.label()]).inc();
    }
}
