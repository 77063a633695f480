//! Client connections: accepting them, finding out who is at the other end, serving them.
//!
//! | file | what it is |
//! |---|---|
//! | `proxied.rs` | the header of a proxy before the first byte |
//! | `handshake.rs` | TLS, for those who wait their turn |
//! | `stream.rs` | bytes, with TLS or without |
//! | `connection.rs` | HTTP, and ending those that are too slow, too idle or too old |
//! | `peer.rs` | the other end, and its clocks |
//!
//! One watch per connection enforces every clock, so that a call costs no timer. Invariant: a connection is
//! counted from before its first byte is read until its socket is closed.

mod connection;
mod handshake;
mod http1;
mod proxy_protocol;

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use net::socket::{self, ListeningSocket, TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout_at};

use crate::access::limit::connections::{ConnectionLimit, ConnectionPermit};
use crate::access::tls::{ListenerProtocols, TlsServer};
use crate::context::peer::Peer;
use crate::context::worker::Worker;
use crate::line::proxy::Proxy;
use config::{self, LimitsConfig};
use net::drain::{Drain, DrainPhase, PhaseWatch};

use self::connection::CloseReason;
use self::handshake::SecuredStream;
use self::proxy_protocol::ProxyProtocolError;

/// How long to wait when the process has no more file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(250);

/// One listening socket of one worker.
struct WorkerListener {
    worker: Rc<Worker>,
    proxy: Rc<Proxy>,
    /// Its number.
    place: usize,
    drain: Rc<Drain>,
    on_loopback: bool,
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
    let accepting = match TcpListener::from_std(socket) {
        Ok(accepting) => accepting,
        Err(error) => return tracing::error!(%error, address = %config.address, "cannot listen"),
    };
    let _accepting = outlives_us.then(|| worker.state.connections.accepting());
    let listener = Rc::new(WorkerListener {
        proxy: Rc::new(Proxy::new(Rc::clone(&worker), Rc::clone(&drain))),
        place,
        drain: Rc::clone(&drain),
        on_loopback: config.address.ip().is_loopback(),
        worker,
    });
    let mut closing = pin!(async {
        tokio::select! {
            () = drain.left() => {}
            () = drain.quiet(), if outlives_us => {}
            () = drain.closing() => {}
        }
    });
    loop {
        let accepted = tokio::select! {
            accepted = accepting.accept() => accepted,
            () = &mut closing => return,
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

fn accept(listener: &Rc<WorkerListener>, stream: TcpStream, client: SocketAddr) {
    let worker = &listener.worker;
    let metrics = &worker.state.metrics;
    let is_proxy = listener.is_proxy(client.ip());
    let Some(spoken) = worker.state.tls.get(listener.place) else { return };
    if spoken.proxy_protocol && !is_proxy {
        return listener.refuse_proxied(client, &ProxyProtocolError::Untrusted);
    }
    let connections = &worker.state.connections;
    let slot = match if is_proxy { connections.admit_proxy() } else { connections.admit(client.ip()) } {
        Ok(slot) => slot,
        Err(refused) => return listener.refuse(refused),
    };
    metrics.connections.accepted.inc();
    if socket::tune(&stream).is_err() {
        return;
    }
    let listener = Rc::clone(listener);
    worker.client.tasks.spawn(async move {
        let mut slot = slot;
        let limits = listener.worker.view().snapshot.limits.clone();
        let ended = {
            let mut served = pin!(listener.serve(stream, client, spoken, &mut slot, &limits));
            let cut = pin!(listener.drain.cut());
            let mut cut = PhaseWatch::new(&listener.drain, DrainPhase::Cut, cut);
            poll_fn(|cx| match cut.poll(cx) {
                Poll::Ready(()) => Poll::Ready(CloseReason::ByPeer),
                Poll::Pending => served.as_mut().poll(cx),
            })
            .await
        };
        if let CloseReason::Clock(clock) = ended {
            listener.worker.state.metrics.connections.timed_out.with_label_values(&[clock]).inc();
            tracing::debug!(%client, clock, "connection cut");
        }
        // Counted to here, after the socket was dropped.
        drop(slot);
    });
}

impl WorkerListener {
    /// Everything from the first byte of a connection to its end.
    async fn serve(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
        spoken: ListenerProtocols,
        slot: &mut ConnectionPermit,
        limits: &LimitsConfig,
    ) -> CloseReason {
        let deadline = Instant::now() + limits.handshake_timeout;
        let mut client = peer;
        if spoken.proxy_protocol {
            let header = tokio::select! {
                header = timeout_at(deadline, proxy_protocol::read(&mut stream)) => header,
                () = self.drain.closing() => return CloseReason::ByPeer,
            };
            match header.unwrap_or(Err(ProxyProtocolError::TimedOut)) {
                Ok(handed_on) => client = handed_on.unwrap_or(peer),
                Err(error) => {
                    self.refuse_proxied(peer, &error);
                    return CloseReason::ByPeer;
                }
            }
            if !self.is_proxy(client.ip())
                && let Err(refused) = slot.charge(client.ip())
            {
                self.refuse(refused);
                return CloseReason::ByPeer;
            }
        }
        let SecuredStream { stream, protocol, proof, shown } = match spoken.tls {
            None => SecuredStream::in_clear(stream),
            Some(server) => match Box::pin(self.secure(stream, client, server, limits, deadline)).await {
                Some(secured) => secured,
                None => return CloseReason::ByPeer,
            },
        };
        let peer = Peer::new(client, self.on_loopback, proof, shown);
        connection::serve(&self.worker, Rc::clone(&self.proxy), (stream, protocol), &peer, limits).await
    }

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
