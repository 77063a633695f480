//! One address of an upstream: where it is, how busy it is, and whether it is fit.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Uri};
use net::socket::TcpStream;
use prometheus::IntCounter;
use sha2::{Digest as _, Sha256};

use super::fault::{Fault, LastFault};
use super::health::breaker::{Breaker, BreakerState, Pass, RequestFault, Rules};
use super::health::load::Load;
use super::health::{Padded, clock_ms};
use super::http1::request::RequestAddress;
use crate::clock;
use net::dns;
use net::secret::Secret;
use net::tls::Connector;
use zeroize::Zeroizing;

/// Identifies a replica among all of its upstream; the same after a restart and on other gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReplicaKey(pub u64);

#[derive(Debug)]
pub(crate) struct Replica {
    /// Tells the replica apart from all others of its upstream.
    pub key: ReplicaKey,
    pub host: String,
    /// Where to connect.
    pub port: u16,
    /// Where to connect; `None`: the name of its host was not resolved yet.
    pub address: Option<SocketAddr>,
    /// Where it is by its URL: a host, and a port unless that is the usual one.
    authority: HeaderValue,
    /// The `Host` header.
    pub sent_host: HeaderValue,
    pub target: Uri,
    /// Both, as a request names them.
    pub request_address: RequestAddress,
    /// How it is reached over TLS; `None`: in clear text.
    pub tls: Option<Arc<Connector>>,
    /// Its address, for metrics and the log.
    pub label: Box<str>,
    /// Its place among the URLs of its upstream.
    pub(super) url: usize,
    /// When requests keep away from it.
    pub rules: Rules,
    /// Whether they do.
    pub breaker: Padded<Breaker>,
    pub load: Load,
    /// The fault that its questions and calls met last.
    pub faults: LastFault,
    /// Since when it is known.
    known_since: Instant,
    is_gone: AtomicBool,
    upstream: Box<str>,
    openings: IntCounter,
}

/// What all replicas of an upstream have in common.
#[derive(Clone, Debug)]
pub(super) struct ReplicaCommon {
    /// Its name.
    pub(super) upstream: Box<str>,
    /// When requests keep away from them.
    pub(super) rules: Rules,
    /// Counts how often they do.
    pub(super) openings: IntCounter,
    /// How they are reached over TLS, where their URLs say so.
    pub(super) tls: Option<Arc<Connector>>,
    /// The `Host` that they are sent, where that is not the one of the URL.
    pub(super) host: Option<HeaderValue>,
    /// What is added to the query of their URLs.
    pub(super) query: Option<Secret>,
}

impl ReplicaCommon {
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let is_reached_alike = match (&self.tls, &other.tls) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.rules == other.rules && is_reached_alike
    }
}

impl Replica {
    /// The replica of the URL with this index. Fails only on a URL that the configuration should have refused.
    pub(super) fn new(
        (index, url): (usize, &config::Url),
        address: Option<SocketAddr>,
        breaker: Breaker,
        common: &ReplicaCommon,
    ) -> Result<Self, http::Error> {
        let ReplicaCommon { upstream, rules, openings, tls, host, query } = common.clone();
        let (authority, target) = (HeaderValue::from_str(&url.authority)?, url.path_and_query.parse()?);
        let sent_host = host.unwrap_or_else(|| authority.clone());
        let request_address = match query {
            None => RequestAddress::new(&target, &sent_host),
            Some(query) => RequestAddress::new(&with_query(&url.path_and_query, &query)?, &sent_host),
        };
        Ok(Self {
            key: key(url, address),
            host: url.host.clone(),
            port: url.port,
            address,
            request_address,
            authority,
            sent_host,
            target,
            tls: tls.filter(|_| url.is_tls),
            label: label(url, address),
            url: index,
            rules,
            breaker: Padded(breaker),
            load: Load::default(),
            faults: LastFault::default(),
            known_since: clock::now(),
            is_gone: AtomicBool::new(false),
            upstream,
            openings,
        })
    }

    pub(crate) async fn open(&self) -> io::Result<TcpStream> {
        match self.address {
            Some(address) => TcpStream::connect(address).await,
            None => dns::connect(&self.host, self.port).await,
        }
    }

    /// Whether its address is no longer one of its upstream.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// For how long it has had no address, or its breaker has not been closed; `None`: requests go there.
    pub(crate) fn down_for(&self, now: Instant) -> Option<Duration> {
        if self.address.is_none() {
            return Some(now.saturating_duration_since(self.known_since));
        }
        let breaker = &self.breaker.0;
        let is_closed = breaker.state() == BreakerState::Closed;
        (!is_closed).then(|| Duration::from_millis(breaker.open_for_ms(clock_ms(now))))
    }

    /// Its URL, without the query, which may hold a secret.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let authority = self.authority.to_str().unwrap_or(&self.host);
        format!("{scheme}://{authority}{}", self.target.path())
    }

    /// Its address is no longer one of its upstream; what is on its way ends as it may.
    pub(super) fn leave(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note_success(&self, pass: Pass) {
        // Only what closes the breaker needs to know what time it is.
        let now_ms = if pass == Pass::Trial { clock_ms(clock::now()) } else { 0 };
        if self.breaker.0.succeed(pass, now_ms) {
            self.say_closed();
        }
    }

    pub(crate) fn note_failure(&self, pass: Pass, failure: RequestFault) {
        if self.breaker.0.fail(pass, failure, &self.rules, clock_ms(clock::now())) {
            self.say_opened(if failure == RequestFault::TimedOut {
                "does not answer in time"
            } else {
                "fails"
            });
        }
    }

    /// It answered a question, or did not.
    pub(crate) fn note_found(&self, is_fit: bool) {
        let now_ms = clock_ms(clock::now());
        if is_fit {
            if self.breaker.0.found_fit(&self.rules, now_ms) {
                self.say_closed();
            }
        } else if self.breaker.0.found_unfit(&self.rules, now_ms) {
            self.say_opened("answers no questions");
        }
    }

    /// A call or a question met a fault. Of what may be that call's own nothing is concluded.
    #[cold]
    pub(crate) fn note_fault(&self, fault: Fault) {
        let is_standing = fault.is_of_server();
        self.faults.note(fault, self.load.answered(), is_standing);
    }

    /// A question met a fault that says how the server is.
    #[cold]
    pub(crate) fn note_found_fault(&self, fault: Fault) {
        self.faults.note(fault, self.load.answered(), true);
    }

    fn say_opened(&self, why: &str) {
        self.openings.inc();
        let last = self.faults.latest().map(|noted| noted.fault.to_string());
        tracing::warn!(
            upstream = &*self.upstream,
            replica = &*self.label,
            why,
            last_error = last,
            "circuit breaker opened: the replica gets no calls until it is healthy again"
        );
    }

    fn say_closed(&self) {
        tracing::info!(
            upstream = &*self.upstream,
            replica = &*self.label,
            "circuit breaker closed: the replica gets calls again"
        );
    }
}

/// The target of a request with more in its query.
fn with_query(target: &str, query: &Secret) -> Result<Uri, http::Error> {
    let separator = if target.contains('?') { b"&" } else { b"?" };
    let whole = Zeroizing::new([target.as_bytes(), separator, query.expose()].concat());
    Ok(Uri::try_from(&**whole)?)
}

/// Two names may lead to the same address, and mean different servers there.
pub(super) fn key(url: &config::Url, address: Option<SocketAddr>) -> ReplicaKey {
    let mut digest = Sha256::new();
    digest.update(format!("{} {} {} {}\n", url.is_tls, url.host, url.port, url.path_and_query));
    if let Some(address) = address {
        digest.update(address.to_string());
    }
    let first = digest.finalize().iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte));
    ReplicaKey(first)
}

/// Without the query, which may hold a secret.
fn label(url: &config::Url, address: Option<SocketAddr>) -> Box<str> {
    let path = url.path_and_query.split('?').next().unwrap_or_default();
    match address {
        Some(address) => format!("{address}{path}").into(),
        None => format!("{}{path}", url.authority).into(),
    }
}
