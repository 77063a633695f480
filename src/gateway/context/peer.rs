//! The other end of a connection: what is known of it, and its clocks.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::CertificateDer;

use crate::access::auth::caller_cache::CallerCache;
use crate::access::auth::certificate::ClientCertificate;
use crate::access::limit::payer::Payer;
use crate::access::tls::names::CertificatesByHost;
use crate::access::tls::{TlsServer, TlsServers};
use crate::clock;
use crate::session::session_cache::SessionCache;
use config::LimitsConfig;

/// A longer host is not remembered.
const HOST_BYTES_MAX: usize = 255;

/// What is known of the other end of a connection, and its clocks.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The client's address, or that of the proxy whose requests say for whom they are.
    pub address: SocketAddr,
    /// Who is charged for what its clients hold that show no credentials.
    pub payer: Payer,
    proof: Option<Box<ClientProof>>,
    /// Who called last on it.
    pub remembered: CallerCache,
    /// The session that was named last on it.
    pub session: SessionCache,
    /// The host that was named last, and the endpoint that is served under it on this connection.
    host: RefCell<Option<(u64, Box<str>)>>,
    pub on_loopback: bool,
    /// The name that the client asked for, and whose certificates there are, where it speaks TLS.
    pub shown: Option<ServedCertificate>,
    is_http2: Cell<bool>,
    calls: Cell<usize>,
    /// When the first byte of an unfinished head arrived.
    head_since: Cell<Option<Instant>>,
    idle_since: Cell<Instant>,
}

#[derive(Debug)]
pub(crate) struct ServedCertificate {
    /// The name that the client asked for.
    pub name: Option<Box<str>>,
    /// The names of all certificates of the listener.
    pub names: Arc<CertificatesByHost>,
}

/// A client's certificate, and who believed it.
#[derive(Debug)]
pub(crate) struct ClientProof {
    certificate: ClientCertificate,
    chain: Box<[CertificateDer<'static>]>,
    /// The listener's number.
    place: usize,
    believed_by: RefCell<Arc<TlsServer>>,
}

impl ClientProof {
    /// `chain` was believed by `server`, the TLS of the listener with the number `place`; `certificate` is the first of it.
    pub(crate) fn new(
        certificate: ClientCertificate,
        chain: &[CertificateDer<'static>],
        place: usize,
        server: &Arc<TlsServer>,
    ) -> Self {
        let believed_by = RefCell::new(Arc::clone(server));
        Self { certificate, chain: chain.into(), place, believed_by }
    }

    fn certificate(&self, servers: &TlsServers) -> Option<&ClientCertificate> {
        // What is connected to a listener that is gone ends as it began.
        let Some(spoken) = servers.get(self.place) else { return Some(&self.certificate) };
        let server = spoken.tls?;
        let mut believed_by = self.believed_by.borrow_mut();
        if !Arc::ptr_eq(&believed_by, &server) {
            if !server.trusts(&self.chain) {
                return None;
            }
            *believed_by = server;
        }
        Some(&self.certificate)
    }

    /// True if its listener asks for certificates still, and so has somebody to check this one.
    fn is_asked_for(&self, servers: &TlsServers) -> bool {
        let server = servers.get(self.place).and_then(|spoken| spoken.tls);
        server.is_some_and(|server| server.asks_for_certificates())
    }
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, on_loopback: bool) -> Rc<Self> {
        Self::with_tls(address, on_loopback, None, None)
    }

    /// One that showed this certificate, and was shown that one.
    pub(crate) fn with_tls(
        address: SocketAddr,
        on_loopback: bool,
        proof: Option<ClientProof>,
        shown: Option<ServedCertificate>,
    ) -> Rc<Self> {
        Rc::new(Self {
            address,
            payer: Payer::network(address.ip()),
            proof: proof.map(Box::new),
            remembered: CallerCache::default(),
            session: SessionCache::default(),
            host: RefCell::default(),
            on_loopback,
            shown,
            is_http2: Cell::new(false),
            calls: Cell::new(0),
            head_since: Cell::new(None),
            idle_since: Cell::new(clock::now()),
        })
    }

    /// The certificate that the connection showed, if it would still be believed by its listener.
    pub(crate) fn certificate(&self, servers: &TlsServers) -> Option<&ClientCertificate> {
        self.proof.as_ref().and_then(|proof| proof.certificate(servers))
    }

    /// When the certificate ends that the connection showed.
    pub(crate) fn certificate_ends(&self) -> Option<Instant> {
        self.proof.as_ref().and_then(|proof| clock::moment_of(proof.certificate.expires_s))
    }

    /// True if the connection showed a certificate that its listener would not believe any more. Where the listener asks
    /// for none by now, the certificate says nothing: the connection is as one that showed none.
    pub(crate) fn is_disbelieved(&self, servers: &TlsServers) -> bool {
        let is_so = |proof: &ClientProof| proof.certificate(servers).is_none() && proof.is_asked_for(servers);
        self.proof.as_ref().is_some_and(|proof| is_so(proof))
    }

    /// True if the connection showed a certificate that has ended since, and its listener asks for certificates still.
    pub(crate) fn has_expired(&self, servers: &TlsServers) -> bool {
        let is_so = |proof: &ClientProof| {
            proof.certificate.expires_s <= clock::now_s() && proof.is_asked_for(servers)
        };
        self.proof.as_ref().is_some_and(|proof| is_so(proof))
    }

    /// Whether a request for `host`, without its port, belongs on this connection.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        self.shown.as_ref().is_none_or(|shown| shown.names.agree(shown.name.as_deref(), host))
    }

    /// Whether the last request named this host for the endpoint of this id, and might.
    pub(crate) fn is_last_host(&self, endpoint: u64, host: &str) -> bool {
        self.host.borrow().as_ref().is_some_and(|(at, last)| *at == endpoint && **last == *host)
    }

    /// This host may be named for the endpoint of this id.
    pub(crate) fn keep_host(&self, endpoint: u64, host: &str) {
        if host.len() <= HOST_BYTES_MAX {
            self.host.replace(Some((endpoint, host.into())));
        }
    }

    /// The first byte of a request came.
    pub(crate) fn begin(&self, is_http2: bool) {
        self.head_since.set(Some(clock::now()));
        self.is_http2.set(is_http2);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.calls.get() > 0
    }

    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since.get()
    }

    pub(crate) fn enter(self: &Rc<Self>) -> InCall {
        self.calls.set(self.calls.get() + 1);
        self.head_since.set(None);
        InCall(Rc::clone(self))
    }

    /// Bytes came: between two calls they are the beginning of a head.
    pub(crate) fn received(&self) {
        if self.calls.get() == 0 && self.head_since.get().is_none() {
            self.head_since.set(Some(clock::now()));
        }
    }

    /// Which clock ran out.
    pub(crate) fn overdue(&self, now: Instant, limits: &LimitsConfig) -> Option<&'static str> {
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
pub(crate) struct InCall(pub Rc<Peer>);

impl InCall {
    /// Counts another call of the same request.
    #[must_use]
    pub(crate) fn another(&self) -> Self {
        self.0.enter()
    }

    /// The call has ended. Only its [`Call`](crate::context::call::Call) says so, once.
    pub(crate) fn leave(&self, now: Instant) {
        self.0.calls.set(self.0.calls.get().saturating_sub(1));
        self.0.idle_since.set(now);
    }
}
