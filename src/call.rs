//! One request on its way, from its headers to the end of its reply.
//!
//! It knows what a log line and a metric need. Invariant: its metric is recorded exactly once, when it is
//! dropped; a call that nobody finished was given up by the client.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;

use crate::auth::Principal;
use crate::caller::Caller;
use crate::config::Networks;
use crate::limit::connections::client_network;
use crate::listener::{InCall, Peer};
use crate::message::Seen;
use crate::protocol::error::{Error, PolicyError, Reason};
use crate::protocol::forwarded;
use crate::protocol::method::Method;
use crate::protocol::version::Era;
use crate::snapshot::Endpoint;
use crate::telemetry::logs::{Failure, FailureLog, shorten};
use crate::telemetry::metrics::EndpointSeries;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Answered,
    Failed(Reason),
}

/// One request on its way.
#[derive(Debug)]
pub struct Call {
    /// When its headers were read.
    pub started: Instant,
    /// What it asks for, and in which era, as far as it is known.
    pub seen: Seen,
    /// Who asks; `None` until its credentials were checked.
    pub caller: Option<Rc<Caller>>,
    /// The endpoint that took it.
    pub endpoint: Option<Rc<Arc<Endpoint>>>,
    /// The upstream it was sent to, for the log.
    pub upstream: Option<Rc<str>>,
    /// True once its `Origin` was checked.
    pub is_origin_allowed: bool,
    /// What it calls, as far as it is known; for the log.
    pub name: Option<String>,
    client_address: IpAddr,
    unmatched: Rc<Arc<EndpointSeries>>,
    connection: InCall,
    log: Rc<FailureLog>,
    end: End,
}

impl Call {
    /// Starts the clock.
    pub fn start(connection: InCall, unmatched: Rc<Arc<EndpointSeries>>, log: Rc<FailureLog>) -> Self {
        Self {
            started: Instant::now(),
            seen: Seen { method: Method::Other, era: Era::Modern },
            caller: None,
            endpoint: None,
            upstream: None,
            is_origin_allowed: false,
            name: None,
            client_address: connection.0.address.ip(),
            unmatched,
            connection,
            log,
            end: End::Open,
        }
    }

    /// One of several that came in the same request.
    #[must_use]
    pub fn part(&self) -> Self {
        let connection = self.connection.another();
        let mut part = Self::start(connection, Rc::clone(&self.unmatched), Rc::clone(&self.log));
        part.caller.clone_from(&self.caller);
        part.endpoint.clone_from(&self.endpoint);
        part.is_origin_allowed = self.is_origin_allowed;
        part.client_address = self.client_address;
        part.seen.era = self.seen.era;
        part
    }

    /// Takes the client's address from `headers`, where a trusted proxy wrote them.
    pub fn believe(&mut self, headers: &HeaderMap, proxies: &Networks) {
        if !proxies.is_empty() {
            let is_trusted = |address| proxies.contain(address);
            self.client_address = forwarded::client_address(headers, self.client_address, is_trusted);
        }
    }

    /// The client's address, behind the proxies that are trusted.
    pub fn client_address(&self) -> IpAddr {
        self.client_address
    }

    /// True if the client connected to a loopback address.
    pub fn on_loopback(&self) -> bool {
        self.connection.0.on_loopback
    }

    /// Who is counted as one client: the principal, or without credentials the network it connects from.
    pub fn client(&self) -> Cow<'_, str> {
        match self.principal() {
            Principal::Anonymous => client_network(self.client_address).to_string().into(),
            principal @ Principal::Known(_) => principal.id().into(),
        }
    }

    /// Who asks, as far as its credentials were checked.
    pub fn principal(&self) -> &Principal {
        self.caller.as_ref().map_or(&Principal::Anonymous, |caller| &caller.principal)
    }

    /// Who asks; an error before its credentials were checked.
    pub fn caller(&self) -> Result<&Rc<Caller>, PolicyError> {
        self.caller.as_ref().ok_or(PolicyError::NoCredentials)
    }

    /// The other end of its connection.
    pub fn peer(&self) -> &Rc<Peer> {
        &self.connection.0
    }

    /// The call was answered, with a result or with an upstream's own error.
    pub fn finish(&mut self) {
        self.end = End::Answered;
    }

    /// The call failed. Writes its log line.
    pub fn fail(&mut self, error: &Error) {
        self.end = End::Failed(error.outcome().reason);
        let peer = self.connection.0.address;
        let is_forwarded = peer.ip() != self.client_address;
        let client = if is_forwarded { self.client_address.to_string() } else { peer.to_string() };
        self.log.write(
            &Failure {
                endpoint: self.endpoint.as_ref().map_or("-", |endpoint| &endpoint.config.path),
                method: self.seen.method.label(),
                name: &self.name.as_deref().map_or_else(|| "-".into(), shorten),
                upstream: self.upstream.as_deref().unwrap_or("-"),
                principal: self.principal().name(),
                client: &client,
                error,
            },
            Instant::now(),
        );
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let reason = match self.end {
            End::Answered => None,
            End::Failed(reason) => Some(reason),
            End::Open => Some(Reason::Cancelled),
        };
        let series = self.endpoint.as_ref().map_or(&**self.unmatched, |endpoint| &*endpoint.series);
        let now = Instant::now();
        series.observe(self.seen.method, reason, now.duration_since(self.started).as_secs_f64());
        self.connection.leave(now);
    }
}
