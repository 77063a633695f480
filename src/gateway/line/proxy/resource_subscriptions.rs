//! What a client subscribed to within its session, so that an upstream that lost the session is told again.
//!
//! It is remembered before it is sent, and forgotten if the upstream refuses: here where the whole reply is at hand, and
//! by the relay where it is an event.

use crate::line::legacy::no_state;
use crate::line::relay::ReplyBody;
use crate::line::response::ClientResponse;
use crate::session::{NotSubscribed, Session, Sessions};
use protocol::error::{ClientError, Error, GatewayError};
use protocol::method::Method;

/// A resource that a client wants to be told of, or no longer wants to be told of; none where it asks for something else.
pub(super) struct ResourceSubscription<'s> {
    pub(super) sessions: &'s Sessions,
    pub(super) session: &'s Session,
    pub(super) upstream: &'s str,
    /// As the upstream spells it.
    pub(super) uri: Option<&'s str>,
}

impl ResourceSubscription<'_> {
    /// Remembers it, so that the upstream's stream is open before it is asked, or forgets it. True if it is to be
    /// forgotten again should the upstream refuse.
    pub(super) fn note(&self, method: Method, uris_max: usize) -> Result<bool, Error> {
        let Some(uri) = self.uri else { return Ok(false) };
        if method == Method::Unsubscribe {
            self.forget();
            return Ok(false);
        }
        let noted = self.sessions.subscribe(self.session.owner(), (self.upstream, uri), uris_max);
        noted.map_err(|error| match error {
            NotSubscribed::TooMany => GatewayError::Subscriptions.into(),
            NotSubscribed::TooLong => ClientError::Params { why: "params.uri is too long to be kept" }.into(),
            NotSubscribed::NoState(none) => no_state(none),
        })
    }

    /// Forgets it, if it was new and the upstream refused it.
    pub(super) fn settle(&self, is_new: bool, result: &Result<ClientResponse, Error>) {
        if is_new && is_refused(result) {
            self.forget();
        }
    }

    fn forget(&self) {
        if let Some(uri) = self.uri {
            self.sessions.unsubscribe(self.session.grant.id, self.upstream, uri);
        }
    }
}

/// Whether a subscription was refused, as far as that can be told without waiting for the rest of the reply.
fn is_refused(result: &Result<ClientResponse, Error>) -> bool {
    match result.as_ref().map(|response| &response.body) {
        Ok(ReplyBody::Whole(reply, _)) => memchr::memmem::find(&reply.to_bytes(), b"\"error\"").is_some(),
        Ok(_) => false,
        Err(_) => true,
    }
}
