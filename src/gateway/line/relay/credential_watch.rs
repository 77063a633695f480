//! The credentials that a stream was opened with, as long as it is open: key or token, the sign-in behind it, and the
//! certificate of its connection, whatever the endpoint goes by.
//!
//! Nothing runs for it. Two timers and news of the sign-in wake the connection, and a reload does, which may have withdrawn the
//! authority.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::{Sleep, sleep_until};

use crate::access::tls::TlsServers;
use crate::context::call::Call;
use crate::context::peer::Peer;
use crate::context::state::State;

type Timer = Option<Pin<Box<Sleep>>>;

pub(super) struct CredentialWatch {
    state: Arc<State>,
    peer: Rc<Peer>,
    /// It is the certificate that said who opens the stream.
    is_by_certificate: bool,
    end: Timer,
    certificate_end: Timer,
    /// Ends when there is news of the sign-in; gone once it has.
    grant_end: Option<Pin<Box<dyn Future<Output = ()>>>>,
    has_grant_ended: bool,
}

impl CredentialWatch {
    /// The credentials of this call; `None` where nothing of them ends.
    pub(super) fn start(call: &Call, state: &Arc<State>) -> Option<Box<Self>> {
        let caller = call.caller.as_ref();
        let ends = caller.and_then(|caller| caller.ends);
        let certificate_ends = call.peer().certificate_ends();
        let timer = |at: Option<Instant>| at.map(|at| Box::pin(sleep_until(at.into())));
        let grant = caller.and_then(|caller| caller.grant.clone());
        (ends.is_some() || certificate_ends.is_some() || grant.is_some()).then(|| {
            Box::new(Self {
                state: Arc::clone(state),
                peer: Rc::clone(call.peer()),
                is_by_certificate: caller.is_some_and(|caller| caller.principal.is_by_certificate()),
                end: timer(ends),
                certificate_end: timer(certificate_ends),
                grant_end: grant.map(|grant| Box::pin(grant.end()) as _),
                has_grant_ended: false,
            })
        })
    }

    /// True if they are not good any more; otherwise the connection is woken when that may be so.
    pub(super) fn have_ended(&mut self, cx: &mut Context<'_>) -> bool {
        if self.grant_end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            self.grant_end = None;
            self.has_grant_ended = true;
        }
        let mut has_rung = |timer: &mut Timer| {
            timer.as_mut().is_some_and(|timer| matches!(timer.as_mut().poll(cx), Poll::Ready(())))
        };
        has_rung(&mut self.certificate_end);
        has_rung(&mut self.end) || self.has_grant_ended || self.is_certificate_void(&self.state.tls)
    }

    fn is_certificate_void(&self, servers: &TlsServers) -> bool {
        let is_nobody_told = self.is_by_certificate && self.peer.certificate(servers).is_none();
        is_nobody_told || self.peer.has_expired(servers) || self.peer.is_disbelieved(servers)
    }
}
